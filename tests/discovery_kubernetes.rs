//! List and watch against a fake API server over real TLS on loopback: what goes wrong there must not reach the peers.

#[path = "discovery/api.rs"]
mod api;
#[path = "common/leaks.rs"]
mod leaks;
#[path = "discovery/logged.rs"]
mod logged;

use std::time::{Duration, Instant};

use api::{Api, Authority, slice, timing};
use kube_canary::discovery::{Readiness, Update};
use serde_json::json;

/// Where the list must be that of [`Api::synced`] and one more peer, and nothing came in between.
async fn recovers(api: &mut Api) {
    api.request().await.page("200", "", &[slice("s1", "150", "IPv4", &[("n1", "10.0.0.1"), ("n2", "10.0.0.2")])]);
    assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
}

#[test]
fn a_list_in_pages_of_both_families_is_one_list() {
    leaks::run(async {
        let mut api = Api::start().await;
        let first = api.request().await;
        let (path, _) = first.target.split_once('?').unwrap();
        assert_eq!(path, "/apis/discovery.k8s.io/v1/namespaces/monitoring/endpointslices");
        assert_eq!(first.parameter("labelSelector"), Some("kubernetes.io%2Fservice-name%3Dkube-canary"));
        assert_eq!((first.parameter("limit"), first.parameter("continue")), (Some("1"), None));
        assert_eq!(first.token, "token-1");
        first.page("100", "to/ken=", &[slice("s-v4", "90", "IPv4", &[("n1", "10.0.0.1"), ("n2", "10.0.0.2")])]);
        let second = api.request().await;
        assert_eq!(second.parameter("continue"), Some("to%2Fken%3D"));
        second.page("100", "more", &[slice("s-v6", "91", "IPv6", &[("n1", "fd00::1")])]);
        api.request().await.page("100", "", &[slice("s-v4-b", "92", "IPv4", &[("n3", "10.0.0.3")])]);

        let list = api.list().await;
        let mut names: Vec<String> = list.iter().map(|p| format!("{}={}", p.node, p.address)).collect();
        names.sort();
        assert_eq!(names, ["n1=10.0.0.1", "n1=fd00::1", "n2=10.0.0.2", "n3=10.0.0.3"]);
        assert!(list.iter().all(|p| p.zone.as_deref() == Some("z1") && p.http_port == Some(9877)));
        assert!(list.iter().all(|p| p.readiness == Readiness::Ready));

        let watch = api.request().await;
        assert_eq!(watch.parameter("resourceVersion"), Some("100"));
        assert_eq!(watch.parameter("allowWatchBookmarks"), Some("true"));
        let seconds: u64 = watch.parameter("timeoutSeconds").unwrap().parse().unwrap();
        assert!((240..=360).contains(&seconds), "{seconds}");
        let _open = watch.watch();
        api.confirmed().await;
    });
}

