//! A signal stops an agent while probes are in flight that never get a reply.

use crate::mesh::{Mesh, Socket, all_clean};

#[test]
fn readiness_waits_for_the_first_probes_and_not_for_dead_peers() {
    let mesh = Mesh::new();
    let mut agents = mesh.ipv4_agents(Socket::Ping);
    all_clean(&agents, "icmp", 25.0);
    mesh.hub.ip("link set to-c down\n");
    let agent = &mut agents[0];
    agent.wait_for("c", "icmp", "a loss", |link| link.lost >= 1.0);
    assert_eq!(agent.status("/readyz"), Some(200));
    agent.process.signal(libc::SIGTERM);
    agent.process.wait_for_log("stopping");
    // It waits for a quarter of a second. HTTP answers during that time, and not after it.
    let mut answers = 0;
    while let Some(status) = agent.status("/readyz") {
        assert_eq!(status, 503);
        answers += 1;
    }
    println!("{answers} answers");
    let status = agent.process.end();
    assert_eq!(status.code(), Some(0), "{status}: {}", agent.process.log());
    let link = agents[1].link("a");
    assert!(link.received >= 25.0, "{link:?}");
}
