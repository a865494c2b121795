//! A `kube-canary run` process of the tests.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::process::{Process, unique};
use crate::common::scrape::{Metrics, fetch};
use crate::common::until::until;
use crate::http_support::Response;
use crate::shim::PLAIN;

/// The two peers of the README, which answer on loopback.
pub const PEERS: [&str; 4] = ["--peer", "a=127.0.0.2", "--peer", "b=127.0.0.3@z2"];

/// The directory for the files of the tests.
pub fn directory() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// `run` with static discovery, on a free port of loopback. Its peers are no agents: only the
/// kernel answers, and only ICMP.
pub fn command(program: impl AsRef<Path>, flags: &[&str]) -> Command {
    command_by("icmp", program, flags)
}

/// The same with other probes.
fn command_by(probes: &str, program: impl AsRef<Path>, flags: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    command.args(["run", "--discovery", "static", "--listen", "127.0.0.1:0", "--node-name", "tested"]);
    command.args(["--probes", probes]).args(flags);
    command
}

pub struct Agent {
    pub process: Process,
    pub http: SocketAddr,
}

impl Agent {
    pub fn start(flags: &[&str]) -> Self {
        Self::of(&mut command(PLAIN, flags))
    }

    /// Starts an agent with a short interval and all its series, and waits until all its peers have
    /// answered.
    pub fn measured() -> Self {
        // A judge, as it would be after twenty seconds, has more series.
        let flags =
            [&PEERS[..], &["--interval", "50ms", "--timeout", "3s", "--judge", "never"], &["--link-series", "full"]]
                .concat();
        let agent = Self::of(&mut command_by("icmp,udp,tcp", PLAIN, &flags));
        agent.wait_for_answers(&["a", "b"]);
        agent
    }

    /// Starts the command, and waits until its HTTP server answers.
    pub fn of(command: &mut Command) -> Self {
        let mut process = Process::start(command, directory());
        let http = until("it says where its HTTP is", || {
            let log = process.log();
            assert!(!process.has_ended(), "it ended: {log}");
            let address = log.lines().find_map(|line| line.split_once("; HTTP on ")?.1.trim().parse().ok());
            address.ok_or(log)
        });
        let agent = Self { process, http };
        until("it answers", || fetch(http, "/healthz", "").map_err(|error| error.to_string()));
        agent
    }

    pub fn get(&self, path: &str) -> Response {
        fetch(self.http, path, "").unwrap_or_else(|error| panic!("{path}: {error}: {}", self.process.log()))
    }

    pub fn json(&self, path: &str) -> serde_json::Value {
        let response = self.get(path);
        assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")), "{path}");
        serde_json::from_str(&response.body).unwrap_or_else(|error| panic!("{path}: {error}: {}", response.body))
    }

    pub fn metrics(&self) -> Metrics {
        until("a scrape", || Metrics::of(self.http))
    }

    /// Waits until each of these peers has answered once.
    pub fn wait_for_answers(&self, peers: &[&str]) {
        until("an answer of every peer", || {
            let metrics = self.metrics();
            let silent = peers.iter().find(|peer| metrics.link(peer, "icmp").received < 1.0);
            silent.map_or(Ok(()), |peer| Err(format!("none of {peer}")))
        });
    }
}

/// Writes a peers file with `count` peers on loopback, and returns its path.
pub fn peers_file(count: u32) -> PathBuf {
    let path = unique(directory(), "peers");
    let lines = (0..count).fold(String::new(), |mut lines, index| {
        let _ = writeln!(lines, "node-{index:05}=127.1.{}.{}", index / 250, index % 250 + 1);
        lines
    });
    fs::write(&path, lines).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

/// Starts an agent that hardly ever probes, and whose scrape is larger than the kernel's
/// buffers for a client.
pub fn talkative(program: impl AsRef<Path>) -> Agent {
    let file = peers_file(600);
    let flags = ["--interval", "300s", "--max-peers", "0", "--max-series", "10000000", "--link-series", "full"];
    let agent = Agent::of(command(program, &flags).arg("--peers-file").arg(&file));
    until("a scrape of all peers", || {
        let length = agent.get("/metrics").body.len();
        if length > 1 << 20 { Ok(()) } else { Err(format!("{length} bytes")) }
    });
    agent
}
