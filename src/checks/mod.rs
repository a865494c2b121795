//! Checks of what pods depend on: the DNS, the API server, a Service of the cluster, and targets
//! outside of it.
//!
//! [`target`] says what is checked, `attempt` makes one attempt, `schedule` decides when the next
//! one is due, and [`run`] joins them. A check has no part in the probing of peers: a handshake of
//! TLS computes for longer than a probe may wait, so checks run beside the requests of an HTTP
//! worker.
//!
//! The traps:
//! * Every answer is hostile until proven otherwise: its bytes and its time are bounded.
//! * Only the operator names targets. Nothing that an answer says makes an agent contact another
//!   address, and no credential is ever sent.

mod attempt;
mod authorities;
mod certificate;
mod dns;
mod failure;
mod http;
mod icmp;
mod list;
mod parse;
mod runner;
mod schedule;
mod stamp;
mod target;
#[cfg(test)]
mod tests;
mod tls;

pub use crate::discovery::address::Host;
pub use attempt::{Attempt, Context, attempt, attempt_time};
pub use authorities::AuthoritiesFile;
pub use dns::{AddressQuestions, DnsRecord, Resolution, SystemDns, addresses, system_dns};
pub use list::{CheckListError, ChecksConfig, ChecksFile};
pub use parse::CheckSpecError;
pub use runner::{CheckPlan, CheckResults, run};
pub use schedule::DueAttempt;
pub use target::{CheckSpec, CheckTarget, HostPort};

/// Entry points to private parsers, for the targets in `fuzz/`.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    pub use super::list::fuzz_file as checks_file;
}
