//! The real binary over the emulated link, compared with the link's own log, probe by probe.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::common::process::unique;
use crate::common::scrape::{Link as Counters, same};
use crate::common::until::until;
use crate::emulator::{Emulator, Fate, Link, Probe, Way, peer4, peer6};
use crate::mesh::{Agent, Node, SETTLED, Socket};
use crate::namespace::DIRECTORY;
use crate::oracle::{Expected, agree, expected, open};
use crate::pinging::{Ping, Printed};
use crate::random::Random;

const INTERVAL: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_millis(300);
/// The timeout of the agents of these tests. Their interval is [`crate::mesh::INTERVAL`].
const AGENT_TIMEOUT: Duration = Duration::from_secs(1);
const AGENT_INTERVAL: Duration = ms(20);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs `ping` over the link until every reply to the first `end` probes of each peer has arrived
/// and is reported. Returns its objects and the link's log.
///
/// The log decides when the run ends. So a machine that delays the link or `ping` makes the run
/// longer and changes nothing else.
fn ping_over(
    socket: Socket,
    peers: &[IpAddr],
    (end, timeout): (u64, Duration),
    fates: impl Fn(IpAddr, u16) -> Fate + Send + 'static,
) -> (Vec<Value>, Vec<Probe>) {
    let node = Node::alone("a");
    let emulator = Emulator::new(&node.namespace, fates);
    let targets = peers.iter().map(IpAddr::to_string).collect();
    let ping = Ping { node: &node, socket, targets, count: None, interval: INTERVAL, timeout };
    let objects = ping.run_until(|running| {
        let log = emulator.log();
        for peer in peers {
            let probes = log.iter().filter(|probe| probe.peer == *peer && u64::from(probe.sequence) < end);
            let (over, replies) = probes
                .filter(|probe| probe.is_over())
                .fold((0, 0), |(over, replies), probe| (over + 1, replies + probe.replies.len()));
            if over < end {
                return Err(format!("{peer}: {over} of {end} are over"));
            }
            let printed = Printed::of(&running.objects(), &peer.to_string());
            let (decided, reported) = (printed.decided_below(end), printed.replies_below(end));
            if (decided, reported) != (end, replies) {
                return Err(format!("{peer}: {decided} of {end} decided, {reported} of {replies} replies reported"));
            }
        }
        Ok(())
    });
    (objects, emulator.stop())
}

/// Returns the median, the lower one of an even number.
fn p50(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[(times.len() - 1) / 2]
}

fn a_link_of_10_ms_reads_10_ms(socket: Socket) {
    const COUNT: u64 = 150;
    // This timeout is as long as the interval allows: this test is not about losses.
    const TIMEOUT: Duration = ms(600);
    let peers = [peer4(1), peer6(1)];
    let (objects, log) = ping_over(socket, &peers, (COUNT, TIMEOUT), |_, _| Fate::after(ms(10)));
    for peer in peers {
        let printed = Printed::of(&objects, &peer.to_string());
        let Expected { answered, lost, .. } = agree(&printed, &log, peer, TIMEOUT, COUNT);
        assert_eq!((answered.len() + lost.len()) as u64, COUNT, "{peer}");
        let (mut applied, mut tardy, mut reported) = (Vec::new(), Vec::new(), Vec::new());
        for probe in log.iter().filter(|probe| probe.peer == peer && answered.contains(&probe.sequence.into())) {
            let (due, arrived) = (probe.replies[0].due, probe.first().expect("it is answered").at);
            assert!(arrived >= due, "the link itself was too quick: {probe:?}");
            applied.push(arrived.since(probe.entered).0);
            tardy.push(arrived.since(due).0);
            let answer = printed.answers[&probe.sequence.into()];
            assert!(answer.by_kernel, "{peer} {}: {answer:?}", probe.sequence);
            reported.push(answer.nanos);
        }
        let [reported, applied, tardy] = [reported, applied, tardy].map(p50);
        println!("{socket:?} {peer}: medians in ns: reported {reported}, applied {applied}, the link's own {tardy}");
    }
}

