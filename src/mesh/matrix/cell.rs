//! What a matrix keeps of one source's view of one peer: 8 bytes.

use super::pace::Pace;
use crate::report::{Method, Network};

/// The largest number of probes that a cell counts. An agent's recent window holds at most 510.
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
const COUNT_BITS: u32 = 9;
/// Number of codes for round-trip times: 1 µs to 100 s in steps of 1.8 %. Code 0 is "no answer".
const RTT_CODES: f32 = 1_023.0;
const RTT_MASK: u32 = (1 << 10) - 1;
const RTT_SHIFT: u32 = 2 * COUNT_BITS;
const LAYER_BIT: u32 = 28;
const FAMILY_BIT: u32 = 29;
const REFUSED_BIT: u32 = 30;
const RTT_MIN_US: f32 = 1.0;
/// ln(100 s / 1 µs).
const RTT_SPAN: f32 = 18.420_681;
/// Bits of the pace, below the layer's high bit and the start of the loss.
const PACE_BITS: u32 = 2;
const PACE_MASK: i16 = (1 << PACE_BITS) - 1;
const SINCE_SHIFT: u32 = PACE_BITS + 1;
/// The start of a loss has 13 bits: seconds, up to this many before and after the matrix's epoch.
/// That is more than the hour that a report covers. The lowest value is "none".
const SINCE_MAX: i16 = i16::MAX >> SINCE_SHIFT;
const NO_SINCE: i16 = -SINCE_MAX - 1;

/// What is probed of a peer, and how. The nodes' own addresses are probed by ICMP alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layer {
    /// The pods' network by ICMP.
    Icmp = 0,
    /// The nodes' network by ICMP.
    Nodes = 1,
    /// The pods' network by UDP.
    Udp = 2,
    /// The pods' network by TCP.
    Tcp = 3,
}

impl Layer {
    /// Returns the layer of a network and a method. `None` if there is no such layer.
    pub const fn of(network: Network, method: Method) -> Option<Self> {
        match (network, method) {
            (Network::Pod, Method::Icmp) => Some(Self::Icmp),
            (Network::Node, Method::Icmp) => Some(Self::Nodes),
            (Network::Pod, Method::Udp) => Some(Self::Udp),
            (Network::Pod, Method::Tcp) => Some(Self::Tcp),
            _ => None,
        }
    }

    /// Returns the bit of the layer in a set of layers.
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Returns the network that is probed.
    pub const fn network(self) -> Network {
        if matches!(self, Self::Nodes) { Network::Node } else { Network::Pod }
    }

    /// Returns how it is probed.
    pub const fn method(self) -> Method {
        match self {
            Self::Icmp | Self::Nodes => Method::Icmp,
            Self::Udp => Method::Udp,
            Self::Tcp => Method::Tcp,
        }
    }
}

/// A cell. `bits` holds, from the lowest bit: 9 bits of probes, 9 of losses, 10 of the
/// round-trip time's code, the low bit of the layer, 1 of the address family, 1 of a refusal.
/// `moment` holds the pace, the high bit of the layer, and the start of the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    bits: u32,
    peer: u16,
    moment: i16,
}

const _: () = assert!(size_of::<Cell>() == 8);

/// The values that a cell is made of.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    /// Number of the peer among the nodes.
    pub peer: u16,
    /// What was probed, and how.
    pub layer: Layer,
    /// Whether the peer was probed over IPv6.
    pub over_ipv6: bool,
    /// Number of probes answered in the recent window.
    pub received: u32,
    /// Number of probes lost in the recent window.
    pub lost: u32,
    /// Whether the peer refused one of them.
    pub refused: bool,
    /// Median round-trip time in the recent window.
    pub rtt_p50_seconds: Option<f64>,
    /// Median round-trip time of the quickest minute of the last hour.
    pub usual_rtt_p50_seconds: Option<f64>,
    /// When the loss began, in seconds after the matrix's epoch. A report covers an hour. A
    /// value of more than 68 minutes before or after the epoch comes from a wrong clock
    /// and is not kept.
    pub since: Option<i64>,
}

