//! The record of the last hour, compared with the wire.

use std::net::IpAddr;

use kube_canary::discovery::PeerList;
use kube_canary::limits::HOUR_PEERS_MAX;
use kube_canary::peers::{Directory, Method, OwnNode, SlotId};
use kube_canary::prober::{Event, Observation};
use kube_canary::statistics::{HourStep, Scale, Statistics};
use kube_canary::units::Nanos;

use super::random::Random;
use super::wire::Fate;
use super::world::{MS, Plan, SECOND, World, ip, spec};

const MINUTE: Nanos = Nanos(60 * SECOND.0);
const PEER: &str = "10.0.0.2";
const SLOT: SlotId = SlotId(0);

/// A world with one peer. Also returns when its first minute began.
fn world(plan: Plan, fate: impl FnMut(u64) -> Fate + 'static) -> (World, Nanos) {
    let mut world = World::new(plan, &[("a", PEER)]);
    world.wire().script(ip(PEER), fate);
    world.turn();
    let begun = world.now();
    (world, begun)
}

fn steps(statistics: &Statistics, slot: SlotId) -> Vec<HourStep> {
    statistics.method(Method::Icmp).hour(slot).expect("an hour").steps().collect()
}

/// Answered and lost probes of each minute since `begun`, by the time at which that was decided.
fn decided(world: &mut World, begun: Nanos, timeout: Nanos) -> Vec<[u32; 2]> {
    let mut minutes = vec![[0, 0]; 1_000];
    for probe in world.wire().log(ip(PEER)) {
        let end = probe.sent_at.plus(timeout);
        let answer = probe.replies.iter().map(|reply| reply.at).min().filter(|at| *at <= end);
        let minute = answer.unwrap_or(end).since(begun).0 / MINUTE.0;
        minutes[usize::try_from(minute).unwrap()][usize::from(answer.is_none())] += 1;
    }
    minutes
}

/// Asserts the loss of the last steps, the last of which is of minute `ended - 1`.
fn expect(steps: &[HourStep], minutes: &[[u32; 2]], ended: usize) {
    assert_eq!(steps.len(), ended.min(60));
    for (step, [answered, lost]) in steps.iter().zip(&minutes[ended - steps.len()..ended]) {
        let total = answered + lost;
        let Some(loss) = step.loss else {
            assert_eq!(total, 0, "not measured");
            continue;
        };
        let exact = f64::from(*lost) / f64::from(total);
        assert!((loss - exact).abs() <= exact.sqrt() / 63.0, "{loss} for {lost} of {total}");
        assert_eq!((loss > 0.0, loss < 1.0), (*lost > 0, *answered > 0), "{lost} of {total}");
        assert_eq!(step.rtt_p50_seconds.is_some(), *answered > 0);
    }
}

#[test]
fn an_hour_has_the_losses_that_the_wire_has_caused() {
    let plan = Plan::default();
    // Each minute has another rate: none, one in 60, and so on up to all.
    let mut random = Random(7);
    let (mut world, begun) = world(plan, move |n| {
        let rate = [0, 0, 2, 20, 50, 100][usize::try_from(n / 60 % 6).unwrap()];
        if random.chance(rate) { Fate::lost() } else { Fate::reply(400) }
    });
    for ended in 1..=75 {
        world.run(MINUTE);
        let minutes = decided(&mut world, begun, plan.timeout);
        expect(&steps(&world.statistics, SLOT), &minutes, ended);
        let hour = world.statistics.method(Method::Icmp).hour(SLOT).expect("an hour");
        assert_eq!(hour.end, begun.plus(Nanos(ended as u64 * MINUTE.0)));
    }
    let steps = steps(&world.statistics, SLOT);
    let losses = |of: fn(f64) -> bool| steps.iter().filter(|step| step.loss.is_some_and(of)).count();
    assert!(losses(|loss| loss <= 0.0) >= 10 && losses(|loss| loss >= 1.0) >= 5 && losses(|loss| loss > 0.3) >= 10);
}

