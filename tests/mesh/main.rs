//! An agent collects reports of others: complete ones, and failures. The collection is the real
//! one, behind the real server. The others are servers that answer as each test sets.

mod domains;
mod hostile;
#[path = "../http_support/mod.rs"]
mod http_support;
mod lists;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::{Duration, Instant};

use http_support::leaks::NoLeaks;
use http_support::{Closed, Response, bind, get, patient};
use kube_canary::allocator;
use kube_canary::allocator::finder::{Scope, ScopeNumber};
use kube_canary::discovery::{MeshFacts, Network, PeerList, PeerSpec, Roster};
use kube_canary::exposition::{About, AgentMetrics, App, Build, Health, SeriesSettings, View, Walks};
use kube_canary::http::{Live, Reply, Routes, Server, ServerStats};
use kube_canary::limits::{MESH_ROWS_MAX, ROW_OBJECT_BYTES_MAX};
use kube_canary::mesh::domains::DomainsFile;
use kube_canary::mesh::{MeshRoutes, Times};
use kube_canary::peers::{Directory, Own};
use kube_canary::statistics::{Scale, Statistics};
use kube_canary::sys::clock;
use kube_canary::units::Nanos;
use serde_json::Value;
use tokio::time::{Sleep, sleep};

/// Another agent's answer to `/api/v1/peers`.
#[derive(Clone)]
enum Says {
    Text(String),
    /// These bytes, and then nothing more, without an end.
    Stalls(String),
    /// These bytes, and then a space now and then, without an end.
    Trickles(String),
}

struct Other {
    says: Says,
    asked: Arc<AtomicUsize>,
    hours: Arc<AtomicUsize>,
    test: ScopeNumber,
}

struct Stalling(Option<String>);

impl Live for Stalling {
    fn poll_render(&mut self, _: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool> {
        match self.0.take() {
            Some(text) => {
                out.extend_from_slice(text.as_bytes());
                Poll::Ready(true)
            }
            None => Poll::Pending,
        }
    }
}

struct Trickling(Option<String>, Pin<Box<Sleep>>);

impl Trickling {
    fn new(text: String) -> Self {
        Self(Some(text), Box::pin(sleep(Duration::ZERO)))
    }
}

impl Live for Trickling {
    fn poll_render(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool> {
        ready!(self.1.as_mut().poll(cx));
        // Far below the limit of a silent report, so that it never counts as stalled.
        self.1.set(sleep(Duration::from_millis(100)));
        out.extend_from_slice(self.0.take().as_deref().unwrap_or(" ").as_bytes());
        Poll::Ready(true)
    }
}

impl Routes for Other {
    fn route(&self, path: &str, _: &str) -> Reply {
        Scope::adopt(self.test);
        self.hours.fetch_add(usize::from(path.starts_with("/api/v1/hour/")), Ordering::SeqCst);
        let content_type = "application/json";
        match (path, &self.says) {
            ("/api/v1/hour/c", _) => Reply::Full { status: 200, content_type, body: b"{\"peer\":\"c\"}\n".to_vec() },
            ("/api/v1/peers", says) => {
                self.asked.fetch_add(1, Ordering::SeqCst);
                match says {
                    Says::Text(text) => Reply::Full { status: 200, content_type, body: text.clone().into_bytes() },
                    Says::Stalls(text) => Reply::Live { content_type, body: Box::new(Stalling(Some(text.clone()))) },
                    Says::Trickles(text) => Reply::Live { content_type, body: Box::new(Trickling::new(text.clone())) },
                }
            }
            _ => Reply::Full { status: 404, content_type, body: b"no\n".to_vec() },
        }
    }
}

/// Limits that cannot run out. Only a test of a limit sets a shorter one.
fn unhurried() -> Times {
    let long = Duration::from_mins(10);
    Times { row: long, whole_row: long, collection: long, wait: long, reader: long, verdicts: long }
}

/// A mesh of `me`, which is real, and others.
struct Mesh {
    me: Server,
    _others: Vec<Server>,
    asked: Arc<AtomicUsize>,
    hours: Arc<AtomicUsize>,
    stats: Arc<ServerStats>,
    /// Dropped last. Everything that a test makes of the mesh is dropped before.
    _no_leaks: NoLeaks,
}

/// The requests to the others.
#[derive(Default)]
struct Counters {
    asked: Arc<AtomicUsize>,
    hours: Arc<AtomicUsize>,
}

impl Counters {
    fn other(&self, says: Says, test: &NoLeaks) -> Other {
        Other { says, asked: Arc::clone(&self.asked), hours: Arc::clone(&self.hours), test: test.number() }
    }
}

/// The values that discovery gives.
#[derive(Default)]
struct Discovered {
    peers: Vec<PeerSpec>,
    roster: Vec<(String, IpAddr)>,
    facts: MeshFacts,
    domains: Option<DomainsFile>,
}

/// The routes of an agent, for any thread that calls them.
struct Adopted(MeshRoutes, ScopeNumber);

impl Routes for Adopted {
    fn route(&self, path: &str, accept: &str) -> Reply {
        Scope::adopt(self.1);
        self.0.route(path, accept)
    }
}

fn spec(node: &str, port: u16) -> PeerSpec {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    PeerSpec { zone: Some("z".into()), http_port: Some(port), ..PeerSpec::pod(node, address) }
}

impl Mesh {
    fn of(others: &[(&str, Says)]) -> Self {
        Self::with_further(others, Vec::new())
    }

