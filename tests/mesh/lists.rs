//! The lists of nodes that a judge holds beside the verdicts, by name.

use serde_json::{Value, json};

use crate::agents::{Answer, Mesh, peer, row};
use crate::http_support::get;

#[test]
fn a_judge_and_its_readers_list_the_nodes_whose_evidence_does_not_count() {
    let drops = r#""recent":{"receive_queue_drops":40,"#;
    let leaving = peer("d\\\"x", 50).replace("ready", "terminating");
    let report = |node: &str| row(node, &[peer("me", 0), leaving.clone()]);
    let others = [
        ("a", Answer::Text(report("a"))),
        ("b", Answer::Text(report("b").replacen(r#""recent":{"#, drops, 1))),
        ("c", Answer::Text(report("c"))),
        ("d\"x", Answer::Text(row("d\\\"x", &[]))),
    ];
    let mesh = Mesh::judge_of(&others, Vec::new());
    let held = mesh.held()["overview"].clone();
    let verdicts = get(mesh.address(), "/api/v1/verdicts").expect("an answer").body;
    let verdicts: Value = serde_json::from_str(&verdicts).expect("JSON");
    for of in [held, verdicts] {
        assert_eq!((&of["starved"], &of["leaving"]), (&json!(["b"]), &json!(["d\"x"])), "{of}");
        assert_eq!(of["leaving_not_listed"], 0);
    }
}
