//! KubeCanary: the nodes of a cluster ping each other and export latency and loss to Prometheus, at
//! a fixed cost.
//!
//! ```text
//! discovery ─► peers ─► prober ─► statistics ─► exposition ─► mesh
//! (members)   (slots)  (send/recv)  (per slot)   (/metrics, /api) (/, /api/v1/verdicts)
//! ```
//!
//! Data flows from left to right, and a stage depends only on the stages to its left.
//! `tests/direction.rs` enforces this. Only this file, [`agent`] and [`commands`] connect the
//! stages. The other modules are:
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | the command line and its environment, resolved and validated |
//! | [`checks`] | attempts to use what pods depend on: the DNS, the API server, Services, targets outside |
//! | [`mesh`] | the reports of all agents, and the verdicts on nodes and links |
//! | [`http`] | the fixed-size worker pool that serves what exposition renders, and a small client |
//! | [`allocator`], [`shim`] | finds out which malloc runs; the C boundary that lets the final link decide |
//! | [`commands`] | what the agent does not import: `doctor`, `act`, `fleet`, `ping`, `demo` and `footprint` |
//! | [`memory`] | the purpose of memory, of this process and of others |
//! | [`report`] | what an agent reports of itself and its peers, as it is written and read |
//! | [`profiling`] | the heap profile, if it is requested |
//! | [`logging`] | the log of the program |
//! | [`sys`] | what the operating system provides: clocks, files, memory, signals, priorities |
//! | [`check`] | the kinds, phases and failures of checks, as flags, series and reports name them |
//! | [`method`], [`send_error`] | how a link is probed, and why a probe could not be sent |
//! | [`limits`], [`units`] | every bound with its reason, the shared units |

// They panic if the output has no reader or no room: sys::console writes instead.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub use kube_canary_model::{check, method, report, send_error, units, verdict};

pub mod agent;
pub mod allocator;
pub mod checks;
pub mod commands;
pub mod config;
pub mod discovery;
pub mod exposition;
pub mod http;
pub mod limits;
pub mod logging;
pub mod memory;
pub mod mesh;
pub mod peers;
pub mod prober;
pub mod profiling;
pub mod shim;
pub mod statistics;
pub mod sys;

#[cfg(test)]
#[path = "../tests/common/splitmix.rs"]
mod splitmix;

use std::ffi::OsString;

use kube_canary_kernel::relro;

use commands::{act, demo, doctor, fleet, footprint, ping};
use config::Command;
use exposition::REVISION;
use sys::console;

/// Exit code 1: a failure at run time.
const FAILURE: i32 = 1;
/// Exit code 2: a mistake on the command line or in the environment.
const USAGE: i32 = 2;

/// Runs the whole program. `arguments` begin with the program's name. Returns the exit code.
// The body of a running agent is inlined here, and the order of functions places it by this name.
// In `kube_canary_main`, the only caller in some builds, it would lie among what never runs.
#[inline(never)]
pub fn main_from(arguments: Vec<OsString>) -> i32 {
    relro::seal();
    allocator::keep_small();
    let code = run(arguments);
    // The command has dropped everything by now, each part before the parts that it depends on.
    allocator::report_leaks();
    code
}

fn run(arguments: Vec<OsString>) -> i32 {
    let arguments: Vec<OsString> = arguments.into_iter().skip(1).collect();
    let done = match config::parse(&arguments, &|name| {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }) {
        Ok(Command::Print(text)) => print(&text),
        Ok(Command::Version { json }) => print(&version(json)),
        Ok(Command::Run(settings)) => agent::run(&settings).map_err(|error| error.to_string()),
        Ok(Command::Ping(settings)) => match ping::run(&settings) {
            Ok(true) => Ok(()),
            // The summary has named the targets that did not answer.
            Ok(false) => return FAILURE,
            Err(error) => Err(error.to_string()),
        },
        Ok(Command::Fleet(settings)) => fleet::run(&settings).map_err(|error| error.to_string()),
        Ok(Command::Doctor(settings)) => {
            // The faults have been printed.
            return doctor::run(&settings).map_or_else(
                |error| {
                    console::print_error(&error);
                    doctor::Conclusion::Unknown.exit_code()
                },
                doctor::Conclusion::exit_code,
            );
        }
        Ok(Command::Act(settings)) => act::run(&settings).map_err(|error| error.to_string()),
        Ok(Command::Footprint(settings)) => footprint::run(&settings).map_err(|error| error.to_string()),
        Ok(Command::Demo(settings)) => demo::run(&settings).map_err(|error| error.to_string()),
        Err(error) => {
            console::print_error(&error);
            return USAGE;
        }
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            console::print_error(&error);
            FAILURE
        }
    }
}

fn print(text: &str) -> Result<(), String> {
    console::print(text).map(drop).map_err(|error| format!("writing to standard output: {error}"))
}

fn version(json: bool) -> String {
    #[derive(serde::Serialize)]
    struct Build<'a> {
        version: &'static str,
        revision: &'static str,
        #[serde(flatten)]
        allocator: &'a allocator::AllocatorInfo,
    }
    let info = allocator::info();
    let build = Build { version: env!("CARGO_PKG_VERSION"), revision: REVISION, allocator: &info };
    if json {
        return console::json_line(&build);
    }
    let narenas = info.narenas.map(|n| format!(", narenas {n}")).unwrap_or_default();
    format!(
        "kube-canary {} (revision {REVISION}; allocator {} {}{narenas}; libc {}; linkage {})\n",
        build.version, info.allocator, info.version, info.libc, info.linkage
    )
}
