//! Two leaf routers with 4 or 16 next hops between them, which the kernel chooses by addresses,
//! protocol and ports. One next hop drops all packets, or a fifth of them, in one direction.
//!
//! Six nodes are behind either router. A fault hits the packets that the left router sends over one
//! cable. So it hits requests of the nodes on the left, and answers to those on the right. Which
//! flows take that cable is learned by nft: the right router lists the 5-tuples that it has seen
//! there.
//!
//! The agents run at the default interval. The verdict must be there once every link has sent 60
//! UDP probes into the fault, which takes a minute.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::scrape::same;
use crate::mesh::{Agent, Mesh, wait_for_link};
use crate::namespace::{Namespace, run};
use crate::probing::{
    LONG, Named, PORT, Total, Totals, agents, all_clean, count, evident, in_short, is_evidence, link, links, losses,
    peers_file, picture, watch,
};
use crate::verdicts::{judged, list, place};

const NAMES: [&str; 12] = ["l1", "l2", "l3", "l4", "l5", "l6", "r1", "r2", "r3", "r4", "r5", "r6"];
const LEFT: usize = 6;
/// The cable with the fault.
const BAD: usize = 2;
/// UDP probes of every link within which a bad next hop is named: a minute.
const PROBES: u64 = 60;
/// Probes of every link within which each flow is known: five of each.
const ALL_FLOWS: u64 = 80;
/// Hops between two nodes of different sides, and those between two of one side.
const HOPS: [u64; 2] = [3, 1];
/// The limit of a machine that keeps an agent from its CPU is far above a second.
const TIMEOUT: [&str; 2] = ["--timeout", "5s"];

/// A leaf router of one side: the nodes of that side send all packets for the other side to it.
struct Leaf {
    namespace: Namespace,
    mac: &'static str,
    address: &'static str,
}

/// Two sides of six nodes, and the two leaf routers between them.
pub struct Fabric {
    pub mesh: Mesh,
    left: Leaf,
    right: Leaf,
}

impl Leaf {
    fn new(mesh: &Mesh, port: &'static str, mac: &'static str, address: &'static str) -> Self {
        let namespace = Namespace::new(mesh.hub.name().replace("hub", port));
        mesh.hub.ip(&format!(
            "link add to-{port} type veth peer name eth0 address {mac} netns {}\n\
             link set to-{port} master bridge up\n",
            namespace.name()
        ));
        for (path, value) in [
            ("ip_forward", "1"),
            ("conf/all/rp_filter", "0"),
            ("conf/default/rp_filter", "0"),
            ("fib_multipath_hash_policy", "1"),
        ] {
            namespace.sysctl(&format!("net/ipv4/{path}"), value);
        }
        namespace.ip(&format!("link set lo up\naddress add {address}/24 dev eth0\nlink set eth0 up\n"));
        wait_for_link(&namespace, "eth0");
        wait_for_link(&mesh.hub, &format!("to-{port}"));
        Self { namespace, mac, address }
    }

    /// The same pairs of addresses take the same next hops in every run, and others than at the
    /// other router. Kernels before 6.11 draw one seed for all when they start.
    fn seed(&self, seed: &str) {
        let path = "/proc/sys/net/ipv4/fib_multipath_hash_seed";
        self.namespace
            .within(|| if Path::new(path).exists() { fs::write(path, seed) } else { Ok(()) })
            .expect("a seed");
    }
}

impl Fabric {
    /// Makes the fabric with this many cables between the two routers, at most 100.
    pub fn new(cables: usize) -> Self {
        let mesh = Mesh::of(&NAMES);
        let left = Leaf::new(&mesh, "left", "02:00:00:00:01:01", "198.18.0.254");
        let right = Leaf::new(&mesh, "right", "02:00:00:00:01:02", "198.18.0.253");
        let it = Self { mesh, left, right };
        it.connect(cables);
        let (of_left, of_right) = it.mesh.nodes.split_at(LEFT);
        for (leaf, own, others, end) in [(&it.left, of_left, of_right, 2), (&it.right, of_right, of_left, 1)] {
            let mut routes = String::new();
            for other in others {
                let _ = write!(routes, "route add {}/32", other.ipv4());
                for cable in 0..cables {
                    let _ = write!(routes, " nexthop via 198.19.{cable}.{end} dev p{cable}");
                }
                routes.push('\n');
            }
            for node in own {
                let _ =
                    writeln!(routes, "neighbour replace {} lladdr {} dev eth0 nud permanent", node.ipv4(), node.mac());
                let mut lines =
                    format!("neighbour replace {} lladdr {} dev eth0 nud permanent\n", leaf.address, leaf.mac);
                for other in others {
                    let _ = writeln!(lines, "route add {}/32 via {}", other.ipv4(), leaf.address);
                }
                node.namespace.ip(&lines);
            }
            leaf.namespace.ip(&routes);
        }
        it.left.seed("1");
        it.right.seed("2");
        it
    }

