//! The judges of the mesh: which agents they are, and what they keep (docs/adr/0025).
//!
//! It runs beside the requests of one HTTP worker, where collections for readers run too. So it
//! needs no thread, and probes do not wait for it. One connection at a time asks whether
//! better-ranked members judge ([`role`]). A judge collects and judges every 15 s, and publishes
//! the verdicts as metrics ([`table`]).
//!
//! Answers of other members are not trusted. A member that claims to judge takes one place of
//! three, as if it judged. Its answer is bounded in bytes and time.

mod role;
mod table;
mod times;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};

use tokio::time::sleep;

use self::role::{Change, ROUNDS_PROVEN, Role, Seen};
use self::table::Table;
use super::verdicts::Verdict;
use crate::exposition::{Judged, View};
use crate::http::client;
use crate::peers::Ranked;
use crate::report::{JUDGE_BYTES_MAX, JUDGE_PATH, JudgeAnswer};
use crate::sys::clock;
use crate::units::Nanos;

pub use times::JudgeTimes;

/// The result of a collection that was judged.
#[derive(Debug)]
pub struct Round {
    /// The verdicts, the gravest first.
    pub verdicts: Vec<Verdict>,
    /// Number of further verdicts.
    pub not_listed: usize,
    /// Number of nodes that were judged.
    pub nodes: usize,
}

/// A collection and its judgement, which run when they are awaited.
pub type Rounds = dyn Fn() -> Pin<Box<dyn Future<Output = Round>>>;

/// What a judge has done since it began.
struct Term {
    table: Table,
    published: Judged,
    next_round: Nanos,
}

impl Term {
    fn new(now: Nanos) -> Self {
        let published = Judged { since: now, at: now, ..Judged::default() };
        Self { table: Table::default(), published, next_round: now }
    }

    fn judged(&mut self, round: &Round, now: Nanos) {
        self.table.judged(&round.verdicts, round.not_listed, now, clock::realtime().as_secs());
        let Judged { since, rounds, .. } = self.published;
        self.published = Judged {
            since,
            rounds: rounds.saturating_add(1),
            at: now,
            nodes: round.nodes,
            verdicts: self.table.series(),
            dropped: self.table.dropped(),
        };
    }
}

/// Judges as long as it is this agent's turn. `port` is that of members whose port discovery does
/// not give.
pub async fn run(view: Arc<View>, port: u16, times: JudgeTimes, rounds: Box<Rounds>) {
    let (mut role, mut term) = (Role::new(times), None);
    let mut next_check = clock::monotonic().plus(times.check.into());
    loop {
        let wake = term.as_ref().map_or(next_check, |term: &Term| next_check.min(term.next_round));
        sleep(wake.since(clock::monotonic()).into()).await;
        if next_check <= clock::monotonic() {
            let roster = Arc::clone(view.directory.read().unwrap_or_else(PoisonError::into_inner).roster());
            let better = roster.ranks().better();
            let seen = match better {
                // In a box of its own, so that agents that need not ask have none.
                Some(better) if better.len() >= role::JUDGES => Box::pin(ask(&role, better, port, &times)).await,
                // Fewer are not enough, whatever they answer.
                _ => Seen { better: better.map(<[Ranked]>::len), ..Seen::default() },
            };
            let now = clock::monotonic();
            match role.checked(seen, now) {
                Some(Change::Begins) => {
                    let rank = seen.better.unwrap_or(0) + 1;
                    log::info!("{}: judges the mesh, as member {rank} by rank", view.node);
                    let new = Term::new(now);
                    view.judging.publish(Some(new.published.clone()));
                    term = Some(new);
                }
                Some(Change::Ends) => {
                    log::info!("{}: no longer judges the mesh", view.node);
                    view.judging.publish(None);
                    term = None;
                }
                None => {}
            }
            next_check = role.next_check(seen, now);
        }
        if let Some(term) = &mut term
            && let begun = clock::monotonic()
            && term.next_round <= begun
        {
            let round = rounds().await;
            term.judged(&round, clock::monotonic());
            view.judging.publish(Some(term.published.clone()));
            term.next_round = begun.plus(times.round.into());
        }
    }
}

/// Asks better-ranked members whether they judge, one after the other, until the answers decide.
async fn ask(role: &Role, better: &[Ranked], port: u16, times: &JudgeTimes) -> Seen {
    let mut seen = Seen { better: Some(better.len()), ..Seen::default() };
    for member in better {
        if role.is_decided(seen.judges, seen.proven) {
            break;
        }
        let address = SocketAddr::new(member.address, member.http_port.unwrap_or(port));
        let answer = match client::get(address, JUDGE_PATH, JUDGE_BYTES_MAX, times.answer).await {
            Ok(body) => JudgeAnswer::read(&body).filter(JudgeAnswer::counts),
            Err(error) => {
                log::debug!("{} does not say whether it judges: {error}", member.node);
                None
            }
        };
        if let Some(answer) = answer {
            seen.judges += 1;
            seen.proven += usize::from(answer.rounds >= ROUNDS_PROVEN);
        }
    }
    seen
}
