//! Losses that the source of the list is asked about: a rollout, a drain, a crash and a removal
//! where lists come late, and thousands of random scripts.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use kube_canary::allocator::finder::unfollowed;
use kube_canary::discovery::{PeerSpec, Readiness};
use kube_canary::limits::DOUBT_TIME;
use kube_canary::prober::{SendError, WITHHELD_MAX};
use kube_canary::statistics::PeerReading;
use kube_canary::units::Nanos;

use super::doubt_oracle::{self, Ends};
use super::random::Random;
use super::wire::Fate;
use super::world::{AGENT_PLAN, Answer, MS, Plan, SECOND, Saying, World, gone, ip, put, spec};

const A: &str = "10.0.0.2";
const B: &str = "10.0.0.3";
/// A plan with the agent's defaults.
const PLAN: Plan = Plan { doubts: true, ..AGENT_PLAN };

fn ms(ms: u64) -> Nanos {
    Nanos(ms * MS)
}

fn sure(after: Nanos, address: IpAddr) -> (Nanos, Saying) {
    (after, Saying::Sure(address))
}

fn unsure(after: Nanos, address: IpAddr) -> (Nanos, Saying) {
    (after, Saying::Unsure(address))
}

/// Two peers. Peer a is dead from its 10th probe on, right after it has answered one, which
/// is the worst moment.
fn crash(answer: impl FnMut(Nanos, IpAddr) -> Answer + 'static) -> (World, Nanos) {
    let mut world = World::new(PLAN, &[("a", A), ("b", B)]);
    world.wire().script(ip(A), |n| if n < 10 { Fate::reply(100) } else { Fate::lost() });
    world.source = Box::new(answer);
    world.run_until_tried(ip(A), 10);
    world.run(ms(1));
    let failed = world.now();
    assert_eq!(world.read("a").received, 10);
    (world, failed)
}

/// Returns how long after `failed` the first loss is counted.
fn seen_after(world: &mut World, failed: Nanos) -> Nanos {
    while world.read("a").lost == 0 {
        assert!(world.now().since(failed) < Nanos(60 * SECOND.0), "never");
        world.run(ms(1));
    }
    world.now().since(failed)
}

#[test]
fn a_crash_is_seen_within_three_intervals_where_the_source_answers_and_else_when_the_doubt_is_over() {
    type Source = fn(Nanos, IpAddr) -> Answer;
    let answered = Nanos(3 * PLAN.interval.0);
    let over = Nanos(PLAN.interval.0 + PLAN.timeout.0 + 125 * MS).plus(DOUBT_TIME.into());
    let answers: [(&str, Nanos, Source); 5] = [
        ("that it cannot know", answered, |_, address| Answer::Sayings(vec![unsure(ms(20), address)])),
        ("at once", answered, |_, address| Answer::Sayings(vec![sure(ms(20), address)])),
        ("too late", over, |_, address| Answer::Sayings(vec![sure(Nanos(5 * SECOND.0), address)])),
        ("never", over, |_, _| Answer::Sayings(Vec::new())),
        ("no room", answered, |_, _| Answer::Refused),
    ];
    for (label, within, answer) in answers {
        let (mut world, failed) = crash(answer);
        let after = seen_after(&mut world, failed);
        unfollowed(|| println!("answered {label}: seen after {:.3} s", after.as_secs_f64()));
        assert!(after <= within, "{label}: {after:?}");
        // From then on, each probe is a loss.
        world.run(Nanos(20 * SECOND.0));
        let (read, sent) = (world.read("a"), world.wire().sent(ip(A)));
        assert!(read.lost >= sent - 10 - 5 && read.terminating == [0, 0], "{label}: {read:?}");
        assert_eq!((world.read("b").lost, world.read("b").terminating), (0, [0, 0]));
    }
}

#[test]
fn a_dead_peer_is_asked_about_as_often_as_doubts_last() {
    let (mut world, _) = crash(|_, address| Answer::Sayings(vec![sure(ms(20), address)]));
    world.run(Nanos(100 * SECOND.0));
    let asked = questions(&world);
    assert!((25..=34).contains(&asked.len()) && asked.iter().all(|address| *address == ip(A)), "{asked:?}");
    let (read, sent) = (world.read("a"), world.wire().sent(ip(A)));
    assert!(read.lost + read.received + 3 >= sent, "a question delays a loss, and takes none: {sent}: {read:?}");
}

