//! The events that the prober reports: the output of this stage, and the input of the next.

pub use crate::send_error::SendError;
use crate::units::Nanos;

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
        /// ICMP sequence number of the probe.
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
    /// received nor as lost, and no sink gets this event.
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
