//! The times that `kube-canary ping --udp` reports of a real agent, against the wire, probe by
//! probe.
//!
//! The agent answers when it next runs, which is up to a quarter of a second later. The wire's time
//! is what a tap at the near end sees of a probe, less what a tap at the far end sees of the
//! agent's dwell. As in [`crate::accuracy`], no time is asserted by itself. An ordinary sender and an
//! ordinary reflector, which read the clock around their calls and subtract the dwell in the same
//! way, show what the kernel's stamps are for. Our error must be smaller, at the median and at p90.
//!
//! The table of errors is printed (`-- --nocapture`). On an idle machine, the median must be at
//! most 3 µs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kube_canary::sys::clock::monotonic;
use kube_canary::units::Nanos;
use serde_json::Value;

use crate::capture::{Capture, Seen};
use crate::common::process::{Process, unique};
use crate::common::until::PATIENCE;
use crate::mesh::{Agent, Mesh, Node, Socket};
use crate::namespace::{DIRECTORY, PROGRAM};
use crate::pinging::Printed;
use crate::probing::PORT;
use crate::stamp::Stamp;

const COUNT: u64 = 300;
/// Slow enough for the limit on what one sender is answered.
const INTERVAL: Duration = Duration::from_millis(50);
/// Probes of the ordinary sender, and the port of its reflector.
const BASELINE_COUNT: u32 = 300;
const BASELINE_PORT: u16 = 9_990;
/// The answer of RFC 8762: where the sender's number is, and where the reflector's two times are.
const ANSWER: usize = 44;

/// When something was seen of every probe, by its source port and its number.
type Moments = HashMap<(u16, u32), Nanos>;

/// The times at one tap.
fn moments(seen: &[Seen<Stamp>], is_request: bool, outgoing: bool) -> Moments {
    let mut moments = HashMap::new();
    for Seen { what, at, .. } in
        seen.iter().filter(|seen| (seen.what.is_request, seen.outgoing) == (is_request, outgoing))
    {
        let key = (what.sender.1, what.sequence);
        assert!(moments.insert(key, *at).is_none(), "seen twice: {what:?}");
    }
    moments
}

/// A probe on the wire, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Wire {
    /// The time there and back, without the dwell.
    time: u64,
    /// The time at the far end.
    dwell: u64,
}

/// Returns the wire times of all answered probes.
fn on_the_wire(near: &[Seen<Stamp>], far: &[Seen<Stamp>]) -> HashMap<(u16, u32), Wire> {
    let (left, there) = (moments(near, true, true), moments(far, true, false));
    let (answered, back) = (moments(far, false, true), moments(near, false, false));
    let wire = |(key, at): ((u16, u32), Nanos)| {
        let dwell = answered[&key].since(there[&key]).0;
        (key, Wire { time: at.since(left[&key]).0.saturating_sub(dwell), dwell })
    };
    back.into_iter().map(wire).collect()
}

/// The differences between reported times and those of the wire, in nanoseconds.
struct Errors(Vec<i64>);

impl Errors {
    fn of<'a>(times: impl Iterator<Item = (u64, &'a Wire)>) -> Self {
        let signed = |nanos: u64| i64::try_from(nanos).expect("a short time");
        Self(times.map(|(reported, wire)| signed(reported) - signed(wire.time)).collect())
    }

    /// The size that `part` of 100 errors do not exceed.
    fn quantile(&self, part: usize) -> u64 {
        let mut sizes: Vec<u64> = self.0.iter().map(|error| error.unsigned_abs()).collect();
        sizes.sort_unstable();
        sizes[(sizes.len() - 1) * part / 100]
    }

    fn row(&self, name: &str) -> String {
        let [p50, p90, p99, max] = [50, 90, 99, 100].map(|part| self.quantile(part) as f64 / 1e3);
        let mean = self.0.iter().sum::<i64>() as f64 / self.0.len() as f64 / 1e3;
        format!("{name:<32} {:>6} {mean:>8.1} {p50:>8.1} {p90:>8.1} {p99:>8.1} {max:>8.1}\n", self.0.len())
    }
}

