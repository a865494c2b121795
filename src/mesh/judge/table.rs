//! The verdicts of a judge over time: which hold, and which have ended in the last 24 hours. No
//! clock.
//!
//! A verdict ends if a judgement says that it is over: its links have answered for too long. If
//! there is no such evidence, it ends only if two judgements in a row lack it. Evidence at the edge
//! of a threshold is there in one judgement and not in the next. Its series would blink, and so
//! would the alert. A judgement without most reports does not count, because what it lacks may
//! hold. A fault that comes and goes would also blink, so a verdict that has begun again twice,
//! each time soon after its end, does not end before the recent windows show no loss any more. As
//! they move on, they show less and less of what has ended, and at last too little to say that it
//! is over. So no verdict begins whose losses are older than the end of another. In the same way, a
//! size that passes again is known link by link, so no verdict over fewer links begins meanwhile.
//!
//! An ended verdict is exported for ten minutes, so that a scraper that fails for some minutes sees
//! its end.
//!
//! The past is bounded in number and bytes. A link that fails every minute must not push out what
//! happened in the night, so the oldest one of the most frequent verdict makes room. What only one
//! other judge claims makes room first, and has a part of it at most. It is never exported, and
//! never takes the place of a verdict that holds.

use std::collections::BTreeMap;

use super::document::JudgeStatement;
use super::quorum::{self, is_same};
use super::remembered::Remembered;
use crate::limits::{JUDGE_PAST_BYTES_MAX, JUDGE_PAST_MAX, JUDGE_UNCONFIRMED_PART, MESH_VERDICTS_MAX};
use crate::mesh::verdicts::{
    EXPLAINS_SECONDS, Identity, Kind, RankedVerdicts, Verdict, identity, is_same_finding, may_be_rest, may_share_links,
};
use crate::verdict::Figures;

/// Judgements in a row that must lack a verdict before it ends. One is enough if links have come
/// back.
const LACKED: u8 = 2;
/// Verdicts that end within this time are of the same fault if a judgement finds one of them only
/// after its end: the longest recent window.
const SAME_END_SECONDS: u64 = 60;
/// The beginning of the answers is known to this many seconds.
const END_KNOWN_SECONDS: u64 = 3;
/// A verdict that has begun so soon after its end comes and goes, if it has done so this many times
/// in a row. Once may be another fault, and two minutes later it is one.
const AGAIN_SECONDS: u64 = 90;
const AGAIN_TIMES: usize = 2;
/// For this long a fault may have lost packets before the judgement that lacks it was made.
const UNSEEN_SECONDS: u64 = 15;
/// How long an ended verdict is exported.
const EXPORTED_SECONDS: u64 = 600;
/// How long an ended verdict is kept.
const KEPT_SECONDS: u64 = 24 * 3_600;

/// The verdicts of a judge: at most [`MESH_VERDICTS_MAX`] that hold, and [`JUDGE_PAST_MAX`] that
/// have ended.
#[derive(Debug, Default)]
pub struct VerdictTable {
    entries: Vec<TableEntry>,
    dropped: usize,
    /// When the last judgement was made, in Unix seconds.
    judged_unix_seconds: u64,
    remembered: Remembered,
}

#[derive(Debug)]
struct TableEntry {
    /// Its ends are in the order of their names. If it has ended, it has no members.
    verdict: Verdict,
    /// Judgements in a row that lacked it.
    lacked: u8,
    /// Its place in the last judgement that had it. The gravest verdict is the first.
    place: usize,
    /// The figures with the strongest evidence, and their weight. The last ones before the end are
    /// of a minute that was mostly well.
    strongest: (f64, Figures),
}

impl TableEntry {
    fn new(verdict: &Verdict, place: usize, since: Option<u64>) -> Self {
        let verdict = Verdict { since_unix_seconds: since, judges: None, ..verdict.clone().in_order() };
        let strongest = (verdict.weight, verdict.figures.clone());
        Self { verdict, lacked: 0, place, strongest }
    }

    /// Returns the entry after a further judgement that has the verdict.
    fn next(&mut self, verdict: &Verdict, place: usize) -> Self {
        // The first time that was found stays. Later windows no longer reach back to it.
        let mut next = Self::new(verdict, place, self.verdict.since_unix_seconds);
        next.verdict.severity = verdict.severity_after(&self.verdict);
        let strongest = std::mem::take(&mut self.strongest);
        if strongest.0 > next.strongest.0 { Self { strongest, ..next } } else { next }
    }

