use std::time::Duration;

use super::*;
use crate::discovery::identity::Identity;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pod(node: &str, address: &str) -> PeerSpec {
    PeerSpec { zone: Some("z".into()), ..PeerSpec::pod(node, ip(address)) }
}

fn list(peers: &[(&str, &str)]) -> PeerList {
    PeerList { peers: peers.iter().map(|(node, address)| pod(node, address)).collect() }
}

fn says(node: &str, addresses: &[&str]) -> Answer {
    Answer {
        identity: Identity { node: node.into(), zone: None },
        node_addresses: addresses.iter().map(|text| ip(text)).collect(),
    }
}

/// A table for our node `self`, with a clock that moves only on demand.
struct Test {
    book: Book,
    now: Instant,
}

impl Test {
    fn new(peers: &[(&str, &str)]) -> Self {
        let addresses = vec![ip("10.0.0.1"), ip("192.168.0.1")];
        let ourselves = Ourselves { node: "self".into(), addresses, http_port: 9_877, ..Ourselves::default() };
        let mut test = Self { book: Book::new(&ourselves), now: Instant::now() };
        test.book.listed(list(peers), test.now);
        test
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn listed(&mut self, peers: &[(&str, &str)]) {
        self.book.listed(list(peers), self.now);
    }

    /// Returns the next question.
    fn question(&mut self) -> Option<Question> {
        self.book.next_to_ask(self.now)
    }

    fn asked(&mut self) -> String {
        self.question().map_or_else(String::new, |question| format!("{} {}", question.node, question.server))
    }

    /// Asks the next peer that is due, and gives it this answer.
    fn answer(&mut self, answer: &Answer) -> Learnt {
        let question = self.question().expect("somebody is due");
        self.book.answered(&question, Some(answer), self.now, 0.5)
    }

    fn silence(&mut self) -> Question {
        let question = self.question().expect("somebody is due");
        assert_eq!(self.book.answered(&question, None, self.now, 0.5), Learnt::Nothing);
        question
    }

    /// Returns the entries of node addresses, as `NODE ADDRESS STATE`.
    fn nodes(&self) -> Vec<String> {
        let nodes = self.book.list().peers.into_iter().filter(|spec| spec.network == Network::Node);
        nodes.map(|spec| format!("{} {} {:?}", spec.node, spec.address, spec.readiness)).collect()
    }
}

#[test]
fn what_a_peer_says_of_its_node_stands_behind_the_list_of_pods() {
    let mut test = Test::new(&[("a", "10.0.0.2"), ("self", "10.0.0.1"), ("b", "10.0.0.3")]);
    assert!(test.nodes().is_empty() && !test.book.all_tried());
    assert_eq!(test.answer(&says("a", &["192.168.0.2"])), Learnt::Addresses);
    assert_eq!(test.answer(&says("b", &["fd00::3", "192.168.0.3", "172.16.0.3"])), Learnt::Addresses);
    assert!(test.book.all_tried());
    let peers = test.book.list().peers;
    assert_eq!(peers[..3], list(&[("a", "10.0.0.2"), ("self", "10.0.0.1"), ("b", "10.0.0.3")]).peers);
    let node = |name, address| PeerSpec { network: Network::Node, ..pod(name, address) };
    assert_eq!(peers[3..], [node("a", "192.168.0.2"), node("b", "192.168.0.3")], "in each family where there is a pod");
    assert_eq!(test.question(), None, "nobody asks himself, and nobody else is due");
}

#[test]
fn each_family_has_its_own_node_address() {
    let mut test = Test::new(&[("a", "10.0.0.2"), ("a", "fd00::2")]);
    test.answer(&says("a", &["192.168.0.2", "192.168.0.9", "fd01::2", "fd01::9"]));
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready", "a fd01::2 Ready"]);
    assert_eq!(test.question(), None, "a peer of two families is asked once");
}

#[test]
fn another_pod_at_the_address_is_not_believed() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    assert_eq!(test.answer(&says("z", &["192.168.0.26"])), Learnt::Another);
    assert!(test.nodes().is_empty());
    assert_eq!(test.book.ask_at(), Some(test.now + IDENTITY_RETRY), "it is asked again soon");
    test.pass(IDENTITY_RETRY);
    test.answer(&says("a", &["192.168.0.2"]));
    test.pass(IDENTITY_REFRESH);
    test.answer(&says("z", &["192.168.0.26"]));
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"], "and takes nothing away");
}

