//! The mesh as a whole: what all agents measured, the cause of losses, and the page that shows
//! them.
//!
//! Three agents judge (`judge`): they collect the reports of the others (`collect`), keep what the
//! verdicts need (`matrix`), and judge (`verdicts`). Any agent answers for the mesh: it passes on
//! what the judges agree on, and raw reports of named nodes (`relay`). On agents that do not judge,
//! none of it runs or takes memory without requests.

mod collect;
pub mod domains;
mod frame_writer;
mod judge;
mod openings;
pub mod page;
mod queue;
mod relay;
mod routes;
mod row_error;
pub mod split;
mod times;
mod turns;

pub use kube_canary_verdicts::{self as verdicts, matrix};

pub use judge::{JUDGES, JudgeTimes, agreed_of as agreed, is_valid_verdict};
pub use routes::MeshRoutes;
pub use times::Times;
