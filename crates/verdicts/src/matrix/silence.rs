//! Links that have fallen silent, or have come back, while the reports were read.
//!
//! The reports of a collection are up to 15 s apart. If half of a mesh is cut off meanwhile, some
//! reports are of the time before, and some of the time after. Together they show a mesh that never
//! was: its verdicts would blame the nodes whose reports were read first or last. And for half a
//! minute after such a fault begins or ends, the recent windows show neither the time before nor
//! the time after.
//!
//! So a report says how many of the last probes of a link were lost in a row, and how many were
//! answered since. A link is silent if that is more than chance by ICMP and UDP, and it was well
//! before.
//!
//! - Its window begins with its silence.
//! - A link that has come back has lost nothing, if it came back before the collection began.
//!   Otherwise it is silent: some reports were read before it came back.
//! - If several links of a source have fallen silent so late that some reports were read before,
//!   what they have lost in a row does not count until the next collection. A single link counts at
//!   once, unless the report of its peer was read before: a node that dies is one link of each
//!   source.
//!
//! The last losses are kept for the verdicts, which tell by them whether a fault is over.
//!
//! A source decides only about its own cells. So a false report can leave out its own losses, and
//! hides none of others.

use std::ops::Range;

use kube_canary_kernel::region::List;
use kube_canary_model::report::RecentPeer;

use super::cell::{Cell, Layer, cells_of_peer};

/// A link is silent if it has lost this many ICMP and UDP probes in a row. At the default interval
/// and timeout they are known after this many seconds.
const SILENT_PROBES: u8 = 4;
const KNOWN_AFTER_SECONDS: i16 = 6;
/// Links of one fault are found within this time.
const NEAR_SECONDS: i16 = 3;
/// A link has come back if all probes of this many seconds were answered, and this many in a row.
/// In a mesh that answers one probe of 25, chance answers as many on one link of ten million.
const BACK_AFTER_SECONDS: i16 = 5;
const BACK_PROBES: u8 = 5;
/// Time within which a TCP handshake is due and its loss is known.
const HANDSHAKE_SECONDS: i16 = 15;
/// Before its silence, a link has lost less than one of this many probes.
const CALM_ONE_OF: u32 = 10;
/// Largest number of cells whose losses in a row are kept: those of three methods and 24 peers of
/// 227 nodes. With more, none of this is done.
const KEPT_MAX: usize = 16_384;
/// Largest number of them of one row: those of three methods, two families and 170 peers. With
/// more, none of this is done for that row, so that one report cannot prevent it for all.
const ROW_KEPT_MAX: usize = 1_024;

/// The last losses of a cell: 10 bytes.
#[derive(Clone, Copy, Debug)]
pub struct LossRun {
    row: u16,
    peer: u16,
    /// The layer, and whether it is over IPv6, as in [`Cell::key`].
    key: u8,
    /// Number of probes that were lost in a row.
    pub lost: u8,
    /// Number of probes that were answered since.
    pub answered: u8,
    /// Number of probes that were answered between that and the loss before.
    pub answered_before: u8,
    /// When the first of the latter was sent, or else the first of the former, in seconds after the
    /// epoch of the matrix. By TCP, when the last loss was known, or else when the report was read.
    pub moment: i16,
}

impl LossRun {
    const NONE: Self = Self { row: 0, peer: 0, key: 0, lost: 0, answered: 0, answered_before: 0, moment: 0 };

    /// Returns the sort key of the runs of a row: those of a link are together.
    fn place(&self) -> (LinkKey, u8) {
        (link(self.peer, self.key), self.key)
    }
}

/// A peer, the network, and whether it is over IPv6.
type LinkKey = (u16, bool, bool);

/// Returns the link of a cell with this key.
fn link(peer: u16, key: u8) -> LinkKey {
    (peer, key >> 1 == Layer::Nodes as u8, key & 1 == 1)
}

/// The last losses of all cells.
#[derive(Debug)]
pub(super) struct SilenceTable {
    runs: List<LossRun>,
    is_cut: bool,
    /// The row that is being read, and where its runs begin. The latter is `None` if it has too
    /// many.
    current: (u16, Option<usize>),
    /// Of each node, the number of sources whose losses to it do not count yet. Empty if there are
    /// none.
    fresh: Vec<u16>,
    /// Number of rows with links that have come back.
    rows_back: usize,
}

/// What the last losses of a link mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LossState {
    /// They are losses as any others.
    Usual,
    /// The link has just begun to lose: a report shows all of it at this moment at the earliest.
    Fresh(i16),
    /// The link is silent for this many seconds, or has come back so late that it counts as silent.
    Silent(i16),
    /// The link has come back.
    Back,
}

