//! One line that sums up a mesh: no problem, losses without a cause, or a cause.

use serde::{Deserialize, Serialize};

use super::agents::Standing;
use super::answering::Answering;
use super::sentence::where_to;
use super::{Judged, Kind, UnsentProbes, Verdict};
use crate::matrix::{Cell, Matrix};
use crate::slices::Slice;
use kube_canary_model::report::Method;

/// A link that loses this share and this number of its probes is reported, even without a cause. A
/// calm mesh, which loses 0.1 %, never loses so many of 60 probes.
const LOSING_RATE: f64 = 0.05;
const LOSING_LOST: u32 = 5;

/// State of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing stands out, as far as was measured.
    Well,
    /// Links lose, without a known cause, or probes could not be sent.
    Losses,
    /// There is at least one verdict.
    Cause,
}

/// One line that sums up a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// State of the mesh.
    pub state: State,
    /// Text of the line.
    pub text: String,
}

/// Returns one line that sums up a mesh. It names the most severe verdict and the number of others,
/// or the last one that is over, or links that lose without a cause, or says that nothing is wrong.
/// It always names probes that could not be sent.
pub(super) async fn headline(
    (Judged { verdicts, ended, .. }, unsent): (&Judged, &UnsentProbes),
    matrix: &Matrix,
    standings: &[Standing],
    answering: &Answering,
) -> Headline {
    let is_loss = |verdict: &Verdict| verdict.kind < Kind::AgentStarved;
    // The recent windows still show the losses of what is over.
    let is_explained = !ended.is_empty() || verdicts.iter().any(is_loss);
    let losses = if is_explained { None } else { losses(matrix, standings, answering).await };
    if let Some(text) = losses {
        let text = unsent.line().into_iter().chain([text]).collect::<Vec<_>>().join("; ");
        return Headline { state: State::Losses, text };
    }
    summed_up(verdicts, unsent).unwrap_or_else(|| {
        let last = ended.iter().max_by_key(|verdict| verdict.ended_unix_seconds);
        let text = last.map_or_else(|| nothing_wrong(matrix), recovered);
        Headline { state: State::Well, text }
    })
}

fn recovered(verdict: &Verdict) -> String {
    let at = verdict.ended_unix_seconds.map_or_else(String::new, |it| format!(" since {}", clock_time(it)));
    format!("recovered{at}: {}", verdict.summary)
}

/// Returns the time of day, as all texts give it.
fn clock_time(unix_seconds: u64) -> String {
    format!("{:02}:{:02} UTC", unix_seconds % 86_400 / 3_600, unix_seconds % 3_600 / 60)
}

/// Returns the line for these verdicts, the gravest first, and for what could not be sent. `None`
/// if there is neither. A fault of the network comes first. An agent that does not answer may just
/// be one to which nothing could be sent.
pub fn summed_up(verdicts: &[Verdict], unsent: &UnsentProbes) -> Option<Headline> {
    let of_verdicts = match verdicts {
        [] => return unsent.line().map(|text| Headline { state: State::Losses, text }),
        [only] => only.summary.clone(),
        [first, rest @ ..] => format!("{}, and {} more", first.summary, rest.len()),
    };
    let text = match unsent.line() {
        None => of_verdicts,
        Some(unsent) if verdicts[0].kind < Kind::AgentStarved => format!("{of_verdicts}; {unsent}"),
        Some(unsent) => format!("{unsent}; {of_verdicts}"),
    };
    Some(Headline { state: State::Cause, text })
}

