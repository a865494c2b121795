//! Who is in the mesh. Three sources (static, DNS, Kubernetes) give the same thing: a whole [`PeerList`], now and
//! whenever it changes.
//!
//! The trap that this stage avoids: an error is never an empty list. A source that fails says so in the log, keeps
//! quiet on the channel, and the last good list stays in force; its age is exported.

mod address;
pub mod dns;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod identity;
pub mod kubernetes;
pub mod members;
mod narrow;
mod random;
mod report;
pub mod roster;
pub mod selection;
pub mod static_list;
pub mod underlay;

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

pub use dns::DnsConfig;
pub use kubernetes::{DIRECTORY as SERVICE_ACCOUNT_DIRECTORY, KubernetesConfig};
pub use members::{MemberId, Members};
pub use roster::Roster;
pub use selection::{Scheme, Selection, select};
pub use static_list::StaticConfig;

/// The domain of clusters that were not given another. Nobody can register a name in it (RFC 6762).
const CLUSTER_DOMAIN: &str = "cluster.local";

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

/// Which of a node's networks an address is on; the `network` label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Network {
    /// The pods': often an overlay.
    #[default]
    Pod,
    /// The nodes' own, which carries the other.
    Node,
}

impl Network {
    /// Both, in label order.
    pub const ALL: [Self; 2] = [Self::Pod, Self::Node];

    /// The label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Node => "node",
        }
    }
}

/// One address of one node, as a source lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSpec {
    /// The node's name: what makes a peer one and the same over time.
    pub node: String,
    /// Where probes go: in canonical form, and one host's; the family decides the protocol.
    pub address: IpAddr,
    /// The topology zone, where it is known.
    pub zone: Option<String>,
    /// As of this list.
    pub readiness: Readiness,
    /// The port of its HTTP server, where the source knows it.
    pub http_port: Option<u16>,
    /// Which network the address is on.
    pub network: Network,
}

impl PeerSpec {
    /// A pod that is ready, of a zone and a port that the source does not tell.
    pub fn pod(node: impl Into<String>, address: IpAddr) -> Self {
        let (zone, readiness, http_port, network) = (None, Readiness::Ready, None, Network::Pod);
        Self { node: node.into(), address, zone, readiness, http_port, network }
    }

    /// Whether it is called by its address, for want of its name.
    fn is_nameless(&self) -> bool {
        self.node.parse() == Ok(self.address)
    }
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
    /// The list before, with what was learnt of its peers meanwhile, or with what half a look at the source has found: no whole
    /// word of the source, and so no confirmation. Never the first.
    Amended(PeerList),
    /// The source has checked: the last list is still right.
    Confirmed,
    /// Of the mesh as a whole; comes before the list that it goes with.
    Mesh(MeshFacts),
    /// The addresses of all members, if the lists hold only a part of them; else an empty roster.
    Roster(Arc<Roster>),
    /// The answer to a question: what the lists so far say of this address is as new as can be had.
    Sure(IpAddr),
    /// The answer to a question: nobody can say now. It may be asked again.
    Unsure(IpAddr),
}

/// What a source knows of the whole mesh, of which a list may hold a part.
///
/// Watchers are those that the selection gives a node, whether they run or not: all who are due to probe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeshFacts {
    /// Nodes, our own included, and those that have just left.
    pub members: u32,
    /// Nodes that watch ours, by the selection that all nodes make: of its own zone.
    pub watchers_in_zone: u32,
    /// Of other zones.
    pub watchers_elsewhere: u32,
    /// Watchers that ours lacks: of any zone, of half the peers that a node has. None in a full mesh, where all watch it.
    pub watchers_missing: u32,
    /// Of other zones, of a quarter: as where one zone has most nodes, and the others' cannot watch them all. None in a
    /// full mesh, and none in a mesh of one zone.
    pub watchers_missing_elsewhere: u32,
}

/// What the probe loop is about to ask a source: is what its list says of the peer at this address still right? Asked
/// before a loss is booked, answered by [`Update::Sure`], after a new list where one was needed, or by [`Update::Unsure`].
/// Only of a source that [answers](Source::answers).
pub type Questions = tokio::sync::mpsc::Receiver<IpAddr>;

