use std::time::Duration;

use super::*;
use crate::discovery::identity::{PeerIdentity, REFRESH, RETRY};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pod(node: &str, address: &str) -> PeerSpec {
    PeerSpec { zone: Some("z".into()), ..PeerSpec::pod(node, ip(address)) }
}

fn list(peers: &[(&str, &str)]) -> PeerList {
    PeerList { peers: peers.iter().map(|(node, address)| pod(node, address)).collect() }
}

fn answer(node: &str, addresses: &[&str]) -> IdentityAnswer {
    IdentityAnswer {
        asked_from: None,
        identity: PeerIdentity { node: node.into(), zone: None },
        node_addresses: addresses.iter().map(|text| ip(text)).collect(),
    }
}

/// A table for our node `self`, with a clock that moves only on demand.
struct Test {
    addresses: NodeAddresses,
    now: Instant,
}

impl Test {
    fn new(peers: &[(&str, &str)]) -> Self {
        let addresses = vec![ip("10.0.0.1"), ip("192.168.0.1")];
        let ourselves = Ourselves { node: "self".into(), addresses, http_port: 9_877, ..Ourselves::default() };
        let mut test = Self { addresses: NodeAddresses::new(&ourselves), now: Instant::now() };
        test.addresses.listed(list(peers), test.now);
        test
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn listed(&mut self, peers: &[(&str, &str)]) {
        self.addresses.listed(list(peers), self.now);
    }

    /// Returns the next question.
    fn question(&mut self) -> Option<IdentityQuestion> {
        self.addresses.next_to_ask(self.now)
    }

    fn asked(&mut self) -> String {
        self.question().map_or_else(String::new, |question| format!("{} {}", question.node, question.server))
    }

    /// Asks the next peer that is due, and gives it this answer.
    fn answer(&mut self, answer: &IdentityAnswer) -> AnswerOutcome {
        let question = self.question().expect("a peer is due");
        self.addresses.answered(&question, Some(answer), self.now, 0.5)
    }

    fn silence(&mut self) -> IdentityQuestion {
        let question = self.question().expect("a peer is due");
        assert_eq!(self.addresses.answered(&question, None, self.now, 0.5), AnswerOutcome::Unchanged);
        question
    }

    /// Returns the entries of node addresses, as `NODE ADDRESS STATE`.
    fn nodes(&self) -> Vec<String> {
        let nodes = self.addresses.list().peers.into_iter().filter(|spec| spec.network == Network::Node);
        nodes.map(|spec| format!("{} {} {:?}", spec.node, spec.address, spec.readiness)).collect()
    }
}

#[test]
fn reported_node_addresses_follow_the_pods_in_the_list() {
    let mut test = Test::new(&[("a", "10.0.0.2"), ("self", "10.0.0.1"), ("b", "10.0.0.3")]);
    assert!(test.nodes().is_empty() && !test.addresses.all_tried());
    assert_eq!(test.answer(&answer("a", &["192.168.0.2"])), AnswerOutcome::NewAddresses);
    assert_eq!(test.answer(&answer("b", &["fd00::3", "192.168.0.3", "172.16.0.3"])), AnswerOutcome::NewAddresses);
    assert!(test.addresses.all_tried());
    let peers = test.addresses.list().peers;
    assert_eq!(peers[..3], list(&[("a", "10.0.0.2"), ("self", "10.0.0.1"), ("b", "10.0.0.3")]).peers);
    let node = |name, address| PeerSpec { network: Network::Node, ..pod(name, address) };
    assert_eq!(peers[3..], [node("a", "192.168.0.2"), node("b", "192.168.0.3")], "in each family where there is a pod");
    assert_eq!(test.question(), None, "our own node is never asked, and no other peer is due");
}

#[test]
fn each_family_has_its_own_node_address() {
    let mut test = Test::new(&[("a", "10.0.0.2"), ("a", "fd00::2")]);
    test.answer(&answer("a", &["192.168.0.2", "192.168.0.9", "fd01::2", "fd01::9"]));
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready", "a fd01::2 Ready"]);
    assert_eq!(test.question(), None, "a peer of two families is asked once");
}

#[test]
fn an_answer_with_another_node_name_is_not_believed() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    assert_eq!(test.answer(&answer("z", &["192.168.0.26"])), AnswerOutcome::OtherNode);
    assert!(test.nodes().is_empty());
    assert_eq!(test.addresses.ask_at(), Some(test.now + RETRY), "it is asked again soon");
    test.pass(RETRY);
    test.answer(&answer("a", &["192.168.0.2"]));
    test.pass(REFRESH);
    test.answer(&answer("z", &["192.168.0.26"]));
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"], "the known address stays");
}

