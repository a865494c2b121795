//! Answers that name another node than the list.

use super::*;
use crate::prober::udp::stamp::packet::ASKING_REQUEST_BYTES;

const RIGHT: u64 = 7;
const OTHER: u64 = 8;

fn asked(world: &mut World) -> Vec<bool> {
    let is_asking = |seen: &Seen| seen.bytes.len() == ASKING_REQUEST_BYTES;
    world.wire().log.iter().map(is_asking).collect()
}

/// A world in which the list names the node of slot 0, and another one answers from the start.
fn of_other(script: impl FnMut(&Outgoing<'_>, usize) -> Fate + 'static) -> World {
    let mut world = World::new(2, script);
    world.prober.expect(slot(0), RIGHT);
    world.wire().names.insert(peer(0), OTHER);
    world
}

#[test]
fn what_another_node_answers_or_leaves_unanswered_does_not_count() {
    let mut world = of_other(|_, number| if number % 3 == 2 { Fate::LostThere } else { AT_ONCE });
    world.run(Nanos(20 * SECOND.0));
    assert!(
        world.prober.other_node_answers(slot(0))
            && !world.prober.other_node_answers(slot(1))
            && world.prober.has_news()
    );
    let count = |event: fn(&Event) -> bool| world.log.count(slot(0), event);
    assert_eq!(count(|event| matches!(event, Event::Received { .. } | Event::Lost | Event::Late)), 0);
    let uncounted =
        [true, false].map(|answered| world.log.count(slot(0), |event| *event == Event::Terminating { answered }));
    assert!(uncounted[0] >= 12 && uncounted[1] >= 5, "{uncounted:?}");
    // The first probe was sent before anything was known.
    assert!(count(|event| *event == Event::Sent) <= 1);
    assert!(world.log.count(slot(1), |event| *event == Event::Lost) >= 5, "the other peer counts as ever");
}

#[test]
fn the_node_of_the_list_counts_again_once_it_answers_and_the_list_says_so() {
    let mut world = of_other(|_, _| AT_ONCE);
    world.run(Nanos(5 * SECOND.0));
    world.prober.take_news();
    world.wire().names.insert(peer(0), RIGHT);
    world.run(Nanos(3 * SECOND.0));
    assert!(!world.prober.other_node_answers(slot(0)) && world.prober.has_news());
    // As the directory does when it hears of it.
    world.aim(0, peer(0), false);
    let before = world.log.received().len();
    world.run(Nanos(5 * SECOND.0));
    assert!(world.log.count(slot(0), |event| matches!(event, Event::Received { .. })) >= 4, "{before}");
    // From another address no answer has come yet.
    world.wire().names.insert(peer(0), OTHER);
    world.run(Nanos(2 * SECOND.0));
    assert!(world.prober.other_node_answers(slot(0)));
    world.aim(0, peer(9), false);
    assert!(!world.prober.other_node_answers(slot(0)));
}

#[test]
fn another_node_is_not_taken_back_before_the_directory_has_heard_of_it() {
    let mut world = of_other(|_, _| AT_ONCE);
    world.run(Nanos(3 * SECOND.0));
    world.wire().names.insert(peer(0), RIGHT);
    world.run(Nanos(3 * SECOND.0));
    assert!(world.prober.other_node_answers(slot(0)), "the engine waits for the directory to bring it back");
    world.prober.take_news();
    world.run(Nanos(3 * SECOND.0));
    assert!(!world.prober.other_node_answers(slot(0)) && world.prober.has_news());
}

#[test]
fn a_list_that_forgets_the_answering_node_is_informed_again() {
    let mut world = of_other(|_, _| AT_ONCE);
    world.run(Nanos(3 * SECOND.0));
    world.prober.take_news();
    world.aim(0, peer(0), false);
    assert!(world.prober.has_news());
}

#[test]
fn a_reflector_that_does_not_know_the_question_counts_and_is_seldom_asked() {
    let mut world = World::new(1, |_, _| AT_ONCE);
    world.prober.expect(slot(0), RIGHT);
    world.run(Nanos(130 * SECOND.0));
    let asked = asked(&mut world);
    assert!(asked[0] && asked.iter().filter(|asked| **asked).count() <= 4, "{asked:?}");
    assert!(!world.prober.other_node_answers(slot(0)) && !world.prober.has_news());
    assert_eq!(world.log.received().len(), world.log.count(slot(0), |event| *event == Event::Sent));
}

#[test]
fn a_node_whose_name_is_not_known_is_not_asked() {
    let mut world = World::new(1, |_, _| AT_ONCE);
    world.wire().names.insert(peer(0), OTHER);
    world.run(Nanos(5 * SECOND.0));
    assert!(!asked(&mut world).contains(&true) && !world.prober.has_news());
}
