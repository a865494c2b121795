//! `kube-canary demo`: a mesh of real agents on one machine, and a live table of their
//! measurements.
//!
//! Every agent is a separate process with its own address (127.0.0.2 and up). All use the same
//! port, as in a cluster. The table shows figures of their reports.

pub mod namespace;
mod table;

use std::io::{self, IsTerminal};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::allocator;
use crate::config::DemoSettings;
use crate::http::client;
use crate::report;
use crate::sys::console;
use crate::sys::stop::Stop;
use table::AgentSummary;

/// The interval at which the table is redrawn.
const REFRESH: Duration = Duration::from_secs(1);
/// The interval at which a table is printed if the output is no terminal.
const REPRINT: Duration = Duration::from_secs(5);
/// How long an agent may take to answer, and to stop.
const AGENT_TIME: Duration = Duration::from_millis(900);
/// How long the mesh may take to start.
const START: Duration = Duration::from_secs(8);

/// The reason why there is no demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// ICMP is not permitted, and no namespace that permits it can be created.
    #[error(
        "cannot ping: no ICMP socket is permitted, and a user namespace of our own is refused ({0}): either run \
         sysctl -w net.ipv4.ping_group_range=\"0 2147483647\", or run as root"
    )]
    NoPing(io::Error),
    /// An agent could not be started.
    #[error("cannot start an agent: {0}")]
    Start(io::Error),
    /// An agent stopped by itself. It has printed the reason on standard error.
    #[error("{node} stopped: {status}; is port {port} taken? --port chooses another")]
    Stopped {
        /// The name of its node.
        node: String,
        /// The exit status of its process.
        status: std::process::ExitStatus,
        /// The port that the agents use.
        port: u16,
    },
    /// No agent answered in time.
    #[error("the agents did not answer within {} s", START.as_secs())]
    Silent,
    /// Standard output failed.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// The demo could not create its own resources.
    #[error("cannot set up the demo: {0}")]
    Setup(io::Error),
}

struct Agent {
    node: String,
    address: Ipv4Addr,
    process: Child,
}

/// The processes of a mesh. They are ended on drop.
struct Mesh(Vec<Agent>);

/// Runs the demo until a signal arrives or its time is over.
///
/// # Errors
/// [`DemoError`].
// This is separate from the agent's own code, which stays resident. If it were inlined, it would
// stay resident, too.
#[inline(never)]
pub fn run(settings: &DemoSettings) -> Result<(), DemoError> {
    // This must precede any thread: a process with threads may not enter a user namespace.
    if !namespace::can_ping() {
        namespace::enter().map_err(DemoError::NoPing)?;
        let note = "ICMP is not permitted here, so the demo runs in a user and network namespace of its own:\n\
                    the agents' HTTP is reachable inside it only.\n\n";
        if !console::print(note).map_err(DemoError::Output)? {
            return Ok(());
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DemoError::Setup)?;
    let done = runtime.block_on(watch(settings));
    runtime.shutdown_background();
    done
}

async fn watch(settings: &DemoSettings) -> Result<(), DemoError> {
    let mut stop = Stop::new().map_err(DemoError::Setup)?;
    allocator::mark_baseline();
    let mut mesh = Mesh::start(settings)?;
    let shown = async {
        let started = Instant::now();
        let mut printed: Option<Instant> = None;
        let mut lines = 0;
        loop {
            mesh.check(settings.port)?;
            let agents = mesh.summaries(settings.port).await;
            // The first table waits until every agent has a result for every peer, or is overdue.
            let complete = agents.iter().all(|agent| agent.is_complete);
            if !agents.iter().any(|agent| agent.has_answered) && started.elapsed() > START {
                return Err(DemoError::Silent);
            }
            let terminal = io::stdout().is_terminal();
            let due = printed.is_none_or(|at| terminal || at.elapsed() >= REPRINT);
            if due && (complete || printed.is_some() || started.elapsed() > START) {
                match show(&table::render(&agents, address(0), settings), terminal.then_some(lines))? {
                    Some(shown) => lines = shown,
                    None => return Ok(()),
                }
                printed = Some(Instant::now());
            }
            let pause = if printed.is_some() { REFRESH } else { REFRESH / 10 };
            tokio::time::sleep(pause).await;
        }
    };
    let over = async {
        match settings.seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        error = shown => error,
        () = stop.asked() => Ok(()),
        () = over => Ok(()),
    }
}

/// Prints the table. If the last table had `over` lines, the new one replaces it. Returns
/// the number of lines. None if the output has no reader any more, which ends the demo.
fn show(table: &str, over: Option<usize>) -> Result<Option<usize>, DemoError> {
    let back = over.filter(|lines| *lines > 0).map(|lines| format!("\x1b[{lines}A\x1b[J")).unwrap_or_default();
    let is_read = console::print(back + table).map_err(DemoError::Output)?;
    Ok(is_read.then(|| table.lines().count()))
}

/// Returns the address of an agent, by its index.
const fn address(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, index + 2)
}

