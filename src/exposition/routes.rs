//! Maps the paths of the HTTP server to their answers.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use serde::Serialize;

use super::api::{self, IdentityDocument, PeersBody};
use super::hour::hour;
use super::{AgentMetrics, Format, MetricsBody, View, now};
use crate::allocator::AllocatorInfo;
use crate::http::{Reply, Routes};
use crate::report::{self, compact};

const JSON: &str = "application/json";

const HOUR: &str = "/api/v1/hour/";
const NOT_FOUND: &[u8] = b"not found; there are /, /metrics, /healthz, /readyz, /api/v1/identity, /api/v1/peers, \
    /api/v1/hour/PEER, /api/v1/hour/SOURCE/PEER, /api/v1/mesh/NODES, /api/v1/verdicts, /api/v1/history, /api/v1/nodes, /api/v1/judge, /api/v1/judge/verdicts\n";

/// The state from which HTTP requests are answered.
pub struct App {
    /// The state that the probe loop shares with the HTTP workers.
    pub view: Arc<View>,
    /// The process-wide metrics.
    pub agent: AgentMetrics,
    /// The allocator that runs.
    pub allocator: AllocatorInfo,
    /// The node's own addresses, for `/api/v1/identity`.
    pub node_addresses: Vec<IpAddr>,
}

impl Routes for App {
    fn route(&self, path: &str, accept: &str) -> Reply {
        match path {
            "/metrics" => {
                let format = Format::accepted(accept);
                let body = MetricsBody::new(Arc::clone(&self.view), &self.agent, format);
                Reply::Stream { content_type: format.content_type(), body: Box::new(body) }
            }
            "/healthz" => health(self.view.health.live(now())),
            "/readyz" => health(self.view.health.ready(now())),
            "/api/v1/identity" => self.identity(),
            report::PATH if compact::is_accepted(accept) => {
                let body = api::compact(&self.view);
                Reply::Shared { content_type: compact::MEDIA_TYPE, head: Vec::new(), body }
            }
            report::PATH => {
                let body = PeersBody::new(Arc::clone(&self.view));
                Reply::Stream { content_type: JSON, body: Box::new(body) }
            }
            _ => match path.strip_prefix(HOUR) {
                Some(peer) => self.hour(peer),
                None => Reply::text(404, NOT_FOUND),
            },
        }
    }
}

impl App {
    fn hour(&self, peer: &str) -> Reply {
        match hour(&self.view, peer) {
            Ok(body) => Reply::Full { status: 200, content_type: JSON, body },
            Err(error) => Reply::text(404, format!("{error}\n")),
        }
    }

    fn identity(&self) -> Reply {
        let (view, node_addresses) = (Arc::clone(&self.view), self.node_addresses.clone());
        let allocator = self.allocator.allocator;
        Reply::ToClient(Box::new(move |client| {
            let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
            json(&IdentityDocument {
                node: &view.node,
                zone: directory.own_zone(),
                version: env!("CARGO_PKG_VERSION"),
                allocator,
                node_addresses: &node_addresses,
                membership: if view.about.is_member { "member" } else { "outside" },
                asked_from: client.map(|client| client.to_canonical()),
            })
        }))
    }
}

fn json(value: &impl Serialize) -> Reply {
    match serde_json::to_vec(value) {
        Ok(mut body) => {
            body.push(b'\n');
            Reply::Full { status: 200, content_type: JSON, body }
        }
        Err(error) => Reply::text(500, error.to_string()),
    }
}

fn health(state: Result<(), String>) -> Reply {
    match state {
        Ok(()) => Reply::text(200, "ok\n"),
        Err(reason) => Reply::text(503, reason),
    }
}
