//! The JSON documents of an agent with hand-made statistics: no prober, no HTTP.

#[path = "common/leaks.rs"]
mod leaks;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Instant;

use kube_canary::allocator;
use kube_canary::allocator::finder::unfollowed;
use kube_canary::check::{CHECK_NAME_BYTES_MAX, CHECKS_MAX, CheckFailure};
use kube_canary::checks::{Attempt, CheckSpec, CheckTarget, DueAttempt, Host};
use kube_canary::discovery::{MeshFacts, PeerList, PeerSpec};
use kube_canary::exposition::{
    About, AgentMetrics, AgentMetricsConfig, App, Health, HeardStrangers, PeerTraces, SeriesSettings, View, Walks,
};
use kube_canary::http::{Reply, Routes, ServerStats};
use kube_canary::limits::FRAME_BYTES;
use kube_canary::peers::{Directory, Method, OwnNode, SlotId};
use kube_canary::prober::{Event, Observation, Stamp};
use kube_canary::report::{self, compact};
use kube_canary::statistics::{Scale, Statistics};
use kube_canary::sys::clock;
use kube_canary::units::Nanos;
use leaks::NoLeaks;
use serde_json::{Value, json};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

struct Agent(App);

impl Agent {
    /// An agent with peers of these names and addresses, in this order.
    fn new(peers: impl Iterator<Item = (String, IpAddr)>) -> Self {
        let spec = |(node, address)| {
            let zone = Some("zone-a".to_owned());
            PeerSpec { zone, ..PeerSpec::pod(node, address) }
        };
        let statistics = Statistics::new(Scale::default(), Nanos(SECOND));
        statistics.set_receive_queue_drops(Some(0));
        let mut directory = Directory::default();
        let applied = directory.apply(PeerList { peers: peers.map(spec).collect() }, &OwnNode::default(), Nanos(0));
        applied.changes.into_iter().for_each(|change| statistics.apply(change));
        let (allocator, stats) = allocator::info_and_stats();
        let build =
            AgentMetricsConfig { allocator: &allocator, stats, http_workers: 1, series: SeriesSettings::default() };
        let agent = AgentMetrics::new(&build, Arc::new(ServerStats::default())).expect("names of their own");
        let view = View {
            node: "self".into(),
            directory: RwLock::new(directory),
            statistics,
            health: Health::default(),
            about: About::new(&allocator),
            traces: PeerTraces::default(),
            walks: Walks::default(),
            strangers: HeardStrangers::default(),
            later: std::sync::OnceLock::new(),
        };
        Self(App { view: Arc::new(view), agent, allocator, node_addresses: Vec::new() })
    }

    fn many(count: u16) -> Self {
        Self::new((0..count).map(|n| (format!("node-{n}"), [0xfd00, 0, 0, 0, 0, 0, 0, n + 1].into())))
    }

    fn statistics(&self) -> &Statistics {
        &self.0.view.statistics
    }

    fn event(&self, slot: u32, event: Event) {
        self.statistics().record(Method::Icmp, Observation::probe(SlotId(slot), event));
    }

    fn answered(&self, slot: u32, us: u64) {
        self.event(slot, Event::Sent);
        self.event(
            slot,
            Event::Received { rtt: Nanos(us * 1_000), reordered: false, sequence: 0, stamp: Stamp::Kernel },
        );
    }

    fn lost(&self, slot: u32) {
        self.event(slot, Event::Sent);
        self.event(slot, Event::Lost);
    }

