//! Meshes of which the agent's own list has a part.

use std::net::{IpAddr, Ipv4Addr};

use kube_canary::discovery::MeshFacts;
use kube_canary::limits::MESH_REPORTS_MAX;

use crate::agents::{Discovered, Mesh, errors, nodes, peer_at, ring, row, spec_of};

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
