use std::time::Duration;

use super::super::encode::{Endpoint as Encoded, Slice as Given, slice};
use super::*;

fn store() -> Store {
    Store::new(Members::new(Duration::from_mins(5)))
}

fn put(store: &mut Store, slice: &Given, numbered: bool) -> Result<(), String> {
    let message = slice.message();
    let read = api::EndpointSlice::read(&message).unwrap();
    store.put(&read, numbered)
}

/// Returns two slices with one node each, as from a list: n1 at 10.0.0.1, and n2 at 10.0.0.2.
fn a_and_b() -> Store {
    listed(&[slice("a", "1", "IPv4", &[("n1", "10.0.0.1")]), slice("b", "1", "IPv4", &[("n2", "10.0.0.2")])])
}

fn listed(slices: &[Given]) -> Store {
    let mut store = store();
    store.list_begins();
    for slice in slices {
        put(&mut store, slice, false).unwrap();
    }
    store.list_ends(Instant::now());
    store.settle(Instant::now());
    store
}

fn announce(store: &mut Store, name: &str, version: u64, now: Instant) {
    store.announce(&api::Metadata { name, version, created: 0 }, By::Event, now, 0.5).unwrap();
}

/// Returns node and address of all endpoints, the newest last.
fn all(store: &Store) -> Vec<(String, String)> {
    let named = |e: ListedEndpoint| (store.members().name(e.member).to_owned(), e.address.to_string());
    store.endpoints(|_| true).into_iter().map(named).collect()
}

fn addresses(store: &Store) -> Vec<String> {
    all(store).into_iter().map(|(_, address)| address).collect()
}

#[test]
fn slices_of_both_families_merge_into_one_list() {
    let store = listed(&[
        Given { created: 2, ..slice("s-v6", "1", "IPv6", &[("n1", "fd00::1")]) },
        Given { created: 1, ..slice("s-v4", "1", "IPv4", &[("n1", "10.0.0.1"), ("n2", "10.0.0.2")]) },
    ]);
    let endpoints = store.endpoints(|_| true);
    assert_eq!(addresses(&store), ["10.0.0.1", "10.0.0.2", "fd00::1"]);
    assert!(endpoints.iter().all(|e| e.port == Some(9_877) && e.readiness == Readiness::Ready));
    assert!(endpoints.iter().all(|e| store.members().zone(e.member) == Some("z1")));
    assert_eq!(store.members().len(), 2);
}

#[test]
fn a_name_comes_from_the_node_else_the_pod_else_the_address() {
    let mut given = slice("s", "1", "IPv4", &[]);
    let endpoint = |node: Option<&str>, pod: Option<&str>, address: &str| Encoded {
        addresses: vec![address.into()],
        node: node.map(Into::into),
        pod: pod.map(Into::into),
        ..Encoded::default()
    };
    given.endpoints = vec![
        endpoint(Some("node"), Some("pod"), "10.0.0.1"),
        endpoint(Some(""), Some("pod"), "10.0.0.2"),
        endpoint(None, None, "10.0.0.3"),
    ];
    let store = listed(&[given]);
    assert_eq!(all(&store).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["node", "pod", "10.0.0.3"]);
    assert!(store.endpoints(|_| true).iter().all(|e| store.members().zone(e.member).is_none()));
}

#[test]
fn unusable_addresses_and_fqdn_slices_are_left_out_and_the_rest_stays() {
    let mut bad = slice(
        "bad",
        "1",
        "IPv4",
        &[("b", ""), ("d", "0.0.0.0"), ("e", "fd00::1"), ("f", "10.0.0"), ("good", "10.0.0.1")],
    );
    bad.endpoints.push(Encoded { addresses: Vec::new(), ..Encoded::new("a", "") });
    bad.endpoints.push(Encoded::new(&"x".repeat(254), "10.0.0.9"));
    let store = listed(&[
        bad,
        slice("names", "1", "FQDN", &[("f", "example.org")]),
        slice("none", "1", "IPv6", &[]),
        slice(
            "v6",
            "1",
            "IPv6",
            &[("g", "::"), ("h", "10.0.0.8"), ("i", "fe80::1"), ("j", "::ffff:10.0.0.7"), ("k", "ff02::1")],
        ),
    ]);
    assert_eq!(all(&store), [("good".to_owned(), "10.0.0.1".to_owned())]);
}

