//! What the prober makes of the outcomes of handshakes.

use std::net::Ipv4Addr;

use super::world::{Fate, MOVED, PEER, World, done, refused};
use super::*;
use crate::limits::{DOUBT_TIME, TCP_HANDSHAKES_MAX};
use crate::prober::QUESTION_PAUSE;

const SENT: Event = Event::Sent;
const LOST: Event = Event::Lost;
const LATE: Event = Event::Late;
const WITHDRAWN: Event = Event::Terminating { answered: false };

#[test]
fn a_handshake_that_is_done_is_received_with_the_kernels_time_however_late_it_is_found() {
    for found in [1, 250, 1_100, 60_000] {
        let mut world = World::of_one(Fate::After(0, done(412, 0)), &settings());
        let found = world.begin().at(found);
        assert_eq!(found[0], received(0, 412, 0));
        assert_eq!(world.prober.wire().begun[0], SocketAddr::new(PEER, 7_000));
        assert!(
            found.iter().all(|report| !matches!(report, Observation::Probe { event: Event::Lost, .. })),
            "{found:?}"
        );
    }
    let mut world = World::of_one(Fate::After(0, done(0, 0)), &settings());
    assert_eq!(world.begin().at(1), [received(0, 1, 0)], "less than the kernel's unit");
    assert!(!world.prober.awaits_any());
}

#[test]
fn a_peer_is_probed_every_ten_seconds_or_every_interval_if_that_is_longer() {
    for (interval, expected) in [(10, 6), (1_000, 6), (10_000, 6), (30_000, 2)] {
        let settings = Settings { interval: Nanos::from_millis(interval), ..settings() };
        let mut world = World::of_one(Fate::After(0, done(100, 0)), &settings);
        world.until(59_999);
        assert_eq!(world.prober.wire().begun.len(), expected, "{interval}");
    }
}

#[test]
fn a_lost_handshake_is_followed_by_another_until_one_is_done() {
    let retried = Handshakes { retries_lost: true, ..PLAIN };
    let mut world = World::of_one_by(retried, Fate::Silent, &settings());
    let reports = world.until(29_999);
    let begun = world.prober.wire().begun.len();
    // One at the usual time of each ten seconds, and one a second after each loss.
    assert!((13..=19).contains(&begun), "{begun}");
    let count = |event: Event| {
        reports.iter().filter(|r| matches!(r, Observation::Probe { event: found, .. } if *found == event)).count()
    };
    assert_eq!(count(SENT), begun);
    assert!(count(LOST) + 2 >= begun, "each counts: {reports:?}");
    let mut calm = World::of_one_by(retried, Fate::After(1, done(100, 0)), &settings());
    calm.until(29_999);
    assert_eq!(calm.prober.wire().begun.len(), 3);
}

#[test]
fn the_first_handshakes_with_a_new_peer_may_fail() {
    let mut world =
        World::of_one(Fate::Silent, &Settings { new_peer_silence: Nanos::from_millis(10_000), ..settings() });
    let reports = world.until(25_000);
    let fates: Vec<_> = reports.into_iter().filter(|found| *found != event(0, SENT)).collect();
    assert_eq!(fates, [event(0, WITHDRAWN), event(0, LOST), event(0, LOST)]);
}

#[test]
fn a_handshake_waits_for_a_turn_of_other_probes_and_no_longer_than_allowed() {
    let mut world = World::of_one(Fate::Silent, &settings());
    assert_eq!(world.prober.next_turn(), Some(Nanos::from_millis(250)));
    assert_eq!(world.at(100), [event(0, SENT)], "a turn that is not its own");
    assert_eq!(world.prober.next_turn().unwrap().0, 1_225_000_001, "the loss, with its slack");
}

