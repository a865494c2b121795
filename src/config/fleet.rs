//! The settings of `kube-canary fleet`.

use std::time::Duration;

use super::agents::Agents;
use super::run::duration_between;
use super::typed::Typed;
use super::{Env, UsageError, colours};
use crate::limits::{INTERVAL_MAX, WATCH_INTERVAL_MIN};
use crate::sys::terminal::Colours;

/// The first line that `fleet --help` shows.
pub const ABOUT: &str = "What every agent costs and measures: a row per node.";
/// The text that `fleet --help` shows below the flags.
pub const AFTER: &str = "
Without --url: every address of the headless Service, as the servers of /etc/resolv.conf know it. In a pod: the agent beside
the command and those of its list, which needs no DNS; the Service's as well if the list is a part of the mesh. An agent
that does not answer is listed below the table, with its error.

RSS KB is the agent's own resident memory. Of the last 30 to 60 seconds are LOSS, that of all its probes, LAG P99, how late
it sends itself, and WORST PEER, the one with the highest loss, then the longest p99. PEERS are its links and the other
members of the mesh, WATCHERS the agents that probe it, and those missing. Allocator and version have a column if they
differ. The table fits into 100 columns or the terminal, if that is wider: … replaces the middle of longer names.

With --output wide nothing is cut, and these are shown, too: DIRTY KB (private dirty memory: what it has written to), CORES
of the machine, THREADS, NARENAS of jemalloc, LINKAGE, CPU/PROBE (CPU time per probe since its start), and LIST AGE.

Exit codes: 0; 1 no agent answers, or a failure; 2 a bad flag.
";
const INTERVAL: Duration = Duration::from_secs(5);

/// The settings that `fleet` runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// The agents to ask.
    pub agents: Agents,
    /// What the rows are sorted by.
    pub sort: Column,
    /// Compare builds instead of nodes.
    pub by_allocator: bool,
    /// The form of the output.
    pub form: Form,
    /// Repeat after this interval.
    pub watch: Option<Duration>,
    /// Stop to repeat also when standard input ends.
    pub until_eof: bool,
    /// When colours are used.
    pub colours: Colours,
}

/// Which form the output has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table of a terminal's width.
    Narrow,
    /// A table with all columns.
    Wide,
    /// One JSON array on one line.
    Json,
}

impl Form {
    fn resolve(typed: &Typed) -> Result<Self, UsageError> {
        match (typed.text("output"), typed.switch("json")) {
            (Some("wide"), true) => Err(UsageError("--json prints no table, and --output wide is given".into())),
            (Some("json"), _) | (_, true) => Ok(Self::Json),
            (Some(_), false) => Ok(Self::Wide),
            (None, false) => Ok(Self::Narrow),
        }
    }
}

/// The columns that rows can be sorted by. Texts sort from A to Z, numbers from the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The node's name.
    Node,
    /// Resident memory in bytes.
    Rss,
    /// Private dirty memory in bytes.
    Dirty,
    /// Number of the machine's CPUs.
    Cores,
    /// Number of threads of the agent.
    Threads,
    /// Allocator, then number of arenas.
    Allocator,
    /// Version of the agent.
    Version,
    /// CPU time per probe.
    Cpu,
    /// Loss of all probes together.
    Loss,
    /// Loss to the worst peer, then its 99th percentile of round-trip times.
    Worst,
    /// Lag of sent probes behind their schedule.
    Lag,
}

impl Column {
    /// All columns, with their names on the command line.
    pub const ALL: [(&'static str, Self); 11] = [
        ("node", Self::Node),
        ("rss", Self::Rss),
        ("dirty", Self::Dirty),
        ("cores", Self::Cores),
        ("threads", Self::Threads),
        ("allocator", Self::Allocator),
        ("version", Self::Version),
        ("cpu", Self::Cpu),
        ("loss", Self::Loss),
        ("worst", Self::Worst),
        ("lag", Self::Lag),
    ];
}

impl FleetSettings {
    pub(super) fn resolve(typed: &Typed, env: Env<'_>) -> Result<Self, UsageError> {
        let by_allocator = typed.switch("group-by");
        if by_allocator && typed.switch("sort") {
            return Err(UsageError("--sort is of rows per node, and --group-by is given".into()));
        }
        Ok(Self {
            agents: Agents::resolve(typed, env)?,
            sort: typed.choice("sort", &Column::ALL).unwrap_or(Column::Rss),
            by_allocator,
            form: Form::resolve(typed)?,
            watch: watch(typed, INTERVAL)?,
            until_eof: typed.switch("until-eof"),
            colours: colours(typed),
        })
    }
}

/// Resolves `--watch` and `--interval`. Returns none without `--watch`.
pub(super) fn watch(typed: &Typed, default: Duration) -> Result<Option<Duration>, UsageError> {
    let interval = typed.value("interval", duration_between(WATCH_INTERVAL_MIN, INTERVAL_MAX))?;
    typed.expect_beside("watch", &["interval", "until-eof"])?;
    Ok(typed.switch("watch").then_some(interval.unwrap_or(default)))
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parse};
    use super::*;

