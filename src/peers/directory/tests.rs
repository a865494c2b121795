use super::*;
use crate::discovery::Readiness;
use crate::peers::{Network, Presence};

fn spec(text: &str) -> PeerSpec {
    let (node, rest) = text.split_once('=').unwrap();
    let (address, zone) = rest.split_once('@').map_or((rest, None), |(a, z)| (a, Some(z.to_owned())));
    PeerSpec { zone, ..PeerSpec::pod(node, address.parse().unwrap()) }
}

fn list(entries: &[&str]) -> PeerList {
    PeerList { peers: entries.iter().map(|e| spec(e)).collect() }
}

fn own() -> OwnNode {
    OwnNode { node: "self".into(), zone: None, addresses: vec!["10.0.0.1".parse().unwrap()] }
}

fn names(directory: &Directory) -> Vec<String> {
    directory.peers().map(|(s, p)| format!("{}:{}={} {}", s.0, p.node(), p.address(), p.presence().label())).collect()
}

#[test]
fn a_peer_that_returns_at_another_address_keeps_its_slot_and_an_absent_one_loses_it() {
    let second = |n: u64| Nanos::from_millis(n * 1_000);
    let mut d = Directory::default();
    d.apply(list(&["a=10.0.0.2", "b=10.0.0.3"]), &own(), second(0));
    let left = d.apply(list(&["b=10.0.0.3"]), &own(), second(10));
    let slot = SlotId(0);
    let probe = |address: &str, terminating| Change::Probe {
        slot,
        address: address.parse().unwrap(),
        zone: ZoneId::UNKNOWN,
        network: Network::Pod,
        terminating,
    };
    assert_eq!(left.changes, [probe("10.0.0.2", true)], "it is probed on as if it were terminating");
    assert_eq!(d.apply(list(&["b=10.0.0.3"]), &own(), second(12)), Applied::default());
    assert!(!d.has_stoppable(second(12), second(3)) && !d.has_forgettable(second(20), second(5)));
    let back = d.apply(list(&["b=10.0.0.3", "a=10.0.0.9"]), &own(), second(14));
    assert_eq!(back.changes, [probe("10.0.0.9", false)]);
    d.apply(list(&["a=10.0.0.9"]), &own(), second(20));
    assert!(!d.forget(second(25), second(5)), "it is probed");
    assert!(d.has_stoppable(second(23), second(3)));
    assert_eq!(d.stop(second(23), second(3)).collect::<Vec<_>>(), [Change::Stop { slot: SlotId(1) }]);
    assert!(!d.has_stoppable(second(23), second(3)) && d.stop(second(23), second(3)).next().is_none());
    assert_eq!(names(&d), ["0:a=10.0.0.9 ready", "1:b=10.0.0.3 left"]);
    assert!(d.has_forgettable(second(25), second(5)) && d.forget(second(25), second(5)));
    assert_eq!(names(&d), ["0:a=10.0.0.9 ready"]);
    let joined = d.apply(list(&["a=10.0.0.9", "c=10.0.0.4"]), &own(), second(30));
    assert_eq!(joined.changes[0], Change::Join { slot: SlotId(1) }, "the freed slot is used again");
}

fn listed_count(directory: &Directory) -> usize {
    directory.peers().filter(|(_, peer)| peer.presence() != Presence::Left).count()
}

#[test]
fn a_terminating_peer_leaves_without_a_change_and_a_stopped_one_returns_with_one() {
    let mut d = Directory::default();
    let mut on_its_way_out = list(&["a=10.0.0.2"]);
    on_its_way_out.peers[0].readiness = Readiness::Terminating;
    d.apply(on_its_way_out.clone(), &own(), Nanos(0));
    assert_eq!(d.apply(list(&[]), &own(), Nanos(0)), Applied::default());
    assert_eq!(names(&d), ["0:a=10.0.0.2 left"]);
    assert_eq!(d.apply(on_its_way_out.clone(), &own(), Nanos(0)), Applied::default());
    d.apply(list(&[]), &own(), Nanos(0));
    assert_eq!(d.stop(Nanos(0), Nanos(0)).count(), 1);
    let back = d.apply(on_its_way_out, &own(), Nanos(0)).changes;
    assert!(matches!(back[..], [Change::Probe { terminating: true, .. }]), "{back:?}");
}

