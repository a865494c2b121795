//! `kube-canary ping --json`, and its report of every probe.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::common::process::{Process, unique};
use crate::common::until::until;
use crate::mesh::{Node, Socket};
use crate::namespace::{DIRECTORY, PROGRAM};

/// The parameters of a run.
pub struct Ping<'a> {
    pub node: &'a Node,
    pub socket: Socket,
    pub targets: Vec<String>,
    /// Probes per target. `None`: until a signal.
    pub count: Option<u64>,
    pub interval: Duration,
    pub timeout: Duration,
}

/// A run that has not ended.
pub struct Running {
    process: Process,
    output: PathBuf,
}

impl Ping<'_> {
    fn start(&self) -> Running {
        let directory = Path::new(DIRECTORY);
        let output = unique(directory, "out");
        let mut command = self.node.namespace.command(PROGRAM);
        let ms = |time: Duration| format!("{}ms", time.as_millis());
        command.arg("ping").args(&self.targets).arg("--json");
        command.args(["--interval", &ms(self.interval), "--timeout", &ms(self.timeout)]);
        if let Some(count) = self.count {
            command.args(["--count", &count.to_string()]);
        }
        command.stdout(File::create(&output).expect("our directory is writable"));
        self.socket.permit(&self.node.namespace, &mut command);
        Running { process: Process::start(&mut command, directory), output }
    }

    /// Runs the command to its end. Returns its exit code and its objects.
    pub fn run(&self) -> (Option<i32>, Vec<Value>) {
        self.start().end()
    }

    /// Runs it until `is_done`, then stops it by a signal. Returns its objects.
    pub fn run_until(&self, mut is_done: impl FnMut(&Running) -> Result<(), String>) -> Vec<Value> {
        let running = self.start();
        until("all is reported", || is_done(&running));
        running.process.signal(libc::SIGINT);
        running.end().1
    }
}

impl Running {
    /// Returns the objects so far.
    pub fn objects(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.output).expect("our file");
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    }

    fn end(mut self) -> (Option<i32>, Vec<Value>) {
        let code = self.process.end().code();
        assert!(matches!(code, Some(0 | 1)), "{code:?}: {}", self.process.log());
        (code, self.objects())
    }
}

/// An answer within the timeout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    pub nanos: u64,
    pub by_kernel: bool,
}

/// The events of one target's probes, by the numbers of the probes.
#[derive(Debug, Default)]
pub struct Printed {
    pub answers: BTreeMap<u64, Answer>,
    /// The answers that arrived after the answer to a later probe.
    pub reordered: BTreeSet<u64>,
    pub lost: Vec<u64>,
    pub late: Vec<u64>,
    pub duplicate: Vec<u64>,
    pub summary: Value,
}

impl Printed {
    /// The events of `target`. Any other event fails the test.
    pub fn of(objects: &[Value], target: &str) -> Self {
        let mut printed = Self::default();
        for object in objects.iter().filter(|object| object["target"] == target) {
            let Some(sequence) = object["sequence"].as_u64() else {
                assert!(object["sent"].is_u64() && printed.summary.is_null(), "{object}");
                printed.summary = object.clone();
                continue;
            };
            match object["event"].as_str() {
                None => printed.answer(sequence, object),
                Some("lost") => printed.lost.push(sequence),
                Some("late") => printed.late.push(sequence),
                Some("duplicate") => printed.duplicate.push(sequence),
                Some(_) => panic!("{object}"),
            }
        }
        for sequences in [&mut printed.lost, &mut printed.late, &mut printed.duplicate] {
            sequences.sort_unstable();
        }
        printed
    }

    fn answer(&mut self, sequence: u64, object: &Value) {
        let seconds = object["rtt_seconds"].as_f64().unwrap_or_else(|| panic!("{object}"));
        let nanos = Duration::from_secs_f64(seconds).as_nanos();
        let nanos = u64::try_from(nanos).expect("a short time");
        let answer = Answer { nanos, by_kernel: object["stamp"] == "kernel" };
        assert_eq!(self.answers.insert(sequence, answer), None, "two answers: {object}");
        if object["reordered"] == true {
            self.reordered.insert(sequence);
        }
    }

    /// How many probes below `end` are decided: answered or lost.
    pub fn decided_below(&self, end: u64) -> u64 {
        let lost = self.lost.iter().filter(|number| **number < end).count();
        (self.answers.range(..end).count() + lost) as u64
    }

    /// How many replies to probes below `end` are reported.
    pub fn replies_below(&self, end: u64) -> usize {
        let further = self.late.iter().chain(&self.duplicate).filter(|number| **number < end).count();
        self.answers.range(..end).count() + further
    }

    /// Returns a count of the summary.
    pub fn count(&self, field: &str) -> u64 {
        self.summary[field].as_u64().unwrap_or_else(|| panic!("{field}: {}", self.summary))
    }
}
