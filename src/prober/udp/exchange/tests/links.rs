//! Probes, their outcomes, flows and directions.

use super::*;

#[test]
fn a_peer_that_keeps_a_probe_for_half_a_second_adds_nothing_and_loses_nothing() {
    for dwell in [Nanos(0), Nanos(40_000), Nanos(500 * MS), Nanos(900 * MS)] {
        let mut world = World::new(3, move |_, _| Fate::Answered(dwell));
        world.run(Nanos(10 * SECOND.0));
        let (received, lost) = (world.log.received(), world.log.count(slot(0), |event| *event == Event::Lost));
        assert!(received.len() >= 24 && lost == 0, "{dwell:?}: {} received, {lost} lost", received.len());
        for (rtt, stamp) in received {
            assert!(rtt.0.abs_diff(2 * WAY.0) < 10 && stamp == Stamp::Kernel, "{dwell:?}: {rtt:?}");
        }
        assert!(world.log.hops.iter().all(|hops| *hops == 4));
        let ahead = AHEAD.cast_signed();
        let way = WAY.0.cast_signed();
        for (there, back) in &world.log.one_way {
            assert!((there - ahead - way).abs() < 10 && (back + ahead - way).abs() < 10, "{there} {back}");
        }
    }
}

#[test]
fn a_probe_is_lost_a_second_after_its_timeout_and_one_that_took_longer_than_the_timeout_is_late() {
    let timeout = Nanos(300 * MS);
    let mut world = World::with(1, Nanos(10 * SECOND.0), timeout, |_, _| Fate::LostBack);
    world.run(Nanos(10 * SECOND.0));
    let sent = world.wire().log[0].at;
    let decided = sent.plus(timeout).plus(DWELL_MAX.into()).plus(Nanos(1));
    let mut world = World::with(1, Nanos(10 * SECOND.0), timeout, |_, _| Fate::LostBack);
    world.run(decided.since(world.clock.now()).since(Nanos(1)));
    assert_eq!(world.log.count(slot(0), |event| *event == Event::Lost), 0);
    world.run(Nanos(126 * MS));
    assert_eq!(world.log.count(slot(0), |event| *event == Event::Lost), 1);
    assert_eq!(world.log.flows, [(slot(0), 0, false)]);

    // A slow network, and not a slow peer.
    let mut world = World::with(1, SECOND, timeout, |_, _| Fate::LostBack);
    world.run(SECOND);
    let seen = world.wire().log[0].clone();
    let t2 = Nanos(world.clock.realtime().0);
    let at = seen.at.plus(Nanos(600 * MS)).max(world.clock.now());
    let bytes = stamp_answer(&seen.bytes, 0, [t2, t2]);
    world.wire().fly(at, Packet::Arrival { flow: seen.flow, from: seen.to, bytes });
    world.run(Nanos(700 * MS));
    assert!(world.log.events.ends_with(&[(slot(0), Event::Lost), (slot(0), Event::Late)]), "{:?}", world.log.events);
    assert_eq!(world.log.flows[0], (slot(0), 0, false));
}

#[test]
fn the_flows_take_turns_and_one_call_sends_what_is_due() {
    let mut world = World::new(12, |_, _| AT_ONCE);
    world.run(Nanos(40 * SECOND.0));
    let log = std::mem::take(&mut world.wire().log);
    let mut turns: BTreeMap<Nanos, Vec<&Seen>> = BTreeMap::new();
    for seen in &log {
        turns.entry(seen.at).or_default().push(seen);
    }
    assert_eq!(world.wire().calls, turns.len(), "twelve peers in four cells");
    for seen in turns.values() {
        assert!(seen.len() == 3 && seen.iter().all(|probe| probe.flow == seen[0].flow));
    }
    for number in 0..12 {
        let flows: Vec<u8> = log.iter().filter(|seen| seen.to.ip() == peer(number)).map(|seen| seen.flow.0).collect();
        assert!(flows.len() >= 39);
        for (index, flow) in flows.iter().enumerate() {
            assert_eq!(usize::from(*flow), (usize::from(flows[0]) + index) % 16);
        }
        let sequences: Vec<u32> = log
            .iter()
            .filter(|seen| seen.to.ip() == peer(number))
            .map(|seen| u32::from_be_bytes(seen.bytes[..4].try_into().unwrap()))
            .collect();
        assert_eq!(sequences, (0..).take(flows.len()).collect::<Vec<u32>>());
    }
    assert!(log.iter().all(|seen| seen.bytes.len() == REQUEST_BYTES && seen.to.port() == PORT));
}

#[test]
fn a_flow_that_loses_is_named_with_its_direction() {
    let fate = |packet: &Outgoing<'_>| match packet.flow.0 {
        5 => Fate::LostThere,
        9 => Fate::LostBack,
        _ => AT_ONCE,
    };
    let mut world = World::new(2, move |packet, _| fate(packet));
    world.run(Nanos(70 * SECOND.0));
    let Log { flows, flow_ways, ways, .. } = &world.log;
    assert!(flows.iter().all(|(_, flow, answered)| *answered != [5, 9].contains(flow)), "{flows:?}");
    assert!(flow_ways.iter().all(|(_, flow, there)| (*flow, *there) == (5, true) || (*flow, *there) == (9, false)));
    for number in 0..2 {
        assert_eq!(ways[&number], [4, 4]);
        assert_eq!(flow_ways.iter().filter(|(of, ..)| of.0 == number).count(), 8);
    }
}

