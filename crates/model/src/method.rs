//! How a link is probed: the name of a method in flags, series, reports and verdicts.

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
