//! Meshes beyond 24 nodes open with what the judges say: verdicts, the worst links, and a row per
//! node. The matrix is drawn on demand. The past is a picture, and each address can be passed on.

use std::sync::atomic::Ordering::SeqCst;

use kube_canary::sys::clock;
use serde_json::{Value, json};

use crate::agent::{Agent, Collection};
use crate::browser::{Browser, key};
use crate::made_up::{Mesh, losing, well};
use crate::{opening, opening_at, picture};

/// Figures of all nodes. The seventh loses a tenth, the 41st sent no report, and the third is
/// starved.
pub fn figures(nodes: usize) -> String {
    let names = Mesh::new(nodes, |_, _, _| None).nodes;
    let count =
        |lost: u32, protocol: &str| json!({"network": "pod", "protocol": protocol, "probes": 1_392, "lost": lost});
    let row = |(at, (node, zone)): (usize, &(String, String))| {
        let lost = if at == 6 { 139 } else { u32::from(at % 5 == 0) };
        json!({"node": node, "zone": zone, "report": if at == 40 { "missing" } else { "whole" },
            "standing": if at == 2 { "starved" } else { "sound" },
            "out": if at == 40 { Value::Null } else { count(lost, "udp") }, "in": count(lost, "icmp"),
            "watchers": 24 - at % 7, "rtt_p50_seconds": 0.000_3 + f64::from(u32::try_from(at).expect("few")) * 1e-7,
            "rtt_p99_seconds": if at == 40 { Value::Null } else { json!(0.001_2) }})
    };
    let worst = (0..10.min(nodes.saturating_sub(7))).map(|at| {
        json!({"source": names[at + 7].0, "peer": names[6].0, "network": "pod",
            "protocol": if at % 2 == 0 { "icmp" } else { "udp" }, "probes": 58, "lost": 12 - at, "rtt_p50_seconds": 0.000_3})
    });
    // Probes into zone-a lose a twentieth, and none go from zone-c to zone-b.
    let zones = ["zone-a", "zone-b", "zone-c"];
    let pairs = zones.iter().flat_map(|source| zones.map(|peer| (*source, peer)));
    let pairs = pairs.filter(|pair| *pair != ("zone-c", "zone-b")).map(|(source, peer)| {
        let (lost, losing) = if peer == "zone-a" { (2_900, 8) } else { (0, 0) };
        json!({"source_zone": source, "peer_zone": peer, "network": "pod", "protocol": "icmp", "probes": 58_000,
            "lost": lost, "links": 1_000, "losing_links": losing,
            "rtt_p50_seconds": if source == peer { 0.000_062 } else { 0.000_64 }})
    });
    let (worst, rows): (Vec<_>, Vec<_>) = (worst.collect(), names.iter().enumerate().map(row).collect());
    let pairs: Vec<Value> = pairs.collect();
    json!({"judge": "judge-1", "age_seconds": 7.0, "nodes": nodes, "not_listed": 0, "worst": worst,
        "zone_pairs": pairs, "rows": rows})
    .to_string()
}

/// A verdict that began and ended this many hours ago.
fn past(kind: &str, subject: &str, hours: [u64; 2]) -> Value {
    let now = clock::realtime().as_secs();
    json!({"id": format!("{kind} {subject}"), "kind": kind, "subject": subject, "direction": "both", "network": "pod",
        "severity": "critical", "confidence": "certain", "evidence": "loses 20.0 % of the probes",
        "since_unix_seconds": now - hours[0] * 3_600, "ended_unix_seconds": now - hours[1] * 3_600})
}

pub fn agent(nodes: usize) -> Agent {
    let near = |source: usize, peer: usize, _: usize| (source.abs_diff(peer) <= 12).then(|| well(source, peer, 3));
    let mut mesh = Mesh::new(nodes, near);
    mesh.checks = |_| json!([{"name": "dns", "kind": "dns", "tried": 12, "time_p50_seconds": 0.002}]);
    let digits = nodes.to_string().len();
    mesh.verdicts.push(losing(&format!("node-{:0digits$}", 7), 24));
    mesh.verdicts[0]["id"] = json!("0123456789abcdef");
    let agent = Agent::of(&mesh);
    let unconfirmed = |mut verdict: Value| {
        verdict["unconfirmed"] = json!(true);
        verdict
    };
    agent.set_figures(Some(figures(nodes)));
    agent.set_past(vec![
        mesh.verdicts[0].clone(),
        past("zone_pair", "zone-a->zone-b", [9, 8]),
        past("zone_pair", "zone-a->zone-b", [5, 4]),
        unconfirmed(past("mesh", "*", [20, 19])),
    ]);
    agent
}

