//! Discovers the nodes of the mesh. Each of the three sources (static, DNS, Kubernetes) sends a
//! complete [`PeerList`] at the start and whenever it changes.
//!
//! The trap that this stage avoids: an error is never an empty list. A source that fails logs the
//! failure and sends nothing. The last good list stays in force, and its age is exported.

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

/// The default domain of clusters. It cannot be registered as a name (RFC 6762).
const CLUSTER_DOMAIN: &str = "cluster.local";

/// The readiness of a peer, as a source reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Readiness {
    /// The peer is listed and serving.
    Ready,
    /// Listed, but not serving. A failing peer must stay visible, so it is probed as any other.
    Unready,
    /// Terminating. It is probed, but its losses are no alarm.
    Terminating,
}

/// The network of a node that an address is on. It is the `network` label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Network {
    /// The pods' network, often an overlay.
    #[default]
    Pod,
    /// The nodes' own network, which carries the pods' network.
    Node,
}

impl Network {
    /// Both networks, in label order.
    pub const ALL: [Self; 2] = [Self::Pod, Self::Node];

    /// Returns the label value.
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
    /// The node's name, which identifies a peer over time.
    pub node: String,
    /// The destination of probes: the canonical address of one host. Its
    /// family decides the protocol.
    pub address: IpAddr,
    /// The topology zone, if it is known.
    pub zone: Option<String>,
    /// The readiness in this list.
    pub readiness: Readiness,
    /// The port of its HTTP server, if the source knows it.
    pub http_port: Option<u16>,
    /// The network that the address is on.
    pub network: Network,
}

impl PeerSpec {
    /// Makes a ready pod without zone and HTTP port.
    pub fn pod(node: impl Into<String>, address: IpAddr) -> Self {
        let (zone, readiness, http_port, network) = (None, Readiness::Ready, None, Network::Pod);
        Self { node: node.into(), address, zone, readiness, http_port, network }
    }

    /// Returns whether the address stands in for an unknown name.
    fn is_nameless(&self) -> bool {
        self.node.parse() == Ok(self.address)
    }
}

/// A complete list of the mesh as a source sees it at one moment. It may contain our own entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerList {
    /// In any order. One node may have two entries of one family; [`crate::peers`] describes which
    /// one is used. The later entry is the newer one.
    pub peers: Vec<PeerSpec>,
}

/// An update from a source: a list, or a sign that the source is still in touch.
///
/// If a list equals the one before, the source must send it too, or send [`Update::Confirmed`]
/// instead. `peer_list_age_seconds` counts from the latest of either.
#[derive(Debug)]
pub enum Update {
    /// A new complete list.
    List(PeerList),
    /// The previous list with new details of its peers, or with the result of half a look at the
    /// source. It does not confirm the list, because the source has not fully checked it. It is
    /// never the first update.
    Amended(PeerList),
    /// The source has checked that the last list is still right.
    Confirmed,
    /// Facts about the whole mesh. Sent before the list that they belong to.
    Mesh(MeshFacts),
    /// The addresses of all members, if the lists contain only a part of them.
    /// Else an empty roster.
    Roster(Arc<Roster>),
    /// The answer to a question: what the lists say of this address is as new as possible.
    Sure(IpAddr),
    /// The answer to a question: it cannot be checked now. It may be asked again.
    Unsure(IpAddr),
}

/// What a source knows of the whole mesh. A list may contain only a part of the mesh.
///
/// A node's watchers are those that the selection gives it, whether they run or not: all nodes that
/// are due to probe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeshFacts {
    /// Number of nodes, including our own and those that have just left.
    pub members: u32,
    /// Number of nodes in our zone that watch our node, by the selection that all nodes compute.
    pub watchers_in_zone: u32,
    /// Number of nodes in other zones that watch our node.
    pub watchers_elsewhere: u32,
    /// Number of watchers that our node lacks, of half the peers that a node has. 0 in a full mesh,
    /// where all nodes watch it.
    pub watchers_missing: u32,
    /// Number of watchers in other zones that our node lacks, of a quarter of the peers. Nodes lack
    /// some if one zone has most nodes and the other zones cannot watch them all. 0 in a full mesh,
    /// and 0 in a mesh of one zone.
    pub watchers_missing_elsewhere: u32,
}

