//! Meshes of which the agent's own list has a part.

use kube_canary::discovery::MeshFacts;
use kube_canary::limits::NAMED_REPORTS_MAX;
use serde_json::Value;

use crate::agents::{Discovered, Mesh, address_of, at_once, errors, nodes, ring, spec_of};
use crate::http_support::get;

#[test]
fn members_that_no_report_names_are_counted_by_a_judge() {
    let mesh = Mesh::partial_by(12, 12, ring(12), |port| Discovered {
        peers: (0..2).map(|node| spec_of(12, node, port)).collect(),
        roster: (0..12).map(|node| (format!("n{node}"), address_of(12, node))).collect(),
        facts: MeshFacts { members: 40, ..MeshFacts::default() },
        judge: Some(at_once()),
        ..Discovered::default()
    });
    let held = mesh.held();
    assert_eq!((errors(&held), &held["overview"]["not_gathered"]), (vec![], &27.into()));
}

#[test]
fn of_named_nodes_only_these_are_asked_also_beyond_the_agent_s_own_list() {
    let mesh = Mesh::partial(16, 12, ring(16), 13);
    let of = |path: &str| get(mesh.address(), path).expect("an answer");
    let body = of("/api/v1/mesh/n9,n%33,unknown,n9").body;
    let document: Value = serde_json::from_str(&body).expect("JSON");
    // The two that are asked may answer in either order.
    let mut found = nodes(&document);
    found.sort_unstable();
    assert_eq!((found, mesh.asked()), (vec!["n3", "n9"], 2), "n9 is not in its own list");
    assert_eq!(errors(&document), [("unknown", "no such node in this agent's list")]);
    let own: Value = serde_json::from_str(&of("/api/v1/mesh/me").body).expect("JSON");
    assert_eq!((nodes(&own), mesh.asked()), (vec!["me"], 2));
    let many: Vec<String> = (0..=NAMED_REPORTS_MAX).map(|node| format!("n{node}")).collect();
    for path in ["", "n%", ",", "n1,", &many.join(",")] {
        assert_eq!(of(&format!("/api/v1/mesh/{path}")).status, 404, "{path}");
    }
    assert_eq!(mesh.asked(), 2);
}
