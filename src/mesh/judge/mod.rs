//! The judges of the mesh: which agents they are, what they keep, and what they agree on
//! (docs/adr/0025).
//!
//! ```text
//!  role ──► round: collect, judge ──► table ──► metrics, /api/v1/judge/verdicts
//!                                       ▲                      │
//!                   suspects, past ─────┴── quorum ◄───────────┤ of the other judges
//!                                             │
//!                                             └──► /api/v1/verdicts, /api/v1/history
//! ```
//! It runs beside the requests of one HTTP worker, where collections for readers run too. So it
//! needs no thread, and probes do not wait for it.
//! - [`role`]: whether this agent judges. One connection at a time asks whether better-ranked
//!   members judge. [`check`]: that goes on beside the rounds.
//! - [`table`]: the verdicts that hold, and those of the last 24 hours.
//! - [`document`]: what a judge tells others. [`ask`]: how they ask for it.
//! - [`quorum`]: what the judges agree on. [`suspects`]: which of them differs.
//! - [`nodes`]: figures of each node and the worst links of the last round. They are those of one
//!   judge: no two judges measure at the same time.
//!
//! Answers of other members are not trusted. A member that claims to judge takes one place of
//! three, as if it judged. Its answer is bounded in bytes and time, and counts for nothing that no
//! other judge says.

mod ask;
mod check;
mod document;
mod nodes;
mod published;
mod quorum;
mod remembered;
mod role;
mod suspects;
mod table;
mod times;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use self::check::RankCheck;
use self::document::{Held, JudgeStatement};
use self::nodes::{KeptNodes, NodesBody, relay};
use self::published::{Judging, LastJudgement};
use self::role::{ROUNDS_PROVEN, Role, RoleChange, Seen};
use self::suspects::Suspects;
use self::table::VerdictTable;
use super::collect::{Collected, collect};
use super::domains::DomainsFile;
use super::queue::Silent;
use super::times::Times;
use super::turns::ReaderTurns;
use super::verdicts::{self, RankedVerdicts, Verdict};
use crate::exposition::View;
use crate::http::{Reply, client};
use crate::peers::{Ranked, Roster};
use crate::report::{JUDGE_BYTES_MAX, JUDGE_PATH, JudgeAnswer};
use crate::sys::{clock, wall};
use crate::units::Nanos;

pub use document::{KEPT_PATH, Overview, PATH, fields, is_valid_verdict, now};
pub use nodes::PATH as NODES_PATH;
pub use quorum::agreed_of;
pub use role::JUDGES;
pub use times::JudgeTimes;

/// The result of a collection that was judged.
#[derive(Debug)]
struct Round {
    /// What it says beside the verdicts.
    overview: Overview,
    /// The verdicts of this round.
    found: RankedVerdicts,
    /// Number of nodes that were judged.
    nodes: usize,
    /// Figures of each node.
    figures: KeptNodes,
}

/// What the judges agree on, for readers.
#[derive(Debug)]
pub struct Agreed {
    /// When they were asked.
    pub at: Nanos,
    /// The judges, the best-ranked first: at least one.
    pub judges: Vec<(Box<str>, JudgeAnswer)>,
    /// Number of nodes that were judged.
    pub nodes: usize,
    /// What they say now, as fields of the answer to `/api/v1/verdicts`. All readers share it, as
    /// they do the next.
    pub now: Arc<[u8]>,
    /// Their verdicts with those that have ended, as the field of `/api/v1/history`.
    pub history: Arc<[u8]>,
}

impl Agreed {
    fn new(at: Nanos, said: &[JudgeStatement]) -> Self {
        let verdicts = quorum::agreed(said);
        let overview = quorum::overview(said);
        let headline = quorum::headline(said, &verdicts, &overview);
        let holding = &verdicts[..verdicts.iter().take_while(|verdict| verdict.holds()).count()];
        let since = quorum::remembered(said).map(|(since, _)| since);
        Self {
            at,
            judges: said.iter().map(|said| (said.node.clone(), said.judge)).collect(),
            nodes: quorum::nodes(said),
            now: now(&headline, &overview, holding, since),
            history: document::history(&verdicts, since),
        }
    }
}

/// What the judges agreed on when a reader asked last, and when. None if none answered.
#[derive(Clone)]
struct KeptAgreement {
    at: Nanos,
    agreed: Option<Arc<Agreed>>,
}

