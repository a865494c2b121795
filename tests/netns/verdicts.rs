//! The verdicts about real agents over real faults: kind and subject, and no false verdict.
//!
//! Twelve agents are in three zones. The fault is there before the first probe, so the windows
//! contain nothing else. Losses are counted per stream, or everything is lost, so all runs are
//! alike. The library judges the reports without the agents' own lag ([`crate::rows`]), once every
//! link has enough decided probes. So no result depends on when a thread gets a CPU.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::common::process::unique;
use crate::common::until::until;
use crate::faults::Faults;
use crate::mesh::{Agent, Mesh, Node, Socket, wait_for_link};
use crate::namespace::{DIRECTORY, Namespace};
use crate::rows;

const NAMES: [&str; 12] = ["n01", "n02", "n03", "n04", "n05", "n06", "n07", "n08", "n09", "n10", "n11", "n12"];
/// This makes 1,320 probes per second in all, which a busy machine of two CPUs can send.
const INTERVAL: &str = "100ms";
/// The recent window has 150 to 300 probes to each peer, so it never has fewer again.
const PROBES: u64 = 66;
const PORT: u16 = 9_877;

/// Largest number of these meshes that run at a time: 60 agents would be a test of the machine.
const MESHES_AT_ONCE: usize = 3;

/// Waits for a place among the meshes that run.
pub fn place() -> SemaphorePermit<'static> {
    static MESHES: Semaphore = Semaphore::const_new(MESHES_AT_ONCE);
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(MESHES.acquire()).expect("it is never closed")
}

/// Writes a peers file of all nodes, in three zones in turn.
fn peers_file(mesh: &Mesh) -> PathBuf {
    let path = unique(Path::new(DIRECTORY), "peers");
    let mut lines = String::new();
    for (place, node) in mesh.nodes.iter().enumerate() {
        let _ = writeln!(lines, "{}={}@zone-{}", node.name, node.ipv4(), place % 3);
    }
    fs::write(&path, lines).expect("our own directory is writable");
    path
}

/// Starts an agent whose report other namespaces can request.
fn agent<'a>(node: &'a Node, peers: &Path) -> Agent<'a> {
    let flags = ["--interval", INTERVAL, "--listen", &format!("0.0.0.0:{PORT}")];
    Agent::start(node, Socket::Ping, peers, PORT, &flags)
}

fn agents(mesh: &Mesh) -> Vec<Agent<'_>> {
    let peers = peers_file(mesh);
    mesh.nodes.iter().map(|node| agent(node, &peers)).collect()
}

pub fn list<'a>(of: &'a Value, field: &str) -> &'a [Value] {
    of[field].as_array().unwrap_or_else(|| panic!("no {field} in {of}"))
}

/// Returns how many probes of a link were answered and lost in the recent window.
fn decided(peer: &Value) -> [u64; 2] {
    ["received", "lost"].map(|field| peer["recent"][field].as_u64().expect("a count"))
}

/// Returns the report of each agent, as soon as it has enough probes of every peer.
fn reports(agents: &[Agent<'_>]) -> Vec<Value> {
    let report = |agent: &Agent<'_>| {
        until(&format!("{} has measured all others", agent.node.name), || {
            let report = agent.json("/api/v1/peers");
            let peers = list(&report, "peers");
            let fewest = peers.iter().map(|peer| decided(peer).iter().sum::<u64>()).min().unwrap_or(0);
            let is_enough = peers.len() == NAMES.len() - 1 && fewest >= PROBES;
            if is_enough { Ok(report) } else { Err(format!("{} peers, {fewest} probes", peers.len())) }
        })
    };
    agents.iter().map(report).collect()
}

/// A verdict about losses: its kind, its subject and how certain it is.
type Named = (String, String, String);

