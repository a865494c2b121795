use super::*;
use crate::report::{HoleNotice, Way};

pub(super) const NOW: u64 = 1_800_000_000;
/// Number of an object's kinds.
const KINDS: u8 = 48;
const _: () = assert!(KINDS as usize == PLACES * STATES.len());

pub(super) fn source() -> Source<'static> {
    Source {
        node: "node-a".into(),
        zone: "zone-1".into(),
        interval_seconds: Some(1.0),
        listening_seconds: Some(1_234.5),
        members: Some(5_000),
        recent: RecentSource {
            seconds: Some(45.5),
            echo_requests_received: Some(1_080),
            send_lag_p99_seconds: Some(0.25),
            probes_skipped: Some(0),
            run_delay_seconds: Some(0.0),
            rtt_p99_seconds: Some(0.004),
            ..RecentSource::default()
        },
        ..Source::default()
    }
}

pub(super) fn well(protocol: Protocol) -> Peer<'static> {
    let heard = matches!(protocol, Protocol::Udp | Protocol::Udpv6);
    Peer {
        protocol,
        usual_rtt_p50_seconds: Some(0.000_31),
        ten_minutes: Some(TenMinutes { seconds: 600.0, sent: 600, lost: 0 }),
        heard: heard.then_some(45),
        recent: RecentPeer {
            seconds: 45.5,
            sent: 46,
            received: 45,
            lost_there: heard.then_some(0),
            lost_back: heard.then_some(0),
            rtt_p50_seconds: Some(0.000_33),
            ..RecentPeer::default()
        },
        ..Peer::default()
    }
}

/// A peer of which everything is reported that this form has.
fn worst() -> Peer<'static> {
    let losing = vec![LosingFlow { source_port: 40_312, lost: 9, probes: 30, direction: Way::In }];
    Peer {
        state: PeerState::Unready,
        since_unix_seconds: Some(NOW - 3_000),
        ten_minutes: Some(TenMinutes { seconds: 540.0, sent: 540, lost: 301 }),
        heard: Some(300),
        flows: Some(Flows { probed: 16, losing_count: 3, losing, suspect: None, answered: 12, answered_seconds: 9 }),
        mtu_hole: Some(MtuHole { passes_bytes: 1_300, direction: Way::Out, said: HoleNotice::TooBig }),
        recent: RecentPeer {
            seconds: 31.2,
            sent: 510,
            received: 209,
            lost: 300,
            lost_in_row: 7,
            answered_since: 2,
            answered_before: 4,
            answered_seconds: 0,
            lost_there: Some(200),
            lost_back: Some(99),
            ..well(Protocol::Udp).recent
        },
        ..well(Protocol::Udp)
    }
}

fn written(peers: &[(u64, Peer<'_>)]) -> Vec<u8> {
    written_by(&source(), peers)
}

pub(super) fn written_by(source: &Source<'_>, peers: &[(u64, Peer<'_>)]) -> Vec<u8> {
    let mut writer = CompactWriter::new(source, 0, NOW);
    for (node, peer) in peers {
        writer.peer(*node, peer);
    }
    writer.end(0)
}

fn read(bytes: &[u8]) -> Option<Vec<(u64, Peer<'static>)>> {
    let mut reader = CompactReader::new(bytes, NOW + 5).ok()?;
    Some(std::iter::from_fn(|| reader.next_peer()).collect())
}

#[test]
fn a_report_is_read_as_it_was_written() {
    let bytes = written(&[(9, worst()), (3, well(Protocol::Tcpv6)), (9, well(Protocol::Icmp))]);
    let reader = CompactReader::new(&bytes, NOW).expect("a report");
    assert_eq!(serde_json::to_string(&reader.source).unwrap(), serde_json::to_string(&source()).unwrap());
    let peers = read(&bytes).unwrap();
    let places: Vec<_> = peers.iter().map(|(node, peer)| (*node, peer.protocol)).collect();
    assert_eq!(places, [(3, Protocol::Tcpv6), (9, Protocol::Icmp), (9, Protocol::Udp)]);
    let near = |a: Option<f64>, b: Option<f64>| (a.unwrap() / b.unwrap() - 1.0).abs() < 3e-4;
    for (read, wrote) in
        [(&peers[0].1, well(Protocol::Tcpv6)), (&peers[1].1, well(Protocol::Icmp)), (&peers[2].1, worst())]
    {
        assert!(near(read.recent.rtt_p50_seconds, wrote.recent.rtt_p50_seconds));
        assert!(near(read.usual_rtt_p50_seconds, wrote.usual_rtt_p50_seconds));
        let plain = |peer: &Peer<'_>| {
            let recent = RecentPeer { rtt_p50_seconds: None, ..peer.recent };
            let ten_minutes = peer.ten_minutes.filter(|said| said.lost > 0);
            let since_unix_seconds = peer.since_unix_seconds.map(|since| since.min(NOW - 2_995));
            let peer = Peer { recent, ten_minutes, usual_rtt_p50_seconds: None, since_unix_seconds, ..peer.clone() };
            serde_json::to_string(&peer).unwrap()
        };
        // The reader's clock is 5 s ahead, and so is the moment.
        let wrote = Peer { since_unix_seconds: wrote.since_unix_seconds.map(|since| since + 5), ..wrote };
        assert_eq!(plain(read), plain(&wrote));
    }
}

