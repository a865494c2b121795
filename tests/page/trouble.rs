//! When a collection fails, the page says so, and the old picture stays.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use serde_json::json;

use crate::agent::{Agent, Collection};
use crate::browser::Browser;
use crate::made_up::{Mesh, well};
use crate::{opening, wait_until_shown};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

fn three() -> Mesh {
    Mesh::new(3, |source, peer, _| Some(well(source, peer, 3)))
}

/// Opens the page and waits for the end of its first collection, even if that fails.
fn after_a_collection(agent: &Agent) -> Browser {
    let browser = opening(agent, false);
    browser.until("document.readyState === 'complete' && !turns.running && timers.size === 1");
    browser
}

#[test]
fn a_failing_agent_is_reported_and_the_picture_stays() {
    let mesh = three();
    let whole: Arc<str> = mesh.answer().into();
    let mut agent = Agent::serve(&mesh.layers, || Collection::Whole(Arc::clone(&whole)));
    let browser = after_a_collection(&agent);
    wait_until_shown(&browser);
    let again = || {
        browser.run("window.before = $('trouble').textContent; $('again').click()");
        browser.until("!turns.running && $('trouble').textContent !== window.before && timers.size === 1");
        assert_eq!(browser.text("$('headline').textContent"), "all well", "the verdict stays");
        browser.until("!view.frame");
        assert_eq!(browser.run("return colors(0, 1).includes(tone('loss0'))"), true, "the picture stays");
        assert_eq!(browser.run("return $('trouble').hidden"), false);
        browser.text("$('trouble').textContent")
    };
    agent.next(Collection::Busy);
    let said = again();
    assert!(said.contains("the agent answers 503: another collection is running. The map is of"), "{said}");
    assert!(said.ends_with("The next attempt is in 1 s."), "as the server asks: {said}");

    let reports: Arc<str> = Agent::reports(&whole, &NODES).into();
    let after_two_rows = reports.match_indices('\n').nth(2).expect("rows").0 + 1;
    agent.next(Collection::Broken(reports, after_two_rows));
    let said = again();
    assert!(said.contains("the answer broke off after 2 reports"), "{said}");
    assert!(said.ends_with("The next attempt is in 10 s."), "twice as long: {said}");
    assert_eq!(browser.run("return waits()"), json!([10_000]));

    agent.next(Collection::Whole(Arc::clone(&whole)));
    browser.run("fire()");
    browser.until("!turns.running && $('trouble').hidden");
    assert_eq!(browser.run("return turns.failures"), 0);
    // The server stops altogether.
    drop(agent.server.take());
    let said = again();
    assert!(said.contains("Failed to fetch"), "{said}");
    let console = browser.console();
    let of_ours = |entry: &&String| !entry.contains("503") && !entry.contains("ERR_CONNECTION_REFUSED");
    assert_eq!(console.iter().filter(of_ours).collect::<Vec<_>>(), [""; 0], "the browser's own words alone");
}

#[test]
fn a_first_collection_that_fails_gives_no_verdict() {
    let agent = Agent::serve(&[("pod", "icmp")], || Collection::Busy);
    let browser = after_a_collection(&agent);
    assert_eq!(browser.text("$('headline').textContent"), "No verdict: the request failed");
    assert!(browser.text("$('trouble').textContent").contains("503"));
    agent.next(Collection::Whole(three().answer().into()));
    browser.run("fire()");
    browser.until("$('headline').textContent === 'all well' && $('trouble').hidden");
}

