use super::super::api::ObjectKind;
use super::super::api::{Metadata as Meta, WatchEvent};
use super::super::backoff::WATCH_WORKED;
use super::super::encode::{self, Slice as Given, slice};
use super::super::failure::RETRY_AFTER_MAX;
use super::super::inbox::{ListItems, ListPiece};
use super::*;

fn machine() -> Machine {
    let ourselves = Ourselves { forget_after: Duration::from_mins(5), ..Ourselves::default() };
    Machine::new(ourselves, Timing::default())
}

/// Feeds a list to the machine, up to the first error.
fn list(
    machine: &mut Machine,
    whole: bool,
    version: &str,
    slices: &[Given],
    now: Instant,
) -> Result<ChangeOutcome, ApiFailure> {
    let kind = if whole { ObjectKind::SLICES } else { ObjectKind::METADATA_LIST };
    let mut items = ListItems::new(kind, 1 << 20);
    items.push(&if whole { encode::slice_list(version, slices) } else { encode::metadata_list(version, slices) });
    machine.list_begins();
    while let Some(piece) = items.next_piece().unwrap() {
        match piece {
            ListPiece::Metadata(metadata) => machine.list_metadata(metadata)?,
            ListPiece::Item(item) => machine.list_item(item, whole, now, 0.5)?,
        }
    }
    machine.list_ends(now)
}

fn one(version: &str) -> Given {
    slice("s1", version, "IPv4", &[("n1", "10.0.0.1")])
}

fn synced(now: Instant) -> Machine {
    let mut machine = machine();
    assert_eq!(list(&mut machine, true, "100", &[one("90")], now).unwrap(), ChangeOutcome::Settled);
    assert_eq!(machine.changes().list.unwrap().peers.len(), 1);
    machine
}

fn changed(name: &str, version: u64) -> WatchEvent<'_> {
    WatchEvent::Changed(Meta { name, version, created: 0 })
}

#[test]
fn a_whole_list_comes_once_and_a_watch_after_it() {
    let now = Instant::now();
    let mut machine = machine();
    assert_eq!(machine.ask(), NextRequest::List { whole: true, consistent: false });
    list(&mut machine, true, "100", &[one("90")], now).unwrap();
    assert_eq!(machine.ask(), NextRequest::Watch { version: 100 });
    machine.event(&WatchEvent::Bookmark(120), now, 0.5).unwrap();
    assert_eq!(machine.ask(), NextRequest::Watch { version: 120 });
    machine.failed(&ApiFailure::Status(500), [0.5; 2]);
    assert_eq!(machine.ask(), NextRequest::Watch { version: 120 }, "it can go on from there");
    for failure in [
        ApiFailure::Gone,
        ApiFailure::Silent,
        ApiFailure::Malformed(String::new()),
        ApiFailure::TooLarge(1),
        ApiFailure::Status(504),
    ] {
        machine.failed(&failure, [0.5; 2]);
        assert_eq!(machine.ask(), NextRequest::List { whole: false, consistent: false }, "{failure}");
        list(&mut machine, false, "130", &[one("90")], now).unwrap();
    }
}

#[test]
fn changes_are_reported_once_and_the_mesh_only_when_it_changes() {
    let now = Instant::now();
    let mut machine = machine();
    assert!(machine.changes().list.is_none(), "nothing has come");
    list(&mut machine, true, "100", &[one("90")], now).unwrap();
    let changes = machine.changes();
    assert_eq!((changes.mesh.unwrap().members, changes.list.unwrap().peers.len()), (2, 1));
    assert!(machine.changes().list.is_none());
    machine.event(&changed("s1", 101), now, 0.5).unwrap();
    assert!(machine.changes().list.is_none(), "it is not read yet");
    let moved = slice("s1", "101", "IPv4", &[("n1", "10.0.0.2")]);
    machine.read("s1", 101, Some(&moved.body()), now).unwrap();
    let changes = machine.changes();
    assert!(changes.mesh.is_none() && changes.list.unwrap().peers[0].address.to_string() == "10.0.0.2");
}

