//! Why a probe could not be sent: the name of a reason in series, reports, logs and headlines.

use std::io;

use serde::{Deserialize, Serialize};

/// Why a probe was not sent: the closed set of `reason` labels. It is never a loss, because
/// no packet was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
#[serde(rename_all = "snake_case")]
pub enum SendError {
    /// ENETUNREACH, EHOSTUNREACH, ENETDOWN, EHOSTDOWN: no route, or an `unreachable` one.
    NoRoute,
    /// EPERM: a firewall of this host has dropped it on its way out.
    NotPermitted,
    /// EACCES: a `prohibit` route, or a policy of this host.
    Prohibited,
    /// ENOBUFS, ENOMEM, EAGAIN: the local queue is full.
    NoBuffer,
    /// EMSGSIZE: larger than the path's MTU as far as the kernel knows it.
    MessageTooLong,
    /// EINVAL: a `blackhole` route, or an address that cannot be sent to.
    Invalid,
    /// EADDRNOTAVAIL, EAFNOSUPPORT: this host has no address, or no free port, to send it from.
    Address,
    /// There is no socket of that family. A TCP probe also has none if no descriptor is left.
    NoSocket,
    /// The prober's table of probes in flight is full.
    TableFull,
    /// Any other error number, or a reason that this version does not know.
    #[serde(other)]
    Other,
}

impl SendError {
    /// All reasons, in label order.
    pub const ALL: [Self; 10] = [
        Self::NoRoute,
        Self::NotPermitted,
        Self::Prohibited,
        Self::NoBuffer,
        Self::MessageTooLong,
        Self::Invalid,
        Self::Address,
        Self::NoSocket,
        Self::TableFull,
        Self::Other,
    ];

    /// Returns the value of the `reason` label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoRoute => "no_route",
            Self::NotPermitted => "not_permitted",
            Self::Prohibited => "prohibited",
            Self::NoBuffer => "no_buffer",
            Self::MessageTooLong => "message_too_long",
            Self::Invalid => "invalid",
            Self::Address => "address",
            Self::NoSocket => "no_socket",
            Self::TableFull => "table_full",
            Self::Other => "other",
        }
    }

    /// Returns the reason in a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoRoute => "no route",
            Self::NotPermitted => "not permitted, as by a firewall of its own",
            Self::Prohibited => "prohibited, as by a route",
            Self::NoBuffer => "no buffer space",
            Self::MessageTooLong => "message too long",
            Self::Invalid => "invalid, as behind a blackhole route",
            Self::Address => "no address or port to send from",
            Self::NoSocket => "no socket of that family",
            Self::TableFull => "too many probes in flight",
            Self::Other => "another error",
        }
    }
}

impl From<&io::Error> for SendError {
    /// Returns the reason for which the kernel has not sent a packet.
    fn from(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN) => Self::NoRoute,
            Some(libc::EPERM) => Self::NotPermitted,
            Some(libc::EACCES) => Self::Prohibited,
            Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => Self::NoBuffer,
            Some(libc::EMSGSIZE) => Self::MessageTooLong,
            Some(libc::EINVAL) => Self::Invalid,
            Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT) => Self::Address,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_number_has_its_reason() {
        for (number, reason) in [
            (libc::ENETUNREACH, "no_route"),
            (libc::EHOSTUNREACH, "no_route"),
            (libc::ENETDOWN, "no_route"),
            (libc::EHOSTDOWN, "no_route"),
            (libc::EPERM, "not_permitted"),
            (libc::EACCES, "prohibited"),
            (libc::ENOBUFS, "no_buffer"),
            (libc::ENOMEM, "no_buffer"),
            (libc::EAGAIN, "no_buffer"),
            (libc::EMSGSIZE, "message_too_long"),
            (libc::EINVAL, "invalid"),
            (libc::EADDRNOTAVAIL, "address"),
            (libc::EAFNOSUPPORT, "address"),
            (libc::EIO, "other"),
        ] {
            assert_eq!(SendError::from(&io::Error::from_raw_os_error(number)).label(), reason, "{number}");
        }
    }

    #[test]
    fn reasons_are_written_as_their_labels_and_an_unknown_one_is_other() {
        for (place, reason) in SendError::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{}\"", reason.label()));
        }
        assert_eq!(serde_json::from_str::<SendError>("\"of a later version\"").unwrap(), SendError::Other);
        assert!(serde_json::from_str::<SendError>("7").is_err());
    }
}
