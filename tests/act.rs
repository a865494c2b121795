//! `kube-canary act` over loopback, with three agents, an API server with TLS and a webhook. All of
//! these are stand-ins.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_canary::commands::act::run_until;
use kube_canary::commands::doctor::act::{ActSummary, of_processes};
use kube_canary::config::{ActSettings, AgentUrl, Agents, Host, MaxNodes, NodeConditions, Receiver};
use kube_canary::discovery::KubernetesConfig;
use kube_canary::discovery::kubernetes::{ApiServer, Timing};
use kube_canary::logging::LogFormat;
use kube_canary::mesh::verdicts::{Verdict, id};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The limit of every wait. It only ends a test that would hang.
const PATIENCE: Duration = Duration::from_mins(1);

/// A request as a stand-in has read it.
struct Asked {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Value,
}

/// Reads a request. `None` at the end of the connection.
async fn read(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|bytes| *bytes > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).expect("JSON") };
    Some(Asked { method, path, headers, body })
}

type Answer = Arc<dyn Fn(&Asked) -> (u16, String) + Send + Sync>;

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, answer: Answer) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read(&mut stream).await {
        let (status, body) = answer(&asked);
        let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Serves until the set is dropped.
async fn serve(tasks: &mut JoinSet<()>, tls: Option<TlsAcceptor>, answers: Answer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (tls, answers) = (tls.clone(), Arc::clone(&answers));
            connections.spawn(async move {
                match tls {
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            answer(stream, answers).await;
                        }
                    }
                    None => answer(stream, answers).await,
                }
            });
        }
    });
    address
}

/// The directory of a service account, with a webhook's files beside it.
struct Account(PathBuf);

