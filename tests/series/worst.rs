//! Which peers are left where not all fit.

use kube_canary::discovery::Network;
use kube_canary::exposition::Format;
use kube_canary::limits::SERIES_BUDGET_DEFAULT;
use kube_canary::peers::SlotId;
use kube_canary::prober::{Event, Stamp};
use kube_canary::units::Nanos;

use crate::flapping::Watch;
use crate::leaks::NoLeaks;
use crate::mesh::{Agent, SECOND, Way, name, series};

const NODES: u16 = 300;

/// A second of probes that all answer, but for those of one node.
fn second(agent: &Agent, now: Nanos, culprit: Option<u16>) {
    agent.view.statistics.tick(now);
    let lost = culprit.map(|node| slot_of(agent, node));
    for (slot, _) in agent.slots() {
        agent.event(slot, Event::Sent);
        let rtt = Nanos(100_000);
        let answer = Event::Received { rtt, reordered: false, sequence: 0, stamp: Stamp::Kernel };
        agent.event(slot, if lost == Some(slot) { Event::Lost } else { answer });
    }
}

const fn way(node: u16) -> Way {
    Way { node, v6: false, network: Network::Pod }
}

fn slot_of(agent: &Agent, node: u16) -> SlotId {
    let directory = agent.view.directory.read().expect("no panic");
    let found = directory.peers().find(|(_, peer)| peer.node() == name(node)).map(|(slot, _)| slot);
    found.expect("it is probed")
}

#[test]
fn a_culprit_among_many_is_exported_within_a_minute_and_stays() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::new(SERIES_BUDGET_DEFAULT, 3);
    let at = |seconds: u64| Nanos((1_000 + seconds) * SECOND);
    let ways: Vec<Way> = (1..=NODES).map(|node| Way { node, v6: false, network: Network::Pod }).collect();
    agent.list(&ways, at(0));
    let is_shown = |now, node: u16| {
        let text = agent.scrape(now, Format::Text).text();
        text.contains(&format!("kube_canary_probes_lost_total{{source_node=\"{}\"", name(0)))
            && text.contains(&format!("peer_node=\"{}\"", name(node)))
    };
    let (mut shown_at, mut gone_at) = (None, None);
    for seconds in 0..1_500 {
        let losing = (200..230).contains(&seconds);
        second(&agent, at(seconds), losing.then_some(277));
        // Another scrapes every minute, at another moment.
        if seconds % 60 == 7 {
            agent.scrape(at(seconds), Format::OpenMetrics).text();
        }
        if seconds % 15 == 0 {
            match (is_shown(at(seconds), 277), shown_at) {
                (true, None) => shown_at = Some(seconds),
                (false, Some(_)) => gone_at = gone_at.or(Some(seconds)),
                _ => {}
            }
        }
    }
    let shown_at = shown_at.expect("it is shown");
    assert!((200..=245).contains(&shown_at), "{shown_at}");
    // Well again, it stays at least as long as it must; nobody worse comes who would take its place.
    assert!(gone_at.is_none_or(|gone| gone >= shown_at + 600), "{gone_at:?}");
}

#[test]
fn peers_that_move_to_other_slots_go_on_and_newcomers_do_not_come_with_them() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::new(SERIES_BUDGET_DEFAULT, 3);
    let at = |seconds: u64| Nanos((1_000 + seconds) * SECOND);
    let ways: Vec<Way> = (1..=NODES).map(|node| Way { node, v6: false, network: Network::Pod }).collect();
    let shown = |now| {
        let text = agent.scrape(now, Format::Text).text();
        let lines = text.lines().filter_map(|line| line.strip_prefix("kube_canary_probes_sent_total{"));
        lines.map(|labels| labels.rsplit_once(' ').expect("a value").0.to_owned()).collect::<Vec<_>>()
    };
    agent.list(&ways, at(0));
    // The culprits are in the last slots.
    for seconds in 0..40 {
        agent.view.statistics.tick(at(seconds));
        (280..NODES).for_each(|slot| agent.event(SlotId(slot.into()), Event::Lost));
    }
    let mut before = shown(at(40));
    assert!(before.iter().filter(|labels| labels.contains(&name(290))).count() == 1, "{before:?}");
    // All but the chosen, and as many as do not fit beside them, leave and are forgotten; the culprits move to the front.
    let stays: Vec<Way> = ways.iter().copied().filter(|way| way.node > 240).collect();
    agent.list(&stays, at(41));
    assert!(agent.forget(at(42), Nanos(0)), "holes are closed up");
    before.retain(|labels| stays.iter().any(|way| labels.contains(&name(way.node))));
    let mut after = shown(at(43));
    before.sort_unstable();
    after.sort_unstable();
    assert!(before.len() >= 15);
    assert!(before.iter().all(|labels| after.contains(labels)), "{before:?}\n{after:?}");
}

