//! The selection's properties, over random clusters.

mod churn;
mod cluster;
#[path = "../common/leaks.rs"]
mod leaks;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cluster::{Cluster, Random, between, named, pairs};
use kube_canary::discovery::{MemberId, Members, MeshFacts, Scheme, select};
use leaks::NoLeaks;

const CLUSTERS: usize = 1_000;

/// Most clusters are small, where one node is a large part. Some are as large as a cluster can be.
fn nodes(random: &mut Random, number: usize) -> usize {
    match number % 100 {
        0 if number.is_multiple_of(200) => 5_000,
        0 => between(random, 1_000, 5_000),
        1..5 => between(random, 200, 1_000),
        5..60 => between(random, 40, 200),
        _ => between(random, 2, 90),
    }
}

/// The number of watchers of each node: from its own zone, and from others.
fn watchers(members: &Members, pairs: &[(MemberId, MemberId)]) -> Vec<(usize, usize)> {
    let mut watchers = vec![(0, 0); members.len()];
    for (watcher, target) in pairs {
        let of = &mut watchers[usize::from(target.0)];
        *(if members.zone(*watcher) == members.zone(*target) { &mut of.0 } else { &mut of.1 }) += 1;
    }
    watchers
}

fn check(cluster: &Cluster, random: &mut Random) {
    let (members, n, k) = (cluster.members(), cluster.len(), cluster.k);
    let scheme = Scheme::new(&members, k);
    let pairs = pairs(&scheme);
    let targets = k.min(n - 1);
    assert_eq!(pairs.len(), n * targets, "k on average");
    assert!(pairs.windows(2).all(|two| two[0] != two[1]), "none twice");
    assert!(pairs.iter().all(|(watcher, target)| watcher != target), "none watches itself");
    let chosen: Vec<&[(MemberId, MemberId)]> = pairs.chunk_by(|a, b| a.0 == b.0).collect();
    assert!(chosen.len() == n && chosen.iter().all(|of_one| of_one.len() == targets), "k, neither more nor fewer");

    let watchers = watchers(&members, &pairs);
    let (largest, zones) = cluster.largest_zone();
    let (owed, owed_elsewhere) = (targets.div_ceil(2), targets.div_ceil(4));
    assert!(watchers.iter().all(|(own, other)| own + other >= owed), "half of k watch each");
    let missing: usize = watchers.iter().map(|(_, other)| owed_elsewhere.saturating_sub(*other)).sum();
    if n > k + 1 && zones > 1 {
        // A node outside the largest zone watches at most k nodes of it, and none of them twice.
        let others = n - largest;
        let cannot_be_had = (owed_elsewhere * largest).saturating_sub(others * k.min(largest));
        let cannot_be_had = cannot_be_had.max(largest * owed_elsewhere.saturating_sub(others));
        assert_eq!(missing, cannot_be_had, "a quarter of k from other zones watch each, as far as can be");
        assert!(
            missing == 0 || 4 * largest > 3 * n || k == 5,
            "three quarters of the nodes can have it, but for ⌈5/4⌉"
        );
    }

    let facts = |number: usize| {
        let (own, other) = watchers[number];
        let missing = |owed: usize, has: usize| if n <= k + 1 { 0 } else { owed.saturating_sub(has) };
        let elsewhere = if zones == 1 { 0 } else { missing(owed_elsewhere, other) };
        [n, own, other, missing(owed, own + other), elsewhere].map(|figure| u32::try_from(figure).expect("small"))
    };
    let sample: Vec<usize> =
        if n <= 100 { (0..n).collect() } else { (0..20).map(|_| between(random, 0, n - 1)).collect() };
    for (asked, number) in sample.into_iter().enumerate() {
        let id = MemberId(u16::try_from(number).expect("small"));
        let of_one = || chosen[number].iter().map(|(_, target)| *target);
        let mut by_scheme = scheme.chosen_by(id);
        by_scheme.sort_unstable();
        assert!(by_scheme.into_iter().eq(of_one()));
        assert!(n <= k + 1 || figures(scheme.facts(id)) == facts(number), "the reported figures are right");
        // Each of these makes a new scheme.
        if asked < 3 {
            let selection = select(&members, members.name(id), None, k);
            assert!(members_of(&members).filter(|other| selection.contains(*other)).eq(of_one()));
            assert_eq!(figures(selection.facts()), facts(number));
        }
    }
}

fn figures(facts: MeshFacts) -> [u32; 5] {
    let MeshFacts { members, watchers_in_zone, watchers_elsewhere, watchers_missing, watchers_missing_elsewhere } =
        facts;
    [members, watchers_in_zone, watchers_elsewhere, watchers_missing, watchers_missing_elsewhere]
}