fn wait_until_judged(browser: &Browser) {
    browser.until("document.readyState === 'complete' && mesh.said && !turns.running && !view.frame");
}

pub fn opened(agent: &Agent, query: &str) -> Browser {
    let browser = opening_at(agent, query, false);
    wait_until_judged(&browser);
    browser
}

/// The first cells of the rows of a table.
pub fn firsts(browser: &Browser, table: &str) -> Vec<String> {
    let cells = browser.run(&format!(
        "return [...document.querySelectorAll('#{table} tbody tr')].map((row) => row.cells[0].textContent)"
    ));
    cells.as_array().expect("a list").iter().map(|it| it.as_str().expect("text").to_owned()).collect()
}

pub fn collections(agent: &Agent) -> usize {
    agent.shared.collections.load(SeqCst)
}

#[test]
fn a_mesh_that_shrinks_to_24_nodes_is_collected_by_the_names_that_it_has_now() {
    let agent = agent(30);
    let browser = opened(&agent, "");
    let small = Mesh::new(3, |source, peer, _| Some(well(source, peer, 3)));
    agent.next(Collection::Whole(small.answer().into()));
    browser.run("fire()");
    browser.until("!turns.running && timers.size === 1 && mesh.rows.size === 3");
    assert_eq!(agent.named(), [["node-1", "node-2", "node-3"]]);
}

