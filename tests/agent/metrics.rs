//! `/metrics`: names, labels, formats.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::agent::{Agent, PEERS};
use crate::common::scrape::{fetch, same};
use crate::golden;
use crate::protobuf;

const GOLDEN: &str = "tests/golden/metrics.txt";
const PEER_LABELS: [&str; 6] = ["source_node", "source_zone", "peer_node", "peer_zone", "protocol", "network"];
const ZONE_LABELS: [&str; 4] = ["source_zone", "peer_zone", "protocol", "network"];

/// Replaces values by `_`, as well as the labels of the build, which vary. Throttling is left out,
/// because not every machine has a CPU controller. The allocator's figures are left out, because
/// they depend on the malloc of the build.
fn normalised(text: &str) -> String {
    let line = |line: &str| {
        if line.starts_with('#') {
            return format!("{line}\n");
        }
        let (series, _) = line.rsplit_once(' ').expect("a value behind a blank");
        let series = match series.split_once('{') {
            Some((name @ ("kube_canary_build_info" | "kube_canary_agent_info"), labels)) => {
                let labels: Vec<String> =
                    labels.split(',').map(|l| format!("{}=\"_\"", l.split('=').next().unwrap_or(l))).collect();
                format!("{name}{{{}}}", labels.join(","))
            }
            _ => series.to_owned(),
        };
        format!("{series} _\n")
    };
    let varies =
        |line: &&str| ["kube_canary_cgroup_throttled_", "kube_canary_allocator_bytes"].iter().any(|v| line.contains(v));
    text.lines().filter(|line| !varies(line)).map(line).collect()
}

/// `KUBE_CANARY_BLESS=1 cargo test --test agent` writes the file, and `git
/// diff` shows what changed.
#[test]
fn the_exposition_is_that_of_the_golden_file() {
    let real = normalised(&Agent::measured().get("/metrics").body);
    golden::hold(GOLDEN, &real);
}

#[test]
fn openmetrics_is_that_of_its_golden_file() {
    let accept = "application/openmetrics-text;version=1.0.0";
    let (content_type, body) = get_as(&Agent::measured(), accept);
    assert!(content_type.starts_with("application/openmetrics-text; version=1.0.0"), "{content_type}");
    let body = String::from_utf8(body).expect("UTF-8");
    golden::hold("tests/golden/metrics.openmetrics.txt", &normalised(&body));
}

/// The messages as the equivalent text: names, types, labels, and the fields of a
/// histogram besides its counts.
#[test]
fn protobuf_is_that_of_its_golden_file() {
    let accept =
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,text/plain;q=0.1";
    let (content_type, body) = get_as(&Agent::measured(), accept);
    assert!(content_type.starts_with("application/vnd.google.protobuf; "), "{content_type}");
    let mut text = String::new();
    for family in protobuf::parse(&body) {
        let kind =
            ["counter", "gauge", "summary", "untyped", "histogram"][usize::try_from(family.kind).expect("small")];
        text.extend(["# HELP ", &family.name, " ", &family.help, "\n# TYPE ", &family.name, " ", kind, "\n"]);
        for metric in family.metrics {
            let labels: Vec<String> = metric.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
            let created = if metric.created.is_some() { " created" } else { "" };
            let histogram = metric.histogram.map_or_else(String::new, |it| {
                let bounds: Vec<String> = it.buckets.iter().map(|(bound, _)| bound.to_string()).collect();
                format!(" schema={} zero={} le={}", it.schema.unwrap_or(-99), it.zero_threshold, bounds.join(","))
            });
            text.extend([&family.name, "{", &labels.join(","), "}", created, &histogram, " 0\n"]);
        }
    }
    golden::hold("tests/golden/metrics.protobuf.txt", &normalised(&text));
}

/// Returns the Content-Type and the body of `/metrics` in another format.
fn get_as(agent: &Agent, accept: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(agent.http).expect("a connection");
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n").expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(answer[..end].to_vec()).expect("UTF-8").to_lowercase();
    let content_type = head.lines().find_map(|line| line.strip_prefix("content-type: ")).expect("a Content-Type");
    (content_type.replace("metricfamily", "MetricFamily"), answer.split_off(end + 4))
}