/// Runs `ping --udp` from `near`, and returns its objects.
fn ping(near: &Node, to: &str) -> Vec<Value> {
    let directory = Path::new(DIRECTORY);
    let output = unique(directory, "out");
    let mut command = near.namespace.command(PROGRAM);
    command.args(["ping", "--udp", "--json", "--timeout", "2s", "--count", &COUNT.to_string()]);
    command.args(["--interval", &format!("{}ms", INTERVAL.as_millis()), to]);
    command.stdout(File::create(&output).expect("our directory is writable"));
    Socket::Ping.permit(&near.namespace, &mut command);
    let mut process = Process::start(&mut command, directory);
    // It takes 15 s, and this much longer on a busy machine.
    while !process.has_ended() {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(process.end().code(), Some(0), "{}", process.log());
    let text = fs::read_to_string(&output).expect("our file");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Answers every datagram with the times at which it was read and answered, until `stop` is set.
fn reflect(socket: &UdpSocket, stop: &AtomicBool) {
    let mut bytes = [0; 128];
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    while !stop.load(Ordering::Relaxed) {
        let Ok((_, from)) = socket.recv_from(&mut bytes) else { continue };
        let read = monotonic();
        // The number stands where an answer has that of its request.
        bytes.copy_within(..4, 24);
        // As an agent does, it takes its time.
        thread::sleep(Duration::from_millis(5));
        bytes[4..12].copy_from_slice(&read.0.to_be_bytes());
        bytes[12..20].copy_from_slice(&monotonic().0.to_be_bytes());
        socket.send_to(&bytes[..ANSWER], from).expect("sent");
    }
}

/// The times of an ordinary sender and an ordinary reflector, by source port and number.
fn user_times(near: &Node, far: &Node) -> Vec<((u16, u32), u64)> {
    let bind =
        |node: &Node, port| node.namespace.within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).expect("a port"));
    let (sender, reflector) = (bind(near, 0), bind(far, BASELINE_PORT));
    sender.connect(SocketAddr::new(far.ipv4().parse().expect("an address"), BASELINE_PORT)).expect("a route");
    sender.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let port = sender.local_addr().expect("it is bound").port();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| reflect(&reflector, &stop));
        let mut times = Vec::new();
        for sequence in 0..BASELINE_COUNT {
            thread::sleep(INTERVAL / 10);
            let mut bytes = [0; ANSWER];
            bytes[..4].copy_from_slice(&sequence.to_be_bytes());
            let before = monotonic();
            sender.send(&bytes).expect("sent");
            assert_eq!(sender.recv(&mut bytes).expect("an answer"), ANSWER);
            let whole = monotonic().since(before).0;
            let time = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
            times.push(((port, sequence), whole.saturating_sub(time(12) - time(4))));
        }
        stop.store(true, Ordering::Relaxed);
        times
    })
}

#[test]
fn udp_round_trip_times_equal_the_wire_without_the_dwell() {
    let mesh = Mesh::of(&["near", "far"]);
    let (near, far) = (mesh.node("near"), mesh.node("far"));
    let peers = mesh.peers_file(|node| vec![node.ipv4()]);
    let flags = ["--probes", "icmp,udp", "--listen", "[::]:9877", "--interval", "1s"];
    let agent = Agent::start(far, Socket::Ping, &peers, PORT, &flags);
    agent.wait_for("near", "icmp", "an answer", |link| link.received >= 1.0);
    let address = |node: &Node| node.ipv4().parse::<Ipv4Addr>().expect("an address");
    let taps = |port: u16| {
        let read = move |packet: &[u8]| Stamp::read(packet, port);
        let near_tap = Capture::new(&near.namespace, "eth0", address(far)).record_as(read);
        (near_tap, Capture::new(&far.namespace, "eth0", address(near)).record_as(read))
    };

    let (near_tap, far_tap) = taps(PORT);
    let objects = ping(near, &far.ipv4());
    // The agent probes, too, and gets no answer from here.
    let of_near = |seen: Vec<Seen<Stamp>>| -> Vec<Seen<Stamp>> {
        seen.into_iter().filter(|seen| seen.what.sender.0 == IpAddr::V4(address(near))).collect()
    };
    let wire = on_the_wire(&of_near(near_tap.stop()), &of_near(far_tap.stop()));
    let printed = Printed::of(&of_probes(&objects), &far.ipv4());
    assert_eq!(printed.answers.len() as u64, COUNT, "{}", printed.summary);
    assert_eq!(wire.len() as u64, COUNT, "every answer is on the wire");
    let by_number: HashMap<u64, &Wire> = wire.iter().map(|((_, number), wire)| (u64::from(*number), wire)).collect();
    let first = *by_number.keys().min().expect("probes");
    let by_kernel = printed.answers.iter().filter(|(_, answer)| answer.by_kernel);
    let errors = Errors::of(by_kernel.map(|(number, answer)| (answer.nanos, by_number[&(first + number)])));

    let (near_tap, far_tap) = taps(BASELINE_PORT);
    let by_user = user_times(near, far);
    let of_user = on_the_wire(&near_tap.stop(), &far_tap.stop());
    let baseline = Errors::of(by_user.iter().map(|(key, time)| (*time, &of_user[key])));

    let mut table = format!(
        "{:<32} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
        "error in µs", "probes", "mean", "|p50|", "|p90|", "|p99|", "|max|"
    );
    table += &baseline.row("user stamps");
    table += &errors.row("ping --udp");
    println!("{table}");
    for (name, wires) in [("user stamps", &of_user), ("ping --udp", &wire)] {
        let mut both: Vec<[u64; 2]> = wires.values().map(|wire| [wire.time, wire.dwell]).collect();
        let middle = both.len() / 2;
        let [time, dwell] = [0, 1].map(|which| {
            both.sort_unstable_by_key(|it| it[which]);
            both[middle][which] as f64 / 1e3
        });
        println!("{name}: medians on the wire {time:.1} µs, at the far end {dwell:.1} µs");
    }
    let number = errors.0.len() as u64;
    assert!(number * 10 >= COUNT * 9, "only {number} have the kernel's stamps");
    for part in [50, 90] {
        let (ours, users) = (errors.quantile(part), baseline.quantile(part));
        assert!(ours < users, "p{part} is {ours} ns off, and {users} with a user's stamps:\n{table}");
    }
}

/// The objects of probes and the summaries, without those of source ports.
fn of_probes(objects: &[Value]) -> Vec<Value> {
    objects.iter().filter(|object| object.get("flow").is_none() || object.get("sequence").is_some()).cloned().collect()
}