#[test]
fn every_node_is_watched_by_half_of_k_and_by_a_quarter_from_other_zones_in_a_thousand_clusters() {
    let no_leaks = NoLeaks::here();
    let (mut random, mut seen) = (Random(1), [0; 3]);
    for number in 0..CLUSTERS {
        let nodes = nodes(&mut random, number);
        let cluster = Cluster::random(&mut random, nodes);
        let (largest, zones) = cluster.largest_zone();
        seen[0] += usize::from(nodes > cluster.k + 1);
        seen[1] += usize::from(nodes > cluster.k + 1 && zones > 1 && 4 * largest <= 3 * nodes);
        seen[2] += usize::from(nodes > cluster.k + 1 && zones > 1 && 5 * largest > 4 * nodes);
        let shape = format!("cluster {number}: {nodes} nodes, k = {}, largest zone {largest} of {zones}", cluster.k);
        let checked = catch_unwind(AssertUnwindSafe(|| check(&cluster, &mut random)));
        assert!(checked.is_ok(), "{shape}");
    }
    // The check comes before the output, because the harness keeps the output.
    drop(no_leaks);
    println!(
        "{} of {CLUSTERS} are no full mesh: {} without a dominant zone, {} with more than 80 % in one",
        seen[0], seen[1], seen[2]
    );
    assert!(seen.iter().all(|seen| *seen >= 50), "the clusters are of all kinds: {seen:?}");
}

#[test]
fn the_order_of_the_list_and_earlier_members_do_not_matter() {
    let _no_leaks = NoLeaks::here();
    let mut random = Random(2);
    let mut clusters = [10, 30, 60, 100, 150, 400, 1_500].map(|nodes| Cluster::random(&mut random, nodes)).to_vec();
    // Here zones are racks.
    clusters.push(Cluster::of(&[12; 250], 24, false, 2));
    for cluster in clusters {
        let members = cluster.members();
        let others = Cluster::random(&mut random, 50).nodes;
        let mut later = Members::new(std::time::Duration::ZERO);
        for (node, zone) in others.iter().chain(&cluster.shuffled(&mut random).nodes) {
            later.put(node, zone.as_deref()).expect("room");
        }
        let listed: Vec<MemberId> = cluster.nodes.iter().map(|(node, _)| later.find(node).expect("a member")).collect();
        later.listed(listed.into_iter(), tokio::time::Instant::now());
        assert_eq!(later.len(), cluster.len(), "the others are forgotten at once");
        assert_eq!(named(&members, cluster.k), named(&later, cluster.k));
    }
}

#[test]
fn a_node_that_is_no_member_selects_as_if_it_were() {
    let _no_leaks = NoLeaks::here();
    let mut random = Random(3);
    for nodes in [3, 40, 80, 200] {
        let cluster = Cluster { k: 12, ..Cluster::random(&mut random, nodes) };
        let whole = cluster.members();
        for _ in 0..10 {
            let mut without = cluster.clone();
            let (own, zone) = without.nodes.swap_remove(between(&mut random, 0, nodes - 1));
            let members = without.members();
            let (as_member, alone) =
                (select(&whole, &own, None, cluster.k), select(&members, &own, zone.as_deref(), cluster.k));
            assert_eq!(alone.facts(), as_member.facts());
            for (node, _) in &without.nodes {
                let ids = (members.find(node).expect("a member"), whole.find(node).expect("a member"));
                assert_eq!(alone.contains(ids.0), as_member.contains(ids.1), "{node}");
            }
        }
    }
}

/// The shortfall is what the other zones' watchers cannot give. Each node computes its own part.
#[test]
fn missing_watchers_are_reported_if_one_zone_has_more_than_four_fifths() {
    let _no_leaks = NoLeaks::here();
    for (sizes, k, expected) in [
        (&[850, 150][..], 24, 6 * 850 - 24 * 150),
        (&[990, 5, 5], 24, 6 * 990 - 24 * 10),
        (&[4_200, 300, 500], 24, 6 * 4_200 - 24 * 800),
        (&[1_000], 24, 0),
    ] {
        let members = Cluster::of(sizes, k, false, 4).members();
        let scheme = Scheme::new(&members, k);
        let facts: Vec<MeshFacts> = members_of(&members).map(|id| scheme.facts(id)).collect();
        assert!(facts.iter().all(|facts| facts.watchers_missing == 0), "half of k is had within the zone");
        let missing: u32 = facts.iter().map(|facts| facts.watchers_missing_elsewhere).sum();
        assert_eq!(missing, expected, "{sizes:?}");
    }
}

fn members_of(members: &Members) -> impl Iterator<Item = MemberId> {
    (0..members.len()).map(|number| MemberId(u16::try_from(number).expect("small")))
}
