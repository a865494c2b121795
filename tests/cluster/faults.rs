//! Faults. Each is undone when its guard is dropped, even if the test fails, because the cluster
//! may not be ours.

use std::fmt::Write as _;

use crate::agents::Pod;
use crate::cluster::Cluster;

/// A chain that sees all packets that arrive on eth0.
const INGRESS: &str = "type filter hook ingress device \"eth0\" priority 0;";

const ECHO_REQUEST: &str = "icmp type echo-request";
const ECHO_REPLY: &str = "icmp type echo-reply";
/// A UDP probe of a peer, and the answer to one of ours.
const UDP_REQUEST: &str = "udp dport 9877";
const UDP_ANSWER: &str = "udp sport 9877";
/// The same of a handshake.
const TCP_REQUEST: &str = "tcp dport 9878";
const TCP_ANSWER: &str = "tcp sport 9878";

/// A protocol that [`IngressLoss::of_all`] drops.
#[derive(Clone, Copy)]
pub enum Dropped {
    Udp,
    Tcp,
}

/// Loss in front of one pod, which the senders do not notice.
///
/// The packets to drop are counted, not random: each stream, of one sender and one kind, loses
/// exactly its share. HTTP passes, because the agents report the loss over it.
pub struct IngressLoss<'a> {
    cluster: &'a Cluster,
    pod: String,
}

impl<'a> IngressLoss<'a> {
    /// Drops every tenth echo request and reply and every tenth UDP request and answer of each of
    /// `senders`, where they arrive on the pod's eth0.
    pub fn of_every_tenth<'p>(cluster: &'a Cluster, pod: &str, senders: impl Iterator<Item = &'p Pod>) -> Self {
        let kinds = [ECHO_REQUEST, ECHO_REPLY, UDP_REQUEST, UDP_ANSWER];
        Self::start(cluster, pod, senders, &kinds, "numgen inc mod 10 < 1")
    }

    /// Drops three of ten packets of our probes, of each kind, in the same place. They are drawn:
    /// three of ten handshakes in a row would be half a minute without any, and then none is lost.
    pub fn of_three_tenths<'p>(cluster: &'a Cluster, pod: &str, senders: impl Iterator<Item = &'p Pod>) -> Self {
        let kinds = [ECHO_REQUEST, ECHO_REPLY, UDP_REQUEST, UDP_ANSWER, TCP_REQUEST, TCP_ANSWER];
        Self::start(cluster, pod, senders, &kinds, "numgen random mod 10 < 3")
    }

    /// Drops two of a hundred packets of our probes, of each kind, that any agent sends, where they
    /// arrive on the eth0 of each.
    pub fn everywhere<'p>(cluster: &'a Cluster, pods: &(impl Iterator<Item = &'p Pod> + Clone)) -> Vec<Self> {
        let kinds = [ECHO_REQUEST, ECHO_REPLY, UDP_REQUEST, UDP_ANSWER, TCP_REQUEST, TCP_ANSWER];
        let at = |pod: &Pod| Self::start(cluster, &pod.name, pods.clone(), &kinds, "numgen random mod 100 < 2");
        pods.clone().map(at).collect()
    }

    /// Drops two of every five echo requests in the same place, and nothing else.
    pub fn of_requests<'p>(cluster: &'a Cluster, pod: &str, senders: impl Iterator<Item = &'p Pod>) -> Self {
        Self::start(cluster, pod, senders, &[ECHO_REQUEST], "numgen inc mod 5 < 2")
    }

    /// Drops all of one protocol of our probes, in the same place.
    pub fn of_all<'p>(
        cluster: &'a Cluster,
        pod: &str,
        senders: impl Iterator<Item = &'p Pod>,
        dropped: Dropped,
    ) -> Self {
        let kinds: &[_] = match dropped {
            Dropped::Udp => &[UDP_REQUEST, UDP_ANSWER],
            Dropped::Tcp => &[TCP_REQUEST, TCP_ANSWER],
        };
        Self::start(cluster, pod, senders, kinds, "")
    }

    /// Drops every fifth packet of our probes, of each kind, that `sender` sends, where it arrives
    /// on the eth0 of each of `receivers`.
    pub fn of_every_fifth_from<'p>(
        cluster: &'a Cluster,
        sender: &Pod,
        receivers: impl Iterator<Item = &'p Pod>,
    ) -> Vec<Self> {
        let kinds = [ECHO_REQUEST, ECHO_REPLY, UDP_REQUEST, UDP_ANSWER, TCP_REQUEST, TCP_ANSWER];
        let at = |pod: &Pod| Self::start(cluster, &pod.name, std::iter::once(sender), &kinds, "numgen inc mod 5 < 1");
        receivers.map(at).collect()
    }

    fn start<'p>(
        cluster: &'a Cluster,
        pod: &str,
        senders: impl Iterator<Item = &'p Pod>,
        kinds: &[&str],
        share: &str,
    ) -> Self {
        let mut rules = String::new();
        for address in senders.flat_map(|sender| &sender.addresses) {
            let (ip, icmp) = if address.contains(':') { ("ip6", "icmpv6") } else { ("ip", "icmp") };
            for kind in kinds {
                let kind = kind.replace("icmp", icmp);
                // Writing to memory cannot fail.
                let _ = write!(rules, "{ip} saddr {address} {kind} {share} counter drop; ");
            }
        }
        let table = format!("table netdev kube_canary_test {{ chain loss {{ {INGRESS} {rules} }}; }}");
        cluster.in_pod(pod, &["nft", &table]).unwrap();
        Self { cluster, pod: pod.to_owned() }
    }
}