#[test]
fn an_extra_probe_uses_its_flow_and_has_no_event() {
    let mut world = World::new(1, |packet, _| if packet.flow.0 == 1 { Fate::LostThere } else { AT_ONCE });
    world.run(Nanos(3 * SECOND.0));
    let before = world.wire().log.len();
    assert!(world.prober.probe_flow(slot(0), Flow(13)) && !world.prober.probe_flow(slot(0), Flow(16)));
    world.turn();
    let seen = world.wire().log[before].clone();
    assert_eq!((seen.flow, seen.bytes.len(), world.wire().log.len()), (Flow(13), EXTRA_REQUEST_BYTES, before + 1));
    let events = world.log.events.len();
    world.run(Nanos(10 * MS));
    assert_eq!((&world.log.extra_flows[..], world.log.events.len()), (&[(slot(0), 13, true)][..], events));
    assert!((0..EXTRAS_MAX).all(|_| world.prober.probe_flow(slot(0), Flow(1))));
    assert!(!world.prober.probe_flow(slot(0), Flow(1)), "the queue is bounded");
    world.run(Nanos(6 * SECOND.0));
    assert_eq!(world.log.extra_flows[1..], [(slot(0), 1, false); EXTRAS_MAX]);
    let usual = world.wire().log.iter().filter(|seen| seen.bytes.len() == REQUEST_BYTES).count();
    assert_eq!(world.log.count(slot(0), |event| *event == Event::Sent), usual);
}

/// Returns the next draw of a script (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn whatever_the_script_every_loss_has_its_direction_and_every_flow_its_outcomes() {
    for seed in 0..300_u64 {
        let mut state = seed;
        let [there, back, slow] = [next(&mut state) % 30, next(&mut state) % 30, next(&mut state) % 20];
        let interval = Nanos([100, 1_000][(seed % 2) as usize] * MS);
        let mut world = World::with(3, interval, SECOND, move |_, number| {
            let draw = next(&mut state) % 100;
            match draw {
                _ if !(2..60).contains(&number) => AT_ONCE,
                _ if draw < there => Fate::LostThere,
                _ if draw < there + back => Fate::LostBack,
                _ if draw < there + back + slow => Fate::Answered(Nanos(next(&mut state) % 990 * MS)),
                _ if draw == 99 => Fate::NotSent,
                _ => AT_ONCE,
            }
        });
        if seed % 5 == 0 {
            world.run(Nanos(20 * interval.0));
            world.clock.step(-3_600_000_000_000);
        }
        world.run(Nanos(70 * interval.0 + 9 * SECOND.0));
        let log = std::mem::take(&mut world.wire().log);
        for number in 0..3_u8 {
            let of = slot(number.into());
            let sent: Vec<&Seen> = log.iter().filter(|seen| seen.to.ip() == peer(number)).collect();
            let count = |fate: Fate| sent.iter().filter(|seen| seen.fate == fate).count();
            let lost = world.log.count(of, |event| *event == Event::Lost);
            assert_eq!(lost, count(Fate::LostThere) + count(Fate::LostBack), "{seed}");
            let ways = world.log.ways.get(&of.0).copied().unwrap_or_default().map(|ways| ways as usize);
            assert_eq!(ways, [count(Fate::LostThere), count(Fate::LostBack)], "{seed}, {interval:?}");
            for flow in 0..16 {
                let said = world
                    .log
                    .flows
                    .iter()
                    .filter(|(slot, of_flow, answered)| (*slot, *of_flow, *answered) == (of, flow, false));
                let truth = sent
                    .iter()
                    .filter(|seen| seen.flow.0 == flow && matches!(seen.fate, Fate::LostThere | Fate::LostBack));
                assert_eq!(said.count(), truth.count(), "{seed}");
            }
        }
    }
}

#[test]
fn only_the_destination_can_answer_from_its_port_over_the_same_flow() {
    let mut world = World::new(2, |_, _| Fate::LostBack);
    world.run(Nanos(1_900 * MS));
    let seen = world.wire().log[0].clone();
    let other = world.wire().log.iter().find(|probe| probe.to != seen.to).unwrap().to;
    let t2 = world.clock.realtime();
    let dwell = world.clock.now().since(seen.at).since(WAY);
    let good = stamp_answer(&seen.bytes, 0, [t2, t2.plus(dwell)]);
    let mut forged = vec![
        (seen.flow, other, good.clone()),
        (seen.flow, SocketAddr::new(seen.to.ip(), PORT + 1), good.clone()),
        (Flow(seen.flow.0 ^ 1), seen.to, good.clone()),
        (seen.flow, seen.to, Vec::new()),
        (seen.flow, seen.to, vec![0; 1_000]),
    ];
    for at in [24 + 3, 48, 56, 63, 64, 71] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        forged.push((seen.flow, seen.to, bytes));
    }
    forged.extend((0..good.len()).map(|length| (seen.flow, seen.to, good[..length].to_vec())));
    for (index, (flow, from, bytes)) in forged.into_iter().enumerate() {
        let before = world.log.events.len();
        let now = world.clock.now();
        world.wire().fly(now, Packet::Arrival { flow, from, bytes });
        world.turn();
        assert_eq!((world.log.events.len(), world.log.unrelated as usize), (before, index + 1), "{index}");
    }
    let now = world.clock.now();
    world.wire().fly(now, Packet::Arrival { flow: seen.flow, from: seen.to, bytes: good });
    world.turn();
    assert!(matches!(world.log.events.last(), Some((_, Event::Received { .. }))));
}