#[test]
fn silence_is_lost_after_the_timeout_or_the_second_after_which_syns_are_repeated() {
    for (timeout, lost_at) in [(200, 201), (1_000, 1_001), (5_000, 1_001)] {
        let settings = Settings { timeout: Nanos::from_millis(timeout), ..settings() };
        let mut world = World::of_one(Fate::Silent, &settings);
        assert_eq!(world.begin().at(lost_at - 1), []);
        assert_eq!(world.at(lost_at), [event(0, LOST)]);
        assert_eq!((world.at(3_200), world.in_flight()), (vec![], 1));
        assert_eq!((world.at(3_201), world.in_flight()), (vec![], 0), "given up");
        assert!(!world.prober.awaits_any());
    }
}

#[test]
fn a_syn_that_this_host_drops_is_not_sent_and_not_lost() {
    let waiting = Handshakes { unsent_wait: UNSENT_WAIT, ..PLAIN };
    let mut world = World::of_one_by(waiting, Fate::Unsent, &settings());
    assert_eq!((world.begin().at(1_150), world.in_flight()), (vec![], 1));
    assert_eq!(world.at(1_151), [event(0, Event::NotSent(SendError::NotPermitted))]);
    assert!(world.in_flight() == 0 && !world.prober.awaits_any());
    // The next one takes its place among those that were sent.
    let later = world.until(25_000);
    assert_eq!(later, [(); 2].map(|()| event(0, Event::NotSent(SendError::NotPermitted))));
    world.fate(PEER, Fate::After(1, done(100, 0)));
    assert_eq!(world.until(35_000), [received(0, 100, 3)]);
    // Silence is decided at the same time.
    let mut world = World::of_one_by(waiting, Fate::Silent, &settings());
    assert_eq!((world.begin().at(1_150), world.at(1_151)), (vec![], vec![event(0, LOST)]));
    // A shorter timeout does not wait for the repetition.
    let short = Settings { timeout: Nanos::from_millis(200), ..settings() };
    let mut world = World::of_one_by(waiting, Fate::Unsent, &short);
    assert_eq!((world.begin().at(200), world.at(201)), (vec![], vec![event(0, LOST)]));
}

#[test]
fn a_handshake_longer_than_the_timeout_is_lost_and_late() {
    let settings = Settings { timeout: Nanos::from_millis(200), ..settings() };
    // Found by the turn that would have decided the loss, and by a later one.
    let mut world = World::of_one(Fate::After(300, done(300_000, 0)), &settings);
    assert_eq!(world.begin().at(300), [event(0, LOST), event(0, LATE)]);
    let mut world = World::of_one(Fate::After(300, done(300_000, 0)), &settings);
    assert_eq!(world.begin().at(250), [event(0, LOST)]);
    assert_eq!((world.at(300), world.in_flight()), (vec![event(0, LATE)], 0));
    // It was in time, and only its discovery is late.
    let mut world = World::of_one(Fate::After(150, done(150_000, 0)), &settings);
    assert_eq!(world.begin().at(1_000), [received(0, 150_000, 0)]);
}

#[test]
fn a_handshake_whose_syn_was_repeated_is_lost_and_counted_and_gives_no_time() {
    let repeated = Observation::SynRetransmissions { slot: SlotId(0), count: 1 };
    let mut world = World::of_one(Fate::After(1_015, done(1_015_000, 1)), &settings());
    assert_eq!(world.begin().at(1_015), [repeated, event(0, LOST), event(0, LATE)]);
    let mut world = World::of_one(Fate::After(3_050, done(3_050_000, 2)), &settings());
    assert_eq!(world.begin().at(1_001), [event(0, LOST)]);
    assert_eq!(world.at(3_050), [Observation::SynRetransmissions { slot: SlotId(0), count: 2 }, event(0, LATE)]);
    // A kernel that repeats sooner: still no time of one exchange.
    let mut world = World::of_one(Fate::After(300, done(300, 1)), &settings());
    assert_eq!(world.begin().at(300), [Observation::SynRetransmissions { slot: SlotId(0), count: 1 }]);
    assert_eq!(world.at(1_001), [event(0, LOST)]);
}

