//! Tests of the ring alone. Other tests of the hour are in [`super::super`].

use super::*;

const SLOT: SlotId = SlotId(3);

fn hours() -> Hours {
    let hours = Hours::new();
    hours.join(SLOT);
    hours
}

/// Returns the loss of each minute of a slot.
fn losses(hours: &Hours, slot: SlotId) -> Vec<Option<f64>> {
    hours.read(slot).expect("an hour").as_slice().iter().map(|minute| minute.loss()).collect()
}

#[test]
fn a_peer_has_128_bytes() {
    println!("hour per peer: {} bytes", size_of::<Past>());
    assert_eq!(size_of::<Past>(), 128);
    assert!(Hours::new().read(SlotId::at(HOUR_PEERS_MAX)).is_none());
    assert!(Hours::new().read(SlotId::at(HOUR_PEERS_MAX - 1)).is_some_and(|hour| hour.as_slice().is_empty()));
}

#[test]
fn the_ring_holds_the_last_sixty_minutes_and_counters_may_wrap() {
    let hours = hours();
    let mut total = Outcomes { answered: 0, lost: u32::MAX - 100 };
    hours.turn(0, 1, |_| (total, None));
    for minute in 1..200 {
        total.answered = total.answered.wrapping_add(100 - minute % 100);
        total.lost = total.lost.wrapping_add(minute % 100);
        hours.turn(minute, minute + 1, |_| (total, Some([1, 2])));
        let seen = losses(&hours, SLOT);
        assert_eq!(seen.len(), (minute as usize + 1).min(60));
        for (back, loss) in seen.iter().rev().enumerate().take(minute as usize) {
            let of = (minute - u32::try_from(back).unwrap()) % 100;
            let expected = Minute::new(100 - of, of, None).loss();
            assert_eq!(*loss, expected, "minute {minute}, {back} before");
        }
    }
}

#[test]
fn minutes_without_a_tick_are_not_measured_and_what_was_before_ages() {
    let hours = hours();
    let turn = |from, to, lost| hours.turn(from, to, |_| (Outcomes { answered: 0, lost }, None));
    turn(0, 1, 5);
    turn(1, 5, 6);
    assert_eq!(losses(&hours, SLOT), [Some(1.0), Some(1.0), None, None, None]);
    turn(5, 62, 7);
    let seen = losses(&hours, SLOT);
    assert_eq!((seen.len(), seen[3], seen.iter().flatten().count()), (60, Some(1.0), 1), "{seen:?}");
    turn(62, 400, 7);
    assert_eq!(losses(&hours, SLOT), [None; 60]);
}

#[test]
fn a_new_holder_of_a_slot_has_no_past() {
    let hours = hours();
    hours.turn(0, 1, |_| (Outcomes { answered: 3, lost: 4 }, None));
    hours.join(SLOT);
    assert_eq!(losses(&hours, SLOT), [None]);
    hours.turn(1, 2, |_| (Outcomes { answered: 2, lost: 0 }, None));
    assert_eq!(losses(&hours, SLOT), [None, Some(0.0)], "and counts from zero");
}

#[test]
fn a_reader_takes_no_new_minute_for_the_oldest() {
    let hours = hours();
    for minute in 0..60 {
        hours.turn(minute, minute + 1, |_| (Outcomes { answered: minute + 1, lost: 0 }, None));
    }
    let before = losses(&hours, SLOT);
    // This runs while the 61st minute is being written: its place is taken, and it
    // is not readable yet.
    hours.turn(60, 61, |_| {
        let during = losses(&hours, SLOT);
        assert_eq!((during.len(), during[0], &during[1..]), (60, None, &before[1..]));
        (Outcomes { answered: 61, lost: 9 }, None)
    });
    assert!(losses(&hours, SLOT)[59] > Some(0.0));
}

#[test]
fn a_run_of_losing_minutes_goes_on_over_a_gap_and_ends_at_a_larger_one() {
    let run = |text: &str, gap| begin_of_run(text.chars().rev().map(|c| c == 'x'), gap);
    for (text, gap, expected) in [
        ("", 1, None),
        ("....", 1, None),
        ("...x", 1, Some(0)),
        ("..xx", 1, Some(1)),
        // The newest minute may be the gap.
        ("..x.", 1, Some(1)),
        (".x..", 1, None),
        ("x.x.x", 1, Some(4)),
        ("x..xx", 1, Some(1)),
        ("xxxxx", 1, Some(4)),
        ("x....x...x", 3, Some(4)),
        ("x..x", 0, Some(0)),
    ] {
        assert_eq!(run(text, gap), expected, "{text} {gap}");
    }
}

#[test]
fn a_run_begins_with_the_minute_of_its_first_loss_even_if_it_is_the_current_one() {
    let hours = hours();
    let mut lost = 0;
    for minute in 0..70 {
        // Minutes 50 to 64 lose probes; those before and after do not.
        lost += u32::from((50..65).contains(&minute));
        let since = hours.losing_since(SLOT, 1, || lost);
        let expected = match minute {
            50..=65 => Some(50),
            _ => None,
        };
        assert_eq!(since, expected, "in minute {minute}");
        hours.turn(minute, minute + 1, |_| (Outcomes { answered: 7 * minute, lost }, None));
    }
    assert_eq!(hours.losing_since(SlotId::at(HOUR_PEERS_MAX), 1, || 1), None);
}

