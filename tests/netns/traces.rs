//! Nodes with two routers between them, by IPv4 and IPv6: `a – r1 – r2 – b`, and `c` at `r1`. So
//! half of the links of `a` lose nothing, and the others are worth a trace. A router that drops is
//! named by a trace of the flow that it drops, and by its size if it drops large packets.
//!
//! The agents run at the default interval. They trace nothing before they lose packets.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::common::process::unique;
use crate::common::until::until;
use crate::faults::Faults;
use crate::mesh::{Agent, Node, wait_for_link};
use crate::namespace::{DIRECTORY, Namespace};
use crate::probing::{LONG, PORT, agents_on, all_clean, count, is_evidence, link, watch};
use crate::rows;
use crate::verdicts::list;

/// The protocols, and the routers as hops from `a`: the near sides of r1 and r2.
const HOPS: [(&str, [&str; 3]); 2] = [
    ("udp", ["198.18.1.1", "198.18.2.2", "198.18.3.2"]),
    ("udpv6", ["fd00:198:18:1::1", "fd00:198:18:2::2", "fd00:198:18:3::2"]),
];
/// Probes before a fault.
const BEFORE: u64 = 15;
/// Lost probes of the recent window that are a verdict.
const LOST: u64 = 25;

struct Chain {
    nodes: [Node; 3],
    near: Namespace,
    far: Namespace,
}

/// Joins two namespaces by the link `number`, on which the left one has the address 1 or 2.
fn join((left, left_device): (&Namespace, &str), (right, right_device): (&Namespace, &str), number: u8, first: u8) {
    let last = 3 - first;
    left.ip(&format!(
        "link add {left_device} type veth peer name {right_device} netns {}\n\
         address add 198.18.{number}.{first}/24 dev {left_device}\n\
         address add fd00:198:18:{number}::{first}/64 dev {left_device} nodad\nlink set {left_device} up\n",
        right.name()
    ));
    right.ip(&format!(
        "address add 198.18.{number}.{last}/24 dev {right_device}\n\
         address add fd00:198:18:{number}::{last}/64 dev {right_device} nodad\nlink set {right_device} up\n"
    ));
    wait_for_link(left, left_device);
    wait_for_link(right, right_device);
}

impl Chain {
    fn new() -> Self {
        let nodes = ["a", "b", "c"].map(Node::alone);
        let prefix = nodes[0].namespace.name().to_owned();
        let [near, far] = ["r1", "r2"].map(|name| Namespace::new(format!("{prefix}-{name}")));
        for namespace in [&near, &far].into_iter().chain(nodes.iter().map(|node| &node.namespace)) {
            namespace.ip("link set lo up\n");
        }
        for router in [&near, &far] {
            for (path, value) in [
                ("ipv4/ip_forward", "1"),
                ("ipv6/conf/all/forwarding", "1"),
                // The tests are about paths, and not about the routers' limits.
                ("ipv4/icmp_ratelimit", "0"),
                ("ipv6/icmp/ratelimit", "0"),
            ] {
                router.sysctl(&format!("net/{path}"), value);
            }
        }
        let [a, b, c] = nodes.each_ref().map(|node| &node.namespace);
        join((a, "eth0"), (&near, "left"), 1, 2);
        join((&near, "right"), (&far, "left"), 2, 1);
        join((&far, "right"), (b, "eth0"), 3, 1);
        join((c, "eth0"), (&near, "third"), 4, 2);
        for (namespace, to, by) in [
            (a, 2, "1::1"),
            (a, 3, "1::1"),
            (a, 4, "1::1"),
            (&near, 3, "2::2"),
            (&far, 1, "2::1"),
            (&far, 4, "2::1"),
            (b, 1, "3::1"),
            (b, 2, "3::1"),
            (b, 4, "3::1"),
            (c, 1, "4::1"),
            (c, 2, "4::1"),
            (c, 3, "4::1"),
        ] {
            let [net, host] = [&by[..1], &by[3..]];
            namespace.ip(&format!(
                "route add 198.18.{to}.0/24 via 198.18.{net}.{host}\n\
                 route add fd00:198:18:{to}::/64 via fd00:198:18:{net}::{host}\n"
            ));
        }
        let chain = Self { nodes, near, far };
        chain.wait_for_paths();
        chain
    }

