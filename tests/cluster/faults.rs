//! Faults, each undone when its guard is dropped, also by a failing test: the cluster may be somebody's own.

use crate::cluster::Cluster;

/// Loss on the way into one pod: silent to those who send.
pub struct IngressLoss<'a> {
    cluster: &'a Cluster,
    pod: String,
}

impl<'a> IngressLoss<'a> {
    /// Drops `percent` of the echo requests that arrive on the pod's eth0, at random, and nothing else.
    pub fn of_requests(cluster: &'a Cluster, pod: &str, percent: u8) -> Self {
        Self::start(cluster, pod, percent, "icmp type echo-request")
    }

    /// Drops `percent` of all that arrives there: replies and TCP, too.
    pub fn of_everything(cluster: &'a Cluster, pod: &str, percent: u8) -> Self {
        Self::start(cluster, pod, percent, "")
    }

    fn start(cluster: &'a Cluster, pod: &str, percent: u8, what: &str) -> Self {
        let hook = "type filter hook ingress device \"eth0\" priority 0;";
        let rule = format!("{what} numgen random mod 100 < {percent} counter drop;");
        let table = format!("table netdev kube_canary_test {{ chain loss {{ {hook} {rule} }}; }}");
        cluster.in_pod(pod, &["nft", &table]).unwrap();
        Self { cluster, pod: pod.to_owned() }
    }
}

impl Drop for IngressLoss<'_> {
    fn drop(&mut self) {
        report(self.cluster.in_pod(&self.pod, &["nft", "delete", "table", "netdev", "kube_canary_test"]));
    }
}

/// A node whose link is down. Linux forgets the routes of a link that goes down, so they are noted first and put back.
pub struct LinkDown<'a> {
    cluster: &'a Cluster,
    node: String,
    routes: Vec<String>,
}

impl<'a> LinkDown<'a> {
    /// Takes the node's eth0 down.
    pub fn start(cluster: &'a Cluster, node: &str) -> Self {
        let routes = cluster.on_node(node, &["ip", "route", "show", "dev", "eth0"]).unwrap();
        cluster.on_node(node, &["ip", "link", "set", "eth0", "down"]).unwrap();
        // The route to the link's own network comes back with the link.
        let routes = routes.lines().filter(|route| route.contains("via")).map(str::to_owned).collect();
        Self { cluster, node: node.to_owned(), routes }
    }
}

impl Drop for LinkDown<'_> {
    fn drop(&mut self) {
        report(self.cluster.on_node(&self.node, &["ip", "link", "set", "eth0", "up"]));
        for route in &self.routes {
            let words: Vec<_> = ["ip", "route", "replace"].into_iter().chain(route.split_whitespace()).collect();
            report(self.cluster.on_node(&self.node, &[&words[..], &["dev", "eth0"]].concat()));
        }
    }
}

/// One pod's packets no longer arrive at one node, so that of all links only those between the two are cut, both ways.
pub struct Cut<'a> {
    cluster: &'a Cluster,
    node: String,
}

impl<'a> Cut<'a> {
    /// Drops what arrives from `address` on the node's eth0.
    pub fn between(cluster: &'a Cluster, address: &str, node: &str) -> Self {
        let hook = "type filter hook ingress device \"eth0\" priority 0;";
        let table =
            format!("table netdev kube_canary_cut {{ chain cut {{ {hook} ip saddr {address} counter drop; }}; }}");
        cluster.on_node(node, &["nft", &table]).unwrap();
        Self { cluster, node: node.to_owned() }
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        report(self.cluster.on_node(&self.node, &["nft", "delete", "table", "netdev", "kube_canary_cut"]));
    }
}

/// The API server is away.
pub struct ApiAway<'a>(&'a Cluster);

impl<'a> ApiAway<'a> {
    /// Kills it.
    pub fn start(cluster: &'a Cluster) -> Self {
        cluster.stop_api().unwrap();
        Self(cluster)
    }
}

impl Drop for ApiAway<'_> {
    fn drop(&mut self) {
        report(self.0.start_api());
    }
}

/// A node on which nothing new is to run.
pub struct Cordon<'a> {
    cluster: &'a Cluster,
    node: String,
}

impl<'a> Cordon<'a> {
    /// Cordons it.
    pub fn start(cluster: &'a Cluster, node: &str) -> Self {
        cluster.kubectl(&["cordon", node]).unwrap();
        Self { cluster, node: node.to_owned() }
    }
}

impl Drop for Cordon<'_> {
    fn drop(&mut self) {
        report(self.cluster.kubectl(&["uncordon", &self.node]));
    }
}

/// A node whose object was deleted from the API; what it was is put back.
pub struct NodeRemoved<'a> {
    cluster: &'a Cluster,
    object: String,
}

impl<'a> NodeRemoved<'a> {
    /// Deletes it.
    pub fn start(cluster: &'a Cluster, node: &str) -> Self {
        let found = cluster.json(&["get", "node", node]).unwrap();
        let (meta, spec) = (&found["metadata"], &found["spec"]);
        // Without the taints: they are the node controller's, who sets those that are due.
        let spec = serde_json::json!({"podCIDR": spec["podCIDR"], "podCIDRs": spec["podCIDRs"], "providerID": spec["providerID"]});
        let meta =
            serde_json::json!({"name": meta["name"], "labels": meta["labels"], "annotations": meta["annotations"]});
        let object =
            serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}).to_string();
        cluster.kubectl(&["delete", "node", node, "--wait=false"]).unwrap();
        Self { cluster, object }
    }
}

impl Drop for NodeRemoved<'_> {
    fn drop(&mut self) {
        let created = self.cluster.kubectl_with_input(&["create", "--filename", "-"], &self.object);
        report(created.and_then(|output| {
            let is_done = output.status.success();
            is_done.then(String::new).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
        }));
    }
}

/// A fault that cannot be undone must not hide the failure that is being unwound: it is printed, and what follows fails.
fn report(undone: Result<String, String>) {
    if let Err(error) = undone {
        eprintln!("a fault could not be undone: {error}");
    }
}
