//! A real agent, whose only peer is 127.0.0.1. Its reflector answers that address alone.

use std::process::Command;

use crate::agent::Agent;
use crate::shim::PLAIN;

/// The port of its reflector, and of the reflectors that it asks.
pub const PORT: u16 = 8620;

/// Starts an agent at `address`, an address of loopback that no other test has, which probes `peer`
/// by UDP. Its turns are as frequent as those of an agent with many peers.
pub fn agent(address: &str, peer: &str) -> Agent {
    let mut command = Command::new(PLAIN);
    command.args(["run", "--discovery", "static", "--node-name", "tested", "--probes", "udp", "--interval", "100ms"]);
    command.args(["--listen", &format!("{address}:0"), "--pod-addresses", address, "--peer", &format!("other={peer}")]);
    command.args(["--udp-port", &PORT.to_string(), "--timeout", "6s"]);
    let agent = Agent::of(&mut command);
    // The list of peers, which are the members that it answers, is there before it is ready.
    crate::common::until::until("it has its list", || {
        let status = agent.get("/readyz").status;
        if status == 200 { Ok(()) } else { Err(status.to_string()) }
    });
    agent
}
