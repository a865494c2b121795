//! Finds the judge that does not judge as the two others do. No I/O, no clock.
//!
//! Each judge compares what the others say, once in a round. A judge is suspect if it says what
//! neither of the two others finds, or lacks what both of them find, in three rounds in a row. One
//! round is not enough: judges collect at different times, and evidence at the edge of a threshold
//! is there for one of them and not for another. That a judge is suspect is a verdict like any
//! other, so it counts if two judges hold it.
//!
//! A judge that is cut off sees another mesh than the others do, and keeps what it found there for
//! a day. So only those verdicts are compared that began when all three saw the mesh: each of them
//! collected most reports and was read by this agent, in every round since. The agent remembers
//! this itself. A judge is believed that it lacks reports, because one may answer others that it
//! cannot ask. Such a judge counts no more than one that is silent ([`quorum::seeing`]).

use std::borrow::Cow;

use super::document::JudgeStatement;
use super::quorum;
use crate::limits::MESH_VERDICTS_MAX;
use crate::mesh::verdicts::{self, Confidence, Identity, Verdict};
use crate::units::Nanos;
use crate::verdict::{Figure, Kind};

/// Rounds in a row in which a judge must differ in the same verdict.
const ROUNDS: u8 = 3;
/// A verdict that has ended is compared if it held for this long. Shorter ones may have been found
/// by one judge alone.
const LASTING_SECONDS: u64 = 60;
/// Rounds after which a judge holds nothing any more that it found before them: ten minutes, the
/// longest time that reports look back.
const SETTLED_ROUNDS: u32 = 40;

/// In which way a judge differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Differs {
    Adds,
    Lacks,
}

#[derive(Debug)]
struct Dispute {
    judge: Box<str>,
    differs: Differs,
    finding: Identity<'static>,
    rounds: u8,
}

/// A judge that sees the mesh, since when, and for how many rounds.
#[derive(Debug)]
struct Seeing {
    judge: Box<str>,
    since: Nanos,
    rounds: u32,
}

/// The judges that see the mesh, and the disputes of the last round: at most one for each verdict
/// of each judge.
#[derive(Debug, Default)]
pub struct Suspects {
    seeing: Vec<Seeing>,
    disputes: Vec<Dispute>,
}

impl Suspects {
    /// Returns the verdicts over judges that are suspect, once in a round. `own` is what this agent
    /// says. With fewer than two others there are none, because it cannot be told which is right.
    pub fn judged(&mut self, now: Nanos, own: &JudgeStatement, others: &[JudgeStatement]) -> Vec<Verdict> {
        self.see(now, own, others);
        let before = std::mem::take(&mut self.disputes);
        let [a, b] = others else { return Vec::new() };
        if self.seeing.len() < 3 {
            return Vec::new();
        }
        let since = self.seeing.iter().map(|seeing| seeing.since).max().unwrap_or(now);
        let together = Together {
            since_unix_seconds: own.held.now_unix_seconds.saturating_sub(now.since(since).as_secs()),
            are_settled: self.seeing.iter().all(|seeing| seeing.rounds > SETTLED_ROUNDS),
        };
        let mut suspects = Vec::new();
        for (judge, third) in [(a, b), (b, a)] {
            let compared = |said: &'_ JudgeStatement| {
                let verdicts = said.held.verdicts.iter();
                verdicts.filter(|verdict| together.compares(verdict)).cloned().collect::<Vec<_>>()
            };
            let adds =
                compared(judge).into_iter().filter(|verdict| !may_have(own, verdict) && !may_have(third, verdict));
            let of_third = compared(third);
            let both =
                compared(own).into_iter().filter(|verdict| of_third.iter().any(|other| is_same_fault(verdict, other)));
            let lacks = both.filter(|verdict| !may_have(judge, verdict));
            let disputed =
                adds.map(|verdict| (Differs::Adds, verdict)).chain(lacks.map(|verdict| (Differs::Lacks, verdict)));
            let mut worst: Option<(u8, Differs, Verdict)> = None;
            for (differs, verdict) in disputed {
                let finding = fault(&verdict);
                let known = before.iter().find(|dispute| {
                    dispute.judge == judge.node && dispute.differs == differs && dispute.finding == finding
                });
                let rounds = known.map_or(1, |known| known.rounds.saturating_add(1));
                let finding = Identity { subject: Cow::Owned(finding.subject.into_owned()), ..finding };
                self.disputes.push(Dispute { judge: judge.node.clone(), differs, finding, rounds });
                if worst.as_ref().is_none_or(|(most, ..)| rounds > *most) {
                    worst = Some((rounds, differs, verdict));
                }
            }
            if let Some((ROUNDS.., differs, disputed)) = worst {
                suspects.push(verdicts::suspect(&judge.node, differs == Differs::Adds, &disputed));
            }
        }
        suspects
    }

    /// Takes which judges see the mesh in this round. The count of a judge that missed a round
    /// restarts.
    fn see(&mut self, now: Nanos, own: &JudgeStatement, others: &[JudgeStatement]) {
        let before = std::mem::take(&mut self.seeing);
        let judges = std::iter::once(own).chain(others).filter(|said| said.held.sees_mesh());
        self.seeing.extend(judges.map(|said| {
            let known = before.iter().find(|seeing| seeing.judge == said.node);
            let (since, rounds) = known.map_or((now, 0), |known| (known.since, known.rounds));
            Seeing { judge: said.node.clone(), since, rounds: rounds.saturating_add(1) }
        }));
    }
}