/// A pod is replaced without notice, and its slice is written after the first question. By its
/// plan, discovery would read the slice half a minute later.
#[test]
fn a_replacement_that_the_api_shows_late_costs_losses_until_the_next_question_and_no_more() {
    let mut asked = 0;
    let (mut world, _) = crash(move |_, address| {
        asked += 1;
        let known = (asked > 1).then(|| (ms(20), gone(address)));
        Answer::Sayings(known.into_iter().chain([sure(ms(21), address)]).collect())
    });
    world.steady = false;
    world.run(Nanos(40 * SECOND.0));
    let read = world.read("a");
    assert!((1..=4).contains(&read.lost) && read.terminating[1] > 0, "{read:?}");
}

#[test]
fn a_source_that_does_not_answer_is_asked_no_more_often_than_doubts_last() {
    let plan = Plan { interval: ms(10), timeout: ms(20), ..PLAN };
    let mut world = World::new(plan, &[("a", A)]);
    world.wire().script(ip(A), |_| Fate::lost());
    world.run(Nanos(30 * SECOND.0));
    let most = Nanos(30 * SECOND.0).0 / Nanos::from(DOUBT_TIME).0 + 1;
    let asked = questions(&world).len() as u64;
    assert!(asked <= most && asked >= most * 3 / 4, "{asked} questions, {most} at most");
    let (read, sent) = (world.read("a"), world.wire().sent(ip(A)));
    let withheld = u64::from(WITHHELD_MAX) + 3; // and those whose time is not over
    assert!(read.lost >= sent - withheld && read.lost <= sent, "{sent}: {read:?}");
}

#[test]
fn a_peer_that_answers_its_next_probe_is_not_asked_about() {
    let mut world = World::new(PLAN, &[("a", A), ("b", B)]);
    let mut random = Random(7);
    let fate = move |_| if random.chance(10) { Fate::lost() } else { Fate::reply(20_000) };
    world.wire().script(ip(A), fate);
    world.source = Box::new(|_, address| Answer::Sayings(vec![sure(ms(20), address)]));
    world.run(Nanos(1_000 * SECOND.0));
    let read = world.read("a");
    // Two losses in a row are one in a hundred, and need one question.
    let (lost, asked) = (read.lost, questions(&world).len() as u64);
    unfollowed(|| println!("{lost} lost, {asked} questions"));
    assert!(lost > 70 && asked < lost / 4, "{lost} lost, {asked} questions");
}

fn questions(world: &World) -> Vec<IpAddr> {
    let asked = world.journal.iter().filter_map(|(_, entry)| match entry {
        super::world::Entry::Question(address, true) => Some(*address),
        _ => None,
    });
    asked.collect()
}

/// Node `number` of a rollout, in its first or second life.
fn address(number: u8, life: u8) -> IpAddr {
    Ipv4Addr::new(10, 1, life, number).into()
}

const NODES: u8 = 30;

/// Adds this peer to the list and removes any other of its name.
fn returned(back: PeerSpec) -> Saying {
    Saying::List(Box::new(move |list| {
        list.retain(|peer| peer.node != back.node);
        list.push(back);
    }))
}

/// All pods are replaced, one a second. Each dies without notice, `late` before the list shows it,
/// and returns elsewhere after 3 s.
fn rollout(late: Nanos, doubts: bool) -> World {
    // The source looks up the address of each question, which takes 30 ms. By then the list is
    // right.
    rollout_with(late, doubts, |_, address| Answer::Sayings(vec![(ms(30), gone(address)), sure(ms(31), address)]))
}

/// The same with another source.
fn rollout_with(late: Nanos, doubts: bool, source: impl FnMut(Nanos, IpAddr) -> Answer + 'static) -> World {
    let plan = Plan { doubts, ..PLAN };
    let nodes: Vec<(String, String)> =
        (0..NODES).map(|number| (format!("n{number}"), address(number, 0).to_string())).collect();
    let peers: Vec<(&str, &str)> = nodes.iter().map(|(name, address)| (&**name, &**address)).collect();
    let mut world = World::new(plan, &peers);
    world.steady = false;
    for number in 0..NODES {
        // These are round-trip times between zones.
        world.wire().script(address(number, 0), |n| Fate::reply(200 + n % 7 * 1_000));
    }
    world.source = Box::new(source);
    world.run(Nanos(5 * SECOND.0));
    for number in 0..NODES {
        let name = format!("n{number}");
        world.wire().silence(address(number, 0));
        world.wire().script(address(number, 0), |_| Fate::lost());
        world.say(late, gone(address(number, 0)));
        let back = returned(spec(&name, address(number, 1)));
        world.say(Nanos(late.0 + 3 * SECOND.0), back);
        world.run(Nanos(SECOND.0 + u64::from(number) * 17 * MS));
    }
    world.run(Nanos(30 * SECOND.0));
    world
}

