//! The first stage: which text each flag was given, and where that text came from.

use std::ffi::{OsStr, OsString};

use clap::builder::PossibleValue;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, value_parser};

use super::{Env, UsageError};

/// The arguments of a command that takes none. They are refused once all flags are read.
const UNEXPECTED: &str = "unexpected";

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
    ///
    /// Values are checked once all arguments are read. So the last value of a flag counts, and a
    /// request for help is answered beside a wrong value.
    pub fn read(arguments: &[OsString], command: clap::Command, env: Env<'_>) -> Result<Line, UsageError> {
        let flags: Vec<Arg> = command.get_arguments().cloned().collect();
        let mut reader = command.no_binary_name(true).version(env!("CARGO_PKG_VERSION"));
        // Set but empty means not given, and an error names the variable.
        reader = reader.mut_args(|flag| {
            let flag = flag.env(None);
            if flag.get_action().takes_values() { flag.value_parser(value_parser!(OsString)) } else { flag }
        });
        reader = reader.mut_arg("version", |flag| flag.action(ArgAction::Version));
        if !flags.iter().any(Arg::is_positional) {
            let others = Arg::new(UNEXPECTED).num_args(1..).action(ArgAction::Append).hide(true);
            reader = reader.arg(others.value_parser(value_parser!(OsString)));
        }
        let mut matches = match reader.try_get_matches_from_mut(arguments) {
            Ok(matches) => matches,
            Err(error) if error.kind() == ErrorKind::DisplayHelp => return Ok(Line::Help),
            Err(error) if error.kind() == ErrorKind::DisplayVersion => return Ok(Line::Version),
            Err(error) => return Err(refusal(&error, &flags, arguments)),
        };
        if let Ok(Some(mut others)) = matches.try_remove_many::<OsString>(UNEXPECTED) {
            let first = others.next().unwrap_or_default();
            return Err(UsageError(format!("unexpected argument {:?}: expected flags", first.to_string_lossy())));
        }
        let mut typed = Self { given: Vec::new(), positional: Vec::new() };
        for flag in &flags {
            let id = flag.get_id().as_str();
            let name = if flag.is_positional() { "argument".to_owned() } else { spelling(flag, arguments) };
            let text = |raw: OsString| {
                raw.into_string().map_err(|raw| UsageError::expected(&name, &raw.to_string_lossy(), "UTF-8"))
            };
            if !flag.get_action().takes_values() {
                if matches.try_get_one::<bool>(id).ok().flatten() == Some(&true) {
                    typed.given.push(Given { flag: id.to_owned(), name, value: String::new() });
                }
                continue;
            }
            let values: Vec<String> =
                matches.remove_many(id).into_iter().flatten().map(text).collect::<Result<_, _>>()?;
            if flag.is_positional() {
                typed.positional = values;
                continue;
            }
            let given = |value| Given { flag: id.to_owned(), name: name.clone(), value };
            typed.given.extend(values.into_iter().map(given));
            let variable = flag.get_env().and_then(OsStr::to_str).filter(|_| !typed.switch(id));
            if let Some(name) = variable
                && let Some(value) = env(name).filter(|value| !value.is_empty())
            {
                typed.given.push(Given { flag: id.to_owned(), name: name.to_owned(), value });
            }
            typed.check_choice(flag)?;
        }
        Ok(Line::Command(typed))
    }

    /// Checks that what a flag was given is one of its choices, if it has any.
    fn check_choice(&self, flag: &Arg) -> Result<(), UsageError> {
        let (choices, ignores_case) = (flag.get_possible_values(), flag.is_ignore_case_set());
        match self.last(flag.get_id().as_str()) {
            Some(Given { name, value, .. })
                if !choices.is_empty() && !choices.iter().any(|choice| choice.matches(value, ignores_case)) =>
            {
                let listed = choices.iter().filter(|choice| !choice.is_hide_set());
                let listed: Vec<&str> = listed.map(PossibleValue::get_name).collect();
                Err(UsageError::expected(name, value, &alternatives(&listed)))
            }
            _ => Ok(()),
        }
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

/// Returns the name of a flag as it was typed last: its letter, or the whole name.
fn spelling(flag: &Arg, arguments: &[OsString]) -> String {
    let long = format!("--{}", flag.get_id());
    let flags = arguments.iter().map(|argument| argument.to_string_lossy()).take_while(|argument| argument != "--");
    let names = flags.filter_map(|argument| match argument.strip_prefix('-') {
        Some(whole) if whole.starts_with('-') => (argument.split('=').next() == Some(&long)).then(|| long.clone()),
        Some(letters) => flag.get_short().filter(|letter| letters.contains(*letter)).map(|letter| format!("-{letter}")),
        None => None,
    });
    names.last().unwrap_or(long)
}

/// Returns "a, b or c".
fn alternatives(all: &[&str]) -> String {
    match all {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        all => all.concat(),
    }
}

/// Returns what `clap` takes for the word that was meant, if it begins as the one that was typed.
/// It finds similar words also where nothing is meant.
pub fn meant(error: &clap::Error, kind: ContextKind, typed: &str) -> Option<String> {
    let begins_alike = |word: &&String| {
        let first = |word: &str| word.trim_start_matches('-').chars().next();
        first(word) == first(typed)
    };
    match error.get(kind)? {
        ContextValue::String(word) => Some(word).filter(begins_alike).cloned(),
        ContextValue::Strings(words) => words.iter().rfind(begins_alike).cloned(),
        _ => None,
    }
}

/// Returns the error of `clap` as one line.
fn refusal(error: &clap::Error, flags: &[Arg], arguments: &[OsString]) -> UsageError {
    let context = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (argument, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    // `clap` names a flag with its placeholder: `--count <N>`.
    let (long, placeholder) = argument.split_once(' ').unwrap_or((&argument, ""));
    let flag = flags.iter().find(|flag| flag.get_long() == long.strip_prefix("--"));
    let name = flag.map_or_else(|| long.to_owned(), |flag| spelling(flag, arguments));
    let texts = arguments.iter().map(|argument| argument.to_string_lossy());
    let switch = texts.filter(|text| !text.starts_with("--")).find_map(|text| {
        let (name, value) = text.split_once('=').filter(|(name, _)| name.starts_with('-'))?;
        Some((name.to_owned(), value.to_owned()))
    });
    UsageError(match (error.kind(), switch) {
        (ErrorKind::InvalidValue, _) => {
            format!("{name}: expected a value, {}", placeholder.trim_start_matches('<').trim_end_matches('>'))
        }
        (ErrorKind::TooManyValues, _) => return UsageError::expected(&name, &value, "no value"),
        (ErrorKind::UnknownArgument, Some((name, value))) if argument == "-=" => {
            return UsageError::expected(&name, &value, "no value");
        }
        (ErrorKind::UnknownArgument, _) => {
            let meant = meant(error, ContextKind::SuggestedArg, &argument);
            let known = || {
                let known = flags.iter().filter_map(Arg::get_long).map(|flag| format!("--{flag}"));
                format!("expected one of {}", known.collect::<Vec<_>>().join(", "))
            };
            let accepted = meant.map_or_else(known, |meant| format!("did you mean {meant}?"));
            format!("unknown flag {argument}: {accepted}")
        }
        _ => error.to_string().lines().next().unwrap_or_default().to_owned(),
    })
}
