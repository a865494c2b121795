//! Which source runs, and with which adapters around it.

use std::pin::Pin;
use std::sync::Arc;

use crate::discovery::dns::{self, DnsConfig};
use crate::discovery::identity;
use crate::discovery::kubernetes::{self, KubernetesConfig};
use crate::discovery::ranks::RankedBy;
use crate::discovery::static_list::{self, StaticConfig};
use crate::discovery::update::{Ourselves, Questions, Updates};
use crate::discovery::{narrow, underlay};

/// The default domain of clusters. It cannot be registered as a name (RFC 6762).
const CLUSTER_DOMAIN: &str = "cluster.local";

/// The origin of the peer list.
#[derive(Clone, Debug)]
pub enum DiscoverySource {
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

impl DiscoverySource {
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

/// A source that runs. It is polled through a pointer by a function of its own. Otherwise the
/// stack would have the frames of all sources, and each its largest state machine.
type Running = Pin<Box<dyn Future<Output = ()>>>;

/// Runs the source on the caller's current-thread runtime, which needs I/O and time. Ends only when
/// the receiver is gone. Failures are logged and retried, and are never an [`Update`].
pub fn run(source: DiscoverySource, ourselves: Ourselves, questions: Questions, updates: Updates) -> Running {
    if !ourselves.node_network {
        return follow(source, ourselves, questions, updates);
    }
    let (updates_of_source, from_source) = tokio::sync::mpsc::channel(1);
    let (to_source, questions_to_source) = tokio::sync::mpsc::channel(questions.max_capacity());
    let identity_time = identity::TIMEOUT;
    let ends = underlay::Ends { from_source, to_source, questions, updates, identity_time };
    let following = follow(source, ourselves.clone(), questions_to_source, updates_of_source);
    // If one of the two futures ends, the other is dropped.
    Box::pin(async move {
        tokio::select! {
            () = underlay::run(&ourselves, ends) => {}
            () = following => {}
        }
    })
}

/// Runs the source for the addresses that it knows itself.
fn follow(source: DiscoverySource, ourselves: Ourselves, questions: Questions, updates: Updates) -> Running {
    match source {
        DiscoverySource::Static(config) => Box::pin(async move {
            let each_second = Arc::clone(&ourselves.each_second);
            let lists = |lists| static_list::run(config, &each_second, lists);
            narrow::run(lists, RankedBy::Name, ourselves, updates).await;
        }),
        DiscoverySource::Dns(config) => Box::pin(async move {
            narrow::run(|lists| dns::run(config, lists), RankedBy::Address, ourselves, updates).await;
        }),
        DiscoverySource::Kubernetes(config) => Box::pin(kubernetes::run(*config, ourselves, questions, updates)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_called_by_its_name_and_as_resolv_conf_completes_it() {
        let search = ["ns.svc.corp.local".to_owned(), "svc.corp.local".to_owned()];
        let names = |name: &str| DiscoverySource::Dns(DnsConfig::new(name.to_owned(), 9_877)).service_names(&search);
        let expected = [
            "canary.ns.svc",
            "canary.ns.svc.ns.svc.corp.local",
            "canary.ns.svc.svc.corp.local",
            "canary.ns.svc.cluster.local",
        ];
        assert_eq!(names("canary.ns.svc"), expected);
        assert_eq!(names("canary.example."), ["canary.example."], "it is complete");

        let config = KubernetesConfig {
            server: kubernetes::ApiServer { host: "10.0.0.1".into(), port: 443 },
            account: "/".into(),
            namespace: "ns".into(),
            service: "canary".into(),
            timing: kubernetes::Timing::default(),
        };
        let names = DiscoverySource::Kubernetes(Box::new(config)).service_names(&["svc.corp.local".to_owned()]);
        for expected in
            ["canary", "canary.ns", "canary.ns.svc", "canary.ns.svc.cluster.local", "canary.ns.svc.corp.local"]
        {
            assert!(names.iter().any(|name| name == expected), "{expected}: {names:?}");
        }
        assert!(DiscoverySource::Static(StaticConfig::default()).service_names(&search).is_empty());
    }
}