#[test]
fn a_displaced_peer_stays_listed_and_is_not_probed_until_it_holds_its_address() {
    let displaced = |entries: &[&str]| {
        let mut list = list(entries);
        list.peers[0].is_displaced = true;
        list
    };
    let mut d = Directory::default();
    d.apply(list(&["dead=10.0.0.2", "n3=10.0.0.3"]), &own(), Nanos(0));
    let slot = SlotId(0);
    let lost = d.apply(displaced(&["dead=10.0.0.2", "n3=10.0.0.3", "n2=10.0.0.2"]), &own(), Nanos(0)).changes;
    assert_eq!(lost[0], Change::Stop { slot });
    assert_eq!(names(&d), ["0:dead=10.0.0.2 displaced", "1:n3=10.0.0.3 ready", "2:n2=10.0.0.2 ready"]);
    assert_eq!(d.nodes(), [2, 0, 0, 1]);
    let again = d.apply(displaced(&["dead=10.0.0.2", "n3=10.0.0.3", "n2=10.0.0.2"]), &own(), Nanos(0));
    assert_eq!(again, Applied::default());
    let back = d.apply(list(&["dead=10.0.0.2", "n3=10.0.0.3"]), &own(), Nanos(0)).changes;
    assert!(back.iter().any(|change| matches!(change, Change::Probe { slot: SlotId(0), terminating: false, .. })));

    // One that leaves while it is displaced is not probed for a grace period either.
    d.apply(displaced(&["dead=10.0.0.2", "n3=10.0.0.3"]), &own(), Nanos(0));
    assert_eq!(d.apply(list(&["n3=10.0.0.3"]), &own(), Nanos(0)).changes, []);
    assert_eq!(names(&d)[0], "0:dead=10.0.0.2 left");
    // A new one takes a slot alone.
    let mut d = Directory::default();
    let joined = d.apply(displaced(&["dead=10.0.0.2", "n2=10.0.0.2"]), &own(), Nanos(0)).changes;
    assert_eq!(joined.iter().filter(|change| matches!(change, Change::Probe { .. })).count(), 1);
    assert_eq!(joined[0], Change::Join { slot });
}

#[test]
fn a_peer_for_which_another_node_answers_counts_no_more_until_it_answers_or_moves() {
    let mut d = Directory::default();
    d.apply(list(&["a=10.0.0.2", "b=10.0.0.3"]), &own(), Nanos(0));
    let slot = SlotId(0);
    let is_uncounted = |change: Option<Change>| match change {
        Some(Change::Probe { slot: SlotId(0), terminating, .. }) => Some(terminating),
        _ => None,
    };
    assert_eq!(is_uncounted(d.answers_as_other(slot, true)), Some(true));
    assert_eq!((d.answers_as_other(slot, true), d.nodes()), (None, [1, 0, 0, 1]));
    assert_eq!(names(&d)[0], "0:a=10.0.0.2 displaced");
    assert_eq!(d.apply(list(&["a=10.0.0.2", "b=10.0.0.3"]), &own(), Nanos(0)), Applied::default());
    assert_eq!(is_uncounted(d.answers_as_other(slot, false)), Some(false));
    assert_eq!((names(&d)[0].as_str(), d.nodes()), ("0:a=10.0.0.2 ready", [2, 0, 0, 0]));
    d.answers_as_other(slot, true);
    let moved = d.apply(list(&["a=10.0.0.9", "b=10.0.0.3"]), &own(), Nanos(0)).changes;
    assert_eq!(is_uncounted(moved.first().copied()), Some(false));
    assert!(d.answers_as_other(SlotId(9), true).is_none());
    // One that has left is forgotten like any other.
    d.answers_as_other(slot, true);
    d.apply(list(&["b=10.0.0.3"]), &own(), Nanos(0));
    assert!(d.answers_as_other(slot, false).is_none());
    assert_eq!((d.stop(Nanos(0), Nanos(0)).count(), d.forget(Nanos(0), Nanos(0))), (1, true));
}

