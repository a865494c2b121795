//! The real binary over the emulated link, held against the link's own log, probe by probe.

use std::net::IpAddr;
use std::time::Duration;

use crate::emulator::{Emulator, Fate, Probe, peer4, peer6};
use crate::mesh::{Node, Socket};
use crate::oracle::{Expected, expected};
use crate::pinging::{Ping, Told};

const INTERVAL: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_millis(300);

/// A reported time may be this much above the wire's: the two are of the same stamps but one, and clocks are converted.
const ABOVE: u64 = 1_000;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn quantile(sorted: &[u64], part: usize, of: usize) -> u64 {
    sorted[(sorted.len() - 1) * part / of]
}

/// What the link made of the first reply to each probe of `peer`.
fn applied(log: &[Probe], peer: IpAddr) -> Vec<u64> {
    let of_peer = log.iter().filter(|probe| probe.peer == peer);
    of_peer.filter_map(|probe| Some(probe.replies.first()?.arrived?.since(probe.entered).0)).collect()
}

fn a_link_of_10_ms_reads_10_ms(socket: Socket) {
    const DELAY: Duration = ms(10);
    const COUNT: u64 = 150;
    let node = Node::alone("a");
    let emulator = Emulator::new(&node.namespace, |_, _| Fate::after(DELAY));
    let peers = [peer4(1), peer6(1)];
    let targets = peers.map(|peer| peer.to_string()).to_vec();
    let ping = Ping { node: &node, socket, targets, count: COUNT, interval: INTERVAL, timeout: ms(500) };
    let (code, objects) = ping.run();
    assert_eq!(code, Some(0), "{objects:?}");
    let log = emulator.stop();
    for peer in peers {
        let told = Told::of(&objects, &peer.to_string());
        let applied = applied(&log, peer);
        assert_eq!((told.answers.len() as u64, applied.len() as u64), (COUNT, COUNT), "{peer}");
        for ((number, answer), applied) in told.answers.iter().zip(&applied) {
            assert!(*applied >= 10_000_000, "{peer} {number}: a reply left {applied} ns after its request");
            let plausible = !answer.by_kernel || answer.nanos <= applied + ABOVE;
            assert!(plausible, "{peer} {number}: {answer:?}, and the link took {applied} ns");
        }
        let mut sorted = [told.answers.values().map(|answer| answer.nanos).collect(), applied];
        sorted.iter_mut().for_each(|times| times.sort_unstable());
        let [told, applied] = sorted.map(|times| [50, 90, 99].map(|part| quantile(&times, part, 100)));
        println!("{socket:?} {peer}: p50, p90, p99 in ns: reported {told:?}, applied {applied:?}");
        let off = Duration::from_nanos(told[0].abs_diff(applied[0]));
        assert!(off < Duration::from_micros(300), "{peer}: the median is {off:?} off");
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
