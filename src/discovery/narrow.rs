//! Sits between a source that lists the whole mesh and the probe loop. It passes on the entries
//! that [`select`] has chosen, preceded by the [`MeshFacts`].
//!
//! The traps:
//! * A member that is absent for long is removed without a new list, and another must be probed
//!   instead. So the last list is kept while any member is absent.
//! * A DNS source lists addresses in place of names that it does not know yet. They are members
//!   only as long as they are listed.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::discovery::holder::mark_displaced;
use crate::discovery::members::{MemberId, Members};
use crate::discovery::ranks::{ListedMember, RankedBy, Ranks};
use crate::discovery::roster::Roster;
use crate::discovery::selection::{Selection, select};
use crate::discovery::update::{MeshFacts, Ourselves, PeerList, PeerSpec, Readiness, Update, Updates};
use crate::method::Network;

/// Runs a source and passes on what it sends, narrowed, until the receiver is closed
/// or the source ends. `ranked_by` says whether the source gives names.
pub async fn run<S: Future<Output = ()>>(
    source: impl FnOnce(Updates) -> S,
    ranked_by: RankedBy,
    ourselves: Ourselves,
    updates: Updates,
) {
    let (lists, mut received) = mpsc::channel(1);
    let mut narrow = Narrow::new(ourselves, ranked_by);
    let pass_on = async {
        while let Some(update) = received.recv().await {
            for update in narrow.update(update, Instant::now()) {
                if updates.send(update).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = source(lists) => {}
        () = pass_on => {}
        () = updates.closed() => {}
    }
}

/// Decides which entries pass. No I/O, no clock.
struct Narrow {
    ourselves: Ourselves,
    ranked_by: RankedBy,
    members: Members,
    /// The selection, and the version of the members that it is from.
    selection: Option<(u64, Selection)>,
    /// The facts of the last list, and those that were sent last.
    facts: Option<MeshFacts>,
    sent_facts: Option<MeshFacts>,
    /// The last roster, and the same while it is not sent yet.
    roster: Arc<Roster>,
    unsent_roster: Option<Arc<Roster>>,
    /// The last list, while any member is absent.
    kept: Option<PeerList>,
    /// Members of the last list whose name is their address.
    nameless: Vec<MemberId>,
    /// How many entries of the last list were left out.
    left_out: usize,
}

impl Narrow {
    fn new(ourselves: Ourselves, ranked_by: RankedBy) -> Self {
        let members = Members::new(ourselves.forget_after);
        Self {
            ourselves,
            ranked_by,
            members,
            selection: None,
            facts: None,
            sent_facts: None,
            roster: Arc::default(),
            unsent_roster: None,
            kept: None,
            nameless: Vec::new(),
            left_out: 0,
        }
    }

    /// Returns the updates to send instead, in order.
    fn update(&mut self, update: Update, now: Instant) -> impl Iterator<Item = Update> {
        let update = match update {
            Update::List(list) => Update::List(self.narrow(list, now)),
            Update::Amended(list) => Update::Amended(self.narrow(list, now)),
            Update::Confirmed if self.members.expire(now) => match self.kept.take() {
                Some(list) => Update::List(self.narrow(list, now)),
                None => Update::Confirmed,
            },
            other => other,
        };
        let facts = self.facts.filter(|facts| self.sent_facts.replace(*facts) != Some(*facts));
        let roster = self.unsent_roster.take().map(Update::Roster);
        facts.map(Update::Mesh).into_iter().chain(roster).chain([update])
    }

    /// Takes a complete list. Returns the entries to be probed and our own entries.
    fn narrow(&mut self, mut list: PeerList, now: Instant) -> PeerList {
        // Before a part of the list is left out: it may hold the addresses of the rest.
        mark_displaced(&mut list.peers);
        if self.ourselves.max_peers == 0 {
            // All nodes are probed, so no member needs to be remembered.
            self.facts = Some(full_mesh(&list, &self.ourselves));
            self.make_roster(&list.peers, false);
            return list;
        }
        let mut peers = list.peers;
        let ids: Vec<Option<MemberId>> =
            peers.iter().map(|spec| self.members.put(&spec.node, spec.zone.as_deref())).collect();
        // Our list may lack ourselves, but the lists of other agents have us.
        let is_listed = peers.iter().any(|spec| spec.node == self.ourselves.node);
        let own_zone = if is_listed { None } else { self.ourselves.zone.as_deref() };
        let own = self.members.put(&self.ourselves.node, own_zone);
        let mut listed: Vec<MemberId> = ids.iter().flatten().copied().collect();
        listed.sort_unstable();
        let nameless = peers.iter().zip(&ids).filter(|(spec, _)| spec.is_nameless()).filter_map(|(_, id)| *id);
        let mut gone = std::mem::replace(&mut self.nameless, nameless.collect());
        gone.retain(|id| listed.binary_search(id).is_err());
        gone.sort_unstable();
        self.members.remove(&gone);
        self.members.listed(listed.into_iter().chain(own), now);
        self.warn_left_out(ids.iter().filter(|id| id.is_none()).count());
        self.kept = self.members.any_absent().then(|| PeerList { peers: peers.clone() });
        let is_partial = self.select().is_partial();
        self.make_roster(&peers, is_partial);
        let selection = self.select();
        let mut chosen = ids.iter().map(|id| id.is_some_and(|id| Some(id) == own || selection.contains(id)));
        peers.retain(|_| chosen.next().unwrap_or(false));
        peers.shrink_to_fit();
        PeerList { peers }
    }

    /// Makes the roster of a list, if it differs from the last. It has the addresses of all if only
    /// a part of the list passes.
    fn make_roster<'a>(&mut self, peers: &'a [PeerSpec], is_partial: bool) {
        let pods = peers.iter().filter(|spec| spec.network == Network::Pod);
        // A pod that terminates is about to stop, and judges no more.
        let staying = pods.clone().filter(|spec| spec.readiness != Readiness::Terminating);
        let listed = |spec: &'a PeerSpec| {
            let PeerSpec { node, address, http_port, zone, .. } = spec;
            ListedMember { node, address: *address, http_port: *http_port, zone: zone.as_deref() }
        };
        let Ourselves { node, addresses, .. } = &self.ourselves;
        let ranks = Ranks::new(staying.map(listed), self.ranked_by, (node, addresses));
        let beyond = is_partial.then(|| pods.map(listed));
        if let Some(roster) = self.roster.next(ranks, beyond) {
            self.roster = Arc::clone(&roster);
            self.unsent_roster = Some(roster);
        }
    }

    /// Returns the selection of the present members, and sets its facts.
    fn select(&mut self) -> &Selection {
        let (version, own) = (self.members.version(), &self.ourselves);
        let known = self.selection.take().filter(|(computed, _)| *computed == version);
        let made = || (version, select(&self.members, &own.node, own.zone.as_deref(), own.max_peers));
        let (_, selection) = self.selection.insert(known.unwrap_or_else(made));
        self.facts = Some(selection.facts());
        selection
    }

    fn warn_left_out(&mut self, left_out: usize) {
        if left_out > 0 && left_out != self.left_out {
            log::warn!("{left_out} entries of the list left out: the table of nodes is full");
        }
        self.left_out = left_out;
    }
}

/// Facts if all others are probed: every listed node watches us.
fn full_mesh(list: &PeerList, ourselves: &Ourselves) -> MeshFacts {
    let own = list.peers.iter().filter(|spec| spec.node == ourselves.node).find_map(|spec| spec.zone.as_deref());
    let own_zone = own.or(ourselves.zone.as_deref());
    let mut seen = HashSet::new();
    let others = list.peers.iter().filter(|spec| spec.node != ourselves.node && seen.insert(spec.node.as_str()));
    let mut facts = MeshFacts { members: 1, ..MeshFacts::default() };
    for other in others {
        facts.members += 1;
        let same = other.zone.as_deref() == own_zone;
        *(if same { &mut facts.watchers_in_zone } else { &mut facts.watchers_elsewhere }) += 1;
    }
    facts
}

#[cfg(test)]
mod tests;