/// Returns the verdicts about losses that follow from these reports, whatever the agents record of
/// their own lag. Verdicts about slow links, as on a busy machine, are left out.
pub fn judged(reports: &[Value], missing: &[Value]) -> Vec<Value> {
    let reports: Vec<Value> = reports.iter().map(rows::without_lag).collect();
    let verdicts = rows::judge(&reports, missing);
    let text = |verdict: &Value, field: &str| verdict[field].as_str().expect("text").to_owned();
    let is_loss = |it: &&Value| !text(it, "kind").starts_with("agent_") && !text(it, "summary").contains("is slow");
    verdicts.as_array().expect("a list").iter().filter(is_loss).cloned().collect()
}

fn in_short(verdicts: &[Value]) -> Vec<Named> {
    let short = |verdict: &Value| {
        let [kind, subject, confidence] =
            ["kind", "subject", "confidence"].map(|field| verdict[field].as_str().expect("text").to_owned());
        (kind, subject, confidence)
    };
    verdicts.iter().map(short).collect()
}

fn named(reports: &[Value], missing: &[Value]) -> Vec<Named> {
    in_short(&judged(reports, missing))
}

fn certain(kind: &str, subject: &str) -> Named {
    (kind.to_owned(), subject.to_owned(), "certain".to_owned())
}

/// Returns a summary of the reports, a line per source, for an assertion that fails.
fn picture(reports: &[Value]) -> String {
    let mut lines = String::new();
    for report in reports {
        let _ = write!(lines, "\n{}", report["source"]["node"]);
        for peer in list(report, "peers") {
            let [received, lost] = decided(peer);
            let _ = write!(lines, " {}:{lost}/{}", peer["node"].as_str().unwrap_or_default(), received + lost);
        }
    }
    lines
}

/// Returns the reports of all nodes as an agent passes them on, as soon as they are those of
/// exactly these.
fn document(agent: &Agent<'_>, nodes: &[&str]) -> Value {
    until(&format!("{} collects {nodes:?}", agent.node.name), || {
        let document = agent.passes_on(&NAMES);
        let mut have: Vec<&str> =
            list(&document, "rows").iter().filter_map(|row| row["source"]["node"].as_str()).collect();
        have.sort_unstable();
        if have == nodes { Ok(document.clone()) } else { Err(format!("{have:?}, {}", document["missing"])) }
    })
}

#[test]
fn loss_of_three_percent_everywhere_is_a_mesh_verdict_and_no_node_verdict() {
    const EVERY: usize = 33;
    let _place = place();
    let mesh = Mesh::of(&NAMES);
    // Each stream loses every 33rd request, but not all streams lose theirs in the same second.
    let mut faults = Vec::new();
    for (to, node) in mesh.nodes.iter().enumerate() {
        let others = mesh.nodes.iter().enumerate().filter(|(from, _)| *from != to);
        let rule = |(from, other): (usize, &Node)| {
            let at = (5 * from + 7 * to) % EVERY;
            let request = format!("ip saddr {} icmp type echo-request", other.ipv4());
            format!("{request} numgen inc mod {EVERY} == {at} counter name dropped drop")
        };
        faults.push(Faults::new(&node.namespace, "eth0", &["dropped"], &others.map(rule).collect::<Vec<_>>()));
    }
    let agents = agents(&mesh);
    let reports = reports(&agents);
    assert!(faults.iter().all(|fault| fault.packets("dropped") >= 11.0), "requests are dropped at each node");
    assert_eq!(named(&reports, &[]), [certain("mesh", "*")], "{}", picture(&reports));
    // An agent passes on the same losses.
    let document = document(&agents[4], &NAMES);
    let collected = list(&document, "rows");
    assert_eq!(named(collected, &[]), [certain("mesh", "*")], "{}", picture(collected));
}