    const fn holds(&self) -> bool {
        self.verdict.holds()
    }

    fn end(&mut self, unix_seconds: u64) {
        let Verdict { ended_unix_seconds, members, figures, .. } = &mut self.verdict;
        (*ended_unix_seconds, *members) = (Some(unix_seconds), Vec::new());
        *figures = std::mem::take(&mut self.strongest.1);
    }

    fn bytes(&self) -> usize {
        let Verdict { id, subject, figures, sizes, mentions, example, .. } = &self.verdict;
        let names = mentions.iter().map(|(_, name)| size_of_val(name) + name.len()).sum::<usize>();
        let of_example = example.as_ref().map_or(0, |example| example.from.len() + example.to.len());
        size_of::<Self>() + id.len() + subject.len() + figures.bytes() + size_of_val(&sizes[..]) + names + of_example
    }

    /// Returns what is exported of it.
    fn series(&self) -> Verdict {
        Verdict { members: Vec::new(), sizes: Vec::new(), mentions: Vec::new(), example: None, ..self.verdict.clone() }
    }
}

/// Whether at least two judges say it.
fn is_no_claim(verdict: &Verdict) -> bool {
    verdict.judges >= Some(2) && !verdict.unconfirmed
}

impl VerdictTable {
    /// Takes a judgement. A verdict of unknown age has begun now.
    pub fn judged(&mut self, found: &RankedVerdicts, now_unix_seconds: u64) {
        self.dropped = found.not_listed;
        for entry in self.entries.iter_mut().filter(|entry| entry.holds()) {
            entry.lacked = entry.lacked.saturating_add(1);
        }
        found.ended.iter().for_each(|verdict| self.over(verdict));
        found.ended.iter().for_each(|verdict| self.over_before(verdict));
        for (place, verdict) in found.verdicts.iter().enumerate() {
            let holding = self.entries.iter_mut().filter(|entry| entry.holds());
            let count = holding.count();
            let is_rest = self.is_rest_of_ended(verdict) || self.is_rest_of_hole(verdict, found);
            let known = self.entries.iter_mut().find(|entry| entry.holds() && is_same_finding(&entry.verdict, verdict));
            match known {
                // Slow and losing links are one finding, and the graver verdict comes first.
                Some(known) if known.lacked == 0 => {}
                Some(known) => *known = known.next(verdict, place),
                None if is_rest => {}
                None if count < MESH_VERDICTS_MAX => {
                    let since = self.beginning(verdict, now_unix_seconds);
                    self.entries.push(TableEntry::new(verdict, place, Some(since)));
                }
                None => self.dropped += 1,
            }
        }
        let lacked = if found.are_links_back { 1 } else { LACKED };
        for entry in self.entries.iter_mut().filter(|entry| entry.holds()) {
            if found.is_partial {
                entry.lacked = entry.lacked.saturating_sub(1);
            } else if entry.lacked >= lacked {
                entry.end(now_unix_seconds);
            }
        }
        self.judged_unix_seconds = now_unix_seconds;
        self.remembered.judged(now_unix_seconds);
        self.forget(now_unix_seconds);
    }

    /// Returns since when and until when all that happened is known, at most as long as an ended
    /// verdict is kept.
    pub fn remembered(&self, now_unix_seconds: u64) -> (u64, u64) {
        self.remembered.times(now_unix_seconds, KEPT_SECONDS)
    }

    /// Takes over since when two of these remember what happened.
    pub fn remember(&mut self, said: &[JudgeStatement]) {
        if let Some((since, until)) = quorum::remembered(said).filter(|_| said.len() > 1) {
            self.remembered.extend(since, until);
        }
    }

    /// Returns when a verdict that no judgement has had before began. Links that lose minute after
    /// minute remember the first one. So if a verdict over them has ended since, this one began
    /// after its end, and not long before the last judgement, which lacks it.
    fn beginning(&self, verdict: &Verdict, now_unix_seconds: u64) -> u64 {
        let since = verdict.since_unix_seconds.unwrap_or(now_unix_seconds);
        let before =
            self.confirmed().filter(|other| is_same_finding(other, verdict) || may_share_links(other, verdict));
        match before.filter_map(|other| other.ended_unix_seconds).max().filter(|end| since < *end) {
            Some(end) => end.max(self.judged_unix_seconds.saturating_sub(UNSEEN_SECONDS)).min(now_unix_seconds),
            None => since,
        }
    }

