//! What the outside sees: `/metrics`, health, and the JSON that other canaries and people read.
//!
//! Per-peer series are rendered by hand, a sample at a time into one frame, because a registry of them would cost
//! 2.3 KB per peer and its encoder 5 MB of peak at 1,000 peers (docs/adr/0004). The process-wide metrics are few and
//! live in the prometheus crate's registry.

mod about;
mod accept;
mod agent;
mod api;
mod api_server;
mod books;
mod families;
mod head;
mod hour;
mod kept;
mod lines;
mod memory;
mod mesh;
mod messages;
mod metrics;
mod process;
mod protobuf;
mod routes;
mod row;
mod series;
mod short;
mod subjects;
mod text;
mod throttle;
mod totals;
#[cfg(feature = "fuzzing")]
pub use throttle::fuzz_cgroup;

pub use about::{About, REVISION};
pub use accept::Format;
pub use agent::{AgentMetrics, Build};
pub use api::PeersBody;
pub use hour::{HourError, decoded, hour};
pub use metrics::MetricsBody;
pub use process::{Resident, field};
pub use routes::App;
pub use series::{LinkSeries, SeriesSettings};

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use crate::clock;
use crate::limits::PROBE_LOOP_STALL;
use crate::peers::Directory;
use crate::statistics::Statistics;
use crate::units::Nanos;

/// What the probe loop and the HTTP workers share.
#[derive(Debug)]
pub struct View {
    /// Our node's name.
    pub node: String,
    /// Who is in the mesh. Write-locked for a change of the list only; readers hold it for a frame.
    pub directory: RwLock<Directory>,
    /// What the prober saw.
    pub statistics: Statistics,
    /// Whether the agent is well.
    pub health: Health,
    /// What the agent is.
    pub about: About,
    /// Bodies under way that walk over the slots, a frame at a time.
    pub walks: Walks,
}

/// Counts walks. While there are any, no peer may move to another slot, or a scrape would miss it.
#[derive(Debug, Default)]
pub struct Walks(AtomicUsize);

impl Walks {
    /// Whether nobody is on the way. Holds as long as the caller has the directory's write lock: who sets out meanwhile
    /// sees nothing before that is given up.
    pub fn are_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// A view for a walk over the slots; counted among [`View::walks`] until it is dropped.
struct Walk(Arc<View>);

impl Walk {
    fn new(view: Arc<View>) -> Self {
        view.walks.0.fetch_add(1, Ordering::AcqRel);
        Self(view)
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.0.walks.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The probe loop's signs of life.
#[derive(Debug, Default)]
pub struct Health {
    /// When the probe loop last turned.
    heartbeat: AtomicU64,
    /// When a source last said that the list is right; 0: never.
    list_confirmed: AtomicU64,
    stopping: AtomicBool,
}

impl Health {
    /// The probe loop turns.
    pub fn beat(&self, now: Nanos) {
        self.heartbeat.store(now.0, Ordering::Relaxed);
    }

    /// A source has given a list, or confirmed it.
    pub fn list_confirmed(&self, now: Nanos) {
        self.list_confirmed.store(now.0.max(1), Ordering::Relaxed);
    }

    /// The agent is about to stop.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// How old the list is; none before the first.
    pub fn list_age(&self, now: Nanos) -> Option<Nanos> {
        let at = self.list_confirmed.load(Ordering::Relaxed);
        (at > 0).then(|| now.since(Nanos(at)))
    }

    /// Whether the probe loop is alive.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn live(&self, now: Nanos) -> Result<(), String> {
        let still = now.since(Nanos(self.heartbeat.load(Ordering::Relaxed)));
        if still > PROBE_LOOP_STALL.into() {
            return Err(format!("the probe loop has stood still for {:.0} s\n", still.as_secs_f64()));
        }
        Ok(())
    }

    /// Whether there is a first peer list (the sockets are open before HTTP starts), and no stop under way.
    ///
    /// # Errors
    /// One line that says what is missing.
    pub fn ready(&self, now: Nanos) -> Result<(), String> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err("stopping\n".into());
        }
        self.list_age(now).map(drop).ok_or_else(|| "no peer list yet\n".to_owned())
    }
}

fn now() -> Nanos {
    clock::monotonic()
}
