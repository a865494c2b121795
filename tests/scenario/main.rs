//! The real prober, statistics and directory on a lossy wire, with a scripted clock: no network, no sleeping.
//!
//! [`World`](world::World) turns them as the agent does, whenever a probe is due, a timeout has passed or a reply has
//! come, and after every turn it compares each touched peer's counters with what the wire knows: `sent = received +
//! lost + under way`. What becomes of each probe is a script per address, so that every count below is exact.

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
