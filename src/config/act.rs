//! The settings of `kube-canary act`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;

use super::agents::Agents;
use super::run::{LISTEN_DEFAULT, duration_between, hostname, name, number_between, socket_address};
use super::typed::Typed;
use super::{Env, UsageError};
use crate::discovery::{KubernetesConfig, SERVICE_ACCOUNT_DIRECTORY};
use crate::logging::LogFormat;

/// The first line that `act --help` shows.
pub const ABOUT: &str = "Makes Events, messages and node conditions of what the judges of the mesh agree on.";
/// The text that `act --help` shows below the flags.
pub const AFTER: &str = "
It runs in a pod of its own, as deploy/components/act and the Helm value act.enabled start it. A Lease keeps two apart.
It asks three agents in each round, and acts on what two of them say and the judges call certain.
A flag that names a FILE takes a secret from it, which is read again for each message. docs/act.md describes all of it.
";
/// Time between two rounds. An agent asks the judges once in this time.
const ROUND: Duration = Duration::from_secs(5);
/// Longest time of `--hold`, `--clear` and `--unknown-after`.
const TIME_MAX: Duration = Duration::from_hours(24);
/// Largest number of `--alert-label`.
const LABELS_MAX: usize = 8;
/// Where PagerDuty takes events.
const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";
/// Where most distributions have the authorities of public servers.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const URL: &str = "http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH, without a user";

/// The settings that `act` runs with.
#[derive(Clone, Debug)]
pub struct ActSettings {
    /// The agents that are asked, a few at a time.
    pub agents: Agents,
    /// The API server, and the namespace of the agents. Their Service has the name of their
    /// DaemonSet.
    pub kubernetes: KubernetesConfig,
    /// The name by which this process holds the Lease.
    pub holder: String,
    /// Time between two rounds. Tests set their own.
    pub round: Duration,
    /// Where metrics are served.
    pub listen: SocketAddr,
    /// How conditions of nodes are set. `None` sets none.
    pub conditions: Option<NodeConditions>,
    /// Take back every condition, and end.
    pub remove: bool,
    /// The receivers of messages.
    pub receivers: Vec<Receiver>,
    /// The authorities of HTTPS receivers.
    pub authorities: PathBuf,
    /// The most detailed level that is logged.
    pub log_level: log::LevelFilter,
    /// The form of a line of the log.
    pub log_format: LogFormat,
}

/// How conditions of nodes are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConditions {
    /// Only say what would be done.
    pub dry_run: bool,
    /// How long a verdict must hold.
    pub hold: Duration,
    /// How long no verdict must hold until the condition is taken back.
    pub clear: Duration,
    /// Nodes whose condition is not False at once.
    pub max_nodes: MaxNodes,
    /// Silence of judges after which a condition becomes Unknown. `None` keeps it.
    pub unknown_after: Option<Duration>,
}

/// A number of nodes, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxNodes {
    /// This many, whatever the mesh.
    Count(u16),
    /// This many of a hundred, rounded down.
    Percent(u8),
}

impl MaxNodes {
    /// Returns the number for a mesh of that many nodes.
    pub fn count_for(self, nodes: usize) -> usize {
        match self {
            Self::Count(count) => usize::from(count),
            Self::Percent(percent) => nodes.saturating_mul(percent.into()) / 100,
        }
        .max(1)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let accepted = || "a number from 1 to 5000, or a share such as 10%".to_owned();
        match text.strip_suffix('%') {
            Some(percent) => number_between(1, 100)(percent).map(Self::Percent),
            None => number_between(1, 5_000)(text).map(Self::Count),
        }
        .map_err(|_| accepted())
    }
}

/// Something that receives messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// A server that takes our own JSON.
    Webhook {
        /// The file with its URL.
        url: PathBuf,
        /// The file with the key of the signature, if there is one.
        key: Option<PathBuf>,
    },
    /// A server of Slack's incoming webhooks, or one like it.
    Slack {
        /// The file with its URL, which is a secret.
        url: PathBuf,
    },
    /// PagerDuty's Events API v2.
    PagerDuty {
        /// The file with the routing key.
        key: PathBuf,
        /// Where it takes events.
        url: HttpUrl,
    },
    /// Alertmanager's API v2.
    Alertmanager {
        /// Its address, without the path of the API.
        url: HttpUrl,
        /// Labels that Prometheus adds to its alerts.
        labels: Vec<(String, String)>,
    },
}

impl Receiver {
    /// Returns the name of its kind, for the log and metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
            Self::Slack { .. } => "slack",
            Self::PagerDuty { .. } => "pagerduty",
            Self::Alertmanager { .. } => "alertmanager",
        }
    }
}

/// The URL of a receiver. Its text may be a secret, so that it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    /// Whether it is HTTPS.
    pub is_secure: bool,
    /// The host, a name or an address without brackets.
    pub host: String,
    /// The TCP port of the server.
    pub port: u16,
    /// The path and the query, from the slash on.
    pub path: String,
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HttpUrl({}:{})", self.host, self.port)
    }
}

