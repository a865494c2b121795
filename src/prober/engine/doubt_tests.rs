//! Corner cases of doubts that the scripted tests rarely reach.

use super::*;
use crate::limits::{DOUBT_TIME, DOUBTS_MAX};
use crate::peers::{Network, ZoneId};
use crate::prober::{QUESTION_PAUSE, WITHHELD_MAX};

const SECOND: Nanos = Nanos::from_millis(1_000);

fn at(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn address(slot: usize) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::from(0x0a00_0000 + u32::try_from(slot).unwrap()))
}

fn put(engine: &mut Engine, slot: usize, address: IpAddr, terminating: bool) {
    let slot = SlotId::at(slot);
    engine.apply(Change::Probe { slot, address, zone: ZoneId::UNKNOWN, network: Network::Pod, terminating });
}

/// An engine with this many peers. One probe to each was sent at 0, and none is answered.
fn silent(peers: usize) -> (Engine, Vec<Label>) {
    let mut engine = Engine::new(SECOND, SECOND, true);
    engine.reserve(peers);
    let labels = (0..peers).map(|slot| {
        engine.apply(Change::Join { slot: SlotId::at(slot) });
        put(&mut engine, slot, address(slot), false);
        send(&mut engine, slot, 0)
    });
    let labels = labels.collect();
    (engine, labels)
}

fn send(engine: &mut Engine, slot: usize, ms: u64) -> Label {
    let label = engine.begin(SlotId::at(slot), at(ms)).unwrap();
    engine.sent(label, Ok(()));
    label
}

fn reported(engine: &mut Engine, ms: u64) -> Vec<(SlotId, Event)> {
    std::iter::from_fn(|| engine.expire(at(ms))).collect()
}

fn questions(engine: &mut Engine, ms: u64) -> Vec<IpAddr> {
    std::iter::from_fn(|| engine.question(at(ms))).map(|(_, address)| address).collect()
}

const LOST: (SlotId, Event) = (SlotId(0), Event::Lost);

#[test]
fn a_new_holder_of_a_slot_inherits_no_withheld_loss_decided_or_not() {
    for decided in [false, true] {
        let (mut e, labels) = silent(1);
        assert_eq!(reported(&mut e, 1_001), []);
        assert!(e.awaits_any());
        if decided {
            assert_eq!(questions(&mut e, 1_100), [address(0)]);
            e.answered(address(0));
        }
        e.apply(Change::Join { slot: SlotId(0) });
        put(&mut e, 0, address(0), false);
        assert_eq!(reported(&mut e, 1_002), [], "{decided}");
        assert!(!e.awaits_any());
        e.answered(address(0));
        assert_eq!(reported(&mut e, 9_000), [], "{decided}");
        assert_eq!(e.reply(labels[0], address(0), Moment::read(at(9_001))), None, "{decided}");
        let next = e.begin(SlotId(0), at(9_002)).unwrap();
        assert_eq!(e.sent(next, Ok(())), Some(Event::Sent), "it is counted");
    }
}

#[test]
fn a_withdrawn_probe_is_reported_even_if_the_slot_stops_at_once_and_the_next_takes_its_place() {
    let (mut e, labels) = silent(1);
    assert_eq!(reported(&mut e, 1_001), []);
    put(&mut e, 0, address(0), true);
    e.apply(Change::Stop { slot: SlotId(0) });
    assert_eq!(e.next_doubt(), Some(Nanos(0)), "there is something to report");
    assert_eq!(reported(&mut e, 1_001), [(SlotId(0), Event::Terminating { answered: false })]);
    assert_eq!(e.reply(labels[0], address(0), Moment::read(at(1_500))), Some((SlotId(0), [None, None])));
    put(&mut e, 0, address(7), false);
    let next = e.begin(SlotId(0), at(2_000)).unwrap();
    assert_eq!(e.sent(next, Ok(())), None, "`sent` has it already");
}

#[test]
fn a_decided_loss_is_lost_even_if_the_list_changes_before_it_is_reported() {
    type Step = fn(&mut Engine);
    let decisions: [Step; 2] = [
        |e| {
            assert_eq!(questions(e, 1_100), [address(0)]);
            e.answered(address(0));
        },
        |e| {
            let (id, _) = e.question(at(1_100)).unwrap();
            e.unanswerable(id);
        },
    ];
    let changes: [Step; 3] = [
        |e| put(e, 0, address(0), true),
        |e| put(e, 0, address(7), false),
        |e| e.apply(Change::Stop { slot: SlotId(0) }),
    ];
    for decide in decisions {
        for change in changes {
            let (mut e, _) = silent(1);
            assert_eq!(reported(&mut e, 1_001), []);
            decide(&mut e);
            change(&mut e);
            assert_eq!(reported(&mut e, 1_101), [LOST]);
            assert!(!e.awaits_any());
            put(&mut e, 0, address(8), false);
            let next = e.begin(SlotId(0), at(2_000)).unwrap();
            assert_eq!(e.sent(next, Ok(())), Some(Event::Sent), "nothing was withdrawn");
        }
    }
}