    fn get(&self, path: &str) -> (u16, String) {
        let reply = match self.0.route(path, "") {
            Reply::ToClient(answer) => answer(Some([10, 0, 0, 7].into())),
            reply => reply,
        };
        let (status, bytes) = match reply {
            Reply::Full { status, body, .. } => (status, body),
            Reply::Shared { head, body, .. } => (200, [&*head, &*body].concat()),
            Reply::Stream { mut body, .. } | Reply::Page { mut body, .. } => {
                let (mut bytes, mut frame, mut more) = (Vec::new(), Vec::with_capacity(FRAME_BYTES), true);
                while more {
                    frame.clear();
                    more = body.render(&mut frame);
                    assert_eq!(frame.capacity(), FRAME_BYTES, "a frame never grows");
                    bytes.extend_from_slice(&frame);
                }
                (200, bytes)
            }
            Reply::Live { .. } | Reply::Later(_) | Reply::ToClient(_) => {
                panic!("{path}: the agent's own answers do not wait")
            }
        };
        (status, String::from_utf8(bytes).expect("UTF-8"))
    }

    fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!((status, body.matches('\n').count(), body.ends_with('\n')), (200, 1, true), "one line: {body}");
        serde_json::from_str(&body).expect("JSON")
    }
}

#[test]
fn an_hour_has_a_series_for_each_protocol_and_null_where_nothing_was_measured() {
    let _no_leaks = NoLeaks::here();
    let peers = [("other", "10.0.0.1"), ("a", "10.0.0.2"), ("a", "fd00::2")];
    let agent = Agent::new(peers.into_iter().map(|(name, address)| (name.to_owned(), address.parse().unwrap())));
    let tick = |minute| agent.statistics().tick(Nanos(1 + minute * MINUTE));
    tick(0);
    agent.answered(1, 20);
    agent.answered(1, 300);
    tick(1);
    agent.lost(2);
    tick(3);
    let mut document = agent.json("/api/v1/hour/%61");
    for series in document["series"].as_array_mut().expect("series") {
        let end = series.as_object_mut().expect("a series").remove("end_unix_seconds").expect("its end");
        let expected = clock::realtime_of(Nanos(1 + 3 * MINUTE)).as_secs();
        assert!(end.as_u64().expect("seconds").abs_diff(expected) <= 1, "{end} {expected}");
    }
    let expected = json!({
        "source": "self",
        "peer": "a",
        "step_seconds": 60,
        "series": [
            {
                "network": "pod",
                "protocol": "icmp",
                "loss": [0.0, null, null],
                "rtt_p50_seconds": [0.000_030_52, null, null],
                "rtt_p99_seconds": [0.000_488_3, null, null],
            },
            {
                "network": "pod",
                "protocol": "icmpv6",
                "loss": [null, 1.0, null],
                "rtt_p50_seconds": [null, null, null],
                "rtt_p99_seconds": [null, null, null],
            },
        ],
    });
    assert_eq!(document, expected);
}

#[test]
fn the_hour_of_all_peers_is_the_mean_of_their_losses() {
    let _no_leaks = NoLeaks::here();
    let peers = [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "fd00::2")];
    let agent = Agent::new(peers.into_iter().map(|(name, address)| (name.to_owned(), address.parse().unwrap())));
    let tick = |minute| agent.statistics().tick(Nanos(1 + minute * MINUTE));
    tick(0);
    agent.answered(0, 20);
    agent.answered(1, 300);
    tick(1);
    agent.answered(0, 20);
    agent.lost(1);
    tick(2);
    let document = agent.json("/api/v1/hour/*");
    assert_eq!((&document["peer"], &document["step_seconds"]), (&json!("*"), &json!(60)));
    let series: Vec<_> = document["series"]
        .as_array()
        .expect("series")
        .iter()
        .map(|of| (of["protocol"].clone(), of["loss"].clone(), of["rtt_p99_seconds"].clone()))
        .collect();
    let expected = [
        (json!("icmp"), json!([0.0, 0.5]), json!([0.000_488_3, 0.000_030_52])),
        (json!("icmpv6"), json!([null, null]), json!([null, null])),
    ];
    assert_eq!(series, expected);
    assert_eq!(agent.json("/api/v1/hour/%2A")["series"], document["series"]);
}