#[test]
fn of_several_flows_the_worst_is_written_and_a_suspect_only_without_them() {
    let flow = |source_port, lost| LosingFlow { source_port, lost, probes: 30, direction: Way::Out };
    let suspect = Some(Suspect { source_port: 7, lost: 2, probes: 9, direction: Way::In, decinats: 31 });
    let flows = |losing: Vec<LosingFlow>, suspect| {
        let losing_count = u8::try_from(losing.len()).unwrap();
        let flows = Some(Flows { probed: 16, losing_count, losing, suspect, ..Flows::default() });
        read(&written(&[(1, Peer { flows, ..well(Protocol::Udp) })])).unwrap().remove(0).1.flows
    };
    let two = flows(vec![flow(1, 4), flow(2, 20)], None).unwrap();
    assert_eq!((two.losing_count, two.losing, two.suspect), (2, vec![flow(2, 20)], None));
    let none = flows(Vec::new(), suspect).unwrap();
    assert_eq!((none.losing_count, none.losing, none.suspect), (0, Vec::new(), suspect));
    assert_eq!(flows(Vec::new(), None), None, "flows without loss are left out");
}

#[test]
fn addresses_of_loopback_and_old_sources_stay_what_they_are() {
    let local = Peer { address: "127.0.0.3".parse().ok(), ..well(Protocol::Icmp) };
    assert!(read(&written(&[(1, local)])).unwrap()[0].1.address.is_some_and(|address| address.is_loopback()));
    assert_eq!(read(&written(&[(1, well(Protocol::Icmp))])).unwrap()[0].1.address, None);
    let old = Source { node: "a".into(), ..Source::default() };
    let bytes = CompactWriter::new(&old, 0, NOW).end(0);
    let reader = CompactReader::new(&bytes, NOW).unwrap();
    assert_eq!(serde_json::to_string(&reader.source).unwrap(), serde_json::to_string(&old).unwrap());
}

#[test]
fn an_address_that_has_left_does_not_hide_its_successor() {
    let left = Peer { state: PeerState::Left, ..well(Protocol::Icmp) };
    for both in [[(1, left.clone()), (1, well(Protocol::Icmp))], [(1, well(Protocol::Icmp)), (1, left.clone())]] {
        let peers = read(&written(&both)).unwrap();
        assert_eq!((peers.len(), peers[0].1.state), (1, PeerState::Ready));
    }
}

#[test]
fn a_report_of_24_peers_takes_576_bytes_by_one_method_and_1152_by_three() {
    let of = |protocols: &[Protocol], name: &str| {
        let mut writer = CompactWriter::new(&Source { node: name.into(), zone: name.into(), ..source() }, 0, NOW);
        for node in 0..24 {
            for protocol in protocols {
                writer.peer(node, &well(*protocol));
            }
        }
        writer.end(0).len()
    };
    let three = [Protocol::Icmp, Protocol::Udp, Protocol::Tcp];
    let name = "ip-10-0-0-7.eu";
    assert!(of(&three[..1], name) <= 576, "{}", of(&three[..1], name));
    assert!(of(&three, name) <= 1_152, "{}", of(&three, name));
}

/// What an agent of this name reports of a mesh in which it probes this many others.
fn full_mesh_report(own: u64, nodes: u64, lossy: &[u64], lost: u32) -> Vec<u8> {
    let (mut writer, mut choice) = (CompactWriter::new(&source(), own, NOW), Choice::new(own));
    let others = || (0..nodes).map(|node| node.wrapping_mul(0x9e37_79b9_7f4a_7c15)).filter(|node| *node != own);
    let lost_to = |node: &u64| if lossy.contains(node) { lost } else { 0 };
    for node in others() {
        (0..3).for_each(|_| choice.add(node, losses_beyond_chance(45, lost_to(&node))));
    }
    let Chosen { nodes, left_out } = choice.end();
    for node in others().filter(|node| nodes.contains(node)) {
        for protocol in [Protocol::Icmp, Protocol::Udp, Protocol::Tcp] {
            let lost = lost_to(&node);
            let recent = RecentPeer { lost, received: 45 - lost, ..well(protocol).recent };
            writer.peer(node, &Peer { recent, ..well(protocol) });
        }
    }
    writer.end(left_out)
}

