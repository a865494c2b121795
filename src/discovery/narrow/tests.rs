use super::*;
use std::time::Duration;

const FORGET_AFTER: Duration = Duration::from_mins(1);

fn narrow(max_peers: usize) -> Narrow {
    let (node, zone) = ("n0".into(), Some("z0".into()));
    Narrow::new(Ourselves { node, zone, max_peers, forget_after: FORGET_AFTER, ..Ourselves::default() }, RankedBy::Name)
}

fn spec(number: usize) -> PeerSpec {
    let address = [10, 0, u8::try_from(number / 256).unwrap(), u8::try_from(number % 256).unwrap()];
    let zone = Some(format!("z{}", number % 3));
    PeerSpec { zone, http_port: Some(9_877), ..PeerSpec::pod(format!("n{number}"), address.into()) }
}

fn list(numbers: impl IntoIterator<Item = usize>) -> Update {
    Update::List(PeerList { peers: numbers.into_iter().map(spec).collect() })
}

/// Returns what passes: the facts, if any, and the list.
fn passed(narrow: &mut Narrow, update: Update, now: Instant) -> (Option<MeshFacts>, Vec<PeerSpec>) {
    let (mut facts, mut peers) = (None, None);
    for update in narrow.update(update, now) {
        match update {
            Update::Mesh(mesh) if peers.is_none() => facts = Some(mesh),
            Update::Roster(_) if peers.is_none() => {}
            Update::List(list) => peers = Some(list.peers),
            other => panic!("{other:?}"),
        }
    }
    (facts, peers.expect("a list"))
}

fn nodes(peers: &[PeerSpec]) -> Vec<&str> {
    peers.iter().map(|spec| spec.node.as_str()).collect()
}

#[test]
fn a_small_mesh_passes_whole_and_its_facts_are_sent_once() {
    let mut narrow = narrow(4);
    let (facts, peers) = passed(&mut narrow, list(0..5), Instant::now());
    assert_eq!(nodes(&peers), ["n0", "n1", "n2", "n3", "n4"], "our own entry tells our zone");
    let expected = MeshFacts { members: 5, watchers_in_zone: 1, watchers_elsewhere: 3, ..MeshFacts::default() };
    assert_eq!(facts, Some(expected));
    assert_eq!(passed(&mut narrow, list(0..5), Instant::now()), (None, peers));
}

#[test]
fn an_amended_list_is_narrowed_and_confirms_nothing() {
    let now = Instant::now();
    for max_peers in [0, 6] {
        let mut narrow = narrow(max_peers);
        let (_, before) = passed(&mut narrow, list(0..40), now);
        let Update::List(amended) = list(0..41) else { unreachable!() };
        let updates: Vec<_> = narrow.update(Update::Amended(amended), now).collect();
        let [Update::Mesh(facts), Update::Roster(roster), Update::Amended(after)] = &updates[..] else {
            panic!("{updates:?}")
        };
        assert_eq!(roster.bytes() > 0, max_peers > 0, "{roster:?}");
        assert_eq!(facts.members, 41);
        let expected = if max_peers == 0 { 41 } else { before.len() };
        assert_eq!(after.peers.len(), expected);
    }
}

#[test]
fn max_peers_nodes_of_a_large_mesh_pass_with_all_their_addresses() {
    let mut narrow = narrow(6);
    let both = (0..40).flat_map(|number| {
        let ipv6 = PeerSpec { address: format!("fd00::{number}").parse().unwrap(), ..spec(number) };
        [spec(number), ipv6]
    });
    let whole: Vec<PeerSpec> = both.collect();
    let (facts, peers) = passed(&mut narrow, Update::List(PeerList { peers: whole.clone() }), Instant::now());
    assert_eq!(peers.len(), 2 * 7, "six, and our own");
    assert!(peers.chunks(2).all(|of_one| of_one[0].node == of_one[1].node));
    let in_order: Vec<&PeerSpec> = whole.iter().filter(|spec| peers.contains(spec)).collect();
    assert_eq!(peers.iter().collect::<Vec<_>>(), in_order, "the order stays");
    let facts = facts.unwrap();
    assert_eq!((facts.members, facts.watchers_missing, facts.watchers_missing_elsewhere), (40, 0, 0));
    assert!(facts.watchers_in_zone + facts.watchers_elsewhere >= 3 && facts.watchers_elsewhere >= 2);
}

