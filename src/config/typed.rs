//! The first stage: which text each flag was given, and where that text came from.

use std::ffi::OsString;

use super::flags::{COMMON, Flag};
use super::{Env, UsageError, suggest};

/// A text for a flag, and the name to use in an error: the flag or the variable.
#[derive(Debug)]
struct Given {
    flag: &'static str,
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
    /// Looks up every argument in `flags` and in the flags that all commands have. A flag that is
    /// not given takes its value from its variable, unless that is empty. Arguments without a flag
    /// may stand between the flags or after them.
    pub fn read(arguments: Vec<OsString>, flags: &'static [Flag], env: Env<'_>) -> Result<Line, UsageError> {
        let (mut given, mut positional) = (Vec::new(), Vec::new());
        let mut parser = lexopt::Parser::from_args(arguments);
        let error = |error: lexopt::Error| UsageError(error.to_string());
        while let Some(argument) = parser.next().map_err(error)? {
            let mut known = flags.iter().chain(COMMON);
            let (name, flag) = match argument {
                lexopt::Arg::Long(long) => (format!("--{long}"), known.find(|flag| flag.name == long)),
                lexopt::Arg::Short(letter) => (format!("-{letter}"), known.find(|flag| flag.short == Some(letter))),
                lexopt::Arg::Value(value) => {
                    positional.push(value.to_string_lossy().into_owned());
                    continue;
                }
            };
            let Some(flag) = flag else { return Err(unknown(&name, flags)) };
            let value = match (flag.name, flag.value) {
                ("help", _) => return Ok(Line::Help),
                ("version", _) => return Ok(Line::Version),
                (_, Some(placeholder)) => {
                    let missing = |_| UsageError(format!("{name}: expected a value, {placeholder}"));
                    let value = parser.value().map_err(missing)?;
                    value.into_string().map_err(|raw| UsageError::of(&name, &raw.to_string_lossy(), "UTF-8"))?
                }
                (_, None) => String::new(),
            };
            given.push(Given { flag: flag.name, name, value });
        }
        for flag in flags {
            if let Some(variable) = flag.env
                && !given.iter().any(|g| g.flag == flag.name)
                && let Some(value) = env(variable).filter(|value| !value.is_empty())
            {
                given.push(Given { flag: flag.name, name: variable.to_owned(), value });
            }
        }
        Ok(Line::Command(Self { given, positional }))
    }

    /// Returns the arguments that were given without a flag.
    pub fn positional(&self) -> &[String] {
        &self.positional
    }

    /// Returns whether a switch was given.
    pub fn switch(&self, flag: &str) -> bool {
        self.given.iter().any(|g| g.flag == flag)
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
        let read =
            |given: &Given| read(&given.value).map_err(|accepted| UsageError::of(&given.name, &given.value, &accepted));
        self.last(flag).map(read).transpose()
    }

    /// Returns the name under which a flag was given: the flag itself, or its variable.
    pub fn name<'a>(&'a self, flag: &'a str) -> &'a str {
        self.last(flag).map_or(flag, |given| &given.name)
    }

    /// Returns the first of these flags that was given on the command line. Variables may be set
    /// for another purpose (`POD_NAMESPACE` in every pod of ours). A flag is intentional.
    pub fn first_typed<'a>(&self, flags: &[&'a str]) -> Option<&'a str> {
        flags.iter().copied().find(|flag| self.name(flag).starts_with('-'))
    }

    fn last(&self, flag: &str) -> Option<&Given> {
        self.given.iter().rfind(|g| g.flag == flag)
    }
}

fn unknown(name: &str, flags: &[Flag]) -> UsageError {
    let known = flags.iter().chain(COMMON).map(|flag| flag.name);
    if let Some(meant) = name.strip_prefix("--").and_then(|name| suggest::nearest(name, &known)) {
        return UsageError(format!("unknown flag {name}: did you mean --{meant}?"));
    }
    let known: Vec<String> = flags.iter().map(|flag| format!("--{}", flag.name)).collect();
    UsageError(format!("unknown flag {name}: expected one of {}", known.join(", ")))
}
