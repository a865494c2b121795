//! DNS discovery against a fake DNS server and fake peers on loopback.

#[path = "common/leaks.rs"]
mod leaks;
#[path = "discovery/logged.rs"]
mod logged;
#[path = "discovery/nameserver.rs"]
mod nameserver;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use kube_canary::discovery::dns::{DnsConfig, ResolveError, Servers, Settings, run, service_addresses};
use kube_canary::discovery::{PeerSpec, Readiness, Update};
use nameserver::{Asked, NameServer, Say};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const NAME: &str = "canary.ns.svc.cluster.local.";
/// A limit that is never reached in a test that passes.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(100);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn some(addresses: &[&str]) -> Say {
    Say::Records(addresses.iter().map(|a| ip(a)).collect())
}

/// Only a test of questions without an answer sets a short time for an answer.
fn asking(dns: &NameServer, timeout: Duration) -> Servers {
    Servers::Fixed(Settings {
        servers: vec![dns.address],
        search: vec!["ns.svc.cluster.local".into(), "svc.cluster.local".into()],
        ndots: 5,
        timeout,
        attempts: 2,
    })
}

/// The client under test with its server.
struct Mesh {
    dns: NameServer,
    updates: mpsc::Receiver<Update>,
    tasks: JoinSet<()>,
}

impl Mesh {
    /// Looks up `name`, with peers that answer on `port`.
    fn start(name: &str, port: u16, dns: NameServer) -> Self {
        Self::with_times(name, port, dns, LONG, LONG)
    }

    fn with_times(name: &str, port: u16, dns: NameServer, dns_time: Duration, identity_time: Duration) -> Self {
        logged::start();
        let servers = asking(&dns, dns_time);
        let refresh = (Duration::from_millis(10), Duration::from_millis(10));
        let (sender, updates) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(run(DnsConfig { name: name.into(), port, servers, refresh, identity_time }, sender));
        Self { dns, updates, tasks }
    }

    async fn update(&mut self) -> Update {
        tokio::time::timeout(Duration::from_secs(30), self.updates.recv()).await.expect("an update").unwrap()
    }

    async fn list(&mut self) -> Vec<PeerSpec> {
        loop {
            if let Update::List(list) = self.update().await {
                return list.peers;
            }
        }
    }

    async fn addresses(&mut self) -> Vec<IpAddr> {
        self.list().await.into_iter().map(|p| p.address).collect()
    }

    /// Returns the next question that matches. Updates may come in between, but a
    /// list fails the test.
    async fn question(&mut self, wanted: impl Fn(&Asked) -> bool) -> Asked {
        let found = async {
            loop {
                tokio::select! {
                    asked = self.dns.asked.recv() => {
                        let asked = asked.unwrap();
                        if wanted(&asked) { return asked }
                    }
                    update = self.updates.recv() => {
                        let update = update.unwrap();
                        assert!(matches!(update, Update::Confirmed), "{update:?}");
                    }
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), found).await.expect("a question")
    }
}

/// A port at 127.0.0.0/8 without a server: it is bound on an address that no test uses.
async fn silent_port() -> (TcpListener, u16) {
    let held = TcpListener::bind("127.9.9.9:0").await.unwrap();
    let port = held.local_addr().unwrap().port();
    (held, port)
}

/// Answers every connection with an identity, and reports the address and path of each request.
async fn peer(listener: TcpListener, body: &'static str, paths: mpsc::UnboundedSender<String>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let path = String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().to_owned();
        paths.send(path).unwrap();
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).await.unwrap();
    }
}

#[test]
fn a_service_has_the_address_of_each_pod_once() {
    leaks::run(async {
        let dns = NameServer::start().await;
        let servers = asking(&dns, LONG);
        for (ipv4, ipv6, found) in [
            (
                &["10.0.0.2", "10.0.0.1", "10.0.0.2"][..],
                &["fd00::1", "fd00::2"][..],
                Some(&["10.0.0.1", "10.0.0.2"][..]),
            ),
            (&[], &["fd00::2", "fd00::1"], Some(&["fd00::1", "fd00::2"])),
            (&["10.0.0.1"], &["fd00::1", "fd00::2"], Some(&["fd00::1", "fd00::2"])),
            (&[], &[], None),
        ] {
            dns.say(NAME, some(ipv4), some(ipv6));
            let addresses = service_addresses(&servers, "canary").await.ok();
            let expected = found.map(|found| found.iter().map(|a| ip(a)).collect::<Vec<_>>());
            assert_eq!(addresses, expected, "{ipv4:?} {ipv6:?}");
        }
        dns.say(NAME, Say::Code(ResponseCode::ServFail), Say::Code(ResponseCode::ServFail));
        assert!(service_addresses(&servers, "canary").await.is_err());
    });
}

