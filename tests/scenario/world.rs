//! An agent without sockets and HTTP: applies lists and turns the prober as `src/agent.rs` does.

use std::net::IpAddr;

use kube_canary::discovery::{Network, PeerList, PeerSpec, Readiness};
use kube_canary::peers::{Directory, Own, SlotId};
use kube_canary::prober::{Clock, Event, Prober, Settings, Sink, SocketKind};
use kube_canary::statistics::{Bounds, PeerReading, Statistics};
use kube_canary::units::Nanos;

use super::clock::ScriptedClock;
use super::leaks::NoLeaks;
use super::wire::LossyWire;

/// A millisecond.
pub const MS: u64 = 1_000_000;
/// A second.
pub const SECOND: Nanos = Nanos::from_millis(1_000);

/// How a world is.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Of probes to one peer.
    pub interval: Nanos,
    /// Of a probe.
    pub timeout: Nanos,
    /// Of a request.
    pub payload_bytes: usize,
    /// Of the IPv4 and the IPv6 socket.
    pub kinds: [SocketKind; 2],
    /// How long a peer that left keeps its slot.
    pub forget_after: Nanos,
}

impl Default for Plan {
    /// A timeout well below the interval, so that there are moments with nothing under way.
    fn default() -> Self {
        Self {
            interval: SECOND,
            timeout: Nanos::from_millis(200),
            payload_bytes: 56,
            kinds: [SocketKind::Datagram; 2],
            forget_after: Nanos::from_millis(300_000),
        }
    }
}

/// An agent and its surroundings.
pub struct World {
    /// As planned.
    pub plan: Plan,
    /// Of all.
    pub clock: ScriptedClock,
    /// The stage under test.
    pub prober: Prober<LossyWire, ScriptedClock>,
    /// Its sink.
    pub statistics: Statistics,
    /// Names and slots.
    pub directory: Directory,
    /// The list in force.
    pub list: Vec<PeerSpec>,
    /// Whether `sent = received + lost + under way` holds at any moment: not while a peer moves or leaves with
    /// probes under way, which keep their place in `sent` until the next probe takes it.
    pub steady: bool,
    touched: Vec<SlotId>,
    /// Dropped last.
    _no_leaks: NoLeaks,
}

/// Forwards to the statistics, and notes who was touched.
struct Tap<'a> {
    statistics: &'a Statistics,
    touched: &'a mut Vec<SlotId>,
}

impl Sink for Tap<'_> {
    fn event(&mut self, slot: SlotId, event: Event) {
        self.touched.push(slot);
        Sink::event(&mut self.statistics, slot, event);
    }

    fn send_lag(&mut self, lag: Nanos) {
        Sink::send_lag(&mut self.statistics, lag);
    }

    fn read_delay(&mut self, delay: Nanos) {
        Sink::read_delay(&mut self.statistics, delay);
    }

    fn skipped(&mut self, probes: u64) {
        Sink::skipped(&mut self.statistics, probes);
    }

    fn unrelated(&mut self) {
        Sink::unrelated(&mut self.statistics);
    }
}

/// An entry of a list.
pub fn spec(node: &str, address: IpAddr) -> PeerSpec {
    PeerSpec {
        node: node.into(),
        address,
        zone: None,
        readiness: Readiness::Ready,
        http_port: None,
        network: Network::Pod,
    }
}