#[test]
fn a_peer_that_stops_answering_keeps_its_node_address_and_is_asked_again() {
    let mut test = Test::new(&[("a", "10.0.0.2"), ("a", "fd00::2")]);
    test.answer(&answer("a", &["192.168.0.2"]));
    assert_eq!(test.addresses.ask_at(), Some(test.now + REFRESH));
    test.pass(REFRESH.mul_f64(0.9));
    assert_eq!(test.question(), None);
    test.pass(REFRESH.mul_f64(0.1));
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(test.silence().server.to_string());
        assert_eq!(test.addresses.ask_at(), Some(test.now + RETRY));
        test.pass(RETRY);
    }
    assert_eq!(servers, ["10.0.0.2:9877", "[fd00::2]:9877", "10.0.0.2:9877"], "the families take turns");
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"]);
    assert_eq!(test.answer(&answer("a", &[])), AnswerOutcome::NewAddresses, "an answer without addresses removes them");
    assert!(test.nodes().is_empty());
}

#[test]
fn addresses_that_no_node_can_have_are_refused() {
    for odd in [
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "169.254.169.254",
        // Addresses of our pod, of our node, and of another peer's pod.
        "10.0.0.1",
        "192.168.0.1",
        "10.0.0.3",
    ] {
        let mut test = Test::new(&[("a", "10.0.0.2"), ("b", "10.0.0.3")]);
        assert_eq!(test.answer(&answer("a", &[odd])), AnswerOutcome::NoneUsable, "{odd}");
        test.pass(REFRESH * 2);
        test.answer(&answer("b", &[]));
        test.answer(&answer("a", &[odd, "192.168.0.2"]));
        assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"], "{odd} is passed over");
    }
    for odd in ["::", "::1", "ff02::1", "fe80::2"] {
        let mut test = Test::new(&[("a", "fd00::2")]);
        assert_eq!(test.answer(&answer("a", &[odd])), AnswerOutcome::NoneUsable, "{odd}");
    }
}

#[test]
fn loopback_is_allowed_where_the_peer_itself_is_on_loopback() {
    let mut test = Test::new(&[("a", "127.0.0.2")]);
    test.answer(&answer("a", &["127.0.1.2"]));
    assert_eq!(test.nodes(), ["a 127.0.1.2 Ready"]);
}

#[test]
fn a_pod_on_its_nodes_network_is_probed_once() {
    let mut test = Test::new(&[("a", "192.168.0.2")]);
    assert_eq!(
        test.answer(&answer("a", &["172.16.0.2", "192.168.0.2"])),
        AnswerOutcome::Unchanged,
        "that is not worth a warning"
    );
    assert!(test.nodes().is_empty());
}

#[test]
fn a_node_address_that_becomes_a_pods_address_is_not_probed_twice() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    test.answer(&answer("a", &["192.168.0.2"]));
    test.listed(&[("a", "10.0.0.2"), ("b", "192.168.0.2")]);
    assert!(test.nodes().is_empty());
    test.listed(&[("a", "10.0.0.2")]);
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"]);
}

#[test]
fn a_node_has_the_best_readiness_of_its_pods() {
    use Readiness::{Ready, Terminating, Unready};
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    test.answer(&answer("a", &["192.168.0.2"]));
    for (old, new, node) in [
        (Ready, None, "Ready"),
        (Terminating, None, "Terminating"),
        (Terminating, Some(Unready), "Unready"),
        (Terminating, Some(Ready), "Ready"),
        (Terminating, Some(Terminating), "Terminating"),
        (Unready, None, "Unready"),
    ] {
        let mut peers = vec![PeerSpec { readiness: old, ..pod("a", "10.0.0.2") }];
        peers.extend(new.map(|readiness| PeerSpec { readiness, ..pod("a", "10.0.0.9") }));
        test.addresses.listed(PeerList { peers }, test.now);
        assert_eq!(test.nodes(), [format!("a 192.168.0.2 {node}")], "{old:?} {new:?}");
    }
}

#[test]
fn a_rollout_keeps_the_node_address_and_asks_the_new_pod() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    test.answer(&answer("a", &["192.168.0.2"]));
    test.pass(Duration::from_secs(1));
    test.listed(&[]);
    assert!(test.nodes().is_empty(), "the list is empty");
    assert_eq!(test.question(), None, "absent peers are not asked");
    test.pass(KEPT_TIME.mul_f64(0.9));
    test.listed(&[("a", "10.0.0.9")]);
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"], "at once");
    assert!(!test.addresses.all_tried());
    assert_eq!(test.silence().server.to_string(), "10.0.0.9:9877", "the new pod");
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"]);
    test.pass(RETRY);
    assert_eq!(test.answer(&answer("a", &["192.168.0.77"])), AnswerOutcome::NewAddresses);
    assert_eq!(test.nodes(), ["a 192.168.0.77 Ready"]);
}