    fn with_further(others: &[(&str, Says)], peers: Vec<PeerSpec>) -> Self {
        Self::with_times(others, peers, unhurried())
    }

    fn with_times(others: &[(&str, Says)], mut peers: Vec<PeerSpec>, times: Times) -> Self {
        let no_leaks = NoLeaks::here();
        let (counters, mut servers) = (Counters::default(), Vec::new());
        for (node, says) in others {
            let other = counters.other(says.clone(), &no_leaks);
            let server = bind().start_with(1, Arc::new(other), patient()).expect("a server");
            peers.push(spec(node, server.local_addr().port()));
            servers.push(server);
        }
        Self::with_list(no_leaks, counters, servers, Discovered { peers, ..Discovered::default() }, times)
    }

    /// Nodes `n0` and on, each at an address of its own below 127.`net`.0.0 and all at one port.
    /// The agent's own list has the first two, and its roster has all of them.
    fn partial(net: u8, nodes: u8, row: impl Fn(u8) -> String, members: u32) -> Self {
        let roster: Vec<(String, IpAddr)> =
            (0..nodes).map(|node| (format!("n{node}"), address_of(net, node))).collect();
        Self::partial_by(net, nodes, row, |port| Discovered {
            peers: (0..nodes.min(2)).map(|node| spec_of(net, node, port)).collect(),
            roster: roster.clone(),
            facts: MeshFacts { members, ..MeshFacts::default() },
            ..Discovered::default()
        })
    }

    /// The same with what discovery gives, for agents at that port.
    fn partial_by(net: u8, nodes: u8, row: impl Fn(u8) -> String, discovered: impl Fn(u16) -> Discovered) -> Self {
        let no_leaks = NoLeaks::here();
        let (counters, mut servers) = (Counters::default(), Vec::<Server>::new());
        for node in 0..nodes {
            let other = counters.other(Says::Text(row(node)), &no_leaks);
            let port = servers.first().map_or(0, |first| first.local_addr().port());
            let bound = Server::bind(SocketAddr::new(address_of(net, node), port)).expect("a socket");
            servers.push(bound.start_with(1, Arc::new(other), patient()).expect("a server"));
        }
        let discovered = discovered(servers[0].local_addr().port());
        Self::with_list(no_leaks, counters, servers, discovered, unhurried())
    }

