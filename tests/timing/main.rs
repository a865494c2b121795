//! Tests that measure time: how quickly the agent stops, and what it completes before that.
//!
//! `cargo test --test timing -- --test-threads=1` on an idle machine. These limits are the agent's
//! own, so a machine that delays an agent for half a second breaks them. A plain `cargo test`
//! leaves this target out.
#![allow(dead_code, reason = "the helpers are those of tests/agent, which uses more of them")]

#[path = "../agent/agent.rs"]
mod agent;
#[path = "../common/mod.rs"]
mod common;
#[path = "../http_support/mod.rs"]
mod http_support;
#[path = "../common/icmp.rs"]
mod icmp;
#[path = "../agent/scrapes.rs"]
mod scrapes;
#[path = "../common/shim.rs"]
mod shim;

use std::io::{BufReader, Read};
use std::net::TcpStream;

use agent::{Agent, command, peers_file};
use common::exposition;
use common::scrape::{Metrics, is_zero, same};
use common::until::until_so;
use http_support::receive;
use kube_canary::limits::REQUEST_HEAD_TIME;
use scrapes::begun_scrape;
use shim::PLAIN;

#[test]
fn a_signal_ends_the_agent_without_waiting_for_connections() {
    scrapes::signals_end_it_within(REQUEST_HEAD_TIME);
}

/// Bytes of the scrape that are left to read at the signal. They are more than both sockets hold,
/// so that the sums of the zones, at its end, are not rendered yet. They are few enough to be read
/// in the half second that the agent then has.
const LEFT_BYTES: usize = 180_000;

#[test]
fn a_scrape_in_progress_is_completed_and_counts_every_answer() {
    let file = peers_file(200);
    let flags = ["--interval", "100ms", "--max-peers", "0", "--max-series", "10000000", "--link-series", "full"];
    let mut agent = Agent::of(command(PLAIN, &flags).arg("--peers-file").arg(&file));
    until_so("all have answered", || {
        let metrics = agent.metrics();
        metrics.0.iter().filter(|s| s.name == "kube_canary_probes_received_total" && s.value >= 3.0).count() == 200
    });
    let length = agent.get("/metrics").body.len();
    assert!(length > LEFT_BYTES, "{length} bytes are too few for this test");
    let (begin, mut rest) = begun_scrape(&agent, 16_384);
    let mut read = begin.to_vec();
    read.resize(length - LEFT_BYTES, 0);
    rest.read_exact(&mut read[begin.len()..]).expect("the scrape goes on");
    agent.process.signal(libc::SIGTERM);
    agent.process.wait_for_log("stopping");
    // The agent waits for probes in flight before that.
    until_so("it takes no more requests", || TcpStream::connect(agent.http).is_err());
    let response = receive(&mut BufReader::new((&read[..]).chain(rest)), false).expect("the whole scrape");
    assert_eq!(agent.process.end().code(), Some(0), "{}", agent.process.log());
    let metrics = exposition::parse(&response.body).map(Metrics).expect("well-formed");
    let sum = |name: &str| metrics.value(name, &[]).unwrap_or(0.0);
    let [sent, received, lost] =
        ["zone_probes_sent_total", "zone_probes_received_total", "zone_probes_lost_total"].map(sum);
    assert!(sent >= 600.0 && is_zero(lost) && same(sent, received), "{sent} sent, {received} received, {lost} lost");
    assert!(is_zero(sum("probe_send_errors_total") + sum("probes_terminating_total")));
}
