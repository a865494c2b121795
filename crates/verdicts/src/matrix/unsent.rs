//! Links whose probes could not be sent, as their sources report it. They were not measured, so
//! most of them have no cell.

use kube_canary_kernel::region::List;
use kube_canary_model::report::{RecentPeer, SendError};

use super::cell::Layer;

/// Failed probes of the last minute from which on a link is not measured as it should be. A full
/// queue that refuses a single probe is no fault.
const FAILED_MIN: u32 = 2;
/// The same as a share of the probes that were tried: one of this many.
const FAILED_ONE_OF: u64 = 20;

/// Probes of one family from a source to a peer that could not be sent for one reason: 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsentLink {
    /// Number of the node that could not send.
    pub source: u16,
    /// Number of the node that it could not send to.
    pub peer: u16,
    /// The reason for which most of the probes could not be sent.
    pub reason: SendError,
    /// The layers of the probes, as a set of [`Layer::bit`].
    pub layers: u8,
    /// Whether they were to be sent over IPv6.
    pub over_ipv6: bool,
    /// The share of the probes that could not be sent, of the layer of which most could not: 1 to
    /// 100 %.
    pub percent: u8,
}

const _: () = assert!(size_of::<UnsentLink>() == 8);

/// All these links, those of one source beside each other.
#[derive(Debug)]
pub(super) struct UnsentLinks(pub List<UnsentLink>);

impl UnsentLinks {
    /// Makes an empty table that takes at most this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(List::new(bytes / size_of::<UnsentLink>()))
    }

    /// Adds what a source reports of a link, if too many of its probes could not be sent. Returns
    /// false if there is no room for it.
    pub fn add(
        &mut self,
        (source, peer): (u16, u16),
        (layer, over_ipv6): (Layer, bool),
        recent: &RecentPeer,
        room: usize,
    ) -> bool {
        let Some(percent) = unsent_percent(recent) else { return true };
        let reason = recent.send_error_reason.unwrap_or(SendError::Other);
        let found = UnsentLink { source, peer, reason, layers: layer.bit(), over_ipv6, percent };
        let of_peer = self.0.iter_mut().rev().take_while(|link| (link.source, link.peer) == (source, peer));
        for link in of_peer {
            if (link.reason, link.over_ipv6) == (reason, over_ipv6) {
                (link.layers, link.percent) = (link.layers | layer.bit(), link.percent.max(percent));
                return true;
            }
        }
        room >= size_of::<UnsentLink>() && self.0.push(found)
    }

    /// Returns the bytes in use.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

/// Returns the share of the probes that could not be sent, if these are too many: all of them, or
/// more than chance explains. 1 to 100 %.
fn unsent_percent(recent: &RecentPeer) -> Option<u8> {
    let (errors, tried) = (u64::from(recent.send_errors), u64::from(recent.sent) + u64::from(recent.send_errors));
    let are_many = recent.send_errors >= FAILED_MIN && errors * FAILED_ONE_OF >= tried;
    let percent = (errors * 100).checked_div(tried).and_then(|percent| u8::try_from(percent).ok());
    percent.filter(|_| errors > 0 && (recent.sent == 0 || are_many))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(sent: u32, send_errors: u32, reason: SendError) -> RecentPeer {
        RecentPeer { sent, send_errors, send_error_reason: Some(reason), ..RecentPeer::default() }
    }

    #[test]
    fn a_link_counts_if_nothing_or_too_little_could_be_sent() {
        for (sent, errors, expected) in [
            (60, 0, None),
            (0, 0, None),
            (0, 1, Some(100)),
            (60, 1, None),
            (38, 2, Some(5)),
            (39, 2, None),
            (0, u32::MAX, Some(100)),
            (u32::MAX, u32::MAX, Some(50)),
        ] {
            assert_eq!(unsent_percent(&recent(sent, errors, SendError::NoRoute)), expected, "{errors} of {sent}");
        }
    }

    #[test]
    fn the_layers_of_a_link_are_one_entry_per_family_and_reason() {
        let mut unsent = UnsentLinks::new(1_000);
        let mut add = |peer, layer, over_ipv6, reason, room| {
            let sent = if layer == Layer::Udp { 0 } else { 60 };
            unsent.add((1, peer), (layer, over_ipv6), &recent(sent, 60, reason), room)
        };
        for layer in [Layer::Icmp, Layer::Udp, Layer::Tcp] {
            assert!(add(2, layer, true, SendError::NoRoute, 8) && add(2, layer, false, SendError::Prohibited, 8));
        }
        assert!(add(3, Layer::Icmp, true, SendError::NoRoute, 8) && !add(4, Layer::Icmp, true, SendError::NoRoute, 7));
        let found: Vec<_> =
            unsent.0.iter().map(|link| (link.peer, link.layers, link.over_ipv6, link.percent)).collect();
        assert_eq!(found, [(2, 0b1101, true, 100), (2, 0b1101, false, 100), (3, 1, true, 50)]);
    }
}
