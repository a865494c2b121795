use super::super::api::{parse_event, parse_page};
use super::*;
use serde_json::json;

fn machine() -> Machine {
    Machine::new(Backoff::new(Duration::from_secs(1), Duration::from_mins(1)))
}

fn slice(name: &str, version: &str, addresses: &[&str]) -> serde_json::Value {
    let endpoints: Vec<_> = addresses.iter().map(|a| json!({"addresses": [a], "nodeName": format!("n-{a}")})).collect();
    json!({"metadata": {"name": name, "resourceVersion": version}, "addressType": "IPv4", "endpoints": endpoints})
}

fn page(machine: &mut Machine, token: &str, slices: &[serde_json::Value]) -> Result<Outcome, Failure> {
    let body = json!({"kind": "EndpointSliceList", "metadata": {"resourceVersion": "100", "continue": token},
                      "items": slices});
    machine.page(parse_page(body.to_string().as_bytes()).unwrap())
}

fn event(machine: &mut Machine, kind: &str, object: &serde_json::Value) -> Result<Outcome, Failure> {
    machine.event(parse_event(json!({"type": kind, "object": object}).to_string().as_bytes()).unwrap())
}

fn names(machine: &Machine) -> Vec<String> {
    machine.peers().peers.into_iter().map(|p| p.node).collect()
}

const FIRST: Ask = Ask::List { continue_token: None };

#[test]
fn pages_are_gathered_and_published_only_when_complete() {
    let mut m = machine();
    assert_eq!(m.ask(), FIRST);
    assert_eq!(page(&mut m, "t1", &[slice("a", "1", &["10.0.0.1"])]).unwrap(), Outcome::More);
    assert_eq!(m.ask(), Ask::List { continue_token: Some("t1") });
    assert!(names(&m).is_empty());
    assert_eq!(page(&mut m, "", &[slice("b", "2", &["10.0.0.2"])]).unwrap(), Outcome::Changed);
    assert_eq!(names(&m), ["n-10.0.0.1", "n-10.0.0.2"]);
    assert_eq!(m.ask(), Ask::Watch { resource_version: "100" });
}

#[test]
fn a_list_that_fails_half_way_goes_on_and_one_whose_token_is_gone_starts_again() {
    let mut m = machine();
    page(&mut m, "t1", &[slice("a", "1", &["10.0.0.1"])]).unwrap();
    m.failed(&Failure::Status(500), 0.5);
    assert_eq!(m.ask(), Ask::List { continue_token: Some("t1") });
    m.failed(&Failure::Gone, 0.5);
    assert_eq!(m.ask(), FIRST);
    page(&mut m, "", &[slice("b", "2", &["10.0.0.2"])]).unwrap();
    assert_eq!(names(&m), ["n-10.0.0.2"], "nothing of the list that was given up");
}

#[test]
fn events_move_the_version_and_only_slices_change_the_list() {
    let mut m = machine();
    page(&mut m, "", &[slice("a", "1", &["10.0.0.1"])]).unwrap();
    assert_eq!(event(&mut m, "ADDED", &slice("b", "101", &["10.0.0.2"])).unwrap(), Outcome::Changed);
    assert_eq!(names(&m), ["n-10.0.0.1", "n-10.0.0.2"]);
    let bookmark = json!({"kind": "EndpointSlice", "metadata": {"resourceVersion": "110"}});
    assert_eq!(event(&mut m, "BOOKMARK", &bookmark).unwrap(), Outcome::Unchanged);
    assert_eq!(m.ask(), Ask::Watch { resource_version: "110" });
    m.failed(&Failure::Wire("cut".into()), 0.5);
    assert_eq!(m.ask(), Ask::Watch { resource_version: "110" }, "a cut watch goes on where it was");
    assert_eq!(event(&mut m, "DELETED", &slice("a", "111", &["10.0.0.1"])).unwrap(), Outcome::Changed);
    assert_eq!(names(&m), ["n-10.0.0.2"]);
}