#[test]
fn one_question_serves_all_slots_at_an_address() {
    let (mut e, _) = silent(2);
    for slot in 0..2 {
        put(&mut e, slot, address(9), false);
        send(&mut e, slot, 10);
    }
    // The probes sent before the move are withdrawn.
    assert_eq!(reported(&mut e, 1_011).len(), 2);
    let due = 1_011 + u64::try_from(QUESTION_PAUSE.as_millis()).unwrap();
    assert_eq!(questions(&mut e, due - 1), [] as [IpAddr; 0]);
    assert_eq!(questions(&mut e, due), [address(9)]);
    e.answered(address(8));
    assert_eq!(reported(&mut e, 1_100), []);
    e.answered(address(9));
    assert_eq!(reported(&mut e, 1_100), [LOST, (SlotId(1), Event::Lost)]);
}

#[test]
fn after_an_answer_losses_count_until_the_doubt_is_over_and_are_then_asked_about_again() {
    let (mut e, _) = silent(1);
    assert_eq!(reported(&mut e, 1_001), []);
    e.answered(address(0));
    assert_eq!(reported(&mut e, 1_002), [], "it was not asked yet");
    assert_eq!(questions(&mut e, 1_100), [address(0)]);
    e.answered(address(9));
    assert_eq!(reported(&mut e, 1_101), [], "of another");
    e.answered(address(0));
    assert_eq!(reported(&mut e, 1_102), [LOST]);
    send(&mut e, 0, 1_200);
    assert_eq!(reported(&mut e, 2_201), [LOST]);
    let over = 1_001 + u64::try_from(DOUBT_TIME.as_millis()).unwrap();
    send(&mut e, 0, over - 500);
    assert_eq!(reported(&mut e, over + 501), [], "it is withheld");
    assert_eq!(questions(&mut e, over + 600), [address(0)]);
}

#[test]
fn peers_that_stay_silent_leave_half_of_the_places_to_others() {
    let peers = usize::from(DOUBTS_MAX) + 1;
    let (mut e, _) = silent(peers);
    // All but the last are silent, fill the ring, and are lost when their doubts end.
    let last = peers - 1;
    assert_eq!(reported(&mut e, 1_001), [(SlotId::at(last), Event::Lost)]);
    assert_eq!(reported(&mut e, 4_002).len(), last);
    for slot in 0..last {
        send(&mut e, slot, 5_000);
    }
    let again = reported(&mut e, 6_001);
    assert_eq!(again.len(), last / 2, "half of them are withheld again");
    send(&mut e, last, 6_100);
    assert_eq!(reported(&mut e, 7_101), [], "a peer without an earlier doubt finds a place");
}

#[test]
fn more_peers_in_doubt_than_places_and_more_losses_than_may_be_withheld_are_counted_at_once() {
    let (mut e, _) = silent(usize::from(DOUBTS_MAX) + 3);
    let lost = reported(&mut e, 1_001);
    assert_eq!(lost.iter().map(|(slot, _)| slot.index()).collect::<Vec<_>>(), [128, 129, 130]);
    assert_eq!(questions(&mut e, 1_100).len(), usize::from(DOUBTS_MAX));
    // Their time is over: all are lost, and their places are free again.
    let over = 1_001 + u64::try_from(DOUBT_TIME.as_millis()).unwrap();
    assert_eq!((reported(&mut e, over - 1).len(), reported(&mut e, over).len()), (0, DOUBTS_MAX.into()));
    assert_eq!((e.awaits_any(), e.next_doubt()), (false, None));

    let (mut e, _) = silent(1);
    e.reserve(64);
    (0..WITHHELD_MAX + 4).for_each(|_| _ = send(&mut e, 0, 1));
    assert_eq!(reported(&mut e, 1_002), [LOST; 5]);
    assert_eq!(questions(&mut e, 1_100), [address(0)]);
    e.answered(address(0));
    assert_eq!(reported(&mut e, 1_101), [LOST; WITHHELD_MAX as usize]);
}

#[test]
fn a_late_reply_to_a_withheld_probe_that_the_ring_has_forgotten_comes_after_its_loss() {
    let (mut e, labels) = silent(2);
    assert_eq!(reported(&mut e, 1_001), []);
    for ms in 0..e.flight_capacity() as u64 {
        let label = send(&mut e, 1, 1_002 + ms);
        e.reply(label, address(1), Moment::read(at(1_003 + ms)));
    }
    let late = e.reply(labels[0], address(0), Moment::read(at(1_400)));
    assert_eq!(late, Some((SlotId(0), [Some(Event::Lost), Some(Event::Late)])));
    assert_eq!(e.reply(labels[0], address(0), Moment::read(at(1_401))), Some((SlotId(0), [Some(Event::Late), None])));
    assert_eq!(reported(&mut e, 1_402), [(SlotId(1), Event::Lost)], "of the other, which has answered since");
}

#[test]
fn without_a_source_that_answers_losses_are_counted_at_once() {
    let mut e = Engine::new(SECOND, SECOND, false);
    e.reserve(1);
    e.apply(Change::Join { slot: SlotId(0) });
    put(&mut e, 0, address(0), false);
    send(&mut e, 0, 0);
    assert_eq!((reported(&mut e, 1_001), e.next_doubt()), (vec![LOST], None));
}
