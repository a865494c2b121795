//! Makes the two objects of a report: the agent itself, and one peer.

use std::borrow::Cow;

use super::process::Resident;
use super::traces::PeerTraces;
use super::{View, now};
use crate::limits::{FLOW_NATS_MIN, HOUR_PEERS_MAX};
use crate::peers::{self, Directory, Method, Presence, SlotId};
use crate::report::compact::losses_beyond_chance;
use crate::report::{
    Age, FLOWS_LISTED_MAX, Flows, HoleNotice, LosingFlow, MtuHole, Peer, PeerState, Protocol, RecentPeer, RecentSource,
    Source, Suspect, TenMinutes, Way,
};
use crate::statistics::{FlowWay, LagCounts, MtuReading, OwnCounters, RecentOwn, Statistics, UdpLinks};
use crate::sys::{clock, proc};
use crate::units::Nanos;

/// What the report takes from the agent's counters and the kernel. It is read before the
/// directory's lock is taken.
#[derive(Debug)]
pub struct Measured {
    own: OwnCounters,
    recent: RecentOwn,
    resident: Option<Resident>,
    threads: Option<u64>,
    cpu: Nanos,
    list_age: Option<Nanos>,
}

impl Measured {
    /// Reads the values of this moment.
    pub fn now(view: &View) -> Self {
        let own = view.statistics.own();
        Self {
            recent: view.statistics.recent_own(&own, now()),
            own,
            resident: view.about.resident.get(now()),
            threads: proc::find("/proc/self/status", |line| proc::number(line, "Threads:")),
            cpu: clock::process_cpu(),
            list_age: view.health.list_age(now()),
        }
    }
}

/// Returns the agent's object with these measurements.
pub fn source<'a>(view: &'a View, directory: &'a Directory, measured: &Measured) -> Source<'a> {
    let (statistics, about, own) = (&view.statistics, &view.about, &measured.own);
    let RecentOwn { seconds, counters: recent } = &measured.recent;
    let mesh = directory.mesh();
    let p99 = |lag: &LagCounts| lag.quantile(lag_quantile(lag.count()), statistics.send_lag());
    Source {
        node: Cow::Borrowed(&view.node),
        zone: Cow::Borrowed(directory.own_zone()),
        version: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
        allocator: Cow::Borrowed(about.allocator),
        narenas: about.narenas.map(u64::from),
        linkage: Cow::Borrowed(about.linkage),
        libc: Cow::Borrowed(about.libc),
        rss_bytes: measured.resident.map(|resident| resident.bytes),
        private_dirty_bytes: measured.resident.map(|resident| resident.private_dirty_bytes),
        cpus: about.cpus.map(|cpus| cpus as u64),
        threads: measured.threads,
        cpu_seconds: Some(measured.cpu.as_secs_f64()),
        interval_seconds: Some(statistics.interval().as_secs_f64()),
        hour_kept: Some(is_every_hour_kept(directory)),
        members: Some(mesh.members.into()),
        watchers: Some(mesh.watchers_in_zone.saturating_add(mesh.watchers_elsewhere).into()),
        watchers_missing: Some(mesh.watchers_missing.into()),
        peer_list_age_seconds: measured.list_age.map_or(Age::Never, |age| Age::Seconds(age.as_secs_f64())),
        echo_requests_received: own.echoes.map(|echoes| echoes.requests_received),
        echo_replies_sent: own.echoes.map(|echoes| echoes.replies_sent),
        listening_seconds: statistics.listening_for(now()).map(Nanos::as_secs_f64),
        session: view.strangers.own().filter(|_| is_unanswered(statistics, directory)).cloned(),
        strangers: view.strangers.heard(),
        recent: RecentSource {
            seconds: Some(*seconds),
            echo_requests_received: recent.echoes.map(|echoes| echoes.requests_received),
            echo_replies_sent: recent.echoes.map(|echoes| echoes.replies_sent),
            send_lag_p99_seconds: p99(&recent.send_lag),
            read_delay_p99_seconds: p99(&recent.read_delay),
            probes_skipped: Some(recent.skipped),
            receive_queue_drops: recent.receive_queue_drops,
            run_delay_seconds: recent.run_delay.map(Nanos::as_secs_f64),
            rtt_p99_seconds: rtt_p99_seconds(statistics, directory),
        },
    }
}

