//! Agents that probe each other by ICMP, UDP and TCP, and what their reports say of each link.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::process::unique;
use crate::common::scrape::same;
use crate::common::until::{until, until_within};
use crate::mesh::{Agent, Mesh, Node, Socket};
use crate::namespace::{DIRECTORY, Namespace, run};
use crate::verdicts::{judged, list};

/// Port of the HTTP server of every agent, and of its UDP reflector.
pub const PORT: u16 = 9_877;
/// Port at which every agent accepts handshakes.
pub const TCP_PORT: u16 = 9_878;
/// The address at which the others reach all of them.
const LISTEN: &str = "[::]:9877";
/// The limit of a wait for something that takes minutes of the agents' time by itself.
pub const LONG: Duration = Duration::from_mins(10);
/// Time between two looks at all reports.
const LOOK: Duration = Duration::from_millis(500);

/// Writes a peers file of all nodes at their IPv4 addresses, in three zones in turn.
pub fn peers_file(mesh: &Mesh) -> PathBuf {
    let path = unique(Path::new(DIRECTORY), "peers");
    let mut lines = String::new();
    for (place, node) in mesh.nodes.iter().enumerate() {
        let _ = writeln!(lines, "{}={}@zone-{}", node.name, node.ipv4(), place % 3);
    }
    fs::write(&path, lines).expect("our own directory is writable");
    path
}

/// Starts an agent on every node. It probes the others by all protocols once a second, unless
/// `flags` say otherwise.
pub fn agents<'a>(mesh: &'a Mesh, peers: &Path, flags: &[&str]) -> Vec<Agent<'a>> {
    agents_on(&mesh.nodes.iter().collect::<Vec<_>>(), peers, flags)
}

/// Starts agents on these nodes, which must be all of `peers`. Each is told its own addresses, as
/// the manifest does it.
///
/// A request by UDP or TCP is lost if it comes before the other agent. So there is no route for
/// these until all agents run and know all others: a probe that cannot be sent is no loss.
pub fn agents_on<'a>(nodes: &[&'a Node], peers: &Path, flags: &[&str]) -> Vec<Agent<'a>> {
    let closed = nodes.iter().map(|node| Gate::close(&node.namespace)).collect::<Vec<_>>();
    let agents: Vec<Agent<'_>> = nodes.iter().map(|node| agent_on(node, peers, flags)).collect();
    let others = agents.len() as f64 - 1.0;
    for agent in &agents {
        until(&format!("{} knows all others", agent.node.name), || {
            let known = agent.metrics().value("peers", &[("state", "ready")]);
            if known.is_some_and(|known| same(known, others)) { Ok(()) } else { Err(format!("{known:?}")) }
        });
    }
    closed.into_iter().for_each(Gate::open);
    agents
}

/// Starts the agent of one node, as [`agents_on`] does.
pub fn agent_on<'a>(node: &'a Node, peers: &Path, flags: &[&str]) -> Agent<'a> {
    let own = format!("{},{}", node.ipv4(), node.ipv6());
    let usual = ["--probes", "icmp,udp,tcp", "--interval", "1s", "--listen", LISTEN, "--pod-addresses", &own];
    Agent::start(node, Socket::Ping, peers, PORT, &[&usual, flags].concat())
}

/// Routing rules by which a namespace has no route for requests by UDP and TCP.
struct Gate<'a>(&'a Namespace);

impl<'a> Gate<'a> {
    fn close(namespace: &'a Namespace) -> Self {
        let gate = Self(namespace);
        gate.rules("add");
        gate
    }

    fn open(self) {
        self.rules("delete");
    }

    fn rules(&self, verb: &str) {
        let of = |(protocol, port)| format!("rule {verb} pref 10 ipproto {protocol} dport {port} unreachable\n");
        let lines = [("udp", PORT), ("tcp", TCP_PORT)].map(of).concat();
        for family in ["-4", "-6"] {
            run(self.0.command("ip").args([family, "-batch", "-"]), &lines);
        }
    }
}

/// Returns the reports of all agents.
pub fn reports(agents: &[Agent<'_>]) -> Vec<Value> {
    agents.iter().map(|agent| agent.json("/api/v1/peers")).collect()
}

/// A link: its source, its destination and its protocol.
pub type LinkName = (String, String, String);

/// Every link of the reports, with what its source says of it.
pub fn links(reports: &[Value]) -> impl Iterator<Item = (LinkName, &Value)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    reports.iter().flat_map(move |report| {
        let source = text(&report["source"]["node"]);
        list(report, "peers")
            .iter()
            .map(move |peer| ((source.clone(), text(&peer["node"]), text(&peer["protocol"])), peer))
    })
}

/// Returns what `source` says of `destination` by a protocol.
///
/// # Panics
/// If it says nothing.
pub fn link<'a>(reports: &'a [Value], source: &str, destination: &str, protocol: &str) -> &'a Value {
    let name = (source.to_owned(), destination.to_owned(), protocol.to_owned());
    links(reports).find(|(of, _)| *of == name).unwrap_or_else(|| panic!("no link {name:?}")).1
}

