//! The settings of `kube-canary footprint`.

use super::UsageError;
use super::run::number_between;
use super::typed::Typed;
use crate::limits::PID_MAX;

/// The first line that `footprint --help` shows.
pub const ABOUT: &str = "Shows what the memory of a process is for, and how much memory programs use.";
/// The text that `footprint --help` shows below the flags.
pub const AFTER: &str = "
Without --pid and --filter, it shows every running kube-canary except itself. The memory of a process is shown by category
(text, rodata, relro, data, heap, anon, stacks, kernel; file and shared if there is any): clean, dirty and swapped. Clean
and dirty add up to its resident memory. Programs are shown by the memory that no other process has (private), and by their
share of memory that several processes have.

It must run as the user of the processes, or as root (CAP_SYS_PTRACE). Unreadable processes are counted on standard error.

Exit codes: 0 on success; 1 if there is nothing to show, or if it cannot be read; 2 for a bad flag.
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

/// The settings that `footprint` runs with.
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
            (Some(id), None) => FootprintSubject::Process(id),
            (None, Some(name)) => FootprintSubject::Programs(name.to_owned()),
            (Some(_), Some(name)) => return Err(UsageError::expected("--filter", name, "either this or --pid")),
        };
        Ok(Self { subject, json: typed.switch("json") })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parse};
    use super::*;

    fn settings(line: &[&str]) -> Result<FootprintSettings, UsageError> {
        let arguments = ["footprint"].iter().chain(line).map(Into::into).collect::<Vec<_>>();
        match parse(&arguments, &|_| None)? {
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
