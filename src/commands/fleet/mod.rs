//! `kube-canary fleet`: what every agent costs and measures, with a line for each node.
//! `kube-canary doctor` uses the part that sends requests.
//!
//! ```text
//! targets ─► ask (a few at once) ─► summary of each report ─► nodes | groups ─► standard output
//! ```
//!
//! The traps:
//!
//! - An agent that hangs must not delay the others, and one that is lost must not hide them.
//! - An address of a Service does not name a node. So the node is the one that the agent reports.

pub mod ask;
mod groups;
mod nodes;
mod summary;

use tokio::time::{Instant, sleep_until};

use crate::allocator;
use crate::config::{FleetSettings, Form};
use crate::discovery::dns::ResolveError;
use crate::sys::console::{self, json_line, printable};
use crate::sys::error::{SystemError, system};
use crate::sys::stop::StopOrEof;
use crate::sys::terminal::Terminal;
use ask::Targets;
use summary::NodeSummary;

/// The reason why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The Service has no addresses.
    #[error("cannot resolve the Service {0}; outside the cluster, name agents with --url")]
    Service(#[from] ResolveError),
    /// No agent gave a report.
    #[error("none of {0} agents answers")]
    Silent(usize),
    /// The runtime, a signal handler, or standard output.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Runs `asking` on a separate event loop.
///
/// # Errors
/// As `asking`, and if the event loop cannot be created.
pub fn on_event_loop<T, E: From<SystemError>>(asking: impl Future<Output = Result<T, E>>) -> Result<T, E> {
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
                let mut stop = StopOrEof::new(settings.until_eof).map_err(system("handle signals"))?;
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
    let nodes = look(settings).await?;
    console::print(show(&nodes, settings)).map_err(system("write to standard output"))?;
    if nodes.iter().all(|node| node.node.is_none()) { Err(FleetError::Silent(nodes.len())) } else { Ok(()) }
}

async fn again(settings: &FleetSettings, interval: std::time::Duration) -> Result<(), FleetError> {
    let is_json = settings.form == Form::Json;
    loop {
        let next = Instant::now() + interval;
        // A Service that does not exist now may exist again later.
        let text = match look(settings).await {
            Ok(nodes) => show(&nodes, settings),
            Err(error) if is_json => {
                console::print_error(&error);
                String::new()
            }
            Err(error) => format!("{}\n", printable(&error.to_string())),
        };
        let drawn = if is_json { text } else { console::screen(&text) };
        let is_read = console::print_in_pieces(drawn).await.map_err(system("write to standard output"))?;
        if !is_read {
            return Ok(());
        }
        sleep_until(next).await;
    }
}

/// Returns the summaries of all nodes, sorted.
async fn look(settings: &FleetSettings) -> Result<Vec<NodeSummary>, FleetError> {
    let Targets { urls, unresolved } = ask::targets(&settings.agents).await?;
    if let Some(error) = unresolved {
        let error = error.to_string();
        console::print_error(format_args!("DNS: {}; asked are those that the agent here lists", printable(&error)));
    }
    let mut nodes = vec![NodeSummary::default(); urls.len()];
    ask::each(&urls, summary::ask, |index, node| nodes[index] = node).await;
    nodes::sort(&mut nodes, settings.sort);
    Ok(nodes)
}

fn show(nodes: &[NodeSummary], settings: &FleetSettings) -> String {
    let (is_wide, terminal) = (settings.form == Form::Wide, Terminal::stdout(settings.colours));
    if !settings.by_allocator {
        return match settings.form {
            Form::Json => json_line(&nodes),
            Form::Wide => nodes::render_wide(nodes, terminal),
            Form::Narrow => nodes::render(nodes, terminal),
        };
    }
    for node in nodes {
        if let Some(error) = &node.error {
            console::print_error(format_args!("{}: {error}", node.url));
        }
    }
    let groups = groups::by_build(nodes);
    if settings.form == Form::Json { json_line(&groups) } else { groups::render(&groups, nodes, is_wide, terminal) }
}
