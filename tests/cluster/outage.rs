//! The control plane is stopped for two minutes, and a link breaks during that time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Test;
use crate::agents::{self, Links, Pod, Way, all_ready, growth, none_lost};
use crate::faults::{ApiAway, Cut};
use crate::wait::until;

const AWAY: Duration = Duration::from_mins(2);
/// A bookmark confirms a watch each minute, so the age reaches up to that while all is well.
const YOUNG: f64 = 75.0;
/// Probes of each peer in that time that were sent or skipped, at one per second. This is less than
/// all: an agent that is delayed at the end has yet to count the probes that it skips.
const TURNS: f64 = 100.0;

/// The figures of all agents at one time.
#[derive(Default)]
struct Seen {
    links: Links,
    /// The age of each agent's peer list, in seconds.
    ages: Vec<f64>,
    /// Probes that each agent skipped since its start, of all peers together.
    skipped: BTreeMap<String, f64>,
}

impl Test {
    pub(crate) fn an_outage_of_the_api_hides_nothing(&self) {
        let pods = self.pods();
        let nodes: Vec<_> = self.zones.keys().collect();
        let (onlooker, a, b) = (nodes[0].as_str(), nodes[1].as_str(), nodes[2].as_str());
        let look = || self.without_the_api(onlooker, &pods);
        let young = || {
            let seen = look()?;
            if seen.ages.iter().all(|age| *age < YOUNG) { Ok(seen) } else { Err(format!("{:?}", seen.ages)) }
        };
        let before = until("the list is young", young);

        let api = ApiAway::start(&self.cluster);
        let began = Instant::now();
        let cut = Cut::between(&self.cluster, &pods[a].addresses, b);
        let both_ways = 2 * pods[a].protocols().count();
        let broken = |way: &Way| [(a, b), (b, a)].contains(&(way.source.as_str(), way.peer.as_str()));
        until("the cut, seen from both its ends", || {
            let into = growth(&before.links, &look()?.links, broken)?;
            if into.len() == both_ways && into.iter().all(|(way, link)| link.lost >= way.probes_in(10.0)) {
                Ok(())
            } else {
                Err(format!("{into:?}"))
            }
        });
        until("two minutes without an API server", || {
            let left = AWAY.saturating_sub(began.elapsed());
            if left.is_zero() { Ok(()) } else { Err(format!("{left:?} to go")) }
        });
        let during = look().unwrap();
        let least = AWAY.as_secs_f64() - 1.0;
        let ages = &during.ages;
        assert!(ages.iter().all(|age| *age >= least), "the list's age does not tell of the outage: {ages:?}");
        let peers = [&before, &during].map(|seen| seen.links.keys().collect::<Vec<_>>());
        assert_eq!(peers[0], peers[1], "peers came or went");
        drop(cut);
        drop(api);
        let stale = until("the nodes' leases, of before the outage", || self.leases());

        let after = until("the list is young again", young);
        for seen in [&during, &after] {
            let elsewhere = growth(&before.links, &seen.links, |way| !broken(way)).unwrap();
            none_lost(&elsewhere, "loss where nothing was cut");
            for (way, link) in &elsewhere {
                // A delayed agent skips a probe and counts it.
                let skipped = seen.skipped[&way.source] - before.skipped[&way.source];
                assert!(
                    link.sent + skipped >= way.probes_in(TURNS),
                    "{way:?} is not probed on: {link:?}, {skipped} skipped"
                );
            }
        }
        self.recovers(&pods);

        // The kubelets reconnect in their own time, and Kubernetes may give up a late one. The next
        // step needs all of them, and must not find a node that is already given up.
        until("every node's lease renewed", || {
            let leases = self.leases()?;
            let late: Vec<_> = stale.iter().filter(|(node, renewed)| leases.get(*node) == Some(*renewed)).collect();
            if late.is_empty() { Ok(()) } else { Err(format!("{late:?}")) }
        });
        for node in self.zones.keys() {
            until("a Ready node", || {
                let ready = self.node_ready(node)?;
                if ready == "True" { Ok(()) } else { Err(format!("{node}: {ready}")) }
            });
        }
        until("a Ready agent on every node", || all_ready(&self.cluster, &self.zones));
    }

    /// The time of the last lease renewal of each node.
    fn leases(&self) -> Result<BTreeMap<String, String>, String> {
        let renewed = "jsonpath={.spec.renewTime}";
        let lease = |node: &String| {
            let args = ["get", "lease", node, "--namespace", "kube-node-lease", "-o", renewed];
            Ok((node.clone(), self.cluster.kubectl(&args)?))
        };
        self.zones.keys().map(lease).collect()
    }

    fn without_the_api(&self, onlooker: &str, pods: &BTreeMap<String, Pod>) -> Result<Seen, String> {
        let mut seen = Seen::default();
        for (node, pod) in pods {
            let pages = agents::read(|path| agents::get_from(&self.cluster, onlooker, pod, path))?;
            seen.links.extend(agents::links_of(node, &pages, &self.zones)?);
            let [metrics, _] = &pages;
            seen.ages.push(agents::single(metrics, "peer_list_age_seconds")?);
            seen.skipped.insert(node.clone(), agents::single(metrics, "probes_skipped_total")?);
        }
        Ok(seen)
    }
}
