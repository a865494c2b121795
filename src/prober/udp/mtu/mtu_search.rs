//! Joins the checks of all pairs, the searches and the packets in flight.

use std::net::IpAddr;

use kube_canary_kernel::region::List;

use super::flights::{Fate, MtuFlight, MtuFlights};
use super::path::{PathMtu, PathState};
use super::search::{PRECISION, SizeSearch, Step};
use crate::limits::{MTU_PROBES_PER_SECOND, MTU_SEARCHES_MAX, PATH_MTU_MAX, PEER_SLOTS_MAX};
use crate::peers::{Change, Compaction, SlotId};
use crate::prober::Flow;
use crate::units::Nanos;

/// Time between two checks of a pair.
const PERIOD: Nanos = Nanos::from_millis(60_000);
/// The same while a hole is known, so that its end is known soon.
const PERIOD_WITH_HOLES: Nanos = Nanos::from_millis(10_000);
/// Shortest time between two checks of any pairs. 240 pairs are checked once a minute, and more
/// pairs less often.
const CHECK_GAP: Nanos = Nanos::from_millis(250);
/// Largest time that a packet may take. A longer `--timeout` would delay a hole for minutes.
const WAIT_MAX: Nanos = Nanos::from_millis(5_000);
/// Time that one large packet takes of the budget, and how many may leave together.
const COST: Nanos = Nanos(1_000_000_000 / MTU_PROBES_PER_SECOND);
const BURST: u64 = MTU_PROBES_PER_SECOND;
/// Packets of one check, besides the one of full size.
const RECHECKS: usize = 2;
/// Smallest MTU that a network may say: a host must accept 576 bytes by IPv4 (RFC 791), and a
/// link must carry 1,280 by IPv6 (RFC 8200).
const SAID_MIN: [u32; 2] = [576, 1_280];

/// The headers of IPv4 or IPv6, and of UDP.
const fn header_bytes(ipv6: bool) -> u16 {
    if ipv6 { 48 } else { 28 }
}

/// Returns the UDP payload of an IP packet of `size` bytes.
pub const fn payload_bytes(size: u16, ipv6: bool) -> u16 {
    size.saturating_sub(header_bytes(ipv6))
}

/// What the prober knows of the way to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The address of the peer.
    pub address: IpAddr,
    /// The MTU of the route, of the IP packet.
    pub mtu: u32,
}

/// A packet to send, with DF set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuProbe {
    /// The slot of the link.
    pub slot: SlotId,
    /// The source port that it leaves from.
    pub flow: Flow,
    /// Size of the IP packet in bytes; [`payload_bytes`] has that of the payload.
    pub size: u16,
    /// The number that the packet carries, with its slot and under the key of every probe.
    pub sequence: u32,
}

/// Searches the path MTU of all pairs.
#[derive(Debug)]
pub struct MtuSearch {
    /// Number of source ports per family.
    flows: u8,
    /// Bytes of the payload of small packets.
    small_payload: u16,
    /// Time after which a packet is lost.
    wait: Nanos,
    rows: List<PathMtu>,
    /// Number of slots that are probed.
    active: usize,
    /// The slot that is checked next, and the number of times that all were checked.
    cursor: usize,
    revolution: usize,
    next_check: Nanos,
    /// Further packets of the last check.
    rechecks: [Option<(SlotId, Flow, u16)>; RECHECKS],
    searches: [Option<SizeSearch>; MTU_SEARCHES_MAX],
    /// The search that is looked at first.
    first: usize,
    flights: MtuFlights,
    /// When the budget of large packets is used up by those that have left.
    paid_until: Nanos,
    /// What passed the hole that was found last. Other paths often have the same one.
    guess: u16,
}

