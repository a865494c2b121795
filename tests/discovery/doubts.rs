//! The prober doubts an address: is the peer list as new as it can be?

use std::time::Duration;

use kube_canary::discovery::kubernetes::Timing;
use kube_canary::discovery::{Readiness, Update};
use kube_canary::limits::DOUBT_TIME;

use super::api::{Api, Exchange, Next, Watch, timing};
use super::encode::{self, Endpoint, Slice, slice};
use super::leaks;

/// Times with two slices, each of which is read only after hours unless a peer is doubted.
fn generous_limits() -> Timing {
    let hour = Duration::from_hours(1);
    Timing { read_spacing: hour, read_pause: hour, ..timing() }
}

fn two() -> [Slice; 2] {
    [slice("s1", "90", "IPv4", &[("n1", "10.0.0.1")]), slice("s2", "91", "IPv4", &[("n2", "10.0.0.2")])]
}

async fn patiently() -> (Api, Watch) {
    with(generous_limits()).await
}

async fn with(timing: Timing) -> (Api, Watch) {
    let mut api = Api::timed(timing).await;
    let watch = api.synced_with(&two()).await;
    (api, watch)
}

/// The first slice has changed and is not read yet.
async fn s1_changes(api: &mut Api, watch: &Watch) {
    watch.changed(&slice("s1", "101", "IPv4", &[]));
    watch.bookmark("102");
    api.confirmed().await;
}

/// The same, and its peer is doubted. Returns the request to read the slice.
async fn s1_doubted(api: &mut Api, watch: &Watch) -> Exchange {
    s1_changes(api, watch).await;
    api.doubt("10.0.0.1").await;
    api.request().await
}

#[test]
fn an_address_that_is_fresh_or_unknown_is_sure_at_once() {
    leaks::run(async {
        let (mut api, _watch) = patiently().await;
        for address in ["10.0.0.1", "10.0.0.99", "fd00::1"] {
            api.doubt(address).await;
            api.sure(address).await;
        }
        api.nothing_asked();
    });
}

/// Otherwise the list would count as young for as long as peers are lost, whatever the
/// state of the watch.
#[test]
fn an_answer_from_the_known_state_does_not_confirm_the_list() {
    leaks::run(async {
        let (mut api, _silent) = patiently().await;
        for address in ["10.0.0.1", "10.0.0.2", "10.0.0.1"] {
            api.doubt(address).await;
            let update = api.update().await;
            assert!(matches!(update, Update::Sure(sure) if sure.to_string() == address), "{update:?}");
        }
    });
}

#[test]
fn a_stale_slice_is_read_first_and_the_list_comes_before_the_answer() {
    leaks::run(async {
        let (mut api, watch) = patiently().await;
        let mut leaving = slice("s1", "101", "IPv4", &[]);
        leaving.endpoints = vec![Endpoint::terminating("n1", "10.0.0.1")];
        watch.events(&[("MODIFIED", &leaving), ("MODIFIED", &slice("s2", "102", "IPv4", &[]))]);
        watch.bookmark("103");
        api.confirmed().await;
        api.nothing_asked();
        api.doubt("10.0.0.1").await;
        api.request().await.slice(&leaving);
        let list = api.list().await;
        let n1 = list.iter().find(|p| p.node == "n1").unwrap();
        assert_eq!((list.len(), n1.readiness), (2, Readiness::Terminating));
        api.sure("10.0.0.1").await;
        // The other slice is still stale, and its peers are not doubted.
        api.nothing_asked();
    });
}

#[test]
fn a_slice_that_says_the_same_is_an_answer_without_a_list() {
    leaks::run(async {
        let (mut api, watch) = patiently().await;
        let same = slice("s2", "101", "IPv4", &[("n2", "10.0.0.2")]);
        watch.changed(&same);
        watch.bookmark("103");
        api.confirmed().await;
        api.doubt("10.0.0.2").await;
        api.doubt("10.0.0.2").await;
        api.request().await.slice(&same);
        api.sure("10.0.0.2").await;
    });
}

#[test]
fn one_reading_answers_all_doubts_that_wait_for_it() {
    leaks::run(async {
        let mut api = Api::timed(generous_limits()).await;
        let [first, second] = two();
        let crowded = slice("s1", "90", "IPv4", &[("n1", "10.0.0.1"), ("n3", "10.0.0.3")]);
        let watch = api.synced_with(&[crowded, second]).await;
        let reading = s1_doubted(&mut api, &watch).await;
        api.doubt("10.0.0.3").await;
        reading.slice(&Slice { version: "101".into(), ..first });
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
        let mut sure = [api.answer().await, api.answer().await];
        sure.sort();
        assert_eq!(sure, ["10.0.0.1", "10.0.0.3"]);
        api.nothing_asked();
    });
}

#[test]
fn a_reading_that_fails_is_tried_again_and_is_no_answer() {
    leaks::run(async {
        let (mut api, watch) = patiently().await;
        s1_doubted(&mut api, &watch).await.answer(500, "", b"oops");
        let again = match api.next().await {
            Next::Request(again) => again,
            Next::Update(update) => panic!("it is not known yet: {update:?}"),
        };
        again.slice(&slice("s1", "101", "IPv4", &[("n1", "10.0.0.7")]));
        assert_eq!(api.names().await, ["n1=10.0.0.7", "n2=10.0.0.2"]);
        api.sure("10.0.0.1").await;
    });
}

