//! Stands in for the agents of a large mesh: `stand_in PORT PEERS_FILE FAULTS_FILE METHODS NAME…`,
//! run by bench/judges.
//!
//! PEERS_FILE is that of the real agents, with a line `NODE=ADDRESS@ZONE` for each node. The
//! program listens at the addresses of all nodes but those that are NAMEd, which are real agents.
//! In a rollout each node gets another address, so it also listens there: the second octet is
//! larger by 64. It answers a request for a report with what an agent of that node would have
//! measured of the peers that its selection gives it, by METHODS: `icmp`, or `icmp,udp,tcp`. All
//! other requests get the status 404.
//!
//! FAULTS_FILE is read once a second. Each of its lines, `NODE RATE`, is a node that loses this
//! share of the packets from and to it as long as the line is there. Each second, the program
//! prints the number of reports that it has sent, and their bytes.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use kube_canary::discovery::members::{MemberId, Members};
use kube_canary::discovery::name_in_reports;
use kube_canary::discovery::selection::Scheme;
use kube_canary::report::compact::{self, CompactWriter};
use kube_canary::report::{Peer, Protocol, RecentPeer, RecentSource, Source};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const MAX_PEERS: usize = 24;
const HEAD_BYTES_MAX: usize = 8_192;
/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time until a probe is lost.
const LOST_AFTER: f64 = 1.5;
const TCP_INTERVAL: f64 = 10.0;
/// The longest recent window, in seconds.
const WINDOW_MAX: f64 = 60.0;
/// What is lost of the probes of a healthy mesh.
const BACKGROUND: f64 = 0.000_1;

struct Node {
    name: String,
    zone: String,
    peers: Vec<usize>,
}

/// A time from `since` to `until` in which a node loses this share of all packets from and to it.
struct Fault {
    rate: f64,
    since: f64,
    until: f64,
}

struct Mesh {
    nodes: Vec<Node>,
    by_name: HashMap<String, usize>,
    protocols: Vec<Protocol>,
    /// The faults of each node. One that has ended stays as long as windows can show it.
    faults: RefCell<HashMap<usize, Vec<Fault>>>,
    reports: Cell<u64>,
    bytes: Cell<u64>,
}

/// Returns the whole part of a positive number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "Unix times and counts")]
const fn whole(number: f64) -> u64 {
    number as u64
}

/// Returns for how many seconds it has been known that a probe is lost that left at this time.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a window")]
fn known_for(sent: f64, now: f64) -> u32 {
    (now - sent - LOST_AFTER).clamp(1.0, WINDOW_MAX) as u32
}

fn now() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |since| since.as_secs_f64())
}

