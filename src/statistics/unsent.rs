//! Probes that could not be sent: their number by method, family and reason since the start, and of
//! each slot, their number and the reason of most of them in the last minute.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use kube_canary_kernel::atomic;
use zerocopy::FromZeros;

use super::bump;
use crate::peers::{Family, Method};
use crate::prober::SendError;

const REASONS: usize = SendError::ALL.len();

/// The numbers of all slots since the start.
#[derive(Debug)]
pub(super) struct SendErrors([[[AtomicU64; REASONS]; Family::ALL.len()]; Method::ALL.len()]);

impl SendErrors {
    pub(super) const fn new() -> Self {
        Self([const { [const { [const { AtomicU64::new(0) }; REASONS] }; Family::ALL.len()] }; Method::ALL.len()])
    }

    pub(super) fn count(&self, method: Method, family: Family, reason: SendError) {
        bump(&self.0[method as usize][family as usize][reason as usize], 1);
    }

    pub(super) fn read(&self, method: Method, family: Family, reason: SendError) -> u64 {
        self.0[method as usize][family as usize][reason as usize].load(Ordering::Relaxed)
    }
}

/// The numbers of one slot in the recent window: 8 bytes. All zeroes is a valid initial state. A
/// reader may meet the writer between two of them, and is then one probe or one reason behind.
#[derive(Debug, Default, FromZeros)]
pub(super) struct UnsentNumbers {
    /// The half in which a probe was last counted. It does not wrap around: that may be long ago.
    last: AtomicU32,
    /// Number of probes in the even and in the odd half.
    counts: [AtomicU8; 2],
    /// The reason of most probes of a half, as its place in [`SendError::ALL`].
    reason: AtomicU8,
    /// By how many probes it leads (Boyer and Moore, "MJRTY", 1981).
    lead: AtomicU8,
}
atomic!(UnsentNumbers { last, counts, reason, lead });

/// Probes of the recent window that could not be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnsentReading {
    /// Their number, at most 510.
    pub probes: u32,
    /// The reason of most of them. `None` if there are none.
    pub reason: Option<SendError>,
}

impl UnsentNumbers {
    /// Counts a probe that was not sent in this half.
    pub(super) fn record(&self, reason: SendError, half: u32) {
        let held = self.last.load(Ordering::Relaxed);
        if held != half {
            self.count(half).store(0, Ordering::Relaxed);
            if half.wrapping_sub(held) > 1 {
                self.count(half.wrapping_add(1)).store(0, Ordering::Relaxed);
            }
            // What was the reason for long does not hide another one.
            self.lead.store(0, Ordering::Relaxed);
            self.last.store(half, Ordering::Release);
        }
        let count = self.count(half);
        count.store(count.load(Ordering::Relaxed).saturating_add(1), Ordering::Release);
        let (code, lead) = (reason as u8, self.lead.load(Ordering::Relaxed));
        if lead == 0 {
            self.reason.store(code, Ordering::Relaxed);
        }
        let leads = lead == 0 || self.reason.load(Ordering::Relaxed) == code;
        self.lead.store(if leads { lead.saturating_add(1) } else { lead - 1 }, Ordering::Relaxed);
    }

    /// Reads this half and the one before.
    pub(super) fn read(&self, half: u32) -> UnsentReading {
        let held = self.last.load(Ordering::Acquire);
        let count = |half: u32| u32::from(self.count(half).load(Ordering::Acquire));
        let probes = match half.wrapping_sub(held) {
            0 => count(held) + count(held.wrapping_sub(1)),
            1 => count(held),
            _ => 0,
        };
        let reason = SendError::ALL.get(usize::from(self.reason.load(Ordering::Relaxed)));
        UnsentReading { probes, reason: reason.copied().filter(|_| probes > 0) }
    }

    const fn count(&self, half: u32) -> &AtomicU8 {
        &self.counts[(half % 2) as usize]
    }
}

#[cfg(test)]
mod tests {
    use kube_canary_kernel::region::Atomic as _;

    use super::*;

    fn reading(probes: u32, reason: SendError) -> UnsentReading {
        UnsentReading { probes, reason: Some(reason) }
    }

    #[test]
    fn probes_count_in_two_halves_and_then_no_more() {
        let unsent = UnsentNumbers::default();
        assert_eq!(unsent.read(0), UnsentReading::default());
        (0..300).for_each(|_| unsent.record(SendError::NoRoute, 7));
        assert_eq!(unsent.read(7), reading(255, SendError::NoRoute));
        assert_eq!(unsent.read(8), reading(255, SendError::NoRoute));
        assert_eq!(unsent.read(9), UnsentReading::default());
        assert_eq!(unsent.read(7 + (1 << 16)), UnsentReading::default(), "22 days later");
        unsent.record(SendError::NoRoute, 8);
        assert_eq!((unsent.read(8).probes, unsent.read(9).probes), (256, 1));
        unsent.record(SendError::NoRoute, 10);
        assert_eq!(unsent.read(10).probes, 1, "the half before has none");
        let other = UnsentNumbers::default();
        other.copy_from(&unsent);
        assert_eq!(other.read(10), unsent.read(10));
        other.copy_from(&UnsentNumbers::default());
        assert_eq!(other.read(10), UnsentReading::default());
    }

    #[test]
    fn the_reason_is_that_of_most_probes_and_a_new_one_shows_in_the_next_half() {
        let unsent = UnsentNumbers::default();
        (0..3).for_each(|_| unsent.record(SendError::NoRoute, 1));
        unsent.record(SendError::NoBuffer, 1);
        assert_eq!(unsent.read(1).reason, Some(SendError::NoRoute));
        (0..200).for_each(|_| unsent.record(SendError::NoRoute, 1));
        unsent.record(SendError::Prohibited, 2);
        assert_eq!(unsent.read(2).reason, Some(SendError::Prohibited));
    }
}