    /// Whether a finding that began then comes and goes.
    fn comes_and_goes(&self, verdict: &Verdict, since: u64) -> bool {
        let mut begun = since;
        for _ in 0..AGAIN_TIMES {
            let of_it = self.confirmed().filter(|of| is_same_finding(of, verdict));
            let ends = of_it.filter_map(|of| Some((of.ended_unix_seconds?, of.since_unix_seconds.unwrap_or(0))));
            match ends.filter(|(_, earlier)| *earlier < begun).max() {
                Some((end, earlier)) if begun < end.saturating_add(AGAIN_SECONDS) => begun = earlier,
                _ => return false,
            }
        }
        true
    }

    /// Whether a verdict that is not known is what the recent windows still show of one that has
    /// ended.
    fn is_rest_of_ended(&self, verdict: &Verdict) -> bool {
        let ends = self.confirmed().filter(|ended| may_be_rest(verdict, ended));
        let mut ends = ends.filter_map(|ended| ended.ended_unix_seconds);
        verdict.calm_since_unix_seconds.is_some_and(|calm| {
            let most = calm.saturating_add(SAME_END_SECONDS);
            ends.any(|end| (calm..=most).contains(&end.saturating_add(END_KNOWN_SECONDS)))
        })
    }

    /// Whether a verdict is over some of the links of a wider one that holds here, and that this
    /// judgement no longer finds, because packets of full size pass again on the others.
    fn is_rest_of_hole(&self, verdict: &Verdict, found: &RankedVerdicts) -> bool {
        let is_closing = |entry: &TableEntry| {
            let wide = &entry.verdict;
            let is_wider = wide.kind == Kind::Mtu && entry.holds() && wide.weight > verdict.weight;
            is_wider && !found.verdicts.iter().any(|verdict| is_same_finding(verdict, wide))
        };
        verdict.kind == Kind::Mtu && self.entries.iter().any(is_closing)
    }

    /// Takes a verdict that is over. It ends here, or still holds if it comes and goes.
    fn over(&mut self, verdict: &Verdict) {
        let is_it = |entry: &TableEntry| entry.holds() && is_same_finding(&entry.verdict, verdict);
        let Some(place) = self.entries.iter().position(is_it) else { return };
        let since = self.entries[place].verdict.since_unix_seconds.unwrap_or(0);
        let comes_and_goes = self.comes_and_goes(verdict, since);
        let entry = &mut self.entries[place];
        if comes_and_goes {
            entry.lacked = 0;
        } else if let Some(ended) = verdict.ended_unix_seconds {
            entry.end(ended.max(since));
        }
    }

    /// Takes a verdict that was over before any judgement found it. It belongs to the past, unless
    /// it is what the recent windows still show of another one that ended at the same time.
    fn over_before(&mut self, verdict: &Verdict) {
        let Some(ended) = verdict.ended_unix_seconds else { return };
        let is_rest = |other: &Verdict| match other.ended_unix_seconds {
            None => is_same_finding(other, verdict),
            Some(end) => may_be_rest(verdict, other) && end.abs_diff(ended) <= SAME_END_SECONDS,
        };
        if !self.confirmed().any(is_rest) {
            self.add_past(verdict);
        }
    }

    /// Takes over what other judges agree on: verdicts that have ended and are not known here, and
    /// earlier beginnings of those that hold here.
    pub fn take_over(&mut self, agreed: Vec<Verdict>, now_unix_seconds: u64) {
        for theirs in agreed {
            let known = self.entries.iter_mut().find(|entry| is_one_time(&entry.verdict, &theirs));
            match known {
                Some(TableEntry { verdict: ours, .. }) => {
                    ours.unconfirmed &= theirs.unconfirmed;
                    if ours.holds() && theirs.judges >= Some(2) {
                        let since = ours.since_unix_seconds.into_iter().chain(theirs.since_unix_seconds).min();
                        ours.since_unix_seconds = since;
                    }
                }
                None => self.add_past(&theirs),
            }
        }
        self.forget(now_unix_seconds);
    }

