//! A real agent that may judge, behind the real server. It is the only agent whose rank matters;
//! the others answer as each test sets.

use std::iter;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use kube_canary::discovery::{Ranks, ranks};
use kube_canary::mesh::JudgeTimes;
use serde_json::Value;

use crate::agents::{Answer, Mesh, peer, row};
use crate::http_support::{eventually, get};

/// It begins at its first check, if it must. No time limit can run out.
fn times() -> JudgeTimes {
    JudgeTimes {
        lacking: Duration::ZERO,
        step: Duration::ZERO,
        check: Duration::from_millis(20),
        rare_check: Duration::from_millis(20),
        answer: Duration::from_mins(10),
        round: Duration::from_millis(20),
    }
}

/// Names that are ranked before `me`.
fn better(count: usize) -> Vec<String> {
    let is_better = |name: &String| {
        let (node, address) = (name.as_str(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let listed = iter::once(ranks::Listed { node, address, http_port: None });
        Ranks::of(listed, ranks::RankedBy::Name, ("me", &[])).better().is_some_and(|better| better.len() == 1)
    };
    (0..).map(|n| format!("n{n}")).filter(is_better).take(count).collect()
}

fn judge(protocol: u32, rounds: u32) -> String {
    format!(r#"{{"protocol":{protocol},"judges":true,"since_seconds":99.5,"rounds":{rounds},"age_seconds":3.5}}"#)
}

/// A mesh in which three members are better-ranked than the agent and answer as given.
fn among(answers: [Option<Answer>; 3], times: JudgeTimes) -> Mesh {
    let others = better(3).into_iter().zip(answers).map(|(node, answer)| {
        let report = Answer::Text(row(&node, &[]));
        (node, report, answer)
    });
    Mesh::judging(others.collect(), times)
}

fn metrics(mesh: &Mesh) -> String {
    get(mesh.address(), "/metrics").expect("an answer").body
}

fn wait_until_it_judges(mesh: &Mesh) {
    eventually("it judges", || metrics(mesh).contains("\nkube_canary_judge 1\n"));
}

#[test]
fn a_judge_exports_the_verdicts_that_readers_get() {
    let reports = ["a", "b", "c"].map(|node| {
        let others = ["a", "b", "c", "me"].into_iter().filter(|other| *other != node);
        let lost = |other: &str| if [node, other].contains(&"c") { 25 } else { 0 };
        let peers: Vec<String> = others.map(|other| peer(other, lost(other))).collect();
        (node.to_owned(), Answer::Text(row(node, &peers)), None)
    });
    let mesh = Mesh::judging(reports.into(), times());
    eventually("it has judged", || metrics(&mesh).contains("\nkube_canary_verdict{"));
    let document: Value =
        serde_json::from_str(&get(mesh.address(), "/api/v1/verdicts").expect("an answer").body).expect("JSON");
    let verdict = &document["verdicts"][0];
    let text = |field: &str| verdict[field].as_str().expect("text").to_owned();
    assert_eq!((text("kind"), text("subject")), ("node".to_owned(), "c".to_owned()), "{document}");
    let expected = format!(
        "\nkube_canary_verdict{{direction=\"both\",id=\"{}\",kind=\"node\",network=\"pod\",protocol=\"icmp\",subject=\"c\"}} 1\n",
        text("id")
    );
    let metrics = metrics(&mesh);
    assert!(metrics.contains(&expected) && metrics.contains("\nkube_canary_judged_nodes 4\n"), "{metrics}");
    let answer: Value =
        serde_json::from_str(&get(mesh.address(), "/api/v1/judge").expect("an answer").body).expect("JSON");
    assert!(answer["judges"] == true && answer["protocol"] == 1 && answer["rounds"].as_u64() > Some(0), "{answer}");
}

#[test]
fn three_better_ranked_judges_are_enough() {
    let mesh = among([(); 3].map(|()| Some(Answer::Text(judge(1, 2)))), times());
    eventually("it has asked three times", || mesh.questions() >= 9);
    let metrics = metrics(&mesh);
    assert!(
        metrics.contains("\nkube_canary_judge 0\n") && !metrics.contains("\nkube_canary_judged_nodes"),
        "{metrics}"
    );
    let answer = get(mesh.address(), "/api/v1/judge").expect("an answer").body;
    assert_eq!(answer, "{\"protocol\":1,\"judges\":false,\"since_seconds\":0.0,\"rounds\":0,\"age_seconds\":0.0}\n");
    assert_eq!(mesh.asked(), 0, "it collects nothing");
}

#[test]
fn an_agent_judges_if_one_of_three_has_no_such_answer_or_a_useless_one() {
    let long = format!("{}{}", judge(1, 2), " ".repeat(1_000));
    let texts =
        [judge(2, 9), judge(1, 2).replace("3.5", "-3.5"), judge(1, 2).replace("3.5", "1e3"), "[".repeat(400), long];
    for bad in texts.into_iter().map(|text| Some(Answer::Text(text))).chain([None]) {
        let good = Some(Answer::Text(judge(1, 2)));
        wait_until_it_judges(&among([good.clone(), bad, good], times()));
    }
}

#[test]
fn a_member_that_never_ends_its_answer_does_not_keep_an_agent_from_judging() {
    let good = Some(Answer::Text(judge(1, 2)));
    for bad in [Answer::Stalls(judge(1, 2)), Answer::Trickles(judge(1, 2))] {
        let times = JudgeTimes { answer: Duration::from_millis(200), ..times() };
        wait_until_it_judges(&among([Some(bad), good.clone(), good.clone()], times));
    }
}
