//! The expected result of every probe, from the emulator's log alone.
//!
//! There are no tolerances. If the machine delays the link or the prober, two results may be
//! possible. The log shows where that is so, and then either is right ([`Fate`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::emulator::Probe;
use crate::pinging::Printed;

/// The rounding error in nanoseconds: both sides convert clocks, to the tenth of a microsecond.
const ROUNDING: u64 = 1_000;
/// The prober remembers at least this many of its latest probes. A further reply to an older probe
/// may be reported as late or as a duplicate.
const REMEMBERED: usize = 1_000;

/// The events of one peer's probes, by their numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub answered: BTreeSet<u64>,
    pub reordered: BTreeSet<u64>,
    pub lost: Vec<u64>,
    pub late: Vec<u64>,
    pub duplicate: Vec<u64>,
}

impl Expected {
    /// The reported events, in the same form.
    pub fn printed(printed: &Printed) -> Self {
        let Printed { answers, reordered, lost, late, duplicate, .. } = printed;
        let (lost, late, duplicate) = (lost.clone(), late.clone(), duplicate.clone());
        Self { answered: answers.keys().copied().collect(), reordered: reordered.clone(), lost, late, duplicate }
    }

    /// The events of the probes with these numbers.
    fn of(mut self, numbers: impl Fn(u64) -> bool) -> Self {
        let Self { answered, reordered, lost, late, duplicate } = &mut self;
        for set in [answered, reordered] {
            set.retain(|number| numbers(*number));
        }
        for list in [lost, late, duplicate] {
            list.retain(|number| numbers(*number));
        }
        self
    }

    /// Without the replies to these probes that may be reported in two ways.
    fn without_replies_to(mut self, forgotten: &BTreeSet<u64>) -> Self {
        for list in [&mut self.late, &mut self.duplicate] {
            list.retain(|number| !forgotten.contains(number));
        }
        self
    }
}

/// The result of the first reply to a probe.
///
/// The probe's own clock starts between two moments: when it enters the device, and when the link
/// has read it. The clock stops with the kernel's stamp of the reply. A loss is decided only after
/// the whole queue of the socket has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was in the queue within the timeout, by the earliest start of the clock.
    Answered,
    /// It was stamped after the timeout, by the latest start of the clock.
    Late,
    /// Between the two: the link was delayed near the timeout.
    Open,
    /// There is no reply to the probe.
    Unanswered,
}

impl Fate {
    fn of(probe: &Probe, timeout: Duration) -> Self {
        match probe.first() {
            None => Self::Unanswered,
            Some(reply) if Duration::from(reply.queued.since(probe.entered)) <= timeout => Self::Answered,
            Some(reply) if Duration::from(reply.at.since(probe.read)) > timeout => Self::Late,
            Some(_) => Self::Open,
        }
    }
}

/// The probes to `peer` with their numbers, which count from 0 in order of arrival.
fn of_peer(log: &[Probe], peer: IpAddr) -> impl Iterator<Item = (u64, &Probe)> {
    (0..).zip(log.iter().filter(move |probe| probe.peer == peer)).inspect(move |(number, probe)| {
        assert_eq!(*number, u64::from(probe.sequence), "probes to {peer} are missing or out of order");
    })
}

/// Asserts that the reports of the first `end` probes agree with the log, and that every time is
/// within its bounds. All replies to these probes are in the log.
pub fn agree(printed: &Printed, log: &[Probe], peer: IpAddr, timeout: Duration, end: u64) -> Expected {
    let is_compared = |number| number < end;
    let expected = expected(log, peer, timeout, |number| printed.lost.binary_search(&number).is_ok()).of(is_compared);
    let forgotten = forgotten(log, peer, timeout);
    let [seen, logged] =
        [Expected::printed(printed).of(is_compared), expected].map(|it| it.without_replies_to(&forgotten));
    assert_eq!(seen, logged, "{peer}: reported, and expected");
    for (number, probe) in of_peer(log, peer).take_while(|(number, _)| is_compared(*number)) {
        assert_eq!(probe.arrived().count(), probe.fate.replies().count(), "{peer} {number} is not over: {probe:?}");
        let Some(answer) = printed.answers.get(&number).filter(|answer| answer.by_kernel) else { continue };
        let arrived = probe.first().expect("an answer has arrived").at;
        let bounds = arrived.since(probe.read).0.saturating_sub(ROUNDING)..=arrived.since(probe.entered).0 + ROUNDING;
        assert!(bounds.contains(&answer.nanos), "{peer} {number}: {answer:?}, not within {bounds:?}: {probe:?}");
    }
    let Expected { answered, reordered, lost, late, duplicate } = Expected::printed(printed);
    let counts = [answered.len(), lost.len(), late.len(), duplicate.len(), reordered.len()];
    let fields = ["received", "lost", "late", "duplicate", "reordered"];
    assert_eq!(fields.map(|field| printed.count(field)), counts.map(|count| count as u64), "{peer}: {fields:?}");
    logged
}