/// Gives one special fate to every sixteenth probe, and fast replies to the probes between. After
/// `end`, all replies are fast.
fn script(timeout: Duration, interval: Duration, end: u16) -> impl Fn(IpAddr, u16) -> Fate + Send + Clone + 'static {
    let (soon, within, after, long_after) = (timeout / 20, timeout * 2 / 3, timeout * 4 / 3, timeout * 3 / 2);
    move |_, sequence| match sequence % 16 {
        _ if sequence >= end => Fate::after(soon),
        // The next probe's reply overtakes it, and no other.
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

/// Asserts the part of the script that no delay can change in the oracle itself: what is lost, late
/// or doubled stays so.
fn follows_the_script(expected: &Expected, end: u64) {
    let of = |kinds: &[u64]| (0..end).filter(|number| kinds.contains(&(number % 16))).collect::<Vec<_>>();
    assert!(of(&[3, 7, 11, 15]).iter().all(|number| expected.lost.contains(number)), "{expected:?}");
    assert!(of(&[11, 15]).iter().all(|number| expected.late.contains(number)), "{expected:?}");
    assert_eq!(expected.duplicate, of(&[1, 5, 13, 15]));
}

fn every_scripted_outcome_is_printed(socket: Socket) {
    const END: u16 = 160;
    let peers = [peer4(1), peer4(2), peer6(1), peer6(2)];
    let end = u64::from(END);
    let (objects, log) = ping_over(socket, &peers, (end, TIMEOUT), script(TIMEOUT, INTERVAL, END));
    for peer in peers {
        let printed = Printed::of(&objects, &peer.to_string());
        let expected = agree(&printed, &log, peer, TIMEOUT, end);
        assert_eq!((expected.answered.len() + expected.lost.len()) as u64, end, "{peer}");
        follows_the_script(&expected, end);
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
    let agent = Agent::start(&node, socket, &file, 9_877, &[]);
    for (name, protocol, peer) in peers {
        // By then the last reply of the script has arrived, which takes one and a half timeouts.
        let over = |link: Counters| link.received + link.lost >= f64::from(END) + 2.0 * SETTLED;
        agent.wait_for(name, protocol, "the script is over", over);
        // A probe in flight has no result yet. If the machine delays an answer by a whole timeout,
        // it is a loss on both sides as soon as both have it.
        let expected = until("counters are those of the log", || {
            let link = agent.metrics().link(name, protocol);
            let log = emulator.log();
            let sent = log.iter().filter(|probe| probe.peer == peer).count() as f64;
            let decided: Vec<Probe> =
                log.into_iter().filter(|probe| probe.peer == peer).take_while(Probe::is_over).collect();
            let expected = expected(&decided, peer, AGENT_TIMEOUT, |_| false);
            let open = open(&decided, peer, AGENT_TIMEOUT) as f64;
            let Expected { lost, late, duplicate, reordered, .. } = &expected;
            let wanted = [lost.len(), late.len(), duplicate.len()].map(|count| count as f64);
            // Of those that the log leaves open, as many are late as are lost.
            let more = link.lost - wanted[0];
            let agree = (0.0..=open).contains(&more)
                && same(link.late, wanted[1] + more)
                && same(link.duplicate, wanted[2])
                && (open > 0.0 || same(link.reordered, reordered.len() as f64));
            // The log is the newer of the two.
            let whole = decided.len() >= END.into() && link.received + link.lost <= link.sent && link.sent <= sent;
            let difference = || {
                let reordered = reordered.len();
                format!(
                    "{name}: {link:?}; {sent} sent, {open} open; lost, late, duplicate {wanted:?}, {reordered} reordered"
                )
            };
            if whole && agree { Ok(expected) } else { Err(difference()) }
        });
        follows_the_script(&expected, END.into());
    }
}

/// Draws the link of one peer.
fn random_link(random: &mut Random) -> Link {
    let mut way = || {
        let [delay, jitter, held_for] = [50, 60, 200].map(|most| ms(random.below(most)));
        let [lost, doubled, held] = [20, 15, 20].map(|most| random.below(most));
        Way { delay, jitter, lost, doubled, held, held_for }
    };
    let (request, reply) = (way(), way());
    Link { seed: random.next(), request, reply }
}

/// The seeds, or the one that `KUBE_CANARY_TEST_SEED` names.
fn seeds() -> Vec<u64> {
    let given = std::env::var("KUBE_CANARY_TEST_SEED").ok();
    given.map_or_else(|| (1..=3).collect(), |seed| vec![seed.parse().expect("KUBE_CANARY_TEST_SEED: a number")])
}

fn random_links_are_measured_exactly(socket: Socket) {
    for seed in seeds() {
        println!("{socket:?}: KUBE_CANARY_TEST_SEED={seed}");
        let peers = [peer4(1), peer4(2), peer4(3), peer6(1), peer6(2), peer6(3)];
        let mut random = Random(seed);
        let links = peers.map(|peer| (peer, random_link(&mut random)));
        let (end, timeout) = (140, ms(200));
        let fates = move |peer, sequence| {
            let link = links.iter().find(|(address, _)| *address == peer).expect("a target").1;
            if sequence < end { link.fate(peer, sequence) } else { Fate::after(ms(1)) }
        };
        let compared = u64::from(end);
        let (objects, log) = ping_over(socket, &peers, (compared, timeout), fates);
        for peer in peers {
            let expected = agree(&Printed::of(&objects, &peer.to_string()), &log, peer, timeout, compared);
            assert_eq!((expected.answered.len() + expected.lost.len()) as u64, compared, "{peer}");
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
fn a_link_of_10_ms_measures_10_ms_on_ping_sockets() {
    a_link_of_10_ms_reads_10_ms(Socket::Ping);
}

#[test]
fn a_link_of_10_ms_measures_10_ms_on_raw_sockets() {
    a_link_of_10_ms_reads_10_ms(Socket::Raw);
}

#[test]
fn every_scripted_outcome_is_printed_on_ping_sockets() {
    every_scripted_outcome_is_printed(Socket::Ping);
}

#[test]
fn every_scripted_outcome_is_printed_on_raw_sockets() {
    every_scripted_outcome_is_printed(Socket::Raw);
}

#[test]
fn every_scripted_outcome_is_counted_on_ping_sockets() {
    every_scripted_fate_is_counted(Socket::Ping);
}

#[test]
fn every_scripted_outcome_is_counted_on_raw_sockets() {
    every_scripted_fate_is_counted(Socket::Raw);
}

#[test]
fn random_links_are_measured_exactly_on_ping_sockets() {
    random_links_are_measured_exactly(Socket::Ping);
}

#[test]
fn random_links_are_measured_exactly_on_raw_sockets() {
    random_links_are_measured_exactly(Socket::Raw);
}