#[test]
fn a_peer_that_moves_has_no_directions_of_its_old_place() {
    let mut world = World::new(1, |packet, number| match packet.to.ip() {
        ip if ip == peer(0) && number >= 5 => Fate::LostThere,
        _ => AT_ONCE,
    });
    world.run(Nanos(9 * SECOND.0));
    world.aim(0, peer(77), false);
    world.run(Nanos(9 * SECOND.0));
    assert_eq!(world.log.ways.get(&0), None);
    assert!(world.log.count(slot(0), |event| matches!(event, Event::Received { .. })) > 10);
    // What it lost before it moved is lost; what was in flight is not.
    assert!(world.log.count(slot(0), |event| matches!(event, Event::Terminating { answered: false })) >= 1);
}

#[test]
fn a_slot_of_the_node_network_is_not_probed() {
    let mut world = World::new(0, |_, _| AT_ONCE);
    world.prober.apply(Change::Join { slot: slot(0) });
    let (zone, network, terminating) = (ZoneId::UNKNOWN, Network::Node, false);
    world.prober.apply(Change::Probe { slot: slot(0), address: peer(1), zone, network, terminating });
    world.run(Nanos(3 * SECOND.0));
    assert!(world.wire().log.is_empty() && world.log.events.is_empty());
}

#[test]
fn what_is_no_probe_is_the_guests() {
    let mut world = World::new(1, |_, _| AT_ONCE);
    let (now, from) = (world.clock.now(), SocketAddr::new(peer(9), 33_434));
    world.wire().fly(now, Packet::Arrival { flow: Flow(0), from, bytes: b"a trace".to_vec() });
    world.wire().departures.push((Flow(3), b"a trace".to_vec(), now));
    let mut own = Vec::<String>::new();
    let guest = &mut |delivery: &Delivery<'_>| {
        own.push(format!("{delivery:?}").chars().take(7).collect());
        true
    };
    let World { prober, log, .. } = &mut world;
    prober.turn_with(&mut |observation| log.observe(observation), guest);
    assert_eq!((own, world.log.unrelated), (vec!["Departu".into(), "Arrival".into()], 0));
}

/// Extra probes among the others, whatever is lost: they are in no event, and the directions of the
/// others stay right.
#[test]
fn extra_probes_change_neither_the_counts_of_a_link_nor_the_directions_of_its_losses() {
    for seed in 0..200_u64 {
        let mut state = seed;
        let is_out = next(&mut state).is_multiple_of(2);
        let [rate, dead] = [next(&mut state) % 40, next(&mut state) % 16];
        let mut draws = seed ^ 0x55;
        let lost = if is_out { Fate::LostThere } else { Fate::LostBack };
        let mut world = World::new(1, move |packet, number| {
            let is_lost = u64::from(packet.flow.0) == dead || next(&mut draws) % 100 < rate;
            if (2..150).contains(&number) && is_lost { lost } else { AT_ONCE }
        });
        for _ in 0..90 {
            world.run(SECOND);
            let flow = if next(&mut state).is_multiple_of(2) { dead } else { next(&mut state) % 16 };
            assert!(world.prober.probe_flow(slot(0), Flow(u8::try_from(flow).unwrap())));
        }
        world.run(Nanos(20 * SECOND.0));
        let log = std::mem::take(&mut world.wire().log);
        let is_usual = |seen: &&Seen| seen.bytes.len() == REQUEST_BYTES;
        let usual_lost = log.iter().filter(is_usual).filter(|seen| seen.fate == lost).count();
        let counted = world.log.count(slot(0), |event| *event == Event::Lost);
        let received = world.log.received().len();
        let sent = world.log.count(slot(0), |event| *event == Event::Sent);
        assert_eq!((sent, counted), (log.iter().filter(is_usual).count(), usual_lost), "{seed}");
        assert!(sent - counted - received <= 1, "{seed}");
        let ways = world.log.ways.get(&0).copied().unwrap_or_default().map(|ways| ways as usize);
        assert_eq!(ways, if is_out { [counted, 0] } else { [0, counted] }, "{seed}");
        assert!(world.log.flow_ways.iter().all(|(.., there)| *there == is_out), "{seed}");
        let extra_lost = log.iter().filter(|seen| !is_usual(seen) && seen.fate == lost).count();
        assert_eq!(world.log.extra_flows.iter().filter(|(.., answered)| !answered).count(), extra_lost, "{seed}");
    }
}
