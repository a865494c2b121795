//! The settings of Kubernetes discovery, checked before it starts, and its timings.

use std::path::PathBuf;
use std::time::Duration;

use super::account::Account;
use super::connect::ApiServer;
use super::failure::ApiFailure;
use crate::limits::DOUBT_TIME;

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
    /// Timeout of the head of any answer, of a whole slice, and of each pause within a list. API
    /// Priority and Fairness may queue a request for a minute.
    pub request: Duration,
    /// Requested duration of a watch, ± 20 % in whole seconds, so that agents do not reconnect
    /// together. client-go takes 5 to 10 min.
    pub watch: Duration,
    /// How long a watch may exceed its requested duration before its connection counts as dead.
    pub watch_grace: Duration,
    /// A watch that delivers nothing for this long is ended, and the state is compared with a new
    /// list. A bookmark comes about once a minute if anything changes in the cluster. After etcd is
    /// restored to an older version, a watch from a newer version delivers nothing for ever.
    pub watch_silence: Duration,
    /// Ceiling of the back-off after the first failure. The wait is a random part of it.
    pub backoff_min: Duration,
    /// Largest ceiling of the back-off.
    pub backoff_max: Duration,
    /// A slice is read at the earliest this long after it changes. Changes within that time need
    /// one reading. A rollout touches a slice several times a second.
    pub coalesce: Duration,
    /// Pause before a changed slice is read, ± 50 %, for each further slice of the Service.
    /// Together with `read_pause`, 5,000 agents read 6,200 slices per second during their own
    /// rollout, including doubted slices (docs/adr/0023).
    pub read_spacing: Duration,
    /// Upper bound of the middle of the pause by `read_spacing`, so that the longest pause is a
    /// minute. A list without doubts may be behind by that much.
    pub read_pause: Duration,
    /// How long the connection for reading stays open unused. A rollout needs it every second, a
    /// quiet cluster never. It costs 35 to 50 KB.
    pub read_idle: Duration,
    /// After a failure, an agent waits for its back-off and a random part of this for each further
    /// slice. 5,000 agents that an API server has turned away return over 10 s, not over one.
    pub return_spacing: Duration,
    /// Upper bound of the wait by `return_spacing`. The second look at an empty list is
    /// spread over as much.
    pub return_pause: Duration,
    /// Minimum time between the first look at an empty list and the second, which confirms it.
    pub second_look: Duration,
    /// Minimum time between two confirmations of the list by events. In a rollout, events
    /// come by the dozen.
    pub confirm: Duration,
    /// How long questions wait for a watch that is being opened: as long as a loss is withheld.
    pub doubt: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            request: Duration::from_secs(75),
            watch: Duration::from_mins(5),
            watch_grace: Duration::from_secs(30),
            watch_silence: Duration::from_mins(3),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_mins(1),
            coalesce: Duration::from_millis(100),
            read_spacing: Duration::from_millis(800),
            read_pause: Duration::from_secs(40),
            read_idle: Duration::from_secs(5),
            return_spacing: Duration::from_millis(200),
            return_pause: Duration::from_secs(10),
            second_look: Duration::from_secs(5),
            confirm: Duration::from_secs(1),
            doubt: DOUBT_TIME,
        }
    }
}

/// The Service, and how to reach the API server.
#[derive(Clone, Debug)]
pub struct KubernetesConfig {
    /// The address of the API server.
    pub server: ApiServer,
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
            Ok(port) if !bare.is_empty() => ApiServer { host: bare, port },
            _ => return Err(ConfigError::NotInCluster { host, port }),
        };
        let files = Account::new(account.clone());
        let unusable = |e: ApiFailure| ConfigError::Account(e.to_string());
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
