//! An agent without sockets and HTTP: applies lists and turns the prober as `src/agent.rs` does.

use std::net::IpAddr;

use kube_canary::discovery::{PeerList, PeerSpec, Readiness};
use kube_canary::limits::{DOUBT_TIME, LEAVE_GRACE};
use kube_canary::peers::{Change, Directory, Own, SlotId};
use kube_canary::prober::{Clock, Event, Prober, Settings, Sink, SocketKind};
use kube_canary::statistics::{HistogramReading, PeerReading, Scale, Statistics};
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
    /// The source of the list answers questions.
    pub doubts: bool,
}

/// As the agent's defaults are, but for doubts.
pub const AGENT_PLAN: Plan = Plan {
    interval: SECOND,
    timeout: SECOND,
    payload_bytes: 56,
    kinds: [SocketKind::Datagram; 2],
    forget_after: Nanos::from_millis(300_000),
    doubts: false,
};

impl Default for Plan {
    /// A timeout well below the interval, so that there are moments with nothing under way.
    fn default() -> Self {
        Self { timeout: Nanos::from_millis(200), ..AGENT_PLAN }
    }
}

/// What makes a list of the one before.
pub type Edit = Box<dyn FnOnce(&mut Vec<PeerSpec>)>;

/// What the source of the list says, when its time comes.
pub enum Saying {
    /// A new list, made of the one before.
    List(Edit),
    /// The list is right about this address.
    Sure(IpAddr),
    /// Nobody can say of this address.
    Unsure(IpAddr),
}

/// What a source makes of a question.
pub enum Answer {
    /// It has no room for it.
    Refused,
    /// It says this, each after so long; nothing may come of it.
    Sayings(Vec<(Nanos, Saying)>),
}

/// What has happened, for a second opinion on what must have been counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The prober has turned.
    Turn,
    /// The prober was told of a change.
    Change(Change),
    /// It was told that the list is right about this address.
    Sure(IpAddr),
    /// It was told that nobody can say.
    Unsure(IpAddr),
    /// It asked about this address, and whether that was taken.
    Question(IpAddr, bool),
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
    /// What a question brings. By default, nothing.
    pub source: Box<dyn FnMut(Nanos, IpAddr) -> Answer>,
    /// What the source is going to say.
    coming: Vec<(Nanos, Saying)>,
    /// What has happened, and when; kept where doubts are.
    pub journal: Vec<(Nanos, Entry)>,
    /// Nobody is woken for replies, where the prober says so.
    pub rests: bool,
    /// Turns so far.
    pub turns: u64,
    /// Peers that had left and were stopped, and when.
    pub stopped: Vec<(Nanos, String)>,
    housekept: Nanos,
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

fn take_due(coming: &mut Vec<(Nanos, Saying)>, now: Nanos) -> Option<(Nanos, Saying)> {
    coming.first().is_some_and(|(at, _)| *at <= now).then(|| coming.remove(0))
}

/// The list without the peer at `address`.
pub fn gone(address: IpAddr) -> Saying {
    Saying::List(Box::new(move |list| list.retain(|peer| peer.address != address)))
}

/// The list with the peer at `address` in another state, or at another address.
pub fn put(address: IpAddr, to: IpAddr, readiness: Readiness) -> Saying {
    Saying::List(Box::new(move |list| {
        for peer in list.iter_mut().filter(|peer| peer.address == address) {
            (peer.address, peer.readiness) = (to, readiness);
        }
    }))
}

/// An entry of a list.
pub fn spec(node: &str, address: IpAddr) -> PeerSpec {
    PeerSpec::pod(node, address)
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
            doubts: plan.doubts,
            replies_wait: Nanos(250 * MS),
        };
        let mut world = Self {
            plan,
            prober: Prober::new(wire, clock.clone(), &settings),
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

    /// The source will say this.
    pub fn say(&mut self, after: Nanos, saying: Saying) {
        self.coming.push((self.now().plus(after), saying));
        // Stable: what was said first comes first.
        self.coming.sort_by_key(|(at, _)| *at);
    }

    /// Whoever left long ago is probed no more.
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

    /// As the agent does, when it looks after those who left. Returns whether a slot was freed.
    pub fn forget(&mut self) -> bool {
        self.forget_as_of(self.now())
    }

    /// The same, as if it were `now`.
    pub fn forget_as_of(&mut self, now: Nanos) -> bool {
        self.stop(now);
        self.directory.forget(now, self.plan.forget_after)
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
                    self.prober.sure(address);
                }
                Saying::Unsure(address) => {
                    self.note(Entry::Unsure(address));
                    self.prober.unsure(address);
                }
            }
        }
        if now.since(self.housekept) >= SECOND {
            self.housekept = now;
            self.stop(now);
        }
        self.touched.clear();
        let mut tap = Tap { statistics: &self.statistics, touched: &mut self.touched };
        let drained = self.prober.turn(&mut tap);
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
        let in_slot = self.statistics.slot(slot).expect("a slot in use");
        let got = in_slot.read();
        assert!(got.received + got.lost <= got.sent, "{slot:?}: {got:?}");
        assert_eq!(in_slot.rtt().count(), got.received, "{slot:?}: {got:?}");
        if drained && self.steady {
            let address = self.directory.peer(slot).expect("a peer").address();
            let timeout = self.plan.timeout;
            let under_way = self.wire().under_way(address, timeout);
            let open = got.sent - got.received - got.lost;
            if self.plan.doubts {
                // Withheld losses are under way: for as long as it takes to decide them.
                let slack = Nanos(timeout.0 + Nanos::from(DOUBT_TIME).0 + 125 * MS);
                assert!(open >= under_way && open <= self.wire().under_way(address, slack), "{slot:?}: {got:?}");
            } else {
                assert_eq!(open, under_way, "{slot:?}: {got:?}");
            }
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
        let said = self.coming.first().map(|(at, _)| *at);
        let is_woken = !self.rests || !self.wire().turns_are_frequent;
        let arrival = self.wire().next_arrival().filter(|_| is_woken);
        let next = [self.prober.next_turn(), arrival, said].into_iter().flatten().min();
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
        assert_eq!(got, PeerReading { created: got.created, ..expected }, "{node}");
        assert_eq!(self.rtt(node).count(), expected.received, "{node}");
    }

    /// The buckets of a node's histogram that hold anything, as upper bounds in microseconds (none: +Inf) and counts.
    pub fn buckets(&self, node: &str) -> Vec<(Option<u64>, u64)> {
        let scale = self.statistics.scale();
        let (classic, bounds) = (self.rtt(node).classic(scale), scale.bounds().as_slice());
        let ends = bounds.iter().map(|bound| Some(bound.0 / 1_000)).chain([None]);
        let up_to = classic.up_to[..bounds.len()].iter().chain([&classic.count]);
        let below = [0].iter().chain(&classic.up_to);
        let counts = up_to.zip(below).map(|(up_to, below)| up_to - below);
        ends.zip(counts).filter(|(_, count)| *count > 0).collect()
    }

    /// The round-trip times of a node.
    pub fn rtt(&self, node: &str) -> HistogramReading {
        let (slot, _) = self.directory.peers().find(|(_, peer)| peer.node() == node).expect("a peer of that name");
        self.statistics.slot(slot).expect("its statistics").rtt()
    }
}
