//! What changes when one node joins or leaves: the pairs of a watcher and a target that are in one mesh and not in the other.
//!
//! A node that joins brings k pairs as a watcher and k on average as a target, and those who take it up let go of k others: 3 k
//! is the least that can be. The rest is those who must look further because of it.

use crate::cluster::{Cluster, Random, between, changed, pairs};
use crate::leaks::NoLeaks;
use kube_canary::discovery::{MemberId, Scheme};

/// Mean and maximum of the changed pairs, over joins of `trials` nodes one after the other; a leave is the same backwards.
fn joins(sizes: &[usize], k: usize, trials: usize, random: &mut Random) -> (f64, usize) {
    let mut members = Cluster::of(sizes, k, false, random.next()).members();
    let mut before = pairs(&Scheme::of(&members, k));
    let changes: Vec<usize> = (0..trials)
        .map(|trial| {
            let neighbour = MemberId(u16::try_from(between(random, 0, members.len() - 1)).expect("small"));
            let zone = members.zone(neighbour).map(str::to_owned);
            members.put(&format!("joined-{trial}"), zone.as_deref()).expect("room");
            let after = pairs(&Scheme::of(&members, k));
            let changed = changed(&before, &after);
            before = after;
            changed
        })
        .collect();
    (changes.iter().sum::<usize>() as f64 / trials as f64, changes.into_iter().max().unwrap_or(0))
}