#[test]
fn who_shares_a_text_shares_its_plan_though_there_is_a_younger_one() {
    let _no_leaks = NoLeaks::here();
    let agent = Agent::new(SERIES_BUDGET_DEFAULT, 3);
    let at = |tenths: u64| Nanos((10_000 + tenths) * SECOND / 10);
    let ways: Vec<Way> = (1..=25).map(way).collect();
    agent.list(&ways[..24], at(0));
    let slow = agent.scrape(at(0), Format::OpenMetrics);
    let first = agent.scrape(at(9), Format::Text);
    agent.list(&ways, at(10));
    let other = agent.scrape(at(11), Format::OpenMetrics);
    let second = agent.scrape(at(15), Format::Text);
    assert!(!slow.text().contains(&name(25)) && other.text().contains(&name(25)));
    assert_eq!((first.text().contains(&name(25)), second.text().contains(&name(25))), (false, false));
    assert!(agent.scrape(at(16), Format::Text).text().contains(&name(25)), "that is over");
}

#[test]
fn who_comes_during_a_scrape_is_not_in_it() {
    let _no_leaks = NoLeaks::here();
    let at = |seconds: u64| Nanos((1_000 + seconds) * SECOND);
    // All peers are exported, or the worst alone: then a newcomer gets the slot of one of them.
    for (nodes, takes_a_slot) in [(24, false), (NODES, true)] {
        let agent = Agent::new(SERIES_BUDGET_DEFAULT, 3);
        let ways: Vec<Way> = (1..=nodes).map(way).collect();
        agent.list(&ways, at(0));
        second(&agent, at(0), Some(1));
        let mut under_way = agent.scrape(at(1), Format::Text);
        under_way.go_on();
        let (slot, newcomer) = (slot_of(&agent, 1), nodes + 1);
        let rest = &ways[usize::from(takes_a_slot)..];
        agent.list(rest, at(1));
        assert!(!agent.forget(at(2), Nanos(0)), "nobody moves while one is on the way");
        agent.list(&[rest, &[way(newcomer)]].concat(), at(2));
        assert_eq!(slot_of(&agent, newcomer) == slot, takes_a_slot);
        let (text, next) = (under_way.text(), agent.scrape(at(3), Format::Text).text());
        assert_eq!((text.contains(&name(1)), text.contains(&name(newcomer))), (!takes_a_slot, false));
        assert_eq!(next.contains(&name(newcomer)), !takes_a_slot);
        assert!(series(&text) <= SERIES_BUDGET_DEFAULT);
    }
}

/// The worst alone are exported, of whom `losing` so many lose something, and most of the others leave: all who stay return
/// after a time. Shortly before, something happens. Gives how many of those that return are not exported until then.
fn scaled_down(losing: u16, shortly_before: impl Fn(&Agent, Nanos, &[Way])) -> usize {
    let agent = Agent::new(SERIES_BUDGET_DEFAULT, 9);
    let at = |seconds: u64| Nanos((1_000 + seconds) * SECOND);
    // None in the ninth zone yet.
    let ways: Vec<Way> = (1..=200).filter(|node| node % 9 != 8).map(way).collect();
    let stays = &ways[..24];
    agent.list(&ways, at(0));
    let mut watch = Watch::default();
    let (mut before, mut left_out) = (0, 0);
    for quarter in 0..100 {
        let now = at(quarter * 15);
        agent.view.statistics.tick(now);
        let culprits: Vec<SlotId> = stays[..usize::from(losing)].iter().map(|way| slot_of(&agent, way.node)).collect();
        for (slot, _) in agent.slots() {
            agent.event(slot, Event::Sent);
            let answer = Event::Received { rtt: Nanos(100_000), reordered: false, sequence: 0, stamp: Stamp::Kernel };
            agent.event(slot, if culprits.contains(&slot) { Event::Lost } else { answer });
        }
        if quarter == 50 {
            agent.list(stays, now);
            agent.forget(now, Nanos(0));
        }
        if quarter == 66 {
            shortly_before(&agent, now, stays);
        }
        let text = agent.scrape(now, Format::Text).text();
        watch.look(now, &text, |_| 0);
        left_out = stays.iter().filter(|way| !text.contains(&format!("peer_node=\"{}\"", name(way.node)))).count();
        before = if quarter == 67 { left_out } else { before };
    }
    assert_eq!(left_out, 0, "all are back");
    before
}

#[test]
fn who_loses_its_place_shortly_before_all_return_is_not_back_at_once() {
    let _no_leaks = NoLeaks::here();
    // Those without a place are worse than all others, whose time is over.
    let without = scaled_down(20, |agent, _, stays| {
        for way in stays {
            (0..50).for_each(|_| agent.event(slot_of(agent, way.node), Event::Lost));
        }
        for way in &stays[18..] {
            (0..90).for_each(|_| agent.event(slot_of(agent, way.node), Event::Lost));
        }
    });
    assert_eq!(without, 6);
    // One more zone pair leaves fewer places.
    let without = scaled_down(20, |agent, now, stays| agent.list(&[stays, &[way(8)]].concat(), now));
    assert_eq!(without, 8);
}
