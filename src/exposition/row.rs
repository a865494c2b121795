//! The two objects of a row: the agent itself, and one peer. Fields may be added. The fields here
//! stay.

use std::net::IpAddr;

use serde::Serialize;

use super::rounded::Rounded;
use super::{View, now};
use crate::limits::{HOUR_PEERS_MAX, NAME_BYTES_MAX};
use crate::peers::{Directory, Peer, SlotId};
use crate::statistics::{LagCounts, OwnCounters, RecentOwn, Statistics};
use crate::sys::clock;
use crate::units::Nanos;

/// Room for the longest object: two names with each byte escaped to six, and 1,024
/// bytes for the rest.
pub const OBJECT_BYTES_MAX: usize = 2 * 6 * NAME_BYTES_MAX + 1_024;

/// The object that describes the agent.
#[derive(Debug, Serialize)]
pub struct Source<'a> {
    node: &'a str,
    zone: &'a str,
    version: &'static str,
    allocator: &'static str,
    narenas: Option<u32>,
    linkage: &'static str,
    /// Resident memory in bytes. It is 0 if /proc does not provide it.
    rss_bytes: u64,
    cpus: usize,
    interval_seconds: Rounded,
    /// Whether the hour of every peer is kept.
    hour_kept: bool,
    /// Number of nodes in the mesh, this one included. It is 0 before the first list.
    members: u32,
    /// Number of nodes that probe this one, by the selection that all agents make.
    watchers: u32,
    /// Number of watchers that this node should have in addition.
    watchers_missing: u32,
    /// None before the first peer list.
    peer_list_age_seconds: Option<Rounded>,
    echo_requests_received: u64,
    echo_replies_sent: u64,
    recent: RecentSource,
}

#[derive(Debug, Serialize)]
struct RecentSource {
    seconds: Rounded,
    echo_requests_received: u64,
    echo_replies_sent: u64,
    send_lag_p99_seconds: Option<Rounded>,
    read_delay_p99_seconds: Option<Rounded>,
    probes_skipped: u64,
    receive_queue_drops: u64,
    run_delay_seconds: Rounded,
}

/// What the row takes from the agent's counters and the kernel. It is read before the
/// directory's lock is taken.
#[derive(Debug)]
pub struct Measured {
    own: OwnCounters,
    recent: RecentOwn,
    resident_bytes: u64,
    list_age: Option<Nanos>,
}

impl Measured {
    /// Reads the values of this moment.
    pub fn now(view: &View) -> Self {
        let own = view.statistics.own();
        let recent = view.statistics.recent_own(&own, now());
        let resident_bytes = view.about.resident.bytes(now()).unwrap_or(0);
        Self { own, recent, resident_bytes, list_age: view.health.list_age(now()) }
    }
}

impl<'a> Source<'a> {
    /// Creates the agent's object from these measurements.
    pub fn new(view: &'a View, directory: &'a Directory, measured: &Measured) -> Self {
        let (statistics, about, own) = (&view.statistics, &view.about, &measured.own);
        let RecentOwn { seconds, counters: recent } = &measured.recent;
        let mesh = directory.mesh();
        let p99 = |lag: &LagCounts| lag.quantile(lag_quantile(lag.count()), statistics.send_lag()).map(Rounded);
        Self {
            node: &view.node,
            zone: directory.own_zone(),
            version: env!("CARGO_PKG_VERSION"),
            allocator: about.allocator,
            narenas: about.narenas,
            linkage: about.linkage,
            rss_bytes: measured.resident_bytes,
            cpus: about.cpus,
            interval_seconds: Rounded(statistics.interval().as_secs_f64()),
            hour_kept: is_every_hour_kept(directory),
            members: mesh.members,
            watchers: mesh.watchers_in_zone.saturating_add(mesh.watchers_elsewhere),
            watchers_missing: mesh.watchers_missing,
            peer_list_age_seconds: measured.list_age.map(|age| Rounded(age.as_secs_f64())),
            echo_requests_received: own.echoes.requests_received,
            echo_replies_sent: own.echoes.replies_sent,
            recent: RecentSource {
                seconds: Rounded(*seconds),
                echo_requests_received: recent.echoes.requests_received,
                echo_replies_sent: recent.echoes.replies_sent,
                send_lag_p99_seconds: p99(&recent.send_lag),
                read_delay_p99_seconds: p99(&recent.read_delay),
                probes_skipped: recent.skipped,
                receive_queue_drops: recent.receive_queue_drops,
                run_delay_seconds: Rounded(recent.run_delay.as_secs_f64()),
            },
        }
    }
}

/// Returns the quantile that represents the 99th percentile of `probes` probes. With fewer than 200
/// probes, the real percentile would be the largest or the second-largest value. A single moment of
/// a busy machine would then make the agent look late. With fewer than 200 probes it is therefore
/// the third-largest value.
fn lag_quantile(probes: u64) -> f64 {
    (1.0 - 2.0 / probes.max(1) as f64).clamp(0.5, 0.99)
}

fn is_every_hour_kept(directory: &Directory) -> bool {
    (HOUR_PEERS_MAX..directory.slot_count()).all(|slot| directory.peer(SlotId::at(slot)).is_none())
}

/// The object that describes one peer.
#[derive(Debug, Serialize)]
pub struct PeerRow<'a> {
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
    rtt_p50_seconds: Option<Rounded>,
    rtt_p99_seconds: Option<Rounded>,
    since_unix_seconds: Option<u64>,
    /// The median of the quickest minute of the last hour. None if fewer than five minutes had an
    /// answer, or if the hour is not kept.
    usual_rtt_p50_seconds: Option<Rounded>,
    recent: RecentRow,
    /// None if no whole minute is measured yet, or if the hour is not kept.
    ten_minutes: Option<TenMinutesRow>,
}