#[test]
fn ranks_are_reported_with_the_first_list_and_again_only_when_they_change() {
    let now = Instant::now();
    let mut machine = machine();
    machine.ourselves.node = "n0".into();
    let two = [("n1", "10.0.0.1"), ("n2", "10.0.0.2")];
    list(&mut machine, true, "100", &[slice("s1", "90", "IPv4", &two)], now).unwrap();
    let first = machine.changes().roster.expect("ranks");
    assert!(first.bytes() == 0 && *first.ranks() != Ranks::default(), "{first:?}");
    let mut read = |version: u64, pods: &[(&str, &str)]| {
        machine.event(&changed("s1", version), now, 0.5).unwrap();
        let text = version.to_string();
        machine.read("s1", version, Some(&slice("s1", &text, "IPv4", pods).body()), now).unwrap();
        machine.changes().roster
    };
    assert!(read(101, &[two[1], two[0]]).is_none(), "the same members");
    let moved = read(102, &[two[0], ("n2", "10.0.0.3")]).expect("another address");
    assert_ne!(moved.ranks(), first.ranks());
    assert!(read(103, &[two[0]]).is_some_and(|roster| roster.ranks() != moved.ranks()), "one is gone");
}

#[test]
fn nothing_is_reported_before_every_slice_has_been_read() {
    let now = Instant::now();
    let mut machine = machine();
    // A whole list breaks off. What arrived is kept, and the rest is read one by one.
    machine.list_begins();
    machine.list_metadata(&encode::field(2, b"100")).unwrap();
    machine.list_item(&one("90").message(), true, now, 0.5).unwrap();
    machine.failed(&ApiFailure::Wire(String::new()), [0.5; 2]);
    assert_eq!(machine.ask(), NextRequest::List { whole: false, consistent: false });
    let other = slice("s2", "91", "IPv4", &[("n2", "10.0.0.2")]);
    list(&mut machine, false, "101", &[one("90"), other.clone()], now).unwrap();
    assert!(machine.changes().list.is_none() && !machine.is_sure(now));
    assert_eq!(
        machine.next_reading(Instant::now()).map(|(name, version, _)| (name.to_owned(), version)),
        Some(("s2".into(), 91))
    );
    machine.read("s2", 91, Some(&other.body()), now).unwrap();
    assert_eq!(machine.changes().list.unwrap().peers.len(), 2);
    assert!(machine.is_sure(now));
}

#[test]
fn a_list_of_another_history_that_breaks_off_does_not_make_the_next_one_known() {
    let now = Instant::now();
    let other = |version, address| slice("s2", version, "IPv4", &[("n2", address)]);
    let mut machine = machine();
    list(&mut machine, true, "5000", &[one("90"), other("95", "10.0.0.2")], now).unwrap();
    assert_eq!(machine.changes().list.unwrap().peers.len(), 2);
    // etcd was restored to an older state, and only the first slice of its list arrives.
    machine.list_begins();
    machine.list_metadata(&encode::field(2, b"100")).unwrap();
    machine.list_item(&one("90").metadata(), false, now, 0.5).unwrap();
    machine.failed(&ApiFailure::Wire(String::new()), [0.5; 2]);
    let restored = other("80", "10.0.0.22");
    list(&mut machine, false, "101", &[one("90"), restored.clone()], now).unwrap();
    let mut asked = Vec::new();
    while let Some((name, version, _)) = machine.next_reading(Instant::now()) {
        let name = name.to_owned();
        asked.push((name.clone(), version));
        let body = if name == "s1" { one("90").body() } else { restored.body() };
        machine.read(&name, version, Some(&body), now).unwrap();
    }
    asked.sort();
    assert_eq!(asked, [("s1".into(), 90), ("s2".into(), 80)]);
    // From here on that history is the known one.
    list(&mut machine, false, "101", &[one("90"), restored], now).unwrap();
    assert!(machine.next_reading(Instant::now()).is_none());
}