/// The time in which all three judges saw the mesh.
struct Together {
    since_unix_seconds: u64,
    /// Whether it is so long that nothing from before still holds.
    are_settled: bool,
}

impl Together {
    /// Whether a verdict is compared: it is certain, and no judge can have missed it. An agent may
    /// answer one judge and not another, so verdicts over agents are not compared. Nor are those
    /// over checks: while a list is rolled out, each judge has its own.
    fn compares(&self, verdict: &Verdict) -> bool {
        let begun = verdict.since_unix_seconds.filter(|begun| *begun >= self.since_unix_seconds);
        verdict.kind.is_network_fault()
            && verdict.confidence == Confidence::Certain
            && !verdict.unconfirmed
            && !is_by_one_report(verdict)
            && match (begun, verdict.ended_unix_seconds) {
                (Some(_), None) => true,
                (Some(begun), Some(ended)) => ended >= begun + LASTING_SECONDS,
                (None, None) => self.are_settled,
                (None, Some(_)) => false,
            }
    }
}

/// Whether one report may make a verdict by itself. A hostile agent gives each judge another one.
fn is_by_one_report(verdict: &Verdict) -> bool {
    let has = |figure: Figure| verdict.figures.has(figure);
    verdict.is_unsent()
        || matches!(verdict.kind, Kind::Flow | Kind::Mtu)
        || has(Figure::FlowRatio)
        || has(Figure::Rewritten)
}

/// Returns what a verdict blames. The protocol is no part of it: a judge that collects earlier
/// finds a fault by the first protocol that loses.
fn fault(verdict: &Verdict) -> Identity<'_> {
    Identity { protocol: None, ..verdicts::identity(verdict) }
}

fn is_same_fault(a: &Verdict, b: &Verdict) -> bool {
    quorum::are_simultaneous(a, b) && fault(a) == fault(b)
}

