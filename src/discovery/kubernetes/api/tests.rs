use super::super::encode::{self, Endpoint as Encoded, field, number};
use super::super::inbox::{ListItems, ListPiece, WatchEvents};
use super::*;

/// Answers of a real API server (Kubernetes 1.34) in a test cluster: 353 endpoints,
/// most of them synthetic.
macro_rules! answer {
    ($name:literal) => {
        include_bytes!(concat!("../../../../tests/discovery/answers/", $name, ".pb"))
    };
}

fn read_slice(body: &[u8]) -> Result<EndpointSlice<'_>, String> {
    EndpointSlice::read(open(body, ObjectKind::SLICE)?)
}

#[test]
fn a_slice_of_a_real_api_server_is_read() {
    let slice = read_slice(answer!("slice")).unwrap();
    assert_eq!(slice.metadata, Metadata { name: "kube-canary-jqk88", version: 4_790, created: 1_795_277_492 });
    assert_eq!((slice.family, slice.port), (Some(SliceFamily::V4), Some(9_877)));
    let endpoints: Vec<_> = slice.endpoints().collect();
    assert_eq!(endpoints.len(), 53);
    let first = ApiEndpoint {
        address: "198.18.1.50",
        node: "ip-10-0-0-163.eu-west-1.compute.internal",
        pod: "kube-canary-mn2gg",
        zone: "eu-west-1c",
        readiness: Readiness::Ready,
    };
    assert_eq!(endpoints[0], first);
    let made_up = endpoints.iter().filter(|e| e.address.starts_with("198.18.1.") && e.zone.starts_with("eu-west-1"));
    assert_eq!(made_up.count(), 52);
}