/// Questions of the probe loop: is the list still right about the peer at this address?
///
/// A question is asked before a loss is counted. The answer is [`Update::Sure`], after a new list
/// if one was needed, or [`Update::Unsure`]. Only sources that [answer](Source::answers) are asked.
pub type Questions = tokio::sync::mpsc::Receiver<IpAddr>;

/// What a source must know of our own node.
#[derive(Clone, Debug, Default)]
pub struct Ourselves {
    /// Our node's name.
    pub node: String,
    /// Our zone if it is configured. Else it comes from our own entry in the list.
    pub zone: Option<String>,
    /// The largest number of other nodes to probe. 0 means all.
    pub max_peers: usize,
    /// How long a node that left the list stays a member, so that a rollout does not change the
    /// peers of other nodes.
    pub forget_after: std::time::Duration,
    /// Whether peers are also probed at their nodes' addresses.
    pub node_network: bool,
    /// Addresses of our pod and our node. No peer has them.
    pub addresses: Vec<IpAddr>,
    /// The port of a peer's HTTP server if its source does not give one.
    pub http_port: u16,
    /// Notified about once a second, in an iteration that the probe loop makes anyway. Sources use
    /// it for checks at that rate. A timer would wake the thread two more times a second (tokio's
    /// wheel takes two steps to a second).
    pub each_second: Arc<Notify>,
}

/// The sending half of the channel between a source and the probe loop. The channel is bounded, so
/// a source waits if it is full.
pub type Updates = tokio::sync::mpsc::Sender<Update>;

/// The origin of the peer list.
#[derive(Clone, Debug)]
pub enum Source {
    /// Peers that the operator listed.
    Static(StaticConfig),
    /// The records of a headless Service.
    Dns(DnsConfig),
    /// The EndpointSlices of a Service. Boxed, because it is many times the size of the others.
    Kubernetes(Box<KubernetesConfig>),
}

/// Why discovery cannot start. Each error is one line for exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A peer or the peers file is invalid.
    #[error(transparent)]
    Static(#[from] static_list::PeerError),
    /// The DNS name is invalid.
    #[error("--dns: {0}; accepted: a name such as kube-canary.monitoring.svc")]
    Dns(#[from] dns::ResolveError),
    /// The process is not in a cluster, or its service account cannot be used.
    #[error(transparent)]
    Kubernetes(#[from] kubernetes::ConfigError),
}

impl Source {
    /// Returns whether it answers [`Questions`]: it learns of changes late, and can look them up.
    pub const fn answers(&self) -> bool {
        matches!(self, Self::Kubernetes(_))
    }

    /// Returns the names of the agents' Service if names are completed with these domains.
    /// Static peers have none.
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
        // Not every domain behind `.svc` is accepted. A cluster may have any domain, but so may an
        // attacker.
        for domain in search.iter().map(String::as_str).chain([CLUSTER_DOMAIN]) {
            let relative = written.iter().filter(|name| !name.ends_with('.'));
            names.extend(relative.map(|name| format!("{name}.{domain}")));
        }
        names
    }

    /// Checks what must stop the start: a bad `--peer`, an unreadable peers file, a name that DNS
    /// cannot carry. [`KubernetesConfig::in_cluster`] has checked its own settings. Errors that
    /// only the network can show do not count.
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

/// Waits until a moment. Without one, it waits for ever.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Runs the source on the caller's current-thread runtime, which needs I/O and time. Returns only
/// when the receiver is gone. Failures are logged and retried, and are never an [`Update`].
pub async fn run(source: Source, ourselves: Ourselves, questions: Questions, updates: Updates) {
    if !ourselves.node_network {
        return follow(source, ourselves, questions, updates).await;
    }
    let (updates_of_source, from_source) = tokio::sync::mpsc::channel(1);
    let (to_source, questions_to_source) = tokio::sync::mpsc::channel(questions.max_capacity());
    let identity_time = crate::limits::IDENTITY_TIME;
    let ends = underlay::Ends { from_source, to_source, questions, updates, identity_time };
    // Boxed, so that agents that probe one network do not pay for it. If one of the two futures
    // ends, the other is dropped.
    let underlay = Box::pin(async {
        tokio::select! {
            () = underlay::run(&ourselves, ends) => {}
            () = follow(source, ourselves.clone(), questions_to_source, updates_of_source) => {}
        }
    });
    underlay.await;
}

/// Runs the source for the addresses that it knows itself.
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
        // Boxed: otherwise each source would pay for the largest state machine.
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
