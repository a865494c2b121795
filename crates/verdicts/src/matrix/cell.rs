//! What a matrix keeps of one source's view of one peer: 8 bytes.
//!
//! Most links lose nothing by any method, and then one cell holds all three ([`join`]). So a
//! healthy mesh takes a third of the memory. What counts losses must look at the [`Cell::parts`].

use super::pace::Pace;
use kube_canary_model::report::{Method, Network};

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
/// Whether the cell stands for UDP and TCP, too. It has lost nothing, so it has the number of UDP
/// probes in place of the losses, and that of TCP in place of their start. 0 is none.
const JOINT_BIT: u32 = 31;
/// Cells of one peer in a row: four layers of two families.
const RUN_MAX: usize = 8;
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
    /// All layers, by their numbers.
    pub const ALL: [Self; 4] = [Self::Icmp, Self::Nodes, Self::Udp, Self::Tcp];

    /// Returns the set of these layers.
    pub fn set(layers: impl IntoIterator<Item = Self>) -> u8 {
        layers.into_iter().fold(0, |set, layer| set | layer.bit())
    }

    /// Returns the layers of a set.
    pub fn in_set(set: u8) -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(move |layer| set & layer.bit() != 0)
    }

    /// Returns the layer of a network and a method. `None` if there is no such layer.
    pub const fn find(network: Network, method: Method) -> Option<Self> {
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

    /// Returns the layers of a network, as a set of layers.
    pub const fn all_of(network: Network) -> u8 {
        let nodes = Self::Nodes.bit();
        if matches!(network, Network::Node) { nodes } else { !nodes }
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
/// round-trip time's code, the low bit of the layer, 1 of the address family, 1 of a refusal, and 1
/// of a cell for all methods.
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
        let counts = probes | lost << COUNT_BITS | u32::from(rtt_code(contents.rtt_p50_seconds)) << RTT_SHIFT;
        let flags = u32::from(contents.over_ipv6) << FAMILY_BIT | u32::from(contents.refused) << REFUSED_BIT;
        let bits = counts | u32::from(layer & 1) << LAYER_BIT | flags;
        let since = contents.since.and_then(|since| i16::try_from(since).ok());
        let since = since.filter(|since| (-SINCE_MAX..=SINCE_MAX).contains(since)).unwrap_or(NO_SINCE);
        let pace = Pace::from_times(contents.rtt_p50_seconds, contents.usual_rtt_p50_seconds);
        let moment = since << SINCE_SHIFT | i16::from(layer >> 1) << PACE_BITS | pace as i16;
        Self { bits, peer: contents.peer, moment }
    }

    /// Returns the cell with the answered probes alone.
    #[must_use]
    pub const fn without_losses(self) -> Self {
        let moment = self.moment & ((1 << SINCE_SHIFT) - 1) | NO_SINCE << SINCE_SHIFT;
        Self { moment, ..self.with_counts(self.probes() - self.lost(), 0) }
    }

    /// Returns the cell without this many of its losses.
    #[must_use]
    pub fn without_last_losses(self, losses: u32) -> Self {
        let losses = losses.min(self.lost());
        self.with_counts(self.probes() - losses, self.lost() - losses)
    }

    /// Returns the cell with this many of its losses, and no other probes.
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
        if self.is_joint() { 0 } else { self.bits >> COUNT_BITS & COUNT_MAX }
    }

    const fn is_joint(self) -> bool {
        self.bits >> JOINT_BIT == 1
    }

    /// Whether another cell can stand for this one.
    const fn is_plain(self) -> bool {
        self.lost() == 0 && self.since().is_none() && !self.is_refused() && !self.is_joint()
    }

    /// Returns the numbers of UDP and TCP probes for which the cell stands beside its own.
    fn joined(self) -> [u32; 2] {
        if !self.is_joint() {
            return [0; 2];
        }
        [self.bits >> COUNT_BITS & COUNT_MAX, u32::try_from(self.moment >> SINCE_SHIFT).unwrap_or_default()]
    }

    /// Returns the cell as one that stands for this many UDP and TCP probes, too. It must be plain.
    fn joint(self, [udp, tcp]: [u32; 2]) -> Self {
        let moment = self.moment & ((1 << SINCE_SHIFT) - 1);
        if udp == 0 && tcp == 0 {
            let bits = self.bits & !(1 << JOINT_BIT | COUNT_MAX << COUNT_BITS);
            return Self { bits, moment: moment | NO_SINCE << SINCE_SHIFT, ..self };
        }
        let bits = self.bits | 1 << JOINT_BIT | udp << COUNT_BITS;
        let tcp = i16::try_from(tcp).unwrap_or_default();
        Self { bits, moment: moment | tcp << SINCE_SHIFT, ..self }
    }

    /// Returns the cells for which this one stands: one of each method. That of another method has
    /// the round-trip time of ICMP, which is the one that verdicts compare.
    pub fn parts(self) -> impl Iterator<Item = Self> {
        let own = if self.is_joint() { self.joint([0; 2]) } else { self };
        let others = [Layer::Udp, Layer::Tcp].into_iter().zip(self.joined()).filter(|(_, probes)| *probes > 0);
        std::iter::once(own).chain(others.map(move |(layer, probes)| own.with_counts(probes, 0).with_layer(layer)))
    }

    /// Returns the cell without the part of this layer; whether it had one.
    pub fn without_part(self, layer: Layer) -> (Self, bool) {
        let [udp, tcp] = self.joined();
        match layer {
            Layer::Udp if udp > 0 => (self.joint([0; 2]).joint([0, tcp]), true),
            Layer::Tcp if tcp > 0 => (self.joint([0; 2]).joint([udp, 0]), true),
            _ => (self, false),
        }
    }

    const fn with_layer(self, layer: Layer) -> Self {
        let layer = layer as u8;
        let bits = self.bits & !(1 << LAYER_BIT) | ((layer & 1) as u32) << LAYER_BIT;
        let moment = self.moment & !(1 << PACE_BITS) | ((layer >> 1) as i16) << PACE_BITS;
        Self { bits, moment, ..self }
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
        if since == NO_SINCE || self.is_joint() { None } else { Some(since) }
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

/// Sorts the cells of a row, and joins those of each peer. Returns the number of cells that are
/// left, which are the first.
pub fn sort_and_join(row: &mut [Cell]) -> usize {
    row.sort_unstable_by_key(|cell| cell.key());
    let (mut from, mut to) = (0, 0);
    while let Some(first) = row.get(from) {
        let peer = first.peer();
        let run = row[from..].partition_point(|cell| cell.peer() == peer);
        for cell in join(&row[from..from + run]) {
            row[to] = cell;
            to += 1;
        }
        from += run;
    }
    to
}

/// Returns the cells of this peer in a row, which is sorted.
pub fn cells_of_peer(row: &[Cell], peer: u16) -> &[Cell] {
    let behind = &row[row.partition_point(|cell| cell.peer() < peer)..];
    &behind[..run(behind, peer)]
}

/// Returns how many cells at the front are of this peer: one per layer and address family.
#[inline]
pub fn run(cells: &[Cell], peer: u16) -> usize {
    cells.iter().take_while(|cell| cell.peer() == peer).count()
}

/// Returns the cells of one peer, of which ICMP stands for UDP and TCP of its family as far as all
/// of them have lost nothing.
fn join(run: &[Cell]) -> impl Iterator<Item = Cell> + use<> {
    let mut cells = [None; RUN_MAX];
    for (place, cell) in cells.iter_mut().zip(run) {
        *place = Some(*cell);
    }
    for over_ipv6 in [false, true] {
        let place = |layer: Layer| {
            let is_it = |cell: &Cell| cell.layer() == layer && cell.is_over_ipv6() == over_ipv6 && cell.is_plain();
            run.iter().take(RUN_MAX).position(is_it)
        };
        let others = [Layer::Udp, Layer::Tcp].map(place);
        if let Some(icmp) = place(Layer::Icmp) {
            let probes = others.map(|place| place.map_or(0, |place| run[place].probes()));
            cells[icmp] = Some(run[icmp].joint(probes));
            for other in others.into_iter().flatten() {
                cells[other] = None;
            }
        }
    }
    cells.into_iter().flatten()
}

/// Returns the round-trip time of a code, in microseconds; `None` for code 0.
pub fn rtt_us(code: u16) -> Option<f32> {
    let step = f32::from(code.checked_sub(1)?);
    Some(RTT_MIN_US * (step / (RTT_CODES - 1.0) * RTT_SPAN).exp())
}

/// Returns the code of a round-trip time; 0 if there is none.
pub fn rtt_code(seconds: Option<f64>) -> u16 {
    let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0) else { return 0 };
    let place = ((seconds * 1e6 / f64::from(RTT_MIN_US)).ln() / f64::from(RTT_SPAN)).clamp(0.0, 1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 1,023")]
    let code = 1 + (place * f64::from(RTT_CODES - 1.0)).round() as u16;
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
                assert_eq!(Layer::find(layer.network(), layer.method()), Some(layer));
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
    fn one_cell_stands_for_all_methods_of_a_link_that_has_lost_nothing() {
        let well = |layer, probes| {
            let (peer, over_ipv6, lost, since) = (7, false, 0, None);
            Cell::new(&Contents { peer, layer, over_ipv6, received: probes, lost, since, ..contents() })
        };
        let lossy = |layer| Cell::new(&Contents { layer, peer: 7, over_ipv6: false, ..contents() });
        let of = |cells: &[Cell]| -> Vec<(u8, u32, u32)> {
            cells.iter().map(|cell| (cell.layer() as u8, cell.probes(), cell.lost())).collect()
        };
        let parts = |cells: &[Cell]| cells.iter().flat_map(|cell| cell.parts()).collect::<Vec<Cell>>();
        let (icmp, udp, tcp) = (well(Layer::Icmp, 60), well(Layer::Udp, 511), well(Layer::Tcp, 511));
        let nodes = well(Layer::Nodes, 60);
        for (run, count) in [
            (vec![icmp, udp, tcp], 1),
            (vec![icmp, nodes, udp, tcp], 2),
            (vec![icmp, tcp], 1),
            (vec![icmp], 1),
            (vec![udp, tcp], 2),
            (vec![lossy(Layer::Icmp), udp, tcp], 3),
            (vec![icmp, lossy(Layer::Udp), tcp], 2),
        ] {
            let joined: Vec<Cell> = join(&run).collect();
            assert_eq!(joined.len(), count, "{run:?}");
            assert!(joined.iter().all(|cell| cell.peer() == 7 && (cell.lost() == 0) == cell.since().is_none()));
            let mut again = parts(&joined);
            again.sort_by_key(|cell| cell.key());
            assert_eq!(of(&again), of(&run));
            assert!(again.iter().all(|cell| cell.rtt_code() == icmp.rtt_code() && cell.pace() == icmp.pace()));
        }
        let all = join(&[icmp, udp, tcp]).next().expect("a cell");
        let (without, had) = all.without_part(Layer::Udp);
        assert_eq!((of(&parts(&[without])), had), (of(&[icmp, tcp]), true));
        let (without, had) = without.without_part(Layer::Tcp);
        assert_eq!((without, had, without.without_part(Layer::Tcp).1), (icmp, true, false));
    }

    #[test]
    fn cells_of_both_families_are_joined_apart() {
        let well = |layer, over_ipv6| Cell::new(&Contents { layer, over_ipv6, lost: 0, since: None, ..contents() });
        let layers = [Layer::Icmp, Layer::Nodes, Layer::Udp, Layer::Tcp];
        let run: Vec<Cell> = layers.into_iter().flat_map(|layer| [well(layer, false), well(layer, true)]).collect();
        assert!(run.is_sorted_by_key(|cell| cell.key()));
        let joined: Vec<Cell> = join(&run).collect();
        let keys: Vec<u8> = joined.iter().map(|cell| cell.key().1).collect();
        assert_eq!((keys, joined.iter().flat_map(|cell| cell.parts()).count()), (vec![0, 1, 2, 3], 8));
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