/// Whether half of the links by UDP have lost probes and no answers.
fn is_unanswered(statistics: &Statistics, directory: &Directory) -> bool {
    if !statistics.methods().has(Method::Udp) {
        return false;
    }
    let recent = directory.peers().filter_map(|(slot, _)| statistics.method(Method::Udp).recent(slot, now()));
    let (mut links, mut unanswered) = (0, 0);
    for link in recent.filter(|link| link.sent > 0) {
        links += 1;
        unanswered += usize::from(link.received == 0 && link.lost > 0);
    }
    unanswered > 0 && unanswered * 2 >= links
}

/// Returns the 99th percentile over all slots, by ICMP if the agent probes by it.
fn rtt_p99_seconds(statistics: &Statistics, directory: &Directory) -> Option<f64> {
    let method = statistics.methods().iter().next()?;
    statistics.method(method).recent_rtt_p99_seconds(directory.peers().map(|(slot, _)| slot))
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

/// Returns the number of recently lost probes to the peer in this slot, by the method that lost
/// most beyond chance. 0 if none did, or if the peer is no evidence.
pub fn losses(statistics: &Statistics, slot: SlotId, peer: peers::ListedPeer<'_>) -> u32 {
    if !matches!(peer.presence(), Presence::Ready | Presence::Unready) {
        return 0;
    }
    let losses_by = |method: Method| {
        let statistics = Some(statistics.method(method)).filter(|_| peer.via().allows(method))?;
        // Most links have lost next to nothing since the start, which is read at once. What could
        // not be sent counts as in `Writer::peer`.
        let (lost, unsent) = (statistics.slot(slot)?.read().lost, statistics.unsent(slot).probes);
        let lost = u32::try_from(lost).unwrap_or(u32::MAX).saturating_add(unsent);
        let recent = (losses_beyond_chance(0, lost) > 0).then(|| statistics.recent(slot, now()))??;
        Some(losses_beyond_chance(recent.sent.saturating_add(unsent), recent.lost.saturating_add(unsent)))
    };
    Method::ALL.into_iter().filter_map(losses_by).max().unwrap_or(0)
}

/// Returns the object of the peer in this slot, by this method. Returns none if there is no such
/// slot, or if the method is not used there.
pub fn peer<'a>(
    (statistics, traces): (&Statistics, &PeerTraces),
    (slot, method): (SlotId, Method),
    peer: peers::ListedPeer<'a>,
    zone: &'a str,
) -> Option<Peer<'a>> {
    let (all, statistics) = Some((statistics, statistics.method(method))).filter(|_| peer.via().allows(method))?;
    let udp = all.udp(slot).filter(|_| method == Method::Udp);
    let ways = udp.map(|link| link.ways());
    let variation = udp.and_then(|link| link.delay_variation());
    let [there, back] = udp.map_or([None; 2], |link| link.delays());
    let mtu = udp.map_or(MtuReading::Unknown, |link| link.mtu());
    let in_slot = statistics.slot(slot)?;
    let total = in_slot.read();
    let (recent, hour, unsent) = (statistics.recent(slot, now())?, statistics.hour(slot), statistics.unsent(slot));
    Some(Peer {
        node: Cow::Borrowed(peer.node()),
        zone: Cow::Borrowed(zone),
        network: peer.network(),
        protocol: Protocol::new(method, peer.family()),
        state: match peer.presence() {
            Presence::Ready => PeerState::Ready,
            Presence::Unready => PeerState::Unready,
            Presence::Terminating => PeerState::Terminating,
            Presence::Displaced => PeerState::Displaced,
            Presence::Left => PeerState::Left,
        },
        address: Some(peer.address()),
        sent: total.sent,
        received: total.received,
        lost: total.lost,
        late: total.late.into(),
        rtt_p50_seconds: in_slot.rtt_quantile(0.5),
        rtt_p99_seconds: in_slot.rtt_quantile(0.99),
        since_unix_seconds: statistics.losing_since(slot, &recent).map(clock::realtime_of).map(Nanos::as_secs),
        usual_rtt_p50_seconds: hour.and_then(|hour| hour.usual_rtt_p50_seconds()),
        recent: RecentPeer {
            seconds: recent.seconds,
            sent: recent.sent,
            received: recent.received,
            lost: recent.lost,
            lost_in_row: recent.lost_in_row,
            answered_since: recent.answered_since,
            answered_before: recent.answered_before,
            answered_seconds: if method == Method::Tcp { statistics.answered_seconds(slot, &recent) } else { 0 },
            rtt_p50_seconds: recent.rtt_p50_seconds,
            rtt_p99_seconds: recent.rtt_p99_seconds,
            lost_there: ways.map(|ways| ways.lost_there),
            lost_back: ways.map(|ways| ways.lost_back),
            refused: method == Method::Tcp && statistics.is_refused(slot),
            send_errors: unsent.probes,
            send_error_reason: unsent.reason,
        },
        ten_minutes: hour.and_then(|hour| hour.ten_minutes()).map(|recent| TenMinutes {
            seconds: recent.seconds.into(),
            sent: recent.sent,
            lost: recent.lost,
        }),
        heard: udp.and_then(|link| link.heard()),
        hops: udp.and_then(|link| link.hops()),
        delay_there_seconds: there.map(Nanos::as_secs_f64),
        delay_back_seconds: back.map(Nanos::as_secs_f64),
        delay_variation_there_seconds: variation.map(|[there, _]| there.as_secs_f64()),
        delay_variation_back_seconds: variation.map(|[_, back]| back.as_secs_f64()),
        path_mtu_bytes: match mtu {
            MtuReading::Unknown => None,
            MtuReading::Full { bytes } | MtuReading::Hole { passes: bytes, .. } => Some(bytes),
        },
        mtu_hole: match mtu {
            MtuReading::Hole { passes, is_said } => {
                let said = if is_said { HoleNotice::TooBig } else { HoleNotice::Silent };
                // A large request has a small answer.
                Some(MtuHole { passes_bytes: passes, direction: Way::Out, said })
            }
            MtuReading::Unknown | MtuReading::Full { .. } => None,
        },
        flows: udp.map(|link| flows(&link, all.flow_ports(peer.family()), all.interval())),
        // With names that JSON makes six times as long, there would be no room for it.
        trace: udp.filter(|_| is_plain(peer.node()) && is_plain(zone)).and_then(|_| traces.find(peer.address())),
        syn_retransmissions: (method == Method::Tcp).then(|| total.syn_retransmissions.into()),
    })
}