impl Drop for IngressLoss<'_> {
    fn drop(&mut self) {
        report(self.cluster.in_pod(&self.pod, &["nft", "delete", "table", "netdev", "kube_canary_test"]));
    }
}

/// A node whose link is down. Linux forgets the routes of a link that goes down, so this records
/// them first and restores them.
pub struct LinkDown<'a> {
    cluster: &'a Cluster,
    node: String,
    routes: [(&'static str, Vec<String>); 2],
}

impl<'a> LinkDown<'a> {
    /// Takes the node's eth0 down.
    pub fn start(cluster: &'a Cluster, node: &str) -> Self {
        let routes = ["-4", "-6"].map(|family| {
            let routes = cluster.on_node(node, &["ip", family, "route", "show", "dev", "eth0"]).unwrap();
            // The route to the link's own network comes back with the link.
            (family, routes.lines().filter(|route| route.contains("via")).map(str::to_owned).collect())
        });
        // Otherwise IPv6 addresses are removed as well. Without IPv6 there is no such setting.
        let _ = cluster.on_node(node, &["sysctl", "-qw", "net.ipv6.conf.eth0.keep_addr_on_down=1"]);
        cluster.on_node(node, &["ip", "link", "set", "eth0", "down"]).unwrap();
        Self { cluster, node: node.to_owned(), routes }
    }
}

impl Drop for LinkDown<'_> {
    fn drop(&mut self) {
        report(self.cluster.on_node(&self.node, &["ip", "link", "set", "eth0", "up"]));
        for (family, routes) in &self.routes {
            for route in routes {
                let words: Vec<_> = route.split_whitespace().collect();
                let replace = [&["ip", family, "route", "replace"], &words[..], &["dev", "eth0"]].concat();
                report(self.cluster.on_node(&self.node, &replace));
            }
        }
    }
}

/// Some pods' packets no longer arrive at one node. So only the links between these are cut, in
/// both directions.
pub struct Cut<'a> {
    cluster: &'a Cluster,
    node: String,
}

impl<'a> Cut<'a> {
    /// Drops what arrives from `addresses` on the node's eth0.
    pub fn between(cluster: &'a Cluster, addresses: &[String], node: &str) -> Self {
        let rule = |address: &String| {
            format!("{} saddr {address} counter drop;", if address.contains(':') { "ip6" } else { "ip" })
        };
        let rules: String = addresses.iter().map(rule).collect();
        let table = format!("table netdev kube_canary_cut {{ chain cut {{ {INGRESS} {rules} }}; }}");
        cluster.on_node(node, &["nft", &table]).unwrap();
        Self { cluster, node: node.to_owned() }
    }

    /// Cuts all links between these pods and the other nodes `outside`, by the same rule on each of
    /// these nodes.
    pub fn around(cluster: &'a Cluster, pods: &[&Pod], outside: &[&String]) -> Vec<Self> {
        let addresses: Vec<String> = pods.iter().flat_map(|pod| pod.addresses.clone()).collect();
        outside.iter().map(|node| Self::between(cluster, &addresses, node)).collect()
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        report(self.cluster.on_node(&self.node, &["nft", "delete", "table", "netdev", "kube_canary_cut"]));
    }
}

