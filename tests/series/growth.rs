//! A mesh that grows and shrinks while it is scraped: no TYPE changes, and no series of a link that
//! stays has a gap.

use std::collections::{BTreeMap, BTreeSet};

use kube_canary::exposition::{Format, LinkSeries};
use kube_canary::limits::MAX_SERIES_DEFAULT;
use kube_canary::prober::{Event, Stamp};
use kube_canary::units::Nanos;

use crate::exposition::parse;
use crate::leaks::NoLeaks;
use crate::mesh::{Agent, SECOND, Way, name};
use crate::protobuf;
use crate::size::ways;

/// Returns the TYPE lines, by family.
fn types(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    lines.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// Returns the series of links, by link.
fn of_links(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut links: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for sample in parse(text).expect("text") {
        if !sample.label("peer_node").is_empty() {
            let key = [sample.label("peer_node"), sample.label("protocol"), sample.label("network")].join("/");
            links.entry(key).or_default().insert(format!("{} {}", sample.name, sample.label("le")));
        }
    }
    links
}

fn answer(agent: &Agent, rtt: u64) {
    for (slot, _) in agent.slots() {
        agent.event(slot, Event::Sent);
        agent.event(slot, Event::Received { rtt: Nanos(rtt), reordered: false, sequence: 0, stamp: Stamp::Kernel });
    }
}

#[test]
fn a_mesh_of_3_that_grows_to_40_and_back_changes_no_type_and_leaves_no_gap() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::new(LinkSeries::Full, MAX_SERIES_DEFAULT, 3);
    let mut now = Nanos(1_000 * SECOND);
    let (mut text_types, mut message_types) = (BTreeMap::new(), BTreeMap::new());
    let (mut of_one, mut last) = (BTreeSet::new(), BTreeSet::new());
    for nodes in (2..40).chain((2..40).rev()) {
        now = now.plus(Nanos(15 * SECOND));
        agent.list(&ways(nodes, true, false), now);
        agent.forget(now, Nanos(60 * SECOND));
        answer(&agent, 40_000 * u64::from(nodes));
        let text = agent.scrape(now, Format::Text).text();
        for (family, kind) in types(&text) {
            assert_eq!(text_types.entry(family.clone()).or_insert(kind.clone()), &kind, "{family} at {nodes}");
        }
        let links = of_links(&text);
        for (link, series) in &links {
            if of_one.is_empty() {
                of_one.clone_from(series);
            }
            assert_eq!(series, &of_one, "{link} at {nodes} nodes");
        }
        let now_listed: BTreeSet<String> =
            (1..=nodes).flat_map(|node| ["icmp", "icmpv6"].map(|it| format!("{}/{it}/pod", name(node)))).collect();
        assert!(links.keys().cloned().collect::<BTreeSet<_>>().is_superset(&now_listed), "{nodes} nodes");
        // A peer that has left stays until it is forgotten.
        let shown: BTreeSet<String> = links.into_keys().collect();
        assert!(last.intersection(&now_listed).all(|link| shown.contains(link)));
        last = shown.clone();

        let families = protobuf::parse(&agent.scrape(now, Format::Protobuf).bytes());
        for family in &families {
            assert_eq!(
                message_types.entry(family.name.clone()).or_insert(family.kind),
                &family.kind,
                "{}",
                family.name
            );
        }
        let rtt = families.iter().find(|family| family.name == "kube_canary_probe_rtt_seconds").expect("it is there");
        let in_messages: BTreeSet<String> = rtt
            .metrics
            .iter()
            .map(|metric| ["peer_node", "protocol", "network"].map(|label| metric.labels[label].as_str()).join("/"))
            .collect();
        assert_eq!(in_messages, shown);
    }
    assert_eq!(of_one.len(), 24);
}

/// A scrape in protobuf that is read slowly. At the same time peers leave, others take their slots,
/// zones change and counters grow.
#[test]
fn a_slow_scrape_stays_whole_while_the_mesh_changes() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::new(LinkSeries::Full, MAX_SERIES_DEFAULT, 3);
    let now = Nanos(1_000 * SECOND);
    agent.list(&ways(60, true, true), now);
    answer(&agent, 70_000);
    let mut slow = agent.scrape(now, Format::Protobuf);
    let (mut step, mut changed) = (0_u16, 0);
    while slow.go_on() {
        step += 1;
        // These round-trip times are in buckets that were empty when the scrape began.
        answer(&agent, 1_000 * u64::from(step) * u64::from(step));
        let at = now.plus(Nanos(u64::from(step) * SECOND));
        if step == 3 {
            // Every second peer gets another name. Of those that stay, some get another zone.
            let rolled =
                |way: Way| Way { node: if way.node.is_multiple_of(2) { way.node + 200 } else { way.node }, ..way };
            let list: Vec<Way> = ways(60, true, true).into_iter().map(rolled).collect();
            agent.list(&list, at);
            changed = list.len();
        }
        if step == 5 {
            agent.forget(at, Nanos(0));
        }
        if step == 6 {
            agent.list(&ways(70, true, true), at);
        }
    }
    assert!(step > 10 && changed > 0, "{step}");
    let bytes = slow.bytes();
    let families = protobuf::parse(&bytes);
    let padded: usize = families.iter().map(|family| family.unknown_bytes).sum();
    assert!(padded > 0, "somebody left, and nothing else has these bytes");
    for family in families.iter().filter(|family| family.kind == 4) {
        for metric in &family.metrics {
            let histogram = metric.histogram.as_ref().expect("a histogram");
            let counted: i64 = histogram.native().iter().map(|(_, count)| count).sum();
            assert_eq!(counted.unsigned_abs() + histogram.zero_count, histogram.count, "{:?}", metric.labels);
            assert!(histogram.buckets.iter().all(|(_, up_to)| *up_to <= histogram.count));
            // The sum is possible for these values, although others were measured during the
            // scrape.
            let bound = |index: i64| 2_f64.powf(index as f64 / 8.0);
            let most: f64 = histogram.native().iter().map(|(index, count)| bound(*index) * *count as f64).sum();
            let least: f64 = histogram.native().iter().map(|(index, count)| bound(index - 1) * *count as f64).sum();
            let sum = histogram.sum;
            assert!(sum >= least * (1.0 - 1e-9) && sum <= most * (1.0 + 1e-9) + 1e-6, "{least} {sum} {most}");
        }
    }
}