#[test]
fn a_refused_handshake_is_lost_at_its_timeout_and_counted_after_its_loss() {
    for fate in [Fate::After(1, refused(0)), Fate::RefusedAtOnce, Fate::RefusedInSilence] {
        let mut world = World::of_one(fate, &settings());
        assert_eq!((world.begin().at(1_000), world.prober.awaits_any()), (vec![], true), "{fate:?}");
        assert_eq!(world.at(1_001), [event(0, LOST), Observation::Refused(SlotId(0))], "{fate:?}");
        assert_eq!(world.in_flight(), 0);
        world.fate(PEER, Fate::Silent);
        assert_eq!(world.at(10_000), [event(0, SENT)]);
        assert_eq!(world.at(11_001), [event(0, LOST)], "the next loss is not refused");
    }
    let mut world = World::of_one(Fate::After(1_030, refused(1)), &settings());
    assert_eq!(world.begin().at(1_001), [event(0, LOST)], "counted as silence by then");
    assert_eq!(world.at(1_030), [Observation::SynRetransmissions { slot: SlotId(0), count: 1 }]);
    world.fate(PEER, Fate::Silent);
    assert_eq!((world.at(10_000), world.at(11_001)), (vec![event(0, SENT)], vec![event(0, LOST)]));
}

#[test]
fn an_error_from_the_network_is_silence_and_one_of_this_host_is_no_probe() {
    let mut world = World::of_one(Fate::After(1, Handshake::Failed), &settings());
    assert_eq!((world.begin().at(500), world.in_flight()), (vec![], 0));
    assert_eq!(world.at(1_001), [event(0, LOST)]);
    let mut world = World::of_one(Fate::NotSent(SendError::NoRoute), &settings());
    assert_eq!(world.at(0), [event(0, Event::NotSent(SendError::NoRoute))]);
    assert!(!world.prober.awaits_any());
    assert_eq!(world.at(5_000), []);
}

#[test]
fn a_terminating_peer_that_refuses_neither_counts_as_lost_nor_as_refused() {
    let mut world = World::of_one(Fate::After(1, refused(0)), &settings());
    world.prober.apply(probe(0, PEER, true));
    assert_eq!(world.at(0), [], "not in `sent` either");
    assert_eq!(world.at(1_001), [event(0, WITHDRAWN)]);
    // It begins to terminate while the handshake is in flight.
    let mut world = World::of_one(Fate::After(1, refused(0)), &settings());
    world.begin().at(500);
    world.prober.apply(probe(0, PEER, true));
    assert_eq!(world.at(1_001), [event(0, WITHDRAWN)]);
}

#[test]
fn a_handshake_with_a_former_address_or_a_former_peer_says_nothing() {
    let mut world = World::of_one(Fate::After(600, done(500_000, 0)), &settings());
    world.begin();
    world.prober.apply(probe(0, MOVED, false));
    assert_eq!(world.at(600), []);
    assert_eq!(world.at(1_001), [event(0, WITHDRAWN)]);
    assert_eq!(world.at(10_000), [], "it takes the place of the withdrawn one in `sent`");
    let mut world = World::of_one(Fate::After(600, refused(1)), &settings());
    world.begin();
    world.prober.apply(Change::Stop { slot: SlotId(0) });
    world.join(0, MOVED, Fate::Silent);
    assert_eq!(world.in_flight(), 0, "closed with its peer");
    assert_eq!(world.at(1_001), []);
}

