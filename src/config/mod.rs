//! The command line, in two stages: as typed ([`typed`]), then resolved and validated ([`run`]).
//!
//! A bad value stops the start with one line. The line names the flag (or the variable), the value,
//! and what would be accepted.

mod agents;
mod completion;
mod demo;
mod doctor;
pub mod flags;
mod fleet;
mod footprint;
mod ping;
mod run;
mod suggest;
mod typed;

pub use agents::{AgentUrl, Agents, Host};
pub use completion::SHELLS;
pub use demo::{DemoSettings, Effect, Fault};
pub use doctor::{DoctorSettings, RowsFile, Shows, Verdicts};
pub use fleet::{Column, FleetSettings, Form};
pub use footprint::{FootprintSettings, FootprintSubject};
pub use ping::{PingSettings, UdpPing};
pub use run::RunSettings;

use std::ffi::OsString;
use std::fmt::Write as _;

use crate::sys::terminal::Colours;
use typed::{Line, Typed};

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

/// Resolves `--color`.
fn colours(typed: &Typed) -> Result<Colours, UsageError> {
    let given = typed.value("color", |text| match text {
        "auto" => Ok(Colours::Auto),
        "always" => Ok(Colours::Always),
        "never" => Ok(Colours::Never),
        _ => Err("auto, always or never".to_owned()),
    });
    given.map(Option::unwrap_or_default)
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
    Print(String),
}

/// What the program is, in one sentence.
pub const ABOUT: &str = "KubeCanary: the nodes of a cluster ping each other and export latency and loss to Prometheus.";
const USAGE: &str = "[COMMAND] [FLAGS]";

/// What the program says of a command. `--help` is generated from it.
#[derive(Debug)]
pub struct Manual {
    /// The name of the command.
    pub name: &'static str,
    /// The placeholder of the arguments without a flag. Empty if it takes none.
    pub arguments: &'static str,
    /// What the command does, in one sentence.
    pub about: &'static str,
    /// Its flags, without those that all commands have.
    pub flags: &'static [flags::Flag],
    /// The text below the flags.
    pub after: &'static str,
    resolve: fn(&Typed, Env<'_>) -> Result<Command, UsageError>,
}

/// All commands. The first is also that of a command line without a command.
pub static COMMANDS: [Manual; 9] = [
    Manual {
        name: "run",
        arguments: "",
        about: "Probes the peers and serves /metrics. It is also what runs without a command.",
        flags: flags::RUN,
        after: "",
        resolve: |typed, env| Ok(Command::Run(Box::new(RunSettings::resolve(typed, env)?))),
    },
    Manual {
        name: "ping",
        arguments: "TARGET…",
        about: ping::ABOUT,
        flags: flags::PING,
        after: ping::AFTER,
        resolve: |typed, env| PingSettings::resolve(typed, env).map(Command::Ping),
    },
    Manual {
        name: "demo",
        arguments: "",
        about: demo::ABOUT,
        flags: flags::DEMO,
        after: "",
        resolve: |typed, _| DemoSettings::resolve(typed).map(Command::Demo),
    },
    Manual {
        name: "fleet",
        arguments: "",
        about: fleet::ABOUT,
        flags: flags::FLEET,
        after: fleet::AFTER,
        resolve: |typed, env| FleetSettings::resolve(typed, env).map(Command::Fleet),
    },
    Manual {
        name: "doctor",
        arguments: "",
        about: doctor::ABOUT,
        flags: flags::DOCTOR,
        after: doctor::AFTER,
        resolve: |typed, env| DoctorSettings::resolve(typed, env).map(Command::Doctor),
    },
    Manual {
        name: "footprint",
        arguments: "",
        about: footprint::ABOUT,
        flags: flags::FOOTPRINT,
        after: footprint::AFTER,
        resolve: |typed, _| FootprintSettings::resolve(typed).map(Command::Footprint),
    },
    Manual {
        name: "version",
        arguments: "",
        about: "Shows which build this is, and which allocator runs.",
        flags: flags::VERSION,
        after: "",
        resolve: |typed, _| Ok(Command::Version { json: typed.switch("json") }),
    },
    Manual {
        name: "completion",
        arguments: "SHELL",
        about: completion::ABOUT,
        flags: &[],
        after: completion::AFTER,
        resolve: |typed, _| completion::resolve(typed),
    },
    Manual {
        name: "help",
        arguments: "[COMMAND]",
        about: "Prints the flags of a command, or the list of commands.",
        flags: &[],
        after: "",
        resolve: |typed, _| help(typed.positional()),
    },
];

impl Manual {
    fn find(name: &str) -> Result<&'static Self, UsageError> {
        if let Some(found) = COMMANDS.iter().find(|manual| manual.name == name) {
            return Ok(found);
        }
        let names = COMMANDS.iter().map(|manual| manual.name);
        let accepted = match suggest::nearest(name, &names) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("expected one of {}", names.collect::<Vec<_>>().join(", ")),
        };
        Err(UsageError(format!("unknown command {name:?}: {accepted}")))
    }

    /// Returns the text of `--help`.
    pub fn text(&self) -> String {
        let words = [self.name, self.arguments, "[FLAGS]"];
        let usage: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        flags::help(&usage.join(" "), self.about, self.flags, self.after)
    }

    fn read(&self, arguments: Vec<OsString>, env: Env<'_>) -> Result<Command, UsageError> {
        match Typed::read(arguments, self.flags, env)? {
            Line::Help => Ok(Command::Print(self.text())),
            Line::Version => Ok(Command::Print(concat!("kube-canary ", env!("CARGO_PKG_VERSION"), "\n").to_owned())),
            Line::Command(typed) if self.arguments.is_empty() && !typed.positional().is_empty() => {
                Err(UsageError(format!("unexpected argument {:?}: expected flags", typed.positional()[0])))
            }
            Line::Command(typed) => (self.resolve)(&typed, env),
        }
    }
}

