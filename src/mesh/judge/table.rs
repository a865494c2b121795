//! The verdicts of a judge over time: which hold, and which have ended. No clock.
//!
//! A verdict ends only if two judgements in a row lack it. Evidence at the edge of a threshold is
//! there in one judgement and not in the next. Its series would blink, and so would the alert. An
//! ended verdict stays for ten minutes, so that a scraper that fails for some minutes sees its end.

use crate::exposition::VerdictSeries;
use crate::limits::MESH_VERDICTS_MAX;
use crate::mesh::verdicts::{self, Verdict};
use crate::report::Method;
use crate::units::Nanos;

/// Judgements in a row that must lack a verdict before it ends.
const LACKED: u8 = 2;
/// How long an ended verdict is kept.
const ENDED_KEPT: Nanos = Nanos::from_millis(600_000);

/// The verdicts of a judge, at most [`MESH_VERDICTS_MAX`], 250 bytes each.
#[derive(Debug, Default)]
pub struct Table {
    entries: Vec<Entry>,
    dropped: usize,
}

#[derive(Debug)]
struct Entry {
    series: VerdictSeries,
    /// Judgements in a row that lacked it.
    lacked: u8,
    /// When it ended, if it did.
    ended: Option<Nanos>,
}

impl Table {
    /// Takes a judgement: its verdicts, the gravest first, and how many more there were. A verdict
    /// of unknown age has begun now.
    pub fn judged(&mut self, verdicts: &[Verdict], not_listed: usize, now: Nanos, now_unix_seconds: u64) {
        self.dropped = not_listed;
        for entry in &mut self.entries {
            entry.lacked = entry.lacked.saturating_add(1);
        }
        for verdict in verdicts {
            self.holds(verdict, now_unix_seconds);
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.lacked >= LACKED && entry.ended.is_none()) {
            (entry.ended, entry.series.holds) = (Some(now), false);
        }
        self.entries.retain(|entry| entry.ended.is_none_or(|ended| now.since(ended) < ENDED_KEPT));
    }

    fn holds(&mut self, verdict: &Verdict, now_unix_seconds: u64) {
        let known = self.entries.iter_mut().find(|entry| entry.series.id == verdict.id);
        let since = known.as_ref().filter(|entry| entry.series.holds).map(|entry| entry.series.since_unix_seconds);
        let (subject, direction) = verdicts::in_order(verdict);
        let series = VerdictSeries {
            id: verdict.id.clone(),
            kind: verdict.kind.label(),
            subject: subject.into_owned(),
            direction: direction.label(),
            network: verdict.network.label(),
            protocol: verdict.protocol.map_or("all", Method::label),
            // The first time that was found stays. Later windows no longer reach back to it.
            since_unix_seconds: since.or(verdict.since_unix_seconds).unwrap_or(now_unix_seconds),
            holds: true,
        };
        let entry = Entry { series, lacked: 0, ended: None };
        if let Some(known) = known {
            // Slow and losing links share an id, and the graver verdict comes first.
            if known.lacked > 0 {
                *known = entry;
            }
        } else if self.entries.len() < MESH_VERDICTS_MAX {
            self.entries.push(entry);
        } else if let Some(oldest) = self.entries.iter_mut().filter(|it| it.ended.is_some()).min_by_key(|it| it.ended) {
            *oldest = entry;
        } else {
            self.dropped += 1;
        }
    }

    /// Returns the series of all verdicts.
    pub fn series(&self) -> Vec<VerdictSeries> {
        self.entries.iter().map(|entry| entry.series.clone()).collect()
    }

    /// Returns how many verdicts of the last judgement have no place.
    pub const fn dropped(&self) -> usize {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(node: usize, since: Option<u64>) -> Verdict {
        let value = serde_json::json!({"id": format!("{node:016x}"), "kind": "node", "subject": format!("n{node}"),
            "direction": "both", "network": "pod", "evidence": "", "since_unix_seconds": since});
        serde_json::from_value(value).unwrap()
    }

    fn at(round: u64) -> Nanos {
        Nanos::from_millis(round * 15_000)
    }

    /// The subjects and whether each holds, after judgements of these nodes, one every 15 s.
    fn after(table: &mut Table, rounds: std::ops::Range<u64>, nodes: &[usize]) -> Vec<(String, bool)> {
        let verdicts: Vec<Verdict> = nodes.iter().map(|node| verdict(*node, None)).collect();
        rounds.for_each(|round| table.judged(&verdicts, 0, at(round), 1_000 + round * 15));
        table.series().into_iter().map(|it| (it.subject, it.holds)).collect()
    }

    fn of(node: &str, holds: bool) -> (String, bool) {
        (node.to_owned(), holds)
    }

    #[test]
    fn a_verdict_ends_after_two_judgements_without_it_and_is_kept_for_ten_minutes() {
        let mut table = Table::default();
        assert_eq!(after(&mut table, 1..3, &[1, 2]), [of("n1", true), of("n2", true)]);
        assert_eq!(after(&mut table, 3..4, &[2]), [of("n1", true), of("n2", true)], "one is not enough");
        assert_eq!(after(&mut table, 4..5, &[1, 2]), [of("n1", true), of("n2", true)]);
        assert_eq!(after(&mut table, 5..7, &[2]), [of("n1", false), of("n2", true)]);
        assert_eq!(after(&mut table, 7..46, &[2]), [of("n1", false), of("n2", true)]);
        assert_eq!(after(&mut table, 46..47, &[2]), [of("n2", true)]);
    }

    #[test]
    fn a_verdict_that_holds_keeps_its_beginning_and_one_that_returns_has_a_new_one() {
        let mut table = Table::default();
        let since = |table: &Table| table.series()[0].since_unix_seconds;
        table.judged(&[verdict(1, Some(900))], 0, at(1), 1_000);
        table.judged(&[verdict(1, Some(950))], 0, at(2), 1_015);
        table.judged(&[], 0, at(3), 1_030);
        table.judged(&[verdict(1, None)], 0, at(4), 1_045);
        assert_eq!(since(&table), 900);
        table.judged(&[], 0, at(5), 1_060);
        table.judged(&[], 0, at(6), 1_075);
        assert_eq!((since(&table), table.series()[0].holds), (900, false));
        table.judged(&[verdict(1, None)], 0, at(7), 1_090);
        assert_eq!((since(&table), table.series()[0].holds), (1_090, true));
    }

    #[test]
    fn at_most_64_verdicts_are_kept_the_ended_ones_make_room_and_the_rest_is_counted() {
        let mut table = Table::default();
        let nodes: Vec<usize> = (0..60).collect();
        after(&mut table, 1..2, &nodes);
        after(&mut table, 2..4, &nodes[10..]);
        let more: Vec<usize> = (10..80).collect();
        let series = after(&mut table, 4..5, &more);
        assert_eq!((series.len(), table.dropped()), (MESH_VERDICTS_MAX, 6));
        assert!(series.iter().all(|(_, holds)| *holds), "{series:?}");
        table.judged(&[verdict(10, None)], 3, at(5), 0);
        assert_eq!(table.dropped(), 3);
    }

    #[test]
    fn of_two_verdicts_of_one_id_the_first_counts() {
        let mut table = Table::default();
        let mut other = verdict(1, None);
        other.direction = verdicts::Direction::In;
        table.judged(&[verdict(1, None), other], 0, at(1), 0);
        assert_eq!(table.series().iter().map(|it| it.direction).collect::<Vec<_>>(), ["both"]);
    }
}
