//! A mesh of one real agent and of other agents that answer as each test sets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use kube_canary::allocator;
use kube_canary::allocator::finder::{LeakScope, ScopeNumber};
use kube_canary::discovery::{MeshFacts, PeerList, PeerSpec, Ranks, Roster, ranks};
use kube_canary::exposition::{
    About, AgentMetrics, AgentMetricsConfig, App, Health, HeardStrangers, PeerTraces, SeriesSettings, View, Walks,
};
use kube_canary::http::path::encoded;
use kube_canary::http::{Background, LiveBody, Reply, Routes, Server, ServerStats};
use kube_canary::mesh::domains::DomainsFile;
use kube_canary::mesh::{JudgeTimes, MeshRoutes, Times};
use kube_canary::peers::{Directory, OwnNode, name_in_reports};
use kube_canary::report::Report;
use kube_canary::report::compact::{self, CompactWriter};
use kube_canary::statistics::{Scale, Statistics};
use kube_canary::sys::clock;
use kube_canary::units::Nanos;
use serde_json::Value;
use tokio::time::{Sleep, sleep};

use crate::http_support::leaks::NoLeaks;
use crate::http_support::{bind, eventually, generous_limits, get};

/// Another agent's answer to `/api/v1/peers`.
#[derive(Clone)]
pub enum Answer {
    /// This report, in the compact form if that is asked for.
    Text(String),
    /// A compact report, if it is asked for, and else this text.
    Compact(Vec<u8>, String),
    /// JSON, whatever is asked for.
    OtherVersion,
    /// These bytes, and then nothing more, without an end.
    Stalls(String),
    /// These bytes, and then a space now and then, without an end.
    Trickles(String),
    /// The same as a compact report.
    TricklesCompact(Vec<u8>),
}

struct Other {
    answer: Answer,
    claims: Claims,
    questions: Arc<AtomicUsize>,
    readings: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    hours: Arc<AtomicUsize>,
    test: ScopeNumber,
}

/// What another agent says as a judge. An older agent says nothing.
#[derive(Clone, Default)]
pub struct Claims {
    /// Its answer to `/api/v1/judge`.
    pub judge: Option<Answer>,
    /// It answers that no more after this many such questions to all of them.
    pub silent_after: Option<usize>,
    /// Its answer to `/api/v1/judge/verdicts`.
    pub document: Option<Answer>,
    /// Its answer to `/api/v1/judge/nodes`.
    pub nodes: Option<Answer>,
    /// It is gone after this many requests for verdicts to all of them.
    pub ends_after: Option<usize>,
}

struct Stalling(Option<String>);