/// Whether a judge has a verdict over the same fault, or holds so many that its list may lack it.
fn may_have(said: &JudgeStatement, verdict: &Verdict) -> bool {
    let theirs = &said.held.verdicts;
    theirs.iter().any(|theirs| is_same_fault(theirs, verdict))
        || verdict.holds() && theirs.iter().filter(|theirs| theirs.holds()).count() >= MESH_VERDICTS_MAX
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::super::document::tests::{JUDGE, held, verdict as of_kind};
    use super::*;
    use crate::report::{Methods, Missing, SendError};
    use crate::verdict::Figures;

    /// Unix time of the first round.
    const BEGIN: u64 = 2_000;

    /// A verdict that begins with the first round.
    fn verdict(kind: &str, subject: &str) -> Verdict {
        Verdict { since_unix_seconds: Some(BEGIN), ..of_kind(kind, subject) }
    }

    fn said(node: &str, verdicts: &[Verdict]) -> JudgeStatement {
        JudgeStatement { node: node.into(), judge: JUDGE, held: held(verdicts.to_vec()) }
    }

    /// A judge that lacks the reports of two of its three nodes.
    fn lacking(node: &str, verdicts: &[Verdict]) -> JudgeStatement {
        let mut said = said(node, verdicts);
        let missing = |node: &str| Missing { node: node.into(), error: "timeout".into() };
        said.held.overview.missing = ["x", "y"].map(missing).into();
        said
    }

    /// The evidence of the suspects in this round.
    fn judged(suspects: &mut Suspects, round: u64, mut own: JudgeStatement, others: &[JudgeStatement]) -> Vec<String> {
        own.held.now_unix_seconds = BEGIN + round * 15;
        let found = suspects.judged(Nanos::from_millis(round * 15_000), &own, others);
        found.iter().map(|verdict| format!("{}: {}", verdict.subject, verdicts::wording::evidence(verdict))).collect()
    }

    /// The evidence of the suspects in each of this many rounds.
    fn after(rounds: u64, own: &[Verdict], a: &[Verdict], b: &[Verdict]) -> Vec<Vec<String>> {
        let mut suspects = Suspects::default();
        let mut round = |round| judged(&mut suspects, round, said("own", own), &[said("a", a), said("b", b)]);
        (0..rounds).map(&mut round).collect()
    }

    #[test]
    fn a_judge_that_adds_or_hides_a_verdict_is_suspect_in_the_third_round() {
        let (link, node) = (verdict("link", "x->y"), verdict("node", "z"));
        let found = after(3, from_ref(&link), &[link.clone(), node.clone()], from_ref(&link));
        let adds = "a: as a judge it reports what the two others do not find: node z";
        assert_eq!(found, [vec![], vec![], vec![adds.to_owned()]]);
        let found = after(3, &[link.clone(), node.clone()], &[link.clone(), node.clone()], &[link]);
        let lacks = "b: as a judge it does not report what the two others find: node z";
        assert_eq!(found[2], [lacks]);
    }

    #[test]
    fn judges_that_agree_that_are_uncertain_or_that_see_other_agents_are_not_suspect() {
        let link = verdict("link", "x->y");
        let likely = Verdict { confidence: Confidence::Likely, ..link.clone() };
        let by_udp = Verdict { protocol: Some(Methods::UDP), ..link.clone() };
        let agent = verdict("agent_unreachable", "x");
        let check = verdict("check", "*->dns");
        let figures = Figures::default();
        let refused = Verdict { reason: Some(SendError::NoBuffer), figures, ..verdict("node", "x") };
        let narrow = verdict("mtu", "x->y");
        for (own, a, b) in [
            (vec![link.clone()], vec![link.clone()], vec![link.clone()]),
            (vec![], vec![likely.clone()], vec![]),
            (vec![likely], vec![link.clone()], vec![]),
            (vec![link.clone()], vec![by_udp], vec![link.clone()]),
            (vec![], vec![agent], vec![]),
            (vec![], vec![check], vec![]),
            // One agent alone says so, and may say it to one judge.
            (vec![], vec![refused], vec![]),
            (vec![], vec![narrow], vec![]),
            // This agent is the one that differs: the two others name it.
            (vec![link.clone()], vec![], vec![]),
        ] {
            assert!(after(60, &own, &a, &b).iter().all(Vec::is_empty));
        }
        let mut suspects = Suspects::default();
        for round in 0..9 {
            let others = [said("a", from_ref(&link))];
            assert!(judged(&mut suspects, round, said("own", &[]), &others).is_empty(), "of two judges");
        }
    }

    #[test]
    fn judges_that_do_not_see_the_mesh_are_not_compared() {
        let link = verdict("link", "x->y");
        let mut part = said("a", from_ref(&link));
        part.held.overview.not_gathered = 1;
        for a in [part, lacking("a", from_ref(&link))] {
            let mut suspects = Suspects::default();
            for round in 0..60 {
                let others = [a.clone(), said("b", &[])];
                assert!(judged(&mut suspects, round, said("own", &[]), &others).is_empty());
            }
        }
    }

    #[test]
    fn a_full_list_excuses_what_it_lacks_and_not_what_it_adds() {
        let (link, ended) = (verdict("link", "x->y"), Some(BEGIN + 100));
        let all: Vec<Verdict> = (0..MESH_VERDICTS_MAX).map(|n| verdict("node", &format!("n{n}"))).collect();
        let more = [all.clone(), vec![link.clone()]].concat();
        assert!(after(9, &more, &more, &all).concat().is_empty());
        assert!(after(9, &all, &more, &all).concat().is_empty());
        let found = after(3, &[], &all, &[]).concat();
        assert!(found.len() == 1 && found[0].starts_with("a: as a judge it reports"), "{found:?}");
        let past = [all.clone(), vec![Verdict { ended_unix_seconds: ended, ..link }]].concat();
        let found = after(3, &all, &past, &all).concat();
        assert!(found.len() == 1 && found[0].starts_with("a: as a judge it reports"), "{found:?}");
    }

    #[test]
    fn a_dispute_that_pauses_begins_anew() {
        let (link, mut suspects) = (verdict("link", "x->y"), Suspects::default());
        let mut round = |differs: bool| {
            let a = if differs { vec![link.clone()] } else { Vec::new() };
            !judged(&mut suspects, 0, said("own", &[]), &[said("a", &a), said("b", &[])]).is_empty()
        };
        assert_eq!([true, true, false, true, true, true].map(&mut round), [false, false, false, false, false, true]);
    }

    #[test]
    fn a_forged_past_makes_a_judge_suspect_if_all_three_judged_at_that_time_and_it_lasted() {
        let past = |since, end| Verdict {
            since_unix_seconds: Some(since),
            ended_unix_seconds: Some(end),
            ..verdict("node", "z")
        };
        for (since, end, is_suspect) in [(2_000, 2_100, true), (1_999, 2_100, false), (2_000, 2_059, false)] {
            let found = after(60, &[], &[past(since, end)], &[]);
            assert_eq!(!found.concat().is_empty(), is_suspect, "{since} to {end}");
        }
    }

    #[test]
    fn what_holds_from_before_is_compared_after_ten_minutes() {
        for since in [Some(1_999), Some(1), None] {
            let old = Verdict { since_unix_seconds: since, ..verdict("node", "z") };
            let found = after(60, &[], from_ref(&old), &[]);
            let first = found.iter().position(|found| !found.is_empty());
            assert_eq!(first, Some(SETTLED_ROUNDS as usize + usize::from(ROUNDS) - 1));
        }
    }

    /// One of the three is cut off in rounds 10 to 19. What is found then is of that time.
    #[test]
    fn what_a_judge_held_or_did_not_see_while_it_was_cut_off_is_not_held_against_it() {
        let over = |kind: &str| Verdict {
            since_unix_seconds: Some(BEGIN + 150),
            ended_unix_seconds: Some(BEGIN + 300),
            ..verdict(kind, "z")
        };
        let (own_view, true_one) = (over("mesh"), over("node"));
        let of = |name: &str, is_off: bool, round: u64| match round {
            ..10 => Some(said(name, &[])),
            10..20 if is_off => None,
            _ => Some(said(name, from_ref(if is_off { &own_view } else { &true_one }))),
        };
        for does_answer in [true, false] {
            let mut suspects = Suspects::default();
            for round in 0..100 {
                let away = does_answer.then(|| lacking("a", &[]));
                let [a, b] = [of("a", true, round).or(away), of("b", false, round)];
                let others: Vec<JudgeStatement> = [a, b].into_iter().flatten().collect();
                let own = of("own", false, round).expect("it judges");
                assert!(judged(&mut suspects, round, own, &others).is_empty(), "{does_answer}, in round {round}");
            }
        }
        let mut suspects = Suspects::default();
        for round in 0..100 {
            let own = of("own", true, round).unwrap_or_else(|| lacking("own", &[]));
            let others = ["a", "b"].map(|name| of(name, false, round).expect("it judges"));
            // What only one of them adds while this agent sees little.
            let others = others.map(|mut said| {
                let adds = said.node == "b".into() && (10..20).contains(&round);
                said.held.verdicts.extend(adds.then(|| over("zone")));
                said
            });
            assert!(judged(&mut suspects, round, own, &others).is_empty(), "this agent, in round {round}");
        }
    }
}