#[test]
fn an_unchanged_list_changes_nothing() {
    let mut d = Directory::default();
    d.apply(list(&["a=10.0.0.2@z1", "b=fd00::3"]), &own(), Nanos(0));
    assert_eq!(d.apply(list(&["b=fd00::3", "a=10.0.0.2@z1"]), &own(), Nanos(1)), Applied::default());
    assert_eq!(d.apply(list(&["b=fd00::3", "a=10.0.0.2"]), &own(), Nanos(1)), Applied::default(), "zone kept");
}

#[test]
fn our_own_entry_is_skipped_by_name_and_by_address_and_gives_our_zone() {
    let mut d = Directory::default();
    assert_eq!(d.own_zone(), "unknown");
    d.apply(list(&["self=10.9.9.9@z7", "other=10.0.0.1", "a=10.0.0.2"]), &own(), Nanos(0));
    assert_eq!(d.own_zone(), "z7");
    let configured = OwnNode { zone: Some("z1".into()), ..own() };
    d.apply(list(&["self=10.9.9.9@z7", "a=10.0.0.2"]), &configured, Nanos(0));
    assert_eq!(d.own_zone(), "z1", "what is configured is in force");
    assert_eq!(names(&d), ["0:a=10.0.0.2 ready"]);
}

#[test]
fn families_of_one_node_are_two_peers() {
    let mut d = Directory::default();
    d.apply(list(&["a=10.0.0.2", "a=fd00::2"]), &own(), Nanos(0));
    assert_eq!(names(&d), ["0:a=10.0.0.2 ready", "1:a=fd00::2 ready"]);
}

#[test]
fn networks_of_one_node_are_two_peers_and_one_node() {
    let mut d = Directory::default();
    let node = |text: &str, readiness| PeerSpec { network: Network::Node, readiness, ..spec(text) };
    let mut peers = list(&["self=10.0.0.1", "a=10.0.0.2", "a=fd00::2", "b=10.0.0.3"]).peers;
    peers.extend([node("a=192.168.0.2", Readiness::Ready), node("b=192.168.0.3", Readiness::Terminating)]);
    peers[3].readiness = Readiness::Terminating;
    peers.push(PeerSpec { readiness: Readiness::Unready, ..spec("c=10.0.0.4") });
    d.apply(PeerList { peers }, &own(), Nanos(0));
    assert_eq!((d.slot_count(), d.nodes()), (6, [1, 1, 1, 0]));
    let networks: Vec<_> = d.peers().filter(|(_, p)| p.node() == "a").map(|(_, p)| p.via()).collect();
    assert_eq!(networks, [Via::ALL[0], Via::ALL[2], Via::ALL[1]]);
    d.apply(list(&["a=10.0.0.2"]), &own(), Nanos(0));
    assert_eq!((d.slot_count(), d.nodes()), (6, [1, 0, 0, 0]), "who has left is not counted");
}

#[test]
fn names_stay_right_as_others_come_and_go_and_no_slot_is_wasted() {
    let mut d = Directory::default();
    for turn in 0..50u8 {
        let listed: Vec<String> =
            (0..=9).map(|i| turn.wrapping_mul(i) % 17).map(|n| format!("n{n}=10.1.0.{n}")).collect();
        let mut expected: Vec<&str> = listed.iter().map(String::as_str).filter(|e| *e != "n0=10.1.0.0").collect();
        d.apply(list(&listed.iter().map(String::as_str).collect::<Vec<_>>()), &own(), Nanos(0));
        expected.push("n0=10.1.0.0");
        expected.sort_unstable();
        expected.dedup();
        let mut is: Vec<String> = d
            .peers()
            .filter(|(_, p)| p.presence() != Presence::Left)
            .map(|(_, p)| format!("{}={}", p.node(), p.address()))
            .collect();
        is.sort_unstable();
        assert_eq!(is, expected, "{turn}");
        assert_eq!(d.stop(Nanos(u64::MAX), Nanos(0)).count(), d.peers().count() - listed_count(&d));
        d.forget(Nanos(u64::MAX), Nanos(0));
    }
    assert!(d.slots.len() <= 17, "{}", d.slots.len());
}

