//! Checks: which causes are named, what is no evidence, and when a cause is over.

mod drawn;

use kube_canary_model::check::{CHECKS_MAX, Check, CheckFailure, CheckKind};
use kube_canary_model::method::Family;
use kube_canary_model::report::{Methods, Network, Peer, Source};
use kube_canary_model::verdict::{Confidence, Figure, Figures, Kind, Severity};
use serde_json::{Value, json};

use super::add;
use crate::matrix::Matrix;
use crate::slices::at_once;
use crate::wording::{evidence, summary, title};
use crate::{Verdict, agents, id, judge, judge_whole};

/// When the collections begin, in Unix seconds.
const EPOCH: u64 = 1_800_000_000;

/// Returns a check whose attempts are all good.
fn good(name: &str) -> Check<'_> {
    Check { name: name.into(), kind: CheckKind::Dns, tried: 12, servers: 1, ..Check::default() }
}

/// Returns a check of which attempts fail, the last one as well.
fn failing(name: &str, failed: u32) -> Check<'_> {
    Check {
        failed,
        failed_in_row: if failed == 12 { 12 } else { u32::from(failed > 0) },
        reason: (failed > 0).then_some(CheckFailure::Timeout),
        since_unix_seconds: (failed > 0).then_some(EPOCH - 30),
        ..good(name)
    }
}

fn slow(name: &str, slow: u32) -> Check<'_> {
    let times = slow > 0;
    Check {
        slow,
        since_unix_seconds: times.then_some(EPOCH - 30),
        time_p50_seconds: times.then_some(0.26),
        slow_from_seconds: times.then_some(0.1),
        ..good(name)
    }
}

/// A mesh under construction: nodes `n0`, `n1` and so on, each in a zone.
struct Checked {
    matrix: Matrix,
    nodes: usize,
    zone: fn(usize) -> &'static str,
    /// Probes of 60 that a node loses to another.
    lost: fn(usize, usize) -> u32,
    starved: Option<usize>,
}

fn name(node: usize) -> String {
    format!("n{node}")
}

fn with(names: &[&str], nodes: usize) -> Checked {
    let mut matrix = Matrix::new(EPOCH);
    let names: Vec<Box<str>> = names.iter().map(|name| (*name).into()).collect();
    matrix.set_checks(&names);
    Checked { matrix, nodes, zone: |_| "z", lost: |_, _| 0, starved: None }
}

