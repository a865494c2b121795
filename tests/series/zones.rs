//! What is exported of the links of a zone pair together.

use kube_canary::exposition::{Format, LinkSeries};
use kube_canary::limits::MAX_SERIES_DEFAULT;
use kube_canary::peers::{Method, Methods};
use kube_canary::prober::Observation;
use kube_canary::statistics::MtuReading;
use kube_canary::units::Nanos;

use crate::leaks::NoLeaks;
use crate::mesh::{Agent, SECOND};
use crate::size::ways;

const NOW: Nanos = Nanos(1_000 * SECOND);

/// The values of a family in a scrape, in the order of zones.
fn values(agent: &Agent, family: &str) -> Vec<u64> {
    let text = agent.scrape(NOW, Format::Text).text();
    let samples = text.lines().filter(|line| line.starts_with(&format!("{family}{{")));
    samples.map(|line| line.rsplit_once(' ').expect("a value").1.parse().expect("a number")).collect()
}

#[test]
fn gauges_of_a_zone_are_of_all_its_links_and_of_no_other() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::by(Methods::ALL, LinkSeries::None, MAX_SERIES_DEFAULT, 2);
    agent.list(&ways(6, false, false), NOW);
    for family in ["kube_canary_zone_path_mtu_bytes", "kube_canary_zone_path_hops", "kube_canary_zone_flows"] {
        assert_eq!(values(&agent, family), [0, 0], "{family} is not known yet");
    }
    // Slots are of nodes 1 to 6, which are in zones b and a in turn. Zone b was seen first.
    let passes = [Some(1_500), Some(9_000), Some(1_400), None, Some(1_450), Some(8_900)];
    for ((slot, _), (passes, hops)) in agent.slots().into_iter().zip(passes.into_iter().zip(1..)) {
        let link = agent.view.statistics.udp(slot).expect("UDP probes");
        agent.view.statistics.record(Method::Udp, Observation::Hops { slot, hops });
        if let Some(bytes) = passes {
            link.set_mtu(MtuReading::Full { bytes });
        }
    }
    assert_eq!(values(&agent, "kube_canary_zone_path_mtu_bytes"), [1_400, 8_900]);
    assert_eq!(values(&agent, "kube_canary_zone_path_hops"), [5, 6]);
    assert_eq!(values(&agent, "kube_canary_path_hops"), [] as [u64; 0], "no series of a link");
}