    /// Makes the cables between the two routers.
    fn connect(&self, cables: usize) {
        let (mut left, mut right) = (String::new(), String::new());
        for cable in 0..cables {
            let macs = [1, 2].map(|end| format!("02:00:00:00:02:{:02x}", 2 * cable + end));
            let _ = write!(
                left,
                "link add p{cable} address {} type veth peer name p{cable} address {} netns {}\n\
                 address add 198.19.{cable}.1/30 dev p{cable}\nlink set p{cable} up\n\
                 neighbour replace 198.19.{cable}.2 lladdr {} dev p{cable} nud permanent\n",
                macs[0],
                macs[1],
                self.right.namespace.name(),
                macs[1],
            );
            let _ = write!(
                right,
                "address add 198.19.{cable}.2/30 dev p{cable}\nlink set p{cable} up\n\
                 neighbour replace 198.19.{cable}.1 lladdr {} dev p{cable} nud permanent\n",
                macs[0],
            );
        }
        self.left.namespace.ip(&left);
        self.right.namespace.ip(&right);
        for leaf in [&self.left, &self.right] {
            (0..cables).for_each(|cable| wait_for_link(&leaf.namespace, &format!("p{cable}")));
        }
    }

    /// Drops packets of the left router that arrive by the cable [`BAD`]: those that match `which`.
    fn spoil(&self, which: &str) -> Spoiled<'_> {
        let rules = format!(
            "table netdev fabric {{\n\
             counter dropped {{ }}\n\
             set flows {{ typeof ip saddr . udp sport . ip daddr . udp dport; flags dynamic; size 65535; }}\n\
             chain ingress {{\n\
             type filter hook ingress device \"p{BAD}\" priority 0; policy accept;\n\
             udp dport {PORT} update @flows {{ ip saddr . udp sport . ip daddr . udp dport }}\n\
             udp sport {PORT} update @flows {{ ip saddr . udp sport . ip daddr . udp dport }}\n\
             {which} counter name dropped drop\n\
             }}\n}}\n"
        );
        run(self.right.namespace.command("nft").args(["-f", "-"]), &rules);
        Spoiled(&self.right.namespace)
    }

    /// Gives the only cable this MTU. A router says so if a packet does not fit.
    pub fn narrow(&self, mtu: u64) {
        for leaf in [&self.left, &self.right] {
            leaf.namespace.ip(&format!("link set p0 mtu {mtu}\n"));
        }
    }

    fn address(&self, node: &str) -> String {
        self.mesh.node(node).ipv4()
    }
}

/// Whether the nodes are on different sides.
pub fn is_across(source: &str, peer: &str) -> bool {
    source.as_bytes().first() != peer.as_bytes().first()
}

/// The source and the destination of a datagram: addresses and ports.
type Flow = (String, u64, String, u64);

struct Spoiled<'a>(&'a Namespace);

impl Spoiled<'_> {
    fn list(&self, kind: &str, name: &str) -> Value {
        let text = run(self.0.command("nft").args(["--json", "list", kind, "netdev", "fabric", name]), "");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("nft: {error}: {text}"))
    }

    /// Number of packets that were dropped.
    fn dropped(&self) -> u64 {
        let json = self.list("counter", "dropped");
        list(&json, "nftables").iter().find_map(|it| it["counter"]["packets"].as_u64()).expect("a counter")
    }

    /// The flows that took the cable.
    fn flows(&self) -> BTreeSet<Flow> {
        let json = self.list("set", "flows");
        let set = list(&json, "nftables").iter().find_map(|it| it.get("set")).expect("a set");
        let flow = |element: &Value| {
            let parts = list(element, "concat");
            let address = |at: usize| parts[at].as_str().expect("an address").to_owned();
            let port = |at: usize| parts[at].as_u64().expect("a port");
            (address(0), port(1), address(2), port(3))
        };
        set["elem"].as_array().into_iter().flatten().map(flow).collect()
    }
}

