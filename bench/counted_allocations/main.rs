//! Allocations per probe and per scrape, counted by the allocator of this program, for
//! `bench/report`.
//!
//! `counted_allocations PEERS` probes 127.2.x.y and prints a CSV line for each of two things: a
//! while of probing, and one scrape, without HTTP.

mod counting;
mod ours;

use std::net::IpAddr;
use std::time::Duration;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

/// Rounds of probing before the count begins. During these, buffers reach their final size.
const ROUNDS_BEFORE: u32 = 2;
/// Rounds of probing that are counted.
const ROUNDS: u32 = 3;
/// The most probes a second, so that a build without optimization does not fall behind.
const PROBES_PER_SECOND_MAX: u64 = 1_000;

fn interval(peers: u16) -> Duration {
    Duration::from_secs(1).max(Duration::from_millis(u64::from(peers) * 1_000 / PROBES_PER_SECOND_MAX))
}

fn address(peer: u16) -> IpAddr {
    let [high, low] = (peer + 1).to_be_bytes();
    IpAddr::from([127, 2, high, low])
}

/// The counts of one CSV line.
struct Counted {
    what: &'static str,
    /// The number of probes or scrapes.
    units: u64,
    /// For probes: those without an answer. For a scrape: its bytes.
    detail: u64,
    allocations: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [peers] = &arguments[..] else { usage() };
    let Ok(peers @ 1..=10_000) = peers.parse() else { usage() };
    for Counted { what, units, detail, allocations } in ours::count(peers) {
        println!("{peers},{what},{units},{detail},{allocations}");
    }
}

fn usage() -> ! {
    eprintln!("usage: counted_allocations PEERS (1 to 10,000)");
    std::process::exit(2);
}