/// Guard of an API server that is stopped.
pub struct ApiAway<'a>(&'a Cluster);

impl<'a> ApiAway<'a> {
    /// Kills the API server's process.
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

/// A node on which no new pod is scheduled.
pub struct Cordon<'a> {
    cluster: &'a Cluster,
    node: String,
}

impl<'a> Cordon<'a> {
    /// Cordons the node `node`.
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

/// A node whose object was deleted from the API. Drop restores the object.
pub struct NodeRemoved<'a> {
    cluster: &'a Cluster,
    object: String,
}

impl<'a> NodeRemoved<'a> {
    /// Deletes the node's object.
    pub fn start(cluster: &'a Cluster, node: &str) -> Self {
        let found = cluster.json(&["get", "node", node]).unwrap();
        let (meta, spec) = (&found["metadata"], &found["spec"]);
        // The taints are left out: the node controller sets those that apply.
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

/// A verb of the cluster's command, which undoes a fault.
pub struct Undo<'a> {
    cluster: &'a Cluster,
    verb: Vec<String>,
}

impl<'a> Undo<'a> {
    /// Takes the verb with its arguments.
    pub fn new(cluster: &'a Cluster, verb: &[&str]) -> Self {
        Self { cluster, verb: verb.iter().map(|word| (*word).to_owned()).collect() }
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        let verb: Vec<&str> = self.verb.iter().map(String::as_str).collect();
        report(self.cluster.verb(&verb));
    }
}

/// The addresses of the Services of the cluster that the tests make.
const SERVICES: &str = "10.96.0.0/16";

/// Rules of nftables at a node, by which packets do not pass, or have another address.
pub struct NodeRules<'a> {
    cluster: &'a Cluster,
    node: String,
    /// The family of its table.
    family: &'static str,
}

impl<'a> NodeRules<'a> {
    /// Drops what arrives on the node's eth0 from port 53, by UDP and by TCP.
    pub fn of_dns(cluster: &'a Cluster, node: &str) -> Self {
        Self::on_ingress(cluster, node, "udp sport 53 counter drop; tcp sport 53 counter drop;")
    }

    /// Drops what arrives on the node's eth0 from this address and TCP port.
    pub fn from_port(cluster: &'a Cluster, node: &str, address: &str, port: &str) -> Self {
        Self::on_ingress(cluster, node, &format!("ip saddr {address} tcp sport {port} counter drop;"))
    }

    /// Drops what the node's pods send to a Service by UDP and this port, before kube-proxy's rules
    /// translate it.
    pub fn of_service_udp(cluster: &'a Cluster, node: &str, port: &str) -> Self {
        let rules = format!("type filter hook prerouting priority raw; udp dport {port} counter drop;");
        Self::start(cluster, node, ("ip", &rules))
    }

    /// Gives what the node's pods send to Services the address of the node, as some networks do.
    pub fn rewritten(cluster: &'a Cluster, node: &str) -> Self {
        let rules = format!("type nat hook postrouting priority 90; ct original ip daddr {SERVICES} masquerade;");
        Self::start(cluster, node, ("ip", &rules))
    }

    fn on_ingress(cluster: &'a Cluster, node: &str, rules: &str) -> Self {
        Self::start(cluster, node, ("netdev", &format!("{INGRESS} {rules}")))
    }

    fn start(cluster: &'a Cluster, node: &str, (family, rules): (&'static str, &str)) -> Self {
        let table = format!("table {family} kube_canary_rules {{ chain rules {{ {rules} }}; }}");
        cluster.on_node(node, &["nft", &table]).unwrap();
        Self { cluster, node: node.to_owned(), family }
    }
}

impl Drop for NodeRules<'_> {
    fn drop(&mut self) {
        report(self.cluster.on_node(&self.node, &["nft", "delete", "table", self.family, "kube_canary_rules"]));
    }
}

/// Reports a fault that cannot be undone. It is printed and does not panic, so as not to hide the
/// failure of the test. Later steps fail.
fn report(undone: Result<String, String>) {
    if let Err(error) = undone {
        eprintln!("a fault could not be undone: {error}");
    }
}
