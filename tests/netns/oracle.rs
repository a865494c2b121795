//! What must be told of every probe, from the emulator's log alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::emulator::Probe;
use crate::pinging::Told;

/// A reply this close to the timeout may be told either way: the probe's own clock starts when the device takes it, which
/// is a little after it entered, and without a stamp of the kernel a little before.
const DOUBT: Duration = Duration::from_millis(1);

/// Clocks are converted on both sides, to the tenth of a microsecond.
const ROUNDING: u64 = 1_000;

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
    /// What was told, in the same terms.
    pub fn told(told: &Told) -> Self {
        let Told { answers, reordered, lost, late, duplicate, .. } = told;
        let (lost, late, duplicate) = (lost.clone(), late.clone(), duplicate.clone());
        Self { answered: answers.keys().copied().collect(), reordered: reordered.clone(), lost, late, duplicate }
    }
}

/// The probes to `peer`, by their numbers, which count from 0 as they come.
fn of_peer(log: &[Probe], peer: IpAddr) -> impl Iterator<Item = (u64, &Probe)> {
    (0..).zip(log.iter().filter(move |probe| probe.peer == peer)).inspect(move |(number, probe)| {
        assert_eq!(*number, u64::from(probe.sequence), "probes to {peer} are missing or out of order");
    })
}

/// Holds what was told to what was logged, and every time to its bounds: with the kernel's stamps, a probe's clock starts
/// between the moment at which it enters the device and that at which the link has it, and stops as its reply arrives.
pub fn agree(told: &Told, log: &[Probe], peer: IpAddr, timeout: Duration) -> Expected {
    let expected = expected(log, peer, timeout, |number| told.lost.binary_search(&number).is_ok());
    assert_eq!(Expected::told(told), expected, "{peer}: told, and expected");
    for (number, probe) in of_peer(log, peer) {
        assert_eq!(probe.arrived().count(), probe.fate.replies().count(), "{peer} {number} is not over: {probe:?}");
        let Some(answer) = told.answers.get(&number).filter(|answer| answer.by_kernel) else { continue };
        let arrived = probe.first().expect("an answer has arrived").1;
        let bounds = arrived.since(probe.read).0.saturating_sub(ROUNDING)..=arrived.since(probe.entered).0 + ROUNDING;
        assert!(bounds.contains(&answer.nanos), "{peer} {number}: {answer:?}, not within {bounds:?}: {probe:?}");
    }
    let Expected { answered, reordered, lost, late, duplicate } = &expected;
    let counts =
        [answered.len() + lost.len(), answered.len(), lost.len(), late.len(), duplicate.len(), reordered.len()];
    let fields = ["sent", "received", "lost", "late", "duplicate", "reordered"];
    assert_eq!(fields.map(|field| told.count(field)), counts.map(|count| count as u64), "{peer}: {fields:?}");
    expected
}

/// What became of the probes to `peer`; `told_lost` decides for replies that are too close to the timeout.
pub fn expected(log: &[Probe], peer: IpAddr, timeout: Duration, told_lost: impl Fn(u64) -> bool) -> Expected {
    let mut expected = Expected::default();
    let mut in_time = BTreeMap::new();
    for (number, probe) in of_peer(log, peer) {
        let first = probe.first().map(|(order, at)| (order, Duration::from(at.since(probe.entered))));
        let answered =
            first.filter(|(_, rtt)| if rtt.abs_diff(timeout) < DOUBT { !told_lost(number) } else { *rtt < timeout });
        match (answered, first) {
            (Some((order, _)), _) => {
                expected.answered.insert(number);
                in_time.insert(order, number);
            }
            (None, Some(_)) => {
                expected.lost.push(number);
                expected.late.push(number);
            }
            (None, None) => expected.lost.push(number),
        }
        expected.duplicate.extend(probe.arrived().skip(1).map(|_| number));
    }
    // In the order of their arrival: whoever is below the highest so far was overtaken (RFC 4737).
    let mut highest = 0;
    for number in in_time.into_values() {
        if number < highest {
            expected.reordered.insert(number);
        }
        highest = highest.max(number);
    }
    expected
}
