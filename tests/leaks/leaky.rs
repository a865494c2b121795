//! A program that leaks on purpose, in every way that the finder has to name. tests/leaks.rs runs
//! it. It is built with the finder alone.

use std::hint::black_box;

use kube_canary::allocator::finder;
use kube_canary::discovery::{PeerList, PeerSpec};
use kube_canary::peers::{Directory, OwnNode};
use kube_canary::units::Nanos;

const PEERS: u8 = 100;

fn main() {
    let baseline = black_box(vec![1_u8; 4_096]);
    finder::mark();
    peers_come_and_go();
    for _ in 0..3 {
        forget_a_block();
    }
    std::thread::spawn(forget_what_grew).join().expect("no panic");
    forget_what_another_crate_made();
    drop(baseline);
    finder::report();
}

/// Handles a list as the agent does, and leaves nothing of it.
fn peers_come_and_go() {
    let mut directory = Directory::default();
    let peer = |index| PeerSpec::pod(format!("node-{index}"), [127, 0, 1, index].into());
    for _ in 0..3 {
        for peers in [(0..PEERS).map(peer).collect(), Vec::new()] {
            directory.apply(PeerList { peers }, &OwnNode::default(), Nanos(0));
        }
    }
}

#[inline(never)]
fn forget_a_block() {
    std::mem::forget(black_box(Vec::<u8>::with_capacity(1_000))); // a block
}

#[inline(never)]
fn forget_what_grew() {
    let mut grown = vec![0_u8; 16];
    black_box(&mut grown).reserve_exact(500); // grown
    std::mem::forget(grown);
}

#[inline(never)]
fn forget_what_another_crate_made() {
    let number = black_box(serde_json::json!(7));
    std::mem::forget(serde_json::to_string(&number)); // another crate
}
