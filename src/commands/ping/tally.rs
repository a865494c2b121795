//! Counts the outcomes of a target's probes, and assigns each its number.

use super::rtts::Rtts;
use super::sequences::Sequences;
use crate::prober::{Event, SendError, Stamp};
use crate::units::Nanos;

/// Counters of one target: `sent = received + lost + in_flight` at any moment.
#[derive(Debug, Default)]
pub struct TargetCounters {
    /// Number of probes sent.
    pub sent: u64,
    /// Number of probes answered within the timeout.
    pub received: u64,
    /// Number of probes not answered within the timeout.
    pub lost: u64,
    /// Number of probes answered after they were counted as lost.
    pub late: u64,
    /// Number of further answers to an answered probe.
    pub duplicate: u64,
    /// Number of probes answered after a later probe was.
    pub reordered: u64,
    /// Number of damaged replies.
    pub corrupt: u64,
    /// Number of probes that could not be sent.
    pub send_errors: u64,
    /// Number of received replies for which the kernel took both timestamps.
    pub stamped_by_kernel: u64,
    /// Round-trip times of the received replies.
    pub rtts: Rtts,
    sequences: Sequences,
}

/// The outcome of a probe, which is printed. Nothing is printed when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The probe was answered within the timeout.
    Reply {
        /// Round-trip time.
        rtt: Nanos,
        /// Whether a later probe was answered before.
        reordered: bool,
        /// Source of the timestamps.
        stamp: Stamp,
    },
    /// The probe was not answered within the timeout.
    Lost,
    /// The probe was answered after the timeout.
    Late,
    /// The probe was answered again.
    Duplicate,
    /// A damaged reply. It is unknown which probe it answers.
    Corrupt,
    /// The probe was not sent.
    SendError(SendError),
}

impl TargetCounters {
    /// Counts `event`. If it is about a reply, `replied` is the ICMP sequence number of the
    /// answered probe. Returns what to print, and the number of the probe, counted from 0.
    pub fn record(&mut self, event: Event, replied: Option<u16>) -> Option<(Option<u64>, ProbeOutcome)> {
        let sequences = &mut self.sequences;
        let replied = replied.map(|sequence| sequences.settled(sequence));
        Some(match event {
            Event::Sent => {
                self.sent += 1;
                self.sequences.sent();
                return None;
            }
            Event::NotSent(reason) => {
                self.send_errors += 1;
                // If the prober's own table is full, no number is used.
                let number = (reason != SendError::TableFull).then(|| self.sequences.skipped());
                (number, ProbeOutcome::SendError(reason))
            }
            Event::Received { rtt, reordered, sequence, stamp } => {
                self.received += 1;
                self.reordered += u64::from(reordered);
                self.stamped_by_kernel += u64::from(stamp == Stamp::Kernel);
                self.rtts.add(rtt);
                (Some(self.sequences.settled(sequence)), ProbeOutcome::Reply { rtt, reordered, stamp })
            }
            Event::Lost => {
                self.lost += 1;
                // A late reply that arrives before its loss is counted settles the probe itself.
                (replied.or_else(|| self.sequences.oldest_lost()), ProbeOutcome::Lost)
            }
            Event::Late => {
                self.late += 1;
                (replied, ProbeOutcome::Late)
            }
            Event::Duplicate => {
                self.duplicate += 1;
                (replied, ProbeOutcome::Duplicate)
            }
            Event::Corrupt => {
                self.corrupt += 1;
                (None, ProbeOutcome::Corrupt)
            }
            // Only for peers that move or leave, and for extra probes. Targets have neither.
            Event::Terminating { .. } | Event::Extra { .. } => return None,
        })
    }

    /// Returns the number of probes in flight.
    pub const fn in_flight(&self) -> u64 {
        self.sent - self.received - self.lost
    }

    /// Returns the number of probes whose turn is over: sent, or not possible to send.
    pub const fn tried(&self) -> u64 {
        self.sent + self.send_errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(sequence: u16, reordered: bool) -> Event {
        Event::Received { rtt: Nanos(5), reordered, sequence, stamp: Stamp::Kernel }
    }

    #[test]
    fn each_outcome_has_the_number_of_its_probe() {
        let mut t = TargetCounters::default();
        (0..3).for_each(|_| assert_eq!(t.record(Event::Sent, None), None));
        let error = t.record(Event::NotSent(SendError::NoRoute), None);
        assert_eq!(error, Some((Some(3), ProbeOutcome::SendError(SendError::NoRoute))));
        let full = t.record(Event::NotSent(SendError::TableFull), None);
        assert_eq!(full, Some((None, ProbeOutcome::SendError(SendError::TableFull))));
        t.record(Event::Sent, None);
        let reply = |reordered| ProbeOutcome::Reply { rtt: Nanos(5), reordered, stamp: Stamp::Kernel };
        assert_eq!(t.record(received(2, false), Some(2)), Some((Some(2), reply(false))));
        assert_eq!(t.record(received(1, true), Some(1)), Some((Some(1), reply(true))));
        assert_eq!(t.record(Event::Duplicate, Some(1)), Some((Some(1), ProbeOutcome::Duplicate)));
        assert_eq!(t.in_flight(), 2);
        assert_eq!(t.record(Event::Lost, None), Some((Some(0), ProbeOutcome::Lost)));
        assert_eq!(t.record(Event::Late, Some(0)), Some((Some(0), ProbeOutcome::Late)));
        assert_eq!(t.record(Event::Corrupt, None), Some((None, ProbeOutcome::Corrupt)));
        assert_eq!(t.record(Event::Lost, None), Some((Some(4), ProbeOutcome::Lost)), "number 3 never went out");
        assert_eq!((t.sent, t.received, t.lost, t.send_errors), (4, 2, 2, 2));
        assert_eq!((t.late, t.duplicate, t.reordered, t.corrupt, t.in_flight()), (1, 1, 1, 1, 0));
    }

    #[test]
    fn a_reply_that_is_read_before_its_loss_is_recorded_has_the_number_of_its_own_probe() {
        let mut t = TargetCounters::default();
        (0..2).for_each(|_| _ = t.record(Event::Sent, None));
        assert_eq!(t.record(Event::Lost, Some(1)), Some((Some(1), ProbeOutcome::Lost)));
        assert_eq!(t.record(Event::Late, Some(1)), Some((Some(1), ProbeOutcome::Late)));
        assert_eq!(t.record(Event::Lost, None), Some((Some(0), ProbeOutcome::Lost)));
    }
}
