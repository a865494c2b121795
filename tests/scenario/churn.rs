//! A large mesh in which every second a tenth of the peers is replaced, moved, terminated, removed
//! or returned. From time to time, most of them leave for good.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use kube_canary::discovery::{PeerSpec, Readiness};
use kube_canary::peers::{Method, SlotId};
use kube_canary::statistics::PeerReading;
use kube_canary::units::Nanos;

use super::oracle::{Place, disowned, expected};
use super::random::Random;
use super::wire::{Fate, Probe};
use super::world::{MS, Plan, SECOND, World, ip, spec};

const PEERS: usize = 1_000;
const CHANGES_PER_SECOND: usize = PEERS / 10;
const SECONDS: u64 = 180;
const FORGET_AFTER: u64 = 20;
/// The interval in seconds at which three quarters leave. As many others come after
/// half of that time.
const EXODUS: u64 = 60;
/// One of this many nodes is behind a link that loses 1 %.
const LOSSY_ONE_IN: u64 = 10;

/// The test's record of a node, since it was first listed or last forgotten.
#[derive(Debug)]
struct Node {
    places: Vec<Place>,
    listed: bool,
    addresses: Vec<IpAddr>,
    terminating_until: Option<u64>,
    away_until: Option<u64>,
    lossy: bool,
}

impl Node {
    fn place(&self) -> Place {
        *self.places.last().expect("was somewhere")
    }

    fn probes<'a>(&self, world: &'a mut World) -> Vec<(IpAddr, &'a Probe)> {
        let wire = &*world.wire();
        let of = |address: &IpAddr| wire.log(*address).iter().map(|probe| (*address, probe)).collect::<Vec<_>>();
        let mut probes: Vec<_> = self.addresses.iter().flat_map(of).collect();
        probes.sort_by_key(|(_, probe)| probe.sent_at);
        probes
    }
}

struct Mesh {
    random: Random,
    nodes: HashMap<String, Node>,
    /// Names, in an order that is the same in every run.
    names: Vec<String>,
    addresses: u32,
    second: u64,
    /// Losses on lossy links, of nodes that were verified for the last time.
    lost: u64,
    disowned: u64,
    peak: usize,
    returned: u64,
    reborn: u64,
    compacted: u64,
    stops: u64,
    /// Dropped last, because it checks for leaks.
    world: World,
}

impl Mesh {
    fn new(seed: u64) -> Self {
        let plan = Plan { payload_bytes: 24, forget_after: Nanos(FORGET_AFTER * SECOND.0), ..Plan::default() };
        let mut world = World::new(plan, &[]);
        world.steady = false;
        let mut mesh = Self {
            world,
            random: Random(seed),
            nodes: HashMap::new(),
            names: Vec::new(),
            addresses: 0,
            second: 0,
            lost: 0,
            disowned: 0,
            peak: 0,
            returned: 0,
            reborn: 0,
            compacted: 0,
            stops: 0,
        };
        (0..PEERS).for_each(|i| mesh.join(format!("node{i}")));
        mesh
    }

    /// A fresh address, on a link as lossy as the node's. Replies take 5 to 85 ms, so that many
    /// probes are in flight at each change.
    fn address(&mut self, lossy: bool) -> IpAddr {
        self.addresses += 1;
        let address = Ipv4Addr::from(0x0a00_0100 + self.addresses).into();
        let mut of_link = Random(self.random.next());
        self.world.wire().script(address, move |_| {
            if lossy && of_link.chance(1) { Fate::lost() } else { Fate::reply(5_000 + of_link.below(80_000)) }
        });
        address
    }

    fn join(&mut self, name: String) {
        let lossy = self.random.below(LOSSY_ONE_IN) == 0;
        let address = self.address(lossy);
        let place = Place { since: self.world.now(), address: Some(address), terminating: false };
        let node = Node {
            places: vec![place],
            listed: true,
            addresses: vec![address],
            terminating_until: None,
            away_until: None,
            lossy,
        };
        assert!(self.nodes.insert(name.clone(), node).is_none());
        self.names.push(name);
    }

