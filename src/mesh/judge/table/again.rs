//! Verdicts that have ended and begin again.

use super::super::document::tests::verdict as of_kind;
use super::tests::{after, at, found, over, times, verdict};
use super::*;

#[test]
fn a_verdict_that_is_over_ends_at_once_and_one_that_comes_and_goes_does_not() {
    let mut table = VerdictTable::default();
    let (first, second) = (at(1) + 7, at(5) + 7);
    table.judged(&found(&[verdict(1, Some(900))]), at(1));
    for round in 2..4 {
        table.judged(&over(1, 900, first), at(round));
        assert_eq!(times(&table), [(Some(900), Some(first))]);
    }
    // It begins again, which may be another fault.
    table.judged(&found(&[verdict(1, Some(at(4)))]), at(5));
    table.judged(&over(1, at(4), second), at(6));
    assert_eq!(times(&table), [(Some(at(4)), Some(second)), (Some(900), Some(first))]);
    // It comes and goes.
    table.judged(&found(&[verdict(1, Some(at(8)))]), at(9));
    for round in 10..13 {
        table.judged(&over(1, at(8), at(9)), at(round));
        assert_eq!(times(&table)[0], (Some(at(8)), None));
    }
    after(&mut table, 13..15, &[]);
    assert_eq!(times(&table)[0], (Some(at(8)), Some(at(14))));
    let long_after = at(14) + AGAIN_SECONDS;
    table.judged(&found(&[verdict(1, Some(long_after))]), long_after);
    table.judged(&over(1, long_after, long_after + 5), long_after + 15);
    assert_eq!(times(&table)[0], (Some(long_after), Some(long_after + 5)));
}

#[test]
fn two_faults_after_each_other_do_not_come_and_go_if_one_was_long_before() {
    let mut table = VerdictTable::default();
    for since in [1_000, 1_100 + AGAIN_SECONDS, 1_200 + AGAIN_SECONDS] {
        table.judged(&found(&[verdict(1, Some(since))]), since + 10);
        table.judged(&over(1, since, since + 50), since + 60);
        assert_eq!(times(&table)[0], (Some(since), Some(since + 50)));
    }
    // The third time in a row.
    table.judged(&found(&[verdict(1, Some(1_300 + AGAIN_SECONDS))]), 1_310 + AGAIN_SECONDS);
    table.judged(&over(1, 1_300 + AGAIN_SECONDS, 1_350 + AGAIN_SECONDS), 1_360 + AGAIN_SECONDS);
    assert_eq!(times(&table)[0], (Some(1_300 + AGAIN_SECONDS), None));
}

#[test]
fn a_second_fault_has_its_own_beginning_and_ends_as_fast_as_the_first() {
    let mut table = VerdictTable::default();
    table.judged(&found(&[verdict(1, Some(900))]), at(1));
    table.judged(&over(1, 900, at(1) + 5), at(2));
    (3..10).for_each(|round| table.judged(&found(&[]), at(round)));
    // The links lost in each of the last minutes, so they still remember the first fault.
    table.judged(&found(&[verdict(1, Some(900))]), at(10));
    let own = at(9) - UNSEEN_SECONDS;
    assert_eq!(times(&table), [(Some(own), None), (Some(900), Some(at(1) + 5))]);
    table.judged(&over(1, 900, at(10) + 5), at(11));
    assert_eq!(times(&table)[0], (Some(own), Some(at(10) + 5)));
    // What is known of its beginning counts.
    table.judged(&found(&[verdict(1, Some(at(19) + 3))]), at(20));
    assert_eq!(times(&table)[0], (Some(at(19) + 3), None));
    // So do the links of two zones after the fault of a node in one of them.
    let zones = |since: u64| Verdict { since_unix_seconds: Some(since), ..of_kind("zone_pair", "x->y") };
    table.judged(&found(&[zones(900)]), at(20) + 15);
    let now: Vec<_> = table.verdicts().into_iter().filter(|verdict| verdict.subject == "x->y").collect();
    assert_eq!(now[0].since_unix_seconds, Some(at(20) - UNSEEN_SECONDS));
    // A judge that was away for long says no time before the end.
    let mut table = VerdictTable::default();
    table.judged(&found(&[verdict(1, Some(900))]), at(1));
    table.judged(&over(1, 900, at(1) + 5), at(2));
    table.judged(&found(&[verdict(1, Some(900))]), at(3));
    assert_eq!(times(&table)[0], (Some(at(1) + 5), None));
}

#[test]
fn a_verdict_that_holds_keeps_its_beginning_and_one_that_returns_has_a_new_one() {
    let mut table = VerdictTable::default();
    let since = |table: &VerdictTable| table.series(at(9))[0].since_unix_seconds;
    table.judged(&found(&[verdict(1, Some(900))]), at(1));
    table.judged(&found(&[verdict(1, Some(950))]), at(2));
    table.judged(&found(&[]), at(3));
    table.judged(&found(&[verdict(1, None)]), at(4));
    assert_eq!(since(&table), Some(900));
    table.judged(&found(&[]), at(5));
    table.judged(&found(&[]), at(6));
    assert_eq!((since(&table), table.series(at(6))[0].holds()), (Some(900), false));
    table.judged(&found(&[verdict(1, None)]), at(7));
    let series = table.series(at(7));
    assert_eq!((series.len(), series[0].since_unix_seconds, series[0].holds()), (1, Some(at(7)), true));
    assert_eq!(table.verdicts().len(), 2, "the past has both times");
}

#[test]
fn what_was_over_before_it_was_found_is_of_the_past_once() {
    let mut table = VerdictTable::default();
    for round in 1..4 {
        table.judged(&over(1, 900, 908 + round), at(round));
        assert_eq!(times(&table), [(Some(900), Some(909))]);
    }
    assert!(!table.series(at(3))[0].holds());
    // What is left in the recent windows of the same fault.
    table.judged(&over(2, 900, 911), at(4));
    assert_eq!(times(&table).len(), 1);
    table.judged(&over(2, 900, 1_000), at(5));
    assert_eq!(times(&table).len(), 2);
}

#[test]
fn an_end_that_shows_no_loss_hides_no_short_fault() {
    let gone = Verdict { since_unix_seconds: Some(at(0)), ..of_kind("agent_unreachable", "x") };
    let claim = Verdict { ended_unix_seconds: Some(at(3)), judges: Some(1), unconfirmed: true, ..verdict(9, None) };
    let mut table = VerdictTable::default();
    table.judged(&found(std::slice::from_ref(&gone)), at(1));
    table.judged(&found(&[]), at(2));
    table.judged(&found(&[]), at(3));
    table.take_over(vec![claim], at(3));
    table.judged(&over(2, at(3) + 2, at(3) + 12), at(4));
    let ended: Vec<String> = table.confirmed().map(|verdict| verdict.subject.clone()).collect();
    assert_eq!(ended, ["x", "n2"]);
}