impl Checked {
    /// Adds the row of a node in this zone, without peers and with one check.
    fn add_row(&mut self, node: usize, zone: &str, seconds: f64, check: &Check<'_>) {
        let source = json!({"node": name(node), "zone": zone, "recent": {"seconds": seconds}}).to_string();
        self.matrix.begin_row(&serde_json::from_str::<Source<'_>>(&source).expect("a source"), 0);
        assert!(self.matrix.check(check));
        self.matrix.end_row();
    }

    fn source(&self, node: usize) -> Value {
        let lag = if self.starved == Some(node) { 0.3 } else { 0.001 };
        json!({"node": name(node), "zone": (self.zone)(node), "version": "0.1.0", "interval_seconds": 1.0,
            "recent": {"seconds": 60.0, "echo_requests_received": 60, "send_lag_p99_seconds": lag}})
    }

    fn peer(&self, from: usize, to: usize) -> Value {
        let lost = (self.lost)(from, to);
        json!({"node": name(to), "zone": (self.zone)(to), "network": "pod", "protocol": "icmp", "state": "ready",
            "address": "10.0.0.1", "sent": 0, "received": 0, "lost": 0, "late": 0,
            "since_unix_seconds": if lost > 0 { json!(EPOCH - 60) } else { Value::Null },
            "recent": {"seconds": 60.0, "sent": 60, "received": 60 - lost, "lost": lost, "rtt_p50_seconds": 0.0001}})
    }

    /// Adds a row per node, with these checks.
    fn rows<'a>(mut self, checks: impl Fn(usize) -> Vec<Check<'a>>) -> Self {
        for node in 0..self.nodes {
            let text = self.source(node).to_string();
            self.matrix.begin_row(&serde_json::from_str::<Source<'_>>(&text).expect("a source"), 0);
            for check in checks(node) {
                assert!(self.matrix.check(&check), "each once");
            }
            for other in (0..self.nodes).filter(|other| *other != node) {
                let text = self.peer(node, other).to_string();
                self.matrix.peer(&serde_json::from_str::<Peer<'_>>(&text).expect("a peer"));
            }
            self.matrix.end_row();
        }
        self.matrix.finish();
        self
    }

    fn verdicts(&self) -> Vec<Verdict> {
        judge(&self.matrix)
    }

    /// The verdicts as `KIND SUBJECT`, the gravest first.
    fn found(&self) -> Vec<String> {
        self.verdicts().iter().map(|verdict| format!("{} {}", verdict.kind.label(), verdict.subject)).collect()
    }
}

/// The verdicts over a mesh with one check, which fails so often at each node.
fn found(nodes: usize, failed: impl Fn(usize) -> u32) -> Vec<String> {
    with(&["dns"], nodes).rows(|node| vec![failing("dns", failed(node))]).found()
}

#[test]
fn a_check_that_fails_for_most_nodes_is_the_target_and_else_the_node() {
    assert_eq!(found(40, |_| 12), ["check *->dns"]);
    assert_eq!(found(40, |node| if node == 4 { 0 } else { 12 }), ["check *->dns"]);
    assert_eq!(found(40, |node| if node == 4 { 12 } else { 0 }), ["check n4->dns"]);
    assert_eq!(found(3, |node| if node < 2 { 12 } else { 0 }), ["check *->dns"]);
    assert_eq!(found(2, |_| 12), ["check *->dns"]);
    assert_eq!(found(2, |node| if node == 1 { 12 } else { 0 }), ["check n1->dns"]);
    assert_eq!(found(1, |_| 12), ["check n0->dns"]);
    assert_eq!(found(40, |_| 0), [""; 0]);
    let long =
        |node: usize| Check { failed_in_row: 255, ..failing("dns", if node.is_multiple_of(3) { 0 } else { 12 }) };
    assert_eq!(with(&["dns"], 40).rows(|node| vec![long(node)]).found(), ["check *->dns"]);
    let most = found(200, |node| if node % 3 == 1 { 12 } else { 0 });
    assert!(most.len() == 25 && most.iter().all(|found| found.ends_with("->dns")), "{most:?}");
    let many = found(40, |node| if node % 10 == 3 { 12 } else { 0 });
    assert_eq!(many, ["check n13->dns", "check n23->dns", "check n3->dns", "check n33->dns"]);
}

#[test]
fn one_of_several_backends_is_the_target_however_few_attempts_it_takes() {
    assert_eq!(found(2, |_| 6), ["check *->dns"], "one of two");
    assert_eq!(found(40, |node| 5 + u32::try_from(node % 3).unwrap()), ["check *->dns"]);
    assert_eq!(found(40, |node| u32::from(node % 5 > 0) + u32::from(node % 10 == 1)), ["check *->dns"], "one of ten");
    assert_eq!(found(40, |node| u32::from(node % 9 == 1)), [""; 0], "one of a hundred is no fault");
}

#[test]
fn a_zone_that_fails_is_named_and_a_node_stands_out_from_a_target() {
    let zones = |node: usize| if node < 10 { "a" } else { "b" };
    let of_zone = |nodes: usize, failed: fn(usize) -> u32| {
        Checked { zone: zones, ..with(&["shop"], nodes) }.rows(|node| vec![failing("shop", failed(node))]).found()
    };
    assert_eq!(of_zone(30, |node| if node < 10 { 12 } else { 0 }), ["check a->shop"]);
    assert_eq!(of_zone(14, |node| if node < 10 { 12 } else { 0 }), ["check a->shop"], "most nodes are in it");
    assert_eq!(of_zone(30, |node| if node < 9 { 12 } else { 0 }), ["check a->shop"], "all but one");
    assert_eq!(of_zone(30, |node| if node == 3 { 12 } else { 0 }), ["check n3->shop"]);
    assert_eq!(of_zone(30, |_| 12), ["check *->shop"]);
    assert_eq!(of_zone(10, |_| 12), ["check *->shop"], "there is no other zone");
    let one_of_ten = |node: usize| u32::from(!node.is_multiple_of(3)) + u32::from(node % 6 == 1);
    let both = Checked { zone: |_| "z", ..with(&["shop"], 30) }.rows(|node| {
        let check = failing("shop", if node == 7 { 12 } else { one_of_ten(node) });
        vec![Check { good_in_row: u32::from(check.failed < 12), failed_in_row: check.failed / 12 * 12, ..check }]
    });
    assert_eq!(both.found(), ["check n7->shop", "check *->shop"]);
    assert_eq!(both.verdicts()[1].figures.count(Figure::CheckingNodes), 29);
}

#[test]
fn a_zone_and_a_node_of_one_name_are_distinct() {
    let mesh = Checked { zone: |node| if node < 3 { "n9" } else { "b" }, ..with(&["shop"], 8) };
    let mesh = mesh.rows(|node| vec![failing("shop", if node < 3 { 12 } else { 0 })]);
    let verdict = &mesh.verdicts()[0];
    assert_eq!((verdict.subject.as_str(), title(verdict).as_str()), ("n9->shop", "zone n9 cannot reach shop"));
}

#[test]
fn a_slow_backend_is_the_target_and_never_more_than_a_warning() {
    let mesh = with(&["dns"], 40).rows(|node| vec![slow("dns", 5 + u32::try_from(node % 3).unwrap())]);
    let verdicts = mesh.verdicts();
    assert_eq!(mesh.found(), ["check *->dns"]);
    let verdict = &verdicts[0];
    assert_eq!((verdict.severity, verdict.loss_ratio()), (Severity::Warning, None));
    assert_eq!(title(verdict), "dns is slow for all nodes");
    assert_eq!(
        evidence(verdict),
        "239 of 480 answers to attempts from 40 of 40 nodes take longer than 100 ms; the median answer takes 260 ms; as \
         with one of several backends"
    );
    let one = with(&["dns"], 40).rows(|node| vec![slow("dns", if node == 4 { 12 } else { 0 })]);
    assert_eq!(
        (one.found(), title(&one.verdicts()[0])),
        (vec!["check n4->dns".to_owned()], "dns is slow for n4".into())
    );
    let both = with(&["dns"], 40).rows(|_| vec![Check { slow: 4, ..failing("dns", 8) }]);
    assert_eq!(both.found().len(), 1, "what fails is not slow as well");
    assert!(!both.verdicts()[0].is_slow());
}

#[test]
fn figures_and_words_have_the_source_and_the_reason() {
    let one = with(&["dns"], 40).rows(|node| vec![failing("dns", if node == 4 { 12 } else { 0 })]);
    let verdict = &one.verdicts()[0];
    assert_eq!((verdict.severity, verdict.confidence), (Severity::Critical, Confidence::Certain));
    assert_eq!(title(verdict), "n4 cannot reach dns");
    assert_eq!(summary(verdict), "n4 cannot reach dns: no answer in time");
    assert_eq!(evidence(verdict), "12 of 12 attempts from n4 fail: no answer in time");
    assert_eq!(verdict.since_unix_seconds, Some(EPOCH - 30));
    assert_eq!(verdict.loss_ratio(), Some(1.0));
    assert_eq!(judge_whole(&one.matrix).headline().text, "n4 cannot reach dns: no answer in time");
    let half = with(&["dns"], 40).rows(|_| vec![failing("dns", 6)]);
    let verdict = &half.verdicts()[0];
    assert_eq!(summary(verdict), "dns fails for 50 % of the attempts from all nodes: no answer in time");
    assert_eq!(
        evidence(verdict),
        "240 of 480 attempts from 40 of 40 nodes fail: no answer in time; as with one of several backends"
    );
    assert_eq!((verdict.severity, verdict.loss_ratio()), (Severity::Critical, Some(0.5)));
    let server = |check| Check { servers: 3, servers_failing: 1, ..check };
    let servers = with(&["dns"], 40).rows(|_| vec![server(failing("dns", 4))]);
    assert_eq!(
        evidence(&servers.verdicts()[0]),
        "160 of 480 attempts from 40 of 40 nodes fail: no answer in time; 1 of 3 servers fails, and the others answer"
    );
    let expired = |check| Check { reason: Some(CheckFailure::CertificateExpired), kind: CheckKind::Tls, ..check };
    let tls = with(&["shop"], 3).rows(|node| vec![expired(failing("shop", if node == 0 { 12 } else { 0 }))]);
    assert_eq!(title(&tls.verdicts()[0]), "shop fails for n0");
}

#[test]
fn a_service_address_that_is_dead_while_its_agents_answer_points_to_kube_proxy() {
    let service = |node, failed| Check { kind: CheckKind::Service, ..failing(node, failed) };
    let one = with(&["service"], 20).rows(|node| vec![service("service", if node == 4 { 12 } else { 0 })]);
    assert_eq!(one.found(), ["check n4->service"]);
    assert_eq!(
        evidence(&one.verdicts()[0]),
        "12 of 12 attempts from n4 fail: no answer in time; the agents behind it answer the probes of their peers: look \
         at kube-proxy, or what replaces it, there"
    );
}

#[test]
fn the_ends_of_a_check_are_never_turned_and_it_explains_no_loss() {
    let mesh = with(&["a"], 4).rows(|node| vec![failing("a", if node == 3 { 12 } else { 0 })]);
    let verdict = &mesh.verdicts()[0];
    assert_eq!((verdict.subject.as_str(), verdict.ends()), ("n3->a", None));
    assert_eq!(&verdict.clone().in_order().in_direction(), verdict);
    assert_eq!(verdict.checked(), Some(("n3", "a")));
    assert_eq!(verdict.id, id(verdict));
    assert!(!verdict.is_loss() && !Kind::Check.is_network_fault() && !Kind::Check.is_agent_fault());
    assert!(!crate::may_share_links(verdict, verdict));
    let mut lacking = with(&["a"], 3).rows(|node| vec![failing("a", if node == 1 { 12 } else { 0 })]);
    for node in ["d", "e", "f"] {
        lacking.matrix.missing(node, "timed out");
    }
    assert!(judge_whole(&lacking.matrix).found.is_partial, "it explains no missing report");
}

#[test]
fn failures_that_the_network_explains_have_no_verdict() {
    let lossy: fn(usize, usize) -> u32 = |from, to| if from == 4 || to == 4 { 60 } else { 0 };
    let mesh = |reason| {
        Checked { lost: lossy, ..with(&["dns", "shop"], 12) }.rows(|node| {
            let failed = if node == 4 { 12 } else { 0 };
            let of = |name| Check { reason: (failed > 0).then_some(reason), ..failing(name, failed) };
            vec![of("dns"), Check { kind: CheckKind::Http, ..of("shop") }]
        })
    };
    assert_eq!(mesh(CheckFailure::Timeout).found(), ["node n4"]);
    let status = mesh(CheckFailure::Status).found();
    assert_eq!(status, ["node n4", "check n4->dns", "check n4->shop"], "no loss makes an HTTP status");
    let all: fn(usize, usize) -> u32 = |_, _| 12;
    let share = |failed: u32| {
        let mesh = Checked { lost: all, ..with(&["dns"], 12) };
        mesh.rows(|_| vec![failing("dns", failed)]).found()
    };
    assert_eq!(share(3), ["mesh *"], "all links lose a fifth");
    assert_eq!(share(12), ["mesh *", "check *->dns"]);
}

#[test]
fn one_protocol_that_all_links_lose_hides_no_check() {
    let mut verdict = Verdict::new(Kind::Mesh, "*".into(), Network::Pod);
    verdict.protocol = Some(Methods::UDP);
    verdict.figures = Figures::default().with([(Figure::Probes, 60.0), (Figure::Lost, 60.0)]);
    let mesh = with(&["dns"], 6).rows(|_| vec![failing("dns", 12)]);
    let standings = agents::standings(&mesh.matrix);
    let mut with_protocol = vec![verdict.clone()];
    at_once(add(&mesh.matrix, &standings, &mut with_protocol));
    let mut without = vec![Verdict { protocol: None, ..verdict }];
    at_once(add(&mesh.matrix, &standings, &mut without));
    assert_eq!((with_protocol.len(), without.len()), (2, 1));
}

#[test]
fn a_name_that_the_dns_does_not_answer_is_the_fault_of_the_dns() {
    let mesh = |dns: u32| {
        with(&["shop", "dns"], 12).rows(|node| {
            let unresolved = |check| Check { kind: CheckKind::Http, reason: Some(CheckFailure::Unresolved), ..check };
            let failed = if node < 8 { 12 } else { 0 };
            vec![failing("dns", dns.min(failed)), unresolved(failing("shop", failed))]
        })
    };
    assert_eq!(mesh(12).found(), ["check *->dns"]);
    assert_eq!(mesh(0).found(), ["check *->shop"]);
}

#[test]
fn a_service_of_agents_may_fail_as_often_as_its_backends_are_bad() {
    let lossy: fn(usize, usize) -> u32 = |from, to| if from == 4 || to == 4 { 60 } else { 0 };
    let mesh = |failed: u32| {
        let mesh = Checked { lost: lossy, ..with(&["service"], 8) };
        mesh.rows(|_| vec![Check { kind: CheckKind::Service, ..failing("service", failed) }]).found()
    };
    assert_eq!(mesh(2), ["node n4"], "one of eight backends");
    assert_eq!(mesh(8), ["node n4", "check *->service"]);
}

#[test]
fn a_pod_that_does_not_reach_itself_through_its_service_is_no_fault() {
    let of_service = |check: Check<'static>| Check { kind: CheckKind::Service, ..check };
    for nodes in [3, 5, 40] {
        // Of twelve attempts of each node, as many go to itself as its share of the nodes is.
        let own = |node: usize| u32::try_from(12 * (node + 1) / nodes - 12 * node / nodes).expect("few");
        let retried = with(&["service"], nodes).rows(|node| vec![of_service(slow("service", own(node)))]);
        assert_eq!(retried.found(), [""; 0], "the first segment is lost, of {nodes}");
        let lost = with(&["service"], nodes).rows(|node| vec![of_service(failing("service", own(node)))]);
        assert_eq!(lost.found(), [""; 0], "all are lost, of {nodes}");
        let check = |node| if node == 1 { failing("service", 12) } else { slow("service", own(node)) };
        let cut = with(&["service"], nodes).rows(|node| vec![of_service(check(node))]);
        assert_eq!(cut.found(), ["check n1->service"], "of {nodes}");
    }
}

#[test]
fn a_node_whose_service_fails_is_named_sooner_where_agents_reach_themselves() {
    let named_after = |reaches_itself: bool| {
        (1..=12).find(|failed| {
            let of_service = |check| Check { kind: CheckKind::Service, reaches_itself, ..check };
            let check = |node| {
                if node == 1 {
                    Check { failed_in_row: *failed, ..failing("service", *failed) }
                } else {
                    good("service")
                }
            };
            with(&["service"], 5).rows(|node| vec![of_service(check(node))]).found() == ["check n1->service"]
        })
    };
    assert_eq!([true, false].map(named_after), [Some(3), Some(7)]);
}

#[test]
fn a_family_that_alone_fails_is_named() {
    let over = |family, check: Check<'static>| Check {
        family: Some(family).filter(|_| check.failed > 0),
        family_tried: if check.failed > 0 { 6 } else { 0 },
        ..check
    };
    let all = with(&["shop"], 20).rows(|_| vec![over(Family::V6, failing("shop", 6))]);
    assert_eq!(all.found(), ["check *->shop"]);
    let verdict = &all.verdicts()[0];
    assert_eq!((verdict.family, verdict.loss_ratio()), (Some(Family::V6), Some(1.0)));
    assert_eq!(title(verdict), "shop over IPv6 fails for all nodes");
    assert_eq!(evidence(verdict), "120 of 120 attempts over IPv6 from 20 of 20 nodes fail: no answer in time");
    // One node has lost an attempt over IPv4 as well, which is none over IPv6.
    let stray = |node| Check { family: Some(Family::V6).filter(|_| node != 4), ..over(Family::V6, failing("shop", 6)) };
    let most = &with(&["shop"], 20).rows(|node| vec![stray(node)]).verdicts()[0];
    assert_eq!((most.family, most.loss_ratio()), (Some(Family::V6), Some(1.0)), "{}", evidence(most));
    let one = with(&["shop"], 20).rows(|node| vec![over(Family::V4, failing("shop", if node == 4 { 6 } else { 0 }))]);
    assert_eq!(summary(&one.verdicts()[0]), "n4 cannot reach shop over IPv4: no answer in time");
    // Of some nodes it is one family, and of others the other one.
    let family = |node: usize| if node.is_multiple_of(2) { Family::V4 } else { Family::V6 };
    let mixed = with(&["shop"], 20).rows(|node| vec![over(family(node), failing("shop", 6))]);
    assert_eq!(mixed.verdicts().iter().map(|verdict| verdict.family).collect::<Vec<_>>(), [None]);
}

#[test]
fn a_zone_is_named_from_the_beginning_and_as_long_as_it_fails() {
    // Three nodes of `a` and two of `b`. More and more attempts fail, at last for longer than the
    // recent window.
    let zone: fn(usize) -> &'static str = |node| if node.is_multiple_of(2) { "a" } else { "b" };
    for (failed, in_row) in [(1, 1), (2, 2), (3, 3), (4, 4), (6, 6), (9, 9), (12, 12), (12, 40), (12, 255)] {
        let check = |node: usize| {
            let bad = Check { failed_in_row: in_row, tried: 6 + failed / 2, ..failing("dns", failed) };
            if node.is_multiple_of(2) { Check { tried: bad.tried.max(failed), ..bad } } else { good("dns") }
        };
        let found = Checked { zone, ..with(&["dns"], 5) }.rows(|node| vec![check(node)]).found();
        let is_known = failed >= 3;
        assert_eq!(found, if is_known { vec!["check a->dns"] } else { vec![] }, "{failed} of each");
    }
}

#[test]
fn starved_nodes_and_unknown_names_are_no_evidence() {
    let mesh = |starved| {
        Checked { starved, ..with(&["dns"], 5) }
            .rows(|node| vec![failing("dns", if node == 2 { 12 } else { 0 }), failing("other", 12)])
            .found()
    };
    assert_eq!(mesh(None), ["check n2->dns"]);
    assert_eq!(mesh(Some(2)), ["agent_starved n2"]);
    assert_eq!(with(&[], 5).rows(|_| vec![failing("dns", 12)]).found(), [""; 0]);
}

#[test]
fn a_check_named_twice_makes_its_row_false() {
    let mut mesh = with(&["dns"], 1);
    let text = mesh.source(0).to_string();
    mesh.matrix.begin_row(&serde_json::from_str::<Source<'_>>(&text).expect("a source"), 0);
    assert!(mesh.matrix.check(&good("dns")) && mesh.matrix.check(&good("other")) && mesh.matrix.check(&good("other")));
    assert!(!mesh.matrix.check(&failing("dns", 12)));
    mesh.matrix.end_row();
    assert!(mesh.matrix.check(&failing("dns", 12)), "without a row it counts for nothing");
    mesh.matrix.finish();
    assert!(mesh.matrix.attempts(0).all(|(attempts, bad)| attempts.tried == 12 && bad.is_none()));
}

#[test]
fn hostile_numbers_stay_within_their_bounds() {
    let most = u32::MAX;
    for check in [
        Check { tried: most, failed: most, slow: most, good_in_row: most, failed_in_row: most, ..good("dns") },
        Check { tried: 0, failed: most, ..good("dns") },
        Check { tried: 3, failed: most, slow: most, servers: 2, servers_failing: 255, ..good("dns") },
        Check { tried: 1_000, failed: 1, slow: 999, since_unix_seconds: Some(u64::MAX), ..good("dns") },
        Check { tried: 9, failed: 9, time_p50_seconds: Some(f64::NAN), since_unix_seconds: Some(0), ..good("dns") },
        Check { tried: 9, slow: 9, slow_from_seconds: Some(-1.0), time_p50_seconds: Some(1e300), ..good("dns") },
    ] {
        let mesh = with(&["dns"], 3).rows(|_| vec![check.clone()]);
        for (attempts, bad) in mesh.matrix.attempts(0) {
            assert!(attempts.tried > 0);
            let bad = bad.expect("all are bad");
            let [tried, failed, slow, good] = [attempts.tried, bad.failed, bad.slow, bad.good_in_row].map(u32::from);
            assert!(failed + slow + good <= tried && bad.servers()[1] <= bad.servers()[0], "{check:?} {bad:?}");
        }
        for verdict in mesh.verdicts() {
            assert_eq!(verdict.subject, "*->dns");
            assert!(verdict.since_unix_seconds.is_none_or(|since| since <= EPOCH), "{verdict:?}");
            assert!(verdict.loss_ratio().is_none_or(|ratio| (0.0..=1.0).contains(&ratio)));
            assert!(!evidence(&verdict).contains("NaN"));
        }
    }
}

#[test]
fn names_beyond_the_limits_are_left_out_and_bytes_are_counted() {
    let mut matrix = Matrix::new(EPOCH);
    let before = matrix.bytes();
    let long: Box<str> = "n".repeat(49).into();
    let names: Vec<Box<str>> = (0..40).map(|n| format!("c{n}").into()).chain([long, "c1".into(), "".into()]).collect();
    matrix.set_checks(&names);
    assert_eq!(matrix.check_names().len(), CHECKS_MAX);
    let names = matrix.bytes() - before;
    assert!((1..2_048).contains(&names), "{names}");
    let bytes = |failed: u32| {
        let checks = ["dns", "api", "service"];
        with(&checks, 10).rows(|_| checks.map(|name| failing(name, failed)).to_vec()).matrix.bytes()
            - with(&checks, 10).rows(|_| Vec::new()).matrix.bytes()
    };
    assert_eq!([bytes(0), bytes(12)], [10 * 3 * 4, 10 * 3 * 28]);
}

#[test]
fn good_attempts_end_a_verdict_before_the_recent_windows_do() {
    let after = |good_in_row: fn(usize) -> u32, failed: u32| {
        let check = |node: usize| Check { good_in_row: good_in_row(node), failed_in_row: 0, ..failing("dns", failed) };
        let found = judge_whole(&with(&["dns"], 12).rows(|node| vec![check(node)]).matrix).found;
        let ended = found.ended.iter().map(|verdict| (verdict.subject.clone(), verdict.ended_unix_seconds));
        (found.verdicts.len(), ended.collect::<Vec<_>>())
    };
    assert_eq!(after(|_| 0, 12), (1, vec![]));
    assert_eq!(after(|_| 3, 9), (0, vec![("*->dns".to_owned(), Some(EPOCH - 15))]));
    assert_eq!(after(|node| u32::from(node % 2 == 0), 6).0, 1, "half of the attempts fail");
    assert_eq!(after(|_| 4, 4).0, 0);
    let mesh = with(&["dns"], 12).rows(|_| vec![Check { good_in_row: 3, failed_in_row: 0, ..failing("dns", 9) }]);
    let text = judge_whole(&mesh.matrix).headline().text;
    assert!(text.contains("; dns failed from ") && text.starts_with("well since "), "{text}");
}

#[test]
fn a_second_fault_is_named_beside_a_target_that_is_over() {
    // All nodes fail for half a minute and then get answers. Since then, some fail again.
    let found = |nodes: usize, in_row: fn(usize) -> u32| {
        let zone = |node: usize| if node < 3 { "a" } else { "b" };
        let check = |node: usize| match in_row(node) {
            0 => Check { good_in_row: 6, failed_in_row: 0, ..failing("dns", 6) },
            6 => failing("dns", 12),
            again => Check { failed_in_row: again, ..failing("dns", 6 + again) },
        };
        let found = judge_whole(&Checked { zone, ..with(&["dns"], nodes) }.rows(|node| vec![check(node)]).matrix).found;
        let names = |verdicts: &[Verdict]| verdicts.iter().map(|verdict| verdict.subject.clone()).collect::<Vec<_>>();
        (names(&found.verdicts), names(&found.ended))
    };
    let over = || vec!["*->dns".to_owned()];
    for nodes in [2, 3, 5, 40] {
        assert_eq!(found(nodes, |node| 3 * u32::from(node == 1)), (vec!["n1->dns".to_owned()], over()), "of {nodes}");
    }
    assert_eq!(found(12, |node| 3 * u32::from(node < 3)), (vec!["a->dns".to_owned()], over()));
    assert_eq!(found(5, |node| 3 * u32::from(node % 2 == 0)), (over(), vec![]), "most nodes fail again");
    assert_eq!(found(3, |node| u32::from(node == 1)), (over(), vec![]), "one bad attempt of three nodes");
    assert_eq!(found(3, |node| 6 * u32::from(node == 1)).1, [""; 0], "the first fault goes on there");
}

#[test]
fn the_first_failed_attempts_of_all_nodes_are_enough_and_at_once_critical() {
    let mesh = with(&["dns"], 40).rows(|_| vec![Check { failed_in_row: 1, ..failing("dns", 1) }]);
    let verdicts = mesh.verdicts();
    assert_eq!((mesh.found(), verdicts[0].severity), (vec!["check *->dns".to_owned()], Severity::Critical));
    let one = with(&["dns"], 40).rows(|node| vec![failing("dns", u32::from(node == 1))]);
    assert_eq!(one.found(), [""; 0]);
    // The window of rare attempts has three or four.
    let rare = |node: usize| Check { tried: 4, failed_in_row: 4, ..failing("api", if node == 1 { 4 } else { 0 }) };
    let rare = with(&["api"], 40).rows(|node| vec![Check { failed_in_row: 9, ..rare(node) }]);
    assert_eq!(rare.found(), ["check n1->api"]);
}

#[test]
fn a_node_waits_for_its_zone_only_while_it_has_just_begun_to_fail() {
    let named = |in_row: [u32; 2]| {
        let mut mesh = with(&["dns"], 0);
        for node in 0..6 {
            let in_row = in_row.get(node).copied().unwrap_or(0);
            let zone = if node < 3 { "a" } else { "b" };
            mesh.add_row(node, zone, 45.0, &Check { failed_in_row: in_row, ..failing("dns", in_row) });
        }
        mesh.matrix.finish();
        mesh.found()
    };
    let alone = ["check n0->dns"];
    assert_eq!(named([4, 0]), alone, "one of three does not make it the zone");
    assert!(named([4, 1]).is_empty(), "two of three may be the zone");
    assert_eq!(named([6, 1]), alone, "the other one has had its time");
    assert_eq!(named([4, 3]), ["check a->dns"]);
}
