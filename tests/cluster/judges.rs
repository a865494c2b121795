//! The judges of the mesh, and what they say: verdicts that hold, and those that are past.

use std::collections::{BTreeMap, BTreeSet};

use kube_canary::mesh::JUDGES;
use kube_canary::report::JUDGE_PATH;
use serde_json::Value;

use crate::Test;
use crate::agents::{self, Pod};
use crate::cluster::Cluster;
use crate::wait::until;

/// Kinds of verdicts over an agent and not over the network. A busy machine starves agents. That
/// an agent is suspect as a judge is no such kind here: no machine makes a judge report what the
/// others do not find.
const OF_AGENTS: [&str; 2] = ["agent_starved", "agent_unreachable"];

/// Times of one verdict may differ this much between answers: judges give them in whole seconds, as
/// ages, and each reader adds them to its own clock.
const ROUNDED_SECONDS: u64 = 5;

/// The verdicts over the network that hold, as the agent in `pod` answers a reader.
///
/// # Errors
/// If it does not answer.
pub fn verdicts(cluster: &Cluster, pod: &Pod) -> Result<Vec<Value>, String> {
    Ok(of_the_network(&agents::json(cluster, pod, "/api/v1/verdicts")?))
}

/// The verdicts of a document that are over the network.
pub fn of_the_network(document: &Value) -> Vec<Value> {
    let verdicts = document["verdicts"].as_array().unwrap_or_else(|| panic!("no verdicts: {document}"));
    let is_of_agent = |verdict: &&Value| OF_AGENTS.iter().any(|kind| verdict["kind"] == *kind);
    verdicts.iter().filter(|verdict| !is_of_agent(verdict)).cloned().collect()
}

/// The judges that a document names, in the order of their ranks.
fn named(document: &Value) -> Vec<String> {
    let judges = document["judges"].as_array().into_iter().flatten();
    judges.map(|judge| judge["node"].as_str().unwrap_or_default().to_owned()).collect()
}

impl Test {
    /// How many agents judge: all if there are fewer than three.
    pub(crate) fn judges_expected(&self) -> usize {
        JUDGES.min(self.zones.len())
    }

    /// The judges, the best-ranked first.
    ///
    /// # Errors
    /// If there are not three of one protocol, or as many as there are nodes if there are fewer. If
    /// an agent does not know them, or knows no judgement of all nodes.
    pub(crate) fn judges(&self, pods: &BTreeMap<String, Pod>) -> Result<Vec<String>, String> {
        let (mut judges, mut protocols) = (BTreeSet::new(), BTreeSet::new());
        for (node, pod) in pods {
            if agents::single(&agents::get(&self.cluster, pod, "/metrics")?, "judge")? > 0.0 {
                judges.insert(node.clone());
            }
            protocols.insert(agents::json(&self.cluster, pod, JUDGE_PATH)?["protocol"].to_string());
        }
        let mut by_rank = Vec::new();
        for pod in pods.values() {
            let document = agents::json(&self.cluster, pod, "/api/v1/verdicts")?;
            by_rank = named(&document);
            let is_whole = document["nodes"] == self.zones.len() && document["missing"] == Value::Array(Vec::new());
            if !is_whole || by_rank.iter().collect::<BTreeSet<_>>() != judges.iter().collect() {
                return Err(format!("{judges:?} judge, and {} says: {document}", pod.name));
            }
        }
        if judges.len() == self.judges_expected() && protocols.len() == 1 {
            Ok(by_rank)
        } else {
            Err(format!("{by_rank:?} judge, by protocols {protocols:?}"))
        }
    }

    /// Waits until no agent knows of a verdict over the network, and returns the past, of which all
    /// agents say the same when all judges have answered them.
    pub(crate) fn past(&self, pods: &BTreeMap<String, Pod>) -> Vec<Value> {
        until("no verdict over the network, and the same past at every agent", || {
            let mut pasts = Vec::new();
            for pod in pods.values() {
                let holding = verdicts(&self.cluster, pod)?;
                if !holding.is_empty() {
                    return Err(format!("{}: {holding:?}", pod.name));
                }
                let history = agents::json(&self.cluster, pod, "/api/v1/history")?;
                if named(&history).len() < self.judges_expected() {
                    return Err(format!("{}: {history}", pod.name));
                }
                pasts.push(of_the_network(&history));
            }
            let first = pasts.pop().expect("there are agents");
            let is_same =
                |past: &Vec<Value>| first_not_in(past, &first).or_else(|| first_not_in(&first, past)).is_none();
            if pasts.iter().all(is_same) { Ok(first) } else { Err(format!("{first:?}, {pasts:?}")) }
        })
    }
}

/// Whether both are the same verdict: of the same id, with the same beginning.
fn is_same(a: &Value, b: &Value) -> bool {
    let begin = |verdict: &Value| verdict["since_unix_seconds"].as_u64().unwrap_or(0);
    a["id"] == b["id"] && begin(a).abs_diff(begin(b)) <= ROUNDED_SECONDS
}

/// The first verdict of one past that the other past does not have.
pub fn first_not_in<'a>(past: &'a [Value], other: &[Value]) -> Option<&'a Value> {
    past.iter().find(|verdict| !other.iter().any(|it| is_same(it, verdict)))
}