#[test]
fn the_roster_has_ranks_and_the_members_that_do_not_pass_but_no_address_if_all_do() {
    let (mut narrow, now) = (narrow(6), Instant::now());
    let mut roster = |numbers| {
        let mut found = narrow.update(list(numbers), now).filter_map(|update| match update {
            Update::Roster(roster) => Some(roster),
            _ => None,
        });
        let roster = found.next();
        assert!(found.next().is_none());
        roster
    };
    assert!(roster(0..5).is_some_and(|roster| roster.bytes() == 0 && *roster.ranks() != Ranks::default()));
    assert!(roster(0..5).is_none(), "nothing changes");
    let partial = roster(0..40).unwrap();
    for number in 0..40 {
        assert_eq!(partial.address(&format!("n{number}")), Some(spec(number).address));
    }
    assert_eq!(partial.address("n40"), None);
    // Absent members stay members for a while, but have no address.
    assert!(roster(0..5).is_some_and(|roster| roster.address("n3").is_some() && roster.address("n9").is_none()));
}

#[test]
fn without_a_bound_all_pass_and_no_members_are_kept() {
    let mut narrow = narrow(0);
    let (facts, peers) = passed(&mut narrow, list(0..300), Instant::now());
    assert_eq!((peers.len(), narrow.members.len()), (300, 0));
    let expected = MeshFacts { members: 300, watchers_in_zone: 99, watchers_elsewhere: 200, ..MeshFacts::default() };
    assert_eq!(facts, Some(expected));
    let (facts, _) = passed(&mut narrow, list(0..299), Instant::now());
    assert_eq!(facts.unwrap().members, 299);
}

#[test]
fn a_list_without_ourselves_is_narrowed_as_with_us() {
    let now = Instant::now();
    let (with_us, peers_with_us) = passed(&mut narrow(6), list(0..40), now);
    let (without_us, peers) = passed(&mut narrow(6), list(1..40), now);
    assert_eq!(without_us, with_us, "the zone is the configured one then");
    assert_eq!(nodes(&peers), nodes(&peers_with_us)[1..]);
}

#[test]
fn a_rollout_of_all_pods_changes_no_selection() {
    let (mut narrow, start) = (narrow(6), Instant::now());
    let (_, peers) = passed(&mut narrow, list(0..40), start);
    for gone in 0..40 {
        let now = start + Duration::from_secs(gone as u64);
        let (facts, without) = passed(&mut narrow, list((0..40).filter(|number| *number != gone)), now);
        assert_eq!(facts, None);
        let expected: Vec<&str> = nodes(&peers).into_iter().filter(|node| *node != format!("n{gone}")).collect();
        assert_eq!(nodes(&without), expected);
    }
    assert_eq!(passed(&mut narrow, list(0..40), start + Duration::from_secs(40)), (None, peers));
}

#[test]
fn an_absent_member_is_replaced_at_a_confirmation_without_a_new_list() {
    let (mut narrow, start) = (narrow(6), Instant::now());
    let (_, peers) = passed(&mut narrow, list(0..40), start);
    let gone: usize = nodes(&peers)[1][1..].parse().unwrap();
    let (_, five) = passed(&mut narrow, list((0..40).filter(|number| *number != gone)), start);
    assert_eq!(five.len(), 6, "five, and our own");
    let soon = narrow.update(Update::Confirmed, start + FORGET_AFTER / 2);
    assert!(matches!(soon.collect::<Vec<_>>()[..], [Update::Confirmed]));
    let (facts, replaced) = passed(&mut narrow, Update::Confirmed, start + FORGET_AFTER);
    assert_eq!((facts.unwrap().members, replaced.len()), (39, 7));
    let fresh = (0..40).filter(|number| *number != gone).map(spec).collect();
    let (_, expected) = passed(&mut self::narrow(6), Update::List(PeerList { peers: fresh }), start);
    assert_eq!(replaced, expected, "the same as of an agent that starts now");
    assert!(narrow.kept.is_none(), "no member is absent any more");
}

#[test]
fn an_address_in_the_place_of_a_name_is_a_member_only_while_it_is_listed() {
    let (mut narrow, now) = (narrow(6), Instant::now());
    let unnamed = |number| PeerSpec { node: spec(number).address.to_string(), zone: None, ..spec(number) };
    let first = (0..20).map(spec).chain((20..40).map(unnamed)).collect();
    passed(&mut narrow, Update::List(PeerList { peers: first }), now);
    let named = passed(&mut narrow, list(0..40), now).1;
    assert_eq!(narrow.members.len(), 40);
    assert_eq!(named, passed(&mut self::narrow(6), list(0..40), now).1);
}

