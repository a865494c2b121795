//! The JSON documents: `/api/v1/identity` and `/api/v1/peers`. Fields may be added; those here stay.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use serde::Serialize;

use super::{View, Walk, now};
use crate::http::Render;
use crate::limits::{FRAME_BYTES, NAME_BYTES_MAX};
use crate::peers::{Peer, SlotId};
use crate::statistics::Statistics;

/// `/api/v1/identity`: who this canary is.
#[derive(Debug, Serialize)]
pub struct Identity<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The node's zone, or `unknown`.
    pub zone: &'a str,
    /// Ours.
    pub version: &'static str,
    /// The malloc that runs.
    pub allocator: &'a str,
    /// The node's own addresses, as configured.
    pub node_addresses: &'a [IpAddr],
}

#[derive(Debug, Serialize)]
struct Source<'a> {
    node: &'a str,
    zone: &'a str,
    echo_requests_received: u64,
    echo_replies_sent: u64,
    recent: RecentEcho,
}

#[derive(Debug, Serialize)]
struct RecentEcho {
    echo_requests_received: u64,
    echo_replies_sent: u64,
}

#[derive(Debug, Serialize)]
struct PeerRow<'a> {
    node: &'a str,
    zone: &'a str,
    network: &'static str,
    protocol: &'static str,
    state: &'static str,
    address: IpAddr,
    sent: u64,
    received: u64,
    lost: u64,
    late: u32,
    rtt_p50_seconds: Option<f64>,
    rtt_p99_seconds: Option<f64>,
    recent: RecentRow,
}

#[derive(Debug, Serialize)]
struct RecentRow {
    seconds: f64,
    sent: u32,
    received: u32,
    lost: u32,
    rtt_p50_seconds: Option<f64>,
    rtt_p99_seconds: Option<f64>,
}

/// Room for the longest object: two names, each byte escaped to six, and all the rest.
const ROW_BYTES_MAX: usize = 2 * 6 * NAME_BYTES_MAX + 1_024;
const _: () = assert!(ROW_BYTES_MAX <= FRAME_BYTES);

/// The body of `/api/v1/peers`, a peer at a time.
pub struct PeersBody {
    view: Walk,
    slot: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Source,
    First,
    Further,
}

impl PeersBody {
    /// A body that begins now.
    pub fn new(view: Arc<View>) -> Self {
        Self { view: Walk::new(view), slot: 0, stage: Stage::Source }
    }

    fn write_source(&self, zone: &str, out: &mut Vec<u8>) {
        let own = self.view.0.statistics.own();
        let total = own.echoes;
        let recent = self.view.0.statistics.recent_own(&own, now()).counters.echoes;
        let source = Source {
            node: &self.view.0.node,
            zone,
            echo_requests_received: total.requests_received,
            echo_replies_sent: total.replies_sent,
            recent: RecentEcho {
                echo_requests_received: recent.requests_received,
                echo_replies_sent: recent.replies_sent,
            },
        };
        out.extend_from_slice(b"{\"source\":");
        write(out, &source);
        out.extend_from_slice(b",\"peers\":[");
    }
}

fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    // Neither writing to a Vec nor serializing these structs can fail.
    if let Err(error) = serde_json::to_writer(out, value) {
        log::error!("serializing: {error}");
    }
}

fn row<'a>(statistics: &Statistics, slot: SlotId, peer: Peer<'a>, zone: &'a str) -> Option<PeerRow<'a>> {
    let total = statistics.slot(slot)?.read();
    let recent = statistics.recent(slot, now())?;
    let bounds = statistics.bounds();
    Some(PeerRow {
        node: peer.node(),
        zone,
        network: "pod",
        protocol: peer.protocol().label(),
        state: peer.presence().label(),
        address: peer.address(),
        sent: total.sent,
        received: total.received,
        lost: total.lost,
        late: total.late,
        rtt_p50_seconds: bounds.quantile(0.5, &total.rtt.buckets),
        rtt_p99_seconds: bounds.quantile(0.99, &total.rtt.buckets),
        recent: RecentRow {
            seconds: recent.seconds,
            sent: recent.sent,
            received: recent.received,
            lost: recent.lost,
            rtt_p50_seconds: bounds.quantile(0.5, &recent.buckets),
            rtt_p99_seconds: bounds.quantile(0.99, &recent.buckets),
        },
    })
}

impl Render for PeersBody {
    fn render(&mut self, out: &mut Vec<u8>) -> bool {
        let view = Arc::clone(&self.view.0);
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        if self.stage == Stage::Source {
            self.write_source(directory.own_zone(), out);
            self.stage = Stage::First;
        }
        while self.slot < directory.slot_count() {
            if FRAME_BYTES.saturating_sub(out.len()) < ROW_BYTES_MAX {
                return true;
            }
            let slot = SlotId::at(self.slot);
            self.slot += 1;
            let Some(peer) = directory.peer(slot) else { continue };
            let Some(row) = row(&view.statistics, slot, peer, directory.zone_name(peer.zone())) else { continue };
            if self.stage == Stage::Further {
                out.push(b',');
            }
            write(out, &row);
            self.stage = Stage::Further;
        }
        out.extend_from_slice(b"]}\n");
        false
    }
}
