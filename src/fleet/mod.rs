//! `kube-canary fleet`: what every agent costs and measures, with a row for each node. `kube-canary
//! doctor` uses the part that sends requests.
//!
//! ```text
//! whom ─► ask (a few at once) ─► row (peers, own samples) ─► rows | groups ─► standard output
//! ```
//!
//! The traps:
//!
//! - An agent that hangs must not delay the others, and one that is lost must not hide them.
//! - With thousands of peers, a scrape is megabytes. The needed samples are at its head, so the
//!   rest is not fetched.
//! - An address of a Service does not name a node. So a row's node is the one that the agent
//!   reports.

pub mod ask;
mod groups;
mod own;
mod peers;
mod row;
mod rows;
mod samples;
pub mod table;

use std::io;

use tokio::time::{Instant, sleep_until};

use crate::config::FleetSettings;
use crate::discovery::dns::ResolveError;
use crate::sys::stop::Stop;
use crate::{allocator, console};
use row::Row;

/// The reason why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The Service has no addresses.
    #[error("cannot resolve the Service {0}; outside the cluster, name agents with --url")]
    Service(#[from] ResolveError),
    /// No agent gave a row.
    #[error("none of {0} agents answers")]
    Silent(usize),
    /// The runtime, a signal handler, or standard output.
    #[error("cannot {operation}: {error}")]
    System {
        /// The operation that failed.
        operation: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

/// Adds the operation that failed to an error of the system.
pub fn system(operation: &'static str) -> impl FnOnce(io::Error) -> FleetError {
    move |error| FleetError::System { operation, error }
}

/// Runs `asking` on a separate event loop.
///
/// # Errors
/// As `asking`, and if the event loop cannot be created.
pub fn on_event_loop<T, E: From<FleetError>>(asking: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().map_err(system("start an event loop"))?;
    let done = runtime.block_on(asking);
    runtime.shutdown_background();
    done
}

/// Asks all agents and prints their answers. If requested, it repeats this until a signal arrives.
///
/// # Errors
/// [`FleetError`].
// This is separate from the agent's own code, which stays resident. If it were inlined, it would
// stay resident, too.
#[inline(never)]
pub fn run(settings: &FleetSettings) -> Result<(), FleetError> {
    on_event_loop(async {
        match settings.watch {
            None => once(settings).await,
            Some(interval) => {
                let mut stop = Stop::new().map_err(system("handle signals"))?;
                allocator::mark_baseline();
                tokio::select! {
                    done = again(settings, interval) => done,
                    () = stop.asked() => Ok(()),
                }
            }
        }
    })
}

async fn once(settings: &FleetSettings) -> Result<(), FleetError> {
    let rows = look(settings).await?;
    console::print(show(&rows, settings)).map_err(system("write to standard output"))?;
    if rows.iter().all(|row| row.node.is_none()) { Err(FleetError::Silent(rows.len())) } else { Ok(()) }
}

async fn again(settings: &FleetSettings, interval: std::time::Duration) -> Result<(), FleetError> {
    loop {
        let next = Instant::now() + interval;
        // A Service that does not exist now may exist again later.
        let text = match look(settings).await {
            Ok(rows) => show(&rows, settings),
            Err(error) if settings.json => {
                eprintln!("kube-canary: {error}");
                String::new()
            }
            Err(error) => format!("{error}\n"),
        };
        let drawn = if settings.json { text } else { console::screen(&text) };
        let read = console::print(drawn).map_err(system("write to standard output"))?;
        if !read {
            return Ok(());
        }
        sleep_until(next).await;
    }
}

/// Returns all rows, sorted.
async fn look(settings: &FleetSettings) -> Result<Vec<Row>, FleetError> {
    let agents = ask::whom(&settings.agents).await?;
    let mut rows = vec![Row::default(); agents.len()];
    ask::each(&agents, row::ask, |index, row| rows[index] = row).await;
    rows::sort(&mut rows, settings.sort);
    Ok(rows)
}

fn show(rows: &[Row], settings: &FleetSettings) -> String {
    let json =
        |value: Result<String, serde_json::Error>| value.map_or_else(|error| format!("{error}\n"), |text| text + "\n");
    if !settings.by_allocator {
        return if settings.json { json(serde_json::to_string(rows)) } else { rows::render(rows) };
    }
    for row in rows {
        if let Some(error) = &row.error {
            eprintln!("kube-canary: {}: {error}", row.url);
        }
    }
    let groups = groups::of(rows);
    if settings.json { json(serde_json::to_string(&groups)) } else { groups::render(&groups, rows) }
}
