//! Weekly work of operators must not look like a bad network: a rolling update, an upgrade, a
//! drain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::agents::{self, Link, Links, Pod, all_ready};
use crate::faults::Cordon;
use crate::image::Earlier;
use crate::judges::{self, first_not_in};
use crate::wait::until;
use crate::{MANIFEST, Test};

/// The time after an event: longer than a peer that has left the list is still probed, and longer
/// than any answer can take.
const AFTERWARDS: Duration = Duration::from_secs(20);

/// The last scrape of every agent that there was. An agent's counters end with it, so only
/// continuous polling sees all that it counted.
#[derive(Default)]
struct Witness {
    first: BTreeMap<String, Links>,
    last: BTreeMap<String, Links>,
    /// The pods of an earlier build, by name. Its verdicts are not under test.
    earlier: BTreeSet<String>,
}

impl Witness {
    /// Scrapes all agents, and asserts that none knows of a verdict over the network. An agent that
    /// is just stopping need not answer. Returns how many answered.
    fn look(&mut self, test: &Test) -> Result<usize, String> {
        let pods = agents::every_pod(&test.cluster)?;
        let mut answered = 0;
        for (node, pod) in &pods {
            let Ok(pages) = agents::read(|path| agents::get(&test.cluster, pod, path)) else { continue };
            let links = agents::links_of(node, &pages, &test.zones)?;
            // An agent that was not there before has lost whatever it counts.
            self.first.entry(pod.name.clone()).or_default();
            self.last.insert(pod.name.clone(), links);
            if !self.earlier.contains(&pod.name) {
                let Ok(verdicts) = judges::verdicts(&test.cluster, pod) else { continue };
                assert!(verdicts.is_empty(), "a verdict over the network, as {} says: {verdicts:?}", pod.name);
            }
            answered += 1;
        }
        Ok(answered)
    }

    /// Begins the count for the agents that are there now.
    fn begin(&mut self, test: &Test) {
        let answered = self.look(test).unwrap();
        assert_eq!(answered, test.zones.len(), "every agent answers before it begins");
        self.first = self.last.clone();
    }

    /// The agents that report losses, and how many.
    fn losses(&self) -> Vec<String> {
        let mut losses = Vec::new();
        for (pod, links) in &self.last {
            for (link, counted) in links {
                let before = self.first[pod].get(link).map_or(0.0, Link::lost_for_good);
                let lost = counted.lost_for_good() - before;
                if lost > 0.0 {
                    losses.push(format!("{pod} {link:?}: {lost} lost: {counted:?}"));
                }
            }
        }
        losses
    }

    fn terminating(&self) -> f64 {
        let of = |links: &BTreeMap<String, Links>| {
            links.values().flat_map(Links::values).map(|l| l.terminating).sum::<f64>()
        };
        of(&self.last) - of(&self.first)
    }
}

impl Test {
    pub(crate) fn a_rolling_update_loses_nothing(&self) {
        self.replaces_all(Witness::default(), "a rolling update is no loss", || {
            self.cluster.kubectl(&["rollout", "restart", "daemonset/kube-canary"]).unwrap();
        });
    }

    pub(crate) fn an_upgrade_loses_nothing(&self, earlier: &Earlier) {
        let foreground = ["delete", "daemonset/kube-canary", "--cascade=foreground"];
        self.cluster.kubectl(&foreground).unwrap();
        self.apply(&earlier.manifest, &earlier.image.name);
        let before = until("an earlier agent on every node", || all_ready(&self.cluster, &self.zones));
        self.recovers(&before);
        let earlier = before.into_values().map(|pod| pod.name).collect();
        let witness = Witness { earlier, ..Witness::default() };
        self.replaces_all(witness, "a rolling upgrade is no loss", || self.apply(MANIFEST, &self.image));
    }

