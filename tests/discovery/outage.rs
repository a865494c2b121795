//! The API server fails in every possible way. The last good peers stay, and the list is not
//! confirmed.

use std::time::{Duration, Instant};

use kube_canary::discovery::Update;
use kube_canary::discovery::kubernetes::Timing;

use super::api::{Api, timing};
use super::encode::{self, Slice, slice};
use super::{leaks, logged};

fn s1(version: &str) -> Slice {
    slice("s1", version, "IPv4", &[("n1", "10.0.0.1")])
}

/// Waits until a reading succeeds. It gives the list of [`Api::synced`] and one more peer, with
/// no update in between.
async fn recovers(api: &mut Api) {
    let more = slice("s1", "150", "IPv4", &[("n1", "10.0.0.1"), ("n2", "10.0.0.2")]);
    api.request().await.metadata("200", std::slice::from_ref(&more));
    // There is no new list, and nothing to read for it: the known slices are to be read once the
    // watch is open.
    api.confirmed().await;
    let watch = api.request().await.watch();
    api.confirmed().await;
    api.request().await.slice(&more);
    assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
    drop(watch);
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
        // The watch is cut in the middle of an event. What was complete counts, and the client
        // requests the rest again.
        let added = slice("s2", "151", "IPv4", &[("n2", "10.0.0.2")]);
        watch.events(&[("ADDED", &added)]);
        watch.raw(&encode::change("DELETED", &s1("152"))[..50]);
        api.request().await.slice(&added);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
        watch.cut();
        assert_eq!(api.request().await.parameter("resourceVersion"), Some("151"));
    });
}

#[test]
fn gone_means_that_names_and_versions_are_compared_and_only_what_differs_is_read() {
    leaks::run(async {
        let mut api = Api::start().await;
        let [kept, changed, removed] =
            ["1", "2", "3"].map(|n| slice(&format!("s{n}"), "90", "IPv4", &[(n, &format!("10.0.0.{n}"))]));
        api.synced_with(&[kept.clone(), changed, removed]).await.gone();
        let list = api.request().await;
        assert_eq!(list.parameter("resourceVersion"), Some("0"), "from the cache");
        let changed = slice("s2", "190", "IPv4", &[("2", "10.0.0.22")]);
        let added = slice("s4", "191", "IPv4", &[("4", "10.0.0.4")]);
        list.metadata("200", &[kept, changed.clone(), added.clone()]);
        // The addresses of the removed slice may be in one that is not read yet.
        api.confirmed().await;
        let watch = api.request().await.watch();
        api.confirmed().await;
        for _ in 0..2 {
            let request = api.request().await;
            let slice = if request.name() == "s2" { &changed } else { &added };
            request.slice(slice);
            api.list().await;
        }
        api.nothing_asked();
        // The status is the answer to the watch itself.
        watch.cut();
        api.request().await.answer(410, "", &encode::status(410, "Expired", ""));
        api.request().await.metadata("300", &[added]);
        assert_eq!(api.names().await, ["4=10.0.0.4"]);
    });
}

#[test]
fn a_server_that_is_back_from_an_older_state_is_read_anew() {
    leaks::run(async {
        let mut api = Api::start().await;
        let watch = api.synced_with(&[s1("90"), slice("s2", "95", "IPv4", &[("n2", "10.0.0.2")])]).await;
        watch.bookmark("5000");
        api.confirmed().await;
        api.stop().await;
        drop(watch);
        api.resume().await;
        // A watch from a version that the server has not reached brings nothing. The client does
        // not wait for it here.
        api.request().await.answer(504, "Retry-After: 1\r\n", &encode::status(504, "Timeout", ""));
        let older = slice("s2", "80", "IPv4", &[("n2", "10.0.0.22")]);
        api.request().await.metadata("100", &[s1("90"), older.clone()]);
        api.confirmed().await;
        let watch = api.request().await;
        assert_eq!(watch.parameter("resourceVersion"), Some("100"));
        let _watch = watch.watch();
        api.confirmed().await;
        let mut read = Vec::new();
        for _ in 0..2 {
            let request = api.request().await;
            read.push(request.name().to_owned());
            let slice = if request.name() == "s2" { older.clone() } else { s1("90") };
            request.slice(&slice);
        }
        read.sort();
        assert_eq!(read, ["s1", "s2"], "a version of another history proves nothing");
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.22"]);
    });
}