#[test]
fn a_slice_that_is_older_in_a_newer_list_is_read_again() {
    let now = Instant::now();
    let mut machine = machine();
    list(&mut machine, true, "5000", &[one("5000")], now).unwrap();
    machine.changes();
    machine.event(&changed("s1", 5_001), now, 0.5).unwrap();
    machine.failed(&ApiFailure::Gone, [0.5; 2]);
    // etcd was restored, and its store started above all earlier versions. The slices have their
    // old versions.
    let restored = slice("s1", "3000", "IPv4", &[("n1", "10.0.0.3")]);
    list(&mut machine, false, "1000000", std::slice::from_ref(&restored), now).unwrap();
    assert_eq!(
        machine.next_reading(Instant::now()).map(|(name, version, _)| (name.to_owned(), version)),
        Some(("s1".into(), 3_000))
    );
    machine.read("s1", 3_000, Some(&restored.body()), now).unwrap();
    assert_eq!(machine.changes().list.unwrap().peers[0].address.to_string(), "10.0.0.3");
    assert!(machine.next_reading(Instant::now()).is_none());
}

#[test]
fn a_watch_that_goes_back_is_not_followed() {
    let now = Instant::now();
    let mut machine = synced(now);
    machine.event(&changed("s1", 101), now, 0.5).unwrap();
    assert!(matches!(machine.event(&WatchEvent::Bookmark(99), now, 0.5), Err(ApiFailure::Gone)));
    assert!(matches!(machine.event(&WatchEvent::Error { code: 410, message: "" }, now, 0.5), Err(ApiFailure::Gone)));
    assert!(matches!(
        machine.event(&WatchEvent::Error { code: 500, message: "" }, now, 0.5),
        Err(ApiFailure::Status(500))
    ));
}

#[test]
fn a_slice_that_was_deleted_while_it_was_read_is_ignored() {
    let now = Instant::now();
    let mut machine = synced(now);
    let other = slice("s2", "101", "IPv4", &[("n2", "10.0.0.2")]);
    machine.event(&changed("s2", 101), now, 0.5).unwrap();
    machine.event(&WatchEvent::Deleted(Meta { name: "s2", version: 102, created: 0 }), now, 0.5).unwrap();
    machine.read("s2", 101, Some(&other.body()), now).unwrap();
    assert!(machine.changes().list.is_none());
}

#[test]
fn a_slice_older_than_asked_for_is_refused_and_the_known_one_stays() {
    let now = Instant::now();
    let mut machine = synced(now);
    machine.event(&changed("s1", 105), now, 0.5).unwrap();
    let old = slice("s1", "104", "IPv4", &[("n1", "10.0.0.2")]);
    let refused = machine.read("s1", 105, Some(&old.body()), now).unwrap_err();
    assert_eq!(refused.to_string(), "malformed answer: s1 of version 104, where 105 was asked for");
    assert!(machine.changes().list.is_none());
    // The slice was asked for before etcd was restored to an older state.
    list(&mut machine, false, "60", &[one("50")], now).unwrap();
    machine.read("s1", 105, Some(&slice("s1", "106", "IPv4", &[("n1", "10.0.0.2")]).body()), now).unwrap();
    assert!(machine.changes().list.is_none());
    assert_eq!(
        machine.next_reading(Instant::now()).map(|(name, version, _)| (name.to_owned(), version)),
        Some(("s1".into(), 50))
    );
}

#[test]
fn a_slice_that_has_changed_again_while_it_was_read_is_read_after_another_pause() {
    let now = Instant::now();
    let mut machine = synced(now);
    machine.event(&changed("s1", 101), now, 0.5).unwrap();
    machine.event(&changed("s1", 102), now, 0.5).unwrap();
    let later = now + Duration::from_secs(9);
    machine.read("s1", 101, Some(&slice("s1", "101", "IPv4", &[("n1", "10.0.0.2")]).body()), later).unwrap();
    assert_eq!(machine.changes().list.unwrap().peers[0].address.to_string(), "10.0.0.2");
    let next = machine.next_reading(Instant::now()).map(|(name, version, due)| (name.to_owned(), version, due));
    assert_eq!(next, Some(("s1".into(), 102, later + Timing::default().coalesce)));
    // The doubt keeps waiting, and the slice is read again at once.
    machine.event(&changed("s1", 103), later, 0.5).unwrap();
    assert!(machine.doubt("10.0.0.2".parse().unwrap(), later));
    let doubted = machine.next_reading(Instant::now()).map(|(.., due)| due);
    machine.read("s1", 102, Some(&slice("s1", "102", "IPv4", &[("n1", "10.0.0.2")]).body()), later).unwrap();
    assert_eq!((machine.answer(), machine.next_reading(Instant::now()).map(|(.., due)| due)), (None, doubted));
}

