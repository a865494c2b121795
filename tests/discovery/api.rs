//! A fake API server: real TLS on loopback, every answer given by the test, one request at a time.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube_canary::discovery::kubernetes::{KubernetesConfig, Server, Timing, run};
use kube_canary::discovery::{PeerSpec, Update};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Nothing here takes long; this only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits, but not for ever.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("still waiting for {what}"))
}

/// Short where the real one would make a test wait, long where it would make it race.
pub fn timing() -> Timing {
    Timing {
        backoff_min: Duration::from_millis(2),
        backoff_max: Duration::from_millis(10),
        coalesce: Duration::from_millis(30),
        second_look: Duration::from_millis(2),
        ..Timing::default()
    }
}

/// A certificate authority with one server certificate for 127.0.0.1.
pub struct Authority {
    pub pem: String,
    acceptor: TlsAcceptor,
}

impl Authority {
    pub fn new() -> Self {
        // A name of its own: two authorities of one name would be a different failure.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mut params = CertificateParams::new(vec![]).unwrap();
        let name = format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
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
        Self { pem: ca.pem(), acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

/// A service account's directory, which goes with the test.
pub struct Account(pub PathBuf);

impl Account {
    pub fn new(ca: &str, token: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kube-canary-account-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let account = Self(path);
        account.write("ca.crt", ca);
        account.write("token", token);
        account.write("namespace", "monitoring\n");
        account
    }
    pub fn write(&self, name: &str, text: &str) {
        let new = self.0.join(format!("{name}.new"));
        fs::write(&new, text).unwrap();
        fs::rename(new, self.0.join(name)).unwrap();
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

enum Action {
    Bytes(Vec<u8>),
    Cut,
}

/// A request that waits for the test's answer.
pub struct Exchange {
    /// Path and query.
    pub target: String,
    pub token: String,
    actions: mpsc::UnboundedSender<Action>,
}

impl Exchange {
    /// The value of a query parameter, as written.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='))
    }
    fn act(&self, action: Action) {
        // A client that has gone is for the test's next expectation to find out.
        let _ = self.actions.send(action);
    }
    pub fn answer(self, status: u16, headers: &str, body: &str) {
        let length = body.len();
        let text = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        self.act(Action::Bytes(text.into()));
    }
    /// One page of a list; an empty token ends it.
    pub fn page(self, version: &str, token: &str, slices: &[Value]) {
        assert_eq!(self.parameter("watch"), None, "a list was expected, not {}", self.target);
        let body = json!({"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "items": slices,
                          "metadata": {"resourceVersion": version, "continue": token}});
        self.answer(200, "Content-Type: application/json\r\n", &body.to_string());
    }
    /// Opens a watch.
    pub fn watch(self) -> Watch {
        assert_eq!(self.parameter("watch"), Some("1"), "a watch was expected, not {}", self.target);
        self.act(Action::Bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()));
        Watch(self)
    }
    pub fn cut(self) {
        self.act(Action::Cut);
    }
    /// A head and a body that goes on and on.
    pub fn flood(self, bytes: usize) {
        self.act(Action::Bytes(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()));
        Watch(self).raw(&" ".repeat(bytes));
    }
}

/// A watch under way.
pub struct Watch(Exchange);

impl Watch {
    /// Sends these bytes as one chunk.
    pub fn raw(&self, text: &str) {
        self.0.act(Action::Bytes(format!("{:x}\r\n{text}\r\n", text.len()).into()));
    }
    pub fn events(&self, events: &[(&str, Value)]) {
        let lines = events.iter().map(|(kind, object)| format!("{}\n", json!({"type": kind, "object": object})));
        self.raw(&lines.collect::<String>());
    }
    pub fn bookmark(&self, version: &str) {
        self.events(&[("BOOKMARK", json!({"kind": "EndpointSlice", "metadata": {"resourceVersion": version}}))]);
    }
    /// As the server does at the end of `timeoutSeconds`.
    pub fn end(self) {
        self.0.act(Action::Bytes(b"0\r\n\r\n".to_vec()));
    }
    pub fn cut(self) {
        self.0.cut();
    }
}

/// The server and a client that follows it.
pub struct Api {
    pub address: SocketAddr,
    pub account: Account,
    authority: Arc<Authority>,
    requests: mpsc::UnboundedReceiver<Exchange>,
    sender: mpsc::UnboundedSender<Exchange>,
    pub updates: mpsc::Receiver<Update>,
    server: JoinHandle<()>,
    client: JoinHandle<()>,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.server.abort();
        self.client.abort();
    }
}

impl Api {
    pub async fn start() -> Self {
        Self::with(timing(), None).await
    }

    /// With another CA in the client's bundle, if one is given.
    pub async fn with(timing: Timing, other_ca: Option<&str>) -> Self {
        super::logged::start();
        let authority = Arc::new(Authority::new());
        let account = Account::new(other_ca.unwrap_or(&authority.pem), "token-1\n");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let server = tokio::spawn(serve(listener, authority.clone(), sender.clone()));
        let config = KubernetesConfig {
            server: Server { host: "127.0.0.1".into(), port: address.port() },
            account: account.0.clone(),
            namespace: "monitoring".into(),
            service: "kube-canary".into(),
            timing,
        };
        let (updates_sender, updates) = mpsc::channel(1);
        let client = tokio::spawn(run(config, updates_sender));
        Self { address, account, authority, requests, sender, updates, server, client }
    }

    pub fn authority_pem(&self) -> &str {
        &self.authority.pem
    }

    pub async fn request(&mut self) -> Exchange {
        soon("a request", self.requests.recv()).await.unwrap()
    }

    pub async fn update(&mut self) -> Update {
        soon("an update", self.updates.recv()).await.unwrap()
    }

    /// The next list, past confirmations.
    pub async fn list(&mut self) -> Vec<PeerSpec> {
        loop {
            if let Update::List(list) = self.update().await {
                return list.peers;
            }
        }
    }

    /// The next list as `node=address`.
    pub async fn names(&mut self) -> Vec<String> {
        self.list().await.iter().map(|p| format!("{}={}", p.node, p.address)).collect()
    }

    /// The next update must be a confirmation.
    pub async fn confirmed(&mut self) {
        let update = self.update().await;
        assert!(matches!(update, Update::Confirmed), "{update:?}");
    }

    /// Answers a list of one slice with one peer, and opens the watch that follows.
    pub async fn synced(&mut self) -> Watch {
        self.request().await.page("100", "", &[slice("s1", "90", "IPv4", &[("n1", "10.0.0.1")])]);
        assert_eq!(self.names().await, ["n1=10.0.0.1"]);
        let watch = self.request().await.watch();
        self.confirmed().await;
        watch
    }

    /// The client must have come to its end.
    pub async fn client_ended(&mut self) {
        soon("the client's end", &mut self.client).await.unwrap();
    }

    /// The server is gone: connections are refused and open ones end.
    pub async fn stop(&mut self) {
        self.server.abort();
        let _ = (&mut self.server).await;
    }

    /// It is back, at the same address.
    pub async fn resume(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.server = tokio::spawn(serve(listener, self.authority.clone(), self.sender.clone()));
    }
}

async fn serve(listener: TcpListener, authority: Arc<Authority>, requests: mpsc::UnboundedSender<Exchange>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, requests) = (authority.acceptor.clone(), requests.clone());
        connections.spawn(async move { drop(converse(stream, acceptor, requests).await) });
    }
}