    fn settings(line: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<FleetSettings, UsageError> {
        match parse(&line.split_whitespace().map(Into::into).collect::<Vec<_>>(), env)? {
            Command::Fleet(settings) => Ok(settings),
            other => panic!("{other:?}"),
        }
    }

    fn service(name: &str, port: u16) -> Agents {
        Agents::Service { name: name.into(), port, own: None }
    }

    #[test]
    fn the_default_is_the_service_of_the_pod_s_own_namespace() {
        let plain = settings("fleet", &|_| None).unwrap();
        assert_eq!(plain.agents, service("kube-canary", 9_877));
        assert_eq!((plain.sort, plain.by_allocator, plain.form, plain.watch), (Column::Rss, false, Form::Narrow, None));
        let pod = |name: &str| (name == "POD_NAMESPACE").then(|| "agents".to_owned());
        assert_eq!(settings("fleet", &pod).unwrap().agents, service("kube-canary.agents.svc", 9_877));
        let named = settings("fleet --service c --namespace n --port 80", &pod).unwrap();
        assert_eq!(named.agents, service("c.n.svc", 80));
        let Agents::Urls(urls) = settings("fleet --url http://127.0.0.2 --url http://a:1", &pod).unwrap().agents else {
            panic!("a variable stands behind a flag")
        };
        assert_eq!(urls.iter().map(ToString::to_string).collect::<Vec<_>>(), ["http://127.0.0.2:9877", "http://a:1"]);
        let url = |name: &str| (name == "KUBE_CANARY_URL").then(|| "http://a".to_owned());
        assert_eq!(settings("fleet --service c", &url).unwrap().agents, service("c", 9_877), "so does that of a URL");
        assert!(settings("fleet --service c --url http://b", &url).is_err());
    }

    #[test]
    fn rows_are_watched_sorted_and_grouped() {
        let s = settings("fleet --url http://a --sort cores --watch --interval 2s --json", &|_| None).unwrap();
        assert_eq!((s.sort, s.watch, s.form), (Column::Cores, Some(Duration::from_secs(2)), Form::Json));
        for (line, form) in [("-o wide", Form::Wide), ("--output json", Form::Json), ("-o json --json", Form::Json)] {
            assert_eq!(settings(&format!("fleet {line}"), &|_| None).unwrap().form, form, "{line}");
        }
        let s = settings("fleet --url http://a --watch --group-by allocator", &|_| None).unwrap();
        assert_eq!((s.by_allocator, s.watch), (true, Some(INTERVAL)));
    }

    #[test]
    fn a_bad_value_is_refused_in_one_line_with_what_is_accepted() {
        for (line, parts) in [
            ("--url 10.0.0.256", ["--url", "\"10.0.0.256\"", "HOST:PORT"]),
            ("--url http://a:99999", ["--url", "http://a:99999", "1 to 65535"]),
            ("--url http://a --url http://a:9877", ["--url", "\"http://a:9877\"", "once"]),
            ("--url http://a --service s", ["--service", "--url", ""]),
            ("--url http://a --port 80", ["--port", "--url", ""]),
            ("--service a..b", ["--service", "'a..b'", "not a DNS name"]),
            ("--port 0", ["--port", "\"0\"", "1 to 65535"]),
            ("--sort size", ["--sort", "\"size\"", "rss"]),
            ("--output yaml", ["--output", "\"yaml\"", "wide or json"]),
            ("-o wide --json", ["--json", "--output wide", ""]),
            ("--group-by zone", ["--group-by", "\"zone\"", "allocator"]),
            ("--group-by allocator --sort rss", ["--sort", "--group-by", ""]),
            ("--interval 2s", ["--interval", "--watch", ""]),
            ("--watch --interval 1ms", ["--interval", "\"1ms\"", "1s"]),
            ("http://a", ["http://a", "unexpected", "flags"]),
        ] {
            let error = settings(&format!("fleet {line}"), &|_| None).unwrap_err().0;
            assert!(parts.iter().all(|part| error.contains(part)) && error.lines().count() == 1, "{line}: {error}");
        }
    }
}
