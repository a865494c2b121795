//! Keeps track of which probes of a target wait for their answer.
//!
//! The prober numbers a target's probes consecutively, and decides their loss in that order. So the
//! oldest waiting probe is the lost one, and the event needs no number. The ICMP sequence number
//! has 16 bits and wraps; the number here does not.

/// Number of probes that are remembered: the bits of a word. One more than
/// [`crate::limits::IN_FLIGHT_PER_PEER_MAX`] can be in flight, unless the process is stopped
/// for longer than that.
const WINDOW: u64 = 128;
const _: () = assert!(WINDOW > crate::limits::IN_FLIGHT_PER_PEER_MAX);

/// The waiting probes of one target.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequences {
    /// Number of the next probe.
    next: u64,
    /// Bit n is set if probe `next - 1 - n` waits.
    waiting: u128,
}

impl Sequences {
    /// Notes that the next probe was sent. Returns its number.
    pub const fn sent(&mut self) -> u64 {
        let number = self.skipped();
        self.waiting |= 1;
        number
    }

    /// Notes that the next probe was not sent. It takes a number all the same, which is returned.
    pub const fn skipped(&mut self) -> u64 {
        self.waiting <<= 1;
        self.next += 1;
        self.next - 1
    }

    /// Notes that the probe with this ICMP sequence number no longer waits. Returns its number.
    pub fn settled(&mut self, sequence: u16) -> u64 {
        let back = u64::from(self.low_bits().wrapping_sub(1).wrapping_sub(sequence));
        if back < WINDOW {
            self.waiting &= !(1 << back);
        }
        (self.next.saturating_sub(1)).saturating_sub(back)
    }

    /// Notes that the oldest waiting probe is lost. Returns its number; `None` if it
    /// is no longer remembered.
    pub fn oldest_lost(&mut self) -> Option<u64> {
        let back = u64::from(self.waiting.checked_ilog2()?);
        self.waiting &= !(1 << back);
        Some(self.next - 1 - back)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the number on the wire has 16 bits")]
    const fn low_bits(&self) -> u16 {
        self.next as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_waits_is_lost() {
        let mut s = Sequences::default();
        assert_eq!([s.sent(), s.skipped(), s.sent(), s.sent()], [0, 1, 2, 3]);
        assert_eq!(s.settled(2), 2);
        assert_eq!([s.oldest_lost(), s.oldest_lost(), s.oldest_lost()], [Some(0), Some(3), None]);
    }

    #[test]
    fn numbers_go_on_where_those_of_the_wire_wrap() {
        let mut s = Sequences::default();
        for _ in 0..65_536 {
            let number = s.sent();
            assert_eq!(s.settled(u16::try_from(number).unwrap()), number);
        }
        assert_eq!([s.sent(), s.sent()], [65_536, 65_537]);
        assert_eq!(s.settled(65_535), 65_535, "late");
        assert_eq!(s.settled(1), 65_537);
        assert_eq!(s.oldest_lost(), Some(65_536));
    }

    #[test]
    fn a_probe_beyond_the_window_has_no_number() {
        let mut s = Sequences::default();
        s.sent();
        (0..WINDOW).for_each(|_| _ = s.skipped());
        assert_eq!(s.oldest_lost(), None);
        assert_eq!(s.settled(0), 0);
    }
}