/// Each removal is a walk over all members. As many addresses may get a name as there are members.
#[test]
fn addresses_that_get_their_names_in_one_list_are_removed_in_one_walk() {
    let unnamed = |number| PeerSpec { node: spec(number).address.to_string(), zone: None, ..spec(number) };
    let versions = |count: usize| {
        let (mut narrow, now) = (narrow(6), Instant::now());
        passed(&mut narrow, list(0..1), now);
        passed(&mut narrow, Update::List(PeerList { peers: (1..=count).map(unnamed).collect() }), now);
        let before = narrow.members.version();
        passed(&mut narrow, list(0..1), now);
        assert_eq!(narrow.members.len(), 1);
        narrow.members.version() - before
    };
    assert_eq!([1, 10, 3_000].map(versions), [1; 3]);
}

/// Compares with the members one by one, on lists in which some entries have a name and
/// others do not yet.
#[test]
fn addresses_without_a_name_are_members_exactly_while_they_are_listed() {
    let (mut narrow, now) = (narrow(6), Instant::now());
    let mut random = 1_u64;
    let mut draw = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 62
    };
    for _ in 0..200 {
        let drawn = (1..60).filter_map(|number| match draw() {
            0 => None,
            1 => Some(spec(number)),
            _ => Some(PeerSpec { node: spec(number).address.to_string(), zone: None, ..spec(number) }),
        });
        let peers: Vec<PeerSpec> = drawn.collect();
        passed(&mut narrow, Update::List(PeerList { peers: peers.clone() }), now);
        let is_member = |node: &str| narrow.members.find(node).is_some();
        for number in 1..60 {
            let address = spec(number).address.to_string();
            assert_eq!(is_member(&address), peers.iter().any(|peer| peer.node == address), "{address}");
        }
        assert!(peers.iter().all(|peer| is_member(&peer.node)));
    }
}

#[test]
fn other_updates_pass_unchanged() {
    let sure = Update::Sure([10, 0, 0, 1].into());
    let passed: Vec<Update> = narrow(6).update(sure, Instant::now()).collect();
    assert!(matches!(passed[..], [Update::Sure(_)]));
}

#[tokio::test]
async fn narrowing_ends_with_its_source_or_its_receiver() {
    let ourselves = || narrow(6).ourselves;
    let (updates, mut received) = mpsc::channel(1);
    let source = |lists: Updates| async move {
        lists.send(list(0..3)).await.unwrap();
        // Wait until the list is taken.
        lists.reserve().await.map(drop).unwrap();
    };
    let ((), heard) = tokio::join!(run(source, RankedBy::Name, ourselves(), updates), async { received.recv().await });
    assert!(matches!(heard, Some(Update::Mesh(_))));
    let (updates, received) = mpsc::channel(1);
    drop(received);
    run(|lists| async move { lists.closed().await }, RankedBy::Name, ourselves(), updates).await;
}

#[test]
fn a_pod_that_terminates_has_no_rank_and_neither_have_the_addresses_of_nodes() {
    let ranks = |peers: Vec<PeerSpec>| {
        let updates: Vec<_> = narrow(0).update(Update::List(PeerList { peers }), Instant::now()).collect();
        let roster = updates
            .into_iter()
            .find_map(|update| if let Update::Roster(roster) = update { Some(roster) } else { None });
        roster.map(|roster| roster.ranks().clone())
    };
    let others = |number| PeerSpec { network: Network::Node, ..spec(number) };
    let leaving = PeerSpec { readiness: Readiness::Terminating, ..spec(3) };
    assert_eq!(ranks(vec![spec(1), spec(2), leaving, others(4)]), ranks(vec![spec(1), spec(2)]));
    assert_ne!(ranks(vec![spec(1), spec(2), spec(3)]), ranks(vec![spec(1), spec(2)]));
}

#[test]
fn an_address_is_held_by_a_node_that_is_left_out_too() {
    for max_peers in [0, 3] {
        let mut narrow = narrow(max_peers);
        let Update::List(mut list) = list(0..40) else { unreachable!() };
        // Each node but our own is listed again under the name of a dead one.
        let dead = list.peers[1..].iter().map(|spec| PeerSpec {
            node: format!("dead-{}", spec.node),
            readiness: Readiness::Unready,
            ..spec.clone()
        });
        let dead: Vec<_> = dead.collect();
        list.peers.extend(dead);
        let (_, peers) = passed(&mut narrow, Update::List(list), Instant::now());
        assert!(peers.iter().any(|spec| spec.is_displaced));
        assert!(peers.iter().all(|spec| spec.is_displaced == spec.node.starts_with("dead-")), "{peers:?}");
    }
}
