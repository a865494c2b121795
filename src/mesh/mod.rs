//! The mesh as a whole: what all canaries saw, who is to blame, and the page that shows it.
//!
//! Any canary answers for the mesh: it gathers the others' rows when it is asked (`gather`), keeps of each what the verdicts
//! need (`matrix`), and judges (`verdicts`). Nothing of it runs, or takes memory, while nobody asks.

pub mod domains;
mod frontier;
mod gather;
pub mod matrix;
pub mod page;
mod pipe;
mod routes;
pub mod row;
pub mod split;
mod targets;
mod times;
pub mod verdicts;

pub use routes::MeshRoutes;
pub use times::Times;