impl HttpUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is accepted. The text is not in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let accepted = || URL.to_owned();
        let uri: Uri = text.trim().parse().map_err(|_| accepted())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(accepted)?;
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(accepted()),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() == authority.host() => usual_port(is_secure),
            None => return Err(accepted()),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        if host.is_empty() || port == 0 { Err(accepted()) } else { Ok(Self { is_secure, host, port, path }) }
    }

    /// Returns the value of `Host`: without the port if it is the usual one.
    pub fn host_header(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == usual_port(self.is_secure) { host } else { format!("{host}:{}", self.port) }
    }
}

const fn usual_port(is_secure: bool) -> u16 {
    if is_secure { 443 } else { 80 }
}

impl ActSettings {
    pub(super) fn resolve(typed: &Typed, env: Env<'_>) -> Result<Self, UsageError> {
        if typed.switch("remove") && typed.switch("dry-run") {
            return Err(UsageError("--remove: takes conditions back, and beside --dry-run nothing is changed".into()));
        }
        let service = typed.value("service", name)?.unwrap_or_else(|| "kube-canary".into());
        let namespace = typed.value("namespace", name)?;
        let listen = typed.value("listen", socket_address)?;
        let listen = listen.map_or_else(|| socket_address(LISTEN_DEFAULT), Ok).map_err(UsageError)?;
        // The agent of a pod is none of ours: this pod has none.
        let agents = match Agents::resolve_beside(typed, env, &["port"])? {
            Agents::Service { name, port, .. } => Agents::Service { name, port, own: None },
            urls @ Agents::Urls(_) => urls,
        };
        let kubernetes = KubernetesConfig::in_cluster(env, SERVICE_ACCOUNT_DIRECTORY.into(), namespace, service);
        let kubernetes = kubernetes.map_err(|error| {
            UsageError(format!(
                "act needs a pod with a service account: {}",
                error.to_string().replacen("--discovery kubernetes: ", "", 1)
            ))
        })?;
        let holder = typed.value("pod-name", name)?.map_or_else(|| hostname("pod-name"), Ok)?;
        Ok(Self {
            agents,
            kubernetes,
            holder,
            round: ROUND,
            listen,
            conditions: NodeConditions::resolve(typed)?,
            remove: typed.switch("remove"),
            receivers: receivers(typed)?,
            authorities: typed.text("ca-file").unwrap_or(AUTHORITIES).into(),
            log_level: typed.text("log-level").and_then(|level| level.parse().ok()).unwrap_or(log::LevelFilter::Info),
            log_format: typed.choice("log-format", &[("json", LogFormat::Json)]).unwrap_or_default(),
        })
    }
}

impl NodeConditions {
    fn resolve(typed: &Typed) -> Result<Option<Self>, UsageError> {
        let time = |flag| typed.value(flag, duration_between(Duration::ZERO, TIME_MAX));
        let rules = Self {
            dry_run: typed.switch("dry-run"),
            hold: time("hold")?.unwrap_or(Duration::from_mins(1)),
            clear: time("clear")?.unwrap_or(Duration::from_mins(2)),
            max_nodes: typed.value("max-nodes", MaxNodes::parse)?.unwrap_or(MaxNodes::Percent(10)),
            unknown_after: time("unknown-after")?,
        };
        let is_wanted = rules.dry_run || typed.switch("conditions") || typed.switch("remove");
        match typed.first_typed(&["hold", "clear", "max-nodes", "unknown-after"]) {
            Some(flag) if !is_wanted => {
                Err(UsageError(format!("--{flag}: expected --conditions or --dry-run beside it")))
            }
            _ => Ok(is_wanted.then_some(rules)),
        }
    }
}

fn receivers(typed: &Typed) -> Result<Vec<Receiver>, UsageError> {
    let file = |flag| typed.text(flag).map(PathBuf::from);
    typed.expect_beside("pagerduty-key-file", &["pagerduty-url"])?;
    typed.expect_beside("alertmanager-url", &["alert-label"])?;
    // What is refused may hold a password.
    let read = |(name, text): (&str, &str)| {
        HttpUrl::parse(text).map_err(|accepted| UsageError(format!("{name}: expected {accepted}")))
    };
    let url = |flag| typed.texts(flag).last().map(read).transpose();
    let mut receivers = Vec::new();
    let key = file("webhook-key-file");
    match file("webhook-url-file") {
        Some(url) => receivers.push(Receiver::Webhook { url, key }),
        None if key.is_some() => {
            return Err(UsageError("--webhook-key-file: expected --webhook-url-file beside it".into()));
        }
        None => {}
    }
    receivers.extend(file("slack-url-file").map(|url| Receiver::Slack { url }));
    let pagerduty = url("pagerduty-url")?.map_or_else(|| HttpUrl::parse(PAGERDUTY), Ok).map_err(UsageError)?;
    receivers.extend(file("pagerduty-key-file").map(|key| Receiver::PagerDuty { key, url: pagerduty }));
    let labels = labels(typed)?;
    receivers.extend(url("alertmanager-url")?.map(|url| Receiver::Alertmanager { url, labels }));
    Ok(receivers)
}

