//! `kube-canary doctor`: which node, link, zone or domain is bad. The judges say so, or the same
//! function as theirs.
//!
//! ```text
//!             /api/v1/verdicts of the agent in this pod, or else of the
//!             first that knows of judges, and /api/v1/peers of a few,
//!             for their traces ───────────────────────────────────────────► output
//!     if none knows of judges, and with --collect:
//! --url:      /api/v1/peers of each, one after the other, ┐
//!             and /api/v1/mesh/NODES of those it names ───┤
//! --service:  /api/v1/peers of each, a few at once ───────┼─► matrix ─► verdicts ─► output
//! --rows:     a file with either, or standard input ──────┘
//! --history:  /api/v1/history of the first that answers ─────────────────► output
//! act:        /api/v1/act, if there is one beside the agents ─────────────► output
//! ```
//!
//! An agent passes on the reports of any nodes, also of those that it does not probe. A Service may
//! have thousands of agents, so each is asked for its own instead. The trap: a report that is
//! missing or unreadable must never count as well.

pub mod act;
mod asked;
mod file;
mod history;
pub mod judges;
mod lines;
mod output;
mod reading;
mod traces;
mod watch;

use crate::commands::fleet::{FleetError, ask, on_event_loop};
use crate::config::{DoctorSettings, Shows, Verdicts};
use crate::mesh::domains::DomainsFile;
use crate::sys::console;
use crate::sys::error::{SystemError, system};
use crate::sys::terminal::Terminal;
use act::ActSummary;
use file::FileError;
use output::{Examination, Unanswered};

/// What a judgement has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// Every report was judged, and nothing is wrong.
    Well,
    /// At least one fault was found.
    Found,
    /// Nothing was found, but not every report was judged.
    Unknown,
}

impl Conclusion {
    /// Returns the exit code. 2 is reserved for a mistake on the command line.
    pub const fn exit_code(self) -> i32 {
        match self {
            Self::Well => 0,
            Self::Found => 1,
            Self::Unknown => 3,
        }
    }
}

/// The reason why there is no judgement.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// No agent could be asked.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The runtime, a signal handler or standard output failed.
    #[error(transparent)]
    System(#[from] SystemError),
    /// No agent has given a report.
    #[error("none of {} agents answers", .0.len())]
    Silent(Vec<Unanswered>),
    /// The file of `--rows` has no usable report.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Prints what the judges agree on, or judges the reports here. Repeats this if the settings say
/// so.
///
/// # Errors
/// [`DoctorError`].
// This is separate from the agent's own code, which stays resident. If it were inlined, it would
// stay resident, too.
#[inline(never)]
pub fn run(settings: &DoctorSettings) -> Result<Conclusion, DoctorError> {
    on_event_loop(async {
        let verdicts = match &settings.shows {
            Shows::Past(agents) => {
                return history::run(agents, settings.json, Terminal::stdout(settings.colours)).await;
            }
            Shows::Now(verdicts) => verdicts,
        };
        let domains = settings.domains_file.clone().map(DomainsFile::new);
        match settings.watch {
            None => once(settings, verdicts, domains.as_ref()).await,
            Some(interval) => watch::run(settings, verdicts, domains.as_ref(), interval).await,
        }
    })
}

async fn once(
    settings: &DoctorSettings,
    verdicts: &Verdicts,
    domains: Option<&DomainsFile>,
) -> Result<Conclusion, DoctorError> {
    // What act has done changes no exit code.
    let (examined, act) = tokio::join!(examine(verdicts, domains), act_of(verdicts));
    match &examined {
        Ok(Examination { unanswered, .. }) | Err(DoctorError::Silent(unanswered)) => {
            for silent in unanswered {
                console::print_error(format_args!("{}: {}", silent.url, silent.error));
            }
        }
        Err(_) => {}
    }
    let examination = examined?.with_act(act);
    for unread in &examination.unread {
        console::print_error(format_args!("--rows: {unread}"));
    }
    let text = if settings.json { examination.json() } else { examination.text(Terminal::stdout(settings.colours)) };
    console::print(text).map_err(system("write to standard output"))?;
    Ok(examination.outcome())
}

/// Asks act what it has done, if there is one beside these agents.
async fn act_of(verdicts: &Verdicts) -> Option<ActSummary> {
    match verdicts {
        Verdicts::Agreed(agents) | Verdicts::Collected(agents) => act::said_by_agents(agents).await,
        Verdicts::Read(_) => None,
    }
}

/// Asks what the judges agree on, or judges all reports that exist now.
async fn examine(verdicts: &Verdicts, domains: Option<&DomainsFile>) -> Result<Examination, DoctorError> {
    let warn = |level: log::Level, text: &str| {
        if level <= log::Level::Warn {
            console::print_error(text);
        }
    };
    let domains = || domains.map(|domains| domains.current(warn));
    match verdicts {
        Verdicts::Agreed(agents) => {
            // The agent beside this command answers for all, also if DNS does not.
            if let Some(own) = agents.own()
                && let Some(agreed) = judges::agreed(std::slice::from_ref(own)).await
            {
                return Ok(judges::with_traces_of(agreed, agents).await);
            }
            let targets = ask::targets(agents).await.map_err(FleetError::from)?;
            match judges::agreed(&targets.urls).await {
                Some(agreed) => Ok(judges::with_traces(agreed, &targets.urls).await),
                None => Ok(asked::examine(agents, targets, domains()).await?.instead_of_judges()),
            }
        }
        Verdicts::Collected(agents) => {
            let targets = ask::targets(agents).await.map_err(FleetError::from)?;
            asked::examine(agents, targets, domains()).await
        }
        Verdicts::Read(file) => Ok(file::examine(file, domains())?),
    }
}
