//! The real binary over the emulated link, held against the link's own log, probe by probe.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::common::process::unique;
use crate::common::scrape::{Link as Counters, same};
use crate::common::until::until;
use crate::emulator::{Emulator, Fate, Link, Probe, Reply, Way, peer4, peer6};
use crate::mesh::{Canary, Node, SETTLED, Socket};
use crate::namespace::DIRECTORY;
use crate::oracle::{Expected, agree, expected};
use crate::pinging::{Ping, Told};
use crate::random::Random;

const INTERVAL: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_millis(300);
/// Of the agents of this target, as is [`crate::mesh::INTERVAL`].
const AGENT_TIMEOUT: Duration = Duration::from_secs(1);
const AGENT_INTERVAL: Duration = ms(20);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs `ping` over the link, and gives its objects and the link's log: again where the machine held up the link itself at the end,
/// so that `ping` was gone before all was over. Fates do not depend on the moment, so that any run proves the same.
fn ping_over(
    socket: Socket,
    peers: &[IpAddr],
    (count, timeout): (u64, Duration),
    fates: impl Fn(IpAddr, u16) -> Fate + Send + Clone + 'static,
) -> (Vec<Value>, Vec<Probe>) {
    const RUNS: usize = 5;
    let mut run = 0;
    loop {
        run += 1;
        let node = Node::alone("a");
        let emulator = Emulator::new(&node.namespace, fates.clone());
        let targets = peers.iter().map(IpAddr::to_string).collect();
        let (_, objects) = Ping { node: &node, socket, targets, count, interval: INTERVAL, timeout }.run();
        let log = emulator.stop();
        if run == RUNS || !was_held_up_at_the_end(&log, count * peers.len() as u64) {
            return (objects, log);
        }
        eprintln!("the link was held up at the end of run {run}: once more");
    }
}

/// Whether requests were never read, or replies left late after the last request: what was told of either cannot be held to the log.
fn was_held_up_at_the_end(log: &[Probe], sent: u64) -> bool {
    const LATE: Duration = ms(100);
    let Some(last) = log.iter().map(|probe| probe.entered).max() else { return true };
    let late = |reply: &Reply| {
        reply.arrived.is_none_or(|arrived| arrived > last && Duration::from(arrived.since(reply.due)) > LATE)
    };
    (log.len() as u64) < sent || log.iter().flat_map(|probe| &probe.replies).any(late)
}

/// The median.
fn p50(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[(times.len() - 1) / 2]
}

fn a_link_of_10_ms_reads_10_ms(socket: Socket) {
    const COUNT: u64 = 150;
    // As long as this interval allows: nothing here is about losses, and a busy machine may hold up the link.
    const TIMEOUT: Duration = ms(600);
    let peers = [peer4(1), peer6(1)];
    let (objects, log) = ping_over(socket, &peers, (COUNT, TIMEOUT), |_, _| Fate::after(ms(10)));
    for peer in peers {
        let told = Told::of(&objects, &peer.to_string());
        let Expected { answered, lost, .. } = agree(&told, &log, peer, TIMEOUT);
        assert_eq!((answered.len() + lost.len()) as u64, COUNT, "{peer}");
        let (mut applied, mut tardy) = (Vec::new(), Vec::new());
        let answers = log.iter().filter(|probe| probe.peer == peer && answered.contains(&probe.sequence.into()));
        for probe in answers {
            let (reply, (_, arrived)) = (probe.replies[0], probe.first().expect("it is answered"));
            assert!(arrived >= reply.due, "the link itself was too quick: {probe:?}");
            applied.push(arrived.since(probe.entered).0);
            tardy.push(arrived.since(reply.due).0);
        }
        let reported: Vec<u64> = told.answers.values().map(|answer| answer.nanos).collect();
        // A machine that stands still makes losses of what is under way, and of no more.
        assert!(
            reported.len() == applied.len() && applied.len() as u64 > COUNT / 2,
            "{peer}: {} answers",
            applied.len()
        );
        let [reported, applied, tardy] = [reported, applied, tardy].map(p50);
        println!("{socket:?} {peer}: medians in ns: reported {reported}, applied {applied}, the link's own {tardy}");
        let off = Duration::from_nanos(reported.abs_diff(applied));
        assert!(off < Duration::from_micros(300), "{peer}: the median is {off:?} off");
    }
}