    /// Waits until packets pass in both directions. Until its addresses are settled, a router does
    /// not look for its neighbours.
    fn wait_for_paths(&self) {
        for (node, links) in self.nodes.iter().zip([[3, 4], [1, 4], [1, 3]]) {
            for address in links.iter().flat_map(|link| [format!("198.18.{link}.2"), format!("fd00:198:18:{link}::2")])
            {
                let to = SocketAddr::new(address.parse().expect("an address"), PORT);
                until("a refusal comes from the other end", || {
                    let result = node.namespace.within(|| TcpStream::connect_timeout(&to, Duration::from_secs(1)));
                    let refused = result.err().filter(|error| error.kind() == ErrorKind::ConnectionRefused);
                    refused.map(|_| ()).ok_or_else(|| format!("{to} does not answer"))
                });
            }
        }
    }

    fn agents(&self) -> Vec<Agent<'_>> {
        let agents = agents_on(&self.nodes.iter().collect::<Vec<_>>(), &peers_file(), &[]);
        all_clean(&agents, &HOPS.map(|(protocol, _)| (protocol, BEFORE)));
        agents
    }

    /// Drops what arrives at the far router from `a`, if it matches one of these.
    fn spoil(&self, which: &[&str]) -> Faults<'_> {
        let rules: Vec<String> = which.iter().map(|it| format!("{it} counter name hit drop")).collect();
        Faults::new(&self.far, "left", &["hit"], &rules)
    }
}

fn peers_file() -> PathBuf {
    let path = unique(Path::new(DIRECTORY), "peers");
    let lines = "a=198.18.1.2@x\na=fd00:198:18:1::2@x\nb=198.18.3.2@y\nb=fd00:198:18:3::2@y\n\
                 c=198.18.4.2@x\nc=fd00:198:18:4::2@x\n";
    fs::write(&path, lines).expect("our own directory is writable");
    path
}

/// Returns the traces of `a` to `b` by both families, once they name a hop: the direction of the
/// losses must be known before.
fn traces(agents: &[Agent<'_>]) -> [Value; 2] {
    watch(agents, "both paths are traced", LONG, |reports| {
        let of = |protocol| link(&reports, "a", "b", protocol)["trace"].clone();
        let traces = HOPS.map(|(protocol, _)| of(protocol));
        let names_a_hop = |trace: &Value| trace["says"].as_str().is_some_and(|says| says.starts_with("dies after "));
        if traces.iter().all(names_a_hop) { Ok(traces) } else { Err(format!("{traces:?}")) }
    })
}

fn hops(trace: &Value) -> Vec<&str> {
    list(trace, "hops").iter().map(|hop| hop.as_str().expect("text")).collect()
}

/// The source ports of a node's UDP sockets of one family, without that of the reflector.
fn source_ports(node: &Node, file: &str) -> BTreeSet<u16> {
    let text = node.namespace.within(|| fs::read_to_string(format!("/proc/thread-self/net/{file}"))).expect("a list");
    let local = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)?.rsplit(':').next());
    let ports = local.map(|port| u16::from_str_radix(port, 16).expect("a port"));
    ports.filter(|port| *port != PORT).collect()
}

