//! The log of the program: records of the `log` crate on standard error, one line each.
//!
//! Rejected: env_logger. Its times need a library for calendars, and JSON a format of our own.

use std::io::{self, Write as _};

use log::{LevelFilter, Log, Metadata, Record};
use serde::Serialize;

use crate::sys::{clock, console};
use crate::units::Nanos;

/// How each line of the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Time, level and module in brackets, then the message. It is the default.
    #[default]
    Text,
    /// One JSON object with the same fields.
    Json,
}

/// Starts to write records up to `level`. Only the first call in a process has an effect.
pub fn start(level: LevelFilter, format: LogFormat) {
    static TEXT: Logger = Logger(LogFormat::Text);
    static JSON: Logger = Logger(LogFormat::Json);
    let logger = match format {
        LogFormat::Text => &TEXT,
        LogFormat::Json => &JSON,
    };
    // This fails if a test has already set a logger.
    if log::set_logger(logger).is_ok() {
        log::set_max_level(level);
    }
}

#[derive(Debug)]
struct Logger(LogFormat);

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // One call, so that lines of several threads do not mix. If standard error has no
            // reader or no room, there is no other place to say so.
            let _ = io::stderr().write_all(line(self.0, clock::realtime(), record).as_bytes());
        }
    }

    fn flush(&self) {}
}

#[derive(Serialize)]
struct Entry<'a> {
    time: &'a str,
    level: &'a str,
    target: &'a str,
    message: &'a str,
}

/// Formats a record with its newline. A message has one line: names in it may come from outside.
fn line(format: LogFormat, time: Nanos, record: &Record<'_>) -> String {
    let (time, level, target, message) =
        (clock::rfc3339(time), record.level(), record.target(), record.args().to_string());
    match format {
        LogFormat::Text => format!("[{time} {level:<5} {target}] {}\n", console::printable(&message)),
        LogFormat::Json => {
            let level = level.as_str().to_ascii_lowercase();
            console::json_line(&Entry { time: &time, level: &level, target, message: &message })
        }
    }
}

#[cfg(test)]
mod tests {
    use log::Level;

    use super::*;

    fn written(format: LogFormat, message: &str) -> String {
        let arguments = format_args!("{message}");
        let record = Record::builder().level(Level::Warn).target("kube_canary::agent").args(arguments).build();
        line(format, Nanos(951_782_400_001_000_000), &record)
    }

    #[test]
    fn a_record_is_one_line_with_its_time() {
        let text = written(LogFormat::Text, "a\n\x1b[2Jb");
        assert_eq!(text, "[2000-02-29T00:00:00.001Z WARN  kube_canary::agent] a??[2Jb\n");
    }

    #[test]
    fn a_record_in_json_is_one_object_whatever_its_message() {
        let message = "\"quoted\"\n\\ \u{1} µs";
        let text = written(LogFormat::Json, message);
        assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
        let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let expected = serde_json::json!({
            "time": "2000-02-29T00:00:00.001Z", "level": "warn", "target": "kube_canary::agent", "message": message
        });
        assert_eq!(object, expected);
    }
}
