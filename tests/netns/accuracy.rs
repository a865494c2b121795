//! What `kube-canary ping` reports on a veth pair, against the wire, probe by probe.
//!
//! A machine that runs tests is not idle, so no time is asserted; what holds under any load is. With the kernel's stamps
//! a probe's clock starts after the tap's stamp of the request, on the way into the same device, and stops with the tap's
//! own stamp of the reply: it can read a little less than the wire, and never more. A user's stamps around `send` and
//! `recv`, of an ordinary pinger that runs in the same namespace and under the same load, enclose the wire's. So the two
//! errors are measured side by side, and ours has to be a fraction of that. The table is printed (`-- --nocapture`); on an
//! idle machine the kernel-stamped median is to be 3 µs at most, and p99 20 µs.

use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use kube_canary::clock::monotonic;
use socket2::{Domain, Protocol, Type};

use crate::capture::{Capture, Seen};
use crate::common::until::PATIENCE;
use crate::echo::Kind;
use crate::mesh::{Node, Socket, wait_for_link};
use crate::namespace::Namespace;
use crate::pinging::{Ping, Told};

const COUNT: u64 = 400;
const INTERVAL: Duration = Duration::from_millis(10);
/// Of the ordinary pinger, which has an address of its own to ping.
const BASELINE_COUNT: u16 = 400;
const FAR: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)), IpAddr::V6(FAR6)];
const FAR6: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0xfd00, 0x198, 0x18, 0, 0, 0, 0, 2);
const FAR_OF_BASELINE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);
/// Clocks that are converted there and back.
const ROUNDING: i64 = 1_000;

/// `near` and the far end of its `eth0`.
fn veth() -> (Node, Namespace) {
    let (near, far) = (Node::alone("near"), Node::alone("far").namespace);
    near.namespace.ip(&format!(
        "link set lo up\nlink add eth0 type veth peer name eth0 netns {}\naddress add 198.18.0.1/24 dev eth0\n\
         address add fd00:198:18::1/64 dev eth0 nodad\nlink set eth0 up\n",
        far.name()
    ));
    far.ip(&format!(
        "link set lo up\naddress add {}/24 dev eth0\naddress add {FAR_OF_BASELINE}/24 dev eth0\n\
         address add {FAR6}/64 dev eth0 nodad\nlink set eth0 up\n",
        FAR[0]
    ));
    wait_for_link(&near.namespace, "eth0");
    wait_for_link(&far, "eth0");
    (near, far)
}

/// Round-trip times on the wire, in nanoseconds, by peer and sequence number.
fn on_the_wire(seen: &[Seen]) -> HashMap<(IpAddr, u16), u64> {
    let mut departures = HashMap::new();
    let mut times = HashMap::new();
    for Seen { echo, at, outgoing } in seen {
        match (echo.kind, outgoing) {
            (Kind::Request, true) => {
                let before = departures.insert((echo.to, echo.sequence), *at);
                assert!(before.is_none(), "sent twice: {echo:?}");
            }
            (Kind::Reply, false) => {
                let key = (echo.from, echo.sequence);
                let departure = departures.get(&key).unwrap_or_else(|| panic!("no request before {echo:?}"));
                assert!(times.insert(key, at.since(*departure).0).is_none(), "answered twice: {echo:?}");
            }
            _ => panic!("nobody pings us: {echo:?}"),
        }
    }
    times
}

/// What an ordinary pinger reads: the time before `send`, and that after `recv`.
fn user_times(namespace: &Namespace) -> Vec<u64> {
    namespace.sysctl("net/ipv4/ping_group_range", "0 0");
    namespace.within(|| {
        let socket = socket2::Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4)).expect("a ping socket");
        socket.connect(&SocketAddr::from((FAR_OF_BASELINE, 0)).into()).expect("a route");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut times = Vec::new();
        for sequence in 0..BASELINE_COUNT {
            thread::sleep(INTERVAL / 2);
            let [high, low] = sequence.to_be_bytes();
            let mut message = [0u8; 64];
            (message[0], message[6], message[7]) = (8, high, low);
            let before = monotonic();
            socket.send(&message).expect("sent");
            let got = (&socket).read(&mut message).expect("an answer");
            times.push(monotonic().since(before).0);
            assert_eq!((got, message[0], message[6], message[7]), (64, 0, high, low));
        }
        times
    })
}

/// Differences in nanoseconds.
struct Errors(Vec<i64>);

impl Errors {
    /// A part per 100 of them are at most so large.
    fn quantile(&self, part: usize) -> u64 {
        let mut sizes: Vec<u64> = self.0.iter().map(|error| error.unsigned_abs()).collect();
        sizes.sort_unstable();
        sizes[(sizes.len() - 1) * part / 100]
    }

    fn row(&self, name: &str) -> String {
        let [p50, p90, p99, max] = [50, 90, 99, 100].map(|part| format!("{:.2}", self.quantile(part) as f64 / 1e3));
        format!("{name:<28} {:>6} {p50:>9} {p90:>9} {p99:>9} {max:>9}\n", self.0.len())
    }
}

fn difference(reported: u64, wire: u64) -> i64 {
    reported.cast_signed() - wire.cast_signed()
}

fn times_are_those_of_the_wire(socket: Socket) {
    let (near, _far) = veth();
    let tap = Capture::new(&near.namespace, "eth0", FAR_OF_BASELINE).record();
    let targets = FAR.map(|peer| peer.to_string()).to_vec();
    let timeout = Duration::from_millis(500);
    let (code, objects) = Ping { node: &near, socket, targets, count: COUNT, interval: INTERVAL, timeout }.run();
    assert_eq!(code, Some(0), "{objects:?}");
    let by_user = user_times(&near.namespace);
    let wire = on_the_wire(&tap.stop());

    let baseline =
        (0..).zip(&by_user).map(|(sequence, time)| difference(*time, wire[&(FAR_OF_BASELINE.into(), sequence)]));
    let baseline = Errors(baseline.collect());
    let mut table =
        format!("{:<28} {:>6} {:>9} {:>9} {:>9} {:>9}\n", "|error| in µs", "probes", "p50", "p90", "p99", "max");
    table += &baseline.row("user stamps, 198.18.0.3");
    for peer in FAR {
        let told = Told::of(&objects, &peer.to_string());
        assert_eq!(told.answers.len() as u64, COUNT, "{peer}: {}", told.summary);
        let by_kernel = told.answers.iter().filter(|(_, answer)| answer.by_kernel);
        let errors = by_kernel.map(|(number, answer)| {
            let wire = wire[&(peer, u16::try_from(*number).expect("few probes"))];
            let error = difference(answer.nanos, wire);
            assert!(error <= ROUNDING, "{peer} {number}: {answer:?} is more than the wire's {wire} ns");
            error
        });
        let errors = Errors(errors.collect());
        table += &errors.row(&format!("{socket:?} socket, {peer}"));
        assert!(errors.0.len() as u64 * 10 >= COUNT * 9, "{peer}: only {} have the kernel's stamps", errors.0.len());
        for part in [50, 90] {
            let (ours, users) = (errors.quantile(part), baseline.quantile(part));
            assert!(ours * 4 <= users, "{peer}: p{part} is {ours} ns, and {users} ns with a user's stamps:\n{table}");
        }
    }
    println!("{table}");
}

#[test]
fn times_are_those_of_the_wire_by_ping_sockets() {
    times_are_those_of_the_wire(Socket::Ping);
}

#[test]
fn times_are_those_of_the_wire_by_raw_sockets() {
    times_are_those_of_the_wire(Socket::Raw);
}