#[test]
fn node_addresses_are_removed_after_their_peer_has_left() {
    let mut test = Test::new(&[("a", "10.0.0.2"), ("b", "10.0.0.3")]);
    test.answer(&answer("a", &["192.168.0.2"]));
    test.listed(&[("b", "10.0.0.3")]);
    test.pass(KEPT_TIME);
    test.listed(&[("a", "10.0.0.2")]);
    assert!(test.nodes().is_empty(), "a recreated machine may have other addresses");
    assert_eq!(test.addresses.known.len(), 2);
    test.pass(KEPT_TIME);
    test.listed(&[("a", "10.0.0.2")]);
    assert_eq!(test.addresses.known.len(), 1);
}

#[test]
fn an_answer_of_a_replaced_pod_is_believed_and_the_new_pod_is_asked() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    let question = test.question().expect("due");
    test.listed(&[("a", "10.0.0.9")]);
    assert_eq!(test.question(), None, "one question at a time");
    test.addresses.answered(&question, Some(&answer("a", &["192.168.0.2"])), test.now, 0.5);
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"]);
    assert_eq!(test.asked(), "a 10.0.0.9:9877");
}

#[test]
fn an_answer_of_a_removed_peer_is_ignored() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    let question = test.question().expect("due");
    test.listed(&[]);
    test.pass(KEPT_TIME);
    test.listed(&[]);
    let outcome = test.addresses.answered(&question, Some(&answer("a", &["192.168.0.2"])), test.now, 0.5);
    assert_eq!((outcome, test.addresses.known.len()), (AnswerOutcome::Unchanged, 0));
}

#[test]
fn new_peers_are_asked_first_and_at_the_listed_port() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    test.silence();
    test.pass(RETRY * 2);
    let b = PeerSpec { http_port: Some(80), ..pod("b", "fd00::3") };
    test.addresses.listed(PeerList { peers: vec![pod("a", "10.0.0.2"), b] }, test.now);
    assert_eq!([test.asked(), test.asked(), test.asked()], ["b [fd00::3]:80", "a 10.0.0.2:9877", ""]);
}

#[test]
fn a_peer_with_its_address_as_its_name_is_not_asked() {
    let mut test = Test::new(&[("10.0.0.2", "10.0.0.2"), ("10.0.0.3", "10.1.0.3")]);
    assert_eq!([test.asked(), test.asked()], ["10.0.0.3 10.1.0.3:9877", ""], "a name may look like an address");
    assert_eq!(test.addresses.list().peers.len(), 2);
}

#[test]
fn the_pod_of_a_node_address_is_known_while_it_is_listed() {
    let mut test = Test::new(&[("a", "10.0.0.2"), ("a", "fd00::2")]);
    test.answer(&answer("a", &["192.168.0.2", "fd01::2"]));
    assert_eq!(test.addresses.pod_of(ip("192.168.0.2")), Some(ip("10.0.0.2")));
    assert_eq!(test.addresses.pod_of(ip("fd01::2")), Some(ip("fd00::2")));
    assert_eq!(test.addresses.pod_of(ip("10.0.0.2")), None);
    test.listed(&[]);
    assert_eq!(test.addresses.pod_of(ip("192.168.0.2")), None);
}

#[test]
fn the_table_does_not_outgrow_the_list() {
    let mut test = Test::new(&[]);
    let names: Vec<(String, String)> =
        (0..200).map(|n| (format!("node-{n}"), format!("10.1.{}.{}", n / 100, n % 100))).collect();
    for turn in 0..20 {
        let some: Vec<(&str, &str)> =
            names.iter().skip(turn * 9).take(24).map(|(node, address)| (&**node, &**address)).collect();
        test.listed(&some);
        while let Some(question) = test.question() {
            let node_address = question.server.ip().to_string().replace("10.1", "172.16");
            test.addresses.answered(&question, Some(&answer(&question.node, &[&node_address])), test.now, 0.5);
        }
        assert_eq!(test.nodes().len(), 24);
        test.pass(KEPT_TIME);
    }
    assert!(test.addresses.known.len() <= 24 + 9, "{}", test.addresses.known.len());
    assert!(test.addresses.known.is_sorted_by(|a, b| a.node < b.node));
}
