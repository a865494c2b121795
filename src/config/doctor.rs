//! The settings of `kube-canary doctor`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::agents::Agents;
use super::fleet;
use super::run::domains_file;
use super::typed::Typed;
use super::{Env, UsageError, colours};
use crate::sys::terminal::Colours;

/// The first line that `doctor --help` shows.
pub const ABOUT: &str = "Which node, link, zone or domain is bad, as the agents see it.";
/// The text that `doctor --help` shows below the flags.
pub const AFTER: &str = "
The agents of --url, or of the headless Service, are asked one after the other for what the judges of the mesh agree on, until
one answers: any agent answers for all. If none knows of judges, reports are collected and judged here, as with --collect.
In a pod, the agent beside the command is asked first, so that it works without DNS. Its list says which others there are.
With --collect, each --url is asked for its own report, and for those of the nodes that reports name (/api/v1/mesh/NODES), up
to 300: one agent is enough, and several see past each other's blind spots. Without --url, every agent of the Service is asked.
With --rows, nothing is asked: the file has the reports, of up to 50000 nodes. With --watch, it is read again each time.
Judged are the last 30 to 60 seconds. With --history, the judges say what they have found in the last 24 hours.

Exit codes: 0 all well; 1 a fault, named or not; 2 a bad flag; 3 no fault was found, but a node was not judged, an agent or a
report could not be asked or read, nothing was measured, or a failure. With --watch: that of the last look.
";
/// Verdicts cover the last 30 to 60 seconds, judges judge every 15 s, and a mesh is costly to
/// collect.
const INTERVAL: Duration = Duration::from_secs(10);

/// The settings that `doctor` runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorSettings {
    /// What `doctor` prints.
    pub shows: Shows,
    /// The operator's failure domains.
    pub domains_file: Option<PathBuf>,
    /// Print one JSON object instead of sentences.
    pub json: bool,
    /// Repeat after this interval.
    pub watch: Option<Duration>,
    /// Stop to repeat also when standard input ends.
    pub until_eof: bool,
    /// When colours are used.
    pub colours: Colours,
}

/// Says what `doctor` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shows {
    /// What is wrong now.
    Now(Verdicts),
    /// What the judges have found in the last 24 hours, as one of these agents tells it.
    Past(Agents),
}

/// Where the verdicts come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdicts {
    /// The judges agree on them, as one of these agents tells it. If none knows of judges, they are
    /// judged here.
    Agreed(Agents),
    /// The reports of these agents are judged here.
    Collected(Agents),
    /// The reports in this file are judged here.
    Read(RowsFile),
}

/// A file with reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowsFile {
    /// The standard input of the process.
    StandardInput,
    /// A file with this path.
    Path(PathBuf),
}

impl fmt::Display for RowsFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StandardInput => out.write_str("-"),
            Self::Path(path) => path.display().fmt(out),
        }
    }
}

impl DoctorSettings {
    pub(super) fn resolve(typed: &Typed, env: Env<'_>) -> Result<Self, UsageError> {
        let watch = fleet::watch(typed, INTERVAL)?;
        if typed.switch("history")
            && let Some(flag) =
                typed.first_typed(&["rows", "collect", "watch", "interval", "until-eof", "domains-file"])
        {
            return Err(UsageError(format!("--history prints what the judges keep, and --{flag} is given")));
        }
        let shows = match RowsFile::resolve(typed)? {
            Some(RowsFile::StandardInput) if watch.is_some() => {
                return Err(UsageError("--rows -: expected a file, because --watch reads it again each time".into()));
            }
            Some(file) => Shows::Now(Verdicts::Read(file)),
            None if typed.switch("history") => Shows::Past(Agents::resolve(typed, env)?),
            // Judges have the domains of their own file.
            None if typed.switch("collect") || typed.first_typed(&["domains-file"]).is_some() => {
                Shows::Now(Verdicts::Collected(Agents::resolve(typed, env)?))
            }
            None => Shows::Now(Verdicts::Agreed(Agents::resolve(typed, env)?)),
        };
        Ok(Self {
            shows,
            domains_file: domains_file(typed)?,
            json: typed.switch("json"),
            watch,
            until_eof: typed.switch("until-eof"),
            colours: colours(typed),
        })
    }
}

