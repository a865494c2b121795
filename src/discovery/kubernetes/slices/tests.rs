use super::*;
use serde_json::{Value, json};

/// A slice with one JSON endpoint per entry.
#[expect(clippy::needless_pass_by_value, reason = "calls read better with json! in them")]
fn slice(name: &str, created: u32, family: &str, endpoints: Value) -> String {
    json!({
        "metadata": {"name": name, "creationTimestamp": format!("2025-01-01T00:00:{created:02}Z"), "resourceVersion": "1",
                     "managedFields": [{"manager": "kube-controller-manager"}]},
        "addressType": family, "endpoints": endpoints, "ports": [{"name": "http", "port": 9877, "protocol": "TCP"}],
    })
    .to_string()
}

fn endpoint(node: &str, address: &str) -> Value {
    json!({"addresses": [address], "nodeName": node, "zone": "z1",
           "conditions": {"ready": true, "serving": true, "terminating": false}})
}

fn put(store: &mut Store, text: &str) {
    let before = store.sequences();
    store.put(&serde_json::from_str(text).unwrap()).unwrap();
    store.number(&before);
}

fn merged(texts: &[String]) -> Vec<PeerSpec> {
    let mut store = Store::default();
    for text in texts {
        store.put(&serde_json::from_str(text).unwrap()).unwrap();
    }
    store.number(&Sequences::default());
    store.peers().peers
}

fn addresses(store: &Store) -> Vec<String> {
    store.peers().peers.iter().map(|p| p.address.to_string()).collect()
}

#[test]
fn slices_of_both_families_merge_into_one_list() {
    let list = merged(&[
        slice("s-v6", 2, "IPv6", json!([endpoint("n1", "fd00::1")])),
        slice("s-v4", 1, "IPv4", json!([endpoint("n1", "10.0.0.1"), endpoint("n2", "10.0.0.2")])),
    ]);
    let got: Vec<_> = list.iter().map(|p| (p.node.as_str(), p.address.to_string(), p.http_port)).collect();
    let port = Some(9877);
    assert_eq!(got, [("n1", "10.0.0.1".into(), port), ("n2", "10.0.0.2".into(), port), ("n1", "fd00::1".into(), port)]);
    assert!(list.iter().all(|p| p.zone.as_deref() == Some("z1") && p.readiness == Readiness::Ready));
}

#[test]
fn readiness_is_terminating_else_serving_and_ready_only_where_serving_is_absent() {
    for (conditions, expected) in [
        (json!(null), Readiness::Ready),
        (json!({}), Readiness::Ready),
        (json!({"ready": true, "serving": false}), Readiness::Unready),
        (json!({"ready": false, "serving": true}), Readiness::Ready),
        (json!({"ready": false}), Readiness::Unready),
        (json!({"ready": true, "serving": null}), Readiness::Ready),
        (json!({"ready": true, "serving": true, "terminating": true}), Readiness::Terminating),
        (json!({"serving": false, "terminating": true}), Readiness::Terminating),
    ] {
        let text = slice("s", 0, "IPv4", json!([{"addresses": ["10.0.0.1"], "conditions": conditions}]));
        assert_eq!(merged(&[text])[0].readiness, expected, "{conditions}");
    }
}

#[test]
fn a_name_comes_from_the_node_else_the_pod_else_the_address() {
    let list = merged(&[slice(
        "s",
        0,
        "IPv4",
        json!([
            {"addresses": ["10.0.0.1"], "nodeName": "node", "targetRef": {"kind": "Pod", "name": "pod"}},
            {"addresses": ["10.0.0.2"], "nodeName": "", "targetRef": {"kind": "Pod", "name": "pod"}},
            {"addresses": ["10.0.0.3"]},
        ]),
    )]);
    let names: Vec<_> = list.iter().map(|p| p.node.as_str()).collect();
    assert_eq!(names, ["node", "pod", "10.0.0.3"]);
    assert!(list.iter().all(|p| p.zone.is_none()));
}

#[test]
fn unusable_addresses_and_fqdn_slices_are_left_out_and_the_rest_stays() {
    let list = merged(&[
        slice(
            "bad",
            0,
            "IPv4",
            json!([
                {"addresses": [], "nodeName": "a"}, {"addresses": [""], "nodeName": "b"}, {"nodeName": "c"},
                endpoint("d", "0.0.0.0"), endpoint("e", "fd00::1"), endpoint(&"x".repeat(254), "10.0.0.9"),
                endpoint("good", "10.0.0.1"),
            ]),
        ),
        slice("names", 0, "FQDN", json!([endpoint("f", "example.org")])),
        slice("null", 0, "IPv6", json!(null)),
        slice("unspecified", 0, "IPv6", json!([endpoint("g", "::")])),
    ]);
    assert_eq!(list.iter().map(|p| p.node.as_str()).collect::<Vec<_>>(), ["good"]);
}