#[test]
fn a_loss_in_doubt_waits_for_its_answer_and_its_refusal_with_it() {
    let settings = Settings { doubts: true, ..settings() };
    let asked = |world: &mut World| {
        let mut asked = Vec::new();
        world.prober.ask(|address| {
            asked.push(address);
            true
        });
        asked
    };
    for returns_elsewhere in [false, true] {
        let mut world = World::of_one(Fate::After(1, refused(0)), &settings);
        assert_eq!((world.begin().at(1_001), asked(&mut world)), (vec![], vec![]));
        let pause = u64::try_from(QUESTION_PAUSE.as_millis()).unwrap();
        assert_eq!((world.at(1_001 + pause), asked(&mut world)), (vec![], vec![PEER]));
        assert!(world.prober.awaits_any());
        if returns_elsewhere {
            world.prober.apply(probe(0, MOVED, false));
            assert_eq!(world.at(1_200), [event(0, WITHDRAWN)]);
        } else {
            world.prober.answered(PEER);
            assert_eq!(world.at(1_200), [event(0, LOST), Observation::Refused(SlotId(0))]);
        }
        let end = 1_200 + u64::try_from(DOUBT_TIME.as_millis()).unwrap();
        assert_eq!(world.until(end), []);
    }
}

#[test]
fn handshakes_in_flight_are_bounded_and_lost_ones_make_room_first() {
    // As many as one cell of a mesh of 5,000 nodes with both families has, all silent.
    let peers = 1_000;
    let mut world = World::empty(&settings());
    for slot in 0..peers {
        world.join(slot, Ipv4Addr::from_bits(0x0a01_0000 | slot).into(), Fate::Silent);
    }
    let reports = world.until(30_000);
    assert_eq!(world.prober.wire().most, TCP_HANDSHAKES_MAX);
    let count = |event: Event| {
        reports.iter().filter(|r| matches!(r, Observation::Probe { event: found, .. } if *found == event)).count()
    };
    let (sent, full) = (count(Event::Sent), count(Event::NotSent(SendError::TableFull)));
    assert!(sent + full >= 3 * 1_000, "{sent} sent, no place for {full}");
    // A place is taken for a second, and lost handshakes lose it.
    assert!((45 * 30..=64 * 31).contains(&sent), "{sent} sent");
    assert!(count(LOST) <= sent && count(LOST) + TCP_HANDSHAKES_MAX >= sent);
    assert!(!reports.iter().any(|report| matches!(report, Observation::Skipped(_))));
}

#[test]
fn many_peers_that_fall_silent_do_not_make_the_thread_spin() {
    let mut world = World::with(&settings(), Handshakes { retries_lost: true, ..PLAIN });
    let peers: Vec<IpAddr> = (0..48).map(|slot| Ipv4Addr::from_bits(0x0a01_0000 | slot).into()).collect();
    for (slot, address) in (0..).zip(&peers) {
        world.join(slot, *address, Fate::After(1, done(100, 0)));
    }
    world.until(20_000);
    for address in &peers {
        world.fate(*address, Fate::Silent);
    }
    let begun = world.turns;
    world.until(80_000);
    assert_eq!(world.prober.wire().most, TCP_HANDSHAKES_MAX, "no place is free for handshakes that follow lost ones");
    // Ten tries a second of what finds no place, and as many turns again for handshakes and losses.
    assert!(world.turns - begun < 60 * 20, "{} turns in a minute", world.turns - begun);
}

#[test]
fn every_peer_of_a_large_mesh_is_probed_once_per_interval_while_they_answer() {
    let peers = 10_000;
    let mut world = World::empty(&settings());
    for slot in 0..peers {
        world.join(slot, Ipv4Addr::from_bits(0x0a01_0000 | slot).into(), Fate::After(3, done(3_000, 0)));
    }
    let reports = world.until(10_200);
    let received =
        reports.iter().filter(|r| matches!(r, Observation::Probe { event: Event::Received { .. }, .. })).count();
    let sent = reports.iter().filter(|r| matches!(r, Observation::Probe { event: Event::Sent, .. })).count();
    assert_eq!(sent + received, reports.len(), "nothing else happens");
    let mut slots: Vec<u32> = reports
        .iter()
        .filter_map(|r| if let Observation::Probe { slot, event: SENT, .. } = r { Some(slot.0) } else { None })
        .collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), 10_000);
    assert!(world.prober.wire().most <= TCP_HANDSHAKES_MAX);
}

