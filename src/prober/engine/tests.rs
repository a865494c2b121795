use std::net::Ipv4Addr;

use super::*;
use crate::peers::{Network, ZoneId};
use crate::prober::Clock;
use crate::prober::clock::RealTime;

/// Both clocks stand still, so a timestamp has one meaning.
struct DoubtState;

impl Clock for DoubtState {
    fn now(&self) -> Nanos {
        Nanos(0)
    }

    fn realtime(&self) -> Nanos {
        Nanos(0)
    }
}

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const SLOT: SlotId = SlotId(0);
const SECOND: Nanos = Nanos::from_millis(1_000);

fn at(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// A reply that is read at once.
fn read(ms: u64) -> Moment {
    Moment::read(at(ms))
}

fn aim_at(engine: &mut Engine, address: IpAddr, terminating: bool) {
    engine.apply(Change::Probe { slot: SLOT, address, zone: ZoneId::UNKNOWN, network: Network::Pod, terminating });
}

fn engine() -> Engine {
    let mut engine = Engine::new(SECOND, SECOND, false);
    engine.reserve(1);
    engine.apply(Change::Join { slot: SLOT });
    aim_at(&mut engine, PEER, false);
    engine
}

fn send(engine: &mut Engine, ms: u64) -> Label {
    let label = engine.begin(SLOT, at(ms)).unwrap();
    engine.sent(label, Ok(()));
    label
}

#[expect(clippy::unnecessary_wraps, reason = "compared with what `reply` gives")]
fn one(event: Event) -> Option<(SlotId, Events)> {
    Some((SLOT, [Some(event), None]))
}

fn received(rtt: Nanos, reordered: bool, label: Label) -> Event {
    Event::Received { rtt, reordered, sequence: label.sequence, stamp: Stamp::User }
}

#[test]
fn a_reply_in_time_is_received_and_a_second_one_is_a_duplicate() {
    let mut e = engine();
    let label = send(&mut e, 0);
    assert_eq!(e.reply(label, PEER, read(3)), one(received(at(3), false, label)));
    assert_eq!(e.reply(label, PEER, read(4)), one(Event::Duplicate));
    assert_eq!(e.expire(at(5_000)), None);
}

/// Nothing but its number is known of a probe that is so old.
#[test]
fn a_reply_to_a_forgotten_probe_is_late_only_if_its_peer_is_listed_and_not_terminating() {
    let forgotten = || {
        let mut e = engine();
        let first = send(&mut e, 0);
        assert_eq!(e.expire(at(1_001)), Some((SLOT, Event::Lost)));
        for ms in (2_000..).take(e.flight_capacity()) {
            let label = send(&mut e, ms);
            assert!(e.reply(label, PEER, read(ms + 1)).is_some());
        }
        (e, first)
    };
    let (mut e, first) = forgotten();
    assert_eq!(e.reply(first, ELSEWHERE, read(9_000)), None);
    assert_eq!(e.reply(first, PEER, read(9_000)), one(Event::Late));
    aim_at(&mut e, PEER, true);
    assert_eq!(e.reply(first, PEER, read(9_000)), None);
    let (mut e, first) = forgotten();
    e.apply(Change::Stop { slot: SLOT });
    assert_eq!([ELSEWHERE, PEER].map(|from| e.reply(first, from, read(9_000))), [None; 2]);
}

#[test]
fn silence_is_lost_once_and_a_reply_after_that_is_late() {
    let mut e = engine();
    let label = send(&mut e, 0);
    assert_eq!(e.next_expiry(), Some(Nanos(1_000_000_001)));
    assert_eq!(e.expire(at(1_000)), None, "exactly the timeout is in time");
    assert_eq!(e.expire(at(1_001)), Some((SLOT, Event::Lost)));
    assert_eq!(e.expire(at(9_000)), None);
    assert_eq!(e.reply(label, PEER, read(1_500)), one(Event::Late));
    assert_eq!(e.reply(label, PEER, read(1_600)), one(Event::Duplicate));
}

#[test]
fn a_reply_after_the_timeout_is_lost_and_late_even_if_its_loss_was_not_counted_yet() {
    let mut e = engine();
    let label = send(&mut e, 0);
    assert_eq!(e.reply(label, PEER, read(1_200)), Some((SLOT, [Some(Event::Lost), Some(Event::Late)])));
    assert_eq!(e.expire(at(2_000)), None);
}

#[test]
fn a_reply_that_arrived_in_time_but_was_read_late_is_received() {
    let mut e = engine();
    let label = send(&mut e, 0);
    assert_eq!(e.reply(label, PEER, read(2)), one(received(at(2), false, label)));
    assert_eq!(e.expire(at(60_000)), None);
}

#[test]
fn an_overtaken_reply_is_reordered() {
    let mut e = Engine::new(at(5_000), SECOND, false);
    e.reserve(1);
    e.apply(Change::Join { slot: SLOT });
    aim_at(&mut e, PEER, false);
    let (first, second) = (send(&mut e, 0), send(&mut e, 1_000));
    assert_eq!(e.reply(second, PEER, read(1_010)), one(received(at(10), false, second)));
    assert_eq!(e.reply(first, PEER, read(1_020)), one(received(at(1_020), true, first)));
}

#[test]
fn replies_from_elsewhere_of_the_future_or_of_another_sequence_are_not_ours() {
    let mut e = engine();
    let label = send(&mut e, 0);
    assert_eq!(e.reply(label, ELSEWHERE, read(1)), None);
    assert_eq!(e.reply(Label { number: 7, ..label }, PEER, read(1)), None);
}

#[test]
fn a_failed_send_is_never_lost() {
    let mut e = engine();
    let label = e.begin(SLOT, at(0)).unwrap();
    assert_eq!(e.sent(label, Err(SendError::NoRoute)), Some(Event::NotSent(SendError::NoRoute)));
    assert_eq!(e.expire(at(5_000)), None);
    assert_eq!(e.reply(label, PEER, read(1)), None);
}

#[test]
fn a_probe_in_flight_when_its_peer_leaves_or_moves_is_withdrawn_and_the_sums_still_agree() {
    for (change, label) in [
        (Change::Stop { slot: SLOT }, "left"),
        (
            Change::Probe {
                slot: SLOT,
                address: ELSEWHERE,
                zone: ZoneId::UNKNOWN,
                network: Network::Pod,
                terminating: false,
            },
            "moved",
        ),
    ] {
        let mut e = engine();
        send(&mut e, 0);
        e.apply(change);
        assert_eq!(e.expire(at(1_001)), Some((SLOT, Event::Terminating { answered: false })), "{label}");
        aim_at(&mut e, ELSEWHERE, false);
        let next = e.begin(SLOT, at(2_000)).unwrap();
        assert_eq!(e.sent(next, Ok(())), None, "{label}: `sent` has it already");
        let got = e.reply(next, ELSEWHERE, read(2_001));
        assert_eq!(got, one(received(at(1), false, next)));
        let after = e.begin(SLOT, at(3_000)).unwrap();
        assert_eq!(e.sent(after, Ok(())), Some(Event::Sent));
    }
}

#[test]
fn probes_to_a_terminating_peer_are_neither_sent_nor_lost() {
    let mut e = engine();
    aim_at(&mut e, PEER, true);
    let (answered, silent) = (e.begin(SLOT, at(0)).unwrap(), e.begin(SLOT, at(1)).unwrap());
    assert_eq!((e.sent(answered, Ok(())), e.sent(silent, Ok(()))), (None, None));
    assert_eq!(e.reply(answered, PEER, read(2)), one(Event::Terminating { answered: true }));
    assert_eq!(e.expire(at(2_000)), Some((SLOT, Event::Terminating { answered: false })));
    assert_eq!(e.reply(silent, PEER, read(2_001)), Some((SLOT, [None, None])), "late for nothing that was lost");
}

#[test]
fn a_new_holder_of_a_slot_inherits_no_probe() {
    let mut e = engine();
    let old = send(&mut e, 0);
    e.apply(Change::Stop { slot: SLOT });
    e.apply(Change::Join { slot: SLOT });
    aim_at(&mut e, PEER, false);
    assert_eq!(e.reply(old, PEER, read(1)), None);
    assert_eq!(e.expire(at(2_000)), None);
}

#[test]
fn the_sequence_number_wraps_and_probes_go_on() {
    let mut e = engine();
    let mut last = 0;
    for i in 0..70_000u64 {
        let label = send(&mut e, i * 1_000);
        let reply = e.reply(label, PEER, read(i * 1_000 + 1));
        assert_eq!(reply, one(received(at(1), false, label)), "probe {i}");
        assert_eq!(e.expire(at(i * 1_000 + 1)), None);
        last = label.sequence;
    }
    assert_eq!(usize::from(last), (70_000 - 1) % 65_536);
}

#[test]
fn a_full_table_refuses_instead_of_forgetting() {
    let mut e = engine();
    let capacity = e.flight_capacity();
    for _ in 0..capacity {
        send(&mut e, 0);
    }
    assert_eq!(e.begin(SLOT, at(0)), Err(SendError::TableFull));
    let lost = std::iter::from_fn(|| e.expire(at(2_000))).count();
    assert_eq!(lost, capacity);
    assert!(e.begin(SLOT, at(2_000)).is_ok());
}

#[test]
fn extra_probes_have_room_for_as_long_as_they_may_be_in_flight() {
    let (peers, timeout) = (FLOW_PROBES_PER_SECOND, Nanos::from_millis(300_000));
    let mut engine = Engine::with_dwell(timeout, SECOND, SECOND, false, true);
    engine.reserve(peers);
    let slots = || (0..peers).map(SlotId::at);
    slots().for_each(|slot| engine.apply(Change::Join { slot }));
    for second in 0..=301 {
        for slot in slots() {
            for label in [engine.begin(slot, at(second * 1_000)), engine.begin_extra(slot, at(second * 1_000))] {
                engine.sent(label.unwrap(), Ok(()));
            }
        }
    }
}

#[test]
fn growing_the_table_keeps_probes_in_flight() {
    let mut e = engine();
    let label = send(&mut e, 0);
    e.reserve(500);
    assert!(e.flight_capacity() >= 500 * 3);
    assert_eq!(e.reply(label, PEER, read(3)), one(received(at(3), false, label)));
}

#[test]
fn a_probe_is_as_late_as_the_kernel_sent_it() {
    let mut e = engine();
    let real_time = RealTime::new(&DoubtState);
    let label = send(&mut e, 0);
    e.departed(label, real_time.moment(Some(at(400)), at(600)));
    assert_eq!(e.expire(at(1_100)), None, "it left 400 ms after it was booked");
    let reply = e.reply(label, PEER, real_time.moment(Some(at(403)), at(1_200)));
    let event = Event::Received { rtt: at(3), reordered: false, sequence: label.sequence, stamp: Stamp::Kernel };
    assert_eq!(reply, one(event));
}

#[test]
fn a_departure_before_its_recording_is_ignored() {
    let mut e = engine();
    let real_time = RealTime::new(&DoubtState);
    let label = send(&mut e, 100);
    e.departed(label, real_time.moment(Some(at(50)), at(110)));
    let reply = e.reply(label, PEER, real_time.moment(Some(at(103)), at(110)));
    assert_eq!(reply, one(received(at(3), false, label)), "the time of booking stands, and it is ours");
}

#[test]
fn a_peer_that_was_silent_for_half_of_all_sequence_numbers_is_not_reordered() {
    let mut e = engine();
    let first = send(&mut e, 0);
    assert_eq!(e.reply(first, PEER, read(1)), one(received(at(1), false, first)));
    for i in 1..40_000u64 {
        send(&mut e, i * 1_000);
        while e.expire(at(i * 1_000)).is_some() {}
    }
    let back = send(&mut e, 40_000_000);
    assert_eq!(e.reply(back, PEER, read(40_000_001)), one(received(at(1), false, back)));
}

#[test]
fn a_new_peer_may_be_silent_for_as_long_at_any_interval() {
    for (interval, per_excuse) in [(10, 12), (100, 2), (1_000, 1), (60_000, 1)] {
        let [step, silence] = [interval, 30_000].map(Nanos::from_millis);
        let mut engine = Engine::new(SECOND, step, false).excusing(silence, step);
        engine.reserve(1);
        engine.apply(Change::Join { slot: SLOT });
        aim_at(&mut engine, PEER, false);
        let (mut excused, mut lost) = (0, 0);
        for n in 0..4_000 {
            send(&mut engine, n * interval);
            while let Some((_, event)) = engine.expire(at(n * interval)) {
                match event {
                    Event::Lost => lost += 1,
                    Event::Terminating { answered: false } => {
                        assert_eq!(lost, 0, "{interval} ms");
                        excused += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let expected = 30_000_u64.div_ceil(interval);
        assert!(
            (expected + 1 - per_excuse..=expected + 2 * per_excuse).contains(&excused) && lost > 0,
            "{interval} ms: {excused}"
        );
    }
}

#[test]
fn probes_that_are_not_sent_use_no_excuse_up() {
    let [step, silence] = [10, 30_000].map(Nanos::from_millis);
    let mut engine = Engine::new(SECOND, step, false).excusing(silence, step);
    engine.reserve(1);
    engine.apply(Change::Join { slot: SLOT });
    aim_at(&mut engine, PEER, false);
    for n in 0..1_000 {
        let label = engine.begin(SLOT, at(n * 10)).unwrap();
        assert_eq!(engine.sent(label, Err(SendError::NoRoute)), Some(Event::NotSent(SendError::NoRoute)));
        assert!(engine.take_back(label));
    }
    for n in 1_000..3_000 {
        send(&mut engine, n * 10);
        while let Some((_, event)) = engine.expire(at(n * 10)) {
            assert_eq!(event, Event::Terminating { answered: false }, "within 20 s of the first that was sent");
        }
    }
}

#[test]
fn probes_that_left_before_the_first_answer_arrived_are_never_lost() {
    let mut e = engine().excusing(Nanos::from_millis(30_000), SECOND);
    e.apply(Change::Stop { slot: SLOT });
    aim_at(&mut e, PEER, false);
    let [silent, first, second] = [0, 500, 501].map(|ms| e.begin(SLOT, at(ms)).unwrap());
    assert_eq!([silent, first, second].map(|label| e.sent(label, Ok(()))), [None; 3]);
    let counts = |rtt, label| Some((SLOT, [Some(Event::Sent), Some(received(rtt, false, label))]));
    assert_eq!(e.reply(first, PEER, read(600)), counts(at(100), first));
    let lost = e.begin(SLOT, at(700)).unwrap();
    assert_eq!(e.sent(lost, Ok(())), Some(Event::Sent));
    assert_eq!(e.reply(second, PEER, read(800)), counts(at(299), second));
    assert_eq!(e.reply(first, PEER, read(801)), one(Event::Duplicate));
    let unanswered = Event::Terminating { answered: false };
    let fates: [_; 3] = std::array::from_fn(|_| e.expire(at(2_000)));
    assert_eq!(fates, [Some((SLOT, unanswered)), Some((SLOT, Event::Lost)), None]);
    assert_eq!(e.reply(silent, PEER, read(2_001)), Some((SLOT, [None, None])), "late for nothing that was lost");
    assert_eq!(e.reply(lost, PEER, read(2_001)), one(Event::Late));
}

#[test]
fn an_answer_after_the_timeout_ends_no_excuse() {
    let mut e = engine().excusing(Nanos::from_millis(2_000), SECOND);
    e.apply(Change::Stop { slot: SLOT });
    aim_at(&mut e, PEER, false);
    let late = send(&mut e, 0);
    assert_eq!(e.reply(late, PEER, read(1_001)), one(Event::Terminating { answered: false }));
    assert_eq!(e.reply(late, PEER, read(1_002)), one(Event::Duplicate));
    send(&mut e, 1_002);
    send(&mut e, 1_003);
    let fates = [Some((SLOT, Event::Terminating { answered: false })), Some((SLOT, Event::Lost))];
    assert_eq!([e.expire(at(3_000)), e.expire(at(3_000))], fates);
}
