//! An agent without sockets and HTTP: applies lists and turns the prober as `src/agent.rs` does.

use std::net::IpAddr;

use kube_canary::discovery::{PeerList, PeerSpec, Readiness};
use kube_canary::limits::{DOUBT_TIME, LEAVE_GRACE};
use kube_canary::peers::{Change, Directory, Method, OwnNode, SlotId};
use kube_canary::prober::{Clock, Icmp, Observation, Prober, Settings, SocketKind};
use kube_canary::statistics::{HistogramReading, PeerReading, Scale, Statistics};
use kube_canary::units::Nanos;

use super::clock::ScriptedClock;
use super::leaks::NoLeaks;
use super::wire::LossyWire;

/// A millisecond, in nanoseconds.
pub const MS: u64 = 1_000_000;
/// A second, as a time span.
pub const SECOND: Nanos = Nanos::from_millis(1_000);

/// The parameters of a world.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The interval between probes to one peer.
    pub interval: Nanos,
    /// The timeout of a probe.
    pub timeout: Nanos,
    /// The payload of a request.
    pub payload_bytes: usize,
    /// The kinds of the IPv4 and the IPv6 socket.
    pub kinds: [SocketKind; 2],
    /// How long a peer that left keeps its slot.
    pub forget_after: Nanos,
    /// Whether the source of the list answers questions.
    pub doubts: bool,
}

/// The agent's defaults, but without doubts.
pub const AGENT_PLAN: Plan = Plan {
    interval: SECOND,
    timeout: SECOND,
    payload_bytes: 56,
    kinds: [SocketKind::Datagram; 2],
    forget_after: Nanos::from_millis(300_000),
    doubts: false,
};

impl Default for Plan {
    /// The timeout is well below the interval, so there are moments with no probe in flight.
    fn default() -> Self {
        Self { timeout: Nanos::from_millis(200), ..AGENT_PLAN }
    }
}

/// A change of a list.
pub type Edit = Box<dyn FnOnce(&mut Vec<PeerSpec>)>;

/// An answer of the source of the list, when its time comes.
pub enum Saying {
    /// A new list, made of the one before.
    List(Edit),
    /// The list is right about this address.
    Sure(IpAddr),
    /// The source does not know this address.
    Unsure(IpAddr),
}

/// The reaction of a source to a question.
pub enum Answer {
    /// It has no room for the question.
    Refused,
    /// It answers this, each after this long. The list may be empty.
    Sayings(Vec<(Nanos, Saying)>),
}

/// An event, for a second opinion on the expected counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The prober has turned.
    Turn,
    /// The prober received a change.
    Change(Change),
    /// The source was sure that the list is right about this address.
    Sure(IpAddr),
    /// The source was unsure about this address.
    Unsure(IpAddr),
    /// The prober asked about this address, and whether the question was accepted.
    Question(IpAddr, bool),
}

/// An agent and its surroundings.
pub struct World {
    /// The parameters of this world.
    pub plan: Plan,
    /// The clock of all stages.
    pub clock: ScriptedClock,
    /// The stage under test.
    pub prober: Prober<Icmp<LossyWire>, ScriptedClock>,
    /// What the prober has observed.
    pub statistics: Statistics,
    /// The names and their slots.
    pub directory: Directory,
    /// The list in force.
    pub list: Vec<PeerSpec>,
    /// Whether `sent = received + lost + in flight` holds at any moment. It does not while a peer
    /// moves or leaves with probes in flight, which keep their place in `sent` until the
    /// next probe takes it.
    pub steady: bool,
    /// The answer to a question. By default, there is none.
    pub source: Box<dyn FnMut(Nanos, IpAddr) -> Answer>,
    /// The coming answers of the source.
    coming: Vec<(Nanos, Saying)>,
    /// All events with their times. It is kept only with doubts.
    pub journal: Vec<(Nanos, Entry)>,
    /// Whether replies do not wake the agent when the prober says so.
    pub rests: bool,
    /// The number of turns so far.
    pub turns: u64,
    /// Peers that had left and were stopped, and when.
    pub stopped: Vec<(Nanos, String)>,
    housekept: Nanos,
    touched: Vec<SlotId>,
    /// Declared last, so that it is dropped last.
    _no_leaks: NoLeaks,
}