#[test]
fn an_endpoint_in_two_slices_is_one_in_its_better_state() {
    let mut leaving = slice("a", "1", "IPv4", &[("n2", "10.0.0.2")]);
    leaving.endpoints.push(Encoded::terminating("n1", "10.0.0.1"));
    let store = listed(&[leaving, slice("b", "1", "IPv4", &[("n1", "10.0.0.1")])]);
    let endpoints = store.endpoints(|id| store.members().name(id) == "n1");
    assert_eq!((store.endpoints(|_| true).len(), endpoints.len()), (2, 1));
    assert_eq!(endpoints[0].readiness, Readiness::Ready);
}

#[test]
fn the_newer_endpoint_of_a_node_comes_later_wherever_the_controller_puts_it() {
    let mut store = listed(&[slice("s", "1", "IPv4", &[("n1", "10.0.0.9"), ("n2", "10.0.0.2")])]);
    // The successor on n1 comes first in its slice and has the lower address.
    let next = slice("s", "2", "IPv4", &[("n1", "10.0.0.1"), ("n1", "10.0.0.9"), ("n2", "10.0.0.2")]);
    put(&mut store, &next, true).unwrap();
    assert_eq!(addresses(&store), ["10.0.0.9", "10.0.0.2", "10.0.0.1"]);
    // An endpoint that moves to another slice keeps its place, in whatever order the slices are
    // read.
    put(&mut store, &slice("t", "3", "IPv4", &[("n3", "10.0.0.3"), ("n1", "10.0.0.9")]), true).unwrap();
    put(&mut store, &slice("s", "4", "IPv4", &[("n1", "10.0.0.1")]), true).unwrap();
    assert_eq!(addresses(&store), ["10.0.0.9", "10.0.0.1", "10.0.0.3"]);
    // An address that moved to another node is a new endpoint.
    put(&mut store, &slice("t", "5", "IPv4", &[("n4", "10.0.0.9"), ("n3", "10.0.0.3")]), true).unwrap();
    assert_eq!(addresses(&store), ["10.0.0.1", "10.0.0.3", "10.0.0.9"]);
}

#[test]
fn the_first_list_counts_in_the_order_of_the_slices_creation() {
    let store = listed(&[
        Given { created: 30, ..slice("a", "1", "IPv4", &[("n1", "10.0.0.1")]) },
        Given { created: 10, ..slice("b", "1", "IPv4", &[("n1", "10.0.0.2")]) },
        Given { created: 20, ..slice("c", "1", "IPv4", &[("n1", "10.0.0.3")]) },
    ]);
    assert_eq!(addresses(&store), ["10.0.0.2", "10.0.0.3", "10.0.0.1"]);
}

#[test]
fn a_deleted_slice_takes_its_endpoints_along_and_no_others() {
    let now = Instant::now();
    let mut store = a_and_b();
    store.deleted("a", now);
    assert_eq!((store.awaits("a"), store.awaits("b")), (None, Some(1)));
    store.settle(now);
    assert_eq!(addresses(&store), ["10.0.0.2"]);
    assert!(!store.is_empty());
    put(&mut store, &slice("b", "2", "IPv4", &[]), true).unwrap();
    assert!(store.is_empty());
}

