use super::*;

fn table() -> Members {
    Members::new(Duration::from_secs(300))
}

#[test]
fn a_name_is_one_member_and_its_zone_the_last_that_was_given() {
    let mut members = table();
    let a = members.put("a", None).unwrap();
    let b = members.put("b", Some("z1")).unwrap();
    let version = members.version();
    assert_eq!((members.put("a", None), members.find("b"), members.find("c")), (Some(a), Some(b), None));
    assert_eq!((members.name(a), members.zone(a), members.zone(b)), ("a", None, Some("z1")));
    assert_eq!(members.version(), version, "nothing new");
    members.put("b", None).unwrap();
    assert_eq!(members.zone(b), Some("z1"), "a list without zones takes none away");
    members.put("b", Some("z2")).unwrap();
    assert_eq!(members.zone(b), Some("z2"));
    assert!(members.version() > version && members.len() == 2);
}
