//! The shipped image and manifest on a real cluster, from `kubectl apply` through upgrades, loss, a
//! replaced pod and a cut node.
//!
//! This is one test of ordered steps. Each step starts where the one before it ended, because
//! making a cluster takes longer than running a step. `cargo test --test cluster -- --nocapture`
//! shows the steps. The external requirements are in `cluster.rs` and `image.rs`.

mod act;
mod agents;
mod calm;
mod checks;
mod cluster;
mod directory;
#[path = "../common/exposition.rs"]
mod exposition;
mod faults;
mod helm;
mod image;
mod judges;
mod outage;
mod past;
mod process;
mod readiness;
mod rights;
mod rivals;
#[path = "../common/rows.rs"]
mod rows;
mod view;
mod wait;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use agents::{Links, Pod, Way, Zones, all_ready, endpoint_addresses, growth, links, none_lost, zones};
use cluster::Cluster;
use faults::Dropped;
use image::{Earlier, Image};
use rows::{Finding, finding, is_the_only_subject};
use wait::until;

/// Nodes of a cluster of our own: more than there are judges, so that some agents do not judge.
const NODES: usize = 5;
/// The least number of nodes of a cluster that is given. All of them judge then.
const NODES_MIN: usize = 3;
const MANIFEST: &str = include_str!("../../deploy/daemonset.yaml");
/// Probes to each peer in which two times pass for certain: the recent window, a minute at most,
/// and the time for which a loss is withheld.
const WINDOW: f64 = 90.0;

#[test]
fn the_manifest_measures_a_real_cluster() {
    let cluster = Cluster::from_environment();
    let earlier = Earlier::get(&cluster);
    let image = Image::get(&cluster);
    cluster.up(NODES);
    for image in earlier.iter().map(|earlier| &earlier.image).chain([&image]) {
        image.load(&cluster);
    }
    let zones = zones(&cluster).unwrap();
    assert!(zones.len() >= NODES_MIN, "the test needs {NODES_MIN} nodes: {zones:?}");
    assert!(zones.values().any(|zone| zone != "unknown"), "no node has a zone, so zones cannot be tested: {zones:?}");
    let test = Test { image: image.name, cluster, zones };
    step("apply the manifest", || test.applies_without_a_warning());
    step("every pod sees all others, without loss", || test.sees_all_without_loss());
    let faults = std::env::var("KUBE_CANARY_TEST_FAULTS").unwrap_or_default();
    let checks = || step("what pods depend on fails", || test.what_fails_is_named());
    if faults == "checks" {
        eprintln!("NOT TRIED: the other steps (KUBE_CANARY_TEST_FAULTS=checks)");
        return checks();
    }
    let rivals = || step("the same faults beside two other programs", || test.rivals_see_no_more());
    if faults == "rivals" {
        eprintln!("NOT TRIED: the other steps (KUBE_CANARY_TEST_FAULTS=rivals)");
        return rivals();
    }
    let acts = || step("what is found is acted upon", || test.what_is_found_is_acted_upon());
    let charted = || step("a Helm release is uninstalled", || test.a_release_leaves_no_condition_behind());
    if faults == "act" {
        eprintln!("NOT TRIED: the other steps (KUBE_CANARY_TEST_FAULTS=act)");
        acts();
        return charted();
    }
    if faults == "helm" {
        eprintln!("NOT TRIED: the other steps (KUBE_CANARY_TEST_FAULTS=helm)");
        return charted();
    }
    if faults == "past" {
        eprintln!("NOT TRIED: the other steps (KUBE_CANARY_TEST_FAULTS=past)");
        return step("faults one after another", || test.faults_have_a_true_past());
    }
    step("a rolling update", || test.a_rolling_update_loses_nothing());
    if let Some(earlier) = &earlier {
        step("a rolling upgrade from an earlier build", || test.an_upgrade_loses_nothing(earlier));
    } else {
        eprintln!("NOT TRIED: a rolling upgrade from an earlier build (set KUBE_CANARY_TEST_BEFORE)");
    }
    if faults == "none" {
        step("a judge's node is drained", || test.a_drain_loses_nothing());
        eprintln!("NOT TRIED: the steps that inject faults (KUBE_CANARY_TEST_FAULTS=none)");
        return;
    }
    // No silent skip: a step that needs faults fails where no fault can be injected.
    assert!(test.cluster.has_command(), "faults cannot be injected here: set KUBE_CANARY_TEST_CLUSTER as well");
    step("a tenth of a node's ingress is lost", || test.the_view_names_a_lossy_node());
    step("a judge's node is drained", || test.a_drain_keeps_the_past());
    eprintln!("NOT TRIED: faults one after another, which take 25 minutes (KUBE_CANARY_TEST_FAULTS=past)");
    if std::env::var_os(rivals::DIRECTORY).is_some() {
        rivals();
    } else {
        eprintln!("NOT TRIED: the same faults beside two other programs (set {})", rivals::DIRECTORY);
    }
    acts();
    charted();
    step("loss on one pod's ingress", || test.loss_shows_where_it_is());
    step("UDP, then TCP is dropped in front of a node's agent", || test.a_protocol_that_is_dropped_is_named());
    step("a rolled pod", || test.a_rolled_pod_goes_on_counting());
    step("the API server away for two minutes", || test.an_outage_of_the_api_hides_nothing());
    step("a node whose link is down", || test.a_cut_node_stays_visible());
    checks();
}

