//! The control plane is away for two minutes, and a link breaks meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::canaries::{self, Links, Pod, Way, all_ready, growth};
use crate::faults::{ApiAway, Cut};
use crate::wait::until;
use crate::{NODE, PODS, PROBES, Test};

const AWAY: Duration = Duration::from_mins(2);
/// A watch is confirmed by a bookmark each minute, so that the age goes up to that while all is well.
const YOUNG: f64 = 75.0;
/// Backing off, an agent asks again after a minute at most.
const BACK: Duration = Duration::from_mins(3);

impl Test {
    pub(crate) fn an_outage_of_the_api_hides_nothing(&self) {
        let pods = self.pods();
        let nodes: Vec<_> = self.zones.keys().collect();
        let (onlooker, a, b) = (nodes[0].as_str(), nodes[1].as_str(), nodes[2].as_str());
        let look = || self.without_the_api(onlooker, &pods);
        let (before, ages) = look().unwrap();
        assert!(ages.iter().all(|age| *age < YOUNG), "the list is old before the outage: {ages:?}");

        let api = ApiAway::start(&self.cluster);
        let began = Instant::now();
        let cut = Cut::between(&self.cluster, &pods[a].addresses, b);
        let both_ways = 2 * pods[a].addresses.len();
        let broken = |way: &Way| [(a, b), (b, a)].contains(&(way.source.as_str(), way.peer.as_str()));
        until("the cut, seen from both its ends", PROBES, || {
            let into = growth(&before, &look()?.0, broken)?;
            if into.len() == both_ways && into.values().all(|link| link.lost >= 10.0) {
                Ok(())
            } else {
                Err(format!("{into:?}"))
            }
        });
        until("two minutes without an API server", AWAY + PROBES, || {
            let left = AWAY.saturating_sub(began.elapsed());
            if left.is_zero() { Ok(()) } else { Err(format!("{left:?} to go")) }
        });
        let (during, ages) = look().unwrap();
        let least = AWAY.as_secs_f64() - 1.0;
        assert!(ages.iter().all(|age| *age >= least), "the list's age does not tell of the outage: {ages:?}");
        assert!(before.keys().eq(during.keys()), "peers came or went: {:?}, then {:?}", before.keys(), during.keys());
        drop(cut);
        drop(api);
        let stale = until("the nodes' leases, of before the outage", PODS, || self.leases());

        let after = until("the list is young again", BACK, || {
            let (after, ages) = look()?;
            if ages.iter().all(|age| *age < YOUNG) { Ok(after) } else { Err(format!("{ages:?}")) }
        });
        for links in [&during, &after] {
            let elsewhere = growth(&before, links, |way| !broken(way)).unwrap();
            assert!(
                elsewhere.values().all(|link| link.lost_for_good() == 0.0),
                "loss where nothing was cut: {elsewhere:?}"
            );
            assert!(elsewhere.values().all(|link| link.received >= 100.0), "not probed on: {elsewhere:?}");
        }
        self.recovers(&pods);

        // The kubelets come back in their own time, and Kubernetes may give up one that is late: the next step needs them all.
        until("every node's lease renewed", NODE, || {
            let leases = self.leases()?;
            let late: Vec<_> = stale.iter().filter(|(node, renewed)| leases.get(*node) == Some(*renewed)).collect();
            if late.is_empty() { Ok(()) } else { Err(format!("{late:?}")) }
        });
        until("a Ready canary on every node", PODS, || all_ready(&self.cluster, &self.zones));
    }

    /// When each node last said that it is alive.
    fn leases(&self) -> Result<BTreeMap<String, String>, String> {
        let renewed = "jsonpath={.spec.renewTime}";
        let lease = |node: &String| {
            let args = ["get", "lease", node, "--namespace", "kube-node-lease", "-o", renewed];
            Ok((node.clone(), self.cluster.kubectl(&args)?))
        };
        self.zones.keys().map(lease).collect()
    }

    /// All links, and the ages of the lists.
    fn without_the_api(&self, onlooker: &str, pods: &BTreeMap<String, Pod>) -> Result<(Links, Vec<f64>), String> {
        let (mut links, mut ages) = (Links::new(), Vec::new());
        for (node, pod) in pods {
            let metrics = canaries::get_from(&self.cluster, onlooker, pod, "/metrics")?;
            links.extend(canaries::links_of(node, &metrics, &self.zones)?);
            ages.push(canaries::gauge(&metrics, "peer_list_age_seconds")?);
        }
        Ok((links, ages))
    }
}