#[test]
fn two_halves_without_contact_are_a_partition_for_both_sides() {
    let _place = place();
    let mesh = Mesh::of(&NAMES);
    let (left, right) = NAMES.split_at(6);
    let mut cuts = Vec::new();
    for node in &mesh.nodes {
        let others = if left.contains(&node.name) { right } else { left };
        let addresses: Vec<String> = others.iter().map(|name| mesh.node(name).ipv4()).collect();
        let rule = format!("ip saddr {{ {} }} drop", addresses.join(", "));
        cuts.push(Faults::new(&node.namespace, "eth0", &[], &[rule]));
    }
    let agents = agents(&mesh);
    let reports = reports(&agents);
    let is_split = |reports: &[Value], missing: &[Value], by: &str| {
        let verdicts = judged(reports, missing);
        assert_eq!(in_short(&verdicts), [certain("partition", "n01|n07")], "by {by}: {}", picture(reports));
        assert_eq!(verdicts[0]["members"], json!([left, right]), "by {by}");
    };
    is_split(&reports, &[], "all reports");
    // An agent gets no report of the other half.
    for (agent, own) in [(&agents[1], left), (&agents[10], right)] {
        let document = document(agent, own);
        assert_eq!(list(&document, "missing").len(), 6, "{}", document["missing"]);
        is_split(list(&document, "rows"), list(&document, "missing"), agent.node.name);
    }
}

/// Two routers between all nodes. A packet goes to the first router, over one of several next hops
/// to the second, and from there to its destination.
struct Routers {
    first: Namespace,
    second: Namespace,
}

/// Next hops between the routers.
const HOPS: usize = 4;

impl Routers {
    /// Connects the nodes of `mesh` by the routers. `policy` is `fib_multipath_hash_policy`.
    fn new(mesh: &Mesh, policy: &str) -> Self {
        const MAC: [&str; 2] = ["02:00:00:00:01:01", "02:00:00:00:01:02"];
        let name = |which: &str| mesh.hub.name().replace("hub", which);
        let it = Self { first: Namespace::new(name("first")), second: Namespace::new(name("second")) };
        let mut ports = String::new();
        for (router, mac) in [(&it.first, MAC[0]), (&it.second, MAC[1])] {
            let port = router.name().rsplit('-').next().expect("a name");
            let _ = write!(
                ports,
                "link add to-{port} type veth peer name eth0 address {mac} netns {}\n\
                 link set to-{port} master bridge up\n",
                router.name()
            );
            for (path, value) in [("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/default/rp_filter", "0")] {
                router.sysctl(&format!("net/ipv4/{path}"), value);
            }
        }
        mesh.hub.ip(&ports);
        it.connect(policy);
        for node in &mesh.nodes {
            let mut lines = format!("neighbour replace 198.18.0.254 lladdr {} dev eth0 nud permanent\n", MAC[0]);
            for other in mesh.nodes.iter().filter(|other| other.name != node.name) {
                let _ = writeln!(lines, "route add {}/32 via 198.18.0.254", other.ipv4());
            }
            node.namespace.ip(&lines);
            let neighbour = format!("neighbour replace {} lladdr {} dev eth0 nud permanent\n", node.ipv4(), node.mac());
            it.second.ip(&neighbour);
        }
        for (router, port) in [(&it.first, "to-first"), (&it.second, "to-second")] {
            wait_for_link(router, "eth0");
            wait_for_link(&mesh.hub, port);
        }
        it
    }

