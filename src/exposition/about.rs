//! What an agent says of itself in its row, beside what it measures.

use super::process::{Resident, cpus};
use crate::allocator::AllocatorInfo;

/// The commit that this program was built from: 12 digits of its hash, what `KUBE_CANARY_REVISION`
/// said at build time, or `unknown`.
pub const REVISION: &str = env!("KUBE_CANARY_REVISION");

/// The build and the machine, found once; and the memory of both the row and `/metrics`.
#[derive(Debug)]
pub struct About {
    /// The malloc that runs.
    pub allocator: &'static str,
    /// Its arenas, where it is jemalloc.
    pub narenas: Option<u32>,
    /// `rust` or `c-shim`.
    pub linkage: &'static str,
    /// Processors of the machine that are online.
    pub cpus: usize,
    /// Resident memory.
    pub resident: Resident,
}

impl About {
    /// Of an agent with this allocator.
    pub fn new(allocator: &AllocatorInfo) -> Self {
        Self {
            allocator: allocator.allocator,
            narenas: allocator.narenas,
            linkage: allocator.linkage,
            cpus: cpus(),
            resident: Resident::default(),
        }
    }
}