impl MtuSearch {
    /// Makes a search for `flows` source ports, at least one. A packet is lost after `wait`: the
    /// timeout plus the time that the far agent may take. The ordinary probes have
    /// `small_payload` bytes of UDP payload, and so have the small packets here.
    pub fn new(flows: u8, small_payload: u16, wait: Nanos, now: Nanos) -> Self {
        Self {
            flows: flows.max(1),
            small_payload,
            wait: wait.min(WAIT_MAX),
            rows: List::new(PEER_SLOTS_MAX),
            active: 0,
            cursor: 0,
            revolution: 0,
            next_check: now,
            rechecks: [None; RECHECKS],
            searches: [None; MTU_SEARCHES_MAX],
            first: 0,
            flights: MtuFlights::new(),
            paid_until: now,
            guess: 0,
        }
    }

    /// Makes room for `slots` slots.
    pub fn reserve(&mut self, slots: usize) {
        if slots > self.rows.len() {
            self.rows.resize(slots, PathMtu::NEW);
        }
    }

    /// Applies a change of the list. `moved` says whether a [`Change::Probe`] has another address
    /// than before.
    pub fn apply(&mut self, change: Change, moved: bool) {
        match change {
            Change::Join { slot } => {
                self.set_active(slot, false);
                self.forget(slot);
            }
            Change::Probe { slot, terminating, .. } => {
                if moved {
                    self.forget(slot);
                }
                self.set_active(slot, !terminating);
            }
            Change::Stop { slot } => {
                self.set_active(slot, false);
                self.end_searches(slot);
            }
            Change::Zone { .. } => {}
        }
    }

    fn set_active(&mut self, slot: SlotId, active: bool) {
        if let Some(row) = self.rows.get_mut(slot.index())
            && row.is_active() != active
        {
            row.set_active(active);
            self.active = if active { self.active + 1 } else { self.active.saturating_sub(1) };
        }
    }

    fn forget(&mut self, slot: SlotId) {
        if let Some(row) = self.rows.get_mut(slot.index()) {
            row.forget();
        }
        self.end_searches(slot);
    }

    fn end_searches(&mut self, slot: SlotId) {
        self.flights.forget(slot);
        self.searches.iter_mut().for_each(|place| _ = place.take_if(|search| search.slot == slot));
        self.rechecks.iter_mut().for_each(|place| _ = place.take_if(|(it, ..)| *it == slot));
    }

    /// Moves slots as `compaction` says. Searches of slots that move begin again at their next
    /// check.
    pub fn compact(&mut self, compaction: &Compaction) {
        self.flights.compact(compaction);
        let moves = |slot: SlotId| compaction.now(slot) != Some(slot);
        self.searches.iter_mut().for_each(|place| _ = place.take_if(|search| moves(search.slot)));
        self.rechecks.iter_mut().for_each(|place| _ = place.take_if(|(slot, ..)| moves(*slot)));
        for (from, to) in compaction.moves() {
            let row = self.rows.get(from.index()).copied().unwrap_or_default();
            if let Some(place) = self.rows.get_mut(to.index()) {
                *place = row;
            }
        }
        self.rows.resize(compaction.slots().min(self.rows.len()), PathMtu::NEW);
        self.active = self.rows.iter().filter(|row| row.is_active()).count();
    }

    /// Returns the next packet to send, if one is due. Call it until it returns `None`. `route`
    /// returns the way to a slot; `None` if it is not probed now, or answers nothing at all.
    pub fn due(&mut self, now: Nanos, route: impl Fn(SlotId) -> Option<Route>) -> Option<MtuProbe> {
        self.next_search_probe(now).or_else(|| self.next_recheck(now)).or_else(|| self.next_check(now, route))
    }

    fn next_search_probe(&mut self, now: Nanos) -> Option<MtuProbe> {
        let (wait, paid_until) = (self.wait, &mut self.paid_until);
        for nth in 0..MTU_SEARCHES_MAX {
            let index = (self.first + nth) % MTU_SEARCHES_MAX;
            let Some(search) = self.searches.get_mut(index).and_then(Option::as_mut) else { continue };
            if let Some(size) = search.next(now, wait, || pay(paid_until, now)) {
                let (slot, flow) = (search.slot, search.flow);
                // The next packet is that of another search, if the budget is short.
                self.first = index + 1;
                let probe = self.send(slot, flow, size, false, now);
                if probe.is_none() {
                    self.with_search(slot, flow, |_| Step::Over);
                }
                return probe;
            }
        }
        None
    }

