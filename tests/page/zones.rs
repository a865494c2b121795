//! Beyond 24 nodes, the matrix is one of zones first. A cell of it opens the nodes of both zones,
//! and the row of a node its last hour.

use serde_json::json;

use crate::browser::{Browser, key};
use crate::judged::{agent, collections, figures, firsts, opened};
use crate::picture;

/// A cell of the matrix of zones.
fn cell(row: usize, column: usize) -> String {
    format!("$('zones').querySelector('tbody').rows[{row}].cells[{column}].firstChild")
}

fn until_drawn(browser: &Browser) {
    browser.until("mesh.at && !turns.running && !view.stale && !view.frame");
}

#[test]
fn the_matrix_of_zones_is_shown_on_demand_and_collects_nothing_whatever_the_number_of_nodes() {
    for nodes in [3, 30, 300, 5_000] {
        let agent = agent(nodes);
        let browser = opened(&agent, "");
        let is_small = nodes == 3;
        let seen = "return [$('zones').getClientRects().length > 0, $('draw').getClientRects().length > 0, $('matrix').hidden]";
        assert_eq!(browser.run(seen), json!([false, !is_small, !is_small]), "{nodes}");
        if is_small {
            continue;
        }
        browser.run("$('draw').click()");
        assert_eq!(browser.run(seen), json!([true, true, true]), "{nodes}");
        assert_eq!(browser.text("location.search"), "?matrix=zones");
        assert_eq!(firsts(&browser, "zones"), ["zone-a", "zone-b", "zone-c"]);
        let texts = browser.run(
            "return [...$('zones').querySelectorAll('tbody tr')].map((row) => [...row.cells].slice(1).map((it) => it.textContent))",
        );
        let expected = json!([
            ["5 % 62 µs", "0 % 640 µs", "0 % 640 µs"],
            ["5 % 640 µs", "0 % 62 µs", "0 % 640 µs"],
            ["5 % 640 µs", "-", "0 % 62 µs"]
        ]);
        assert_eq!(texts, expected, "{nodes}");
        assert_eq!(browser.text(&format!("{}.title", cell(1, 1))), "8 of 1,000 links with loss");
        let red = |row, column| {
            browser.run(&format!(
                "const [r, g, b] = getComputedStyle({}.firstChild).color.match(/\\d+/g).map(Number); return r > 150 && g < 110 && b < 110",
                cell(row, column)
            ))
        };
        assert_eq!((red(0, 1), red(0, 2)), (json!(true), json!(false)), "{nodes}");
        assert_eq!(collections(&agent), 0);
        assert_eq!(browser.console(), [""; 0]);
    }
}

