//! `kube-canary act` over loopback, with agents, an API server with TLS and receivers. All of these
//! are stand-ins.

#[path = "../common/account.rs"]
mod account;
mod load;
mod stand_in;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use account::{Account, Authority};
use kube_canary::commands::act::run_until;
use kube_canary::commands::doctor::act::{ActSummary, said_by_processes};
use kube_canary::config::{ActSettings, AgentUrl, Agents, Host, HttpUrl, MaxNodes, NodeConditions, Receiver};
use kube_canary::discovery::KubernetesConfig;
use kube_canary::discovery::kubernetes::{ApiServer, Timing};
use kube_canary::logging::LogFormat;
use kube_canary::mesh::verdicts::{Verdict, id};
use serde_json::{Value, json};
use stand_in::{Answer, Asked, serve};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// The limit of every wait. It only ends a test that would hang.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the stand-ins have seen.
#[derive(Default)]
struct Seen {
    lease: Option<Value>,
    version: u32,
    events: Vec<Value>,
    conditions: BTreeMap<String, Value>,
    /// The requests of receivers, by the name of the receiver.
    messages: Vec<(&'static str, Asked)>,
    /// The number of requests to the API server.
    requests: usize,
    /// The end of paths that the API server refuses.
    refused: Option<&'static str>,
}

impl Seen {
    /// Returns the requests of a receiver, in order.
    fn of(&self, receiver: &str) -> Vec<&Asked> {
        self.messages.iter().filter(|(name, _)| *name == receiver).map(|(_, asked)| asked).collect()
    }
}

/// Answers as an API server that has every node.
fn api(seen: &Mutex<Seen>, asked: &Asked) -> (u16, String) {
    assert_eq!(asked.headers["authorization"], "Bearer token");
    let seen = &mut *seen.lock().unwrap();
    seen.requests += 1;
    let path = asked.path.split('?').next().unwrap();
    if seen.refused.is_some_and(|refused| path.ends_with(refused)) {
        return (403, json!({"message": "denied by a policy"}).to_string());
    }
    match (asked.method.as_str(), path.rsplit('/').collect::<Vec<_>>().as_slice()) {
        ("GET", ["kube-canary-act", "leases", ..]) => match &seen.lease {
            Some(lease) => (200, lease.to_string()),
            None => (404, "{}".into()),
        },
        ("POST" | "PUT", [.., "coordination.k8s.io", "apis", ""]) => {
            let version = &asked.body["metadata"]["resourceVersion"];
            if seen.lease.as_ref().is_some_and(|lease| lease["metadata"]["resourceVersion"] != *version) {
                return (409, "{}".into());
            }
            seen.version += 1;
            let mut lease = asked.body.clone();
            lease["metadata"]["resourceVersion"] = seen.version.to_string().into();
            (200, seen.lease.insert(lease).to_string())
        }
        ("GET", ["kube-canary", "daemonsets", ..]) => (200, json!({"metadata": {"uid": "u-1"}}).to_string()),
        ("GET", [node, "nodes", ..]) => {
            let condition = seen.conditions.get(*node).cloned();
            (200, json!({"spec": {}, "status": {"conditions": condition.into_iter().collect::<Vec<_>>()}}).to_string())
        }
        ("POST", ["events", ..]) => {
            seen.events.push(asked.body.clone());
            (201, "{}".into())
        }
        ("PATCH", ["status", node, "nodes", ..]) => {
            assert_eq!(asked.headers["content-type"], "application/apply-patch+yaml");
            assert!(asked.path.ends_with("?fieldManager=kube-canary-act&force=true"));
            seen.conditions.insert((*node).to_owned(), asked.body["status"]["conditions"][0].clone());
            (200, "{}".into())
        }
        other => panic!("{other:?}"),
    }
}

/// Answers as an agent that passes on what the judges say of the nodes `n1`, `n2` and so on.
fn agent(nodes: usize, is_bad: bool, asked: &Asked) -> (u16, String) {
    if asked.path == "/api/v1/nodes" {
        let rows: Vec<String> = (1..=nodes).map(|at| format!("{{\"node\":\"n{at}\"}}\n")).collect();
        return (200, format!("{{\"judge\":\"n1\",\"worst\":[\n],\"rows\":[\n{}]}}\n", rows.join(",")));
    }
    let verdict = json!({"kind": "node", "subject": "n2", "direction": "both", "network": "pod",
        "confidence": "certain", "severity": "critical", "figures": {"probes": 100, "lost": 30},
        "since_unix_seconds": 1_000, "judges": 3});
    let mut verdict: Verdict = serde_json::from_value(verdict).unwrap();
    verdict.id = id(&verdict);
    let judges = ["n1", "n2", "n3"].map(|node| json!({"node": node, "age_seconds": 5.0}));
    let verdicts = if is_bad { vec![verdict] } else { Vec::new() };
    (200, json!({"judges": judges, "nodes": nodes, "verdicts": verdicts}).to_string())
}

/// Waits until `is_there`.
async fn until(what: &str, seen: &Mutex<Seen>, is_there: impl Fn(&Seen) -> bool) {
    let polling = async {
        while !is_there(&seen.lock().unwrap()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, polling).await.unwrap_or_else(|_| panic!("still waiting for {what}"));
}

/// Waits until what `doctor` asks act for `is_there`.
async fn until_said(listen: SocketAddr, is_there: impl Fn(&ActSummary) -> bool) {
    let urls = [AgentUrl { host: Host::Address(listen.ip()), port: listen.port() }];
    let polling = async {
        while !said_by_processes(&urls).await.is_some_and(|said| is_there(&said)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, polling).await.expect("still waiting for what act says");
}

/// Returns an address at which nothing listens.
async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

fn status(seen: &Seen, node: &str) -> String {
    seen.conditions.get(node).map_or_else(String::new, |it| it["status"].as_str().unwrap().to_owned())
}

/// Stand-ins for a mesh, with one agent of three that lies, and what they have seen.
struct StandIns {
    account: Account,
    seen: Arc<Mutex<Seen>>,
    is_bad: Arc<Mutex<bool>>,
    tasks: JoinSet<()>,
    api: SocketAddr,
    agents: Vec<AgentUrl>,
}

impl StandIns {
    async fn start(nodes: usize) -> Self {
        let Authority { pem, acceptor } = Authority::new();
        let account = Account::new(&pem, "token");
        let (seen, is_bad) = (Arc::new(Mutex::new(Seen::default())), Arc::new(Mutex::new(true)));
        let mut tasks = JoinSet::new();
        let cluster = Arc::clone(&seen);
        let api = serve(&mut tasks, Some(acceptor), Arc::new(move |asked| api(&cluster, &asked))).await;
        let mut agents = Vec::new();
        for lies in [false, false, true] {
            let is_bad = Arc::clone(&is_bad);
            let answers: Answer = Arc::new(move |asked| agent(nodes, *is_bad.lock().unwrap() != lies, &asked));
            let address = serve(&mut tasks, None, answers).await;
            agents.push(AgentUrl { host: Host::Address(address.ip()), port: address.port() });
        }
        Self { account, seen, is_bad, tasks, api, agents }
    }

    /// Starts a receiver that answers with this status. Returns its address.
    async fn receiver(&mut self, name: &'static str, status: u16) -> SocketAddr {
        let seen = Arc::clone(&self.seen);
        let answers: Answer = Arc::new(move |asked| {
            seen.lock().unwrap().messages.push((name, asked));
            (status, String::new())
        });
        serve(&mut self.tasks, None, answers).await
    }

    async fn settings(&self, receivers: Vec<Receiver>) -> ActSettings {
        ActSettings {
            agents: Agents::Urls(self.agents.clone()),
            kubernetes: KubernetesConfig {
                server: ApiServer { host: "127.0.0.1".into(), port: self.api.port() },
                account: self.account.0.clone(),
                namespace: "kube-canary".into(),
                service: "kube-canary".into(),
                timing: Timing::default(),
            },
            holder: "act-1".into(),
            round: Duration::from_millis(20),
            listen: free_address().await,
            conditions: Some(NodeConditions {
                dry_run: false,
                hold: Duration::ZERO,
                clear: Duration::ZERO,
                max_nodes: MaxNodes::Percent(10),
                unknown_after: None,
            }),
            remove: false,
            receivers,
            authorities: "/none".into(),
            log_level: log::LevelFilter::Off,
            log_format: LogFormat::Text,
        }
    }
}

/// Runs act until the script ends.
async fn run(settings: &ActSettings, script: impl Future<Output = ()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let script = async {
        script.await;
        stop.send(()).unwrap();
    };
    let stopped = async {
        let _ = stopped.await;
    };
    let (done, ()) = tokio::join!(run_until(settings, stopped), script);
    done.unwrap();
}

#[tokio::test]
async fn a_verdict_becomes_an_event_a_message_and_a_condition_and_all_three_end() {
    let mut mesh = StandIns::start(3).await;
    let webhook = mesh.receiver("webhook", 204).await;
    let url = mesh.account.write("webhook", &format!("http://{webhook}/hook?secret\n"));
    let key = Some(mesh.account.write("key", "k"));
    let settings = mesh.settings(vec![Receiver::Webhook { url, key }]).await;
    let seen = &mesh.seen;
    let script = async {
        until("the condition", seen, |seen| status(seen, "n2") == "True").await;
        until("the others", seen, |seen| ["n1", "n3"].iter().all(|node| status(seen, node) == "False")).await;
        until("a message", seen, |seen| seen.messages.len() == 1).await;
        until_said(settings.listen, |said| {
            let has_condition = said.nodes.iter().any(|of| of.node == "n2" && of.since_unix_seconds.is_some());
            let is_sent = said.messages.iter().any(|of| of.receiver == "webhook" && of.sent == 1);
            said.acts && said.nodes.len() == 1 && said.events == 1 && has_condition && is_sent
        })
        .await;
        *mesh.is_bad.lock().unwrap() = false;
        until("the end of the condition", seen, |seen| status(seen, "n2") == "False").await;
        until("the end's message", seen, |seen| seen.messages.len() == 2).await;
        until("the end's Event", seen, |seen| seen.events.len() == 2).await;
        until_said(settings.listen, |said| said.nodes.is_empty() && said.verdicts == 0 && said.events == 2).await;
    };
    run(&settings, script).await;
    let seen = seen.lock().unwrap();
    let (first, last) = (&seen.events[0], &seen.events[1]);
    assert_eq!((&first["involvedObject"]["name"], &first["involvedObject"]["uid"]), (&json!("n2"), &json!("n2")));
    assert_eq!((&first["type"], &first["metadata"]["namespace"]), (&json!("Warning"), &json!("default")));
    assert_eq!((&last["type"], &last["reason"]), (&json!("Normal"), &json!("NetworkProblemEnded")));
    let messages = seen.of("webhook");
    let (begin, end) = (&messages[0].body, &messages[1].body);
    assert_eq!((&begin["phase"], &end["phase"]), (&json!("begin"), &json!("end")));
    assert_eq!(begin["occurrence"], end["occurrence"]);
    assert!(messages[0].headers["kube-canary-signature"].starts_with("sha256="));
    assert_eq!(begin["verdict"]["subject"], "n2");
    let lease = seen.lease.as_ref().expect("a Lease");
    assert_eq!(lease["spec"]["holderIdentity"], "", "it is given back");
}

#[tokio::test]
async fn an_object_that_the_api_server_refuses_keeps_no_other_from_its_turn() {
    for (refused, is_there) in [
        ("/nodes/n1/status", (|seen| status(seen, "n3") == "False") as fn(&Seen) -> bool),
        ("/nodes/n1", |seen| status(seen, "n2") == "True" && status(seen, "n3") == "False"),
        ("/events", |seen| status(seen, "n2") == "True"),
    ] {
        let mesh = StandIns::start(3).await;
        mesh.seen.lock().unwrap().refused = Some(refused);
        let settings = mesh.settings(Vec::new()).await;
        run(&settings, until("the others", &mesh.seen, is_there)).await;
        let seen = mesh.seen.lock().unwrap();
        assert!(refused == "/events" || status(&seen, "n1").is_empty(), "{refused}");
        assert!(seen.requests < 2_000, "{refused}: {} requests", seen.requests);
    }
}

/// Returns the keys of an object, in the order of their names.
fn keys(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[tokio::test]
async fn pagerduty_and_slack_get_what_their_documents_describe() {
    let mut mesh = StandIns::start(3).await;
    let (pagerduty, slack) = (mesh.receiver("pagerduty", 202).await, mesh.receiver("slack", 200).await);
    let url = mesh.account.write("slack", &format!("http://{slack}/services/T0/B0/secret\n"));
    let key = mesh.account.write("pagerduty", "0123456789abcdef0123456789abcdef\n");
    let pagerduty = HttpUrl::parse(&format!("http://{pagerduty}/v2/enqueue")).unwrap();
    let settings = mesh.settings(vec![Receiver::Slack { url }, Receiver::PagerDuty { key, url: pagerduty }]).await;
    let has = |seen: &Seen, count| ["slack", "pagerduty"].iter().all(|name| seen.of(name).len() == count);
    let script = async {
        until("the beginnings", &mesh.seen, |seen| has(seen, 1)).await;
        *mesh.is_bad.lock().unwrap() = false;
        until("the ends", &mesh.seen, |seen| has(seen, 2)).await;
    };
    run(&settings, script).await;
    let seen = mesh.seen.lock().unwrap();
    assert!(seen.messages.iter().all(|(_, asked)| asked.method == "POST"));
    assert!(seen.messages.iter().all(|(_, asked)| asked.headers["content-type"] == "application/json"));

    let texts: Vec<&str> = seen.of("slack").iter().map(|asked| asked.body["text"].as_str().expect("a text")).collect();
    assert!(
        texts[0].starts_with("critical: node n2, pod network: ") && texts[0].ends_with("docs/alerts.md#a-node"),
        "{texts:?}"
    );
    assert_eq!(texts[1], "Over: node n2, pod network");
    for asked in seen.of("slack") {
        assert_eq!((asked.path.as_str(), keys(&asked.body)), ("/services/T0/B0/secret", vec!["text"]));
    }

    let events = seen.of("pagerduty");
    for (asked, action) in events.iter().zip(["trigger", "resolve"]) {
        let (body, payload) = (&asked.body, &asked.body["payload"]);
        assert_eq!((asked.path.as_str(), &body["event_action"]), ("/v2/enqueue", &json!(action)));
        assert_eq!(body["routing_key"], "0123456789abcdef0123456789abcdef");
        assert_eq!((&payload["source"], &payload["severity"]), (&json!("n2"), &json!("critical")));
        assert!(payload["summary"].as_str().is_some_and(|text| text.contains("n2") && text.chars().count() <= 1_024));
        assert!(body["dedup_key"].as_str().is_some_and(|key| !key.is_empty() && key.len() <= 255));
        assert_eq!(keys(body), ["client", "dedup_key", "event_action", "payload", "routing_key"]);
        let fields = ["class", "component", "custom_details", "severity", "source", "summary", "timestamp"];
        assert_eq!(keys(payload), fields);
        assert_eq!(payload["timestamp"], "1970-01-01T00:16:40.000Z");
    }
    assert_eq!(events[0].body["dedup_key"], events[1].body["dedup_key"]);
}