/// As many checks as there can be, with the longest names.
fn checks() -> Vec<CheckSpec> {
    let target = || CheckTarget::Icmp(Host::Name("h.example".into()));
    let name = |check: usize| format!("{check:0>CHECK_NAME_BYTES_MAX$}").into();
    (0..CHECKS_MAX).map(|check| CheckSpec { name: name(check), target: target() }).collect()
}

#[test]
fn a_report_has_its_checks_between_source_and_peers() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::many(3);
    assert!(!agent.get("/api/v1/peers").1.contains("\"checks\""), "there are none");
    let specs = checks();
    let board = agent.statistics().checks();
    board.replace(&specs);
    let attempt = |end| Attempt {
        phases: [None, None, None, Some(Nanos(1_000_000)).filter(|_| end == Ok(()))],
        end,
        ..Attempt::default()
    };
    for end in [Ok(()), Err(CheckFailure::Timeout)] {
        for check in 0..CHECKS_MAX {
            let due = DueAttempt { check, server: 0, spacing: Nanos(10_000_000_000) };
            board.record(due, 2, clock::monotonic(), &attempt(end));
        }
    }
    let (_, text) = agent.get("/api/v1/peers");
    let parts = ["{\"source\":{", ",\"checks\":[{\"name\":", "}],\"peers\":[{"].map(|part| text.find(part));
    assert!(parts[0] == Some(0) && parts.is_sorted(), "{text}");
    let report: report::Report<'_> = serde_json::from_str(&text).expect("a report");
    assert_eq!((report.checks.len(), report.peers.len()), (CHECKS_MAX, 3));
    let check = &report.checks[7];
    assert_eq!((&*check.name, check.tried, check.failed, check.servers), (&*specs[7].name, 2, 1, 2));
    assert_eq!((check.reason, check.failed_in_row), (Some(CheckFailure::Timeout), 1));
    let compact = kube_canary::exposition::compact_report(&agent.0.view);
    let reader = compact::CompactReader::new(&compact, clock::realtime().as_secs()).expect("a report");
    let names = |checks: &[kube_canary::check::Check<'_>]| {
        checks.iter().map(|check| check.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&reader.checks), names(&report.checks));
}

#[test]
fn a_list_of_checks_that_changes_during_a_report_leaves_it_whole() {
    let _no_leaks = NoLeaks::here();
    let specs = checks();
    for list in [specs[..9].to_vec(), specs.iter().rev().cloned().collect(), Vec::new()] {
        let agent = Agent::many(1);
        agent.statistics().checks().replace(&specs);
        let Reply::Stream { mut body, .. } = agent.0.route("/api/v1/peers", "") else { panic!("a stream") };
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        assert!(body.render(&mut frame), "there is more");
        agent.statistics().checks().replace(&list);
        let mut text = frame.clone();
        loop {
            frame.clear();
            let more = body.render(&mut frame);
            text.extend_from_slice(&frame);
            if !more {
                break;
            }
        }
        let report: report::Report<'_> = serde_json::from_slice(&text).expect("a report");
        assert!(report.peers.len() == 1 && report.checks.len() < CHECKS_MAX, "{}", report.checks.len());
    }
}

#[test]
fn requests_for_the_compact_report_share_one_body_a_second() {
    let agent = Agent::many(3);
    let begun = Instant::now();
    let ask = || match agent.0.route(report::PATH, compact::MEDIA_TYPE) {
        Reply::Shared { body, .. } => body,
        _ => panic!("it is shared"),
    };
    let bodies: Vec<Arc<[u8]>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..25).map(|_| ask()).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let distinct: BTreeSet<_> = bodies.iter().map(|body| Arc::as_ptr(body).addr()).collect();
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("few");
    assert!(bodies.len() == 100 && distinct.len() <= 1 + seconds, "{} in {seconds} s", distinct.len());
}

