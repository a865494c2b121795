//! A link and its last hour, by keyboard and by mouse.

use serde_json::{Value, json};

use crate::agent::{Agent, Collection};
use crate::browser::key;
use crate::made_up::{Link, Mesh, well};
use crate::{opened, picture};

fn one_is_lossy() -> Mesh {
    Mesh::new(3, |source, peer, _| {
        let link = well(source, peer, 3);
        Some(if (source, peer) == (2, 0) { Link { lost: 5, received: 53, ..link } } else { link })
    })
}

#[test]
fn a_link_opens_by_keys_shows_its_hour_and_closes() {
    let agent = Agent::of(&one_is_lossy());
    let browser = opened(&agent, true);
    // From the start of the page, a reader without a mouse can reach the map by Tab alone.
    for _ in 0..12 {
        browser.press(&[key::TAB]);
        if browser.text("document.activeElement.id") == "map" {
            break;
        }
    }
    assert_eq!(browser.text("document.activeElement.id"), "map");
    assert_ne!(browser.text("getComputedStyle($('map')).outlineStyle"), "none", "the focus can be seen");
    browser.press(&[key::DOWN, key::RIGHT, key::RIGHT]);
    assert!(
        browser
            .text("$('here').textContent")
            .starts_with("node-2 (zone-b) → node-3 (zone-c): 0 % lost (0 of 58 in 58 s)")
    );
    assert_eq!(browser.text("$('here').getAttribute('aria-live')"), "polite");
    browser.press(&["n"]);
    assert!(
        browser
            .text("$('here').textContent")
            .starts_with("node-3 (zone-c) → node-1 (zone-a): 8.6 % lost (5 of 58 in 58 s)")
    );
    browser.press(&[key::END, key::ENTER]);
    // Its hour must arrive before the next is requested: two requests at once have no order.
    browser.until("document.querySelectorAll('#link-hour svg').length === 2");
    assert_eq!(browser.text("$('link-title').textContent"), "node-3 → node-3");
    browser.press(&[key::ESCAPE]);
    browser.until("!$('link').open && document.activeElement.id === 'map'");
    browser.press(&["n", key::ENTER]);
    browser.until("document.querySelectorAll('#link-hour svg').length === 2");

    let figures = browser.text("$('link-figures').innerText");
    for part in ["node-3 (zone-c) → node-1 (zone-a): 8.6 % lost", "losing for 1", "198.18.0.7", "The other direction"]
    {
        assert!(figures.contains(part), "{part}: {figures}");
    }
    let hour = browser.text("$('link-hour').textContent");
    assert!(hour.contains("15 of 60 minutes with loss, at most 13 %, 5 not measured"), "{hour}");
    assert!(hour.contains("p50 (line) 62 µs to 68 µs, p99 (dashes) at most 186 µs"), "{hour}");
    assert_eq!(browser.run("return document.querySelectorAll('#link-hour svg:first-of-type .gap').length"), 5);
    assert_eq!(browser.run("return document.querySelectorAll('#link-hour [class^=bar]').length"), 15);
    assert_eq!(agent.hours(), ["node-3/node-3", "node-3/node-1"]);
    picture::take(&browser, "mesh-pair");
    browser.press(&[key::ESCAPE]);
    browser.until("!$('link').open && document.activeElement.id === 'map'");
    let asked = browser.requests();
    assert!(asked.len() >= 4, "{asked:?}");
    for address in asked {
        assert!(address.starts_with(&agent.address), "{address}");
    }
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_link_that_opens_right_behind_another_keeps_its_hour() {
    let agent = Agent::of(&one_is_lossy());
    let browser = opened(&agent, false);
    browser.run("openLink({ source: 'node-3', peer: 'node-1' })");
    browser.run("$('link').close(); openLink({ source: 'node-1', peer: 'node-2' })");
    browser.until("document.querySelectorAll('#link-hour svg').length === 2");
    assert_eq!(browser.run("return shown.from"), "node-1");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_link_opens_by_a_click_and_so_does_its_way_back() {
    let agent = Agent::of(&one_is_lossy());
    let browser = opened(&agent, false);
    browser.click("place(2, 0)");
    browser.until("$('link').open && document.querySelectorAll('#link-hour svg').length === 2");
    assert_eq!(browser.text("$('link-title').textContent"), "node-3 → node-1");
    // The pictures of the first link are removed, so that those that appear are the second's.
    browser.run("$('link-hour').replaceChildren(); document.querySelector('#link-figures button').click()");
    browser.until("$('link-title').textContent === 'node-1 → node-3'");
    browser.until("document.querySelectorAll('#link-hour svg').length === 2");
    assert_eq!(agent.hours(), ["node-3/node-1", "node-1/node-3"]);
    // This click is beside the link.
    browser.click("[4, 4]");
    browser.until("!$('link').open");
    assert_eq!(browser.console(), [""; 0]);
}

/// A mesh of all three protocols. What UDP and TCP show of the first link is `udp` and `tcp`.
fn with_path(udp: &Value, tcp: &Value) -> Agent {
    let mut mesh = one_is_lossy();
    mesh.layers = vec![("pod", "icmp"), ("pod", "udp"), ("pod", "tcp")];
    let mut answer = mesh.answer();
    for (protocol, of) in [("udp", udp), ("tcp", tcp)] {
        let begin = format!("\"protocol\":\"{protocol}\",");
        let fields = of.to_string();
        answer = answer.replacen(&begin, &format!("{begin}{},", &fields[1..fields.len() - 1]), 1);
    }
    Agent::serve(&mesh.layers, move || Collection::Whole(answer.clone().into()))
}

#[test]
fn a_link_shows_its_path_its_losing_flows_and_its_trace_whatever_the_map_shows() {
    let losing = |source_port: u32, direction: &str| json!({"source_port": source_port, "lost": 5, "probes": 8, "direction": direction});
    let udp = json!({"hops": 3, "path_mtu_bytes": 1_300, "delay_back_seconds": 0.02,
        "delay_variation_there_seconds": 0.003, "delay_variation_back_seconds": 0.004,
        "mtu_hole": {"passes_bytes": 1_300, "direction": "out", "said": "silent"},
        "flows": {"probed": 16, "losing_count": 2, "losing": [losing(40_312, "out"), losing(40_313, "unknown")]},
        "trace": {"source_port": 40_312, "at_unix_seconds": 1_800_000_000, "reached": false,
            "says": "dies after 10.0.3.1", "hops": ["10.0.1.1", "*", "10.0.3.1"],
            "sent": [10, 10, 10], "answered": [10, 0, 9]}});
    let agent = with_path(&udp, &json!({"syn_retransmissions": 12}));
    let browser = opened(&agent, false);
    assert_eq!(browser.text("shown.layer"), "pod icmp");
    browser.run("openLink({ source: 'node-1', peer: 'node-2' })");
    browser.until("document.querySelectorAll('#link-hour svg').length >= 2");
    let age = browser.text("ago(1800000000)");
    let figures = browser.text("$('link-figures').innerText");
    for line in [
        "pod network, UDP, IPv4: 3 hops; one-way delay - there, 20 ms back; one-way delay variation 3 ms there, 4 ms back; \
         packets up to 1,300 bytes pass; larger ones are lost, outbound (in silence); \
         2 of 16 flows lose; source port 40312: 5 of 8 lost, outbound; source port 40313: 5 of 8 lost",
        &format!(
            "dies after 10.0.3.1 (trace of source port 40312, {age}): 10.0.1.1 → * (0 of 10) → 10.0.3.1 (9 of 10)"
        ),
        "pod network, TCP, IPv4: 12 SYNs sent again",
    ] {
        assert!(figures.lines().any(|it| it == line), "{line}: {figures}");
    }
    // It is the source's own. The other direction has another source.
    browser.run("openLink({ source: 'node-2', peer: 'node-1' })");
    let figures = browser.text("$('link-figures').innerText");
    assert!(!figures.contains("hops") && !figures.contains("dies after"), "{figures}");
    browser.until("document.querySelectorAll('#link-hour svg').length >= 2");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn what_a_report_lacks_of_a_path_is_not_shown_and_what_it_says_is_text() {
    let udp = json!({"hops": null, "path_mtu_bytes": null, "mtu_hole": {"said": "<b>"}, "flows": {"losing_count": 3},
        "trace": {"says": "<img src=x onerror=window.hit=1>"}});
    let agent = with_path(&udp, &json!({"syn_retransmissions": 0}));
    let browser = opened(&agent, false);
    browser.run("openLink({ source: 'node-1', peer: 'node-2' })");
    browser.until("document.querySelectorAll('#link-hour svg').length >= 2");
    let figures = browser.text("$('link-figures').innerText");
    assert!(figures.contains("<img src=x onerror=window.hit=1> (trace of source port"), "{figures}");
    assert!(!figures.contains("hop") && !figures.contains("TCP, IPv4: "), "{figures}");
    assert_eq!(browser.run("return document.querySelectorAll('img').length + (window.hit ?? 0)"), 0);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn an_hour_that_is_not_kept_is_said_to_be_so() {
    let mut mesh = one_is_lossy();
    mesh.nodes[2].0 = "unkept".into();
    let agent = Agent::of(&mesh);
    let browser = opened(&agent, false);
    browser.run("openLink({ source: 'node-1', peer: 'unkept' })");
    let why = "The last hour cannot be shown: the agent answers 404: not kept.";
    browser.until(&format!("$('link-hour').textContent === '{why}'"));
    // The console has only the answer, which the browser logs by itself.
    assert!(browser.console().iter().all(|entry| entry.contains("404")), "{:?}", browser.console());
}