#[test]
fn a_reading_that_may_not_be_tried_again_soon_is_no_answer_and_removes_no_peer() {
    leaks::run(async {
        let (mut api, watch) = patiently().await;
        let retry_after = format!("Retry-After: {}\r\n", 20 * DOUBT_TIME.as_secs());
        s1_doubted(&mut api, &watch).await.answer(503, &retry_after, b"");
        // A doubt that needs no request is answered as before.
        for _ in 0..20 {
            api.doubt("10.0.0.2").await;
            api.sure("10.0.0.2").await;
        }
        api.nothing_asked();
    });
}

#[test]
fn a_client_out_of_touch_answers_at_once() {
    leaks::run(async {
        let (mut api, watch) = patiently().await;
        s1_changes(&mut api, &watch).await;
        watch.cut();
        // The head of the answer does not come, so it is unknown what has changed.
        let unanswered = api.request().await;
        assert_eq!(unanswered.parameter("watch"), Some("1"));
        api.doubt("10.0.0.1").await;
        api.unsure("10.0.0.1").await;
        drop(unanswered.watch());
        api.confirmed().await;
        api.stop().await;
        for _ in 0..20 {
            api.doubt("10.0.0.1").await;
            api.unsure("10.0.0.1").await;
        }
    });
}

/// As [`patiently`], with watches that may end at any moment.
async fn briefly() -> (Api, Watch) {
    with(Timing { watch: Duration::from_secs(1), ..generous_limits() }).await
}

#[test]
fn a_watch_that_ends_at_its_time_leaves_readings_and_their_doubts_alone() {
    leaks::run(async {
        let (mut api, watch) = briefly().await;
        let reading = s1_doubted(&mut api, &watch).await;
        watch.end();
        let _watch = api.request().await.watch();
        api.confirmed().await;
        reading.slice(&slice("s1", "101", "IPv4", &[("n1", "10.0.0.7")]));
        assert_eq!(api.names().await, ["n1=10.0.0.7", "n2=10.0.0.2"]);
        api.sure("10.0.0.1").await;
    });
}

#[test]
fn readings_go_on_between_two_watches_and_questions_wait_for_the_second() {
    leaks::run(async {
        let (mut api, watch) = briefly().await;
        let reading = s1_doubted(&mut api, &watch).await;
        watch.end();
        let next = api.request().await;
        api.doubt("10.0.0.2").await;
        reading.slice(&slice("s1", "101", "IPv4", &[("n1", "10.0.0.7")]));
        assert_eq!(api.names().await, ["n1=10.0.0.7", "n2=10.0.0.2"]);
        api.sure("10.0.0.1").await;
        let watch = next.watch();
        api.confirmed().await;
        api.sure("10.0.0.2").await;
        // What is due also begins between the watches, unless it has begun before.
        watch.changed(&slice("s2", "103", "IPv4", &[]));
        watch.bookmark("104");
        api.confirmed().await;
        api.doubt("10.0.0.2").await;
        watch.end();
        let (mut next, mut reading) = (None, None);
        while next.is_none() || reading.is_none() {
            let request = api.request().await;
            let which = if request.parameter("watch").is_some() { &mut next } else { &mut reading };
            *which = Some(request);
        }
        reading.unwrap().slice(&slice("s2", "103", "IPv4", &[("n2", "10.0.0.8")]));
        assert_eq!(api.names().await, ["n1=10.0.0.7", "n2=10.0.0.8"]);
        api.sure("10.0.0.2").await;
    });
}

#[test]
fn while_a_watch_does_not_open_in_time_doubts_are_answered_as_unsure() {
    leaks::run(async {
        let (watch, doubt) = (Duration::from_secs(1), Duration::from_millis(100));
        let (mut api, watch) = with(Timing { watch, doubt, ..generous_limits() }).await;
        watch.end();
        let _unanswered = api.request().await;
        api.doubt("10.0.0.1").await;
        // This is after the longest time of a doubt.
        api.unsure("10.0.0.1").await;
    });
}

#[test]
fn doubts_are_given_up_when_the_watch_breaks() {
    leaks::run(async {
        let (mut api, watch) = patiently().await;
        let _never_answered = s1_doubted(&mut api, &watch).await;
        watch.cut();
        api.unsure("10.0.0.1").await;
    });
}

#[test]
fn endpoints_of_a_deleted_slice_stay_until_all_is_read_or_they_are_doubted() {
    leaks::run(async {
        let mut api = Api::timed(generous_limits()).await;
        let s2 = slice("s2", "91", "IPv4", &[("n2", "10.0.0.2"), ("n3", "10.0.0.3")]);
        let watch = api.synced_with(&[two()[0].clone(), s2]).await;
        // The Service's slices are replaced: other slices come, and the known ones go.
        let new = slice("s3", "101", "IPv4", &[("n1", "10.0.0.1")]);
        watch.events(&[("ADDED", &new), ("DELETED", &slice("s1", "102", "IPv4", &[]))]);
        watch.events(&[("DELETED", &slice("s2", "103", "IPv4", &[]))]);
        watch.bookmark("104");
        api.confirmed().await;
        api.nothing_asked();
        // For a doubted address the client is sure: no slice that it has read has it. There is no
        // statement about the others.
        api.doubt("10.0.0.2").await;
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n3=10.0.0.3"]);
        api.sure("10.0.0.2").await;
        api.nothing_asked();
    });
}

#[test]
fn not_found_means_gone() {
    leaks::run(async {
        let mut api = Api::start().await;
        let watch = api.synced_with(&two()).await;
        watch.changed(&slice("s2", "101", "IPv4", &[]));
        // A status of another name, and one that is not from an API server: neither counts.
        api.request().await.answer(404, "", &encode::status(404, "NotFound", "s1"));
        api.request().await.answer(404, "", b"404 page not found");
        api.request().await.answer(404, "", &encode::status(404, "NotFound", "s2"));
        assert_eq!(api.names().await, ["n1=10.0.0.1"]);
    });
}