#[derive(Debug, Serialize)]
struct RecentRow {
    seconds: Rounded,
    sent: u32,
    received: u32,
    lost: u32,
    rtt_p50_seconds: Option<Rounded>,
    rtt_p99_seconds: Option<Rounded>,
}

#[derive(Debug, Serialize)]
struct TenMinutesRow {
    seconds: u32,
    sent: u32,
    lost: u32,
}

impl<'a> PeerRow<'a> {
    /// Creates the object of the peer in this slot. Returns none if there is no such slot.
    pub fn new(statistics: &Statistics, slot: SlotId, peer: Peer<'a>, zone: &'a str) -> Option<Self> {
        let in_slot = statistics.slot(slot)?;
        let total = in_slot.read();
        let (recent, hour) = (statistics.recent(slot, now())?, statistics.hour(slot));
        Some(Self {
            node: peer.node(),
            zone,
            network: peer.network().label(),
            protocol: peer.protocol().label(),
            state: peer.presence().label(),
            address: peer.address(),
            sent: total.sent,
            received: total.received,
            lost: total.lost,
            late: total.late,
            rtt_p50_seconds: in_slot.rtt_quantile(0.5).map(Rounded),
            rtt_p99_seconds: in_slot.rtt_quantile(0.99).map(Rounded),
            since_unix_seconds: statistics.losing_since(slot, &recent).map(clock::realtime_of).map(Nanos::as_secs),
            usual_rtt_p50_seconds: hour.and_then(|it| it.usual_rtt_p50_seconds()).map(Rounded),
            recent: RecentRow {
                seconds: Rounded(recent.seconds),
                sent: recent.sent,
                received: recent.received,
                lost: recent.lost,
                rtt_p50_seconds: recent.rtt_p50_seconds.map(Rounded),
                rtt_p99_seconds: recent.rtt_p99_seconds.map(Rounded),
            },
            ten_minutes: hour.and_then(|it| it.ten_minutes()).map(|it| TenMinutesRow {
                seconds: it.seconds,
                sent: it.sent,
                lost: it.lost,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::SendLag;

    /// The longest name in JSON: each byte is escaped to six.
    fn name() -> String {
        "\u{1}".repeat(NAME_BYTES_MAX)
    }

    const LONGEST: Option<Rounded> = Some(Rounded(0.000_012_34));

    #[test]
    fn a_lag_is_that_of_three_probes_at_least_and_of_many_the_99th_percentile() {
        let late = |of: u64, probes: u64| {
            let lag = SendLag::default();
            (0..of).for_each(|_| lag.observe(Nanos::from_millis(150)));
            (of..probes).for_each(|_| lag.observe(Nanos(1)));
            lag.counts().quantile(lag_quantile(probes), &lag).unwrap() > 0.1
        };
        for probes in [10, 30, 60, 120, 199, 200] {
            assert_eq!([1, 2, 3].map(|of| late(of, probes)), [false, false, true], "of {probes}");
        }
        assert_eq!([14, 15].map(|of| late(of, 1_440)), [false, true]);
    }

    #[test]
    fn the_longest_objects_have_room() {
        let name = name();
        let peer = PeerRow {
            node: &name,
            zone: &name,
            network: "node",
            protocol: "icmpv6",
            state: "terminating",
            address: "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".parse().unwrap(),
            sent: u64::MAX,
            received: u64::MAX,
            lost: u64::MAX,
            late: u32::MAX,
            rtt_p50_seconds: LONGEST,
            rtt_p99_seconds: LONGEST,
            since_unix_seconds: Some(u64::MAX),
            usual_rtt_p50_seconds: LONGEST,
            recent: RecentRow {
                seconds: Rounded(0.000_012_34),
                sent: u32::MAX,
                received: u32::MAX,
                lost: u32::MAX,
                rtt_p50_seconds: LONGEST,
                rtt_p99_seconds: LONGEST,
            },
            ten_minutes: Some(TenMinutesRow { seconds: u32::MAX, sent: u32::MAX, lost: u32::MAX }),
        };
        let source = Source {
            node: &name,
            zone: &name,
            version: "1000.1000.1000",
            allocator: "mimalloc",
            narenas: Some(u32::MAX),
            linkage: "c-shim",
            rss_bytes: u64::MAX,
            cpus: usize::MAX,
            interval_seconds: Rounded(0.000_012_34),
            hour_kept: false,
            members: u32::MAX,
            watchers: u32::MAX,
            watchers_missing: u32::MAX,
            peer_list_age_seconds: LONGEST,
            echo_requests_received: u64::MAX,
            echo_replies_sent: u64::MAX,
            recent: RecentSource {
                seconds: Rounded(0.000_012_34),
                echo_requests_received: u64::MAX,
                echo_replies_sent: u64::MAX,
                send_lag_p99_seconds: LONGEST,
                read_delay_p99_seconds: LONGEST,
                probes_skipped: u64::MAX,
                receive_queue_drops: u64::MAX,
                run_delay_seconds: Rounded(0.000_012_34),
            },
        };
        for length in [serde_json::to_vec(&peer).unwrap().len(), serde_json::to_vec(&source).unwrap().len()] {
            // A comma, or the start of the row, surrounds each object.
            assert!(length + 32 <= OBJECT_BYTES_MAX, "{length} of {OBJECT_BYTES_MAX}");
        }
    }
}
