//! `docs/metrics.md` describes what a real agent exposes: name, type, labels and help text of every
//! family, from a scrape.
//!
//! Families that a scrape may lack because of the machine, the malloc or good luck are in
//! [`SOMETIMES`]. Where such a family does appear, it must be as described there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use kube_canary::check::{CheckFailure, CheckPhase};
use kube_canary::discovery::kubernetes::traffic::Verb;

use crate::agent::Agent;
use crate::common::exposition;
use crate::golden;

const DOCUMENT: &str = "docs/metrics.md";

const HEAD: &str = "\
<!-- Generated from a scrape: `KUBE_CANARY_BLESS=1 cargo test --test agent reference` writes it again, `cargo test` fails where it is stale. -->
# Metrics

`/metrics` of every agent is in the text format 0.0.4, or in OpenMetrics or Prometheus' protobuf format where the scraper asks for it. A
link is one peer, by one protocol, on one network. Counters of a link begin at 0 when its peer is first listed; a peer is its node's
name, and its series end once it has been away for `--forget-after`. A label value that is not known is `unknown`. Where no unit is
given, it is a number of things.

**Histograms** are classic ones in text and OpenMetrics, with the bounds of `--rtt-buckets`. In protobuf they are native ones, with the
same classic buckets beside them. A native histogram of a link has schema 3 (each bucket 9 % wider than the one before) where
`--max-peers` allows at most 128 links, schema 2 up to 256 links, 1 up to 512, and 0 beyond that and with `--max-peers 0`. A peer has one
link, or two where it has addresses of both families, and twice as many with `--network pod,node`, whatever `--probes` is; the schema is
that of the most links that there can be. Histograms of zone pairs and of the agent always have schema 3. Values up to 0.95 µs (7.6 µs with schema 0) are in the
zero bucket.

**Series** of a scrape follow from the flags, and not from what has happened:

| what | series in text | in protobuf |
|---|---:|---:|
| the agent | 104 to 116 | 76 to 88 |
| a judge: `judged_nodes`, `judgement_age_seconds`, `judgements_failed_total`, `verdicts_dropped`, and 3 for each of at most 64 verdicts | 4 to 196 | 4 to 196 |
| a pair of zones by ICMP: 9 counters and a histogram | 24 | 10 |
| a pair of zones by UDP: 3 counters and 3 gauges | 6 | 6 |
| a pair of zones by TCP: 3 counters | 3 | 3 |
| a link by ICMP with `--link-series one`, the default: 3 counters and a histogram | 18 | 4 |
| a link by UDP or TCP: 3 counters | 3 | 3 |
| a link by ICMP with `--link-series full`: 9 counters and a histogram | 24 | 10 |
| a link by UDP: 3 counters, 3 gauges and a histogram | 21 | 7 |
| a link by TCP: 3 counters | 3 | 3 |
| a link with `--link-series counters` | 3 | 3 |
| a link with `--link-series none` | 0 | 0 |
| a check: its attempts, by family a histogram for each of its 1 to 4 phases and a counter for each reason that has occurred, and when a certificate expires | 1 to 170 | 1 to 58 |

So a peer with one address has 24 series in text and 10 in protobuf by the three protocols of `--probes` (48 and 20 with `full`), and a
pair of zones 33 and 19. With 24 peers in 3 zones that is 24 × 24 + 3 × 33 = 675 in text, and 24 × 10 + 3 × 19 = 297 in protobuf, beside
those of the agent; with `--probes icmp` it is 504 and 126. Without ICMP, links have the histogram of UDP. At the nodes' addresses
(`--network pod,node`), ICMP alone probes.

With other bounds than the default's twelve, a histogram has three series more than it has bounds. Where all of them in text are more
than `--max-series` (10,000 by default), whole links are left out, the same ones in every format, and `suppressed_series` counts their series.
The series of a judge and those of checks are not counted: a fault must not change which links are exported. The default checks have at
most 60 in protobuf. Histograms of checks have bounds of their own, from 0.5 ms to 5 s, and schema 1. If the list of checks changes during a
scrape, the rest of this scrape has none.
OpenMetrics has a sample `_created` for each counter and histogram besides, and protobuf the same as a field: since when it counts.
Counters that the kernel keeps have none.
";

