//! A link with all peers at its other end: a TUN device, whose user-space end is a thread of the
//! test. The thread answers every ICMP echo request for any address, of both families, after the
//! effects of both directions.
//!
//! It is the link and the peers at once. Nothing lies between a decision and its effect, so the
//! truth is known probe by probe. Times are the kernel's, by a [`Capture`] on the device: of the
//! request as it enters the device, and of each reply as it leaves it. A reply is due a fixed time
//! after its request, however late this thread woke up. The log has the actual time. Reported times
//! are compared with it, and never with the intended time.

mod fate;
mod tun;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{PipeReader, PipeWriter, pipe};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use kube_canary::sys::clock::monotonic;
use kube_canary::units::Nanos;

use crate::capture::{Capture, Seen};
use crate::echo::{Echo, Kind};
use crate::namespace::Namespace;
pub use fate::{Fate, Link, Way};
use tun::Tun;

const DEVICE: &str = "tun0";
/// Replies that wait at the same time: 8 peers, 4 replies each, a probe every 10 ms, and 2
/// s make 6,400.
const WAITING_MAX: usize = 8_192;
/// An idle CPU takes some 100 µs to wake up, above all in a virtual machine. So the thread stops
/// sleeping this long before a reply is due.
const AWAKE: Nanos = Nanos(150_000);
/// Requests that wait for this thread. A busy machine can delay it for more than a second.
const QUEUE: usize = 10_000;
/// The most requests of one test.
const LOG_MAX: usize = 200_000;

/// Returns an IPv4 address behind the link.
pub fn peer4(number: u8) -> IpAddr {
    Ipv4Addr::new(198, 18, 1, number).into()
}

/// Returns an IPv6 address behind the link.
pub fn peer6(number: u16) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0x198, 0x18, 0, 0, 0, 1, number).into()
}

/// A probe with its full history.
#[derive(Clone, Debug)]
pub struct Probe {
    pub peer: IpAddr,
    pub sequence: u16,
    /// When it entered the device.
    pub entered: Nanos,
    /// When the emulator read it.
    pub read: Nanos,
    pub fate: Fate,
    /// Sorted by the time at which they are due. Equal ones are in the order of the fate.
    pub replies: Vec<Reply>,
}

/// A reply, before or after its arrival.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    pub due: Nanos,
    /// When it left the device for the host's stack.
    pub arrived: Option<Nanos>,
    /// The time by which it was through the stack, in the queue of its socket.
    pub queued: Option<Nanos>,
    /// Its position in the order of all replies.
    pub order: Option<usize>,
}

/// A reply that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Its position in the order of all replies.
    pub order: usize,
    /// The kernel's stamp.
    pub at: Nanos,
    /// The time by which it was in its socket's queue.
    pub queued: Nanos,
}

impl Probe {
    /// The replies that have arrived, in order.
    pub fn arrived(&self) -> impl Iterator<Item = Arrived> {
        self.replies
            .iter()
            .filter_map(|reply| Some(Arrived { order: reply.order?, at: reply.arrived?, queued: reply.queued? }))
    }

    /// Whether no reply of it is in flight.
    pub fn is_over(&self) -> bool {
        self.replies.iter().all(|reply| reply.arrived.is_some())
    }

    /// The first reply that arrived.
    pub fn first(&self) -> Option<Arrived> {
        self.arrived().next()
    }
}

/// The link. It is removed when this is dropped.
pub struct Emulator {
    log: Arc<Mutex<Vec<Probe>>>,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Makes the link in `namespace`, whose own addresses become 198.18.0.1 and `fd00:198:18::1`.
    pub fn new(namespace: &Namespace, fates: impl Fn(IpAddr, u16) -> Fate + Send + 'static) -> Self {
        let tun = Tun::new(namespace, DEVICE);
        namespace.ip(&format!(
            "link set lo up\naddress add 198.18.0.1/16 dev {DEVICE}\naddress add fd00:198:18::1/64 dev {DEVICE} nodad\n\
             link set {DEVICE} txqueuelen {QUEUE} up\n"
        ));
        let capture = Capture::new(namespace, DEVICE, Ipv4Addr::new(198, 18, 1, 255));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (stopped, stop) = pipe().expect("a pipe");
        let end = End {
            tun,
            capture,
            fates,
            log: Arc::clone(&log),
            waiting: BinaryHeap::new(),
            seen: VecDeque::new(),
            sent: 0,
        };
        let thread = thread::spawn(move || end.run(&stopped));
        Self { log, stop: Some(stop), thread: Some(thread) }
    }