#[test]
fn an_unknown_peer_and_a_peer_without_an_hour_are_404_with_one_line() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::many(600);
    agent.json("/api/v1/hour/node-511");
    for (name, line) in [
        (
            "node-512",
            "the last hour of \"node-512\" is not kept: it is kept of at most 512 links, and there are more\n",
        ),
        ("node-600", "no peer \"node-600\"\n"),
        ("", "no peer \"\"\n"),
        ("%zz", "no peer \"%zz\"\n"),
        ("node-1/node-2", "no peer \"node-1/node-2\"\n"),
        ("%0A", "no peer \"%0A\"\n"),
    ] {
        assert_eq!(agent.get(&format!("/api/v1/hour/{name}")), (404, line.to_owned()));
    }
    let (status, long) = agent.get(&format!("/api/v1/hour/{}", "x".repeat(8_000)));
    assert!(status == 404 && long.len() < 300, "{long}");
    assert_eq!(agent.get("/api/v1/hour").0, 404);
}

#[test]
fn a_report_says_since_when_a_peer_loses_and_whether_every_hour_is_kept() {
    let _no_leaks = NoLeaks::here();
    for (peers, kept) in [(512, true), (513, false)] {
        let agent = Agent::many(peers);
        let begun = clock::monotonic().since(Nanos(4 * MINUTE));
        agent.statistics().tick(begun);
        for minute in 1..=3 {
            agent.answered(0, 100);
            agent.lost(1);
            agent.lost(u32::from(peers) - 1);
            if minute == 2 {
                agent.lost(2);
            }
            agent.statistics().tick(begun.plus(Nanos(minute * MINUTE)));
        }
        // These peers lose in the fourth minute.
        for slot in [1, 2, u32::from(peers) - 1] {
            agent.lost(slot);
        }
        let row = agent.json("/api/v1/peers");
        assert_eq!(row["source"]["hour_kept"], kept);
        let since = |peer: usize| row["peers"][peer]["since_unix_seconds"].as_u64();
        let near = |seconds: Option<u64>, minute: u64| {
            let expected = clock::realtime_of(begun.plus(Nanos(minute * MINUTE))).as_secs();
            assert!(seconds.is_some_and(|seconds| seconds.abs_diff(expected) <= 1), "{seconds:?} {expected}");
        };
        assert_eq!((since(0), since(3)), (None, None), "nothing lost, nothing sent");
        // The first minute may be incomplete.
        let ten = |peer: usize| {
            let of = &row["peers"][peer]["ten_minutes"];
            let [seconds, sent, lost] = ["seconds", "sent", "lost"].map(|field| of[field].as_u64());
            Some((seconds?, sent? > 0 && sent == lost, lost?))
        };
        assert_eq!(ten(0), Some((120, false, 0)));
        assert!(ten(1).is_some_and(|(seconds, all, _)| seconds == 120 && all), "{:?}", ten(1));
        assert_eq!((ten(3), ten(usize::from(peers) - 1).is_some()), (None, kept), "nothing sent; no hour");
        near(since(1), 0);
        near(since(2), 1);
        assert_eq!(since(usize::from(peers) - 1).is_some(), kept, "no hour, no since");
    }
}

