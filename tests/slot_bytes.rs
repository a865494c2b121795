//! The memory of a peer, stage by stage, which is freed when peers leave. It is measured in whole
//! resident pages, as the kernel counts them, not computed by hand.

#[path = "scenario/clock.rs"]
#[expect(dead_code, reason = "this test never steps the clock")]
mod clock;
#[path = "common/leaks.rs"]
mod leaks;

use std::net::{IpAddr, Ipv4Addr};

use clock::ScriptedClock;
use kube_canary::allocator::finder::unfollowed;
use kube_canary::discovery::{PeerList, PeerSpec};
use kube_canary::limits::{HOUR_PEERS_MAX, HOUR_STEP};
use kube_canary::peers::{Directory, Family, Method, OwnNode};
use kube_canary::prober::{Clock, Delivery, EchoWire, Icmp, Outgoing, Prober, SendError, Settings, SocketKind, Wire};
use kube_canary::statistics::{Scale, Statistics};
use kube_canary::units::Nanos;
use leaks::NoLeaks;

const PEERS: u32 = 5_000;
const INTERVAL: Nanos = Nanos::from_millis(1_000);

/// A wire that accepts everything and returns nothing.
struct Void;

impl EchoWire for Void {
    fn identify(&mut self, _identifier: u16) {}

    fn kind(&self, _family: Family) -> SocketKind {
        SocketKind::Datagram
    }
}

impl Wire for Void {
    fn send(&mut self, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, Result<(), SendError>)) {
        (0..packets.len()).for_each(|index| sent(index, Ok(())));
    }

    fn receive(&mut self, _clock: &dyn Clock, _deliver: &mut dyn FnMut(Delivery<'_>)) -> bool {
        true
    }
}

struct Agent {
    directory: Directory,
    statistics: Statistics,
    prober: Prober<Icmp<Void>, ScriptedClock>,
    clock: ScriptedClock,
}

impl Agent {
    fn new() -> Self {
        let clock = ScriptedClock::new();
        let settings = Settings {
            interval: INTERVAL,
            timeout: INTERVAL,
            node: "self".into(),
            doubts: false,
            new_peer_silence: Nanos(0),
            replies_wait: Nanos::from_millis(250),
        };
        Self {
            directory: Directory::default(),
            // As in a mesh in which all nodes probe all others.
            statistics: Statistics::new(Scale::default().with_schema(Scale::schema_of(None)), INTERVAL),
            prober: Icmp::prober(Void, clock.clone(), &settings, 56),
            clock,
        }
    }

    /// Applies a list, and runs with it for some seconds. Returns the bytes of the names in it.
    fn live_with(&mut self, numbers: impl Iterator<Item = u32>) -> usize {
        let spec = |number: u32| PeerSpec {
            zone: Some(format!("zone-{}", number % 3)),
            ..PeerSpec::pod(format!("node-{number}"), IpAddr::V4(Ipv4Addr::from(0x0a01_0000 + number)))
        };
        let list = PeerList { peers: numbers.map(spec).collect() };
        let names = list.peers.iter().map(|peer| peer.node.len()).sum();
        let own = OwnNode { node: "self".into(), ..OwnNode::default() };
        let applied = self.directory.apply(list, &own, self.clock.now());
        assert_eq!(applied.without_slot, 0);
        self.prober.reserve(self.directory.slot_count());
        for change in applied.changes {
            self.statistics.apply(change);
            self.prober.apply(change);
        }
        let end = self.clock.now().plus(Nanos(5 * INTERVAL.0));
        while self.clock.now() < end {
            self.statistics.tick(self.clock.now());
            while !self.prober.turn(&mut |observation| self.statistics.record(Method::Icmp, observation)) {}
            self.clock.advance(Nanos::from_millis(10));
        }
        names
    }

    /// Stops probing the peers that left.
    fn stop(&mut self) {
        for change in self.directory.stop(self.clock.now(), INTERVAL) {
            self.statistics.apply(change);
            self.prober.apply(change);
        }
    }

    fn compact(&mut self) {
        assert!(self.directory.forget(self.clock.now(), INTERVAL));
        let compaction = self.directory.compact().expect("holes");
        self.statistics.compact(&compaction);
        self.prober.compact(&compaction);
    }