/// One fate for every sixteenth probe each, and those between are answered soon; after `end`, all.
fn script(timeout: Duration, interval: Duration, end: u16) -> impl Fn(IpAddr, u16) -> Fate + Send + Clone + 'static {
    let (soon, within, after, long_after) = (timeout / 20, timeout * 2 / 3, timeout * 4 / 3, timeout * 3 / 2);
    move |_, sequence| match sequence % 16 {
        _ if sequence >= end => Fate::after(soon),
        // The next one overtakes it, and no other.
        0 => Fate::after(soon + interval * 3 / 2),
        1 => Fate::reply_doubled(soon, long_after),
        3 => Fate::REQUEST_LOST,
        5 => Fate::request_doubled(soon, within),
        7 => Fate::reply_lost(soon),
        9 => Fate::after(within),
        11 => Fate::after(long_after),
        13 => Fate::reply_doubled(soon, soon * 2),
        15 => Fate::reply_doubled(after, long_after),
        _ => Fate::after(soon),
    }
}

/// Holds the oracle itself to the script. A machine that stands still can make a loss of an answer, and never an answer of
/// a loss: what is to be lost is exact, and the rest is at least so where nothing else was lost.
fn follows_the_script(expected: &Expected, end: u64) {
    let of = |kinds: &[u64]| (0..end).filter(|number| kinds.contains(&(number % 16))).collect::<Vec<_>>();
    let lost = of(&[3, 7, 11, 15]);
    assert!(lost.iter().all(|number| expected.lost.contains(number)), "{expected:?}");
    assert!(of(&[11, 15]).iter().all(|number| expected.late.contains(number)), "{expected:?}");
    assert_eq!(expected.duplicate, of(&[1, 5, 13, 15]));
    if expected.lost == lost {
        assert!(of(&[9]).iter().all(|number| expected.reordered.contains(number)), "{expected:?}");
    }
}

fn every_scripted_fate_is_told(socket: Socket) {
    const END: u16 = 160;
    let peers = [peer4(1), peer4(2), peer6(1), peer6(2)];
    // What comes late comes before the last reply, which ends the run.
    let count = u64::from(END) + 60;
    let (objects, log) = ping_over(socket, &peers, (count, TIMEOUT), script(TIMEOUT, INTERVAL, END));
    for peer in peers {
        let told = Told::of(&objects, &peer.to_string());
        let expected = agree(&told, &log, peer, TIMEOUT);
        assert_eq!((expected.answered.len() + expected.lost.len()) as u64, count, "{peer}");
        follows_the_script(&expected, END.into());
    }
}

fn every_scripted_fate_is_counted(socket: Socket) {
    const END: u16 = 64;
    let node = Node::alone("a");
    let emulator = Emulator::new(&node.namespace, script(AGENT_TIMEOUT, AGENT_INTERVAL, END));
    let peers = [("four", "icmp", peer4(1)), ("six", "icmpv6", peer6(1))];
    let file = unique(Path::new(DIRECTORY), "peers");
    let lines = peers.map(|(name, _, address)| format!("{name}={address}\n"));
    fs::write(&file, lines.concat()).expect("our own directory is writable");
    let canary = Canary::start(&node, socket, &file, 9_877, &[]);
    for (name, protocol, peer) in peers {
        // By then the last of the script has come back, which takes one and a half timeouts.
        let over = |link: Counters| link.received + link.lost >= f64::from(END) + 2.0 * SETTLED;
        canary.wait_for(name, protocol, "the script is over", over);
        // What is still on its way is nothing yet; should the machine hold up an answer that is not in the script for a
        // whole timeout, that is a loss on both sides as soon as both have it.
        let expected = until("counters are those of the log", || {
            let link = canary.metrics().link(name, protocol);
            let log = emulator.log();
            let sent = log.iter().filter(|probe| probe.peer == peer).count() as f64;
            let decided: Vec<Probe> =
                log.into_iter().filter(|probe| probe.peer == peer).take_while(Probe::is_over).collect();
            let expected = expected(&decided, peer, AGENT_TIMEOUT, |_| false);
            let Expected { lost, late, duplicate, reordered, .. } = &expected;
            let wanted = [lost.len(), late.len(), duplicate.len(), reordered.len()];
            let counted = [link.lost, link.late, link.duplicate, link.reordered];
            // The log is the younger of the two.
            let whole = decided.len() >= END.into() && link.received + link.lost <= link.sent && link.sent <= sent;
            let agree = whole && counted.iter().zip(wanted).all(|(is, be)| same(*is, be as f64));
            let difference =
                || format!("{name}: {link:?}; {sent} were sent; lost, late, duplicate, reordered: {wanted:?}");
            if agree { Ok(expected) } else { Err(difference()) }
        });
        follows_the_script(&expected, END.into());
    }
}

