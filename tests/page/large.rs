//! Three hundred nodes: 90,000 links.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::agent::{Agent, Collection};
use crate::browser::key;
use crate::made_up::{Link, Mesh, losing, well};
use crate::{opened, opening, picture};

const NODES: usize = 300;
const BAD: usize = 6;
/// One agent does not answer.
const ROWS: usize = NODES - 1;
/// The page yields after 12 ms, and each line takes 4 ms by its stopwatch: see [`crate::CLOCK`].
const LINES_A_TURN: usize = 3;

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
    let browser = opened(&agent, false);
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

#[test]
fn rows_are_shown_as_they_come() {
    let mesh = mesh();
    let whole: Arc<str> = mesh.answer().into();
    let half = whole.match_indices('\n').nth(NODES / 2).expect("rows").0 + 1;
    let agent = Agent::serve(&mesh.layers, || Collection::Held(whole, half));
    let browser = opening(&agent, false);
    browser.until(&format!("mesh.rows.size === {} && !view.frame", NODES / 2));
    let said = browser.text("$('headline').textContent");
    assert_eq!(said, "Collecting the agents' reports", "no verdict before all is there");
    assert!(browser.text("$('age').textContent").ends_with(" so far"));
    browser.run("redraw(); map.focus()");
    browser.until("!view.frame && view.rows.nodes.length === 300");
    assert_eq!(
        browser.run("return [colors(0, 3).includes(tone('loss0')), colors(rowOf('node-299'), 3).join()]"),
        json!([true, browser.text("tone('back')")]),
        "what has not come is blank"
    );
    browser.press(&[key::RIGHT]);
    assert!(
        browser.text("$('here').textContent").contains("node-001 (zone-a) → node-004 (zone-a): 0 % lost"),
        "a key is answered while half of the rows are there"
    );
    // From here on, a key is pressed each time that the page yields between two rows.
    browser.run(
        "window.noted = [];
        watch.turn = () => {
            map.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
            noted.push([mesh.at, mesh.rows.size, $('here').textContent.split(':')[0]]);
        }",
    );
    agent.shared.release();
    browser.until("$('headline').textContent.startsWith('node-007 is losing')");
    // The first line of the answer is no report, so the third line is the second report.
    let turns = (1..=ROWS).filter(|rows| (rows + 1) % LINES_A_TURN == 0 && *rows > NODES / 2);
    // Each key moves one column on. A zone's nodes, which are every third, stand side by side.
    let answered =
        |(turn, rows)| json!([null, rows, format!("node-001 (zone-a) → node-{:03} (zone-a)", 3 * (turn + 2) + 1)]);
    let answered: Vec<Value> = turns.enumerate().map(answered).collect();
    assert_eq!(answered.len(), 50, "as many turns as the second half of the rows has");
    assert_eq!(browser.run("return noted"), Value::from(answered), "each turn: no verdict yet, and its key's answer");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn three_hundred_nodes_in_light_and_dark() {
    let agent = Agent::of(&mesh());
    let browser = opened(&agent, false);
    browser.resize(1280, 1420, 1.0);
    picture::take_map(&browser, "mesh-300");
    assert_eq!(browser.console(), [""; 0]);
}
