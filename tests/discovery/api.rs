//! A fake API server: real TLS on loopback, every answer given by the test, one request at a time
//! on each connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kube_canary::discovery::kubernetes::{ApiServer, KubernetesConfig, Timing, run};
use kube_canary::discovery::{Ourselves, PeerSpec, Update};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::account::{Account, Authority};
use super::encode::{self, Slice, slice};

/// The limit of every wait. It only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// Awaits `future`, but not for ever.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("still waiting for {what}"))
}

/// Times that are short where the real ones would delay a test, and long where they
/// would cause a race.
pub fn timing() -> Timing {
    Timing {
        backoff_min: Duration::from_millis(2),
        backoff_max: Duration::from_millis(10),
        coalesce: Duration::from_millis(2),
        read_spacing: Duration::ZERO,
        return_spacing: Duration::ZERO,
        return_pause: Duration::ZERO,
        second_look: Duration::from_millis(2),
        confirm: Duration::from_hours(1),
        doubt: Duration::from_hours(1),
        ..Timing::default()
    }
}

enum Action {
    Bytes(Vec<u8>),
    /// The same bytes until the client closes.
    Endless(&'static [u8]),
    Cut,
}

/// A request that waits for the test's answer.
pub struct Exchange {
    /// Path and query of the request.
    pub target: String,
    pub token: String,
    pub accept: String,
    actions: mpsc::UnboundedSender<Action>,
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

impl Exchange {
    /// The value of a query parameter, as written.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='))
    }
    /// The last part of the path: a slice's name, or that of the resource.
    pub fn name(&self) -> &str {
        let path = self.target.split('?').next().unwrap();
        path.rsplit('/').next().unwrap()
    }
    fn act(&self, action: Action) {
        // If the client has closed, the test's next expectation shows it.
        let _ = self.actions.send(action);
    }
    pub fn answer(self, status: u16, headers: &str, body: &[u8]) {
        let head = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        self.act(Action::Bytes([head.as_bytes(), body].concat()));
    }
    fn is_list(&self) {
        assert_eq!((self.parameter("watch"), self.name()), (None, "endpointslices"), "a list was expected");
    }
    /// Answers with the list of all slices.
    pub fn list(self, version: &str, slices: &[Slice]) {
        self.is_list();
        assert_eq!(self.accept, "application/vnd.kubernetes.protobuf");
        self.answer(200, "", &encode::slice_list(version, slices));
    }
    /// Answers with the list of their metadata.
    pub fn metadata(self, version: &str, slices: &[Slice]) {
        self.is_list();
        let expected = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(self.accept, expected);
        self.answer(200, "", &encode::metadata_list(version, slices));
    }
    /// Answers with one slice, which must be the requested one, at that version or an older one.
    pub fn slice(self, slice: &Slice) {
        assert_eq!(self.name(), slice.name, "{}", self.target);
        assert_eq!(self.accept, "application/vnd.kubernetes.protobuf");
        let asked: u64 = self.parameter("resourceVersion").unwrap().parse().unwrap();
        assert!(asked <= slice.version.parse().unwrap(), "{asked}");
        self.answer(200, "", &slice.body());
    }
    /// Answers with the head of a watch.
    pub fn watch(self) -> Watch {
        assert_eq!(self.parameter("watch"), Some("1"), "a watch was expected, not {}", self.target);
        self.act(Action::Bytes(HEAD.to_vec()));
        Watch(self)
    }
    pub fn cut(self) {
        self.act(Action::Cut);
    }
    /// Answers with the same bytes again and again, until the client closes.
    pub fn endless(self, bytes: &'static [u8]) {
        self.act(Action::Endless(bytes));
    }
    /// Answers with a body that never ends.
    pub fn flood(self, body: &[u8]) {
        self.act(Action::Bytes(HEAD.to_vec()));
        Watch(self).raw(body);
    }
    /// Answers with a body in chunks of that size.
    pub fn chunks(self, bytes: &[u8], size: usize) {
        self.act(Action::Bytes(HEAD.to_vec()));
        let body = Watch(self);
        bytes.chunks(size).for_each(|chunk| body.raw(chunk));
        body.end();
    }
    /// Answers with a body that is shorter than its head promises.
    pub fn part(self, body: &[u8], length: usize) {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        self.act(Action::Bytes([head.as_bytes(), &body[..length]].concat()));
        self.cut();
    }
}

/// A watch that is open.
pub struct Watch(Exchange);

impl Watch {
    /// Sends these bytes as one chunk.
    pub fn raw(&self, bytes: &[u8]) {
        let head = format!("{:x}\r\n", bytes.len());
        self.0.act(Action::Bytes([head.as_bytes(), bytes, b"\r\n"].concat()));
    }
    /// Sends events of slices that were added, changed or deleted.
    pub fn events(&self, events: &[(&str, &Slice)]) {
        self.raw(&events.iter().flat_map(|(kind, slice)| encode::change(kind, slice)).collect::<Vec<_>>());
    }
    pub fn changed(&self, slice: &Slice) {
        self.events(&[("MODIFIED", slice)]);
    }
    pub fn gone(&self) {
        self.raw(&encode::error(410));
    }
    pub fn bookmark(&self, version: &str) {
        self.raw(&encode::bookmark(version));
    }
    /// Ends the watch as the server does at the end of `timeoutSeconds`.
    pub fn end(self) {
        self.0.act(Action::Bytes(b"0\r\n\r\n".to_vec()));
    }
    pub fn cut(self) {
        self.0.cut();
    }
}

/// How a client is started.
pub struct Setup<'a> {
    pub timing: Timing,
    /// The certificate in the client's bundle, if not the server's.
    pub other_ca: Option<&'a str>,
    pub ourselves: Ourselves,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        let ourselves = Ourselves { forget_after: Duration::from_mins(5), ..Ourselves::default() };
        Self { timing: timing(), other_ca: None, ourselves }
    }
}