#[test]
fn no_failure_of_a_list_empties_the_peers() {
    leaks::run(async {
        let mut api = Api::start().await;
        api.synced().await.gone();
        let whole = encode::metadata_list("200", &[s1("150"), slice("s2", "150", "IPv4", &[])]);
        for _ in 0..2 {
            api.request().await.answer(500, "", b"oops");
            api.request().await.answer(403, "", &encode::status(403, "Forbidden", ""));
            api.request().await.answer(503, "", b"");
            api.request().await.answer(404, "", b"404 page not found");
            for body in [
                Vec::new(),
                b"{\"kind\":\"PartialObjectMetadataList\",\"items\":[]}".to_vec(),
                b"<html></html>".to_vec(),
                encode::status(200, "", ""),
                encode::slice_list("200", &[]),
                encode::metadata_list("", &[]),
                encode::metadata_list("abc", &[]),
                encode::metadata_list("200", &[s1("")]),
                whole[..whole.len() - 9].to_vec(),
            ] {
                api.request().await.answer(200, "", &body);
            }
            for length in [0, 60, whole.len() / 2, whole.len() - 1] {
                api.request().await.part(&whole, length);
            }
            api.request().await.cut();
            // This is an item of five million bytes.
            api.request().await.flood(&[&whole[..100], &[0x12, 0xc0, 0x96, 0xb1, 0x02], &vec![0; 5_000_000]].concat());
            api.silence();
        }
        recovers(&mut api).await;
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
            watch.answer(status, "", b"");
        }
        // An empty watch that ends at once is no reason to list.
        api.request().await.watch().end();
        api.confirmed().await;
        let watch = api.request().await;
        assert_eq!(watch.parameter("resourceVersion"), Some("100"));
        // Invalid data leaves the version in doubt.
        watch.watch().raw(b"\0\0\0\x09surprise\n");
        api.confirmed().await;
        api.request().await.metadata("120", &[s1("90")]);
        api.confirmed().await;
        let watch = api.request().await.watch();
        api.confirmed().await;
        watch.raw(&[b"\0\x4c\x4b\x40", &vec![b'x'; 5_000_000][..]].concat());
        recovers(&mut api).await;
    });
}

#[test]
fn no_failure_of_a_reading_ends_the_watch_or_empties_the_peers() {
    leaks::run(async {
        let mut api = Api::start().await;
        let watch = api.synced().await;
        let more = slice("s1", "101", "IPv4", &[("n1", "10.0.0.1"), ("n2", "10.0.0.2")]);
        watch.changed(&more);
        for status in [500, 401, 403, 410, 503, 504] {
            api.request().await.answer(status, "", &encode::status(status, "Whatever", "s1"));
        }
        for body in [
            Vec::new(),
            b"<html></html>".to_vec(),
            encode::status(200, "", ""),
            slice("s2", "101", "IPv4", &[]).body(),
            slice("s1", "", "IPv4", &[]).body(),
            encode::metadata_list("200", &[]),
        ] {
            api.request().await.answer(200, "", &body);
        }
        let body = more.body();
        api.request().await.part(&body, body.len() / 2);
        api.request().await.cut();
        api.request().await.flood(&vec![0; 5_000_000]);
        // A needed slice could not be read, so the list is not confirmed, although the watch is
        // healthy.
        watch.bookmark("102");
        let last = api.request().await;
        api.silence();
        last.slice(&more);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
        watch.bookmark("103");
        api.confirmed().await;
    });
}