impl SilenceTable {
    pub fn new(bytes: usize) -> Self {
        Self {
            runs: List::new((bytes / size_of::<LossRun>()).min(KEPT_MAX)),
            is_cut: false,
            current: (0, Some(0)),
            fresh: Vec::new(),
            rows_back: 0,
        }
    }

    /// Whether links of several sources have come back.
    pub const fn are_links_back(&self) -> bool {
        self.rows_back > 1
    }

    /// Returns the bytes in use.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.runs[..]) + size_of_val(&self.fresh[..])
    }

    /// Returns the number of sources whose losses to a node, and to others, do not count yet.
    pub fn fresh_sources(&self, node: u16) -> u16 {
        self.fresh.get(usize::from(node)).copied().unwrap_or_default()
    }

    /// Notes what a row says of the last losses of a cell. It was read this many seconds after the
    /// epoch.
    pub fn add(&mut self, (row, read): (usize, i16), cell: Cell, recent: &RecentPeer, room: usize) {
        let rate = f64::from(recent.sent) / recent.seconds.clamp(1e-3, 3_600.0);
        if cell.lost() == 0 || rate.is_nan() || rate <= 0.0 {
            return;
        }
        let (peer, key) = cell.key();
        let narrow = |count: u32| u8::try_from(count).unwrap_or(u8::MAX);
        let (lost, answered) = (recent.lost_in_row, recent.answered_since);
        let since = f64::from(if answered > 0 { answered } else { lost });
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
        let seconds = match cell.layer() {
            // A lost handshake is soon followed by another, so the mean time between them says
            // little.
            Layer::Tcp => i64::from(recent.answered_seconds),
            _ => (since / rate).ceil() as i64,
        };
        let moment = i64::from(read).saturating_sub(seconds);
        let moment = i16::try_from(moment.clamp(i16::MIN.into(), i16::MAX.into())).unwrap_or_default();
        let row = u16::try_from(row).unwrap_or(u16::MAX);
        if self.current.0 != row {
            self.current = (row, Some(self.runs.len()));
        }
        let Some(begin) = self.current.1 else { return };
        if self.runs.len() - begin >= ROW_KEPT_MAX {
            self.runs.resize(begin, LossRun::NONE);
            self.current.1 = None;
            return;
        }
        let [lost, answered, answered_before] = [lost, answered, recent.answered_before].map(narrow);
        let run = LossRun { row, peer, key, lost, answered, answered_before, moment };
        self.is_cut |= room < size_of::<LossRun>() || !self.runs.push(run);
    }

    /// Returns the last losses of a cell of a row. `None` if it has none, or if there was no room.
    /// This needs [`SilenceTable::settle`].
    pub fn last_losses(&self, row: u16, cell: Cell) -> Option<LossRun> {
        let (peer, key) = cell.key();
        let sought = (row, (link(peer, key), key));
        let place = self.runs.binary_search_by_key(&sought, |run| (run.row, run.place())).ok()?;
        Some(self.runs[place])
    }

    /// Decides what the last losses of each row mean, and changes its cells accordingly: `range`
    /// returns those of a row. `read` returns when the row of one of this many nodes was read, in
    /// seconds after the epoch.
    pub fn settle(
        &mut self,
        cells: &mut [Cell],
        nodes: usize,
        range: impl Fn(u16) -> Range<usize>,
        read: impl Fn(u16) -> Option<i16>,
    ) {
        if self.is_cut {
            self.runs.resize(0, LossRun::NONE);
        } else {
            self.runs.sort_unstable_by_key(|run| (run.row, run.place()));
            let rows = || self.runs.chunk_by(|a, b| a.row == b.row);
            let of_row = |runs: &[LossRun]| runs.first().map(|run| range(run.row)).unwrap_or_default();
            let is_fault = |runs: &[LossRun], cells: &[Cell]| {
                SilenceRow::new(runs, &cells[of_row(runs)], KNOWN_AFTER_SECONDS).is_fault_of_many()
            };
            // What began a little before is of the same fault. One false report changes no other.
            let is_near = rows().filter(|runs| is_fault(runs, cells)).nth(1).is_some();
            for runs in rows() {
                let is_near = is_near || is_fault(runs, cells);
                let cells = &mut cells[of_row(runs)];
                let known_after = KNOWN_AFTER_SECONDS + if is_near { NEAR_SECONDS } else { 0 };
                let row = SilenceRow::new(runs, cells, known_after);
                if row.is_fault_of_many() {
                    self.fresh.resize(nodes, 0);
                    let mut peers: Vec<u16> = row.fresh().collect();
                    peers.dedup();
                    for peer in peers {
                        self.fresh[usize::from(peer)] += 1;
                    }
                }
                self.rows_back += usize::from(row.states.iter().any(|(_, state)| *state == LossState::Back));
                row.settle(cells, &read);
            }
        }
    }
}

