//! What the canaries are and what they say: their pods by node, and the ICMP counters of every link from their `/metrics`,
//! read through the API server's pod proxy, which is there on any cluster.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cluster::{Cluster, NAMESPACE};
use crate::exposition;

/// A node as Kubernetes names it, and its zone; what peer series must say.
pub type Zones = BTreeMap<String, String>;
/// Counters of every link.
pub type Links = BTreeMap<Way, Link>;

/// From one node to another, by one protocol: `icmp`, and `icmpv6` where the pods have addresses of both families.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    pub source: String,
    pub peer: String,
    pub protocol: String,
}

/// A canary's pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    pub name: String,
    pub ready: bool,
    /// One of each family that the cluster has; Kubernetes itself uses the first.
    pub addresses: Vec<String>,
}

impl Pod {
    /// What its peers probe it by.
    pub fn protocols(&self) -> impl Iterator<Item = &'static str> {
        self.addresses.iter().map(|address| if address.contains(':') { "icmpv6" } else { "icmp" })
    }
}

/// One canary's counters of one peer, since its start.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Link {
    pub sent: f64,
    pub received: f64,
    pub lost: f64,
    /// Of those, the ones whose reply came after their time.
    pub late: f64,
    pub send_errors: f64,
    /// Observations in the RTT histogram.
    pub rtts: f64,
    /// Probes to a peer that was terminating or had just left, whatever became of them.
    pub terminating: f64,
}

impl Link {
    /// Probes without any reply. A reply that came after the timeout, by the kernel's own stamps,
    /// was held up on its way. What a dead pod or a cut link loses never comes.
    pub fn lost_for_good(&self) -> f64 {
        self.lost - self.late
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

/// The canaries by node; a pod that is being deleted is not listed.
pub fn pods(cluster: &Cluster) -> Result<BTreeMap<String, Pod>, String> {
    let list = list(cluster)?;
    Ok(items(&list).filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).map(pod).collect())
}

/// All canaries with their nodes, those that are being deleted as well.
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

/// The canaries, once there is a Ready one on every node.
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

/// Asks the canary in `pod` for `path`.
pub fn get(cluster: &Cluster, pod: &Pod, path: &str) -> Result<String, String> {
    cluster.kubectl(&["get", "--raw", &format!("/api/v1/namespaces/{NAMESPACE}/pods/{}:9877/proxy{path}", pod.name)])
}

/// The same without the API server, from `node`'s network namespace.
pub fn get_from(cluster: &Cluster, node: &str, pod: &Pod, path: &str) -> Result<String, String> {
    let url = format!("http://{}:9877{path}", pod.addresses[0]);
    cluster.on_node(node, &["curl", "--silent", "--show-error", "--fail", "--max-time", "5", &url])
}

/// The counters that the canaries on `sources` hold of their peers.
///
/// # Errors
/// A canary that does not answer, a line that is no sample, or a label other than what the API server says of the nodes.
pub fn links(cluster: &Cluster, sources: &BTreeMap<String, Pod>, zones: &Zones) -> Result<Links, String> {
    let mut links = Links::new();
    for (node, pod) in sources {
        links.extend(links_of(node, &get(cluster, pod, "/metrics")?, zones)?);
    }
    Ok(links)
}

/// The counters in one canary's `/metrics`, the one on `node`.
///
/// # Errors
/// As [`links`].
pub fn links_of(node: &str, metrics: &str, zones: &Zones) -> Result<Links, String> {
    let mut links = Links::new();
    for sample in exposition::parse(metrics)? {
        let Some(name) = sample.name.strip_prefix("kube_canary_") else { continue };
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
            "probes_late_total" => link.late = sample.value,
            "probe_send_errors_total" => link.send_errors += sample.value,
            "probe_rtt_seconds_count" => link.rtts = sample.value,
            "probes_terminating_total" => link.terminating += sample.value,
            _ => {}
        }
    }
    Ok(links)
}

/// The value of a series without labels.
///
/// # Errors
/// It is not there.
pub fn single(metrics: &str, name: &str) -> Result<f64, String> {
    let samples = exposition::parse(metrics)?;
    let found = samples.iter().find(|sample| sample.name == format!("kube_canary_{name}"));
    found.map(|sample| sample.value).ok_or_else(|| format!("no {name} in {metrics}"))
}

/// What was counted from `before` to `after`, for the links that `chosen` picks.
///
/// # Errors
/// A counter that went back, or a link of `before` that is gone.
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

/// Holds that nothing was lost for good. Replies that came after their time are printed: they say
/// that the machine stood still.
///
/// # Panics
/// Something was.
pub fn none_lost(grown: &Links, what: &str) {
    for (way, link) in grown {
        assert!(link.lost_for_good() == 0.0, "{what}: {way:?}: {link:?}");
        if link.late > 0.0 {
            eprintln!("  late: {} replies on {way:?}: {link:?}", link.late);
        }
    }
}

/// The row of each canary, as it writes it itself.
///
/// # Errors
/// One does not answer.
pub fn rows(cluster: &Cluster, pods: &BTreeMap<String, Pod>) -> Result<Vec<Value>, String> {
    pods.values().map(|pod| json(cluster, pod, "/api/v1/peers")).collect()
}

/// The JSON that the canary in `pod` has at `path`.
///
/// # Errors
/// No answer, or one that is not JSON.
pub fn json(cluster: &Cluster, pod: &Pod, path: &str) -> Result<Value, String> {
    let said = get(cluster, pod, path)?;
    serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
