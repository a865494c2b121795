//! A real agent that may judge, behind the real server. It is the only agent whose rank matters;
//! the others answer as each test sets.

use std::io::{BufReader, Write as _};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::Once;
use std::time::Duration;

use kube_canary::allocator::finder::unfollowed;
use kube_canary::discovery::{Ranks, ranks};
use kube_canary::mesh::JudgeTimes;
use kube_canary::mesh::verdicts;
use kube_canary::report::JUDGE_PROTOCOL;
use kube_canary::sys::{clock, wall};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::agents::{Answer, Claims, Mesh, peer, row};
use crate::http_support::{eventually, get, receive};

/// It begins at its first check, if it must. No time limit can run out.
fn times() -> JudgeTimes {
    JudgeTimes {
        lacking: Duration::ZERO,
        step: Duration::ZERO,
        check: Duration::from_millis(20),
        rare_check: Duration::from_millis(20),
        answer: Duration::from_mins(10),
        round: Duration::from_millis(20),
        copy: Duration::from_millis(20),
        reuse: Duration::ZERO,
    }
}

/// Names that are ranked before `me`.
fn better(count: usize) -> Vec<String> {
    let is_better = |name: &String| {
        let (node, address) = (name.as_str(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let listed = iter::once(ranks::ListedMember { node, address, http_port: None, zone: None });
        Ranks::new(listed, ranks::RankedBy::Name, ("me", &[])).better().is_some_and(|better| better.len() == 1)
    };
    (0..).map(|n| format!("n{n}")).filter(is_better).take(count).collect()
}

/// The places of these names by rank, the best first.
fn by_rank(names: &[String]) -> Vec<usize> {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let listed = names.iter().map(|node| ranks::ListedMember { node, address, http_port: None, zone: None });
    let ranks = Ranks::new(listed, ranks::RankedBy::Name, ("me", &[]));
    let place = |node: &str| names.iter().position(|name| name == node).expect("a name");
    ranks.others().iter().map(|member| place(&member.node)).collect()
}

fn judge(protocol: u32, rounds: u32) -> String {
    format!(r#"{{"protocol":{protocol},"judges":true,"since_seconds":99.5,"rounds":{rounds},"age_seconds":3.5}}"#)
}

/// A mesh in which three members are better-ranked than the agent and answer as given.
fn among(answers: [Option<Answer>; 3], times: JudgeTimes) -> Mesh {
    claiming(answers.map(|judge| Claims { judge, ..Claims::default() }), times)
}

fn claiming(claims: [Claims; 3], times: JudgeTimes) -> Mesh {
    let others = better(3).into_iter().zip(claims).map(|(node, claims)| {
        let report = Answer::Text(row(&node, &[]));
        (node, report, claims)
    });
    Mesh::judging(others.collect(), times)
}

/// A verdict of a judge that began and ended this many seconds ago.
fn verdict(kind: &str, subject: &str, (since, ended): (u64, Option<u64>)) -> Value {
    let now = clock::realtime().as_secs();
    let mut verdict = json!({"kind": kind, "subject": subject, "direction": "both", "network": "pod",
        "confidence": "certain", "severity": "warning", "figures": {"probes_to": 100, "lost_to": 20},
        "since_unix_seconds": now - since});
    if let Some(ended) = ended {
        verdict["ended_unix_seconds"] = (now - ended).into();
    }
    let read = serde_json::from_value(verdict.clone()).expect("a verdict");
    verdict["id"] = verdicts::id(&read).into();
    verdict
}

/// A judge with these verdicts, which has judged for 900 s.
fn judge_with(verdicts: &[Value]) -> Claims {
    let judge = judge(JUDGE_PROTOCOL, 60).replace("99.5", "900");
    let document = format!(
        "{{\"judge\":{judge},{}",
        &json!({"now_unix_seconds": clock::realtime().as_secs(), "nodes": 4, "verdicts": verdicts,
        "remembered_since_unix_seconds": clock::realtime().as_secs() - 9_000,
        "remembered_until_unix_seconds": clock::realtime().as_secs(),
        "overview": {"missing": [], "missing_not_listed": 0, "not_gathered": 0, "overall": {}, "starved": [],
            "leaving": [], "leaving_not_listed": 0}})
        .to_string()[1..]
    );
    Claims { judge: Some(Answer::Text(judge)), document: Some(Answer::Text(document)), ..Claims::default() }
}

fn read(mesh: &Mesh, path: &str) -> Value {
    let body = get(mesh.address(), path).expect("an answer").body;
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn subjects(document: &Value) -> Vec<&str> {
    document["verdicts"].as_array().expect("verdicts").iter().filter_map(|it| it["subject"].as_str()).collect()
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
        (node.to_owned(), Answer::Text(row(node, &peers)), Claims::default())
    });
    let mesh = Mesh::judging(reports.into(), times());
    eventually("it has judged", || metrics(&mesh).contains("\nkube_canary_verdict{"));
    let document: Value =
        serde_json::from_str(&get(mesh.address(), "/api/v1/verdicts").expect("an answer").body).expect("JSON");
    let verdict = &document["verdicts"][0];
    let text = |field: &str| verdict[field].as_str().expect("text").to_owned();
    assert_eq!((text("kind"), text("subject")), ("node".to_owned(), "c".to_owned()), "{document}");
    let expected = format!(
        "\nkube_canary_verdict{{direction=\"both\",id=\"{}\",kind=\"node\",network=\"pod\",protocol=\"all\",severity=\"critical\",subject=\"c\"}} 1\n",
        text("id")
    );
    let metrics = metrics(&mesh);
    assert!(metrics.contains(&expected) && metrics.contains("\nkube_canary_judged_nodes 4\n"), "{metrics}");
    let answer: Value =
        serde_json::from_str(&get(mesh.address(), "/api/v1/judge").expect("an answer").body).expect("JSON");
    assert!(
        answer["judges"] == true && answer["protocol"] == JUDGE_PROTOCOL && answer["rounds"].as_u64() > Some(0),
        "{answer}"
    );
}

/// A judge of three nodes of which `c` loses, and one, `odd`, has a report of this zone.
fn judge_with_a_zone(zone: &str) -> Mesh {
    // A panic of a test ends that test alone.
    unfollowed(|| BUILT.call_once(|| wall::build(|| ())));
    let reports = ["a", "b", "c", "odd"].map(|node| {
        let others = ["a", "b", "c", "odd", "me"].into_iter().filter(|other| *other != node);
        let lost = |other: &str| if [node, other].contains(&"c") { 25 } else { 0 };
        let peers: Vec<String> = others.map(|other| peer(other, lost(other))).collect();
        let of_zone = if node == "odd" { zone } else { "z" };
        let row = row(node, &peers).replacen("\"zone\":\"z\"", &format!("\"zone\":\"{of_zone}\""), 1);
        (node.to_owned(), Answer::Text(row), Claims::default())
    });
    Mesh::judging(reports.into(), times())
}

/// Builds the wall once, in all tests of this program.
static BUILT: Once = Once::new();

fn failed(mesh: &Mesh) -> u64 {
    let metrics = metrics(mesh);
    let line = metrics.lines().find_map(|line| line.strip_prefix("kube_canary_judgements_failed_total "));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[test]
fn a_report_that_a_judge_panics_to_read_is_missing_and_all_others_are_judged() {
    let mesh = judge_with_a_zone("panic-in-reading");
    let held = mesh.held();
    assert_eq!(subjects(&held)[0], "c", "{held}");
    let missing = &held["overview"]["missing"][0];
    assert_eq!(missing["node"], "odd");
    assert!(missing["error"].as_str().is_some_and(|error| error.starts_with("cannot be read, which is a defect")));
    assert!(failed(&mesh) >= 1);
}

#[test]
fn a_judgement_that_panics_ends_alone_and_is_counted() {
    for zone in ["panic-in-judgement", "panic-in-judgement-of-me"] {
        let mesh = judge_with_a_zone(zone);
        let before = failed(&mesh);
        eventually("two judgements have failed", || failed(&mesh) >= before + 2);
        let said = read(&mesh, "/api/v1/verdicts");
        assert!(said["headline"].as_str().is_some_and(|line| line.starts_with("no judge answers; ")), "{said}");
        assert_eq!(get(mesh.address(), "/api/v1/peers").expect("an answer").status, 200, "it serves on");
    }
    assert_eq!(subjects(&judge_with_a_zone("panic-in-judgement-of-another").held())[0], "c");
}

#[test]
fn three_better_ranked_judges_are_enough() {
    let mesh = among([(); 3].map(|()| Some(Answer::Text(judge(JUDGE_PROTOCOL, 2)))), times());
    eventually("it has asked three times", || mesh.questions() >= 9);
    let metrics = metrics(&mesh);
    assert!(
        metrics.contains("\nkube_canary_judge 0\n") && !metrics.contains("\nkube_canary_judged_nodes"),
        "{metrics}"
    );
    let answer = get(mesh.address(), "/api/v1/judge").expect("an answer").body;
    let none = r#""judges":false,"since_seconds":0.0,"rounds":0,"age_seconds":0.0"#;
    assert_eq!(answer, format!("{{\"protocol\":{JUDGE_PROTOCOL},{none}}}\n"));
    assert_eq!(mesh.asked(), 0, "it collects nothing");
}

#[test]
fn an_agent_judges_if_one_of_three_has_no_such_answer_or_a_useless_one() {
    let long = format!("{}{}", judge(JUDGE_PROTOCOL, 2), " ".repeat(1_000));
    let texts = [
        judge(JUDGE_PROTOCOL + 1, 9),
        judge(JUDGE_PROTOCOL, 2).replace("3.5", "-3.5"),
        judge(JUDGE_PROTOCOL, 2).replace("3.5", "1e3"),
        "[".repeat(400),
        long,
    ];
    for bad in texts.into_iter().map(|text| Some(Answer::Text(text))).chain([None]) {
        let good = Some(Answer::Text(judge(JUDGE_PROTOCOL, 2)));
        wait_until_it_judges(&among([good.clone(), bad, good], times()));
    }
}

#[test]
fn a_member_that_never_ends_its_answer_does_not_keep_an_agent_from_judging() {
    let good = Some(Answer::Text(judge(JUDGE_PROTOCOL, 2)));
    for bad in [Answer::Stalls(judge(JUDGE_PROTOCOL, 2)), Answer::Trickles(judge(JUDGE_PROTOCOL, 2))] {
        let times = JudgeTimes { answer: Duration::from_millis(200), ..times() };
        wait_until_it_judges(&among([Some(bad), good.clone(), good.clone()], times));
    }
}

#[test]
fn rounds_go_on_while_a_check_waits_for_a_silent_member() {
    // They are no judges, and then answer nothing within the time of this test.
    let judge = Some(Answer::Text(judge(JUDGE_PROTOCOL + 1, 9)));
    let silent = Claims { judge, silent_after: Some(3), ..Claims::default() };
    let mesh = claiming([(); 3].map(|()| silent.clone()), times());
    eventually("the second check waits", || mesh.questions() > 3);
    let before = mesh.asked();
    eventually("it judges again and again", || mesh.asked() >= before + 9);
}

#[test]
fn readers_get_what_two_of_three_judges_hold_and_their_past_and_one_that_lies_changes_nothing() {
    let (link, node) = (verdict("link", "a->b", (300, None)), verdict("node", "c", (600, None)));
    let past = verdict("zone", "z", (5_000, Some(4_000)));
    let forged = [verdict("node", "innocent", (900, None)), verdict("zone", "forged", (5_000, Some(4_000)))];
    let honest = || judge_with(&[node.clone(), link.clone(), past.clone()]);
    for liar in [judge_with(&forged), judge_with(&[]), Claims { document: Some(Answer::Text("[".into())), ..honest() }]
    {
        for place in 0..3 {
            let claims = std::array::from_fn(|at| if at == place { liar.clone() } else { honest() });
            let mesh = claiming(claims, times());
            let now = read(&mesh, "/api/v1/verdicts");
            assert_eq!(subjects(&now), ["c", "a->b"], "{now}");
            assert_eq!(
                (&now["headline"], &now["nodes"]),
                (&"c loses 20 % of its packets, and 1 more".into(), &4.into()),
                "{now}"
            );
            assert_eq!(now["verdicts"][0]["judges"], 2, "{now}");
            let past = read(&mesh, "/api/v1/history");
            assert_eq!(subjects(&past), ["c", "a->b", "z"], "{past}");
            let ended = &past["verdicts"][2];
            assert!(ended["ended_unix_seconds"].is_u64() && ended.get("unconfirmed").is_none(), "{ended}");
            assert_eq!(mesh.asked(), 0, "it collects nothing");
        }
    }
}

#[test]
fn what_one_judge_says_alone_is_likely_and_its_past_unconfirmed() {
    let verdicts = [verdict("node", "c", (600, None)), verdict("zone", "z", (5_000, Some(4_000)))];
    let silent = Claims { document: None, ..judge_with(&[]) };
    let mesh = claiming([silent.clone(), judge_with(&verdicts), silent], times());
    let history = read(&mesh, "/api/v1/history");
    assert_eq!(history["judges"].as_array().map(Vec::len), Some(1), "{history}");
    let [holds, ended] = [0, 1].map(|at| &history["verdicts"][at]);
    assert!(holds["confidence"] == "likely" && holds.get("unconfirmed").is_none(), "{holds}");
    assert!(ended["unconfirmed"] == true, "{ended}");
}

/// FNV-1a of 64 bits, the hash of earlier versions, gives both subjects one id.
#[test]
fn readers_see_nothing_of_a_subject_that_was_made_to_collide_with_a_true_one() {
    let [guilty, innocent] =
        ["iiOSKwfOuFn", "O1dIzOcz5ac"].map(|node| judge_with(&[verdict("node", node, (600, None))]));
    let mut false_id = verdict("node", "O1dIzOcz5ac", (600, None));
    false_id["id"] = verdict("node", "iiOSKwfOuFn", (600, None))["id"].clone();
    for liar in [innocent, judge_with(&[false_id])] {
        for place in 0..3 {
            let mut claims = [(); 3].map(|()| guilty.clone());
            claims[place] = liar.clone();
            let mesh = claiming(claims, times());
            for path in ["/api/v1/verdicts", "/api/v1/history"] {
                let answer = read(&mesh, path);
                assert!(
                    subjects(&answer) == ["iiOSKwfOuFn"] && !answer.to_string().contains("O1dIzOcz5ac"),
                    "{answer}"
                );
            }
        }
    }
}

#[test]
fn readers_learn_how_many_nodes_the_judges_did_not_ask() {
    let mut part = judge_with(&[verdict("node", "c", (600, None))]);
    if let Some(Answer::Text(text)) = &mut part.document {
        *text = text.replace("\"not_gathered\":0", "\"not_gathered\":7");
    }
    let mesh = claiming([part.clone(), part.clone(), part], times());
    let answer = read(&mesh, "/api/v1/verdicts");
    assert_eq!((subjects(&answer), &answer["not_gathered"], mesh.asked()), (vec!["c"], &json!(7), 0));
}

#[test]
fn without_a_judge_an_agent_says_so_beside_what_it_measures_itself_and_has_no_past() {
    let silent = Claims { document: None, ..judge_with(&[]) };
    let mesh = claiming([silent.clone(), silent.clone(), silent], times());
    let own = read(&mesh, "/api/v1/verdicts");
    assert_eq!((&own["judges"], &own["nodes"], &own["verdicts"]), (&json!([]), &json!(0), &json!([])));
    assert_eq!(own["headline"], "no judge answers; this node loses no packets to its 3 peers");
    assert_eq!((&own["state"], mesh.asked()), (&json!("unknown"), 0), "it collects nothing");
    let history = get(mesh.address(), "/api/v1/history").expect("an answer");
    assert_eq!((history.status, history.body.contains("no judge answers")), (503, true), "{}", history.body);
    let document = get(mesh.address(), "/api/v1/judge/verdicts").expect("an answer");
    assert_eq!((document.status, document.body.as_str()), (404, "this agent is not a judge\n"));
}

#[test]
fn readers_ask_the_judges_once_in_the_time_that_an_answer_is_reused() {
    let times = JudgeTimes { reuse: Duration::from_mins(10), copy: Duration::from_mins(10), ..times() };
    let mesh = claiming([(); 3].map(|()| judge_with(&[])), times);
    has_copied(&mesh);
    let before = mesh.readings();
    for _ in 0..20 {
        read(&mesh, "/api/v1/verdicts");
        read(&mesh, "/api/v1/history");
    }
    assert_eq!(mesh.readings() - before, 3);
}

/// Waits until the agent has copied what the judges hold, which it does as soon as it knows them.
fn has_copied(mesh: &Mesh) {
    eventually("it has copied", || get(mesh.address(), "/api/v1/judge/kept").expect("an answer").status == 200);
}

#[test]
fn a_judge_whose_answer_does_not_end_costs_its_time_once() {
    let times = JudgeTimes { answer: Duration::from_secs(3), copy: Duration::from_mins(10), ..times() };
    let verdicts = [verdict("node", "c", (600, None))];
    let stalls = Claims { document: Some(Answer::Stalls("{".into())), ..judge_with(&[]) };
    let mesh = claiming([stalls, judge_with(&verdicts), judge_with(&verdicts)], times);
    for _ in 0..3 {
        assert_eq!(subjects(&read(&mesh, "/api/v1/verdicts")), ["c"]);
    }
}

#[test]
fn a_new_judge_takes_over_the_past_on_which_the_others_agree_and_names_the_one_that_lies() {
    let past = verdict("zone", "z", (5_000, Some(4_000)));
    let (lie, forged) = (verdict("node", "innocent", (300, None)), verdict("zone", "forged", (5_000, Some(4_000))));
    let [honest, liar] = [judge_with(std::slice::from_ref(&past)), judge_with(&[past, lie, forged])];
    // The third does not judge, so this agent does.
    let mesh = claiming([honest, liar, Claims::default()], times());
    let name = better(2).remove(1);
    eventually("the liar is suspect", || {
        let document = get(mesh.address(), "/api/v1/judge/verdicts").expect("an answer");
        document.status == 200 && document.body.contains("agent_suspect")
    });
    let document = read(&mesh, "/api/v1/judge/verdicts");
    assert_eq!(subjects(&document), [name.as_str(), "z"], "{document}");
    let suspect = &document["verdicts"][0];
    let found = (&suspect["figures"], &suspect["mentions"], &suspect["evidence"]);
    assert_eq!(found, (&json!({"adds": 1}), &json!([["disputed", "node innocent"]]), &Value::Null), "no sentence");
    assert!(metrics(&mesh).contains(&format!(
        "kind=\"agent_suspect\",network=\"pod\",protocol=\"all\",severity=\"warning\",subject=\"{name}\"}} 1"
    )));
}

#[test]
fn a_member_that_replaces_judges_has_the_past_that_they_had() {
    let verdicts = [verdict("node", "c", (600, None)), verdict("zone", "z", (5_000, Some(4_000)))];
    // All three are gone at once, after it has copied what they hold.
    let mesh = claiming([(); 3].map(|()| Claims { ends_after: Some(9), ..judge_with(&verdicts) }), times());
    eventually("it judges", || get(mesh.address(), "/api/v1/judge/verdicts").expect("an answer").status == 200);
    let ended = |document: &Value| {
        document["verdicts"]
            .as_array()
            .map_or(0, |it| it.iter().filter(|it| it.get("ended_unix_seconds").is_some()).count())
    };
    eventually("what they held and it does not find has ended", || ended(&read(&mesh, "/api/v1/judge/verdicts")) == 2);
    let document = read(&mesh, "/api/v1/judge/verdicts");
    assert_eq!(subjects(&document), ["c", "z"], "{document}");
    assert!(
        document["verdicts"].as_array().expect("verdicts").iter().all(|it| it.get("unconfirmed").is_none()),
        "{document}"
    );
}

#[test]
fn a_judge_serves_figures_of_all_nodes_and_another_agent_passes_on_those_of_the_best_judge() {
    let mesh = among([(); 3].map(|()| None), times());
    eventually("it judges", || get(mesh.address(), "/api/v1/judge/nodes").expect("an answer").status == 200);
    for path in ["/api/v1/nodes", "/api/v1/judge/nodes"] {
        let own = read(&mesh, path);
        assert_eq!((&own["judge"], own["rows"].as_array().map(Vec::len)), (&"me".into(), Some(4)), "{own}");
    }
    // The best-ranked judge has no such answer, as an older agent.
    let with = |nodes: Option<&str>| Claims { nodes: nodes.map(|it| Answer::Text(it.into())), ..judge_with(&[]) };
    let long = format!("[\"{}\"]\n", "x".repeat(100_000));
    let mut claims = [with(None), with(Some(&long)), with(Some("[]"))].map(Some);
    let mut places = by_rank(&better(3)).into_iter().zip(0..).collect::<Vec<_>>();
    places.sort_unstable();
    let mut places = places.into_iter().map(|(_, rank): (usize, usize)| claims[rank].take().expect("one of each rank"));
    let mesh = claiming(std::array::from_fn(|_| places.next().expect("three")), times());
    let answer = get(mesh.address(), "/api/v1/nodes").expect("an answer");
    assert!(answer.status == 200 && answer.body == long, "byte by byte: {}", answer.body.len());
    let own = get(mesh.address(), "/api/v1/judge/nodes").expect("an answer");
    assert_eq!((own.status, own.body.as_str()), (404, "this agent is not a judge\n"), "never forwarded");
    assert_eq!(mesh.asked(), 0, "it collects nothing");
}

#[test]
fn without_a_judge_there_are_no_figures_of_all_nodes() {
    let silent = Claims { document: None, ..judge_with(&[]) };
    for mesh in [claiming([silent.clone(), silent.clone(), silent], times()), Mesh::of(&[])] {
        let answer = get(mesh.address(), "/api/v1/nodes").expect("an answer");
        assert!(answer.status == 503 && answer.header("retry-after") == Some("1"), "{}", answer.body);
        assert_eq!(mesh.asked(), 0, "it collects nothing");
    }
}

#[test]
fn a_judge_that_sends_without_end_is_cut_off() {
    let too_long = Answer::Text("x".repeat(kube_canary::limits::NODES_DOCUMENT_BYTES_MAX + 1));
    let endless = Claims { nodes: Some(too_long), ..judge_with(&[]) };
    let mesh = claiming([endless.clone(), endless.clone(), endless], times());
    let answer = get(mesh.address(), "/api/v1/nodes").expect("an answer");
    let (bytes, most) = (answer.body.len(), kube_canary::limits::NODES_DOCUMENT_BYTES_MAX);
    assert!(answer.status == 200 && bytes <= most && bytes > most - 65_536, "{bytes}");
}

/// A connection whose kernel takes next to nothing of an answer that is not read.
fn slow_reader(mesh: &Mesh, path: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("a small buffer");
    socket.connect(&mesh.address().into()).expect("the server accepts");
    let mut stream = TcpStream::from(socket);
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: canary\r\n\r\n").as_bytes()).expect("a request");
    // The answer has begun.
    assert_eq!(stream.peek(&mut [0]).expect("a byte"), 1);
    stream
}

#[test]
fn slow_readers_share_what_the_judges_say() {
    const READERS: usize = 24;
    // Answers of some 170 KB.
    let long = |kind: &str, subject: String, times| {
        let mut verdict = verdict(kind, &subject, times);
        verdict["mentions"] = ["by", "error", "disputed"].map(|part| json!([part, "n".repeat(250)])).to_vec().into();
        verdict
    };
    let past = (0..120).map(|n| long("link", format!("a->b{n}"), (5_000, Some(4_000))));
    let holds = (0..40).map(|n| long("node", format!("n{n}"), (600, None)));
    let verdicts: Vec<Value> = holds.chain(past).collect();
    let reuse = JudgeTimes { reuse: Duration::from_mins(10), copy: Duration::from_mins(10), ..times() };
    let mesh = claiming([(); 3].map(|()| judge_with(&verdicts)), reuse);
    has_copied(&mesh);
    for (path, least) in [("/api/v1/history", 160_000), ("/api/v1/verdicts", 40_000)] {
        let whole = get(mesh.address(), path).expect("an answer").body;
        assert!(whole.len() > least, "{path}: {}", whole.len());
        let before = mesh.live_bytes();
        let readers: Vec<TcpStream> = (0..READERS).map(|_| slow_reader(&mesh, path)).collect();
        let each = mesh.live_bytes().saturating_sub(before) / READERS;
        unfollowed(|| println!("{path}: {each} bytes for each reader of {}", whole.len()));
        // The buffers of its connection.
        assert!(each < 24 * 1_024, "{path}: {each} bytes for each reader");
        for reader in readers {
            let read = receive(&mut BufReader::new(reader), false).expect("an answer").body;
            let verdicts = |text: &str| serde_json::from_str::<Value>(text).expect("JSON")["verdicts"].clone();
            assert_eq!(verdicts(&read), verdicts(&whole), "{path}");
        }
        eventually("the readers are gone", || mesh.stats.connections() == 0);
    }
}
