//! Three hundred nodes: 90,000 links.

use serde_json::json;

use crate::agent::Agent;
use crate::browser::key;
use crate::made_up::{Link, Mesh, losing, well};
use crate::opened_with_matrix;

const NODES: usize = 300;
const BAD: usize = 6;

/// One node loses a tenth of its inbound probes, a few links lost one probe, and some sources probe
/// four of five nodes.
fn link(source: usize, peer: usize, _: usize) -> Option<Link> {
    if source % 47 == 20 && peer % 5 == 2 {
        return None;
    }
    let link = well(source, peer, 3);
    let noise = (source * 7_919 + peer * 104_729) % 1_009;
    Some(match () {
        () if peer == BAD => Link { lost: 4 + u32::try_from(noise % 5).expect("small"), received: 51, ..link },
        () if noise == 3 => Link { lost: 1, received: 57, ..link },
        () => link,
    })
}

pub fn mesh() -> Mesh {
    let mut mesh = Mesh::new(NODES, link);
    mesh.verdicts.push(losing("node-007", NODES - 2));
    mesh.missing.push((40, "connect: timed out"));
    mesh
}

#[test]
fn three_hundred_nodes_are_drawn_and_answer_to_keys() {
    let agent = Agent::of(&mesh());
    let browser = opened_with_matrix(&agent);
    assert_eq!(browser.text("$('headline').textContent"), "node-007 is losing packets from 298 of 298 sources");
    assert_eq!(
        browser.run("return [mesh.rows.size, view.rows.nodes.length, view.columns.nodes.length]"),
        json!([299, 300, 300])
    );
    // Compares the visible cells with the measurements, cell by cell. The outline of the current
    // cell would cover others.
    browser.run("map.blur()");
    browser.resize(1280, 1420, 1.0);
    browser.until("map.clientHeight > view.rows.length && !view.stale && !view.frame");
    let wrong = browser.run(
        "const wrong = [], painted = {}, known = losses();
        eachCell((source, peer, seen, kind) => {
            painted[kind ?? 'unknown'] = 1;
            const right = kind ? seen === tone(kind) : !known.includes(seen);
            if (!right) wrong.push(`${source.name} ${peer.name} ${seen}`);
        });
        return { wrong: wrong.slice(0, 5), kinds: Object.keys(painted).length }",
    );
    assert_eq!(wrong["wrong"], json!([]));
    assert!(wrong["kinds"].as_u64() >= Some(5), "no loss, some, much, itself, unknown: {wrong}");
    // The end of the map can be reached, and a cell there opens.
    browser.run("map.focus()");
    browser.press(&[key::END]);
    assert!(
        browser.text("$('here').textContent").contains("→ node-300 (zone-c)"),
        "{}",
        browser.text("$('here').textContent")
    );
    browser.run("map.scrollTop = 1e6; map.scrollIntoView({ block: 'end' })");
    browser.until("!view.frame");
    browser.click("place(299, 298)");
    browser.until("$('link').open");
    assert_eq!(browser.text("$('link-title').textContent"), "node-300 → node-297");
    assert_eq!(browser.console(), [""; 0]);
}
