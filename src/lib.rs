//! KubeCanary: the nodes of a cluster ping each other and export latency and loss to Prometheus, at a fixed cost.
//!
//! ```text
//! discovery ─► peers ─► prober ─► statistics ─► exposition ─► mesh
//!  (who)      (slots)  (send/recv)  (per slot)   (/metrics, /api) (/, /api/v1/mesh: everybody's rows)
//! ```
//!
//! Data flows from left to right, and a stage knows its left neighbours only; `tests/direction.rs` holds them to it.
//! This file, [`agent`] and [`ping`] alone wire them. Beside the stages:
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | the command line and its environment, resolved and validated |
//! | [`mesh`] | all canaries' rows together, and what they say of nodes and links |
//! | [`http`] | the fixed-size worker pool that serves what exposition renders, and a small client |
//! | [`allocator`], [`shim`] | which malloc runs, who asks it, and the C boundary that lets the final link decide |
//! | [`settle`] | gives back what is not needed of the program file and its libraries |
//! | [`relro`] | seals the constants that the start has relocated |
//! | [`demo`] | a mesh of canaries on one machine |
//! | [`fleet`], [`doctor`] | ask canaries what they cost and measure, and what is wrong |
//! | [`footprint`] | what memory is for, of this process and of others |
//! | [`ping`] | the prober alone, for people and for tests |
//! | [`stop`], [`console`] | the signals that end all of these, and the output that they share |
//! | [`profiling`] | the heap profile, where it is asked for |
//! | [`logging`] | what the program says of itself |
//! | [`files`] | the operator's files, which are read again when they change |
//! | [`descriptors`] | how many files and sockets the process may have open |
//! | [`priority`] | who gets a processor first |
//! | [`region`] | memory that is planned once, touched as it is used, and given back |
//! | [`limits`], [`units`], [`clock`], [`proc`] | every bound with its reason, the units all share, the kernel's files |

pub mod agent;
pub mod allocator;
pub mod clock;
pub mod config;
pub mod console;
pub mod demo;
pub mod descriptors;
pub mod discovery;
pub mod doctor;
pub mod exposition;
pub mod files;
pub mod fleet;
pub mod footprint;
pub mod http;
pub mod limits;
pub mod logging;
pub mod mesh;
pub mod peers;
pub mod ping;
pub mod priority;
pub mod prober;
pub mod proc;
pub mod profiling;
pub mod region;
pub mod relro;
pub mod settle;
pub mod shim;
pub mod statistics;
pub mod stop;
pub mod units;

use std::ffi::OsString;

use config::Command;
use exposition::REVISION;

/// A failure at run time: exit code 1.
const FAILURE: i32 = 1;
/// A mistake on the command line or in the environment: exit code 2.
const USAGE: i32 = 2;

/// The whole program: takes the arguments, the program's name first, and gives the exit code.
pub fn main_from(arguments: Vec<OsString>) -> i32 {
    relro::seal();
    allocator::keep_small();
    let code = run(arguments);
    // Whatever ran is torn down by now, in order: its parts end before what they stand on.
    allocator::report_leaks();
    code
}

fn run(arguments: Vec<OsString>) -> i32 {
    let arguments = arguments.into_iter().skip(1).collect();
    let done = match config::parse(arguments, &|name| std::env::var(name).ok()) {
        Ok(Command::Help(text)) => print(&text),
        Ok(Command::Version { json }) => print(&version(json)),
        Ok(Command::Run(settings)) => agent::run(&settings).map_err(|error| error.to_string()),
        Ok(Command::Ping(settings)) => match ping::run(&settings) {
            Ok(true) => Ok(()),
            // Who did not answer stands in the summary.
            Ok(false) => return FAILURE,
            Err(error) => Err(error.to_string()),
        },
        Ok(Command::Fleet(settings)) => fleet::run(&settings).map_err(|error| error.to_string()),
        Ok(Command::Doctor(settings)) => {
            // What is wrong has been printed.
            return doctor::run(&settings).map_or_else(
                |error| {
                    eprintln!("kube-canary: {error}");
                    doctor::Outcome::Unknown.exit_code()
                },
                doctor::Outcome::exit_code,
            );
        }
        Ok(Command::Footprint(settings)) => footprint::run(&settings).map_err(|error| error.to_string()),
        Ok(Command::Demo(settings)) => demo::run(&settings).map_err(|error| error.to_string()),
        Err(error) => {
            eprintln!("kube-canary: {error}");
            return USAGE;
        }
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("kube-canary: {error}");
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
        return serde_json::to_string(&build).map_or_else(|error| format!("{error}\n"), |text| text + "\n");
    }
    let narenas = info.narenas.map(|n| format!(", narenas {n}")).unwrap_or_default();
    format!(
        "kube-canary {} (revision {REVISION}; allocator {} {}{narenas}; libc {}; linkage {})\n",
        build.version, info.allocator, info.version, info.libc, info.linkage
    )
}
