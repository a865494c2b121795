//! The settings of `kube-canary demo`.

use std::time::Duration;

use super::UsageError;
use super::run::{duration_between, number_between};
use super::typed::Typed;
use crate::limits::{DEMO_NODES_MAX, INTERVAL_MAX, INTERVAL_MIN};

/// The first line that `demo --help` shows.
pub const ABOUT: &str = "Runs a mesh of real agents, one process each, on this machine's loopback addresses.";

/// The settings that `demo` runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoSettings {
    /// The number of agents to start.
    pub nodes: u8,
    /// Time between two probes of a peer.
    pub interval: Duration,
    /// The HTTP port of every agent.
    pub port: u16,
    /// Stop after this many seconds. None means at a signal.
    pub seconds: Option<u64>,
}

impl DemoSettings {
    pub(super) fn resolve(typed: &Typed) -> Result<Self, UsageError> {
        let nodes = typed.value("nodes", number_between(2, DEMO_NODES_MAX))?.unwrap_or(3);
        let port = typed.value("port", number_between(1, u16::MAX.into()))?.unwrap_or(9_877);
        Ok(Self {
            nodes: u8::try_from(nodes).unwrap_or(u8::MAX),
            interval: typed
                .value("interval", duration_between(INTERVAL_MIN, INTERVAL_MAX))?
                .unwrap_or(Duration::from_secs(1)),
            port: u16::try_from(port).unwrap_or(u16::MAX),
            seconds: typed.value("seconds", number_between(1, 86_400))?,
        })
    }
}
