//! The last hour of any link, from any agent.

use std::net::{IpAddr, Ipv6Addr};

use kube_canary::discovery::{MeshFacts, PeerSpec};

use crate::agents::{Answer, Discovered, Mesh, address_of, ring, row, spec_of};
use crate::http_support::get;

#[test]
fn any_agent_answers_for_the_hour_of_any_link() {
    let mesh = Mesh::of(&[("b", Answer::Text(row("b", &[])))]);
    let hour = |path: &str| get(mesh.address(), path).expect("an answer");
    let answer = hour("/api/v1/hour/b/c");
    assert_eq!((answer.status, answer.body.as_str()), (200, "{\"peer\":\"c\"}\n"));
    assert_eq!(hour("/api/v1/hour/b/x").status, 404, "it does not know x");
    assert_eq!(hour("/api/v1/hour/unknown/c").status, 404);
    assert_eq!(hour("/api/v1/hour/me/unknown").status, 404);
    let all = hour("/api/v1/hour/me/*");
    assert!(all.status == 200 && all.body.starts_with(r#"{"source":"me","peer":"*","#), "{}", all.body);
    assert_eq!(hour("/api/v1/hour/b/*").status, 404, "asked of b, which knows c alone");
    // A browser may write any name in this way.
    assert_eq!(hour("/api/v1/hour/%62/c").body, answer.body);
    assert_eq!(hour("/api/v1/hour/m%65/unknown").body, hour("/api/v1/hour/me/unknown").body);
    assert_eq!(hour("/api/v1/hour/b%/c").status, 404);
}

#[test]
fn the_hour_of_a_source_that_only_others_rows_name_is_found() {
    let mesh = Mesh::partial(14, 12, ring(14), 13);
    let hour = |path: &str| get(mesh.address(), path).expect("an answer");
    let answer = hour("/api/v1/hour/n9/c");
    assert_eq!((answer.status, answer.body.as_str()), (200, "{\"peer\":\"c\"}\n"));
    assert_eq!(mesh.asked(), 0, "discovery knows its address: no row is asked for");
    assert_eq!(hour("/api/v1/hour/n9/x").status, 404, "it does not know x");
    assert_eq!(hour("/api/v1/hour/unknown/c").status, 404);
}

#[test]
fn the_hour_of_a_far_source_is_found_in_a_dual_stack_mesh_too() {
    let mesh = Mesh::partial_by(15, 12, ring(15), |port| {
        let both = |node: u8| {
            let six = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, node.into()));
            [spec_of(15, node, port), PeerSpec { address: six, ..spec_of(15, node, port) }]
        };
        Discovered {
            peers: (0..7).flat_map(both).collect(),
            roster: vec![("n9".to_owned(), address_of(15, 9))],
            facts: MeshFacts { members: 13, ..MeshFacts::default() },
            ..Discovered::default()
        }
    });
    let answer = get(mesh.address(), "/api/v1/hour/n9/c").expect("an answer");
    assert_eq!((answer.status, answer.body.as_str()), (200, "{\"peer\":\"c\"}\n"));
}