    /// Advances by a minute, without probes.
    fn end_minute(&mut self) {
        self.clock.advance(HOUR_STEP.into());
        self.statistics.tick(self.clock.now());
    }

    /// The resident bytes of statistics, directory, prober and hours.
    fn resident(&self) -> [usize; 4] {
        let hours = self.statistics.hour_resident_bytes();
        [self.statistics.resident_bytes(), self.directory.resident_bytes(), self.prober.resident_bytes(), hours]
    }
}

#[test]
fn an_hour_costs_what_the_documentation_says_and_no_more_beyond_the_limit() {
    let _no_leaks = NoLeaks::here();
    for (peers, expected) in [(10, 4_096), (300, 300_usize.div_ceil(32) * 4_096), (PEERS, HOUR_PEERS_MAX * 128)] {
        let mut agent = Agent::new();
        agent.live_with(0..peers);
        let [.., fresh] = agent.resident();
        // The table is allocated at the start, and not later: its size shortly after the start is
        // the same after three minutes.
        (0..3).for_each(|_| agent.end_minute());
        let [.., hours] = agent.resident();
        unfollowed(|| println!("{peers} peers: {hours} bytes of hours"));
        assert_eq!((fresh, hours), (expected, expected), "{peers} peers");
    }
}

#[test]
fn a_peer_costs_what_the_documentation_says() {
    let _no_leaks = NoLeaks::here();
    let mut agent = Agent::new();
    let names = agent.live_with(0..PEERS) as f64 / f64::from(PEERS);
    let [statistics, directory, prober, hours] = agent.resident().map(|bytes| bytes as f64 / f64::from(PEERS));
    unfollowed(|| println!("statistics: {statistics:.1} bytes"));
    unfollowed(|| println!("directory:  {directory:.1} bytes, of which the name is {names:.1}"));
    unfollowed(|| println!("prober:     {prober:.1} bytes, at timeout = interval"));
    unfollowed(|| println!("hours:      {hours:.1} bytes, of {HOUR_PEERS_MAX} peers"));
    let together = statistics + directory + prober + hours;
    unfollowed(|| println!("together:   {together:.1} bytes"));
    assert!(together <= 310.0, "{together}");
    // The last page of each table is not full.
    let expected = agent.statistics.resident_bytes_per_peer() as f64;
    assert!((expected - 1.0..=expected + 3.0).contains(&statistics), "{statistics} {expected}");
    assert!((31.0..=34.0 + names).contains(&directory), "{directory} with a name of {names}");
    assert!((50.0..=66.0).contains(&prober), "{prober}");
}

#[test]
fn memory_comes_back_when_peers_leave_as_often_as_they_do() {
    let _no_leaks = NoLeaks::here();
    let mut fresh = Agent::new();
    // The remaining peers are neither the first, nor the last, nor side by side.
    let remaining = || (0..10).map(|number| number * 487 + 300);
    fresh.live_with(remaining());
    let (mut agent, mut waves) = (Agent::new(), Vec::new());
    for wave in 1..=10 {
        agent.live_with(remaining().chain((1..PEERS).map(|of| wave * PEERS + of)));
        let full: usize = agent.resident().iter().sum();
        assert!(full > PEERS as usize * 200, "{full}");
        agent.live_with(remaining());
        agent.stop();
        agent.live_with(remaining());
        agent.end_minute();
        agent.compact();
        agent.end_minute();
        agent.live_with(remaining());
        waves.push(agent.resident());
    }
    unfollowed(|| {
        println!("bytes with ten peers, freshly started and after each wave: {:?}, {waves:?}", fresh.resident());
    });
    assert!(waves.iter().all(|resident| *resident == fresh.resident()));
    let statistics = |slot| agent.statistics.method(Method::Icmp).slot(slot).expect("a slot in use").read();
    let sent: Vec<u64> = agent.directory.peers().map(|(slot, _)| statistics(slot).sent).collect();
    assert!(sent.iter().all(|sent| *sent >= 10 * 15 - 1), "and they went on counting: {sent:?}");
}