    fn next_recheck(&mut self, now: Nanos) -> Option<MtuProbe> {
        let place = self.rechecks.iter_mut().find(|place| place.is_some())?;
        if !pay(&mut self.paid_until, now) {
            return None;
        }
        let (slot, flow, size) = place.take()?;
        self.send(slot, flow, size, true, now)
    }

    fn next_check(&mut self, now: Nanos, route: impl Fn(SlotId) -> Option<Route>) -> Option<MtuProbe> {
        if now < self.next_check || self.active == 0 || self.rechecks.iter().any(Option::is_some) {
            return None;
        }
        let period = if self.rows.iter().any(PathMtu::has_hole) { PERIOD_WITH_HOLES } else { PERIOD };
        for _ in 0..self.rows.len() {
            if self.cursor >= self.rows.len() {
                (self.cursor, self.revolution) = (0, self.revolution.wrapping_add(1));
            }
            let slot = SlotId::at(self.cursor);
            let row = self.rows.get_mut(self.cursor)?;
            self.cursor += 1;
            if !row.is_active() {
                continue;
            }
            // Checks are spread over the period. What a stopped agent has missed is left out.
            let gap = period.0 / u64::try_from(self.active).unwrap_or(1);
            let gap = Nanos(gap).max(CHECK_GAP);
            self.next_check = self.next_check.max(Nanos(now.0.saturating_sub(gap.0))).plus(gap);
            let route = route(slot)?;
            let ipv6 = route.address.is_ipv6();
            let full = u16::try_from(route.mtu).unwrap_or(u16::MAX).min(PATH_MTU_MAX);
            let small = self.small_payload + header_bytes(ipv6);
            if full <= small.saturating_add(PRECISION) || !pay(&mut self.paid_until, now) {
                return None;
            }
            if row.full_bytes != full {
                // The route has another MTU: what was known is about other sizes.
                row.forget();
            }
            row.set_route(full, ipv6);
            let turn = (self.cursor + self.revolution) % usize::from(self.flows);
            let flow = if row.has_hole() { row.flow() } else { Flow(u8::try_from(turn).unwrap_or(0)) };
            if row.has_hole() {
                let above = row.path_mtu_bytes.saturating_add(PRECISION);
                let above = (above < full).then_some((slot, flow, above));
                self.rechecks = [(row.path_mtu_bytes > small).then_some((slot, flow, row.path_mtu_bytes)), above];
            }
            if self.searches.iter().flatten().any(|search| search.slot == slot) {
                self.rechecks = [None; RECHECKS];
                return None;
            }
            return self.send(slot, flow, full, true, now);
        }
        None
    }

    fn send(&mut self, slot: SlotId, flow: Flow, size: u16, checks: bool, now: Nanos) -> Option<MtuProbe> {
        let sequence = self.flights.record(MtuFlight { slot, flow, fate: Fate::Waiting, checks, size, at: now })?;
        Some(MtuProbe { slot, flow, size, sequence })
    }

    /// Returns when [`MtuSearch::due`] or [`MtuSearch::expire`] has something to do at the latest,
    /// if no answer arrives.
    pub fn next_due(&self) -> Option<Nanos> {
        let searches = self.searches.iter().flatten().filter_map(SizeSearch::next_due);
        let expiry = self.flights.oldest().map(|at| at.plus(self.wait));
        let check = (self.active > 0).then_some(self.next_check);
        searches.chain(expiry).chain(check).min()
    }

    /// Records that the kernel did not send a packet. Its search is over: what it has counted so
    /// far would not add up.
    pub fn not_sent(&mut self, sequence: u32) {
        if let Some(flight) = self.flights.get(sequence) {
            flight.fate = Fate::Closed;
            let MtuFlight { slot, flow, .. } = *flight;
            self.with_search(slot, flow, |_| Step::Over);
        }
    }

