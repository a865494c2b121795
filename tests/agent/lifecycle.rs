//! Start, readiness, documents and stop of an agent.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::process::Command;

use kube_canary::limits::{DESCRIPTORS_RESERVED, RESPONSE_TIME};
use serde_json::Value;

use crate::agent::{Agent, PEERS, command, directory};
use crate::common::process::Process;
use crate::common::scrape::request;
use crate::common::until::until_so;
use crate::http_support::{connect, exchange};
use crate::scrapes::signals_end_it_within;
use crate::shim::PLAIN;

/// On any machine, the agent does not wait until the stuck scrape reaches its own timeout.
/// `tests/timing` tests a shorter limit.
#[test]
fn sigterm_and_sigint_end_the_agent_with_0_despite_open_connections() {
    signals_end_it_within(RESPONSE_TIME);
}

#[test]
fn the_agent_is_live_before_its_first_list_and_ready_after() {
    let mut run = Command::new(PLAIN);
    // RFC 6761: no server knows this name.
    run.args(["run", "--discovery", "dns", "--dns", "canary.invalid.", "--listen", "127.0.0.1:0"]);
    let agent = Agent::of(&mut run);
    let ready = agent.get("/readyz");
    assert_eq!((ready.status, ready.body.as_str()), (503, "no peer list yet\n"));
    assert_eq!(agent.get("/healthz").status, 200);
    let age = agent.metrics().value("peer_list_age_seconds", &[]);
    assert!(age.is_some_and(f64::is_infinite), "{age:?}");

    let agent = Agent::start(&PEERS);
    until_so("it is ready", || agent.get("/readyz").status == 200);
    let age = agent.metrics().value("peer_list_age_seconds", &[]);
    assert!(age.is_some_and(f64::is_finite), "{age:?}");
}

fn fields(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn the_documents_have_the_fields_of_the_contract() {
    let agent = Agent::start(&[&PEERS[..], &["--zone", "z1", "--node-addresses", "192.0.2.1,2001:db8::1"]].concat());
    agent.wait_for_answers(&["a", "b"]);

    let identity = agent.json("/api/v1/identity");
    assert!(fields(&identity).is_superset(&["node", "zone", "version", "allocator", "node_addresses"].into()));
    assert_eq!((&identity["node"], &identity["zone"]), (&"tested".into(), &"z1".into()));
    assert_eq!(identity["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(identity["node_addresses"], serde_json::json!(["192.0.2.1", "2001:db8::1"]));

    let row = agent.json("/api/v1/peers");
    let source = &row["source"];
    let echoes = ["echo_requests_received", "echo_replies_sent"];
    let about = ["version", "allocator", "narenas", "linkage", "rss_bytes", "cpus", "interval_seconds", "hour_kept"];
    let names = [&["node", "zone", "recent"][..], &echoes, &about].concat();
    assert!(fields(source).is_superset(&names.into_iter().collect()), "{source}");
    let lags = ["seconds", "send_lag_p99_seconds", "read_delay_p99_seconds"];
    let own = ["probes_skipped", "receive_queue_drops", "run_delay_seconds"];
    let recent = [&echoes[..], &lags, &own].concat();
    assert!(fields(&source["recent"]).is_superset(&recent.into_iter().collect()), "{source}");
    assert_eq!((&source["version"], &source["hour_kept"]), (&env!("CARGO_PKG_VERSION").into(), &true.into()));
    assert_eq!(source["interval_seconds"], 1.0);
    assert!(source["rss_bytes"].as_u64() > Some(500_000) && source["cpus"].as_u64() >= Some(1), "{source}");
    assert!(source["recent"]["send_lag_p99_seconds"].as_f64() > Some(0.0), "{source}");
    assert!(source["echo_requests_received"].as_u64() >= Some(2), "{source}");
    let peers = row["peers"].as_array().expect("peers");
    assert_eq!(peers.len(), 2);
    let counts = ["sent", "received", "lost", "rtt_p50_seconds", "rtt_p99_seconds"];
    let names = ["node", "zone", "network", "protocol", "state", "late", "since_unix_seconds", "recent"];
    for peer in peers {
        assert!(fields(peer).is_superset(&[&counts[..], &names].concat().into_iter().collect()), "{peer}");
        let recent = fields(&peer["recent"]);
        assert!(recent.is_superset(&[&counts[..], &["seconds"]].concat().into_iter().collect()), "{peer}");
        assert_eq!((&peer["state"], &peer["lost"]), (&"ready".into(), &0.into()), "{peer}");
        let [p50, p99] = ["rtt_p50_seconds", "rtt_p99_seconds"].map(|name| peer[name].as_f64().expect("a time"));
        assert!(0.0 < p50 && p50 <= p99, "{peer}");
        assert!(peer["since_unix_seconds"].is_null(), "{peer}");
    }

    let hour = agent.json("/api/v1/hour/%61");
    assert_eq!((&hour["source"], &hour["peer"], &hour["step_seconds"]), (&"tested".into(), &"a".into(), &60.into()));
    let series = hour["series"].as_array().expect("series");
    assert_eq!(series.len(), 1, "{hour}");
    let columns = ["loss", "rtt_p50_seconds", "rtt_p99_seconds"];
    let names = [&columns[..], &["network", "protocol", "end_unix_seconds"]].concat();
    assert!(fields(&series[0]).is_superset(&names.into_iter().collect()), "{hour}");
    let unknown = agent.get("/api/v1/hour/c");
    assert_eq!((unknown.status, unknown.body.as_str()), (404, "no peer \"c\"\n"));
}

#[test]
fn our_own_node_is_no_peer_at_any_of_its_addresses() {
    // Under another name: a list may have addresses that a peer has reported of itself.
    let flags = ["--node-addresses", "127.0.0.8,127.0.0.9", "--peer", "me=127.0.0.9"];
    let agent = Agent::start(&[&PEERS[..], &flags].concat());
    agent.wait_for_answers(&["a", "b"]);
    assert_eq!(agent.metrics().peers(), [("a", "icmp"), ("b", "icmp")]);
}

#[test]
fn unknown_paths_are_404_and_other_methods_405() {
    let agent = Agent::start(&PEERS);
    for path in ["/", "/metric", "/metrics/", "/api/v1/none"] {
        let status = agent.get(path).status;
        // The mesh page may be served at the root one day.
        assert!(status == 404 || path == "/" && status == 200, "{path}: {status}");
    }
    for (method, path) in [("POST", "/metrics"), ("PUT", "/healthz"), ("DELETE", "/api/v1/peers")] {
        let response = request(agent.http, method, path, "Content-Length: 0\r\n").expect("an answer");
        assert_eq!(response.status, 405, "{method} {path}");
    }
    let head = request(agent.http, "HEAD", "/metrics", "").expect("an answer");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn an_address_in_use_is_1_and_a_line_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let mut process = Process::start(command(PLAIN, &PEERS).args(["--listen", &address]), directory());
    assert_eq!(process.end().code(), Some(1), "{}", process.log());
    let log = process.log();
    for part in [&address, "in use", "--listen"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert_eq!(log.lines().count(), 1, "{log}");
}

#[test]
fn the_page_and_the_api_are_for_known_names_and_no_frame() {
    let agent = Agent::start(&[&PEERS[..], &["--allow-host", "canary.example,Mesh.Example."]].concat());
    let status = |path: &str, host: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        exchange(&mut connect(agent.http), &request).expect("an answer").status
    };
    for path in ["/", "/api/v1/identity", "/api/v1/peers", "/api/v1/mesh", "/api/v1/verdicts", "/api/v1/hour/a"] {
        assert_eq!(status(path, "evil.example"), 403, "{path}");
        for host in ["localhost", "127.0.0.1:9877", "[::1]", "canary.example:80", "mesh.example"] {
            assert_ne!(status(path, host), 403, "{path} {host}");
        }
    }
    for path in ["/metrics", "/healthz"] {
        assert_eq!(status(path, "evil.example"), 200, "{path}");
    }
    let page = agent.get("/");
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
}

/// `run` under a limit of open files, as the shell's `ulimit` sets it.
fn limited(ulimit: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {ulimit} && exec \"$@\""), "sh", PLAIN, "run", "--discovery", "static"]);
    command.args(["--listen", "127.0.0.1:0", "--probes", "icmp"]).args(PEERS);
    command
}

