//! Five real agents, of which three judge: by the verdicts that they export, and by what happens
//! when one of them is killed.

use std::time::Duration;

use crate::common::until::until_within;
use crate::faults::Faults;
use crate::mesh::{Agent, Mesh, Socket};
use crate::verdicts::alone;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const PORT: u16 = 9_877;
/// The last rank begins after 28 s, and a judgement follows every 15 s.
const LONG: Duration = Duration::from_mins(3);

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
    let _alone = alone();
    let mesh = Mesh::of(&NAMES);
    let peers = mesh.peers_file(|node| vec![node.ipv4()]);
    // Every third request from one to the other is lost from the beginning.
    let rule = format!("ip saddr {} icmp type echo-request numgen inc mod 3 < 1 drop", mesh.node("b").ipv4());
    let _faults = Faults::new(&mesh.node("d").namespace, "eth0", &[], &[rule]);
    let flags = ["--interval", "100ms", "--listen", &format!("0.0.0.0:{PORT}")];
    let mut agents = mesh.agents(Socket::Ping, &peers, PORT, &flags);

    let judges = three_judges(&agents);
    until_within(LONG, "two judges export the same verdict", || {
        let verdicts = agents[judges[0]].json("/api/v1/verdicts");
        let link = verdicts["verdicts"].as_array().into_iter().flatten().find(|it| it["kind"] == "link");
        let id = link.and_then(|link| link["id"].as_str()).ok_or_else(|| verdicts.to_string())?.to_owned();
        let labels =
            [("id", id.as_str()), ("kind", "link"), ("subject", "b->d"), ("network", "pod"), ("protocol", "icmp")];
        let holds = |place: &&usize| agents[**place].metrics().value("verdict", &labels).is_some_and(|it| it > 0.0);
        let agree = judges.iter().filter(holds).count();
        if agree >= 2 { Ok(()) } else { Err(format!("{agree} judges say {id}: {link:?}")) }
    });

    let mut killed = agents.remove(judges[0]);
    killed.process.signal(libc::SIGKILL);
    killed.process.end();
    three_judges(&agents);
}