    /// Moves a node to another address, removes it from the list, or makes it terminating. A
    /// removed node is still probed for a while.
    fn put(&mut self, name: &str, address: Option<IpAddr>, terminating: bool) {
        let since = self.world.now();
        let node = self.nodes.get_mut(name).expect("a node");
        if let Some(address) = address.filter(|address| !node.addresses.contains(address)) {
            node.addresses.push(address);
        }
        node.listed = address.is_some();
        let place = match address {
            Some(_) => Place { since, address, terminating },
            None => Place { since, terminating: true, ..node.place() },
        };
        node.places.push(place);
    }

    /// Processes the peers that left, have not come back, and were stopped.
    fn stopped(&mut self) {
        for (since, name) in std::mem::take(&mut self.world.stopped) {
            let node = self.nodes.get_mut(&name).expect("a node");
            let after = since.since(node.place().since);
            assert!(!node.listed && after > Nanos(9 * SECOND.0) && after <= Nanos(11 * SECOND.0), "{name}: {node:?}");
            node.places.push(Place { since, address: None, terminating: false });
            self.stops += 1;
        }
    }

    fn go_elsewhere(&mut self, name: &str) {
        let (before, lossy) = (self.nodes[name].addresses.last().copied(), self.nodes[name].lossy);
        let address = self.address(lossy);
        self.put(name, Some(address), false);
        // The old pod may be dead by now, or still answer the probes that it was sent.
        if let Some(before) = before.filter(|_| self.random.chance(50)) {
            self.world.wire().silence(before);
        }
    }

    fn go_away(&mut self, name: &str, seconds: Option<u64>) {
        if let Some(address) = self.nodes[name].addresses.last().copied().filter(|_| self.random.chance(50)) {
            self.world.wire().silence(address);
        }
        self.put(name, None, false);
        let until = seconds.map(|seconds| self.second + seconds);
        self.nodes.get_mut(name).expect("a node").away_until = until;
    }

    /// Makes the changes that are due by now, and changes a tenth of the mesh besides.
    fn change(&mut self) {
        for name in self.names.clone() {
            let node = self.nodes.get_mut(&name).expect("a node");
            if node.away_until.take_if(|second| *second <= self.second).is_some() {
                let back = node.addresses.last().copied();
                self.returned += 1;
                if self.random.chance(50) { self.put(&name, back, false) } else { self.go_elsewhere(&name) }
            } else if node.terminating_until.take_if(|second| *second <= self.second).is_some() {
                let away = 1 + self.random.below(15);
                if self.random.chance(50) { self.go_elsewhere(&name) } else { self.go_away(&name, Some(away)) }
            }
        }
        for _ in 0..CHANGES_PER_SECOND {
            let name = self.names[usize::try_from(self.random.below(self.names.len() as u64)).unwrap()].clone();
            let place = self.nodes[&name].place();
            if place.since == self.world.now() || place.terminating || !self.nodes[&name].listed {
                continue;
            }
            match self.random.below(100) {
                0..20 => {
                    self.go_away(&name, None);
                    let fresh = format!("node{}", self.names.len() + usize::try_from(self.second).unwrap() * PEERS);
                    self.join(fresh);
                }
                20..50 => self.go_elsewhere(&name),
                50..70 => {
                    self.put(&name, place.address, true);
                    let until = self.second + 1 + self.random.below(4);
                    self.nodes.get_mut(&name).expect("a node").terminating_until = Some(until);
                }
                _ => {
                    let seconds = 1 + self.random.below(15);
                    self.go_away(&name, Some(seconds));
                }
            }
        }
    }

    /// Three quarters leave, and are forgotten before as many others come.
    fn exodus(&mut self) {
        if self.second % EXODUS == EXODUS / 4 {
            for name in self.names.clone() {
                let node = &self.nodes[&name];
                // A node that has come back at this very moment was in no list yet.
                if node.listed && node.place().since < self.world.now() && self.random.chance(75) {
                    self.go_away(&name, None);
                    self.nodes.get_mut(&name).expect("a node").terminating_until = None;
                }
            }
        } else if self.second % EXODUS == EXODUS * 3 / 4 {
            (0..PEERS * 3 / 4).for_each(|i| self.join(format!("late{}-{i}", self.second)));
        }
    }

    /// Removes all peers from the list.
    fn leave(&mut self) {
        for name in self.names.clone() {
            if self.nodes[&name].listed {
                self.put(&name, None, false);
            }
        }
        self.publish();
    }