/// What a source must know of ourselves.
#[derive(Clone, Debug, Default)]
pub struct Ourselves {
    /// Our node's name.
    pub node: String,
    /// Our zone, where it is configured; else our own entry in the list tells it.
    pub zone: Option<String>,
    /// Probe at most so many other nodes; 0: all.
    pub max_peers: usize,
    /// How long a node that left the list stays a member, so that a rollout moves nobody's peers.
    pub forget_after: std::time::Duration,
    /// Peers are probed at their nodes' addresses, too.
    pub node_network: bool,
    /// Our pod's addresses and our node's: no peer has them.
    pub addresses: Vec<IpAddr>,
    /// The port of a peer's HTTP server where its source does not say.
    pub http_port: u16,
    /// Notified about once a second, in a turn that the probe loop makes anyway: for what is looked at so often. A timer of
    /// its own would wake the thread two more times a second (tokio's wheel takes two steps to a second).
    pub each_second: Arc<Notify>,
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
    /// Whether it answers [`Questions`]: one that is told of changes late, and can look them up.
    pub const fn answers(&self) -> bool {
        matches!(self, Self::Kubernetes(_))
    }

    /// The names by which the Service of the agents is called where names are completed with these
    /// domains; none of static peers.
    pub fn service_names(&self, search: &[String]) -> Vec<String> {
        let written = match self {
            Self::Static(_) => Vec::new(),
            Self::Dns(config) => vec![config.name.clone()],
            Self::Kubernetes(config) => {
                let KubernetesConfig { service, namespace, .. } = &**config;
                vec![service.clone(), format!("{service}.{namespace}"), format!("{service}.{namespace}.svc")]
            }
        };
        let mut names = written.clone();
        // Not every domain behind `.svc`: a cluster may have any, but so may an attacker.
        for domain in search.iter().map(String::as_str).chain([CLUSTER_DOMAIN]) {
            let relative = written.iter().filter(|name| !name.ends_with('.'));
            names.extend(relative.map(|name| format!("{name}.{domain}")));
        }
        names
    }

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

/// Waits for a moment; where there is none, for ever.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Sends what the source finds, for ever, on the caller's current-thread runtime (with I/O and time); returns only when
/// the receiver is gone. Failures are logged and retried; they are never an [`Update`].
pub async fn run(source: Source, ourselves: Ourselves, questions: Questions, updates: Updates) {
    if !ourselves.node_network {
        return follow(source, ourselves, questions, updates).await;
    }
    let (updates_of_source, from_source) = tokio::sync::mpsc::channel(1);
    let (to_source, questions_to_source) = tokio::sync::mpsc::channel(questions.max_capacity());
    let identity_time = crate::limits::IDENTITY_TIME;
    let ends = underlay::Ends { from_source, to_source, questions, updates, identity_time };
    // Boxed: who probes one network does not pay for it. Either ends with the other.
    let underlay = Box::pin(async {
        tokio::select! {
            () = underlay::run(&ourselves, ends) => {}
            () = follow(source, ourselves.clone(), questions_to_source, updates_of_source) => {}
        }
    });
    underlay.await;
}

/// The same of the addresses that the source knows.
async fn follow(source: Source, ourselves: Ourselves, questions: Questions, updates: Updates) {
    match source {
        Source::Static(config) => {
            drop(questions);
            let each_second = Arc::clone(&ourselves.each_second);
            narrow::run(|lists| static_list::run(config, &each_second, lists), ourselves, updates).await;
        }
        Source::Dns(config) => {
            drop(questions);
            narrow::run(|lists| dns::run(config, lists), ourselves, updates).await;
        }
        // Boxed: else each source would pay for the largest state machine.
        Source::Kubernetes(config) => Box::pin(kubernetes::run(*config, ourselves, questions, updates)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_called_by_its_name_and_as_resolv_conf_completes_it() {
        let search = ["ns.svc.corp.local".to_owned(), "svc.corp.local".to_owned()];
        let names = |name: &str| Source::Dns(DnsConfig::new(name.to_owned(), 9_877)).service_names(&search);
        let expected = [
            "canary.ns.svc",
            "canary.ns.svc.ns.svc.corp.local",
            "canary.ns.svc.svc.corp.local",
            "canary.ns.svc.cluster.local",
        ];
        assert_eq!(names("canary.ns.svc"), expected);
        assert_eq!(names("canary.example."), ["canary.example."], "it is complete");

        let config = KubernetesConfig {
            server: kubernetes::Server { host: "10.0.0.1".into(), port: 443 },
            account: "/".into(),
            namespace: "ns".into(),
            service: "canary".into(),
            timing: kubernetes::Timing::default(),
        };
        let names = Source::Kubernetes(Box::new(config)).service_names(&["svc.corp.local".to_owned()]);
        for expected in
            ["canary", "canary.ns", "canary.ns.svc", "canary.ns.svc.cluster.local", "canary.ns.svc.corp.local"]
        {
            assert!(names.iter().any(|name| name == expected), "{expected}: {names:?}");
        }
        assert!(Source::Static(StaticConfig::default()).service_names(&search).is_empty());
    }
}
