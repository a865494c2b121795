//! The fuzz targets: every parser of bytes that another process or host wrote.
//!
//! `fuzz_targets/` passes each function to libFuzzer. `tests/fuzz/main.rs` runs each over its
//! committed corpus in a plain `cargo test`. A target must neither panic nor hang on any input.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use kube_canary::check::Check;
use kube_canary::checks;
use kube_canary::discovery;
use kube_canary::exposition::{self, Format};
use kube_canary::http;
use kube_canary::limits::STAMP_ANSWER_BYTES_MAX;
use kube_canary::memory;
use kube_canary::mesh::matrix::Matrix;
use kube_canary::mesh::split::{ReportObject, Splitter};
use kube_canary::mesh::verdicts;
use kube_canary::prober::icmp::{Decoded, EchoFormat};
use kube_canary::prober::udp::stamp::{ErrorEstimate, NtpTime, Reflection, Reflector, StampReply};
use kube_canary::prober::{ProbeKey, SocketKind};
use kube_canary::report::compact::CompactReader;
use kube_canary::report::{
    Age, Network, Peer, PeerState, Protocol, RecentPeer, RecentSource, SendError, Source, TenMinutes,
};
use kube_canary::statistics;
use kube_canary::units::Nanos;

/// When the collections begin, in Unix seconds.
const EPOCH: u64 = 1_800_000_000;

/// A target: its name, which is also that of its corpus, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All fuzz targets by name.
pub const ALL: [Target; 18] = [
    ("icmp", icmp),
    ("stamp_reply", stamp_reply),
    ("stamp_request", stamp_request),
    ("kube_list", discovery::kubernetes::fuzzing::list),
    ("kube_watch", discovery::kubernetes::fuzzing::watch),
    ("dns", discovery::dns::fuzz_answer),
    ("identity", discovery::fuzzing::identity),
    ("peers_file", discovery::fuzzing::peers_file),
    ("checks_file", checks::fuzzing::checks_file),
    ("http_path", http_path),
    ("accept_encoding", http::fuzz_accept_encoding),
    ("report_split", report_split),
    ("report", report),
    ("compact", compact_report),
    ("verdicts", verdicts_of_reports),
    ("snmp", statistics::fuzz_snmp),
    ("cgroup", exposition::fuzz_cgroup),
    ("smaps", memory::fuzz_smaps),
];

/// Runs the target of this name.
///
/// # Panics
/// There is no such target, or it has found a defect.
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = ALL.into_iter().find(|(other, _)| *other == name).expect("a target");
    target(data);
}

/// Parses any bytes as a datagram of both families and kinds of socket, and as a copy of a request.
///
/// The key is random, so no input can hold a valid check: a reply must never be recognized.
/// Each input has its own key. libFuzzer sees the values that are compared with the input, and puts
/// them into the next input.
pub fn icmp(data: &[u8]) {
    let key = ProbeKey::random();
    let format = EchoFormat::new(key.session(), 56);
    for from in [IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1])] {
        for kind in [SocketKind::Datagram, SocketKind::Raw] {
            let decoded = format.decode(&key, from, data, kind);
            assert!(!matches!(decoded, Decoded::Reply(_)), "forged: {decoded:?}");
        }
    }
    let _ = key.departed(data);
}

/// Parses any bytes as a reflector's answer.
pub fn stamp_reply(data: &[u8]) {
    let reply = StampReply::read(data);
    assert_eq!(reply.is_some(), data.len() >= 44);
    let Some(reply) = reply else { return };
    assert!(reply.dwell().is_none_or(|dwell| dwell <= Nanos::from_millis(3_600_000)));
    assert!(reply.padding.is_none_or(|padding| data[48..].starts_with(padding)));
    let _ = (reply.received_at.to_unix(), reply.reflected_at.to_unix(), reply.error.error());
}

