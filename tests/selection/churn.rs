//! The changes when one node joins or leaves: the pairs of a watcher and a target that are in one
//! of the two meshes and not in the other.
//!
//! A node that joins brings k pairs as a watcher and k on average as a target. The watchers that
//! take it as a target give up k others. So 3 k is the minimum. The rest has two causes. Some
//! watchers must find other targets because of the change. A few nodes newly become watchers of the
//! largest zone. The number does not grow with the mesh, except where one zone needs exactly what
//! the other zones' watchers can give.

use kube_canary::discovery::{MemberId, Scheme};

use crate::cluster::{Cluster, Random, between, changed, pairs};
use crate::leaks::NoLeaks;

/// Mean and maximum of the changed pairs, in units of k, as nodes join and leave in turn.
fn changes(sizes: &[usize], k: usize, times: usize, random: &mut Random) -> (f64, f64) {
    let mut members = Cluster::of(sizes, k, false, random.next()).members();
    let mut before = pairs(&Scheme::new(&members, k));
    let mut changes = Vec::new();
    for time in 0..times {
        // The numbers have no gap, because each node that joins takes the number of one that left.
        let chosen = MemberId(u16::try_from(between(random, 0, members.len() - 1)).expect("small"));
        if time % 2 == 0 {
            // A zone is chosen with a probability proportional to its size.
            let zone = members.zone(chosen).map(str::to_owned);
            members.put(&format!("joined-{time}"), zone.as_deref()).expect("room");
        } else {
            members.remove(&[chosen]);
        }
        let after = pairs(&Scheme::new(&members, k));
        changes.push(changed(&before, &after));
        before = after;
    }
    let most = changes.iter().max().copied().unwrap_or(0);
    (changes.iter().sum::<usize>() as f64 / times as f64 / k as f64, most as f64 / k as f64)
}

/// The bounds are above all measured values. They are wider where one zone is large, because a
/// single change may move many pairs there. Three times k is the least that a join can change.
#[test]
fn one_node_that_joins_or_leaves_changes_few_pairs() {
    let mut random = Random(5);
    for (sizes, k, times, mean, most) in [
        (&[1_000][..], 24, 40, 3.5, 4.0),
        (&[334, 333, 333], 24, 40, 4.0, 6.0),
        (&[1_667, 1_667, 1_666], 24, 8, 4.0, 6.0),
        (&[334, 333, 333], 8, 40, 4.5, 8.0),
        (&[334, 333, 333], 64, 20, 4.0, 6.0),
        (&[15, 15, 15], 24, 40, 4.0, 6.0),
        (&[600, 300, 100], 24, 40, 6.0, 12.0),
        (&[700, 300], 24, 40, 7.5, 16.0),
        (&[750, 250], 24, 40, 7.5, 16.0),
        (&[3_750, 1_250], 24, 8, 7.5, 16.0),
        // The other zones' watchers can give exactly what it needs.
        (&[800, 100, 100], 24, 40, 20.0, 60.0),
        (&[950, 50], 24, 40, 6.0, 16.0),
    ] {
        // Leaks are not checked while the result is printed, because the harness keeps the output.
        let no_leaks = NoLeaks::here();
        let changed = changes(sizes, k, times, &mut random);
        drop(no_leaks);
        println!("k = {k}, zones of {sizes:?}: {:.1} k pairs change on average, {:.1} k at most", changed.0, changed.1);
        assert!(changed.0 <= mean && changed.1 <= most, "{sizes:?}, k = {k}: {changed:?}");
    }
}
