//! The series of checks, which are apart from those of links.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube_canary::check::{CHECK_NAME_BYTES_MAX, CHECKS_MAX, CheckFailure, CheckPhase};
use kube_canary::checks::{Attempt, AuthoritiesFile, CheckSpec, CheckTarget, DueAttempt, Host, HostPort};
use kube_canary::exposition::{Format, LinkSeries};
use kube_canary::limits::{MAX_SERIES_DEFAULT, MAX_SERIES_MIN};
use kube_canary::peers::Family;
use kube_canary::units::Nanos;

use crate::exposition::parse;
use crate::leaks::NoLeaks;
use crate::mesh::{Agent, SECOND, series};
use crate::protobuf;
use crate::size::{sample, ways};

const NOW: Nanos = Nanos(1_000 * SECOND);
const MS: u64 = 1_000_000;
/// Series of a histogram in text: 12 buckets, `+Inf`, sum and count.
const HISTOGRAM: usize = 15;

fn host(name: &str, port: u16) -> HostPort {
    HostPort { host: Host::Name(name.into()), port }
}

fn spec(name: &str, target: CheckTarget) -> CheckSpec {
    CheckSpec { name: name.into(), target }
}

/// The checks that need no flag.
fn defaults() -> Vec<CheckSpec> {
    let server = HostPort { host: Host::Address([10, 96, 0, 1].into()), port: 443 };
    vec![
        spec("dns", CheckTarget::ClusterDns),
        spec(
            "api-server",
            CheckTarget::ApiServer { server, authorities: Arc::new(AuthoritiesFile::new("/ca.crt".into())) },
        ),
        spec("service", CheckTarget::Service(host("kube-canary-service", 80))),
        spec("service-udp", CheckTarget::ServiceUdp(host("kube-canary-service", 862))),
    ]
}

fn agent(specs: &[CheckSpec]) -> Agent {
    let agent = Agent::new(LinkSeries::Full, MAX_SERIES_DEFAULT, 1);
    agent.view.statistics.checks().replace(specs);
    agent
}

/// Counts an attempt of the check at this place, with the times of its phases in milliseconds.
fn attempt(agent: &Agent, place: usize, times: [u64; 4], end: Result<(), CheckFailure>) {
    let phases = times.map(|time| (time > 0).then_some(Nanos(time * MS)));
    let certificate_not_after = (times[2] > 0).then_some(1_900_000_000);
    let family = Some(Family::V4).filter(|_| end != Err(CheckFailure::Unresolved));
    record(agent, place, &Attempt { phases, end, certificate_not_after, family, ..Attempt::default() });
}

fn record(agent: &Agent, place: usize, attempt: &Attempt) {
    let due = DueAttempt { check: place, server: 0, spacing: Nanos(10 * SECOND) };
    agent.view.statistics.checks().record(due, 1, NOW, attempt);
}

/// Of each check, every phase has been passed and every reason has occurred, over both families and
/// without any.
fn exhaust(agent: &Agent) {
    for place in 0..agent.view.statistics.checks().count() {
        for family in [Some(Family::V4), Some(Family::V6), None] {
            let phases = [1, 2, 30, 400].map(|time| Some(Nanos(time * MS)));
            let good = Attempt { phases, family, certificate_not_after: Some(1_900_000_000), ..Attempt::default() };
            record(agent, place, &good);
            for failure in CheckFailure::ALL {
                record(agent, place, &Attempt { end: Err(failure), family, ..Attempt::default() });
            }
        }
    }
}

fn of_checks(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("kube_canary_check_")).collect()
}

