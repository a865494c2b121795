//! The agent's external interface: `/metrics`, health, and the JSON that other agents and people
//! read.
//!
//! Per-peer series are rendered by hand, one sample at a time into one frame. A registry of them
//! would cost 2.3 KB per peer, and its encoder a peak of 5 MB at 1,000 peers (docs/adr/0004). The
//! process-wide metrics are few and are kept in the prometheus crate's registry.

mod about;
mod accept;
mod agent;
mod api;
mod cached;
mod families;
mod head;
mod hour;
mod lines;
mod memory;
mod messages;
mod metrics;
mod own;
mod process;
mod protobuf;
mod report;
mod routes;
mod series;
mod strangers;
mod subjects;
mod text;
mod throttle;
mod traces;
#[cfg(feature = "fuzzing")]
pub use throttle::fuzz_cgroup;

pub use about::{About, REVISION};
pub use accept::Format;
pub use agent::{AgentMetrics, AgentMetricsConfig};
pub use api::{OwnLosses, PeersBody, compact as compact_report};
pub use families::LinkSeries;
pub use head::FamilyWriter;
pub use hour::{HourError, hour};
pub use metrics::MetricsBody;
pub use routes::App;
pub use series::SeriesSettings;
pub use strangers::HeardStrangers;
pub use traces::PeerTraces;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

use crate::peers::Directory;
use crate::statistics::Statistics;
use crate::sys::clock;
use crate::units::Nanos;

/// How long the probe loop may be stopped before `/healthz` fails.
const PROBE_LOOP_STALL: Nanos = Nanos::from_millis(30_000);

/// The state that the probe loop and the HTTP workers share.
#[derive(Debug)]
pub struct View {
    /// The name of the node that the agent runs on.
    pub node: String,
    /// The members and peers of the mesh. The write lock is taken only to change the list. Readers
    /// hold the lock for one frame.
    pub directory: RwLock<Directory>,
    /// The results of the prober.
    pub statistics: Statistics,
    /// The health of the agent.
    pub health: Health,
    /// Facts about the agent's build and machine.
    pub about: About,
    /// The latest traces of paths that lose.
    pub traces: PeerTraces,
    /// Bodies in progress that walk over the slots, one frame at a time.
    pub walks: Walks,
    /// The session of our UDP probes, and what has come from strangers.
    pub strangers: HeardStrangers,
    /// What a later stage adds to `/metrics`, once it is there.
    pub later: OnceLock<Arc<dyn Section>>,
}

/// Families that a later stage adds to `/metrics`. They have no part in which links are shown.
pub trait Section: fmt::Debug + Send + Sync {
    /// Appends the families.
    fn write(&self, now: Nanos, head: &mut FamilyWriter<'_>);
}

/// Counts walks. During a walk no peer may move to another slot: a scrape would miss it.
#[derive(Debug, Default)]
pub struct Walks(AtomicUsize);

impl Walks {
    /// Whether there are no walks. The answer stays valid as long as the caller has the directory's
    /// write lock. A walk that starts in that time reads nothing before the lock is released.
    pub fn are_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// A view for a walk over the slots. It is counted in [`View::walks`] until it is dropped.
struct ViewWalk(Arc<View>);

impl ViewWalk {
    fn new(view: Arc<View>) -> Self {
        view.walks.0.fetch_add(1, Ordering::AcqRel);
        Self(view)
    }
}

impl Drop for ViewWalk {
    fn drop(&mut self) {
        self.0.walks.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The state that the health checks are answered from.
#[derive(Debug, Default)]
pub struct Health {
    /// The time of the probe loop's last turn.
    heartbeat: AtomicU64,
    /// The time at which a source last confirmed the list. 0 means never.
    list_confirmed: AtomicU64,
    stopping: AtomicBool,
}

impl Health {
    /// Records that the probe loop has turned.
    pub fn beat(&self, now: Nanos) {
        self.heartbeat.store(now.0, Ordering::Relaxed);
    }

    /// Records that a source has given a list, or has confirmed it.
    pub fn list_confirmed(&self, now: Nanos) {
        self.list_confirmed.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Records that the agent is about to stop.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Returns the age of the list. Returns none before the first list.
    pub fn list_age(&self, now: Nanos) -> Option<Nanos> {
        let at = self.list_confirmed.load(Ordering::Relaxed);
        (at > 0).then(|| now.since(Nanos(at)))
    }

    /// Checks that the probe loop is alive.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn live(&self, now: Nanos) -> Result<(), String> {
        let still = now.since(Nanos(self.heartbeat.load(Ordering::Relaxed)));
        if still > PROBE_LOOP_STALL {
            return Err(format!("the probe loop has not run for {:.0} s\n", still.as_secs_f64()));
        }
        Ok(())
    }

    /// Checks that there is a first peer list and that the agent is not stopping. The sockets are
    /// open before HTTP starts.
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
