//! The whole mesh, put together from the rows of its canaries, and what it says of nodes and links.

pub mod matrix;
pub mod row;
pub mod verdicts;
