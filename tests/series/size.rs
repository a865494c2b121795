//! The number of series of a scrape, which must be as the formula of docs/metrics.md says. The
//! names are as long as those of a large cloud.

use kube_canary::allocator::finder::unfollowed;
use kube_canary::exposition::{Format, LinkSeries};
use kube_canary::limits::{MAX_SERIES_DEFAULT, MAX_SERIES_MAX, MAX_SERIES_MIN};
use kube_canary::peers::Methods;
use kube_canary::prober::{Event, SendError, Stamp};
use kube_canary::report::Network;
use kube_canary::units::Nanos;

use crate::leaks::NoLeaks;
use crate::mesh::{Agent, SECOND, Way, series};
use crate::protobuf;

const NOW: Nanos = Nanos(1_000 * SECOND);
/// All series of a link in text: 9 counters, 12 buckets, `+Inf`, sum and count.
const LINK: usize = 9 + 15;
/// Series of a zone pair in text: 9 counters, and a histogram as above.
const ZONE_PAIR: usize = 9 + 15;

pub fn ways(nodes: u16, families: bool, networks: bool) -> Vec<Way> {
    let all = [(false, Network::Pod), (true, Network::Pod), (false, Network::Node), (true, Network::Node)];
    let kept = all.into_iter().filter(|(v6, network)| (families || !v6) && (networks || *network == Network::Pod));
    let kept: Vec<_> = kept.collect();
    (1..=nodes).flat_map(|node| kept.iter().map(move |&(v6, network)| Way { node, v6, network })).collect()
}

/// Every peer answers, was restarted once, and once could not be reached.
pub fn live(agent: &Agent) {
    for (slot, _) in agent.slots() {
        agent.event(slot, Event::Sent);
        let rtt = Nanos(123_456);
        agent.event(slot, Event::Received { rtt, reordered: false, sequence: 0, stamp: Stamp::Kernel });
        agent.event(slot, Event::Terminating { answered: true });
        agent.event(slot, Event::Terminating { answered: false });
        agent.event(slot, Event::NotSent(SendError::NoRoute));
    }
}

pub fn sample(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect("it is there").parse().expect("a number")
}

/// The agent's own series, without links and zones.
fn own() -> usize {
    series(&Agent::new(LinkSeries::Full, MAX_SERIES_MAX, 1).scrape(NOW, Format::Text).text())
}

/// Those of a zone pair by UDP and by TCP together.
const OTHER_ZONE_PAIRS: usize = 3 + 3 + 3;

/// Series of a link by ICMP in text, and by UDP and TCP together.
const fn link_series(links: LinkSeries) -> [usize; 2] {
    match links {
        LinkSeries::Full => [LINK, 3 + 3 + 15 + 3],
        LinkSeries::One => [3 + 15, 3 + 3],
        LinkSeries::Counters => [3, 3 + 3],
        LinkSeries::None => [0, 0],
    }
}

#[test]
fn a_link_has_series_by_udp_and_tcp_where_an_agent_listens() {
    let _no_leaks = NoLeaks::here();
    let own = series(&Agent::by(Methods::ALL, LinkSeries::Full, MAX_SERIES_MAX, 1).scrape(NOW, Format::Text).text());
    for (_, links) in LinkSeries::ALL {
        let [by_icmp, by_others] = link_series(links);
        for (families, networks) in [(false, false), (true, false), (true, true)] {
            let agent = Agent::by(Methods::ALL, links, MAX_SERIES_MAX, 3);
            agent.list(&ways(24, families, networks), NOW);
            let pods = 1 + usize::from(families);
            let all = pods * (1 + usize::from(networks));
            let expected =
                own + 24 * (all * by_icmp + pods * by_others) + 3 * (all * ZONE_PAIR + pods * OTHER_ZONE_PAIRS);
            assert_eq!(series(&agent.scrape(NOW, Format::Text).text()), expected, "{links:?} {families} {networks}");
        }
    }
}

/// Series that another malloc, a cgroup that throttles, and the API server add to those that are
/// there.
fn besides(text: &str) -> usize {
    let families = ["kube_canary_allocator_bytes", "kube_canary_cgroup_throttled_", "kube_canary_api_"];
    let there = text.lines().filter(|line| families.iter().any(|family| line.starts_with(family)));
    6 + 2 + 4 - there.count()
}

