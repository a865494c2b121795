//! What real judges say, in a real Prometheus with the shipped rules: one alert for each cause, and
//! none where nothing is wrong.
//!
//! The faults are packets that nftables drops in turn, so nothing is random. The times of
//! Prometheus are divided by [`HASTE`](crate::prometheus::HASTE), and those of the judges are not.
//! How long it takes until an alert fires is printed, and decides nothing.

use std::path::PathBuf;
use std::time::Instant;

use crate::common::process::{Process, replace};
use crate::common::until::until_within;
use crate::faults::Faults;
use crate::mesh::{Mesh, Node};
use crate::prometheus::{Alert, Histograms, PORT, Prometheus};
use crate::{PATIENCE, agent, every_tenth};

const TWELVE: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
/// Judgements of every judge after which an alert would have fired: more than the recent window of
/// a minute.
const ENOUGH: f64 = 8.0;

/// Returns the label `instance` of a node's agent.
fn instance(node: &Node) -> String {
    format!("{}:{PORT}", node.ipv4())
}

/// A mesh with its agents and a Prometheus. Three agents judge.
struct Judged<'a> {
    mesh: &'a Mesh,
    /// The file from which every agent reads its peers.
    peers: PathBuf,
    agents: Vec<Process>,
    prometheus: Prometheus<'a>,
}

impl<'a> Judged<'a> {
    fn new(mesh: &'a Mesh) -> Self {
        Self::with(mesh, Histograms::Classic)
    }

    fn with(mesh: &'a Mesh, histograms: Histograms) -> Self {
        mesh.hub.ip("link set lo up\naddress add 198.18.0.1/24 dev bridge\n");
        let peers = mesh.peers_file(|node| vec![node.ipv4()]);
        let agents = mesh.nodes.iter().map(|node| agent(node, &peers)).collect();
        let targets: Vec<String> = mesh.nodes.iter().map(instance).collect();
        let prometheus = Prometheus::start(&mesh.hub, &targets, histograms);
        let judged = Self { mesh, peers, agents, prometheus };
        judged.waits_for("three agents judge", 3, "kube_canary_judgement_age_seconds < 90");
        judged
    }

    /// Waits until a query has this many samples.
    fn waits_for(&self, what: &str, count: usize, query: &str) {
        until_within(PATIENCE, what, || {
            let samples = self.prometheus.query(query);
            if samples.len() == count { Ok(()) } else { Err(format!("{samples:?}")) }
        });
    }

    /// Asserts that this alert fires, and that no other one about a cause has fired before.
    fn is_the_only_alert(&self, alert: [&str; 3]) {
        self.is_an_alert(alert);
        assert_eq!(self.alerts_of_causes(), 1, "on the way: {:#?}", self.prometheus.firing());
    }

    /// Waits until the alert of this kind, subject and severity fires.
    fn is_an_alert(&self, [kind, subject, severity]: [&str; 3]) {
        let begun = Instant::now();
        let is_meant = |alert: &Alert| {
            ["alertname", "kind", "subject", "severity"].map(|name| alert.label(name))
                == ["KubeCanaryFault", kind, subject, severity]
        };
        until_within(PATIENCE, "the verdict is an alert", || {
            let alerts = self.prometheus.firing();
            if alerts.iter().any(is_meant) { Ok(()) } else { Err(format!("firing: {alerts:#?}")) }
        });
        println!("{kind} {subject}: {} s after the fault", begun.elapsed().as_secs());
    }

    /// Waits until the only alert has this direction, which needs longer windows than the cause.
    fn has_direction(&self, direction: &str) {
        until_within(PATIENCE, "the direction is known", || {
            let alerts = self.prometheus.firing();
            let directions: Vec<String> = alerts.iter().map(|alert| alert.annotation("direction")).collect();
            if directions == [direction] { Ok(()) } else { Err(format!("firing: {alerts:#?}")) }
        });
    }

    /// Waits until no alert about a cause fires.
    fn ends(&self) {
        let healed = Instant::now();
        until_within(PATIENCE, "it fires no longer", || {
            let firing = self.prometheus.firing();
            let faults = firing.iter().filter(|alert| alert.label("alertname") == "KubeCanaryFault").count();
            if faults == 0 { Ok(()) } else { Err(format!("{firing:#?}")) }
        });
        println!("it has ended {} s after the fault", healed.elapsed().as_secs());
    }

    /// Waits until every judge has judged often enough, and asserts that there is no alert.
    fn stays_calm(&self) {
        self.stays_calm_but_for(0);
    }

    /// Does the same if this many alerts have fired before.
    fn stays_calm_but_for(&self, alerts: usize) {
        // Each judgement sets the age to zero.
        let rounds = "resets(kube_canary_judgement_age_seconds[1h]) and kube_canary_judgement_age_seconds";
        until_within(PATIENCE, "it has been judged often enough", || {
            let rounds = self.prometheus.query(rounds);
            let is_enough = rounds.len() == 3 && rounds.iter().all(|rounds| *rounds >= ENOUGH);
            if is_enough { Ok(()) } else { Err(format!("{rounds:?}")) }
        });
        assert_eq!(self.alerts_of_causes(), alerts, "{:#?}", self.prometheus.firing());
    }