#[test]
fn a_peer_that_leaves_while_its_cell_waits_for_its_turn_is_left_out() {
    let crowd = || {
        let mut world = World::empty(&settings());
        // Of the 24 peers in the first of eight cells, one turn sends to 16.
        for slot in 0..192 {
            world.join(slot, Ipv4Addr::from_bits(0x0a01_0000 | slot).into(), Fate::Silent);
        }
        assert_eq!(world.at(0).len(), 16);
        assert_eq!(world.prober.next_turn(), Some(Nanos(0)), "at once");
        world
    };
    let rest = crowd().at(0);
    let [Observation::Probe { slot: next, event: SENT, .. }, Observation::Probe { slot: after, event: SENT, .. }, ..] =
        rest[..]
    else {
        panic!("{rest:?}")
    };
    let mut world = crowd();
    world.prober.apply(Change::Stop { slot: next });
    let sent = world.at(0);
    assert_eq!((&sent[0], sent.len()), (&Observation::probe(after, SENT), rest.len() - 1));
}

#[test]
fn no_handshake_goes_to_the_nodes_own_network() {
    let mut world = World::empty(&settings());
    world.prober.apply(Change::Join { slot: SlotId(0) });
    let (zone, network) = (ZoneId::UNKNOWN, Network::Node);
    world.prober.apply(Change::Probe { slot: SlotId(0), address: PEER, zone, network, terminating: false });
    assert_eq!((world.until(60_000), world.prober.next_turn()), (vec![], None));
}

#[test]
fn after_the_request_to_stop_outcomes_are_looked_for_and_nothing_is_sent() {
    let mut world = World::of_one(Fate::After(35, done(35_000, 0)), &settings());
    world.begin();
    world.prober.finish();
    assert!(world.prober.awaits_any());
    assert_eq!(world.until(40), [received(0, 35_000, 0)], "found without a turn of others");
    assert!(!world.prober.awaits_any());
    assert_eq!(world.until(60_000), []);
}

#[test]
fn a_machine_that_was_suspended_leaves_out_whole_rounds_and_reports_them() {
    let mut world = World::of_one(Fate::After(1, done(500, 0)), &settings());
    world.begin();
    assert_eq!(world.at(35_000), [received(0, 500, 0), Observation::Skipped(3)]);
    assert_eq!(world.at(40_000), [event(0, SENT)]);
}

#[test]
fn the_members_pass_through() {
    let mut world = World::empty(&settings());
    world.prober.set_members(&[PEER, MOVED]);
    assert_eq!(world.prober.wire().members, [PEER, MOVED]);
}

#[test]
fn a_backlog_is_accepted_at_once_and_a_flood_at_a_bounded_rate() {
    let mut world = World::empty(&settings());
    let accepted_by = |world: &mut World, ms: u64| {
        let before = world.prober.wire().backlog;
        world.clock.set(ms);
        let mut turns = 1;
        while !world.turn() {
            turns += 1;
        }
        (before - world.prober.wire().backlog, turns)
    };
    assert_eq!(accepted_by(&mut world, 0), (0, 1));
    world.prober.wire().backlog = 63;
    assert_eq!(accepted_by(&mut world, 0), (63, 1));
    world.prober.wire().backlog = 65;
    assert_eq!(accepted_by(&mut world, 1_000), (65, 2));
    world.prober.wire().backlog = 1_000_000;
    let (first, turns) = accepted_by(&mut world, 10_000);
    assert_eq!((first, turns), (1_024, 16));
    let rest: usize = (1..=100).map(|n| accepted_by(&mut world, 10_000 + n * 10).0).sum();
    assert_eq!(rest, 4_000, "within a second");
}