impl LiveBody for Stalling {
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

struct Trickling(Option<Vec<u8>>, Pin<Box<Sleep>>);

impl Trickling {
    fn new(bytes: Vec<u8>) -> Self {
        Self(Some(bytes), Box::pin(sleep(Duration::ZERO)))
    }
}

impl LiveBody for Trickling {
    fn poll_render(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<bool> {
        ready!(self.1.as_mut().poll(cx));
        // Far below the limit of a silent report, so that it never counts as stalled.
        self.1.set(sleep(Duration::from_millis(100)));
        out.extend_from_slice(self.0.take().as_deref().unwrap_or(b" "));
        Poll::Ready(true)
    }
}

impl Routes for Other {
    fn route(&self, path: &str, accept: &str) -> Reply {
        LeakScope::adopt(self.test);
        self.hours.fetch_add(usize::from(path.starts_with("/api/v1/hour/")), Ordering::SeqCst);
        let content_type = "application/json";
        let reply = |answer: &Answer| match answer {
            Answer::Compact(body, _) if compact::is_accepted(accept) => {
                Reply::Full { status: 200, content_type: compact::MEDIA_TYPE, body: body.clone() }
            }
            Answer::Text(text) | Answer::Compact(_, text) => {
                Reply::Full { status: 200, content_type, body: text.clone().into_bytes() }
            }
            Answer::OtherVersion => Reply::Full { status: 200, content_type, body: b"{}".to_vec() },
            Answer::Stalls(text) => Reply::Live { content_type, body: Box::new(Stalling(Some(text.clone()))) },
            Answer::Trickles(text) => {
                Reply::Live { content_type, body: Box::new(Trickling::new(text.clone().into_bytes())) }
            }
            Answer::TricklesCompact(bytes) => {
                Reply::Live { content_type: compact::MEDIA_TYPE, body: Box::new(Trickling::new(bytes.clone())) }
            }
        };
        let is_gone = self.claims.ends_after.is_some_and(|readings| self.readings.load(Ordering::SeqCst) >= readings);
        let compacted = match &self.answer {
            Answer::Text(text) if path == "/api/v1/peers" && compact::is_accepted(accept) => compacted(text),
            _ => None,
        };
        match (path, &self.claims) {
            ("/api/v1/judge" | "/api/v1/judge/verdicts", _) if is_gone => Reply::text(404, "no\n"),
            ("/api/v1/hour/c", _) => Reply::Full { status: 200, content_type, body: b"{\"peer\":\"c\"}\n".to_vec() },
            ("/api/v1/peers", _) => {
                self.asked.fetch_add(1, Ordering::SeqCst);
                reply(&compacted.map_or_else(|| self.answer.clone(), |bytes| Answer::Compact(bytes, String::new())))
            }
            ("/api/v1/judge", Claims { judge: Some(answer), .. }) => {
                let before = self.questions.fetch_add(1, Ordering::SeqCst);
                if self.claims.silent_after.is_some_and(|most| before >= most) {
                    return Reply::Live { content_type, body: Box::new(Stalling(None)) };
                }
                reply(answer)
            }
            ("/api/v1/judge/verdicts", Claims { document: Some(answer), .. }) => {
                self.readings.fetch_add(1, Ordering::SeqCst);
                reply(answer)
            }
            ("/api/v1/judge/nodes", Claims { nodes: Some(answer), .. }) => reply(answer),
            _ => Reply::Full { status: 404, content_type, body: b"no\n".to_vec() },
        }
    }
}

/// Returns a report in JSON as a compact one. `None` if it is no report.
fn compacted(text: &str) -> Option<Vec<u8>> {
    let report: Report<'_> = serde_json::from_str(text).ok()?;
    let own = name_in_reports(&report.source.node);
    let mut writer = CompactWriter::new(&report.source, own, clock::realtime().as_secs());
    report.checks.iter().for_each(|check| writer.check(check));
    report.peers.iter().for_each(|peer| writer.peer(name_in_reports(&peer.node), peer));
    Some(writer.end(0))
}

/// An agent that judges at once, and once in 20 ms.
pub fn at_once() -> JudgeTimes {
    let [short, long] = [20, 600_000].map(Duration::from_millis);
    JudgeTimes {
        lacking: Duration::ZERO,
        step: Duration::ZERO,
        check: short,
        round: short,
        reuse: Duration::ZERO,
        answer: long,
        ..JudgeTimes::default()
    }
}

/// Limits that cannot run out. Only a test of a limit sets a shorter one.
pub fn unhurried() -> Times {
    let long = Duration::from_mins(10);
    Times { row: long, whole_row: long, collection: long, wait: long, reader: long, large: Duration::ZERO }
}

/// Others that say nothing as judges.
fn without_claims(others: &[(&str, Answer)]) -> Vec<(String, Answer, Claims)> {
    others.iter().map(|(node, answer)| ((*node).to_owned(), answer.clone(), Claims::default())).collect()
}

/// A mesh of `me`, which is real, and others.
pub struct Mesh {
    me: Server,
    /// The nodes that discovery knows, itself included.
    names: Vec<String>,
    _others: Vec<Server>,
    asked: Arc<AtomicUsize>,
    hours: Arc<AtomicUsize>,
    questions: Arc<AtomicUsize>,
    readings: Arc<AtomicUsize>,
    pub stats: Arc<ServerStats>,
    /// Dropped last. Everything that a test makes of the mesh is dropped before.
    no_leaks: NoLeaks,
}

/// The requests to the others.
#[derive(Default)]
struct Counters {
    asked: Arc<AtomicUsize>,
    hours: Arc<AtomicUsize>,
    /// Requests that ask whether another agent judges.
    questions: Arc<AtomicUsize>,
    /// Requests for the verdicts of another judge.
    readings: Arc<AtomicUsize>,
}

impl Counters {
    fn other(&self, answer: Answer, test: &NoLeaks) -> Other {
        let [asked, hours, questions, readings] =
            [&self.asked, &self.hours, &self.questions, &self.readings].map(Arc::clone);
        Other { answer, claims: Claims::default(), questions, readings, asked, hours, test: test.number() }
    }
}

/// The values that discovery gives.
#[derive(Default)]
pub struct Discovered {
    pub peers: Vec<PeerSpec>,
    pub roster: Vec<(String, IpAddr)>,
    pub facts: MeshFacts,
    pub domains: Option<DomainsFile>,
    pub judge: Option<JudgeTimes>,
}

/// The routes of an agent, for any thread that calls them.
struct Adopted(MeshRoutes, ScopeNumber);

impl Routes for Adopted {
    fn route(&self, path: &str, accept: &str) -> Reply {
        LeakScope::adopt(self.1);
        self.0.route(path, accept)
    }

