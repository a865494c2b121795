//! The agents' reports, judged once more by the test.
//!
//! A busy machine makes an agent late. Then the verdicts leave out what that agent measured. Its
//! losses are evidence nevertheless, because the kernel's time stamps decide them. So the test
//! reads each report as if the agent did not record its own lag, and expects an exact answer at any
//! time.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

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

/// The losses that `doctor` names, given these reports without the agents' records of their own
/// lag.
///
/// # Panics
/// If its verdicts do not follow from the reports, or if its exit code disagrees.
pub fn losses_by_doctor(rows: &[Value], command: &mut Command) -> BTreeSet<Finding> {
    let rows: Vec<Value> = rows.iter().map(without_lag).collect();
    let lines: Vec<String> = rows.iter().map(line).collect();
    command.args(["doctor", "--json", "--rows", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.stderr(Stdio::inherit()).spawn().expect("it runs");
    let mut input = process.stdin.take().expect("a pipe");
    input.write_all((lines.join("\n") + "\n").as_bytes()).expect("it reads");
    drop(input);
    let output = process.wait_with_output().expect("it ends");
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
