//! Lists, a watch and readings against a fake API server over real TLS on loopback. Its failures
//! must not affect the peers.

#[path = "common/account.rs"]
mod account;
#[path = "discovery/api.rs"]
mod api;
#[path = "discovery/encode.rs"]
mod encode;
#[path = "common/leaks.rs"]
mod leaks;
#[path = "discovery/logged.rs"]
mod logged;

#[path = "discovery/doubts.rs"]
mod doubts;
#[path = "discovery/outage.rs"]
mod outage;

use std::time::Duration;

use account::Authority;
use api::{Api, Next, Setup, timing};
use encode::{Endpoint, slice};
use kube_canary::discovery::kubernetes::Timing;
use kube_canary::discovery::{MeshFacts, Ourselves, Readiness, Update};
use kube_canary::limits::API_LIST_BYTES_MAX;

#[test]
fn slices_of_both_families_are_one_list() {
    leaks::run(async {
        let mut api = Api::start().await;
        let first = api.request().await;
        let (path, _) = first.target.split_once('?').unwrap();
        assert_eq!(path, "/apis/discovery.k8s.io/v1/namespaces/monitoring/endpointslices");
        assert_eq!(first.parameter("labelSelector"), Some("kubernetes.io%2Fservice-name%3Dkube-canary"));
        assert_eq!((first.parameter("resourceVersion"), first.parameter("limit")), (Some("0"), None), "from the cache");
        assert_eq!(first.token, "token-1");
        first.list(
            "100",
            &[
                slice("s-v4", "90", "IPv4", &[("n1", "10.0.0.1"), ("n2", "10.0.0.2")]),
                slice("s-v4-b", "92", "IPv4", &[("n3", "10.0.0.3")]),
                slice("s-v6", "91", "IPv6", &[("n1", "fd00::1"), ("n3", "fd00::3")]),
            ],
        );
        let mesh = api.update().await;
        assert!(matches!(mesh, Update::Mesh(MeshFacts { members: 4, .. })), "three, and we: {mesh:?}");
        let list = api.list().await;
        let mut names: Vec<String> = list.iter().map(|p| format!("{}={}", p.node, p.address)).collect();
        names.sort();
        assert_eq!(names, ["n1=10.0.0.1", "n1=fd00::1", "n2=10.0.0.2", "n3=10.0.0.3", "n3=fd00::3"]);
        assert!(list.iter().all(|p| p.zone.as_deref() == Some("z1") && p.http_port == Some(9877)));
        assert!(list.iter().all(|p| p.readiness == Readiness::Ready));

        let watch = api.request().await;
        assert_eq!(watch.accept, "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        assert_eq!(watch.parameter("resourceVersion"), Some("100"));
        assert_eq!(watch.parameter("allowWatchBookmarks"), Some("true"));
        let seconds: u64 = watch.parameter("timeoutSeconds").unwrap().parse().unwrap();
        assert!((240..=360).contains(&seconds), "{seconds}");
        let _open = watch.watch();
        api.confirmed().await;
    });
}

#[test]
fn a_slice_that_changes_is_read_and_no_other() {
    leaks::run(async {
        let mut api = Api::start().await;
        let both = [slice("s1", "90", "IPv4", &[("n1", "10.0.0.1")]), slice("s2", "91", "IPv6", &[("n1", "fd00::1")])];
        let watch = api.synced_with(&both).await;
        // n1 is terminating, n2 has come but is not serving.
        let mut rolled = slice("s1", "102", "IPv4", &[]);
        rolled.endpoints = vec![
            Endpoint::terminating("n1", "10.0.0.1"),
            Endpoint { serving: Some(false), ..Endpoint::new("n2", "10.0.0.2") },
        ];
        watch.changed(&rolled);
        let reading = api.request().await;
        assert_eq!(
            reading.target,
            "/apis/discovery.k8s.io/v1/namespaces/monitoring/endpointslices/s1?resourceVersion=102"
        );
        reading.slice(&rolled);
        let states: Vec<_> =
            api.list().await.into_iter().map(|p| (p.node, p.address.to_string(), p.readiness)).collect();
        assert_eq!(states.len(), 3);
        for (node, address, readiness) in [
            ("n1", "10.0.0.1", Readiness::Terminating),
            ("n2", "10.0.0.2", Readiness::Unready),
            ("n1", "fd00::1", Readiness::Ready),
        ] {
            assert!(states.contains(&(node.into(), address.into(), readiness)), "{states:?}");
        }
        // One slice is new, one is removed.
        let added = slice("s3", "103", "IPv4", &[("n3", "10.0.0.3")]);
        watch.events(&[("ADDED", &added)]);
        api.request().await.slice(&added);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n1=fd00::1", "n2=10.0.0.2", "n3=10.0.0.3"]);
        watch.events(&[("DELETED", &slice("s2", "104", "IPv6", &[]))]);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2", "n3=10.0.0.3"]);
        watch.bookmark("106");
        api.confirmed().await;
        api.nothing_asked();
    });
}

/// The head never ends, and hyper reads every byte of it, so the client itself must close.
#[test]
fn interim_answers_without_end_are_given_up_and_asked_again() {
    const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    leaks::run(async {
        let mut api = Api::start().await;
        api.request().await.endless(INTERIM);
        let watch = api.synced().await;
        let changed = slice("s1", "101", "IPv4", &[("n2", "10.0.0.2")]);
        watch.changed(&changed);
        api.request().await.endless(INTERIM);
        api.request().await.slice(&changed);
        assert_eq!(api.names().await, ["n2=10.0.0.2"]);
    });
}

#[test]
fn a_list_of_more_bytes_than_any_service_needs_is_given_up_and_asked_for_again() {
    leaks::run(async {
        let mut api = Api::start().await;
        let slices = [slice("s1", "90", "IPv4", &[("n1", "10.0.0.1")])];
        let large = encode::padded_slice_list("100", &slices, API_LIST_BYTES_MAX);
        api.request().await.chunks(&large, 1 << 20);
        // It is a valid list otherwise.
        let Next::Request(again) = api.next().await else { panic!("taken") };
        again.metadata("100", &slices);
        assert_eq!(api.names().await, ["n1=10.0.0.1"]);
    });
}

#[test]
fn a_burst_of_changes_is_one_reading() {
    leaks::run(async {
        let mut api = Api::timed(Timing { coalesce: Duration::from_millis(100), ..timing() }).await;
        let watch = api.synced().await;
        let last = slice("s1", "109", "IPv4", &[("n1", "10.0.0.1"), ("n2", "10.0.0.2")]);
        for version in ["101", "102", "103"] {
            watch.changed(&slice("s1", version, "IPv4", &[]));
        }
        watch.changed(&last);
        api.request().await.slice(&last);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
        // This reading is as new as the change that is reported later.
        watch.changed(&slice("s1", "109", "IPv4", &[]));
        watch.bookmark("110");
        api.confirmed().await;
        api.nothing_asked();
    });
}

#[test]
fn a_slice_that_changes_while_it_is_read_is_read_again() {
    leaks::run(async {
        let mut api = Api::start().await;
        let watch = api.synced().await;
        watch.changed(&slice("s1", "101", "IPv4", &[]));
        let reading = api.request().await;
        watch.changed(&slice("s1", "102", "IPv4", &[]));
        watch.bookmark("103");
        api.confirmed().await;
        reading.slice(&slice("s1", "101", "IPv4", &[("n1", "10.0.0.1"), ("n2", "10.0.0.2")]));
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
        api.request().await.slice(&slice("s1", "102", "IPv4", &[("n1", "10.0.0.1")]));
        assert_eq!(api.names().await, ["n1=10.0.0.1"]);
    });
}

#[test]
fn a_change_that_changes_no_peer_of_ours_is_no_new_list() {
    leaks::run(async {
        let mut api = Api::start().await;
        let watch = api.synced().await;
        let same = slice("s1", "101", "IPv4", &[("n1", "10.0.0.1")]);
        watch.changed(&same);
        api.request().await.slice(&same);
        api.confirmed().await;
    });
}

#[test]
fn an_event_and_a_list_may_come_in_pieces() {
    leaks::run(async {
        let mut api = Api::start().await;
        let list = encode::slice_list("100", &[slice("s1", "90", "IPv4", &[("n1", "10.0.0.1")])]);
        let watch = {
            let request = api.request().await;
            request.chunks(&list, 7);
            api.list().await;
            let watch = api.request().await.watch();
            api.confirmed().await;
            watch
        };
        let added = slice("s2", "101", "IPv4", &[("n2", "10.0.0.2")]);
        let frame = encode::change("ADDED", &added);
        let (head, tail) = frame.split_at(frame.len() / 2);
        watch.raw(head);
        watch.raw(tail);
        api.request().await.slice(&added);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
    });
}

#[test]
fn the_connection_for_reading_is_closed_when_it_is_idle() {
    leaks::run(async {
        let mut api = Api::timed(Timing { read_idle: Duration::from_millis(20), ..timing() }).await;
        let watch = api.synced().await;
        for version in ["101", "102"] {
            api.connections(1).await;
            let new = slice("s1", version, "IPv4", &[("n1", "10.0.0.1"), (version, "10.0.0.2")]);
            watch.changed(&new);
            api.request().await.slice(&new);
            assert_eq!(api.list().await.len(), 2);
        }
        api.connections(1).await;
        watch.bookmark("103");
        api.confirmed().await;
    });
}

#[test]
fn only_those_that_are_selected_become_peers_and_our_own_entry() {
    leaks::run(async {
        let ourselves = Ourselves {
            node: "n07".into(),
            max_peers: 8,
            forget_after: Duration::from_mins(5),
            ..Ourselves::default()
        };
        let mut api = Api::with(Setup { ourselves, ..Setup::default() }).await;
        let nodes: Vec<(String, String)> = (0..60).map(|n| (format!("n{n:02}"), format!("10.0.0.{n}"))).collect();
        let part = |from: usize| {
            let part: Vec<_> = nodes[from..from + 20].iter().map(|(n, a)| (n.as_str(), a.as_str())).collect();
            slice(&format!("s{from}"), "90", "IPv4", &part)
        };
        api.request().await.list("100", &[part(0), part(20), part(40)]);
        let mesh = api.update().await;
        let Update::Mesh(facts) = mesh else { panic!("first of the mesh, not {mesh:?}") };
        assert_eq!((facts.members, facts.watchers_missing), (60, 0));
        assert!(facts.watchers_in_zone >= 4, "{facts:?}");
        let roster = api.update().await;
        let Update::Roster(roster) = roster else { panic!("then the roster, not {roster:?}") };
        for (node, address) in &nodes {
            assert_eq!(roster.address(node), Some(address.parse().unwrap()), "{node}");
        }
        assert_eq!(roster.address("n60"), None);
        let list = api.list().await;
        assert_eq!((list.len(), list.iter().filter(|p| p.node == "n07").count()), (9, 1));
        let watch = api.request().await.watch();
        api.confirmed().await;
        // A node that leaves stays a member: no other takes its place.
        let left = &list.iter().find(|p| p.node != "n07").unwrap().node;
        let at = nodes.iter().position(|(node, _)| node == left).unwrap() / 20 * 20;
        let mut without = part(at);
        without.version = "101".into();
        without.endpoints.retain(|e| e.node.as_ref() != Some(left));
        watch.changed(&without);
        api.request().await.slice(&without);
        let after = api.list().await;
        assert_eq!(after.len(), 8);
        assert!(after.iter().all(|p| list.iter().any(|before| before.node == p.node)), "{after:?}");
    });
}

#[test]
fn a_server_of_another_authority_is_refused_until_the_bundle_is_right() {
    leaks::run(async {
        let other = Authority::new();
        let mut api = Api::with(Setup { other_ca: Some(&other.pem), ..Setup::default() }).await;
        let port = api.address.port().to_string();
        logged::wait(&["TLS with", &port, "UnknownIssuer"]).await;
        api.silence();
        let right = api.authority_pem().to_owned();
        api.account.write("ca.crt", &(other.pem + &right));
        api.synced().await;
    });
}

#[test]
fn discovery_ends_when_its_channel_is_closed() {
    leaks::run(async {
        let mut api = Api::start().await;
        let _watch = api.synced().await;
        api.updates.close();
        api.client_ended().await;
    });
}