#[test]
fn of_many_losing_peers_the_worst_are_chosen_in_bounded_memory() {
    let mut choice = Choice::new(0);
    for node in 0..5_000 {
        choice.add(node, 20);
        choice.add(node, if node == 4_000 { 30 } else { 10 });
    }
    assert_eq!(choice.losers.len(), SAMPLE + LOSERS_MAX);
    let chosen = choice.end();
    assert_eq!((chosen.nodes.len(), chosen.left_out), (SAMPLE + LOSERS_MAX, 5_000 - (SAMPLE + LOSERS_MAX) as u64));
    assert_eq!(chosen.nodes[SAMPLE], 4_000);
}

#[test]
fn of_a_mesh_that_is_too_large_both_ends_keep_the_same_links_and_those_that_lose_most() {
    let hash = |node: u64| node.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let peers = |bytes: &[u8]| -> Vec<u64> {
        let mut nodes: Vec<u64> = read(bytes).unwrap().into_iter().map(|(node, _)| node).collect();
        nodes.dedup();
        nodes
    };
    let whole = full_mesh_report(hash(0), 500, &[], 0);
    assert_eq!((peers(&whole).len(), CompactReader::new(&whole, NOW).unwrap().left_out), (499, 0));
    let lossy: Vec<u64> = (4_000..4_020).map(hash).collect();
    for (lost, kept) in [(9, SAMPLE), (10, SAMPLE + LOSERS_MAX)] {
        let bytes = full_mesh_report(hash(0), 5_000, &lossy, lost);
        let reader = CompactReader::new(&bytes, NOW).unwrap();
        assert_eq!((reader.left_out, peers(&bytes).len()), (4_999 - kept as u64, kept));
        let RecentSource { echo_requests_received, probes_skipped, .. } = reader.source.recent;
        assert_eq!((echo_requests_received, probes_skipped), (None, None), "they are of all peers");
        assert!(bytes.len() <= 4_096, "{}", bytes.len());
    }
    let own = peers(&full_mesh_report(hash(0), 5_000, &[], 0));
    let mutual = own.iter().filter(|peer| peers(&full_mesh_report(**peer, 5_000, &[], 0)).contains(&hash(0))).count();
    assert!(mutual >= SAMPLE / 2, "{mutual} of {SAMPLE}");
}

#[test]
fn the_longest_report_is_not_longer_than_its_limit() {
    let mut writer = CompactWriter::new(&Source { node: "n".repeat(253).into(), ..source() }, 0, NOW);
    for node in 0..5_000 {
        for protocol in PROTOCOLS {
            writer.peer(node, &Peer { protocol, ..worst() });
        }
        for protocol in [Protocol::Icmp, Protocol::Icmpv6] {
            writer.peer(node, &Peer { protocol, network: Network::Node, ..worst() });
        }
    }
    let longest = writer.end(0);
    assert!(longest.len() <= BYTES_MAX && read(&longest).is_some(), "{}", longest.len());
}