/// The table that has a family, by its labels or its name.
const SECTIONS: [(&str, &str); 5] = [
    (
        "Per link",
        "`source_node` and `source_zone` are the agent's own; `network` is `pod` or `node` (always `node` for an agent on the host \
         network), `protocol` `icmp`, `udp` or `tcp`, or over IPv6 `icmpv6`, `udpv6` or `tcpv6`. By default there are the counters of \
         probes sent, received and lost, and the histogram by ICMP. With `--link-series full` there are also the other counters of ICMP, the \
         histogram of UDP, and what UDP alone finds out: flows, path MTU and hops. Round-trip times and SYN retransmissions of TCP are in \
         `/api/v1/peers` alone.",
    ),
    (
        "Per pair of zones",
        "All peers of a zone together, whatever `--link-series` and `--max-series` are. The histogram and the rarer counters are of ICMP, the gauges of UDP.",
    ),
    ("Per check", "`check` is its name and `target` what it asks, without a query. Only with checks."),
    (
        "The agent",
        "No label says which agent: the scraper's `instance` does, and `agent_info` of the same `instance` has its node.",
    ),
    ("The process", "The standard names."),
];

/// Families that not every scrape has: name, type, labels, help text, and condition.
const SOMETIMES: [[&str; 5]; 17] = [
    [
        "kube_canary_allocator_bytes",
        "gauge",
        "stat",
        "Memory by the allocator's own figures, under jemalloc's names; only those that it keeps.",
        "with jemalloc and glibc",
    ],
    [
        "kube_canary_api_received_bytes_total",
        "counter",
        "",
        "Bytes received from the Kubernetes API server, TLS included.",
        "with peers from Kubernetes",
    ],
    [
        "kube_canary_api_requests_total",
        "counter",
        "verb",
        "Requests sent to the Kubernetes API server.",
        "with peers from Kubernetes",
    ],
    [
        "kube_canary_cgroup_throttled_periods_total",
        "counter",
        "",
        "Periods in which the agent's cgroup used up its CPU quota.",
        "if the cgroup's CPU controller reports it",
    ],
    [
        "kube_canary_cgroup_throttled_seconds_total",
        "counter",
        "",
        "Time for which the agent's cgroup was throttled, added up over CPUs.",
        "if the cgroup's CPU controller reports it",
    ],
    [
        "kube_canary_check_duration_seconds",
        "histogram",
        "check,family,le,phase,target",
        "Times of the phases of attempts that passed them.",
        "",
    ],
    ["kube_canary_check_attempts_total", "counter", "check,target", "Attempts that have ended, answered or not.", ""],
    [
        "kube_canary_check_failures_total",
        "counter",
        "check,family,reason,target",
        "Attempts that failed, by reason.",
        "",
    ],
    [
        "kube_canary_check_certificate_not_after_seconds",
        "gauge",
        "check,target",
        "When the certificate of the target expires, in seconds since the epoch.",
        "once a certificate has been read",
    ],
    ["kube_canary_judged_nodes", "gauge", "", "Nodes of the last judgement.", "on a judge"],
    [
        "kube_canary_judgement_age_seconds",
        "gauge",
        "",
        "Age of the last judgement, in whole seconds; before the first one, the time since the agent became a judge.",
        "on a judge",
    ],
    [
        "kube_canary_judgements_failed_total",
        "counter",
        "",
        "Judgements, and readings of reports or of other judges, that ended in a panic and were dropped.",
        "on a judge",
    ],
    [
        "kube_canary_verdict",
        "gauge",
        "direction,id,kind,network,protocol,severity,subject",
        "Verdicts of this judge: 1 while a verdict holds, 0 for ten minutes after.",
        "on a judge",
    ],
    [
        "kube_canary_verdict_loss_ratio",
        "gauge",
        "id",
        "Share of the packets that a verdict is about and that are lost, 0 to 1.",
        "on a judge",
    ],
    [
        "kube_canary_verdict_since_timestamp_seconds",
        "gauge",
        "id",
        "When a verdict began, in seconds since the epoch.",
        "on a judge",
    ],
    [
        "kube_canary_verdicts_dropped",
        "gauge",
        "",
        "Verdicts that hold and have no series because there are 64 graver ones.",
        "on a judge",
    ],
    [
        "kube_canary_probe_thread_run_delay_seconds_total",
        "counter",
        "",
        "Time that the probe thread was runnable but waited for a CPU.",
        "if the kernel keeps schedstat",
    ],
];

/// Labels with few values, all of which are always there.
const CLOSED: [(&str, &str); 10] = [
    ("kube_canary_flows", "state"),
    ("kube_canary_zone_flows", "state"),
    ("kube_canary_memory_bytes", "category"),
    ("kube_canary_memory_bytes", "state"),
    ("kube_canary_peers", "state"),
    ("kube_canary_rtt_stamps_total", "source"),
    ("kube_canary_send_errors_by_reason_total", "reason"),
    ("kube_canary_terminating_by_result_total", "result"),
    ("kube_canary_watchers", "zone"),
    ("kube_canary_watchers_missing", "zone"),
];

/// The values of each family's labels.
type Values = BTreeMap<(String, String), BTreeSet<String>>;