impl RowsFile {
    fn resolve(typed: &Typed) -> Result<Option<Self>, UsageError> {
        let Some(text) = typed.text("rows") else { return Ok(None) };
        if typed.texts("rows").count() > 1 {
            return Err(UsageError::expected("--rows", text, "one file"));
        }
        if text.is_empty() {
            return Err(UsageError::expected("--rows", text, "a file, or - for standard input"));
        }
        if typed.switch("collect") {
            return Err(UsageError("--rows asks no agent, and --collect is given".into()));
        }
        match typed.first_typed(&["url", "service", "namespace", "port"]) {
            Some(flag) => Err(UsageError(format!("--{flag} says which agents are asked, and --rows asks none"))),
            None if text == "-" => Ok(Some(Self::StandardInput)),
            None => Ok(Some(Self::Path(text.into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, FleetSettings, parse};
    use super::*;

    fn settings(line: &str) -> Result<DoctorSettings, UsageError> {
        let env = |name: &str| (name == "POD_NAMESPACE").then(|| "agents".to_owned());
        match parse(&line.split_whitespace().map(Into::into).collect::<Vec<_>>(), &env)? {
            Command::Doctor(settings) => Ok(settings),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_agents_to_ask_are_those_of_the_flags() {
        let urls = settings("doctor --url http://a --json").unwrap();
        assert!(
            matches!(&urls.shows, Shows::Now(Verdicts::Agreed(Agents::Urls(urls))) if urls.len() == 1) && urls.json
        );
        let service = settings("doctor --namespace n").unwrap();
        let name = "kube-canary.n.svc".to_owned();
        let shows = Shows::Now(Verdicts::Agreed(Agents::Service { name, port: 9_877, own: None }));
        let colours = Colours::Auto;
        let expected =
            DoctorSettings { shows, domains_file: None, json: false, watch: None, until_eof: false, colours };
        assert_eq!(service, expected);
        assert!(settings("doctor --url https://a").unwrap_err().0.contains("http://"));
    }

    #[test]
    fn in_a_pod_the_agent_beside_is_asked_first_unless_flags_choose() {
        let own = |line: &str, in_pod: bool| {
            let env = |name: &str| match name {
                "KUBERNETES_SERVICE_HOST" if in_pod => Some("10.96.0.1".to_owned()),
                // As the manifest sets them in each pod.
                "POD_NAMESPACE" | "KUBE_CANARY_SERVICE" => Some("canary".to_owned()),
                _ => None,
            };
            match parse(&line.split_whitespace().map(Into::into).collect::<Vec<_>>(), &env).unwrap() {
                Command::Doctor(DoctorSettings {
                    shows: Shows::Now(Verdicts::Agreed(Agents::Service { own, .. })),
                    ..
                })
                | Command::Fleet(FleetSettings { agents: Agents::Service { own, .. }, .. }) => own.is_some(),
                _ => false,
            }
        };
        assert!(own("doctor", true) && own("fleet --json", true));
        for (line, in_pod) in [
            ("doctor", false),
            ("doctor --service s", true),
            ("fleet -n other", true),
            ("doctor --port 80", true),
            ("fleet --url http://a", true),
        ] {
            assert!(!own(line, in_pod), "{line}");
        }
    }

    #[test]
    fn reports_are_read_from_a_file_and_watched() {
        let read = |line: &str| settings(line).unwrap();
        assert_eq!(read("doctor --rows -").shows, Shows::Now(Verdicts::Read(RowsFile::StandardInput)));
        let watched = read("doctor --rows ./a/b --watch");
        assert_eq!(watched.shows, Shows::Now(Verdicts::Read(RowsFile::Path("./a/b".into()))));
        assert_eq!(watched.watch, Some(INTERVAL));
        assert_eq!(read("doctor --watch --interval 2s").watch, Some(Duration::from_secs(2)));
    }

    #[test]
    fn the_judges_are_not_asked_if_the_flags_say_what_to_judge() {
        let file = std::env::temp_dir().join(format!("kube-canary-doctor-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let domains = format!("--domains-file {} --watch", file.display());
        for (flags, is_collected) in [("", false), ("--collect", true), (domains.as_str(), true)] {
            let Shows::Now(verdicts) = settings(&format!("doctor --url http://a {flags}")).unwrap().shows else {
                panic!("{flags}");
            };
            assert_eq!(matches!(verdicts, Verdicts::Collected(_)), is_collected, "{flags}");
        }
        std::fs::remove_file(file).unwrap();
        assert!(matches!(settings("doctor --history").unwrap().shows, Shows::Past(_)));
    }

    #[test]
    fn flags_that_exclude_each_other_are_refused_in_one_line() {
        for (line, parts) in [
            ("--rows a --url http://a", ["--url", "--rows"]),
            ("--rows a --service s", ["--service", "--rows"]),
            ("--rows a --namespace n", ["--namespace", "--rows"]),
            ("--rows a --port 80", ["--port", "--rows"]),
            ("--rows a --collect", ["--collect", "--rows"]),
            ("--history --collect", ["--collect", "--history"]),
            ("--rows a --rows b", ["--rows", "one file"]),
            ("--rows", ["--rows", "expected a value"]),
            ("--rows=", ["--rows \"\"", "standard input"]),
            ("--rows - --watch", ["--rows -", "--watch"]),
            ("--interval 2s", ["--interval", "--watch"]),
            ("--rows a --domains-file /nonexistent/domains", ["--domains-file", "/nonexistent/domains"]),
            ("--watch --interval 1ms", ["--interval", "1s"]),
        ] {
            let error = settings(&format!("doctor {line}")).unwrap_err().0;
            assert!(parts.iter().all(|part| error.contains(part)) && error.lines().count() == 1, "{line}: {error}");
        }
    }
}