#[test]
fn a_row_that_cannot_be_read_hides_no_other() {
    let mesh = three();
    let whole = mesh.answer();
    let line = whole.lines().nth(2).expect("a row");
    assert!(line.starts_with(",{\"source\":") && line.contains("\"cpus\":8"), "{line}");
    let broken = whole.replacen(line, &line.replace("\"cpus\":8", "\"cpus\":?"), 1);
    let agent = Agent::serve(&mesh.layers, || Collection::Whole(broken.into()));
    let browser = after_a_collection(&agent);
    wait_until_shown(&browser);
    assert_eq!(browser.text("$('headline').textContent"), "all well", "the judges have read it");
    assert!(
        browser.text("describe('node-2', 'node-1')").ends_with("node-2 did not answer (its report cannot be read)")
    );
    assert!(browser.text("describe('node-1', 'node-2')").contains("0 % lost"));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn the_page_collects_while_it_is_visible_and_not_paused() {
    let agent = Agent::of(&three());
    let browser = after_a_collection(&agent);
    let collections = || agent.shared.collections.load(SeqCst);
    assert_eq!(collections(), 1);
    let waits = || browser.run("return waits()");
    assert_eq!(waits(), json!([15_000]));
    browser.run("fire()");
    browser.until("!turns.running && timers.size === 1");
    assert_eq!(collections(), 2);

    browser.run("$('pause').click()");
    assert_eq!(waits(), json!([]), "paused, nothing is planned");
    assert_eq!(browser.text("$('pause').getAttribute('aria-pressed')"), "true");
    browser.run("$('again').click()");
    browser.until("!turns.running");
    assert_eq!((collections(), waits()), (3, json!([])), "once, by hand");
    browser.run("watch.passed += 6000; $('pause').click()");
    assert_eq!(waits(), json!([9_000]), "what is left of the time");

    let looked_at = |state: &str| {
        browser.run(&format!(
            "Object.defineProperty(document, 'visibilityState', {{ value: '{state}', configurable: true }});
            document.dispatchEvent(new Event('visibilitychange'))"
        ));
    };
    looked_at("hidden");
    assert_eq!(waits(), json!([]), "hidden, nothing is planned");
    looked_at("visible");
    assert_eq!(waits(), json!([9_000]));
    // A collection that took 3 s is followed by a pause of ten times that. Its answer comes after
    // this script at the earliest.
    browser.run("watch.look = 0; fire(); watch.passed += 3000");
    browser.until("!turns.running && timers.size === 1");
    assert_eq!(waits(), json!([30_000]));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn an_answer_that_has_lost_a_part_is_not_well() {
    let mesh = three();
    let whole = Agent::reports(&mesh.answer(), &NODES);
    let end = whole.rfind("],\"missing\"").expect("fields");
    let agent = Agent::of(&mesh);
    let browser = after_a_collection(&agent);
    wait_until_shown(&browser);
    let is_refused = |document: &dyn std::fmt::Display| {
        browser.run("$('trouble').hidden = true; $('again').click()");
        browser.until("!turns.running && timers.size === 1");
        assert_eq!(browser.run("return $('trouble').hidden"), false, "{document}");
    };
    for document in [
        whole[..end].to_owned(),
        whole[..end + 8].to_owned(),
        whole.trim_end().to_owned(),
        format!("{whole}],\"missing\":[{{"),
        format!("{whole}{}\n", whole.lines().nth(1).expect("a row")),
        whole.replacen("{\"rows\":[\n", "", 1),
        whole.replace("\"missing\":[]", "\"missing\":null"),
        whole.replace("\"missing\":[]", ""),
    ] {
        assert_ne!(document, whole);
        agent.next(Collection::AsIs(document.as_str().into()));
        is_refused(&document);
    }
    // A report with a missing part hides no other report.
    let line = whole.lines().nth(2).expect("a row");
    agent.next(Collection::AsIs(whole.replacen(line, &line[..9], 1).into()));
    browser.run("$('again').click()");
    browser.until("!turns.running && timers.size === 1");
    assert_eq!(browser.run("return [$('trouble').hidden, mesh.rows.size, mesh.missing.size]"), json!([true, 2, 1]));
    let said = agent.said();
    for field in ["verdicts", "judges", "missing", "starved", "leaving", "headline", "state", "nodes", "not_gathered"] {
        let mut without = said.clone();
        without.as_object_mut().expect("an object").remove(field);
        agent.set_said(without.clone());
        is_refused(&without);
    }
}

#[test]
fn without_a_judge_the_reports_are_shown_and_the_page_says_so() {
    let agent = Agent::of(&three());
    let mut said = agent.said();
    let text = "no judge answers; this node loses no packets to its 2 peers";
    for (field, value) in
        [("judges", json!([])), ("nodes", json!(0)), ("state", json!("unknown")), ("headline", json!(text))]
    {
        said[field] = value;
    }
    agent.set_said(said);
    let browser = after_a_collection(&agent);
    wait_until_shown(&browser);
    assert_eq!(browser.text("$('headline').textContent"), text);
    assert_eq!(browser.text("$('headline').className"), "");
    assert!(browser.text("$('summary').textContent").starts_with("Nobody judges; 6 links measured in the last minute"));
    assert_eq!(browser.run("return mesh.rows.size"), 3);
    assert_eq!(browser.console(), [""; 0]);
}