fn take_due(coming: &mut Vec<(Nanos, Saying)>, now: Nanos) -> Option<(Nanos, Saying)> {
    coming.first().is_some_and(|(at, _)| *at <= now).then(|| coming.remove(0))
}

/// Removes the peer at `address` from the list.
pub fn gone(address: IpAddr) -> Saying {
    Saying::List(Box::new(move |list| list.retain(|peer| peer.address != address)))
}

/// Changes the state or the address of the peer at `address` in the list.
pub fn put(address: IpAddr, to: IpAddr, readiness: Readiness) -> Saying {
    Saying::List(Box::new(move |list| {
        for peer in list.iter_mut().filter(|peer| peer.address == address) {
            (peer.address, peer.readiness) = (to, readiness);
        }
    }))
}

/// Returns an entry of a list.
pub fn spec(node: &str, address: IpAddr) -> PeerSpec {
    PeerSpec::pod(node, address)
}

/// Returns an address from its text.
pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl World {
    /// A world with these peers, all of which answer after 100 µs.
    pub fn new(plan: Plan, peers: &[(&str, &str)]) -> Self {
        let no_leaks = NoLeaks::here();
        let clock = ScriptedClock::new();
        let wire = LossyWire::new(clock.clone(), plan.kinds);
        let settings = Settings {
            interval: plan.interval,
            timeout: plan.timeout,
            node: "self".into(),
            doubts: plan.doubts,
            new_peer_silence: Nanos(0),
            replies_wait: Nanos(250 * MS),
        };
        let mut world = Self {
            plan,
            prober: Icmp::prober(wire, clock.clone(), &settings, plan.payload_bytes),
            clock,
            statistics: Statistics::new(Scale::default(), plan.interval),
            directory: Directory::default(),
            list: Vec::new(),
            steady: true,
            source: Box::new(|_, _| Answer::Sayings(Vec::new())),
            coming: Vec::new(),
            journal: Vec::new(),
            rests: false,
            turns: 0,
            stopped: Vec::new(),
            housekept: Nanos(0),
            touched: Vec::new(),
            _no_leaks: no_leaks,
        };
        world.apply(peers.iter().map(|(node, address)| spec(node, ip(address))).collect());
        world
    }

    /// A world with this many peers. Also returns their names and addresses: `n0` at
    /// 10.0.1.0, and so on.
    pub fn of_many(plan: Plan, count: u8) -> (Self, Vec<(String, IpAddr)>) {
        let peers: Vec<_> = (0..count).map(|i| (format!("n{i}"), IpAddr::from([10, 0, 1, i]))).collect();
        let mut world = Self::new(plan, &[]);
        world.apply(peers.iter().map(|(node, address)| spec(node, *address)).collect());
        (world, peers)
    }

    /// Returns the monotonic time.
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Returns the wire of the prober.
    pub fn wire(&mut self) -> &mut LossyWire {
        self.prober.wire()
    }

    /// Applies a new list, as the agent does.
    pub fn apply(&mut self, list: Vec<PeerSpec>) {
        self.list.clone_from(&list);
        let own = OwnNode { node: "self".into(), ..OwnNode::default() };
        let applied = self.directory.apply(PeerList { peers: list }, &own, self.clock.now());
        assert_eq!(applied.without_slot, 0);
        applied.changes.into_iter().for_each(|change| self.change(change));
    }

    fn change(&mut self, change: Change) {
        self.note(Entry::Change(change));
        self.statistics.apply(change);
        self.prober.apply(change);
    }

    fn note(&mut self, entry: Entry) {
        if self.plan.doubts {
            self.journal.push((self.clock.now(), entry));
        }
    }

    /// Makes the source give this answer after `after`.
    pub fn say(&mut self, after: Nanos, saying: Saying) {
        self.coming.push((self.now().plus(after), saying));
        // The sort is stable: of equal times, the first answer comes first.
        self.coming.sort_by_key(|(at, _)| *at);
    }

    /// Stops probing the peers that left long ago.
    fn stop(&mut self, now: Nanos) {
        let grace = self.plan.forget_after.min(LEAVE_GRACE.into());
        let changes: Vec<Change> = self.directory.stop(now, grace).collect();
        for change in changes {
            if let Change::Stop { slot } = change {
                self.stopped.push((now, self.directory.peer(slot).expect("a peer").node().to_owned()));
            }
            self.change(change);
        }
    }

    /// Forgets peers that left, as the agent does. Returns whether a slot was freed.
    pub fn forget(&mut self) -> bool {
        self.forget_as_of(self.now())
    }

    /// The same, as if it were `now`.
    pub fn forget_as_of(&mut self, now: Nanos) -> bool {
        self.stop(now);
        self.directory.forget(now, self.plan.forget_after)
    }

    /// Compacts the slots that forgotten peers have left, if that is worth it.
    /// Returns whether it was.
    pub fn compact(&mut self) -> bool {
        let Some(compaction) = self.directory.compact() else { return false };
        self.statistics.compact(&compaction);
        self.prober.compact(&compaction);
        true
    }

    /// Sends no more probes to a node. Probes in flight stay so.
    pub fn pause(&mut self, node: &str) {
        let (slot, _) = self.directory.peers().find(|(_, peer)| peer.node() == node).expect("a peer of that name");
        self.prober.pause(slot);
    }

    /// Turns as often as it takes to read everything.
    pub fn turn(&mut self) {
        for _ in 0..10_000 {
            if self.turn_once() {
                return;
            }
        }
        panic!("never drained");
    }

    /// Turns once. Returns whether everything was read.
    pub fn turn_once(&mut self) -> bool {
        let now = self.clock.now();
        self.turns += 1;
        self.statistics.tick(now);
        while let Some((_, saying)) = take_due(&mut self.coming, now) {
            match saying {
                Saying::List(edit) => {
                    let mut list = self.list.clone();
                    edit(&mut list);
                    self.apply(list);
                }
                Saying::Sure(address) => {
                    self.note(Entry::Sure(address));
                    self.prober.answered(address);
                }
                Saying::Unsure(address) => {
                    self.note(Entry::Unsure(address));
                    self.prober.answered(address);
                }
            }
        }
        if now.since(self.housekept) >= SECOND {
            self.housekept = now;
            self.stop(now);
        }
        self.touched.clear();
        let Self { statistics, touched, prober, .. } = self;
        let drained = prober.turn(&mut |observation| {
            if let Observation::Probe { slot, .. } = observation {
                touched.push(slot);
            }
            statistics.record(Method::Icmp, observation);
        });
        self.touched.sort_unstable();
        self.touched.dedup();
        for slot in std::mem::take(&mut self.touched) {
            self.check(slot, drained);
        }
        self.note(Entry::Turn);
        let mut asked = Vec::new();
        self.prober.ask(|address| {
            let answer = (self.source)(now, address);
            let taken = !matches!(answer, Answer::Refused);
            asked.push((address, answer));
            taken
        });
        for (address, answer) in asked {
            self.note(Entry::Question(address, !matches!(answer, Answer::Refused)));
            if let Answer::Sayings(sayings) = answer {
                for (after, saying) in sayings {
                    self.say(after, saying);
                }
            }
        }
        drained
    }

    fn check(&mut self, slot: SlotId, drained: bool) {
        let in_slot = self.statistics.method(Method::Icmp).slot(slot).expect("a slot in use");
        let got = in_slot.read();
        assert!(got.received + got.lost <= got.sent, "{slot:?}: {got:?}");
        assert_eq!(in_slot.rtt().count(), got.received, "{slot:?}: {got:?}");
        if drained && self.steady {
            let address = self.directory.peer(slot).expect("a peer").address();
            let timeout = self.plan.timeout;
            let in_flight = self.wire().in_flight(address, timeout);
            let open = got.sent - got.received - got.lost;
            if self.plan.doubts {
                // Withheld losses count as in flight for as long as it takes to decide them.
                let slack = Nanos(timeout.0 + Nanos::from(DOUBT_TIME).0 + 125 * MS);
                assert!(open >= in_flight && open <= self.wire().in_flight(address, slack), "{slot:?}: {got:?}");
            } else {
                assert_eq!(open, in_flight, "{slot:?}: {got:?}");
            }
        }
    }

    /// Runs for `span`: turns whenever something is due or has arrived, and at the end.
    pub fn run(&mut self, span: Nanos) {
        let end = self.now().plus(span);
        while self.run_to_next(end) {}
    }

    /// Runs until `count` requests to `address` have been tried.
    pub fn run_until_tried(&mut self, address: IpAddr, count: usize) {
        let end = self.now().plus(Nanos(self.plan.interval.0 * (count as u64 + 2)));
        while self.wire().log(address).len() < count {
            assert!(self.run_to_next(end), "{count} probes take no longer than {end:?}");
        }
    }

    /// Runs until no probe is in flight and everything is read.
    pub fn settle(&mut self) {
        let end = self.now().plus(Nanos(100 * self.plan.interval.0 + 100 * self.plan.timeout.0));
        let timeout = self.plan.timeout;
        while self.wire().all_in_flight(timeout) > 0 || self.wire().unread() > 0 {
            assert!(self.now() < end, "a packet remains in flight");
            // It does not wait for the agent to wake: the agent decides losses when it sends next,
            // and those probes are then in flight.
            let soon = self.now().plus(Nanos(MS));
            self.run_to_next(soon);
        }
    }

    /// Advances to the next moment at which the agent would wake, or to `end`, and turns. Returns
    /// whether `end` is ahead.
    fn run_to_next(&mut self, end: Nanos) -> bool {
        let said = self.coming.first().map(|(at, _)| *at);
        let is_woken = !self.rests || !self.wire().turns_are_frequent;
        let arrival = self.wire().next_arrival().filter(|_| is_woken);
        let next = [self.prober.next_turn(), arrival, said].into_iter().flatten().min();
        let at = next.map_or(end, |next| next.min(end));
        self.clock.advance(at.since(self.now()));
        self.turn();
        at < end
    }

    /// Time passes without a turn: the agent has no CPU, or the machine is suspended.
    pub fn stand_still(&mut self, span: Nanos) {
        self.clock.advance(span);
    }

    /// The counters of a node, of its first slot if it has two.
    pub fn read(&self, node: &str) -> PeerReading {
        let (slot, _) = self.directory.peers().find(|(_, peer)| peer.node() == node).expect("a peer of that name");
        self.statistics.method(Method::Icmp).slot(slot).expect("its statistics").read()
    }

    /// Asserts every counter of a node. The histogram must contain as many values
    /// as there were answers.
    pub fn expect(&self, node: &str, expected: PeerReading) {
        let got = self.read(node);
        assert_eq!(got, PeerReading { created: got.created, ..expected }, "{node}");
        assert_eq!(self.rtt(node).count(), expected.received, "{node}");
    }

    /// The buckets of a node's histogram that are not empty, as upper bounds in microseconds
    /// (`None`: +Inf) and counts.
    pub fn buckets(&self, node: &str) -> Vec<(Option<u64>, u64)> {
        let scale = self.statistics.scale();
        let (classic, bounds) = (self.rtt(node).classic(scale), scale.bounds().as_slice());
        let ends = bounds.iter().map(|bound| Some(bound.0 / 1_000)).chain([None]);
        let up_to = classic.up_to[..bounds.len()].iter().chain([&classic.count]);
        let below = [0].iter().chain(&classic.up_to);
        let counts = up_to.zip(below).map(|(up_to, below)| up_to - below);
        ends.zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the round-trip times of a node.
    pub fn rtt(&self, node: &str) -> HistogramReading {
        let (slot, _) = self.directory.peers().find(|(_, peer)| peer.node() == node).expect("a peer of that name");
        self.statistics.method(Method::Icmp).slot(slot).expect("its statistics").rtt()
    }
}
