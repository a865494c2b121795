//! Agents on kernels that lack something: they go without it, and log each cause once.
//!
//! Two agents on loopback probe each other. The kernel refuses calls of the first.

use std::ffi::{c_int, c_long};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::agent::{Agent, directory};
use crate::common::process::Process;
use crate::common::until::until;
use crate::refusals::{Refusal, refuse};
use crate::shim::PLAIN;

const SET: c_long = libc::SYS_setsockopt;
const IPV4: c_int = libc::IPPROTO_IP;
const IPV6: c_int = libc::IPPROTO_IPV6;

/// The errors by which kernels and sandboxes refuse what they lack.
const ERRORS: [c_int; 4] = [libc::ENOPROTOOPT, libc::ENOSYS, libc::EPERM, libc::EINVAL];

/// Refuses an option of sockets. Its level is argument 1 of the call, and its name argument 2.
macro_rules! option {
    ($level:expr, $name:expr) => {{
        const ARGUMENTS: &[(u32, c_int)] = &[(1, $level), (2, $name)];
        (SET, ARGUMENTS)
    }};
}

type Refused = (c_long, &'static [(u32, c_int)]);

/// What is refused, and what the only line about it says.
const LACKS: [(&[Refused], &str); 14] = [
    (&[option!(libc::SOL_SOCKET, libc::SO_TIMESTAMPING)], "does not stamp packets"),
    (&[option!(IPV4, libc::IP_RECVERR)], "no path is traced"),
    (&[option!(IPV4, libc::IP_MTU_DISCOVER)], "no path MTU is searched"),
    (&[option!(IPV4, libc::IP_RECVTTL)], "hops of paths are not known"),
    (&[option!(IPV4, libc::IP_PKTINFO)], "does not tell the destination"),
    (&[option!(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER)], "refuses them one by one"),
    (&[option!(libc::SOL_SOCKET, libc::SO_LINGER)], "by a reset"),
    (&[option!(libc::SOL_SOCKET, libc::SO_SNDBUF)], "does not limit the buffers"),
    (&[option!(libc::SOL_SOCKET, libc::SO_REUSEADDR)], "does not share a port"),
    (&[option!(libc::IPPROTO_TCP, libc::TCP_NODELAY)], "holds back small segments"),
    (&[(libc::SYS_sendmmsg, &[]), (libc::SYS_recvmmsg, &[])], "each packet costs a system call"),
    (&[(libc::SYS_sendmmsg, &[])], "each packet costs a system call"),
    (&[(libc::SYS_timerfd_create, &[(0, libc::CLOCK_REALTIME)])], "does not report steps"),
    (&[(libc::SYS_socket, &[(0, libc::AF_NETLINK)])], "does not list routes and interfaces"),
];

/// The addresses of two agents, which no other test and no other process uses.
struct Network([String; 2]);

impl Network {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (process, first) = (std::process::id(), 2 * NEXT.fetch_add(1, Ordering::Relaxed) + 1);
        let address = |last| format!("127.{}.{}.{last}", 16 + process / 256 % 200, process % 256);
        Self([address(first), address(first + 1)])
    }

    /// Returns a command for the agent `n1` or `n2`, which probes the other.
    fn command(&self, place: usize) -> Command {
        let (own, other) = (&self.0[place - 1], &self.0[2 - place]);
        let mut command = Command::new(PLAIN);
        command.args(["run", "--discovery", "static", "--interval", "50ms", "--node-name", &format!("n{place}")]);
        command.args(["--listen", &format!("{own}:9877"), "--peer", &format!("n{}={other}", 3 - place)]);
        command
    }
}

fn refusing(command: &mut Command, refused: &[Refused], error: c_int) -> Agent {
    let refusals: Vec<Refusal> = refused.iter().map(|&(call, arguments)| Refusal { call, arguments, error }).collect();
    refuse(command, &refusals);
    Agent::of(command)
}

/// Returns the lines about what the kernel lacks.
fn lines(process: &Process) -> Vec<String> {
    process.log().lines().filter(|line| line.contains("sys::lacks]")).map(str::to_owned).collect()
}

fn wait_for_answers(agent: &Agent, protocols: &[&str]) {
    until("answers by every protocol", || {
        let metrics = agent.metrics();
        let peer = if metrics.0.iter().any(|sample| sample.label("peer_node") == "n2") { "n2" } else { "n1" };
        let silent = protocols.iter().find(|protocol| metrics.link(peer, protocol).received < 3.0);
        silent.map_or(Ok(()), |protocol| Err(format!("none by {protocol}: {}", agent.process.log())))
    });
}

