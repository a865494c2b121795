//! Whom a gathering asks next: at first those of our own list, then whom their rows name, and so on.
//!
//! Where each node probes a part of the mesh only, our list is a part of it, and rows lead to the rest: breadth first, so that
//! the nearest come before the limit. The trap: what comes in a row was written by somebody else, and must not send us
//! anywhere. So only a name and an address are taken from it; the port and the path are ours; the address must be one that a
//! canary of our mesh can have; and each node is asked once.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use super::matrix::Matrix;
use super::row::{Network, PeerRow};
use super::targets::{Target, Targets};
use crate::limits::MESH_ROWS_MAX;

/// Those who are still to be asked, and who was.
pub struct Frontier {
    waiting: VecDeque<Target>,
    /// Of all who were ever put in: one node may have two names.
    addresses: Vec<SocketAddr>,
    port: u16,
    is_on_loopback: bool,
    /// Ends with this node.
    wanted: Option<String>,
    found: Option<Target>,
}

impl Frontier {
    /// Begins with our own list; ends early where `wanted` is found.
    pub fn new(targets: Targets, wanted: Option<String>) -> Self {
        let Targets { nodes, port } = targets;
        let addresses: Vec<SocketAddr> = nodes.iter().map(|target| target.address).collect();
        let is_on_loopback = addresses.iter().any(|address| address.ip().is_loopback());
        Self { waiting: nodes.into(), addresses, port, is_on_loopback, wanted, found: None }
    }

    /// Whom to ask next.
    pub fn next(&mut self) -> Option<Target> {
        if self.found.is_some() { None } else { self.waiting.pop_front() }
    }

    /// A row names this peer: it is asked, unless it was before. `matrix` knows that, and has the peer already.
    pub fn learn(&mut self, peer: &PeerRow<'_>, matrix: &mut Matrix) {
        let is_wanted = self.wanted.as_deref() == Some(&*peer.node);
        // Our own row is one, too.
        let is_full = self.addresses.len() + 1 >= MESH_ROWS_MAX && !is_wanted;
        if is_full || self.found.is_some() || peer.network != Network::Pod || !peer.state.is_evidence() {
            return;
        }
        let Ok(address) = peer.address.parse::<IpAddr>() else { return };
        let address = SocketAddr::new(address, self.port);
        if !is_canaries(address.ip(), self.is_on_loopback)
            || self.addresses.contains(&address)
            || !matrix.seek(&peer.node)
        {
            return;
        }
        let target = Target { node: peer.node.clone().into_owned(), address };
        if is_wanted {
            self.found = Some(target);
        } else {
            self.addresses.push(address);
            self.waiting.push_back(target);
        }
    }

    /// How many were put in.
    pub const fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Whether the search has come to its end.
    pub const fn has_found(&self) -> bool {
        self.found.is_some()
    }

    /// The node that was wanted.
    pub fn into_found(self) -> Option<Target> {
        self.found
    }
}

/// Whether a canary may have this address: no multicast, no link-local one (clouds answer for themselves at 169.254.169.254), and
/// a loopback one only where our own list has such.
fn is_canaries(address: IpAddr, is_on_loopback: bool) -> bool {
    // An IPv4 address in the form of an IPv6 one is looked at as what it is.
    let address = address.to_canonical();
    let (is_link_local, is_broadcast) = match address {
        IpAddr::V4(four) => (four.is_link_local(), four.is_broadcast()),
        IpAddr::V6(six) => (six.is_unicast_link_local(), false),
    };
    let is_none = address.is_unspecified() || address.is_multicast() || is_link_local || is_broadcast;
    !is_none && (is_on_loopback || !address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> PeerRow<'_> {
        serde_json::from_str(text).expect("a peer")
    }

    fn learnt(addresses: &[&str], own: &str) -> Vec<String> {
        let nodes = vec![Target { node: "a".into(), address: SocketAddr::new(own.parse().expect("an address"), 7) }];
        let mut frontier = Frontier::new(Targets { nodes, port: 9 }, None);
        let mut matrix = Matrix::new();
        matrix.begin_row(&serde_json::from_str(r#"{"node":"a","zone":"z"}"#).expect("a source"));
        assert_eq!(frontier.next().map(|target| target.node).as_deref(), Some("a"));
        for (number, address) in addresses.iter().enumerate() {
            let text = format!(r#"{{"node":"n{number}","address":"{address}"}}"#);
            let peer = peer(&text);
            matrix.peer(&peer);
            frontier.learn(&peer, &mut matrix);
            frontier.learn(&peer, &mut matrix);
        }
        std::iter::from_fn(|| frontier.next()).map(|target| target.address.to_string()).collect()
    }

    #[test]
    fn addresses_that_no_canary_has_are_not_asked_and_the_port_is_ours() {
        let addresses = [
            "10.0.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "224.0.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "::1",
            "fe80::1",
            "ff02::1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "fd00::1",
            "example.com",
            "10.0.0.1:80",
            "",
            "10.0.0.1",
        ];
        assert_eq!(learnt(&addresses, "10.0.0.9"), ["10.0.0.1:9", "[fd00::1]:9"], "each once");
        assert_eq!(learnt(&["127.0.0.5", "169.254.169.254"], "127.0.0.1"), ["127.0.0.5:9"]);
    }

    #[test]
    fn who_leaves_and_who_is_on_another_network_is_not_asked() {
        let mut frontier = Frontier::new(Targets::default(), None);
        let mut matrix = Matrix::new();
        matrix.begin_row(&serde_json::from_str(r#"{"node":"a","zone":"z"}"#).expect("a source"));
        for text in [
            r#"{"node":"b","address":"10.0.0.2","state":"left"}"#,
            r#"{"node":"c","address":"10.0.0.3","state":"terminating"}"#,
            r#"{"node":"d","address":"10.0.0.4","network":"node"}"#,
            r#"{"node":"a","address":"10.0.0.1"}"#,
        ] {
            matrix.peer(&peer(text));
            frontier.learn(&peer(text), &mut matrix);
        }
        assert_eq!(frontier.next(), None, "nor he whose row it is");
        let later = r#"{"node":"c","address":"10.0.0.3","state":"unready"}"#;
        matrix.peer(&peer(later));
        frontier.learn(&peer(later), &mut matrix);
        assert_eq!(frontier.next().map(|target| target.node).as_deref(), Some("c"), "another row has it otherwise");
    }
}