    /// Watches a rollout that replaces every agent.
    fn replaces_all(&self, mut witness: Witness, no_loss: &str, rollout: impl FnOnce()) {
        let before = self.pods();
        witness.begin(self);
        rollout();
        let after = self.until_all_are_new(&before, || witness.look(self).map(drop));
        until("three judges", || {
            witness.look(self)?;
            self.judges(&after)
        });
        self.ends_calmly(&mut witness, &after, no_loss);
        let past = self.past(&after);
        assert!(past.is_empty(), "the judges have found something on the way: {past:?}");
    }

    pub(crate) fn a_drain_loses_nothing(&self) {
        self.drains_a_judge(&self.past(&self.pods()));
    }

    pub(crate) fn a_drain_keeps_the_past(&self) {
        let past = self.past(&self.pods());
        let victim = self.zones.keys().next_back().expect("there are nodes");
        let is_of_fault = |verdict: &Value| {
            verdict["kind"] == "node"
                && verdict["subject"] == victim.as_str()
                && verdict["judges"] == self.judges_expected()
        };
        assert!(past.iter().any(is_of_fault), "not all judges have kept {victim}'s loss: {past:?}");
        self.drains_a_judge(&past);
    }

    /// Drains the node of a judge, and evicts that judge. Nothing may be lost, the same agents must
    /// judge again, and their past must be the same.
    fn drains_a_judge(&self, past: &[Value]) {
        let before = self.pods();
        let judges = until("three judges", || self.judges(&before));
        let node = &judges[0];
        let mut witness = Witness::default();
        witness.begin(self);
        let cordon = Cordon::start(&self.cluster, node);
        self.cluster
            .kubectl(&["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=10m"])
            .unwrap();
        witness.look(self).unwrap();
        assert_eq!(self.pods()[node].name, before[node].name, "a drain leaves what belongs to a DaemonSet");
        // Emptying a node by evicting all its pods evicts the agent, too. It comes back,
        // because it tolerates the taint.
        let pod = &before[node].name;
        let eviction = serde_json::json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", crate::cluster::NAMESPACE);
        let asked =
            self.cluster.kubectl_with_input(&["create", "--raw", &path, "--filename", "-"], &eviction.to_string());
        let asked = asked.unwrap();
        assert!(asked.status.success(), "the eviction: {}", String::from_utf8_lossy(&asked.stderr));
        let after = until("a new agent on the drained node", || {
            witness.look(self)?;
            let now = all_ready(&self.cluster, &self.zones)?;
            if now[node].name == *pod { Err(format!("still {pod}")) } else { Ok(now) }
        });
        // The rank belongs to the node, so the new agent takes the old one's place. An agent that
        // began to judge while it was away stops.
        until("the same judges", || {
            witness.look(self)?;
            let now = self.judges(&after)?;
            if now == judges { Ok(()) } else { Err(format!("{now:?} instead of {judges:?}")) }
        });
        self.ends_calmly(&mut witness, &after, "a drain is no loss");
        drop(cordon);
        let now = self.past(&after);
        assert_eq!(first_not_in(&now, past), None, "the judges have found something");
        // What one of the judges has never found may end with a judge that has.
        let of_all: Vec<Value> =
            past.iter().filter(|verdict| verdict["judges"] == self.judges_expected()).cloned().collect();
        assert_eq!(first_not_in(&of_all, &now), None, "the past is not kept: {now:?}");
    }

    /// Goes on polling, to see losses that are counted late. Asserts that there are none.
    fn ends_calmly(&self, witness: &mut Witness, pods: &BTreeMap<String, Pod>, no_loss: &str) {
        let end = Instant::now() + AFTERWARDS;
        until("what comes late", || {
            let answered = witness.look(self)?;
            if Instant::now() > end && answered == self.zones.len() {
                Ok(())
            } else {
                Err(format!("{answered} agents"))
            }
        });
        assert!(witness.terminating() > 0.0, "no probe went to a terminating peer: nothing was tried");
        assert_eq!(witness.losses(), Vec::<String>::new(), "{no_loss}");
        self.recovers(pods);
    }
}
