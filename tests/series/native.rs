//! Native histograms are as Prometheus defines them, and contain the same values as the classic
//! ones.

use kube_canary::exposition::{Format, LinkSeries};
use kube_canary::limits::MAX_SERIES_DEFAULT;
use kube_canary::peers::Methods;
use kube_canary::prober::{Event, Stamp};
use kube_canary::units::Nanos;

use crate::exposition::{Sample, parse};
use crate::leaks::NoLeaks;
use crate::mesh::{Agent, SECOND};
use crate::protobuf::{self, Family, Histogram, Metric};
use crate::size::ways;
use crate::splitmix::Random;

const NOW: Nanos = Nanos(1_000 * SECOND);
const RTT: &str = "kube_canary_probe_rtt_seconds";

/// An agent with three links, and the round-trip times of each in nanoseconds, from nothing to
/// more than the timeout.
fn measured(seed: u64) -> (Agent, Vec<Vec<u64>>) {
    let agent = Agent::new(LinkSeries::Full, MAX_SERIES_DEFAULT, 2);
    agent.list(&ways(3, false, false), NOW);
    let mut random = Random(seed);
    let mut all = vec![Vec::new(); 3];
    for _ in 0..2_000 {
        for ((slot, _), times) in agent.slots().into_iter().zip(&mut all) {
            // Values are spread evenly over the powers of two, and often at a bound.
            let power = random.next() % 31;
            let rtt = match random.next() % 4 {
                0 => 1_000_000_000 >> (power % 25),
                1 => [0, 25_000, 25_001, 50_000_000, 999_999_999, 1_000_000_000][(random.next() % 6) as usize],
                _ => random.next() % (1 << power),
            };
            agent.event(slot, Event::Sent);
            agent.event(slot, Event::Received { rtt: Nanos(rtt), reordered: false, sequence: 0, stamp: Stamp::Kernel });
            times.push(rtt);
        }
    }
    (agent, all)
}

fn family<'a>(families: &'a [Family], name: &str) -> &'a Family {
    families.iter().find(|family| family.name == name).expect("it is there")
}

fn histogram(metric: &Metric) -> &Histogram {
    metric.histogram.as_ref().expect("a histogram")
}

#[test]
fn every_native_bucket_has_the_times_that_prometheus_would_put_there() {
    let _no_leaks = NoLeaks::here();
    for seed in 0..8 {
        let (agent, times) = measured(seed);
        let families = protobuf::parse(&agent.scrape(NOW, Format::Protobuf).bytes());
        let metrics = &family(&families, RTT).metrics;
        assert_eq!(metrics.len(), 3);
        for (metric, times) in metrics.iter().zip(&times) {
            let read = histogram(metric);
            assert_eq!((read.schema, read.zero_threshold), (Some(3), 2_f64.powi(-20)));
            let zero = times.iter().filter(|time| **time as f64 / 1e9 <= read.zero_threshold).count();
            assert_eq!((read.count, read.zero_count), (times.len() as u64, zero as u64));
            assert!((read.sum - times.iter().sum::<u64>() as f64 / 1e9).abs() < 1e-9);
            for (index, count) in read.native() {
                let bound = |index: i64| 2_f64.powf(index as f64 / 8.0);
                let expected = times.iter().filter(|time| {
                    let seconds = **time as f64 / 1e9;
                    seconds > read.zero_threshold && seconds > bound(index - 1) && seconds <= bound(index)
                });
                assert_eq!(usize::try_from(count), Ok(expected.count()), "bucket {index}");
            }
            for (bound, up_to) in &read.buckets {
                let expected = times.iter().filter(|time| **time as f64 / 1e9 <= *bound).count();
                assert_eq!(*up_to, expected as u64, "up to {bound}");
            }
            assert!(metric.created.is_some_and(|created| created > 1_600_000_000));
        }
    }
}