#[test]
fn a_peer_that_falls_silent_keeps_its_node_address_and_is_asked_again() {
    let mut test = Test::new(&[("a", "10.0.0.2"), ("a", "fd00::2")]);
    test.answer(&says("a", &["192.168.0.2"]));
    assert_eq!(test.book.ask_at(), Some(test.now + IDENTITY_REFRESH));
    test.pass(IDENTITY_REFRESH.mul_f64(0.9));
    assert_eq!(test.question(), None);
    test.pass(IDENTITY_REFRESH.mul_f64(0.1));
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(test.silence().server.to_string());
        assert_eq!(test.book.ask_at(), Some(test.now + IDENTITY_RETRY));
        test.pass(IDENTITY_RETRY);
    }
    assert_eq!(servers, ["10.0.0.2:9877", "[fd00::2]:9877", "10.0.0.2:9877"], "one family may be what is broken");
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"]);
    assert_eq!(test.answer(&says("a", &[])), Learnt::Addresses, "its own word counts");
    assert!(test.nodes().is_empty());
}

#[test]
fn questions_are_spread_over_half_to_one_and_a_half_of_their_time() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    for (answer, middle) in [(None, IDENTITY_RETRY), (Some(says("a", &[])), IDENTITY_REFRESH)] {
        for (random, part) in [(0.0, 0.5), (0.5, 1.0)] {
            let question = test.question().expect("due");
            test.book.answered(&question, answer.as_ref(), test.now, random);
            assert_eq!(test.book.ask_at(), Some(test.now + middle.mul_f64(part)));
            test.pass(middle * 2);
        }
    }
}

#[test]
fn addresses_that_are_no_one_s_node_are_refused() {
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
        assert_eq!(test.answer(&says("a", &[odd])), Learnt::NoneUsable, "{odd}");
        test.pass(IDENTITY_REFRESH * 2);
        test.answer(&says("b", &[]));
        test.answer(&says("a", &[odd, "192.168.0.2"]));
        assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"], "{odd} is passed over");
    }
    for odd in ["::", "::1", "ff02::1", "fe80::2"] {
        let mut test = Test::new(&[("a", "fd00::2")]);
        assert_eq!(test.answer(&says("a", &[odd])), Learnt::NoneUsable, "{odd}");
    }
}

#[test]
fn loopback_is_allowed_where_the_peer_itself_is_on_loopback() {
    let mut test = Test::new(&[("a", "127.0.0.2")]);
    test.answer(&says("a", &["127.0.1.2"]));
    assert_eq!(test.nodes(), ["a 127.0.1.2 Ready"]);
}

#[test]
fn a_peer_on_its_node_s_network_is_probed_once() {
    let mut test = Test::new(&[("a", "192.168.0.2")]);
    assert_eq!(test.answer(&says("a", &["172.16.0.2", "192.168.0.2"])), Learnt::Nothing, "nothing is missing, either");
    assert!(test.nodes().is_empty());
}

#[test]
fn a_node_address_that_becomes_a_pod_s_is_not_probed_as_a_node_s() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    test.answer(&says("a", &["192.168.0.2"]));
    test.listed(&[("a", "10.0.0.2"), ("b", "192.168.0.2")]);
    assert!(test.nodes().is_empty());
    test.listed(&[("a", "10.0.0.2")]);
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"]);
}

#[test]
fn a_node_is_as_the_best_of_its_pods() {
    use Readiness::{Ready, Terminating, Unready};
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    test.answer(&says("a", &["192.168.0.2"]));
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
        test.book.listed(PeerList { peers }, test.now);
        assert_eq!(test.nodes(), [format!("a 192.168.0.2 {node}")], "{old:?} {new:?}");
    }
}

#[test]
fn a_rollout_keeps_the_node_s_address_and_asks_the_new_pod() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    test.answer(&says("a", &["192.168.0.2"]));
    test.pass(Duration::from_secs(1));
    test.listed(&[]);
    assert!(test.nodes().is_empty(), "nobody is listed");
    assert_eq!(test.question(), None, "or asked");
    test.pass(NODE_ADDRESSES_KEPT.mul_f64(0.9));
    test.listed(&[("a", "10.0.0.9")]);
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"], "at once");
    assert!(!test.book.all_tried());
    assert_eq!(test.silence().server.to_string(), "10.0.0.9:9877", "it has just been started");
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"]);
    test.pass(IDENTITY_RETRY);
    assert_eq!(test.answer(&says("a", &["192.168.0.77"])), Learnt::Addresses);
    assert_eq!(test.nodes(), ["a 192.168.0.77 Ready"]);
}