/// Whether a name is as long in JSON as it is.
fn is_plain(name: &str) -> bool {
    !name.contains(|c: char| c.is_control() || c == '"' || c == '\\')
}

/// With longer intervals, flows have losses that are older than the 255 s that a slot can count.
const ANSWERED_INTERVAL_MAX: Nanos = Nanos::from_millis(2_000);

/// Returns what is known of the flows with these source ports.
fn flows(link: &UdpLinks<'_>, ports: &[u16], interval: Nanos) -> Flows {
    let outcomes = link.flows();
    let each = outcomes.losing().into_iter().zip(outcomes.readings()).zip(link.flow_ways()).zip(ports);
    let losing = each.filter(|(((is_losing, _), _), _)| *is_losing);
    let listed = losing.clone().map(|(((_, flow), way), port)| LosingFlow {
        source_port: *port,
        lost: narrow(flow.lost),
        probes: narrow(flow.probes),
        direction: direction(way),
    });
    let listed: Vec<LosingFlow> = listed.take(FLOWS_LISTED_MAX).collect();
    let suspect = if listed.is_empty() { suspect(link, ports) } else { None };
    let is_any = interval <= ANSWERED_INTERVAL_MAX && (suspect.is_some() || !listed.is_empty());
    let (answered, answered_seconds) = if is_any { link.answered() } else { (0, 0) };
    Flows {
        probed: u8::try_from(ports.len()).unwrap_or(u8::MAX),
        losing_count: u8::try_from(losing.count()).unwrap_or(u8::MAX),
        losing: listed,
        suspect,
        answered,
        answered_seconds,
    }
}

/// Returns the flow of a link that may be losing.
fn suspect(link: &UdpLinks<'_>, ports: &[u16]) -> Option<Suspect> {
    let outcomes = link.flows();
    let (flow, nats) = outcomes.evidence()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is positive, and the cast saturates"
    )]
    let decinats = ((nats * 10.0) as u8).min(10 * FLOW_NATS_MIN - 1);
    let (reading, way) = (outcomes.readings()[usize::from(flow)], link.flow_ways()[usize::from(flow)]);
    (decinats > 0).then_some(Suspect {
        source_port: *ports.get(usize::from(flow))?,
        lost: narrow(reading.lost),
        probes: narrow(reading.probes),
        direction: direction(way),
        decinats,
    })
}

fn narrow(count: u32) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}