#[test]
fn a_slice_that_has_come_back_since_it_was_not_found_stays() {
    let now = Instant::now();
    let mut machine = synced(now);
    let other = slice("s2", "101", "IPv4", &[("n2", "10.0.0.2")]);
    machine.event(&changed("s2", 101), now, 0.5).unwrap();
    machine.read("s2", 101, Some(&other.body()), now).unwrap();
    machine.event(&changed("s1", 102), now, 0.5).unwrap();
    // These arrive while the slice is being read:
    machine.event(&WatchEvent::Deleted(Meta { name: "s1", version: 103, created: 0 }), now, 0.5).unwrap();
    machine.event(&changed("s1", 104), now, 0.5).unwrap();
    let later = now + Duration::from_secs(1);
    machine.read("s1", 102, None, later).unwrap();
    let next = machine.next_reading(Instant::now()).map(|(name, version, due)| (name.to_owned(), version, due > later));
    assert_eq!(next, Some(("s1".into(), 104, true)));
    // If it is as new as the newest known version, it is true.
    machine.read("s1", 104, None, now).unwrap();
    assert_eq!(machine.next_reading(Instant::now()), None);
    assert_eq!(machine.changes().list.unwrap().peers.len(), 1);
}

#[test]
fn a_list_without_metadata_or_with_them_behind_is_none() {
    let now = Instant::now();
    let mut machine = synced(now);
    machine.list_begins();
    assert!(machine.list_item(&one("90").metadata(), false, now, 0.5).is_err());
    assert!(machine.list_ends(now).is_err());
    assert!(machine.is_sure(now), "what is known stays");
}

#[test]
fn empty_is_believed_twice_in_a_row_and_only_of_what_is_read() {
    let now = Instant::now();
    let mut machine = synced(now);
    assert_eq!(list(&mut machine, false, "110", &[], now).unwrap(), ChangeOutcome::LookAgain);
    assert_eq!(machine.ask(), NextRequest::List { whole: true, consistent: true });
    assert!(machine.changes().list.is_none() && !machine.is_sure(now));
    // The second look finds a slice that is still to be read: the state is neither empty nor
    // complete.
    assert_eq!(list(&mut machine, false, "111", &[one("111")], now).unwrap(), ChangeOutcome::Settled);
    assert!(machine.changes().list.is_none());
    machine.read("s1", 111, Some(&one("111").body()), now).unwrap();
    assert!(machine.changes().list.is_none() && machine.is_sure(now), "as it was reported");
    assert_eq!(list(&mut machine, false, "112", &[], now).unwrap(), ChangeOutcome::LookAgain, "it starts over");
    assert_eq!(list(&mut machine, true, "113", &[], now).unwrap(), ChangeOutcome::Settled);
    assert!(machine.changes().list.unwrap().peers.is_empty());
    // Now the empty list is in force.
    assert_eq!(list(&mut machine, true, "114", &[], now).unwrap(), ChangeOutcome::Settled);
}

#[test]
fn a_mesh_that_comes_back_after_an_empty_list_is_reported_whole() {
    let now = Instant::now();
    let mut machine = synced(now);
    assert_eq!(list(&mut machine, false, "110", &[], now).unwrap(), ChangeOutcome::LookAgain);
    let other = slice("s2", "111", "IPv4", &[("n2", "10.0.0.2")]);
    assert_eq!(list(&mut machine, false, "112", &[one("111"), other.clone()], now).unwrap(), ChangeOutcome::Settled);
    machine.read("s1", 111, Some(&one("111").body()), now).unwrap();
    assert!(machine.changes().list.is_none() && !machine.is_sure(now), "half of it");
    machine.read("s2", 111, Some(&other.body()), now).unwrap();
    assert_eq!(machine.changes().list.unwrap().peers.len(), 2);
    assert!(machine.is_sure(now));
}

