//! The network between the agents of a demo with faults: a switch in user space.
//!
//! Each node is a network namespace, because the kernel counts echo requests per namespace, and
//! verdicts read the direction of a loss from these counts. Its only interface is a TUN device. One
//! thread reads the packets of all devices, and writes each to the device of its destination. A
//! fault drops or delays some of them. The demo itself is one more port, without faults: what it
//! asks the agents is no part of their mesh.
//!
//! Rejected: veth pairs and a bridge with rules of nftables or netem. They need modules that may be
//! absent, and tools or three further protocols of netlink.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, PipeReader, PipeWriter, pipe};
use std::net::Ipv4Addr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kube_canary_kernel::tun::{self, PACKET_BYTES_MAX, Tun};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{DemoError, namespace};
use crate::config::{Effect, Fault};
use crate::discovery::random;

/// Packets that are read from a device before the others get their turn.
const BURST_MAX: usize = 64;
/// Packets that are delayed at the same time. With 50 nodes and 100 probes per second, one node
/// sends and gets 9,800 packets of probes within the longest delay. Further packets are dropped.
const DELAYED_MAX: usize = 16_384;
/// Bytes of an IPv4 header without options (RFC 791).
const HEADER_BYTES: usize = 20;

/// A network namespace that is connected to the switch.
pub struct Port {
    address: Ipv4Addr,
    tun: Tun,
}

impl Port {
    /// Connects the network namespace of the calling thread, which gets this address.
    ///
    /// # Errors
    /// [`DemoError::NoTun`] if the kernel permits no device, and [`DemoError::Setup`] if the device
    /// gets no address.
    pub fn new(address: Ipv4Addr) -> Result<Self, DemoError> {
        let tun = Tun::create().map_err(DemoError::NoTun)?;
        namespace::set_up(tun::NAME, address).map_err(DemoError::Setup)?;
        Ok(Self { address, tun })
    }
}

/// The thread that forwards packets. It ends when this is dropped.
pub struct Switch {
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// Connects the ports. The first ones are the nodes that faults name, the last one is the
    /// demo's own.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn start(ports: Vec<Port>, faults: Vec<Fault>) -> io::Result<Self> {
        let (stopped, stop) = pipe()?;
        let forward = move || Forwarder { faults, ports, delayed: BinaryHeap::new(), count: 0 }.run(&stopped);
        let thread = thread::Builder::new().name("switch".into()).spawn(forward)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic has been printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A packet that arrives later. Packets are ordered by that time, and then as they were sent.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Delayed {
    due: Instant,
    number: u64,
    to: usize,
    packet: Vec<u8>,
}

struct Forwarder {
    ports: Vec<Port>,
    faults: Vec<Fault>,
    delayed: BinaryHeap<Reverse<Delayed>>,
    /// Number of delayed packets so far.
    count: u64,
}

impl Forwarder {
    fn run(mut self, stopped: &PipeReader) {
        let mut buffer = [0; PACKET_BYTES_MAX];
        loop {
            let ready = match self.wait(stopped) {
                Ok(ready) => ready,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            let Some(ready) = ready else { return };
            for from in ready {
                for _ in 0..BURST_MAX {
                    let Some(packet) = self.ports[from].tun.read(&mut buffer) else { break };
                    self.forward(from, packet);
                }
            }
            while let Some(Reverse(next)) = self.delayed.peek()
                && next.due <= Instant::now()
                && let Some(Reverse(Delayed { to, packet, .. })) = self.delayed.pop()
            {
                self.deliver(to, &packet);
            }
        }
    }

    /// Waits until packets can be read or a delayed one is due. Returns the ports to read, or
    /// `None` if the demo has closed the pipe.
    fn wait(&self, stopped: &PipeReader) -> Result<Option<Vec<usize>>, Errno> {
        let mut asked: Vec<PollFd<'_>> = self.ports.iter().map(|port| PollFd::new(&port.tun, PollFlags::IN)).collect();
        asked.push(PollFd::new(stopped, PollFlags::IN));
        let next = self.delayed.peek().map(|Reverse(next)| next.due.saturating_duration_since(Instant::now()));
        let next =
            next.map(|time| Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() });
        poll(&mut asked, next.as_ref())?;
        let ready = asked.iter().enumerate().filter(|(_, asked)| !asked.revents().is_empty());
        let ready: Vec<usize> = ready.map(|(at, _)| at).collect();
        Ok((ready.last() != Some(&self.ports.len())).then_some(ready))
    }

