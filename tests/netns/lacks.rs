//! A host without IPv6, whose agent has the defaults: it listens and probes by IPv4 alone.

use std::path::Path;

use crate::common::process::Process;
use crate::common::scrape::Metrics;
use crate::common::until::until;
use crate::mesh::{Mesh, Socket, command};
use crate::namespace::DIRECTORY;
use crate::refusals::{Refusal, refuse};

#[test]
fn host_without_ipv6_serves_and_probes_by_ipv4_with_one_line_of_advice() {
    let mesh = Mesh::of(&["a", "b"]);
    let peers = mesh.peers_file(|node| vec![node.ipv4(), node.ipv6()]);
    let flags = ["--probes", "icmp,udp,tcp", "--listen", "[::]:9877"];
    let start = |name, refused: &[Refusal]| {
        let mut command = command(mesh.node(name), Socket::Ping, &peers, 9_877, &flags);
        refuse(&mut command, refused);
        Process::start(&mut command, Path::new(DIRECTORY))
    };
    let no_ipv6 = Refusal { call: libc::SYS_socket, arguments: &[(0, libc::AF_INET6)], error: libc::EAFNOSUPPORT };
    let _other = start("b", &[]);
    let mut agent = start("a", &[no_ipv6]);
    agent.wait_for_log("TCP handshakes at 0.0.0.0:9878; HTTP on 0.0.0.0:9877");
    let http = "127.0.0.1:9877".parse().expect("an address");
    until("answers by ICMP and UDP", || {
        let metrics = mesh.node("a").namespace.within(|| Metrics::of(http))?;
        let silent = ["icmp", "udp"].into_iter().find(|protocol| metrics.link("b", protocol).received < 3.0);
        silent.map_or(Ok(()), |protocol| Err(format!("none by {protocol}: {}", agent.log())))
    });
    let log = agent.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("sys::lacks]")).collect();
    assert!(matches!(lines[..], [line] if line.contains("this host cannot use IPv6")), "{log}");
    assert!(!log.contains("ping_group_range"), "{log}");
}
