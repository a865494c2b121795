//! The JSON documents `/api/v1/identity` and `/api/v1/peers`. Fields may be added. The fields here
//! stay.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::report::{self, Measured};
use super::{View, ViewWalk};
use crate::check::CHECKS_MAX;
use crate::http::Render;
use crate::limits::{FRAME_BYTES, REPORT_OBJECT_BYTES_MAX};
use crate::peers::{self, Method, SlotId};
use crate::report::compact::{self, Choice, Chosen};
use crate::sys::clock;
use crate::units::Nanos;

/// What `/api/v1/identity` answers: node, zone and version of this agent.
#[derive(Debug, Serialize)]
pub struct IdentityDocument<'a> {
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
    /// `member`, or `outside`: the agent probes the mesh and is no member of it.
    pub membership: &'static str,
    /// The address that asks, as it arrived here.
    pub asked_from: Option<IpAddr>,
}

/// The body of `/api/v1/peers`, rendered one object at a time.
pub struct PeersBody {
    view: ViewWalk,
    /// The list of checks when the report began. If another replaces it, the rest is left out.
    checks: u32,
    /// Number of links that were looked at: the methods of one slot, and then those of the next.
    link: usize,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Source,
    /// The check at this place is next.
    Check(usize),
    First,
    Further,
}

impl PeersBody {
    /// Creates a body that starts with the agent itself.
    pub fn new(view: Arc<View>) -> Self {
        let checks = view.statistics.checks().list_number();
        Self { view: ViewWalk::new(view), checks, link: 0, stage: Stage::Source }
    }

    /// Writes checks while they fit. Returns whether all are written.
    fn write_checks(&mut self, view: &View, out: &mut Vec<u8>) -> bool {
        while let Stage::Check(place) = self.stage {
            if FRAME_BYTES.saturating_sub(out.len()) < REPORT_OBJECT_BYTES_MAX {
                return false;
            }
            let written = view.statistics.checks().read_of(self.checks, place, |record| {
                out.extend_from_slice(if place == 0 { b",\"checks\":[" } else { b"," });
                write(out, &record.report(super::now()));
            });
            if written.is_some() {
                self.stage = Stage::Check(place + 1);
                continue;
            }
            out.extend_from_slice(if place == 0 { b",\"peers\":[" } else { b"],\"peers\":[" });
            self.stage = Stage::First;
        }
        true
    }
}

/// How long a compact report is reused. However many ask, an agent makes one report in this time.
const COMPACT_REUSED: Nanos = Nanos::from_millis(1_000);
/// Slots that are read while the directory is locked once.
const SLOTS_AT_ONCE: usize = 256;

/// The last compact report, which all requests share.
#[derive(Debug, Default)]
pub struct CompactReport(Mutex<Option<(Nanos, Arc<[u8]>)>>);

impl CompactReport {
    /// Returns the last report if it is younger than [`COMPACT_REUSED`], or else makes another.
    /// Other requests wait until it is made, which takes no longer than to make their own.
    fn get(&self, now: Nanos, make: impl FnOnce() -> Vec<u8>) -> Arc<[u8]> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, body)) = &*last
            && now.since(*at) < COMPACT_REUSED
        {
            return Arc::clone(body);
        }
        let body: Arc<[u8]> = make().into();
        *last = Some((now, Arc::clone(&body)));
        body
    }
}

/// Returns the report of this agent in the compact form.
pub fn compact(view: &Arc<View>) -> Arc<[u8]> {
    view.about.compact.get(clock::monotonic(), || make_compact(view))
}

fn make_compact(view: &Arc<View>) -> Vec<u8> {
    // No peer moves to another slot during the walk.
    let walk = ViewWalk::new(Arc::clone(view));
    let view = &*walk.0;
    let own = peers::name_in_reports(&view.node);
    let (chosen, slots) = choose(view, own);
    let measured = Measured::now(view);
    let directory = || view.directory.read().unwrap_or_else(PoisonError::into_inner);
    let mut out =
        compact::CompactWriter::new(&report::source(view, &directory(), &measured), own, clock::realtime().as_secs());
    let checks = view.statistics.checks();
    let list = checks.list_number();
    for place in 0..CHECKS_MAX {
        let _ = checks.read_of(list, place, |record| out.check(&record.report(super::now())));
    }
    for slots in slots.chunks(SLOTS_AT_ONCE) {
        let directory = directory();
        for slot in slots {
            let Some(peer) = directory.peer(*slot) else { continue };
            let (node, zone) = (peers::name_in_reports(peer.node()), directory.zone_name(peer.zone()));
            for method in Method::ALL {
                if let Some(object) = report::peer((&view.statistics, &view.traces), (*slot, method), peer, zone) {
                    out.peer(node, &object);
                }
            }
        }
    }
    out.end(chosen.left_out)
}

/// Chooses the peers of the compact report, and returns their slots too.
fn choose(view: &View, own: u64) -> (Chosen, Vec<SlotId>) {
    let (mut choice, mut slots) = (Choice::new(own), Vec::new());
    let mut next = 0;
    loop {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        let end = directory.slot_count().min(next + SLOTS_AT_ONCE);
        for slot in (next..end).map(SlotId::at) {
            let Some(peer) = directory.peer(slot) else { continue };
            let node = peers::name_in_reports(peer.node());
            choice.add(node, report::losses(&view.statistics, slot, peer));
            slots.push((node, slot));
        }
        next = end;
        if end == directory.slot_count() {
            break;
        }
    }
    let chosen = choice.end();
    // All of a mesh of the usual size are chosen.
    slots.retain(|(node, _)| chosen.left_out == 0 || chosen.nodes.contains(node));
    (chosen, slots.into_iter().map(|(_, slot)| slot).collect())
}

/// What an agent says of its own links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnLosses {
    /// Number of nodes that it probes.
    pub peers: usize,
    /// Number of those to which it recently lost more probes than by chance, or could not send.
    pub losing: usize,
}

impl OwnLosses {
    /// Counts the nodes of an agent's list.
    pub fn count(view: &View) -> Self {
        let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
        let listed = directory.peers().filter(|(_, peer)| peer.presence() != peers::Presence::Left);
        // A node has an entry for each family and network. The one that loses most comes first.
        let loses = |(slot, peer)| report::losses(&view.statistics, slot, peer) > 0;
        let mut nodes: Vec<(&str, bool)> = listed.map(|(slot, peer)| (peer.node(), !loses((slot, peer)))).collect();
        nodes.sort_unstable();
        nodes.dedup_by_key(|(node, _)| *node);
        Self { peers: nodes.len(), losing: nodes.iter().filter(|(_, is_well)| !is_well).count() }
    }
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
            self.stage = Stage::Check(0);
        }
        if !self.write_checks(&view, out) {
            return true;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compact_report_is_made_once_in_a_second_whoever_asks() {
        let (report, mut made) = (CompactReport::default(), 0);
        let mut at = |ms| {
            let body = report.get(Nanos::from_millis(ms), || {
                made += 1;
                vec![made]
            });
            body[0]
        };
        assert_eq!([5_000, 5_001, 5_999, 6_000, 6_999, 20_000].map(&mut at), [1, 1, 1, 2, 2, 3]);
    }
}