/// Returns a count.
///
/// # Panics
/// If there is no such count.
pub fn count(of: &Value, field: &str) -> u64 {
    of[field].as_u64().unwrap_or_else(|| panic!("no {field} in {of}"))
}

/// The probes of a link since its agent has started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
}

impl Total {
    pub fn of(link: &Value) -> Self {
        let [sent, received, lost] = ["sent", "received", "lost"].map(|field| count(link, field));
        Self { sent, received, lost }
    }

    pub fn decided(self) -> u64 {
        self.received + self.lost
    }

    pub fn since(self, before: Self) -> Self {
        Self { sent: self.sent - before.sent, received: self.received - before.received, lost: self.lost - before.lost }
    }
}

/// The probes of every link.
#[derive(Debug)]
pub struct Totals(BTreeMap<LinkName, Total>);

impl Totals {
    pub fn of(reports: &[Value]) -> Self {
        Self(links(reports).map(|(name, link)| (name, Total::of(link))).collect())
    }

    /// The probes of every link since `before`. A link that is new counts from zero.
    pub fn since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a LinkName, Total)> {
        self.0.iter().map(|(name, now)| (name, now.since(before.0.get(name).copied().unwrap_or_default())))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&LinkName, Total)> {
        self.0.iter().map(|(name, total)| (name, *total))
    }
}

/// Looks at the reports of all agents again and again. Returns what `look` returns, as soon as it
/// returns something.
///
/// # Panics
/// With the last reason, if that takes longer than `limit`.
pub fn watch<T>(
    agents: &[Agent<'_>],
    what: &str,
    limit: Duration,
    mut look: impl FnMut(Vec<Value>) -> Result<T, String>,
) -> T {
    let mut next = Instant::now();
    until_within(limit, what, || {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next = Instant::now() + LOOK;
        look(reports(agents))
    })
}

/// The longest recent window, and the time by which reports of one collection may be apart.
const WINDOW_SECONDS: f64 = 60.0 + 20.0;

/// Whether the agents have listened for so long that losses by UDP and TCP are evidence: what is
/// lost before a peer listens says nothing of the network.
pub fn is_evidence(reports: &[Value]) -> bool {
    reports.iter().all(|report| report["source"]["listening_seconds"].as_f64().is_some_and(|it| it >= WINDOW_SECONDS))
}

/// Waits until losses by UDP and TCP are evidence. Returns the reports that show it.
pub fn evident(agents: &[Agent<'_>]) -> Vec<Value> {
    watch(agents, "every agent has listened for long", LONG, |reports| {
        if is_evidence(&reports) { Ok(reports) } else { Err("not yet".into()) }
    })
}

/// Waits until every agent has this many answers of every other by each protocol, and asserts that
/// no probe was lost. Returns the reports that show it.
pub fn all_clean(agents: &[Agent<'_>], answers: &[(&str, u64)]) -> Vec<Value> {
    let expected = agents.len() * (agents.len() - 1) * answers.len();
    watch(agents, "every link is measured", LONG, |reports| {
        let totals = Totals::of(&reports);
        for ((source, peer, protocol), total) in totals.iter() {
            assert_eq!(total.lost, 0, "{source} to {peer} by {protocol}: {total:?}");
        }
        let has_enough = |name: &LinkName, total: Total| {
            answers.iter().any(|(protocol, enough)| *protocol == name.2 && total.received >= *enough)
        };
        let measured = totals.iter().filter(|(name, total)| has_enough(name, *total)).count();
        if measured == expected { Ok(reports) } else { Err(format!("{measured} of {expected} links")) }
    })
}

/// A verdict: its kind, its subject and its protocol, which is empty if it is about none in
/// particular.
pub type Named = (String, String, String);

pub fn named(kind: &str, subject: &str, protocol: &str) -> Named {
    (kind.to_owned(), subject.to_owned(), protocol.to_owned())
}

/// Returns the verdicts about losses that follow from these reports, whatever the agents record of
/// their own lag.
pub fn losses(reports: &[Value]) -> BTreeSet<Named> {
    in_short(&judged(reports, &[]))
}

/// Returns a verdict in short, without its evidence.
pub fn in_short(verdicts: &[Value]) -> BTreeSet<Named> {
    let text = |verdict: &Value, field: &str| verdict[field].as_str().unwrap_or_default().to_owned();
    let short = |verdict: &Value| (text(verdict, "kind"), text(verdict, "subject"), text(verdict, "protocol"));
    verdicts.iter().map(short).collect()
}

/// Returns the losses of every link by one protocol, a line per source, for an assertion that
/// fails.
pub fn picture(reports: &[Value], protocol: &str) -> String {
    let mut lines = format!("\nlost/decided of the recent window by {protocol}:");
    for report in reports {
        let _ = write!(lines, "\n{}", report["source"]["node"]);
        for peer in list(report, "peers").iter().filter(|peer| peer["protocol"] == protocol) {
            let recent = &peer["recent"];
            let (received, lost) = (count(recent, "received"), count(recent, "lost"));
            let _ = write!(lines, " {}:{lost}/{}", peer["node"].as_str().unwrap_or_default(), received + lost);
        }
    }
    lines
}
