//! What the agent publishes as one of the judges of the mesh: its verdicts as metrics, and the
//! answer to the question of other agents whether it judges.
//!
//! A verdict is one series that is 1 while it holds, and 0 for ten minutes after. So an alert needs
//! no threshold, and its end is seen at the next scrape. These series come on top of
//! `--max-series`: a fault must not change which links are exported.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exposition::{FamilyWriter, Section};
use crate::report::{JudgeAnswer, Methods};
use crate::sys::wall;
use crate::units::Nanos;
use crate::verdict::Verdict;

/// What a judge has judged since it began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastJudgement {
    /// When it began to judge.
    pub since: Nanos,
    /// Number of judgements since.
    pub rounds: u32,
    /// The time of the last one, or of the beginning if there is none yet.
    pub at: Nanos,
    /// Number of nodes that the last one was about.
    pub nodes: usize,
    /// The verdicts that hold, and those of the last ten minutes. At most 64.
    pub verdicts: Vec<Verdict>,
    /// Number of verdicts that hold and have no place among these.
    pub dropped: usize,
}

/// The last judgement, if the agent judges.
#[derive(Debug, Default)]
pub struct Judging(Mutex<Option<LastJudgement>>);

impl Judging {
    /// Replaces what is published. None if the agent does not judge.
    pub fn publish(&self, judged: Option<LastJudgement>) {
        *self.lock() = judged;
    }

    /// Returns the answer to other agents.
    pub fn answer(&self, now: Nanos) -> JudgeAnswer {
        self.lock().as_ref().map_or(JudgeAnswer::NO, |judged| JudgeAnswer {
            judges: true,
            since_seconds: now.since(judged.since).as_secs_f64(),
            rounds: judged.rounds,
            age_seconds: now.since(judged.at).as_secs_f64(),
            ..JudgeAnswer::NO
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<LastJudgement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Section for Judging {
    fn write(&self, now: Nanos, head: &mut FamilyWriter<'_>) {
        let judged = self.lock();
        head.gauges(
            "kube_canary_judge",
            "Whether the agent is one of the judges of the mesh: 1 or 0.",
            [([], judged.is_some().into())],
        );
        let Some(LastJudgement { at, nodes, verdicts, dropped, .. }) = &*judged else { return };
        head.gauges(
            "kube_canary_verdict",
            "Verdicts of this judge: 1 while a verdict holds, 0 for ten minutes after.",
            verdicts.iter().map(|verdict| {
                let labels = [
                    ("direction", verdict.direction.label()),
                    ("id", &*verdict.id),
                    ("kind", verdict.kind.label()),
                    ("network", verdict.network.label()),
                    ("protocol", verdict.protocol.map_or("all", Methods::label)),
                    ("severity", verdict.severity.label()),
                    ("subject", &*verdict.subject),
                ];
                (labels, verdict.holds().into())
            }),
        );
        head.gauges(
            "kube_canary_verdict_since_timestamp_seconds",
            "When a verdict began, in seconds since the epoch.",
            verdicts.iter().map(|verdict| ([("id", &*verdict.id)], verdict.since_unix_seconds.unwrap_or(0))),
        );
        head.ratios(
            "kube_canary_verdict_loss_ratio",
            "Share of the packets that a verdict is about and that are lost, 0 to 1.",
            verdicts.iter().filter_map(|verdict| Some(([("id", &*verdict.id)], verdict.loss_ratio()?))),
        );
        head.gauges(
            "kube_canary_verdicts_dropped",
            "Verdicts that hold and have no series because there are 64 graver ones.",
            [([], *dropped as u64)],
        );
        head.gauges("kube_canary_judged_nodes", "Nodes of the last judgement.", [([], *nodes as u64)]);
        head.counters(
            "kube_canary_judgements_failed_total",
            "Judgements, and readings of reports or of other judges, that ended in a panic and were dropped.",
            [([], wall::ended())],
        );
        head.gauges(
            "kube_canary_judgement_age_seconds",
            "Age of the last judgement, in whole seconds; before the first one, the time since the agent became a judge.",
            [([], now.since(*at).as_secs())],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::Format;
    use crate::report::Network;
    use crate::verdict::{Direction, Figure, Figures, Kind};

    fn written(judging: &Judging) -> String {
        let mut text = Vec::new();
        judging.write(Nanos::from_millis(59_000), &mut FamilyWriter::new(Format::Text, 1, &mut text));
        String::from_utf8(text)
            .unwrap()
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.to_owned() + "\n")
            .collect()
    }

    #[test]
    fn only_a_judge_has_these_series_and_its_answer_has_ages() {
        let judging = Judging::default();
        assert_eq!(
            (written(&judging), judging.answer(Nanos(9))),
            ("kube_canary_judge 0\n".to_owned(), JudgeAnswer::NO)
        );
        let verdict = Verdict {
            id: "00ff00ff00ff00ff00ff00ff00ff00ff".into(),
            direction: Direction::In,
            since_unix_seconds: Some(1_700_000_000),
            figures: Figures::default().with([(Figure::ProbesThere, 60.0), (Figure::LostThere, 15.0)]),
            ..Verdict::new(Kind::Link, "a\"->b".into(), Network::Pod)
        };
        let (id, ended_unix_seconds) = ("00ff00ff00ff00ff00ff00ff00ff00fe".into(), Some(1_700_000_060));
        let ended = Verdict { id, ended_unix_seconds, ..verdict.clone() };
        let (since, at, verdicts) = (Nanos::from_millis(10_000), Nanos::from_millis(50_000), vec![verdict, ended]);
        judging.publish(Some(LastJudgement { since, rounds: 3, at, nodes: 7, verdicts, dropped: 2 }));
        let labels = |id| {
            format!(
                r#"direction="in",id="{id}",kind="link",network="pod",protocol="all",severity="warning",subject="a\"->b""#
            )
        };
        assert_eq!(
            written(&judging),
            format!(
                "kube_canary_judge 1\nkube_canary_verdict{{{}}} 1\nkube_canary_verdict{{{}}} 0\n\
                 kube_canary_verdict_since_timestamp_seconds{{id=\"00ff00ff00ff00ff00ff00ff00ff00ff\"}} 1700000000\n\
                 kube_canary_verdict_since_timestamp_seconds{{id=\"00ff00ff00ff00ff00ff00ff00ff00fe\"}} 1700000000\n\
                 kube_canary_verdict_loss_ratio{{id=\"00ff00ff00ff00ff00ff00ff00ff00ff\"}} 0.25\n\
                 kube_canary_verdict_loss_ratio{{id=\"00ff00ff00ff00ff00ff00ff00ff00fe\"}} 0.25\n\
                 kube_canary_verdicts_dropped 2\nkube_canary_judged_nodes 7\n\
                 kube_canary_judgements_failed_total {}\nkube_canary_judgement_age_seconds 9\n",
                labels("00ff00ff00ff00ff00ff00ff00ff00ff"),
                labels("00ff00ff00ff00ff00ff00ff00ff00fe"),
                wall::ended()
            )
        );
        let answer = judging.answer(Nanos::from_millis(59_000));
        assert_eq!((answer.judges, answer.since_seconds, answer.rounds, answer.age_seconds), (true, 49.0, 3, 9.0));
        judging.publish(None);
        assert_eq!(written(&judging), "kube_canary_judge 0\n");
    }
}
