//! The metrics of one agent, and requests to its HTTP server.

use std::io;
use std::net::{SocketAddr, TcpStream};

use super::exposition::{self, Sample};
use super::until::PATIENCE;
use crate::http_support::{Response, exchange};

/// Sends a GET on a connection of its own. `headers` are whole lines.
///
/// # Errors
/// Any failure before the whole answer is read.
pub fn fetch(address: SocketAddr, path: &str, headers: &str) -> io::Result<Response> {
    request(address, "GET", path, headers)
}

/// Sends a request of any method.
///
/// # Errors
/// As [`fetch`].
pub fn request(address: SocketAddr, method: &str, path: &str, headers: &str) -> io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    exchange(&mut stream, &format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"))
}

/// One scrape of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics(pub Vec<Sample>);

/// One agent's counters of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    pub sent: f64,
    pub received: f64,
    pub lost: f64,
    pub late: f64,
    pub duplicate: f64,
    pub reordered: f64,
    pub send_errors: f64,
}

impl Link {
    /// Returns the increase since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            received: self.received - before.received,
            lost: self.lost - before.lost,
            late: self.late - before.late,
            duplicate: self.duplicate - before.duplicate,
            reordered: self.reordered - before.reordered,
            send_errors: self.send_errors - before.send_errors,
        }
    }

    /// Whether all results are answers.
    pub fn is_clean(self) -> bool {
        [self.lost, self.late, self.duplicate, self.send_errors].iter().all(|&count| is_zero(count))
    }
}

/// Counters are whole numbers: exactly zero, or not.
pub fn is_zero(count: f64) -> bool {
    count.abs() < 0.5
}

/// Whether two counters are the same whole number.
pub fn same(left: f64, right: f64) -> bool {
    is_zero(left - right)
}

impl Metrics {
    /// Scrapes `address`.
    ///
    /// # Errors
    /// Any failure before a well-formed answer is read.
    pub fn of(address: SocketAddr) -> Result<Self, String> {
        let response = fetch(address, "/metrics", "").map_err(|error| error.to_string())?;
        if response.status != 200 {
            return Err(format!("{}: {}", response.status, response.body));
        }
        exposition::parse(&response.body).map(Self)
    }

    /// The sum of the samples `kube_canary_{name}` that have all these labels, or `None` if there
    /// is no such sample.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let name = format!("kube_canary_{name}");
        let found = self
            .0
            .iter()
            .filter(|sample| sample.name == name && labels.iter().all(|(label, value)| sample.label(label) == *value));
        found.map(|sample| sample.value).reduce(|sum, value| sum + value)
    }

    /// The counters of `peer`, all its networks together. All are zero if the agent does
    /// not know the peer.
    pub fn link(&self, peer: &str, protocol: &str) -> Link {
        self.link_of(&[("peer_node", peer), ("protocol", protocol)])
    }

    /// The counters of `peer` on one network.
    pub fn link_on(&self, peer: &str, protocol: &str, network: &str) -> Link {
        self.link_of(&[("peer_node", peer), ("protocol", protocol), ("network", network)])
    }

    fn link_of(&self, labels: &[(&str, &str)]) -> Link {
        let count = |name: &str| self.value(name, labels).unwrap_or(0.0);
        Link {
            sent: count("probes_sent_total"),
            received: count("probes_received_total"),
            lost: count("probes_lost_total"),
            late: count("probes_late_total"),
            duplicate: count("probes_duplicate_total"),
            reordered: count("probes_reordered_total"),
            send_errors: count("probe_send_errors_total"),
        }
    }

    /// Peer and protocol of every series of sent probes, sorted.
    pub fn peers(&self) -> Vec<(&str, &str)> {
        let sent = self.0.iter().filter(|sample| sample.name == "kube_canary_probes_sent_total");
        let mut peers: Vec<_> = sent.map(|sample| (sample.label("peer_node"), sample.label("protocol"))).collect();
        peers.sort_unstable();
        peers
    }
}