impl Cell {
    /// Packs the values. Counts beyond what a cell holds are scaled down in proportion.
    pub fn new(contents: &Contents) -> Self {
        let (mut probes, mut lost) = (contents.received.saturating_add(contents.lost), contents.lost);
        if probes > COUNT_MAX {
            let scaled = u64::from(lost) * u64::from(COUNT_MAX) / u64::from(probes);
            (probes, lost) = (COUNT_MAX, u32::try_from(scaled).unwrap_or(COUNT_MAX));
        }
        let layer = contents.layer as u8;
        let counts = probes | lost << COUNT_BITS | rtt_code(contents.rtt_p50_seconds) << RTT_SHIFT;
        let flags = u32::from(contents.over_ipv6) << FAMILY_BIT | u32::from(contents.refused) << REFUSED_BIT;
        let bits = counts | u32::from(layer & 1) << LAYER_BIT | flags;
        let since = contents.since.and_then(|since| i16::try_from(since).ok());
        let since = since.filter(|since| (-SINCE_MAX..=SINCE_MAX).contains(since)).unwrap_or(NO_SINCE);
        let pace = Pace::of(contents.rtt_p50_seconds, contents.usual_rtt_p50_seconds);
        let moment = since << SINCE_SHIFT | i16::from(layer >> 1) << PACE_BITS | pace as i16;
        Self { bits, peer: contents.peer, moment }
    }

    /// Returns the cell with the answered probes alone.
    #[must_use]
    pub const fn without_losses(self) -> Self {
        let moment = self.moment & ((1 << SINCE_SHIFT) - 1) | NO_SINCE << SINCE_SHIFT;
        Self { moment, ..self.with_counts(self.probes() - self.lost(), 0) }
    }

    /// Returns the cell without so many of its losses.
    #[must_use]
    pub fn without_last_losses(self, losses: u32) -> Self {
        let losses = losses.min(self.lost());
        self.with_counts(self.probes() - losses, self.lost() - losses)
    }

    /// Returns the cell with so many of its losses, and no other probes.
    #[must_use]
    pub fn with_last_losses_alone(self, losses: u32) -> Self {
        let losses = losses.min(self.lost());
        self.with_counts(losses, losses)
    }

    /// Returns the cell with counts that fit: no larger ones than it has.
    const fn with_counts(self, probes: u32, lost: u32) -> Self {
        Self { bits: self.bits & !(COUNT_MAX | COUNT_MAX << COUNT_BITS) | probes | lost << COUNT_BITS, ..self }
    }

    /// Returns the sort key of a row's cells. A row has at most one cell per key.
    pub const fn key(self) -> (u16, u8) {
        (self.peer, (self.layer() as u8) << 1 | self.is_over_ipv6() as u8)
    }

    /// Returns the number of the peer among the nodes.
    pub const fn peer(self) -> u16 {
        self.peer
    }

    /// Returns what was probed, and how.
    #[inline]
    pub const fn layer(self) -> Layer {
        match (self.moment >> PACE_BITS & 1, self.bits >> LAYER_BIT & 1) {
            (0, 0) => Layer::Icmp,
            (0, _) => Layer::Nodes,
            (_, 0) => Layer::Udp,
            _ => Layer::Tcp,
        }
    }

    /// Returns the network that was probed.
    pub const fn network(self) -> Network {
        self.layer().network()
    }

    /// Whether the peer was probed over IPv6.
    pub const fn is_over_ipv6(self) -> bool {
        self.bits >> FAMILY_BIT & 1 == 1
    }

    /// Returns the number of probes that were answered or lost.
    pub const fn probes(self) -> u32 {
        self.bits & COUNT_MAX
    }

    /// Returns the number of probes that were lost.
    pub const fn lost(self) -> u32 {
        self.bits >> COUNT_BITS & COUNT_MAX
    }

    /// Whether the peer refused a lost handshake. It does not listen then, and the network is well.
    pub const fn is_refused(self) -> bool {
        self.bits >> REFUSED_BIT & 1 == 1
    }

    /// Returns the code of the median round-trip time; 0 if no probe was answered.
    pub fn rtt_code(self) -> u16 {
        u16::try_from(self.bits >> RTT_SHIFT & RTT_MASK).unwrap_or_default()
    }

    /// Returns when the loss began, in seconds after the matrix's epoch.
    pub const fn since(self) -> Option<i16> {
        let since = self.moment >> SINCE_SHIFT;
        if since == NO_SINCE { None } else { Some(since) }
    }

    /// Returns how the round-trip times compare with those of the last hour.
    pub const fn pace(self) -> Pace {
        match self.moment & PACE_MASK {
            1 => Pace::Slow,
            2 => Pace::Usual,
            _ => Pace::Unknown,
        }
    }
}

