//! Probes that the kernel, or our own table, does not accept.

use kube_canary::prober::SendError;
use kube_canary::statistics::PeerReading;
use kube_canary::units::Nanos;

use super::wire::Fate;
use super::world::{Plan, SECOND, World, ip};

const A: &str = "10.0.0.2";
const B: &str = "fd00::3";

#[test]
fn refused_probes_are_counted_by_reason_and_are_neither_sent_nor_lost() {
    let mut world = World::new(Plan::default(), &[("a", A), ("b", B)]);
    // Reason r is given r + 1 times, between probes that are sent.
    let reasons = SendError::ALL.iter().enumerate().flat_map(|(r, reason)| vec![*reason; r + 1]);
    let mut reasons: Vec<SendError> = reasons.collect();
    reasons.reverse();
    let refused = reasons.len();
    world.wire().script(ip(A), move |n| {
        let next = if n % 3 == 0 { None } else { reasons.pop() };
        next.map_or_else(|| if n % 2 == 0 { Fate::reply(100) } else { Fate::lost() }, Fate::Refused)
    });
    world.run_until_tried(ip(A), 90);
    world.run_until_tried(ip(B), 90);
    world.settle();
    let (sent, log) = (world.wire().sent(ip(A)), world.wire().log(ip(A)).to_vec());
    assert_eq!(log.len() - refused, usize::try_from(sent).unwrap(), "every reason was used up");
    let received = log.iter().filter(|probe| !probe.replies.is_empty()).count() as u64;
    let send_errors = std::array::from_fn(|r| u32::try_from(r).unwrap() + 1);
    world.expect("a", PeerReading { sent, received, lost: sent - received, send_errors, ..PeerReading::default() });
    let b = world.wire().sent(ip(B));
    world.expect("b", PeerReading { sent: b, received: b, ..PeerReading::default() });
    assert_eq!(world.statistics.send_lag().read().count(), sent + b, "only what was sent has a lag");
}

#[test]
fn a_host_that_cannot_send_for_a_while_shows_errors_and_no_loss_and_goes_on_after() {
    let mut world = World::new(Plan { timeout: SECOND, ..Plan::default() }, &[("a", A)]);
    world
        .wire()
        .script(ip(A), |n| if (10..30).contains(&n) { Fate::Refused(SendError::NoRoute) } else { Fate::reply(100) });
    world.run_until_tried(ip(A), 40);
    world.settle();
    let mut send_errors = [0; SendError::ALL.len()];
    send_errors[SendError::NoRoute as usize] = 20;
    world.expect("a", PeerReading { sent: 20, received: 20, send_errors, ..PeerReading::default() });
}

#[test]
fn every_probe_of_a_batch_has_its_own_result() {
    // There are 30 peers at an interval of one cell. So batches have eight probes, because the
    // kernel reports no departures.
    let plan = Plan { interval: Nanos::from_millis(10), timeout: Nanos::from_millis(5), ..Plan::default() };
    let (mut world, peers) = World::of_many(plan, 30);
    for (i, (_, address)) in (0u64..).zip(&peers) {
        world.wire().script(*address, move |n| match (n + i) % 3 {
            0 => Fate::Refused(SendError::ALL[usize::try_from(i).unwrap() % SendError::ALL.len()]),
            1 => Fate::lost(),
            _ => Fate::reply(10),
        });
    }
    world.run_until_tried(ip("10.0.1.29"), 30);
    world.settle();
    for (i, (name, _)) in peers.iter().enumerate() {
        let mut send_errors = [0; SendError::ALL.len()];
        send_errors[i % SendError::ALL.len()] = 10;
        world.expect(name, PeerReading { sent: 20, received: 10, lost: 10, send_errors, ..PeerReading::default() });
    }
}
