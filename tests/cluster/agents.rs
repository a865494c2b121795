//! The agents and their reports: their pods by node, and the counters of every link from their
//! `/metrics`. All is read through the API server's pod proxy, which any cluster has.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cluster::{Cluster, NAMESPACE};
use crate::exposition;

/// The nodes as Kubernetes names them, with their zones. The labels of peer series must agree.
pub type Zones = BTreeMap<String, String>;
/// Counters of every link.
pub type Links = BTreeMap<Way, Link>;

/// A link from one node to another, by one protocol: `icmp`, `udp` or `tcp`, and those of IPv6
/// where the pods have addresses of both families.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    pub source: String,
    pub peer: String,
    pub protocol: String,
}

impl Way {
    /// Whether its probes are echo requests.
    pub fn is_icmp(&self) -> bool {
        self.protocol.starts_with("icmp")
    }

    /// Returns how many of its probes come in `seconds`: one per second, and a handshake every ten
    /// seconds.
    pub fn probes_in(&self, seconds: f64) -> f64 {
        if self.protocol.starts_with("tcp") { (seconds / 10.0).ceil() } else { seconds }
    }
}

/// An agent's pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    pub name: String,
    pub ready: bool,
    /// One address of each family that the cluster has. Kubernetes itself uses the first.
    pub addresses: Vec<String>,
}

impl Pod {
    /// The protocols by which its peers probe it.
    pub fn protocols(&self) -> impl Iterator<Item = &'static str> {
        let of = |address: &String| {
            if address.contains(':') { ["icmpv6", "udpv6", "tcpv6"] } else { ["icmp", "udp", "tcp"] }
        };
        self.addresses.iter().flat_map(of)
    }
}

/// One agent's counters of one peer, since its start.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Link {
    pub sent: f64,
    pub received: f64,
    pub lost: f64,
    /// Of those, the probes whose reply came after the timeout.
    pub late: f64,
    /// Probes of the agent, to whichever peer, that its kernel refused to send.
    pub send_errors: f64,
    /// Observations in the RTT histogram, which links by ICMP have.
    pub rtts: f64,
    /// Probes of the agent to any peer that was terminating or had just left, whatever their fate.
    pub terminating: f64,
}

impl Link {
    /// Probes without any reply. A reply that came after the timeout, by the kernel's own stamps,
    /// was delayed on its path, or by a far agent that a busy machine did not run. A dead pod or a
    /// cut link never gives a reply. The late ones are read after the lost ones.
    pub fn lost_for_good(&self) -> f64 {
        (self.lost - self.late).max(0.0)
    }
}

/// The schedulable nodes and their zones.
pub fn zones(cluster: &Cluster) -> Result<Zones, String> {
    let nodes = cluster.json(&["get", "nodes"])?;
    let zone = |node: &Value| {
        let label = &node["metadata"]["labels"]["topology.kubernetes.io/zone"];
        (text(&node["metadata"]["name"]), label.as_str().unwrap_or("unknown").to_owned())
    };
    Ok(items(&nodes).map(zone).collect())
}

/// The agents by node, without pods that are being deleted.
pub fn pods(cluster: &Cluster) -> Result<BTreeMap<String, Pod>, String> {
    let list = list(cluster)?;
    Ok(items(&list).filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).map(pod).collect())
}

/// All agents with their nodes, including pods that are being deleted.
pub fn every_pod(cluster: &Cluster) -> Result<Vec<(String, Pod)>, String> {
    Ok(items(&list(cluster)?).map(pod).collect())
}

fn list(cluster: &Cluster) -> Result<Value, String> {
    cluster.json(&["get", "pods", "--selector", "app.kubernetes.io/name=kube-canary"])
}

fn pod(pod: &Value) -> (String, Pod) {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let addresses = pod["status"]["podIPs"].as_array().into_iter().flatten();
    let addresses = addresses.map(|address| text(&address["ip"])).collect();
    (text(&pod["spec"]["nodeName"]), Pod { name: text(&pod["metadata"]["name"]), ready, addresses })
}

/// The agents, once every node has a Ready one.
pub fn all_ready(cluster: &Cluster, zones: &Zones) -> Result<BTreeMap<String, Pod>, String> {
    let pods = pods(cluster)?;
    if pods.keys().eq(zones.keys()) && pods.values().all(|pod| pod.ready) {
        return Ok(pods);
    }
    Err(format!("{pods:?}"))
}

/// The addresses that the Service's EndpointSlices list.
pub fn endpoint_addresses(cluster: &Cluster) -> Result<Vec<String>, String> {
    let slices = cluster.json(&["get", "endpointslices", "--selector", "kubernetes.io/service-name=kube-canary"])?;
    let endpoints = items(&slices).flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    Ok(endpoints.flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten()).map(text).collect())
}

/// Requests `path` from the agent in `pod`.
pub fn get(cluster: &Cluster, pod: &Pod, path: &str) -> Result<String, String> {
    cluster.kubectl(&["get", "--raw", &format!("/api/v1/namespaces/{NAMESPACE}/pods/{}:9877/proxy{path}", pod.name)])
}

/// The same without the API server, from `node`'s network namespace.
pub fn get_from(cluster: &Cluster, node: &str, pod: &Pod, path: &str) -> Result<String, String> {
    let url = format!("http://{}:9877{path}", pod.addresses[0]);
    cluster.on_node(node, &["curl", "--silent", "--show-error", "--fail", "--max-time", "5", &url])
}