#[test]
fn at_short_intervals_the_loss_is_that_of_the_whole_minute() {
    let plan = Plan { interval: Nanos(50 * MS), timeout: Nanos(20 * MS), ..Plan::default() };
    // Losses are at the beginning of each minute alone, so the recent window has none of them at
    // its end.
    let (mut world, begun) = world(plan, |n| if n % 1_200 < 60 { Fate::lost() } else { Fate::reply(400) });
    world.run(Nanos(3 * MINUTE.0 + SECOND.0));
    let minutes = decided(&mut world, begun, plan.timeout);
    let steps = steps(&world.statistics, SLOT);
    expect(&steps, &minutes, 3);
    assert!(steps.iter().all(|step| (0.045..0.055).contains(&step.loss.unwrap())), "{steps:?}");
}

fn losing_since(world: &World) -> Option<Nanos> {
    world
        .statistics
        .method(Method::Icmp)
        .losing_since(SLOT, &world.statistics.method(Method::Icmp).recent(SLOT, world.now())?)
}

#[test]
fn times_are_the_upper_bounds_of_their_octaves() {
    let (mut world, _) = world(Plan::default(), |n| match n {
        0..70 => Fate::reply(if n % 10 == 0 { 30_000 } else { 400 }),
        _ => Fate::lost(),
    });
    world.run(Nanos(3 * MINUTE.0 + SECOND.0));
    let times: Vec<_> = (steps(&world.statistics, SLOT).into_iter())
        .map(|step| step.rtt_p50_seconds.zip(step.rtt_p99_seconds).map(|(p50, p99)| format!("{p50} {p99}")))
        .collect();
    assert_eq!(times, [Some("0.00048828125 0.03125".to_owned()), Some("0.00048828125 0.03125".to_owned()), None]);
}

#[test]
fn the_quickest_minute_stays_usual_until_an_hour_after_a_path_became_slow() {
    let (mut world, _) = world(Plan::default(), |n| Fate::reply(if n < 600 { 400 } else { 30_000 }));
    let mut usual_after = |minutes: u64| {
        world.run(Nanos(minutes * MINUTE.0));
        world.statistics.method(Method::Icmp).hour(SLOT).expect("an hour").usual_rtt_p50_seconds()
    };
    assert_eq!(
        [usual_after(4), usual_after(2), usual_after(54)],
        [None, Some(0.000_488_281_25), Some(0.000_488_281_25)]
    );
    assert_eq!([usual_after(8), usual_after(4)], [Some(0.000_488_281_25), Some(0.031_25)]);
}

#[test]
fn at_intervals_beyond_a_minute_the_minutes_between_are_not_measured() {
    let minutes = |n: u64| Nanos(n * MINUTE.0);
    let plan = Plan { interval: minutes(3), timeout: Nanos(100 * SECOND.0), ..Plan::default() };
    let (mut world, begun) =
        world(plan, |n| if (5..8).contains(&n) || n == 9 { Fate::lost() } else { Fate::reply(400) });
    let mut since = Vec::new();
    for ended in 1..=40 {
        for _ in 0..6 {
            world.run(Nanos(10 * SECOND.0));
            since.push(losing_since(&world));
        }
        let minutes = decided(&mut world, begun, plan.timeout);
        expect(&steps(&world.statistics, SLOT), &minutes, ended);
    }
    let steps = steps(&world.statistics, SLOT);
    let [measured, losing] = [|loss: f64| loss >= 0.0, |loss: f64| loss > 0.0].map(|of| {
        steps.iter().enumerate().filter(|(_, step)| step.loss.is_some_and(of)).map(|(at, _)| at).collect::<Vec<_>>()
    });
    assert!((12..=14).contains(&measured.len()), "{measured:?}");
    assert_eq!(losing.len(), 4, "{losing:?}");
    // The four are one run: one probe between them was answered.
    let first = begun.plus(minutes(losing[0] as u64));
    let is_in_first = |begin: &Nanos| *begin >= first && begin.since(first) < MINUTE;
    assert!(since.iter().flatten().all(is_in_first), "{since:?}");
    assert!(since.iter().flatten().count() >= 4 * 3, "30 s of each at least");
}

