//! The real prober, statistics and directory on a lossy wire, with a scripted clock: no network, no
//! sleeping.
//!
//! [`World`](world::World) turns them as the agent does, whenever a probe is due, a timeout has
//! passed or a reply has arrived. After every turn it compares each touched peer's counters with
//! the wire: `sent = received + lost + in flight`. A script per address decides the fate of each
//! probe, so every count below is exact.

mod churn;
mod clock;
mod clocks;
mod compaction;
mod damage;
mod delivery;
mod doubt_oracle;
mod doubts;
mod hour;
#[path = "../common/leaks.rs"]
mod leaks;
mod oracle;
mod property;
mod random;
mod reading;
mod refused;
mod wire;
mod world;