impl Account {
    fn new() -> (Self, TlsAcceptor) {
        let path = std::env::temp_dir().join(format!("kube-canary-act-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap().signed_by(&key, &ca).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        let account = Self(path);
        account.write("ca.crt", &ca.pem());
        account.write("token", "token");
        (account, TlsAcceptor::from(Arc::new(config)))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What the stand-ins have seen.
#[derive(Default)]
struct Seen {
    lease: Option<Value>,
    version: u32,
    events: Vec<Value>,
    conditions: BTreeMap<String, Value>,
    messages: Vec<(Option<String>, Value)>,
}

/// Answers as the API server of a cluster with the nodes `n1` to `n3`.
fn api(seen: &Mutex<Seen>, asked: &Asked) -> (u16, String) {
    assert_eq!(asked.headers["authorization"], "Bearer token");
    let seen = &mut *seen.lock().unwrap();
    let path = asked.path.split('?').next().unwrap();
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

/// Answers as an agent that passes on what the judges say of three nodes.
fn agent(is_bad: bool, asked: &Asked) -> (u16, String) {
    if asked.path == "/api/v1/nodes" {
        let rows = "{\"judge\":\"n1\",\"worst\":[\n],\"rows\":[\n{\"node\":\"n1\"}\n,{\"node\":\"n2\"}\n,{\"node\":\"n3\"}\n]}\n";
        return (200, rows.into());
    }
    let verdict = json!({"kind": "node", "subject": "n2", "direction": "both", "network": "pod",
        "confidence": "certain", "severity": "critical", "figures": {"probes": 100, "lost": 30},
        "since_unix_seconds": 1_000, "judges": 3});
    let mut verdict: Verdict = serde_json::from_value(verdict).unwrap();
    verdict.id = id(&verdict);
    let judges = ["n1", "n2", "n3"].map(|node| json!({"node": node, "age_seconds": 5.0}));
    let verdicts = if is_bad { vec![verdict] } else { Vec::new() };
    (200, json!({"judges": judges, "nodes": 3, "verdicts": verdicts}).to_string())
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
        while !of_processes(&urls).await.is_some_and(|said| is_there(&said)) {
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

#[tokio::test]
async fn a_verdict_becomes_an_event_a_message_and_a_condition_and_all_three_end() {
    let (account, tls) = Account::new();
    let (seen, is_bad) = (Arc::new(Mutex::new(Seen::default())), Arc::new(Mutex::new(true)));
    let mut tasks = JoinSet::new();
    let cluster = Arc::clone(&seen);
    let api = serve(&mut tasks, Some(tls), Arc::new(move |asked| api(&cluster, asked))).await;
    let mut urls = Vec::new();
    for lies in [false, false, true] {
        let is_bad = Arc::clone(&is_bad);
        let answers: Answer = Arc::new(move |asked| agent(*is_bad.lock().unwrap() != lies, asked));
        let address = serve(&mut tasks, None, answers).await;
        urls.push(AgentUrl { host: Host::Address(address.ip()), port: address.port() });
    }
    let told = Arc::clone(&seen);
    let webhook: Answer = Arc::new(move |asked| {
        let signature = asked.headers.get("kube-canary-signature").cloned();
        told.lock().unwrap().messages.push((signature, asked.body.clone()));
        (204, String::new())
    });
    let webhook = serve(&mut tasks, None, webhook).await;
    let url = account.write("webhook", &format!("http://{webhook}/hook?secret\n"));
    let settings = ActSettings {
        agents: Agents::Urls(urls),
        kubernetes: KubernetesConfig {
            server: ApiServer { host: "127.0.0.1".into(), port: api.port() },
            account: account.0.clone(),
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
        receivers: vec![Receiver::Webhook { url, key: Some(account.write("key", "k")) }],
        authorities: "/none".into(),
        log_level: log::LevelFilter::Off,
        log_format: LogFormat::Text,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let script = async {
        until("the condition", &seen, |seen| status(seen, "n2") == "True").await;
        until("the others", &seen, |seen| ["n1", "n3"].iter().all(|node| status(seen, node) == "False")).await;
        until("a message", &seen, |seen| seen.messages.len() == 1).await;
        until_said(settings.listen, |said| {
            let has_condition = said.nodes.iter().any(|of| of.node == "n2" && of.since_unix_seconds.is_some());
            let is_sent = said.messages.iter().any(|of| of.receiver == "webhook" && of.sent == 1);
            said.acts && said.nodes.len() == 1 && said.events == 1 && has_condition && is_sent
        })
        .await;
        *is_bad.lock().unwrap() = false;
        until("the end of the condition", &seen, |seen| status(seen, "n2") == "False").await;
        until("the end's message", &seen, |seen| seen.messages.len() == 2).await;
        until("the end's Event", &seen, |seen| seen.events.len() == 2).await;
        until_said(settings.listen, |said| said.nodes.is_empty() && said.verdicts == 0 && said.events == 2).await;
        stop.send(()).unwrap();
    };
    let stopped = async {
        let _ = stopped.await;
    };
    let (done, ()) = tokio::join!(run_until(&settings, stopped), script);
    done.unwrap();
    drop(tasks);
    let seen = seen.lock().unwrap();
    let (first, last) = (&seen.events[0], &seen.events[1]);
    assert_eq!((&first["involvedObject"]["name"], &first["involvedObject"]["uid"]), (&json!("n2"), &json!("n2")));
    assert_eq!((&first["type"], &first["metadata"]["namespace"]), (&json!("Warning"), &json!("default")));
    assert_eq!((&last["type"], &last["reason"]), (&json!("Normal"), &json!("NetworkProblemEnded")));
    let (begin, end) = (&seen.messages[0], &seen.messages[1]);
    assert_eq!((&begin.1["phase"], &end.1["phase"]), (&json!("begin"), &json!("end")));
    assert_eq!(begin.1["occurrence"], end.1["occurrence"]);
    assert!(begin.0.as_ref().is_some_and(|signature| signature.starts_with("sha256=")));
    assert_eq!(begin.1["verdict"]["subject"], "n2");
    let lease = seen.lease.as_ref().expect("a Lease");
    assert_eq!(lease["spec"]["holderIdentity"], "", "it is given back");
}