    /// Records the answer to a packet, whose check was compared for this slot and its address.
    /// Returns whether it counts: the packet was sent by this flow for this slot and has no answer
    /// yet. A late answer counts too.
    pub fn answered(&mut self, (slot, flow, sequence): (SlotId, Flow, u32), now: Nanos) -> bool {
        let sent = self.flights.get(sequence).filter(|flight| flight.slot == slot && flight.flow == flow);
        let Some(flight) = sent else { return false };
        flight.fate = Fate::Closed;
        let size = flight.size;
        self.passed(slot, flow, size, now);
        true
    }

    fn passed(&mut self, slot: SlotId, flow: Flow, size: u16, now: Nanos) {
        let searching = self.with_search(slot, flow, |search| search.passed(size));
        let Some(row) = self.rows.get_mut(slot.index()) else { return };
        if size == row.full_bytes {
            // A hole is on one flow. That another one passes does not fill it.
            if !row.has_hole() || row.flow() == flow {
                row.set_flow(flow);
                (row.state, row.path_mtu_bytes, row.said_bytes) = (PathState::Full, size, 0);
            }
        } else if row.has_hole()
            && row.flow() == flow
            && size > row.path_mtu_bytes
            && size < row.full_bytes
            && !searching
        {
            // The hole is smaller than it was. A larger packet was sent over another route.
            row.path_mtu_bytes = size;
            let sizes = [size, row.full_bytes, self.small_payload + header_bytes(row.is_ipv6())];
            let search = SizeSearch::resume(slot, flow, sizes, row.said_bytes, now);
            self.begin(search);
        }
    }

    /// Records an ICMP error "fragmentation needed" or "packet too big" that quotes a packet of
    /// ours, whose check was compared for this slot and its address. Returns whether it counts:
    /// the packet was sent by this flow for this slot and has no answer yet, a host of the network
    /// says so and not our own kernel, and the MTU is possible and smaller than the packet.
    pub fn refused(
        &mut self,
        (slot, flow, sequence): (SlotId, Flow, u32),
        offender: Option<IpAddr>,
        mtu: u32,
        now: Nanos,
    ) -> bool {
        if offender.is_none() {
            // The route's MTU has just become smaller. The next check has the new size.
            self.not_sent(sequence);
            return false;
        }
        let sent = self.flights.get(sequence).filter(|flight| flight.slot == slot && flight.flow == flow);
        let (Some(flight), Some(row)) = (sent, self.rows.get_mut(slot.index())) else { return false };
        let least = if row.is_ipv6() { SAID_MIN[1] } else { SAID_MIN[0] };
        let possible = mtu >= least && mtu < flight.size.into();
        let (Ok(mtu), true) = (u16::try_from(mtu), possible && flight.fate == Fate::Waiting) else { return false };
        // If it is answered all the same, that counts.
        flight.fate = Fate::Lost;
        let (size, checks) = (flight.size, flight.checks);
        if row.has_hole() && row.flow() == flow && size > row.path_mtu_bytes {
            (row.state, row.said_bytes) = (PathState::HoleSaid, mtu);
        }
        let searching = self.with_search(slot, flow, |search| search.refused(size, mtu));
        if !searching && checks {
            self.suspect(slot, flow, size, Some(mtu), now);
        }
        true
    }

    /// Decides losses as of a time until which all arrivals were read.
    pub fn expire(&mut self, as_of: Nanos) {
        let Some(before) = as_of.0.checked_sub(self.wait.0) else { return };
        while let Some(MtuFlight { slot, flow, size, at, checks, .. }) = self.flights.expire(Nanos(before)) {
            let searching = self.with_search(slot, flow, |search| search.lost(size, at));
            if !searching && checks {
                self.suspect(slot, flow, size, None, as_of);
            }
        }
    }