    /// Makes the links between the two routers, and the routes.
    fn connect(&self, policy: &str) {
        let (mut first, mut second) = (String::from("link set eth0 up\n"), String::new());
        let mut route = String::from("route add 198.18.0.0/24");
        for hop in 0..HOPS {
            let mac = format!("02:00:00:00:02:{hop:02x}");
            let _ = write!(
                first,
                "link add p{hop} type veth peer name p{hop} address {mac} netns {}\n\
                 address add 198.19.{hop}.1/30 dev p{hop}\nlink set p{hop} up\n\
                 neighbour replace 198.19.{hop}.2 lladdr {mac} dev p{hop} nud permanent\n",
                self.second.name()
            );
            let _ = write!(second, "address add 198.19.{hop}.2/30 dev p{hop}\nlink set p{hop} up\n");
            let _ = write!(route, " nexthop via 198.19.{hop}.2 dev p{hop}");
        }
        self.first.ip(&first);
        second.push_str("address add 198.18.0.253/24 dev eth0\nlink set eth0 up\n");
        self.second.ip(&second);
        for (router, hop) in [&self.first, &self.second].into_iter().flat_map(|it| (0..HOPS).map(move |hop| (it, hop)))
        {
            wait_for_link(router, &format!("p{hop}"));
        }
        self.first.ip(&format!("{route}\n"));
        self.first.sysctl("net/ipv4/fib_multipath_hash_policy", policy);
        // The same pairs of addresses take the same next hops in every run. Kernels before 6.11
        // draw a seed when they start. Then about a quarter of the pairs loses, whichever they are.
        let seed = "/proc/sys/net/ipv4/fib_multipath_hash_seed";
        self.first.within(|| if Path::new(seed).exists() { fs::write(seed, "1") } else { Ok(()) }).expect("a seed");
    }
}

/// One of four next hops drops all packets, with this `fib_multipath_hash_policy`.
///
/// An ICMP echo has no ports. So policy 0 (addresses) and policy 1 (addresses, protocol and ports)
/// both spread probes by pairs of addresses. A reply takes the next hop of its request, because the
/// kernel puts the two addresses in order first. So a pair loses everything or nothing. The
/// connections of the reports have ports. With policy 1 they take any next hop. With policy 0 they
/// take that of the probes, so an agent lacks exactly the reports of the nodes that
/// it does not reach.
fn a_dead_next_hop_is_paths(policy: &str) {
    let _place = place();
    let mesh = Mesh::of(&NAMES);
    let routers = Routers::new(&mesh, policy);
    let dead = Faults::new(&routers.second, "p2", &["swallowed"], &["counter name swallowed drop".to_owned()]);
    let agents = agents(&mesh);
    let reports = reports(&agents);
    assert!(dead.packets("swallowed") >= 1.0, "no pair takes this next hop");
    let losses = reports.iter().flat_map(|report| list(report, "peers")).map(decided);
    assert!(losses.clone().all(|[received, lost]| received == 0 || lost == 0), "{}", picture(&reports));
    let pairs = losses.filter(|[received, _]| *received == 0).count() / 2;
    println!("policy {policy}: {pairs} of 66 pairs take the dead one of {HOPS} next hops");
    assert_eq!(named(&reports, &[]), [certain("paths", "*")], "{}", picture(&reports));
    if policy == "0" {
        let mut reached = vec![agents[0].node.name];
        let peers = list(&reports[0], "peers").iter().filter(|peer| decided(peer)[1] == 0);
        reached.extend(peers.map(|peer| peer["node"].as_str().expect("a name")));
        reached.sort_unstable();
        assert!(reached.len() < NAMES.len(), "n01 reaches all: {}", picture(&reports));
        let document = document(&agents[0], &reached);
        let (collected, missing) = (list(&document, "rows"), list(&document, "missing"));
        assert_eq!(named(collected, missing), [certain("paths", "*")], "{}", picture(collected));
    }
}

#[test]
fn a_dead_next_hop_chosen_by_addresses_is_a_paths_verdict() {
    a_dead_next_hop_is_paths("0");
}

#[test]
fn a_dead_next_hop_chosen_by_addresses_and_ports_is_a_paths_verdict() {
    a_dead_next_hop_is_paths("1");
}

/// Answers every request with the text, until `stop` is set.
fn serve(listener: &TcpListener, text: &Mutex<String>, stop: &AtomicBool) {
    listener.set_nonblocking(true).expect("a socket of ours");
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        // A client that leaves is not served, which is no error here.
        let _ = answer(&mut stream, text);
    }
}

/// Ends the server, however the test ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn answer(stream: &mut TcpStream, text: &Mutex<String>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        request.push(byte[0]);
    }
    let body = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())
}

/// A function that makes a false report of n12 from the true one.
type Lie = fn(&mut Value);