    fn add_past(&mut self, verdict: &Verdict) {
        if let Some(ended) = verdict.ended_unix_seconds {
            let mut entry = TableEntry::new(verdict, 0, verdict.since_unix_seconds);
            entry.end(ended);
            self.entries.push(entry);
        }
    }

    /// Takes what judges agree on, as an agent does that does not judge itself. The past stays that
    /// it had before. What held before stays too, unless it `is_all` that may be said: one judge
    /// that is silent about it may be the one that lies. A verdict that one judge alone holds may
    /// be a lie, and this agent finds it itself once it judges.
    pub fn copy(&mut self, agreed: &[Verdict], is_all: bool, now_unix_seconds: u64) {
        self.entries.retain(|entry| {
            let is_agreed = agreed.iter().any(|theirs| is_one_time(&entry.verdict, theirs) && is_no_claim(theirs));
            !(is_agreed || entry.holds() && is_all)
        });
        for (place, verdict) in agreed.iter().enumerate() {
            let is_known = self.entries.iter().any(|entry| is_one_time(&entry.verdict, verdict));
            let has_room = self.entries.iter().filter(|entry| entry.holds()).count() < MESH_VERDICTS_MAX;
            match verdict.ended_unix_seconds {
                None if is_no_claim(verdict) && has_room => {
                    self.entries.push(TableEntry::new(verdict, place, verdict.since_unix_seconds));
                }
                Some(_) if !is_known => self.add_past(verdict),
                _ => {}
            }
        }
        self.forget(now_unix_seconds);
    }

    /// Takes what these say as [`VerdictTable::copy`] does, and since when two of them remember.
    pub fn copy_of(&mut self, said: &[JudgeStatement], is_all: bool, now_unix_seconds: u64) {
        self.copy(&quorum::agreed(said), is_all, now_unix_seconds);
        self.remember(said);
    }

    /// Drops ended verdicts that are too old, or too many.
    fn forget(&mut self, now_unix_seconds: u64) {
        let oldest = now_unix_seconds.saturating_sub(KEPT_SECONDS);
        self.entries.retain(|entry| entry.verdict.ended_unix_seconds.is_none_or(|ended| ended >= oldest));
        let is_unconfirmed = |entry: &TableEntry| entry.verdict.unconfirmed;
        self.forget_of(is_unconfirmed, JUDGE_UNCONFIRMED_PART, is_unconfirmed);
        self.forget_of(|_| true, 1, is_unconfirmed);
        self.forget_of(|_| true, 1, |_| true);
    }

    /// Drops ended verdicts that `may_go` while those of the `group` take more than the past
    /// divided by `divisor`.
    fn forget_of(&mut self, group: impl Fn(&TableEntry) -> bool, divisor: usize, may_go: impl Fn(&TableEntry) -> bool) {
        loop {
            let ended = || self.entries.iter().filter(|entry| !entry.holds() && group(entry));
            let bytes: usize = ended().map(TableEntry::bytes).sum();
            if ended().count() <= JUDGE_PAST_MAX / divisor && bytes <= JUDGE_PAST_BYTES_MAX / divisor {
                break;
            }
            let past = || self.entries.iter().enumerate().filter(|(_, entry)| !entry.holds() && may_go(entry));
            let mut times = BTreeMap::<Identity<'_>, usize>::new();
            past().for_each(|(_, entry)| *times.entry(identity(&entry.verdict)).or_default() += 1);
            let most = times.values().copied().max().unwrap_or(0);
            let often = past().filter(|(_, entry)| times.get(&identity(&entry.verdict)) == Some(&most));
            let Some((first, _)) = often.min_by_key(|(_, entry)| entry.verdict.ended_unix_seconds) else { break };
            self.entries.remove(first);
        }
    }

    /// Returns the verdicts that are more than what one other judge claims.
    fn confirmed(&self) -> impl Iterator<Item = &Verdict> {
        self.entries.iter().map(|entry| &entry.verdict).filter(|verdict| !verdict.unconfirmed)
    }