#[test]
fn connections_leave_file_descriptors_for_everything_else() {
    // What 80 connections of four workers need.
    const ALL: usize = DESCRIPTORS_RESERVED + 176;
    const LIMIT: usize = DESCRIPTORS_RESERVED + 56;
    let agent = Agent::of(&mut limited(&format!("-n {LIMIT}")));
    let log = agent.process.log();
    let warning = format!("{LIMIT} file descriptors are enough for 12 HTTP connections, 80 would need {ALL}");
    assert!(log.contains(&warning), "{log}");
    let _held: Vec<_> = (0..150).map(|_| connect(agent.http)).collect();
    // This connection is behind all others in the backlog, so each of these is accepted or closed
    // by now.
    assert_eq!(agent.get("/healthz").status, 200);
    let open = fs::read_dir(format!("/proc/{}/fd", agent.process.id())).expect("its descriptors").count();
    assert!(open <= LIMIT - DESCRIPTORS_RESERVED / 2, "{open} of {LIMIT} descriptors are open");
}

#[test]
fn a_soft_limit_of_file_descriptors_is_raised_and_too_low_a_hard_one_is_1() {
    let agent = Agent::of(&mut limited("-Sn 70"));
    assert!(!agent.process.log().contains("file descriptors"), "{}", agent.process.log());
    let metrics = agent.get("/metrics").body;
    let all = format!("\nprocess_max_fds {}\n", DESCRIPTORS_RESERVED + 176);
    assert!(metrics.contains(&all), "{metrics}");

    let mut process = Process::start(&mut limited("-n 60"), directory());
    let status = process.end();
    let log = process.log();
    assert_eq!(status.code(), Some(1), "{log}");
    let few = format!("60 file descriptors are too few, {} are needed", DESCRIPTORS_RESERVED + 44);
    assert!(log.contains(&few), "{log}");
}