#[test]
fn a_cell_opens_the_nodes_of_both_zones_that_lose_most_and_the_address_has_all() {
    let agent = agent(5_000);
    let browser = opened(&agent, "?matrix=zones");
    browser.run(&format!("{}.click()", cell(1, 1)));
    until_drawn(&browser);
    let named = agent.named();
    assert_eq!((named.len(), named[0].len(), collections(&agent)), (1, 100, 1));
    // Every fifth node loses a probe.
    let is_asked = |node: &String| node[5..].parse::<usize>().is_ok_and(|node| node % 3 == 2 && node % 5 == 1);
    assert!(named[0].iter().all(is_asked), "of zone-b, those with loss: {named:?}");
    let shown = browser.run(
        "return [view.rows, view.columns].map(({ nodes, zones }) => [nodes.length, zones.map(({ name }) => name).join()])",
    );
    assert_eq!(shown, json!([[100, "zone-b"], [100, "zone-a"]]));
    let note = browser.text("$('zones-note').textContent");
    let start = "zone-b → zone-a: 100 of 1,667 sources, 100 of the ";
    assert!(note.starts_with(start) && note.ends_with(" peers they probe there; those with most loss."), "{note}");
    let pressed = "[...$('zones').querySelectorAll('button')].filter((it) => it.ariaPressed === 'true').length";
    assert_eq!(browser.run(&format!("return {pressed}")), json!(1));
    let colors =
        format!("const made = {}; return [made, made.firstChild].map((it) => getComputedStyle(it).color)", cell(1, 1));
    let colors = browser.run(&colors);
    assert_eq!(colors[0], colors[1], "legible on the colour of a pressed button");
    let address = browser.text("location.search");
    assert_eq!(address, "?matrix=zones&pair=zone-b-%3Ezone-a");
    // A link of the part opens as any other.
    let link = browser.run("return [mesh.rows.keys().next().value, view.columns.nodes[0].name]");
    browser.run(&format!("openLink({{ source: {}, peer: {} }})", link[0], link[1]));
    browser.until("$('link').open && document.querySelectorAll('#link-hour svg').length === 2");
    browser.press(&[key::ESCAPE]);
    browser.until("!$('link').open");
    browser.run("fire()");
    browser.until("!turns.running && timers.size === 1");
    assert_eq!(collections(&agent), 1, "once, and not again unasked");
    browser.run(&format!("{}.click()", cell(1, 1)));
    assert_eq!(
        browser.run(&format!("return [$('matrix').hidden, {pressed}, location.search]")),
        json!([true, 0, "?matrix=zones"])
    );
    assert_eq!(browser.console(), [""; 0]);
    drop(browser);

    let browser = opened(&agent, &address);
    until_drawn(&browser);
    assert_eq!(browser.run("return [view.rows.nodes.length, view.columns.nodes.length]"), json!([100, 100]));
    assert_eq!((agent.named()[1] == named[0], collections(&agent)), (true, 2));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_pair_that_no_zone_has_and_a_judge_without_zones_show_what_is_wrong() {
    let agent = agent(30);
    let browser = opened(&agent, "?matrix=zones&pair=zone-b-%3Enowhere");
    until_drawn(&browser);
    assert_eq!(browser.run("return [view.rows.nodes.length, view.columns.nodes.length]"), json!([10, 0]));
    drop(browser);
    // A judge of an earlier version has no pairs.
    agent.set_figures(Some(figures(30).replace("zone_pairs", "other")));
    let browser = opened(&agent, "?matrix=zones");
    assert_eq!((firsts(&browser, "zones").len(), firsts(&browser, "nodes").len()), (0, 30));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn a_node_opens_its_last_hour_and_so_does_its_address() {
    let agent = agent(30);
    let browser = opened(&agent, "");
    browser.run("$('nodes').querySelector('tbody button').click()");
    let charts = "$('link').open && document.querySelectorAll('#link-hour svg').length === 2";
    browser.until(charts);
    assert_eq!(browser.text("$('link-title').textContent"), "node-07");
    let text = browser.text("$('link-figures').textContent");
    assert!(text.starts_with("Of all its links: the mean loss, "), "{text}");
    assert_eq!(agent.hours(), ["node-07/*"]);
    // Its checks are in its report, and no other is asked for.
    let checks = "document.querySelector('#link-figures tbody').rows[0].innerText";
    browser.until("document.querySelector('#link-figures tbody')?.rows.length");
    assert!(browser.text(checks).starts_with("dns (dns)"), "{}", browser.text(checks));
    assert_eq!((agent.named(), collections(&agent)), (vec![vec!["node-07".to_owned()]], 1));
    let address = browser.text("location.search");
    assert_eq!(address, "?from=node-07&to=*");
    assert_eq!(browser.console(), [""; 0]);
    drop(browser);
    let browser = opened(&agent, &address);
    browser.until(charts);
    assert_eq!(browser.text("$('link-title').textContent"), "node-07");
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn five_thousand_nodes_fit_1280_and_500_pixels_in_light_and_dark() {
    let agent = agent(5_000);
    let browser = opened(&agent, "?matrix=zones");
    for (width, scheme) in [(1_280, "light"), (1_280, "dark"), (500, "light"), (500, "dark")] {
        browser.prefer(scheme);
        browser.resize(width, 800, 1.0);
        let wide = browser.run(
            "return [document.documentElement, $('worst'), $('nodes'), $('zones')].map((it) => it.scrollWidth - it.clientWidth)",
        );
        assert_eq!(wide, json!([0, 0, 0, 0]), "{width} {scheme}");
    }
    // For the documentation, with few rows of nodes and a part of a map.
    browser.run("$('search').value = '-0007'; $('search').oninput()");
    browser.run(&format!("{}.click()", cell(1, 1)));
    until_drawn(&browser);
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        browser.resize(1_280, 760, 1.0);
        browser.run("$('all').scrollIntoView(); redraw()");
        browser.until("!view.stale && !view.frame");
        picture::take(&browser, &format!("judged-5000-{scheme}"));
    }
    assert_eq!(browser.console(), [""; 0]);
}
