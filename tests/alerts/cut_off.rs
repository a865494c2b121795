//! Judges that are cut off and come back, and one that is killed, among six real agents with the
//! rights of the manifest: no agent says that a judge is suspect, and no alert stays.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::process::{Process, unique};
use crate::common::scrape::fetch;
use crate::common::until::until_within;
use crate::faults::Faults;
use crate::mesh::{Mesh, Node};
use crate::namespace::{DIRECTORY, run, tool};
use crate::prometheus::{Histograms, PORT, Prometheus};

const SIX: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// The user and the group of the manifest.
const USER: &str = "65532";
/// Between two looks at all agents.
const POLL: Duration = Duration::from_secs(2);
/// Judgements of every judge after a return. The judges of before were called suspect after three.
const ROUNDS: u64 = 8;
const PATIENCE: Duration = Duration::from_mins(5);
/// Alerts about what judges hold, or of too few judges.
const CAUSES: [&str; 4] =
    ["KubeCanaryFault", "KubeCanaryAgentFault", "KubeCanaryJudgeSuspect", "KubeCanaryJudgesMissing"];

/// The program where any user can execute it.
fn program() -> PathBuf {
    let path = unique(Path::new(DIRECTORY), "kube-canary");
    fs::write(&path, "").expect("our own directory is writable");
    run(tool("mount").args(["--bind", env!("CARGO_BIN_EXE_kube-canary")]).arg(&path), "");
    path
}

/// An agent with the flags, the user and the capabilities of the manifest. A user namespace of one
/// user has no other user, so there the agent has no capability alone.
fn agent(node: &Node, program: &Path, peers: &Path) -> Process {
    let has_users = fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.contains("4294967295"));
    let mut command: Command = node.namespace.command("setpriv");
    command.args(["--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs"]);
    if has_users {
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
    }
    let group = if has_users { USER } else { "0" };
    node.namespace.sysctl("net/ipv4/ping_group_range", &format!("{group} {group}"));
    command.arg(program).args(["run", "--discovery", "static", "--node-name", node.name]);
    command.arg("--peers-file").arg(peers).args(["--listen", &format!("0.0.0.0:{PORT}")]);
    let mut process = Process::start(&mut command, Path::new(DIRECTORY));
    process.wait_for_log("IPv4 SOCK_DGRAM, IPv6 SOCK_DGRAM");
    process
}

/// A mesh of three zones with two nodes each.
struct World<'a> {
    mesh: &'a Mesh,
    program: PathBuf,
    peers: PathBuf,
    agents: BTreeMap<&'static str, Process>,
    prometheus: Prometheus<'a>,
}

impl<'a> World<'a> {
    fn new(mesh: &'a Mesh) -> Self {
        mesh.hub.ip("link set lo up\naddress add 198.18.0.1/24 dev bridge\n");
        let peers = unique(Path::new(DIRECTORY), "peers");
        let mut lines = String::new();
        for (place, node) in mesh.nodes.iter().enumerate() {
            let _ = writeln!(lines, "{}={}@zone-{}", node.name, node.ipv4(), place % 3);
        }
        fs::write(&peers, lines).expect("our own directory is writable");
        let program = program();
        let agents = mesh.nodes.iter().map(|node| (node.name, agent(node, &program, &peers))).collect();
        let targets: Vec<String> = mesh.nodes.iter().map(|node| format!("{}:{PORT}", node.ipv4())).collect();
        let prometheus = Prometheus::start(&mesh.hub, &targets, Histograms::Classic);
        let world = Self { mesh, program, peers, agents, prometheus };
        world.judges_go_on(&BTreeMap::new(), 2);
        world
    }

    fn json(&self, node: &str, path: &str) -> Option<Value> {
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let response = self.mesh.node(node).namespace.within(|| fetch(http, path, "")).ok()?;
        serde_json::from_str(&response.body).ok()
    }

