//! `kube-canary doctor`: which node, link or pair of zones is bad, judged here by the same function as in the agent.
//!
//! ```text
//! --url:      /api/v1/mesh of each, one after the other ─┐
//!                                                         ├─► reading ─► matrix ─► verdicts ─► standard output
//! --service:  /api/v1/peers of each, a few at once ──────┘
//! ```
//!
//! A canary gathers its mesh from all others for each who asks, also where it probes a part of them only, so a Service's canaries, who may be thousands, are asked for
//! their own rows instead. The trap: what did not answer is not well.

mod output;
mod reading;

use std::time::Duration;

use hyper::StatusCode;

use crate::config::{Canaries, CanaryUrl, DoctorSettings, Host};
use crate::console;
use crate::fleet::FleetError;
use crate::fleet::ask::{self, AskError, Connection, More, within};
use crate::http::client::GetError;
use crate::limits::{CANARIES_MAX, CANARY_TIME, MESH_DOCUMENT_BYTES_MAX, MESH_TIME, ROW_BYTES_MAX};
use crate::mesh::verdicts;
use output::Report;
use reading::{NoRow, Reading};

const MESH: &str = "/api/v1/mesh";
const ROW: &str = "/api/v1/peers";
/// How soon a canary that is busy with another's gathering is asked again.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Asks, judges and prints. Gives whether all is well: everybody asked has answered, nobody is missing, and nothing is wrong.
///
/// # Errors
/// [`FleetError`].
// Apart from the agent's own code, which stays resident: inlined, it would stay with it.
#[inline(never)]
pub fn run(settings: &DoctorSettings) -> Result<bool, FleetError> {
    let report = crate::fleet::on_event_loop(examine(settings))?;
    for silent in &report.unanswered {
        eprintln!("kube-canary: {}: {}", silent.url, console::printable(&silent.error));
    }
    if report.rows == 0 {
        return Err(FleetError::Silent(report.unanswered.len()));
    }
    let text = if settings.json { report.json() } else { report.text() };
    console::print(text).map_err(crate::fleet::system("write to standard output"))?;
    Ok(report.is_well())
}

async fn examine(settings: &DoctorSettings) -> Result<Report, FleetError> {
    let canaries = ask::whom(&settings.canaries).await?;
    let mut reading = Reading::default();
    let mut failed: Vec<(usize, AskError)> = Vec::new();
    match &settings.canaries {
        Canaries::Urls(_) => {
            for (document, canary) in canaries.iter().enumerate() {
                let asked = within(MESH_TIME, mesh(canary, document, &mut reading)).await;
                failed.extend(asked.err().map(|error| (document, error)));
            }
        }
        Canaries::Service { .. } => {
            let ask_row = |canary: CanaryUrl| async move { within(CANARY_TIME, row(&canary)).await };
            let take = |document, answer: Result<Vec<u8>, AskError>| {
                let read = answer.and_then(|text| reading.row(document, &text).map_err(foreign(ROW)));
                failed.extend(read.err().map(|error| (document, error)));
            };
            ask::each(&canaries, ask_row, take).await;
            // Once all who have answered are known: who is at the address of one who has not.
            for (document, error) in &failed {
                if let Host::Address(address) = canaries[*document].host {
                    reading.silent(*document, address, &error.to_string());
                }
            }
        }
    }
    let (matrix, missing, rows, told) = reading.finish();
    let verdicts = verdicts::judge(&matrix);
    Ok(Report::new(&matrix, verdicts, missing, rows, told, failed.iter().map(|(at, error)| (&canaries[*at], error))))
}

fn foreign<E: std::fmt::Display>(path: &'static str) -> impl Fn(E) -> AskError {
    move |error| AskError::Foreign { path, reason: error.to_string() }
}

async fn row(canary: &CanaryUrl) -> Result<Vec<u8>, AskError> {
    Ok(Connection::open(canary).await?.whole(ROW, ROW_BYTES_MAX).await?)
}

/// Reads one canary's mesh, and asks again while it is busy.
async fn mesh(canary: &CanaryUrl, document: usize, reading: &mut Reading) -> Result<(), AskError> {
    loop {
        match mesh_once(canary, document, reading).await {
            Err(AskError::Get(GetError::Status(StatusCode::SERVICE_UNAVAILABLE))) => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            done => return done,
        }
    }
}

/// Where in a mesh's document the next line is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Head,
    Rows,
    End,
}

async fn mesh_once(canary: &CanaryUrl, document: usize, reading: &mut Reading) -> Result<(), AskError> {
    let (mut place, mut bad, mut rows) = (Place::Head, None, 0);
    let strange = |reason: &str| AskError::Foreign { path: MESH, reason: reason.to_owned() };
    let read = |line: &[u8]| {
        let line = line.trim_ascii();
        match place {
            Place::Head if line == b"{\"rows\":[" => place = Place::Rows,
            Place::Rows if line.starts_with(b"],") => {
                place = Place::End;
                let fields = [b"{", &line[2..]].concat();
                reading.fields(document, &fields).map_err(foreign(MESH))?;
            }
            Place::Rows => {
                rows += 1;
                if rows > CANARIES_MAX {
                    return Err(foreign(MESH)(NoRow::Rows));
                }
                // One bad row is no reason to leave the rest unread.
                let row = line.strip_prefix(b",").unwrap_or(line);
                bad = bad.take().or(reading.row(document, row).map_err(foreign(MESH)).err());
            }
            Place::Head | Place::End => return Err(strange("no rows in lines of their own")),
        }
        Ok(More::Wanted)
    };
    let mut connection = Connection::open(canary).await?;
    let is_whole = connection.lines(MESH, ROW_BYTES_MAX, MESH_DOCUMENT_BYTES_MAX, read).await?;
    match (bad, place) {
        (Some(error), _) => Err(error),
        (None, Place::End) if is_whole => Ok(()),
        (None, _) => Err(strange("it breaks off")),
    }
}
