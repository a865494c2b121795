//! The operator's view of the whole mesh.

pub mod page;