#[test]
fn an_agent_without_checks_has_no_families_of_them() {
    let _no_leaks = NoLeaks::here();
    let agent = agent(&[]);
    for format in [Format::Text, Format::OpenMetrics] {
        assert!(!agent.scrape(NOW, format).text().contains("kube_canary_check_"));
    }
    let families = protobuf::parse(&agent.scrape(NOW, Format::Protobuf).bytes());
    assert!(families.iter().all(|family| !family.name.starts_with("kube_canary_check_")));
    // A check without an attempt has only the count of these.
    agent.view.statistics.checks().replace(&defaults());
    let text = agent.scrape(NOW, Format::Text).text();
    assert_eq!(of_checks(&text).len(), 4);
    assert!(of_checks(&text).iter().all(|line| line.starts_with("kube_canary_check_attempts_total{")));
    assert_eq!(text.matches(" kube_canary_check_").count(), 2, "HELP and TYPE of one family");
}

#[test]
fn checks_have_phases_and_the_reasons_that_occurred_in_every_format() {
    let _no_leaks = NoLeaks::here();
    let agent = agent(&defaults());
    attempt(&agent, 0, [0, 0, 0, 2], Ok(()));
    attempt(&agent, 0, [0; 4], Err(CheckFailure::NoSuchName));
    attempt(&agent, 1, [0, 1, 30, 0], Ok(()));
    attempt(&agent, 2, [1, 1, 0, 3], Ok(()));
    let text = agent.scrape(NOW, Format::Text).text();
    let (dns, api) =
        ("check=\"dns\",target=\"kubernetes.default.svc\"", "check=\"api-server\",target=\"10.96.0.1:443\"");
    for (name, labels, value) in [
        ("attempts_total", dns, 2),
        ("failures_total", &*format!("{dns},family=\"ipv4\",reason=\"no_such_name\""), 1),
        ("attempts_total", api, 1),
        ("certificate_not_after_seconds", api, 1_900_000_000),
        ("duration_seconds_count", &format!("{api},family=\"ipv4\",phase=\"handshake\""), 1),
        ("duration_seconds_bucket", &format!("{dns},family=\"ipv4\",phase=\"first_byte\",le=\"0.001\""), 0),
        ("duration_seconds_bucket", &format!("{dns},family=\"ipv4\",phase=\"first_byte\",le=\"0.0025\""), 1),
    ] {
        assert_eq!(sample(&text, &format!("kube_canary_check_{name}{{{labels}}}")), value, "{name}{{{labels}}}");
    }
    assert_eq!(of_checks(&text).len(), 6 * HISTOGRAM + 4 + 1 + 1);
    let open = agent.scrape(NOW, Format::OpenMetrics).text();
    let created = of_checks(&open).iter().filter(|line| line.contains("_created{")).count();
    assert_eq!((of_checks(&open).len() - created, created), (6 * HISTOGRAM + 4 + 1 + 1, 6 + 4 + 1));
    let families = protobuf::parse(&agent.scrape(NOW, Format::Protobuf).bytes());
    let times = families.iter().find(|family| family.name == "kube_canary_check_duration_seconds").expect("times");
    assert_eq!(times.metrics.len(), 6);
    let handshake = times.metrics.iter().find(|metric| metric.labels["phase"] == "handshake").expect("a phase");
    let histogram = handshake.histogram.as_ref().expect("a histogram");
    assert_eq!((histogram.count, histogram.buckets.len(), histogram.schema), (1, 12, Some(1)));
    assert!((histogram.sum - 0.03).abs() < 1e-9 && handshake.created.is_some_and(|created| created > 0));
}

#[test]
fn the_default_checks_have_at_most_60_series_in_protobuf() {
    let _no_leaks = NoLeaks::here();
    let agent = agent(&defaults());
    // What can happen to each: DNS is asked by UDP, the API server has an address and no request.
    let reasons = [10, 11, 10, 6];
    let phases = [[0, 0, 0, 1], [0, 1, 1, 0], [1, 1, 0, 1], [1, 0, 0, 1]];
    for (place, (phases, reasons)) in phases.into_iter().zip(reasons).enumerate() {
        attempt(&agent, place, phases, Ok(()));
        CheckFailure::ALL.into_iter().take(reasons).for_each(|failure| attempt(&agent, place, [0; 4], Err(failure)));
    }
    let families = protobuf::parse(&agent.scrape(NOW, Format::Protobuf).bytes());
    let families = families.iter().filter(|family| family.name.starts_with("kube_canary_check_"));
    let count: usize = families.map(|family| family.metrics.len()).sum();
    assert!((40..=60).contains(&count), "{count}");
}