/// Returns how many links lose, and the worst: in the recent window, or else over ten minutes.
/// `None` if no link loses.
async fn losses(matrix: &Matrix, standings: &[Standing], answering: &Answering) -> Option<String> {
    let is_evidence = |node: u16| standings[usize::from(node)].is_evidence_of_others();
    let sources = || matrix.numbers().filter(|node| standings[usize::from(*node)] == Standing::Sound);
    let (mut links, mut losing) = (0, 0);
    let mut worst: Option<(u16, Cell)> = None;
    let rate = |cell: Cell| f64::from(cell.lost()) / f64::from(cell.probes().max(1));
    let mut slice = Slice::default();
    for source in sources() {
        slice.add(matrix.cells(source).len()).await;
        let counts = |cell: &Cell| is_evidence(cell.peer()) && answering.counts(source, *cell);
        for cell in matrix.cells(source).iter().flat_map(|cell| cell.parts()).filter(counts) {
            links += 1;
            if cell.lost() >= LOSING_LOST && rate(cell) >= LOSING_RATE {
                losing += 1;
                if worst.is_none_or(|(_, other)| rate(cell) > rate(other)) {
                    worst = Some((source, cell));
                }
            }
        }
    }
    let Some((source, cell)) = worst else {
        return over_ten_minutes(matrix, links, sources(), is_evidence);
    };
    let since = cell.since().map(|since| matrix.moment(since));
    let since = since.map_or_else(String::new, |since| format!(" since {}", clock_time(since)));
    let by = match cell.layer().method() {
        Method::Icmp => String::new(),
        method => format!(" by {}", method.name()),
    };
    Some(format!(
        "{losing} of {links} links lose{}: {}{by}{since}{}; no cause stands out",
        if losing == 1 { "s" } else { "" },
        from_to(matrix, rate(cell), source, cell.peer()),
        where_to(cell.network()),
    ))
}

/// Returns how many of so many links have lost too much over ten minutes, and the worst that is
/// evidence. A link to a node that is leaving does not count if it is the worst of its source. Some
/// such links still count, but only if several nodes leave in the same minute.
fn over_ten_minutes(
    matrix: &Matrix,
    links: u32,
    sources: impl Iterator<Item = u16>,
    is_evidence: impl Fn(u16) -> bool,
) -> Option<String> {
    let (mut losing, mut worst) = (0, None);
    for source in sources {
        let Some(lasting) = matrix.row(source).map(|row| row.lasting) else { continue };
        let Some((peer, network, rate)) = lasting.worst() else { continue };
        losing += u32::from(lasting.links()).saturating_sub(u32::from(!is_evidence(peer)));
        let is_worse = worst.is_none_or(|(_, _, _, other)| rate > other);
        if is_worse && is_evidence(peer) {
            worst = Some((source, peer, network, rate));
        }
    }
    let worst = worst.map_or_else(String::new, |(source, peer, network, rate)| {
        format!(": {}{}", from_to(matrix, rate, source, peer), where_to(network))
    });
    let have = if losing == 1 { "has" } else { "have" };
    (losing > 0).then(|| {
        format!("{losing} of {links} links {have} lost 2 % and more over ten minutes{worst}; no cause stands out")
    })
}

fn from_to(matrix: &Matrix, rate: f64, source: u16, peer: u16) -> String {
    format!("{:.1} % from {} to {}", rate * 100.0, matrix.name(source), matrix.name(peer))
}

/// Returns the line for a mesh without a verdict. What was not measured is not called well.
fn nothing_wrong(matrix: &Matrix) -> String {
    let mut measured = vec![false; matrix.node_count()];
    let is_evidence = |node: u16| !matrix.get(node).is_leaving() && !matrix.get(node).is_displaced;
    for node in matrix.numbers().filter(|node| is_evidence(*node)) {
        for cell in matrix.cells(node).iter().filter(|cell| is_evidence(cell.peer())) {
            measured[usize::from(node)] = true;
            measured[usize::from(cell.peer())] = true;
        }
    }
    if !measured.contains(&true) {
        return "nothing measured yet".into();
    }
    let unknown = matrix.numbers().filter(|node| !measured[usize::from(*node)] && !matrix.get(*node).is_leaving());
    let unknown: Vec<u16> = unknown.collect();
    let (rows, cells) = (matrix.not_kept().rows, matrix.not_kept().all_cells());
    let unnamed = matrix.members() - matrix.node_count();
    match unknown[..] {
        _ if unnamed > 0 => {
            let nodes = unknown.len() + unnamed;
            format!(
                "all well as far as measured: nothing is known of {nodes} node{}",
                if nodes == 1 { "" } else { "s" }
            )
        }
        [] if rows + cells > 0 => format!("all well as far as kept: {rows} reports and {cells} links did not fit"),
        [] => "all well".into(),
        [only] => format!("all well as far as measured: nothing is known of {}", matrix.name(only)),
        [first, ref rest @ ..] => {
            format!("all well as far as measured: nothing is known of {} and {} more", matrix.name(first), rest.len())
        }
    }
}