/// The links of a row that have last losses, and their states.
struct SilenceRow<'a> {
    runs: &'a [LossRun],
    states: Vec<(LinkKey, LossState)>,
}

impl<'a> SilenceRow<'a> {
    fn new(runs: &'a [LossRun], cells: &[Cell], known_after: i16) -> Self {
        let of_links = runs.chunk_by(|a, b| a.place().0 == b.place().0);
        let with_state = |runs: &[LossRun]| Some((runs.first()?.place().0, state(runs, cells, known_after)));
        Self { runs, states: of_links.filter_map(with_state).collect() }
    }

    /// Returns the peers to which the source has just begun to lose. One may be there twice.
    fn fresh(&self) -> impl Iterator<Item = u16> {
        self.states.iter().filter(|(_, state)| matches!(state, LossState::Fresh(_))).map(|(link, _)| link.0)
    }

    /// Whether the source has just begun to lose to several peers.
    fn is_fault_of_many(&self) -> bool {
        are_several(self.fresh())
    }

    fn settle(&self, cells: &mut [Cell], read: &impl Fn(u16) -> Option<i16>) {
        let is_fault_of_many = self.is_fault_of_many();
        let silent = self.states.iter().filter(|(_, state)| matches!(state, LossState::Silent(_)));
        let are_many_silent = are_several(silent.map(|(link, _)| link.0));
        for cell in cells {
            let (peer, key) = cell.key();
            let link = link(peer, key);
            let Ok(place) = self.states.binary_search_by_key(&link, |(link, _)| *link) else { continue };
            let run = self.runs.binary_search_by_key(&(link, key), LossRun::place);
            let run = run.map_or(LossRun::NONE, |place| self.runs[place]);
            *cell = match self.states[place].1 {
                // The report of the peer may be older than the fault, and would contradict.
                LossState::Fresh(known) if is_fault_of_many || read(peer).is_some_and(|at| at < known) => {
                    cell.without_last_losses(run.lost.into())
                }
                LossState::Back => cell.without_last_losses(run.lost.into()),
                // Until handshakes are lost, too, a single link would seem to lose other protocols
                // alone.
                LossState::Silent(seconds) if !are_many_silent && seconds < HANDSHAKE_SECONDS => *cell,
                LossState::Silent(_) if run.lost > 0 => cell.with_last_losses_alone(run.lost.into()),
                // No handshake was due since then.
                LossState::Silent(seconds) if seconds < HANDSHAKE_SECONDS => cell.with_last_losses_alone(0),
                LossState::Usual | LossState::Fresh(_) | LossState::Silent(_) => *cell,
            };
        }
    }
}

fn are_several(mut peers: impl Iterator<Item = u16>) -> bool {
    let first = peers.next();
    peers.any(|peer| Some(peer) != first)
}

/// Returns the state of a link from the last losses of its cells. A silence counts as one from
/// before the collection if it began this many seconds before.
fn state(runs: &[LossRun], cells: &[Cell], known_after: i16) -> LossState {
    let Some((link, _)) = runs.first().map(LossRun::place) else { return LossState::Usual };
    let of_peer = cells_of_peer(cells, link.0).iter();
    let (mut lost, mut answers, mut latest) = (u8::MAX, [u8::MAX, 0], None);
    for cell in of_peer.filter(|cell| cell.layer() != Layer::Tcp && self::link(link.0, cell.key().1) == link) {
        // A cell without a run has answered.
        let Some(run) = runs.iter().find(|run| run.key == cell.key().1) else { return LossState::Usual };
        let [answered, in_row] = [run.answered, run.lost].map(u32::from);
        let before = cell.lost().saturating_sub(in_row);
        if before * CALM_ONE_OF > cell.probes().saturating_sub(in_row + answered) {
            return LossState::Usual;
        }
        lost = lost.min(run.lost);
        answers = [answers[0].min(run.answered), answers[1].max(run.answered)];
        latest = latest.max(Some(run.moment));
    }
    let Some(latest) = latest else { return LossState::Usual };
    match answers {
        [_, 0] if lost < SILENT_PROBES || latest > -known_after => {
            LossState::Fresh(latest.saturating_add(KNOWN_AFTER_SECONDS))
        }
        [_, 0] => LossState::Silent(latest.saturating_neg()),
        _ if lost < SILENT_PROBES => LossState::Usual,
        [least, _] if least >= BACK_PROBES && latest <= -BACK_AFTER_SECONDS => LossState::Back,
        _ => LossState::Silent(HANDSHAKE_SECONDS),
    }
}

#[cfg(test)]
mod tests;