#[test]
fn events_add_change_and_delete_and_a_burst_is_one_list() {
    leaks::run(async {
        let mut api = Api::start().await;
        let watch = api.synced().await;
        watch.events(&[("ADDED", slice("s2", "101", "IPv6", &[("n1", "fd00::1")]))]);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n1=fd00::1"]);

        // n1 is on its way out, n2 has come but is not serving.
        let mut rolled = slice("s1", "102", "IPv4", &[("n1", "10.0.0.1"), ("n2", "10.0.0.2")]);
        rolled["endpoints"][0]["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
        rolled["endpoints"][1]["conditions"] = json!({"ready": true, "serving": false, "terminating": false});
        watch.events(&[("MODIFIED", rolled)]);
        let states: Vec<_> =
            api.list().await.into_iter().map(|p| (p.node, p.address.to_string(), p.readiness)).collect();
        assert!(states.contains(&("n1".into(), "10.0.0.1".into(), Readiness::Terminating)), "{states:?}");
        assert!(states.contains(&("n2".into(), "10.0.0.2".into(), Readiness::Unready)), "{states:?}");
        assert!(states.contains(&("n1".into(), "fd00::1".into(), Readiness::Ready)), "{states:?}");

        watch.events(&[
            ("ADDED", slice("s3", "103", "IPv4", &[("n3", "10.0.0.3")])),
            ("MODIFIED", slice("s1", "104", "IPv4", &[("n2", "10.0.0.2")])),
            ("DELETED", slice("s2", "105", "IPv6", &[("n1", "fd00::1")])),
        ]);
        assert_eq!(api.names().await, ["n2=10.0.0.2", "n3=10.0.0.3"]);
        watch.bookmark("106");
        api.confirmed().await;
    });
}

#[test]
fn an_event_may_come_in_pieces() {
    leaks::run(async {
        let mut api = Api::start().await;
        let watch = api.synced().await;
        let text =
            json!({"type": "ADDED", "object": slice("s2", "101", "IPv4", &[("n2", "10.0.0.2")])}).to_string() + "\n";
        let (head, tail) = text.split_at(text.len() / 2);
        watch.raw(head);
        watch.raw(tail);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
    });
}

#[test]
fn a_watch_goes_on_from_its_last_bookmark() {
    leaks::run(async {
        let mut api = Api::start().await;
        let watch = api.synced().await;
        watch.bookmark("150");
        api.confirmed().await;
        watch.end();
        let again = api.request().await;
        assert_eq!(again.parameter("resourceVersion"), Some("150"));
        let watch = again.watch();
        api.confirmed().await;
        // Cut in the middle of an event: what was whole counts, and the rest is asked for again.
        watch.events(&[("ADDED", slice("s2", "151", "IPv4", &[("n2", "10.0.0.2")]))]);
        watch.raw("{\"type\":\"DELETED\",\"obj");
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
        watch.cut();
        assert_eq!(api.request().await.parameter("resourceVersion"), Some("151"));
    });
}

#[test]
fn gone_means_a_new_list_and_the_old_one_until_then() {
    leaks::run(async {
        let mut api = Api::start().await;
        let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"});
        api.synced().await.events(&[("ERROR", gone.clone())]);
        let list = api.request().await;
        assert_eq!((list.parameter("limit"), list.parameter("continue")), (Some("1"), None));
        list.page("200", "next", &[slice("s1", "150", "IPv4", &[("n1", "10.0.0.1")])]);
        // The continue token has expired too: the list starts over.
        api.request().await.answer(410, "", &gone.to_string());
        let list = api.request().await;
        assert_eq!((list.parameter("watch"), list.parameter("continue")), (None, None));
        list.page("201", "", &[slice("s9", "160", "IPv4", &[("n9", "10.0.0.9")])]);
        assert_eq!(api.names().await, ["n9=10.0.0.9"], "the first list since, and nothing of the one given up");
        // As a status, in answer to the watch itself.
        api.request().await.answer(410, "", &gone.to_string());
        recovers(&mut api).await;
    });
}

#[test]
fn no_failure_of_a_list_empties_the_peers() {
    leaks::run(async {
        let mut api = Api::start().await;
        api.synced().await.events(&[("ERROR", json!({"code": 410}))]);
        let ok = "Content-Type: application/json\r\n";
        for _ in 0..2 {
            api.request().await.answer(500, "", "oops");
            api.request().await.answer(403, ok, &json!({"kind": "Status", "code": 403}).to_string());
            api.request().await.answer(503, "", "");
            api.request().await.answer(404, "", "404 page not found");
            for body in
                ["", "{}", "<html></html>", r#"{"kind":"Status","items":[]}"#, r#"{"kind":"EndpointSliceList"}"#]
            {
                api.request().await.answer(200, ok, body);
            }
            api.request().await.cut();
            api.request().await.flood(5 << 20);
        }
        recovers(&mut api).await;
    });
}

#[test]
fn a_kind_of_failure_is_logged_once_until_all_is_well() {
    leaks::run(async {
        let mut api = Api::start().await;
        let port = api.address.port().to_string();
        let watch = api.synced().await;
        api.stop().await;
        drop(watch);
        logged::wait(&["connecting to", &port]).await;
        api.resume().await;
        let watch = api.request().await;
        assert_eq!(watch.parameter("resourceVersion"), Some("100"), "a refused connection costs no new list");
        let watch = watch.watch();
        api.confirmed().await;
        watch.events(&[("ADDED", slice("s2", "101", "IPv4", &[("n2", "10.0.0.2")]))]);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
        assert_eq!(logged::count(&["connecting to", &port]), 1);
    });
}

#[test]
fn no_failure_of_a_watch_empties_the_peers() {
    leaks::run(async {
        let mut api = Api::start().await;
        let watch = api.synced().await;
        watch.cut();
        for status in [500, 403, 503] {
            let watch = api.request().await;
            assert_eq!(watch.parameter("resourceVersion"), Some("100"));
            watch.answer(status, "", "");
        }
        // An empty watch that ends at once is no reason to hurry, nor to list.
        api.request().await.watch().end();
        api.confirmed().await;
        let watch = api.request().await;
        assert_eq!(watch.parameter("resourceVersion"), Some("100"));
        // Nonsense leaves the version in doubt: a new list.
        watch.watch().raw("surprise\n");
        api.confirmed().await;
        let list = api.request().await;
        assert_eq!(list.parameter("watch"), None);
        list.page("120", "", &[slice("s1", "90", "IPv4", &[("n1", "10.0.0.1")])]);
        assert_eq!(api.names().await, ["n1=10.0.0.1"]);
        let watch = api.request().await.watch();
        api.confirmed().await;
        watch.raw(&"x".repeat(5 << 20));
        recovers(&mut api).await;
    });
}

#[test]
fn a_rotated_token_is_used_at_once_after_401() {
    leaks::run(async {
        // A back-off that would outlast the test: only a retry without one gets through.
        let hour = Duration::from_hours(1);
        let mut api =
            Api::with(kube_canary::discovery::kubernetes::Timing { backoff_min: hour, ..timing() }, None).await;
        let refused = api.request().await;
        assert_eq!(refused.token, "token-1");
        api.account.write("token", "token-2");
        refused.answer(401, "", "");
        let accepted = api.request().await;
        assert_eq!(accepted.token, "token-2");
        accepted.page("100", "", &[slice("s1", "90", "IPv4", &[("n1", "10.0.0.1")])]);
        assert_eq!(api.names().await, ["n1=10.0.0.1"]);
        // And each request reads it anew.
        api.account.write("token", "token-3");
        let watch = api.request().await.watch();
        api.confirmed().await;
        api.account.write("token", "token-4");
        watch.bookmark("101");
        api.confirmed().await;
        watch.end();
        assert_eq!(api.request().await.token, "token-4");
    });
}

#[test]
fn a_token_that_stays_refused_is_tried_again_and_empties_nothing() {
    leaks::run(async {
        let mut api = Api::start().await;
        api.synced().await.cut();
        for _ in 0..3 {
            api.request().await.answer(401, "", "");
        }
        let watch = api.request().await.watch();
        api.confirmed().await;
        watch.events(&[("ADDED", slice("s2", "101", "IPv4", &[("n2", "10.0.0.2")]))]);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
    });
}

#[test]
fn retry_after_is_waited_for() {
    leaks::run(async {
        let mut api = Api::start().await;
        for status in [429, 503] {
            let busy = api.request().await;
            let told = Instant::now();
            busy.answer(status, "Retry-After: 1\r\n", "");
            let again = api.request().await;
            assert!(told.elapsed() >= Duration::from_secs(1), "{:?}", told.elapsed());
            again.cut();
        }
    });
}

#[test]
fn a_server_of_another_authority_is_refused_until_the_bundle_is_right() {
    leaks::run(async {
        let other = Authority::new();
        let mut api = Api::with(timing(), Some(&other.pem)).await;
        let port = api.address.port().to_string();
        logged::wait(&["TLS with", &port, "UnknownIssuer"]).await;
        assert!(api.updates.try_recv().is_err(), "nothing may be sent");
        let right = api.authority_pem().to_owned();
        api.account.write("ca.crt", &(other.pem + &right));
        api.synced().await;
    });
}

#[test]
fn an_empty_list_is_believed_at_the_second_look() {
    leaks::run(async {
        let mut api = Api::start().await;
        api.synced().await.events(&[("ERROR", json!({"code": 410}))]);
        api.request().await.page("200", "", &[]);
        // Not twice in a row: not believed.
        recovers(&mut api).await;
        let watch = api.request().await.watch();
        api.confirmed().await;
        // The slice is deleted: a first look. The list is the second.
        watch.events(&[("DELETED", slice("s1", "201", "IPv4", &[]))]);
        api.request().await.page("202", "", &[slice("s2", "202", "IPv4", &[])]);
        let update = api.update().await;
        assert!(matches!(&update, Update::List(list) if list.peers.is_empty()), "{update:?}");
    });
}

#[test]
fn an_empty_list_at_the_start_is_believed_at_the_second_look_too() {
    leaks::run(async {
        let mut api = Api::start().await;
        api.request().await.page("100", "", &[]);
        let second = api.request().await;
        assert!(api.updates.try_recv().is_err());
        second.page("101", "", &[]);
        assert!(api.names().await.is_empty());
        let watch = api.request().await.watch();
        api.confirmed().await;
        watch.events(&[("ADDED", slice("s1", "102", "IPv4", &[("n1", "10.0.0.1")]))]);
        assert_eq!(api.names().await, ["n1=10.0.0.1"]);
    });
}

#[test]
fn a_watch_that_says_nothing_beyond_its_time_is_dropped() {
    leaks::run(async {
        let short = Duration::from_secs(1);
        let timing = kube_canary::discovery::kubernetes::Timing { watch: short, watch_grace: short / 20, ..timing() };
        let mut api = Api::with(timing, None).await;
        let _silent = api.synced().await;
        assert_eq!(api.request().await.parameter("resourceVersion"), Some("100"));
        assert!(api.updates.try_recv().is_err());
    });
}

#[test]
fn a_request_that_is_never_answered_is_given_up() {
    leaks::run(async {
        let timing = kube_canary::discovery::kubernetes::Timing { request: Duration::from_millis(50), ..timing() };
        let mut api = Api::with(timing, None).await;
        let _unanswered = api.request().await;
        let _again = api.request().await;
    });
}

#[test]
fn discovery_ends_when_nobody_listens() {
    leaks::run(async {
        let mut api = Api::start().await;
        let _watch = api.synced().await;
        api.updates.close();
        api.client_ended().await;
    });
}
