//! UDP sessions that have no answers, as their sources report them, and sessions that others heard
//! from addresses that are no member's.

use std::net::{IpAddr, Ipv6Addr};

use kube_canary_kernel::region::List;
use kube_canary_model::report::Source;

/// The session that a node gives, and an address that it has in the list of members.
#[derive(Clone, Copy, Debug)]
pub struct SessionOf {
    /// Number of the node.
    pub node: u16,
    /// The identifier of the session (SSID of RFC 8972).
    pub ssid: u16,
    /// An IPv4 address is mapped. `None` if the node does not know any.
    pub address: Option<Ipv6Addr>,
}

/// Requests that came from an address that is no member's.
#[derive(Clone, Copy, Debug)]
pub struct StrangerAt {
    /// Number of the node to which they came.
    pub node: u16,
    /// The identifier of the session (SSID of RFC 8972).
    pub ssid: u16,
    /// How many came in the recent window.
    pub requests: u16,
    /// The address. One of IPv4 is mapped.
    pub address: Ipv6Addr,
}

impl StrangerAt {
    /// Whether they came over IPv6.
    pub const fn is_over_ipv6(&self) -> bool {
        self.address.to_ipv4_mapped().is_none()
    }
}

/// Returns an address as text.
pub fn text(address: Ipv6Addr) -> String {
    address.to_canonical().to_string()
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// What all reports say of sessions and strangers.
#[derive(Debug)]
pub(super) struct Strangers {
    /// The sessions of which a source has no answers.
    pub sessions: List<SessionOf>,
    /// What has come from strangers.
    pub heard: List<StrangerAt>,
}

impl Strangers {
    /// Makes empty tables that take at most this many bytes each.
    pub fn new(bytes: usize) -> Self {
        Self { sessions: List::new(bytes / size_of::<SessionOf>()), heard: List::new(bytes / size_of::<StrangerAt>()) }
    }

    /// Adds what a source reports, as far as there is room for it.
    pub fn add(&mut self, node: u16, source: &Source<'_>, mut room: usize) {
        let mut fits = |bytes: usize| {
            let fits = room >= bytes;
            room = room.saturating_sub(bytes);
            fits
        };
        if let Some(session) = &source.session {
            let addresses = session.addresses.iter().map(|address| Some(mapped(*address)));
            let unknown = session.addresses.is_empty().then_some(None);
            for address in addresses.chain(unknown).filter(|_| fits(size_of::<SessionOf>())) {
                _ = self.sessions.push(SessionOf { node, ssid: session.ssid, address });
            }
        }
        for stranger in source.strangers.iter().filter(|_| fits(size_of::<StrangerAt>())) {
            let requests = u16::try_from(stranger.requests).unwrap_or(u16::MAX);
            let (ssid, address) = (stranger.ssid, mapped(stranger.address));
            _ = self.heard.push(StrangerAt { node, ssid, requests, address });
        }
    }

    /// Returns the bytes in use.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.sessions[..]) + size_of_val(&self.heard[..])
    }
}
