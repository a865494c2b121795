//! What is checked, as the operator names it: `[NAME=]KIND:…`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use kube_canary_model::check::CheckKind;

use super::authorities::AuthoritiesFile;
use crate::discovery::address::Host;

/// A host and a port, as `HOST:PORT` names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// The host that is contacted.
    pub host: Host,
    /// The port of TCP or UDP.
    pub port: u16,
}

/// What a check asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckTarget {
    /// The addresses of a name, of one server of the DNS or of each that resolv.conf names.
    Dns {
        /// The name, absolute with or without a dot at its end.
        name: Box<str>,
        /// The server. `None`: those of resolv.conf.
        server: Option<SocketAddr>,
    },
    /// The name of the API server's Service, of each server that resolv.conf names. Its full name
    /// is found by the search list.
    ClusterDns,
    /// A connection by TCP.
    Tcp(HostPort),
    /// A whole TLS handshake.
    Tls(HostPort),
    /// The API server by its Service: a whole TLS handshake, and no request.
    ApiServer {
        /// Host and port of its Service.
        server: HostPort,
        /// The authorities that may sign its certificate.
        authorities: Arc<AuthoritiesFile>,
    },
    /// The head of an answer by HTTP.
    Http {
        /// Whether it is asked by HTTPS.
        is_secure: bool,
        /// The host and port that are asked.
        host: HostPort,
        /// Path and query. The query is never shown.
        path: Box<str>,
    },
    /// The answer to an ICMP echo request.
    Icmp(Host),
    /// An answer of a STAMP reflector (RFC 8762).
    Udp(HostPort),
    /// The identity of any agent by TCP, through a Service of the cluster.
    Service(HostPort),
    /// The name of any agent by UDP, through the same Service.
    ServiceUdp(HostPort),
}

/// A check: its name, and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSpec {
    /// Its name, 1 to [`CHECK_NAME_BYTES_MAX`] bytes: a label, and the subject of verdicts.
    ///
    /// [`CHECK_NAME_BYTES_MAX`]: kube_canary_model::check::CHECK_NAME_BYTES_MAX
    pub name: Box<str>,
    /// What it asks for.
    pub target: CheckTarget,
}

impl fmt::Display for HostPort {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.host, self.port)
    }
}

impl CheckTarget {
    /// Returns the host that has to be resolved, and the port there. `None` if the DNS is asked.
    pub const fn host(&self) -> Option<(&Host, u16)> {
        match self {
            Self::Dns { .. } | Self::ClusterDns => None,
            Self::Tcp(to) | Self::Tls(to) | Self::Udp(to) | Self::Service(to) | Self::ServiceUdp(to) => {
                Some((&to.host, to.port))
            }
            Self::ApiServer { server, .. } => Some((&server.host, server.port)),
            Self::Http { host, .. } => Some((&host.host, host.port)),
            // An ICMP echo has no port.
            Self::Icmp(host) => Some((host, 0)),
        }
    }

    /// Whether it is one of those that need no flag in a cluster.
    pub const fn is_default(&self) -> bool {
        self.is_in_cluster() || matches!(self, Self::ApiServer { .. })
    }

    /// Whether it is the DNS of the cluster or a Service of the agents, whose load grows with the
    /// nodes as its servers do, and whose answers are near.
    pub const fn is_in_cluster(&self) -> bool {
        matches!(self, Self::ClusterDns | Self::Service(_) | Self::ServiceUdp(_))
    }

    /// Whether an attempt may include a handshake of TLS.
    pub const fn uses_tls(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::ApiServer { .. } | Self::Http { is_secure: true, .. })
    }

    /// Returns what it asks for.
    pub const fn kind(&self) -> CheckKind {
        match self {
            Self::Dns { .. } | Self::ClusterDns => CheckKind::Dns,
            Self::Tcp(_) => CheckKind::Tcp,
            Self::Tls(_) | Self::ApiServer { .. } => CheckKind::Tls,
            Self::Http { .. } => CheckKind::Http,
            Self::Icmp(_) => CheckKind::Icmp,
            Self::Udp(_) => CheckKind::Udp,
            Self::Service(_) | Self::ServiceUdp(_) => CheckKind::Service,
        }
    }
}

impl fmt::Display for CheckTarget {
    /// Writes the `target` label: the target without its query.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns { name, server: None } => out.write_str(name),
            Self::Dns { name, server: Some(server) } => write!(out, "{name}@{server}"),
            Self::ClusterDns => out.write_str("kubernetes.default.svc"),
            Self::Tcp(host) | Self::Tls(host) | Self::Udp(host) | Self::Service(host) | Self::ServiceUdp(host) => {
                host.fmt(out)
            }
            Self::ApiServer { server, .. } => server.fmt(out),
            Self::Icmp(host) => host.fmt(out),
            Self::Http { is_secure, host, path } => {
                let scheme = if *is_secure { "https" } else { "http" };
                write!(out, "{scheme}://{host}{}", path.split('?').next().unwrap_or_default())
            }
        }
    }
}
