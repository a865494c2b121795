use super::*;

const FORGET_AFTER: Duration = Duration::from_mins(5);

fn members(names: &[&str]) -> (Members, Vec<MemberId>) {
    let mut members = Members::new(FORGET_AFTER);
    let ids = names.iter().map(|name| members.put(name, None).unwrap()).collect();
    (members, ids)
}

#[test]
fn a_name_is_one_member_and_the_last_given_zone_counts() {
    let mut members = Members::new(FORGET_AFTER);
    let a = members.put("a", None).unwrap();
    let b = members.put("b", Some("z1")).unwrap();
    let version = members.version();
    assert_eq!((members.put("a", None), members.find("b"), members.find("c")), (Some(a), Some(b), None));
    assert_eq!((members.name(a), members.zone(a), members.zone(b)), ("a", None, Some("z1")));
    members.put("b", None).unwrap();
    members.put("b", Some("z1")).unwrap();
    assert_eq!((members.zone(b), members.version()), (Some("z1"), version), "a list without zones takes none away");
    members.put("b", Some("z2")).unwrap();
    assert_eq!((members.zone(b), members.len()), (Some("z2"), 2));
    assert!(members.version() > version);
}

#[test]
fn an_absent_member_stays_for_a_while_and_then_its_number_is_reused() {
    let (mut members, ids) = members(&["a", "b", "c"]);
    let (start, second) = (Instant::now(), Duration::from_secs(1));
    let version = members.version();
    members.listed(ids.iter().copied(), start);
    members.listed([ids[0], ids[2]].into_iter(), start + 10 * second);
    assert!(members.any_absent() && !members.expire(start + FORGET_AFTER + 9 * second));
    assert_eq!((members.len(), members.name(ids[1]), members.version()), (3, "b", version));
    members.listed(ids.iter().copied(), start + 20 * second);
    assert!(!members.any_absent());
    members.listed([ids[0], ids[2]].into_iter(), start + 30 * second);
    members.listed([ids[0], ids[2]].into_iter(), start + FORGET_AFTER + 30 * second);
    assert_eq!((members.len(), members.find("b"), members.name(ids[1])), (2, None, ""));
    assert!(members.version() > version && !members.any_absent());
    assert_eq!(members.put("d", None), Some(ids[1]));
    assert_eq!(["a", "c", "d"].map(|name| members.find(name)), [ids[0], ids[2], ids[1]].map(Some));
}

#[test]
fn a_member_that_was_never_listed_is_absent_from_the_first_list_on() {
    let (mut members, ids) = members(&["a", "b"]);
    let start = Instant::now();
    members.listed([ids[0]].into_iter(), start);
    assert!(members.expire(start + FORGET_AFTER));
    assert_eq!((members.len(), members.find("b")), (1, None));
}

#[test]
fn removed_members_are_gone_at_once() {
    let (mut members, ids) = members(&["a", "b", "c"]);
    members.remove(&[ids[0], ids[2]]);
    assert_eq!((members.len(), members.find("a"), members.find("b")), (1, None, Some(ids[1])));
    members.remove(&[ids[0]]);
    members.remove(&[MemberId(900)]);
    members.remove(&[]);
    assert_eq!(members.len(), 1);
}

#[test]
fn impossible_names_and_unknown_numbers_are_refused() {
    let (mut members, _) = members(&["a"]);
    assert_eq!((members.put("", None), members.put(&"x".repeat(256), None)), (None, None));
    assert!(members.put(&"x".repeat(NAME_BYTES_MAX), None).is_some());
    assert_eq!((members.name(MemberId(7)), members.zone(MemberId(u16::MAX))), ("", None));
    members.listed([MemberId(7), MemberId(u16::MAX)].into_iter(), Instant::now());
    assert_eq!(members.len(), 2);
}

#[test]
fn a_full_table_refuses_new_members_and_keeps_the_others() {
    let mut members = Members::new(Duration::ZERO);
    for number in 0..PEER_SLOTS_MAX {
        assert!(members.put(&format!("node-{number}"), None).is_some());
    }
    assert_eq!((members.put("one more", None), members.len()), (None, PEER_SLOTS_MAX));
    let id = members.find("node-16000").unwrap();
    assert_eq!((id, members.name(id)), (MemberId(16_000), "node-16000"));
    members.listed((0..100).map(MemberId), Instant::now());
    assert_eq!((members.len(), members.put("one more", None)), (100, Some(MemberId(100))));
}

#[test]
fn numbers_of_empty_zones_are_reused_and_zones_beyond_the_limit_are_unknown() {
    let (mut members, ids) = members(&["a", "b"]);
    for number in 0..1_000 {
        members.put("a", Some(&format!("z{number}"))).unwrap();
        let version = members.version();
        assert_eq!(members.zone(ids[0]).unwrap(), format!("z{number}"));
        members.put("a", Some(&format!("z{number}"))).unwrap();
        assert_eq!(members.version(), version);
    }
    for number in 0..MEMBER_ZONES_MAX {
        members.put(&format!("c{number}"), Some(&format!("y{number}"))).unwrap();
    }
    let zone = |name| members.zone(members.find(name).unwrap());
    // The unknown zone takes one number, and a's zone another.
    assert_eq!((zone("c0"), zone("c252"), zone("c253"), zone("a")), (Some("y0"), Some("y252"), None, Some("z999")));
}

/// Measures what the kernel counts, with names of 36 bytes as cloud providers give them.
#[test]
fn a_member_takes_at_most_64_bytes_and_its_memory_comes_back() {
    let mut members = Members::new(Duration::ZERO);
    for number in 0..5_000 {
        let (node, zone) =
            (format!("ip-10-100-{number:04}.eu-central-1.internal"), format!("eu-central-1{}", number % 3));
        assert_eq!(node.len(), 36);
        members.put(&node, Some(&zone)).unwrap();
    }
    let bytes = members.resident_bytes();
    println!("5,000 members: {bytes} bytes, {:.1} each", bytes as f64 / 5_000.0);
    assert!(bytes <= 64 * 5_000);
    members.listed((0..20).map(MemberId), Instant::now());
    let name = |number| members.name(MemberId(number)).to_owned();
    assert_eq!((members.len(), name(19)), (20, "ip-10-100-0019.eu-central-1.internal".into()));
    assert!(members.resident_bytes() <= 3 * 4_096, "a page for each of its tables");
}