    /// Returns the verdicts that explain what the links have lost in the last ten minutes: those
    /// that ended in this time, and those that hold. The next judgement may find that one is over.
    pub fn explaining(&self, now_unix_seconds: u64) -> Vec<Verdict> {
        let is_new = |end: u64| end.saturating_add(EXPLAINS_SECONDS) > now_unix_seconds;
        self.confirmed().filter(|verdict| verdict.ended_unix_seconds.is_none_or(is_new)).cloned().collect()
    }

    /// Returns the series of the verdicts that hold, and of those that have just ended.
    pub fn series(&self, now_unix_seconds: u64) -> Vec<Verdict> {
        let mut entries: Vec<&TableEntry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.verdict.ended_unix_seconds.unwrap_or(u64::MAX)));
        let is_shown = |entry: &&TableEntry| {
            let Verdict { ended_unix_seconds, unconfirmed, .. } = entry.verdict;
            ended_unix_seconds
                .is_none_or(|ended| !unconfirmed && ended.saturating_add(EXPORTED_SECONDS) > now_unix_seconds)
        };
        let mut shown: Vec<&TableEntry> = Vec::new();
        for entry in entries.into_iter().filter(is_shown) {
            // Of a verdict that returns, the last time counts.
            let is_new = !shown.iter().any(|other| is_same_finding(&other.verdict, &entry.verdict));
            if shown.len() < MESH_VERDICTS_MAX && is_new {
                shown.push(entry);
            }
        }
        shown.into_iter().map(TableEntry::series).collect()
    }

    /// Returns all verdicts: those that hold, the gravest first, and then those that have ended,
    /// the last one first.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let mut entries: Vec<&TableEntry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| {
            (std::cmp::Reverse(entry.verdict.ended_unix_seconds.unwrap_or(u64::MAX)), entry.place)
        });
        entries.into_iter().map(|entry| entry.verdict.clone()).collect()
    }

    /// Returns how many verdicts of the last judgement have no place.
    pub const fn dropped(&self) -> usize {
        self.dropped
    }
}