/// Serves one connection until it or the test ends it.
async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    requests: mpsc::UnboundedSender<Exchange>,
) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let target = head.split(' ').nth(1).unwrap().to_owned();
        let token = head.lines().find_map(|l| l.strip_prefix("authorization: Bearer ")).unwrap_or_default().to_owned();
        let (sender, mut actions) = mpsc::unbounded_channel();
        drop(requests.send(Exchange { target, token, actions: sender }));
        // Until the test lets go of the exchange.
        while let Some(action) = actions.recv().await {
            match action {
                Action::Bytes(bytes) => stream.write_all(&bytes).await?,
                Action::Cut => return Ok(()),
            }
            stream.flush().await?;
        }
    }
}

/// A slice in JSON, all endpoints serving, with the clutter of a real one.
pub fn slice(name: &str, version: &str, family: &str, endpoints: &[(&str, &str)]) -> Value {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(node, address)| {
            json!({"addresses": [address], "nodeName": node, "zone": "z1",
                   "conditions": {"ready": true, "serving": true, "terminating": false},
                   "targetRef": {"kind": "Pod", "name": format!("canary-{node}"), "namespace": "monitoring"}})
        })
        .collect();
    json!({"metadata": {"name": name, "namespace": "monitoring", "resourceVersion": version,
                        "creationTimestamp": "2025-01-01T00:00:00Z", "generation": 3,
                        "labels": {"kubernetes.io/service-name": "kube-canary"},
                        "managedFields": [{"manager": "kube-controller-manager", "operation": "Update"}]},
           "addressType": family, "endpoints": endpoints,
           "ports": [{"name": "http", "port": 9877, "protocol": "TCP"}]})
}
