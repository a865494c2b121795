//! The command line, in two stages: as typed ([`typed`]), then resolved and validated ([`run`]).
//!
//! `clap` reads it, by a definition that is made from the table of [`flags`].
//! A bad value stops the start with one line. The line names the flag (or the variable), the value,
//! and what would be accepted.

mod act;
mod agents;
mod checks;
mod completion;
mod demo;
mod doctor;
mod flags;
mod fleet;
mod footprint;
mod ping;
mod run;
mod typed;

pub use crate::discovery::address::Host;
pub use act::{ActSettings, HttpUrl, MaxNodes, NodeConditions, Receiver};
pub use agents::{AgentUrl, Agents};
pub use demo::{DemoSettings, Effect, Fault};
pub use doctor::{DoctorSettings, RowsFile, Shows, Verdicts};
pub use fleet::{Column, FleetSettings, Form};
pub use footprint::{FootprintSettings, FootprintSubject};
pub use ping::{PingCheck, PingChecks, PingSettings, UdpPing};
pub use run::RunSettings;

use std::ffi::OsString;

use clap::error::ContextKind;

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
    fn expected(name: &str, value: &str, accepted: &str) -> Self {
        Self(format!("{name} {value:?}: expected {accepted}"))
    }
}

/// Resolves `--color`.
fn colours(typed: &Typed) -> Colours {
    typed.choice("color", &[("always", Colours::Always), ("never", Colours::Never)]).unwrap_or_default()
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
    /// Act on what the judges of the mesh agree on.
    Act(Box<ActSettings>),
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
/// The name of the program.
const NAME: &str = "kube-canary";

/// The names of all commands. The first is also that of a command line without a command.
pub const COMMANDS: [&str; 10] =
    ["run", "ping", "demo", "fleet", "doctor", "act", "footprint", "version", "completion", "help"];

/// Describes a command to `clap`.
fn command(name: &'static str) -> clap::Command {
    let command = plain(name).bin_name(format!("{NAME} {name}"));
    match name {
        "ping" => command.about(ping::ABOUT).args(flags::ping()).after_help(ping::AFTER.trim()),
        "demo" => command.about(demo::ABOUT).args(flags::demo()),
        "fleet" => command.about(fleet::ABOUT).args(flags::fleet()).after_help(fleet::AFTER.trim()),
        "doctor" => command.about(doctor::ABOUT).args(flags::doctor()).after_help(doctor::AFTER.trim()),
        "act" => command.about(act::ABOUT).args(flags::act()).after_help(act::AFTER.trim()),
        "footprint" => command.about(footprint::ABOUT).args(flags::footprint()).after_help(footprint::AFTER.trim()),
        "version" => command.about("Shows which build this is, and which allocator runs.").args(flags::version()),
        "completion" => command.about(completion::ABOUT).args(flags::completion()).after_help(completion::AFTER.trim()),
        "help" => command.about("Prints the flags of a command, or the list of commands.").args(flags::help()),
        _ => {
            let about = "Probes the peers and serves /metrics. It is also what runs without a command.";
            command.about(about).args(flags::run())
        }
    }
    .args(flags::common())
    .mut_args(flags::complete_with_space)
}

/// Resolves what was typed behind the name of a command.
fn resolve(name: &str, typed: &Typed, env: Env<'_>) -> Result<Command, UsageError> {
    match name {
        "ping" => PingSettings::resolve(typed, env).map(Command::Ping),
        "demo" => DemoSettings::resolve(typed).map(Command::Demo),
        "fleet" => FleetSettings::resolve(typed, env).map(Command::Fleet),
        "doctor" => DoctorSettings::resolve(typed, env).map(Command::Doctor),
        "act" => ActSettings::resolve(typed, env).map(|settings| Command::Act(Box::new(settings))),
        "footprint" => FootprintSettings::resolve(typed).map(Command::Footprint),
        "version" => Ok(Command::Version { json: typed.switch("json") }),
        "completion" => completion::resolve(typed),
        "help" => help(typed.positional()),
        _ => RunSettings::resolve(typed, env).map(|settings| Command::Run(Box::new(settings))),
    }
}

/// Describes what all commands have in common to `clap`. The table has the flags and the command
/// that `clap` would add.
fn plain(name: &'static str) -> clap::Command {
    let command = clap::Command::new(name).disable_help_flag(true).disable_version_flag(true);
    command.disable_help_subcommand(true).args_override_self(true)
}

/// Describes the whole command line to `clap`.
pub fn program() -> clap::Command {
    let program = plain(NAME).about(ABOUT).args(flags::common());
    program.subcommands(COMMANDS.map(command))
}

fn find(name: &str) -> Result<&'static str, UsageError> {
    if let Some(found) = COMMANDS.into_iter().find(|command| *command == name) {
        return Ok(found);
    }
    let error = program().try_get_matches_from([NAME, name]).err();
    let meant = error.and_then(|error| typed::meant(&error, ContextKind::SuggestedSubcommand, name));
    let accepted = match meant {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("expected one of {}", COMMANDS.join(", ")),
    };
    Err(UsageError(format!("unknown command {name:?}: {accepted}")))
}