/// Answers any bytes as a request of a member. The answer is never longer, can be read, and quotes
/// the request.
pub fn stamp_request(data: &[u8]) {
    let from = SocketAddr::from(([10, 0, 0, 1], 40_000));
    let mut reflector = Reflector::new(8_080, Nanos(0));
    assert!(reflector.set_members([from.ip()].into_iter()));
    let at = NtpTime::from_unix(Nanos(1_795_467_890_000_000_000));
    let reflection = Reflection { received_at: at, reflected_at: at, error: ErrorEstimate::UNKNOWN, ttl: 64, node: 7 };
    let mut out = [0; STAMP_ANSWER_BYTES_MAX];
    for count in 0..3 {
        let result = reflector.answer(from, data, &reflection, Nanos(count), &mut out);
        assert_eq!(result.is_ok(), data.len() >= 44);
        let Ok(length) = result else { return };
        assert!((44..=data.len()).contains(&length), "{length} for {}", data.len());
        let reply = StampReply::read(&out[..length]).expect("an answer");
        assert_eq!(u64::from(reply.count), count);
        assert_eq!((reply.sender_sequence.to_be_bytes(), reply.sender_ttl), ([data[0], data[1], data[2], data[3]], 64));
        assert_eq!(out[24..38], data[..14]);
        assert!(reply.padding.is_none_or(|padding| data[48..].starts_with(padding)));
    }
}

/// Parses any text as a path segment and as an `Accept` header.
pub fn http_path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(name) = http::path::decoded(text) {
        assert!(name.len() <= text.len());
    }
    let _ = Format::accepted(text);
}

/// Splits any bytes into a report's objects. The result must be the same for pieces of any size.
/// The first byte is the size of a piece.
pub fn report_split(data: &[u8]) {
    let Some((first, text)) = data.split_first() else { return };
    assert_eq!(objects(text, usize::from(*first) + 1), objects(text, text.len().max(1)));
}

/// Parses any bytes as a report, and judges it.
pub fn report(data: &[u8]) {
    let mut matrix = Matrix::new(EPOCH);
    matrix.set_checks(&["dns".into(), "web".into()]);
    for (part, object) in objects(data, data.len().max(1)).0 {
        match part {
            "source" => {
                if let Ok(source) = serde_json::from_slice::<Source<'_>>(&object) {
                    matrix.begin_row(&source, 0);
                }
            }
            "check" => {
                if let Ok(check) = serde_json::from_slice::<Check<'_>>(&object) {
                    matrix.check(&check);
                }
            }
            _ => {
                if let Ok(peer) = serde_json::from_slice::<Peer<'_>>(&object) {
                    matrix.peer(&peer);
                }
            }
        }
    }
    judge(matrix);
}

/// Reads any bytes as a compact report, and judges what it says.
pub fn compact_report(data: &[u8]) {
    let mut matrix = Matrix::new(EPOCH);
    matrix.set_checks(&["dns".into(), "web".into()]);
    let Ok(mut reader) = CompactReader::new(data, EPOCH) else { return };
    matrix.begin_row(&reader.source, 0);
    assert!(reader.checks.iter().all(|check| matrix.check(check)), "each once");
    while let Some((hash, peer)) = reader.next_peer() {
        matrix.peer(&Peer { node: Cow::Owned(format!("{hash:x}")), ..peer });
    }
    matrix.end_row();
    judge(matrix);
}