#[test]
fn gone_asks_for_a_new_list_and_keeps_the_old_one_meanwhile() {
    let mut m = machine();
    page(&mut m, "", &[slice("a", "1", &["10.0.0.1"])]).unwrap();
    let gone = event(&mut m, "ERROR", &json!({"code": 410, "message": "too old resource version"})).unwrap_err();
    assert!(matches!(gone, Failure::Gone));
    m.failed(&gone, 0.5);
    assert_eq!(m.ask(), FIRST);
    assert_eq!(names(&m), ["n-10.0.0.1"]);
    page(&mut m, "more", &[]).unwrap();
    assert_eq!(names(&m), ["n-10.0.0.1"]);
}

#[test]
fn an_empty_list_is_believed_at_the_second_look() {
    let mut m = machine();
    page(&mut m, "", &[slice("a", "1", &["10.0.0.1"])]).unwrap();
    m.failed(&Failure::Gone, 0.0);
    assert_eq!(page(&mut m, "", &[]).unwrap(), Outcome::LookAgain);
    assert_eq!((m.ask(), names(&m).len()), (FIRST, 1));
    // A failure in between is no second look.
    m.failed(&Failure::Status(500), 0.0);
    assert_eq!(page(&mut m, "", &[slice("a", "1", &[])]).unwrap(), Outcome::Changed);
    assert!(names(&m).is_empty());
    // It is in force now and needs no more looks.
    m.failed(&Failure::Gone, 0.0);
    assert_eq!(page(&mut m, "", &[]).unwrap(), Outcome::Changed);
}

#[test]
fn an_empty_look_is_forgotten_once_peers_are_seen() {
    let mut m = machine();
    assert_eq!(page(&mut m, "", &[]).unwrap(), Outcome::LookAgain);
    assert_eq!(page(&mut m, "", &[slice("a", "1", &["10.0.0.1"])]).unwrap(), Outcome::Changed);
    m.failed(&Failure::Gone, 0.0);
    assert_eq!(page(&mut m, "", &[]).unwrap(), Outcome::LookAgain);
}

#[test]
fn an_event_that_empties_everything_is_checked_by_a_list() {
    let mut m = machine();
    page(&mut m, "", &[slice("a", "1", &["10.0.0.1"])]).unwrap();
    assert_eq!(event(&mut m, "DELETED", &slice("a", "101", &[])).unwrap(), Outcome::LookAgain);
    assert_eq!(m.ask(), FIRST);
    assert_eq!(page(&mut m, "", &[]).unwrap(), Outcome::Changed);
    assert!(names(&m).is_empty());
    assert_eq!(event(&mut m, "ADDED", &slice("b", "102", &["10.0.0.2"])).unwrap(), Outcome::Changed);
    assert_eq!(names(&m), ["n-10.0.0.2"]);
}

#[test]
fn waits_grow_until_a_watch_works_and_retry_after_comes_on_top() {
    let mut m = machine();
    let second = Duration::from_secs(1);
    assert_eq!(m.failed(&Failure::Status(500), 1.0), second);
    assert_eq!(m.failed(&Failure::Forbidden, 1.0), 2 * second);
    // A list alone does not make it well: a watch that always fails would be tried without a pause.
    page(&mut m, "", &[slice("a", "1", &["10.0.0.1"])]).unwrap();
    assert_eq!(m.failed(&Failure::Ended, 1.0), 4 * second);
    let busy = |seconds| Failure::Busy { status: 429, retry_after: Some(Duration::from_secs(seconds)) };
    assert_eq!(m.failed(&busy(7), 0.5), 4 * second + 7 * second);
    assert_eq!(m.failed(&busy(86_400), 0.0), limits::API_RETRY_AFTER_MAX);
    event(&mut m, "BOOKMARK", &json!({"metadata": {"resourceVersion": "110"}})).unwrap();
    assert_eq!(m.failed(&Failure::Status(500), 1.0), second);
}

#[test]
fn a_list_without_end_is_given_up() {
    let mut m = machine();
    for _ in 0..limits::SLICES_MAX {
        assert_eq!(page(&mut m, "again", &[]).unwrap(), Outcome::More);
    }
    let failure = page(&mut m, "again", &[]).unwrap_err();
    m.failed(&failure, 0.0);
    assert_eq!(m.ask(), FIRST);
}
