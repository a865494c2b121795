//! Decides whether replies wait for the next turn, and from when on they are read late.
//!
//! The kernel stamps a reply as it arrives, so a later read changes no round-trip time. Waking up
//! for a reply costs more than reading it. The trap: an intended wait must not look like an agent
//! without CPU time.

use crate::units::Nanos;

/// State of the reading of replies.
#[derive(Debug)]
pub struct ReplyReading {
    /// Longest time that replies may wait.
    longest_wait: Nanos,
    /// Whether replies do not wake the thread.
    pub waits: bool,
    /// Whether the last turn read everything that had arrived.
    pub drained: bool,
    /// When the turn is due for which replies wait: a reply that is read until then is not late.
    /// Zero if they do not wait.
    pub due: Nanos,
}

impl ReplyReading {
    /// Makes the state before the first turn.
    pub const fn new(longest_wait: Nanos) -> Self {
        Self { longest_wait, waits: false, drained: true, due: Nanos(0) }
    }

    /// Sets the average time between sending turns; `None` if no such turn is planned. Returns
    /// whether replies wait for them.
    pub fn pace(&mut self, gap: Option<Nanos>) -> bool {
        self.waits = gap.is_some_and(|gap| gap <= self.longest_wait);
        self.waits
    }

    /// Notes when the next turn is due; `None` if no turn is planned.
    pub fn next_turn(&mut self, due: Option<Nanos>) {
        // Packets that the last turn left unread had their chance and stay late.
        if self.drained {
            self.due = due.filter(|_| self.waits).unwrap_or(Nanos(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_wait_for_turns_that_are_close_and_for_no_others() {
        let mut reading = ReplyReading::new(Nanos(250));
        for (gap, waits) in [(Some(250), true), (Some(251), false), (Some(100), true), (None, false)] {
            assert_eq!(reading.pace(gap.map(Nanos)), waits);
            reading.next_turn(Some(Nanos(1_000)));
            assert_eq!(reading.due, Nanos(if waits { 1_000 } else { 0 }), "{gap:?}");
        }
    }

    #[test]
    fn packets_left_unread_do_not_wait_for_another_turn() {
        let mut reading = ReplyReading::new(Nanos(250));
        reading.pace(Some(Nanos(250)));
        for (drained, next, due) in
            [(true, 1_000, 1_000), (false, 1_250, 1_000), (false, 1_500, 1_000), (true, 1_750, 1_750)]
        {
            reading.drained = drained;
            reading.next_turn(Some(Nanos(next)));
            assert_eq!(reading.due, Nanos(due));
        }
        reading.next_turn(None);
        assert_eq!(reading.due, Nanos(0));
    }
}
