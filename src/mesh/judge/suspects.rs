//! Finds the judge that does not judge as the two others do. No I/O, no clock.
//!
//! Each judge compares what the others say, once in a round. A judge is suspect if it says what
//! neither of the two others finds, or lacks what both of them find, in three rounds in a row. One
//! round is not enough: judges collect at different times, and evidence at the edge of a threshold
//! is there for one of them and not for another. That a judge is suspect is a verdict like any
//! other, so it counts if two judges hold it.

use super::document::{self, Said};
use super::quorum::is_same;
use crate::limits::MESH_VERDICTS_MAX;
use crate::mesh::verdicts::{self, Confidence, Kind, Verdict};

/// Rounds in a row in which a judge must differ in the same verdict.
const ROUNDS: u8 = 3;
/// A verdict that has ended is compared if it held for so long. Shorter ones may have been found by
/// one judge alone.
const LASTING_SECONDS: u64 = 60;

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
    id: String,
    rounds: u8,
}

/// The disputes of the last round: at most one for each verdict of each judge.
#[derive(Debug, Default)]
pub struct Suspects(Vec<Dispute>);

impl Suspects {
    /// Returns the verdicts over judges that are suspect, once in a round. `own` is what this agent
    /// says. With fewer than two others there are none, because it cannot be told which is right.
    pub fn judged(&mut self, own: &Said, others: &[Said]) -> Vec<Verdict> {
        let [a, b] = others else {
            self.0.clear();
            return Vec::new();
        };
        let before = std::mem::take(&mut self.0);
        if ![own, a, b].into_iter().all(is_whole) {
            return Vec::new();
        }
        let mut suspects = Vec::new();
        for (judge, third) in [(a, b), (b, a)] {
            let since = [own, judge, third].map(began).into_iter().max().unwrap_or(0);
            let has = |said: &Said, verdict: &Verdict| said.held.verdicts.iter().any(|it| is_same(it, verdict));
            let compared = |said: &'_ Said| {
                said.held.verdicts.iter().filter(move |it| is_compared(it, since)).cloned().collect::<Vec<_>>()
            };
            let adds = compared(judge).into_iter().filter(|it| !has(own, it) && !has(third, it));
            let both = compared(own).into_iter().filter(|it| compared(third).iter().any(|other| is_same(it, other)));
            let lacks = both.filter(|it| !has(judge, it));
            let disputed = adds.map(|it| (Differs::Adds, it)).chain(lacks.map(|it| (Differs::Lacks, it)));
            let mut worst: Option<(u8, Differs, Verdict)> = None;
            for (differs, verdict) in disputed {
                let known =
                    before.iter().find(|it| it.judge == judge.node && it.differs == differs && it.id == verdict.id);
                let rounds = known.map_or(1, |known| known.rounds.saturating_add(1));
                self.0.push(Dispute { judge: judge.node.clone(), differs, id: verdict.id.clone(), rounds });
                if worst.as_ref().is_none_or(|(most, ..)| rounds > *most) {
                    worst = Some((rounds, differs, verdict));
                }
            }
            if let Some((ROUNDS.., differs, Verdict { kind, subject, .. })) = worst {
                let what = match differs {
                    Differs::Adds => "reports what the two others do not find",
                    Differs::Lacks => "does not report what the two others find",
                };
                suspects.push(verdicts::suspect(&judge.node, &format!("{what}: {} {subject}", kind.label())));
            }
        }
        suspects
    }
}

/// Whether a judge has seen the whole mesh and lists all that it holds. Of a larger mesh each judge
/// sees another part.
fn is_whole(said: &Said) -> bool {
    let holding = said.held.verdicts.iter().filter(|verdict| verdict.holds());
    said.held.overview.not_gathered == 0 && holding.count() < MESH_VERDICTS_MAX
}

/// When a judge began to judge, by this agent's clock.
fn began(said: &Said) -> u64 {
    said.held.now_unix_seconds.saturating_sub(document::whole_seconds(said.judge.since_seconds))
}

