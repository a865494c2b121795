//! What an agent's report says about the agent itself, beside its measurements.

use super::api::CompactReport;
use super::process::{ResidentCache, cpus};
use crate::allocator::AllocatorInfo;

/// The commit that this program was built from: 12 digits of its hash, the value of
/// `KUBE_CANARY_REVISION` at build time, or `unknown`.
pub const REVISION: &str = env!("KUBE_CANARY_REVISION");

/// Facts about the build and the machine, found once at start. Also holds what answers share: the
/// reading of resident memory, and the compact report.
#[derive(Debug)]
pub struct About {
    /// The name of the malloc that runs.
    pub allocator: &'static str,
    /// The number of jemalloc's arenas. None for any other malloc.
    pub narenas: Option<u32>,
    /// How the program was linked: `rust` or `c-shim`.
    pub linkage: &'static str,
    /// The libc that the program is linked with.
    pub libc: &'static str,
    /// Number of CPUs of the machine that are online, if the kernel tells it.
    pub cpus: Option<usize>,
    /// Whether the agent is a member of the mesh, and does not probe it from outside.
    pub is_member: bool,
    /// The shared reading of resident memory.
    pub resident: ResidentCache,
    /// The shared compact report.
    pub compact: CompactReport,
}

impl About {
    /// Collects the facts for an agent that runs with this allocator.
    pub fn new(allocator: &AllocatorInfo) -> Self {
        Self {
            allocator: allocator.allocator,
            narenas: allocator.narenas,
            linkage: allocator.linkage,
            libc: allocator.libc,
            cpus: cpus(),
            is_member: true,
            resident: ResidentCache::default(),
            compact: CompactReport::default(),
        }
    }
}