/// The flows of a link that a report calls losing: source port and direction.
fn losing(link: &Value) -> Vec<(u64, &str)> {
    let flows = list(&link["flows"], "losing").iter();
    flows.map(|flow| (count(flow, "source_port"), flow["direction"].as_str().unwrap_or_default())).collect()
}

/// Asserts that every flow which the reports call losing takes the bad cable, in the direction that
/// they say. Returns the number of these flows, and of all that take the cable.
fn losing_flows_are_true(fabric: &Fabric, spoiled: &Spoiled<'_>, reports: &[Value]) -> [usize; 2] {
    let truth = spoiled.flows();
    let mut named = 0;
    for ((source, peer, _), link) in links(reports).filter(|((_, _, protocol), _)| protocol == "udp") {
        let [from, to] = [&source, &peer].map(|node| fabric.address(node));
        for (port, direction) in losing(link) {
            let out = truth.contains(&(from.clone(), port, to.clone(), PORT.into()));
            let back = truth.contains(&(to.clone(), PORT.into(), from.clone(), port));
            let is_true = match direction {
                "out" => out,
                "in" => back,
                _ => out || back,
            };
            assert!(is_true, "{source} to {peer}, port {port}, {direction}: {link}");
        }
        named += usize::try_from(count(&link["flows"], "losing_count")).expect("a few");
    }
    [named, truth.len()]
}

/// Returns how many links across lose echoes, and how many there are.
fn echo_losses(totals: &Totals, before: &Totals) -> [usize; 2] {
    let across =
        totals.since(before).filter(|((source, peer, protocol), _)| protocol == "icmp" && is_across(source, peer));
    across.fold([0, 0], |[lossy, all], (_, total)| [lossy + usize::from(total.lost > 0), all + 1])
}

/// Returns the smallest number of UDP probes that a link has sent since `before`.
fn fewest(totals: &Totals, before: &Totals) -> u64 {
    let by_udp = totals.since(before).filter(|((_, _, protocol), _)| protocol == "udp");
    by_udp.map(|(_, total)| total.sent).min().unwrap_or(0)
}

/// Asserts that there is a verdict of kind `paths` or `flow`, and besides only links whose echoes
/// take the bad next hop. Some of their datagrams do as well, so by how many protocols such a link
/// loses is left to chance.
fn is_paths(found: &BTreeSet<Named>, reports: &[Value]) {
    let is_named = |kind: &str| kind == "paths" || kind == "flow";
    let loses_echoes = |subject: &str| {
        let ends = subject.split_once("->");
        ends.is_some_and(|(source, peer)| {
            is_across(source, peer) && count(link(reports, source, peer, "icmp"), "lost") > 0
        })
    };
    let is_echo = |(kind, subject, protocol): &Named| {
        kind == "link" && (protocol.is_empty() || protocol.starts_with("icmp")) && loses_echoes(subject)
    };
    let is_fair = found.iter().all(|verdict| is_named(&verdict.0) || is_echo(verdict));
    assert!(
        found.iter().any(|verdict| is_named(&verdict.0)) && is_fair,
        "{found:?}{}{}",
        picture(reports, "udp"),
        picture(reports, "icmp")
    );
}

