//! The expected counts, from what the wire did: a second opinion that knows nothing of rings and
//! slots.

use std::net::IpAddr;

use kube_canary::statistics::PeerReading;
use kube_canary::units::Nanos;

use super::wire::Probe;

/// The place of a peer from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The moment from which this is the place.
    pub since: Nanos,
    /// `None`: the peer is off the list.
    pub address: Option<IpAddr>,
    /// Whether the peer is terminating.
    pub terminating: bool,
}

/// The result of a probe, with its time.
enum Outcome {
    Received { at: Nanos },
    Lost,
    Withdrawn { at: Nanos },
}

/// The counters of a peer that was in these places, in order, and was sent these probes, in order
/// of sending. Every reply was read as it arrived or has a valid stamp, and nothing is in flight.
pub fn expected(places: &[Place], probes: &[(IpAddr, &Probe)], timeout: Nanos) -> PeerReading {
    let mut counts = PeerReading::default();
    let at = |time: Nanos| places.iter().rev().find(|place| place.since <= time).expect("a place from the start on");
    let mut received: Vec<(Nanos, usize)> = Vec::new();
    // Withdrawn probes keep their place in `sent` until the next one takes it, in order of time.
    let mut steps: Vec<(Nanos, i32)> = Vec::new();
    for (number, (address, probe)) in probes.iter().enumerate() {
        if let Some(reason) = probe.refused {
            counts.send_errors[reason as usize] += 1;
            continue;
        }
        let terminating = at(probe.sent_at).terminating;
        if !terminating {
            steps.push((probe.sent_at, 1));
        }
        let accepted = |time: Nanos| at(time).address.is_none_or(|held| held == *address);
        let mut intact: Vec<Nanos> = Vec::new();
        for reply in &probe.replies {
            match reply.damage {
                None if accepted(reply.at) => intact.push(reply.at),
                None => {}
                Some(_) => counts.corrupt += 1,
            }
        }
        intact.sort_unstable();
        let deadline = probe.sent_at.plus(timeout);
        let withdrawn = places.iter().any(|place| {
            let during = place.since > probe.sent_at && place.since <= deadline;
            during && (place.terminating || place.address != Some(*address))
        });
        let outcome = match intact.first() {
            Some(first) if *first <= deadline => Outcome::Received { at: *first },
            _ if withdrawn || terminating => Outcome::Withdrawn { at: deadline.plus(Nanos(1)) },
            _ => Outcome::Lost,
        };
        let answers = u32::try_from(intact.len()).expect("few");
        match outcome {
            Outcome::Received { at } => {
                counts.duplicate += answers - 1;
                received.push((at, number));
                if terminating {
                    counts.terminating[0] += 1;
                } else {
                    counts.received += 1;
                }
            }
            Outcome::Lost => {
                counts.lost += 1;
                counts.late += answers.min(1);
                counts.duplicate += answers.saturating_sub(1);
            }
            Outcome::Withdrawn { at } => {
                counts.terminating[1] += 1;
                if !terminating {
                    steps.push((at, -1));
                }
            }
        }
    }
    received.sort_unstable();
    let mut newest = 0;
    for (_, number) in received {
        counts.reordered += u32::from(number < newest);
        newest = newest.max(number);
    }
    steps.sort_unstable_by_key(|(at, step)| (*at, -step));
    let mut withdrawn = 0u64;
    for (_, step) in steps {
        match (step, withdrawn) {
            (1, 0) => counts.sent += 1,
            (1, _) => withdrawn -= 1,
            _ => withdrawn += 1,
        }
    }
    counts
}

/// Intact replies from an address that the peer no longer had.
pub fn disowned(places: &[Place], probes: &[(IpAddr, &Probe)]) -> u64 {
    let at = |time: Nanos| places.iter().rev().find(|place| place.since <= time).expect("a place from the start on");
    let replies = probes.iter().flat_map(|(address, probe)| probe.replies.iter().map(move |reply| (*address, reply)));
    let elsewhere = |address: IpAddr, time| at(time).address.is_some_and(|held| held != address);
    replies.filter(|(address, reply)| reply.damage.is_none() && elsewhere(*address, reply.at)).count() as u64
}