/// The judges as this agent sees them, and its own part if it is one of them.
pub struct Judges {
    view: Arc<View>,
    /// What other agents and Prometheus are told.
    judging: Arc<Judging>,
    /// Port of members whose port discovery does not give.
    port: u16,
    times: JudgeTimes,
    /// The times of a collection.
    collection: Times,
    /// The operator's failure domains.
    domains: Option<DomainsFile>,
    /// The text of this agent's document, and when it was written: what it holds if it is a judge
    /// and has judged, or what it has copied from judges.
    own: Mutex<Option<(Nanos, Arc<[u8]>)>>,
    /// Figures of each node, and when they were taken, if this agent is a judge.
    nodes: Mutex<Option<(Nanos, Arc<KeptNodes>)>>,
    /// Readers of another judge's figures.
    turns: ReaderTurns,
    kept: Mutex<Option<KeptAgreement>>,
    /// One reader asks at a time, and the others take its answer. The names are those of the judges
    /// that answered last.
    asking: Semaphore,
    known: Mutex<Vec<Box<str>>>,
}

impl Judges {
    /// Makes the judges as an agent sees them that has just started. `port` is that of members
    /// whose port discovery does not give.
    pub fn new(
        view: Arc<View>,
        port: u16,
        (times, collection): (JudgeTimes, Times),
        domains: Option<DomainsFile>,
    ) -> Self {
        let (own, kept, known) = (Mutex::new(None), Mutex::new(None), Mutex::new(Vec::new()));
        let (nodes, turns) = (Mutex::new(None), ReaderTurns::new(relay::WAITERS_MAX));
        let (asking, judging) = (Semaphore::const_new(1), Arc::new(Judging::default()));
        // No other stage adds to the metrics.
        let _ = view.later.set(judging.clone());
        Self { view, judging, port, times, collection, domains, own, nodes, turns, kept, asking, known }
    }

    /// Returns the answer to other agents that ask whether this one judges.
    pub fn answer(&self) -> JudgeAnswer {
        self.judging.answer(clock::monotonic())
    }

    /// Returns this agent's document, its head and what all readers share. None if it is not a
    /// judge, or has not judged yet.
    pub fn document(&self) -> Option<(Vec<u8>, Arc<[u8]>)> {
        let (_, held) = lock(&self.own).clone()?;
        let judge = self.answer();
        (judge.judges && judge.rounds > 0).then(|| (document::head(&judge), held))
    }

    /// Returns what this agent has copied from judges, or holds as one, with its age.
    pub fn kept_document(&self) -> Option<(Vec<u8>, Arc<[u8]>)> {
        let (written, held) = lock(&self.own).clone()?;
        let age_seconds = clock::monotonic().since(written).as_secs_f64();
        Some((document::head(&JudgeAnswer { age_seconds, ..JudgeAnswer::NO }), held))
    }

    /// Returns the document of all nodes. `None` if this agent is not a judge, or has not judged
    /// yet.
    pub fn nodes(&self) -> Option<NodesBody> {
        let (at, nodes) = lock(&self.nodes).clone()?;
        let age = clock::monotonic().since(at).as_secs_f64();
        Some(NodesBody::new(nodes, self.view.node.as_str().into(), age))
    }

    /// Answers with the document of the best-ranked judge.
    pub async fn relay_nodes(&self) -> Reply {
        let (agreed, roster) = (self.agreed().await, self.roster());
        let judges = agreed.iter().flat_map(|agreed| &agreed.judges);
        let others = roster.ranks().others();
        let judges: Vec<&Ranked> =
            judges.filter_map(|(node, _)| others.iter().find(|member| member.node == *node)).collect();
        relay::reply(&self.turns, &judges, self.port, self.collection).await
    }

    fn own(&self) -> Option<JudgeStatement> {
        let (mut text, held) = self.document()?;
        text.extend_from_slice(&held);
        document::read(&self.view.node, &text, clock::realtime().as_secs())
    }

    /// Returns what is kept, if it is not too old.
    fn kept(&self) -> Option<KeptAgreement> {
        lock(&self.kept).clone().filter(|kept| clock::monotonic().since(kept.at) < self.times.reuse.into())
    }

    /// Returns what the judges agree on. None if no judge answers.
    pub async fn agreed(&self) -> Option<Arc<Agreed>> {
        if let Some(kept) = self.kept() {
            return kept.agreed;
        }
        // The semaphore is never closed.
        let _asking = self.asking.acquire().await;
        if let Some(kept) = self.kept() {
            return kept.agreed;
        }
        let agreed = wall::within(async {
            let said = quorum::seeing(self.said().await);
            (!said.is_empty()).then(|| Arc::new(Agreed::new(clock::monotonic(), &said)))
        });
        let agreed = agreed.await.flatten();
        *lock(&self.kept) = Some(KeptAgreement { at: clock::monotonic(), agreed: agreed.clone() });
        agreed
    }

