//! The objects of the API that are written, as JSON. No I/O, no clock.

use serde::Deserialize;
use serde_json::{Value, json};

use super::conditions::{ConditionChange, ConditionStatus, NodeFacts, condition_reason};
use super::lease::{DURATION, MEMORY};
use super::notices::{EventNote, Regarding};
use crate::commands::doctor::act::CONDITION;
use crate::sys::clock;
use crate::units::Nanos;

/// The field manager of all that is written.
pub const MANAGER: &str = "kube-canary-act";
/// Bytes of the sentence of a condition.
const MESSAGE_BYTES_MAX: usize = 512;
/// The taints of nodes that are about to be restarted or removed: of the cloud, of the cluster
/// autoscaler, of Karpenter, and of the cluster's operator.
const PLANNED: [&str; 6] = [
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
    "node.kubernetes.io/unschedulable",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "UpdateInProgress",
];

/// Reads what matters of a Node.
///
/// # Errors
/// It is not one.
pub fn node_facts(body: &[u8]) -> Result<NodeFacts, serde_json::Error> {
    #[derive(Deserialize)]
    struct Node {
        #[serde(default)]
        spec: Spec,
        #[serde(default)]
        status: NodeStatus,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Spec {
        unschedulable: bool,
        taints: Vec<Taint>,
    }
    #[derive(Deserialize)]
    struct Taint {
        key: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct NodeStatus {
        conditions: Vec<Condition>,
    }
    #[derive(Deserialize)]
    struct Condition {
        r#type: String,
        status: String,
    }
    let Node { spec, status } = serde_json::from_slice(body)?;
    let is_planned = spec.unschedulable || spec.taints.iter().any(|taint| PLANNED.contains(&&*taint.key));
    let status = status.conditions.iter().find(|condition| condition.r#type == CONDITION);
    let status = status.map(|condition| match condition.status.as_str() {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    });
    Ok(NodeFacts { is_planned, status })
}

/// Returns a time as the API writes it. An Event and a condition have whole seconds.
pub fn whole_seconds(unix_seconds: u64) -> String {
    clock::rfc3339(Nanos(unix_seconds.saturating_mul(1_000_000_000))).replace(".000Z", "Z")
}

/// Returns the configuration to apply to a node's status. Without a change it takes the condition
/// back.
pub fn node_status(node: &str, change: Option<(&ConditionChange, &str)>) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
    let Some((change, now)) = change else { return object };
    let text = match change.status {
        ConditionStatus::Unknown => "Judges are silent, so the state of the network is not known",
        ConditionStatus::True => change.sentence.as_str(),
        ConditionStatus::False => "No verdict over this node holds",
    };
    let reason = condition_reason(change.status, change.reason);
    let text = &text[..text.floor_char_boundary(MESSAGE_BYTES_MAX)];
    // Controllers measure by it how long a node has been bad, whatever the reason is.
    let since = change.since_unix_seconds.map_or_else(|| now.to_owned(), whole_seconds);
    object["status"] = json!({"conditions": [{"type": CONDITION, "status": change.status.label(), "reason": reason,
        "message": text, "lastTransitionTime": since, "lastHeartbeatTime": now}]});
    object
}

/// Returns the Lease to write, over a version if there is one. `place` is its namespace and name.
pub fn lease(
    (namespace, name): (&str, &str),
    holder: &str,
    version: Option<&str>,
    changes: u32,
    memory: &str,
    now: &str,
) -> Value {
    let mut object = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, "annotations": {MEMORY: memory}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": DURATION.as_secs(), "leaseTransitions": changes, "renewTime": now},
    });
    if let Some(version) = version {
        object["metadata"]["resourceVersion"] = version.into();
    }
    object
}

/// Where an Event of a DaemonSet belongs.
#[derive(Clone, Debug)]
pub struct DaemonSetReference<'a> {
    /// The namespace that it is in.
    pub namespace: &'a str,
    /// The name of the DaemonSet.
    pub name: &'a str,
    /// Its UID, by which `kubectl describe` finds its Events.
    pub uid: &'a str,
}

/// Returns the namespace of an Event, and the Event.
pub fn event(note: &EventNote, mesh: &DaemonSetReference<'_>, holder: &str, now: &str) -> (String, Value) {
    let (namespace, about) = match &note.regarding {
        // `kubectl describe node` finds Events by the name of the node in place of its UID, which
        // the kubelet writes as well.
        Regarding::Node(name) => ("default", json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": name})),
        Regarding::Mesh => (
            mesh.namespace,
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "namespace": mesh.namespace, "name": mesh.name, "uid": mesh.uid}),
        ),
    };
    let kind = if note.is_warning { "Warning" } else { "Normal" };
    let object = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": note.name, "namespace": namespace},
        "involvedObject": about, "type": kind, "reason": note.reason, "message": note.text, "count": note.count,
        "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": MANAGER}, "reportingComponent": MANAGER, "reportingInstance": holder,
    });
    (namespace.to_owned(), object)
}

/// Returns the patch of an Event that is there already.
pub fn event_again(note: &EventNote, now: &str) -> Value {
    json!({"count": note.count, "lastTimestamp": now, "message": note.text})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_planned_if_cordoned_or_tainted_for_a_restart() {
        let facts = |spec: &str, conditions: &str| {
            node_facts(format!(r#"{{"spec":{spec},"status":{{"conditions":[{conditions}]}}}}"#).as_bytes()).unwrap()
        };
        assert_eq!(facts("{}", ""), NodeFacts::default());
        assert!(facts(r#"{"unschedulable":true}"#, "").is_planned);
        assert!(facts(r#"{"taints":[{"key":"karpenter.sh/disrupted","effect":"NoSchedule"}]}"#, "").is_planned);
        assert!(!facts(r#"{"taints":[{"key":"readiness.k8s.io/network","effect":"NoSchedule"}]}"#, "").is_planned);
        let ours = r#"{"type":"Ready","status":"True"},{"type":"KubeCanaryNetworkProblem","status":"True"}"#;
        assert_eq!(facts("{}", ours).status, Some(ConditionStatus::True));
    }

    #[test]
    fn a_configuration_without_a_condition_takes_it_back() {
        assert!(node_status("n", None).get("status").is_none());
        let change = |since_unix_seconds| ConditionChange {
            node: "n".into(),
            status: ConditionStatus::False,
            reason: None,
            sentence: String::new(),
            since_unix_seconds,
        };
        let applied = |since| {
            let mut object = node_status("n", Some((&change(since), "2026-01-01T00:00:00Z")));
            object["status"]["conditions"][0].take()
        };
        assert_eq!(applied(None)["reason"], "NoNetworkProblem");
        let times = |since| ["lastTransitionTime", "lastHeartbeatTime"].map(|time| applied(since)[time].clone());
        assert_eq!(times(None), ["2026-01-01T00:00:00Z"; 2]);
        assert_eq!(
            times(Some(946_684_800)),
            ["2000-01-01T00:00:00Z", "2026-01-01T00:00:00Z"],
            "the status is the same"
        );
    }
}