#[test]
fn a_run_of_losses_begins_with_its_first_loss_or_with_the_minute_of_it() {
    let (mut world, begun) = world(Plan::default(), |n| match n {
        // One loss lasts two minutes and a half, with a gap of one. Another comes later.
        190..220 | 300..320 | 700..705 => Fate::lost(),
        _ => Fate::reply(400),
    });
    let (mut seen, mut begins) = (Vec::new(), Vec::new());
    for second in 1..=900_u64 {
        world.run(SECOND);
        if let Some(since) = losing_since(&world) {
            seen.push((second, since.since(begun).0 / MINUTE.0));
            begins.push((second, since.since(begun).as_secs()));
        }
    }
    let of_first = |last: u64| begins.iter().take_while(move |(second, _)| *second < last).map(|(_, begin)| *begin);
    assert!(of_first(300).all(|begin| (190..=193).contains(&begin)), "{begins:?}");
    let of_second: Vec<_> = begins.iter().filter(|(second, _)| (302..400).contains(second)).collect();
    assert!(of_second.len() > 30 && of_second.iter().all(|(_, begin)| (190..=193).contains(begin)), "{begins:?}");
    assert!(begins.iter().filter(|(second, _)| *second > 700).all(|(_, begin)| (700..=703).contains(begin)));
    let of = |minute| seen.iter().filter(move |(_, of)| *of == minute).map(|(second, _)| *second);
    assert_eq!(seen.iter().map(|(_, of)| *of).filter(|of| ![3, 11].contains(of)).count(), 0, "{seen:?}");
    // It is reported within two seconds of the first loss, until at most a minute after the last.
    assert!(
        (190..=193).contains(&of(3).next().unwrap()) && (320..=381).contains(&of(3).next_back().unwrap()),
        "{seen:?}"
    );
    assert!((700..=703).contains(&of(11).next().unwrap()) && (705..=766).contains(&of(11).next_back().unwrap()));
}

#[test]
fn a_second_loss_has_a_run_of_its_own_after_ninety_seconds_without_loss() {
    // Whichever part of a minute the losses are in. Each is a fifth of all probes for a minute.
    for phase in [0, 13, 29, 47] {
        for (apart, is_own) in [(121, true), (95, true), (85, false)] {
            let (first, second) = (125 + phase, 185 + phase + apart);
            let is_hit = move |n: u64| (first..first + 60).contains(&n) || (second..second + 60).contains(&n);
            let (mut world, begun) =
                world(Plan::default(), move |n| if is_hit(n) && n % 5 == 0 { Fate::lost() } else { Fate::reply(400) });
            let mut begins = Vec::new();
            for _ in 0..second + 60 {
                world.run(SECOND);
                begins.extend(losing_since(&world).map(|since| since.since(begun).as_secs()));
            }
            let last = begins.last().expect("it loses");
            let expected = if is_own { second } else { first };
            assert!((expected..expected + 8).contains(last), "{phase} {apart}: {begins:?}");
        }
    }
}

#[test]
fn minutes_without_a_running_agent_are_not_measured() {
    let (mut world, begun) = world(Plan::default(), |_| Fate::reply(400));
    world.run(Nanos(150 * SECOND.0));
    world.stand_still(Nanos(10 * MINUTE.0));
    world.run(Nanos(90 * SECOND.0));
    let losses: Vec<_> = steps(&world.statistics, SLOT).iter().map(|step| step.loss.is_some()).collect();
    let expected: Vec<bool> = (0..14).map(|minute| minute <= 2 || minute >= 12).collect();
    assert_eq!(losses, expected, "the third began before it");
    assert_eq!(world.statistics.method(Method::Icmp).hour(SLOT).unwrap().end, begun.plus(Nanos(14 * MINUTE.0)));
}

