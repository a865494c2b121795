//! Discovers the nodes of the mesh. Each of the three sources (static, DNS, Kubernetes) sends a
//! complete [`PeerList`] at the start and whenever it changes.
//!
//! `update` has the types that all modules share, and `source` runs a source. A module names only
//! those before it in the order that `tests/direction.rs` checks.
//!
//! The trap that this stage avoids: an error is never an empty list. A source that fails logs the
//! failure and sends nothing. The last good list stays in force, and its age is exported.

pub mod address;
pub mod dns;
mod hash;
mod holder;
mod identity;
pub mod kubernetes;
pub mod members;
mod narrow;
pub mod random;
pub mod ranks;
mod report;
pub mod roster;
pub mod selection;
mod source;
pub mod static_list;
mod timer;
pub mod underlay;
mod update;

pub use dns::DnsConfig;
pub use hash::in_reports as name_in_reports;
pub use identity::{IdentityAnswer, PATH as IDENTITY_PATH, parse as parse_identity};
pub use kubernetes::{DIRECTORY as SERVICE_ACCOUNT_DIRECTORY, KubernetesConfig};
pub use members::{MemberId, Members};
pub use ranks::{ListedMember, Ranked, Ranks};
pub use roster::Roster;
pub use selection::{Scheme, Selection, select};
pub use source::{DiscoveryError, DiscoverySource, run};
pub use static_list::StaticConfig;
pub use update::{MeshFacts, Ourselves, PeerList, PeerSpec, Questions, Readiness, Update, Updates};

/// Entry points to private parsers, for the targets in `fuzz/`.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use super::identity::fuzz_answer as identity;
    pub use super::static_list::fuzz_file as peers_file;
}
