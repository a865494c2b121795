//! What the prober tells: the output of this stage, and the input of the next.

use crate::units::Nanos;

/// What happened to a probe. `sent = received + lost + under way + owed`, at any moment, for every slot: a probe that flies
/// while its peer moves or leaves and is not answered is withdrawn ([`Event::Terminating`]), and is owed until the next
/// probe to that peer stands in for it in `sent`. A peer that never comes back leaves a few owed: those under way when it
/// left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It went out.
    Sent,
    /// Answered within the timeout.
    Received {
        /// The round-trip time.
        rtt: Nanos,
        /// A later probe of this peer was answered before (RFC 4737).
        reordered: bool,
        /// The ICMP sequence number.
        sequence: u16,
        /// Who took the times.
        stamp: Stamp,
    },
    /// Not answered within the timeout.
    Lost,
    /// Answered after it was counted lost.
    Late,
    /// Answered once more.
    Duplicate,
    /// A reply came back damaged; the probe is still under way.
    Corrupt,
    /// The kernel did not send it; not a loss.
    NotSent(SendError),
    /// To a peer on its way out, or that moved or left meanwhile: answered or not, neither sent nor lost.
    Terminating {
        /// Whether it was answered in time.
        answered: bool,
    },
}

/// What an intact reply of ours brings, in order; nothing where it answers a probe that counts no more.
pub type Events = [Option<Event>; 2];

/// Why the kernel would not send: the closed set of `reason` labels. Never loss: nothing was on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SendError {
    /// ENETUNREACH, EHOSTUNREACH, ENETDOWN, EHOSTDOWN.
    NoRoute,
    /// EPERM, EACCES: a local firewall or policy.
    NotPermitted,
    /// ENOBUFS, ENOMEM, EAGAIN: the local queue is full.
    NoBuffer,
    /// EMSGSIZE: larger than the path's MTU as far as the kernel knows it.
    MessageTooLong,
    /// EINVAL, EADDRNOTAVAIL, EAFNOSUPPORT: no such address from here.
    Address,
    /// This host has no ICMP socket of that family.
    NoSocket,
    /// Our own table of probes under way is full.
    TableFull,
    /// Any other errno.
    Other,
}

impl SendError {
    /// Every reason, in label order.
    pub const ALL: [Self; 8] = [
        Self::NoRoute,
        Self::NotPermitted,
        Self::NoBuffer,
        Self::MessageTooLong,
        Self::Address,
        Self::NoSocket,
        Self::TableFull,
        Self::Other,
    ];

    /// The label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoRoute => "no_route",
            Self::NotPermitted => "not_permitted",
            Self::NoBuffer => "no_buffer",
            Self::MessageTooLong => "message_too_long",
            Self::Address => "address",
            Self::NoSocket => "no_socket",
            Self::TableFull => "table_full",
            Self::Other => "other",
        }
    }
}

/// Who took the times that a round-trip time is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stamp {
    /// The kernel, at both ends: as the packet left for the device, and as the reply came from it.
    Kernel,
    /// We, at one end at least: our own waiting for a processor may be in it.
    User,
}

impl Stamp {
    /// Both, in label order.
    pub const ALL: [Self; 2] = [Self::Kernel, Self::User];

    /// The label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}