/// The counters that the agents on `sources` have of their peers.
///
/// # Errors
/// If an agent does not answer, a line is no sample, or a label differs from what the API server
/// says of the nodes.
pub fn links(cluster: &Cluster, sources: &BTreeMap<String, Pod>, zones: &Zones) -> Result<Links, String> {
    let mut links = Links::new();
    for (node, pod) in sources {
        links.extend(links_of(node, &read(|path| get(cluster, pod, path))?, zones)?);
    }
    Ok(links)
}

/// The `/metrics` of an agent, and its report.
pub type Pages = [String; 2];

/// Reads both, in this order: what the report counts as late is in the metrics as lost.
///
/// # Errors
/// As `get`, which requests a path from the agent.
pub fn read(get: impl Fn(&str) -> Result<String, String>) -> Result<Pages, String> {
    Ok([get("/metrics")?, get("/api/v1/peers")?])
}

/// The counters of the agent on `node`. How many replies came late is in its report, because UDP
/// has no series for it.
///
/// # Errors
/// As [`links`].
pub fn links_of(node: &str, [metrics, report]: &Pages, zones: &Zones) -> Result<Links, String> {
    let mut links = Links::new();
    let [mut send_errors, mut terminating] = [0.0; 2];
    for sample in exposition::parse(metrics)? {
        let Some(name) = sample.name.strip_prefix("kube_canary_") else { continue };
        match name {
            "send_errors_by_reason_total" => send_errors += sample.value,
            "terminating_by_result_total" => terminating += sample.value,
            _ => {}
        }
        let (source, peer) = (sample.label("source_node"), sample.label("peer_node"));
        if peer.is_empty() || sample.label("network") != "pod" {
            continue;
        }
        let told = [sample.label("source_zone"), sample.label("peer_zone")].map(str::to_owned);
        let want = [source, peer].map(|node| zones.get(node).cloned().unwrap_or_default());
        if source != node || told != want {
            return Err(format!("on {node}, wanted zones {want:?}: {sample:?}"));
        }
        let protocol = sample.label("protocol").to_owned();
        let link = links.entry(Way { source: source.to_owned(), peer: peer.to_owned(), protocol }).or_default();
        match name {
            "probes_sent_total" => link.sent = sample.value,
            "probes_received_total" => link.received = sample.value,
            "probes_lost_total" => link.lost = sample.value,
            "probe_rtt_seconds_count" => link.rtts = sample.value,
            _ => {}
        }
    }
    for link in links.values_mut() {
        (link.send_errors, link.terminating) = (send_errors, terminating);
    }
    let report: Value = serde_json::from_str(report).map_err(|error| format!("{error}: {report}"))?;
    for peer in report["peers"].as_array().into_iter().flatten().filter(|peer| peer["network"] == "pod") {
        let way = Way { source: node.to_owned(), peer: text(&peer["node"]), protocol: text(&peer["protocol"]) };
        if let (Some(link), Some(late)) = (links.get_mut(&way), peer["late"].as_f64()) {
            link.late = late;
        }
    }
    Ok(links)
}

/// The value of a series without labels.
///
/// # Errors
/// If there is no such series.
pub fn single(metrics: &str, name: &str) -> Result<f64, String> {
    let samples = exposition::parse(metrics)?;
    let found = samples.iter().find(|sample| sample.name == format!("kube_canary_{name}"));
    found.map(|sample| sample.value).ok_or_else(|| format!("no {name} in {metrics}"))
}

/// The increase from `before` to `after`, for the links that `chosen` selects.
///
/// # Errors
/// If a counter decreased, or a link of `before` is missing.
pub fn growth(before: &Links, after: &Links, chosen: impl Fn(&Way) -> bool) -> Result<Links, String> {
    let mut growth = Links::new();
    for (key, old) in before.iter().filter(|(way, _)| chosen(way)) {
        let new = after.get(key).ok_or_else(|| format!("{key:?} is gone"))?;
        let link = Link {
            sent: new.sent - old.sent,
            received: new.received - old.received,
            lost: new.lost - old.lost,
            late: new.late - old.late,
            send_errors: new.send_errors - old.send_errors,
            rtts: new.rtts - old.rtts,
            terminating: new.terminating - old.terminating,
        };
        let grown = [link.sent, link.received, link.lost, link.late, link.send_errors, link.rtts, link.terminating];
        if grown.iter().any(|grown| *grown < 0.0) {
            return Err(format!("a counter of {key:?} went back: {old:?}, then {new:?}"));
        }
        growth.insert(key.clone(), link);
    }
    Ok(growth)
}

/// Asserts that no probe stayed without a reply. Prints the replies that came after the timeout:
/// they show that the machine was blocked for a time.
///
/// # Panics
/// If a probe has no reply.
pub fn none_lost(grown: &Links, what: &str) {
    for (way, link) in grown {
        assert!(link.lost_for_good() == 0.0, "{what}: {way:?}: {link:?}");
        if link.late > 0.0 {
            eprintln!("  late: {} replies on {way:?}: {link:?}", link.late);
        }
    }
}

/// The report of each agent, as the agent writes it.
///
/// # Errors
/// If an agent does not answer.
pub fn rows(cluster: &Cluster, pods: &BTreeMap<String, Pod>) -> Result<Vec<Value>, String> {
    pods.values().map(|pod| json(cluster, pod, "/api/v1/peers")).collect()
}

/// The JSON document at `path` of the agent in `pod`.
///
/// # Errors
/// If there is no answer, or one that is not JSON.
pub fn json(cluster: &Cluster, pod: &Pod, path: &str) -> Result<Value, String> {
    let said = get(cluster, pod, path)?;
    serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))
}

/// The objects of a list of the API.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