#[test]
fn both_families_are_one_list_and_peers_report_their_names() {
    leaks::run(async {
        let dns = NameServer::start().await;
        dns.say(NAME, some(&["127.0.0.2", "127.0.0.3"]), some(&["::1"]));
        let first = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let (paths, mut asked) = mpsc::unbounded_channel();
        let mut peers = JoinSet::new();
        peers.spawn(peer(first, r#"{"node":"n2","zone":"z1","version":"0.1.0"}"#, paths));
        let mut mesh = Mesh::start("canary", port, dns);
        let list = mesh.list().await;
        let find = |address| list.iter().find(|p| p.address == ip(address)).unwrap();
        assert_eq!(list.len(), 3);
        assert_eq!((find("127.0.0.2").node.as_str(), find("127.0.0.2").zone.as_deref()), ("n2", Some("z1")));
        // No server answers there, so the address serves as the name.
        assert_eq!((find("127.0.0.3").node.as_str(), find("127.0.0.3").zone.as_deref()), ("127.0.0.3", None));
        assert_eq!(find("::1").node, "::1");
        assert!(list.iter().all(|p| p.readiness == Readiness::Ready));
        assert_eq!(asked.recv().await.unwrap(), "/api/v1/identity");

        // Look-ups go on, the client does not request the peer's identity again, and the list
        // stays.
        for _ in 0..5 {
            let update = mesh.update().await;
            assert!(matches!(update, Update::Confirmed), "{update:?}");
        }
        assert!(asked.try_recv().is_err());
    });
}

#[test]
fn the_search_list_is_tried_once_and_then_the_name_that_answered() {
    leaks::run(async {
        let dns = NameServer::start().await;
        dns.say("canary.svc.cluster.local.", some(&["127.8.0.1"]), some(&[]));
        let (_held, port) = silent_port().await;
        let mut mesh = Mesh::start("canary", port, dns);
        let first = mesh.question(|_| true).await;
        assert_eq!(first.name, NAME);
        assert_eq!(mesh.addresses().await, [ip("127.8.0.1")]);
        mesh.dns.forget();
        for _ in 0..6 {
            assert_eq!(mesh.question(|_| true).await.name, "canary.svc.cluster.local.");
        }
    });
}

#[test]
fn a_domain_that_answers_without_records_is_not_taken_for_the_one_that_is_meant() {
    leaks::run(async {
        let dns = NameServer::start().await;
        // The Service is not there yet, and the domain after its own has records of another kind.
        dns.say("canary.svc.cluster.local.", some(&[]), some(&[]));
        let (_held, port) = silent_port().await;
        let mut mesh = Mesh::start("canary", port, dns);
        while mesh.dns.asked.recv().await.expect("a question").name != "canary." {}
        mesh.dns.say(NAME, some(&["127.8.0.1"]), some(&[]));
        while mesh.addresses().await != [ip("127.8.0.1")] {}
    });
}

#[test]
fn a_silent_server_is_waited_for_once_in_a_search() {
    leaks::run(async {
        let dns = NameServer::start().await;
        dns.say("canary.", some(&["127.8.0.1"]), some(&[]));
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let Servers::Fixed(mut settings) = asking(&dns, SHORT) else { panic!("fixed servers") };
        settings.servers.insert(0, silent.local_addr().unwrap());
        let found = service_addresses(&Servers::Fixed(settings), "canary").await;
        assert_eq!(found.expect("addresses"), [ip("127.8.0.1")]);
        let mut asked = 0;
        while silent.try_recv(&mut [0; 512]).is_ok() {
            asked += 1;
        }
        assert_eq!(asked, 2, "for both families of the first domain");
    });
}

#[test]
fn a_search_domain_whose_server_fails_does_not_end_the_search() {
    leaks::run(async {
        for code in [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::FormErr, ResponseCode::NotImp] {
            let dns = NameServer::start().await;
            dns.say(NAME, Say::Code(code), Say::Code(code));
            dns.say("canary.svc.cluster.local.", some(&[]), some(&[]));
            dns.say("canary.", some(&["127.8.0.1"]), some(&[]));
            let found = service_addresses(&asking(&dns, LONG), "canary").await;
            assert_eq!(found.expect("addresses"), [ip("127.8.0.1")], "{code}");
            // What fails may have addresses, so the others' empty answers are not believed.
            for empty in [some(&[]), Say::Code(ResponseCode::NXDomain)] {
                dns.say("canary.", empty.clone(), empty);
                let error = service_addresses(&asking(&dns, LONG), "canary").await.unwrap_err();
                assert!(matches!(error, ResolveError::Server(..)), "{code}: {error}");
                assert!(error.to_string().starts_with("canary: "), "{error}");
            }
        }
    });
}

#[test]
fn a_search_domain_without_an_answer_ends_the_search() {
    leaks::run(async {
        let dns = NameServer::start().await;
        dns.say(NAME, Say::Nothing, Say::Nothing);
        dns.say("canary.", some(&["127.8.0.1"]), some(&[]));
        let error = service_addresses(&asking(&dns, SHORT), "canary").await.unwrap_err();
        assert!(matches!(error, ResolveError::Server(..)), "{error}");
    });
}

#[test]
fn no_other_domain_answers_for_a_name_that_fails_now() {
    leaks::run(async {
        let dns = NameServer::start().await;
        dns.say(NAME, some(&["127.8.0.1"]), some(&[]));
        dns.say("canary.", some(&["127.8.0.66"]), some(&[]));
        let (_held, port) = silent_port().await;
        let mut mesh = Mesh::start("canary", port, dns);
        assert_eq!(mesh.addresses().await, [ip("127.8.0.1")]);
        mesh.dns.say(NAME, Say::Code(ResponseCode::ServFail), Say::Code(ResponseCode::ServFail));
        mesh.dns.forget();
        for _ in 0..16 {
            assert_eq!(mesh.question(|_| true).await.name, NAME);
        }
    });
}

#[test]
fn records_without_a_host_address_are_left_out() {
    leaks::run(async {
        let dns = NameServer::start().await;
        let (ipv4, ipv6) =
            (["127.8.0.1", "0.0.0.0", "255.255.255.255"], ["::1", "::ffff:127.8.0.9", "fe80::1", "ff02::1"]);
        dns.say(NAME, some(&ipv4), some(&ipv6));
        let (_held, port) = silent_port().await;
        let mut mesh = Mesh::start(NAME, port, dns);
        let mut got = mesh.addresses().await;
        got.sort();
        assert_eq!(got, [ip("127.8.0.1"), ip("::1")]);
    });
}

#[test]
fn a_truncated_answer_is_asked_for_by_tcp() {
    leaks::run(async {
        let many: Vec<IpAddr> = (0..200).map(|n| IpAddr::from([127, 8, 1, n])).collect();
        let dns = NameServer::start().await;
        dns.say(NAME, Say::Truncated(many.clone()), some(&[]));
        let (_held, port) = silent_port().await;
        let mut mesh = Mesh::start(NAME, port, dns);
        let mut got = mesh.addresses().await;
        got.sort();
        assert_eq!(got, many);
        mesh.question(|asked| asked.tcp && asked.kind == RecordType::A).await;
    });
}

#[test]
fn a_server_that_does_not_know_edns_is_asked_without_it() {
    leaks::run(async {
        let dns = NameServer::start().await;
        dns.say(NAME, Say::WithoutEdns(vec![ip("127.8.0.1")]), Say::WithoutEdns(vec![ip("::1")]));
        let (_held, port) = silent_port().await;
        let mut mesh = Mesh::start(NAME, port, dns);
        let mut got = mesh.addresses().await;
        got.sort();
        assert_eq!(got, [ip("127.8.0.1"), ip("::1")]);
    });
}

#[test]
fn no_failure_of_dns_empties_the_list() {
    leaks::run(async {
        let dns = NameServer::start().await;
        let name = "failing.example.";
        dns.say(name, some(&["127.8.0.1"]), some(&["::1"]));
        let (_held, port) = silent_port().await;
        let mut mesh = Mesh::with_times(name, port, dns, SHORT, LONG);
        // A server that is delayed counts as silent, and the next question finds it.
        while mesh.addresses().await.len() < 2 {}
        for (say, line) in [
            (Say::Code(ResponseCode::NXDomain), Some("(NXDOMAIN)")),
            (Say::Code(ResponseCode::ServFail), Some("SERVFAIL")),
            // This failure is of the same kind as the one before, and so not logged again.
            (Say::Nothing, None),
        ] {
            mesh.dns.say(name, say.clone(), say);
            mesh.dns.forget();
            // There are more questions than those of one look-up with all its retries. So it has
            // failed, and the next has begun.
            for _ in 0..16 {
                mesh.question(|_| true).await;
            }
            if let Some(line) = line {
                logged::wait(&["dns discovery", name, line]).await;
            }
        }
        // IPv6 alone fails: IPv4 goes on, and the IPv6 address stays.
        mesh.dns.say(name, some(&["127.8.0.2"]), Say::Code(ResponseCode::ServFail));
        // That is a change, and it does not confirm the list.
        let Update::Amended(list) = mesh.update().await else { panic!("half a look-up confirms nothing") };
        let mut got: Vec<IpAddr> = list.peers.into_iter().map(|p| p.address).collect();
        got.sort();
        assert_eq!(got, [ip("127.8.0.2"), ip("::1")]);
        for _ in 0..16 {
            let asked = mesh.dns.asked.recv();
            tokio::select! {
                asked = tokio::time::timeout(Duration::from_secs(30), asked) => drop(asked.expect("a question")),
                update = mesh.updates.recv() => panic!("{update:?}"),
            }
        }
    });
}

#[test]
fn an_empty_answer_is_believed_when_seen_twice() {
    leaks::run(async {
        let dns = NameServer::start().await;
        dns.say(NAME, some(&["127.8.0.1"]), some(&[]));
        let (_held, port) = silent_port().await;
        let mut mesh = Mesh::start(NAME, port, dns);
        assert_eq!(mesh.addresses().await, [ip("127.8.0.1")]);
        mesh.dns.say(NAME, some(&[]), some(&[]));
        mesh.dns.forget();
        assert!(mesh.addresses().await.is_empty());
        let mut asked = 0;
        while let Ok(question) = mesh.dns.asked.try_recv() {
            asked += usize::from(question.kind == RecordType::A);
        }
        assert!(asked >= 2, "{asked}");
    });
}

#[test]
fn a_new_address_joins_and_an_old_one_leaves() {
    leaks::run(async {
        let dns = NameServer::start().await;
        dns.say(NAME, some(&["127.8.0.1", "127.8.0.2"]), some(&[]));
        let (_held, port) = silent_port().await;
        let mut mesh = Mesh::start(NAME, port, dns);
        assert_eq!(mesh.addresses().await.len(), 2);
        mesh.dns.say(NAME, some(&["127.8.0.3", "127.8.0.2"]), some(&[]));
        assert_eq!(mesh.addresses().await, [ip("127.8.0.2"), ip("127.8.0.3")], "the newest last");
    });
}

#[test]
fn a_silent_peer_does_not_hold_the_list_back_for_ever() {
    leaks::run(async {
        let dns = NameServer::start().await;
        dns.say(NAME, some(&["127.0.0.4"]), some(&[]));
        // The kernel accepts the connection, and no answer is ever sent.
        let silent = TcpListener::bind("127.0.0.4:0").await.unwrap();
        let mut mesh = Mesh::with_times(NAME, SocketAddr::port(&silent.local_addr().unwrap()), dns, LONG, SHORT);
        assert_eq!(mesh.list().await[0].node, "127.0.0.4");
    });
}

#[test]
fn discovery_ends_when_its_receiver_is_closed() {
    leaks::run(async {
        let dns = NameServer::start().await;
        dns.say(NAME, Say::Nothing, Say::Nothing);
        let (_held, port) = silent_port().await;
        let mut mesh = Mesh::with_times(NAME, port, dns, SHORT, LONG);
        mesh.question(|_| true).await;
        mesh.updates.close();
        tokio::time::timeout(Duration::from_secs(30), mesh.tasks.join_next()).await.expect("an end").unwrap().unwrap();
    });
}