#[cfg(test)]
mod again;
#[cfg(test)]
mod claims;
/// Whether two verdicts are of the same fault, and neither had ended when the other began.
fn is_one_time(a: &Verdict, b: &Verdict) -> bool {
    let is_before = |earlier: &Verdict, later: &Verdict| {
        earlier.ended_unix_seconds.zip(later.since_unix_seconds).is_some_and(|(ended, since)| ended < since)
    };
    is_same(a, b) && !is_before(a, b) && !is_before(b, a)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::super::document::tests::verdict as of_kind;
    use super::*;
    use crate::mesh::verdicts::Direction;
    use crate::verdict::Figure;

    pub(super) fn verdict(node: usize, since: Option<u64>) -> Verdict {
        Verdict { since_unix_seconds: since, ..of_kind("node", &format!("n{node}")) }
    }

    pub(super) fn found(verdicts: &[Verdict]) -> RankedVerdicts {
        RankedVerdicts { verdicts: verdicts.to_vec(), ..RankedVerdicts::default() }
    }

    pub(super) const fn at(round: u64) -> u64 {
        1_000 + round * 15
    }

    /// The subjects and whether each holds, after judgements of these nodes, one every 15 s.
    pub(super) fn after(table: &mut VerdictTable, rounds: Range<u64>, nodes: &[usize]) -> Vec<(String, bool)> {
        let verdicts: Vec<Verdict> = nodes.iter().map(|node| verdict(*node, None)).collect();
        let end = at(rounds.end - 1);
        rounds.for_each(|round| table.judged(&found(&verdicts), at(round)));
        let mut series: Vec<_> = table
            .series(end)
            .into_iter()
            .map(|verdict| (verdict.holds(), verdict.subject))
            .map(|(holds, subject)| (subject, holds))
            .collect();
        series.sort();
        series
    }

    fn row(node: &str, holds: bool) -> (String, bool) {
        (node.to_owned(), holds)
    }

    /// Verdicts that have ended, as other judges agree on them.
    pub(super) fn past(nodes: impl Iterator<Item = usize>, end: u64) -> Vec<Verdict> {
        let ended = |node| Verdict { ended_unix_seconds: Some(end), judges: Some(2), ..verdict(node, Some(end - 100)) };
        nodes.map(ended).collect()
    }

    #[test]
    fn a_verdict_ends_after_two_judgements_without_it_and_is_exported_for_ten_minutes() {
        let mut table = VerdictTable::default();
        assert_eq!(after(&mut table, 1..3, &[1, 2]), [row("n1", true), row("n2", true)]);
        assert_eq!(after(&mut table, 3..4, &[2]), [row("n1", true), row("n2", true)], "one is not enough");
        assert_eq!(after(&mut table, 4..5, &[1, 2]), [row("n1", true), row("n2", true)]);
        assert_eq!(after(&mut table, 5..7, &[2]), [row("n1", false), row("n2", true)]);
        assert_eq!(after(&mut table, 7..46, &[2]), [row("n1", false), row("n2", true)]);
        assert_eq!(after(&mut table, 46..47, &[2]), [row("n2", true)]);
        let kept: Vec<_> = table.verdicts().into_iter().map(|past| (past.subject, past.ended_unix_seconds)).collect();
        assert_eq!(kept, [("n2".to_owned(), None), ("n1".to_owned(), Some(at(6)))]);
        table.judged(&found(&[]), at(6) + KEPT_SECONDS);
        assert_eq!(table.verdicts().len(), 2);
        table.judged(&found(&[]), at(6) + KEPT_SECONDS + 1);
        assert_eq!(table.verdicts().len(), 1);
    }

    /// A judgement that finds a node to be over since then.
    pub(super) fn over(node: usize, since: u64, end: u64) -> RankedVerdicts {
        let verdict = Verdict { ended_unix_seconds: Some(end), ..verdict(node, Some(since)) };
        RankedVerdicts { ended: vec![verdict], ..RankedVerdicts::default() }
    }

    pub(super) fn times(table: &VerdictTable) -> Vec<(Option<u64>, Option<u64>)> {
        table.verdicts().into_iter().map(|verdict| (verdict.since_unix_seconds, verdict.ended_unix_seconds)).collect()
    }

    #[test]
    fn what_the_recent_windows_still_show_of_an_end_does_not_begin() {
        let mut table = VerdictTable::default();
        let lossy = |node, calm| Verdict { calm_since_unix_seconds: calm, ..verdict(node, Some(900)) };
        table.judged(&found(&[lossy(1, None)]), at(1));
        let over = |end| Verdict { ended_unix_seconds: Some(end), ..lossy(1, None) };
        table.judged(&RankedVerdicts { ended: vec![over(at(1))], ..RankedVerdicts::default() }, at(2));
        let holding = |table: &VerdictTable| table.verdicts().iter().filter(|verdict| verdict.holds()).count();
        for calm in [at(0), at(1), at(1) + END_KNOWN_SECONDS] {
            table.judged(&found(&[lossy(1, Some(calm)), lossy(2, Some(calm))]), at(3));
            assert_eq!(holding(&table), 0, "no loss after {calm}");
        }
        table.judged(&found(&[lossy(3, Some(at(1) + 9)), lossy(4, Some(at(1) - 100)), lossy(5, None)]), at(3));
        assert_eq!(holding(&table), 3, "after the end, long before it, and now");
    }

    #[test]
    fn a_hole_that_closes_link_by_link_has_no_verdicts_over_the_rest() {
        let hole = |kind_of: &str, weight| Verdict { weight, ..of_kind("mtu", kind_of) };
        let mut table = VerdictTable::default();
        let subjects = |table: &VerdictTable| -> Vec<String> {
            table.verdicts().into_iter().filter(Verdict::holds).map(|verdict| verdict.subject).collect()
        };
        table.judged(&found(&[hole("*", 9.0)]), at(1));
        table.judged(&found(&[hole("a", 4.0), hole("b->c", 0.0)]), at(2));
        assert_eq!(subjects(&table), ["*"]);
        table.judged(&found(&[hole("b->c", 0.0)]), at(3));
        assert_eq!(subjects(&table), <[&str; 0]>::default());
        table.judged(&found(&[hole("b->c", 0.0)]), at(4));
        assert_eq!(subjects(&table), ["b->c"], "it stays");
        table.judged(&found(&[hole("a", 4.0)]), at(5));
        assert_eq!(subjects(&table).len(), 2, "a hole that grows is named at once");
    }

    #[test]
    fn judgements_without_most_reports_end_nothing() {
        let mut table = VerdictTable::default();
        assert_eq!(after(&mut table, 1..2, &[1]), [row("n1", true)]);
        for round in 2..6 {
            table.judged(&RankedVerdicts { is_partial: true, are_links_back: true, ..found(&[]) }, at(round));
        }
        assert_eq!(after(&mut table, 6..7, &[]), [row("n1", true)], "the first one that counts");
        table.judged(&RankedVerdicts { is_partial: true, ..found(&[]) }, at(7));
        assert_eq!(after(&mut table, 8..9, &[]), [row("n1", false)]);
    }

    #[test]
    fn one_judgement_without_a_verdict_is_enough_once_links_are_back() {
        let mut table = VerdictTable::default();
        table.judged(&found(&[verdict(1, Some(900))]), at(1));
        table.judged(&RankedVerdicts { are_links_back: true, ..found(&[]) }, at(2));
        assert_eq!(times(&table), [(Some(900), Some(at(2)))]);
    }

    #[test]
    fn at_most_64_verdicts_hold_and_the_rest_is_counted() {
        let mut table = VerdictTable::default();
        let nodes: Vec<usize> = (0..60).collect();
        after(&mut table, 1..2, &nodes);
        after(&mut table, 2..4, &nodes[10..]);
        let more: Vec<usize> = (10..80).collect();
        let series = after(&mut table, 4..5, &more);
        assert_eq!((series.len(), table.dropped()), (MESH_VERDICTS_MAX, 6));
        assert!(series.iter().all(|(_, holds)| *holds), "{series:?}");
        table.judged(&RankedVerdicts { not_listed: 3, ..found(&[verdict(10, None)]) }, at(5));
        assert_eq!(table.dropped(), 3);
    }

    #[test]
    fn an_ended_verdict_has_the_figures_with_the_strongest_evidence() {
        let mut table = VerdictTable::default();
        for (round, weight) in [(1, 9.0), (2, 70.0), (3, 12.0)] {
            let figures = Figures::default().with([(Figure::Lost, weight)]);
            table.judged(&found(&[Verdict { figures, weight, ..verdict(1, None) }]), at(round));
        }
        assert_eq!(table.verdicts()[0].figures.count(Figure::Lost), 12, "what holds has the last one");
        table.judged(&found(&[]), at(4));
        table.judged(&found(&[]), at(5));
        assert_eq!(table.verdicts()[0].figures.count(Figure::Lost), 70);
    }

    #[test]
    fn the_first_of_two_equal_findings_counts() {
        let mut table = VerdictTable::default();
        let mut other = verdict(1, None);
        other.direction = Direction::In;
        table.judged(&found(&[verdict(1, None), other]), at(1));
        assert_eq!(table.series(at(1)).iter().map(|verdict| verdict.direction).collect::<Vec<_>>(), [Direction::Both]);
    }

    #[test]
    fn the_gravest_verdict_is_the_first_and_the_ends_of_a_link_are_in_order() {
        let mut table = VerdictTable::default();
        let link = Verdict { direction: Direction::Out, ..of_kind("link", "b->a") };
        table.judged(&found(&[verdict(1, None), link.clone()]), at(1));
        table.judged(&found(&[link, verdict(1, None)]), at(2));
        let verdicts = table.verdicts();
        let subjects: Vec<&str> = verdicts.iter().map(|verdict| verdict.subject.as_str()).collect();
        assert_eq!((subjects, verdicts[0].direction), (vec!["a->b", "n1"], Direction::In));
    }

    #[test]
    fn the_past_is_bounded_and_what_returns_most_often_makes_room() {
        let mut table = VerdictTable::default();
        table.take_over(past(7_000..7_010, at(1)), at(1));
        for time in 0..500 {
            let end = at(100 + time * 11);
            table.take_over(past(std::iter::once(1), end), end);
        }
        let subjects =
            |table: &VerdictTable| table.verdicts().into_iter().map(|verdict| verdict.subject).collect::<Vec<_>>();
        let entries = table.entries.iter();
        let bytes: usize = entries.map(TableEntry::bytes).sum();
        assert!(table.entries.len() <= JUDGE_PAST_MAX && bytes <= JUDGE_PAST_BYTES_MAX, "{bytes}");
        let kept = subjects(&table);
        assert!(
            kept.len() > 100 && kept.iter().filter(|subject| subject.starts_with("n700")).count() == 10,
            "{kept:?}"
        );
    }
}