    /// Returns what three judges say, this agent among them if it is one.
    async fn said(&self) -> Vec<JudgeStatement> {
        let own = self.own();
        let mut said = self.others(JUDGES - usize::from(own.is_some())).await;
        if let Some(own) = own {
            // By rank, as all others have it.
            let roster = self.roster();
            let better = roster.ranks().better().unwrap_or_default();
            let place = said.iter().filter(|said| better.iter().any(|member| member.node == said.node)).count();
            said.insert(place, own);
        }
        said
    }

    async fn others(&self, wanted: usize) -> Vec<JudgeStatement> {
        let mut known = lock(&self.known).clone();
        let roster = self.roster();
        let said = ask::judges(roster.ranks().others(), self.port, self.times.answer, wanted, &mut known).await;
        *lock(&self.known) = known;
        said
    }

    fn roster(&self) -> Arc<Roster> {
        Arc::clone(self.view.directory.read().unwrap_or_else(PoisonError::into_inner).roster())
    }

    /// Judges as long as it is this agent's turn, and keeps what the judges hold if it is one of
    /// the next.
    pub async fn run(self: Arc<Self>) {
        let times = self.times;
        let (mut role, mut term) = (Role::new(times), None);
        let (mut table, mut silent) = (VerdictTable::default(), Silent::default());
        let mut next_check = clock::monotonic().plus(times.check.into());
        // In a rollout the members that keep the past are replaced within seconds.
        let mut next_copy = clock::monotonic();
        let mut check = RankCheck::default();
        loop {
            let next_round = term.as_ref().map(|term: &Term| term.next_round);
            let wakes = [next_round, check.is_idle().then_some(next_check)];
            check.wait(wakes.into_iter().flatten().min()).await;
            if check.is_idle() && next_check <= clock::monotonic() {
                check = self.look(role);
            }
            if let Some(seen) = check.take() {
                let now = clock::monotonic();
                match role.checked(seen, now) {
                    Some(RoleChange::Begins) => {
                        let rank = seen.better.unwrap_or(0) + 1;
                        log::info!("{}: judges the mesh, as member {rank} by rank", self.view.node);
                        let new = Term::new(now);
                        self.judging.publish(Some(new.published.clone()));
                        term = Some(new);
                    }
                    Some(RoleChange::Ends) => {
                        log::info!("{}: no longer judges the mesh", self.view.node);
                        *lock(&self.nodes) = None;
                        self.judging.publish(None);
                        (term, next_copy) = (None, now);
                    }
                    None => {}
                }
                next_check = role.next_check(seen, now);
                if term.is_none() && next_copy <= now && seen.better.is_some() {
                    let has_copied = wall::within(self.copy(&mut table)).await.unwrap_or(true);
                    let pause = if has_copied { times.copy } else { times.check };
                    next_copy = clock::monotonic().plus(pause.into());
                }
            }
            if let Some(term) = &mut term
                && let begun = clock::monotonic()
                && term.next_round <= begun
            {
                // A judgement that panics ends here. What was found before stands.
                let judgement = async {
                    let explaining = table.explaining(clock::realtime().as_secs());
                    let round = Box::pin(self.round(&mut silent, &explaining)).await;
                    self.judged(term, &mut table, round).await;
                };
                check.beside(wall::within(judgement)).await;
                term.next_round = begun.plus(times.round.into());
            }
        }
    }

