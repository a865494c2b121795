//! An agent in a namespace: the real one, or the reference.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::client::{Answer, scrape};
use crate::common::process::{Process, replace, unique};
use crate::common::until::until;
use crate::namespace::{DIRECTORY, Namespace};
use crate::tools;

/// The implementation of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// This project's agent.
    Agent,
    /// Prometheus' own client library, in `tests/exposition/tools/reference`.
    Reference,
}

/// An agent process, which ends when this is dropped.
pub struct Agent<'a> {
    namespace: &'a Namespace,
    pub http: SocketAddr,
    pub process: Process,
}

impl<'a> Agent<'a> {
    /// Starts an agent with discovery from `peers`, on 127.0.0.1. Returns once it sends probes.
    pub fn start(
        maker: Maker,
        namespace: &'a Namespace,
        (name, port): (&str, u16),
        peers: &Path,
        flags: &[&str],
    ) -> Self {
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut command = namespace.command(match maker {
            Maker::Agent => Path::new(env!("CARGO_BIN_EXE_kube-canary")),
            Maker::Reference => tools::path("reference"),
        });
        command.args(["run", "--discovery", "static", "--node-name", name, "--listen", &http.to_string()]);
        // The reference pings, and some peers are no agents.
        command.arg("--peers-file").arg(peers).args(["--probes", "icmp", "--link-series", "full"]).args(flags);
        // The series of a judge come and go with its verdicts.
        command.env("KUBE_CANARY_JUDGE", "never");
        let mut process = Process::start(&mut command, Path::new(DIRECTORY));
        process.wait_for_log("IPv4 SOCK_");
        Self { namespace, http, process }
    }

    /// Returns one scrape, as soon as the agent answers.
    pub fn scrape(&self, headers: impl AsRef<[u8]>) -> Answer {
        let headers = headers.as_ref();
        until("it is scraped", || {
            self.namespace.within(|| scrape(self.http, headers)).map_err(|error| error.to_string())
        })
    }
}

/// A peers file, which is rewritten while agents run.
pub struct Peers(pub PathBuf);

impl Peers {
    pub fn new() -> Self {
        let path = unique(Path::new(DIRECTORY), "peers");
        fs::write(&path, "").expect("our own directory is writable");
        Self(path)
    }

    /// Writes the name, address and zone of each peer.
    pub fn write(&self, peers: impl IntoIterator<Item = (String, Ipv4Addr, String)>) {
        let mut lines = String::new();
        for (name, address, zone) in peers {
            let _ = writeln!(lines, "{name}={address}@{zone}");
        }
        replace(&self.0, &lines);
    }
}