#[test]
fn lacking_kernel_is_logged_once_and_every_probe_is_answered() {
    for (index, (refused, text)) in LACKS.iter().enumerate() {
        let network = Network::new();
        let other = Agent::of(&mut network.command(2));
        let agent = refusing(&mut network.command(1), refused, ERRORS[index % ERRORS.len()]);
        wait_for_answers(&agent, &["icmp", "udp"]);
        // The agent without the lack gets answers, too.
        wait_for_answers(&other, &["icmp", "udp"]);
        let lines = lines(&agent.process);
        assert_eq!(lines.len(), 1, "{text}: {}", agent.process.log());
        assert!(lines[0].contains(text), "{text}: {}", lines[0]);
    }
}

#[test]
fn every_error_of_a_lack_is_one_line() {
    for error in ERRORS {
        let network = Network::new();
        let _other = Agent::of(&mut network.command(2));
        let refused = [(libc::SYS_sendmmsg, &[][..]), (libc::SYS_recvmmsg, &[]), option!(IPV4, libc::IP_RECVERR)];
        // A kernel answers to a call that it lacks, but not to an option, with ENOSYS.
        let [send, receive, errors] = refused;
        let call = if error == libc::ENOPROTOOPT { libc::ENOSYS } else { error };
        let mut command = network.command(1);
        refuse(&mut command, &[Refusal { call: errors.0, arguments: errors.1, error }]);
        let agent = refusing(&mut command, &[send, receive], call);
        wait_for_answers(&agent, &["icmp", "udp"]);
        assert_eq!(lines(&agent.process).len(), 2, "{error}: {}", agent.process.log());
    }
}

#[test]
fn times_without_kernel_stamps_are_counted_as_the_agent_s_own() {
    let network = Network::new();
    let _other = Agent::of(&mut network.command(2));
    let refused = [option!(libc::SOL_SOCKET, libc::SO_TIMESTAMPING)];
    // Not TCP: the kernel itself measures a handshake, without stamps of packets.
    let mut command = network.command(1);
    let agent = refusing(command.args(["--probes", "icmp,udp"]), &refused, libc::ENOPROTOOPT);
    wait_for_answers(&agent, &["icmp", "udp"]);
    let stamps = |source| agent.metrics().value("rtt_stamps_total", &[("source", source)]);
    assert!(
        stamps("user") >= Some(3.0) && stamps("kernel") == Some(0.0),
        "{:?} {:?}",
        stamps("user"),
        stamps("kernel")
    );
}

#[test]
fn host_without_ipv6_serves_and_probes_by_ipv4_and_gets_no_advice_on_permissions() {
    for error in [libc::EAFNOSUPPORT, libc::EPERM, libc::EACCES] {
        for refused in [(libc::SYS_socket, &[(0, libc::AF_INET6)][..]), option!(IPV6, libc::IPV6_V6ONLY)] {
            let mut command = Command::new(PLAIN);
            command.args(["run", "--discovery", "static", "--node-name", "n1", "--interval", "50ms"]);
            command.args(["--listen", "[::]:0", "--probes", "icmp", "--peer", "n2=127.0.0.2"]);
            let agent = refusing(&mut command, &[refused], error);
            wait_for_answers(&agent, &["icmp"]);
            let (lines, log) = (lines(&agent.process), agent.process.log());
            assert_eq!(lines.len(), 1, "{log}");
            assert!(lines[0].contains("this host cannot use IPv6"), "{log}");
            assert!(agent.http.is_ipv4() && !log.contains("ping_group_range"), "{log}");
        }
    }
}

#[test]
fn ping_that_cannot_trace_says_so() {
    let mut command = Command::new(PLAIN);
    command.args(["ping", "127.0.0.1", "--udp", "--trace", "--count", "1"]);
    refuse(
        &mut command,
        &[Refusal { call: SET, arguments: &[(1, IPV4), (2, libc::IP_RECVERR)], error: libc::ENOPROTOOPT }],
    );
    let mut process = Process::start(&mut command, directory());
    let status = process.end();
    assert_eq!(status.code(), Some(1));
    assert!(
        process.log().contains("cannot trace paths, because this kernel reports no ICMP errors"),
        "{}",
        process.log()
    );
}

#[test]
fn agent_that_cannot_start_names_the_call_and_no_remedy_that_does_not_help() {
    for (refused, text) in [
        ((libc::SYS_timerfd_create, &[][..]), "cannot make the pacing timer"),
        ((libc::SYS_socketpair, &[]), "cannot make a socket pair for signals"),
        ((libc::SYS_getsockname, &[]), "cannot open the socket for HTTP at"),
    ] {
        let mut command = Network::new().command(1);
        let (call, arguments) = refused;
        refuse(&mut command, &[Refusal { call, arguments, error: libc::ENOSYS }]);
        let mut process = Process::start(&mut command, directory());
        let status = process.end();
        assert_eq!(status.code(), Some(1), "{}", process.log());
        let last = process.log().lines().last().unwrap_or_default().to_owned();
        assert!(last.starts_with("kube-canary: ") && last.contains(text), "{}", process.log());
        assert!(last.contains("os error 38") && !last.contains("--listen") && !last.contains("sysctl"), "{last}");
    }
}
