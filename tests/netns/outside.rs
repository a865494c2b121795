//! An agent outside of the mesh: it probes the nodes by all protocols if they have its address,
//! says that it is no member, and never judges.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::process::unique;
use crate::common::until::until;
use crate::mesh::{Agent, Mesh};
use crate::namespace::DIRECTORY;
use crate::probing::{LONG, LinkName, Total, agent_on, link, links, reports, watch};

/// The members. The first two have the address of the agent outside.
const MEMBERS: [&str; 3] = ["a", "b", "c"];

fn peers_file(mesh: &Mesh) -> PathBuf {
    let path = unique(Path::new(DIRECTORY), "peers");
    let lines: String = MEMBERS.iter().map(|name| mesh.node(name)).map(|node| node.line(&node.ipv4())).collect();
    fs::write(&path, lines).expect("our own directory is writable");
    path
}

#[test]
fn an_agent_outside_probes_those_that_know_it_and_says_that_it_is_no_member() {
    let mesh = Mesh::of(&["a", "b", "c", "out"]);
    let (peers, out) = (peers_file(&mesh), mesh.node("out"));
    let address = out.ipv4();
    let knows = ["--outside", &address];
    let members: Vec<Agent<'_>> =
        MEMBERS.iter().map(|name| agent_on(mesh.node(name), &peers, if *name == "c" { &[] } else { &knows })).collect();
    until("three judges see three nodes", || {
        let verdicts = members[0].json("/api/v1/verdicts");
        let judges = verdicts["judges"].as_array().map_or(0, Vec::len);
        if (&verdicts["nodes"], judges) == (&3.into(), 3) { Ok(()) } else { Err(verdicts.to_string()) }
    });
    let agents = [agent_on(out, &peers, &["--membership", "outside"])];
    let seen = watch(&agents, "every link has some probes", LONG, |reports| {
        let is_known = |((_, _, protocol), link): (LinkName, &Value)| {
            Total::of(link).decided() >= if protocol == "tcp" { 5 } else { 30 }
        };
        if links(&reports).count() == 3 * MEMBERS.len() && links(&reports).all(is_known) {
            Ok(reports)
        } else {
            Err(reports[0].to_string())
        }
    });
    for node in MEMBERS {
        for protocol in ["icmp", "udp", "tcp"] {
            let Total { received, lost, .. } = Total::of(link(&seen, "out", node, protocol));
            // Handshakes of strangers are accepted, and only what all of them send is bounded.
            let is_refused = node == "c" && protocol == "udp";
            assert!(
                if is_refused { received == 0 } else { lost == 0 },
                "{node} by {protocol}: {received}, lost {lost}"
            );
        }
    }
    let [outside, member] = [&agents[0], &members[0]].map(|agent| agent.json("/api/v1/identity")["membership"].clone());
    assert_eq!((outside, member), ("outside".into(), "member".into()));
    let is_member = |agent: &Agent<'_>| agent.metrics().value("agent_is_member", &[]);
    assert_eq!([is_member(&agents[0]), is_member(&members[0])], [Some(0.0), Some(1.0)]);
    assert_eq!(agents[0].json("/api/v1/judge")["judges"], false);
    let verdicts = agents[0].json("/api/v1/verdicts");
    assert_eq!(verdicts["nodes"], 3, "it relays what the judges say: {verdicts}");
    let judges = members[0].json("/api/v1/verdicts");
    assert_eq!((&judges["nodes"], judges["verdicts"].as_array().map(Vec::len)), (&3.into(), Some(0)), "{judges}");
    assert!(reports(&members).iter().all(|report| !report.to_string().contains("\"out\"")));
    drop(members);
    until("it says what it sees itself, and from where", || {
        let headline = agents[0].json("/api/v1/verdicts")["headline"].as_str().unwrap_or_default().to_owned();
        let is_said =
            headline.starts_with("no judge answers; this agent, which is outside of the mesh, loses packets to");
        if is_said { Ok(()) } else { Err(headline) }
    });
}