#[test]
fn strangers_are_accepted_up_to_a_number_in_a_time_however_frequent_turns_are() {
    let mut world = World::empty(&settings());
    for ms in (0..10_000).step_by(10) {
        world.at(ms);
    }
    let strangers = &world.prober.wire().strangers;
    assert_eq!(strangers.iter().filter(|most| **most > 0).count(), 50, "once in 200 ms");
    assert!(strangers.iter().all(|most| [0, 64].contains(most)) && strangers[0] > 0);
    world.prober.wire().strangers.clear();
    for ms in (10_000..20_000).step_by(250) {
        world.at(ms);
    }
    assert_eq!(world.prober.wire().strangers, [64; 40], "at every usual turn");
}

/// Whatever happens to peers and handshakes, `sent` is the sum of what became of it.
#[test]
fn every_handshake_is_accounted_for_exactly_once() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let settings = Settings { doubts: true, ..settings() };
    let mut world = World::empty(&settings);
    let address = |slot: u32, n: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a01_0000 | slot << 4 | n));
    let peers = 40;
    for slot in 0..peers {
        world.join(slot, address(slot, 0), Fate::Silent);
    }
    let (mut sent, mut ended, mut withdrawn, mut refusals, mut lost) = (0_i64, 0_i64, 0_i64, 0, 0);
    for step in 1..4_000_u64 {
        let slot = u32::try_from(next(peers.into())).unwrap();
        let n = u32::try_from(next(3)).unwrap();
        match next(12) {
            0 => world.prober.apply(probe(slot, address(slot, n), false)),
            1 => world.prober.apply(probe(slot, address(slot, n), true)),
            2 => world.prober.apply(Change::Stop { slot: SlotId(slot) }),
            _ => {
                let fate = match next(6) {
                    0 => Fate::Silent,
                    1 => Fate::After(5, refused(0)),
                    2 => Fate::After(1_030, done(1_030, 1)),
                    3 => Fate::RefusedInSilence,
                    4 => Fate::NotSent(SendError::NoRoute),
                    _ => Fate::After(2, done(700, 0)),
                };
                world.fate(address(slot, n), fate);
            }
        }
        let now = step * 250;
        if next(40) == 0 {
            world.prober.answered(address(slot, n));
        }
        for report in world.at(now) {
            match report {
                Observation::Probe { event: Event::Sent, .. } => sent += 1,
                Observation::Probe { event: Event::Received { .. }, .. } => ended += 1,
                Observation::Probe { event: Event::Lost, .. } => (ended, lost) = (ended + 1, lost + 1),
                Observation::Probe { event: Event::Terminating { .. }, .. } => withdrawn += 1,
                Observation::Refused(_) => refusals += 1,
                _ => {}
            }
        }
        world.prober.ask(|_| next(2) == 0);
        assert!(refusals <= lost && ended <= sent, "{refusals} refused, {lost} lost, {ended} of {sent}");
    }
    for slot in 0..peers {
        world.prober.pause(SlotId(slot));
    }
    for report in world.until(2_000_000) {
        ended += i64::from(matches!(report, Observation::Probe { event: Event::Received { .. } | Event::Lost, .. }));
    }
    assert!(!world.prober.awaits_any() && world.in_flight() == 0);
    // Withdrawn probes of peers that are not sent to again stay in `sent`.
    assert!(ended <= sent && sent - ended <= i64::from(peers) * 2, "{ended} of {sent}, {withdrawn} withdrawn");
    assert!(refusals > 50 && lost > refusals + 50, "{refusals} refused of {lost} lost");
}

#[test]
fn the_tables_of_a_usual_mesh_take_a_few_pages() {
    assert_eq!(size_of::<Option<connections::Connection>>(), 48);
    let mut world = World::empty(&settings());
    for slot in 0..48 {
        world.join(slot, Ipv4Addr::from_bits(0x0a01_0000 | slot).into(), Fate::After(1, done(300, 0)));
    }
    world.until(60_000);
    // There is room for 64 peers: a page of flights, and blocks of the heap for the rest.
    assert_eq!(world.prober.resident_bytes(), 4_096 + 64 * 28 + 64 * 4);
}
