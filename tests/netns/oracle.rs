//! What must be told of every probe, from the emulator's log alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use kube_canary::units::Nanos;

use crate::emulator::Probe;

/// A reply this close to the timeout may be told either way: the probe's own clock starts when the device takes it, which
/// is a little after it entered, and without a stamp of the kernel a little before.
const DOUBT: Duration = Duration::from_millis(1);

/// The events of one peer's probes, by their numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub answered: BTreeSet<u64>,
    pub reordered: BTreeSet<u64>,
    pub lost: Vec<u64>,
    pub late: Vec<u64>,
    pub duplicate: Vec<u64>,
}

/// Of `peer`, whose probes are numbered from 0 as they come; `told_lost` decides for replies that are too close to the
/// timeout.
pub fn expected(log: &[Probe], peer: IpAddr, timeout: Duration, told_lost: impl Fn(u64) -> bool) -> Expected {
    let mut expected = Expected::default();
    let mut in_time = BTreeMap::new();
    for (number, probe) in (0u64..).zip(log.iter().filter(|probe| probe.peer == peer)) {
        assert_eq!(number, u64::from(probe.sequence), "probes to {peer} are missing or out of order");
        let mut arrived: Vec<(usize, Nanos)> =
            probe.replies.iter().filter_map(|reply| Some((reply.order?, reply.arrived?))).collect();
        arrived.sort_unstable();
        let first = arrived.first().map(|(order, at)| (*order, Duration::from(at.since(probe.entered))));
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
        expected.duplicate.extend(arrived.iter().skip(1).map(|_| number));
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