#[test]
fn checks_leave_the_links_in_their_place() {
    let _no_leaks = NoLeaks::here();
    let without = Agent::new(LinkSeries::Full, MAX_SERIES_MIN, 1);
    let with = Agent::new(LinkSeries::Full, MAX_SERIES_MIN, 1);
    with.view.statistics.checks().replace(&defaults());
    exhaust(&with);
    let [links, links_beside_checks] = [&without, &with].map(|agent| {
        agent.list(&ways(100, false, false), NOW);
        let text = agent.scrape(NOW, Format::Text).text();
        series(&text) - of_checks(&text).len()
    });
    assert_eq!(links, links_beside_checks);
}

/// As many checks as there can be, with the longest names and targets, and escaped characters.
fn longest() -> Vec<CheckSpec> {
    let long = |check: usize| {
        let path = format!("/{check}\\\"{}", "\"\\".repeat(200)).into();
        let name = format!("{check:0>CHECK_NAME_BYTES_MAX$}");
        spec(&name, CheckTarget::Http { is_secure: true, host: host(&"h".repeat(250), 65_535), path })
    };
    (0..CHECKS_MAX).map(long).collect()
}

#[test]
fn the_most_and_longest_checks_fit_their_frames_in_every_format() {
    let _no_leaks = NoLeaks::here();
    let agent = agent(&longest());
    exhaust(&agent);
    let of_check = 2 * CheckPhase::ALL.len() * HISTOGRAM + 1 + 3 * CheckFailure::ALL.len() + 1;
    let text = agent.scrape(NOW, Format::Text).text();
    assert_eq!(of_checks(&text).len(), CHECKS_MAX * of_check);
    assert!(parse(&text).expect("text").iter().all(|sample| sample.label("target").len() <= 320));
    agent.scrape(NOW, Format::OpenMetrics).text();
    let families = protobuf::parse(&agent.scrape(NOW, Format::Protobuf).bytes());
    let failures = families.iter().find(|family| family.name == "kube_canary_check_failures_total").expect("failures");
    assert_eq!((failures.metrics.len(), failures.unknown_bytes), (CHECKS_MAX * 3 * CheckFailure::ALL.len(), 0));
}

#[test]
fn a_list_that_changes_during_a_scrape_breaks_no_scrape() {
    let _no_leaks = NoLeaks::here();
    let specs = longest();
    let lists = [specs[..20].iter().rev().cloned().collect(), specs[7..9].to_vec(), Vec::new(), specs.clone()];
    for format in [Format::Text, Format::OpenMetrics, Format::Protobuf] {
        for (list, frames) in lists.iter().zip([1, 3, 5, 9]).flat_map(|(list, step)| [(list, step), (list, 8 * step)]) {
            let agent = agent(&specs);
            exhaust(&agent);
            let mut scrape = agent.scrape(NOW, format);
            for _ in 0..frames {
                scrape.go_on();
            }
            agent.view.statistics.checks().replace(list);
            let bytes = scrape.bytes();
            if format == Format::Protobuf {
                // Their reader panics at a message that does not end where its length says.
                assert!(protobuf::parse(&bytes).len() > 20);
                continue;
            }
            let text = String::from_utf8(bytes).expect("UTF-8");
            let names = of_checks(&text).into_iter().map(|line| line.rsplit_once(' ').expect("a value").0);
            let mut seen = BTreeSet::new();
            assert!(names.into_iter().all(|series| seen.insert(series)), "a series twice");
            for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
                assert_eq!(text.matches(line).count(), 1, "{line}");
            }
            assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
        }
    }
}