#[test]
fn two_dozen_peers_by_three_protocols_have_at_most_900_series_in_text_and_420_in_protobuf() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::by(Methods::ALL, LinkSeries::default(), MAX_SERIES_DEFAULT, 3);
    agent.list(&ways(24, false, false), NOW);
    let text = agent.scrape(NOW, Format::Text).text();
    let families = protobuf::parse(&agent.scrape(NOW, Format::Protobuf).bytes());
    let native: usize = families.iter().map(|family| family.metrics.len()).sum();
    unfollowed(|| println!("24 peers, 3 zones: {} series in text, {native} in protobuf", series(&text)));
    let besides = besides(&text);
    assert!(series(&text) + besides <= 900 && native + besides <= 420, "{} {native}", series(&text));
    for method in ["udp", "tcp"] {
        let of = |label: &str| text.lines().filter(|line| line.contains(label) && !line.starts_with('#')).count();
        assert!(of(&format!("protocol=\"{method}\"")) >= 24 * 3, "{method}");
    }
}

#[test]
fn series_are_those_of_the_formula_whatever_has_happened() {
    let _no_leaks = NoLeaks::here();
    let own = own();
    unfollowed(|| println!("{own} series of the agent's own"));
    for (_, links) in LinkSeries::ALL {
        let [of_link, _] = link_series(links);
        for (families, networks) in [(false, false), (true, false), (false, true), (true, true)] {
            for (nodes, zones) in [(10, 3), (24, 3), (24, 20), (300, 3)] {
                let agent = Agent::new(links, MAX_SERIES_MAX, zones);
                agent.list(&ways(nodes, families, networks), NOW);
                let quiet = agent.scrape(NOW, Format::Text).text();
                live(&agent);
                let after = agent.scrape(NOW.plus(Nanos(SECOND)), Format::Text).text();
                let of_node = (1 + usize::from(families)) * (1 + usize::from(networks));
                let expected =
                    own + usize::from(nodes) * of_node * of_link + usize::from(zones.min(nodes)) * of_node * ZONE_PAIR;
                assert_eq!([&quiet, &after].map(|text| series(text)), [expected; 2], "{links:?} {nodes} {zones}");
            }
        }
    }
}

/// The bounds that the documentation promises.
#[test]
fn two_dozen_links_in_three_zones_have_at_most_650_series_in_text_and_250_in_protobuf() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::new(LinkSeries::default(), MAX_SERIES_DEFAULT, 3);
    agent.list(&ways(24, false, false), NOW);
    live(&agent);
    let text = agent.scrape(NOW, Format::Text).text();
    let open = agent.scrape(NOW, Format::OpenMetrics).text();
    let bytes = agent.scrape(NOW, Format::Protobuf).bytes();
    let native: usize = protobuf::parse(&bytes).iter().map(|family| family.metrics.len()).sum();
    unfollowed(|| {
        println!(
            "24 links, 3 zones: text {} series, {} bytes; OpenMetrics {} bytes; protobuf {native} series, {} bytes",
            series(&text),
            text.len(),
            open.len(),
            bytes.len()
        );
    });
    let besides = besides(&text);
    assert!(series(&text) + besides <= 650 && native + besides <= 250, "{} {native}", series(&text));
    let without_created = open.lines().filter(|line| !line.starts_with('#') && !line.contains("_created")).count();
    assert_eq!(without_created, series(&text));
}

#[test]
fn a_cap_leaves_out_the_same_whole_links_in_every_format_and_reports_their_series() {
    let _no_leaks = NoLeaks::here();
    let own = own();
    for (cap, zones) in [(MAX_SERIES_MIN, 1), (1_000, 3), (1_000, 20)] {
        let agent = Agent::new(LinkSeries::Full, cap, zones);
        agent.list(&ways(100, true, false), NOW);
        live(&agent);
        let zone_pairs = 2 * usize::from(zones) * ZONE_PAIR;
        let fit = cap.saturating_sub(own + zone_pairs) / LINK;
        let text = agent.scrape(NOW, Format::Text).text();
        let count = |text: &str, family: &str| text.lines().filter(|line| line.starts_with(family)).count();
        assert_eq!(count(&text, "kube_canary_probes_sent_total{"), fit, "{cap} {zones}");
        assert_eq!(count(&text, "kube_canary_probe_rtt_seconds_count{"), fit);
        assert_eq!(series(&text), own + zone_pairs + fit * LINK);
        assert_eq!(sample(&text, "kube_canary_suppressed_series"), ((200 - fit) * LINK) as u64);
        let families = protobuf::parse(&agent.scrape(NOW, Format::Protobuf).bytes());
        let metrics = |name: &str| families.iter().find(|family| family.name == name).map(|it| it.metrics.len());
        // A family without a link is in no format.
        assert_eq!(metrics("kube_canary_probe_rtt_seconds"), (fit > 0).then_some(fit));
        assert_eq!(text.contains("# TYPE kube_canary_probe_rtt_seconds "), fit > 0);
        let again = agent.scrape(NOW.plus(Nanos(5 * SECOND)), Format::Text).text();
        let links = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.starts_with("kube_canary_probes_sent_total{"));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(links(&text), links(&again));
    }
}
