//! Whether replies wait for the next turn, and from when on they are read late.
//!
//! The kernel stamps a reply as it arrives, so reading it later changes no round-trip time. To be woken for it costs more
//! than to read it. The trap: a wait that is meant must not look like an agent that gets no CPU.

use crate::units::Nanos;

/// What the prober intends with replies.
#[derive(Debug)]
pub struct Reading {
    /// How long replies may wait.
    longest_wait: Nanos,
    /// Replies wake nobody.
    waits: bool,
    /// The last turn has read everything that had arrived.
    drained: bool,
    /// When the turn is due that replies wait for; zero where they do not wait.
    due: Nanos,
}

impl Reading {
    /// Before the first turn.
    pub const fn new(longest_wait: Nanos) -> Self {
        Self { longest_wait, waits: false, drained: true, due: Nanos(0) }
    }

    /// Turns that send are so far apart on average; none are to come without one. Returns whether replies wait for them.
    pub fn pace(&mut self, gap: Option<Nanos>) -> bool {
        self.waits = gap.is_some_and(|gap| gap <= self.longest_wait);
        self.waits
    }

    /// A turn has ended, and has read everything or not.
    pub const fn turned(&mut self, drained: bool) {
        self.drained = drained;
    }

    /// The next turn is due then; none is without a moment.
    pub fn next_turn(&mut self, due: Option<Nanos>) {
        // What the last turn has left unread has had its turn: it stays late.
        if self.drained {
            self.due = due.filter(|_| self.waits).unwrap_or(Nanos(0));
        }
    }

    /// Until when a reply that is read now was meant to wait; zero where it was not.
    pub const fn due(&self) -> Nanos {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_wait_for_turns_that_are_close_and_for_no_others() {
        let mut reading = Reading::new(Nanos(250));
        for (gap, waits) in [(Some(250), true), (Some(251), false), (Some(100), true), (None, false)] {
            assert_eq!(reading.pace(gap.map(Nanos)), waits);
            reading.next_turn(Some(Nanos(1_000)));
            assert_eq!(reading.due(), Nanos(if waits { 1_000 } else { 0 }), "{gap:?}");
        }
    }

    #[test]
    fn what_is_left_unread_is_not_meant_to_wait_for_another_turn() {
        let mut reading = Reading::new(Nanos(250));
        reading.pace(Some(Nanos(250)));
        for (drained, next, due) in
            [(true, 1_000, 1_000), (false, 1_250, 1_000), (false, 1_500, 1_000), (true, 1_750, 1_750)]
        {
            reading.turned(drained);
            reading.next_turn(Some(Nanos(next)));
            assert_eq!(reading.due(), Nanos(due));
        }
        reading.next_turn(None);
        assert_eq!(reading.due(), Nanos(0));
    }
}
