//! Distinguishes lost requests from lost answers, by the reflector's own count.
//!
//! Each answer carries how many requests the reflector had counted before. Between two answers in
//! order, this many requests were sent and this many were counted: the other requests were lost. Of
//! a count without an answer, the answer was lost.
//!
//! Extra probes of a flow are in both counts, and so are their losses. But their losses are not
//! counted elsewhere, so they are left out of what is said of a link. Their flows get a direction.
//!
//! Only losses that the prober has counted get a direction. So the losses between two answers are
//! judged once all probes between them are decided. Three answers separate what is known of the
//! probes of a link: `base`, up to which all is judged, `next`, up to which all is judged next, and
//! `last`, the newest.
//!
//! # Traps
//! - Answers may be late, doubled, or in another order than requests. Requests may be, too. What is
//!   not certain gets no direction: a restarted reflector, one that counts more than was sent, or
//!   one that counts backwards makes the state of a link begin again.
//! - A peer may write any count. It can then mislead about the directions of its own losses, and
//!   about nothing else.
//! - A request that the network doubles, and of which one answer is lost, looks like a lost answer
//!   to another request. No count can show that.

/// Directions of losses that were counted before, without those of extra probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossDirections {
    /// Lost requests: on the way to the peer.
    pub there: u32,
    /// Lost answers: on the way from the peer.
    pub back: u32,
    /// The flows that lost, one bit each, if all losses have one direction, with those of extra
    /// probes. Otherwise 0.
    pub flows: u16,
    /// Whether this direction is that of lost requests.
    pub out: bool,
}

/// An answer, as far as it is remembered: 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Sequence number of its probe.
    sent: u32,
    /// Number of requests that the reflector had counted before.
    counted: u32,
}

impl Mark {
    /// Returns how far `sequence` is after the probe of this mark; negative if before.
    const fn ahead(self, sequence: u32) -> i32 {
        sequence.wrapping_sub(self.sent).cast_signed()
    }

    /// Returns how many more were counted at `count`.
    const fn more(self, count: u32) -> i32 {
        count.wrapping_sub(self.counted).cast_signed()
    }
}

/// What has happened to the probes between two marks: 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MarkSpan {
    /// Number of losses that the prober has counted.
    lost: u16,
    /// Number of extra probes that were lost.
    extra: u16,
    /// Counts of the reflector of which an answer has arrived in time.
    heard: u16,
    /// The flows that lost, one bit each.
    flows: u16,
}

impl MarkSpan {
    fn add(&mut self, other: Self) {
        self.lost = self.lost.saturating_add(other.lost);
        self.extra = self.extra.saturating_add(other.extra);
        self.heard = self.heard.saturating_add(other.heard);
        self.flows |= other.flows;
    }
}

/// What is known of the directions of a link: 80 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ways {
    base: Mark,
    next: Mark,
    last: Mark,
    /// From `base` to `next`, from there to `last`, and after `last`.
    spans: [MarkSpan; 3],
    /// The highest count of an answer.
    highest: u32,
    /// Which of the 64 counts up to the highest were in answers: the lowest bit is the highest
    /// count. Zero before the first answer.
    seen: u64,
    /// Number of the probe of `next`, among all probes of the process.
    next_number: u64,
    /// Number of the probe of `last`.
    last_number: u64,
}