    /// Every request so far, in order.
    pub fn log(&self) -> Vec<Probe> {
        self.log.lock().expect("the link's thread is well").clone()
    }

    /// Ends the thread and returns the whole log.
    pub fn stop(mut self) -> Vec<Probe> {
        drop(self.stop.take());
        let thread = self.thread.take().expect("stopped once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.log()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic of the thread has been printed, and the test fails anyway.
            let _ = thread.join();
        }
    }
}

/// A reply that waits.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: Nanos,
    /// The index of its probe. Equal due times keep this order.
    probe: usize,
    reply: usize,
    packet: Vec<u8>,
}

/// The user-space end of the device.
struct End<F> {
    tun: Tun,
    capture: Capture,
    fates: F,
    log: Arc<Mutex<Vec<Probe>>>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Echoes on the device that have not been matched with what was read or written.
    seen: VecDeque<Seen>,
    /// Number of replies so far.
    sent: usize,
}

impl<F: Fn(IpAddr, u16) -> Fate> End<F> {
    fn run(mut self, stop: &PipeReader) {
        tun::punctual();
        let mut buffer = [0; 2_048];
        loop {
            // All requests that have arrived are read before any answer. Otherwise a delayed thread
            // would send a late reply before the reply to a later request that it has not read yet.
            while let Some(packet) = self.tun.read(&mut buffer) {
                if let Some(echo) = Echo::read(packet).filter(|echo| echo.kind == Kind::Request) {
                    self.take(echo, packet);
                }
            }
            if let Some(reply) = self.next_due() {
                self.answer(&reply);
                continue;
            }
            let asleep = monotonic().plus(AWAKE);
            // Without a writer the pipe is readable: that is the signal to stop.
            if self.tun.wait(stop.as_fd(), self.waiting.peek().map(|next| next.0.due.since(asleep))) {
                break;
            }
        }
        assert_eq!(self.capture.drops(), 0, "the link's own tap was not read in time");
    }

    fn next_due(&mut self) -> Option<Waiting> {
        let due = self.waiting.peek()?.0.due;
        loop {
            match due.since(monotonic()) {
                Nanos(0) => return self.waiting.pop().map(|reply| reply.0),
                left if left <= AWAKE => std::hint::spin_loop(),
                _ => return None,
            }
        }
    }

    fn take(&mut self, echo: Echo, packet: &[u8]) {
        let read = monotonic();
        let entered = self.on_the_wire(echo);
        let fate = (self.fates)(echo.to, echo.sequence);
        let mut dues: Vec<Nanos> = fate.replies().map(|delay| entered.plus(delay.into())).collect();
        dues.sort_unstable();
        let mut log = self.log.lock().expect("the test is well");
        let probe = log.len();
        for (reply, due) in dues.iter().enumerate() {
            let packet = echo.reply(packet);
            self.waiting.push(Reverse(Waiting { due: *due, probe, reply, packet }));
        }
        assert!(self.waiting.len() <= WAITING_MAX && probe < LOG_MAX, "more than the link is made for");
        let replies = dues.into_iter().map(|due| Reply { due, arrived: None, queued: None, order: None }).collect();
        log.push(Probe { peer: echo.to, sequence: echo.sequence, entered, read, fate, replies });
    }

    fn answer(&mut self, reply: &Waiting) {
        self.tun.write(&reply.packet);
        let queued = monotonic();
        let arrived = self.on_the_wire(Echo::read(&reply.packet).expect("a reply of ours"));
        let mut log = self.log.lock().expect("the test is well");
        let entry = &mut log[reply.probe].replies[reply.reply];
        (entry.arrived, entry.queued, entry.order) = (Some(arrived), Some(queued), Some(self.sent));
        self.sent += 1;
    }

    /// Returns when an echo that was just read or written was on the device, if the
    /// tap has seen it.
    fn on_the_wire(&mut self, echo: Echo) -> Nanos {
        self.capture.read(|seen| self.seen.push_back(seen));
        // Each direction is in order, but the two may be mixed.
        let found = self.seen.iter().position(|seen| seen.what == echo);
        let seen = found.and_then(|at| self.seen.remove(at)).unwrap_or_else(|| panic!("{echo:?} was not on the wire"));
        assert_eq!(seen.outgoing, echo.kind == Kind::Request, "{seen:?}");
        seen.at
    }
}