#[test]
fn endpoints_of_a_deleted_slice_stay_until_the_slices_are_read_that_had_changed_before() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let mut store = a_and_b();
    announce(&mut store, "b", 2, now);
    store.deleted("a", now + second);
    store.settle(now + second);
    assert_eq!(
        (addresses(&store), store.is_fresh("10.0.0.1".parse().unwrap())),
        (vec!["10.0.0.1".into(), "10.0.0.2".into()], false)
    );
    put(&mut store, &slice("b", "2", "IPv4", &[("n2", "10.0.0.2"), ("n1", "10.0.0.1")]), true).unwrap();
    // A slice that changes later cannot have taken the endpoint over.
    announce(&mut store, "b", 3, now + 2 * second);
    store.settle(now + 2 * second);
    assert_eq!(store.len(), 1);
    assert_eq!(addresses(&store), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn a_reading_that_fails_does_not_remove_the_endpoints_of_a_deleted_slice() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let mut store = a_and_b();
    // This slice takes over what the other one held.
    announce(&mut store, "b", 2, now);
    store.deleted("a", now + second);
    store.failed("b", now + 2 * second);
    store.settle(now + 2 * second);
    assert_eq!(addresses(&store), ["10.0.0.1", "10.0.0.2"]);
    put(&mut store, &slice("b", "2", "IPv4", &[("n2", "10.0.0.2"), ("n1", "10.0.0.1")]), true).unwrap();
    store.settle(now + 3 * second);
    assert_eq!((addresses(&store), store.len()), (vec!["10.0.0.1".into(), "10.0.0.2".into()], 1));
}

#[test]
fn a_slice_is_stale_until_the_announced_version_is_read() {
    let (now, timing) = (Instant::now(), Timing::default());
    let mut store = listed(&[slice("s", "5", "IPv4", &[("n1", "10.0.0.1")])]);
    let next = |store: &Store| store.next(&timing, Instant::now()).map(|(name, version, _)| (name.to_owned(), version));
    assert_eq!(next(&store), None);
    for old in [4, 5] {
        announce(&mut store, "s", old, now);
        assert_eq!(next(&store), None, "{old}");
    }
    announce(&mut store, "s", 6, now);
    announce(&mut store, "s", 8, now);
    assert_eq!(next(&store), Some(("s".into(), 8)));
    put(&mut store, &slice("s", "7", "IPv4", &[("n1", "10.0.0.1")]), true).unwrap();
    assert_eq!(next(&store), Some(("s".into(), 8)), "not new enough");
    put(&mut store, &slice("s", "9", "IPv4", &[("n1", "10.0.0.1")]), true).unwrap();
    assert_eq!(next(&store), None);
    announce(&mut store, "new", 10, now);
    assert!(store.has_unread() && next(&store) == Some(("new".into(), 10)));
}

#[test]
fn another_history_makes_everything_stale() {
    let now = Instant::now();
    let mut store = listed(&[slice("s", "5", "IPv4", &[("n1", "10.0.0.1")])]);
    for version in [5, 3] {
        store.announce(&api::Metadata { name: "s", version, created: 0 }, By::OtherHistory, now, 0.5).unwrap();
        assert!(store.has_stale() && !store.has_unread());
        put(&mut store, &slice("s", &version.to_string(), "IPv4", &[("n1", "10.0.0.1")]), true).unwrap();
        assert!(!store.has_stale(), "{version}");
    }
}

#[test]
fn a_doubted_slice_is_read_before_all_that_are_overdue() {
    let (now, timing) = (Instant::now(), Timing::default());
    let mut store = a_and_b();
    announce(&mut store, "a", 2, now);
    let later = now + Duration::from_mins(1);
    announce(&mut store, "b", 3, later);
    assert_eq!(store.next(&timing, Instant::now()).unwrap().0, "a");
    store.doubt("10.0.0.2".parse().unwrap(), later);
    assert_eq!(store.next(&timing, Instant::now()).unwrap().0, "b");
}

#[test]
fn more_slices_than_allowed_are_refused_and_the_known_ones_still_change() {
    let mut store =
        listed(&(0..limits::SLICES_MAX).map(|n| slice(&format!("s{n}"), "1", "IPv4", &[])).collect::<Vec<_>>());
    assert!(put(&mut store, &slice("one-more", "1", "IPv4", &[]), true).is_err());
    assert!(
        store
            .announce(&api::Metadata { name: "one-more", version: 1, created: 0 }, By::Event, Instant::now(), 0.5)
            .is_err()
    );
    put(&mut store, &slice("s0", "2", "IPv4", &[("n1", "10.0.0.1")]), true).unwrap();
    assert_eq!(addresses(&store), ["10.0.0.1"]);
}

