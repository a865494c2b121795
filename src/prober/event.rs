//! What the prober observes: the output of this stage, and the input of the next.

use crate::peers::SlotId;
pub use crate::send_error::SendError;
use crate::units::Nanos;

/// Something that a turn of a prober has found, in the order in which it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Something happened to a probe of this slot.
    Probe {
        /// Slot of the peer.
        slot: SlotId,
        /// What happened to the probe.
        event: Event,
        /// Low 16 bits of the probe's sequence number, if an intact reply to it is the cause.
        reply: Option<u16>,
    },
    /// The outcome of a probe over a flow is known. It may come before the loss is counted, which
    /// may be in doubt.
    Flow {
        /// Slot of the peer.
        slot: SlotId,
        /// Index of the flow.
        flow: u8,
        /// Whether the probe was answered in time.
        answered: bool,
        /// The probe is not one of those that use the flows in turn, and has no event.
        extra: bool,
    },
    /// The count of the peer's reflector has shown the directions of losses that were counted
    /// before.
    Directions {
        /// Slot of the peer.
        slot: SlotId,
        /// Number of lost requests.
        there: u32,
        /// Number of lost answers.
        back: u32,
    },
    /// The direction in which a flow has lost is known.
    FlowDirection {
        /// Slot of the peer.
        slot: SlotId,
        /// Index of the flow.
        flow: u8,
        /// Whether a request was lost, and not an answer.
        there: bool,
    },
    /// An answer has passed this many hops: 1 without a router between.
    Hops {
        /// Slot of the peer.
        slot: SlotId,
        /// Number of hops, at least 1.
        hops: u8,
    },
    /// A request and its answer took these times one way.
    OneWay {
        /// Slot of the peer.
        slot: SlotId,
        /// Time of arrival less that of departure, of the request and of its answer, in
        /// nanoseconds. Each is between the clocks of two nodes, so without `apart` only their
        /// variation means something.
        delays: [i64; 2],
        /// How far the two clocks are apart at most; `None` if it is not known.
        apart: Option<Nanos>,
    },
    /// The SYN of a handshake was sent again.
    SynRetransmissions {
        /// Slot of the peer.
        slot: SlotId,
        /// Number of further times.
        count: u32,
    },
    /// A handshake that counts as lost was refused by the peer of this slot.
    Refused(SlotId),
    /// A probe was sent this much later than scheduled.
    SendLag(Nanos),
    /// Time between the kernel's timestamp of a reply and our read.
    ReadDelay(Nanos),
    /// This many probes were left out, because the agent was stopped for longer than an interval.
    Skipped(u64),
    /// A reply arrived that answers no probe of this process.
    Unrelated,
}

impl Observation {
    /// Returns the observation of an event that no reply has caused.
    pub const fn probe(slot: SlotId, event: Event) -> Self {
        Self::Probe { slot, event, reply: None }
    }

    /// Returns the observations of the events that an intact reply to the probe with this sequence
    /// number has caused.
    pub fn from_reply(slot: SlotId, sequence: u16, events: Events) -> impl Iterator<Item = Self> {
        let event = move |event| Self::Probe { slot, event, reply: Some(sequence) };
        events.into_iter().flatten().map(event)
    }
}

/// What happened to a probe. For every slot, `sent = received + lost + in flight + withdrawn` at
/// any moment. A probe that is in flight while its peer moves or leaves, and is not answered, is
/// withdrawn ([`Event::Terminating`]). The next probe to that peer takes its place in `sent`. If a
/// peer never returns, a few probes remain withdrawn: those in flight when it left. A probe whose
/// silence is excused is in `sent` only from its answer on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The probe was sent.
    Sent,
    /// The probe was answered within the timeout.
    Received {
        /// Round-trip time.
        rtt: Nanos,
        /// Whether a later probe of this peer was answered before (RFC 4737).
        reordered: bool,
        /// Low 16 bits of the probe's sequence number.
        sequence: u16,
        /// Source of the timestamps.
        stamp: Stamp,
    },
    /// The probe was not answered within the timeout.
    Lost,
    /// The probe was answered after it was counted as lost.
    Late,
    /// The probe was answered again.
    Duplicate,
    /// A reply was damaged; the probe is still in flight.
    Corrupt,
    /// The kernel did not send the probe, which is not a loss.
    NotSent(SendError),
    /// An extra probe of a flow was answered, in time or not. It counts neither as sent nor as
    /// received nor as lost, and it is not reported.
    Extra {
        /// Whether it was answered in time.
        answered: bool,
    },
    /// The peer was terminating, or moved or left while the probe was in flight, or it had not
    /// answered at its address yet. The probe counts neither as sent nor as lost.
    Terminating {
        /// Whether the probe was answered in time.
        answered: bool,
    },
}

/// The events of an intact reply, in order. Empty if it answers a probe that no longer counts.
pub type Events = [Option<Event>; 2];

/// Source of the timestamps that a round-trip time is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stamp {
    /// The kernel, for both packets: the request as it left for the device, and the reply as
    /// it came from it.
    Kernel,
    /// The agent, for at least one of them: its own waiting for a CPU may be included.
    User,
}

impl Stamp {
    /// Both sources, in label order.
    pub const ALL: [Self; 2] = [Self::Kernel, Self::User];

    /// Returns the value of the label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}
