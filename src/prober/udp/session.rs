//! The state of a slot's session, and the tag of a probe: its sequence number and flow.

use super::ways::Ways;
use crate::prober::Flow;
use crate::prober::Label;
use crate::prober::flights::Tag;
use crate::prober::udp::stamp::Named;

/// The session of a slot with the reflector of its peer: 96 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerSession {
    /// Sequence number of the next probe. Its low 16 bits are those of the engine's label.
    next: u32,
    /// Hash of the name of the node in the list; 0 if its name is not known.
    node: u64,
    /// The directions of losses.
    pub ways: Ways,
    /// Another node has answered last.
    pub other_node_answers: bool,
    /// The reflector does not know the question which node answers.
    is_nameless: bool,
}

/// One of this many probes asks which node answers, if the last reflector that was asked did not
/// know the question: of an earlier version, it counts only requests that do not ask.
const ASK_AGAIN: u32 = 64;

impl PeerSession {
    /// Returns the sequence number of a probe that was just recorded, and its tag.
    pub fn begin(&mut self, label: Label, flow: Flow) -> (u32, Tag) {
        let sequence = self.next;
        debug_assert_eq!(sequence & 0xffff, u32::from(label.sequence), "both count the probes of a slot");
        self.next = sequence.wrapping_add(1);
        (sequence, Tag(u32::from(flow.0) << 16 | u32::from(label.sequence)))
    }

    /// Sets the hash of the name of the node in the list.
    pub const fn expect(&mut self, node: u64) {
        self.node = node;
    }

    /// Begins at another address, whose holder has not answered.
    pub fn moved(&mut self) {
        self.ways.forget();
        (self.other_node_answers, self.is_nameless) = (false, false);
    }

    /// Whether the probe of this sequence number asks which node answers.
    pub const fn asks(&self, sequence: u32) -> bool {
        self.node != 0 && (!self.is_nameless || sequence.is_multiple_of(ASK_AGAIN))
    }

    /// Notes which node has answered. Returns whether that is another node than the one in the
    /// list.
    pub fn answers_as(&mut self, named: Named) -> bool {
        match named {
            Named::Unasked => {}
            Named::Unknown => (self.other_node_answers, self.is_nameless) = (false, true),
            Named::Node(node) => (self.other_node_answers, self.is_nameless) = (node != self.node, false),
        }
        self.other_node_answers
    }

    /// Gives the sequence number of the newest probe, which was not sent, to the next one.
    pub const fn take_back(&mut self) {
        self.next = self.next.wrapping_sub(1);
    }

    /// Returns the sequence number with these low 16 bits. It is among the last 65,536.
    pub fn sequence(&self, low: u16) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
        let behind = (self.next as u16).wrapping_sub(1).wrapping_sub(low);
        self.next.wrapping_sub(1).wrapping_sub(behind.into())
    }

    /// Notes a probe that was not answered in time, and may be an extra one. Returns its flow.
    pub fn lost(&mut self, tag: Tag, extra: bool) -> Flow {
        let (flow, low) = read(tag);
        self.ways.lost(self.sequence(low), flow.0, extra);
        flow
    }
}

/// Returns the flow and the low bits of the sequence number of a tag.
#[expect(clippy::cast_possible_truncation, reason = "its two parts")]
pub const fn read(tag: Tag) -> (Flow, u16) {
    (Flow((tag.0 >> 16) as u8), tag.0 as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::SlotId;

    #[test]
    fn a_sequence_number_is_found_by_its_low_bits_beyond_their_range() {
        let mut session = PeerSession::default();
        for number in 0..200_000_u64 {
            let label = Label { number, slot: SlotId(0), sequence: (number & 0xffff) as u16 };
            let (sequence, tag) = session.begin(label, Flow(9));
            assert_eq!((u64::from(sequence), read(tag)), (number, (Flow(9), label.sequence)));
            assert_eq!(session.sequence(label.sequence), sequence);
            if number >= 65_535 {
                assert_eq!(session.sequence(label.sequence.wrapping_add(1)), sequence - 65_535);
            }
        }
        assert!(size_of::<PeerSession>() <= 104);
    }
}