#[test]
fn a_rollout_loses_nothing_though_addresses_die_before_the_list_says_so() {
    for late in [0, 50, 900, 2_500] {
        let world = rollout(ms(late), true);
        for number in 0..NODES {
            let read = world.read(&format!("n{number}"));
            assert_eq!((read.lost, read.late), (0, 0), "{late} ms late: n{number}: {read:?}");
            assert!(read.received >= 40 && read.sent <= read.received + 3, "{late} ms late: n{number}: {read:?}");
            assert!(read.terminating[1] > 0, "and says what it has not counted: {read:?}");
        }
    }
    // This shows what questions are for.
    let blind = rollout(ms(2_500), false);
    assert!((0..NODES).all(|number| blind.read(&format!("n{number}")).lost > 0));
}

#[test]
fn a_look_that_fails_costs_no_more_than_the_probes_of_one_doubt() {
    let (failed, mut looks) = (Rc::new(Cell::new(0)), 0);
    let failures = Rc::clone(&failed);
    let source = move |_, address| {
        looks += 1;
        if looks % 10 > 0 {
            return Answer::Sayings(vec![(ms(30), gone(address)), sure(ms(31), address)]);
        }
        failures.set(failures.get() + 1);
        Answer::Sayings(vec![unsure(ms(30), address)])
    };
    // Without a further look-up, it would take as long until the list shows it.
    let world = rollout_with(Nanos(20 * SECOND.0), true, source);
    let lost: u64 = (0..NODES).map(|number| world.read(&format!("n{number}")).lost).sum();
    unfollowed(|| println!("{} looks failed, {lost} lost", failed.get()));
    assert!(failed.get() >= 3 && lost >= failed.get() && lost <= 4 * failed.get(), "{lost} of {}", failed.get());
}

#[test]
fn a_drain_loses_nothing() {
    let mut world = World::new(PLAN, &[("a", A), ("b", B)]);
    world.steady = false;
    world.source = Box::new(|_, address| Answer::Sayings(vec![sure(ms(30), address)]));
    world.run(Nanos(10 * SECOND.0));
    // As the API server shows it: terminating for 5 s, then gone, and the address dies with the
    // pod.
    world.apply(vec![PeerSpec { readiness: Readiness::Terminating, ..spec("a", ip(A)) }, spec("b", ip(B))]);
    world.run(Nanos(5 * SECOND.0));
    world.wire().silence(ip(A));
    world.wire().script(ip(A), |_| Fate::lost());
    world.run(ms(300));
    world.apply(vec![spec("b", ip(B))]);
    world.run(Nanos(30 * SECOND.0));
    let (a, b) = (world.read("a"), world.read("b"));
    assert_eq!((a.lost, b.lost, b.terminating), (0, 0, [0, 0]));
    assert!((4..=6).contains(&a.terminating[0]) && (9..=12).contains(&a.terminating[1]), "{a:?}");
    let probes = world.wire().log(ip(A)).len();
    world.run(Nanos(30 * SECOND.0));
    assert_eq!((world.wire().log(ip(A)).len(), questions(&world)), (probes, Vec::new()));
}

#[test]
fn a_node_that_is_removed_after_it_died_lost_before_and_loses_nothing_after() {
    let (mut world, _) = crash(|_, address| Answer::Sayings(vec![sure(ms(20), address)]));
    world.run(Nanos(60 * SECOND.0));
    world.steady = false;
    let before = world.read("a");
    assert!((58..=60).contains(&before.lost) && before.terminating == [0, 0], "{before:?}");
    world.apply(vec![spec("b", ip(B))]);
    world.run(Nanos(60 * SECOND.0));
    let after = world.read("a");
    assert_eq!((after.lost, after.sent), (before.lost, before.sent));
    assert!((10..=12).contains(&after.terminating[1]) && after.terminating[0] == 0, "{after:?}");
}