#[test]
fn a_report_and_the_metrics_have_the_facts_about_the_whole_mesh() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::many(2);
    let fields = ["members", "watchers", "watchers_missing", "peer_list_age_seconds"];
    let of_row = || fields.map(|field| agent.json("/api/v1/peers")["source"][field].clone());
    let has = |line: &str| assert!(agent.get("/metrics").1.contains(&format!("\nkube_canary_{line}\n")), "{line}");
    assert_eq!(of_row(), [json!(0), json!(0), json!(0), Value::Null]);
    has("mesh_members 0");
    agent.0.view.directory.write().expect("no panic").set_mesh(MeshFacts {
        members: 5_000,
        watchers_in_zone: 7,
        watchers_elsewhere: 3,
        watchers_missing: 2,
        watchers_missing_elsewhere: 1,
    });
    agent.0.view.health.list_confirmed(clock::monotonic().since(Nanos(90 * SECOND)));
    let [members, watchers, missing, age] = of_row();
    assert_eq!([members, watchers, missing], [json!(5_000), json!(10), json!(2)]);
    let uptime = clock::monotonic().as_secs_f64();
    assert!(age.as_f64().is_some_and(|age| (90.0..100.0).contains(&age) || age > uptime - 10.0), "{age}");
    for line in [
        "mesh_members 5000",
        "watchers{zone=\"own\"} 7",
        "watchers{zone=\"other\"} 3",
        "watchers_missing{zone=\"any\"} 2",
        "watchers_missing{zone=\"other\"} 1",
        "suppressed_series 0",
    ] {
        has(line);
    }
}

#[test]
fn a_report_has_the_recent_lag_of_the_agent() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::many(1);
    let statistics = agent.statistics();
    let (lag, seconds) = (Nanos(400_000), |n: u64| Nanos(SECOND * n));
    let trouble = |statistics: &Statistics, times: u64| {
        (0..times).for_each(|_| statistics.record(Method::Icmp, Observation::SendLag(lag)));
        statistics.record(Method::Icmp, Observation::Skipped(times));
        statistics.set_receive_queue_drops(statistics.receive_queue_drops().map(|drops| drops + times));
    };
    // This is fifteen seconds into the third half minute, unless the machine has not run for so
    // long.
    let begun = clock::monotonic().since(seconds(75));
    trouble(statistics, 1_000);
    for half in 0..=2 {
        statistics.tick(begun.plus(seconds(30 * half)));
        trouble(statistics, [100, 20, 3][usize::try_from(half).expect("few")]);
    }
    statistics.record(Method::Icmp, Observation::ReadDelay(Nanos(40_000)));
    let recent = agent.json("/api/v1/peers")["source"]["recent"].clone();
    assert_eq!((&recent["probes_skipped"], &recent["receive_queue_drops"]), (&23.into(), &23.into()), "{recent}");
    // The third-largest of 23 values lies within its half octave, 345 to 488 µs. With one value
    // alone, the result is the median of its half octave, 30.5 to 43.2 µs.
    assert_eq!(recent["send_lag_p99_seconds"], 0.000_475_8);
    assert_eq!(recent["read_delay_p99_seconds"], 0.000_036_84);
    assert!(recent["run_delay_seconds"].as_f64() >= Some(0.0), "{recent}");
    let covered = recent["seconds"].as_f64().expect("seconds");
    assert!((40.0..60.0).contains(&covered) || clock::monotonic() < seconds(80), "{covered}");
}

#[test]
fn a_report_is_as_short_as_its_numbers_are_exact() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::many(300);
    agent.statistics().tick(Nanos(1));
    for slot in 0..300 {
        (0..40_u32).for_each(|n| agent.answered(slot, u64::from(37 + n * slot % 91)));
    }
    let (_, body) = agent.get("/api/v1/peers");
    unfollowed(|| println!("300 peers: {} bytes, {} of a peer", body.len(), body.len() / 300));
    let row: Value = serde_json::from_str(&body).expect("JSON");
    for (slot, peer) in (0..).zip(row["peers"].as_array().expect("peers")) {
        let read = agent.statistics().method(Method::Icmp).slot(SlotId(slot)).expect("a slot");
        for (name, q) in [("rtt_p50_seconds", 0.5), ("rtt_p99_seconds", 0.99)] {
            let exact = read.rtt_quantile(q).expect("answers");
            let reported = peer[name].as_f64().expect("a time");
            assert!((reported - exact).abs() <= exact * 0.000_501, "{reported} {exact}");
            assert!(peer[name].to_string().len() <= 10, "{}", peer[name]);
        }
    }
    assert!(body.len() < 300 * 400, "{}", body.len());
}
