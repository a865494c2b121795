//! Nodes (a, b and c unless a test names others) and the agents on them. Each node is a network
//! namespace with `eth0`. A bridge in a namespace of its own, the hub, has the ports `to-a`, `to-b`
//! and `to-c`.
//!
//! Neighbours are permanent. So a cut link is silent to the other nodes, as behind a router.
//! Otherwise their own kernel would report "host unreachable" once an ARP entry has expired.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::process::{Process, unique};
use crate::common::scrape::{Link, Metrics, fetch};
use crate::common::until::until;
use crate::namespace::{DIRECTORY, Namespace, PROGRAM, as_pod, pod_group, run};

pub const NODES: [&str; 3] = ["a", "b", "c"];
/// As short as the statistics need it to have enough probes within seconds.
pub const INTERVAL: &str = "20ms";
/// Probes within which every earlier probe is decided, with a margin: the timeout, 1 s,
/// is 50 intervals long.
pub const SETTLED: f64 = 75.0;

/// The kind of ICMP socket that an agent gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// `SOCK_DGRAM`, by the sysctl. The process has the rights of the manifest's pod, and no other.
    Ping,
    /// `SOCK_RAW`, by the capability, as root: the sysctl of a new namespace permits no group.
    Raw,
    /// Neither kind is permitted. The process has the rights of the manifest's pod.
    None,
}

pub struct Node {
    pub name: &'static str,
    index: usize,
    pub namespace: Namespace,
}

pub struct Mesh {
    pub hub: Namespace,
    pub nodes: Vec<Node>,
}

impl Socket {
    /// Permits `command`, which runs [`PROGRAM`] in `namespace`, this kind of socket and no other.
    pub fn permit(self, namespace: &Namespace, command: &mut Command) {
        if self == Self::Ping {
            namespace.sysctl("net/ipv4/ping_group_range", &format!("{0} {0}", pod_group()));
        }
        if self != Self::Raw {
            as_pod(command);
        }
    }
}

impl Node {
    /// A namespace without a mesh.
    pub fn alone(name: &'static str) -> Self {
        Self { name, index: 0, namespace: Namespace::new(format!("{}-{name}", prefix())) }
    }

    pub fn ipv4(&self) -> String {
        format!("198.18.0.{}", 11 + self.index)
    }

    /// A second IPv4 address of the same interface.
    pub fn other_ipv4(&self) -> String {
        format!("198.18.0.{}", 111 + self.index)
    }

    pub fn ipv6(&self) -> String {
        format!("fd00:198:18::{}", 11 + self.index)
    }

    /// A second IPv6 address of the same interface.
    pub fn other_ipv6(&self) -> String {
        format!("fd00:198:18::{}", 111 + self.index)
    }

    pub fn zone(&self) -> String {
        format!("zone-{}", self.name)
    }

    /// Returns a line of a peers file.
    pub fn line(&self, address: &str) -> String {
        format!("{}={address}@{}\n", self.name, self.zone())
    }

    pub fn mac(&self) -> String {
        format!("02:00:00:00:00:{:02x}", 11 + self.index)
    }
}

/// Returns the prefix of the names of a test's namespaces.
fn prefix() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("kc{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Mesh {
    pub fn new() -> Self {
        Self::of(&NODES)
    }

    /// A mesh of nodes with these names, at most 100.
    pub fn of(names: &[&'static str]) -> Self {
        let prefix = prefix();
        let hub = Namespace::new(format!("{prefix}-hub"));
        let node = |(index, name)| Node { name, index, namespace: Namespace::new(format!("{prefix}-{name}")) };
        let nodes: Vec<Node> = names.iter().copied().enumerate().map(node).collect();
        let mut lines = String::from("link add bridge type bridge\nlink set bridge up\n");
        for node in &nodes {
            let _ = write!(
                lines,
                "link add to-{0} type veth peer name eth0 address {1} netns {2}\nlink set to-{0} master bridge up\n",
                node.name,
                node.mac(),
                node.namespace.name()
            );
        }
        hub.ip(&lines);
        for node in &nodes {
            let (ipv4, other, ipv6, other_ipv6) = (node.ipv4(), node.other_ipv4(), node.ipv6(), node.other_ipv6());
            let mut lines = format!(
                "link set lo up\naddress add {ipv4}/24 dev eth0\naddress add {other}/24 dev eth0\n\
                 address add {ipv6}/64 dev eth0 nodad\naddress add {other_ipv6}/64 dev eth0 nodad\nlink set eth0 up\n"
            );
            for other in nodes.iter().filter(|other| other.name != node.name) {
                for address in [other.ipv4(), other.other_ipv4(), other.ipv6(), other.other_ipv6()] {
                    let mac = other.mac();
                    let _ = writeln!(lines, "neighbour replace {address} lladdr {mac} dev eth0 nud permanent");
                }
            }
            node.namespace.ip(&lines);
        }
        let mesh = Self { hub, nodes };
        mesh.wait_for_links();
        mesh
    }

    fn wait_for_links(&self) {
        for node in &self.nodes {
            wait_for_link(&node.namespace, "eth0");
            wait_for_link(&self.hub, &format!("to-{}", node.name));
        }
        wait_for_link(&self.hub, "bridge");
    }

    pub fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.name == name).expect("a node of the mesh")
    }

    /// Writes a peers file of all nodes, as discovery would give it, with the agent's own node.
    pub fn peers_file(&self, addresses: impl Fn(&Node) -> Vec<String>) -> PathBuf {
        let path = unique(Path::new(DIRECTORY), "peers");
        let lines = self.nodes.iter().flat_map(|node| addresses(node).into_iter().map(|address| node.line(&address)));
        fs::write(&path, lines.collect::<String>()).expect("our own directory is writable");
        path
    }

    /// Starts an agent on every node.
    pub fn agents(&self, socket: Socket, peers: &Path, port: u16, flags: &[&str]) -> Vec<Agent<'_>> {
        self.nodes.iter().map(|node| Agent::start(node, socket, peers, port, flags)).collect()
    }

    /// Starts an agent on every node, for the IPv4 addresses.
    pub fn ipv4_agents(&self, socket: Socket) -> Vec<Agent<'_>> {
        self.agents(socket, &self.peers_file(|node| vec![node.ipv4()]), 9_877, &[])
    }
}