/// The finalizer of SplitMix64.
const fn mixed(number: u64) -> u64 {
    let one = (number.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let two = (one ^ (one >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    two ^ (two >> 31)
}

impl Mesh {
    /// Returns what share is lost of a probe between two nodes.
    fn rate(&self, a: usize, b: usize, sent: f64) -> f64 {
        let faults = self.faults.borrow();
        let of_both = [a, b].into_iter().filter_map(|node| faults.get(&node)).flatten();
        of_both.filter(|it| (it.since..it.until).contains(&sent)).map(|it| it.rate).fold(BACKGROUND, f64::max)
    }

    /// Returns what a node has measured of a peer. The recent window of each node begins at another
    /// moment, and has 30 to 60 s.
    fn peer(&self, source: usize, peer: usize, protocol: Protocol, now: f64) -> Peer<'static> {
        let begun = mixed(source as u64) % 30_000;
        let window = 30.0 + (now + begun as f64 / 1_000.0) % 30.0;
        let interval = if protocol == Protocol::Tcp { TCP_INTERVAL } else { 1.0 };
        let (mut sent, mut lost) = (0, 0);
        let (mut lost_in_row, mut answered_since, mut answered_before, mut there) = (0, 0, 0, 0);
        let (mut first_loss, mut last_loss) = (None, now);
        // The links' probes are spread over the interval.
        let link = mixed((source as u64) << 32 | (peer as u64) << 8 | protocol as u64);
        let phase = (link >> 11) as f64 / (1_u64 << 53) as f64;
        // The probes of the window, each with an outcome of its own.
        let first = whole(((now - window) / interval - phase).ceil());
        let end = whole((now - LOST_AFTER) / interval - phase);
        for probe in first..=end {
            sent += 1;
            let seed = (source as u64) << 40 ^ (peer as u64) << 20 ^ (protocol as u64) << 60 ^ probe;
            let drawn = (mixed(seed) >> 11) as f64 / (1_u64 << 53) as f64;
            let at = (probe as f64 + phase) * interval;
            if drawn < self.rate(source, peer, at) {
                if answered_since > 0 {
                    (answered_before, lost_in_row) = (answered_since, 0);
                }
                (lost, lost_in_row, answered_since) = (lost + 1, lost_in_row + 1, 0);
                there += u32::from(mixed(seed ^ 1).is_multiple_of(2));
                (first_loss, last_loss) = (first_loss.or(Some(at)), at);
            } else {
                answered_since += 1;
            }
        }
        if lost == 0 {
            (answered_since, answered_before) = (0, 0);
        }
        let (is_udp, is_tcp) = (protocol == Protocol::Udp, protocol == Protocol::Tcp);
        let rtt = 0.000_2 + (mixed((source.min(peer) as u64) << 32 | source.max(peer) as u64) % 800) as f64 / 1e6;
        let recent = RecentPeer {
            seconds: window,
            sent,
            received: sent - lost,
            lost,
            lost_in_row,
            answered_since,
            answered_before,
            answered_seconds: if is_tcp && answered_since > 0 { known_for(last_loss, now) } else { 0 },
            lost_there: is_udp.then_some(there),
            lost_back: is_udp.then_some(lost - there),
            rtt_p50_seconds: Some(rtt),
            ..RecentPeer::default()
        };
        Peer {
            protocol,
            since_unix_seconds: first_loss.map(whole),
            usual_rtt_p50_seconds: Some(rtt),
            heard: is_udp.then_some(sent - there),
            recent,
            ..Peer::default()
        }
    }

    fn report(&self, node: usize) -> Vec<u8> {
        let (now, Node { name, zone, peers }) = (now(), &self.nodes[node]);
        let source = Source {
            node: Cow::Borrowed(name),
            zone: Cow::Borrowed(zone),
            interval_seconds: Some(1.0),
            members: Some(self.nodes.len() as u64),
            listening_seconds: Some(3_600.0),
            recent: RecentSource {
                seconds: Some(45.0),
                echo_requests_received: Some(45 * 24),
                send_lag_p99_seconds: Some(0.000_2),
                read_delay_p99_seconds: Some(0.000_1),
                probes_skipped: Some(0),
                receive_queue_drops: Some(0),
                run_delay_seconds: Some(0.01),
                ..RecentSource::default()
            },
            ..Source::default()
        };
        let mut writer = CompactWriter::new(&source, name_in_reports(name), whole(now));
        for peer in peers {
            let hash = name_in_reports(&self.nodes[*peer].name);
            self.protocols.iter().for_each(|protocol| writer.peer(hash, &self.peer(node, *peer, *protocol, now)));
        }
        writer.end(0)
    }

    async fn answer(&self, node: usize, mut stream: TcpStream) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
            if stream.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        if !head.starts_with(b"GET /api/v1/peers ") {
            return stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        }
        let body = self.report(node);
        let (media_type, length) = (compact::MEDIA_TYPE, body.len());
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        );
        let answer = [head.as_bytes(), &body].concat();
        self.reports.update(|reports| reports + 1);
        self.bytes.update(|bytes| bytes + answer.len() as u64);
        stream.write_all(&answer).await
    }

    fn read_faults(&self, text: &str) {
        let mut faults = self.faults.borrow_mut();
        let named = text.lines().filter_map(|line| {
            let (node, rate) = line.split_once(' ')?;
            Some((*self.by_name.get(node)?, rate.trim().parse::<f64>().ok()?))
        });
        let (named, now): (HashMap<usize, f64>, f64) = (named.collect(), now());
        for (node, of_node) in faults.iter_mut() {
            for fault in of_node.iter_mut().filter(|it| it.until > now && named.get(node) != Some(&it.rate)) {
                fault.until = now;
            }
            of_node.retain(|fault| fault.until > now - WINDOW_MAX);
        }
        faults.retain(|_, of_node| !of_node.is_empty());
        for (node, rate) in named {
            let of_node = faults.entry(node).or_default();
            if !of_node.iter().any(|it| it.until > now) {
                of_node.push(Fault { rate, since: now, until: f64::INFINITY });
            }
        }
    }
}