/// Splits a report into its objects. Returns for each what it is, and its text. Also returns
/// whether the end of the report was found.
fn objects(text: &[u8], piece: usize) -> (Vec<(&'static str, Vec<u8>)>, bool) {
    let (mut splitter, mut found) = (Splitter::default(), Vec::new());
    for mut piece in text.chunks(piece) {
        loop {
            match splitter.next(&mut piece) {
                Ok(Some(ReportObject::Source(text))) => found.push(("source", text.to_vec())),
                Ok(Some(ReportObject::Check(text))) => found.push(("check", text.to_vec())),
                Ok(Some(ReportObject::Peer(text))) => found.push(("peer", text.to_vec())),
                Ok(None) => break,
                Err(_) => return (found, false),
            }
        }
    }
    let is_whole = splitter.end().is_ok();
    (found, is_whole)
}

/// Judges reports whose figures are any bytes. The bytes select up to 16 nodes, rows and peers.
pub fn verdicts_of_reports(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut matrix = Matrix::new(EPOCH);
    while let Some(head) = bytes.take::<12>() {
        let source = name(head[0]);
        matrix.begin_row(
            &Source {
                node: Cow::Owned(source.clone()),
                zone: zone(head[0]),
                interval_seconds: figure(head[1]),
                hour_kept: Some(true),
                echo_requests_received: Some(head[2].into()),
                echo_replies_sent: Some(head[3].into()),
                members: (head[4] > 0).then(|| u64::from(head[4]) << (head[4] % 60)),
                peer_list_age_seconds: Age::Unknown,
                recent: RecentSource {
                    seconds: figure(head[5]),
                    echo_requests_received: Some(u64::from(head[6]) << (head[7] % 64)),
                    echo_replies_sent: Some(u64::from(head[8])),
                    send_lag_p99_seconds: figure(head[9]),
                    read_delay_p99_seconds: figure(head[10]),
                    probes_skipped: Some(u64::from(head[9])),
                    receive_queue_drops: Some(u64::from(head[10] % 4)),
                    run_delay_seconds: figure(head[11]),
                    rtt_p99_seconds: figure(head[11]),
                },
                ..Source::default()
            },
            0,
        );
        for _ in 0..head[11] % 32 {
            let Some(peer) = bytes.take::<8>() else { break };
            matrix.peer(&Peer {
                node: Cow::Owned(name(peer[0])),
                zone: zone(peer[0]),
                network: [Network::Pod, Network::Node][usize::from(peer[1] % 4 / 2)],
                protocol: [Protocol::Icmp, Protocol::Icmp, Protocol::Icmpv6, Protocol::Other]
                    [usize::from(peer[1] >> 2 & 3)],
                state: [
                    PeerState::Ready,
                    PeerState::Ready,
                    PeerState::Unready,
                    PeerState::Terminating,
                    PeerState::Left,
                    PeerState::Other,
                ][usize::from(peer[1] >> 4) % 6],
                address: Some(if peer[1] == 255 { [127, 0, 0, 1] } else { [10, 0, 0, 1] }.into()),
                since_unix_seconds: (peer[7] % 2 == 1).then(|| u64::from(peer[7]) << (peer[6] % 57)),
                usual_rtt_p50_seconds: figure(peer[3]),
                recent: RecentPeer {
                    seconds: figure(peer[2]).unwrap_or(60.0),
                    sent: u32::from(peer[3]) << (peer[6] % 25),
                    received: u32::from(peer[4]) << (peer[6] % 25),
                    lost: u32::from(peer[5]) << (peer[7] % 25),
                    lost_in_row: u32::from(peer[7]) << (peer[6] % 25),
                    answered_since: u32::from(peer[4] % 8),
                    answered_before: u32::from(peer[5] % 32),
                    answered_seconds: u32::from(peer[6] % 64),
                    lost_there: None,
                    lost_back: None,
                    refused: false,
                    send_errors: if peer[2] % 4 == 3 { u32::from(peer[5]) << (peer[7] % 25) } else { 0 },
                    send_error_reason: SendError::ALL.get(usize::from(peer[4] % 16)).copied(),
                    rtt_p50_seconds: figure(peer[6]),
                    rtt_p99_seconds: figure(peer[7]),
                },
                ten_minutes: (peer[6] % 2 == 1).then(|| TenMinutes {
                    seconds: figure(peer[2]).unwrap_or(600.0),
                    sent: u32::from(peer[3]) << (peer[7] % 25),
                    lost: u32::from(peer[5]) << (peer[6] % 25),
                }),
                ..Peer::default()
            });
        }
        match head[0] >> 6 {
            0 | 1 => matrix.end_row(),
            2 => matrix.missing(&source, "refused"),
            _ => {}
        }
    }
    judge(matrix);
}

fn judge(mut matrix: Matrix) {
    matrix.finish();
    let found = verdicts::judge(&matrix);
    assert!(found.len() <= kube_canary::limits::MESH_VERDICTS_MAX);
    assert!(!verdicts::judge_whole(&matrix).headline().text.is_empty());
    assert!(serde_json::to_string(&found).is_ok());
}

/// Returns a figure of a report: none, an extreme that JSON can write, or a usual value.
fn figure(byte: u8) -> Option<f64> {
    match byte {
        0 => None,
        1 => Some(0.0),
        2 => Some(-1.0),
        3 => Some(f64::MAX),
        4 => Some(f64::MIN_POSITIVE),
        _ => Some(f64::from(byte) / 4.0),
    }
}

fn name(byte: u8) -> String {
    format!("n{}", byte % 16)
}

fn zone(byte: u8) -> Cow<'static, str> {
    Cow::Borrowed(["a", "b", "c", ""][usize::from(byte >> 4 & 3)])
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}
