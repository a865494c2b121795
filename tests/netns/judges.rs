//! Five real agents, of which three judge: by the verdicts that they export, by what all agents
//! answer for them, and by what happens when judges are killed.

use std::time::Duration;

use kube_canary::sys::clock;
use serde_json::Value;

use crate::common::until::{until, until_within};
use crate::faults::Faults;
use crate::mesh::{Agent, Mesh, Socket};
use crate::probing::count;
use crate::verdicts::place;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const PORT: u16 = 9_877;
const FLAGS: [&str; 4] = ["--interval", "100ms", "--listen", "0.0.0.0:9877"];
/// The last rank begins after 28 s, and a judgement follows every 15 s.
const LONG: Duration = Duration::from_mins(3);

/// Loses every third request from `b` to `d` from the beginning.
fn losing_link(mesh: &Mesh) -> Faults<'_> {
    let rule = format!("ip saddr {} icmp type echo-request numgen inc mod 3 < 1 drop", mesh.node("b").ipv4());
    Faults::new(&mesh.node("d").namespace, "eth0", &[], &[rule])
}

fn is_judge(agent: &Agent<'_>) -> bool {
    agent.metrics().value("judge", &[]).is_some_and(|value| value > 0.0)
}

/// Waits until three of these agents judge. Returns their places.
fn three_judges(agents: &[Agent<'_>]) -> Vec<usize> {
    until_within(LONG, "three of them judge", || {
        let judges: Vec<usize> = (0..agents.len()).filter(|place| is_judge(&agents[*place])).collect();
        if judges.len() == 3 { Ok(judges) } else { Err(format!("{judges:?} judge")) }
    })
}

#[test]
fn judges_give_a_losing_link_the_same_id_and_one_that_is_killed_is_replaced() {
    let _place = place();
    let mesh = Mesh::of(&NAMES);
    let _faults = losing_link(&mesh);
    let peers = mesh.peers_file(|node| vec![node.ipv4()]);
    let mut agents = mesh.agents(Socket::Ping, &peers, PORT, &FLAGS);

    let judges = three_judges(&agents);
    until_within(LONG, "two judges export the same verdict", || {
        let verdicts = agents[judges[0]].json("/api/v1/verdicts");
        let link = link(&verdicts).ok_or_else(|| verdicts.to_string())?;
        let id = link["id"].as_str().expect("an id").to_owned();
        let labels =
            [("id", id.as_str()), ("kind", "link"), ("subject", "b->d"), ("network", "pod"), ("protocol", "all")];
        let holds = |place: &&usize| agents[**place].metrics().value("verdict", &labels).is_some_and(|it| it > 0.0);
        let agree = judges.iter().filter(holds).count();
        if agree >= 2 { Ok(()) } else { Err(format!("{agree} judges say {id}: {link}")) }
    });

    let mut killed = agents.remove(judges[0]);
    killed.process.signal(libc::SIGKILL);
    killed.process.end();
    three_judges(&agents);
}

#[test]
fn a_judgement_that_panics_leaves_probing_and_the_verdicts_of_the_others() {
    let _place = place();
    let mesh = Mesh::of(&NAMES);
    let _faults = losing_link(&mesh);
    let peers = mesh.peers_file(|node| vec![node.ipv4()]);
    let mut agents = mesh.agents(Socket::Ping, &peers, PORT, &FLAGS);
    let judges = three_judges(&agents);
    let named = |agent: &Agent<'_>| link(&agent.json("/api/v1/verdicts")).map(|link| link["judges"].clone());
    let victim = agents[judges[0]].node.name;
    let odd = (0..agents.len()).find(|place| !judges.contains(place)).expect("two do not judge");

    // In builds for tests, a report of this zone makes that judge panic, and then all of them.
    for (zone, failing) in [(format!("panic-in-judgement-of-{victim}"), 1), ("panic-in-judgement".to_owned(), 3)] {
        let mut old = agents.remove(odd);
        old.process.signal(libc::SIGKILL);
        old.process.end();
        let node = mesh.node(NAMES[odd]);
        agents.insert(odd, Agent::start(node, Socket::Ping, &peers, PORT, &[&FLAGS[..], &["--zone", &zone]].concat()));
        let fails = |agent: &&Agent<'_>| agent.metrics().value("judgements_failed_total", &[]) >= Some(2.0);
        until_within(LONG, "the judgements fail, and metrics say so", || {
            let count = agents.iter().filter(fails).count();
            if count == failing || failing == 3 && count > 3 {
                Ok(())
            } else {
                Err(format!("{count} of {failing} fail"))
            }
        });
        let sent =
            |agent: &Agent<'_>| agent.link(NAMES.into_iter().find(|name| *name != agent.node.name).expect("one")).sent;
        let before: Vec<f64> = agents.iter().map(sent).collect();
        until("all agents probe on", || {
            let go_on = agents.iter().zip(&before).filter(|(agent, before)| sent(agent) > **before + 20.0).count();
            if go_on == agents.len() { Ok(()) } else { Err(format!("{go_on} probe")) }
        });
        if failing == 1 {
            until_within(LONG, "two judges give their verdict everywhere", || {
                let said: Vec<Option<Value>> = agents.iter().map(named).collect();
                let is_two = |judges: &Option<Value>| judges.as_ref().is_some_and(|judges| judges.as_u64() >= Some(2));
                if said.iter().all(is_two) { Ok(()) } else { Err(format!("{said:?}")) }
            });
        }
    }
    until_within(LONG, "agents say that no judge answers", || {
        let said = agents[odd].json("/api/v1/verdicts");
        if said["judges"] == serde_json::json!([]) { Ok(()) } else { Err(said.to_string()) }
    });
}

/// Seconds from one judgement of a judge to the next.
const ROUND_SECONDS: u64 = 15;

/// The link of the fault in a list of verdicts.
fn link(document: &Value) -> Option<&Value> {
    document["verdicts"].as_array().into_iter().flatten().find(|it| it["kind"] == "link" && it["subject"] == "b->d")
}

#[test]
fn all_agents_give_the_answer_of_the_judges_and_two_that_are_killed_at_once_leave_their_past() {
    let _place = place();
    let mesh = Mesh::of(&NAMES);
    let faults = losing_link(&mesh);
    let peers = mesh.peers_file(|node| vec![node.ipv4()]);
    let mut agents = mesh.agents(Socket::Ping, &peers, PORT, &FLAGS);

    three_judges(&agents);
    let ids = until_within(LONG, "all agents give the verdict of three judges", || {
        let verdicts: Vec<Value> = agents.iter().map(|agent| agent.json("/api/v1/verdicts")).collect();
        let ids: Vec<&Value> = verdicts
            .iter()
            .filter(|document| document["judges"].as_array().is_some_and(|judges| judges.len() == 3))
            .filter_map(|document| link(document).map(|link| &link["id"]))
            .collect();
        if ids.len() == agents.len() {
            Ok(ids.into_iter().cloned().collect::<Vec<_>>())
        } else {
            Err(format!("{verdicts:?}"))
        }
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");

    faults.stop();
    // Ranks 4 and 5 copy the past once a minute.
    let copied = until_within(Duration::from_mins(6), "it has been over for more than a minute", || {
        let history = agents[0].json("/api/v1/history");
        let ended = link(&history).and_then(|link| link["ended_unix_seconds"].as_u64());
        match ended {
            Some(ended) if clock::realtime().as_secs() > ended + 75 => Ok(history),
            _ => Err(history.to_string()),
        }
    });
    let judges: Vec<usize> = (0..agents.len()).filter(|place| is_judge(&agents[*place])).collect();
    for place in judges.into_iter().take(2).rev() {
        let mut killed = agents.remove(place);
        killed.process.signal(libc::SIGKILL);
        killed.process.end();
    }
    three_judges(&agents);
    let times = |link: &Value| ["since_unix_seconds", "ended_unix_seconds"].map(|name| count(link, name));
    let before = link(&copied).expect("it has ended");
    // Each judge has its own times, up to a round apart. Which are the middle depends on who
    // answers.
    let is_same = |found: &Value| {
        let apart = times(found).into_iter().zip(times(before)).map(|(a, b)| a.abs_diff(b)).max();
        found["id"] == before["id"] && apart <= Some(ROUND_SECONDS)
    };
    for agent in &agents {
        until_within(LONG, "the past is there, and confirmed", || {
            let history = agent.json("/api/v1/history");
            let found = link(&history).filter(|link| link.get("unconfirmed").is_none());
            if found.is_some_and(is_same) { Ok(()) } else { Err(format!("{before}: {history}")) }
        });
    }
    let mut command = agents[0].node.namespace.command(env!("CARGO_BIN_EXE_kube-canary"));
    command.args(["doctor", "--history", "--url", &format!("http://127.0.0.1:{PORT}")]);
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success() && text.contains(": link b->d, that way, pod network\n"), "{output:?}");
}