#[test]
fn an_unready_peer_that_dies_loses_as_any_other() {
    let (mut world, _) = crash(|_, address| Answer::Sayings(vec![sure(ms(20), address)]));
    world.apply(vec![PeerSpec { readiness: Readiness::Unready, ..spec("a", ip(A)) }, spec("b", ip(B))]);
    world.run(Nanos(30 * SECOND.0));
    let read = world.read("a");
    assert!((28..=30).contains(&read.lost) && read.terminating == [0, 0], "{read:?}");
}

#[test]
fn a_peer_that_returns_within_the_grace_is_probed_there_at_once() {
    let mut world = World::new(PLAN, &[("a", A)]);
    world.run_until_tried(ip(A), 5);
    world.settle();
    world.steady = false;
    world.apply(Vec::new());
    world.run(Nanos(4 * SECOND.0));
    world.apply(vec![spec("a", ip(B))]);
    world.run(Nanos(3 * SECOND.0));
    let on_its_way = u32::try_from(world.wire().log(ip(A)).len() - 5).unwrap();
    let expected = PeerReading { sent: 8, received: 8, terminating: [on_its_way, 0], ..PeerReading::default() };
    assert!((3..=5).contains(&on_its_way));
    world.expect("a", expected);
}

#[test]
fn a_stop_awaits_probes_in_flight_and_sends_no_more() {
    let mut world = World::new(PLAN, &[("a", A), ("b", B)]);
    world.wire().script(ip(A), |_| Fate::reply(80_000));
    world.wire().script(ip(B), |n| if n < 5 { Fate::reply(100) } else { Fate::lost() });
    world.run_until_tried(ip(A), 8);
    world.prober.finish();
    assert!(world.prober.awaits_any());
    world.run(Nanos(5 * SECOND.0));
    assert!(!world.prober.awaits_any());
    assert_eq!(world.wire().log(ip(A)).len(), 8);
    for (node, lost) in [("a", 0), ("b", world.wire().sent(ip(B)) - 5)] {
        let read = world.read(node);
        assert_eq!((read.sent, read.lost), (read.received + read.lost, lost), "{node}: {read:?}");
    }
}

const SCRIPTS: u64 = 2_000;
const PEERS: [&str; 3] = ["a", "b", "c"];

/// The possible addresses of the peers of a script.
fn places() -> impl Iterator<Item = (usize, IpAddr)> {
    (0..PEERS.len())
        .flat_map(|peer| (0..4u8).map(move |place| (peer, place)))
        .map(|(peer, place)| (peer, Ipv4Addr::new(10, 2, u8::try_from(peer).unwrap(), place + 1).into()))
}

/// One of the four addresses of the peer that has this one.
fn elsewhere(random: &mut Random, address: IpAddr) -> IpAddr {
    let IpAddr::V4(address) = address else { return address };
    let [a, b, peer, _] = address.octets();
    Ipv4Addr::new(a, b, peer, 1 + u8::try_from(random.below(4)).unwrap()).into()
}

/// A random change of a list to the peer at `address`.
fn edit(random: &mut Random, address: IpAddr) -> Saying {
    let there = elsewhere(random, address);
    match random.below(5) {
        0 => gone(address),
        1 => put(address, address, Readiness::Terminating),
        2 => put(address, address, Readiness::Unready),
        3 => put(address, there, Readiness::Ready),
        _ => put(address, there, Readiness::Terminating),
    }
}

fn answer(random: &mut Random, address: IpAddr) -> Answer {
    let soon = |random: &mut Random| {
        let most = [30, 400, 1_300][usize::try_from(random.below(3)).unwrap()];
        Nanos(random.below(most) * MS + 1)
    };
    let mut sayings = Vec::new();
    match random.below(11) {
        10 => sayings.push(unsure(soon(random), address)),
        0 => return Answer::Refused,
        1 | 2 => {}
        3..6 => sayings.push(sure(soon(random), address)),
        _ => {
            let at = soon(random);
            sayings.push((at, edit(random, address)));
            sayings.push(sure(at.plus(soon(random)), address));
        }
    }
    Answer::Sayings(sayings)
}

