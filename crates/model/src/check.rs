//! A check of what pods depend on: the names of its kinds, phases and failures in flags, series,
//! reports and verdicts, and what an agent reports of it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::method::Family;
use crate::report::rounded::{self, is_zero};

/// Bytes of the name of a check, which is a label and the subject of verdicts.
pub const CHECK_NAME_BYTES_MAX: usize = 48;
/// The names of the checks that need no flag in a cluster.
pub const DEFAULT_CHECKS: [&str; 4] = ["dns", "api-server", "service", "service-udp"];
/// Largest number of checks, with the defaults.
pub const CHECKS_MAX: usize = 32;

/// What a check asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
#[serde(rename_all = "lowercase")]
pub enum CheckKind {
    /// A name of each server of the DNS.
    Dns,
    /// A connection by TCP.
    Tcp,
    /// A whole TLS handshake.
    Tls,
    /// The head of an answer by HTTP or HTTPS.
    Http,
    /// The answer to an ICMP echo request.
    Icmp,
    /// An answer of a STAMP reflector.
    Udp,
    /// The answer of another agent through a Service of the cluster.
    Service,
    /// A kind that this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

/// Whether a text may be the name of a check: letters, digits, `.`, `_` and `-`. So it can be a
/// label, a part of a subject and a word for a shell.
pub fn is_check_name(text: &str) -> bool {
    (1..=CHECK_NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

impl CheckKind {
    /// All kinds that can be checked.
    pub const ALL: [Self; 7] = [Self::Dns, Self::Tcp, Self::Tls, Self::Http, Self::Icmp, Self::Udp, Self::Service];

    /// Returns the label, as `--check` takes it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Icmp => "icmp",
            Self::Udp => "udp",
            Self::Service => "service",
            Self::Other => "other",
        }
    }
}

/// A part of an attempt that is timed on its own: the closed set of `phase` labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CheckPhase {
    /// From the name of a host to its addresses. A host that is an address has none.
    Resolve,
    /// From the SYN segment to the connection.
    Connect,
    /// From the first byte of the TLS handshake to its end.
    Handshake,
    /// From the request to the answer, or to the end of its head by HTTP. For DNS, ICMP and UDP the
    /// only one.
    FirstByte,
}

impl CheckPhase {
    /// All phases, in their order.
    pub const ALL: [Self; 4] = [Self::Resolve, Self::Connect, Self::Handshake, Self::FirstByte];

    /// Returns the value of the `phase` label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Handshake => "handshake",
            Self::FirstByte => "first_byte",
        }
    }
}

/// Why an attempt has failed: the closed set of `reason` labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum CheckFailure {
    /// No answer in time.
    Timeout,
    /// ECONNREFUSED: nothing listens at that port.
    Refused,
    /// ENETUNREACH, EHOSTUNREACH: no route to the target, or none behind a router.
    NoRoute,
    /// The kernel did not send the packet for another reason, as a firewall of this host.
    NotSent,
    /// The target has ended the connection before its answer was complete.
    Closed,
    /// The name of the target has no address, or no server of the DNS told one.
    Unresolved,
    /// DNS: NXDOMAIN.
    NoSuchName,
    /// DNS: SERVFAIL, or another response code.
    ServerFailure,
    /// DNS: REFUSED.
    QueryRefused,
    /// The answer is not of the protocol.
    Malformed,
    /// The TLS handshake has failed for a reason other than the certificate.
    Tls,
    /// The certificate is not valid at this time.
    CertificateExpired,
    /// No authority of `--check-ca` has signed the certificate.
    CertificateUntrusted,
    /// The certificate is for other names.
    CertificateName,
    /// The HTTP status is 400 or higher.
    Status,
    /// Any other reason, or one that this version does not know.
    #[serde(other)]
    Other,
}

impl CheckFailure {
    /// All reasons, in label order.
    pub const ALL: [Self; 16] = [
        Self::Timeout,
        Self::Refused,
        Self::NoRoute,
        Self::NotSent,
        Self::Closed,
        Self::Unresolved,
        Self::NoSuchName,
        Self::ServerFailure,
        Self::QueryRefused,
        Self::Malformed,
        Self::Tls,
        Self::CertificateExpired,
        Self::CertificateUntrusted,
        Self::CertificateName,
        Self::Status,
        Self::Other,
    ];

    /// Returns the most frequent reason by these counts, in the order of [`CheckFailure::ALL`]: the
    /// first of several. `None` if there is none.
    pub fn most_frequent<T: Copy + Default + Ord>(counts: &[T; Self::ALL.len()]) -> Option<Self> {
        let most = Self::ALL.into_iter().rev().max_by_key(|reason| counts[*reason as usize])?;
        (counts[most as usize] > T::default()).then_some(most)
    }

