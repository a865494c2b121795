//! The failures between us and the API server, as a closed set, and the meaning of each status.

use std::path::PathBuf;
use std::time::Duration;

use super::inbox::Unreadable;
use crate::http::client::{GetError, chain};

/// Longest `Retry-After` that is honoured.
pub const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// A failed request, list or watch.
#[derive(Debug, thiserror::Error)]
pub enum ApiFailure {
    /// A file of the service account cannot be used.
    #[error("service account file {}: {reason}", path.display())]
    Credentials {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with the file.
        reason: String,
    },
    /// There is no TCP connection, or no address for the host.
    #[error("connecting to {host}: {reason}")]
    Connect {
        /// The host and port of the API server.
        host: String,
        /// The reason, for the log.
        reason: String,
    },
    /// TLS failed, most often because of a certificate of another authority.
    #[error("TLS with {host}: {reason}")]
    Tls {
        /// The host and port of the API server.
        host: String,
        /// The reason, for the log.
        reason: String,
    },
    /// The connection broke, or the received bytes were not HTTP.
    #[error("the connection broke: {0}")]
    Wire(String),
    /// The operation did not finish in time.
    #[error("no answer to {0} in time")]
    Time(&'static str),
    /// Status 401: the API server does not accept the token.
    #[error("401 Unauthorized: the token is not accepted")]
    Unauthorized,
    /// Status 403: the Role does not allow the request.
    #[error("403 Forbidden: the Role must allow get, list and watch of endpointslices (discovery.k8s.io)")]
    Forbidden,
    /// Status 410, or an ERROR event with it: our resource version is too old.
    #[error("410 Gone: the resource version is too old")]
    Gone,
    /// Status 429 or 503.
    #[error("status {status}: the API server is busy")]
    Busy {
        /// The status: 429 or 503.
        status: u16,
        /// The wait that the server asks for, if it gives one.
        retry_after: Option<Duration>,
    },
    /// Any other status than 200.
    #[error("status {0}")]
    Status(u16),
    /// An answer that cannot be parsed.
    #[error("malformed answer: {0}")]
    Malformed(String),
    /// A body or an event beyond the limit.
    #[error("an answer of more than {0} bytes")]
    TooLarge(usize),
    /// A watch that ended before its duration.
    #[error("the watch ended before its time")]
    Ended,
    /// A watch that delivers nothing, not even a bookmark.
    #[error("the watch brings nothing")]
    Silent,
}

impl ApiFailure {
    /// Returns the kind, for the log. Failures that differ only in details have the same kind.
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

    /// Returns whether the operation cannot continue from its version, so that only
    /// a new list helps.
    pub const fn needs_new_list(&self) -> bool {
        // 400 answers a version that the server cannot read, 504 one that it has not reached. Both
        // happen after a restore of etcd.
        matches!(self, Self::Gone | Self::Silent | Self::Malformed(_) | Self::TooLarge(_) | Self::Status(400 | 504))
    }

    /// Returns the wait that the server asks for, or zero. It is added to a back-off, so that
    /// agents that were turned away together do not return together.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Busy { retry_after: Some(after), .. } => (*after).min(RETRY_AFTER_MAX),
            _ => Duration::ZERO,
        }
    }

    /// Returns the failure that a status other than 200 means.
    pub fn from_status(status: u16, retry_after: Option<&str>) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            410 => Self::Gone,
            // An API server never sends the date form.
            429 | 503 => {
                let seconds = retry_after.and_then(|text| text.trim().parse().ok());
                Self::Busy { status, retry_after: seconds.map(Duration::from_secs) }
            }
            other => Self::Status(other),
        }
    }
}

impl From<GetError> for ApiFailure {
    fn from(error: GetError) -> Self {
        match error {
            GetError::TooLarge(limit) => Self::TooLarge(limit),
            other => Self::Wire(other.to_string()),
        }
    }
}

impl From<Unreadable> for ApiFailure {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::TooLarge(limit) => Self::TooLarge(limit),
            Unreadable::Malformed(what) => Self::Malformed(what),
        }
    }
}

impl From<hyper::Error> for ApiFailure {
    fn from(error: hyper::Error) -> Self {
        Self::Wire(chain(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_meaning() {
        let kind = |status| ApiFailure::from_status(status, None).kind();
        assert_eq!(
            [401, 403, 410, 429, 503, 500, 404].map(kind),
            ["401", "403", "410", "busy", "busy", "status", "status"]
        );
        assert!(ApiFailure::from_status(410, None).needs_new_list());
        assert!(!ApiFailure::from_status(500, None).needs_new_list());
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_otherwise_left() {
        let after = |text| match ApiFailure::from_status(429, Some(text)) {
            ApiFailure::Busy { retry_after, .. } => retry_after,
            other => panic!("{other}"),
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("soon"), None);
        assert_eq!(after("-1"), None);
    }
}
