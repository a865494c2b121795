//! Verdicts, colours, tables: the page shows what was measured.

use serde_json::json;

use crate::agent::Agent;
use crate::made_up::{Link, Mesh, losing, well};
use crate::{opened, wait_until_shown};

/// The second of three loses a tenth of its inbound probes. On the node network nothing is lost.
fn three() -> Mesh {
    let mut mesh = Mesh::new(3, |source, peer, layer| {
        let link = well(source, peer, 3);
        Some(if peer == 1 && layer == 1 { Link { lost: 6, received: 52, ..link } } else { link })
    });
    mesh.layers = vec![("node", "icmp"), ("pod", "icmp")];
    mesh.verdicts.push(losing("node-2", 2));
    mesh.starved = vec![1];
    mesh
}

#[test]
fn the_verdict_stands_on_top_and_its_cells_are_coloured() {
    let agent = Agent::of(&three());
    let browser = opened(&agent, false);
    assert_eq!(browser.text("$('headline').textContent"), "node-2 is losing packets from 2 of 2 sources");
    let text = browser.text("$('verdicts').innerText");
    assert!(text.contains("Node") && text.contains("inbound, pod network, for 1"), "{text}");
    assert_eq!(browser.text("document.title"), "(1) Mesh - KubeCanary");
    let summary = "3 nodes judged by judge-1, judge-2; 12 links measured in the last minute, 2 of them with loss";
    assert_eq!(browser.text("$('summary').textContent"), summary);
    let has = |row, column, name: &str| {
        browser.run(&format!("return colors({row}, {column}).includes(tone('{name}'))")) == json!(true)
    };
    assert!(has(0, 1, "loss3") && has(2, 1, "loss3"), "10 % is in its colour");
    assert!(has(0, 2, "loss0") && has(1, 0, "loss0") && has(1, 2, "loss0"), "no loss is in its own");
    assert!(has(0, 0, "self") && !has(0, 0, "loss0"), "itself is in neither");

    assert_eq!(browser.run("return $('internals').open"), false, "the agents' own state is behind a toggle");
    browser.run("$('internals').open = true");
    let agents = browser.text("$('agents').innerText");
    for part in ["0.1.0", "musl", "jemalloc", "1.02 MiB", "120 ms", "starved"] {
        assert!(agents.contains(part), "{part}: {agents}");
    }
    assert_eq!(browser.run("return document.querySelectorAll('#agents tbody tr').length"), 3);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn checks_come_before_nodes_and_what_fails_comes_first() {
    let mut mesh = three();
    mesh.checks = |node| {
        let failed = 6 * usize::from(node != 0);
        let dns = json!({"name": "dns", "kind": "dns", "tried": 12, "failed": failed, "slow": 1, "time_p50_seconds": 0.002,
            "reason": if node == 0 { json!(null) } else { json!("no_such_name") }});
        // A report may say anything.
        let false_name = json!({"name": "<b>shop", "kind": "http", "tried": 1, "failed": 1});
        let api = json!({"name": "api-server", "kind": "tls", "tried": 4, "time_p50_seconds": 0.001});
        if node == 2 { json!([api, dns, false_name]) } else { json!([api, dns]) }
    };
    let agent = Agent::of(&mesh);
    let browser = opened(&agent, false);
    let rows = browser.text(
        "[...document.querySelectorAll('#checks tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText).join('|')).join('; ')",
    );
    assert_eq!(rows, "dns (dns)|2 of 3|36|12|3|2 ms|no such name; api-server (tls)|0 of 3|12|0|0|1 ms|");
    assert_eq!(browser.run("return $('checks').compareDocumentPosition($('all')) & 4"), 4, "it comes before the nodes");
    assert_eq!(browser.run("return $('checks').hidden"), false);
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_verdict_shows_its_place_on_the_map() {
    let agent = Agent::of(&three());
    let browser = opened(&agent, false);
    let marks = "colors(0, 1).includes(tone('mark'))";
    assert_eq!(browser.run(&format!("return {marks}")), false);
    browser.run("document.querySelector('#verdicts button').click()");
    // The outline runs through the middle of a cell's edge.
    browser.until(&format!("!view.frame && {marks}"));
    assert_eq!(browser.text("document.querySelector('#verdicts button').getAttribute('aria-pressed')"), "true");
    browser.run("document.querySelector('#verdicts button').click()");
    browser.until(&format!("!view.frame && !{marks}"));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn every_kind_of_verdict_is_shown_and_placed() {
    let verdict = |kind: &str, subject: &str, direction: &str, evidence: &str| json!({"kind": kind, "subject": subject, "direction": direction, "network": "pod", "evidence": evidence, "since_unix_seconds": null});
    let mut mesh = three();
    mesh.verdicts = vec![
        verdict("node", "node-2", "both", "loses 10 % of its probes"),
        verdict("link", "node-1->node-3", "out", "loses 30 % of the round trips"),
        verdict("zone_pair", "zone-a->zone-b", "both", "round trips of 9 ms"),
        verdict("domain", "node-2", "both", "a rack with the name of a node"),
        verdict("zone", "zone-b", "both", "loses 20 %"),
        verdict("agent_starved", "node-2", "both", "its agent lags"),
        verdict("agent_unreachable", "node-9", "both", "connection refused"),
        verdict("of_a_later_version", "node-1", "both", "something"),
    ];
    mesh.verdicts[3]["members"] = json!([["node-1", "node-3"]]);
    mesh.verdicts[0]["summary"] = json!("node-2 is losing packets from 2 of 2 sources");
    let agent = Agent::of(&mesh);
    let browser = opened(&agent, false);
    assert_eq!(browser.text("$('headline').textContent"), "node-2 is losing packets from 2 of 2 sources, and 7 more");
    let text = browser.text("[...document.querySelectorAll('#verdicts button')].map((b) => b.textContent).join('|')");
    assert_eq!(
        text,
        "Nodenode-2: loses 10 % of its probes either direction, pod network|\
         Linknode-1 → node-3: loses 30 % of the round trips outbound, pod network|\
         Zone pairzone-a → zone-b: round trips of 9 ms either direction, pod network|\
         Domainnode-2: a rack with the name of a node either direction, pod network|\
         Zonezone-b: loses 20 % either direction, pod network|\
         Starved agentnode-2: its agent lags |Unreachable agentnode-9: connection refused |\
         of_a_later_versionnode-1: something either direction, pod network"
    );
    let places = |number: usize| browser.run(&format!("return places(mesh.said.verdicts[{number}])"));
    assert_eq!(places(0), json!([[[0, 3], [1, 2]], [[1, 2], [0, 3]]]));
    assert_eq!(places(1), json!([[[0, 1], [2, 3]], [[2, 3], [0, 1]]]));
    assert_eq!(places(2), json!([[[0, 1], [1, 2]], [[1, 2], [0, 1]]]));
    let domain = json!([[[0, 3], [0, 1]], [[0, 3], [2, 3]], [[0, 1], [0, 3]], [[2, 3], [0, 3]]]);
    assert_eq!(places(3), domain, "its members, whatever its name");
    assert_eq!(places(4), places(0), "a zone of one node");
    assert_eq!(places(5), json!([[[1, 2], [0, 3]]]));
    assert_eq!(places(6), json!([]), "a node that is not on the map");
    // Members that stand side by side have one outline.
    let beside = "places({ kind: 'domain', subject: 'rack', members: [['node-2', 'node-1', 'node-9']] })";
    assert_eq!(browser.run(&format!("return {beside}")), json!([[[0, 3], [0, 2]], [[0, 2], [0, 3]]]));
    // A press on it does not fail either.
    browser.run("document.querySelectorAll('#verdicts button').forEach((button) => button.click())");
    browser.until("!view.frame");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_node_is_starved_or_leaving_because_the_document_says_so_and_for_no_other_reason() {
    // The second source reports that it sends late, and all others call the third terminating.
    let rows = || {
        Mesh::new(5, |source, peer, _| {
            let state = if peer == 2 { "terminating" } else { "ready" };
            let lost = if peer == 4 { 58 } else { 0 };
            Some(Link { lost, received: 58 - lost, state, ..well(source, peer, 3) })
        })
    };
    let titles = "[...mesh.nodes.values()].map(title).sort().join()";
    let agent = Agent::of(&rows());
    let browser = opened(&agent, false);
    assert_eq!(browser.text(titles), "node-1,node-2,node-3,node-4,node-5");
    assert!(!browser.text("$('agents').textContent").contains("starved"));
    assert!(!browser.text("describe('node-2', 'node-1')").contains("starved"));
    let has = |source: usize, peer: usize, name: &str| {
        browser.run(&format!("return colors(rowOf('node-{source}'), columnOf('node-{peer}')).includes(tone('{name}'))"))
            == json!(true)
    };
    assert!(has(1, 5, "loss5") && has(1, 3, "leaving"), "a link is what its source says");

    let mut listed = rows();
    (listed.starved, listed.leaving) = (vec![0], vec![4]);
    let answer = listed.answer();
    agent.next(crate::agent::Collection::Whole(answer.into()));
    browser.run("$('again').click()");
    browser.until("mesh.standings.size === 2 && !turns.running && !view.stale && !view.frame");
    assert_eq!(browser.text(titles), "node-1 (starved),node-2,node-3,node-4,node-5 (leaving)");
    assert!(has(1, 5, "leaving") && !has(1, 5, "loss5"));
    let says = browser.text("describe('node-1', 'node-5')");
    assert!(
        says.contains("; node-5 is leaving: probes to it are not counted; the agent on node-1 is starved"),
        "{says}"
    );
    let standing = "[...document.querySelectorAll('#agents tbody tr')].map((row) => row.cells[1].textContent).join()";
    assert_eq!(browser.text(standing), "starved,,,,leaving");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn measure_and_network_are_switched_and_families_where_there_are_two() {
    let agent = Agent::of(&three());
    let browser = opened(&agent, false);
    let press = |name: &str| {
        let button =
            format!("[...document.querySelectorAll('#controls button')].find((b) => b.textContent === '{name}')");
        browser.run(&format!("{button}.click()"));
        browser.until(&format!("!view.frame && {button}.getAttribute('aria-pressed') === 'true'"));
    };
    let titles = || browser.text("[...document.querySelectorAll('legend')].map((l) => l.textContent).join()");
    assert_eq!(titles(), "Colour,Probes,Size");
    press("node network, ICMP, IPv4");
    assert_eq!(browser.run("return colors(0, 1).includes(tone('loss0'))"), true, "nothing is lost on the node network");
    press("RTT p50");
    // This cell is of another zone: 640 to 880 µs.
    assert_eq!(browser.run("return colors(0, 1).includes(tone('rtt4'))"), true);
    let legend = browser.text("$('legend').innerText");
    assert!(
        legend.contains("≤ 1 ms") && !legend.contains("≤ 100 µs") && !legend.contains("leaving"),
        "what occurs: {legend}"
    );

    let mut mesh = three();
    mesh.layers = vec![("pod", "icmpv6"), ("pod", "icmp")];
    agent.next(crate::agent::Collection::Whole(mesh.answer().into()));
    browser.run("$('again').click()");
    browser.until("turns.running || mesh.layers.has('pod icmpv6')");
    wait_until_shown(&browser);
    assert_eq!(titles(), "Colour,Probes,Size");
    press("pod network, ICMP, IPv6");
    assert_eq!(browser.text("shown.layer"), "pod icmpv6");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn not_probed_is_never_coloured_as_well() {
    // The first probes the second alone, the last does not answer, and the fourth drains.
    let mut mesh = Mesh::new(5, |source, peer, _| match (source, peer) {
        (0, 2..) => None,
        (_, 3) => Some(Link { lost: 0, received: 0, rtt_seconds: 0.0, state: "terminating" }),
        (1, 2) => Some(Link { lost: 58, received: 0, ..well(source, peer, 3) }),
        _ => Some(well(source, peer, 3)),
    });
    mesh.missing.push((4, "connection refused"));
    (mesh.starved, mesh.leaving) = (vec![1], vec![3]);
    let agent = Agent::of(&mesh);
    let browser = opened(&agent, false);
    assert_eq!(browser.text("$('headline').textContent"), "Nothing stands out, but 1 agent did not answer");
    let fails = |condition: &str| {
        let named = (1..=5).map(|i| format!("'node-{i}'")).collect::<Vec<_>>().join(",");
        browser.run(&format!(
            "const wrong = [];
            for (const source of [{named}]) for (const peer of [{named}]) {{
                const cell = find(source, peer), seen = colors(rowOf(source), columnOf(peer));
                const well = [...Array(8).keys()].some((i) => seen.includes(tone('loss' + i)) || seen.includes(tone('rtt' + i)));
                if (source !== peer && ({condition})) wrong.push(`${{source}} ${{peer}} ${{seen}}`);
            }}
            return wrong.join('; ')"
        ))
    };
    for measure in ["loss", "rtt_p50_seconds", "rtt_p99_seconds"] {
        browser.run(&format!("shown.measure = '{measure}'; redraw()"));
        browser.until("!view.frame");
        assert_eq!(fails("well !== Boolean(cell && measured(cell))"), "", "{measure}");
        assert_eq!(fails("!well && seen.length < 2"), "", "{measure}: the unknown is hatched or said");
    }
    assert_eq!(
        browser.run("return colors(rowOf('node-2'), columnOf('node-3')).includes(tone('loss5'))"),
        true,
        "all lost"
    );

    let say = |source: usize, peer: usize| browser.text(&format!("describe('node-{source}', 'node-{peer}')"));
    assert_eq!(say(1, 4), "node-1 (zone-a) → node-4 (zone-a): not probed, pod network, ICMP, IPv4");
    assert!(say(5, 1).ends_with("node-5 did not answer (connection refused)"), "{}", say(5, 1));
    assert!(say(2, 4).contains("not measured in the last 58 s; node-4 is leaving"), "{}", say(2, 4));
    assert!(say(2, 3).contains("100 % lost (58 of 58 in 58 s), RTT p50 -"), "{}", say(2, 3));
    assert!(say(2, 3).ends_with("; the agent on node-2 is starved"), "{}", say(2, 3));
    assert!(browser.text("$('agents').textContent").contains("did not answer: connection refused"));
    assert!(browser.text("title(mesh.nodes.get('node-4'))").ends_with("(leaving)"));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn nothing_measured_is_not_well() {
    let mut mesh = Mesh::new(2, |_, _, _| None);
    mesh.says[1] = "nothing measured yet";
    let agent = Agent::of(&mesh);
    let browser = opened(&agent, false);
    assert_eq!(browser.text("$('headline').textContent"), "nothing measured yet");
    assert_eq!(browser.text("$('headline').className"), "");
    let mut mesh = Mesh::new(2, |source, peer, _| Some(well(source, peer, 3)));
    agent.next(crate::agent::Collection::Whole(mesh.answer().into()));
    browser.run("$('again').click()");
    browser.until("$('headline').textContent === 'all well' && $('headline').className === 'well'");
    wait_until_shown(&browser);
    mesh.not_gathered = 40;
    agent.next(crate::agent::Collection::Whole(mesh.answer().into()));
    browser.run("$('again').click()");
    browser.until("$('headline').textContent === 'Nothing stands out, but 40 agents not collected'");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn losses_over_ten_minutes_are_shown_in_the_document_s_words_and_are_not_well() {
    // Nothing was lost in the last minute.
    let mut mesh = Mesh::new(3, |source, peer, _| Some(well(source, peer, 3)));
    let words = "1 of 6 links has lost 2 % and more over ten minutes: 3.0 % from node-1 to node-2; no cause stands out";
    mesh.says = ["losses", words];
    let ten_minutes = "\"ten_minutes\":{\"seconds\":600,\"sent\":600,\"lost\":18},\"state\"";
    let losses = mesh.answer().replacen("\"state\"", ten_minutes, 1);
    let agent = Agent::serve(&mesh.layers, move || crate::agent::Collection::Whole(losses.clone().into()));
    let browser = opened(&agent, false);
    assert_eq!(browser.text("$('headline').textContent"), words);
    assert_eq!(browser.text("$('headline').className"), "bad");
    let said = browser.text("describe('node-1', 'node-2')");
    assert!(said.contains("0 % lost (0 of 58 in 58 s)") && said.contains("3 % lost over ten minutes"), "{said}");
    assert!(!browser.text("describe('node-2', 'node-1')").contains("ten minutes"));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn names_are_text_whatever_they_contain() {
    let mut mesh = three();
    let names = ["<img src=x onerror=window.hit=1>", "<script>window.hit=2</script>", "a\"b'&amp;\u{202e}<b>bold</b>"];
    for (node, name) in mesh.nodes.iter_mut().zip(names) {
        *node = (name.into(), format!("<i>{name}</i>"));
    }
    mesh.missing.push((2, "<u>no</u>"));
    mesh.verdicts = vec![losing(names[0], 1)];
    let agent = Agent::of(&mesh);
    let browser = opened(&agent, true);
    browser.run(&format!("openLink({})", json!({"source": names[0], "peer": names[1]})));
    browser.until("document.querySelectorAll('#link-hour svg').length === 2");
    assert_eq!(browser.text("$('link-title').textContent"), format!("{} → {}", names[0], names[1]));
    assert_eq!(
        browser.text("$('headline').textContent"),
        format!("{} is losing packets from 1 of 1 sources", names[0])
    );
    assert_eq!(browser.run("return document.querySelectorAll('img, u, #agents i, #agents b, main script').length"), 0);
    assert_eq!(browser.run("return window.hit ?? null"), json!(null));
    assert!(browser.text("$('agents').textContent").contains(names[2]));
    let asked = agent.hours();
    assert_eq!(asked, ["%3Cimg%20src%3Dx%20onerror%3Dwindow.hit%3D1%3E/%3Cscript%3Ewindow.hit%3D2%3C%2Fscript%3E"]);
    // No content of it caused a request to another address.
    for address in browser.requests() {
        assert!(address.starts_with(&agent.address), "{address}");
    }
    assert_eq!(browser.console(), [""; 0]);
}
