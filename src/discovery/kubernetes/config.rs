//! What Kubernetes discovery needs to know before it starts, and how long things take.

use std::path::PathBuf;
use std::time::Duration;

use super::account::Account;
use super::connect::Server;
use super::failure::Failure;
use crate::limits;

/// Why Kubernetes discovery cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not in a pod.
    #[error(
        "--discovery kubernetes: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set as inside a pod \
         (got {host:?} and {port:?}); accepted: run in a cluster, or --discovery static or dns"
    )]
    NotInCluster {
        /// As set.
        host: String,
        /// As set.
        port: String,
    },
    /// A file of the service account cannot be used.
    #[error("--discovery kubernetes: {0}; accepted: a pod with its service account token mounted")]
    Account(String),
    /// A name that no Service or namespace can have.
    #[error("{flag} {value:?}: accepted: a DNS label of at most 63 characters (a-z, 0-9, -)")]
    Name {
        /// The flag.
        flag: &'static str,
        /// As given.
        value: String,
    },
}

/// How long things take: a test sets its own.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// TCP and TLS set-up.
    pub connect: Duration,
    /// The head of an answer, and the whole of a slice; a list may pause for as long.
    pub request: Duration,
    /// What a watch is asked to last, ± 20 %; whole seconds.
    pub watch: Duration,
    /// What it may last beyond that.
    pub watch_grace: Duration,
    /// How long it may bring nothing at all.
    pub watch_silence: Duration,
    /// The first ceiling of the back-off.
    pub backoff_min: Duration,
    /// The last one.
    pub backoff_max: Duration,
    /// Changes of a slice within this are one reading.
    pub coalesce: Duration,
    /// By how much later a slice is read for each further one.
    pub read_spacing: Duration,
    /// The most that this makes, before it is spread by ± 50 %.
    pub read_pause: Duration,
    /// How long the connection for reading stays open unused.
    pub read_idle: Duration,
    /// By how much later agents come back after a failure, for each further slice.
    pub return_spacing: Duration,
    /// Between an empty list and the next look, at least.
    pub second_look: Duration,
    /// By how much later it may be.
    pub second_look_spread: Duration,
    /// Between two confirmations of the list by events, at least: in a rollout events come by the dozen.
    pub confirm: Duration,
    /// How long a question about an address may wait for a watch to begin.
    pub doubt: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: limits::API_CONNECT_TIME,
            request: limits::API_REQUEST_TIME,
            watch: limits::WATCH_TIME,
            watch_grace: limits::WATCH_GRACE,
            watch_silence: limits::WATCH_SILENCE,
            backoff_min: limits::API_BACKOFF_MIN,
            backoff_max: limits::API_BACKOFF_MAX,
            coalesce: limits::EVENTS_COALESCE,
            read_spacing: limits::READ_SPACING,
            read_pause: limits::READ_PAUSE_MIDDLE_MAX,
            read_idle: limits::READ_LINK_IDLE,
            return_spacing: limits::RETURN_SPACING,
            second_look: limits::SECOND_LOOK,
            second_look_spread: limits::RETURN_PAUSE_MAX,
            confirm: limits::LIST_CONFIRM_TIME,
            doubt: limits::DOUBT_TIME,
        }
    }
}

/// Which Service, and how to reach the API server.
#[derive(Clone, Debug)]
pub struct KubernetesConfig {
    /// The API server.
    pub server: Server,
    /// Directory of the service account's files.
    pub account: PathBuf,
    /// Namespace of the Service.
    pub namespace: String,
    /// The headless Service.
    pub service: String,
    /// [`Timing::default`], except in tests.
    pub timing: Timing,
}

impl KubernetesConfig {
    /// The configuration of a pod: `variable` reads the environment, `account` is where the service account is mounted
    /// ([`DIRECTORY`]), and its namespace stands in for one that is not given.
    ///
    /// # Errors
    /// [`ConfigError`]
    pub fn in_cluster(
        variable: impl Fn(&str) -> Option<String>,
        account: PathBuf,
        namespace: Option<String>,
        service: String,
    ) -> Result<Self, ConfigError> {
        let host = variable("KUBERNETES_SERVICE_HOST").unwrap_or_default();
        let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let server = match port.parse() {
            Ok(port) if !bare.is_empty() => Server { host: bare, port },
            _ => return Err(ConfigError::NotInCluster { host, port }),
        };
        let files = Account::new(account.clone());
        let unusable = |e: Failure| ConfigError::Account(e.to_string());
        let namespace = match namespace {
            Some(namespace) => namespace,
            None => files.namespace().map_err(unusable)?,
        };
        for (flag, value) in [("--namespace", &namespace), ("--service", &service)] {
            if !is_label(value) {
                return Err(ConfigError::Name { flag, value: value.clone() });
            }
        }
        files.token().map_err(unusable)?;
        files.authorities().map_err(unusable)?;
        Ok(Self { server, account, namespace, service, timing: Timing::default() })
    }
}

/// RFC 1123 label: what Services and namespaces are named. It needs no escaping in a URL.
fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::super::DIRECTORY;
    use super::*;

    #[test]
    fn outside_a_cluster_the_error_names_the_variables() {
        for (host, port) in [(None, None), (Some("10.0.0.1"), Some("x")), (Some(""), Some("443"))] {
            let read = |name: &str| if name.ends_with("HOST") { host } else { port }.map(str::to_owned);
            let error = KubernetesConfig::in_cluster(read, DIRECTORY.into(), None, "s".into()).unwrap_err();
            assert!(error.to_string().contains("KUBERNETES_SERVICE_HOST"), "{error}");
        }
    }

    #[test]
    fn labels_are_checked() {
        assert!(is_label("kube-canary") && is_label("a") && is_label("0"));
        assert!(!is_label("") && !is_label("-a") && !is_label("a-") && !is_label("A") && !is_label("a/b"));
        assert!(!is_label(&"x".repeat(64)));
    }
}
