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

/// A fault that cannot be undone must not hide the failure that is being unwound: it is printed, and what follows fails.
fn report(undone: Result<String, String>) {
    if let Err(error) = undone {
        eprintln!("a fault could not be undone: {error}");
    }
}