fn step(name: &str, run: impl FnOnce()) {
    eprintln!("{name}");
    let begun = Instant::now();
    run();
    eprintln!("  {} s", begun.elapsed().as_secs());
}

struct Test {
    cluster: Cluster,
    zones: Zones,
    image: String,
}

impl Test {
    fn applies_without_a_warning(&self) {
        self.apply(MANIFEST, &self.image);
        until("a Ready agent on every node", || all_ready(&self.cluster, &self.zones));

        // This proves that the level is enforced here, so that passing it means something.
        let root = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": {
            "serviceAccountName": "kube-canary", "containers": [{"name": "root", "image": self.image}]}});
        let create = ["create", "--dry-run=server", "--filename", "-"];
        let refused = self.cluster.kubectl_with_input(&create, &root.to_string()).unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        let by_the_level = said.contains("violates PodSecurity \"restricted");
        assert!(!refused.status.success() && by_the_level, "an unrestricted pod was not refused for that: {said}");
    }

    /// Applies a manifest as it is shipped, but with this image.
    fn apply(&self, manifest: &str, image: &str) {
        let images: Vec<&str> = manifest.lines().filter_map(|line| line.trim_start().strip_prefix("image: ")).collect();
        let [shipped] = images[..] else { panic!("the manifest names one image: {images:?}") };
        let manifest = manifest.replace(shipped, image);
        let applied = self.cluster.kubectl_with_input(&["apply", "--filename", "-"], &manifest).unwrap();
        let said = String::from_utf8_lossy(&applied.stderr);
        assert!(applied.status.success(), "kubectl apply: {said}");
        assert!(!said.contains("Warning"), "kubectl apply: {said}");
    }

    fn sees_all_without_loss(&self) {
        let pods = self.pods();
        let mut full = BTreeSet::new();
        for (source, pod) in &pods {
            for peer in pods.keys().filter(|peer| *peer != source) {
                let way =
                    |protocol: &str| Way { source: source.clone(), peer: peer.clone(), protocol: protocol.to_owned() };
                full.extend(pod.protocols().map(way));
            }
        }
        let first = until("answers for ten seconds on every link", || {
            let links = self.links(&pods)?;
            let enough = links.iter().all(|(way, link)| link.received >= way.probes_in(10.0));
            if links.keys().eq(full.iter()) && enough { Ok(links) } else { Err(format!("{links:?}")) }
        });
        let second = self.links_once_decided(&pods);
        none_lost(&second, "probes on an idle network");
        for (way, now) in &second {
            let then = first[way];
            assert!(now.send_errors == 0.0, "{way:?}: {now:?}");
            // A scrape is streamed, and probes are answered between two of its lines. Only with two
            // scrapes is it certain which figure is the older one.
            assert!(
                then.received + then.lost <= now.sent,
                "{way:?}: more became of probes than were sent: {then:?}, {now:?}"
            );
            assert!(then.sent <= now.received + now.lost, "{way:?}: nothing became of some probes: {then:?}, {now:?}");
            if way.protocol.starts_with("icmp") {
                assert!(then.received <= now.rtts, "{way:?}: answers without an RTT: {then:?}, {now:?}");
                assert!(then.rtts <= now.received, "{way:?}: an RTT without an answer: {then:?}, {now:?}");
            }
        }
    }

    fn the_view_names_a_lossy_node(&self) {
        let pods = self.pods();
        let victim = self.zones.keys().next_back().expect("there are nodes").clone();
        let witness = pods.iter().find(|(node, _)| **node != victim).expect("there are others").1;
        let page = agents::get(&self.cluster, witness, "/").unwrap();
        assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"), "{page}");
        let losses = || view::losses(&self.cluster, witness, &pods);
        let none = |found: BTreeSet<Finding>| if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) };
        until("no loss in any row", || none(losses()?));
        let prometheus = if std::env::var_os(view::WITH_PROMETHEUS).is_some() {
            let prometheus = view::Prometheus::start(&self.cluster, witness, pods.values());
            // Longer than the time after which an alert says that judges are missing.
            let start = self.links(&pods).unwrap();
            until("200 probes that Prometheus has seen", || self.sent_since(&start, &pods, 200.0));
            let firing = prometheus.firing().unwrap();
            assert!(firing.is_empty(), "before the fault: {firing:?}");
            Some(prometheus)
        } else {
            eprintln!(
                "  alerts are not tried here: set {} (`cargo test --test alerts` tries them)",
                view::WITH_PROMETHEUS
            );
            None
        };

        let senders = pods.iter().filter(|(node, _)| **node != victim).map(|(_, pod)| pod);
        let fault = faults::IngressLoss::of_every_tenth(&self.cluster, &pods[&victim].name, senders);
        let start = until("a scrape of every agent", || self.links(&pods));
        // While the fault is young, or ends, the losses in the recent window may all be those of
        // one of the node's links.
        let of_it = |found: BTreeSet<Finding>| {
            assert!(is_the_only_subject(&victim, &found), "something else is named: {found:?}");
            found
        };
        until("the recent window full of the fault", || {
            of_it(losses()?);
            self.sent_since(&start, &pods, WINDOW)
        });
        // The node is certain from here on. The direction is certain only where all windows are
        // long enough.
        let (named, either) = (finding("node", &victim, "in"), finding("node", &victim, "both"));
        let only_it = |found: BTreeSet<Finding>| {
            assert!(found.len() == 1 && (found.contains(&named) || found.contains(&either)), "{found:?}");
            if found.contains(&named) { Ok(()) } else { Err(format!("{found:?}")) }
        };
        if let Some(prometheus) = &prometheus {
            let alert = BTreeSet::from([finding("KubeCanaryFault", &victim, "in")]);
            until("the alert names the node and the way", || {
                let firing = of_it(prometheus.firing()?);
                if firing == alert { Ok(()) } else { Err(format!("{firing:?}")) }
            });
        }
        until("the losses name the node and the way", || only_it(losses()?));
        until("so does doctor", || only_it(view::doctor(&self.cluster, &pods)?));
        of_it(until("doctor's own look", || view::doctor_in_pod(&self.cluster, witness)));
        drop(fault);
        until("no loss in any row", || none(of_it(losses()?)));
        until("doctor finds nothing either", || none(of_it(view::doctor(&self.cluster, &pods)?)));
        self.recovers(&pods);
    }

    fn loss_shows_where_it_is(&self) {
        let pods = self.pods();
        let victim = self.zones.keys().next().expect("there are nodes").clone();
        let into_victim = |way: &Way| way.peer == victim && way.is_icmp();
        let before = self.links(&pods).unwrap();
        let senders = pods.iter().filter(|(node, _)| **node != victim).map(|(_, pod)| pod);
        let fault = faults::IngressLoss::of_requests(&self.cluster, &pods[&victim].name, senders);
        let during = until("loss by ICMP on every link into the pod", || {
            let now = self.links(&pods)?;
            let into = growth(&before, &now, into_victim)?;
            // There must be some answers as well: the fault is loss and not a cut, and the verdict
            // must not confuse them.
            if into.values().all(|link| link.lost >= 5.0 && link.received >= 3.0) {
                Ok(now)
            } else {
                Err(format!("{into:?}"))
            }
        });
        drop(fault);
        let elsewhere = growth(&before, &during, |way| !into_victim(way)).unwrap();
        none_lost(&elsewhere, "loss where there is none");
        self.recovers(&pods);
    }

    fn a_protocol_that_is_dropped_is_named(&self) {
        let pods = self.pods();
        let victim = self.zones.keys().next_back().expect("there are nodes").clone();
        let witness = pods.iter().find(|(node, _)| **node != victim).expect("there are others").1;
        let none = |found: BTreeSet<Finding>| if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) };
        for (dropped, protocols) in [(Dropped::Udp, ["udp", "udpv6"]), (Dropped::Tcp, ["tcp", "tcpv6"])] {
            until("no loss in any row", || none(view::losses(&self.cluster, witness, &pods)?));
            let before = self.links(&pods).unwrap();
            let senders = pods.iter().filter(|(node, _)| **node != victim).map(|(_, pod)| pod);
            let fault = faults::IngressLoss::of_all(&self.cluster, &pods[&victim].name, senders, dropped);
            let is_of_it = |[kind, subject, protocol]: &Finding| {
                kind == "node" && *subject == victim && protocols.contains(&protocol.as_str())
            };
            until(&format!("{} named as what {victim} loses", protocols[0]), || {
                let found = view::protocols(&self.cluster, &pods)?;
                if !found.is_empty() && found.iter().all(is_of_it) { Ok(()) } else { Err(format!("{found:?}")) }
            });
            let during = self.links(&pods).unwrap();
            drop(fault);
            let is_hit =
                |way: &Way| protocols.contains(&way.protocol.as_str()) && [&way.peer, &way.source].contains(&&victim);
            none_lost(&growth(&before, &during, |way| !is_hit(way)).unwrap(), "loss where there is none");
            self.recovers(&pods);
        }
    }

    fn a_rolled_pod_goes_on_counting(&self) {
        let mut pods = self.pods();
        let rolled = self.zones.keys().nth(1).expect("there are three nodes").clone();
        let old = pods.remove(&rolled).expect("a pod on every node");
        let into_rolled = |way: &Way| way.peer == rolled;
        let before = self.links(&pods).unwrap();
        self.cluster.kubectl(&["delete", "pod", &old.name, "--wait=false"]).unwrap();

        let mut last = before.clone();
        let ready = until("the new pod, and the others' counters never back", || {
            // A series that decreases or disappears is a failure at once, with no further poll.
            let now = self.links(&pods)?;
            growth(&last, &now, |_| true).unwrap();
            last = now;
            let new = all_ready(&self.cluster, &self.zones)?;
            if new[&rolled].name == old.name { Err(format!("still {}", old.name)) } else { Ok(new) }
        });
        let again = |address: &String| ready[&rolled].addresses.contains(address);
        assert!(!old.addresses.iter().any(again), "the same address again proves nothing");
        until("the old addresses gone from the EndpointSlices", || {
            let listed = endpoint_addresses(&self.cluster)?;
            if old.addresses.iter().any(|address| listed.contains(address)) {
                Err(format!("{listed:?}"))
            } else {
                Ok(())
            }
        });
        until("probes of the new address on the old counters", || {
            let grown = growth(&last, &self.links(&pods)?, into_rolled)?;
            let enough = grown.iter().all(|(way, link)| link.received >= way.probes_in(5.0));
            if enough { Ok(()) } else { Err(format!("{grown:?}")) }
        });
        for pod in pods.values() {
            until("one ready peer of each protocol on that node", || {
                let said = agents::get(&self.cluster, pod, "/api/v1/peers")?;
                let row: serde_json::Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
                let peers = row["peers"].as_array().expect("a list of peers").iter();
                let of_node: Vec<_> = peers.filter(|peer| peer["node"] == rolled.as_str()).collect();
                assert_eq!(of_node.len(), pod.protocols().count(), "one peer of each protocol on {rolled}: {said}");
                if of_node.iter().all(|peer| peer["state"] == "ready") { Ok(()) } else { Err(said) }
            });
        }
        // Draining is no loss, neither for this link nor for the others.
        let across = growth(&before, &self.links(&pods).unwrap(), |_| true).unwrap();
        none_lost(&across, "a rolled pod was booked as loss");
        self.recovers(&ready);
    }

    fn a_cut_node_stays_visible(&self) {
        let all = self.pods();
        let cut = self.zones.keys().last().expect("there are nodes").clone();
        let into_cut = |way: &Way| way.peer == cut;
        let others: BTreeMap<_, _> =
            all.iter().filter(|(node, _)| **node != cut).map(|(n, p)| (n.clone(), p.clone())).collect();
        let before = self.links(&others).unwrap();
        let fault = faults::LinkDown::start(&self.cluster, &cut);
        let lost = |from: &Links, probes: f64| {
            let now = self.links(&others)?;
            let into = growth(from, &now, into_cut).unwrap();
            let enough = into.iter().all(|(way, link)| link.lost >= way.probes_in(probes));
            if enough { Ok(now) } else { Err(format!("{into:?}")) }
        };
        until("loss on every link into the node", || lost(&before, 5.0));
        until("the node NotReady", || {
            let ready = self.node_ready(&cut)?;
            if ready == "True" { Err("Ready".to_owned()) } else { Ok(()) }
        });
        let known = self.links(&others).unwrap();
        let during = until("more loss, though Kubernetes has given the node up", || lost(&known, 5.0));
        // The loss of a node that is no longer part of the cluster must not be reported.
        let removed = faults::NodeRemoved::start(&self.cluster, &cut);
        let mut from = during;
        let during = until("no more probes once the node is removed", || {
            let now = self.links(&others)?;
            if growth(&from, &now, into_cut)?.values().any(|link| link.sent > 0.0) {
                from = now;
                return Err("it is probed on".to_owned());
            }
            // Each agent still sends to its other peers: it is not merely delayed.
            let elsewhere = growth(&from, &now, |way| way.peer != cut)?;
            let enough = elsewhere.iter().all(|(way, link)| link.sent >= way.probes_in(10.0));
            if enough { Ok(now) } else { Err(format!("{elsewhere:?}")) }
        });
        let elsewhere = growth(&before, &during, |way| way.peer != cut).unwrap();
        none_lost(&elsewhere, "loss where there is none");
        drop(removed);
        drop(fault);

        until("the node Ready again", || {
            let ready = self.node_ready(&cut)?;
            if ready == "True" { Ok(()) } else { Err(ready) }
        });
        let pods = until("a Ready agent on every node", || {
            let pods = all_ready(&self.cluster, &self.zones)?;
            if pods[&cut].name == all[&cut].name { Err(format!("still {}", all[&cut].name)) } else { Ok(pods) }
        });
        self.recovers(&pods);
        let after = self.links(&others).unwrap();
        growth(&before, &after, |_| true).unwrap();
    }

    /// Waits until every agent is another pod than before, with a look at something at each poll.
    fn until_all_are_new(
        &self,
        before: &BTreeMap<String, Pod>,
        mut look: impl FnMut() -> Result<(), String>,
    ) -> BTreeMap<String, Pod> {
        until("every agent is a new one", || {
            look()?;
            let now = all_ready(&self.cluster, &self.zones)?;
            let is_old = now.iter().any(|(node, pod)| before[node].name == pod.name);
            if is_old { Err(format!("{now:?}")) } else { Ok(now) }
        })
    }

    /// Waits until every link answers again. Once the losses of the fault are decided, the probes
    /// of the next ten seconds must be answered.
    fn recovers(&self, pods: &BTreeMap<String, Pod>) {
        let from = self.links_once_decided(pods);
        until("answers for ten more seconds on every link", || {
            let grown = growth(&from, &self.links(pods)?, |_| true).unwrap();
            none_lost(&grown, "loss after the end of the fault");
            let enough = grown.iter().all(|(way, link)| link.received >= way.probes_in(10.0));
            if enough { Ok(()) } else { Err(format!("{grown:?}")) }
        });
    }

    /// Scrapes all links once each probe from before this call is answered or lost.
    fn links_once_decided(&self, pods: &BTreeMap<String, Pod>) -> Links {
        let start = until("a scrape of every agent", || self.links(pods));
        // Three probes are two intervals, and the timeout is one. An answer ends the doubt during
        // which losses are withheld.
        until("probes and answers for three more seconds on every link", || {
            let grown = growth(&start, &self.links(pods)?, |_| true).unwrap();
            let decided = grown.iter().all(|(way, link)| link.sent.min(link.received) >= way.probes_in(3.0));
            if decided { Ok(()) } else { Err(format!("{grown:?}")) }
        });
        until("a scrape of every agent", || self.links(pods))
    }

    /// Whether this many probes went over every link since `start`, and a handshake for every ten.
    fn sent_since(&self, start: &Links, pods: &BTreeMap<String, Pod>, probes: f64) -> Result<(), String> {
        let grown = growth(start, &self.links(pods)?, |_| true).unwrap();
        if grown.iter().all(|(way, link)| link.sent >= way.probes_in(probes)) {
            Ok(())
        } else {
            Err(format!("{grown:?}"))
        }
    }

    fn pods(&self) -> BTreeMap<String, Pod> {
        all_ready(&self.cluster, &self.zones).unwrap()
    }

    fn links(&self, pods: &BTreeMap<String, Pod>) -> Result<Links, String> {
        links(&self.cluster, pods, &self.zones)
    }

    fn node_ready(&self, node: &str) -> Result<String, String> {
        let path = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
        self.cluster.kubectl(&["get", "node", node, "-o", path])
    }
}
