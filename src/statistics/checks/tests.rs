use std::sync::Arc;

use super::*;
use crate::checks::{AuthoritiesFile, CheckTarget, Host, HostPort};

const fn ms(time: u64) -> Nanos {
    Nanos::from_millis(time)
}

fn spec(name: &str) -> CheckSpec {
    let target = CheckTarget::Service(HostPort { host: Host::Name("h.example".into()), port: 443 });
    CheckSpec { name: name.into(), target }
}

fn attempt(phases: [u64; 4], end: Result<(), CheckFailure>) -> Attempt {
    let phases = phases.map(|time| (time > 0).then(|| ms(time)));
    Attempt { phases, end, certificate_not_after: None, family: Some(Family::V4), ..Attempt::default() }
}

/// An attempt that took this many milliseconds to connect.
fn good(time: u64) -> Attempt {
    attempt([0, time, 0, 0], Ok(()))
}

fn failed(failure: CheckFailure) -> Attempt {
    attempt([0; 4], Err(failure))
}

/// A board with one check, which has begun long ago.
fn board() -> CheckBoard {
    let board = CheckBoard::default();
    board.replace(&[spec("a")]);
    board.lock().records[0].has_succeeded = true;
    board
}

/// An attempt of the check at this place of the list, at one of its servers.
const fn due(check: usize, server: usize) -> DueAttempt {
    DueAttempt { check, server, spacing: ms(5_000) }
}

/// Returns the report of the only check, at this second.
fn report(board: &CheckBoard, second: u64) -> Check<'static> {
    let owned = |check: Check<'_>| Check { name: check.name.clone().into_owned().into(), ..check };
    board.read(0, |record| owned(record.report(ms(second * 1_000)))).expect("a check")
}

impl CheckBoard {
    /// Counts an attempt of the only check, of its only server, at this second.
    fn at(&self, second: u64, attempt: &Attempt) {
        self.record(due(0, 0), 1, ms(second * 1_000), attempt);
    }
}

#[test]
fn the_window_covers_30_to_60_seconds() {
    let board = board();
    for second in (600..660).step_by(5) {
        board.at(second, &if second < 630 { failed(CheckFailure::Timeout) } else { good(1) });
    }
    let counts = |second| {
        let check = report(&board, second);
        (check.tried, check.failed)
    };
    assert_eq!([655, 659, 660, 689, 690, 9_999].map(counts), [(12, 6), (12, 6), (6, 0), (6, 0), (0, 0), (0, 0)]);
    let past = report(&board, 690);
    assert_eq!((past.reason, past.since_unix_seconds, past.time_p50_seconds, past.good_in_row), (None, None, None, 0));
    // After a pause, nothing from before it counts.
    board.at(900, &good(1));
    assert_eq!(report(&board, 900).tried, 1);
}

#[test]
fn a_family_is_reported_if_it_alone_fails() {
    let over = |family, attempt: Attempt| Attempt { family, ..attempt };
    let (v4, v6) = (Some(Family::V4), Some(Family::V6));
    let timeout = || failed(CheckFailure::Timeout);
    let family = |attempts: &[Attempt]| {
        let board = board();
        for attempt in attempts {
            board.at(600, attempt);
        }
        let check = report(&board, 600);
        (check.family, check.family_tried)
    };
    let one = [over(v4, good(1)), over(v6, timeout()), over(v4, good(1)), over(v6, good(1))];
    assert_eq!(family(&one), (v6, 2));
    assert_eq!(family(&[over(v4, timeout()), over(v6, good(1))]), (v4, 1));
    assert_eq!(family(&[over(v4, good(900)), over(v6, good(1))]), (v4, 1), "slow");
    assert_eq!(family(&[over(v4, timeout()), over(v6, timeout())]), (None, 0));
    assert_eq!(family(&[over(v6, timeout()), over(v6, timeout())]), (None, 0), "the other one was not tried");
    assert_eq!(
        family(&[over(v6, timeout()), over(None, timeout()), over(v4, good(1))]),
        (None, 0),
        "it has no address"
    );
}

#[test]
fn the_most_frequent_reason_is_reported_and_all_are_counted() {
    let board = board();
    for failure in [CheckFailure::Refused, CheckFailure::Timeout, CheckFailure::Refused] {
        board.at(600, &failed(failure));
    }
    assert_eq!(report(&board, 600).reason, Some(CheckFailure::Refused));
    board.at(601, &failed(CheckFailure::Timeout));
    assert_eq!(report(&board, 601).reason, Some(CheckFailure::Timeout), "the first label of two");
    board.at(3_600, &failed(CheckFailure::Tls));
    assert_eq!(report(&board, 3_600).reason, Some(CheckFailure::Tls));
    let (attempts, failures) = board.read(0, |record| (record.attempts, record.failures)).unwrap();
    let of = |failure: CheckFailure| failures[0][failure as usize];
    assert_eq!((attempts, of(CheckFailure::Refused), of(CheckFailure::Timeout), of(CheckFailure::Tls)), (5, 2, 2, 1));
}

