//! The Node Readiness Controller, which makes taints of conditions.
//!
//! If `KUBE_CANARY_TEST_READINESS` names a directory with its program, `controller`, and its
//! definition of rules, `crd.yaml`, these are used. Otherwise a stand-in follows the same rules
//! with the part of the definition that docs/act.md needs.

use std::path::Path;

use serde_json::{Value, json};

use crate::agents::items;
use crate::cluster::Cluster;
use crate::process::Background;
use crate::wait::until;

const DOCUMENT: &str = include_str!("../../docs/act.md");
const RULES: &str = "nodereadinessrules.readiness.node.x-k8s.io";

/// A controller, and the rule that docs/act.md shows.
pub struct ReadinessController<'a> {
    cluster: &'a Cluster,
    /// `None` if the stand-in acts.
    program: Option<Background>,
}

impl<'a> ReadinessController<'a> {
    /// Defines rules, applies the one of the document, and starts the controller.
    pub fn start(cluster: &'a Cluster) -> Self {
        let given = std::env::var("KUBE_CANARY_TEST_READINESS").ok().filter(|path| !path.is_empty());
        let definition = if let Some(directory) = &given {
            std::fs::read_to_string(Path::new(directory).join("crd.yaml")).unwrap()
        } else {
            eprintln!("NOT TRIED: the Node Readiness Controller itself (set KUBE_CANARY_TEST_READINESS)");
            definition().to_string()
        };
        apply(cluster, &definition);
        until("rules are defined", || {
            cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=1s", "crd", RULES])
        });
        apply(cluster, rule());
        let program = given.map(|directory| {
            let kubeconfig = cluster.verb(&["kubeconfig"]).unwrap();
            let program = format!("{directory}/controller");
            let args = [&program, "--kubeconfig", kubeconfig.trim(), "--health-probe-bind-address", "0"];
            cluster.start_on_node("cp", &args).unwrap()
        });
        Self { cluster, program }
    }

    /// Succeeds if these nodes have the taint of the rule, and no others.
    pub fn require_tainted(&self, expected: &[&str]) -> Result<(), String> {
        let nodes = self.cluster.json(&["get", "nodes"])?;
        let rules = self.cluster.json(&["get", RULES])?;
        let mut tainted = Vec::new();
        for node in items(&nodes) {
            for rule in items(&rules) {
                let taint = &rule["spec"]["taint"];
                let of_rule = |other: &&Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
                let is_tainted = node["spec"]["taints"].as_array().into_iter().flatten().any(|it| of_rule(&it));
                if self.program.is_none() && is_tainted == is_ready(rule, node) {
                    self.change(node, taint, !is_tainted)?;
                }
                if is_tainted {
                    tainted.push(node["metadata"]["name"].as_str().expect("a name"));
                }
            }
        }
        if tainted == expected { Ok(()) } else { Err(format!("tainted: {tainted:?}")) }
    }

    fn change(&self, node: &Value, taint: &Value, is_added: bool) -> Result<String, String> {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let taint = format!("{}:{}{}", text(&taint["key"]), text(&taint["effect"]), if is_added { "" } else { "-" });
        self.cluster.kubectl(&["taint", "node", &text(&node["metadata"]["name"]), &taint])
    }
}

impl Drop for ReadinessController<'_> {
    fn drop(&mut self) {
        // The controller takes its taints back, and its finalizer then lets the rule go.
        let deleted = self.cluster.kubectl(&["delete", RULES, "--all", "--timeout=60s"]);
        if let Err(error) = deleted {
            eprintln!("the rules are left behind: {error}");
        }
    }
}

/// Whether a node has each condition of a rule with the status that it requires. A condition that
/// is missing has the default status.
fn is_ready(rule: &Value, node: &Value) -> bool {
    let conditions = || node["status"]["conditions"].as_array().into_iter().flatten();
    rule["spec"]["conditions"].as_array().expect("conditions").iter().all(|required| {
        let found = conditions().find(|condition| condition["type"] == required["type"]);
        let status = found.map_or(&required["defaultStatus"], |condition| &condition["status"]);
        status.as_str().unwrap_or("Unknown") == required["requiredStatus"]
    })
}

fn apply(cluster: &Cluster, manifest: &str) {
    let applied = cluster.kubectl_with_input(&["apply", "--server-side", "--filename", "-"], manifest).unwrap();
    assert!(applied.status.success(), "kubectl apply: {}", String::from_utf8_lossy(&applied.stderr));
}

/// Returns the rule of the document.
fn rule() -> &'static str {
    let (_, behind) = DOCUMENT.split_once("```yaml\napiVersion: readiness").expect("the document has a rule");
    let end = behind.find("```").expect("the rule ends");
    let start = DOCUMENT.len() - behind.len() - "apiVersion: readiness".len();
    &DOCUMENT[start..start + "apiVersion: readiness".len() + end]
}

/// Returns the part of the controller's own definition that the rule of the document uses.
fn definition() -> Value {
    let text = json!({"type": "string"});
    let status = json!({"type": "string", "enum": ["True", "False", "Unknown"]});
    let condition = json!({"type": "object", "required": ["requiredStatus", "type"],
        "properties": {"type": text, "requiredStatus": status, "defaultStatus": status}});
    let effect = json!({"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]});
    let spec = json!({"type": "object", "required": ["conditions", "enforcementMode", "nodeSelector", "taint"], "properties": {
        "conditions": {"type": "array", "items": condition, "minItems": 1, "maxItems": 32},
        "enforcementMode": {"type": "string", "enum": ["bootstrap-only", "continuous"]},
        "taint": {"type": "object", "required": ["effect", "key"], "properties": {"key": text, "effect": effect}},
        "nodeSelector": {"type": "object", "properties": {"matchLabels": {"type": "object", "additionalProperties": text}}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": RULES}, "spec": {
        "group": "readiness.node.x-k8s.io", "scope": "Cluster",
        "names": {"kind": "NodeReadinessRule", "plural": "nodereadinessrules", "singular": "nodereadinessrule"},
        "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": spec}}}}]}})
}
