//! `kube-canary demo`: a mesh of real agents on one machine, and a live table of their
//! measurements.
//!
//! Every agent is a separate process with its own address (127.0.0.2 and up). All use the same
//! port, as in a cluster. The table shows figures of their reports, and the verdict that follows
//! from these.
//!
//! | | agents | needs |
//! |---|---|---|
//! | plain | on loopback | ICMP sockets |
//! | plain, where ICMP is not permitted | on loopback in a network namespace ([`namespace`]) | user namespaces |
//! | with `--fault` | each in a network namespace, behind a [`switch`] | user namespaces, `/dev/net/tun` |
//!
//! In the latter two, a [`relay`] makes the agents reachable at the addresses of the first. Plain
//! demos do not use the switch, though one way would be simpler than three. They work in a
//! container that permits no namespaces, and their round-trip times are those of the kernel alone.

pub mod namespace;
mod relay;
mod switch;
mod table;

use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube_canary_kernel::{process, tun};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::Semaphore;

use crate::allocator;
use crate::config::DemoSettings;
use crate::http::client;
use crate::mesh::matrix::Matrix;
use crate::mesh::verdicts;
use crate::report::{self, Report};
use crate::sys::stop::Stop;
use crate::sys::{clock, console};
use namespace::NetworkNamespace;
use switch::{Port, Switch};
use table::AgentSummary;

/// The interval at which the table is redrawn.
const REFRESH: Duration = Duration::from_secs(1);
/// The interval at which a table is printed if the output is no terminal.
const REPRINT: Duration = Duration::from_secs(5);
/// How long an agent may take to answer, and to stop.
const AGENT_TIME: Duration = Duration::from_millis(900);
/// How long the first table waits for results of every agent.
const START: Duration = Duration::from_secs(8);
/// How long no agent at all may answer.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes of an agent's report: 49 peers, of some 1,800 bytes by three protocols.
const REPORT_BYTES_MAX: usize = 1 << 20;

/// The reason why there is no demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// ICMP is not permitted, and no namespace that permits it can be created.
    #[error(
        "cannot ping: no ICMP socket is permitted, and a user namespace of our own is refused ({0}): either run \
         sysctl -w net.ipv4.ping_group_range=\"0 2147483647\", or run as root"
    )]
    NoPing(io::Error),
    /// Agents in network namespaces of their own are not possible.
    #[error(
        "--fault needs user namespaces, which are refused ({0}): run as root, or permit them by \
         sysctl -w user.max_user_namespaces=10000, and on Ubuntu by sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    )]
    NoNetwork(io::Error),
    /// Network interfaces for the agents are not possible.
    #[error(
        "--fault needs {path}, which cannot be used ({0}): load it by modprobe tun, or give it to the container by \
         --device {path}",
        path = tun::PATH
    )]
    NoTun(io::Error),
    /// An address outside of the demo's namespaces cannot be used.
    #[error("cannot listen on {0}: {1}; --port chooses another port")]
    Listen(SocketAddr, io::Error),
    /// Another program, such as a running demo, has the address of an agent.
    #[error("{0} is in use, perhaps by another demo: end that, or choose another port by --port")]
    Taken(SocketAddr),
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
    #[error("no agent has answered for {} s", SILENCE.as_secs())]
    Silent,
    /// Standard output failed.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// The demo could not create its own resources.
    #[error("cannot set up the demo: {0}")]
    Setup(io::Error),
}

struct DemoAgent {
    node: String,
    /// The address at which the agent is reachable from outside.
    address: Ipv4Addr,
    /// The address of its HTTP server, which the demo itself asks.
    http: SocketAddr,
    process: Child,
}

/// The processes of a mesh, and what connects them. The processes are ended on drop.
struct DemoMesh {
    agents: Vec<DemoAgent>,
    /// The sockets that accept connections to the agents from outside, in the agents' order. Empty
    /// if the agents' own sockets do.
    listeners: Vec<TcpListener>,
    /// The network between the agents, unless it is loopback.
    switch: Option<Switch>,
}