    fn background(&self, part: usize) -> Option<Background> {
        LeakScope::adopt(self.1);
        self.0.background(part)
    }
}

pub fn spec(node: &str, port: u16) -> PeerSpec {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    PeerSpec { zone: Some("z".into()), http_port: Some(port), ..PeerSpec::pod(node, address) }
}

impl Mesh {
    pub fn of(others: &[(&str, Answer)]) -> Self {
        Self::with_further(others, Vec::new())
    }

    pub fn with_further(others: &[(&str, Answer)], peers: Vec<PeerSpec>) -> Self {
        Self::with_times(others, peers, unhurried())
    }

    pub fn with_times(others: &[(&str, Answer)], further: Vec<PeerSpec>, times: Times) -> Self {
        Self::among(without_claims(others), further, None, times)
    }

    /// An agent that may judge, among others with these reports and what they say as judges.
    pub fn judging(others: Vec<(String, Answer, Claims)>, times: JudgeTimes) -> Self {
        Self::among(others, Vec::new(), Some(times), unhurried())
    }

    /// An agent that judges at once, among others with these reports and further members.
    pub fn judge_of(others: &[(&str, Answer)], further: Vec<PeerSpec>) -> Self {
        Self::among(without_claims(others), further, Some(at_once()), unhurried())
    }

    fn among(
        others: Vec<(String, Answer, Claims)>,
        mut peers: Vec<PeerSpec>,
        judge: Option<JudgeTimes>,
        times: Times,
    ) -> Self {
        let no_leaks = NoLeaks::here();
        let (counters, mut servers) = (Counters::default(), Vec::new());
        for (node, answer, claims) in others {
            let other = Other { claims, ..counters.other(answer, &no_leaks) };
            let server = bind().start_with(1, Arc::new(other), generous_limits()).expect("a server");
            peers.push(spec(&node, server.local_addr().port()));
            servers.push(server);
        }
        let discovered = Discovered { peers, judge, ..Discovered::default() };
        Self::with_list(no_leaks, counters, servers, discovered, times)
    }

    /// Nodes `n0` and on, each at an address of its own below 127.`net`.0.0 and all at one port.
    /// The agent's own list has the first two, and its roster has all of them.
    pub fn partial(net: u8, nodes: u8, row: impl Fn(u8) -> String, members: u32) -> Self {
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
    pub fn partial_by(net: u8, nodes: u8, row: impl Fn(u8) -> String, discovered: impl Fn(u16) -> Discovered) -> Self {
        Self::answering(net, nodes, |node| Answer::Text(row(node)), discovered, unhurried())
    }

    /// The same with any answers and times.
    pub fn answering(
        net: u8,
        nodes: u8,
        answer: impl Fn(u8) -> Answer,
        discovered: impl Fn(u16) -> Discovered,
        times: Times,
    ) -> Self {
        let no_leaks = NoLeaks::here();
        let (counters, mut servers) = (Counters::default(), Vec::<Server>::new());
        for node in 0..nodes {
            let other = counters.other(answer(node), &no_leaks);
            let port = servers.first().map_or(0, |first| first.local_addr().port());
            let bound = Server::bind(SocketAddr::new(address_of(net, node), port)).expect("a socket");
            servers.push(bound.start_with(1, Arc::new(other), generous_limits()).expect("a server"));
        }
        let discovered = discovered(servers[0].local_addr().port());
        Self::with_list(no_leaks, counters, servers, discovered, times)
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
            traces: PeerTraces::default(),
            walks: Walks::default(),
            strangers: HeardStrangers::default(),
            later: std::sync::OnceLock::new(),
        });
        let own = OwnNode { node: "me".into(), zone: Some("z".into()), addresses: Vec::new() };
        let Discovered { peers, roster, facts, domains, judge } = discovered;
        let listed = peers.iter().map(|peer| peer.node.clone());
        let mut names: Vec<String> =
            listed.chain(roster.iter().map(|(node, _)| node.clone())).chain(["me".into()]).collect();
        names.sort_unstable();
        names.dedup();
        let listed = peers.iter().map(|PeerSpec { node, address, http_port, zone, .. }| ranks::ListedMember {
            node,
            address: *address,
            http_port: *http_port,
            zone: zone.as_deref(),
        });
        let ranks = Ranks::new(listed, ranks::RankedBy::Name, ("me", &[]));
        let applied = view.directory.write().expect("no panic").apply(PeerList { peers }, &own, clock::monotonic());
        applied.changes.into_iter().for_each(|change| view.statistics.apply(change));
        view.directory.write().expect("no panic").set_mesh(facts);
        let beyond = roster.iter().map(|(node, address)| ranks::ListedMember {
            node,
            address: *address,
            http_port: None,
            zone: None,
        });
        let roster = Roster::default().next(ranks, Some(beyond)).expect("it differs");
        view.directory.write().expect("no panic").set_roster(roster);
        let bound = bind();
        let served = bound.stats();
        let build =
            AgentMetricsConfig { allocator: &allocator, stats, http_workers: 2, series: SeriesSettings::default() };
        let agent = AgentMetrics::new(&build, bound.stats()).expect("names of their own");
        let app = App { view, agent, allocator, node_addresses: Vec::new() };
        let routes = Adopted(MeshRoutes::new(app, bound.local_addr().port(), times, domains, judge), no_leaks.number());
        let me = bound.start_with(2, Arc::new(routes), generous_limits()).expect("a server");
        let Counters { asked, hours, questions, readings } = counters;
        Self { me, names, _others: servers, asked, hours, questions, readings, stats: served, no_leaks }
    }