    /// The judges, and how often each has judged.
    fn judges(&self) -> BTreeMap<&'static str, u64> {
        let rounds = |node: &&'static str| {
            let answer = self.json(node, "/api/v1/judge").filter(|answer| answer["judges"] == true)?;
            Some((*node, answer["rounds"].as_u64()?))
        };
        self.agents.keys().filter_map(rounds).collect()
    }

    /// Asserts that no agent tells a reader that a judge is suspect.
    fn assert_no_suspect(&self) {
        for node in self.agents.keys() {
            for path in ["/api/v1/verdicts", "/api/v1/history"] {
                let told = self.json(node, path).map(|told| told.to_string()).unwrap_or_default();
                assert!(!told.contains("agent_suspect"), "{node}: {told}");
            }
        }
    }

    /// Lets this time pass.
    fn wait(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.assert_no_suspect();
            thread::sleep(POLL);
        }
    }

    /// Waits until there are three judges, each of which has judged this often since `before`.
    fn judges_go_on(&self, before: &BTreeMap<&'static str, u64>, rounds: u64) {
        until_within(PATIENCE, "three judges have judged often enough", || {
            self.assert_no_suspect();
            let now = self.judges();
            let done = |(node, now): (&&str, &u64)| {
                *now >= before.get(node).filter(|before| *before <= now).map_or(rounds, |before| before + rounds)
            };
            if now.len() == 3 && now.iter().all(done) {
                return Ok(());
            }
            thread::sleep(POLL);
            Err(format!("{before:?}, then {now:?}"))
        });
    }

    /// What fires about a cause, or about judges.
    fn alerts(&self) -> Vec<String> {
        let firing = self.prometheus.firing().into_iter().filter(|alert| CAUSES.contains(&&*alert.label("alertname")));
        firing.map(|alert| format!("{alert:?}")).collect()
    }

    /// A fault has ended: it leaves neither an alert nor a suspect.
    fn is_well_again(&self, what: &str) {
        let (end, before) = (Instant::now(), self.judges());
        until_within(PATIENCE, "no alert fires any more", || {
            self.assert_no_suspect();
            let alerts = self.alerts();
            if alerts.is_empty() {
                return Ok(());
            }
            thread::sleep(POLL);
            Err(format!("{alerts:#?}"))
        });
        println!("{what}: no alert fires {} s after it", end.elapsed().as_secs());
        self.judges_go_on(&before, ROUNDS);
        assert!(self.alerts().is_empty(), "{what}: {:#?}", self.alerts());
    }

    /// Cuts these nodes off from all others for this time.
    fn cut(&self, nodes: &[&str], time: Duration) {
        let names = || self.mesh.nodes.iter().map(|node| node.name);
        let faults: Vec<Faults<'_>> = names()
            .map(|node| {
                let others = names().filter(|other| nodes.contains(other) != nodes.contains(&node));
                let rules: Vec<String> =
                    others.map(|other| format!("ip saddr {} drop", self.mesh.node(other).ipv4())).collect();
                Faults::new(&self.mesh.node(node).namespace, "eth0", &[], &rules)
            })
            .collect();
        self.wait(time);
        faults.iter().for_each(Faults::stop);
    }
}

#[test]
fn judge_whose_node_was_off_is_not_suspect_and_no_alert_stays() {
    let mesh = Mesh::of(&SIX);
    let world = World::new(&mesh);
    let first = *world.judges().keys().next().expect("three agents judge");
    world.cut(&[first], Duration::from_mins(3));
    world.is_well_again("a judge's node was off");
}

#[test]
fn judges_after_the_cut_of_a_zone_and_a_kill_are_not_suspect_and_no_alert_stays() {
    let mesh = Mesh::of(&SIX);
    let mut world = World::new(&mesh);
    let first = *world.judges().keys().next().expect("three agents judge");
    let place = SIX.iter().position(|node| *node == first).expect("one of them");
    world.cut(&[first, SIX[(place + 3) % 6]], Duration::from_secs(75));
    world.is_well_again("the zone of a judge was cut off");

    let mut killed = world.agents.remove(first).expect("it runs");
    killed.signal(libc::SIGKILL);
    killed.end();
    world.judges_go_on(&BTreeMap::new(), 2);
    world.agents.insert(first, agent(mesh.node(first), &world.program, &world.peers));
    world.is_well_again("a judge was killed");
}