/// Runs the demo until a signal arrives or its time is over.
///
/// # Errors
/// [`DemoError`].
// This is separate from the agent's own code, which stays resident. If it were inlined, it would
// stay resident, too.
#[inline(never)]
pub fn run(settings: &DemoSettings) -> Result<(), DemoError> {
    // This must precede any thread: a process with threads may not enter a user namespace.
    let mesh = DemoMesh::start(settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DemoError::Setup)?;
    let done = runtime.block_on(watch(settings, mesh));
    runtime.shutdown_background();
    done
}

async fn watch(settings: &DemoSettings, mut mesh: DemoMesh) -> Result<(), DemoError> {
    let mut stop = Stop::new().map_err(DemoError::Setup)?;
    let malloc = allocator::info();
    allocator::mark_baseline();
    mesh.relay().map_err(DemoError::Setup)?;
    let shown = async {
        let started = Instant::now();
        let (mut printed, mut answered): (Option<Instant>, _) = (None, started);
        loop {
            let (agents, headline) = mesh.look().await;
            // After the look: the answers are those of our own agents if these still run.
            mesh.check(settings.port)?;
            // The first table waits until every agent has a result for every peer, or is overdue.
            let complete = agents.iter().all(|agent| agent.is_complete);
            if agents.iter().any(|agent| agent.has_answered) {
                answered = Instant::now();
            } else if answered.elapsed() > SILENCE {
                return Err(DemoError::Silent);
            }
            let terminal = io::stdout().is_terminal();
            let due = printed.is_none_or(|at| terminal || at.elapsed() >= REPRINT);
            if due && (complete || printed.is_some() || started.elapsed() > START) {
                let first = SocketAddr::from((address(0), settings.port));
                let text = console::screen(&table::render(&agents, &malloc, &headline, first));
                if !console::print_in_pieces(text).await.map_err(DemoError::Output)? {
                    return Ok(());
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

/// Returns the address at which an agent is reachable, by its index.
const fn address(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, index + 2)
}

/// Returns an address behind the switch, which must be none of loopback: verdicts take agents on
/// loopback for agents that share a namespace. These are for tests of networks (RFC 2544).
const fn switched(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, index + 2)
}

/// The demo's own address behind the switch.
const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

impl DemoMesh {
    fn start(settings: &DemoSettings) -> Result<Self, DemoError> {
        // The agents of a running demo would answer in place of those that cannot start.
        for index in 0..settings.nodes {
            let outside = SocketAddr::from((address(index), settings.port));
            match TcpListener::bind(outside) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(DemoError::Taken(outside)),
                // Any other failure is that of the agent, or of the demo.
                _ => {}
            }
        }
        let mut mesh = Self { agents: Vec::new(), listeners: Vec::new(), switch: None };
        if settings.faults.is_empty() && namespace::can_ping() {
            mesh.spawn(settings, address, |_| Ok(()))?;
            return Ok(mesh);
        }
        for index in 0..settings.nodes {
            let outside = SocketAddr::from((address(index), settings.port));
            mesh.listeners.push(TcpListener::bind(outside).map_err(|error| DemoError::Listen(outside, error))?);
        }
        if settings.faults.is_empty() {
            namespace::enter_user().and_then(|()| NetworkNamespace::enter_new()).map_err(DemoError::NoPing)?;
            mesh.spawn(settings, address, |_| Ok(()))?;
            return Ok(mesh);
        }
        namespace::enter_user().map_err(DemoError::NoNetwork)?;
        let (mut networks, mut ports) = (Vec::new(), Vec::new());
        for address in (0..settings.nodes).map(switched).chain([OWN]) {
            networks.push(NetworkNamespace::enter_new().map_err(DemoError::NoNetwork)?);
            ports.push(Port::new(address)?);
        }
        // No probe precedes the switch, so none is lost because of the start.
        mesh.switch = Some(Switch::start(ports, settings.faults.clone()).map_err(DemoError::Setup)?);
        mesh.spawn(settings, switched, |index| networks[usize::from(index)].enter())?;
        networks[usize::from(settings.nodes)].enter().map_err(DemoError::Setup)?;
        Ok(mesh)
    }

    /// Starts the agents, each at its address of `http`, after `enter` has moved this thread to
    /// where the agent belongs.
    fn spawn(
        &mut self,
        settings: &DemoSettings,
        http: fn(u8) -> Ipv4Addr,
        enter: impl Fn(u8) -> io::Result<()>,
    ) -> Result<(), DemoError> {
        let program = std::env::current_exe().map_err(DemoError::Setup)?;
        for index in 0..settings.nodes {
            enter(index).map_err(DemoError::Setup)?;
            let (node, http_address) = (DemoSettings::node_name(index), SocketAddr::from((http(index), settings.port)));
            let mut command = Command::new(&program);
            command.arg("run").args(["--discovery", "static", "--log-level", "warn", "--node-name", &node]);
            command.args(["--zone", zone(index), "--listen", &http_address.to_string()]);
            // All peers are in one table, so their number is not limited.
            command.args(["--interval", &format!("{}us", settings.interval.as_micros()), "--max-peers", "0"]);
            for other in (0..settings.nodes).filter(|other| *other != index) {
                let peer = format!("{}={}@{}", DemoSettings::node_name(other), http(other), zone(other));
                command.args(["--peer", &peer]);
            }
            // The environment of this shell is meant for a real agent, not for the demo's mesh.
            for (variable, _) in std::env::vars_os() {
                if variable.to_string_lossy().starts_with("KUBE_CANARY_") {
                    command.env_remove(variable);
                }
            }
            process::end_with_parent(&mut command);
            let process = command.spawn().map_err(DemoError::Start)?;
            self.agents.push(DemoAgent { node, address: address(index), http: http_address, process });
        }
        Ok(())
    }

    /// Begins to accept connections from outside. Must be called within a tokio runtime.
    fn relay(&mut self) -> io::Result<()> {
        let permits = Arc::new(Semaphore::new(relay::CONNECTIONS_MAX));
        for (listener, agent) in self.listeners.drain(..).zip(&self.agents) {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::spawn(relay::relay(listener, agent.http, Arc::clone(&permits)));
        }
        Ok(())
    }

    fn check(&mut self, port: u16) -> Result<(), DemoError> {
        for agent in &mut self.agents {
            if let Ok(Some(status)) = agent.process.try_wait() {
                return Err(DemoError::Stopped { node: agent.node.clone(), status, port });
            }
        }
        Ok(())
    }

    /// Asks all agents for their reports. Returns a summary of each, and the headline of the
    /// verdicts that follow from all.
    async fn look(&self) -> (Vec<AgentSummary>, String) {
        let (mut summaries, mut matrix) =
            (Vec::with_capacity(self.agents.len()), Matrix::new(clock::realtime().as_secs()));
        for DemoAgent { node, address, http, .. } in &self.agents {
            let answer = client::get(*http, report::PATH, REPORT_BYTES_MAX, AGENT_TIME).await.ok();
            let report: Option<Report<'_>> = answer.as_deref().and_then(|text| serde_json::from_slice(text).ok());
            summaries.push(AgentSummary::new(node, *address, report.as_ref(), self.agents.len() - 1));
            match &report {
                Some(report) => {
                    matrix.begin_row(&report.source, 0);
                    // A report of ours names each peer once.
                    for peer in &report.peers {
                        matrix.peer(peer);
                    }
                    matrix.end_row();
                }
                None => matrix.missing(node, "does not answer"),
            }
        }
        matrix.finish();
        (summaries, verdicts::judge_whole(&matrix).headline().text)
    }
}

impl Drop for DemoMesh {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            // The number of a process that was waited for may belong to another one.
            if matches!(agent.process.try_wait(), Ok(None)) {
                let _ = kill_process(Pid::from_child(&agent.process), Signal::TERM);
            }
        }
        let deadline = Instant::now() + AGENT_TIME;
        for agent in &mut self.agents {
            while matches!(agent.process.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            // The process has ended, or does not end by itself. Either way it is removed here.
            let _ = agent.process.kill();
            let _ = agent.process.wait();
        }
        // The network outlives the agents.
        drop(self.switch.take());
    }
}

fn zone(index: u8) -> &'static str {
    if index.is_multiple_of(2) { "zone-a" } else { "zone-b" }
}
