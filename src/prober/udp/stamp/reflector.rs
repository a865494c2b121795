//! The reflector: decides which requests of other agents are answered, and counts them.
//!
//! It answers members alone, each at a bounded rate, and never with more bytes than it was asked
//! with. So a pod that forges the address of a member can make us send that member no more than it
//! sends itself.
//!
//! A session is an address and an SSID, whatever the source port. All flows of a pair of agents
//! share it. The reflector is stateful: it counts the answers of each session (RFC 8762, section
//! 4). With the next answer, the sender learns how many of its unanswered requests had arrived.
//!
//! An agent has two sessions, whose SSIDs differ in the last bit alone: one for its probes, and one
//! for traces and the search for the path MTU. Such a *pair* has a place with a rate of its own. It
//! loses the place only after it was idle. So a pod that forges the address of a member takes no
//! answers of it, unless it guesses 15 bits.
//!
//! A pod can take all places of a member with two packets, right after our start. So the pairs
//! without a place are answered as well. They are divided among the shares of the rest by a secret
//! hash, and each share has the rate of a place. A pod that forges many sessions spreads them over
//! all shares, and cannot aim at that of the member. Rejected: one rate for all pairs without a
//! place, of which the forged ones had nearly all.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};

use super::answer::{self, Reflection};
use super::members::MemberSet;
use super::packet::{ASKING_REQUEST_BYTES, BASE_BYTES, CHECK_REQUEST_BYTES, REQUEST_BYTES, asks, field};
use super::returned;
use super::strangers::{HeardInHalves, StrangerTable};
use crate::limits::{
    STAMP_ANSWER_BYTES_MAX, STAMP_BURST_MAX, STAMP_PAIR_KEPT, STAMP_PAIRS_MAX, STAMP_RATE_MAX, STAMP_SHARES,
};
use crate::report::Stranger;
use crate::units::Nanos;

/// Half of the window of [`Reflector::heard`] until [`Reflector::set_halves`].
const HALF: Nanos = Nanos::from_millis(30_000);
/// Time in which one more request of a pair is granted.
const GRANT: u64 = 1_000_000_000 / STAMP_RATE_MAX;
/// How far grants may be used up ahead of time.
const BURST: Nanos = Nanos(GRANT * (STAMP_BURST_MAX - 1));

/// Why a request gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The source is no member.
    NotAMember,
    /// The member has sent too many.
    TooOften,
    /// It is no request: too short, or sent from the port of a reflector. Two reflectors would
    /// answer each other for ever.
    Malformed,
}

/// Numbers of requests without an answer, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// See [`Refused::NotAMember`].
    pub not_a_member: u64,
    /// See [`Refused::TooOften`].
    pub too_often: u64,
    /// See [`Refused::Malformed`].
    pub malformed: u64,
}

impl Refusals {
    /// Returns the number of all requests without an answer.
    pub const fn sum(self) -> u64 {
        self.not_a_member + self.too_often + self.malformed
    }

    /// Counts a request without an answer. Returns the reason.
    fn note(&mut self, reason: Refused) -> Refused {
        let counter = match reason {
            Refused::NotAMember => &mut self.not_a_member,
            Refused::TooOften => &mut self.too_often,
            Refused::Malformed => &mut self.malformed,
        };
        *counter += 1;
        reason
    }
}

/// When all that was granted is granted again: the virtual time of a token bucket. Zero if nothing
/// was granted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct FullAt(Nanos);

/// What is kept of a member that has sent a request: 48 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Watcher {
    /// By place. Zero if the place was never taken.
    full_at: [FullAt; STAMP_PAIRS_MAX],
    /// By place, the number of answers to each of the two sessions, modulo 2^32. Behind them, that
    /// of all sessions without a place.
    answers: [u32; 2 * STAMP_PAIRS_MAX + 1],
    /// By place, an SSID of the pair.
    ssids: [u16; STAMP_PAIRS_MAX],
    heard: HeardInHalves,
}

/// The grid of the halves of the window of [`Reflector::heard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HalvesGrid {
    /// When the first half began.
    begun: Nanos,
    half: Nanos,
}

impl HalvesGrid {
    /// Returns the number of the half at `now`.
    fn number(self, now: Nanos) -> u32 {
        u32::try_from(now.since(self.begun).0 / self.half.0).unwrap_or(u32::MAX)
    }
}

/// Decides on requests and writes their answers.
#[derive(Debug)]
pub struct Reflector {
    /// Port of the reflectors of the mesh, and so ours.
    port: u16,
    halves: HalvesGrid,
    /// How long an idle pair keeps its place.
    kept: Nanos,
    members: MemberSet<Watcher>,
    /// What is granted to pairs without a place.
    shares: [FullAt; STAMP_SHARES],
    /// Key of the hash that gives a pair its share. It is never sent.
    key: RandomState,
    answered: u64,
    refusals: Refusals,
    strangers: StrangerTable,
}

impl Reflector {
    /// Makes a reflector without members, for a socket at `port`.
    pub fn new(port: u16, now: Nanos) -> Self {
        let halves = HalvesGrid { begun: now, half: HALF };
        Self {
            port,
            halves,
            kept: STAMP_PAIR_KEPT.into(),
            members: MemberSet::new(),
            shares: [FullAt::default(); STAMP_SHARES],
            key: RandomState::new(),
            answered: 0,
            refusals: Refusals::default(),
            strangers: StrangerTable::default(),
        }
    }

    /// Makes places be kept for four intervals between the probes of a member, if these are longer
    /// than [`STAMP_PAIR_KEPT`].
    #[must_use]
    pub fn for_interval(mut self, interval: Nanos) -> Self {
        self.kept = self.kept.max(Nanos(4 * interval.0));
        self
    }

