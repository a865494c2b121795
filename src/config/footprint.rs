//! The settings of `kube-canary footprint`.

use super::UsageError;
use super::run::number_between;
use super::typed::Typed;
use crate::limits::PID_MAX;

/// The first line of `footprint --help`.
pub const ABOUT: &str = "What the memory of a process is for, and what programs take.";
/// The text below the flags in `footprint --help`.
pub const AFTER: &str = "
Without --pid and --filter: every running kube-canary but this one. A process is shown by category (text, rodata, relro,
data, heap, anon, stacks, kernel; file and shared where there is any), clean, dirty and swapped; clean and dirty add up to
its resident memory. Programs are shown by what no other process has (private) and their share of what several have.

Needs to be the user of what it reads, or root (CAP_SYS_PTRACE). What may not be read is counted on standard error.

Exit codes: 0; 1 there is nothing to show, or it may not be read; 2 a bad flag.
";

/// The processes or programs whose memory is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FootprintSubject {
    /// All other agents on this machine.
    Agents,
    /// The process with this id.
    Process(u32),
    /// Programs with this text in their name.
    Programs(String),
}

/// The settings of `footprint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FootprintSettings {
    /// The processes or programs to show.
    pub subject: FootprintSubject,
    /// Print one JSON object instead of tables.
    pub json: bool,
}

impl FootprintSettings {
    pub(super) fn resolve(typed: &Typed) -> Result<Self, UsageError> {
        let id = typed.value("pid", number_between(1, PID_MAX))?;
        let subject = match (id, typed.text("filter")) {
            (None, None) => FootprintSubject::Agents,
            (Some(id), None) => FootprintSubject::Process(u32::try_from(id).unwrap_or(u32::MAX)),
            (None, Some(name)) => FootprintSubject::Programs(name.to_owned()),
            (Some(_), Some(name)) => return Err(UsageError::of("--filter", name, "either this or --pid")),
        };
        Ok(Self { subject, json: typed.switch("json") })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parse};
    use super::*;

    fn settings(line: &[&str]) -> Result<FootprintSettings, UsageError> {
        let arguments = ["footprint"].iter().chain(line).map(Into::into).collect();
        match parse(arguments, &|_| None)? {
            Command::Footprint(settings) => Ok(settings),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_process_programs_or_all_agents_are_shown() {
        for (line, subject, json) in [
            (&[][..], FootprintSubject::Agents, false),
            (&["--pid", "4194304", "--json"], FootprintSubject::Process(4_194_304), true),
            (&["--filter", "java"], FootprintSubject::Programs("java".into()), false),
            (&["--filter", ""], FootprintSubject::Programs(String::new()), false),
        ] {
            assert_eq!(settings(line), Ok(FootprintSettings { subject, json }), "{line:?}");
        }
    }

    #[test]
    fn every_bad_value_is_one_line_that_names_it_and_what_is_accepted() {
        for (line, parts) in [
            (&["--pid", "0"][..], ["--pid", "\"0\"", "1 to 4194304"]),
            (&["--pid", "self"], ["--pid", "\"self\"", "1 to 4194304"]),
            (&["--pid", "4194305"], ["--pid", "4194305", "1 to"]),
            (&["--pid", "1", "--filter", "a"], ["--filter", "\"a\"", "--pid"]),
            (&["--filter"], ["--filter", "a value", "NAME"]),
            (&["--all"], ["--all", "--pid", "--filter"]),
            (&["1234"], ["1234", "unexpected", "flags"]),
        ] {
            let error = settings(line).unwrap_err().0;
            assert!(parts.iter().all(|part| error.contains(part)) && error.lines().count() == 1, "{line:?}: {error}");
        }
    }
}