/// Claims that all probes to peers of these names were lost.
fn lose(report: &mut Value, is_lost: fn(&str) -> bool) {
    for peer in report["peers"].as_array_mut().expect("peers") {
        if is_lost(peer["node"].as_str().expect("a name")) {
            let recent = &mut peer["recent"];
            (recent["received"], recent["lost"]) = (json!(0), recent["sent"].clone());
            (recent["rtt_p50_seconds"], recent["rtt_p99_seconds"]) = (Value::Null, Value::Null);
        }
    }
}

/// Adds thirty members that do not exist, and claims that it loses all probes to them.
fn invent(report: &mut Value) {
    report["source"]["members"] = json!(500);
    let peers = report["peers"].as_array_mut().expect("peers");
    for number in 0..30 {
        let mut ghost = peers[0].clone();
        ghost["node"] = json!(format!("ghost-{number}"));
        ghost["address"] = json!(format!("198.18.7.{number}"));
        peers.push(ghost);
    }
    lose(report, |node| node.starts_with("ghost"));
}

/// Claims counts that no agent can have, for the last minute and for the last ten.
fn exaggerate(report: &mut Value) {
    for peer in report["peers"].as_array_mut().expect("peers") {
        let recent = &mut peer["recent"];
        (recent["sent"], recent["received"], recent["lost"]) = (json!(0), json!(u32::MAX), json!(u32::MAX));
        peer["ten_minutes"] = json!({"seconds": 1e300, "sent": 1, "lost": u32::MAX});
    }
}

/// Asserts that only the liar, n12, or its own links are named, its links at most as `likely`.
fn names_the_liar_alone(named: &[Named], lie: &str, judge: &str) {
    let is_fair = |(kind, subject, confidence): &Named| {
        let is_own = subject.split("->").any(|end| end == "n12");
        match kind.as_str() {
            "node" => subject == "n12",
            "link" => is_own && confidence == "likely",
            _ => false,
        }
    };
    println!("{lie}, by {judge}: {named:?}");
    assert!(named.iter().all(is_fair), "{lie}, by {judge}: {named:?}");
}

#[test]
fn a_false_report_among_twelve_names_only_its_author_or_its_links() {
    let _place = place();
    let mesh = Mesh::of(&NAMES);
    let peers = peers_file(&mesh);
    let (liar, honest) = mesh.nodes.split_last().expect("twelve");
    // Its own agent runs at a port that the others do not use.
    let truth = Agent::start(liar, Socket::Ping, &peers, 9_878, &["--interval", INTERVAL]);
    let mut agents: Vec<Agent<'_>> = honest.iter().map(|node| agent(node, &peers)).collect();
    agents.push(truth);
    let true_reports = reports(&agents);
    assert_eq!(named(&true_reports, &[]), [], "{}", picture(&true_reports));

    let listener = liar.namespace.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a free port"));
    let (said, stop) = (Mutex::new(String::new()), AtomicBool::new(false));
    let lies: BTreeMap<&str, Lie> = BTreeMap::from([
        ("loses everything to n01", (|report| lose(report, |node| node == "n01")) as Lie),
        ("loses everything", |report| lose(report, |_| true)),
        ("invents members", invent),
        ("exaggerates", exaggerate),
    ]);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| serve(&listener, &said, &stop));
        for (lie, tell) in &lies {
            let mut reports = true_reports.clone();
            tell(reports.last_mut().expect("twelve"));
            *said.lock().unwrap_or_else(PoisonError::into_inner) = rows::line(reports.last().expect("twelve"));
            let found = named(&reports, &[]);
            names_the_liar_alone(&found, lie, "doctor");
            let document = document(&agents[4], &NAMES);
            assert!(!document.to_string().contains("ghost"), "{lie}: {document}");
            names_the_liar_alone(&named(list(&document, "rows"), &[]), lie, "an agent");
            // Nodes that one report invents are no evidence, not even against that report.
            assert_eq!(found.is_empty(), *lie == "invents members", "{lie}: {found:?}");
        }
    });
}