#[test]
fn slow_is_100_ms_at_least_and_four_times_as_long_as_usual() {
    let board = board();
    for (second, time) in [(600, 99), (605, 100), (610, 250)] {
        board.at(second, &good(time));
    }
    let check = report(&board, 610);
    assert_eq!((check.slow, check.failed, check.slow_from_seconds), (2, 0, Some(0.1)), "nothing is usual yet");
    // Where 50 ms are usual, 199 are not slow.
    for second in 0..16 {
        board.at(1_200 + second, &good(50));
    }
    for (time, slow) in [(199, 0), (200, 1)] {
        board.at(1_220, &good(time));
        assert_eq!(report(&board, 1_220).slow, slow, "{time} ms");
    }
    assert_eq!(report(&board, 1_220).slow_from_seconds, Some(0.2));
    // Where 1 ms is usual, 100 ms are slow.
    for second in 0..16 {
        board.at(1_300 + second, &good(1));
    }
    board.at(1_320, &good(100));
    assert_eq!((report(&board, 1_320).slow, report(&board, 1_320).slow_from_seconds), (1, Some(0.1)));
}

#[test]
fn a_target_that_may_be_far_away_is_not_slow_before_its_usual_time_is_known() {
    let board = CheckBoard::default();
    board.replace(&[CheckSpec { target: CheckTarget::Icmp(Host::Address([192, 0, 2, 1].into())), ..spec("a") }]);
    for second in 600..616 {
        board.at(second, &good(if second < 603 { 2_000 } else { 150 }));
    }
    assert_eq!(report(&board, 616).slow, 0);
    board.at(617, &good(700));
    assert_eq!((report(&board, 617).slow, report(&board, 617).slow_from_seconds), (1, Some(0.6)));
}

#[test]
fn failures_at_the_start_count_in_totals_alone() {
    let start = |good_at: Option<u64>| {
        let board = CheckBoard::default();
        board.replace(&[spec("a")]);
        for second in (0..60).step_by(5) {
            let is_good = good_at == Some(second);
            board.at(600 + second, &if is_good { good(1) } else { failed(CheckFailure::Timeout) });
        }
        (report(&board, 655).failed, board.read(0, |record| record.attempts).unwrap())
    };
    assert_eq!(start(None), (6, 12), "those after 30 seconds");
    assert_eq!(start(Some(10)), (9, 12), "those after the first good one");
}

#[test]
fn the_window_of_rare_attempts_is_longer() {
    let board = board();
    let at = |second: u64, spacing: u64| {
        board.record(DueAttempt { spacing: ms(spacing * 1_000), ..due(0, 0) }, 1, ms(second * 1_000), &good(1));
        report(&board, second).tried
    };
    assert_eq!([1_000, 1_100, 1_200, 1_300, 1_400].map(|second| at(second, 100)), [1, 2, 3, 4, 3]);
    assert_eq!(report(&board, 1_499).tried, 3, "one is always there");
    // The mesh becomes small, and large again.
    assert_eq!((at(1_500, 10), at(1_510, 10), at(1_520, 100)), (1, 2, 3));
}

#[test]
fn what_was_usual_is_known_for_30_to_60_minutes() {
    let slow_from = |minutes: u64| {
        let board = board();
        (0..16).for_each(|second| board.at(second, &good(50)));
        // From then on it takes ten times as long.
        (1..=minutes * 60).step_by(5).for_each(|second| board.at(20 + second, &good(500)));
        report(&board, 20 + minutes * 60).slow_from_seconds
    };
    assert_eq!((slow_from(1), slow_from(29), slow_from(59)), (Some(0.2), Some(0.2), Some(0.2)));
    assert_eq!(slow_from(61), None, "500 ms are usual");
}

#[test]
fn the_handshake_of_the_api_server_is_never_slow() {
    let at = |target: CheckTarget| {
        let board = CheckBoard::default();
        board.replace(&[CheckSpec { name: "a".into(), target }]);
        (0..16).for_each(|second| board.at(500 + second, &attempt([0, 2, 1, 0], Ok(()))));
        board.at(600, &attempt([900, 2, 300, 0], Ok(())));
        let check = report(&board, 600);
        (check.slow, check.time_p50_seconds)
    };
    let server = HostPort { host: Host::Address([10, 96, 0, 1].into()), port: 443 };
    assert_eq!(at(CheckTarget::Tls(server.clone())), (1, Some(0.302)));
    assert_eq!(
        at(CheckTarget::ApiServer { server, authorities: Arc::new(AuthoritiesFile::new("/ca.crt".into())) }),
        (0, Some(0.002))
    );
}