    /// Begins to ask better-ranked members whether they judge.
    fn look(&self, role: Role) -> RankCheck<'_> {
        let roster = self.roster();
        let is_small = roster.ranks().others().len() < JUDGES;
        match roster.ranks().better().map(<[Ranked]>::len) {
            Some(better) if better >= JUDGES => RankCheck::Asks(Box::pin(self.ask(role, roster))),
            // Fewer are not enough, whatever they answer.
            better => RankCheck::Done(Seen { better, is_small, ..Seen::default() }),
        }
    }

    /// Asks better-ranked members whether they judge, one after the other, until the answers
    /// decide.
    async fn ask(&self, role: Role, roster: Arc<Roster>) -> Seen {
        let better = roster.ranks().better().unwrap_or_default();
        let mut seen = Seen { better: Some(better.len()), ..Seen::default() };
        for member in better {
            if role.is_decided(seen.judges, seen.proven) {
                break;
            }
            let answer =
                match client::get(member.server(self.port), JUDGE_PATH, JUDGE_BYTES_MAX, self.times.answer).await {
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

    /// Keeps what the judges hold, in case this agent has to replace one. What one judge alone
    /// says, or does not say, replaces nothing. Returns whether any member has answered.
    async fn copy(&self, table: &mut VerdictTable) -> bool {
        let said = quorum::seeing(self.others(JUDGES).await);
        let has_copied = if said.len() > 1 {
            table.copy_of(&said, said.len() == JUDGES, clock::realtime().as_secs());
            true
        } else {
            self.inherit(table).await
        };
        let held = Held::from_table(table, (quorum::nodes(&said), Overview::default()), clock::realtime().as_secs());
        *lock(&self.own) = Some((clock::monotonic(), held.text()));
        has_copied
    }

    /// Copies what other members keep of judges that are gone. Returns whether any of them keeps
    /// something.
    async fn inherit(&self, table: &mut VerdictTable) -> bool {
        let roster = self.roster();
        let kept = ask::kept(roster.ranks().others(), self.port, self.times.answer).await;
        table.copy_of(&kept, false, clock::realtime().as_secs());
        !kept.is_empty()
    }

    /// Collects the reports of all members, and judges them. `explaining` are verdicts of before,
    /// which explain losses.
    async fn round(&self, silent: &mut Silent, explaining: &[Verdict]) -> Round {
        let Collected { mut matrix, missing, missing_not_listed, further } =
            collect(Arc::clone(&self.view), self.port, self.collection, silent).await;
        if let Some(domains) = &self.domains {
            matrix.set_domains(&domains.current(|level, text| log::log!(level, "{text}")));
        }
        #[cfg(feature = "fuzzing")]
        panic_if_asked(&matrix, &self.view.node);
        let judgement = verdicts::judge_in_slices(&matrix, explaining).await;
        let (overview, found) = Overview::from_judgement(judgement, (missing, missing_not_listed), further);
        Round { overview, found, nodes: matrix.node_count(), figures: KeptNodes::collect(&matrix).await }
    }

    /// Takes a judgement, compares it with those of the other judges, and publishes it.
    async fn judged(&self, term: &mut Term, table: &mut VerdictTable, round: Round) {
        if term.published.rounds == 0 {
            self.inherit(table).await;
        }
        let others = self.others(JUDGES - 1).await;
        let Round { overview, found, nodes, figures } = round;
        *lock(&self.nodes) = Some((clock::monotonic(), Arc::new(figures)));
        let (now, now_unix_seconds) = (clock::monotonic(), clock::realtime().as_secs());
        term.take(table, (found, nodes), (self.own(), &others), now, now_unix_seconds);
        *lock(&self.own) = Some((now, Held::from_table(table, (nodes, overview), now_unix_seconds).text()));
        term.judged(table, nodes, now, now_unix_seconds);
        self.judging.publish(Some(term.published.clone()));
    }
}

/// In builds for tests, panics if a zone of the mesh asks all judges for it, or this one.
#[cfg(feature = "fuzzing")]
fn panic_if_asked(matrix: &verdicts::matrix::Matrix, own: &str) {
    for zone in (0..=u8::MAX).take(matrix.zone_count()) {
        let asked = matrix.zone_name(zone).strip_prefix("panic-in-judgement");
        assert!(asked.is_none_or(|of| !of.is_empty() && of.strip_prefix("-of-") != Some(own)), "as a zone asks");
    }
}

/// What a judge has done since it began.
struct Term {
    suspects: Suspects,
    published: LastJudgement,
    next_round: Nanos,
}

impl Term {
    fn new(now: Nanos) -> Self {
        let published = LastJudgement { since: now, at: now, ..LastJudgement::default() };
        Self { suspects: Suspects::default(), published, next_round: now }
    }

    /// Takes a judgement into the table, and what judges have said: this agent, if it has judged
    /// before, and the others.
    fn take(
        &mut self,
        table: &mut VerdictTable,
        (mut found, nodes): (RankedVerdicts, usize),
        (own, others): (Option<JudgeStatement>, &[JudgeStatement]),
        now: Nanos,
        now_unix_seconds: u64,
    ) {
        if let Some(own) = own {
            found.verdicts.extend(self.suspects.judged(now, &own, others));
        }
        table.judged(&found, now_unix_seconds);
        // After the judgement, so that verdicts that others have held for longer begin as there.
        // While the third judge is replaced, what the other one says may be its own view alone.
        if others.len() > 1 || nodes < JUDGES {
            table.take_over(quorum::agreed(others), now_unix_seconds);
        }
        table.remember(others);
    }

    fn judged(&mut self, table: &VerdictTable, nodes: usize, now: Nanos, now_unix_seconds: u64) {
        let LastJudgement { since, rounds, .. } = self.published;
        let (verdicts, dropped) = (table.series(now_unix_seconds), table.dropped());
        self.published = LastJudgement { since, rounds: rounds.saturating_add(1), at: now, nodes, verdicts, dropped };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