#[test]
fn a_slice_has_at_most_a_thousand_endpoints_that_count() {
    let addresses: Vec<_> =
        (0..limits::ENDPOINTS_PER_SLICE_MAX + 5).map(|n| format!("10.0.{}.{}", n / 250, n % 250 + 1)).collect();
    let many: Vec<_> = addresses.iter().map(|a| (a.as_str(), a.as_str())).collect();
    assert_eq!(listed(&[slice("s", "1", "IPv4", &many)]).endpoints(|_| true).len(), limits::ENDPOINTS_PER_SLICE_MAX);
}

#[test]
fn name_zone_and_endpoint_of_a_member_take_at_most_64_bytes() {
    let nodes: Vec<_> =
        (0..5_000).map(|n| format!("ip-10-0-{:03}-{:03}.compute.example.org.", n / 250, n % 250)).collect();
    assert!(nodes.iter().all(|name| name.len() == 36));
    let slices: Vec<_> = (0..50)
        .map(|s| {
            let part: Vec<_> = (100 * s..100 * (s + 1))
                .map(|n| (nodes[n].as_str(), format!("10.{}.{}.1", n / 250, n % 250)))
                .collect();
            slice(
                &format!("kube-canary-{s:05}"),
                "1",
                "IPv4",
                &part.iter().map(|(n, a)| (*n, a.as_str())).collect::<Vec<_>>(),
            )
        })
        .collect();
    let store = listed(&slices);
    let endpoints: usize = store.slices.values().map(|slice| slice.endpoints.bytes()).sum();
    let slices: usize = store.slices.keys().map(|name| name.len() + size_of::<(Box<str>, StoredSlice)>()).sum();
    let members = store.members().resident_bytes();
    let each = (members + endpoints + slices).div_ceil(5_000);
    println!("of 5,000 members: {members} bytes, their endpoints {endpoints}, slices {slices}: {each} each");
    assert!(each <= 64, "{each} bytes");
}

/// Returns the names of the listed members, a `!` behind those whose address another one holds.
fn holders(store: &Store, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let endpoints = store.endpoints(|id| wanted(store.members().name(id)));
    let mark = |e: &ListedEndpoint| if e.is_displaced { "!" } else { "" };
    let mut all: Vec<String> =
        endpoints.iter().map(|e| format!("{}{}", store.members().name(e.member), mark(e))).collect();
    all.sort();
    all
}

#[test]
fn an_address_of_two_nodes_is_that_of_the_ready_one_then_of_the_newest() {
    for (family, address) in [("IPv4", "10.0.0.2"), ("IPv6", "fd00::2")] {
        let mut old = slice("a", "1", family, &[]);
        old.endpoints.push(Encoded { ready: Some(false), serving: Some(false), ..Encoded::new("dead", address) });
        // It is the older slice, so the ready node has the older endpoint.
        let new = Given { created: 1, ..slice("b", "1", family, &[("n2", address)]) };
        let mut store = listed(&[old, new]);
        assert_eq!(holders(&store, |_| true), ["dead!", "n2"]);
        // The same holds if the holder is not among those that are probed.
        assert_eq!(holders(&store, |node| node == "dead"), ["dead!"]);
        assert_eq!(holders(&store, |node| node == "n2"), ["n2"]);
        // The other one holds it once its slice has no other. Both are in one slice then.
        put(&mut store, &slice("b", "2", family, &[]), true).unwrap();
        assert_eq!(holders(&store, |_| true), ["dead"]);
        let mut both = slice("b", "3", family, &[]);
        both.endpoints.push(Encoded { ready: Some(false), serving: Some(false), ..Encoded::new("n2", address) });
        put(&mut store, &both, true).unwrap();
        assert_eq!(holders(&store, |_| true), ["dead!", "n2"], "both are unready, and n2 is newer");
    }
}

#[test]
fn one_endpoint_in_two_slices_and_two_pods_of_a_node_displace_no_node() {
    let store = listed(&[
        slice("a", "1", "IPv4", &[("n1", "192.168.0.1"), ("n1", "192.168.0.1"), ("n2", "10.0.0.2")]),
        slice("b", "1", "IPv4", &[("n1", "192.168.0.1"), ("n2", "10.0.0.3")]),
        slice("c", "1", "IPv6", &[("n1", "fd00::1")]),
    ]);
    assert_eq!(holders(&store, |_| true), ["n1", "n1", "n2", "n2"]);
}
