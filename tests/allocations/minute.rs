//! A minute and a half of the real prober and statistics with 1,000 peers, on a scripted clock.

use std::net::IpAddr;

use kube_canary::allocator::finder::unfollowed;
use kube_canary::discovery::Readiness;
use kube_canary::limits::HOUR_PEERS_MAX;
use kube_canary::peers::{Directory, Method, Presence, SlotId};
use kube_canary::prober::{Clock, Icmp, Prober, SendError, Settings, SocketKind, Stamp};
use kube_canary::statistics::{PeerReading, Scale, Statistics};
use kube_canary::units::Nanos;
use tokio::sync::mpsc;

use super::clock::ScriptedClock;
use super::counting::{Asked, watch};
use super::leaks::NoLeaks;
use super::wire::MixedWire;
use super::{apply, list};

const PEERS: usize = 1_000;
/// Places for questions: fewer than the questions of a second, so that some are refused.
const PLACES: usize = 16;

fn address(index: usize) -> IpAddr {
    let low = u16::try_from(index).expect("few peers");
    let [high, low] = low.to_be_bytes();
    if index.is_multiple_of(2) {
        [10, 1, high, low].into()
    } else {
        [0xfd00, 0, 0, 0, 0, 0, 1, u16::from_be_bytes([high, low])].into()
    }
}

struct Agent {
    asked: mpsc::Sender<IpAddr>,
    questions: mpsc::Receiver<IpAddr>,
    answered: u64,
    clock: ScriptedClock,
    prober: Prober<Icmp<MixedWire>, ScriptedClock>,
    statistics: Statistics,
    directory: Directory,
    turns: u64,
}

impl Agent {
    fn new(kind: SocketKind) -> Self {
        let clock = ScriptedClock::new();
        let (interval, timeout) = (Nanos::from_millis(1_000), Nanos::from_millis(2_000));
        let settings = Settings {
            interval,
            timeout,
            node: "self".into(),
            doubts: true,
            new_peer_silence: Nanos(0),
            replies_wait: Nanos::from_millis(250),
        };
        let (asked, mut questions) = mpsc::channel(PLACES);
        // The channel allocates a second block when the first is full, and then uses both in turn.
        for _ in 0..100 {
            asked.try_send(address(0)).expect("room");
            questions.try_recv().expect("a question");
        }
        Self {
            asked,
            questions,
            answered: 0,
            prober: Icmp::prober(MixedWire::new(clock.clone(), kind), clock.clone(), &settings, 56),
            clock,
            statistics: Statistics::new(Scale::default(), interval),
            directory: Directory::default(),
            turns: 0,
        }
    }

    fn list(&mut self, address: impl Fn(usize) -> Option<(IpAddr, Readiness)>) {
        let list = list((0..PEERS).filter_map(|i| address(i).map(|(address, readiness)| (i, address, readiness))));
        apply(list, &mut self.directory, &self.statistics, &mut self.prober, self.clock.now());
    }

    /// Runs the agent for `span`: it turns whenever a probe is due or a packet has arrived.
    fn live(&mut self, span: Nanos) {
        let end = self.clock.now().plus(span);
        loop {
            let now = self.clock.now();
            self.statistics.tick(now);
            assert!(
                self.prober.turn(&mut |observation| self.statistics.record(Method::Icmp, observation)),
                "everything was read"
            );
            self.turns += 1;
            self.prober.ask(|address| self.asked.try_send(address).is_ok());
            // Every second question is answered as sure, possibly too late. The others get no
            // answer. In one second of ten, no question is read.
            while !(now.0 / 1_000_000_000).is_multiple_of(10)
                && let Ok(address) = self.questions.try_recv()
            {
                self.answered += 1;
                if self.answered.is_multiple_of(2) {
                    self.prober.answered(address);
                }
            }
            let arrival = self.prober.wire().next_arrival();
            let next = [self.prober.next_turn(), arrival].into_iter().flatten().min().unwrap_or(end).min(end);
            if next == end {
                return;
            }
            self.clock.advance(next.since(now));
        }
    }

    fn totals(&self) -> PeerReading {
        let mut sum = PeerReading::default();
        for (slot, _) in self.directory.peers() {
            let peer = self.statistics.method(Method::Icmp).slot(slot).expect("its statistics").read();
            sum.sent += peer.sent;
            sum.received += peer.received;
            sum.lost += peer.lost;
            sum.late += peer.late;
            sum.duplicate += peer.duplicate;
            sum.reordered += peer.reordered;
            sum.corrupt += peer.corrupt;
            sum.terminating.iter_mut().zip(peer.terminating).for_each(|(sum, more)| *sum += more);
            sum.send_errors.iter_mut().zip(peer.send_errors).for_each(|(sum, more)| *sum += more);
        }
        sum
    }
}

fn a_minute_without_an_allocation(kind: SocketKind) {
    let _no_leaks = NoLeaks::here();
    let mut agent = Agent::new(kind);
    agent.list(|i| Some((address(i), Readiness::Ready)));
    let ((), first) = watch(|| agent.live(Nanos::from_millis(30_000)));
    // Some peers leave with probes in flight, some move, some are terminating.
    agent.list(|i| match i % 10 {
        0 => None,
        1 => Some((address(i + PEERS), Readiness::Ready)),
        2 => Some((address(i), Readiness::Terminating)),
        _ => Some((address(i), Readiness::Ready)),
    });
    let ((), second) = watch(|| agent.live(Nanos::from_millis(30_000)));

    // The end of a minute, and the half minute after it.
    let ((), third) = watch(|| agent.live(Nanos::from_millis(31_000)));
    let hours = (0..PEERS).filter_map(|slot| agent.statistics.method(Method::Icmp).hour(SlotId::at(slot)));
    assert_eq!(hours.clone().count(), HOUR_PEERS_MAX);
    assert_eq!(hours.filter(|hour| hour.steps().any(|step| step.loss.is_some())).count(), HOUR_PEERS_MAX, "of each");

    let (probes, turns, totals) = (agent.prober.wire().probes(), agent.turns, agent.totals());
    unfollowed(|| println!("{probes} probes in {turns} turns: {totals:?}"));
    assert!(agent.answered > 500, "{} questions", agent.answered);
    assert!(probes >= 56_000 && turns >= 6_000, "a minute of a thousand peers");
    assert!([totals.received, totals.lost].into_iter().all(|n| n > 1_000), "{totals:?}");
    let rare = [totals.late, totals.duplicate, totals.reordered, totals.corrupt];
    assert!(rare.into_iter().chain(totals.terminating).chain(totals.send_errors).all(|n| n > 100), "{totals:?}");
    assert_eq!(totals.send_errors.len(), SendError::ALL.len());
    assert!(agent.statistics.unrelated() > 1_000 && Stamp::ALL.iter().all(|s| agent.statistics.stamps(*s) > 1_000));
    assert_eq!(agent.directory.peers().filter(|(_, peer)| peer.presence() == Presence::Left).count(), PEERS / 10);

    let nothing = Asked::default();
    assert_eq!((first, second, third), (nothing, nothing, nothing), "of {probes} probes in {turns} turns");
}

#[test]
fn a_minute_on_ping_sockets_allocates_nothing_for_any_outcome() {
    a_minute_without_an_allocation(SocketKind::Datagram);
}

#[test]
fn a_minute_on_raw_sockets_allocates_nothing_for_any_outcome() {
    a_minute_without_an_allocation(SocketKind::Raw);
}
