//! What a peer's slot costs, stage by stage: as asked of the allocator, not as added up by hand.

use std::net::IpAddr;

use kube_canary::allocator::finder::unfollowed;
use kube_canary::discovery::Readiness;
use kube_canary::limits::PEER_SLOTS_MAX;
use kube_canary::peers::{Directory, Own};
use kube_canary::prober::{Clock, Prober, Settings, SocketKind};
use kube_canary::statistics::{Bounds, Statistics};
use kube_canary::units::Nanos;

use super::clock::ScriptedClock;
use super::counting::watch;
use super::leaks::NoLeaks;
use super::list;
use super::wire::MixedWire;

const PEERS: usize = 5_000;

#[test]
fn a_slot_costs_what_the_documentation_says() {
    let _no_leaks = NoLeaks::here();
    let interval = Nanos::from_millis(1_000);
    let (statistics, asked) = watch(|| Statistics::new(Bounds::default(), interval));
    let tables = i64::try_from(PEER_SLOTS_MAX * Statistics::BYTES_PER_SLOT).expect("few bytes");
    assert!((tables..tables + 8_192).contains(&asked.bytes), "tables of {tables}, and little else: {asked:?}");

    let address = |i: usize| IpAddr::from([10, 1, u8::try_from(i / 250).unwrap(), u8::try_from(i % 250 + 1).unwrap()]);
    let peers = list((0..PEERS).map(|i| (i, address(i), Readiness::Ready)));
    let names: usize = peers.peers.iter().map(|peer| peer.node.len()).sum();
    let own = Own { node: "self".into(), ..Own::default() };
    let mut directory = Directory::default();
    let clock = ScriptedClock::new();
    // What a list brings is allocated before the watch and freed in it: its bytes would be taken off.
    let listed = peers.peers.clone();
    let (applied, held) = watch(|| {
        let applied = directory.apply(kube_canary::discovery::PeerList { peers: listed.clone() }, &own, clock.now());
        (applied.changes.clone(), applied.without_slot)
    });
    let changes = i64::try_from(size_of_val(applied.0.as_slice())).expect("few bytes");
    let directory_bytes = (held.bytes - changes) as f64 / PEERS as f64;

    let settings = Settings { interval, timeout: interval, payload_bytes: 56, node: "self".into() };
    let mut prober = Prober::new(MixedWire::new(clock.clone(), SocketKind::Datagram), clock, &settings);
    let ((), probing) = watch(|| {
        prober.reserve(PEERS);
        for &change in &applied.0 {
            prober.apply(change);
        }
    });
    for change in applied.0 {
        statistics.apply(change);
    }
    let prober_bytes = probing.bytes as f64 / PEERS as f64;
    let (hot, rare, names) =
        (Statistics::RESIDENT_BYTES_PER_PEER, Statistics::RARE_BYTES_PER_PEER, names as f64 / PEERS as f64);
    unfollowed(|| println!("statistics: {hot} bytes, and {rare} of a peer to whom something rare has happened"));
    unfollowed(|| println!("directory:  {directory_bytes:.1} bytes, of which the name is {names:.1}"));
    unfollowed(|| println!("prober:     {prober_bytes:.1} bytes, at timeout = interval"));
    let together = hot as f64 + directory_bytes + prober_bytes;
    unfollowed(|| println!("together:   {together:.1} bytes"));
    assert!(together <= 256.0, "{together}");
    assert!(hot <= 128 && rare <= 64);
    assert!(directory_bytes <= 33.0 + names, "{directory_bytes} with a name of {names}");
    assert!(prober_bytes <= PROBER_BYTES_MAX, "{prober_bytes}");
}

/// Address, flights and place in the schedule.
const PROBER_BYTES_MAX: f64 = 64.0;