#[test]
fn a_whole_list_that_breaks_off_is_not_reported_and_is_completed_slice_by_slice() {
    leaks::run(async {
        let mut api = Api::start().await;
        let slices = [s1("90"), slice("s2", "91", "IPv4", &[("n2", "10.0.0.2")])];
        let whole = encode::slice_list("100", &slices);
        api.request().await.part(&whole, whole.len() - 20);
        api.request().await.metadata("101", &slices);
        let _watch = api.request().await.watch();
        let reading = api.request().await;
        api.silence();
        reading.slice(&slices[1]);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
        api.nothing_asked();
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
        api.silence();
        api.resume().await;
        let watch = api.request().await;
        assert_eq!(watch.parameter("resourceVersion"), Some("100"), "a refused connection costs no new list");
        let watch = watch.watch();
        api.confirmed().await;
        let added = slice("s2", "101", "IPv4", &[("n2", "10.0.0.2")]);
        watch.events(&[("ADDED", &added)]);
        api.request().await.slice(&added);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
        assert_eq!(logged::count(&["connecting to", &port]), 1);
    });
}

#[test]
fn a_rotated_token_is_used_at_once_after_401() {
    leaks::run(async {
        // The back-off is longer than the test, so only a retry without back-off succeeds.
        let hour = Duration::from_hours(1);
        let mut api = Api::timed(Timing { backoff_min: hour, backoff_max: hour, ..timing() }).await;
        let refused = api.request().await;
        assert_eq!(refused.token, "token-1");
        api.account.write("token", "token-2");
        refused.answer(401, "", b"");
        let accepted = api.request().await;
        assert_eq!(accepted.token, "token-2");
        // Each request reads the token file again.
        api.account.write("token", "token-3");
        accepted.list("100", &[s1("90")]);
        assert_eq!(api.names().await, ["n1=10.0.0.1"]);
        let watch = api.request().await;
        assert_eq!(watch.token, "token-3");
        let watch = watch.watch();
        api.confirmed().await;
        api.account.write("token", "token-4");
        watch.changed(&s1("101"));
        let refused = api.request().await;
        assert_eq!(refused.token, "token-4");
        api.account.write("token", "token-5");
        refused.answer(401, "", b"");
        let accepted = api.request().await;
        assert_eq!(accepted.token, "token-5");
        accepted.slice(&s1("101"));
        api.confirmed().await;
    });
}

#[test]
fn a_token_that_stays_refused_is_tried_again_and_empties_nothing() {
    leaks::run(async {
        let mut api = Api::start().await;
        api.synced().await.cut();
        for _ in 0..3 {
            api.request().await.answer(401, "", b"");
        }
        let watch = api.request().await;
        api.silence();
        let watch = watch.watch();
        api.confirmed().await;
        let added = slice("s2", "101", "IPv4", &[("n2", "10.0.0.2")]);
        watch.events(&[("ADDED", &added)]);
        api.request().await.slice(&added);
        assert_eq!(api.names().await, ["n1=10.0.0.1", "n2=10.0.0.2"]);
    });
}

#[test]
fn retry_after_is_waited_for() {
    leaks::run(async {
        let mut api = Api::start().await;
        for status in [429, 503] {
            let busy = api.request().await;
            let answered = Instant::now();
            busy.answer(status, "Retry-After: 1\r\n", b"");
            let again = api.request().await;
            assert!(answered.elapsed() >= Duration::from_secs(1), "{:?}", answered.elapsed());
            again.cut();
        }
        let watch = api.synced().await;
        watch.changed(&s1("101"));
        let busy = api.request().await;
        let answered = Instant::now();
        busy.answer(429, "Retry-After: 1\r\n", b"");
        api.request().await.slice(&s1("101"));
        assert!(answered.elapsed() >= Duration::from_secs(1), "{:?}", answered.elapsed());
    });
}

#[test]
fn a_watch_that_brings_one_event_and_ends_is_opened_again_with_a_pause() {
    leaks::run(async {
        let (min, max) = (Duration::from_millis(20), Duration::from_millis(500));
        let mut api = Api::timed(Timing { backoff_min: min, backoff_max: max, ..timing() }).await;
        let mut watch = api.synced().await;
        let began = Instant::now();
        for version in 101..113 {
            watch.bookmark(&version.to_string());
            api.confirmed().await;
            watch.end();
            let again = api.request().await;
            assert_eq!(again.parameter("resourceVersion"), Some(&*version.to_string()));
            watch = again.watch();
            api.confirmed().await;
        }
        // These are twelve random parts of ceilings of 20 to 500 ms, some 2 s in all. All are below
        // a twentieth once in 10^15 runs.
        assert!(began.elapsed() > Duration::from_millis(150), "{:?}", began.elapsed());
    });
}