#[test]
fn a_full_table_leaves_out_and_says_how_many() {
    let mut d = Directory::with_slots_max(1);
    let applied = d.apply(list(&["a=10.0.0.2", "b=10.0.0.3"]), &own(), Nanos(0));
    assert_eq!((applied.without_slot, d.slot_count()), (1, 1));
}

#[test]
fn zones_beyond_the_limit_are_unknown() {
    let mut d = Directory::default();
    let many: Vec<String> = (2..90).map(|i| format!("n{i}=10.0.0.{i}@zone-{i}")).collect();
    d.apply(list(&many.iter().map(String::as_str).collect::<Vec<_>>()), &own(), Nanos(0));
    let named = d.peers().filter(|(_, p)| d.zone_name(p.zone()) != "unknown").count();
    assert_eq!(named, ZONES_MAX - 1);
}

#[test]
fn a_zone_that_no_peer_has_any_more_makes_room_for_another() {
    let mut d = Directory::default();
    let mut reused = Vec::new();
    // One peer stays in its zone. Another has a new zone in each list, as with a label that
    // contains its creation time.
    for turn in 0..1_000 {
        let moves = format!("b=10.0.0.3@zone-{turn}");
        let changes = d.apply(list(&["a=10.0.0.2@stays", &moves]), &own(), Nanos(0)).changes;
        let zones: Vec<String> = d.peers().map(|(_, peer)| d.zone_name(peer.zone()).to_owned()).collect();
        assert_eq!(zones, ["stays".to_owned(), format!("zone-{turn}")]);
        for (at, change) in changes.iter().enumerate() {
            if let Change::Zone { zone } = *change {
                assert!(matches!(changes[at + 1], Change::Probe { zone: probed, .. } if probed == zone), "{changes:?}");
                reused.push(zone);
            }
        }
    }
    assert_eq!(reused.len(), 1_000 - (ZONES_MAX - 2), "each, once every number has been given");
    assert!(!reused.contains(&ZoneId::UNKNOWN));
}

#[test]
fn a_zone_is_kept_until_the_last_of_its_peers_is_forgotten() {
    let mut d = Directory::default();
    let numbers = |from: u8| {
        let all = (from..from + 63).map(|n| format!("n{n}=10.0.0.{n}@zone-{n}"));
        all.collect::<Vec<String>>()
    };
    let apply = |d: &mut Directory, all: &[String]| {
        d.apply(list(&all.iter().map(String::as_str).collect::<Vec<_>>()), &own(), Nanos(0)).changes
    };
    apply(&mut d, &numbers(2));
    let is_new = |changes: &[Change]| changes.iter().filter(|c| matches!(c, Change::Zone { .. })).count();
    let mut further = numbers(2);
    further[0] = "n99=10.0.0.99@zone-99".into();
    assert_eq!(is_new(&apply(&mut d, &further)), 0);
    let zone_of = |d: &Directory, node: &str| {
        d.peers().find(|(_, p)| p.node() == node).map(|(_, p)| d.zone_name(p.zone()).to_owned())
    };
    assert_eq!((zone_of(&d, "n2").as_deref(), zone_of(&d, "n99").as_deref()), (Some("zone-2"), Some("unknown")));
    assert_eq!(d.stop(Nanos(1), Nanos(0)).count(), 1);
    d.forget(Nanos(1), Nanos(0));
    assert_eq!(is_new(&apply(&mut d, &further)), 1);
    assert_eq!((zone_of(&d, "n99").as_deref(), zone_of(&d, "n3").as_deref()), (Some("zone-99"), Some("zone-3")));
}
