//! How a link is probed.

use serde::{Deserialize, Serialize};

use crate::limits::{PEER_SLOTS_MAX, REPORT_PEERS_MAX};
use crate::method::{Family, Method};

const _: () = assert!(REPORT_PEERS_MAX == Method::ALL.len() * PEER_SLOTS_MAX);

/// The protocol of the probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// ICMP echo over IPv4.
    #[default]
    Icmp,
    /// ICMPv6 echo over IPv6.
    Icmpv6,
    /// UDP packets over IPv4.
    Udp,
    /// UDP packets over IPv6.
    Udpv6,
    /// TCP handshakes over IPv4.
    Tcp,
    /// TCP handshakes over IPv6.
    Tcpv6,
    /// A protocol that this version does not know.
    #[serde(other)]
    Other,
}

impl Protocol {
    /// Returns the protocol of a method over a family.
    pub const fn new(method: Method, family: Family) -> Self {
        match (method, family) {
            (Method::Icmp, Family::V4) => Self::Icmp,
            (Method::Icmp, Family::V6) => Self::Icmpv6,
            (Method::Udp, Family::V4) => Self::Udp,
            (Method::Udp, Family::V6) => Self::Udpv6,
            (Method::Tcp, Family::V4) => Self::Tcp,
            (Method::Tcp, Family::V6) => Self::Tcpv6,
        }
    }

    /// Returns the label of the protocol.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Icmp => "icmp",
            Self::Icmpv6 => "icmpv6",
            Self::Udp => "udp",
            Self::Udpv6 => "udpv6",
            Self::Tcp => "tcp",
            Self::Tcpv6 => "tcpv6",
            Self::Other => "other",
        }
    }

    /// Returns how the protocol probes. `None` if this version does not know it.
    pub const fn method(self) -> Option<Method> {
        match self {
            Self::Icmp | Self::Icmpv6 => Some(Method::Icmp),
            Self::Udp | Self::Udpv6 => Some(Method::Udp),
            Self::Tcp | Self::Tcpv6 => Some(Method::Tcp),
            Self::Other => None,
        }
    }

    /// Whether the probes are sent over IPv6.
    pub const fn is_over_ipv6(self) -> bool {
        matches!(self, Self::Icmpv6 | Self::Udpv6 | Self::Tcpv6)
    }
}