    fn with_list(
        no_leaks: NoLeaks,
        counters: Counters,
        servers: Vec<Server>,
        discovered: Discovered,
        times: Times,
    ) -> Self {
        let (allocator, stats) = allocator::info_and_stats();
        let view = Arc::new(View {
            node: "me".into(),
            directory: RwLock::new(Directory::default()),
            statistics: Statistics::new(Scale::default(), Nanos::from_millis(1_000)),
            health: Health::default(),
            about: About::new(&allocator),
            walks: Walks::default(),
        });
        let own = Own { node: "me".into(), zone: Some("z".into()), addresses: Vec::new() };
        let Discovered { peers, roster, facts, domains } = discovered;
        let applied = view.directory.write().expect("no panic").apply(PeerList { peers }, &own, clock::monotonic());
        applied.changes.into_iter().for_each(|change| view.statistics.apply(change));
        view.directory.write().expect("no panic").set_mesh(facts);
        let roster = Roster::new(roster.iter().map(|(node, address)| (node.as_str(), *address)));
        view.directory.write().expect("no panic").set_roster(Arc::new(roster));
        let bound = bind();
        let served = bound.stats();
        let build = Build { allocator: &allocator, stats, http_workers: 2, series: SeriesSettings::default() };
        let agent = AgentMetrics::new(&build, bound.stats()).expect("names of their own");
        let app = App { view, agent, allocator, node_addresses: Vec::new() };
        let routes = Adopted(MeshRoutes::new(app, bound.local_addr().port(), times, domains), no_leaks.number());
        let me = bound.start_with(2, Arc::new(routes), patient()).expect("a server");
        let Counters { asked, hours } = counters;
        Self { me, _others: servers, asked, hours, stats: served, _no_leaks: no_leaks }
    }

    fn address(&self) -> SocketAddr {
        self.me.local_addr()
    }

    fn document(&self) -> (String, Value) {
        let response = get(self.address(), "/api/v1/mesh").expect("an answer");
        assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
        let json = serde_json::from_str(&response.body).unwrap_or_else(|error| panic!("{error}: {}", response.body));
        (response.body, json)
    }

    /// The number of reports that were requested.
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// The number of hours that were requested.
    fn hours(&self) -> usize {
        self.hours.load(Ordering::SeqCst)
    }
}

fn spec_of(net: u8, node: u8, port: u16) -> PeerSpec {
    PeerSpec { address: address_of(net, node), ..spec(&format!("n{node}"), port) }
}

fn address_of(net: u8, node: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, net, 0, node + 1))
}

/// A peer as a report names it, at its address.
fn peer_at(node: &str, address: IpAddr) -> String {
    peer(node, 0).replacen('{', &format!("{{\"address\":\"{address}\","), 1)
}

fn source(node: &str) -> String {
    format!(
        r#""source":{{"node":"{node}","zone":"z","echo_requests_received":9,"echo_replies_sent":9,"recent":{{"echo_requests_received":9,"echo_replies_sent":9}}}}"#
    )
}

fn peer(node: &str, lost: u32) -> String {
    let received = 50 - lost;
    format!(
        r#"{{"node":"{node}","zone":"z","network":"pod","protocol":"icmp","state":"ready","sent":500,"received":{received},"lost":{lost},"late":0,"rtt_p50_seconds":0.0001,"rtt_p99_seconds":0.0002,"recent":{{"seconds":50.0,"sent":50,"received":{received},"lost":{lost},"rtt_p50_seconds":0.0001,"rtt_p99_seconds":0.0002}}}}"#
    )
}

fn row(node: &str, peers: &[String]) -> String {
    format!("{{{},\"peers\":[{}]}}\n", source(node), peers.join(","))
}