#[test]
fn an_empty_list_is_believed_at_the_second_look_which_is_at_the_latest_state() {
    leaks::run(async {
        let mut api = Api::start().await;
        api.synced().await.gone();
        api.request().await.metadata("200", &[]);
        // An empty list is believed only if it is empty twice in a row, so not at this point.
        let second = api.request().await;
        assert_eq!(second.parameter("resourceVersion"), None, "not from the cache");
        api.silence();
        let back = slice("s9", "201", "IPv4", &[("n9", "10.0.0.9")]);
        second.list("201", std::slice::from_ref(&back));
        assert_eq!(api.names().await, ["n9=10.0.0.9"]);
        let watch = api.request().await.watch();
        api.confirmed().await;
        // The slice is deleted, which counts as the first empty list. The list is the second.
        watch.events(&[("DELETED", &back)]);
        let second = api.request().await;
        assert_eq!(second.parameter("resourceVersion"), None);
        api.silence();
        second.list("202", &[slice("s2", "202", "IPv4", &[])]);
        assert!(api.names().await.is_empty());
    });
}

#[test]
fn a_slice_that_becomes_empty_is_looked_at_twice_too() {
    leaks::run(async {
        let mut api = Api::start().await;
        let watch = api.synced().await;
        let empty = slice("s1", "101", "IPv4", &[]);
        watch.changed(&empty);
        api.request().await.slice(&empty);
        let second = api.request().await;
        api.silence();
        let back = s1("103");
        second.metadata("103", std::slice::from_ref(&back));
        let watch = api.request().await.watch();
        api.request().await.slice(&back);
        // Nothing has changed, so there is no update to report.
        api.confirmed().await;
        let empty = slice("s1", "104", "IPv4", &[]);
        watch.changed(&empty);
        api.request().await.slice(&empty);
        api.request().await.metadata("105", &[empty]);
        assert!(api.names().await.is_empty());
    });
}

#[test]
fn an_empty_list_at_the_start_is_believed_at_the_second_look_too() {
    leaks::run(async {
        let mut api = Api::start().await;
        api.request().await.list("100", &[]);
        let second = api.request().await;
        api.silence();
        second.list("101", &[]);
        assert!(api.names().await.is_empty());
        let watch = api.request().await.watch();
        api.confirmed().await;
        let added = slice("s1", "102", "IPv4", &[("n1", "10.0.0.1")]);
        watch.events(&[("ADDED", &added)]);
        api.request().await.slice(&added);
        assert_eq!(api.names().await, ["n1=10.0.0.1"]);
    });
}

#[test]
fn a_watch_that_says_nothing_beyond_its_time_is_dropped() {
    leaks::run(async {
        let short = Duration::from_secs(1);
        let mut api = Api::timed(Timing { watch: short, watch_grace: short / 20, ..timing() }).await;
        let _silent = api.synced().await;
        assert_eq!(api.request().await.parameter("resourceVersion"), Some("100"));
        api.silence();
    });
}

#[test]
fn a_watch_that_brings_nothing_is_dropped_and_all_is_compared() {
    leaks::run(async {
        let mut api = Api::timed(Timing { watch_silence: Duration::from_millis(300), ..timing() }).await;
        let _silent = api.synced().await;
        let list = api.request().await;
        api.silence();
        list.metadata("100", &[s1("90")]);
        assert!(matches!(api.update().await, Update::Confirmed));
    });
}

#[test]
fn a_request_that_is_never_answered_is_given_up() {
    leaks::run(async {
        // The time limit expires twice on purpose, and the answers that follow must come within it:
        // 5 s is long for that.
        let mut api = Api::timed(Timing { request: Duration::from_secs(5), ..timing() }).await;
        let _unanswered = api.request().await;
        let watch = api.synced().await;
        watch.changed(&s1("101"));
        let _unanswered = api.request().await;
        api.request().await.slice(&s1("101"));
        api.confirmed().await;
    });
}
