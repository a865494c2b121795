//! `kube-canary doctor`: which node, link, zone or domain is bad, judged here by the same function as in the agent.
//!
//! ```text
//! --url:      /api/v1/mesh of each, one after the other ─┐
//! --service:  /api/v1/peers of each, a few at once ──────┼─► reading ─► matrix ─► verdicts ─► standard output
//! --rows:     a file with either, or standard input ─────┘
//! ```
//!
//! An agent collects the whole mesh for each request, even if it probes a part of it. A Service may have
//! thousands of agents, so each of them is asked for its own report instead. The trap: a report that did
//! not come, or cannot be read, must never count as well.

mod asked;
mod file;
mod lines;
mod output;
mod reading;
mod watch;

use crate::config::{DoctorSettings, Reports};
use crate::console;
use crate::fleet::{FleetError, on_event_loop, system};
use crate::mesh::domains::DomainsFile;
use file::FileError;
use output::{Report, Unanswered};

/// What a judgement comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every report was judged, and nothing is wrong.
    Well,
    /// A fault was found.
    Found,
    /// Nothing was found, and not every report was judged.
    Unknown,
}

impl Outcome {
    /// Returns the exit code. 2 is a mistake on the command line.
    pub const fn exit_code(self) -> i32 {
        match self {
            Self::Well => 0,
            Self::Found => 1,
            Self::Unknown => 3,
        }
    }
}

/// Why there is no judgement.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// No canary could be asked, or the system fails.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// None has given a report.
    #[error("none of {} canaries answers", .0.len())]
    Silent(Vec<Unanswered>),
    /// The file of `--rows`.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Asks or reads, judges and prints; again and again if the settings say so.
///
/// # Errors
/// [`DoctorError`].
// Apart from the agent's own code, which stays resident: inlined, it would stay with it.
#[inline(never)]
pub fn run(settings: &DoctorSettings) -> Result<Outcome, DoctorError> {
    on_event_loop(async {
        let domains = settings.domains_file.clone().map(DomainsFile::new);
        match settings.watch {
            None => once(settings, domains.as_ref()).await,
            Some(interval) => watch::run(settings, domains.as_ref(), interval).await,
        }
    })
}

async fn once(settings: &DoctorSettings, domains: Option<&DomainsFile>) -> Result<Outcome, DoctorError> {
    let examined = examine(&settings.reports, domains).await;
    match &examined {
        Ok(Report { unanswered, .. }) | Err(DoctorError::Silent(unanswered)) => {
            for silent in unanswered {
                eprintln!("kube-canary: {}: {}", silent.url, console::printable(&silent.error));
            }
        }
        Err(_) => {}
    }
    let report = examined?;
    for unread in &report.unread {
        eprintln!("kube-canary: --rows: {}", console::printable(&unread.to_string()));
    }
    let text = if settings.json { report.json() } else { report.text() };
    console::print(text).map_err(system("write to standard output"))?;
    Ok(report.outcome())
}

/// Judges all reports that there are now.
async fn examine(reports: &Reports, domains: Option<&DomainsFile>) -> Result<Report, DoctorError> {
    let warn = |level: log::Level, text: &str| {
        if level <= log::Level::Warn {
            eprintln!("kube-canary: {}", console::printable(text));
        }
    };
    let domains = domains.map(|domains| domains.current(warn));
    match reports {
        Reports::Asked(canaries) => asked::examine(canaries, domains).await,
        Reports::Read(file) => Ok(file::examine(file, domains)?),
    }
}