/// Returns the value that protobuf has for a sample of the text format.
fn in_messages(families: &[Family], sample: &Sample) -> Option<f64> {
    let parts =
        ["_bucket", "_sum", "_count"].into_iter().find_map(|part| Some((sample.name.strip_suffix(part)?, part)));
    let is_histogram = |name: &str| families.iter().any(|family| family.name == name && family.kind == 4);
    let (name, part) = parts.filter(|(name, _)| is_histogram(name)).unwrap_or((&sample.name, ""));
    let mut labels = sample.labels.clone();
    let bound = labels.remove("le");
    let metric = family(families, name).metrics.iter().find(|metric| metric.labels == labels)?;
    Some(match (part, bound.as_deref()) {
        ("", _) => metric.value?,
        ("_sum", _) => histogram(metric).sum,
        ("_count", _) | ("_bucket", Some("+Inf")) => histogram(metric).count as f64,
        (_, bound) => {
            let bound: f64 = bound?.parse().ok()?;
            let bucket = histogram(metric).buckets.iter().find(|(at, _)| (at / bound - 1.0).abs() < 1e-12)?;
            bucket.1 as f64
        }
    })
}

/// Figures that change from one scrape to the next.
const MOVING: [&str; 4] = ["process_", "kube_canary_memory", "kube_canary_allocator", "kube_canary_probe_thread"];

#[test]
fn all_formats_have_the_same_series_types_and_values() {
    let _no_leaks = NoLeaks::here();
    let by_all = Agent::by(Methods::ALL, LinkSeries::Full, MAX_SERIES_DEFAULT, 2);
    by_all.list(&ways(3, false, false), NOW);
    for agent in [measured(99).0, by_all] {
        have_the_same(&agent);
    }
}

fn have_the_same(agent: &Agent) {
    let families = protobuf::parse(&agent.scrape(NOW, Format::Protobuf).bytes());
    let text = agent.scrape(NOW, Format::Text).text();
    let samples = parse(&text).expect("text");
    let mut compared = 0;
    for sample in &samples {
        let value = in_messages(&families, sample).unwrap_or_else(|| panic!("{sample:?}"));
        if !MOVING.iter().any(|moving| sample.name.contains(moving)) {
            let is_same = (value - sample.value).abs() <= value.abs() * 1e-12;
            assert!(is_same || value.is_infinite() && sample.value.is_infinite(), "{sample:?} {value}");
            compared += 1;
        }
    }
    assert!(compared > 150, "{compared}");
    for family in &families {
        let kind = ["counter", "gauge", "", "", "histogram"][usize::try_from(family.kind).expect("small")];
        assert!(text.contains(&format!("# HELP {} {}\n", family.name, family.help)), "{}", family.name);
        assert!(text.contains(&format!("# TYPE {} {kind}\n", family.name)), "{}", family.name);
        assert_eq!(family.unknown_bytes, 0);
    }
    let of_text: usize = families
        .iter()
        .flat_map(|family| &family.metrics)
        .map(|metric| metric.histogram.as_ref().map_or(1, |histogram| histogram.buckets.len() + 3))
        .sum();
    assert_eq!(of_text, samples.len());
}

#[test]
fn openmetrics_says_since_when_each_counter_and_histogram_counts() {
    let _no_leaks = NoLeaks::here();
    let (agent, _) = measured(7);
    let open = agent.scrape(NOW, Format::OpenMetrics).text();
    let families = protobuf::parse(&agent.scrape(NOW, Format::Protobuf).bytes());
    let created = |name: &str| open.lines().filter(|line| line.starts_with(&format!("{name}_created"))).count();
    let mut checked = 0;
    for family in families.iter().filter(|family| family.kind != 1) {
        let name = family.name.strip_suffix("_total").unwrap_or(&family.name);
        let with = family.metrics.iter().filter(|metric| metric.created.is_some()).count();
        assert_eq!(created(name), with, "{name}");
        checked += with;
    }
    // These are three links of ten, and two zone pairs of four.
    assert!(checked > 3 * 10 + 2 * 4, "{checked}");
    assert!(open.ends_with("# EOF\n"));
}
