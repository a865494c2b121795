//! The JSON documents `/api/v1/identity` and `/api/v1/peers`. Fields may be added. The fields here
//! stay.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use serde::Serialize;

use super::report::{self, Measured};
use super::{View, Walk};
use crate::http::Render;
use crate::limits::{FRAME_BYTES, REPORT_OBJECT_BYTES_MAX};
use crate::peers::{self, Method, SlotId};
use crate::report::compact;
use crate::sys::clock;

/// What `/api/v1/identity` answers: node, zone and version of this agent.
#[derive(Debug, Serialize)]
pub struct Identity<'a> {
    /// The name of the node that the agent runs on.
    pub node: &'a str,
    /// The node's zone, or `unknown`.
    pub zone: &'a str,
    /// The version of this program.
    pub version: &'static str,
    /// The name of the malloc that runs.
    pub allocator: &'a str,
    /// The node's own addresses, as configured.
    pub node_addresses: &'a [IpAddr],
}

/// The body of `/api/v1/peers`, rendered one peer at a time.
pub struct PeersBody {
    view: Walk,
    /// Number of links that were looked at: the methods of one slot, and then those of the next.
    link: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Source,
    First,
    Further,
}

impl PeersBody {
    /// Creates a body that starts with the agent itself.
    pub fn new(view: Arc<View>) -> Self {
        Self { view: Walk::new(view), link: 0, stage: Stage::Source }
    }
}

/// Returns the report of this agent in the compact form.
pub fn compact(view: &View) -> Vec<u8> {
    let measured = Measured::now(view);
    let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
    let source = report::source(view, &directory, &measured);
    let mut out = compact::Writer::new(&source, peers::name_in_reports(&view.node), clock::realtime().as_secs());
    for (slot, peer) in directory.peers() {
        let (node, zone) = (peers::name_in_reports(peer.node()), directory.zone_name(peer.zone()));
        for method in Method::ALL {
            if let Some(object) = report::peer((&view.statistics, &view.traces), (slot, method), peer, zone) {
                out.peer(node, &object);
            }
        }
    }
    out.end()
}

fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    // Neither writing to a Vec nor serializing these structs can fail.
    if let Err(error) = serde_json::to_writer(out, value) {
        log::error!("cannot serialize a report: {error}");
    }
}

impl Render for PeersBody {
    fn render(&mut self, out: &mut Vec<u8>) -> bool {
        let view = Arc::clone(&self.view.0);
        // Files are read before any lock is taken.
        let measured = (self.stage == Stage::Source).then(|| Measured::now(&view));
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(measured) = measured {
            out.extend_from_slice(b"{\"source\":");
            write(out, &report::source(&view, &directory, &measured));
            out.extend_from_slice(b",\"peers\":[");
            self.stage = Stage::First;
        }
        while self.link < directory.slot_count() * Method::ALL.len() {
            if FRAME_BYTES.saturating_sub(out.len()) < REPORT_OBJECT_BYTES_MAX {
                return true;
            }
            let (slot, method) =
                (SlotId::at(self.link / Method::ALL.len()), Method::ALL[self.link % Method::ALL.len()]);
            self.link += 1;
            let Some(peer) = directory.peer(slot) else { continue };
            let zone = directory.zone_name(peer.zone());
            let Some(object) = report::peer((&view.statistics, &view.traces), (slot, method), peer, zone) else {
                continue;
            };
            if self.stage == Stage::Further {
                out.push(b',');
            }
            write(out, &object);
            self.stage = Stage::Further;
        }
        out.extend_from_slice(b"]}\n");
        false
    }
}
