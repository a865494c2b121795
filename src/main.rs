//! The plain binary.

fn main() {}