    /// Sets the grid of the window of [`Reflector::heard`]. It is that of the prober's recent
    /// window, so that a report has both counts of the same time. Counts of another grid are
    /// dropped.
    pub fn set_halves(&mut self, begun: Nanos, half: Nanos) {
        self.halves = HalvesGrid { begun, half: half.max(Nanos(1)) };
    }

    /// Replaces the members. Sessions and counts of those that stay are kept. Returns whether all
    /// had room. Further ones get no answers.
    pub fn set_members(&mut self, members: impl Iterator<Item = IpAddr>) -> bool {
        self.members.set(members)
    }

    /// Writes the answer to the UDP payload `request` into the beginning of `out`, and returns its
    /// length. It is never longer than the request. `request` may be cut after more than
    /// [`STAMP_ANSWER_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// Why there is no answer. It is counted.
    pub fn answer(
        &mut self,
        from: SocketAddr,
        request: &[u8],
        with: &Reflection,
        now: Nanos,
        out: &mut [u8; STAMP_ANSWER_BYTES_MAX],
    ) -> Result<usize, Refused> {
        if !self.members.has(from.ip()) {
            if let (Some(ssid), Some(sequence)) = (field(request, 14), field(request, 0)) {
                let ssid = u16::from_be_bytes(ssid);
                if request.len() == CHECK_REQUEST_BYTES {
                    returned::note(ssid, u32::from_be_bytes(sequence));
                } else if request.len() >= BASE_BYTES && is_probe(request) {
                    self.strangers.note(from.ip(), ssid, self.halves.number(now));
                }
            }
            return Err(self.refusals.note(Refused::NotAMember));
        }
        if request.len() < BASE_BYTES || from.port() == self.port || from.port() == 0 {
            return Err(self.refusals.note(Refused::Malformed));
        }
        let ssid = field(request, 14).map(u16::from_be_bytes);
        let ssid = ssid.ok_or_else(|| self.refusals.note(Refused::Malformed))?;
        let watcher = self.members.entry(from.ip()).ok_or_else(|| self.refusals.note(Refused::NotAMember))?;
        let place = watcher.place(ssid, now, self.kept);
        let (full_at, count) = match place {
            Some(place) => (&mut watcher.full_at[place], 2 * place + usize::from(ssid & 1)),
            None => (share(&mut self.shares, &self.key, from.ip(), ssid), 2 * STAMP_PAIRS_MAX),
        };
        if !full_at.grant(now) {
            return Err(self.refusals.note(Refused::TooOften));
        }
        let answers = &mut watcher.answers[count];
        let bytes = answer::write(out, request, *answers, with);
        let bytes = bytes.ok_or_else(|| self.refusals.note(Refused::Malformed))?;
        *answers = answers.wrapping_add(1);
        if is_probe(request) {
            watcher.heard.note(self.halves.number(now));
        }
        self.answered += 1;
        Ok(bytes)
    }

    /// Returns what has come from strangers in the recent window.
    pub fn strangers(&self, now: Nanos) -> impl Iterator<Item = Stranger> {
        self.strangers.list(self.halves.number(now))
    }

    /// Returns the number of requests that were answered.
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// Returns the numbers of requests that were not.
    pub const fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Returns how many probes of a member were answered in the recent window.
    pub fn heard(&mut self, member: IpAddr, now: Nanos) -> u32 {
        self.members.get(member).map_or(0, |watcher| watcher.heard.sum(self.halves.number(now)))
    }

    /// Returns the bytes of memory that are resident.
    pub fn resident_bytes(&self) -> usize {
        self.members.resident_bytes()
    }
}

impl FullAt {
    /// Takes a grant. Returns whether there was one.
    fn grant(&mut self, now: Nanos) -> bool {
        let Self(full_at) = self;
        if *full_at > now.plus(BURST) {
            return false;
        }
        *full_at = (*full_at).max(now).plus(Nanos(GRANT));
        true
    }

    /// Whether nothing was granted for this time, or ever.
    fn is_idle(self, now: Nanos, time: Nanos) -> bool {
        self == Self::default() || self.0.plus(time) <= now
    }
}

/// Whether a request is a probe in turn. Longer ones that do not ask which node answers are extra
/// probes, and packets of traces and of the search for the path MTU. Longer ones that do are those
/// of checks.
fn is_probe(request: &[u8]) -> bool {
    request.len() <= REQUEST_BYTES || (request.len() == ASKING_REQUEST_BYTES && asks(request))
}

/// Returns the share of a pair of sessions without a place.
fn share<'a>(shares: &'a mut [FullAt; STAMP_SHARES], key: &RandomState, address: IpAddr, ssid: u16) -> &'a mut FullAt {
    let hash = key.hash_one((address.to_canonical(), ssid >> 1));
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
    let at = hash as usize % STAMP_SHARES;
    &mut shares[at]
}

impl Watcher {
    /// Returns the place of a session's pair. A new pair takes a place that was never taken, or the
    /// one that is idle for the longest time, but at least for `kept`. `None` if there is none.
    fn place(&mut self, ssid: u16, now: Nanos, kept: Nanos) -> Option<usize> {
        let is_of_pair = |place: &usize| self.full_at[*place] > FullAt::default() && self.ssids[*place] ^ ssid <= 1;
        if let Some(place) = (0..STAMP_PAIRS_MAX).find(is_of_pair) {
            return Some(place);
        }
        let oldest = (0..STAMP_PAIRS_MAX).min_by_key(|place| self.full_at[*place]);
        let place = oldest.filter(|place| self.full_at[*place].is_idle(now, kept))?;
        self.ssids[place] = ssid;
        self.answers[2 * place..][..2].fill(0);
        Some(place)
    }
}

#[cfg(test)]
mod tests;
