//! Node addresses that peers report: made-up agents on loopback, and the adapter between a source
//! and the probe loop.

#[path = "common/leaks.rs"]
mod leaks;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_canary::discovery::underlay::{self, Ends};
use kube_canary::discovery::{self, DiscoverySource, MeshFacts, Ourselves, PeerList, PeerSpec, StaticConfig, Update};
use kube_canary::limits::IDENTITY_REQUESTS_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

const TIMEOUT: Duration = Duration::from_secs(30);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The made-up agents: one server for all addresses of 127.0.0.0/8, which answers at each
/// as the test sets.
#[derive(Clone, Default)]
struct Agents(Arc<Mutex<State>>, Arc<Notify>);

#[derive(Default)]
struct State {
    /// The answer at each address. Other addresses give no answer.
    answers: HashMap<IpAddr, String>,
    asked: Vec<IpAddr>,
    /// The questions that are open, and the number of all questions.
    under_way: usize,
    most: usize,
    /// No question is answered before this many are open at once.
    awaited: usize,
}

impl Agents {
    async fn start() -> (Self, u16) {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let this = Self::default();
        let serving = this.clone();
        spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                spawn_local(serving.clone().serve(stream));
            }
        });
        (this, port)
    }

    fn answer(&self, address: &str, node: &str, node_addresses: &[&str]) {
        let body = serde_json::json!({"node": node, "zone": "z", "node_addresses": node_addresses}).to_string();
        self.0.lock().unwrap().answers.insert(ip(address), body);
    }

    fn stop_answering(&self, address: &str) {
        self.0.lock().unwrap().answers.remove(&ip(address));
    }

    fn asked(&self) -> Vec<IpAddr> {
        self.0.lock().unwrap().asked.clone()
    }

    /// Waits until a question makes the condition true.
    async fn changed(&self, is_so: impl Fn(&State) -> bool) {
        let changed = async {
            loop {
                let new = self.1.notified();
                if is_so(&self.0.lock().unwrap()) {
                    return;
                }
                new.await;
            }
        };
        let in_time = tokio::time::timeout(TIMEOUT, changed).await;
        assert!(in_time.is_ok(), "asked {:?}", self.asked());
    }

    async fn serve(self, mut stream: TcpStream) {
        let address = stream.local_addr().unwrap().ip();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        assert!(head.starts_with(b"GET /api/v1/identity HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&head));
        {
            let mut state = self.0.lock().unwrap();
            state.under_way += 1;
            state.most = state.most.max(state.under_way);
            state.asked.push(address);
        }
        self.1.notify_waiters();
        self.changed(|state| state.most >= state.awaited).await;
        let body = {
            let mut state = self.0.lock().unwrap();
            state.under_way -= 1;
            state.answers.get(&address).cloned()
        };
        // Without an answer the server just closes the connection.
        if let Some(body) = body {
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(text.as_bytes()).await;
        }
    }
}

/// The adapter, between a source and a probe loop, both of which the test plays.
struct Between {
    agents: Agents,
    source: Sender<Update>,
    asked: Receiver<IpAddr>,
    doubts: Sender<IpAddr>,
    updates: Receiver<Update>,
    adapter: JoinHandle<()>,
}

impl Between {
    /// Starts with a node whose pod address and node address are reported.
    async fn start_with_a() -> Self {
        let mut between = Self::start().await;
        between.agents.answer(A.1, "a", &["127.2.0.2"]);
        between.list(&[A]).await;
        between.passed().await;
        between.amended().await;
        between
    }

    /// The address that the source is asked about.
    async fn asked(&mut self) -> IpAddr {
        tokio::time::timeout(TIMEOUT, self.asked.recv()).await.unwrap().unwrap()
    }

    async fn start() -> Self {
        let (agents, http_port) = Agents::start().await;
        let (source, from_source) = mpsc::channel(1);
        let (to_source, asked) = mpsc::channel(1);
        let (doubts, questions) = mpsc::channel(1);
        let (sender, updates) = mpsc::channel(1);
        let ends = Ends { from_source, to_source, questions, updates: sender, identity_time: TIMEOUT };
        let adapter = spawn_local(async move { underlay::run(&ourselves(http_port), ends).await });
        Self { agents, source, asked, doubts, updates, adapter }
    }

    async fn list(&self, peers: &[(&str, &str)]) {
        let peers = peers.iter().map(|(node, address)| pod(node, address)).collect();
        self.source.send(Update::List(PeerList { peers })).await.unwrap();
    }

    async fn update(&mut self) -> Update {
        next(&mut self.updates).await
    }

    /// Asserts that the next update is a list of the source.
    async fn passed(&mut self) -> Vec<String> {
        match self.update().await {
            Update::List(list) => written(&list),
            other => panic!("{other:?}"),
        }
    }

    /// Asserts that the next update is the same list with the reported addresses.
    async fn amended(&mut self) -> Vec<String> {
        match self.update().await {
            Update::Amended(list) => written(&list),
            other => panic!("{other:?}"),
        }
    }

    async fn until_asked(&self, times: usize) {
        self.agents.changed(|state| state.asked.len() >= times).await;
    }
}

async fn next(updates: &mut Receiver<Update>) -> Update {
    tokio::time::timeout(TIMEOUT, updates.recv()).await.expect("an update").expect("the adapter runs")
}

fn ourselves(http_port: u16) -> Ourselves {
    Ourselves {
        node: "self".into(),
        http_port,
        node_network: true,
        addresses: vec![ip("127.2.0.1")],
        ..Ourselves::default()
    }
}

fn pod(node: &str, address: &str) -> PeerSpec {
    PeerSpec { zone: Some("z".into()), ..PeerSpec::pod(node, ip(address)) }
}

/// `NODE ADDRESS NETWORK` of each entry.
fn written(list: &PeerList) -> Vec<String> {
    list.peers.iter().map(|spec| format!("{} {} {}", spec.node, spec.address, spec.network.label())).collect()
}

/// Runs a test on one thread, with tasks of its own.
fn run(test: impl Future<Output = ()>) {
    leaks::run(async { LocalSet::new().run_until(test).await });
}

const A: (&str, &str) = ("a", "127.1.0.2");
const B: (&str, &str) = ("b", "127.1.0.3");

#[test]
fn a_list_passes_at_once_and_again_with_the_reported_node_addresses() {
    run(async {
        let mut between = Between::start().await;
        between.agents.answer(A.1, "a", &["127.2.0.2"]);
        between.agents.answer(B.1, "b", &["127.2.0.3", "127.2.0.4"]);
        between.source.send(Update::Mesh(MeshFacts { members: 3, ..MeshFacts::default() })).await.unwrap();
        between.list(&[A, ("self", "127.1.0.1"), B]).await;
        assert!(matches!(between.update().await, Update::Mesh(MeshFacts { members: 3, .. })));
        let pods = ["a 127.1.0.2 pod", "self 127.1.0.1 pod", "b 127.1.0.3 pod"];
        assert_eq!(between.passed().await, pods);
        let both = [&pods[..], &["a 127.2.0.2 node", "b 127.2.0.3 node"]].concat();
        assert_eq!(between.amended().await, both, "once for both, and no confirmation of the list");
        between.source.send(Update::Confirmed).await.unwrap();
        assert!(matches!(between.update().await, Update::Confirmed));
        assert_eq!(between.agents.asked().len(), 2, "{:?}", between.agents.asked());

        // If an agent has left its node, though not the list, the node keeps its known addresses.
        between.agents.stop_answering(A.1);
        between.list(&[A, ("self", "127.1.0.1"), B]).await;
        assert_eq!(between.passed().await, both);
        between.list(&[B]).await;
        assert_eq!(between.passed().await, ["b 127.1.0.3 pod", "b 127.2.0.3 node"], "an absent peer has no entries");
        between.list(&[B, A]).await;
        assert_eq!(between.passed().await.len(), 4, "a rollout keeps known addresses");
    });
}

#[test]
fn peers_that_do_not_answer_or_report_another_name_get_no_node_entry() {
    run(async {
        let mut between = Between::start().await;
        between.agents.answer(A.1, "impostor", &["127.2.0.2"]);
        between.list(&[A, B]).await;
        assert_eq!(between.passed().await.len(), 2);
        between.until_asked(2).await;
        // A third agent is asked after these and answers. So the adapter has processed the answers
        // of all three.
        between.agents.answer("127.1.0.5", "c", &["127.2.0.5"]);
        between.list(&[A, B, ("c", "127.1.0.5")]).await;
        assert_eq!(between.passed().await.len(), 3);
        assert_eq!(between.amended().await[3..], ["c 127.2.0.5 node"]);
    });
}

#[test]
fn requests_at_once_are_bounded() {
    run(async {
        let mut between = Between::start().await;
        between.agents.0.lock().unwrap().awaited = IDENTITY_REQUESTS_MAX;
        let peers: Vec<(String, String)> =
            (0..3 * IDENTITY_REQUESTS_MAX).map(|n| (format!("n{n}"), format!("127.1.1.{n}"))).collect();
        let peers: Vec<(&str, &str)> = peers.iter().map(|(node, address)| (&**node, &**address)).collect();
        for (node, address) in &peers {
            between.agents.answer(address, node, &[&address.replace("127.1", "127.2")]);
        }
        between.list(&peers).await;
        between.passed().await;
        assert_eq!(between.amended().await.len(), 2 * peers.len(), "one list for all of them");
        assert_eq!(between.agents.0.lock().unwrap().most, IDENTITY_REQUESTS_MAX);
    });
}

#[test]
fn a_question_about_a_node_address_is_asked_about_its_pod_and_shares_the_answer() {
    run(async {
        let mut between = Between::start_with_a().await;
        let (pod, node, stranger) = (ip(A.1), ip("127.2.0.2"), ip("127.3.0.9"));
        for (doubted, asked) in [(node, pod), (stranger, stranger), (pod, pod)] {
            between.doubts.send(doubted).await.unwrap();
            assert_eq!(between.asked().await, asked);
        }
        // By now the peer has left: the list shows it first, and then the doubt is answered.
        between.list(&[]).await;
        assert!(between.passed().await.is_empty());
        between.source.send(Update::Sure(pod)).await.unwrap();
        between.source.send(Update::Sure(stranger)).await.unwrap();
        for expected in [pod, node, stranger] {
            assert!(matches!(between.update().await, Update::Sure(sure) if sure == expected), "{expected}");
        }
    });
}

#[test]
fn an_unsure_answer_about_a_pod_is_one_about_its_node() {
    run(async {
        let mut between = Between::start_with_a().await;
        let (pod, node) = (ip(A.1), ip("127.2.0.2"));
        between.doubts.send(node).await.unwrap();
        assert_eq!(between.asked().await, pod);
        between.source.send(Update::Unsure(pod)).await.unwrap();
        for expected in [pod, node] {
            assert!(matches!(between.update().await, Update::Unsure(of) if of == expected), "{expected}");
        }
    });
}

#[test]
fn a_question_that_the_source_has_no_room_for_is_answered_at_once() {
    run(async {
        let mut between = Between::start().await;
        between.doubts.send(ip("127.3.0.1")).await.unwrap();
        between.doubts.send(ip("127.3.0.2")).await.unwrap();
        assert!(matches!(between.update().await, Update::Unsure(unsure) if unsure == ip("127.3.0.2")));
        assert_eq!(between.asked.recv().await, Some(ip("127.3.0.1")));
    });
}

#[test]
fn the_adapter_ends_with_either_side() {
    run(async {
        let between = Between::start().await;
        drop(between.source);
        tokio::time::timeout(TIMEOUT, between.adapter).await.expect("an end").unwrap();
        let between = Between::start().await;
        // Both agents now have open questions.
        between.agents.0.lock().unwrap().awaited = 2;
        between.list(&[A]).await;
        between.until_asked(1).await;
        drop(between.updates);
        tokio::time::timeout(TIMEOUT, between.adapter).await.expect("an end").unwrap();
    });
}

/// Discovery as the agent runs it, with a static source.
async fn discovered(node_network: bool) -> (Agents, Receiver<Update>, Arc<Notify>) {
    let (agents, http_port) = Agents::start().await;
    agents.answer(A.1, "a", &["127.2.0.2"]);
    let peers = vec![format!("a={}@z", A.1)];
    let (_, questions) = mpsc::channel(1);
    let (sender, updates) = mpsc::channel(1);
    let ourselves = Ourselves { node_network, ..ourselves(http_port) };
    let each_second = Arc::clone(&ourselves.each_second);
    spawn_local(discovery::run(
        DiscoverySource::Static(StaticConfig { peers, file: None }),
        ourselves,
        questions,
        sender,
    ));
    (agents, updates, each_second)
}

#[test]
fn node_addresses_are_discovered_only_if_configured() {
    run(async {
        let (agents, mut updates, _) = discovered(false).await;
        for _ in 0..3 {
            match next(&mut updates).await {
                Update::List(list) => assert_eq!(written(&list), ["a 127.1.0.2 pod"]),
                Update::Mesh(_) | Update::Roster(_) | Update::Confirmed => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(agents.asked().is_empty());
        let (_, mut updates, each_second) = discovered(true).await;
        loop {
            if let Update::Amended(list) = next(&mut updates).await {
                assert_eq!(written(&list), ["a 127.1.0.2 pod", "a 127.2.0.2 node"]);
                break;
            }
        }
        // The source confirms the list when the probe loop notifies it.
        each_second.notify_one();
        assert!(matches!(next(&mut updates).await, Update::Confirmed));
    });
}