#[test]
fn a_metadata_list_of_a_real_api_server_is_read() {
    let mut items = ListItems::new(ObjectKind::METADATA_LIST, 2_000);
    items.push(answer!("metadata-list"));
    let Ok(Some(ListPiece::Metadata(metadata))) = items.next_piece() else { panic!("metadata come first") };
    assert_eq!(list_version(metadata), Ok(6_723));
    let mut found = Vec::new();
    while let Some(ListPiece::Item(item)) = items.next_piece().unwrap() {
        let metadata = Metadata::read_item(item).unwrap();
        found.push((metadata.name.to_owned(), metadata.version));
    }
    items.finish().unwrap();
    let names = ["chmmh", "jqk88", "qftnk", "wqwtz"].map(|name| format!("kube-canary-{name}"));
    assert_eq!(found.iter().map(|(name, _)| name).collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
    assert_eq!(found[1].1, 4_790);
}

#[test]
fn events_of_a_real_api_server_are_read() {
    let mut events = WatchEvents::new(2_000);
    events.push(answer!("watch"));
    for version in [7_372, 7_414] {
        match WatchEvent::read(events.next_event().unwrap().unwrap()).unwrap() {
            WatchEvent::Changed(metadata) => {
                assert_eq!((metadata.name, metadata.version), ("kube-canary-wqwtz", version));
            }
            other => panic!("{other:?}"),
        }
    }
    for version in [7_741, 9_844] {
        assert_eq!(WatchEvent::read(events.next_event().unwrap().unwrap()), Ok(WatchEvent::Bookmark(version)));
    }
    assert_eq!(events.next_event(), Ok(None));
    let mut events = WatchEvents::new(2_000);
    events.push(answer!("watch-expired"));
    let expired = WatchEvent::Error { code: 410, message: "too old resource version: 1 (1336)" };
    assert_eq!(WatchEvent::read(events.next_event().unwrap().unwrap()), Ok(expired));
}

#[test]
fn not_found_is_believed_of_the_api_server_and_of_that_name_alone() {
    assert!(is_not_found(answer!("not-found"), "kube-canary-nope"));
    assert!(!is_not_found(answer!("not-found"), "kube-canary"));
    assert!(is_not_found(&encode::status(404, "NotFound", "s1"), "s1"));
    assert!(!is_not_found(&encode::status(404, "NotFound", ""), "s1"), "a path that is not served");
    assert!(!is_not_found(&encode::status(503, "NotFound", "s1"), "s1"));
    for body in [&b""[..], b"404 page not found", b"k8s\0"] {
        assert!(!is_not_found(body, "s1"));
    }
}

#[test]
fn an_empty_list_of_a_real_api_server_has_a_version_and_no_items() {
    let mut items = ListItems::new(ObjectKind::SLICES, 2_000);
    items.push(answer!("empty-list"));
    let Ok(Some(ListPiece::Metadata(metadata))) = items.next_piece() else { panic!("metadata come first") };
    assert!(list_version(metadata).unwrap() > 1_000);
    assert_eq!(items.next_piece(), Ok(None));
    items.finish().unwrap();
}

#[test]
fn a_message_that_is_not_a_slice_is_refused() {
    let slice = encode::slice("s1", "7", "IPv4", &[("n1", "10.0.0.1")]);
    let message = slice.message();
    assert_eq!(read_slice(&slice.body()).unwrap().metadata.version, 7);
    for body in [
        Vec::new(),
        b"{}".to_vec(),
        b"<html>log in</html>".to_vec(),
        b"k8s\0".to_vec(),
        encode::envelope("", "", &[]),
        encode::envelope("discovery.k8s.io/v1", "EndpointSlice", &[]),
        encode::envelope("discovery.k8s.io/v1", "EndpointSliceList", &message),
        encode::envelope("discovery.k8s.io/v1beta1", "EndpointSlice", &message),
        encode::envelope("discovery.k8s.io/v1", "EndpointSlice", &message[..message.len() - 1]),
        encode::slice("", "7", "IPv4", &[]).body(),
        encode::slice("s1", "", "IPv4", &[]).body(),
        encode::slice("s1", "seven", "IPv4", &[]).body(),
        // An endpoint that is not a message, and a name that is not text.
        encode::envelope("discovery.k8s.io/v1", "EndpointSlice", &[slice.metadata(), field(2, b"\x0b")].concat()),
        encode::envelope(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            &[slice.metadata(), field(2, &field(6, &[0xff]))].concat(),
        ),
        encode::status(200, "", ""),
    ] {
        assert!(read_slice(&body).is_err(), "{body:?}");
    }
    let foreign = encode::envelope("discovery.k8s.io/v1", &"X".repeat(9_999), &[]);
    assert!(read_slice(&foreign).unwrap_err().len() < 200, "a message is short whatever comes");
}

#[test]
fn a_list_must_have_a_version_and_no_further_pages() {
    assert_eq!(list_version(&field(2, b"7")), Ok(7));
    for message in
        [vec![], field(2, b""), field(2, b"0"), field(2, b"-1"), [field(2, b"7"), field(3, b"more")].concat()]
    {
        assert!(list_version(&message).is_err(), "{message:?}");
    }
}

#[test]
fn the_five_kinds_of_event_are_distinguished() {
    let slice = encode::slice("s1", "9", "IPv4", &[]);
    let read = |frame: Vec<u8>| match WatchEvent::read(&frame[4..]) {
        Ok(WatchEvent::Changed(m)) => format!("changed {} {}", m.name, m.version),
        Ok(WatchEvent::Deleted(m)) => format!("deleted {} {}", m.name, m.version),
        Ok(WatchEvent::Bookmark(version)) => format!("bookmark {version}"),
        Ok(WatchEvent::Error { code, .. }) => format!("error {code}"),
        Err(_) => "unreadable".into(),
    };
    assert_eq!(read(encode::change("ADDED", &slice)), "changed s1 9");
    assert_eq!(read(encode::change("MODIFIED", &slice)), "changed s1 9");
    assert_eq!(read(encode::change("DELETED", &slice)), "deleted s1 9");
    assert_eq!(read(encode::bookmark("10")), "bookmark 10");
    assert_eq!(read(encode::error(410)), "error 410");
    assert_eq!(read(encode::change("LATER", &slice)), "unreadable");
    assert_eq!(read(encode::event("ADDED", &slice.body())), "unreadable", "whole objects were not asked for");
    assert_eq!(read(encode::event("ADDED", b"")), "unreadable");
    assert_eq!(
        read(encode::event("BOOKMARK", &encode::envelope("meta.k8s.io/v1", "PartialObjectMetadata", &[]))),
        "unreadable"
    );
    assert_eq!(read(vec![0, 0, 0, 0]), "unreadable");
}

#[test]
fn readiness_is_terminating_else_serving_and_ready_only_where_serving_is_absent() {
    for (ready, serving, terminating, expected) in [
        (None, None, None, Readiness::Ready),
        (Some(true), Some(false), None, Readiness::Unready),
        (Some(false), Some(true), None, Readiness::Ready),
        (Some(false), None, None, Readiness::Unready),
        (Some(true), None, Some(false), Readiness::Ready),
        (Some(true), Some(true), Some(true), Readiness::Terminating),
        (None, Some(false), Some(true), Readiness::Terminating),
    ] {
        let mut slice = encode::slice("s", "1", "IPv4", &[]);
        slice.endpoints = vec![Encoded { ready, serving, terminating, ..Encoded::new("n", "10.0.0.1") }];
        let (message, expected) = (slice.message(), Some(expected));
        let read = EndpointSlice::read(&message).unwrap().endpoints().next().map(|e| e.readiness);
        assert_eq!(read, expected, "{ready:?} {serving:?} {terminating:?}");
    }
}

#[test]
fn the_port_is_the_one_named_http_else_the_only_one() {
    let port_of = |ports: &[(&str, Option<u64>)]| {
        let mut slice = encode::slice("s", "1", "IPv4", &[]);
        slice.ports = ports.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
        let message = slice.message();
        EndpointSlice::read(&message).unwrap().port
    };
    assert_eq!(port_of(&[("other", Some(1)), ("http", Some(2))]), Some(2));
    assert_eq!(port_of(&[("http", Some(2)), ("other", Some(1))]), Some(2));
    assert_eq!(port_of(&[("metrics", Some(3))]), Some(3));
    assert_eq!(port_of(&[("a", Some(1)), ("b", Some(2))]), None);
    assert_eq!(port_of(&[]), None);
    assert_eq!(port_of(&[("http", None)]), None);
    assert_eq!(port_of(&[("http", Some(70_000))]), None);
    assert_eq!(port_of(&[("http", Some(0))]), None);
}

#[test]
fn the_first_of_an_endpoints_addresses_counts_and_unknown_fields_do_not() {
    let mut endpoint = Encoded::new("n1", "10.0.0.1");
    endpoint.addresses.push("10.0.0.2".into());
    let mut slice = encode::slice("s", "1", "IPv4", &[]);
    slice.endpoints = vec![endpoint];
    let message = [number(14, 7), slice.message(), field(15, b"later")].concat();
    let read: Vec<_> = EndpointSlice::read(&message).unwrap().endpoints().map(|e| e.address).collect();
    assert_eq!(read, ["10.0.0.1"]);
}
