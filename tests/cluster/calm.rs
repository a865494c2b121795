//! Weekly work of operators must not look like a bad network: a rolling update, a drain.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Test;
use crate::agents::{self, Link, Links, Pod, all_ready};
use crate::faults::Cordon;
use crate::wait::until;

/// The time after an event: longer than a peer that has left the list is still probed, and longer
/// than any answer can take.
const AFTERWARDS: Duration = Duration::from_secs(20);

/// The last scrape of every agent that there was. An agent's counters end with it, so only
/// continuous polling sees all that it counted.
#[derive(Default)]
struct Witness {
    first: BTreeMap<String, Links>,
    last: BTreeMap<String, Links>,
}

impl Witness {
    /// Scrapes all agents. An agent that is just stopping need not answer.
    /// Returns how many answered.
    fn look(&mut self, test: &Test) -> Result<usize, String> {
        let pods = agents::every_pod(&test.cluster)?;
        let mut answered = 0;
        for (node, pod) in &pods {
            let Ok(pages) = agents::read(|path| agents::get(&test.cluster, pod, path)) else { continue };
            let links = agents::links_of(node, &pages, &test.zones)?;
            answered += 1;
            // An agent that was not there before has lost whatever it counts.
            self.first.entry(pod.name.clone()).or_default();
            self.last.insert(pod.name.clone(), links);
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
        let before = self.pods();
        let mut witness = Witness::default();
        witness.begin(self);
        self.cluster.kubectl(&["rollout", "restart", "daemonset/kube-canary"]).unwrap();
        let after = until("every agent is a new one", || {
            witness.look(self)?;
            let now = all_ready(&self.cluster, &self.zones)?;
            let old = |(node, pod): (&String, &Pod)| before[node].name == pod.name;
            if now.iter().any(old) { Err(format!("{now:?}")) } else { Ok(now) }
        });
        self.watch_on(&mut witness);
        assert!(witness.terminating() > 0.0, "no probe went to a terminating peer: nothing was tried");
        assert_eq!(witness.losses(), Vec::<String>::new(), "a rolling update is no loss");
        self.recovers(&after);
    }

    pub(crate) fn a_drain_loses_nothing(&self) {
        let node = self.zones.keys().nth(1).expect("there are three nodes").clone();
        let before = self.pods();
        let mut witness = Witness::default();
        witness.begin(self);
        let cordon = Cordon::start(&self.cluster, &node);
        self.cluster
            .kubectl(&["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=10m"])
            .unwrap();
        witness.look(self).unwrap();
        assert_eq!(self.pods()[&node].name, before[&node].name, "a drain leaves what belongs to a DaemonSet");
        // Emptying a node by evicting all its pods evicts the agent, too. It comes back,
        // because it tolerates the taint.
        let pod = &before[&node].name;
        let eviction = serde_json::json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", crate::cluster::NAMESPACE);
        let asked =
            self.cluster.kubectl_with_input(&["create", "--raw", &path, "--filename", "-"], &eviction.to_string());
        let asked = asked.unwrap();
        assert!(asked.status.success(), "the eviction: {}", String::from_utf8_lossy(&asked.stderr));
        let after = until("a new agent on the drained node", || {
            witness.look(self)?;
            let now = all_ready(&self.cluster, &self.zones)?;
            if now[&node].name == *pod { Err(format!("still {pod}")) } else { Ok(now) }
        });
        self.watch_on(&mut witness);
        drop(cordon);
        assert!(witness.terminating() > 0.0, "no probe went to a terminating peer: nothing was tried");
        assert_eq!(witness.losses(), Vec::<String>::new(), "a drain is no loss");
        self.recovers(&after);
    }

    /// Goes on polling, to see losses that are counted late.
    fn watch_on(&self, witness: &mut Witness) {
        let end = Instant::now() + AFTERWARDS;
        until("what comes late", || {
            let answered = witness.look(self)?;
            if Instant::now() > end && answered == self.zones.len() {
                Ok(())
            } else {
                Err(format!("{answered} agents"))
            }
        });
    }
}
