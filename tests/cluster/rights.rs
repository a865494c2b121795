//! What the API server lets an account do, beyond what every account may do.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE};

/// The namespaces in which accounts are compared: their own, that of Events over nodes, and one in
/// which they have no right.
pub const NAMESPACES: [&str; 3] = [NAMESPACE, "default", "kube-system"];

/// Returns what an account may do in a namespace and any other account may not: `GROUP/RESOURCE
/// VERB`, with the names of the objects behind it if it is restricted to some.
pub fn rights(cluster: &Cluster, account: &str, namespace: &str) -> BTreeSet<String> {
    let of_all = all_rights(cluster, "default", namespace);
    all_rights(cluster, account, namespace).difference(&of_all).cloned().collect()
}

fn all_rights(cluster: &Cluster, account: &str, namespace: &str) -> BTreeSet<String> {
    let account = format!("--as=system:serviceaccount:{NAMESPACE}:{account}");
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}});
    // Validation would ask as this account for the types that there are.
    let create = ["create", "--validate=false", "--filename", "-", "--output", "json", &account];
    let answer = cluster.kubectl_with_input(&create, &review.to_string()).unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        let list = rule[key].as_array().into_iter().flatten();
        list.map(|text| text.as_str().expect("a text").to_owned()).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in answer["status"]["resourceRules"].as_array().expect("rules") {
        let names = texts(rule, "resourceNames").iter().fold(String::new(), |all, name| all + " " + name);
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                rights.extend(texts(rule, "verbs").iter().map(|verb| format!("{group}/{resource} {verb}{names}")));
            }
        }
    }
    for rule in answer["status"]["nonResourceRules"].as_array().into_iter().flatten() {
        for url in texts(rule, "nonResourceURLs") {
            rights.extend(texts(rule, "verbs").iter().map(|verb| format!("{url} {verb}")));
        }
    }
    assert!(!rights.is_empty(), "every account may ask what it may do");
    rights
}