    /// Returns the value of the `reason` label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::NoRoute => "no_route",
            Self::NotSent => "not_sent",
            Self::Closed => "closed",
            Self::Unresolved => "unresolved",
            Self::NoSuchName => "no_such_name",
            Self::ServerFailure => "server_failure",
            Self::QueryRefused => "query_refused",
            Self::Malformed => "malformed",
            Self::Tls => "tls",
            Self::CertificateExpired => "certificate_expired",
            Self::CertificateUntrusted => "certificate_untrusted",
            Self::CertificateName => "certificate_name",
            Self::Status => "status",
            Self::Other => "other",
        }
    }

    /// Returns the reason in a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Timeout => "no answer in time",
            Self::Refused => "connection refused",
            Self::NoRoute => "no route",
            Self::NotSent => "not sent, as by a firewall of the node",
            Self::Closed => "connection closed",
            Self::Unresolved => "its name has no address",
            Self::NoSuchName => "no such name (NXDOMAIN)",
            Self::ServerFailure => "server failure (SERVFAIL)",
            Self::QueryRefused => "query refused (REFUSED)",
            Self::Malformed => "malformed answer",
            Self::Tls => "TLS handshake failed",
            Self::CertificateExpired => "certificate expired or not valid yet",
            Self::CertificateUntrusted => "certificate of an unknown authority",
            Self::CertificateName => "certificate for another name",
            Self::Status => "HTTP status of an error",
            Self::Other => "another error",
        }
    }
}

/// What an agent reports of one check in the recent window, 30 to 60 s. An attempt is good, slow or
/// failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Check<'a> {
    /// Its name: 1 to [`CHECK_NAME_BYTES_MAX`] bytes.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// What it asks for.
    pub kind: CheckKind,
    /// Number of attempts that have ended.
    #[serde(default)]
    pub tried: u32,
    /// Number of them that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u32,
    /// Number of them that took much longer than usual.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slow: u32,
    /// Number of good attempts since the last one that failed or was slow, at most 255.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub good_in_row: u32,
    /// Number of attempts that failed since the last one that did not, at most 255.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_in_row: u32,
    /// The most frequent reason of the failed ones. `None` if none failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<CheckFailure>,
    /// When the first attempt failed or was slow after which too few in a row were good for an end.
    /// `None` if there is none in the recent window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_unix_seconds: Option<u64>,
    /// The family of all attempts that failed or were slow, if those over the other one were good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Number of attempts over that family.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub family_tried: u32,
    /// Number of servers or addresses that are asked in turn.
    #[serde(default)]
    pub servers: u8,
    /// Whether an answer of its own has reached the agent through this Service. Where a pod cannot
    /// reach itself so, some of its attempts fail without a fault.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reaches_itself: bool,
    /// Number of them of which most attempts failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub servers_failing: u8,
    /// Median time of the answered ones.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded::option")]
    pub time_p50_seconds: Option<f64>,
    /// The time from which on an attempt counts as slow.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "rounded::option")]
    pub slow_from_seconds: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_kinds_are_written_as_their_labels() {
        for (place, reason) in CheckFailure::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{}\"", reason.label()));
        }
        for (place, kind) in CheckKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.label()));
        }
        assert!(CheckPhase::ALL.into_iter().enumerate().all(|(place, phase)| phase as usize == place));
        assert_eq!(serde_json::from_str::<CheckKind>("\"quic\"").unwrap(), CheckKind::Other);
        assert_eq!(serde_json::from_str::<CheckFailure>("\"later\"").unwrap(), CheckFailure::Other);
    }

    #[test]
    fn names_of_checks_are_words() {
        for name in ["dns", "api.example.com", "-_.", &"n".repeat(CHECK_NAME_BYTES_MAX)] {
            assert!(is_check_name(name), "{name}");
        }
        for other in ["", "a b", "a->b", "ä", "a\n", "*", "[::1]", &"n".repeat(CHECK_NAME_BYTES_MAX + 1)] {
            assert!(!is_check_name(other), "{other}");
        }
    }

    #[test]
    fn a_healthy_check_is_short() {
        let check = Check { name: "dns".into(), kind: CheckKind::Dns, tried: 12, servers: 1, ..Check::default() };
        assert_eq!(serde_json::to_string(&check).unwrap(), r#"{"name":"dns","kind":"dns","tried":12,"servers":1}"#);
    }
}
