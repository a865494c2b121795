//! The mesh as a whole: what all agents measured, the cause of losses, and the page that shows
//! them.
//!
//! Any agent can answer for the mesh. On request it collects the reports of the others (`collect`),
//! keeps what the verdicts need (`matrix`), and judges (`verdicts`). Three agents do so without
//! requests (`judge`). On the others, none of it runs or takes memory without requests.

mod collect;
pub mod domains;
mod frame_writer;
mod judge;
mod openings;
pub mod page;
mod queue;
mod routes;
pub mod split;
mod times;

pub use kube_canary_verdicts::{self as verdicts, matrix};

pub use judge::{JUDGES, JudgeTimes};
pub use routes::MeshRoutes;
pub use times::Times;
