//! What became of a target's probes, counted, and each with its number.

use super::rtts::Rtts;
use super::sequences::Sequences;
use crate::prober::{Event, SendError, Stamp};
use crate::units::Nanos;

/// Of one target: `sent = received + lost + in_flight`, at any moment.
#[derive(Debug, Default)]
pub struct Tally {
    /// Went out.
    pub sent: u64,
    /// Answered within the timeout.
    pub received: u64,
    /// Not answered within it.
    pub lost: u64,
    /// Answered after they were counted lost.
    pub late: u64,
    /// Answered once more.
    pub duplicate: u64,
    /// Answered after a later one was.
    pub reordered: u64,
    /// Damaged replies.
    pub corrupt: u64,
    /// Did not go out: the kernel would not.
    pub send_errors: u64,
    /// Of the received: both times are the kernel's.
    pub stamped_by_kernel: u64,
    /// Of the received.
    pub rtts: Rtts,
    sequences: Sequences,
}

/// What to tell of a probe; nothing is told of its going out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Answered within the timeout.
    Reply {
        /// The round-trip time.
        rtt: Nanos,
        /// A later one was answered before.
        reordered: bool,
        /// Who took the times.
        stamp: Stamp,
    },
    /// Not answered within the timeout.
    Lost,
    /// Answered after that.
    Late,
    /// Answered once more.
    Duplicate,
    /// A damaged reply, to which probe nobody can say.
    Corrupt,
    /// It did not go out.
    SendError(SendError),
}

impl Tally {
    /// Books `event`, of a reply to the probe with the ICMP sequence number `replied` where it is of one. Returns what to
    /// tell, and of which probe, counted from 0.
    pub fn book(&mut self, event: Event, replied: Option<u16>) -> Option<(Option<u64>, Told)> {
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
                // Where our own table is full no number is taken.
                let number = (reason != SendError::TableFull).then(|| self.sequences.skipped());
                (number, Told::SendError(reason))
            }
            Event::Received { rtt, reordered, sequence, stamp } => {
                self.received += 1;
                self.reordered += u64::from(reordered);
                self.stamped_by_kernel += u64::from(stamp == Stamp::Kernel);
                self.rtts.add(rtt);
                (Some(self.sequences.settled(sequence)), Told::Reply { rtt, reordered, stamp })
            }
            Event::Lost => {
                self.lost += 1;
                // A reply that comes before its loss is booked settles it itself.
                (replied.or_else(|| self.sequences.oldest_lost()), Told::Lost)
            }
            Event::Late => {
                self.late += 1;
                (replied, Told::Late)
            }
            Event::Duplicate => {
                self.duplicate += 1;
                (replied, Told::Duplicate)
            }
            Event::Corrupt => {
                self.corrupt += 1;
                (None, Told::Corrupt)
            }
            // Of peers that move or leave, which targets do not.
            Event::Terminating { .. } => return None,
        })
    }

    /// Under way.
    pub const fn in_flight(&self) -> u64 {
        self.sent - self.received - self.lost
    }

    /// Whose turn is over: sent, or meant to be.
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
    fn every_probe_is_told_by_its_number() {
        let mut t = Tally::default();
        (0..3).for_each(|_| assert_eq!(t.book(Event::Sent, None), None));
        let error = t.book(Event::NotSent(SendError::NoRoute), None);
        assert_eq!(error, Some((Some(3), Told::SendError(SendError::NoRoute))));
        let full = t.book(Event::NotSent(SendError::TableFull), None);
        assert_eq!(full, Some((None, Told::SendError(SendError::TableFull))));
        t.book(Event::Sent, None);
        let told = |reordered| Told::Reply { rtt: Nanos(5), reordered, stamp: Stamp::Kernel };
        assert_eq!(t.book(received(2, false), Some(2)), Some((Some(2), told(false))));
        assert_eq!(t.book(received(1, true), Some(1)), Some((Some(1), told(true))));
        assert_eq!(t.book(Event::Duplicate, Some(1)), Some((Some(1), Told::Duplicate)));
        assert_eq!(t.in_flight(), 2);
        assert_eq!(t.book(Event::Lost, None), Some((Some(0), Told::Lost)));
        assert_eq!(t.book(Event::Late, Some(0)), Some((Some(0), Told::Late)));
        assert_eq!(t.book(Event::Corrupt, None), Some((None, Told::Corrupt)));
        assert_eq!(t.book(Event::Lost, None), Some((Some(4), Told::Lost)), "number 3 never went out");
        assert_eq!((t.sent, t.received, t.lost, t.send_errors), (4, 2, 2, 2));
        assert_eq!((t.late, t.duplicate, t.reordered, t.corrupt, t.in_flight()), (1, 1, 1, 1, 0));
    }

    #[test]
    fn a_reply_that_is_read_before_its_loss_is_booked_names_its_own_probe() {
        let mut t = Tally::default();
        (0..2).for_each(|_| _ = t.book(Event::Sent, None));
        assert_eq!(t.book(Event::Lost, Some(1)), Some((Some(1), Told::Lost)));
        assert_eq!(t.book(Event::Late, Some(1)), Some((Some(1), Told::Late)));
        assert_eq!(t.book(Event::Lost, None), Some((Some(0), Told::Lost)));
    }
}