/// An address from its text.
pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl World {
    /// A world with these peers, all of whom answer after 100 µs.
    pub fn new(plan: Plan, peers: &[(&str, &str)]) -> Self {
        let no_leaks = NoLeaks::here();
        let clock = ScriptedClock::new();
        let wire = LossyWire::new(clock.clone(), plan.kinds);
        let settings = Settings {
            interval: plan.interval,
            timeout: plan.timeout,
            payload_bytes: plan.payload_bytes,
            node: "self".into(),
        };
        let mut world = Self {
            plan,
            prober: Prober::new(wire, clock.clone(), &settings),
            clock,
            statistics: Statistics::new(Bounds::default(), plan.interval),
            directory: Directory::default(),
            list: Vec::new(),
            steady: true,
            touched: Vec::new(),
            _no_leaks: no_leaks,
        };
        world.apply(peers.iter().map(|(node, address)| spec(node, ip(address))).collect());
        world
    }

    /// A world with so many peers, and their names and addresses: `n0` at 10.0.1.0, and so on.
    pub fn of_many(plan: Plan, count: u8) -> (Self, Vec<(String, IpAddr)>) {
        let peers: Vec<_> = (0..count).map(|i| (format!("n{i}"), IpAddr::from([10, 0, 1, i]))).collect();
        let mut world = Self::new(plan, &[]);
        world.apply(peers.iter().map(|(node, address)| spec(node, *address)).collect());
        (world, peers)
    }

    /// The monotonic time.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// The wire.
    pub fn wire(&mut self) -> &mut LossyWire {
        self.prober.wire()
    }

    /// A new list takes effect.
    pub fn apply(&mut self, list: Vec<PeerSpec>) {
        self.list.clone_from(&list);
        let own = Own { node: "self".into(), ..Own::default() };
        let applied = self.directory.apply(PeerList { peers: list }, &own, self.clock.now());
        assert_eq!(applied.without_slot, 0);
        for change in applied.changes {
            self.statistics.apply(change);
            self.prober.apply(change);
        }
    }

    /// Closes up what forgotten peers have left, if that is worth it. Returns whether it was.
    pub fn compact(&mut self) -> bool {
        let Some(compaction) = self.directory.compact() else { return false };
        self.statistics.compact(&compaction);
        self.prober.compact(&compaction);
        true
    }

    /// A node gets no more probes; what is under way stays so.
    pub fn pause(&mut self, node: &str) {
        let (slot, _) = self.directory.peers().find(|(_, peer)| peer.node() == node).expect("a peer of that name");
        self.prober.pause(slot);
    }

    /// Turns, as often as it takes to read everything.
    pub fn turn(&mut self) {
        for _ in 0..10_000 {
            if self.turn_once() {
                return;
            }
        }
        panic!("never drained");
    }

    /// One turn. Returns whether everything was read.
    pub fn turn_once(&mut self) -> bool {
        self.statistics.tick(self.clock.now());
        self.touched.clear();
        let mut tap = Tap { statistics: &self.statistics, touched: &mut self.touched };
        let drained = self.prober.turn(&mut tap);
        self.touched.sort_unstable();
        self.touched.dedup();
        for slot in std::mem::take(&mut self.touched) {
            self.check(slot, drained);
        }
        drained
    }

    fn check(&mut self, slot: SlotId, drained: bool) {
        let got = self.statistics.slot(slot).expect("a slot in use").read();
        assert!(got.received + got.lost <= got.sent, "{slot:?}: {got:?}");
        assert_eq!(got.rtt.count(), got.received, "{slot:?}: {got:?}");
        if drained && self.steady {
            let address = self.directory.peer(slot).expect("a peer").address();
            let timeout = self.plan.timeout;
            let under_way = self.wire().under_way(address, timeout);
            assert_eq!(got.sent, got.received + got.lost + under_way, "{slot:?}: {under_way} under way, {got:?}");
        }
    }

    /// Lives for `span`: turns whenever something is due or has arrived, and at the end.
    pub fn run(&mut self, span: Nanos) {
        let end = self.now().plus(span);
        while self.run_to_next(end) {}
    }

    /// Lives until `count` requests to `address` have been tried.
    pub fn run_until_tried(&mut self, address: IpAddr, count: usize) {
        let end = self.now().plus(Nanos(self.plan.interval.0 * (count as u64 + 2)));
        while self.wire().log(address).len() < count {
            assert!(self.run_to_next(end), "{count} probes take no longer than {end:?}");
        }
    }

    /// Lives until nothing is under way and everything is read.
    pub fn settle(&mut self) {
        let end = self.now().plus(Nanos(100 * self.plan.interval.0 + 100 * self.plan.timeout.0));
        let timeout = self.plan.timeout;
        while self.wire().all_under_way(timeout) > 0 || self.wire().unread() > 0 {
            assert!(self.now() < end, "something stays under way");
            // Not only when the agent wakes: it decides losses when it sends next, which are under way then.
            let soon = self.now().plus(Nanos(MS));
            self.run_to_next(soon);
        }
    }

    /// Goes to the next moment at which the agent would wake, or to `end`, and turns. Returns whether `end` is ahead.
    fn run_to_next(&mut self, end: Nanos) -> bool {
        let next = [self.prober.next_turn(), self.wire().next_arrival()].into_iter().flatten().min();
        let at = next.map_or(end, |next| next.min(end));
        self.clock.advance(at.since(self.now()));
        self.turn();
        at < end
    }

    /// Time passes and nobody turns: no processor, or a suspended machine.
    pub fn stand_still(&mut self, span: Nanos) {
        self.clock.advance(span);
    }

    /// The counters of a node; of its first slot, where it has two.
    pub fn read(&self, node: &str) -> PeerReading {
        let (slot, _) = self.directory.peers().find(|(_, peer)| peer.node() == node).expect("a peer of that name");
        self.statistics.slot(slot).expect("its statistics").read()
    }

    /// Asserts every counter of a node; the histogram must hold as many values as there were answers.
    pub fn expect(&self, node: &str, expected: PeerReading) {
        let got = self.read(node);
        assert_eq!(got, PeerReading { rtt: got.rtt, ..expected }, "{node}");
        assert_eq!(got.rtt.count(), expected.received, "{node}");
    }

    /// The buckets of a node's histogram that hold anything, as upper bounds in microseconds (none: +Inf) and counts.
    pub fn buckets(&self, node: &str) -> Vec<(Option<u64>, u64)> {
        let bounds = self.statistics.bounds().as_slice();
        let filled = self.read(node).rtt.buckets.into_iter().enumerate().filter(|(_, count)| *count > 0);
        filled.map(|(i, count)| (bounds.get(i).map(|bound| bound.0 / 1_000), count)).collect()
    }
}