    /// Starts a search after a packet of a check was lost, unless that was expected.
    fn suspect(&mut self, slot: SlotId, flow: Flow, size: u16, said: Option<u16>, now: Nanos) {
        let Some(row) = self.rows.get(slot.index()).filter(|row| row.is_active()) else { return };
        let small = self.small_payload + header_bytes(row.is_ipv6());
        let is_check = size == row.full_bytes && !row.has_hole();
        // Less passes than before.
        let is_recheck = row.has_hole() && size == row.path_mtu_bytes && row.flow() == flow && size > small;
        let searched = self.searches.iter().flatten().any(|search| search.slot == slot);
        if !searched && (is_check || is_recheck) {
            let mut search = SizeSearch::new(slot, flow, size, small, self.guess, now);
            if let Some(mtu) = said {
                search.begun_by_error(mtu);
            }
            self.begin(search);
        }
    }

    /// Starts a search if there is a place. If not, the next check starts it.
    fn begin(&mut self, search: SizeSearch) {
        let same = self.searches.iter().flatten().any(|other| other.slot == search.slot);
        if !same && let Some(place) = self.searches.iter_mut().find(|place| place.is_none()) {
            *place = Some(search);
        }
    }

    /// Tells a search what happened, if there is one. Returns whether there was.
    fn with_search(&mut self, slot: SlotId, flow: Flow, change: impl FnOnce(&mut SizeSearch) -> Step) -> bool {
        let found =
            self.searches.iter_mut().find(|place| place.as_ref().is_some_and(|search| search.is_for(slot, flow)));
        let Some((place, search)) = found.and_then(|place| place.map(|search| (place, search))) else { return false };
        let mut search = search;
        let step = change(&mut search);
        *place = if matches!(step, Step::Exact | Step::Over) { None } else { Some(search) };
        if matches!(step, Step::Exact | Step::Hole)
            && let Some(row) = self.rows.get_mut(slot.index())
        {
            row.state = if search.said > 0 { PathState::HoleSaid } else { PathState::HoleSilent };
            (row.path_mtu_bytes, row.said_bytes) = (search.low, search.said);
            row.set_flow(flow);
            if step == Step::Exact {
                self.guess = search.low;
            }
        }
        true
    }

    /// Returns what is known of the path of a slot.
    pub fn path(&self, slot: SlotId) -> PathMtu {
        self.rows.get(slot.index()).copied().unwrap_or_default()
    }

    /// Returns the resident bytes of all tables, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.rows.resident_bytes() + self.flights.resident_bytes()
    }
}

/// Takes a large packet from the budget. Returns whether there was room.
fn pay(paid_until: &mut Nanos, now: Nanos) -> bool {
    let room = paid_until.since(now).0 <= COST.0 * (BURST - 1);
    if room {
        *paid_until = (*paid_until).max(now).plus(COST);
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Network, ZoneId};

    /// A hostile peer answers as late as it likes.
    #[test]
    fn the_answer_to_a_packet_of_a_larger_route_before_moves_no_hole() {
        let slot = SlotId(0);
        let address = IpAddr::from([10, 0, 0, 1]);
        let mut search = MtuSearch::new(4, 72, Nanos::from_millis(2_000), Nanos(0));
        search.reserve(1);
        search.apply(Change::Join { slot }, false);
        let (zone, network) = (ZoneId::UNKNOWN, Network::Pod);
        search.apply(Change::Probe { slot, address, zone, network, terminating: false }, true);
        let now = Nanos::from_millis(120_000);
        let sent = search.due(now, |_| Some(Route { address, mtu: 9_000 })).expect("a check");
        assert_eq!(sent.size, 9_000);
        let row = search.rows.get_mut(0).expect("the row of the slot");
        (row.state, row.path_mtu_bytes, row.full_bytes) = (PathState::HoleSilent, 1_400, 1_500);
        row.set_flow(sent.flow);
        assert!(search.answered((slot, sent.flow, sent.sequence), now));
        assert_eq!((search.path(slot).path_mtu_bytes, search.path(slot).has_hole()), (1_400, true));
    }
}