#[test]
fn a_minute_that_ends_between_two_ticks_has_its_own_times_alone() {
    let (mut world, _) = world(Plan::default(), |n| Fate::reply(if n < 60 { 30_000 } else { 400 }));
    // This is twenty seconds into the second minute: the other half of the recent window is the
    // first minute's.
    world.run(Nanos(81 * SECOND.0));
    world.stand_still(Nanos(3 * MINUTE.0));
    world.run(SECOND);
    let times: Vec<_> = steps(&world.statistics, SLOT).iter().map(|step| step.rtt_p99_seconds).collect();
    assert_eq!(format!("{times:?}"), "[Some(0.03125), Some(0.00048828125), None, None]");
}

#[test]
fn a_peer_that_returns_goes_on_and_one_that_is_new_begins() {
    let (mut world, _) = world(Plan::default(), |_| Fate::lost());
    let losses = |world: &World| -> Vec<_> { steps(&world.statistics, SLOT).iter().map(|step| step.loss).collect() };
    world.run(MINUTE);
    world.steady = false;
    world.apply(Vec::new());
    world.run(Nanos(2 * MINUTE.0));
    world.apply(vec![spec("a", ip("10.0.0.3"))]);
    world.run(MINUTE);
    let seen = losses(&world);
    assert_eq!(seen, [Some(1.0), None, None, Some(0.0)]);
    world.apply(Vec::new());
    assert!(world.forget_as_of(Nanos(u64::MAX)));
    world.apply(vec![spec("b", ip(PEER))]);
    assert_eq!(losses(&world), [None; 4]);
}

#[test]
fn hours_move_with_their_peers_and_those_without_begin_one() {
    let statistics = Statistics::new(Scale::default(), SECOND);
    let mut directory = Directory::default();
    let address = |number: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number]);
    let list = |directory: &mut Directory, numbers: &[u16]| {
        let peers = numbers.iter().map(|number| spec(&format!("n{number}"), address(*number))).collect();
        let applied = directory.apply(PeerList { peers }, &OwnNode::default(), Nanos(0));
        applied.changes.into_iter().for_each(|change| statistics.apply(change));
    };
    list(&mut directory, &(0..1_000).collect::<Vec<_>>());
    let minute = |number: u64| Nanos(number * MINUTE.0);
    statistics.tick(minute(0));
    let lose = |times: usize| {
        for slot in directory.peers().map(|(slot, _)| slot) {
            (0..times).for_each(|_| statistics.record(Method::Icmp, Observation::probe(slot, Event::Lost)));
        }
    };
    lose(3);
    statistics.tick(minute(1));
    assert!(statistics.method(Method::Icmp).hour(SlotId::at(HOUR_PEERS_MAX)).is_none());
    let resident = statistics.hour_resident_bytes();
    assert_eq!(resident, 128 * HOUR_PEERS_MAX);
    lose(1);
    list(&mut directory, &[5, 400, 511, 512, 999]);
    assert_eq!(directory.stop(Nanos(u64::MAX), Nanos(0)).count(), 995);
    assert!(directory.forget(Nanos(u64::MAX), Nanos(0)));
    statistics.compact(&directory.compact().expect("holes"));
    assert_eq!(statistics.hour_resident_bytes(), 4_096);
    statistics.tick(minute(2));
    for (slot, peer) in directory.peers() {
        let losses: Vec<_> = steps(&statistics, slot).iter().map(|step| step.loss).collect();
        let had_one = ["n5", "n400", "n511"].contains(&peer.node());
        // Losses of the other peers from before they had an hour are of no minute.
        assert_eq!(losses, if had_one { [Some(1.0); 2] } else { [None; 2] }, "{}", peer.node());
    }
}