/// Waits until a link is up and its bridge port forwards. The kernel does both in the background,
/// some time after the command.
pub fn wait_for_link(namespace: &Namespace, name: &str) {
    until("the link is up and forwards", || {
        let text = run(namespace.command("ip").args(["-json", "-details", "link", "show", name]), "");
        let json: serde_json::Value = serde_json::from_str(&text).expect("ip prints JSON");
        let port = &json[0]["linkinfo"]["info_slave_data"]["state"];
        if json[0]["operstate"] == "UP" && (port.is_null() || port == "forwarding") { Ok(()) } else { Err(text) }
    });
}

/// Returns the command line of an agent. It probes by ICMP alone unless `flags` say otherwise,
/// because it listens on loopback, where the others cannot reach it by UDP and TCP.
pub fn command(node: &Node, socket: Socket, peers: &Path, port: u16, flags: &[&str]) -> Command {
    let mut command = node.namespace.command(PROGRAM);
    command.args(["run", "--discovery", "static", "--interval", INTERVAL, "--timeout", "1s", "--node-name", node.name]);
    command.args(["--probes", "icmp", "--link-series", "full"]);
    command.arg("--peers-file").arg(peers).args(["--listen", &format!("127.0.0.1:{port}")]).args(flags);
    socket.permit(&node.namespace, &mut command);
    command
}

pub struct Agent<'a> {
    pub node: &'a Node,
    /// The agent's process, which ends when this is dropped.
    pub process: Process,
    http: SocketAddr,
}

impl<'a> Agent<'a> {
    pub fn start(node: &'a Node, socket: Socket, peers: &Path, port: u16, flags: &[&str]) -> Self {
        let mut process = Process::start(&mut command(node, socket, peers, port, flags), Path::new(DIRECTORY));
        let probes = flags.windows(2).rfind(|pair| pair[0] == "--probes");
        process.wait_for_log(match socket {
            _ if probes.is_some_and(|pair| !pair[1].contains("icmp")) => "UDP sockets: IPv4",
            Socket::Ping => "IPv4 SOCK_DGRAM, IPv6 SOCK_DGRAM",
            _ => "IPv4 SOCK_RAW, IPv6 SOCK_RAW",
        });
        Self { node, process, http: (Ipv4Addr::LOCALHOST, port).into() }
    }

    pub fn metrics(&self) -> Metrics {
        let what = format!("{} is scraped", self.node.name);
        until(&what, || self.node.namespace.within(|| Metrics::of(self.http)))
    }

    pub fn link(&self, peer: &str) -> Link {
        self.metrics().link(peer, "icmp")
    }

    /// Returns the JSON of an endpoint.
    pub fn json(&self, path: &str) -> serde_json::Value {
        let response = self.node.namespace.within(|| fetch(self.http, path, "")).expect("it answers");
        serde_json::from_str(&response.body).unwrap_or_else(|error| panic!("{path}: {error}: {}", response.body))
    }

    /// Returns the reports of these nodes, as the agent passes them on.
    pub fn passes_on(&self, nodes: &[&str]) -> serde_json::Value {
        self.json(&format!("/api/v1/mesh/{}", nodes.join(",")))
    }

    /// Returns the status of an endpoint, or `None` if no server listens any more.
    pub fn status(&self, path: &str) -> Option<u16> {
        self.node.namespace.within(|| fetch(self.http, path, "")).ok().map(|response| response.status)
    }

    /// Waits until `enough` holds for the agent's counters of `peer`, and returns them.
    pub fn wait_for(&self, peer: &str, protocol: &str, what: &str, enough: impl Fn(Link) -> bool) -> Link {
        until(&format!("{} to {peer} by {protocol}: {what}", self.node.name), || {
            let link = self.metrics().link(peer, protocol);
            if enough(link) { Ok(link) } else { Err(format!("{link:?}")) }
        })
    }

    /// Waits for `count` further probes to `peer`. Returns the results of all probes that were
    /// decided in that time.
    pub fn watch(&self, peer: &str, protocol: &str, count: f64) -> Link {
        let before = self.metrics().link(peer, protocol);
        let enough = |link: Link| link.since(before).sent >= count;
        self.wait_for(peer, protocol, "more probes", enough).since(before)
    }
}

/// Every ordered pair of an agent and another node's name.
pub fn pairs<'a>(agents: &'a [Agent<'a>]) -> impl Iterator<Item = (&'a Agent<'a>, &'static str)> {
    let others = |agent: &'a Agent<'a>| NODES.into_iter().filter(|peer| *peer != agent.node.name);
    agents.iter().flat_map(move |agent| others(agent).map(move |peer| (agent, peer)))
}

/// Waits until every agent has probed every other this often, and asserts that
/// all results are answers.
pub fn all_clean(agents: &[Agent<'_>], protocol: &str, count: f64) {
    for (agent, peer) in pairs(agents) {
        let link = agent.wait_for(peer, protocol, "enough answers", |link| link.received >= count);
        assert!(link.is_clean(), "{} to {peer} by {protocol}: {link:?}", agent.node.name);
    }
}