    /// The number of alerts about causes that have ever fired.
    fn alerts_of_causes(&self) -> usize {
        let fault = "count_over_time(ALERTS{alertname=\"KubeCanaryFault\",alertstate=\"firing\"}[1h])";
        self.prometheus.query(fault).len()
    }
}

#[test]
fn what_the_judges_say_of_a_node_is_the_only_alert_where_histograms_are_native_too() {
    let mesh = Mesh::new();
    let judged = Judged::with(&mesh, Histograms::Native);
    let _fault = every_tenth(&mesh, "c");
    judged.is_the_only_alert(["node", "c", "critical"]);
    judged.has_direction("in");
}

#[test]
fn a_loss_of_the_whole_mesh_is_one_alert_and_names_no_node() {
    let mesh = Mesh::new();
    let judged = Judged::new(&mesh);
    let _faults: Vec<Faults<'_>> = mesh.nodes.iter().map(|node| every_tenth(&mesh, node.name)).collect();
    judged.is_the_only_alert(["mesh", "*", "critical"]);
}

/// Drops one of this many requests from each of these nodes to another, in its order.
fn one_of<'a>(mesh: &'a Mesh, to: &str, from: &[&str], every: u32) -> Faults<'a> {
    let from = from.iter().filter(|from| **from != to).map(|from| mesh.node(from).ipv4());
    let rules = from.map(|from| format!("ip saddr {from} icmp type echo-request numgen inc mod {every} == 0 drop"));
    Faults::new(&mesh.node(to).namespace, "eth0", &[], &rules.collect::<Vec<_>>())
}

#[test]
fn two_percent_everywhere_in_twelve_nodes_is_one_alert() {
    let mesh = Mesh::of(&TWELVE);
    let judged = Judged::new(&mesh);
    let _faults: Vec<Faults<'_>> = TWELVE.iter().map(|node| one_of(&mesh, node, &TWELVE, 50)).collect();
    judged.is_the_only_alert(["mesh", "*", "critical"]);
}

#[test]
fn a_node_of_twelve_that_loses_a_fifth_is_one_alert_until_it_is_well() {
    let mesh = Mesh::of(&TWELVE);
    let judged = Judged::new(&mesh);
    let fault = one_of(&mesh, "h", &TWELVE, 5);
    judged.is_the_only_alert(["node", "h", "critical"]);
    fault.stop();
    judged.ends();
    judged.stays_calm_but_for(1);
}

#[test]
fn a_split_into_six_and_six_nodes_is_one_alert_while_it_begins_lasts_and_ends() {
    let mesh = Mesh::of(&TWELVE);
    let judged = Judged::new(&mesh);
    let (left, right) = TWELVE.split_at(6);
    let cut = |node: &&str| {
        let others = if left.contains(node) { right } else { left };
        let rules: Vec<String> = others.iter().map(|it| format!("ip saddr {} drop", mesh.node(it).ipv4())).collect();
        Faults::new(&mesh.node(node).namespace, "eth0", &[], &rules)
    };
    let faults: Vec<Faults<'_>> = TWELVE.iter().map(cut).collect();
    judged.is_the_only_alert(["partition", "a|g", "critical"]);
    faults.iter().for_each(Faults::stop);
    judged.ends();
    judged.stays_calm_but_for(1);
}

#[test]
fn one_lost_probe_of_each_node_and_a_rollout_are_no_alert() {
    let mesh = Mesh::of(&TWELVE[..6]);
    let mut judged = Judged::new(&mesh);
    let _faults: Vec<Faults<'_>> =
        TWELVE[..6].iter().map(|node| one_of(&mesh, node, &TWELVE[..6], 1_000_000)).collect();
    for place in 0..judged.agents.len() {
        let node = &judged.mesh.nodes[place];
        let old = &mut judged.agents[place];
        old.signal(libc::SIGTERM);
        old.end();
        let mut new = agent(node, &judged.peers);
        new.wait_for_log("IPv4 SOCK_DGRAM, IPv6 SOCK_DGRAM");
        judged.agents[place] = new;
    }
    judged.stays_calm();
}

/// A list of peers in a file has no state of its own for a node that is leaving. So the agent ends
/// while it is listed, then the list drops the node, and then the node is shut down.
#[test]
fn the_drain_of_a_node_whose_agent_judges_is_no_alert() {
    let mesh = Mesh::of(&TWELVE[..6]);
    let mut judged = Judged::new(&mesh);
    let is_judge = |node: &Node| {
        let age = format!("kube_canary_judgement_age_seconds{{instance=\"{}\"}} < 90", instance(node));
        !judged.prometheus.query(&age).is_empty()
    };
    let place = mesh.nodes.iter().position(is_judge).expect("three agents judge");
    let leaving = &mesh.nodes[place];
    judged.agents[place].signal(libc::SIGTERM);
    assert!(judged.agents[place].end().success(), "{}", judged.agents[place].log());
    let others = format!("instance!=\"{}\"", instance(leaving));
    judged.waits_for("another agent judges", 3, &format!("kube_canary_judgement_age_seconds{{{others}}} < 90"));
    let rest = mesh.nodes.iter().filter(|node| node.name != leaving.name).map(|node| node.line(&node.ipv4()));
    replace(&judged.peers, &rest.collect::<String>());
    judged.waits_for("no agent lists the node", 5, &format!("sum by (instance) (kube_canary_peers{{{others}}}) == 4"));
    leaving.namespace.ip("link set eth0 down\n");
    judged.stays_calm();
}