fn nodes(document: &Value) -> Vec<&str> {
    let rows = document["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["source"]["node"].as_str().expect("a name")).collect()
}

fn errors(document: &Value) -> Vec<(&str, &str)> {
    let missing = document["missing"].as_array().expect("a list").iter();
    missing.map(|m| (m["node"].as_str().expect("a name"), m["error"].as_str().expect("a reason"))).collect()
}

#[test]
fn every_row_comes_as_it_is_on_a_line_of_its_own_and_the_verdicts_follow() {
    let rows: Vec<(String, String)> = (0..20)
        .map(|n| {
            let peers: Vec<String> = (0..20).filter(|p| *p != n).map(|p| peer(&format!("n{p}"), 0)).collect();
            (format!("n{n}"), row(&format!("n{n}"), &peers))
        })
        .collect();
    let others: Vec<(&str, Says)> = rows.iter().map(|(node, row)| (node.as_str(), Says::Text(row.clone()))).collect();
    let mesh = Mesh::of(&others);
    let (text, document) = mesh.document();
    let mut found = nodes(&document);
    assert_eq!(found[0], "me", "what needs no network comes first");
    found.sort_unstable();
    assert_eq!(found.len(), 21);
    assert_eq!((errors(&document), document["not_gathered"].as_u64()), (vec![], Some(0)));
    let lines: Vec<&str> = text.lines().collect();
    for (_, row) in &rows {
        assert!(lines.iter().any(|line| line.trim_start_matches(',') == row.trim_end()), "{row}");
    }
    assert!(lines[0] == "{\"rows\":[" && lines.last().expect("a line").starts_with("],\"missing\":"), "{text}");
    assert!(document["verdicts"].is_array());
}

#[test]
fn what_is_no_row_is_named_and_the_document_is_whole_all_the_same() {
    let whole = row("a", &[peer("b", 0), peer("me", 0)]);
    let half = &whole[..whole.len() - 20];
    let closed = Closed::new();
    let mesh = Mesh::with_further(
        &[
            ("a", Says::Text(whole.clone())),
            ("cut", Says::Text(half.replace(r#""node":"a""#, r#""node":"cut""#))),
            ("other", Says::Text(row("b", &[]))),
            ("page", Says::Text("<html>".into())),
            ("lines", Says::Text(row("lines", &[peer("b", 0).replace(',', ",\n")]))),
            ("long", Says::Text(row("long", &[peer(&"x".repeat(ROW_OBJECT_BYTES_MAX), 0)]))),
            ("types", Says::Text(row("types", &[r#"{"node":7}"#.into()]))),
            ("peers-first", Says::Text(format!("{{\"peers\":[{}]}}", peer("b", 0)))),
            ("twice", Says::Text(format!("{{{},{}}}", source("twice"), source("twice")))),
        ],
        vec![spec("nobody", closed.port)],
    );
    let (_, document) = mesh.document();
    let mut found = nodes(&document);
    found.sort_unstable();
    assert_eq!(found, ["a", "cut", "lines", "long", "me", "twice", "types"], "also what broke off");
    let mut errors = errors(&document);
    errors.sort_unstable();
    let expected = [
        ("cut", "broke off"),
        ("lines", "not a row"),
        ("long", "an object of more than 4096 bytes"),
        ("nobody", "connecting: "),
        ("other", "answers as b"),
        ("page", "not a row"),
        ("peers-first", "not a row"),
        ("twice", "not a row"),
        ("types", "not a row: "),
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:?}");
    for ((node, error), (expected_node, begins)) in errors.iter().zip(expected) {
        assert!(*node == expected_node && error.starts_with(begins), "{node}: {error}; expected {begins}");
    }
}

/// None of the three ever answers completely, so each fails however slow this machine is. Which of
/// two limits ends the first two depends on whether their answers begin in time.
#[test]
fn agents_that_do_not_answer_or_do_not_go_on_are_named_with_the_limit() {
    // Connections wait there to be accepted.
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mesh = Mesh::with_times(
        &[
            ("stalls", Says::Stalls(format!("{{{},\"peers\":[{}", source("stalls"), peer("b", 0)))),
            ("silent", Says::Stalls(String::new())),
        ],
        vec![spec("deaf", deaf.local_addr().expect("an address").port())],
        Times { row: Duration::from_secs(1), ..unhurried() },
    );
    let (_, document) = mesh.document();
    let mut errors = errors(&document);
    errors.sort_unstable();
    let [("deaf", deaf), ("silent", silent), ("stalls", stalls)] = errors[..] else { panic!("{errors:?}") };
    let (unanswered, broken_off) = ("no complete answer within 1s", "nothing more within 1s");
    assert_eq!(deaf, unanswered);
    for error in [silent, stalls] {
        assert!([broken_off, unanswered].contains(&error), "{errors:?}");
    }
    let mut expected = vec!["me"];
    if stalls == broken_off {
        expected.push("stalls");
    }
    assert_eq!(nodes(&document), expected, "also what broke off");
}

#[test]
fn an_agent_whose_row_trickles_is_cut_off_and_the_next_is_asked() {
    let trickle = |node| Says::Trickles(format!("{{{},\"peers\":[{}", source(node), peer("b", 0)));
    let mesh = Mesh::with_times(
        &[("a", trickle("a")), ("b", trickle("b")), ("c", Says::Text(row("c", &[])))],
        Vec::new(),
        Times { whole_row: Duration::from_millis(500), ..unhurried() },
    );
    let (_, document) = mesh.document();
    let (found, errors) = (nodes(&document), errors(&document));
    let late = |node| errors.contains(&(node, "not whole within 500ms"));
    assert!(found.contains(&"me") && late("a") && late("b"), "{document}");
    // It was asked, so either its report is there, or the report was itself too late.
    assert!(found.contains(&"c") != late("c"), "{document}");
}

/// Five take 1 s each, and all together have 4 s. So the last never has time.
#[test]
fn rows_that_trickle_end_with_the_gathering_s_time_and_the_document_is_whole() {
    let names = ["a", "b", "c", "d", "e"];
    let others = names.map(|node| (node, Says::Trickles(format!("{{{},\"peers\":[", source(node)))));
    let [whole_row, collection] = [1, 4].map(Duration::from_secs);
    let mesh = Mesh::with_times(&others, Vec::new(), Times { whole_row, collection, ..unhurried() });
    let (_, document) = mesh.document();
    let errors = errors(&document);
    let count = |reason: &str| errors.iter().filter(|(_, error)| *error == reason).count();
    let (slow, no_time) = (count("not whole within 1s"), count("not within the 4s that all rows have"));
    assert!(slow + no_time == 5 && no_time >= 1, "{errors:?}");
}

#[test]
fn a_canary_of_several_addresses_is_asked_once_and_never_at_its_node_s() {
    let node_entry = |node: &str, address: IpAddr, port: Option<u16>| PeerSpec {
        address,
        http_port: port,
        network: Network::Node,
        ..spec(node, 1)
    };
    let loopback = |last: u8| IpAddr::from([127, 0, 0, last]);
    // Listed before the entries of their pods, so these are the first entries of their nodes.
    let further = vec![
        node_entry("a", loopback(9), None),
        node_entry("b", loopback(9), Some(9)),
        node_entry("a", IpAddr::V6(Ipv6Addr::LOCALHOST), None),
        // No agent has reported its pod's address.
        node_entry("only-a-node", loopback(10), None),
    ];
    let answers = [("a", Says::Text(row("a", &[peer("b", 0)]))), ("b", Says::Text(row("b", &[peer("a", 0)])))];
    let mesh = Mesh::with_further(&answers, further);
    let (_, document) = mesh.document();
    let mut found = nodes(&document);
    found.sort_unstable();
    assert_eq!((found, errors(&document)), (vec!["a", "b", "me"], vec![]));
    assert_eq!(mesh.asked(), 2);
    let hour = get(mesh.address(), "/api/v1/hour/b/c").expect("an answer");
    assert_eq!((hour.status, hour.body.as_str()), (200, "{\"peer\":\"c\"}\n"));
    assert_eq!(get(mesh.address(), "/api/v1/hour/only-a-node/c").expect("an answer").status, 404);
}

#[test]
fn verdicts_are_judged_once_for_all_who_ask_within_some_seconds() {
    let mesh = Mesh::of(&[("a", Says::Text(row("a", &[peer("b", 0)]))), ("b", Says::Text(row("b", &[peer("a", 0)])))]);
    let (address, begun) = (mesh.address(), Instant::now());
    let asking: Vec<_> =
        (0..6).map(|_| thread::spawn(move || get(address, "/api/v1/verdicts").expect("an answer"))).collect();
    let answers: Vec<Response> = asking.into_iter().map(|one| one.join().expect("an answer")).collect();
    assert_eq!(mesh.asked(), 2, "each agent once");
    for answer in &answers {
        assert_eq!(answer.status, 200);
        let document: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert!(
            document["verdicts"].is_array() && document["missing"].is_array() && document["nodes"].as_u64() == Some(3)
        );
        let age = document["age_seconds"].as_f64().expect("an age");
        assert!((0.0..=begun.elapsed().as_secs_f64() + 0.1).contains(&age), "{document}");
    }
    // Each document collects the reports again: only the verdicts are kept.
    mesh.document();
    assert_eq!(mesh.asked(), 4);
}

#[test]
fn gatherings_come_one_after_the_other_and_a_reader_who_leaves_ends_his() {
    let mesh = Mesh::of(&[("a", Says::Text(row("a", &[peer("b", 0)])))]);
    let address = mesh.address();
    // Some clients leave before they have read anything.
    for _ in 0..3 {
        let mut stream = http_support::connect(address);
        std::io::Write::write_all(&mut stream, b"GET /api/v1/mesh HTTP/1.1\r\nHost: canary\r\n\r\n")
            .expect("a request");
    }
    let asking: Vec<_> =
        (0..4).map(|_| thread::spawn(move || get(address, "/api/v1/mesh").expect("an answer"))).collect();
    for one in asking {
        let answer = one.join().expect("an answer");
        assert_eq!((answer.status, answer.body.matches("\"source\"").count()), (200, 2), "{}", answer.body);
    }
}

#[test]
fn nodes_beyond_the_limit_are_counted() {
    let closed = Closed::new();
    let peers = (0..MESH_ROWS_MAX + 24).map(|n| spec(&format!("n{n:03}"), closed.port)).collect();
    let mesh = Mesh::with_further(&[], peers);
    let (_, document) = mesh.document();
    assert_eq!((nodes(&document).len(), errors(&document).len()), (1, MESH_ROWS_MAX - 1));
    assert_eq!(document["not_gathered"].as_u64(), Some(25));
}

#[test]
fn the_hour_of_any_pair_comes_by_way_of_any_canary() {
    let mesh = Mesh::of(&[("b", Says::Text(row("b", &[])))]);
    let hour = |path: &str| get(mesh.address(), path).expect("an answer");
    let answer = hour("/api/v1/hour/b/c");
    assert_eq!((answer.status, answer.body.as_str()), (200, "{\"peer\":\"c\"}\n"));
    assert_eq!(hour("/api/v1/hour/b/x").status, 404, "it does not know x");
    assert_eq!(hour("/api/v1/hour/nobody/c").status, 404);
    assert_eq!(hour("/api/v1/hour/me/nobody").status, 404);
    // A browser may write any name in this way.
    assert_eq!(hour("/api/v1/hour/%62/c").body, answer.body);
    assert_eq!(hour("/api/v1/hour/m%65/nobody").body, hour("/api/v1/hour/me/nobody").body);
    assert_eq!(hour("/api/v1/hour/b%/c").status, 404);
}

/// The next three nodes of a ring of twelve.
fn ring(net: u8) -> impl Fn(u8) -> String {
    move |node| {
        let ahead = (1..4).map(|step| (node + step) % 12);
        let peers: Vec<String> = ahead.map(|node| peer_at(&format!("n{node}"), address_of(net, node))).collect();
        row(&format!("n{node}"), &peers)
    }
}

#[test]
fn nodes_that_only_others_rows_name_are_asked_each_once() {
    let mesh = Mesh::partial(11, 12, ring(11), 13);
    let (_, document) = mesh.document();
    let mut found = nodes(&document);
    found.sort_unstable();
    let mut expected: Vec<String> = (0..12).map(|node| format!("n{node}")).chain(["me".to_owned()]).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!((errors(&document), document["not_gathered"].as_u64()), (vec![], Some(0)));
    assert_eq!(mesh.asked(), 12);
}

#[test]
fn members_whom_no_row_names_are_counted() {
    let mesh = Mesh::partial(12, 12, ring(12), 40);
    let (_, document) = mesh.document();
    assert_eq!((nodes(&document).len(), document["not_gathered"].as_u64()), (13, Some(27)));
}

#[test]
fn a_row_names_more_than_are_asked() {
    // No agent listens there: the kernel refuses at once.
    let far = |node: u16| IpAddr::V4(Ipv4Addr::from_bits(0x7f0e_0000 + u32::from(node)));
    let roster: Vec<(String, IpAddr)> = (1..=500).map(|node| (format!("far-{node}"), far(node))).collect();
    let peers: Vec<String> = roster.iter().map(|(node, address)| peer_at(node, *address)).collect();
    let mesh = Mesh::partial_by(
        13,
        1,
        |_| row("n0", &peers),
        |port| Discovered {
            peers: vec![spec_of(13, 0, port)],
            roster: roster.clone(),
            facts: MeshFacts { members: 502, ..MeshFacts::default() },
            ..Discovered::default()
        },
    );
    let (_, document) = mesh.document();
    assert_eq!((nodes(&document), errors(&document).len()), (vec!["me", "n0"], MESH_ROWS_MAX - 2));
    assert_eq!(document["not_gathered"].as_u64(), Some(502 - 300));
}

#[test]
fn the_hour_of_a_source_that_only_others_rows_name_is_found() {
    let mesh = Mesh::partial(14, 12, ring(14), 13);
    let hour = |path: &str| get(mesh.address(), path).expect("an answer");
    let answer = hour("/api/v1/hour/n9/c");
    assert_eq!((answer.status, answer.body.as_str()), (200, "{\"peer\":\"c\"}\n"));
    assert_eq!(mesh.asked(), 0, "discovery knows its address: no row is asked for");
    assert_eq!(hour("/api/v1/hour/n9/x").status, 404, "it does not know x");
    assert_eq!(hour("/api/v1/hour/nobody/c").status, 404);
}

#[test]
fn the_hour_of_a_far_source_is_found_in_a_dual_stack_mesh_too() {
    let mesh = Mesh::partial_by(15, 12, ring(15), |port| {
        let both = |node: u8| {
            let six = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, node.into()));
            [spec_of(15, node, port), PeerSpec { address: six, ..spec_of(15, node, port) }]
        };
        Discovered {
            peers: (0..7).flat_map(both).collect(),
            roster: vec![("n9".to_owned(), address_of(15, 9))],
            facts: MeshFacts { members: 13, ..MeshFacts::default() },
            ..Discovered::default()
        }
    });
    let answer = get(mesh.address(), "/api/v1/hour/n9/c").expect("an answer");
    assert_eq!((answer.status, answer.body.as_str()), (200, "{\"peer\":\"c\"}\n"));
}