fn wait_for_probes(agents: &[Agent<'_>], before: &Totals, probes: u64) -> Vec<Value> {
    watch(agents, "every link has sent enough", LONG, |reports| {
        let fewest = fewest(&Totals::of(&reports), before);
        if fewest >= probes { Ok(reports) } else { Err(format!("{fewest} probes")) }
    })
}

/// One of `cables` next hops drops the packets that match `which`.
fn a_bad_next_hop_is_named(cables: usize, which: &str) {
    let _place = place();
    let fabric = Fabric::new(cables);
    let agents = agents(&fabric.mesh, &peers_file(&fabric.mesh), &TIMEOUT);
    all_clean(&agents, &[("icmp", 5), ("udp", 16), ("tcp", 1)]);
    let clean = evident(&agents);
    assert_eq!(losses(&clean), BTreeSet::new(), "before the fault");
    let before = Totals::of(&clean);

    let spoiled = fabric.spoil(which);
    let reports = wait_for_probes(&agents, &before, PROBES);
    let [lossy, pairs] = echo_losses(&Totals::of(&reports), &before);
    let verdicts = judged(&reports, &[]);
    println!(
        "{cables} next hops, {which}: {} packets dropped; {lossy} of {pairs} links lose echoes",
        spoiled.dropped()
    );
    for verdict in &verdicts {
        println!("{}: {}", verdict["kind"], verdict["evidence"]);
    }
    assert!(lossy * 2 < pairs, "{lossy} of {pairs} links lose echoes");
    is_paths(&in_short(&verdicts), &reports);
    let [losing, hit] = losing_flows_are_true(&fabric, &spoiled, &reports);
    println!("{losing} losing flows reported, {hit} take the bad next hop");
    let mut suspects = 0;
    for (_, link) in links(&reports).filter(|((_, _, protocol), _)| protocol == "udp") {
        suspects += u32::from(link["flows"]["suspect"].is_object());
    }
    println!("{suspects} flows are suspected");
    assert!(losing > 0 || !which.is_empty(), "of {hit}");
    // No link within one side is touched.
    for ((source, peer, protocol), link) in links(&reports).filter(|((source, peer, _), _)| !is_across(source, peer)) {
        assert_eq!(count(link, "lost"), 0, "{source} to {peer} by {protocol}: {link}");
    }
    let said = if which.is_empty() { "dies after " } else { "loses behind " };
    traces_name_the_router_before_the_cable(&fabric, &spoiled, (&agents, &before), said);
    if which.is_empty() {
        every_flow_is_found(&fabric, &spoiled, &wait_for_probes(&agents, &before, ALL_FLOWS));
    }
}

/// Waits for the traces of two flows that say this of the router before the bad cable. Each such
/// flow takes the cable, and no trace names another hop.
fn traces_name_the_router_before_the_cable(
    fabric: &Fabric,
    spoiled: &Spoiled<'_>,
    (agents, before): (&[Agent<'_>], &Totals),
    says: &str,
) {
    let mut first = None;
    let (last, named) = watch(agents, "two traces name the router", LONG, |reports| {
        let (truth, mut named) = (spoiled.flows(), Vec::new());
        let probes = fewest(&Totals::of(&reports), before);
        for ((source, peer, _), link) in links(&reports).filter(|((_, _, protocol), _)| protocol == "udp") {
            let said = link["trace"]["says"].as_str().unwrap_or_default();
            let Some(hop) = said.strip_prefix(says) else { continue };
            let hop = hop.split(';').next().unwrap_or_default();
            assert_eq!(hop, fabric.left.address, "{source} to {peer}: {link}");
            let [from, to] = [&source, &peer].map(|node| fabric.address(node));
            let port = count(&link["trace"], "source_port");
            assert!(truth.contains(&(from, port, to, PORT.into())), "{source} to {peer}: {link}");
            named.push(format!("{source} to {peer}, port {port}: {said}"));
        }
        first = first.or((!named.is_empty()).then_some(probes));
        if named.len() >= 2 { Ok((probes, named)) } else { Err(format!("{named:?}")) }
    });
    println!("after {first:?} and {last} probes: {named:?}");
}

/// Asserts that each flow which takes a dead next hop is reported, for every link that has a
/// minority of them.
fn every_flow_is_found(fabric: &Fabric, spoiled: &Spoiled<'_>, reports: &[Value]) {
    losing_flows_are_true(fabric, spoiled, reports);
    let truth = spoiled.flows();
    let mut judged = 0;
    for ((source, peer, _), link) in links(reports).filter(|((_, _, protocol), _)| protocol == "udp") {
        let [from, to] = [&source, &peer].map(|node| fabric.address(node));
        let port = u64::from(PORT);
        let is_own = |flow: &&Flow| {
            (flow.0 == from && flow.2 == to && flow.3 == port) || (flow.0 == to && flow.2 == from && flow.1 == port)
        };
        let hit = truth.iter().filter(is_own).count() as u64;
        let probed = count(&link["flows"], "probed");
        assert_eq!(probed, 16, "{link}");
        if hit * 2 < probed {
            assert_eq!(count(&link["flows"], "losing_count"), hit, "{source} to {peer}: {link}");
            assert_eq!(list(&link["flows"], "losing").len() as u64, hit.min(4), "{source} to {peer}: {link}");
            judged += 1;
        }
    }
    assert!(judged >= 36, "{judged} links have a minority of such flows");
}

#[test]
fn a_dead_one_of_4_next_hops_is_named_with_its_flows() {
    a_bad_next_hop_is_named(4, "");
}

#[test]
fn a_dead_one_of_16_next_hops_is_named_with_its_flows() {
    a_bad_next_hop_is_named(16, "");
}

#[test]
fn one_of_4_next_hops_that_loses_a_fifth_is_named_with_its_flows() {
    a_bad_next_hop_is_named(4, "numgen random mod 5 == 0");
}

#[test]
fn one_of_16_next_hops_that_loses_a_fifth_is_named_with_its_flows() {
    a_bad_next_hop_is_named(16, "numgen random mod 5 == 0");
}

/// A healthy fabric has no verdict, at any time, and its links have their hops.
///
/// `KUBE_CANARY_TEST_FABRIC_PROBES=3600` makes it an hour.
#[test]
fn a_healthy_fabric_has_no_verdict_and_shows_its_hops() {
    let _place = place();
    let probes =
        std::env::var("KUBE_CANARY_TEST_FABRIC_PROBES").ok().map_or(PROBES, |it| it.parse().expect("a number"));
    let limit = LONG + std::time::Duration::from_secs(2 * probes);
    let fabric = Fabric::new(16);
    let agents = agents(&fabric.mesh, &peers_file(&fabric.mesh), &TIMEOUT);
    let before = Totals::of(&all_clean(&agents, &[("icmp", 5), ("udp", 5), ("tcp", 1)]));
    let mut looks = 0;
    let reports = watch(&agents, "every link has sent enough", limit, |reports| {
        looks += 1;
        let totals = Totals::of(&reports);
        for ((source, peer, protocol), Total { lost, .. }) in totals.iter() {
            assert_eq!(lost, 0, "{source} to {peer} by {protocol}");
        }
        // Until then the recent window has what could not be sent before all agents ran.
        let is_evidence = is_evidence(&reports);
        let mut found = judged(&reports, &[]);
        found.retain(|verdict| is_evidence || verdict["reason"].is_null());
        assert!(found.is_empty(), "{found:?}");
        let fewest = fewest(&totals, &before);
        if is_evidence && fewest >= probes { Ok(reports) } else { Err(format!("{fewest} of {probes} probes")) }
    });
    println!("{looks} looks at all reports, {probes} probes of every link");
    for ((source, peer, _), link) in links(&reports).filter(|((_, _, protocol), _)| protocol == "udp") {
        let hops = HOPS[usize::from(!is_across(&source, &peer))];
        assert_eq!(count(link, "hops"), hops, "{source} to {peer}: {link}");
        assert_eq!((count(&link["flows"], "probed"), losing(link).len()), (16, 0), "{source} to {peer}: {link}");
    }
    let metrics = agents[0].metrics();
    for peer in &NAMES[1..] {
        let labels = [("peer_node", *peer), ("protocol", "udp")];
        let hops = metrics.value("path_hops", &labels).expect("a gauge");
        let expected = HOPS[usize::from(!is_across(NAMES[0], peer))];
        assert!(same(hops, expected as f64), "{peer}: {hops}");
        let losing = metrics.value("flows", &[&labels[..], &[("state", "losing")]].concat());
        assert!(losing.is_some_and(|losing| same(losing, 0.0)), "{peer}: {losing:?}");
    }
    // What an agent passes on has no verdict either.
    let document = agents[0].passes_on(&NAMES);
    assert!(losses(list(&document, "rows")).is_empty(), "{document}");
}