#[test]
fn a_doubt_is_not_answered_while_the_known_state_is_not_reported() {
    let now = Instant::now();
    let mut machine = synced(now);
    let address = "10.0.0.1".parse().unwrap();
    // A new slice takes over what the other one held, which is deleted.
    machine.event(&changed("s2", 101), now, 0.5).unwrap();
    machine.event(&WatchEvent::Deleted(Meta { name: "s1", version: 102, created: 0 }), now, 0.5).unwrap();
    assert!(machine.doubt(address, now));
    assert!(machine.changes().list.is_none());
    assert_eq!(machine.answer(), None, "no list has said so");
    machine.read("s2", 101, Some(&slice("s2", "101", "IPv4", &[("n1", "10.0.0.9")]).body()), now).unwrap();
    assert_eq!(machine.changes().list.unwrap().peers[0].address.to_string(), "10.0.0.9");
    assert_eq!(machine.answer(), Some(address));
}

#[test]
fn a_slice_that_cannot_be_read_leaves_the_list_unconfirmed() {
    let now = Instant::now();
    let mut machine = synced(now);
    machine.event(&changed("s1", 101), now, 0.5).unwrap();
    assert!(machine.is_sure(now + Duration::from_secs(30)));
    assert!(!machine.is_sure(now + Duration::from_secs(31)));
    machine.reading_failed("s1", now);
    assert!(!machine.is_sure(now));
    machine.read("s1", 101, Some(&one("101").body()), now).unwrap();
    assert!(machine.is_sure(now));
}

#[test]
fn doubts_are_bounded_and_answered_once() {
    let now = Instant::now();
    let mut machine = synced(now);
    machine.event(&changed("s1", 101), now, 0.5).unwrap();
    let address = "10.0.0.1".parse().unwrap();
    assert!(machine.doubt(address, now) && machine.doubt(address, now));
    assert_eq!(machine.answer(), None);
    machine.read("s1", 101, Some(&one("101").body()), now).unwrap();
    assert_eq!((machine.answer(), machine.answer()), (Some(address), None));
    machine.event(&changed("s1", 102), now, 0.5).unwrap();
    for n in 0..limits::DOUBTS_MAX {
        let other = IpAddr::from([10, 1, (n / 256).try_into().unwrap(), (n % 256).try_into().unwrap()]);
        assert!(machine.doubt(other, now));
    }
    assert!(!machine.doubt(address, now));
    assert_eq!(machine.give_up_doubts().len(), usize::from(limits::DOUBTS_MAX));
    assert!(machine.doubt(address, now));
}

#[test]
fn members_that_are_absent_for_long_are_removed_and_the_mesh_is_smaller() {
    let now = Instant::now();
    let mut machine = synced(now);
    let other = slice("s1", "101", "IPv4", &[("n2", "10.0.0.2")]);
    machine.event(&changed("s1", 101), now, 0.5).unwrap();
    machine.read("s1", 101, Some(&other.body()), now).unwrap();
    assert_eq!(machine.changes().mesh.unwrap().members, 3);
    assert!(machine.has_absent());
    let later = now + Duration::from_mins(5);
    machine.settle(later);
    assert!(!machine.has_absent());
    assert_eq!(machine.changes().mesh.unwrap().members, 2);
}

#[test]
fn retry_after_comes_on_top_and_is_bounded_and_a_large_mesh_comes_back_slowly() {
    let now = Instant::now();
    let mut machine = synced(now);
    let busy = |seconds| ApiFailure::Busy { status: 429, retry_after: Some(Duration::from_secs(seconds)) };
    assert_eq!(machine.failed(&busy(7), [0.5; 2]), Duration::from_millis(7_500));
    assert_eq!(machine.failed(&busy(1_000_000), [0.0; 2]), RETRY_AFTER_MAX);
    machine.watched(WATCH_WORKED);
    assert_eq!(machine.failed(&ApiFailure::Status(500), [1.0, 1.0]), Duration::from_secs(1));
    let slices: Vec<_> = (0..50).map(|n| slice(&format!("s{n}"), "90", "IPv4", &[("n1", "10.0.0.1")])).collect();
    list(&mut machine, false, "200", &slices, now).unwrap();
    machine.watched(WATCH_WORKED);
    assert_eq!(machine.failed(&ApiFailure::Status(500), [0.0, 0.5]), Duration::from_millis(4_900));
}

/// 50 slices with one node each, n1 to n50.
fn fifty() -> Vec<Given> {
    let of = |n: u8| slice(&format!("s{n}"), "90", "IPv4", &[(&format!("n{n}"), &format!("10.0.0.{n}"))]);
    (1..=50).map(of).collect()
}

