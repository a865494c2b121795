//! How many series and bytes a scrape has. The names are as long as those of a large cloud.

use std::fmt::Write as _;

use kube_canary::allocator::finder::unfollowed;
use kube_canary::discovery::Network;
use kube_canary::exposition::Format;
use kube_canary::limits::{SERIES_BUDGET_DEFAULT, SERIES_BUDGET_MIN};
use kube_canary::prober::{Event, SendError, Stamp};
use kube_canary::units::Nanos;

use crate::leaks::NoLeaks;
use crate::mesh::{Agent, SECOND, Way, series};
use crate::story::names;

/// What a scrape may have at the default budget.
const BYTES_MAX: usize = 100 * 1_024;
/// Digits that counters may have in years, beyond those of a test.
const DIGITS: usize = 10;

fn ways(nodes: u16, families: bool, networks: bool) -> Vec<Way> {
    let all = [(false, Network::Pod), (true, Network::Pod), (false, Network::Node), (true, Network::Node)];
    let kept = all.into_iter().filter(|(v6, network)| (families || !v6) && (networks || *network == Network::Pod));
    let kept: Vec<_> = kept.collect();
    (1..=nodes).flat_map(|node| kept.iter().map(move |&(v6, network)| Way { node, v6, network })).collect()
}

/// Everybody answers; `drained`: and everybody has been restarted, and could not be reached at all once.
fn live(agent: &Agent, drained: bool) {
    for (slot, _) in agent.slots() {
        agent.event(slot, Event::Sent);
        let rtt = Nanos(123_456);
        agent.event(slot, Event::Received { rtt, reordered: false, sequence: 0, stamp: Stamp::Kernel });
        if drained {
            agent.event(slot, Event::Terminating { answered: true });
            agent.event(slot, Event::Terminating { answered: false });
            agent.event(slot, Event::NotSent(SendError::NoRoute));
        }
    }
}

/// The rows of a table in docs/adr/0014.
#[test]
fn a_scrape_at_the_default_budget_has_at_most_100_kb() {
    let _no_leaks = NoLeaks::here();
    let suppressed = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("kube_canary_suppressed_series "));
        line.expect("it is there").to_owned()
    };
    for zones in [3, 20] {
        for (families, networks) in [(false, false), (true, false), (false, true), (true, true)] {
            for nodes in [10, 24, 1_000] {
                let agent = Agent::new(SERIES_BUDGET_DEFAULT, zones);
                let mut now = Nanos(1_000 * SECOND);
                agent.view.statistics.tick(now);
                agent.list(&ways(nodes, families, networks), now);
                let mut row = format!(
                    "| {nodes} | {zones} | {} | {} |",
                    if families { "both" } else { "one" },
                    if networks { "both" } else { "pod" }
                );
                let mut before = String::new();
                for drained in [false, true] {
                    live(&agent, drained);
                    now = now.plus(Nanos(SECOND));
                    let text = agent.scrape(now, Format::Text).text();
                    let open = agent.scrape(now, Format::OpenMetrics).text();
                    let (shown, bytes) = (series(&text), text.len().max(open.len()));
                    assert!(shown <= SERIES_BUDGET_DEFAULT && shown == series(&open), "{shown}: {row}");
                    assert!(bytes + DIGITS * shown <= BYTES_MAX, "{bytes} bytes: {row}");
                    assert!(names(&before).is_subset(&names(&text)), "what is rare costs others their series: {row}");
                    let _ = write!(row, " {shown} | {bytes} | {} |", suppressed(&text));
                    before = text;
                }
                unfollowed(|| println!("{row}"));
            }
        }
    }
}

/// The longest there is: as many peers with histograms as fit.
#[test]
fn a_scrape_full_of_histograms_has_little_more() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::new(SERIES_BUDGET_DEFAULT, 2);
    let now = Nanos(1_000 * SECOND);
    agent.list(&ways(12, false, false), now);
    live(&agent, true);
    let text = agent.scrape(now, Format::Text).text();
    unfollowed(|| println!("12 peers with histograms: {} series, {} bytes", series(&text), text.len()));
    assert!(text.contains("# TYPE kube_canary_probe_rtt_seconds histogram"));
    assert!(text.len() + DIGITS * series(&text) <= BYTES_MAX + BYTES_MAX / 10, "{} bytes", text.len());
}

#[test]
fn at_the_least_budget_the_agent_s_own_series_are_all_there_and_zones_and_peers_beside_them() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::new(SERIES_BUDGET_MIN, 20);
    let now = Nanos(1_000 * SECOND);
    let own = series(&agent.scrape(now, Format::Text).text());
    unfollowed(|| println!("{own} series of the agent's own"));
    // A malloc with the most figures, a cgroup that throttles and a kernel with schedstat may add these.
    let lacks = |name: &str| !agent.whole(now, Format::Text).contains(name);
    let most = own + 6 + 2 * usize::from(lacks("cgroup_throttled")) + usize::from(lacks("run_delay_seconds"));
    assert!(most <= SERIES_BUDGET_MIN * 6 / 10, "{most} of {SERIES_BUDGET_MIN}");
    agent.list(&ways(300, true, true), now);
    live(&agent, true);
    let text = agent.scrape(now.plus(Nanos(SECOND)), Format::Text).text();
    let count = |family: &str| text.lines().filter(|line| line.starts_with(family)).count();
    let (zones, peers) = (count("kube_canary_zone_probes_sent_total"), count("kube_canary_probes_sent_total"));
    assert!(series(&text) <= SERIES_BUDGET_MIN && zones >= 20 && peers >= 1, "{zones} zone pairs, {peers} peers");
    assert_eq!(count("kube_canary_probes_terminating_total"), 2 * peers);
    let own_now = text.lines().filter(|line| !line.starts_with('#') && !line.contains("peer_zone")).count();
    assert_eq!(own_now, own);
}