    pub fn address(&self) -> SocketAddr {
        self.me.local_addr()
    }

    /// The reports of all nodes that discovery knows, as the agent passes them on.
    pub fn document(&self) -> (String, Value) {
        let names: Vec<String> = self.names.iter().map(|name| encoded(name)).collect();
        let response = get(self.address(), &format!("/api/v1/mesh/{}", names.join(","))).expect("an answer");
        assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
        let json = serde_json::from_str(&response.body).unwrap_or_else(|error| panic!("{error}: {}", response.body));
        (response.body, json)
    }

    /// What the agent holds as a judge, once it has judged.
    pub fn held(&self) -> Value {
        let document = || get(self.address(), "/api/v1/judge/verdicts").expect("an answer");
        eventually("a judgement", || document().status == 200);
        serde_json::from_str(&document().body).expect("a document")
    }

    /// Bytes that the agent, the others and the test have allocated and not freed.
    pub fn live_bytes(&self) -> usize {
        self.no_leaks.live_bytes()
    }

    /// The number of reports that were requested.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// The number of requests for the verdicts of other judges.
    pub fn readings(&self) -> usize {
        self.readings.load(Ordering::SeqCst)
    }

    /// The number of questions whether another agent judges.
    pub fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }

    /// The number of hours that were requested.
    pub fn hours(&self) -> usize {
        self.hours.load(Ordering::SeqCst)
    }
}

pub fn spec_of(net: u8, node: u8, port: u16) -> PeerSpec {
    PeerSpec { address: address_of(net, node), ..spec(&format!("n{node}"), port) }
}

pub fn address_of(net: u8, node: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, net, 0, node + 1))
}

/// A peer as a report names it, at its address.
pub fn peer_at(node: &str, address: IpAddr) -> String {
    peer(node, 0).replacen('{', &format!("{{\"address\":\"{address}\","), 1)
}

pub fn source(node: &str) -> String {
    format!(
        r#""source":{{"node":"{node}","zone":"z","echo_requests_received":9,"echo_replies_sent":9,"recent":{{"echo_requests_received":9,"echo_replies_sent":9}}}}"#
    )
}

pub fn peer(node: &str, lost: u32) -> String {
    let received = 50 - lost;
    format!(
        r#"{{"node":"{node}","zone":"z","network":"pod","protocol":"icmp","state":"ready","sent":500,"received":{received},"lost":{lost},"late":0,"rtt_p50_seconds":0.0001,"rtt_p99_seconds":0.0002,"recent":{{"seconds":50.0,"sent":50,"received":{received},"lost":{lost},"rtt_p50_seconds":0.0001,"rtt_p99_seconds":0.0002}}}}"#
    )
}

pub fn row(node: &str, peers: &[String]) -> String {
    format!("{{{},\"peers\":[{}]}}\n", source(node), peers.join(","))
}

pub fn nodes(document: &Value) -> Vec<&str> {
    let rows = document["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["source"]["node"].as_str().expect("a name")).collect()
}

/// The nodes without a report, of those that were passed on or judged, and the reasons.
pub fn errors(document: &Value) -> Vec<(&str, &str)> {
    let missing = document.get("missing").unwrap_or(&document["overview"]["missing"]);
    let missing = missing.as_array().expect("a list").iter();
    missing.map(|m| (m["node"].as_str().expect("a name"), m["error"].as_str().expect("a reason"))).collect()
}

/// The next three nodes of a ring of twelve.
pub fn ring(net: u8) -> impl Fn(u8) -> String {
    move |node| {
        let ahead = (1..4).map(|step| (node + step) % 12);
        let peers: Vec<String> = ahead.map(|node| peer_at(&format!("n{node}"), address_of(net, node))).collect();
        row(&format!("n{node}"), &peers)
    }
}