    fn publish(&mut self) {
        let list = self.names.iter().filter_map(|name| {
            let place = Some(self.nodes[name].place()).filter(|_| self.nodes[name].listed)?;
            let readiness = if place.terminating { Readiness::Terminating } else { Readiness::Ready };
            Some(PeerSpec { readiness, ..spec(name, place.address?) })
        });
        let list = list.collect();
        self.world.apply(list);
        self.peak = self.peak.max(self.world.directory.peers().count());
        // A new peer in a slot starts at zero, whatever peer had the slot before.
        let now = self.world.now();
        for (slot, peer) in self.world.directory.peers() {
            if self.nodes[peer.node()].places[0].since == now {
                let read = self.world.statistics.method(Method::Icmp).slot(slot).unwrap().read();
                assert_eq!(read, PeerReading { created: read.created, ..PeerReading::default() }, "{}", peer.node());
            }
        }
    }

    /// Compares a node's counters with the oracle's.
    fn verify(&mut self, slot: SlotId, name: &str) {
        let got = self.world.statistics.method(Method::Icmp).slot(slot).expect("its statistics").read();
        let timeout = self.world.plan.timeout;
        let node = &self.nodes[name];
        let probes = node.probes(&mut self.world);
        let expected = expected(&node.places, &probes, timeout);
        self.disowned += disowned(&node.places, &probes);
        assert_eq!(got, PeerReading { created: got.created, ..expected }, "{name}: {node:?}");
        assert!(node.lossy || got.lost == 0, "{name}: {got:?}");
        self.lost += got.lost;
    }

    /// As in the agent, a peer that left long ago loses its slot. Some of those come
    /// back, as new peers.
    fn forget(&mut self) {
        let before: Vec<(SlotId, String)> =
            self.world.directory.peers().map(|(slot, peer)| (slot, peer.node().to_owned())).collect();
        let mut kept = self.world.directory.peers().map(|(slot, _)| slot).collect::<Vec<_>>();
        if self.world.forget() {
            kept = self.world.directory.peers().map(|(slot, _)| slot).collect();
        }
        for (slot, name) in before.into_iter().filter(|(slot, _)| !kept.contains(slot)) {
            self.verify(slot, &name);
            self.nodes.remove(&name);
            self.names.retain(|held| *held != name);
            if self.random.chance(20) {
                self.reborn += 1;
                self.join(name);
            }
        }
        self.compacted += u64::from(self.world.compact());
    }
}

#[test]
fn a_churning_mesh_of_a_thousand_shows_loss_on_the_lossy_links_alone() {
    let mut mesh = Mesh::new(7);
    mesh.publish();
    for second in 1..=SECONDS {
        mesh.second = second;
        mesh.world.run(SECOND);
        // Nothing else happens at this very nanosecond.
        mesh.world.stand_still(Nanos(1));
        mesh.stopped();
        mesh.forget();
        mesh.stopped();
        mesh.change();
        mesh.exodus();
        mesh.publish();
    }
    mesh.world.run(SECOND);
    mesh.world.stand_still(Nanos(1));
    // All peers leave. After their grace, no new probe is sent. Then the test verifies each peer
    // that still has a slot, for the last time.
    mesh.leave();
    mesh.world.run(Nanos(12 * SECOND.0));
    mesh.stopped();
    let rest: Vec<(SlotId, String)> =
        mesh.world.directory.peers().map(|(slot, peer)| (slot, peer.node().to_owned())).collect();
    for (slot, name) in &rest {
        mesh.verify(*slot, name);
    }
    assert!(mesh.world.directory.slot_count() <= mesh.peak, "no more slots than were ever held at once");
    assert!(mesh.compacted >= SECONDS / EXODUS, "slots closed up {} times", mesh.compacted);
    assert!(mesh.lost > 50, "{} lost", mesh.lost);
    assert!(mesh.stops > 1_000, "{} stopped", mesh.stops);
    assert!(mesh.returned > 1_000 && mesh.reborn > 100, "{} returned, {} reborn", mesh.returned, mesh.reborn);
    assert_eq!(mesh.world.statistics.unrelated(), mesh.disowned, "replies from where a peer was before it moved");
}

