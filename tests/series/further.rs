//! Reasons of send errors beyond the first of a peer, which have no reserve.

use kube_canary::discovery::Network;
use kube_canary::exposition::Format;
use kube_canary::limits::SERIES_BUDGET_DEFAULT;
use kube_canary::prober::{Event, SendError};
use kube_canary::units::Nanos;

use crate::flapping::Watch;
use crate::leaks::NoLeaks;
use crate::mesh::{Agent, SECOND, Way};

#[test]
fn further_reasons_that_are_back_stay_although_an_old_scrape_without_them_ends_later() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::new(SERIES_BUDGET_DEFAULT, 1);
    let at = |seconds: u64| Nanos((1_000 + seconds) * SECOND);
    let ways: Vec<Way> = (1..=11).map(|node| Way { node, v6: false, network: Network::Pod }).collect();
    agent.list(&ways, at(0));
    for (slot, _) in agent.slots() {
        for reason in SendError::ALL {
            agent.event(slot, Event::NotSent(reason));
        }
    }
    let mut watch = Watch::default();
    let mut reasons = |seconds| {
        let text = agent.scrape(at(seconds), Format::Text).text();
        watch.look(at(seconds), &text, |_| 0);
        text.lines().filter(|line| line.starts_with("kube_canary_probe_send_errors_total{")).count()
    };
    assert_eq!(reasons(0), 11, "there is no room for more");
    agent.list(&ways[..8], at(1));
    agent.forget(at(2), Nanos(0));
    assert_eq!(reasons(15), 8);
    for seconds in (30..315).step_by(15) {
        assert_eq!(reasons(seconds), 8, "{seconds}");
    }
    let mut slow = agent.scrape(at(306), Format::Text);
    slow.go_on();
    assert_eq!(reasons(315), 8 * SendError::ALL.len());
    slow.text();
    assert_eq!(reasons(330), 8 * SendError::ALL.len());
}