#[test]
fn a_report_with_a_byte_too_many_too_few_or_out_of_order_is_refused() {
    let bytes = written(&[(3, well(Protocol::Icmp)), (9, worst()), (9, well(Protocol::Tcp))]);
    assert!(read(&bytes).is_some());
    for end in 0..bytes.len() {
        assert!(read(&bytes[..end]).is_none(), "{end} bytes");
    }
    assert!(read(&[&bytes[..], &[0]].concat()).is_none());
    // The number of nodes, and behind it the first one's hash.
    let head = bytes.windows(8).position(|window| window == 3_u64.to_be_bytes()).expect("a hash") - 1;
    let with = |at: usize, with: &[u8]| read(&[&bytes[..at], with, &bytes[at + 1..]].concat());
    assert!(with(0, &[VERSION]).is_some() && with(0, &[VERSION + 1]).is_none());
    assert!(with(1, &[0xff, 0xff, 1]).is_none(), "a name that is longer than the report");
    assert!(with(2, &[0xff]).is_none(), "a name that is no text");
    assert!(with(head + 1, &[0xff]).is_none(), "hashes out of order");
    assert!(with(head + 9, &[2]).is_none(), "more objects than there are");
    assert!(with(head + 10, &[KINDS]).is_none(), "no such kind");
    assert!(with(head + 11, &[0xff, 0xff, 0xff, 0xff, 0x1f]).is_none(), "a count of 33 bits");
    assert!(with(head + 11, &[0xff; 20]).is_none(), "a count without an end");
    let twice = {
        let object = add(Vec::new(), &CompactPeer::from_peer(0, &well(Protocol::Icmp), 455, NOW));
        let of = |objects: u8| {
            let objects = (objects, vec![&object[..]; objects.into()].concat());
            read(&[&bytes[..head], &[1], &3_u64.to_be_bytes(), &[objects.0], &objects.1].concat())
        };
        assert!(of(1).is_some());
        of(2)
    };
    assert!(twice.is_none(), "an object twice");
    let long = "n".repeat(NAME_MAX + 1);
    let head = CompactWriter::new(&source(), 0, NOW).head;
    for (bytes, is_read) in [
        (add(Vec::new(), &head), true),
        (add(Vec::new(), &ReportHead { node: (&*long).into(), ..head.clone() }), false),
        (add(Vec::new(), &ReportHead { zone: (&*long).into(), ..head.clone() }), false),
    ] {
        assert_eq!(read(&bytes).is_some(), is_read);
    }
}

#[test]
fn times_that_are_no_numbers_are_not_known() {
    let bytes = written(&[]);
    for no_time in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        // The interval, the time that is covered, and the lag.
        let sources = [1.0_f64, 45.5, 0.25].map(|time| {
            let at = bytes.windows(8).position(|window| window == time.to_le_bytes()).expect("the time");
            let changed = [&bytes[..at], &no_time.to_le_bytes(), &bytes[at + 8..]].concat();
            let Source { interval_seconds, recent, .. } = CompactReader::new(&changed, NOW).expect("a report").source;
            [interval_seconds, recent.seconds, recent.send_lag_p99_seconds].map(|time| time.is_some())
        });
        assert_eq!(sources, [[false, true, true], [true, false, true], [true, true, false]]);
    }
}

#[test]
fn no_object_is_longer_than_its_limit() {
    let (most, wide) = (u32::MAX, f64::MAX);
    let losing = vec![LosingFlow { source_port: u16::MAX, lost: 255, probes: 255, direction: Way::Unknown }];
    let suspect =
        Some(Suspect { source_port: u16::MAX, lost: 255, probes: 255, direction: Way::Unknown, decinats: 255 });
    let flows = Flows { probed: 255, losing_count: 255, answered: 255, answered_seconds: 255, losing, suspect };
    let recent = RecentPeer {
        seconds: wide,
        sent: most,
        received: most,
        lost: most,
        lost_in_row: most,
        answered_since: most,
        answered_before: most,
        answered_seconds: most,
        lost_there: Some(most),
        lost_back: Some(most),
        refused: true,
        send_errors: most,
        send_error_reason: Some(SendError::Other),
        rtt_p50_seconds: Some(wide),
        rtt_p99_seconds: Some(wide),
    };
    let hole = MtuHole { passes_bytes: u16::MAX, direction: Way::Unknown, said: HoleNotice::Other };
    let of = |flows: Flows| Peer {
        usual_rtt_p50_seconds: Some(wide),
        since_unix_seconds: Some(0),
        ten_minutes: Some(TenMinutes { seconds: wide, sent: most, lost: most }),
        heard: Some(most),
        flows: Some(flows),
        mtu_hole: Some(hole),
        recent,
        ..well(Protocol::Tcpv6)
    };
    for (flows, bytes) in
        [(flows.clone(), OBJECT_BYTES_MAX - 1), (Flows { losing: Vec::new(), ..flows }, OBJECT_BYTES_MAX)]
    {
        assert_eq!(add(Vec::new(), &CompactPeer::from_peer(KINDS - 1, &of(flows), 0, u64::MAX)).len(), bytes);
    }
    assert_eq!(add(Vec::new(), &NodeHead { hash: u64::MAX, objects: 255 }).len(), NODE_BYTES);
}

