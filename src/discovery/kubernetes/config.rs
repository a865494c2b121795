//! The settings of Kubernetes discovery, checked before it starts, and its timings.

use std::path::PathBuf;
use std::time::Duration;

use super::account::Account;
use super::connect::Server;
use super::failure::Failure;
use crate::limits;

/// Why Kubernetes discovery cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The process does not run in a pod.
    #[error(
        "--discovery kubernetes: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set as inside a pod \
         (got {host:?} and {port:?}); accepted: run in a cluster, or --discovery static or dns"
    )]
    NotInCluster {
        /// The value of KUBERNETES_SERVICE_HOST.
        host: String,
        /// The value of KUBERNETES_SERVICE_PORT.
        port: String,
    },
    /// A file of the service account cannot be used.
    #[error("--discovery kubernetes: {0}; accepted: a pod with its service account token mounted")]
    Account(String),
    /// A name that no Service or namespace can have.
    #[error("{flag} {value:?}: accepted: a DNS label of at most 63 characters (a-z, 0-9, -)")]
    Name {
        /// The flag that gave the name.
        flag: &'static str,
        /// The name as given.
        value: String,
    },
}

/// The timings of discovery. Tests set their own.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Timeout of TCP and TLS set-up.
    pub connect: Duration,
    /// Timeout of the head of an answer, and of a whole slice. Each pause within a list
    /// may be as long.
    pub request: Duration,
    /// Requested duration of a watch, ± 20 %, in whole seconds.
    pub watch: Duration,
    /// How long a watch may exceed its requested duration.
    pub watch_grace: Duration,
    /// How long a watch may deliver nothing at all.
    pub watch_silence: Duration,
    /// First ceiling of the back-off.
    pub backoff_min: Duration,
    /// Largest ceiling of the back-off.
    pub backoff_max: Duration,
    /// Changes of a slice within this time need one reading.
    pub coalesce: Duration,
    /// Additional delay of a slice's reading for each further slice.
    pub read_spacing: Duration,
    /// Upper bound of the delay by `read_spacing`, before it is spread by ± 50 %.
    pub read_pause: Duration,
    /// How long the connection for reading stays open unused.
    pub read_idle: Duration,
    /// Additional wait of an agent after a failure, for each further slice.
    pub return_spacing: Duration,
    /// Minimum time between an empty list and the next look.
    pub second_look: Duration,
    /// Largest random time that is added to `second_look`.
    pub second_look_spread: Duration,
    /// Minimum time between two confirmations of the list by events. In a rollout, events
    /// come by the dozen.
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

/// The Service, and how to reach the API server.
#[derive(Clone, Debug)]
pub struct KubernetesConfig {
    /// The address of the API server.
    pub server: Server,
    /// Directory of the service account's files.
    pub account: PathBuf,
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the headless Service.
    pub service: String,
    /// [`Timing::default`], except in tests.
    pub timing: Timing,
}

impl KubernetesConfig {
    /// Makes the configuration of a pod. `variable` reads the environment. `account` is the mount
    /// point of the service account ([`DIRECTORY`]). Its namespace is used if `namespace` is None.
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

/// Returns whether `text` is an RFC 1123 label, the form of Service and namespace names. It needs
/// no escaping in a URL.
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