/// Returns the help of the program: what each command does.
fn overview() -> String {
    let mut text = "\nCommands:\n".to_owned();
    for Manual { name, about, .. } in &COMMANDS {
        // Writing to memory cannot fail.
        let _ = writeln!(text, "  {name:<10} {about}");
    }
    text += "\nSee `kube-canary help COMMAND` for the flags of each.\n";
    flags::help(USAGE, ABOUT, &[], &text)
}

fn help(topics: &[String]) -> Result<Command, UsageError> {
    match topics {
        [] => Ok(Command::Print(overview())),
        [name] => Ok(Command::Print(Manual::find(name)?.text())),
        [_, further, ..] => Err(UsageError(format!("unexpected argument {further:?}: expected one command"))),
    }
}

/// Reads a command line (without the program's name) and its environment.
///
/// # Errors
/// [`UsageError`], one line.
// Not inlined, so that this code is not placed within the agent's own code, which stays resident.
#[inline(never)]
pub fn parse(arguments: Vec<OsString>, env: Env<'_>) -> Result<Command, UsageError> {
    let mut arguments = arguments.into_iter().peekable();
    let command = arguments.next_if(|first| !first.as_encoded_bytes().starts_with(b"-"));
    let rest: Vec<OsString> = arguments.collect();
    let with_hint = |see: &str, error: UsageError| UsageError(format!("{error} (see kube-canary {see}--help)"));
    let manual = match command {
        None if rest.iter().any(|argument| argument == "--help" || argument == "-h") => {
            return Ok(Command::Print(overview()));
        }
        None => &COMMANDS[0],
        Some(name) => Manual::find(&name.to_string_lossy()).map_err(|error| with_hint("", error))?,
    };
    manual.read(rest, env).map_err(|error| with_hint(&format!("{} ", manual.name), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, UsageError> {
        parse(line.split_whitespace().map(OsString::from).collect(), &|_| None)
    }

    fn printed(line: &str) -> String {
        match parsed(line) {
            Ok(Command::Print(text)) => text,
            other => panic!("{line}: {other:?}"),
        }
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
            "help",
            "help ping",
            "help help",
        ] {
            assert!(printed(line).contains("Usage: kube-canary"), "{line}");
        }
        assert_eq!(printed("help ping"), printed("ping --help"));
        assert_eq!(printed("help"), printed("--help"));
        assert!(COMMANDS.iter().all(|manual| printed("help").contains(&format!("  {} ", manual.name))));
    }

    #[test]
    fn the_version_is_one_short_line_wherever_it_is_asked_for() {
        let version = format!("kube-canary {}\n", env!("CARGO_PKG_VERSION"));
        for line in ["--version", "-V", "ping -V", "run --version", "doctor --json -V", "help -V"] {
            assert_eq!(printed(line), version, "{line}");
        }
    }

    #[test]
    fn a_mistyped_word_is_answered_with_the_meant_one_and_where_to_read_more() {
        for (line, meant, see) in [
            ("pign a", "did you mean ping?", "(see kube-canary --help)"),
            ("help dcotor", "did you mean doctor?", "(see kube-canary help --help)"),
            ("ping a --cuont 3", "did you mean --count?", "(see kube-canary ping --help)"),
            ("ping a --payload 64", "did you mean --payload-bytes?", "(see kube-canary ping --help)"),
            ("--peers-fil x", "did you mean --peers-file?", "(see kube-canary run --help)"),
            ("fleet --hepl", "did you mean --help?", "(see kube-canary fleet --help)"),
            ("ping a -x", "expected one of --count", "(see kube-canary ping --help)"),
            ("fly", "expected one of run, ping", "(see kube-canary --help)"),
            ("version --json=1", "json", "(see kube-canary version --help)"),
            ("help run ping", "expected one command", "(see kube-canary help --help)"),
        ] {
            let error = parsed(line).unwrap_err().0;
            assert!(error.contains(meant) && error.ends_with(see) && error.lines().count() == 1, "{line}: {error}");
        }
    }

    #[test]
    fn every_listed_choice_of_a_flag_is_accepted_and_no_other_is() {
        for manual in &COMMANDS {
            for flag in manual.flags.iter().filter(|flag| !flag.choices.is_empty()) {
                let peer = if manual.name == "run" { "--peer a=127.0.0.2" } else { "" };
                let given = |value: &str| parsed(&format!("{} {peer} --{} {value}", manual.name, flag.name));
                for choice in flag.choices {
                    // Where the flag is accepted, another may be missing: --dns for the source dns.
                    let refused = given(choice).err().filter(|error| error.0.contains(&format!("--{} \"", flag.name)));
                    assert_eq!(refused, None, "--{} {choice}", flag.name);
                }
                assert!(given("another").is_err(), "--{}", flag.name);
            }
        }
        let sorted = COMMANDS.iter().flat_map(|manual| manual.flags).find(|flag| flag.name == "sort").unwrap();
        assert_eq!(sorted.choices, Column::ALL.map(|(name, _)| name));
    }

    #[test]
    fn a_letter_is_typed_once_per_command() {
        for manual in &COMMANDS {
            let mut letters: Vec<char> =
                manual.flags.iter().chain(flags::COMMON).filter_map(|flag| flag.short).collect();
            letters.sort_unstable();
            assert!(letters.windows(2).all(|pair| pair[0] != pair[1]), "{}: {letters:?}", manual.name);
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