#[derive(Clone, Debug, Default, PartialEq)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
    when: &'static str,
}

/// Returns the families of an exposition, and the values of their labels.
fn read(text: &str) -> (BTreeMap<String, Family>, Values) {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let (Some("#"), Some(keyword), Some(name), Some(rest)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let family = families.entry(name.to_owned()).or_default();
        match keyword {
            "HELP" => rest.clone_into(&mut family.help),
            "TYPE" => rest.clone_into(&mut family.kind),
            _ => panic!("{line}"),
        }
    }
    let mut values = Values::new();
    for sample in exposition::parse(text).expect("what we expose can be read") {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| sample.name.strip_suffix(suffix));
        let name = base.filter(|base| families.contains_key(*base)).unwrap_or(&sample.name).to_owned();
        let family = families.get_mut(&name).unwrap_or_else(|| panic!("{name} has no TYPE"));
        for (label, value) in sample.labels {
            values.entry((name.clone(), label.clone())).or_default().insert(value);
            family.labels.insert(label);
        }
    }
    (families, values)
}

/// Adds the families that a scrape may lack, after a check that those which are
/// there are as described.
fn complete(families: &mut BTreeMap<String, Family>) {
    for [name, kind, labels, help, when] in SOMETIMES {
        let labels = labels.split_terminator(',').map(str::to_owned).collect();
        let ours = Family { kind: kind.into(), help: help.into(), labels, when };
        if let Some(found) = families.insert(name.into(), ours.clone()) {
            assert_eq!(Family { when, ..found }, ours, "{name}");
        }
    }
}

fn section(name: &str, family: &Family) -> usize {
    match () {
        () if family.labels.contains("peer_node") => 0,
        () if family.labels.contains("peer_zone") => 1,
        () if name.starts_with("kube_canary_check_") => 2,
        () if name.starts_with("process_") => 4,
        () => 3,
    }
}

fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(unit)).unwrap_or("")
}

fn document(families: &BTreeMap<String, Family>, values: &Values) -> String {
    let mut text = HEAD.to_owned();
    for (index, (title, about)) in SECTIONS.iter().enumerate() {
        let own = || families.iter().filter(|(name, family)| section(name, family) == index);
        // Labels that all families have are listed once.
        let common: BTreeSet<&String> =
            own().map(|(_, f)| f.labels.iter().collect()).reduce(|a: BTreeSet<_>, b| &a & &b).unwrap_or_default();
        let list =
            |labels: Vec<&String>| labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let _ = write!(text, "\n## {title}\n{about}");
        if !common.is_empty() {
            let _ = write!(text, " All carry {}.", list(common.iter().copied().collect()));
        }
        text += "\n\n| name | type | unit | labels | |\n|---|---|---|---|---|\n";
        for (name, family) in own() {
            let labels = list(family.labels.iter().filter(|label| !common.contains(label)).collect());
            let when = if family.when.is_empty() { String::new() } else { format!(" Only {}.", family.when) };
            let _ =
                writeln!(text, "| `{name}` | {} | {} | {labels} | {}{when} |", family.kind, unit(name), family.help);
        }
    }
    text += "\n## Values of labels\n\n| metric | label | values |\n|---|---|---|\n";
    let mut row = |name: &str, label: &str, values: Vec<&str>| {
        let values: Vec<String> = values.into_iter().map(|value| format!("`{value}`")).collect();
        let _ = writeln!(text, "| `{name}` | `{label}` | {} |", values.join(", "));
    };
    // The figures of jemalloc. glibc has the first two.
    row(SOMETIMES[0][0], "stat", vec!["allocated", "mapped", "active", "metadata", "resident", "retained"]);
    for (name, label) in CLOSED {
        row(name, label, values[&(name.to_owned(), label.to_owned())].iter().map(String::as_str).collect());
    }
    let checks = ["kube_canary_check_duration_seconds", "kube_canary_check_failures_total"];
    row(checks[0], "phase", CheckPhase::ALL.into_iter().map(CheckPhase::label).collect());
    for name in checks {
        let families = kube_canary::peers::Family::ALL.map(kube_canary::peers::Family::label);
        row(name, "family", if name == checks[0] { families.into() } else { [&families[..], &["none"]].concat() });
    }
    row(checks[1], "reason", CheckFailure::ALL.into_iter().map(CheckFailure::label).collect());
    row("kube_canary_api_requests_total", "verb", Verb::ALL.into_iter().map(Verb::label).collect());
    text
}

#[test]
fn the_reference_of_metrics_is_that_of_a_real_scrape() {
    let agent = Agent::measured();
    let (mut families, values) = read(&agent.get("/metrics").body);
    complete(&mut families);
    let real = document(&families, &values);
    golden::hold(DOCUMENT, &real);
}