#[test]
fn the_median_is_of_the_answered_attempts_of_the_window() {
    let board = board();
    let median = |second| report(&board, second).time_p50_seconds;
    (0..20).for_each(|second| board.at(570 + second, &good(1)));
    assert_eq!(median(590), Some(0.001));
    board.at(600, &failed(CheckFailure::Timeout));
    assert_eq!(median(630), None, "none was answered");
    for (second, time) in [(640, 8), (641, 7), (642, 9)] {
        board.at(second, &good(time));
    }
    assert_eq!(median(642), Some(0.008));
    (0..16).for_each(|second| board.at(650 + second / 2, &good(3)));
    assert_eq!(median(658), Some(0.003), "of the last 16");
}

#[test]
fn a_fault_begins_with_its_first_failure_and_ends_after_some_good_attempts() {
    let board = board();
    let begun = |second: u64| Some(clock::realtime_of(ms(second * 1_000)).as_secs());
    // The clock may move on between two readings.
    let is_since = |second: u64, since: u64| {
        let found = report(&board, second).since_unix_seconds;
        found.zip(begun(since)).is_some_and(|(found, begun)| found.abs_diff(begun) <= 1)
    };
    let rows = |second: u64| {
        let check = report(&board, second);
        (check.good_in_row, check.failed_in_row)
    };
    board.at(600, &good(1));
    assert_eq!((rows(600), report(&board, 600).since_unix_seconds), ((0, 0), None));
    board.at(601, &failed(CheckFailure::Timeout));
    board.at(602, &failed(CheckFailure::Timeout));
    assert!(is_since(602, 601) && rows(602) == (0, 2));
    // A slow attempt does not fail, and is not good.
    board.at(603, &good(400));
    assert!(is_since(603, 601) && rows(603) == (0, 0));
    (0..2).for_each(|second| board.at(604 + second, &good(1)));
    assert!(is_since(605, 601) && rows(605) == (2, 0));
    board.at(606, &failed(CheckFailure::Timeout));
    assert!(is_since(606, 601) && rows(606) == (0, 1));
    // Of six attempts, four were bad.
    (0..4).for_each(|second| board.at(607 + second, &good(1)));
    assert_eq!((rows(610), report(&board, 610).since_unix_seconds), ((4, 0), None));
    board.at(624, &failed(CheckFailure::Timeout));
    assert!(is_since(624, 624));
    (0..300).for_each(|_| board.at(625, &failed(CheckFailure::Timeout)));
    assert_eq!(rows(625), (0, 255));
}

#[test]
fn a_failure_now_and_then_is_no_beginning_of_the_fault_that_follows() {
    // After these attempts, one a second, four fail. The fault begins with this one.
    let same = [("..x..", 2), ("..xx..", 2), ("..x.x.x..", 2)];
    let another = [("..x...", 6), ("..x....x....", 12), ("x.........", 10)];
    for (before, begin) in same.into_iter().chain(another) {
        let board = board();
        for (second, of) in (600..).zip(before.chars().chain("xxxx".chars())) {
            board.at(second, &if of == '.' { good(1) } else { failed(CheckFailure::Timeout) });
        }
        let since = report(&board, 603 + before.len() as u64).since_unix_seconds.expect("a beginning");
        let begun = clock::realtime_of(ms((600 + begin) * 1_000)).as_secs();
        // The clock may move on between two readings.
        assert!(since.abs_diff(begun) <= 1, "{before}: {since}, and not {begun}");
    }
}

#[test]
fn the_rarer_failures_are_the_more_good_attempts_end_them() {
    // Of each four attempts, this many fail; then good ones follow.
    let ends_after = |failing: u64| {
        let board = board();
        for second in 600..640 {
            let attempt = if second % 4 < failing { failed(CheckFailure::Timeout) } else { good(1) };
            board.at(second, &attempt);
        }
        // The last bad attempt begins the row.
        let in_row = u64::from(report(&board, 639).good_in_row);
        let is_over = |more: &u64| {
            board.at(640 + more, &good(1));
            report(&board, 640 + more).since_unix_seconds.is_none()
        };
        in_row + 1 + (0..20).find(is_over).expect("an end")
    };
    assert_eq!([4, 3, 2, 1].map(ends_after), [3, 3, 6, 10]);
}