/// Returns the help of the program, or that of a command.
fn help(topics: &[String]) -> Result<Command, UsageError> {
    let text = match topics {
        [] => program().after_help("See `kube-canary help COMMAND` for the flags of each.").render_help(),
        [name] => command(find(name)?).render_long_help(),
        [_, further, ..] => return Err(UsageError(format!("unexpected argument {further:?}: expected one command"))),
    };
    Ok(Command::Print(text.to_string()))
}

/// Reads a command line (without the program's name) and its environment.
///
/// # Errors
/// [`UsageError`], one line.
// Not inlined, so that this code is not placed within the agent's own code, which stays resident.
#[inline(never)]
pub fn parse(arguments: &[OsString], env: Env<'_>) -> Result<Command, UsageError> {
    let with_hint = |see: &str, error: UsageError| UsageError(format!("{error} (see kube-canary {see}--help)"));
    let is_flag = |argument: &OsString| argument.as_encoded_bytes().starts_with(b"-");
    let (name, rest) = match arguments.split_first() {
        Some((name, rest)) if !is_flag(name) => {
            (find(&name.to_string_lossy()).map_err(|error| with_hint("", error))?, rest)
        }
        _ if arguments.iter().any(|argument| argument == "--help" || argument == "-h") => return help(&[]),
        _ => (COMMANDS[0], arguments),
    };
    let done = match Typed::read(rest, command(name), env) {
        Ok(Line::Help) => help(&[name.to_owned()]),
        Ok(Line::Version) => Ok(Command::Print(concat!("kube-canary ", env!("CARGO_PKG_VERSION"), "\n").to_owned())),
        Ok(Line::Command(typed)) => resolve(name, &typed, env),
        Err(error) => Err(error),
    };
    done.map_err(|error| with_hint(&format!("{name} "), error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    fn parsed(line: &str) -> Result<Command, UsageError> {
        parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>(), &|_| None)
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
        assert!(COMMANDS.iter().all(|name| printed("help").contains(&format!("  {name} "))));
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
        for name in COMMANDS {
            for flag in command(name).get_opts().filter(|flag| !flag.get_possible_values().is_empty()) {
                let id = flag.get_id();
                let peer = if name == "run" { "--peer a=127.0.0.2" } else { "" };
                let given = |value: &str| parsed(&format!("{name} {peer} --{id} {value}"));
                for choice in flag.get_possible_values() {
                    // Where the flag is accepted, another may be missing: --dns for the source dns.
                    let refused =
                        given(choice.get_name()).err().filter(|error| error.0.contains(&format!("--{id} \"")));
                    assert_eq!(refused, None, "--{id} {}", choice.get_name());
                }
                assert!(given("another").is_err(), "--{id}");
            }
        }
        let fleet = command("fleet");
        let sorted = fleet.get_opts().find(|flag| flag.get_id() == "sort").unwrap().get_possible_values();
        assert!(sorted.iter().map(clap::builder::PossibleValue::get_name).eq(Column::ALL.map(|(name, _)| name)));
    }

    #[test]
    fn the_last_value_counts_and_a_request_for_help_is_answered_beside_a_wrong_one() {
        assert!(matches!(parsed("--peer a=127.0.0.2 --log-level bad --log-level INFO"), Ok(Command::Run(_))));
        for line in ["fleet --sort bad --help", "fleet node-a -h", "completion tcsh --help", "help nothing --help"] {
            assert!(printed(line).contains("Usage: kube-canary"), "{line}");
        }
        assert!(printed("ping -V --bad").starts_with("kube-canary "));
    }

    #[test]
    fn a_refusal_names_what_was_typed() {
        for (line, error) in [
            ("fleet -o yaml", r#"-o "yaml": expected wide or json"#),
            ("fleet --output json -o yaml", r#"-o "yaml": expected wide or json"#),
            ("fleet --sort", "--sort: expected a value, COLUMN"),
            ("ping a -c", "-c: expected a value, N"),
            ("ping -c x a -- --count", r#"-c "x": expected a whole number"#),
            ("ping -q=1 a", r#"-q "1": expected no value"#),
            ("version -- --json", r#"unexpected argument "--json": expected flags"#),
            ("fleet --interval x", r#"--interval "x": expected a number and a unit"#),
            ("version --seconds", "unknown flag --seconds: expected one of --json"),
            ("completion tcsh", r#"SHELL "tcsh": expected one of bash, zsh, fish"#),
        ] {
            let found = parsed(line).unwrap_err().0;
            assert!(found.starts_with(error), "{line}: {found}");
        }
        let raw = ["fleet".into(), "--url".into(), OsString::from_vec(vec![0xff])];
        let found = parse(&raw, &|_| None).unwrap_err().0;
        assert_eq!(found, "--url \"\u{fffd}\": expected UTF-8 (see kube-canary fleet --help)");
    }

    #[test]
    fn the_definition_is_sound() {
        // Among others, no letter stands for two flags of a command.
        program().debug_assert();
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