impl Mesh {
    fn start(settings: &DemoSettings) -> Result<Self, DemoError> {
        let program = std::env::current_exe().map_err(DemoError::Setup)?;
        let nodes: Vec<(String, Ipv4Addr)> =
            (0..settings.nodes).map(|index| (format!("node{}", index + 1), address(index))).collect();
        let mut mesh = Self(Vec::with_capacity(nodes.len()));
        for (index, (node, address)) in nodes.iter().enumerate() {
            let mut command = Command::new(&program);
            command.arg("run").args(["--discovery", "static", "--log-level", "warn", "--node-name", node]);
            command.args(["--zone", zone(index), "--listen", &format!("{address}:{}", settings.port)]);
            // All peers are in one table, so their number is not limited.
            command.args(["--interval", &format!("{}us", settings.interval.as_micros()), "--max-peers", "0"]);
            for (other, (name, peer)) in nodes.iter().enumerate().filter(|(other, _)| *other != index) {
                command.args(["--peer", &format!("{name}={peer}@{}", zone(other))]);
            }
            // The environment of this shell is meant for a real agent, not for the demo's mesh.
            for (variable, _) in std::env::vars_os() {
                if variable.to_string_lossy().starts_with("KUBE_CANARY_") {
                    command.env_remove(variable);
                }
            }
            end_with_parent(&mut command);
            let process = command.spawn().map_err(DemoError::Start)?;
            mesh.0.push(Agent { node: node.clone(), address: *address, process });
        }
        Ok(mesh)
    }

    fn check(&mut self, port: u16) -> Result<(), DemoError> {
        for agent in &mut self.0 {
            if let Ok(Some(status)) = agent.process.try_wait() {
                return Err(DemoError::Stopped { node: agent.node.clone(), status, port });
            }
        }
        Ok(())
    }

    async fn summaries(&self, port: u16) -> Vec<AgentSummary> {
        let mut summaries = Vec::with_capacity(self.0.len());
        for Agent { node, address, .. } in &self.0 {
            let answer = client::get((*address, port).into(), report::PATH, 1 << 20, AGENT_TIME).await.ok();
            let report = answer.as_deref().and_then(|text| serde_json::from_slice(text).ok());
            summaries.push(AgentSummary::new(node, *address, report.as_ref(), self.0.len() - 1));
        }
        summaries
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        for agent in &mut self.0 {
            // The number of a process that was waited for may belong to another one.
            if matches!(agent.process.try_wait(), Ok(None)) {
                let _ = kill_process(Pid::from_child(&agent.process), Signal::TERM);
            }
        }
        let deadline = Instant::now() + AGENT_TIME;
        for agent in &mut self.0 {
            while matches!(agent.process.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            // The process has ended, or does not end by itself. Either way it is removed here.
            let _ = agent.process.kill();
            let _ = agent.process.wait();
        }
    }
}

fn zone(index: usize) -> &'static str {
    if index.is_multiple_of(2) { "zone-a" } else { "zone-b" }
}

/// Makes the kernel end the child when this process ends for any reason.
#[expect(unsafe_code, reason = "prctl(2) between fork and exec")]
fn end_with_parent(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe and the closure touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
}