/// The next event that a test sees.
pub enum Next {
    Request(Exchange),
    Update(Update),
}

/// The server and a client that follows it.
pub struct Api {
    pub address: SocketAddr,
    /// Holds the port while no server listens there, so that no other test gets it.
    _port: Socket,
    pub account: Account,
    authority: Arc<Authority>,
    requests: mpsc::UnboundedReceiver<Exchange>,
    sender: mpsc::UnboundedSender<Exchange>,
    pub updates: mpsc::Receiver<Update>,
    questions: mpsc::Sender<IpAddr>,
    connections: watch::Sender<usize>,
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
        Self::with(Setup::default()).await
    }

    pub async fn timed(timing: Timing) -> Self {
        Self::with(Setup { timing, ..Setup::default() }).await
    }

    pub async fn with(setup: Setup<'_>) -> Self {
        super::logged::start();
        let authority = Arc::new(Authority::new());
        let account = Account::new(setup.other_ca.unwrap_or(&authority.pem), "token-1\n");
        let port = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // A listener may be bound to the same port: it sets this option, too.
        port.set_reuse_address(true).unwrap();
        port.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let address = port.local_addr().unwrap().as_socket().unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let connections = watch::Sender::new(0);
        let server = tokio::spawn(serve(listener, authority.clone(), sender.clone(), connections.clone()));
        let config = KubernetesConfig {
            server: ApiServer { host: "127.0.0.1".into(), port: address.port() },
            account: account.0.clone(),
            namespace: "monitoring".into(),
            service: "kube-canary".into(),
            timing: setup.timing,
        };
        let (updates_sender, updates) = mpsc::channel(1);
        let (questions, asked) = mpsc::channel(4);
        let client = tokio::spawn(run(config, setup.ourselves, asked, updates_sender));
        Self {
            address,
            _port: port,
            account,
            authority,
            requests,
            sender,
            updates,
            questions,
            connections,
            server,
            client,
        }
    }

    pub fn authority_pem(&self) -> &str {
        &self.authority.pem
    }

    pub async fn request(&mut self) -> Exchange {
        soon("a request", self.requests.recv()).await.unwrap()
    }

    /// Returns the next request or update, whichever comes first.
    pub async fn next(&mut self) -> Next {
        let both = async {
            tokio::select! {
                request = self.requests.recv() => Next::Request(request.unwrap()),
                update = self.updates.recv() => Next::Update(update.unwrap()),
            }
        };
        soon("a request or an update", both).await
    }

    /// Asserts that there is no request without an answer.
    pub fn nothing_asked(&mut self) {
        assert!(self.requests.try_recv().is_err());
    }

    pub async fn doubt(&self, address: &str) {
        self.questions.send(address.parse().unwrap()).await.unwrap();
    }

    /// Waits until this many connections are open.
    pub async fn connections(&self, count: usize) {
        let mut open = self.connections.subscribe();
        soon("connections to open or close", open.wait_for(|open| *open == count)).await.unwrap();
    }

    pub async fn update(&mut self) -> Update {
        soon("an update", self.updates.recv()).await.unwrap()
    }

    /// Returns the next list, and skips other updates.
    pub async fn list(&mut self) -> Vec<PeerSpec> {
        loop {
            if let Update::List(list) = self.update().await {
                return list.peers;
            }
        }
    }

    /// Returns the next list as `node=address`, in order.
    pub async fn names(&mut self) -> Vec<String> {
        let mut names: Vec<_> = self.list().await.iter().map(|p| format!("{}={}", p.node, p.address)).collect();
        names.sort();
        names
    }

    /// Asserts that the next update, apart from rosters, is a confirmation.
    pub async fn confirmed(&mut self) {
        let mut update = self.update().await;
        while let Update::Roster(_) = update {
            update = self.update().await;
        }
        assert!(matches!(update, Update::Confirmed), "{update:?}");
    }

    /// Asserts that the next update, apart from confirmations, is sure about `address`.
    pub async fn sure(&mut self, address: &str) {
        assert_eq!(self.answer().await, address);
    }

    /// Returns the address of the next answer, and skips confirmations.
    pub async fn answer(&mut self) -> String {
        loop {
            match self.update().await {
                Update::Confirmed => {}
                Update::Sure(sure) => return sure.to_string(),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Asserts that the next update, apart from confirmations, is unsure about `address`.
    pub async fn unsure(&mut self, address: &str) {
        loop {
            match self.update().await {
                Update::Confirmed => {}
                Update::Unsure(unsure) => return assert_eq!(unsure.to_string(), address),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Asserts that there is no update.
    pub fn silence(&mut self) {
        assert!(self.updates.try_recv().is_err());
    }

    /// Answers a list of one slice with one peer, and the watch that follows.
    pub async fn synced(&mut self) -> Watch {
        self.synced_with(&[slice("s1", "90", "IPv4", &[("n1", "10.0.0.1")])]).await
    }

    /// The same with these slices.
    pub async fn synced_with(&mut self, slices: &[Slice]) -> Watch {
        self.request().await.list("100", slices);
        let count: usize = slices.iter().map(|slice| slice.endpoints.len()).sum();
        assert_eq!(self.list().await.len(), count);
        let watch = self.request().await.watch();
        self.confirmed().await;
        watch
    }

    /// Asserts that the client has ended.
    pub async fn client_ended(&mut self) {
        soon("the client's end", &mut self.client).await.unwrap();
    }

    /// Stops the server: connections are refused and open ones end.
    pub async fn stop(&mut self) {
        self.server.abort();
        let _ = (&mut self.server).await;
    }

    /// Starts the server again, at the same address.
    pub async fn resume(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        let connections = self.connections.clone();
        self.server = tokio::spawn(serve(listener, self.authority.clone(), self.sender.clone(), connections));
    }
}

/// Counts a connection as open until it is dropped.
struct Open(watch::Sender<usize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

async fn serve(
    listener: TcpListener,
    authority: Arc<Authority>,
    requests: mpsc::UnboundedSender<Exchange>,
    open: watch::Sender<usize>,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (acceptor, requests) = (authority.acceptor.clone(), requests.clone());
        open.send_modify(|open| *open += 1);
        let open = Open(open.clone());
        connections.spawn(async move {
            let _open = open;
            drop(converse(stream, acceptor, requests).await);
        });
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
        let header = |name: &str| head.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().to_owned();
        let (token, accept) = (header("authorization: Bearer "), header("accept: "));
        let (sender, mut actions) = mpsc::unbounded_channel();
        drop(requests.send(Exchange { target, token, accept, actions: sender }));
        // This runs until the test drops the exchange.
        while let Some(action) = actions.recv().await {
            match action {
                Action::Bytes(bytes) => stream.write_all(&bytes).await?,
                Action::Endless(bytes) => loop {
                    stream.write_all(bytes).await?;
                },
                Action::Cut => return Ok(()),
            }
            stream.flush().await?;
        }
    }
}