/// Whether a verdict is compared: it is certain, and no judge can have missed it. An agent may
/// answer one judge and not another, so verdicts over agents are not compared. `since` is when the
/// last of the judges began.
fn is_compared(verdict: &Verdict, since: u64) -> bool {
    verdict.kind < Kind::AgentStarved
        && verdict.confidence == Confidence::Certain
        && !verdict.unconfirmed
        && match (verdict.since_unix_seconds, verdict.ended_unix_seconds) {
            (_, None) => true,
            (Some(begun), Some(ended)) => begun >= since && ended >= begun + LASTING_SECONDS,
            (None, Some(_)) => false,
        }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::super::document::tests::{JUDGE, held, verdict};
    use super::*;

    fn said(node: &str, verdicts: &[Verdict]) -> Said {
        Said { node: node.into(), judge: JUDGE, held: held(verdicts.to_vec()) }
    }

    /// The evidence of the suspects after each of so many rounds.
    fn after(rounds: usize, own: &[Verdict], a: &[Verdict], b: &[Verdict]) -> Vec<Vec<String>> {
        let mut suspects = Suspects::default();
        (0..rounds)
            .map(|_| {
                let found = suspects.judged(&said("own", own), &[said("a", a), said("b", b)]);
                found.into_iter().map(|it| format!("{}: {}", it.subject, it.evidence)).collect()
            })
            .collect()
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
        let agent = verdict("agent_unreachable", "x");
        for (own, a, b) in [
            (vec![link.clone()], vec![link.clone()], vec![link.clone()]),
            (vec![], vec![likely.clone()], vec![]),
            (vec![likely], vec![link.clone()], vec![]),
            (vec![], vec![agent], vec![]),
            // This agent is the one that differs: the two others name it.
            (vec![link.clone()], vec![], vec![]),
        ] {
            assert!(after(9, &own, &a, &b).iter().all(Vec::is_empty));
        }
        let mut suspects = Suspects::default();
        for _ in 0..9 {
            assert!(suspects.judged(&said("own", &[]), &[said("a", from_ref(&link))]).is_empty(), "of two judges");
        }
    }

    #[test]
    fn judges_that_see_only_a_part_of_the_mesh_are_not_compared() {
        let (mut suspects, link) = (Suspects::default(), verdict("link", "x->y"));
        let mut part = said("a", from_ref(&link));
        part.held.overview.not_gathered = 1;
        let all: Vec<Verdict> = (0..MESH_VERDICTS_MAX).map(|n| verdict("node", &format!("n{n}"))).collect();
        for one in [part, said("a", &all)] {
            for _ in 0..9 {
                assert!(suspects.judged(&said("own", &[]), &[one.clone(), said("b", &[])]).is_empty());
            }
        }
    }

    #[test]
    fn a_dispute_that_pauses_begins_anew() {
        let (link, mut suspects) = (verdict("link", "x->y"), Suspects::default());
        let mut round = |differs: bool| {
            let a = if differs { vec![link.clone()] } else { Vec::new() };
            !suspects.judged(&said("own", &[]), &[said("a", &a), said("b", &[])]).is_empty()
        };
        assert_eq!([true, true, false, true, true, true].map(&mut round), [false, false, false, false, false, true]);
    }

    #[test]
    fn a_forged_past_makes_a_judge_suspect_if_all_three_judged_at_that_time_and_it_lasted() {
        // All of them judge since 1,100.
        let past = |since, end| Verdict {
            since_unix_seconds: Some(since),
            ended_unix_seconds: Some(end),
            ..verdict("node", "z")
        };
        for (since, end, is_suspect) in [(1_200, 1_300, true), (1_000, 1_300, false), (1_200, 1_240, false)] {
            let found = after(3, &[], &[past(since, end)], &[]);
            assert_eq!(!found[2].is_empty(), is_suspect, "{since} to {end}");
        }
    }
}
