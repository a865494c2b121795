//! What can go wrong between us and the API server, as a closed set, and what each status means.

use std::path::PathBuf;
use std::time::Duration;

use super::inbox::Unreadable;
use crate::http::client::{GetError, chain};
use crate::limits;

/// A failed request, list or watch.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A file of the service account cannot be used.
    #[error("service account file {}: {reason}", path.display())]
    Credentials {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No TCP connection, or no address for the host.
    #[error("connecting to {host}: {reason}")]
    Connect {
        /// Host and port.
        host: String,
        /// Why.
        reason: String,
    },
    /// TLS refused: most often a certificate of another authority.
    #[error("TLS with {host}: {reason}")]
    Tls {
        /// Host and port.
        host: String,
        /// Why.
        reason: String,
    },
    /// The connection broke, or what came was not HTTP.
    #[error("the connection broke: {0}")]
    Wire(String),
    /// Not done in time.
    #[error("no answer to {0} in time")]
    Time(&'static str),
    /// 401.
    #[error("401 Unauthorized: the token is not accepted")]
    Unauthorized,
    /// 403.
    #[error("403 Forbidden: the Role must allow get, list and watch of endpointslices (discovery.k8s.io)")]
    Forbidden,
    /// 410, or an ERROR event that says so: the version that we know is too old.
    #[error("410 Gone: the resource version is too old")]
    Gone,
    /// 429 or 503.
    #[error("status {status}: the API server is busy")]
    Busy {
        /// 429 or 503.
        status: u16,
        /// When to come back, if it said so.
        retry_after: Option<Duration>,
    },
    /// Any other status than 200.
    #[error("status {0}")]
    Status(u16),
    /// An answer that cannot be read.
    #[error("malformed answer: {0}")]
    Malformed(String),
    /// A body or an event beyond the limit.
    #[error("an answer of more than {0} bytes")]
    TooLarge(usize),
    /// A watch that ended before its time.
    #[error("the watch ended before its time")]
    Ended,
    /// A watch that brings nothing, not even a bookmark.
    #[error("the watch brings nothing")]
    Silent,
}

impl Failure {
    /// The kind, for the log: what differs only in its details is the same.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Credentials { .. } => "credentials",
            Self::Connect { .. } => "connect",
            Self::Tls { .. } => "tls",
            Self::Wire(_) => "wire",
            Self::Time(_) => "time",
            Self::Unauthorized => "401",
            Self::Forbidden => "403",
            Self::Gone => "410",
            Self::Busy { .. } => "busy",
            Self::Status(_) => "status",
            Self::Malformed(_) => "malformed",
            Self::TooLarge(_) => "large",
            Self::Ended => "ended",
            Self::Silent => "silent",
        }
    }

    /// Whether what we were doing cannot go on from where it was, so that only a new list helps.
    pub const fn needs_new_list(&self) -> bool {
        // 400 is what a version gives that the server cannot read, 504 one that it has not reached: after a restore of etcd.
        matches!(self, Self::Gone | Self::Silent | Self::Malformed(_) | Self::TooLarge(_) | Self::Status(400 | 504))
    }

    /// What the server asks us to wait. On top of a back-off, so that those who were sent away together do not come back
    /// together.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Busy { retry_after: Some(after), .. } => (*after).min(limits::API_RETRY_AFTER_MAX),
            _ => Duration::ZERO,
        }
    }

    /// What a status other than 200 means.
    pub fn of_status(status: u16, retry_after: Option<&str>) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            410 => Self::Gone,
            // The date form is never sent by an API server.
            429 | 503 => {
                let seconds = retry_after.and_then(|text| text.trim().parse().ok());
                Self::Busy { status, retry_after: seconds.map(Duration::from_secs) }
            }
            other => Self::Status(other),
        }
    }
}

impl From<GetError> for Failure {
    fn from(error: GetError) -> Self {
        match error {
            GetError::TooLarge(limit) => Self::TooLarge(limit),
            other => Self::Wire(other.to_string()),
        }
    }
}

impl From<Unreadable> for Failure {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::TooLarge(limit) => Self::TooLarge(limit),
            Unreadable::Malformed(what) => Self::Malformed(what),
        }
    }
}

impl From<hyper::Error> for Failure {
    fn from(error: hyper::Error) -> Self {
        Self::Wire(chain(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_meaning() {
        let kind = |status| Failure::of_status(status, None).kind();
        assert_eq!(
            [401, 403, 410, 429, 503, 500, 404].map(kind),
            ["401", "403", "410", "busy", "busy", "status", "status"]
        );
        assert!(Failure::of_status(410, None).needs_new_list());
        assert!(!Failure::of_status(500, None).needs_new_list());
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_otherwise_left() {
        let after = |text| match Failure::of_status(429, Some(text)) {
            Failure::Busy { retry_after, .. } => retry_after,
            other => panic!("{other}"),
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("soon"), None);
        assert_eq!(after("-1"), None);
    }
}
