//! The command line, in two stages: as typed ([`typed`]), then resolved and validated ([`run`]).
//!
//! A bad value stops the start with one line. The line names the flag (or the variable), the value,
//! and what would be accepted.

mod agents;
mod demo;
mod doctor;
pub mod flags;
mod fleet;
mod footprint;
mod ping;
mod run;
mod typed;

pub use agents::{AgentUrl, Agents, Host};
pub use demo::DemoSettings;
pub use doctor::{DoctorSettings, Reports, RowsFile};
pub use fleet::{Column, FleetSettings};
pub use footprint::{FootprintSettings, FootprintSubject};
pub use ping::PingSettings;
pub use run::RunSettings;

use std::ffi::OsString;

use typed::Typed;

/// A function that reads an environment variable.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A mistake on the command line or in the environment: one line, exit code 2.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

impl UsageError {
    /// Makes the error "`name` `value`: expected …".
    fn of(name: &str, value: &str, accepted: &str) -> Self {
        Self(format!("{name} {value:?}: expected {accepted}"))
    }
}

/// The command that the program was started with.
#[derive(Debug)]
pub enum Command {
    /// Run the agent: probe peers and serve HTTP.
    Run(Box<RunSettings>),
    /// Probe targets and print the results.
    Ping(PingSettings),
    /// Run a mesh on this machine.
    Demo(DemoSettings),
    /// Ask agents what they cost and measure.
    Fleet(FleetSettings),
    /// Ask agents for faults in the mesh.
    Doctor(DoctorSettings),
    /// Show what the memory of processes is used for.
    Footprint(FootprintSettings),
    /// Print which build this is.
    Version {
        /// Print it as one JSON object.
        json: bool,
    },
    /// Print this and exit with 0.
    Help(String),
}

const ABOUT: &str = "KubeCanary: the nodes of a cluster ping each other and export latency and loss to Prometheus.";
const USAGE: &str = "[run|ping|demo|fleet|doctor|footprint|version] [FLAGS]";
const COMMANDS: &str = "
Commands:
  run        Probes the peers and serves /metrics (also without a command)
  ping       Probes some targets, and prints a line per reply and a summary
  demo       Runs a mesh of real agents on this machine, with a live table
  fleet      Shows what every agent costs and measures, one row per node
  doctor     Names the node, link, zone or domain that is bad
  footprint  Shows what the memory of a process is for, and how much memory programs use
  version    Shows which build this is, and which allocator runs

See `kube-canary COMMAND --help` for the flags of each.
";

const RUN: &str = "Probes the peers and serves /metrics.";
const VERSION: &str = "Shows which build this is, and which allocator runs.";

/// A command: its usage line, its description, its flags, the text below them, and
/// how it is resolved.
type Description = (
    &'static str,
    &'static str,
    &'static [flags::Flag],
    &'static str,
    fn(&Typed, Env<'_>) -> Result<Command, UsageError>,
);

/// Reads a command line (without the program's name) and its environment.
///
/// # Errors
/// [`UsageError`], one line.
// Not inlined, so that this code is not placed within the agent's own code, which stays resident.
#[inline(never)]
pub fn parse(arguments: Vec<OsString>, env: Env<'_>) -> Result<Command, UsageError> {
    let mut arguments = arguments.into_iter().peekable();
    let command = match arguments.peek().and_then(|first| first.to_str()) {
        Some(first) if !first.starts_with('-') => {
            let first = first.to_owned();
            arguments.next();
            Some(first)
        }
        _ => None,
    };
    let rest: Vec<OsString> = arguments.collect();
    if command.is_none() && rest.iter().any(|argument| argument == "--help" || argument == "-h") {
        return Ok(Command::Help(flags::help(USAGE, ABOUT, &[], COMMANDS)));
    }
    let (usage, about, flags, after, resolve): Description = match command.as_deref() {
        None | Some("run") => ("run [FLAGS]", RUN, flags::RUN, "", |typed, env| {
            Ok(Command::Run(Box::new(RunSettings::resolve(typed, env)?)))
        }),
        Some("ping") => (ping::USAGE, ping::ABOUT, flags::PING, ping::AFTER, |typed, _| {
            PingSettings::resolve(typed).map(Command::Ping)
        }),
        Some("demo") => {
            ("demo [FLAGS]", demo::ABOUT, flags::DEMO, "", |typed, _| DemoSettings::resolve(typed).map(Command::Demo))
        }
        Some("fleet") => ("fleet [FLAGS]", fleet::ABOUT, flags::FLEET, fleet::AFTER, |typed, _| {
            FleetSettings::resolve(typed).map(Command::Fleet)
        }),
        Some("doctor") => ("doctor [FLAGS]", doctor::ABOUT, flags::DOCTOR, doctor::AFTER, |typed, _| {
            DoctorSettings::resolve(typed).map(Command::Doctor)
        }),
        Some("footprint") => ("footprint [FLAGS]", footprint::ABOUT, flags::FOOTPRINT, footprint::AFTER, |typed, _| {
            FootprintSettings::resolve(typed).map(Command::Footprint)
        }),
        Some("version") => ("version [--json]", VERSION, flags::VERSION, "", |typed, _| {
            Ok(Command::Version { json: typed.switch("json") })
        }),
        Some(other) => {
            let commands = "run, ping, demo, fleet, doctor, footprint or version";
            return Err(UsageError(format!("unknown command {other:?}: expected {commands}")));
        }
    };
    match Typed::read(rest, flags, env)? {
        None => Ok(Command::Help(flags::help(usage, about, flags, after))),
        Some(typed) if command.as_deref() != Some("ping") && !typed.positional().is_empty() => {
            Err(UsageError(format!("unexpected argument {:?}: expected flags", typed.positional()[0])))
        }
        Some(typed) => resolve(&typed, env),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, UsageError> {
        parse(line.split_whitespace().map(OsString::from).collect(), &|_| None)
    }

    #[test]
    fn help_is_there_for_every_command() {
        for line in [
            "--help",
            "-h",
            "run --help",
            "ping a --help",
            "demo -h",
            "fleet -h",
            "doctor --help",
            "footprint --help",
            "version --help",
        ] {
            match parsed(line) {
                Ok(Command::Help(text)) => assert!(text.contains("Usage: kube-canary"), "{line}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn run_is_the_default_and_unknown_words_are_named() {
        assert!(matches!(parsed("--peer a=127.0.0.2"), Ok(Command::Run(_))));
        for (line, named) in [("fly", "fly"), ("run --wings 2", "--wings"), ("run extra", "extra"), ("version x", "x")]
        {
            let error = parsed(line).unwrap_err().0;
            assert!(error.contains(named) && error.lines().count() == 1, "{line}: {error}");
        }
    }
}