#[test]
fn what_is_known_goes_when_its_peer_has_left_for_good() {
    let mut test = Test::new(&[("a", "10.0.0.2"), ("b", "10.0.0.3")]);
    test.answer(&says("a", &["192.168.0.2"]));
    test.listed(&[("b", "10.0.0.3")]);
    test.pass(NODE_ADDRESSES_KEPT);
    test.listed(&[("a", "10.0.0.2")]);
    assert!(test.nodes().is_empty(), "a machine may have been made anew under its name");
    assert_eq!(test.book.known.len(), 2);
    test.pass(NODE_ADDRESSES_KEPT);
    test.listed(&[("a", "10.0.0.2")]);
    assert_eq!(test.book.known.len(), 1);
}

#[test]
fn an_answer_of_a_pod_that_was_replaced_meanwhile_is_believed_and_its_successor_asked() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    let question = test.question().expect("due");
    test.listed(&[("a", "10.0.0.9")]);
    assert_eq!(test.question(), None, "one question at a time");
    test.book.answered(&question, Some(&says("a", &["192.168.0.2"])), test.now, 0.5);
    assert_eq!(test.nodes(), ["a 192.168.0.2 Ready"]);
    assert_eq!(test.asked(), "a 10.0.0.9:9877");
}

#[test]
fn an_answer_of_one_who_has_gone_is_forgotten() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    let question = test.question().expect("due");
    test.listed(&[]);
    test.pass(NODE_ADDRESSES_KEPT);
    test.listed(&[]);
    let learnt = test.book.answered(&question, Some(&says("a", &["192.168.0.2"])), test.now, 0.5);
    assert_eq!((learnt, test.book.known.len()), (Learnt::Nothing, 0));
}

#[test]
fn who_was_never_asked_is_asked_first_and_at_the_port_that_is_listed() {
    let mut test = Test::new(&[("a", "10.0.0.2")]);
    test.silence();
    test.pass(IDENTITY_RETRY * 2);
    let b = PeerSpec { http_port: Some(80), ..pod("b", "fd00::3") };
    test.book.listed(PeerList { peers: vec![pod("a", "10.0.0.2"), b] }, test.now);
    assert_eq!([test.asked(), test.asked(), test.asked()], ["b [fd00::3]:80", "a 10.0.0.2:9877", ""]);
}

#[test]
fn a_peer_whose_address_stands_in_for_its_name_is_not_asked() {
    let mut test = Test::new(&[("10.0.0.2", "10.0.0.2"), ("10.0.0.3", "10.1.0.3")]);
    assert_eq!([test.asked(), test.asked()], ["10.0.0.3 10.1.0.3:9877", ""], "a name may look like an address");
    assert_eq!(test.book.list().peers.len(), 2);
}

#[test]
fn the_pod_of_a_node_s_address_is_known_while_it_is_listed() {
    let mut test = Test::new(&[("a", "10.0.0.2"), ("a", "fd00::2")]);
    test.answer(&says("a", &["192.168.0.2", "fd01::2"]));
    assert_eq!(test.book.pod_of(ip("192.168.0.2")), Some(ip("10.0.0.2")));
    assert_eq!(test.book.pod_of(ip("fd01::2")), Some(ip("fd00::2")));
    assert_eq!(test.book.pod_of(ip("10.0.0.2")), None);
    test.listed(&[]);
    assert_eq!(test.book.pod_of(ip("192.168.0.2")), None);
}

#[test]
fn the_table_of_many_is_as_large_as_the_list_and_no_larger() {
    let mut test = Test::new(&[]);
    let names: Vec<(String, String)> =
        (0..200).map(|n| (format!("node-{n}"), format!("10.1.{}.{}", n / 100, n % 100))).collect();
    for turn in 0..20 {
        let some: Vec<(&str, &str)> =
            names.iter().skip(turn * 9).take(24).map(|(node, address)| (&**node, &**address)).collect();
        test.listed(&some);
        while let Some(question) = test.question() {
            let node_address = question.server.ip().to_string().replace("10.1", "172.16");
            test.book.answered(&question, Some(&says(&question.node, &[&node_address])), test.now, 0.5);
        }
        assert_eq!(test.nodes().len(), 24);
        test.pass(NODE_ADDRESSES_KEPT);
    }
    assert!(test.book.known.len() <= 24 + 9, "{}", test.book.known.len());
    assert!(test.book.known.is_sorted_by(|a, b| a.node < b.node));
}