/// A link of one peer.
fn random_link(random: &mut Random) -> Link {
    let mut way = || {
        let [delay, jitter, held_for] = [50, 60, 200].map(|most| ms(random.below(most)));
        let [lost, doubled, held] = [20, 15, 20].map(|most| random.below(most));
        Way { delay, jitter, lost, doubled, held, held_for }
    };
    let (request, reply) = (way(), way());
    Link { seed: random.next(), request, reply }
}

/// Seeds, or the one that `KUBE_CANARY_TEST_SEED` names.
fn seeds() -> Vec<u64> {
    let given = std::env::var("KUBE_CANARY_TEST_SEED").ok();
    given.map_or_else(|| (1..=3).collect(), |seed| vec![seed.parse().expect("KUBE_CANARY_TEST_SEED: a number")])
}

fn random_links_are_told_as_they_were(socket: Socket) {
    for seed in seeds() {
        println!("{socket:?}: KUBE_CANARY_TEST_SEED={seed}");
        let peers = [peer4(1), peer4(2), peer4(3), peer6(1), peer6(2), peer6(3)];
        let mut random = Random(seed);
        let links = peers.map(|peer| (peer, random_link(&mut random)));
        let (end, count, timeout) = (140, 220, ms(200));
        let fates = move |peer, sequence| {
            let link = links.iter().find(|(address, _)| *address == peer).expect("a target").1;
            // The last 0.8 s are quiet: more than the 0.62 s that a reply can take.
            if sequence < end { link.fate(peer, sequence) } else { Fate::after(ms(1)) }
        };
        let (objects, log) = ping_over(socket, &peers, (count, timeout), fates);
        for peer in peers {
            let expected = agree(&Told::of(&objects, &peer.to_string()), &log, peer, timeout);
            assert_eq!((expected.answered.len() + expected.lost.len()) as u64, count, "{peer}");
            let Expected { answered, reordered, lost, late, duplicate } = &expected;
            let [answered, reordered] = [answered, reordered].map(std::collections::BTreeSet::len);
            let [lost, late, duplicate] = [lost, late, duplicate].map(Vec::len);
            println!(
                "{peer}: {answered} answered, {reordered} reordered, {lost} lost, {late} late, {duplicate} doubled"
            );
        }
    }
}

#[test]
fn a_link_of_10_ms_reads_10_ms_by_ping_sockets() {
    a_link_of_10_ms_reads_10_ms(Socket::Ping);
}

#[test]
fn a_link_of_10_ms_reads_10_ms_by_raw_sockets() {
    a_link_of_10_ms_reads_10_ms(Socket::Raw);
}

#[test]
fn every_scripted_fate_is_told_by_ping_sockets() {
    every_scripted_fate_is_told(Socket::Ping);
}

#[test]
fn every_scripted_fate_is_told_by_raw_sockets() {
    every_scripted_fate_is_told(Socket::Raw);
}

#[test]
fn every_scripted_fate_is_counted_by_ping_sockets() {
    every_scripted_fate_is_counted(Socket::Ping);
}

#[test]
fn every_scripted_fate_is_counted_by_raw_sockets() {
    every_scripted_fate_is_counted(Socket::Raw);
}

#[test]
fn random_links_are_told_as_they_were_by_ping_sockets() {
    random_links_are_told_as_they_were(Socket::Ping);
}

#[test]
fn random_links_are_told_as_they_were_by_raw_sockets() {
    random_links_are_told_as_they_were(Socket::Raw);
}
