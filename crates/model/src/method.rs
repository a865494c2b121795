//! How a link is probed: the name of a method in flags, series, reports and verdicts.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// How a link is probed, over IPv4 or IPv6. Each method has its own numbers of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// ICMP or ICMPv6 echo requests, which the kernel of the peer answers.
    #[default]
    Icmp,
    /// UDP probes, which the agent of the peer answers (STAMP).
    Udp,
    /// TCP handshakes with the agent of the peer.
    Tcp,
}

impl Method {
    /// All methods, in the order of labels and of what is shown.
    pub const ALL: [Self; 3] = [Self::Icmp, Self::Udp, Self::Tcp];

    /// Returns the label, as `--probes` takes it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Icmp => "icmp",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }

    /// Returns the name in sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Icmp => "ICMP",
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        }
    }
}

/// Which version of IP an address is of. A slot has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "ipv4")]
    V4,
    /// IPv6.
    #[serde(rename = "ipv6")]
    V6,
}

impl Family {
    /// Both families, in label order.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of `address`.
    pub const fn from_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns the label, as in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// Returns the name in sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}