#[test]
fn probes_that_could_not_be_sent_are_read_as_they_were_written() {
    for (place, reason) in SendError::ALL.into_iter().enumerate() {
        let errors = [1, 60, 510, u32::MAX][place % 4];
        let recent = RecentPeer { send_errors: errors, send_error_reason: Some(reason), ..worst().recent };
        let bytes = written(&[(7, Peer { recent, ..worst() }), (9, well(Protocol::Udp))]);
        let peers = read(&bytes).expect("a report");
        let of = |place: usize| (peers[place].1.recent.send_errors, peers[place].1.recent.send_error_reason);
        assert_eq!((of(0), of(1)), ((errors, Some(reason)), (0, None)));
        assert_eq!(peers[0].1.state, PeerState::Unready);
    }
    let unsent = RecentPeer { send_errors: 60, send_error_reason: Some(SendError::NoRoute), ..RecentPeer::default() };
    let bytes = written(&[(7, Peer { recent: RecentPeer { seconds: 45.5, ..unsent }, ..Peer::default() })]);
    let with_last = |ends: &[u8]| read(&[&bytes[..bytes.len() - ends.len()], ends].concat());
    assert!(with_last(&[0, 60]).is_some());
    assert!(with_last(&[0, 0]).is_none(), "none");
    let unknown = with_last(&[SendError::Other as u8 + 1, 60]).expect("a reason of another version");
    assert_eq!(unknown[0].1.recent.send_error_reason, Some(SendError::Other));
}

/// A source that has no answers by UDP, and has heard strangers.
fn rewritten() -> Source<'static> {
    let addresses = vec![IpAddr::from([10, 0, 0, 1]), "fd00::1".parse().expect("an address")];
    let stranger = |address: IpAddr, ssid| Stranger { address, ssid, requests: 300 };
    Source {
        session: Some(Session { ssid: 0x1234, addresses: addresses.clone() }),
        strangers: addresses.into_iter().zip([0x2000, 0xfffe]).map(|(address, ssid)| stranger(address, ssid)).collect(),
        ..source()
    }
}

#[test]
fn sessions_and_strangers_are_read_as_they_were_written() {
    let written = |source: &Source<'_>| CompactWriter::new(source, 1, NOW).end(0);
    let of =
        |bytes: &[u8]| CompactReader::new(bytes, NOW).map(|reader| (reader.source.session, reader.source.strangers));
    let source = rewritten();
    let bytes = written(&source);
    assert_eq!(of(&bytes), Ok((source.session.clone(), source.strangers.clone())));
    let unknown = Source { session: Some(Session { ssid: 2, addresses: Vec::new() }), ..self::source() };
    assert_eq!(of(&written(&unknown)), Ok((unknown.session.clone(), Vec::new())));
    // No more than a report has.
    let many = Source { strangers: vec![source.strangers[0]; STRANGERS_MAX + 1], ..rewritten() };
    let bytes_of_many = written(&many);
    assert_eq!(of(&bytes_of_many).expect("a report").1.len(), STRANGERS_MAX);
    // Behind the facts: the session, then the number of strangers.
    let begin = bytes.windows(3).position(|window| window == [0xb4, 0x24, 2]).expect("the session");
    let with = |at: usize, byte: u8| {
        let mut other = bytes.clone();
        other[begin + at] = byte;
        of(&other).is_err()
    };
    assert!(with(2, 3), "three addresses");
    assert!(with(3, 2), "an address of no family");
    let strangers = 3 + 5 + 17;
    assert_eq!(bytes[begin + strangers], 2);
    for (count, what) in [(0, "none"), (1, "less than there are"), (9, "too many"), (0xff, "no end")] {
        assert!(with(strangers, count), "{what}");
    }
}

#[test]
fn only_a_client_that_names_this_version_gets_it() {
    assert!(is_accepted(MEDIA_TYPE) && is_accepted(&format!("{MEDIA_TYPE}, application/json;q=0.5")));
    for other in ["", "*/*", "application/json", "application/vnd.kube-canary.report;version=1"] {
        assert!(!is_accepted(other), "{other}");
    }
}

/// The form may change with the version. Inputs that no reader accepts would test nothing.
#[test]
fn the_inputs_of_the_fuzz_target_are_reports_of_this_version() {
    let well = [Protocol::Icmp, Protocol::Udp, Protocol::Tcp].map(|protocol| (7, well(protocol)));
    let losses = [(7, worst()), (9, worst())];
    let with_checks = || {
        let mut writer = CompactWriter::new(&source(), 0, NOW);
        for name in ["dns", "web"] {
            writer.check(&checks::tests::failing(name));
        }
        writer.end(0)
    };
    for (name, bytes) in [
        ("well", written_by(&source(), &well)),
        ("losses", written_by(&source(), &losses)),
        ("rewritten", written_by(&rewritten(), &well)),
        ("checks", with_checks()),
    ] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/compact").join(name);
        if std::env::var_os("KUBE_CANARY_BLESS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name}: KUBE_CANARY_BLESS=1 writes it again");
    }
}