    fn forward(&mut self, from: usize, packet: &[u8]) {
        let Some(to) = destination(packet).and_then(|to| self.ports.iter().position(|port| port.address == to)) else {
            return;
        };
        let own = self.ports.len() - 1;
        let faults: &[Fault] = if from == own || to == own { &[] } else { &self.faults };
        match packet_delay(faults, from, to, random::unit) {
            Some(Duration::ZERO) => self.deliver(to, packet),
            Some(delay) if self.delayed.len() < DELAYED_MAX => {
                self.count += 1;
                let (due, number) = (Instant::now() + delay, self.count);
                self.delayed.push(Reverse(Delayed { due, number, to, packet: packet.to_vec() }));
            }
            _ => {}
        }
    }

    fn deliver(&self, to: usize, packet: &[u8]) {
        // The kernel refuses what is no packet. As on any network, the sender does not learn of it.
        let _ = self.ports[to].tun.write(packet);
    }
}

/// Returns the destination of a packet of IPv4. IPv6 is not forwarded, because no node has an
/// address of it.
fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let header: &[u8; HEADER_BYTES] = packet.first_chunk()?;
    let &[.., a, b, c, d] = header;
    (header[0] >> 4 == 4).then(|| Ipv4Addr::new(a, b, c, d))
}

/// Returns the delay of a packet, or `None` if it is dropped. `random` draws numbers in [0, 1).
fn packet_delay(faults: &[Fault], from: usize, to: usize, mut random: impl FnMut() -> f64) -> Option<Duration> {
    let is = |node: Option<u8>, at: usize| node.is_none_or(|node| usize::from(node) == at);
    faults.iter().filter(|fault| is(fault.from, from) && is(fault.to, to)).try_fold(Duration::ZERO, |delay, fault| {
        match fault.effect {
            Effect::Loss(share) => (random() >= share).then_some(delay),
            Effect::Delay(more) => Some(delay + more),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_meets_the_packets_of_its_direction_alone() {
        let fault = |from, to, effect| Fault { from, to, effect };
        let half = Effect::Loss(0.5);
        // Which of the packets between three nodes are dropped if the drawn number is below a half.
        let dropped = |faults: &[Fault]| -> Vec<(usize, usize)> {
            let pairs = (0..3).flat_map(|from| (0..3).map(move |to| (from, to))).filter(|(from, to)| from != to);
            pairs.filter(|(from, to)| packet_delay(faults, *from, *to, || 0.49).is_none()).collect()
        };
        assert_eq!(dropped(&[fault(None, Some(2), half)]), [(0, 2), (1, 2)]);
        assert_eq!(dropped(&[fault(Some(2), None, half)]), [(2, 0), (2, 1)]);
        assert_eq!(dropped(&[fault(Some(0), Some(1), half), fault(Some(1), Some(0), half)]), [(0, 1), (1, 0)]);
        assert_eq!(packet_delay(&[fault(None, Some(2), half)], 0, 2, || 0.5), Some(Duration::ZERO));
        assert_eq!(packet_delay(&[fault(None, Some(2), Effect::Loss(1.0))], 0, 2, random::unit), None);
    }

    #[test]
    fn delays_add_up_and_a_loss_ends_them() {
        let of = |effect| Fault { from: None, to: Some(1), effect };
        let delay = Duration::from_millis(20);
        let faults = [of(Effect::Delay(delay)), of(Effect::Loss(0.1)), of(Effect::Delay(delay))];
        assert_eq!(packet_delay(&faults, 0, 1, || 0.9), Some(2 * delay));
        assert_eq!(packet_delay(&faults, 0, 1, || 0.09), None);
        assert_eq!(packet_delay(&faults, 1, 0, || 0.09), Some(Duration::ZERO));
    }

    #[test]
    fn only_whole_headers_of_ipv4_have_a_destination() {
        let mut packet = [0_u8; 28];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[198, 18, 0, 3]);
        assert_eq!(destination(&packet), Some(Ipv4Addr::new(198, 18, 0, 3)));
        assert_eq!(destination(&packet[..19]), None);
        packet[0] = 0x60;
        assert_eq!(destination(&packet), None);
    }
}