fn fate(random: &mut Random, dead: bool, timeout: Nanos) -> Fate {
    let timeout_us = timeout.0 / 1_000;
    if random.chance(3) {
        return Fate::Refused(SendError::ALL[usize::try_from(random.below(8)).unwrap()]);
    }
    let mut fate = Fate::lost();
    if dead || random.chance(25) {
        // This may be long after, while the address is in doubt.
        return if random.chance(20) { fate.and(timeout_us + 1 + random.below(900_000)) } else { fate };
    }
    for _ in 0..[1, 1, 1, 1, 2][usize::try_from(random.below(5)).unwrap()] {
        fate = fate.and(if random.chance(70) { 1 + random.below(3_000) } else { 1 + random.below(timeout_us) });
    }
    fate
}

/// Runs the script of `seed`. Returns how its doubts ended, or the counters that differ from the
/// oracle's.
fn differences(seed: u64) -> Result<[Ends; PEERS.len()], String> {
    let mut random = Random(seed);
    let plan = Plan { interval: ms(100), timeout: ms(20 + random.below(330)), forget_after: ms(1_000), ..PLAN };
    let first: Vec<(usize, IpAddr)> = places().filter(|(_, address)| address.to_string().ends_with(".1")).collect();
    let mut world = World::new(plan, &[]);
    world.steady = false;
    for (_, address) in places() {
        let (mut of_link, timeout) = (Random(random.next()), plan.timeout);
        // The peer is alive and dead in turn. Some times of being dead are longer than a doubt
        // lasts.
        let (alive, dead) = (1 + of_link.below(20), of_link.below(15));
        let script = move |n| fate(&mut of_link, n % (alive + dead) >= alive, timeout);
        world.wire().script(address, script);
    }
    let mut of_source = Random(random.next());
    world.source = Box::new(move |_, address| answer(&mut of_source, address));
    world.apply(first.iter().map(|(peer, address)| spec(PEERS[*peer], *address)).collect());
    for _ in 0..12 {
        world.run(Nanos(random.below(500 * MS)));
        let (peer, mut address) = first[usize::try_from(random.below(3)).unwrap()];
        let Some(listed) = world.list.iter().find(|listed| listed.node == PEERS[peer]) else {
            let back = spec(PEERS[peer], elsewhere(&mut random, address));
            world.say(Nanos(0), returned(back));
            continue;
        };
        address = listed.address;
        if random.chance(40) {
            let change = edit(&mut random, address);
            world.say(Nanos(0), change);
        }
    }
    world.prober.finish();
    // After this time the source has answered everything, and nothing is open.
    world.run(Nanos(6 * SECOND.0));
    assert!(!world.prober.awaits_any());
    let mut ends = [Ends::default(); PEERS.len()];
    for (peer, node) in PEERS.iter().enumerate() {
        let log = places().filter(|(of, _)| *of == peer).flat_map(|(_, address)| {
            world.wire().log(address).iter().map(|probe| (address, probe.clone())).collect::<Vec<_>>()
        });
        let log = log.collect();
        let (slot, _) = world.directory.peers().find(|(_, held)| held.node() == *node).expect("a peer of that name");
        let (oracle, got) = (doubt_oracle::peer(slot, log, &world.journal, plan.timeout), world.read(node));
        let expected = PeerReading { created: got.created, ..oracle.counts };
        if expected != got {
            // The message outlives the world.
            return Err(unfollowed(|| format!("seed {seed}, {node}, {plan:?}: expected {expected:?}, got {got:?}")));
        }
        ends[peer] = oracle.ends;
    }
    Ok(ends)
}

#[test]
fn for_every_source_and_timing_the_counters_are_those_of_the_oracle() {
    let mut all = Ends::default();
    for seed in 0..SCRIPTS {
        for Ends { sure, unsure, refused, unanswered, vouched, late, withdrawn, counted } in
            differences(seed).unwrap_or_else(|difference| panic!("{difference}"))
        {
            all.sure += sure;
            all.unsure += unsure;
            all.refused += refused;
            all.unanswered += unanswered;
            all.vouched += vouched;
            all.late += late;
            all.withdrawn += withdrawn;
            all.counted += counted;
        }
    }
    println!("{all:?}");
    let Ends { sure, unsure, refused, unanswered, vouched, late, withdrawn, counted } = all;
    assert!(
        [sure, unsure, refused, unanswered, vouched, late, withdrawn, counted].into_iter().all(|n| n > 300),
        "{all:?}"
    );
}