fn after_a_rollout(address: Ipv4Addr) -> Ipv4Addr {
    let [first, second, third, fourth] = address.octets();
    Ipv4Addr::new(first, second + 64, third, fourth)
}

fn mesh(text: &str, methods: &str) -> Result<(Mesh, Vec<Ipv4Addr>), Box<dyn std::error::Error>> {
    let mut members = Members::new(Duration::from_mins(5));
    let (mut nodes, mut addresses, mut ids) = (Vec::new(), Vec::new(), Vec::<MemberId>::new());
    for line in text.lines() {
        let (name, rest) = line.split_once('=').ok_or("NODE=ADDRESS@ZONE")?;
        let (address, zone) = rest.split_once('@').ok_or("NODE=ADDRESS@ZONE")?;
        ids.push(members.put(name, Some(zone)).ok_or("too many nodes")?);
        addresses.push(address.parse()?);
        nodes.push(Node { name: name.to_owned(), zone: zone.to_owned(), peers: Vec::new() });
    }
    let scheme = Scheme::new(&members, MAX_PEERS);
    for (node, id) in nodes.iter_mut().zip(&ids) {
        // Members are numbered in the order of the file.
        node.peers = scheme.chosen_by(*id).into_iter().map(|id| usize::from(id.0)).collect();
    }
    let all = [("icmp", Protocol::Icmp), ("udp", Protocol::Udp), ("tcp", Protocol::Tcp)];
    let protocols = all.into_iter().filter(|(name, _)| methods.split(',').any(|it| it == *name));
    let mesh = Mesh {
        by_name: nodes.iter().enumerate().map(|(at, node)| (node.name.clone(), at)).collect(),
        nodes,
        protocols: protocols.map(|(_, protocol)| protocol).collect(),
        faults: RefCell::default(),
        reports: Cell::new(0),
        bytes: Cell::new(0),
    };
    Ok((mesh, addresses))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, peers_file, faults_file, methods, real @ ..] = &arguments[..] else {
        return Err("stand_in PORT PEERS_FILE FAULTS_FILE METHODS NAME…".into());
    };
    let port: u16 = port.parse()?;
    let (mesh, addresses) = mesh(&std::fs::read_to_string(peers_file)?, methods)?;
    let mesh = Rc::new(mesh);
    let local = tokio::task::LocalSet::new();
    let (all, faults_file) = (Rc::clone(&mesh), faults_file.clone());
    local.spawn_local(async move {
        loop {
            all.read_faults(&std::fs::read_to_string(&faults_file).unwrap_or_default());
            println!("{} {}", all.reports.get(), all.bytes.get());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    for (node, address) in addresses.into_iter().enumerate() {
        if real.contains(&mesh.nodes[node].name) {
            continue;
        }
        for address in [address, after_a_rollout(address)] {
            let listener = TcpListener::bind(SocketAddr::new(address.into(), port)).await?;
            let mesh = Rc::clone(&mesh);
            local.spawn_local(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let mesh = Rc::clone(&mesh);
                    // A client that gives up ends its own connection.
                    tokio::task::spawn_local(async move { drop(timeout(PATIENCE, mesh.answer(node, stream)).await) });
                }
            });
        }
    }
    eprintln!("ready");
    local.await;
    Ok(())
}
