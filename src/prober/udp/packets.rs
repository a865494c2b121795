//! UDP datagrams as `kube_canary_kernel::batch` sends and reads them.

use std::net::SocketAddr;

use kube_canary_kernel::batch::{Packet, Received};
use kube_canary_kernel::control::{
    ERROR_BYTES, FLAGS_BYTES, Facts, LOCAL_BYTES, Origin, QueuedError, STAMP_BYTES, TTL_BYTES, Writer, scope, words,
};

use super::wire::Answer;
use crate::prober::{Delivery, Flow, Moment, Refusal, Unreachable};

/// Words for what the kernel says of a datagram that has arrived.
pub const ARRIVAL_WORDS: usize = words([STAMP_BYTES, TTL_BYTES, LOCAL_BYTES]);
/// Words for what the kernel says of an entry on the error queue. It has the time to live of an
/// ICMP error, too.
pub const ERROR_WORDS: usize = words([STAMP_BYTES, TTL_BYTES, ERROR_BYTES]);

impl Packet for Answer<'_> {
    type Control = [u64; words([LOCAL_BYTES, FLAGS_BYTES])];

    fn to(&self) -> SocketAddr {
        self.to
    }

    fn bytes(&self) -> &[u8] {
        self.bytes
    }

    fn control(&self, room: &mut Self::Control) -> usize {
        let mut writer = Writer::new(room);
        if let Some(from) = self.from.filter(|from| from.is_ipv6() == self.to.is_ipv6()) {
            writer.source(from, scope(self.to));
        }
        if self.stamped {
            writer.stamped();
        }
        writer.bytes()
    }
}

/// Returns what an entry of the error queue means; `None` if it means nothing for a probe.
pub fn entry<'a>(packet: &Received<'a>, flow: Flow, moment: Moment) -> Option<Delivery<'a>> {
    let error = Facts::read(packet.control).error?;
    let offender = match error.origin {
        Origin::Departure => return Some(Delivery::Departure(flow, packet.bytes, moment)),
        Origin::Icmp => error.offender,
        Origin::Local => None,
        Origin::Other => return None,
    };
    let (to, refusal) = (packet.from?, refusal(&error)?);
    Some(Delivery::Refused { flow, to, offender, refusal, bytes: packet.bytes, moment })
}

/// The types and codes of RFC 792 and RFC 4443.
fn refusal(error: &QueuedError) -> Option<Refusal> {
    let of_route = Refusal::TooBig { mtu: error.info };
    match (error.origin, error.over_ipv6, error.icmp_type, error.icmp_code) {
        (Origin::Local, ..) => Some(if error.info > 0 { of_route } else { Refusal::Unreachable(Unreachable::Network) }),
        (_, false, 11, 0) | (_, true, 3, 0) => Some(Refusal::TimeExceeded),
        (_, false, 3, 4) | (_, true, 2, _) => Some(of_route),
        (_, false, 3, code) => Some(Refusal::Unreachable(match code {
            2 | 3 => Unreachable::Port,
            1 | 7 | 8 | 12 => Unreachable::Host,
            9 | 10 | 13..=15 => Unreachable::Prohibited,
            _ => Unreachable::Network,
        })),
        (_, true, 1, code) => Some(Refusal::Unreachable(match code {
            4 => Unreachable::Port,
            3 => Unreachable::Host,
            1 | 5 | 6 => Unreachable::Prohibited,
            _ => Unreachable::Network,
        })),
        // The rest is about fragments and options, which no probe has.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icmp_errors_are_distinguished_in_both_families() {
        let error = |origin, over_ipv6, icmp_type, icmp_code, info| {
            refusal(&QueuedError { origin, over_ipv6, icmp_type, icmp_code, info, offender: None })
        };
        let too_big = Some(Refusal::TooBig { mtu: 1_300 });
        assert_eq!(error(Origin::Icmp, false, 11, 0, 0), Some(Refusal::TimeExceeded));
        assert_eq!(error(Origin::Icmp, true, 3, 0, 0), Some(Refusal::TimeExceeded));
        assert_eq!([error(Origin::Icmp, false, 11, 1, 0), error(Origin::Icmp, true, 3, 1, 0)], [None; 2], "fragments");
        assert_eq!(error(Origin::Icmp, false, 3, 4, 1_300), too_big);
        assert_eq!(error(Origin::Icmp, true, 2, 0, 1_300), too_big);
        assert_eq!(error(Origin::Icmp, false, 3, 3, 0), Some(Refusal::Unreachable(Unreachable::Port)));
        assert_eq!(error(Origin::Icmp, true, 1, 4, 0), Some(Refusal::Unreachable(Unreachable::Port)));
        assert_eq!(error(Origin::Local, false, 0, 0, 1_300), too_big);
        assert_eq!(error(Origin::Icmp, false, 12, 0, 0), None);
    }
}