impl Ways {
    /// Forgets everything: the peer has moved, or the slot has another peer.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    const fn is_known(&self) -> bool {
        self.seen != 0
    }

    /// Begins with this answer.
    fn begin(&mut self, number: u64, mark: Mark) {
        *self = Self {
            base: mark,
            next: mark,
            last: mark,
            highest: mark.counted,
            seen: 1,
            next_number: number,
            last_number: number,
            ..Self::default()
        };
    }

    /// Notes an answer in time to the probe with this number and sequence number, and the
    /// reflector's count in it. Returns the directions of losses that can be judged now, if any.
    /// `oldest` is the number of the oldest probe of the process that is not decided.
    ///
    /// They are losses before an earlier answer. So those that were in doubt until that answer are
    /// counted.
    pub fn answered(&mut self, number: u64, sequence: u32, count: u32, oldest: Option<u64>) -> Option<LossDirections> {
        let mark = Mark { sent: sequence, counted: count };
        if !self.is_known() {
            self.begin(number, mark);
            return None;
        }
        let ahead = self.last.ahead(sequence);
        if ahead <= 0 {
            // It may be the last answer that was missing.
            self.hear(count, true);
            return self.judge(oldest);
        }
        let directions = self.judge(oldest);
        self.proceed(number, mark, ahead);
        directions
    }

    /// Notes an answer that is newer than all before.
    fn proceed(&mut self, number: u64, mark: Mark, ahead: i32) {
        let Mark { counted: count, .. } = mark;
        let counted = i64::from(self.last.more(count));
        let most = i64::from(ahead) + i64::from(self.spans[2].heard);
        let is_new = self.see(count, false);
        // Requests overtook each other or were doubled, the reflector has restarted, or it lies.
        if counted <= 0 || counted > most || !is_new || self.highest != count {
            return self.begin(number, mark);
        }
        let mut newest = std::mem::take(&mut self.spans[2]);
        // The last answer so far is between two others now.
        newest.heard = newest.heard.saturating_add(u16::from(self.last != self.next));
        self.spans[1].add(newest);
        (self.last, self.last_number) = (mark, number);
        if self.next == self.base {
            self.advance();
        }
    }

    /// Makes the newest answer the one up to which is judged next.
    fn advance(&mut self) {
        (self.next, self.next_number) = (self.last, self.last_number);
        self.spans[0] = std::mem::take(&mut self.spans[1]);
    }

    /// Notes an answer that is not the newest. `first`: whether it is the first to its probe.
    pub fn hear(&mut self, count: u32, first: bool) {
        if self.is_known()
            && self.see(count, first)
            && let Some(span) = self.span(|mark| mark.more(count) > 0)
        {
            span.heard = span.heard.saturating_add(1);
        }
    }

    /// Notes that a count was in an answer. Returns whether it was not noted before. Counts far
    /// behind are not remembered: `old` says whether they are new.
    const fn see(&mut self, count: u32, old: bool) -> bool {
        let ahead = count.wrapping_sub(self.highest).cast_signed();
        if ahead > 0 {
            self.seen = if ahead < 64 { self.seen << ahead } else { 0 } | 1;
            self.highest = count;
            return true;
        }
        let behind = ahead.unsigned_abs();
        if behind >= 64 {
            return old;
        }
        let is_new = self.seen >> behind & 1 == 0;
        self.seen |= 1 << behind;
        is_new
    }

    /// Returns the span behind the newest mark for which this holds; none if it holds for no mark.
    fn span(&mut self, is_before: impl FnMut(Mark) -> bool) -> Option<&mut MarkSpan> {
        let begin = [self.base, self.next, self.last].into_iter().rposition(is_before)?;
        Some(&mut self.spans[begin])
    }

    /// Notes that the probe with this sequence number was not answered in time. It may be an extra
    /// one.
    pub fn lost(&mut self, sequence: u32, flow: u8, extra: bool) {
        if self.is_known()
            && let Some(span) = self.span(|mark| mark.ahead(sequence) > 0)
        {
            let lost = if extra { &mut span.extra } else { &mut span.lost };
            *lost = lost.saturating_add(1);
            span.flows |= 1_u16.checked_shl(flow.into()).unwrap_or_default();
        }
    }

    /// Returns the directions of the losses that can be judged, if any.
    fn judge(&mut self, oldest: Option<u64>) -> Option<LossDirections> {
        if self.next == self.base || oldest.is_some_and(|oldest| oldest <= self.next_number) {
            return None;
        }
        let directions = self.directions();
        (self.base, self.spans[0]) = (self.next, MarkSpan::default());
        if self.last != self.next {
            self.advance();
        }
        directions
    }

    /// Returns the directions of the losses between `base` and `next`.
    fn directions(&self) -> Option<LossDirections> {
        let MarkSpan { lost, extra, heard, flows } = self.spans[0];
        let (lost, all) = (u32::from(lost), u32::from(lost) + u32::from(extra));
        if all == 0 {
            return None;
        }
        let sent = self.next.sent.wrapping_sub(self.base.sent).wrapping_sub(1);
        let counted = self.next.counted.wrapping_sub(self.base.counted).wrapping_sub(1);
        // The most that can have been lost on each way. If nothing else has happened, both together
        // are all losses.
        let (back_most, there_most) = (counted.saturating_sub(heard.into()), sent.saturating_sub(counted));
        let least = |of: u32| (of.saturating_sub(back_most), of.saturating_sub(there_most));
        let (all_there, all_back) = least(all);
        if all_there + all_back > all || all_there + all_back == 0 {
            return None;
        }
        // If extra probes were lost and both ways lose, the losses that are certain are fewer: it
        // is not known which of the lost probes were the extra ones.
        let (there, back) = least(lost);
        let one_way = all_there == all || all_back == all;
        Some(LossDirections { there, back, flows: if one_way { flows } else { 0 }, out: all_there > 0 })
    }
}

#[cfg(test)]
mod tests;