#[test]
fn beyond_24_nodes_nothing_is_collected_until_the_matrix_is_asked_for() {
    let agent = agent(30);
    let browser = opened(&agent, "");
    assert_eq!(browser.text("$('headline').textContent"), "node-07 is losing packets from 24 of 24 sources");
    assert_eq!(browser.text("$('summary').textContent"), "30 nodes judged by judge-1, judge-2");
    assert_eq!(browser.text("$('age').textContent"), "Judged 7 s ago");
    assert!(browser.text("$('age').firstElementChild.title").ends_with('Z'), "UTC, if it is pointed at");
    let worst = firsts(&browser, "worst");
    assert_eq!((worst.len(), worst[0].as_str()), (10, "node-08 → node-07"));
    assert_eq!(firsts(&browser, "nodes")[..2], ["node-07", "node-01"], "the worst first");
    let bad = browser.text("$('nodes').querySelector('tbody tr').innerText");
    assert_eq!(bad.split_whitespace().collect::<Vec<_>>().join(" "), "node-07 10 % 10 % UDP 301 µs 1.2 ms 18 zone-a");
    assert!(browser.text("$('nodes').textContent").contains("starved"));
    browser.run("fire()");
    browser.until("!turns.running && timers.size === 1");
    assert_eq!(collections(&agent), 0);
    assert_eq!(browser.run("return $('matrix').hidden && $('internals').hidden"), true);
    browser.run("$('worst').querySelector('button').click()");
    browser.until("$('link').open && document.querySelectorAll('#link-hour svg').length === 2");
    assert_eq!(
        (agent.hours(), collections(&agent)),
        (vec!["node-08/node-07".to_owned()], 0),
        "a link opens without reports"
    );
    browser.press(&[key::ESCAPE]);
    browser.until("!$('link').open");

    browser.run("$('again').click()");
    browser.until("mesh.at && !turns.running && !view.stale && !view.frame");
    assert_eq!(collections(&agent), 1);
    assert_eq!(
        browser.run(
            "return [$('matrix').hidden, view.rows.nodes.length, new URLSearchParams(location.search).get('matrix')]"
        ),
        json!([false, 30, "1"])
    );
    browser.run("fire()");
    browser.until("!turns.running && timers.size === 1");
    assert_eq!(collections(&agent), 1, "once, and not again unasked");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn up_to_24_nodes_are_collected_and_drawn_at_once() {
    let agent = agent(24);
    let browser = opening(&agent, false);
    browser.until("mesh.at && !turns.running && !view.stale && !view.frame");
    assert_eq!(browser.run("return [$('all').hidden, $('matrix').hidden]"), json!([true, false]));
    assert_eq!(collections(&agent), 1);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn without_a_judge_a_button_collects() {
    let agent = agent(30);
    agent.set_figures(None);
    let browser = opened(&agent, "");
    let note = browser.text("$('all-note').innerText");
    assert!(note.contains("no judge answers") && note.contains("Collect now"), "{note}");
    assert_eq!((collections(&agent), firsts(&browser, "nodes").len()), (0, 0));
    browser.run("$('again').click()");
    browser.until("mesh.at && !turns.running && !view.stale && !view.frame");
    assert_eq!((collections(&agent), browser.run("return mesh.rows.size")), (1, json!(30)));
}

#[test]
fn of_thousands_of_nodes_some_are_drawn_and_a_search_finds_the_others() {
    let agent = agent(5_000);
    let browser = opened(&agent, "");
    let note = || browser.text("$('nodes-note').textContent");
    assert_eq!(firsts(&browser, "nodes").len(), 200);
    assert_eq!(note(), "5,000 nodes; 200 are shown");
    browser.press(&["/"]);
    assert_eq!(browser.text("document.activeElement.id"), "search");
    browser.press(&["4", "7", "1", "1"]);
    assert_eq!(firsts(&browser, "nodes"), ["node-4711"]);
    assert_eq!(note(), "1 of 5,000 nodes match");
    assert_eq!(browser.text("location.search"), "?search=4711");
    browser.press(&["/"]);
    assert_eq!(browser.text("$('search').value"), "4711/", "a slash in the search is one");
    assert_eq!(browser.run("$('search').value = ''; $('search').oninput(); return null"), Value::Null);
    browser.run("$('nodes').querySelectorAll('th button')[5].click()");
    let sort = browser.text("$('nodes').querySelectorAll('th')[5].getAttribute('aria-sort')");
    assert_eq!((sort.as_str(), browser.text("location.search").as_str()), ("descending", "?sort=-Watchers"));
    browser.run("$('nodes').querySelectorAll('th button')[5].click()");
    assert!(firsts(&browser, "nodes")[0].ends_with("0007"), "18 watchers");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_pasted_address_shows_the_same() {
    let agent = agent(30);
    let query =
        "?search=zone-b&sort=Node&verdict=0123456789abcdef&matrix=1&measure=rtt_p50_seconds&from=node-01&to=node-02";
    let browser = opening_at(&agent, query, false);
    browser.until(
        "mesh.at && !turns.running && $('link').open && document.querySelectorAll('#link-hour svg').length === 2",
    );
    assert_eq!(firsts(&browser, "nodes")[..2], ["node-02", "node-05"]);
    assert_eq!(browser.text("$('search').value"), "zone-b");
    assert_eq!(browser.text("document.querySelector('#verdicts button').getAttribute('aria-pressed')"), "true");
    assert_eq!(browser.text("$('link-title').textContent"), "node-01 → node-02");
    browser.until("!view.stale && !view.frame");
    assert_eq!(browser.run("return colors(0, 1).some((it) => it === tone('rtt1'))"), true, "round-trip times");
    browser.press(&[key::ESCAPE]);
    // The event that leaves the pair out of the address comes after the dialog has closed.
    browser.until("!$('link').open && !location.search.includes('from=')");
    let left = "?search=zone-b&sort=Node&verdict=0123456789abcdef&matrix=1&measure=rtt_p50_seconds";
    let sorted = |query: &str| {
        let mut parts: Vec<String> = query.trim_start_matches('?').split('&').map(str::to_owned).collect();
        parts.sort_unstable();
        parts
    };
    assert_eq!(sorted(&browser.text("location.search")), sorted(left));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn the_last_day_is_a_picture_and_a_moment_of_it_can_be_opened() {
    let agent = agent(30);
    let browser = opened(&agent, "");
    let bars = browser.run(
        "return [...document.querySelectorAll('#past li')].map((row) => [row.firstChild.textContent,
            [...row.querySelectorAll('button')].map((bar) => [bar.className.trim(), parseInt(bar.style.left.slice(4))])])",
    );
    assert_eq!(
        bars,
        json!([
            ["Node node-07", [["critical", 98]]],
            ["Zone pair zone-a → zone-b", [["critical ended", 62], ["critical ended", 79]]],
            ["Mesh ", [["critical ended unconfirmed", 16]]]
        ])
    );
    let title = browser.text("document.querySelectorAll('#past button')[3].title");
    assert!(
        title.contains("Z to 20") && title.contains("unconfirmed") && title.ends_with("loses 20.0 % of the probes"),
        "{title}"
    );
    browser.run("document.querySelectorAll('#past button')[1].click()");
    assert_eq!(browser.text("$('headline').textContent"), "1 verdict held then");
    let verdicts = browser.text("$('verdicts').textContent");
    assert!(
        verdicts.starts_with("Zone pairzone-a → zone-b: loses 20.0 %")
            && verdicts.contains("for 60 min, ended 8 h ago"),
        "{verdicts}"
    );
    assert_eq!(browser.run("return $('all').getClientRects().length"), 0, "figures of now are not of then");
    let at = browser.text("new URLSearchParams(location.search).get('at')");
    browser.run("$('now').click()");
    assert_eq!(browser.text("$('headline').textContent"), "node-07 is losing packets from 24 of 24 sources");
    assert_eq!(browser.text("location.search"), "");
    drop(browser);

    let seconds = clock::realtime().as_secs() - 4 * 3_600 - 1_800;
    for (query, held) in [
        (format!("?at={at}"), "1 verdict held then"),
        (format!("?at={seconds}"), "1 verdict held then"),
        (format!("?at={}", seconds - 7_200), "No verdict held then"),
        ("?at=2001-01-01T00:00:00Z".into(), "Nothing is known of that time"),
    ] {
        let browser = opened(&agent, &query);
        assert_eq!(browser.text("$('headline').textContent"), held, "{query}");
        assert_eq!(browser.console(), [""; 0]);
    }
}

#[test]
fn the_last_hours_can_be_shown_wider_and_have_times_of_day() {
    let agent = agent(30);
    agent.set_since(clock::realtime().as_secs() - 7 * 3_600);
    let browser = opened(&agent, "?hours=6");
    let rows =
        || browser.run("return [...document.querySelectorAll('#past li')].map((row) => row.firstChild.textContent)");
    assert_eq!(rows(), json!(["Node node-07", "Zone pair zone-a → zone-b"]));
    let times = browser.text("[...$('hours').children].map((it) => it.textContent).join()");
    let is_time = |text: &str| text.len() == 5 && text.as_bytes()[2] == b':';
    assert!(times.split(',').count() == 3 && times.split(',').all(is_time), "{times}");
    let pressed = "document.querySelector('#spans [aria-pressed=true]').textContent";
    assert_eq!(browser.text(pressed), "6 h");
    browser.run("document.querySelector('#spans button').click()");
    assert_eq!((browser.text(pressed), browser.text("location.search")), ("24 h".into(), String::new()));
    assert_eq!(rows().as_array().map(Vec::len), Some(3));
    assert!(browser.text("$('past-note').textContent").starts_with("Remembered since "));
    drop(browser);
    // Between two verdicts, and before the judges remember anything.
    let at = clock::realtime().as_secs() - 9 * 3_600 - 1_800;
    let browser = opened(&agent, &format!("?at={at}"));
    assert_eq!(browser.text("$('headline').textContent"), "Nothing is known of that time");
    assert!(browser.text("$('summary').textContent").contains("; the judges remember since 20"));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn each_verdict_has_its_runbook_and_a_command_that_no_name_can_change() {
    let mut mesh = Mesh::new(3, |source, peer, _| Some(well(source, peer, 3)));
    let verdict = |kind: &str, subject: &str| {
        json!({"kind": kind, "subject": subject, "direction": "both", "network": "pod", "protocol": "icmp",
            "evidence": "loses", "summary": "loses", "since_unix_seconds": null})
    };
    let subjects = [
        ("link", "node-1->node-2"),
        ("flow", "node-1->node-2"),
        ("zone_pair", "a->b"),
        ("mesh", "*"),
        ("node", "$(reboot)"),
        ("node", "-rf"),
        ("link", "node-1->`id`"),
        ("agent_suspect", "node-3"),
    ];
    mesh.verdicts = subjects.iter().map(|(kind, subject)| verdict(kind, subject)).collect();
    let agent = Agent::of(&mesh);
    let browser = opened(&agent, "");
    let steps = browser.run(
        "return [...document.querySelectorAll('.next')].map((it) => [it.querySelector('a').href.split('/').pop(), it.querySelector('code')?.textContent ?? ''])",
    );
    let ping = |flags: &str| {
        let pods = "kubectl -n kube-canary get pod --field-selector spec.nodeName=";
        format!(
            "kubectl -n kube-canary exec $({pods}node-1 -o name) -- /kube-canary ping {flags}$({pods}node-2 -o jsonpath='{{.items[0].status.podIP}}')"
        )
    };
    let doctor = "kubectl -n kube-canary exec daemonset/kube-canary -- /kube-canary doctor";
    assert_eq!(
        steps,
        json!([
            ["alerts.md#a-link", ping("")],
            ["verdicts.md#flows-and-large-packets", ping("--udp --flows 16 --trace ")],
            ["alerts.md#zones", doctor],
            ["alerts.md#kubecanaryfault", doctor],
            ["alerts.md#a-node", ""],
            ["alerts.md#a-node", ""],
            ["alerts.md#a-link", ""],
            ["alerts.md#kubecanaryjudgesuspect", format!("{doctor} --history")],
        ])
    );
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn what_a_judge_sends_of_nodes_is_text_and_a_false_document_hides_no_verdict() {
    let agent = agent(30);
    let evil = "<img src=x onerror=window.hit=1>";
    agent.set_figures(Some(figures(30).replace("node-08", evil).replace("zone-b", evil)));
    let browser = opened(&agent, "");
    assert!(firsts(&browser, "nodes").contains(&evil.to_owned()) && firsts(&browser, "worst")[0].starts_with(evil));
    assert_eq!(browser.run("return document.querySelectorAll('img').length + (window.hit ?? 0)"), 0);
    for document in ["{\"rows\":[", "{}", "{\"rows\":[{}],\"worst\":{}}"] {
        agent.set_figures(Some(document.into()));
        browser.run("fire()");
        browser.until("!turns.running && timers.size === 1");
        assert!(browser.text("$('all-note').textContent").starts_with("No new figures of all nodes: "), "{document}");
        assert_eq!(browser.text("$('headline').textContent"), "node-07 is losing packets from 24 of 24 sources");
        assert_eq!(firsts(&browser, "nodes").len(), 30, "those of before stay");
    }
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn nothing_is_cut_off_in_light_and_dark_at_1280_and_500_pixels() {
    let agent = agent(300);
    let browser = opened(&agent, "");
    for (width, scheme) in [(1_280, "light"), (1_280, "dark"), (500, "light"), (500, "dark")] {
        browser.prefer(scheme);
        browser.resize(width, 640, 1.0);
        let wide = browser.run(
            "return [document.documentElement, $('worst'), $('nodes'), $('verdicts')].map((it) => it.scrollWidth - it.clientWidth)",
        );
        assert_eq!(wide, json!([0, 0, 0, 0]), "{width} {scheme}");
        // Danger is red, in both schemes.
        let red = browser.run(
            "const [r, g, b] = getComputedStyle($('headline')).color.match(/\\d+/g).map(Number); return r > 150 && g < 110 && b < 110",
        );
        assert_eq!(red, true, "{scheme}");
        if width == 1_280 {
            let lefts = browser.run("return [$('worst'), $('nodes')].map((it) => it.getBoundingClientRect().left)");
            assert!(lefts[0].as_f64() < lefts[1].as_f64(), "side by side: {lefts}");
            picture::take(&browser, &format!("judged-300-{scheme}"));
        }
    }
    assert_eq!(browser.console(), [""; 0]);
}
