//! A peers file that becomes invalid, or vanishes, while an agent runs.

use std::fs;

use crate::agent::{Agent, command, directory};
use crate::common::process::{replace, unique};
use crate::common::scrape::Metrics;
use crate::common::until::{until, until_so};
use crate::shim::PLAIN;

#[test]
fn a_peers_file_that_becomes_bad_keeps_the_last_list_and_a_good_one_is_taken_again() {
    let file = unique(directory(), "peers");
    fs::write(&file, "a=127.0.0.2\nb=127.0.0.3\n").expect("our directory is writable");
    let flags = ["--interval", "20ms", "--forget-after", "0s"];
    let mut agent = Agent::of(command(PLAIN, &flags).arg("--peers-file").arg(&file));
    agent.wait_for_answers(&["a", "b"]);
    let both = [("a", "icmp"), ("b", "icmp")];

    replace(&file, "a=127.0.0.2\nb=127.0.0.300\n");
    agent.process.wait_for_log("b=127.0.0.300");
    keeps_probing(&agent, &both);
    fs::remove_file(&file).expect("it is there");
    agent.process.wait_for_log("No such file");
    keeps_probing(&agent, &both);
    assert_eq!(agent.get("/readyz").status, 200, "a bad file is no reason to leave the Service");

    replace(&file, "a=127.0.0.2\nc=127.0.0.4\n");
    until_so("the good list is taken", || agent.metrics().peers() == [("a", "icmp"), ("c", "icmp")]);
    agent.wait_for_answers(&["a", "c"]);
}

/// The list is the last good one. It is not confirmed, and its peers are still probed.
fn keeps_probing(agent: &Agent, peers: &[(&str, &str)]) {
    // A good file would be confirmed every second, so its list would be no older than that.
    const SECONDS: f64 = 2.0;
    let age = |metrics: &Metrics| metrics.value("peer_list_age_seconds", &[]).expect("an age");
    let before = agent.metrics();
    let after = until("an older list and further answers of its peers", || {
        let now = agent.metrics();
        let mut links = peers.iter().map(|(peer, by)| now.link(peer, by).since(before.link(peer, by)));
        let is_so = age(&now) > age(&before) + SECONDS && links.all(|link| link.received > 0.0);
        if is_so { Ok(now) } else { Err(format!("{now:?}")) }
    });
    assert_eq!(after.peers(), peers);
    assert!(peers.iter().all(|(peer, by)| after.link(peer, by).is_clean()), "{after:?}");
}