#[test]
fn names_and_labels_are_those_of_the_contract() {
    let agent = Agent::measured();
    let metrics = agent.metrics();
    let labels_of = |name: &str| {
        let found: Vec<BTreeSet<&str>> = (metrics.0.iter().filter(|sample| sample.name == name))
            .map(|sample| sample.labels.keys().map(String::as_str).collect())
            .collect();
        assert!(!found.is_empty(), "no {name}");
        found
    };
    let hold = |names: &[&str], labels: &[&str]| {
        for name in names {
            for found in labels_of(&format!("kube_canary_{name}")) {
                assert_eq!(found, labels.iter().copied().collect(), "{name}");
            }
        }
    };
    let per_peer = ["sent", "received", "lost", "late", "duplicate", "reordered", "corrupt", "terminating"];
    hold(&per_peer.map(|what| format!("probes_{what}_total")).each_ref().map(String::as_str), &PEER_LABELS);
    hold(&["probe_rtt_seconds_sum", "probe_rtt_seconds_count", "probe_send_errors_total"], &PEER_LABELS);
    hold(&["probe_rtt_seconds_bucket"], &[&PEER_LABELS[..], &["le"]].concat());
    hold(&["zone_probes_sent_total", "zone_probes_received_total", "zone_probes_lost_total"], &ZONE_LABELS);
    hold(&["zone_probe_rtt_seconds_bucket"], &[&ZONE_LABELS[..], &["le"]].concat());
    hold(&["probe_send_lag_seconds_bucket", "reply_read_delay_seconds_bucket"], &["le"]);
    hold(&["rtt_stamps_total"], &["source"]);
    hold(&["receive_queue_drops_total", "probe_thread_run_delay_seconds_total", "peer_list_age_seconds"], &[]);
    hold(&["echo_requests_received_total", "echo_replies_sent_total", "cpus", "http_workers"], &[]);
    hold(&["memory_bytes"], &["category", "state"]);
    hold(&["peers"], &["state"]);
    hold(&["mesh_members", "suppressed_series"], &[]);
    hold(&["watchers", "watchers_missing"], &["zone"]);
    hold(&["build_info"], &["version", "revision", "allocator", "narenas", "libc", "linkage"]);
    hold(&["agent_info"], &["node", "zone"]);
    hold(&["send_errors_by_reason_total"], &["reason"]);
    hold(&["terminating_by_result_total"], &["result"]);

    let zone_of = |peer| {
        let known = ["unknown", "z2"]
            .into_iter()
            .find(|zone| metrics.value("probes_sent_total", &[("peer_node", peer), ("peer_zone", zone)]).is_some());
        known.unwrap_or("another")
    };
    assert_eq!((zone_of("a"), zone_of("b")), ("unknown", "z2"));
    assert!(metrics.value("peers", &[("state", "ready")]).is_some_and(|count| same(count, 2.0)));
    assert!(metrics.value("http_workers", &[]).is_some_and(|count| same(count, 4.0)));
    for peer in ["a", "b"] {
        let link = metrics.link(peer, "icmp");
        assert!(link.is_clean() && link.received <= link.sent, "{peer}: {link:?}");
    }
}

#[test]
fn the_agents_memory_is_exported_by_category() {
    let agent = Agent::start(&PEERS);
    let metrics = agent.metrics();
    let of = |category: &str, state: &str| {
        let labels = [("category", category), ("state", state)];
        metrics.value("memory_bytes", &labels).unwrap_or_else(|| panic!("no {category} {state}"))
    };
    for category in ["text", "relro", "data", "stacks"] {
        assert!(of(category, "clean") + of(category, "dirty") > 0.0, "no {category}");
    }
    // The programs are the only files, and no memory is shared.
    assert!(same(of("file", "clean") + of("shared", "dirty"), 0.0));
    // The agent releases clean pages of its program at times of its own, also between two readings
    // of one scrape. Those that it has written stay, but for what a scrape itself takes.
    let all = ["text", "rodata", "relro", "data", "heap", "anon", "stacks", "kernel", "file", "shared"];
    let written: f64 = all.iter().map(|category| of(category, "dirty")).sum();
    let path = format!("/proc/{}/smaps_rollup", agent.process.id());
    let rollup = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let kilobytes = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")?.trim().strip_suffix(" kB"));
    let anonymous = 1_024.0 * kilobytes.expect("a sum").parse::<f64>().expect("a number");
    assert!((written - anonymous).abs() < anonymous / 4.0, "{written} {anonymous}");
    let resident =
        metrics.0.iter().find(|sample| sample.name == "process_resident_memory_bytes").expect("a size").value;
    assert!(resident > 1e6 && written < resident * 1.25, "{written} {resident}");
}

#[test]
fn text_is_the_default_and_openmetrics_comes_where_it_is_asked_for() {
    let agent = Agent::measured();
    let text = agent.get("/metrics");
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(text.body.contains("# TYPE kube_canary_probes_sent_total counter\n"));
    assert!(!text.body.contains("# EOF"));

    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n";
    let open = fetch(agent.http, "/metrics", accept).expect("an answer");
    assert_eq!(open.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(open.body.ends_with("\n# EOF\n") && open.body.matches("# EOF").count() == 1);
    for line in open.body.lines().filter(|line| line.starts_with("# TYPE ") && line.ends_with(" counter")) {
        let family = line.split(' ').nth(2).expect("a name");
        assert!(!family.ends_with("_total"), "{line}");
        let sample =
            |suffix: &str| open.body.lines().any(|l| l.strip_prefix(family).is_some_and(|r| r.starts_with(suffix)));
        let all_left_out = ["kube_canary_probe_send_errors", "kube_canary_probes_terminating"];
        assert!(all_left_out.contains(&family) || sample("_total{") || sample("_total "), "no sample of {family}");
        assert!(!sample(" ") && !sample("{"), "a sample of {family} without _total");
    }
}

#[test]
fn the_allocator_is_measured_in_the_figures_that_it_keeps_and_no_others() {
    let agent = Agent::measured();
    let kept: &[&str] = match () {
        () if cfg!(feature = "jemalloc") => &["allocated", "active", "metadata", "resident", "mapped", "retained"],
        () if cfg!(target_env = "gnu") => &["allocated", "mapped"],
        () => &[],
    };
    let metrics = agent.metrics();
    let samples: Vec<_> = metrics.0.iter().filter(|sample| sample.name == "kube_canary_allocator_bytes").collect();
    let found: BTreeSet<&str> = samples.iter().map(|sample| sample.label("stat")).collect();
    assert_eq!(found, kept.iter().copied().collect());
    assert_eq!(agent.get("/metrics").body.contains("kube_canary_allocator_bytes"), !kept.is_empty());
    let bytes = |stat| metrics.value("allocator_bytes", &[("stat", stat)]).unwrap_or(f64::INFINITY);
    if !kept.is_empty() {
        assert!(bytes("allocated") > 10_000.0 && bytes("allocated") <= bytes("mapped"), "{samples:?}");
        assert!(bytes("allocated") <= bytes("active") && bytes("active") <= bytes("resident"), "{samples:?}");
    }
}