#[test]
fn a_returning_peer_goes_on_counting_and_a_new_holder_of_its_slot_starts_at_zero() {
    let plan = Plan { forget_after: Nanos(20 * SECOND.0), ..Plan::default() };
    let mut world = World::new(plan, &[("a", "10.0.0.2"), ("b", "10.0.0.3")]);
    world.run_until_tried(ip("10.0.0.2"), 10);
    world.settle();
    let (a, b) = (spec("a", ip("10.0.0.2")), spec("b", ip("10.0.0.3")));
    world.apply(vec![b.clone()]);
    world.run(Nanos(12 * SECOND.0));
    let on_its_way = u32::try_from(world.wire().log(ip("10.0.0.2")).len() - 10).unwrap();
    assert!((9..=11).contains(&on_its_way), "{on_its_way} while it might have come back");
    let away = PeerReading { sent: 10, received: 10, terminating: [on_its_way, 0], ..PeerReading::default() };
    world.expect("a", away);
    world.run(Nanos(3 * SECOND.0));
    world.expect("a", away);
    world.apply(vec![b.clone(), spec("a", ip("10.0.0.9"))]);
    world.run_until_tried(ip("10.0.0.9"), 5);
    world.settle();
    world.expect("a", PeerReading { sent: 15, received: 15, ..away });
    world.apply(vec![b.clone()]);
    world.run(Nanos(20 * SECOND.0));
    assert!(world.forget());
    world.apply(vec![b.clone(), spec("c", ip("10.0.0.4"))]);
    world.expect("c", PeerReading::default());
    assert_eq!(world.directory.slot_count(), 2, "c has the slot of a");
    world.apply(vec![b, a]);
    world.expect("a", PeerReading::default());
}

#[test]
fn probes_to_a_terminating_peer_are_counted_apart_whatever_becomes_of_them() {
    let mut world = World::new(Plan::default(), &[("a", "10.0.0.2")]);
    world.wire().script(ip("10.0.0.2"), |n| match n {
        15..20 => Fate::lost(),
        _ => Fate::reply(100),
    });
    world.run_until_tried(ip("10.0.0.2"), 10);
    world.settle();
    let on_its_way_out = PeerSpec { readiness: Readiness::Terminating, ..spec("a", ip("10.0.0.2")) };
    world.apply(vec![on_its_way_out]);
    world.steady = false;
    world.run_until_tried(ip("10.0.0.2"), 20);
    world.run(Nanos(300 * MS));
    world.expect("a", PeerReading { sent: 10, received: 10, terminating: [5, 5], ..PeerReading::default() });
    world.apply(vec![spec("a", ip("10.0.0.2"))]);
    world.run_until_tried(ip("10.0.0.2"), 25);
    world.settle();
    world.expect("a", PeerReading { sent: 15, received: 15, terminating: [5, 5], ..PeerReading::default() });
}

#[test]
fn a_new_holder_of_a_slot_ignores_probes_that_are_still_in_flight() {
    let plan = Plan { forget_after: Nanos(1), ..Plan::default() };
    let mut world = World::new(plan, &[("a", "10.0.0.2")]);
    world.steady = false;
    world.wire().script(ip("10.0.0.2"), |n| if n == 0 { Fate::reply(100_000) } else { Fate::lost() });
    for probes in 1..=2 {
        world.run_until_tried(ip("10.0.0.2"), probes);
        world.apply(Vec::new());
        world.stand_still(Nanos(1));
        assert!(world.forget());
        world.apply(vec![spec("c", ip("10.0.0.4"))]);
        assert_eq!(world.directory.slot_count(), 1);
        world.run(Nanos(300 * MS));
        let sent = world.wire().sent(ip("10.0.0.4"));
        world.apply(vec![spec("c", ip("10.0.0.4"))]);
        let read = world.read("c");
        assert_eq!((read.lost, read.terminating, read.received <= sent), (0, [0, 0], true), "{read:?}");
        world.apply(Vec::new());
        world.stand_still(Nanos(1));
        world.forget();
        world.apply(vec![spec("a", ip("10.0.0.2"))]);
    }
    assert_eq!(world.statistics.unrelated(), 1, "the reply to the former holder");
}