#[test]
fn a_run_as_old_as_the_hour_begins_with_its_first_minute() {
    let hours = hours();
    (0..90).for_each(|minute| hours.turn(minute, minute + 1, |_| (Outcomes { answered: 0, lost: minute + 1 }, None)));
    assert_eq!(hours.losing_since(SLOT, 1, || 91), Some(30));
}

/// Returns the last ten minutes of a peer with 60 probes per minute. `minutes` has the number of
/// lost probes per minute; `None` is a minute without a tick.
fn ten_minutes(minutes: &[Option<u32>]) -> Option<TenMinuteOutcomes> {
    let hours = hours();
    let mut total = Outcomes::default();
    for (minute, lost) in (0..).zip(minutes) {
        if let Some(lost) = lost {
            (total.answered, total.lost) = (total.answered + 60 - lost, total.lost + lost);
        }
        hours.turn(minute, minute + 1, |_| (total, None));
    }
    hours.read(SLOT).expect("an hour").last_ten(60)
}

#[test]
fn ten_minutes_count_every_loss_of_whole_minutes() {
    let sum = |seconds, lost| Some(TenMinuteOutcomes { seconds, sent: seconds, lost });
    assert_eq!(ten_minutes(&[]), None);
    assert_eq!(ten_minutes(&[Some(60)]), None, "the agent's first minute may be a part of one");
    assert_eq!(ten_minutes(&[Some(60), Some(1)]), sum(60, 1));
    for lost in 0..=60 {
        assert_eq!(ten_minutes(&[Some(lost); 30]), sum(600, 10 * lost), "{lost} of 60 in each");
    }
    let burst: Vec<_> = (0..30).map(|minute| Some(if minute == 20 { 12 } else { 0 })).collect();
    assert_eq!((ten_minutes(&burst), ten_minutes(&burst[..20])), (sum(600, 12), sum(600, 0)));
    assert_eq!((ten_minutes(&burst[1..]), ten_minutes(&burst[..21])), (sum(600, 12), sum(600, 12)));
    assert_eq!(ten_minutes(&[Some(12); 60].map(|_| Some(0))), sum(600, 0), "what is older is over");
}

#[test]
fn a_minute_beside_one_without_measurement_does_not_count() {
    // A peer joins during a minute and loses most of its first few probes. They would count as 60.
    let hours = hours();
    for minute in 0..20 {
        if minute == 15 {
            hours.join(SLOT);
        }
        let (answered, lost) = if minute < 15 { (60 * minute, 0) } else { (2 + 60 * (minute - 15), 4) };
        hours.turn(minute, minute + 1, |_| (Outcomes { answered, lost }, None));
    }
    let sum = |hours: &Hours| hours.read(SLOT).expect("an hour").last_ten(60);
    assert_eq!(sum(&hours), Some(TenMinuteOutcomes { seconds: 240, sent: 240, lost: 0 }));
    // The peer leaves in the next minute. That this minute was cut short is known one minute later.
    let left = Outcomes { answered: 2 + 60 * 4 + 3, lost: 4 + 3 };
    hours.turn(20, 21, |_| (left, None));
    assert_eq!(sum(&hours), Some(TenMinuteOutcomes { seconds: 300, sent: 300, lost: 30 }));
    hours.turn(21, 22, |_| (left, None));
    assert_eq!(sum(&hours), Some(TenMinuteOutcomes { seconds: 240, sent: 240, lost: 0 }));
}

#[test]
fn at_short_intervals_a_single_loss_of_ten_minutes_is_not_none() {
    let hours = hours();
    for minute in 0..20 {
        let outcomes = Outcomes { answered: 6_000 * (minute + 1) - 1, lost: u32::from(minute >= 15) };
        hours.turn(minute, minute + 1, |_| (outcomes, None));
    }
    // [`Minute::loss`] says how large the error of so small a loss is.
    let read = hours.read(SLOT).expect("an hour").last_ten(6_000).expect("ten minutes");
    assert!((read.seconds, read.sent) == (600, 60_000) && (1..=2).contains(&read.lost), "{read:?}");
    assert_eq!(Hours::new().read(SLOT).expect("an hour").last_ten(1), None);
}

#[test]
fn the_quickest_of_five_minutes_or_more_is_usual() {
    let hours = hours();
    let quickest = |hours: &Hours| hours.read(SLOT).expect("an hour").quickest();
    let mut minute = 0;
    let mut end = |p50: Option<usize>| {
        let outcomes = Outcomes { answered: 60 * (minute + 1), lost: 0 };
        hours.turn(minute, minute + 1, |_| (outcomes, p50.map(|p50| [p50, p50 + 1])));
        minute += 1;
        quickest(&hours)
    };
    assert_eq!([5, 4, 7, 7].map(|p50| end(Some(p50))), [None; 4]);
    assert_eq!(end(None), None, "a minute without an answer has no median");
    assert_eq!([end(Some(6)), end(Some(3)), end(Some(9))], [Some(4), Some(3), Some(3)]);
    for _ in 0..57 {
        end(Some(9));
    }
    assert_eq!([end(Some(9)), end(Some(9))], [Some(3), Some(9)], "an hour later it is forgotten");
}
