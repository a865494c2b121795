//! Meshes in which each node probes a part of the others, nodes that leave, and old lists.

use serde_json::json;

use crate::agent::Agent;
use crate::browser::key;
use crate::made_up::{Link, Mesh, losing, well};
use crate::{opened, opened_with_matrix, picture};

const NODES: usize = 300;
const PEERS: usize = 24;
const BAD: usize = 6;

/// Each node probes the next twelve, and twelve that are far. One node loses a tenth
/// of its inbound probes.
fn link(source: usize, peer: usize, _: usize) -> Option<Link> {
    let ahead = (peer + NODES - source) % NODES;
    let far = ahead > PEERS / 2 && (ahead - PEERS / 2).is_multiple_of(23);
    let link = well(source, peer, 3);
    let bad = peer == BAD || (source == 40 && peer == 41);
    (ahead <= PEERS / 2 || far).then_some(if bad { Link { lost: 6, received: 52, ..link } } else { link })
}

fn mesh() -> Mesh {
    let mut mesh = Mesh::new(NODES, link);
    mesh.verdicts.push(losing("node-007", PEERS));
    mesh.missing.push((120, "connect: timed out"));
    mesh.about = |source| {
        json!({"members": NODES, "watchers": if source == 9 { 12 } else { PEERS },
        "watchers_missing": u32::from(source == 9), "peer_list_age_seconds": 4.0})
    };
    mesh
}

#[test]
fn links_not_probed_look_unlike_unknown_ones() {
    let agent = Agent::of(&mesh());
    let browser = opened_with_matrix(&agent);
    browser.resize(1280, 1420, 1.0);
    browser.until("map.clientHeight > view.rows.length && !view.stale && !view.frame");
    let text = browser.text("$('summary').textContent");
    assert!(text.contains("300 nodes judged by ") && text.ends_with("; 1 node with too few watchers"), "{text}");
    let wrong = browser.run(
        "const wrong = [], painted = {}, known = losses();
        eachCell((source, peer, seen, measured) => {
            const kind = measured ?? (mesh.rows.has(source.name) ? 'face' : 'silent');
            painted[kind] = 1;
            if (kind === 'silent' ? known.includes(seen) || seen === tone('face') : seen !== tone(kind)) {
                wrong.push(`${source.name} ${peer.name} ${kind} ${seen}`);
            }
        });
        return { wrong: wrong.slice(0, 5), kinds: Object.keys(painted).sort() }",
    );
    assert_eq!(wrong, json!({"wrong": [], "kinds": ["face", "loss0", "loss3", "self", "silent"]}));
    picture::take_map(&browser, "mesh-300-partial");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn keys_pass_over_what_is_not_probed() {
    let agent = Agent::of(&mesh());
    let browser = opened_with_matrix(&agent);
    browser.run("map.focus(); moveTo(rowOf('node-004'), columnOf('node-100'))");
    let here = || browser.text("$('here').textContent");
    assert_eq!(here(), "node-004 (zone-a) → node-100 (zone-a): not probed, pod network, ICMP, IPv4");
    browser.press_with_shift(key::LEFT);
    assert!(here().starts_with("node-004 (zone-a) → node-085 (zone-a): 0 % lost"), "{}", here());
    browser.press(&[key::LEFT]);
    assert!(here().starts_with("node-004 (zone-a) → node-082 (zone-a): not probed"), "{}", here());
    // There is no probed link beyond the last.
    for _ in 0..30 {
        browser.press_with_shift(key::RIGHT);
    }
    assert!(here().contains(" % lost"), "{}", here());
    assert_eq!(browser.text("$('here').getAttribute('aria-live')"), "polite");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_node_that_leaves_is_marked_and_its_losses_have_no_colour() {
    // The fourth leaves: two of four sources know it, and all have lost all probes to it. One of
    // four says so of the fifth.
    let mut mesh = Mesh::new(5, |source, peer, _| {
        let state = match (source, peer) {
            (0 | 1, 3) | (0, 4) => "terminating",
            _ => "ready",
        };
        let lost = if peer == 3 { 58 } else { 0 };
        Some(Link { lost, received: 58 - lost, state, ..well(source, peer, 3) })
    });
    mesh.leaving = vec![3];
    let agent = Agent::of(&mesh);
    let browser = opened(&agent, false);
    let shows = |source: usize, peer: usize, name: &str| {
        browser.run(&format!("return colors(rowOf('node-{source}'), columnOf('node-{peer}')).includes(tone('{name}'))"))
            == json!(true)
    };
    for source in [1, 2, 3, 5] {
        assert!(shows(source, 4, "leaving") && !shows(source, 4, "loss5"), "node-{source}");
    }
    assert!(shows(1, 5, "leaving") && shows(2, 5, "loss0"), "one of four says so of the fifth");
    assert_eq!(
        browser.text("title(mesh.nodes.get('node-4')) + title(mesh.nodes.get('node-5'))"),
        "node-4 (leaving)node-5"
    );
    assert_eq!(
        browser.text("$('summary').textContent"),
        "5 nodes judged by judge-1, judge-2; 15 links measured in the last minute, 0 of them with loss; 5 known links not measured"
    );
    assert!(browser.text("$('legend').innerText").contains("leaving"));
    let says = browser.text("describe('node-3', 'node-4')");
    assert!(says.ends_with("not measured in the last 58 s; node-4 is leaving: probes to it are not counted"), "{says}");
    browser.run("map.focus()");
    browser.press(&["n"]);
    assert_eq!(browser.run("return view.cursor"), json!([0, 0]), "there is no loss to go to");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn networks_and_protocols_of_later_versions_are_no_layer_of_this_page() {
    let agent = Agent::of(&Mesh::new(3, |source, peer, _| Some(well(source, peer, 3))));
    let browser = opened(&agent, false);
    let layers = "const row = { source: { node: 'x' }, peers: [{ node: 'y', network: 'next', protocol: 'icmp' },
        { node: 'y', network: 'pod', protocol: 'sctp' }] }; addRow(row); return [...mesh.layers]";
    assert_eq!(browser.run(layers), json!(["pod icmp"]));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn old_lists_are_counted_and_marked_and_young_ones_are_not() {
    let mut mesh = Mesh::new(9, |source, peer, _| Some(well(source, peer, 3)));
    mesh.about = |source| {
        let age = match source {
            0 => json!(null),
            1 => json!(239.0),
            2 => json!(305.0),
            _ => json!(3_600.0),
        };
        json!({"members": 9, "watchers": 8, "watchers_missing": 0, "peer_list_age_seconds": age})
    };
    let agent = Agent::of(&mesh);
    let browser = opened(&agent, false);
    let text = browser.text("$('summary').textContent");
    assert!(text.ends_with("; 8 agents with an old list of peers"), "{text}");
    browser.run("$('internals').open = true");
    let row = |node: usize| {
        browser.text(&format!(
            "[...document.querySelectorAll('#agents tbody tr')].find((row) => row.cells[0].textContent === 'node-{node}').innerText"
        ))
    };
    assert!(row(1).contains("old list") && row(1).contains("never had one") && row(4).contains("60 min"), "{}", row(1));
    assert!(row(2).contains("4 min") && !row(2).contains("old list"), "{}", row(2));
    assert_eq!(browser.console(), [""; 0]);
}
