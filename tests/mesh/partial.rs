//! Meshes of which the agent's own list has a part.

use std::net::{IpAddr, Ipv4Addr};

use kube_canary::discovery::MeshFacts;
use kube_canary::limits::{MESH_REPORTS_MAX, NAMED_REPORTS_MAX};
use serde_json::Value;

use crate::agents::{Discovered, Mesh, errors, nodes, peer_at, ring, row, spec_of};
use crate::http_support::get;

#[test]
fn nodes_that_only_others_rows_name_are_asked_each_once() {
    let mesh = Mesh::partial(11, 12, ring(11), 13);
    let (_, document) = mesh.document();
    let mut found = nodes(&document);
    found.sort_unstable();
    let mut expected: Vec<String> = (0..12).map(|node| format!("n{node}")).chain(["me".to_owned()]).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!((errors(&document), document["not_gathered"].as_u64()), (vec![], Some(0)));
    assert_eq!(mesh.asked(), 12);
}

#[test]
fn members_that_no_report_names_are_counted() {
    let mesh = Mesh::partial(12, 12, ring(12), 40);
    let (_, document) = mesh.document();
    assert_eq!((nodes(&document).len(), document["not_gathered"].as_u64()), (13, Some(27)));
}

#[test]
fn a_row_names_more_than_are_asked() {
    // No agent listens there: the kernel refuses at once.
    let far = |node: u16| IpAddr::V4(Ipv4Addr::from_bits(0x7f0e_0000 + u32::from(node)));
    let roster: Vec<(String, IpAddr)> = (1..=500).map(|node| (format!("far-{node}"), far(node))).collect();
    let peers: Vec<String> = roster.iter().map(|(node, address)| peer_at(node, *address)).collect();
    let mesh = Mesh::partial_by(
        13,
        1,
        |_| row("n0", &peers),
        |port| Discovered {
            peers: vec![spec_of(13, 0, port)],
            roster: roster.clone(),
            facts: MeshFacts { members: 502, ..MeshFacts::default() },
            ..Discovered::default()
        },
    );
    let (_, document) = mesh.document();
    assert_eq!((nodes(&document), errors(&document).len()), (vec!["me", "n0"], MESH_REPORTS_MAX - 2));
    assert_eq!(document["not_gathered"].as_u64(), Some(502 - 300));
}

#[test]
fn of_a_collection_that_names_nodes_only_these_are_asked_and_no_verdict_is_kept() {
    let mesh = Mesh::partial(16, 12, ring(16), 13);
    let of = |path: &str| get(mesh.address(), path).expect("an answer");
    let body = of("/api/v1/mesh/n9,n%33,unknown,n9,me").body;
    let document: Value = serde_json::from_str(&body).expect("JSON");
    // The two that are asked may answer in either order.
    let mut found = nodes(&document);
    found.sort_unstable();
    assert_eq!((found, mesh.asked()), (vec!["me", "n3", "n9"], 2), "n9 is not in its own list");
    assert_eq!((errors(&document), document["not_gathered"].as_u64()), (vec![], Some(10)));
    let many: Vec<String> = (0..=NAMED_REPORTS_MAX).map(|node| format!("n{node}")).collect();
    for path in ["", "n%", ",", "n1,", &many.join(",")] {
        assert_eq!(of(&format!("/api/v1/mesh/{path}")).status, 404, "{path}");
    }
    assert_eq!(mesh.asked(), 2);
    let verdicts: Value = serde_json::from_str(&of("/api/v1/verdicts").body).expect("JSON");
    assert_eq!((&verdicts["nodes"], mesh.asked()), (&13.into(), 14), "judged of all reports, not of three");
}