/// The results of the probes to `peer`. `told_lost` decides where the log leaves two results open.
pub fn expected(log: &[Probe], peer: IpAddr, timeout: Duration, told_lost: impl Fn(u64) -> bool) -> Expected {
    let mut expected = Expected::default();
    let mut in_time = BTreeMap::new();
    for (number, probe) in of_peer(log, peer) {
        match (Fate::of(probe, timeout), probe.first()) {
            (fate, Some(reply)) if fate == Fate::Answered || fate == Fate::Open && !told_lost(number) => {
                expected.answered.insert(number);
                in_time.insert(reply.order, number);
            }
            (_, first) => {
                expected.lost.push(number);
                expected.late.extend(first.map(|_| number));
            }
        }
        expected.duplicate.extend(probe.arrived().skip(1).map(|_| number));
    }
    // In the order of arrival: an answer below the highest number so far was overtaken (RFC 4737).
    let mut highest = 0;
    for number in in_time.into_values() {
        if number < highest {
            expected.reordered.insert(number);
        }
        highest = highest.max(number);
    }
    expected
}

/// The number of probes to `peer` whose result the log leaves open.
pub fn open(log: &[Probe], peer: IpAddr, timeout: Duration) -> usize {
    of_peer(log, peer).filter(|(_, probe)| Fate::of(probe, timeout) == Fate::Open).count()
}

/// Probes with a late or further reply that arrived after [`REMEMBERED`] later probes.
fn forgotten(log: &[Probe], peer: IpAddr, timeout: Duration) -> BTreeSet<u64> {
    let is_forgotten = |probe: &Probe| {
        let kept = usize::from(Fate::of(probe, timeout) == Fate::Answered);
        probe.arrived().skip(kept).any(|reply| {
            let later = |other: &&Probe| probe.entered < other.entered && other.entered < reply.at;
            log.iter().filter(later).count() > REMEMBERED
        })
    };
    of_peer(log, peer).filter(|(_, probe)| is_forgotten(probe)).map(|(number, _)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::{self, Reply, peer4};
    use kube_canary::units::Nanos;

    const TIMEOUT: Duration = Duration::from_millis(300);

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// A probe that enters and is read at 10 ms × `sequence`. Each reply has its position among all
    /// replies, and the milliseconds after which it is stamped and queued.
    fn probe(sequence: u16, replies: &[(usize, u64, u64)]) -> Probe {
        let entered = at(u64::from(sequence) * 10);
        let reply = |&(order, stamped, queued): &(usize, u64, u64)| Reply {
            due: entered,
            arrived: Some(entered.plus(at(stamped))),
            queued: Some(entered.plus(at(queued))),
            order: Some(order),
        };
        let replies = replies.iter().map(reply).collect();
        let fate = emulator::Fate::REQUEST_LOST;
        Probe { peer: peer4(1), sequence, entered, read: entered, fate, replies }
    }

    #[test]
    fn every_outcome_matches_its_log_line() {
        let log = [
            probe(0, &[(2, 35, 35)]),
            probe(1, &[(0, 5, 5)]),
            probe(2, &[]),
            probe(3, &[(1, 1, 1), (4, 400, 400)]),
            probe(4, &[(3, 301, 301)]),
        ];
        let found = expected(&log, peer4(1), TIMEOUT, |_| panic!("nothing is left open"));
        assert_eq!(found.answered, [0, 1, 3].into());
        assert_eq!(found.reordered, [0].into(), "two later ones were answered before it");
        assert_eq!((found.lost, found.late, found.duplicate), (vec![2, 4], vec![4], vec![3]));
        assert_eq!(open(&log, peer4(1), TIMEOUT), 0);
    }

    #[test]
    fn a_reply_stamped_in_time_and_queued_late_may_be_received_or_late() {
        let log = [probe(0, &[(0, 290, 310)])];
        assert_eq!(open(&log, peer4(1), TIMEOUT), 1);
        assert_eq!(expected(&log, peer4(1), TIMEOUT, |_| true).late, [0]);
        assert_eq!(expected(&log, peer4(1), TIMEOUT, |_| false).answered, [0].into());
    }
}
