//! How a link is probed: the name of a method in flags, series, reports and verdicts.

use std::net::IpAddr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

/// A set of methods: how a mesh is probed, or what a verdict is about. It is written as the labels
/// of its methods, such as `udp` or `icmp+udp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Methods(u8);

/// Labels and names of all sets, by their bits.
const SETS: [(&str, &str); 8] = [
    ("", ""),
    ("icmp", "ICMP"),
    ("udp", "UDP"),
    ("icmp+udp", "ICMP and UDP"),
    ("tcp", "TCP"),
    ("icmp+tcp", "ICMP and TCP"),
    ("udp+tcp", "UDP and TCP"),
    ("icmp+udp+tcp", "ICMP, UDP and TCP"),
];

impl Methods {
    /// The set of all methods.
    pub const ALL: Self = Self(7);
    /// The set that has ICMP alone.
    pub const ICMP: Self = Self::only(Method::Icmp);
    /// The set that has UDP alone.
    pub const UDP: Self = Self::only(Method::Udp);
    /// The set that has TCP alone.
    pub const TCP: Self = Self::only(Method::Tcp);

    /// Returns the set of one method.
    pub const fn only(method: Method) -> Self {
        Self(1 << method as u8)
    }

    /// Returns the set of these methods.
    pub fn new(methods: impl IntoIterator<Item = Method>) -> Self {
        methods.into_iter().fold(Self(0), Self::with)
    }

    /// Returns the set with this method.
    #[must_use]
    pub const fn with(self, method: Method) -> Self {
        Self(self.0 | Self::only(method).0)
    }

    /// Whether the method is in the set.
    pub const fn has(self, method: Method) -> bool {
        self.0 & Self::only(method).0 != 0
    }

    /// Returns the number of methods in the set.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the methods of the set, in label order.
    pub fn iter(self) -> impl Iterator<Item = Method> {
        Method::ALL.into_iter().filter(move |method| self.has(*method))
    }

    /// Returns the label, as in JSON and in series.
    pub const fn label(self) -> &'static str {
        SETS[self.0 as usize].0
    }

    /// Returns the names in sentences.
    pub const fn name(self) -> &'static str {
        SETS[self.0 as usize].1
    }
}

impl Serialize for Methods {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.label())
    }
}

impl<'de> Deserialize<'de> for Methods {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let label = std::borrow::Cow::<str>::deserialize(deserializer)?;
        (1..=7).map(Self).find(|set| set.label() == label).ok_or_else(|| D::Error::custom("unknown protocols"))
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

/// The network of a node that an address is on. It is the `network` label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The pods' network, often an overlay.
    #[default]
    Pod,
    /// The nodes' own network, which carries the pods' network.
    Node,
}

impl Network {
    /// Both networks, in label order.
    pub const ALL: [Self; 2] = [Self::Pod, Self::Node];

    /// Returns the label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Node => "node",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_methods_are_read_as_they_are_written() {
        let sets = [Methods::only(Method::Udp), Methods::new([Method::Tcp, Method::Icmp])];
        let texts = sets.map(|set| serde_json::to_string(&set).expect("JSON"));
        assert_eq!(texts, [r#""udp""#, r#""icmp+tcp""#]);
        let read: Vec<Methods> = texts.iter().map(|text| serde_json::from_str(text).expect("a set")).collect();
        assert_eq!(read, sets);
        assert_eq!(sets[1].iter().collect::<Vec<_>>(), [Method::Icmp, Method::Tcp]);
        assert_eq!((sets[1].count(), Methods::ALL), (2, Methods::new(Method::ALL)));
        for bad in [r#""tcp+icmp""#, r#""""#, r#""all""#] {
            assert!(serde_json::from_str::<Methods>(bad).is_err(), "{bad}");
        }
    }
}
