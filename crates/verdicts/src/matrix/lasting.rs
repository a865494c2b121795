//! What is kept of a row's last ten minutes: how many of its links lose too much, and the worst of
//! them.
//!
//! It takes 8 bytes per row, so that the cells stay at 8 bytes. The price is that only the worst
//! link of a row is named. If that link is no evidence, the others still count, without a name.

use kube_canary_model::report::{Network, TenMinutes};

/// A link that loses this share over ten minutes is reported, even if the loss has no cause.
const RATE_MIN: f64 = 0.02;
/// A reported link has at least this many losses, and at least this much measured time in
/// seconds. A calm mesh loses 0.1 %. At an interval of 2.4 s, five losses are just 2 %, and
/// chance alone causes them on one link of 150,000. At 1 s it takes twelve losses, which
/// chance causes on one link of 4 * 10^11. With less measured time, five losses would be
/// enough at 1 s, too: 2 % of 250 probes.
const LOST_MIN: u32 = 5;
const SECONDS_MIN: f64 = 300.0;
/// The code of a loss rate of 1.
const WHOLE: f64 = 65_535.0;

/// The links of a row that lose too much over ten minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lasting {
    links: u16,
    /// The worst link, if there is one: its peer, its network, and its loss rate in 65,535ths.
    peer: u16,
    is_on_nodes: bool,
    rate: u16,
}

const _: () = assert!(size_of::<Lasting>() == 8);

impl Lasting {
    /// Adds what the row reports of a link. If it reports more losses than probes, all
    /// probes count as lost.
    pub(super) fn add(&mut self, peer: u16, network: Network, said: TenMinutes) {
        let lost = said.lost.min(said.sent);
        let rate = f64::from(lost) / f64::from(said.sent.max(1));
        if lost < LOST_MIN || rate < RATE_MIN || said.seconds.max(0.0) < SECONDS_MIN {
            return;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is at most 1")]
        let rate = (rate * WHOLE).round() as u16;
        self.links = self.links.saturating_add(1);
        if rate > self.rate {
            (self.peer, self.is_on_nodes, self.rate) = (peer, network == Network::Node, rate);
        }
    }

    /// Returns the number of links that lose too much.
    pub const fn links(self) -> u16 {
        self.links
    }

    /// Returns the peer of the worst link, its network, and its loss rate.
    pub fn worst(self) -> Option<(u16, Network, f64)> {
        let network = if self.is_on_nodes { Network::Node } else { Network::Pod };
        (self.links > 0).then(|| (self.peer, network, f64::from(self.rate) / WHOLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(said: &[(u16, u32, u32, f64)]) -> Lasting {
        let mut lasting = Lasting::default();
        for (peer, sent, lost, seconds) in said {
            lasting.add(*peer, Network::Pod, TenMinutes { seconds: *seconds, sent: *sent, lost: *lost });
        }
        lasting
    }

    #[test]
    fn a_link_counts_from_2_percent_five_losses_and_five_minutes_on() {
        let count = |sent, lost, seconds| after(&[(1, sent, lost, seconds)]).links();
        assert_eq!((count(600, 11, 600.0), count(600, 12, 600.0)), (0, 1));
        assert_eq!((count(60, 4, 600.0), count(60, 5, 600.0)), (0, 1));
        assert_eq!((count(240, 12, 240.0), count(300, 12, 300.0)), (0, 1));
    }

    #[test]
    fn the_worst_link_has_a_name() {
        assert_eq!(after(&[]).worst(), None);
        let lasting = after(&[(1, 600, 20, 600.0), (2, 600, 60, 600.0), (3, 600, 0, 600.0), (4, 600, 30, 600.0)]);
        let (peer, network, rate) = lasting.worst().expect("a link");
        assert_eq!((lasting.links(), peer, network), (3, 2, Network::Pod));
        assert!((rate - 0.1).abs() < 1e-4, "{rate}");
    }

    #[test]
    fn absurd_counts_give_a_rate_of_at_most_1() {
        for (sent, lost) in [(u32::MAX, u32::MAX), (7, u32::MAX), (600, 600)] {
            let (_, _, rate) = after(&[(1, sent, lost, 1e300)]).worst().expect("a link");
            assert!((rate - 1.0).abs() < 1e-9, "{lost} of {sent}: {rate}");
        }
        for (sent, lost, seconds) in [(0, u32::MAX, 600.0), (0, 0, 600.0), (600, 600, -1.0), (600, 600, f64::NAN)] {
            assert_eq!(after(&[(1, sent, lost, seconds)]).links(), 0, "{lost} of {sent} in {seconds} s");
        }
    }
}