/// Returns the round-trip time of a code, in microseconds; `None` for code 0.
pub fn rtt_us(code: u16) -> Option<f32> {
    let step = f32::from(code.checked_sub(1)?);
    Some(RTT_MIN_US * (step / (RTT_CODES - 1.0) * RTT_SPAN).exp())
}

fn rtt_code(seconds: Option<f64>) -> u32 {
    let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0) else { return 0 };
    let place = ((seconds * 1e6 / f64::from(RTT_MIN_US)).ln() / f64::from(RTT_SPAN)).clamp(0.0, 1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 1,023")]
    let code = 1 + (place * f64::from(RTT_CODES - 1.0)).round() as u32;
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents() -> Contents {
        Contents {
            peer: 299,
            layer: Layer::Nodes,
            over_ipv6: true,
            received: 59,
            lost: 1,
            refused: false,
            rtt_p50_seconds: Some(40e-6),
            usual_rtt_p50_seconds: Some(50e-6),
            since: Some(-60),
        }
    }

    #[test]
    fn packed_values_are_unpacked_unchanged() {
        let cell = Cell::new(&contents());
        assert_eq!((cell.peer(), cell.network(), cell.is_over_ipv6()), (299, Network::Node, true));
        assert_eq!((cell.probes(), cell.lost(), cell.since()), (60, 1, Some(-60)));
        let rtt = rtt_us(cell.rtt_code()).expect("a round trip");
        assert!((rtt / 40.0 - 1.0).abs() < 0.01, "{rtt}");
        let plain = Cell::new(&Contents { layer: Layer::Icmp, over_ipv6: false, since: None, ..contents() });
        assert_eq!((plain.network(), plain.is_over_ipv6(), plain.since()), (Network::Pod, false, None));
        let mut keys = Vec::new();
        for layer in [Layer::Icmp, Layer::Nodes, Layer::Udp, Layer::Tcp] {
            for over_ipv6 in [false, true] {
                let cell = Cell::new(&Contents { layer, over_ipv6, ..contents() });
                assert_eq!((cell.layer(), cell.is_over_ipv6(), cell.since()), (layer, over_ipv6, Some(-60)));
                assert_eq!(Layer::of(layer.network(), layer.method()), Some(layer));
                keys.push(cell.key());
            }
        }
        assert!(keys.is_sorted_by(|a, b| a < b), "each has a key of its own: {keys:?}");
        let refused = Cell::new(&Contents { refused: true, ..contents() });
        assert_eq!((refused.is_refused(), cell.is_refused(), refused.key()), (true, false, cell.key()));
        for (usual_rtt_p50_seconds, pace) in
            [(None, Pace::Unknown), (Some(30e-6), Pace::Usual), (Some(1e-9), Pace::Slow)]
        {
            let rtt_p50_seconds = Some(0.002).filter(|_| pace == Pace::Slow).or(contents().rtt_p50_seconds);
            let cell = Cell::new(&Contents { rtt_p50_seconds, usual_rtt_p50_seconds, ..contents() });
            assert_eq!((cell.pace(), cell.since()), (pace, Some(-60)));
        }
    }

    #[test]
    fn counts_beyond_a_cell_keep_their_proportion() {
        let cell = Cell::new(&Contents { received: 3_000_000, lost: 1_000_000, ..contents() });
        assert_eq!((cell.probes(), cell.lost()), (511, 127));
        let all = Cell::new(&Contents { received: 0, lost: u32::MAX, ..contents() });
        assert_eq!((all.probes(), all.lost()), (511, 511));
    }

    #[test]
    fn round_trips_out_of_range_stay_within_and_none_stays_none() {
        let rtt = |seconds| rtt_us(Cell::new(&Contents { rtt_p50_seconds: seconds, ..contents() }).rtt_code());
        assert_eq!([None, Some(0.0), Some(f64::NAN), Some(-1.0)].map(rtt), [None; 4]);
        assert_eq!(rtt(Some(1e-9)), Some(1.0));
        assert!((rtt(Some(1e9)).expect("one") / 1e8 - 1.0).abs() < 0.001);
    }

    #[test]
    fn a_moment_far_from_the_epoch_is_none() {
        let since = |since| Cell::new(&Contents { since: Some(since), ..contents() }).since();
        assert_eq!([i64::MIN, -32_768, -4_096, 4_096, 32_768, i64::MAX].map(since), [None; 6]);
        assert_eq!((since(-4_095), since(4_095)), (Some(-4_095), Some(4_095)));
    }
}