#[test]
fn an_endpoint_in_two_slices_is_one_peer_in_its_better_state() {
    let mut leaving = endpoint("n1", "10.0.0.1");
    leaving["conditions"] = json!({"terminating": true});
    let list = merged(&[
        slice("a", 0, "IPv4", json!([leaving, endpoint("n2", "10.0.0.2")])),
        slice("b", 1, "IPv4", json!([endpoint("n1", "10.0.0.1")])),
    ]);
    assert_eq!(list.len(), 2);
    let n1: Vec<_> = list.iter().filter(|p| p.node == "n1").map(|p| p.readiness).collect();
    assert_eq!(n1, [Readiness::Ready]);
}

#[test]
fn the_newer_endpoint_of_a_node_comes_later_wherever_the_controller_puts_it() {
    let mut store = Store::default();
    put(&mut store, &slice("s", 0, "IPv4", json!([endpoint("n1", "10.0.0.9"), endpoint("n2", "10.0.0.2")])));
    // The successor on n1 stands first in its slice, and has the lower address.
    put(
        &mut store,
        &slice(
            "s",
            0,
            "IPv4",
            json!([endpoint("n1", "10.0.0.1"), endpoint("n1", "10.0.0.9"), endpoint("n2", "10.0.0.2")]),
        ),
    );
    assert_eq!(addresses(&store), ["10.0.0.9", "10.0.0.2", "10.0.0.1"]);
    // A relist into a new store keeps that order.
    let mut relisted = Store::default();
    relisted
        .put(
            &serde_json::from_str(&slice(
                "s",
                0,
                "IPv4",
                json!([endpoint("n1", "10.0.0.1"), endpoint("n1", "10.0.0.9"), endpoint("n3", "10.0.0.3")]),
            ))
            .unwrap(),
        )
        .unwrap();
    relisted.number(&store.sequences());
    assert_eq!(addresses(&relisted), ["10.0.0.9", "10.0.0.1", "10.0.0.3"]);
    // An address that went to another node is a new endpoint.
    put(&mut relisted, &slice("s", 0, "IPv4", json!([endpoint("n4", "10.0.0.9"), endpoint("n3", "10.0.0.3")])));
    assert_eq!(addresses(&relisted), ["10.0.0.3", "10.0.0.9"]);
}

#[test]
fn a_deleted_slice_takes_its_endpoints_along_and_no_others() {
    let mut store = Store::default();
    let gone = slice("a", 0, "IPv4", json!([endpoint("n1", "10.0.0.1")]));
    put(&mut store, &gone);
    put(&mut store, &slice("b", 0, "IPv4", json!([endpoint("n2", "10.0.0.2")])));
    store.delete(&serde_json::from_str(&gone).unwrap()).unwrap();
    assert_eq!(addresses(&store), ["10.0.0.2"]);
    assert!(!store.is_empty());
    put(&mut store, &slice("b", 0, "IPv4", json!([])));
    assert!(store.is_empty());
}

#[test]
fn the_port_is_the_one_named_http_else_the_only_one() {
    let port_of = |ports: Value| {
        let text = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "ports": ports,
                          "endpoints": [endpoint("n", "10.0.0.1")]});
        merged(&[text.to_string()])[0].http_port
    };
    assert_eq!(port_of(json!([{"name": "other", "port": 1}, {"name": "http", "port": 2}])), Some(2));
    assert_eq!(port_of(json!([{"name": "metrics", "port": 3}])), Some(3));
    assert_eq!(port_of(json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}])), None);
    assert_eq!(port_of(json!(null)), None);
    assert_eq!(port_of(json!([{"name": "http", "port": null}])), None);
    assert_eq!(port_of(json!([{"name": "http", "port": 70_000}])), None);
}

#[test]
fn more_slices_than_allowed_are_refused_and_the_known_ones_still_change() {
    let mut store = Store::default();
    for n in 0..limits::SLICES_MAX {
        store.put(&serde_json::from_str(&slice(&format!("s{n}"), 0, "IPv4", json!([]))).unwrap()).unwrap();
    }
    let one_more = slice("one-more", 0, "IPv4", json!([]));
    assert!(store.put(&serde_json::from_str(&one_more).unwrap()).is_err());
    put(&mut store, &slice("s0", 0, "IPv4", json!([endpoint("n1", "10.0.0.1")])));
    assert_eq!(addresses(&store), ["10.0.0.1"]);
}
