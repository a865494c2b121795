//! The first stage: which text each flag was given, and where that text came from.

use std::ffi::OsString;

use super::flags::Flag;
use super::{Env, UsageError};

/// A text for a flag, and the name to use in an error: the flag or the variable.
#[derive(Debug)]
struct Given {
    flag: &'static str,
    name: String,
    value: String,
}

/// A command line as it was typed.
#[derive(Debug)]
pub struct Typed {
    given: Vec<Given>,
    positional: Vec<String>,
}

impl Typed {
    /// Looks up every argument in `flags`. A flag that is not given takes its value from its
    /// variable, unless that is empty. Arguments without a flag may stand between the flags or
    /// after them. Returns none if help is requested.
    pub fn read(arguments: Vec<OsString>, flags: &'static [Flag], env: Env<'_>) -> Result<Option<Self>, UsageError> {
        let (mut given, mut positional) = (Vec::new(), Vec::new());
        let mut parser = lexopt::Parser::from_args(arguments);
        let error = |error: lexopt::Error| UsageError(error.to_string());
        while let Some(argument) = parser.next().map_err(error)? {
            let name = match argument {
                lexopt::Arg::Short('h') | lexopt::Arg::Long("help") => return Ok(None),
                lexopt::Arg::Long(name) => name.to_owned(),
                lexopt::Arg::Short(letter) => return Err(unknown(&format!("-{letter}"), flags)),
                lexopt::Arg::Value(value) => {
                    positional.push(value.to_string_lossy().into_owned());
                    continue;
                }
            };
            let Some(flag) = flags.iter().find(|flag| flag.name == name) else {
                return Err(unknown(&format!("--{name}"), flags));
            };
            let value = if flag.value.is_some() {
                let value = parser.value().map_err(|_| {
                    UsageError(format!("--{name}: expected a value, {}", flag.value.unwrap_or_default()))
                })?;
                value
                    .into_string()
                    .map_err(|raw| UsageError::of(&format!("--{name}"), &raw.to_string_lossy(), "UTF-8"))?
            } else {
                String::new()
            };
            given.push(Given { flag: flag.name, name: format!("--{name}"), value });
        }
        for flag in flags {
            if let Some(variable) = flag.env
                && !given.iter().any(|g| g.flag == flag.name)
                && let Some(value) = env(variable).filter(|value| !value.is_empty())
            {
                given.push(Given { flag: flag.name, name: variable.to_owned(), value });
            }
        }
        Ok(Some(Self { given, positional }))
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

    fn last(&self, flag: &str) -> Option<&Given> {
        self.given.iter().rfind(|g| g.flag == flag)
    }
}

fn unknown(name: &str, flags: &[Flag]) -> UsageError {
    let known: Vec<String> = flags.iter().map(|flag| format!("--{}", flag.name)).collect();
    UsageError(format!("unknown flag {name}: expected one of {}", known.join(", ")))
}
