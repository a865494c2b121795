//! What other judges hold is taken over or copied, and what one alone claims displaces nothing.

use super::tests::{after, at, found, past, times, verdict};
use super::*;

/// Verdicts that have ended, as one judge alone says.
fn claimed(nodes: impl Iterator<Item = usize>, end: u64) -> Vec<Verdict> {
    past(nodes, end).into_iter().map(|verdict| Verdict { judges: Some(1), unconfirmed: true, ..verdict }).collect()
}

#[test]
fn what_one_judge_claims_displaces_nothing_that_was_seen_or_agreed() {
    let mut table = VerdictTable::default();
    let seen = |table: &VerdictTable| table.verdicts().iter().filter(|verdict| !verdict.unconfirmed).count();
    let claims = |table: &VerdictTable| table.verdicts().iter().filter(|verdict| verdict.unconfirmed).count();
    // Agreed, and then seen by this judge itself.
    table.take_over(past(0..100, at(1)), at(1));
    after(&mut table, 2..3, &[200, 201]);
    after(&mut table, 3..5, &[]);
    assert_eq!(seen(&table), 102);
    // Of other nodes, of the same ones at other times, and as often as the liar likes.
    for round in 0..20 {
        let end = at(10) + round;
        table.take_over(claimed((1_000..1_256).map(|node| node + 300 * usize::try_from(round).unwrap()), end), end);
        table.take_over(claimed(0..200, at(5) + 120 * round), at(2_000));
        assert_eq!(seen(&table), 102);
        assert!(claims(&table) <= JUDGE_PAST_MAX / JUDGE_UNCONFIRMED_PART, "{}", claims(&table));
    }
    let exported =
        table.series(at(11)).into_iter().map(|verdict| verdict.subject[1..].parse::<usize>().expect("a number"));
    let is_claimed = |node: &usize| !(0..100).contains(node) && ![200, 201].contains(node);
    assert!(claims(&table) > 0 && exported.filter(is_claimed).count() == 0);
    // What two agree on needs all of the room.
    table.take_over(past(2_000..2_300, at(20)), at(20));
    assert_eq!(claims(&table), 0);
}

#[test]
fn what_one_judge_says_holds_is_not_copied_and_takes_no_place_of_what_is_found() {
    let mut table = VerdictTable::default();
    let lies: Vec<Verdict> =
        (0..MESH_VERDICTS_MAX).map(|node| Verdict { judges: Some(1), ..verdict(node, Some(5)) }).collect();
    table.copy(&[lies, claimed(100..500, at(1))].concat(), false, at(1));
    assert!(table.verdicts().iter().all(|verdict| verdict.unconfirmed));
    let found: Vec<usize> = (1_000..1_000 + MESH_VERDICTS_MAX).collect();
    let series = after(&mut table, 2..3, &found);
    assert_eq!((series.len(), table.dropped()), (MESH_VERDICTS_MAX, 0));
    assert!(series.iter().all(|(node, holds)| *holds && node.len() == 5), "{series:?}");
}

#[test]
fn one_judge_that_is_silent_hides_no_verdict_that_was_copied_before() {
    let mut table = VerdictTable::default();
    let holds = Verdict { judges: Some(2), ..verdict(1, Some(5)) };
    table.copy(&[&[holds.clone()][..], &past([2].into_iter(), at(1))].concat(), true, at(1));
    table.copy(&[], false, at(2));
    assert_eq!(times(&table).len(), 2);
    // It is over, as two say.
    let over = Verdict { ended_unix_seconds: Some(at(3)), ..holds };
    table.copy(&[over], false, at(3));
    assert_eq!(times(&table)[0], (Some(5), Some(at(3))));
    assert_eq!(times(&table).len(), 2);
}

#[test]
fn the_past_of_other_judges_is_taken_over_once() {
    let mut table = VerdictTable::default();
    table.judged(&found(&[verdict(1, Some(at(20)))]), at(20));
    let unconfirmed = |verdict: Verdict| Verdict { unconfirmed: true, ..verdict };
    let mut theirs: Vec<Verdict> = past([1, 2].into_iter(), at(9)).into_iter().map(unconfirmed).collect();
    theirs.push(Verdict { judges: Some(2), ..verdict(1, Some(at(18))) });
    theirs.push(verdict(3, Some(at(18))));
    table.take_over(theirs, at(20));
    table.take_over(past([2].into_iter(), at(9) + 15), at(21));
    let found: Vec<_> = table
        .verdicts()
        .into_iter()
        .map(|verdict| (verdict.subject, verdict.since_unix_seconds, verdict.unconfirmed))
        .collect();
    let (first, begun) = ("n1".to_owned(), Some(at(9) - 100));
    let expected = [(first.clone(), Some(at(18)), false), (first, begun, true), ("n2".to_owned(), begun, false)];
    assert_eq!(found, expected, "a verdict that holds elsewhere is not taken over");
    assert!(!table.verdicts()[1].figures.is_empty());
}

#[test]
fn a_fault_does_not_take_the_beginning_of_one_that_had_ended() {
    let mut table = VerdictTable::default();
    table.judged(&found(&[verdict(1, Some(at(20)))]), at(20));
    let of_two = |verdict: Verdict| Verdict { judges: Some(2), ..verdict };
    table.take_over(past(std::iter::once(1), at(20) - 30).into_iter().map(of_two).collect(), at(20));
    let times: Vec<_> =
        table.verdicts().into_iter().map(|verdict| (verdict.since_unix_seconds, verdict.ended_unix_seconds)).collect();
    assert_eq!(times, [(Some(at(20)), None), (Some(at(20) - 130), Some(at(20) - 30))]);
}

/// A node that is bad again half a minute after its end.
#[test]
fn both_times_of_a_fault_are_kept_and_each_once() {
    let of_two = |verdict: Verdict| Verdict { judges: Some(2), ..verdict };
    let (now, before) = (of_two(verdict(1, Some(at(20)))), past(std::iter::once(1), at(20) - 30));
    let mut judge = VerdictTable::default();
    judge.judged(&found(std::slice::from_ref(&now)), at(20));
    let mut copy = VerdictTable::default();
    for _ in 0..4 {
        judge.take_over([&[now.clone()][..], &before].concat(), at(20));
        copy.copy(&[&[now.clone()][..], &before].concat(), true, at(20));
        for table in [&judge, &copy] {
            assert_eq!(times(table), [(Some(at(20)), None), (Some(at(20) - 130), Some(at(20) - 30))]);
        }
    }
    copy.copy(std::slice::from_ref(&now), true, at(20));
    assert_eq!(times(&copy).len(), 2, "the past stays");
}

#[test]
fn a_copy_has_what_holds_with_its_beginning() {
    let mut table = VerdictTable::default();
    let holds = Verdict { judges: Some(3), ..verdict(1, Some(5)) };
    table.copy(&[&[holds][..], &past([2].into_iter(), at(1))].concat(), true, at(1));
    assert!(table.verdicts().len() == 2 && table.verdicts().iter().all(|verdict| verdict.judges.is_none()));
    table.judged(&found(&[verdict(1, Some(500))]), at(2));
    assert_eq!(table.verdicts()[0].since_unix_seconds, Some(5));
    table.copy(&[], true, at(3));
    assert_eq!(times(&table), [(Some(at(1) - 100), Some(at(1)))], "the past stays");
}