#[test]
fn the_hop_behind_which_a_path_dies_is_named() {
    let chain = Chain::new();
    let agents = chain.agents();
    let reports = watch(&agents, "a report", LONG, Ok::<_, String>);
    for (protocol, _) in HOPS {
        assert!(link(&reports, "a", "b", protocol)["trace"].is_null(), "a healthy path is not traced");
        assert_eq!(count(link(&reports, "a", "b", protocol), "hops"), 3, "two routers");
    }
    let faults = chain.spoil(&[&format!("udp dport {PORT}")]);
    let traces = traces(&agents);
    assert!(faults.packets("hit") > 0.0);
    for ((_, path), trace) in HOPS.iter().zip(&traces) {
        let says = trace["says"].as_str().expect("text");
        println!("{trace}");
        assert_eq!(hops(trace), path[..1], "{trace}");
        assert_eq!(trace["reached"], false);
        assert_eq!(says, format!("dies after {}", path[0]));
    }
    // An operator reads it below the verdict.
    let reports = watch(&agents, "the losses are evidence", LONG, |reports| {
        let is_lost =
            HOPS.iter().all(|(protocol, _)| count(&link(&reports, "a", "b", protocol)["recent"], "lost") >= LOST);
        if is_lost && is_evidence(&reports) { Ok(reports) } else { Err("not yet".into()) }
    });
    let text = doctor(&reports);
    println!("{text}");
    let is_shown = |path: &[&str; 3]| text.contains(&format!("\n    dies after {} (trace from a to b, ", path[0]));
    assert!(HOPS.iter().all(|(_, path)| is_shown(path)), "{text}");
}

/// What `doctor` prints of these reports, without the agents' records of their own lag.
fn doctor(reports: &[Value]) -> String {
    let file = unique(Path::new(DIRECTORY), "reports");
    let lines: Vec<String> = reports.iter().map(|report| rows::line(&rows::without_lag(report)) + "\n").collect();
    fs::write(&file, lines.concat()).expect("our own directory is writable");
    let output = Command::new(env!("CARGO_BIN_EXE_kube-canary")).args(["doctor", "--rows"]).arg(file).output();
    let output = output.expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(1), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_path_of_a_flow_that_loses_alone_is_traced_from_its_source_port() {
    let chain = Chain::new();
    let agents = chain.agents();
    let [v4, v6] = ["udp", "udp6"].map(|file| *source_ports(&chain.nodes[0], file).last().expect("a socket"));
    let _faults = chain.spoil(&[
        &format!("meta protocol ip udp sport {v4} udp dport {PORT}"),
        &format!("meta protocol ip6 udp sport {v6} udp dport {PORT}"),
    ]);
    for (((_, path), trace), port) in HOPS.iter().zip(&traces(&agents)).zip([v4, v6]) {
        println!("{trace}");
        assert_eq!(trace["source_port"], port, "{trace}");
        assert_eq!(hops(trace), path[..1], "{trace}");
        assert_eq!(trace["says"], format!("dies after {}", path[0]));
    }
}

#[test]
fn holes_of_both_families_are_found_with_their_sizes_and_those_that_a_router_reports_say_so() {
    let chain = Chain::new();
    let agents = chain.agents();
    let found = |what: &str, expected: [(u64, &str); 2]| {
        watch(&agents, what, LONG, |reports| {
            let holes = HOPS.map(|(protocol, _)| link(&reports, "a", "b", protocol)["mtu_hole"].clone());
            let is = |(hole, (size, said)): (&Value, (u64, &str))| hole["passes_bytes"] == size && hole["said"] == said;
            if holes.iter().zip(expected).all(is) { Ok(()) } else { Err(format!("{holes:?}")) }
        });
    };
    // The length of IPv6 is that without the header.
    let faults = chain.spoil(&["ip length > 1300", "ip6 length > 1280"]);
    found("silent holes", [(1_300, "silent"), (1_320, "silent")]);
    faults.stop();
    let full = |reports: Vec<Value>| {
        let sizes = HOPS.map(|(protocol, _)| link(&reports, "a", "b", protocol)["path_mtu_bytes"].as_u64());
        if sizes == [Some(1_500); 2] { Ok(()) } else { Err(format!("{sizes:?}")) }
    };
    watch(&agents, "the holes are gone", LONG, full);
    chain.near.ip("route change 198.18.3.0/24 via 198.18.2.2 mtu lock 1400\n\
         route change fd00:198:18:3::/64 via fd00:198:18:2::2 mtu lock 1420\n");
    found("reported holes", [(1_400, "too_big"), (1_420, "too_big")]);
}
