//! The times that `kube-canary ping` reports on a veth pair, against the wire, probe by probe.
//!
//! A machine that runs tests is not idle, so no time is asserted. The tests assert only what holds
//! under any load. A probe that the kernel stamps is stamped between two taps. The near tap stamps
//! the request just before its device: that is the outer wire time, which includes the near tap's
//! own work. The far tap stamps it just after the probe's stamp: that is the inner wire time. The
//! reply's stamp is the near tap's own. So every reported time lies between the two wire times of
//! its probe.
//!
//! An ordinary pinger in the same namespace reads the clock around `send` and `recv`, so its times
//! enclose both wire times. Its error shows what the kernel's stamps are for. Our error must be
//! smaller, at the median and at p90.
//!
//! The table of errors is printed (`-- --nocapture`). On an idle machine, the median must be at
//! most 3 µs, and p99 at most 20 µs.

use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use kube_canary::sys::clock::monotonic;
use kube_canary::units::Nanos;
use socket2::{Domain, Protocol, Type};

use crate::capture::{Capture, Seen};
use crate::common::until::PATIENCE;
use crate::echo::Kind;
use crate::mesh::{Node, Socket, wait_for_link};
use crate::namespace::Namespace;
use crate::pinging::{Ping, Printed};

const COUNT: u64 = 400;
const INTERVAL: Duration = Duration::from_millis(10);
/// Probes of the ordinary pinger, which has its own address to ping.
const BASELINE_COUNT: u16 = 400;
const FAR: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)), IpAddr::V6(FAR6)];
const FAR6: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0xfd00, 0x198, 0x18, 0, 0, 0, 0, 2);
const NEAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const FAR_OF_BASELINE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 3);
/// The rounding error of clocks that are converted in both directions, in nanoseconds.
const ROUNDING: u64 = 1_000;

/// `near` and the far end of its `eth0`.
fn veth() -> (Node, Namespace) {
    let (near, far) = (Node::alone("near"), Node::alone("far").namespace);
    near.namespace.ip(&format!(
        "link set lo up\nlink add eth0 type veth peer name eth0 netns {}\naddress add {NEAR}/24 dev eth0\n\
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

/// The times of echoes of one kind, at one place, by peer and sequence number.
fn moments(seen: &[Seen], kind: Kind, outgoing: bool) -> HashMap<(IpAddr, u16), Nanos> {
    let mut moments = HashMap::new();
    for Seen { what: echo, at, .. } in seen.iter().filter(|seen| seen.what.kind == kind && seen.outgoing == outgoing) {
        let peer = if kind == Kind::Request { echo.to } else { echo.from };
        assert!(moments.insert((peer, echo.sequence), *at).is_none(), "seen twice: {echo:?}");
    }
    moments
}

/// A probe's time on the wire, in nanoseconds.
struct Wire {
    /// Begins before the near device.
    outer: u64,
    /// Begins at the far device.
    inner: u64,
}

/// Returns the wire times of all probes, by peer and sequence number.
fn on_the_wire(near: &[Seen], far: &[Seen]) -> HashMap<(IpAddr, u16), Wire> {
    let (left, there) = (moments(near, Kind::Request, true), moments(far, Kind::Request, false));
    let back = moments(near, Kind::Reply, false).into_iter();
    back.map(|(key, at)| (key, Wire { outer: at.since(left[&key]).0, inner: at.since(there[&key]).0 })).collect()
}

/// The times of an ordinary pinger: from before `send` to after `recv`.
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

/// The errors of reported times, in nanoseconds: against the outer time, and
/// against the inner time.
struct Errors(Vec<[u64; 2]>);

const OUTER: usize = 0;
const INNER: usize = 1;

impl Errors {
    fn of<'a>(times: impl Iterator<Item = (u64, &'a Wire)>) -> Self {
        Self(times.map(|(reported, wire)| [wire.outer, wire.inner].map(|wire| reported.abs_diff(wire))).collect())
    }

    /// The value that `part` of 100 errors do not exceed.
    fn quantile(&self, part: usize, from: usize) -> u64 {
        let mut sizes: Vec<u64> = self.0.iter().map(|errors| errors[from]).collect();
        sizes.sort_unstable();
        sizes[(sizes.len() - 1) * part / 100]
    }

    fn rows(&self, name: &str) -> String {
        let row = |from: usize, of: &str| {
            let part = |part: usize| format!("{:.2}", self.quantile(part, from) as f64 / 1e3);
            let [p50, p90, p99, max] = [50, 90, 99, 100].map(part);
            format!("{:<36} {:>6} {p50:>8} {p90:>8} {p99:>8} {max:>8}\n", format!("{name}, {of} wire"), self.0.len())
        };
        row(OUTER, "outer") + &row(INNER, "inner")
    }
}

fn times_are_those_of_the_wire(socket: Socket) {
    let (near, far) = veth();
    let near_tap = Capture::new(&near.namespace, "eth0", FAR_OF_BASELINE).record();
    let far_tap = Capture::new(&far, "eth0", NEAR).record();
    let targets = FAR.map(|peer| peer.to_string()).to_vec();
    let timeout = Duration::from_millis(500);
    let (_, objects) = Ping { node: &near, socket, targets, count: Some(COUNT), interval: INTERVAL, timeout }.run();
    let by_user = user_times(&near.namespace);
    let wire = on_the_wire(&near_tap.stop(), &far_tap.stop());

    let of_user = (0..).zip(&by_user);
    let baseline = Errors::of(of_user.map(|(sequence, time)| (*time, &wire[&(FAR_OF_BASELINE.into(), sequence)])));
    let mut table =
        format!("{:<36} {:>6} {:>8} {:>8} {:>8} {:>8}\n", "|error| in µs", "probes", "p50", "p90", "p99", "max");
    table += &baseline.rows("user stamps, IPv4");
    for peer in FAR {
        let printed = Printed::of(&objects, &peer.to_string());
        assert_eq!(printed.answers.len() as u64, COUNT, "{peer}: {}", printed.summary);
        let by_kernel = printed.answers.iter().filter(|(_, answer)| answer.by_kernel).map(|(number, answer)| {
            let wire = &wire[&(peer, u16::try_from(*number).expect("few probes"))];
            let Wire { outer, inner } = wire;
            let plausible = (inner.saturating_sub(ROUNDING)..=outer + ROUNDING).contains(&answer.nanos);
            assert!(plausible, "{peer} {number}: {answer:?} is not from {inner} to {outer} ns");
            (answer.nanos, wire)
        });
        let errors = Errors::of(by_kernel);
        table += &errors.rows(&format!("{socket:?} socket, {}", if peer.is_ipv4() { "IPv4" } else { "IPv6" }));
        let number = errors.0.len() as u64;
        assert!(number * 10 >= COUNT * 9, "{peer}: only {number} have the kernel's stamps");
        for part in [50, 90] {
            let (ours, users) = (errors.quantile(part, INNER), baseline.quantile(part, INNER));
            assert!(ours < users, "{peer}: p{part} is {ours} ns off, and {users} with a user's stamps:\n{table}");
        }
    }
    println!("{table}");
}

#[test]
fn round_trip_times_equal_the_wire_on_ping_sockets() {
    times_are_those_of_the_wire(Socket::Ping);
}

#[test]
fn round_trip_times_equal_the_wire_on_raw_sockets() {
    times_are_those_of_the_wire(Socket::Raw);
}
