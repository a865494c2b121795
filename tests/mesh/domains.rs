//! The operator's failure domains in an agent: verdicts name one, whatever the reports say.

use std::fs;

use kube_canary::mesh::domains::DomainsFile;
use serde_json::json;

use crate::agents::{Discovered, Mesh, address_of, at_once, peer_at, row, spec_of};

#[test]
fn an_agent_names_the_domain_of_its_file_and_none_that_a_report_claims() {
    let file = std::env::temp_dir().join(format!("kube-canary-mesh-domains-{}", std::process::id()));
    fs::write(&file, "n1 rack-a\nn2 rack-a\n").expect("a file");
    let in_rack = |node: u8| node == 1 || node == 2;
    let row_of = |node: u8| {
        let lost = |other: u8| if in_rack(node) == in_rack(other) { 0 } else { 20 };
        let others = (0..6).filter(|other| *other != node);
        let peers = others.map(|other| {
            let peer = peer_at(&format!("n{other}"), address_of(17, other));
            let lossy = format!(r#""received":{},"lost":{}"#, 50 - lost(other), lost(other));
            peer.replace(r#""received":50,"lost":0"#, &lossy)
        });
        let claim = r#""zone":"z","domain":"rack-b","#;
        row(&format!("n{node}"), &peers.collect::<Vec<_>>()).replace(r#""zone":"z","#, claim)
    };
    let mesh = Mesh::partial_by(17, 6, row_of, |port| Discovered {
        peers: (0..6).map(|node| spec_of(17, node, port)).collect(),
        domains: Some(DomainsFile::new(file.clone())),
        judge: Some(at_once()),
        ..Discovered::default()
    });
    let document = mesh.held();
    fs::remove_file(&file).expect("our own");
    let found = document["verdicts"].as_array().expect("a list").iter();
    let found: Vec<_> = found.map(|verdict| (verdict["kind"].as_str(), verdict["subject"].as_str())).collect();
    assert_eq!(found, [(Some("domain"), Some("rack-a"))], "{}", document["verdicts"]);
    assert_eq!(document["verdicts"][0]["members"], json!([["n1", "n2"]]));
}
