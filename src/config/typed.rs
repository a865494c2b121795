//! The first stage: which text each flag was given, and where that text came from.

use clap::Arg;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{Env, UsageError};

/// A text for a flag, and the name to use in an error: the flag or the variable.
#[derive(Debug)]
struct Given {
    flag: String,
    name: String,
    value: String,
}

/// Says what the command line of a command requests.
#[derive(Debug)]
pub enum Line {
    /// The help of the command.
    Help,
    /// The version, in one short line.
    Version,
    /// The command itself.
    Command(Typed),
}

/// A command line as it was typed.
#[derive(Debug)]
pub struct Typed {
    given: Vec<Given>,
    positional: Vec<String>,
}

impl Typed {
    /// Reads the arguments by `clap`. A flag that is not given takes its value from its variable,
    /// unless that is empty. Arguments without a flag may stand between the flags or after them.
    pub fn read(arguments: &[String], mut command: clap::Command, env: Env<'_>) -> Result<Line, UsageError> {
        let variable = |flag: &Arg| Some((flag.get_id().clone(), flag.get_env()?.to_str()?.to_owned()));
        let variables: Vec<_> = command.get_arguments().filter_map(variable).collect();
        // Set but empty means not given, and an error names the variable.
        command = command.mut_args(|flag| flag.env(None)).no_binary_name(true);
        let mut matches = match command.try_get_matches_from_mut(arguments) {
            Ok(matches) => matches,
            Err(error) if error.kind() == ErrorKind::DisplayHelp => return Ok(Line::Help),
            Err(error) => return Err(refusal(&error, &command)),
        };
        if matches.get_flag("version") {
            return Ok(Line::Version);
        }
        let mut typed = Self { given: Vec::new(), positional: Vec::new() };
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            if argument.is_positional() {
                typed.positional = matches.remove_many(id).into_iter().flatten().collect();
            } else if argument.get_action().takes_values() {
                let name = spelling(argument, arguments);
                let values = matches.remove_many(id).into_iter().flatten();
                typed.given.extend(values.map(|value| Given { flag: id.to_owned(), name: name.clone(), value }));
            } else if matches.contains_id(id) && matches.get_flag(id) {
                typed.given.push(Given { flag: id.to_owned(), name: format!("--{id}"), value: String::new() });
            }
        }
        for (id, name) in variables {
            let Some(value) = env(&name).filter(|value| !value.is_empty() && !typed.switch(id.as_str())) else {
                continue;
            };
            let choices = command.get_arguments().find(|flag| *flag.get_id() == id).map(Arg::get_possible_values);
            let choices: Vec<String> = choices.iter().flatten().map(|choice| choice.get_name().to_owned()).collect();
            if !choices.is_empty() && !choices.contains(&value) {
                return Err(UsageError::expected(&name, &value, &alternatives(&choices)));
            }
            typed.given.push(Given { flag: id.to_string(), name, value });
        }
        Ok(Line::Command(typed))
    }

    /// Refuses flags that mean nothing without a switch.
    pub fn expect_beside(&self, switch: &str, flags: &[&str]) -> Result<(), UsageError> {
        match self.first_typed(flags) {
            Some(flag) if !self.switch(switch) => Err(UsageError(format!("--{flag}: expected --{switch} beside it"))),
            _ => Ok(()),
        }
    }

    /// Returns the arguments that were given without a flag.
    pub fn positional(&self) -> &[String] {
        &self.positional
    }

    /// Returns whether a flag was given.
    pub fn switch(&self, flag: &str) -> bool {
        self.last(flag).is_some()
    }

    /// Returns the last text given for a flag.
    pub fn text(&self, flag: &str) -> Option<&str> {
        self.last(flag).map(|given| given.value.as_str())
    }

    /// Returns all texts given for a flag, with the names to use in errors.
    pub fn texts(&self, flag: &str) -> impl Iterator<Item = (&str, &str)> {
        self.given.iter().filter(move |g| g.flag == flag).map(|g| (g.name.as_str(), g.value.as_str()))
    }

    /// Returns the last text given for a flag, parsed by `read`. The error of `read`
    /// states what it expects.
    pub fn value<T>(&self, flag: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, UsageError> {
        let read = |given: &Given| {
            read(&given.value).map_err(|accepted| UsageError::expected(&given.name, &given.value, &accepted))
        };
        self.last(flag).map(read).transpose()
    }

    /// Returns what the last text given for a flag stands for. It is one of the flag's choices.
    pub fn choice<T: Copy>(&self, flag: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(flag)?;
        choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice)
    }

    /// Returns the first of these flags that was given on the command line. Variables may be set
    /// for another purpose (`POD_NAMESPACE` in every pod of ours). A flag is intentional.
    pub fn first_typed<'a>(&self, flags: &[&'a str]) -> Option<&'a str> {
        flags.iter().copied().find(|flag| self.last(flag).is_some_and(|given| given.name.starts_with('-')))
    }

    fn last(&self, flag: &str) -> Option<&Given> {
        self.given.iter().rfind(|g| g.flag == flag)
    }
}

/// Returns the name of a flag as it was typed: its letter, or the whole name.
fn spelling(flag: &Arg, arguments: &[String]) -> String {
    let long = format!("--{}", flag.get_id());
    let is_long = |argument: &String| argument.split('=').next() == Some(&long);
    match flag.get_short() {
        Some(letter) if !arguments.iter().any(is_long) => format!("-{letter}"),
        _ => long,
    }
}

/// Returns "a, b or c".
fn alternatives(all: &[String]) -> String {
    match all {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        all => all.concat(),
    }
}

/// Returns the error of `clap` as one line.
fn refusal(error: &clap::Error, command: &clap::Command) -> UsageError {
    let one = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let value = one(ContextKind::InvalidValue);
    let argument = one(ContextKind::InvalidArg);
    // `clap` names a flag with its placeholder, `--count <N>`, and other arguments as `[SHELL]...`.
    let (name, placeholder) = argument.split_once(' ').unwrap_or((&argument, ""));
    let meant = |kind| error.get(kind).map(|meant| format!("did you mean {meant}?"));
    UsageError(match (error.kind(), error.get(ContextKind::ValidValue)) {
        (ErrorKind::InvalidValue, Some(ContextValue::Strings(all))) if !all.is_empty() => {
            let is_flag = name.starts_with('-');
            let accepted = if is_flag { alternatives(all) } else { format!("one of {}", all.join(", ")) };
            let meant = meant(ContextKind::SuggestedValue).map(|meant| format!("; {meant}"));
            let accepted = accepted + &meant.unwrap_or_default();
            return UsageError::expected(name.trim_matches(['[', ']', '<', '>', '.']), &value, &accepted);
        }
        (ErrorKind::InvalidValue, _) => {
            format!("{name}: expected a value, {}", placeholder.trim_start_matches('<').trim_end_matches('>'))
        }
        (ErrorKind::TooManyValues, _) => return UsageError::expected(name, &value, "no value"),
        (ErrorKind::UnknownArgument, _) if !name.starts_with('-') => {
            format!("unexpected argument {argument:?}: expected flags")
        }
        (ErrorKind::UnknownArgument, _) => {
            let flags = command.get_arguments().filter_map(Arg::get_long);
            let known: Vec<String> = flags.map(|flag| format!("--{flag}")).collect();
            let listed = || format!("expected one of {}", known.join(", "));
            format!("unknown flag {name}: {}", meant(ContextKind::SuggestedArg).unwrap_or_else(listed))
        }
        _ => error.to_string().lines().next().unwrap_or_default().to_owned(),
    })
}