const fn direction(way: FlowWay) -> Way {
    match way {
        FlowWay::Unknown => Way::Unknown,
        FlowWay::Out => Way::Out,
        FlowWay::Back => Way::In,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use super::*;
    use crate::check::{CHECK_NAME_BYTES_MAX, Check, CheckFailure, CheckKind};
    use crate::limits::{AGENTS_MAX, NAME_BYTES_MAX, REPORT_BYTES_MAX, REPORT_OBJECT_BYTES_MAX, STRANGERS_MAX};
    use crate::peers::Family;
    use crate::prober::SendError;
    use crate::prober::udp::trace::{HOPS_MAX, TraceFinding};
    use crate::report::{Network, Session, Stranger};
    use crate::statistics::SendLag;

    /// The longest number.
    const NUMBER: f64 = 0.000_012_34;
    const LONGEST: Option<f64> = Some(NUMBER);

    #[test]
    fn a_lag_is_the_99th_percentile_of_many_probes_and_the_third_largest_of_few() {
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

    fn losing() -> LosingFlow {
        LosingFlow { source_port: u16::MAX, lost: u8::MAX, probes: u8::MAX, direction: Way::Unknown }
    }

    /// The longest name in JSON: each byte is escaped to six.
    fn longest_name() -> Cow<'static, str> {
        "\u{1}".repeat(NAME_BYTES_MAX).into()
    }

    fn longest_peer() -> Peer<'static> {
        Peer {
            node: longest_name(),
            zone: longest_name(),
            network: Network::Node,
            protocol: Protocol::Icmpv6,
            state: PeerState::Terminating,
            address: "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".parse().ok(),
            sent: u64::MAX,
            received: u64::MAX,
            lost: u64::MAX,
            late: u32::MAX.into(),
            rtt_p50_seconds: LONGEST,
            rtt_p99_seconds: LONGEST,
            since_unix_seconds: Some(u64::MAX),
            usual_rtt_p50_seconds: LONGEST,
            recent: RecentPeer {
                seconds: NUMBER,
                sent: u32::MAX,
                received: u32::MAX,
                lost: u32::MAX,
                lost_in_row: u8::MAX.into(),
                answered_since: u8::MAX.into(),
                answered_before: u8::MAX.into(),
                answered_seconds: u8::MAX.into(),
                lost_there: Some(u32::MAX),
                lost_back: Some(u32::MAX),
                refused: true,
                send_errors: u32::MAX,
                send_error_reason: Some(SendError::MessageTooLong),
                rtt_p50_seconds: LONGEST,
                rtt_p99_seconds: LONGEST,
            },
            ten_minutes: Some(TenMinutes { seconds: u32::MAX.into(), sent: u32::MAX, lost: u32::MAX }),
            heard: Some(u32::MAX),
            hops: Some(u8::MAX),
            delay_there_seconds: LONGEST,
            delay_back_seconds: LONGEST,
            delay_variation_there_seconds: LONGEST,
            delay_variation_back_seconds: LONGEST,
            path_mtu_bytes: Some(u16::MAX),
            mtu_hole: Some(MtuHole { passes_bytes: u16::MAX, direction: Way::Unknown, said: HoleNotice::TooBig }),
            flows: Some(Flows {
                probed: u8::MAX,
                losing_count: u8::MAX,
                losing: vec![losing(); FLOWS_LISTED_MAX],
                suspect: None,
                answered: u8::MAX,
                answered_seconds: u8::MAX,
            }),
            trace: None,
            syn_retransmissions: Some(u64::MAX),
        }
    }

    #[test]
    fn the_longest_objects_have_room() {
        let peer = longest_peer();
        let plain = "n".repeat(NAME_BYTES_MAX);
        let address = IpAddr::V6(Ipv6Addr::from([0xfffe; 8]));
        let by = TraceFinding::LosesBehind { hop: address, next: Some(address) };
        let traced = Peer {
            node: Cow::Borrowed(&plain),
            zone: Cow::Borrowed(&plain),
            trace: Some(crate::report::Trace {
                source_port: u16::MAX,
                at_unix_seconds: u64::MAX,
                reached: false,
                says: Cow::Owned(by.to_string()),
                hops: vec![crate::report::Hop(Some(address)); HOPS_MAX],
                sent: vec![u8::MAX; HOPS_MAX],
                answered: vec![u8::MAX; HOPS_MAX],
            }),
            ..longest_peer()
        };
        let source = Source {
            node: longest_name(),
            zone: longest_name(),
            version: Cow::Borrowed("1000.1000.1000"),
            allocator: Cow::Borrowed("mimalloc"),
            narenas: Some(u32::MAX.into()),
            linkage: Cow::Borrowed("c-shim"),
            libc: Cow::Borrowed("glibc"),
            rss_bytes: Some(u64::MAX),
            private_dirty_bytes: Some(u64::MAX),
            cpus: Some(u64::MAX),
            threads: Some(u64::MAX),
            cpu_seconds: LONGEST,
            interval_seconds: LONGEST,
            hour_kept: Some(false),
            members: Some(u32::MAX.into()),
            watchers: Some(u32::MAX.into()),
            watchers_missing: Some(u32::MAX.into()),
            peer_list_age_seconds: Age::Seconds(NUMBER),
            echo_requests_received: Some(u64::MAX),
            echo_replies_sent: Some(u64::MAX),
            listening_seconds: LONGEST,
            session: Some(Session { ssid: u16::MAX, addresses: vec![address; 2] }),
            strangers: vec![Stranger { address, ssid: u16::MAX, requests: u32::MAX }; STRANGERS_MAX],
            recent: RecentSource {
                seconds: LONGEST,
                echo_requests_received: Some(u64::MAX),
                echo_replies_sent: Some(u64::MAX),
                send_lag_p99_seconds: LONGEST,
                read_delay_p99_seconds: LONGEST,
                probes_skipped: Some(u64::MAX),
                receive_queue_drops: Some(u64::MAX),
                run_delay_seconds: LONGEST,
                rtt_p99_seconds: LONGEST,
            },
        };
        let check = Check {
            name: "n".repeat(CHECK_NAME_BYTES_MAX).into(),
            kind: CheckKind::Service,
            tried: u32::MAX,
            failed: u32::MAX,
            slow: u32::MAX,
            good_in_row: u32::MAX,
            failed_in_row: u32::MAX,
            reason: Some(CheckFailure::CertificateUntrusted),
            family: Some(Family::V6),
            family_tried: u32::MAX,
            reaches_itself: true,
            since_unix_seconds: Some(u64::MAX),
            servers: u8::MAX,
            servers_failing: u8::MAX,
            time_p50_seconds: LONGEST,
            slow_from_seconds: LONGEST,
        };
        let objects = [serde_json::to_vec(&peer), serde_json::to_vec(&traced), serde_json::to_vec(&source)];
        for text in objects.into_iter().chain([serde_json::to_vec(&check)]) {
            let length = text.unwrap().len();
            // A comma, or the start of the report, surrounds each object.
            assert!(length + 32 <= REPORT_OBJECT_BYTES_MAX, "{length} of {REPORT_OBJECT_BYTES_MAX}");
        }
    }

    #[test]
    fn a_report_of_all_links_of_5000_nodes_has_room_if_names_and_figures_are_usual() {
        let seconds = Some(1.346e-5);
        let recent = RecentPeer {
            seconds: 59.99,
            sent: 60,
            received: 60,
            lost: 0,
            lost_in_row: 0,
            answered_since: 0,
            answered_before: 0,
            answered_seconds: 0,
            lost_there: None,
            lost_back: None,
            refused: false,
            send_errors: 0,
            send_error_reason: None,
            rtt_p50_seconds: seconds,
            rtt_p99_seconds: seconds,
        };
        let by_icmp = Peer {
            node: Cow::Borrowed("ip-10-120-112-113.eu-central-1.compute.internal"),
            zone: Cow::Borrowed("eu-central-1a"),
            address: "2001:db8:1234:5678:9abc:def0:1234:5678".parse().ok(),
            sent: 10_000_000,
            received: 9_999_000,
            lost: 1_000,
            late: 10_u32.into(),
            rtt_p50_seconds: seconds,
            rtt_p99_seconds: seconds,
            since_unix_seconds: None,
            usual_rtt_p50_seconds: seconds,
            recent,
            ten_minutes: Some(TenMinutes { seconds: 600_u32.into(), sent: 600, lost: 0 }),
            heard: None,
            hops: None,
            delay_there_seconds: None,
            delay_back_seconds: None,
            delay_variation_there_seconds: None,
            delay_variation_back_seconds: None,
            path_mtu_bytes: None,
            mtu_hole: None,
            flows: None,
            trace: None,
            syn_retransmissions: None,
            ..longest_peer()
        };
        let by_udp = Peer {
            recent: RecentPeer { lost_there: Some(0), lost_back: Some(0), ..recent },
            heard: Some(60),
            hops: Some(3),
            delay_there_seconds: seconds,
            delay_back_seconds: seconds,
            delay_variation_there_seconds: seconds,
            delay_variation_back_seconds: seconds,
            path_mtu_bytes: Some(1_500),
            flows: Some(Flows { probed: 16, ..Flows::default() }),
            ..by_icmp.clone()
        };
        let by_tcp = Peer { syn_retransmissions: Some(100), ..by_icmp.clone() };
        let lengths = [by_icmp, by_udp, by_tcp].map(|peer| serde_json::to_vec(&peer).unwrap().len());
        let of_node: usize = lengths.iter().map(|length| length + 1).sum();
        let families = 2;
        assert!(of_node * families * (AGENTS_MAX - 1) < REPORT_BYTES_MAX, "{lengths:?}");
    }
}
