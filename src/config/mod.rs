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
pub use ping::{PingSettings, PingTarget};
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

/// The command to execute.
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
  run        Probe the peers and serve /metrics (also without a command)
  ping       Probe some targets, a line per reply and a summary
  demo       A mesh of real agents on this machine, with a live table
  fleet      What every agent costs and measures: a row per node
  doctor     Which node, link, zone or domain is bad
  footprint  What the memory of a process is for, and what programs take
  version    Which build this is, and which allocator runs

See `kube-canary COMMAND --help` for the flags of each.
";

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
    match command.as_deref() {
        None if rest.iter().any(|a| a == "--help" || a == "-h") => {
            Ok(Command::Help(flags::help(USAGE, ABOUT, &[], COMMANDS)))
        }
        None | Some("run") => match Typed::read(rest, flags::RUN, env)? {
            None => {
                Ok(Command::Help(flags::help("run [FLAGS]", "Probe the peers and serve /metrics.", flags::RUN, "")))
            }
            Some(typed) => Ok(Command::Run(Box::new(RunSettings::resolve(&typed, env)?))),
        },
        Some("ping") => match Typed::read_with_positional(rest, flags::PING, env)? {
            None => Ok(Command::Help(flags::help(ping::USAGE, ping::ABOUT, flags::PING, ping::AFTER))),
            Some(typed) => Ok(Command::Ping(PingSettings::resolve(&typed)?)),
        },
        Some("demo") => match Typed::read(rest, flags::DEMO, env)? {
            None => Ok(Command::Help(flags::help("demo [FLAGS]", demo::ABOUT, flags::DEMO, ""))),
            Some(typed) => Ok(Command::Demo(DemoSettings::resolve(&typed)?)),
        },
        Some("fleet") => match Typed::read(rest, flags::FLEET, env)? {
            None => Ok(Command::Help(flags::help("fleet [FLAGS]", fleet::ABOUT, flags::FLEET, fleet::AFTER))),
            Some(typed) => Ok(Command::Fleet(FleetSettings::resolve(&typed)?)),
        },
        Some("doctor") => match Typed::read(rest, flags::DOCTOR, env)? {
            None => Ok(Command::Help(flags::help("doctor [FLAGS]", doctor::ABOUT, flags::DOCTOR, doctor::AFTER))),
            Some(typed) => Ok(Command::Doctor(DoctorSettings::resolve(&typed)?)),
        },
        Some("footprint") => match Typed::read(rest, flags::FOOTPRINT, env)? {
            None => Ok(Command::Help(flags::help(
                "footprint [FLAGS]",
                footprint::ABOUT,
                flags::FOOTPRINT,
                footprint::AFTER,
            ))),
            Some(typed) => Ok(Command::Footprint(FootprintSettings::resolve(&typed)?)),
        },
        Some("version") => match Typed::read(rest, flags::VERSION, env)? {
            None => Ok(Command::Help(flags::help("version [--json]", "Which build this is.", flags::VERSION, ""))),
            Some(typed) => Ok(Command::Version { json: typed.switch("json") }),
        },
        Some(other) => {
            let commands = "run, ping, demo, fleet, doctor, footprint or version";
            Err(UsageError(format!("unknown command {other:?}: expected {commands}")))
        }
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
