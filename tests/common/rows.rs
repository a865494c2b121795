//! The agents' reports, judged once more by the test.
//!
//! A busy machine makes an agent late. Then the verdicts leave out what that agent measured. Its
//! losses are evidence nevertheless, because the kernel's time stamps decide them. So the test
//! reads each report as if the agent did not record its own lag, and expects an exact answer at any
//! time. The agent's own verdicts must follow from the reports.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;

use kube_canary::mesh::matrix::Matrix;
use kube_canary::mesh::verdicts;
use kube_canary::report::{Peer, Source};
use serde_json::Value;

/// All fields of an agent's own lag that the verdicts read.
const LAG: [&str; 5] =
    ["send_lag_p99_seconds", "read_delay_p99_seconds", "probes_skipped", "receive_queue_drops", "run_delay_seconds"];

/// A finding: its kind, its subject and its direction.
pub type Finding = [String; 3];

/// Returns a finding, as the test expects it.
pub fn finding(kind: &str, subject: &str, direction: &str) -> Finding {
    [kind, subject, direction].map(str::to_owned)
}

/// The losses in a list of verdicts as JSON, without verdicts about slow links and about agents.
pub fn losses_in(verdicts: &Value) -> BTreeSet<Finding> {
    let verdicts = verdicts.as_array().unwrap_or_else(|| panic!("not a list of verdicts: {verdicts}"));
    let is_loss = |verdict: &&Value| {
        let is_of_agent = verdict["kind"].as_str().is_none_or(|kind| kind.starts_with("agent_"));
        !is_of_agent && verdict["figures"]["rtt_seconds"].is_null()
    };
    verdicts.iter().filter(is_loss).map(in_short).collect()
}

/// Whether the verdicts name only this node and links that end at it.
pub fn is_the_only_subject(node: &str, losses: &BTreeSet<Finding>) -> bool {
    losses.iter().all(|[_, subject, _]| subject.split("->").any(|end| end == node))
}

/// The losses that these reports show, whatever their agents record of their own lag.
pub fn losses(rows: &[Value]) -> BTreeSet<Finding> {
    let rows: Vec<Value> = rows.iter().map(without_lag).collect();
    let verdicts = judge(&rows, &[]);
    assert!(all_in(&verdicts).iter().all(|[kind, ..]| kind != "agent_starved"), "without a record: {verdicts}");
    losses_in(&verdicts)
}

/// Asserts that the verdicts in an agent's `/api/v1/mesh` follow from the reports beside them. So
/// an agent is called starved exactly if its report says so.
///
/// # Panics
/// If the verdicts differ.
pub fn verdicts_follow(mesh: &Value) {
    let list = |field: &str| mesh[field].as_array().unwrap_or_else(|| panic!("no {field} in {mesh}"));
    assert_eq!(all_in(&mesh["verdicts"]), all_in(&judge(list("rows"), list("missing"))), "of {mesh}");
}

/// The losses that `doctor` names, given these reports without the agents' records of their own
/// lag. It reads them from `listener`, which `command` must reach.
///
/// # Panics
/// If its verdicts do not follow from the reports, or if its exit code disagrees.
pub fn losses_by_doctor(rows: &[Value], command: &mut Command, listener: TcpListener) -> BTreeSet<Finding> {
    let rows: Vec<Value> = rows.iter().map(without_lag).collect();
    let url = format!("http://{}", listener.local_addr().expect("a bound socket"));
    let lines: Vec<String> = rows.iter().map(line).collect();
    let body = format!("{{\"rows\":[\n{}\n],\"missing\":[],\"not_gathered\":0}}\n", lines.join("\n,"));
    // The thread is not joined. If the command sends no request, it waits for ever, and ends with
    // the test.
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a whole request");
            request.push(byte[0]);
        }
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).expect("the client reads");
    });
    let output = command.args(["doctor", "--collect", "--json", "--url", &url]).stderr(Stdio::inherit()).output();
    let output = output.expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let found = all_in(&report["verdicts"]);
    // Without a verdict, it may still report links that lost probes in the last ten minutes.
    assert_eq!(output.status.code(), Some(i32::from(report["state"] != "well")), "{text}");
    assert!(found.is_empty() || report["state"] != "well", "{text}");
    assert_eq!(found, all_in(&judge(&rows, &[])), "{text}");
    losses_in(&report["verdicts"])
}

/// The report as an agent writes it that does not record its own lag.
pub fn without_lag(row: &Value) -> Value {
    let mut row = row.clone();
    let recent = row["source"]["recent"].as_object_mut().expect("a row says what is recent");
    for field in LAG {
        assert!(recent.remove(field).is_some(), "no {field} in {recent:?}");
    }
    row
}

/// The report in one line, the source before the peers. Agents write it so, and readers rely on it.
pub fn line(row: &Value) -> String {
    format!("{{\"source\":{},\"peers\":{}}}", row["source"], row["peers"])
}

/// The verdicts as JSON.
pub fn judge(rows: &[Value], missing: &[Value]) -> Value {
    let mut matrix = Matrix::new(kube_canary::sys::clock::realtime().as_secs());
    for row in rows {
        let (source, peers) = (row["source"].to_string(), row["peers"].as_array().expect("a list of peers"));
        matrix.begin_row(&serde_json::from_str::<Source<'_>>(&source).expect("a source"), 0);
        for peer in peers {
            matrix.peer(&serde_json::from_str::<Peer<'_>>(&peer.to_string()).expect("a peer"));
        }
        matrix.end_row();
    }
    for it in missing {
        matrix.missing(it["node"].as_str().expect("a node"), it["error"].as_str().expect("a reason"));
    }
    matrix.finish();
    verdicts::wording::worded(&verdicts::judge(&matrix), serde_json::value::Serializer).expect("verdicts are JSON")
}

fn all_in(verdicts: &Value) -> BTreeSet<Finding> {
    verdicts.as_array().unwrap_or_else(|| panic!("not a list of verdicts: {verdicts}")).iter().map(in_short).collect()
}

fn in_short(verdict: &Value) -> Finding {
    ["kind", "subject", "direction"].map(|field| verdict[field].as_str().unwrap_or_default().to_owned())
}
