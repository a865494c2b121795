//! The pods' and nodes' networks, one at a time and side by side.

use serde_json::json;

use crate::agent::Agent;
use crate::made_up::{Link, Mesh, losing, well};
use crate::opened;

/// The second of three nodes loses a tenth on the pods' network. The first does not know the
/// third's address on the nodes' network.
fn three() -> Mesh {
    let mut mesh = Mesh::new(3, |source, peer, layer| {
        let link = well(source, peer, 3);
        match (source, peer, layer) {
            (0, 2, 1) => None,
            (_, 1, 0) => Some(Link { lost: 6, received: 52, ..link }),
            _ => Some(link),
        }
    });
    mesh.layers = vec![("pod", "icmp"), ("node", "icmp")];
    mesh.verdicts.push(losing("node-2", 2));
    mesh
}

#[test]
fn both_networks_stand_side_by_side_in_one_cell() {
    let agent = Agent::of(&three());
    let browser = opened(&agent, false);
    let press = |name: &str| {
        let button =
            format!("[...document.querySelectorAll('#controls button')].find((b) => b.textContent === '{name}')");
        browser.run(&format!("{button}.focus(); {button}.click()"));
        browser.until(&format!("!view.frame && {button}.getAttribute('aria-pressed') === 'true'"));
    };
    assert_eq!(
        browser.text("[...document.querySelectorAll('fieldset')][1].textContent"),
        "Probespod network, ICMP, IPv4node network, ICMP, IPv4both networks, ICMP, IPv4",
        "the pods' is shown first"
    );
    press("both networks, ICMP, IPv4");
    let focus = browser.text("document.activeElement.textContent");
    assert_eq!(focus, "both networks, ICMP, IPv4", "the switch keeps the focus");
    // Points at a quarter and three quarters of a cell's width, beside its figures.
    let halves = |row: usize, column: usize| {
        browser.run(&format!(
            "return [1, 3].map((part) => {{
                const {{ rows, columns }} = view;
                const data = pixels(view.left + columns.starts[{column}] + columns.size * part / 4, view.top + rows.starts[{row}] + 2, 1, 1);
                return hex(data);
            }})"
        ))
    };
    let tone = |name: &str| browser.text(&format!("tone('{name}')"));
    assert_eq!(halves(0, 1), json!([tone("loss3"), tone("loss0")]));
    assert_eq!(halves(1, 0), json!([tone("loss0"), tone("loss0")]));
    assert_eq!(halves(0, 2), json!([tone("loss0"), tone("face")]), "not probed on the nodes' network");
    let says = browser.text("describe('node-1', 'node-2')");
    assert!(
        says.starts_with("node-1 (zone-a) → node-2 (zone-b): pod network, ICMP, IPv4: 10 % lost (6 of 58 in 58 s)"),
        "{says}"
    );
    assert!(says.contains("; node network, ICMP, IPv4: 0 % lost (0 of 58 in 58 s)"), "{says}");
    let says = browser.text("describe('node-1', 'node-3')");
    assert!(
        says.contains("pod network, ICMP, IPv4: 0 % lost") && says.ends_with("; node network, ICMP, IPv4: not probed"),
        "{says}"
    );
    // The verdict about either network is shown where both are.
    browser.run("document.querySelector('#verdicts button').click()");
    assert_eq!(browser.text("shown.layer"), "both icmp");
    browser.run("openLink({ source: 'node-1', peer: 'node-2' })");
    browser.until("document.querySelectorAll('#link-hour svg').length === 4");
    assert_eq!(
        browser
            .text("[...document.querySelectorAll('#link-hour h3')].map((head) => head.firstChild.textContent).join()"),
        "Loss (pod network, ICMP, IPv4): ,RTT (pod network, ICMP, IPv4): ,\
         Loss (node network, ICMP, IPv4): ,RTT (node network, ICMP, IPv4): "
    );
    browser.run("$('link').close()");
    // A turn later, the map has the focus again and shows it. This must not happen during the next
    // step.
    browser.until("document.activeElement === map");
    press("node network, ICMP, IPv4");
    assert_eq!(halves(0, 1), json!([tone("loss0"), tone("loss0")]));
    press("pod network, ICMP, IPv4");
    assert_eq!(halves(0, 1), json!([tone("loss3"), tone("loss3")]));
    assert_eq!(browser.console(), [""; 0]);
}

#[test]
fn both_are_offered_only_where_both_are_probed() {
    let mut mesh = three();
    mesh.layers = vec![("pod", "icmp"), ("node", "icmpv6")];
    let agent = Agent::of(&mesh);
    let browser = opened(&agent, false);
    assert_eq!(
        browser.text("[...document.querySelectorAll('fieldset')][1].textContent"),
        "Probespod network, ICMP, IPv4node network, ICMP, IPv6"
    );
    assert_eq!(browser.console(), [""; 0]);
}
