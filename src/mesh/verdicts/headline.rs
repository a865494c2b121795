//! One line over a mesh, of three kinds: all is well, links lose without a cause, or a cause.

use serde::Serialize;

use super::agents::{Standing, standings};
use super::{Kind, Verdict};
use crate::mesh::matrix::{Cell, Matrix};
use crate::mesh::row::Network;

/// A link that loses this share and this number of its probes is told, though it has no cause: a
/// mesh is never well above it. Of 60 probes, the 0.1 % that a calm mesh loses is never that many.
const TOLD_RATE: f64 = 0.05;
const TOLD_LOST: u32 = 5;

/// What a mesh is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing stands out, as far as was measured.
    Well,
    /// Links lose, and have no cause.
    Losses,
    /// There is a verdict at least.
    Cause,
}

/// One line over a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// Its kind.
    pub state: State,
    /// Its words.
    pub text: String,
}

/// Returns one line over a mesh: the gravest verdict and how many more there are, or links that
/// lose without a cause, or that nothing is wrong.
pub fn headline(verdicts: &[Verdict], matrix: &Matrix) -> Headline {
    let lost = |verdict: &Verdict| verdict.kind < Kind::AgentStarved;
    if let Some(text) = (!verdicts.iter().any(lost)).then(|| losses(matrix)).flatten() {
        return Headline { state: State::Losses, text };
    }
    let (state, text) = match verdicts {
        [] => (State::Well, nothing_wrong(matrix)),
        [only] => (State::Cause, only.summary.clone()),
        [first, rest @ ..] => (State::Cause, format!("{}, and {} more", first.summary, rest.len())),
    };
    Headline { state, text }
}

/// Returns how many links lose, and the worst; none if no link does.
fn losses(matrix: &Matrix) -> Option<String> {
    let standings = standings(matrix);
    let (mut links, mut losing) = (0, 0);
    let mut worst: Option<(u16, &Cell)> = None;
    let rate = |cell: &Cell| f64::from(cell.lost()) / f64::from(cell.probes().max(1));
    for source in matrix.numbers().filter(|node| standings[usize::from(*node)] == Standing::Sound) {
        let is_evidence = |cell: &&Cell| standings[usize::from(cell.peer())].is_evidence_of_others();
        for cell in matrix.cells(source).iter().filter(is_evidence) {
            links += 1;
            if cell.lost() >= TOLD_LOST && rate(cell) >= TOLD_RATE {
                losing += 1;
                if worst.is_none_or(|(_, other)| rate(cell) > rate(other)) {
                    worst = Some((source, cell));
                }
            }
        }
    }
    let (source, cell) = worst?;
    let since = cell.since().map(|since| matrix.moment(since)).map_or_else(String::new, |since| {
        format!(" since {:02}:{:02} UTC", since % 86_400 / 3_600, since % 3_600 / 60)
    });
    let network = if cell.network() == Network::Node { " (node network)" } else { "" };
    Some(format!(
        "{losing} of {links} links lose{}: {:.1} % from {} to {}{since}{network}; no cause stands out",
        if losing == 1 { "s" } else { "" },
        rate(cell) * 100.0,
        matrix.name(source),
        matrix.name(cell.peer())
    ))
}

/// What is said where there is no verdict: what was not measured is not well.
fn nothing_wrong(matrix: &Matrix) -> String {
    let mut measured = vec![false; matrix.node_count()];
    for node in matrix.numbers().filter(|node| !matrix.get(*node).is_leaving()) {
        for cell in matrix.cells(node).iter().filter(|cell| !matrix.get(cell.peer()).is_leaving()) {
            measured[usize::from(node)] = true;
            measured[usize::from(cell.peer())] = true;
        }
    }
    if !measured.contains(&true) {
        return "nothing measured yet".into();
    }
    let unknown = matrix.numbers().filter(|node| !measured[usize::from(*node)] && !matrix.get(*node).is_leaving());
    let unknown: Vec<u16> = unknown.collect();
    let (rows, cells) = (matrix.not_kept().rows, matrix.not_kept().cells);
    let unnamed = matrix.members() - matrix.node_count();
    match unknown[..] {
        _ if unnamed > 0 => {
            let nodes = unknown.len() + unnamed;
            format!(
                "all well as far as measured: nothing is known of {nodes} node{}",
                if nodes == 1 { "" } else { "s" }
            )
        }
        [] if rows + cells > 0 => format!("all well as far as kept: {rows} rows and {cells} cells are not"),
        [] => "all well".into(),
        [only] => format!("all well as far as measured: nothing is known of {}", matrix.name(only)),
        [first, ref rest @ ..] => {
            format!("all well as far as measured: nothing is known of {} and {} more", matrix.name(first), rest.len())
        }
    }
}