#[test]
fn a_server_is_failing_if_most_of_its_attempts_failed() {
    let board = board();
    let record = |server: usize, is_good: bool| {
        let attempt = if is_good { good(1) } else { failed(CheckFailure::Timeout) };
        board.record(due(0, server), 3, ms(600_000), &attempt);
    };
    let servers = || (report(&board, 600).servers, report(&board, 600).servers_failing);
    for server in [0, 1, 2] {
        record(server, server != 1);
    }
    assert_eq!(servers(), (3, 1));
    record(1, true);
    assert_eq!(servers(), (3, 0), "half of them");
    record(2, false);
    record(2, false);
    assert_eq!(servers(), (3, 1));
    // Further servers count as the fourth.
    let board = self::board();
    (0..9).for_each(|server| board.record(due(0, server), 300, ms(600_000), &failed(CheckFailure::Refused)));
    assert_eq!((report(&board, 600).servers, report(&board, 600).servers_failing), (255, 4));
    let many = 40_000;
    (0..many).for_each(|_| board.record(due(0, 0), 1, ms(600_000), &failed(CheckFailure::Refused)));
    assert_eq!((report(&board, 600).failed, report(&board, 600).servers_failing), (many + 9, 4));
}

#[test]
fn answers_of_the_agent_itself_do_not_count() {
    let board = board();
    board.at(600, &Attempt { is_own_answer: true, ..good(1) });
    assert_eq!(
        (report(&board, 600), board.read(0, |record| record.attempts)),
        (Check { name: "a".into(), kind: CheckKind::Service, reaches_itself: true, ..Check::default() }, Some(0))
    );
    // There is no such check.
    board.record(due(1, 0), 1, ms(600_000), &good(1));
    assert_eq!(report(&board, 600).tried, 0);
}

#[test]
fn the_last_certificate_is_kept() {
    let board = board();
    let certificate = || board.read(0, |record| record.certificate_not_after).unwrap();
    assert_eq!(certificate(), None);
    let with = |certificate, end| Attempt { certificate_not_after: certificate, ..attempt([0, 1, 1, 0], end) };
    board.at(600, &with(Some(1_900_000_000), Ok(())));
    board.at(605, &failed(CheckFailure::Timeout));
    assert_eq!(certificate(), Some(1_900_000_000));
    board.at(610, &with(Some(1_700_000_000), Err(CheckFailure::CertificateExpired)));
    assert_eq!(certificate(), Some(1_700_000_000));
}

#[test]
fn a_check_that_stays_in_the_list_keeps_its_numbers() {
    let board = board();
    let attempts = |place| board.read(place, |record| record.attempts);
    board.at(600, &good(1));
    let list = board.list_number();
    board.replace(&[spec("b"), spec("a"), spec("c")]);
    assert_eq!((attempts(0), attempts(1), attempts(2), attempts(3)), (Some(0), Some(1), Some(0), None));
    assert_eq!(board.names(), ["b", "a", "c"].map(Box::from));
    // A reader of the list before would read another check there.
    assert_eq!(board.read_of(list, 0, |_| ()), None);
    assert_eq!(board.read_of(board.list_number(), 0, |_| ()), Some(()));
    let moved = CheckTarget::Icmp(Host::Name("h.example".into()));
    board.replace(&[CheckSpec { target: moved, ..spec("a") }]);
    assert_eq!((attempts(0), board.count()), (Some(0), 1), "another target of the same name");
    board.replace(&vec![spec("a"); CHECKS_MAX + 1]);
    assert_eq!(board.count(), CHECKS_MAX);
    board.replace(&[]);
    assert_eq!((board.count(), board.names().len()), (0, 0));
}

#[test]
fn phases_that_have_ended_are_timed_also_if_the_attempt_failed() {
    let board = board();
    board.at(600, &attempt([1, 2, 0, 0], Err(CheckFailure::Tls)));
    board.at(601, &attempt([1, 4, 8, 0], Ok(())));
    let sums = board.read(0, |record| {
        record.phases[0].each_ref().map(|times| {
            let times = times.as_ref()?.classic(board.scale());
            Some((times.count, times.sum))
        })
    });
    assert_eq!(sums, Some([Some((2, ms(2))), Some((2, ms(6))), Some((1, ms(8))), None]));
}

#[test]
fn long_targets_are_cut_between_characters() {
    let path = format!("/{}", "ä".repeat(CHECK_TARGET_BYTES_MAX));
    let host = HostPort { host: Host::Name("h".into()), port: 443 };
    let target = CheckTarget::Http { is_secure: true, host, path: path.into() };
    let board = CheckBoard::default();
    board.replace(&[CheckSpec { name: "a".into(), target }]);
    let target = board.read(0, |record| record.target.clone()).unwrap();
    assert!((CHECK_TARGET_BYTES_MAX - 1..=CHECK_TARGET_BYTES_MAX).contains(&target.len()), "{}", target.len());
}