/// Returns the delay between a slice's change and its reading.
fn reading_after(machine: &mut Machine, name: &str, version: u64, now: Instant) -> Duration {
    machine.event(&changed(name, version), now, 0.5).unwrap();
    let (next, _, due) = machine.next_reading(Instant::now()).unwrap();
    assert_eq!(next, name);
    due - now
}

/// The pause before a slice of fifty is read, at the middle of its random part.
const PAUSE: Duration = Duration::from_millis(39_200);

/// A first list breaks off after the slices of `came`. A list of the names and versions of
/// `all` follows.
fn first_list_breaks_off(machine: &mut Machine, came: &[Given], all: &[Given], now: Instant) {
    machine.list_begins();
    machine.list_metadata(&encode::field(2, b"100")).unwrap();
    for slice in came {
        machine.list_item(&slice.message(), true, now, 0.5).unwrap();
    }
    machine.failed(&ApiFailure::Wire(String::new()), [0.5; 2]);
    list(machine, false, "101", all, now).unwrap();
}

#[test]
fn the_rest_of_a_first_list_that_broke_off_is_read_slice_by_slice() {
    let now = Instant::now();
    let mut machine = machine();
    let slices = fifty();
    first_list_breaks_off(&mut machine, &slices[..1], &slices, now);
    let mut read = 0;
    while let Some((name, version, due)) = machine.next_reading(Instant::now()) {
        assert_eq!(due - now, PAUSE, "{name}");
        let name = name.to_owned();
        let slice = slices.iter().find(|slice| slice.name == name).unwrap();
        assert!(machine.changes().list.is_none());
        machine.read(&name, version, Some(&slice.body()), now).unwrap();
        read += 1;
    }
    assert_eq!((read, machine.changes().list.unwrap().peers.len()), (49, 50));
}

#[test]
fn a_slice_that_is_deleted_unread_is_not_waited_for() {
    let now = Instant::now();
    let mut machine = machine();
    let [first, second, third] = &fifty()[..3] else { unreachable!() };
    // A slice that arrived with the list has changed since, and is read late.
    let changed = slice("s1", "99", "IPv4", &[("n1", "10.0.0.1")]);
    first_list_breaks_off(&mut machine, std::slice::from_ref(first), &[changed, second.clone(), third.clone()], now);
    let later = now + Duration::from_secs(1);
    machine.event(&WatchEvent::Deleted(Meta { name: "s3", version: 102, created: 0 }), later, 0.5).unwrap();
    assert!(machine.changes().list.is_none(), "s2 is yet to be read");
    machine.read("s2", 90, Some(&second.body()), later).unwrap();
    assert_eq!(machine.changes().list.unwrap().peers.len(), 2);
}

#[test]
fn a_doubt_takes_its_address_out_of_a_deleted_slice_and_no_other() {
    let now = Instant::now();
    let (node, forget_after) = ("n1".into(), Duration::from_mins(5));
    let mut machine = Machine::new(Ourselves { node, forget_after, ..Ourselves::default() }, Timing::default());
    let both = slice("s1", "90", "IPv4", &[("n1", "10.0.0.1"), ("n2", "10.0.0.2"), ("n3", "10.0.0.3")]);
    let empty: Vec<_> = (2..=50).map(|n| slice(&format!("s{n}"), "90", "IPv4", &[])).collect();
    list(&mut machine, true, "100", &[&[both], &*empty].concat(), now).unwrap();
    assert_eq!(machine.changes().list.unwrap().peers.len(), 3);
    // This slice may now hold the endpoints of s1. That is not known yet.
    assert_eq!(reading_after(&mut machine, "s2", 101, now), PAUSE);
    machine.event(&WatchEvent::Deleted(Meta { name: "s1", version: 102, created: 0 }), now, 0.5).unwrap();
    let doubted = "10.0.0.2".parse().unwrap();
    assert!(machine.doubt(doubted, now));
    let left = machine.changes().list.unwrap().peers;
    assert_eq!(left.iter().map(|peer| &*peer.node).collect::<Vec<_>>(), ["n1", "n3"]);
    assert_eq!(machine.answer(), Some(doubted));
}