fn labels(typed: &Typed) -> Result<Vec<(String, String)>, UsageError> {
    let mut labels: Vec<(String, String)> = Vec::new();
    for (flag, text) in typed.texts("alert-label") {
        for text in text.split(',').map(str::trim) {
            let is_name = |name: &str| {
                let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
                name.bytes().next().is_some_and(is_letter) && name.bytes().all(|b| is_letter(b) || b.is_ascii_digit())
            };
            let label = text.split_once('=').filter(|(name, value)| is_name(name) && !value.is_empty());
            let label = label.ok_or_else(|| UsageError::expected(flag, text, "NAME=VALUE, such as cluster=berlin"))?;
            labels.push((label.0.to_owned(), label.1.to_owned()));
        }
    }
    let given = labels.len();
    if given > LABELS_MAX {
        return Err(UsageError(format!("--alert-label: {given} are given: expected at most {LABELS_MAX}")));
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::typed::Line;
    use super::*;

    #[test]
    fn a_share_of_nodes_is_rounded_down_to_at_least_one() {
        let parsed = |text| MaxNodes::parse(text).map(|max| [3, 10, 99, 5_000].map(|nodes| max.count_for(nodes)));
        assert_eq!(parsed("10%").unwrap(), [1, 1, 9, 500]);
        assert_eq!(parsed("7").unwrap(), [7; 4]);
        for bad in ["0", "0%", "101%", "-1", "x", ""] {
            assert!(parsed(bad).unwrap_err().contains("10%"), "{bad}");
        }
    }

    #[test]
    fn urls_have_a_scheme_and_a_host_and_are_never_shown() {
        let url = HttpUrl::parse("https://hooks.example/services/secret?a=b\n").unwrap();
        assert_eq!((url.is_secure, url.port, url.path.as_str()), (true, 443, "/services/secret?a=b"));
        assert!(!format!("{url:?}").contains("secret"));
        assert_eq!(url.host_header(), "hooks.example", "as most clients write the usual port");
        assert_eq!(HttpUrl::parse("http://[fd00::1]:9093").unwrap().host_header(), "[fd00::1]:9093");
        for bad in
            ["ftp://a/", "https://u:secret@a/", "a.example", "https://", "secret", "http://a:90933", "https://a:9x/"]
        {
            assert!(!HttpUrl::parse(bad).unwrap_err().contains("secret"), "{bad}");
        }
    }

    #[test]
    fn an_error_names_the_flag_and_not_the_url() {
        let refused = |given: &[&str], environment: &[(&str, &str)]| {
            let env = |name: &str| environment.iter().find(|(of, _)| *of == name).map(|(_, text)| (*text).to_owned());
            let given: Vec<OsString> = given.iter().map(Into::into).collect();
            let Ok(Line::Command(typed)) = Typed::read(&given, super::super::command("act"), &env) else {
                panic!("{given:?}")
            };
            receivers(&typed).unwrap_err().to_string()
        };
        let url = "https://user:secret@a/";
        for said in [
            refused(&["--alertmanager-url", url], &[]),
            refused(&[], &[("KUBE_CANARY_ALERTMANAGER_URL", url)]),
            refused(&["--pagerduty-key-file", "f", "--pagerduty-url", url], &[]),
        ] {
            assert!(said.contains("URL") || said.contains("-url"), "{said}");
            assert!(said.contains(": expected http") && !said.contains("secret"), "{said}");
        }
        for (flag, beside) in [("--alert-label", "--alertmanager-url"), ("--pagerduty-url", "--pagerduty-key-file")] {
            let said = refused(&[flag, "a=b"], &[]);
            assert_eq!(said, format!("{flag}: expected {beside} beside it"));
        }
    }

    #[test]
    fn nothing_is_removed_by_a_dry_run() {
        let given = ["act", "--remove", "--dry-run"].map(Into::into);
        let refused = crate::config::parse(&given, &|_| None).unwrap_err().to_string();
        assert!(refused.starts_with("--remove: "), "{refused}");
    }

    #[test]
    fn the_service_of_the_daemon_set_may_be_named_beside_the_urls_of_agents() {
        let refused = |flag: &str| {
            let given = ["act", "--url", "http://a", flag, "8080"].map(Into::into);
            crate::config::parse(&given, &|_| None).unwrap_err().to_string()
        };
        assert!(refused("--service").contains("needs a pod"), "{}", refused("--service"));
        assert!(refused("--port").contains("--url is given"), "{}", refused("--port"));
    }
}
