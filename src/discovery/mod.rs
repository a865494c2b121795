//! Who is in the mesh. Three sources (static, DNS, Kubernetes) give the same thing: a whole [`PeerList`], now and
//! whenever it changes.
//!
//! The trap that this stage avoids: an error is never an empty list. A source that fails says so in the log, keeps
//! quiet on the channel, and the last good list stays in force; its age is exported.

pub mod dns;
pub mod kubernetes;
mod random;
mod report;
pub mod static_list;

use std::net::IpAddr;

pub use dns::DnsConfig;
pub use kubernetes::{DIRECTORY as SERVICE_ACCOUNT_DIRECTORY, KubernetesConfig};
pub use static_list::StaticConfig;

/// What a source says about a peer's readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Readiness {
    /// Serving.
    Ready,
    /// Listed, but not serving: a failing peer must stay visible, so it is probed as any other.
    Unready,
    /// On its way out: probed, but its losses are no alarm.
    Terminating,
}

/// One address of one node, as a source lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSpec {
    /// The node's name: what makes a peer one and the same over time.
    pub node: String,
    /// Where probes go. Never unspecified; the family decides the protocol.
    pub address: IpAddr,
    /// The topology zone, where it is known.
    pub zone: Option<String>,
    /// As of this list.
    pub readiness: Readiness,
    /// The port of its HTTP server, where the source knows it.
    pub http_port: Option<u16>,
}

/// A complete list of the mesh as a source sees it at one moment; one's own entry may be among it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerList {
    /// In any order. Two entries of one node and one family are allowed: see [`crate::peers`] for which is used. The
    /// later entry is the newer one.
    pub peers: Vec<PeerSpec>,
}

/// Where sources send their lists, and how they say that they are still in touch.
///
/// A list that equals the one before must be sent too, or [`Update::Confirmed`] instead: `peer_list_age_seconds`
/// counts from the latest of either.
#[derive(Debug)]
pub enum Update {
    /// A new complete list.
    List(PeerList),
    /// The source has checked: the last list is still right.
    Confirmed,
}

/// The sending half of the channel between a source and the probe loop (bounded: a source waits).
pub type Updates = tokio::sync::mpsc::Sender<Update>;

/// Where peers come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Written down by the operator.
    Static(StaticConfig),
    /// The records of a headless Service.
    Dns(DnsConfig),
    /// The EndpointSlices of a Service. Boxed: it is many times the size of the others.
    Kubernetes(Box<KubernetesConfig>),
}

/// Why discovery cannot start: each is one line for exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A peer or the peers file.
    #[error(transparent)]
    Static(#[from] static_list::PeerError),
    /// The DNS name.
    #[error("--dns: {0}; accepted: a name such as kube-canary.monitoring.svc")]
    Dns(#[from] dns::ResolveError),
    /// Not in a cluster, or its service account cannot be used.
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::ConfigError),
}

impl Source {
    /// What must stop the start: a bad `--peer`, an unreadable peers file, a name that DNS cannot carry.
    /// ([`KubernetesConfig::in_cluster`] has checked its own.) Whatever only the network can tell is no error here.
    ///
    /// # Errors
    /// [`DiscoveryError`]
    pub fn validate(&self) -> Result<(), DiscoveryError> {
        match self {
            Self::Static(config) => drop(config.load()?),
            Self::Dns(config) => dns::check_name(&config.name)?,
            Self::Kubernetes(_) => {}
        }
        Ok(())
    }
}

/// Sends what the source finds, for ever, on the caller's current-thread runtime (with I/O and time); returns only when
/// the receiver is gone. Failures are logged and retried; they are never an [`Update`].
pub async fn run(source: Source, updates: Updates) {
    match source {
        Source::Static(config) => static_list::run(config, updates).await,
        Source::Dns(config) => dns::run(config, updates).await,
        // Boxed: else each source would pay for the largest state machine.
        Source::Kubernetes(config) => Box::pin(kubernetes::run(*config, updates)).await,
    }
}
