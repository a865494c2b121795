//! The real wire: one ICMP socket per family for all peers. surge-ping opens it (first a ping
//! socket, then a raw socket), and a duplicate descriptor is used in batches.

use std::io;
use std::os::fd::AsFd;

use kube_canary_kernel::batch::{self, BATCH, Batch, Queue};
use kube_canary_kernel::socket::{duplicate, receive_queue};
use surge_ping::{AsyncSocket, Config, ICMP};

use super::packet::ECHO_HEADER_BYTES;
use super::{EchoWire, SocketKind};
use crate::limits::PAYLOAD_BYTES_MIN;
use crate::peers::Family;
use crate::prober::clock::RealTime;
use crate::prober::descriptor::WatchedDescriptor;
use crate::prober::pacer::Readable;
use crate::prober::timer::StepAlarm;
use crate::prober::wire::datagram;
use crate::prober::{Clock, Delivery, Flow, Outgoing, SendError, Wire, options};
use crate::sys::lacks::{Lack, is_family_absent};

/// Largest number of batches read before the prober sends again: a flood cannot
/// delay it for longer.
const READS_MAX: usize = 128;
/// Bytes of an IPv4 header with all options, which a raw socket returns.
const IP_HEADER_BYTES_MAX: usize = 60;
/// Bytes of the headers before an ICMP message that leaves: Ethernet with two VLAN tags, and IPv6.
const DEPARTURE_HEADER_BYTES: usize = 22 + 40;

/// Why there is no ICMP socket.
#[derive(Debug, thiserror::Error)]
pub enum IcmpSocketError {
    /// Neither kind of socket is permitted.
    #[error(
        "cannot open an ICMP socket ({0}): either include this process's group in net.ipv4.ping_group_range \
         (sysctl -w net.ipv4.ping_group_range=\"0 2147483647\", or the pod's securityContext.sysctls), or grant the \
         capability NET_RAW to a process that runs as root"
    )]
    Refused(io::Error),
    /// The kernel has neither kind of socket, so no permission helps.
    #[error(
        "cannot open an ICMP socket ({0}): this kernel or sandbox has none; probe by UDP and TCP alone \
         (--probes udp,tcp, or ping --udp)"
    )]
    Unavailable(io::Error),
    /// An open socket could not be set up.
    #[error("cannot {operation} on an ICMP socket: {error}")]
    Setup {
        /// The operation that failed.
        operation: &'static str,
        /// The error of the kernel.
        error: io::Error,
    },
}

#[derive(Debug)]
struct Socket {
    fd: WatchedDescriptor,
    family: Family,
    kind: SocketKind,
    /// Whether a packet was sent: before that, nothing needs to be read.
    used: bool,
    /// Whether the kernel stamps what arrives, so that it need not be read at once.
    stamped: bool,
    /// Whether a failure to read was already logged: it is retried at every turn.
    logged: bool,
    real_time: RealTime,
}

/// The sockets of both families. If the host lacks a family, sending to it returns
/// [`SendError::NoSocket`]. Both families share the receive buffers, because they are read one
/// after the other. A packet is borrowed from them for one call of `deliver`.
#[derive(Debug)]
pub struct IcmpSockets {
    /// By family. The host may lack one.
    sockets: [Option<Socket>; 2],
    arrivals: Batch,
    departures: Batch,
    /// Reports steps of the real-time clock, if the kernel supports it.
    steps: Option<StepAlarm>,
    turns_are_frequent: bool,
}

impl IcmpSockets {
    /// Opens both sockets. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`IcmpSocketError`] if neither family can be opened.
    pub fn open(payload_bytes: usize, clock: &dyn Clock) -> Result<Self, IcmpSocketError> {
        // The remedies for a socket do not help a host that cannot use the family.
        let open = |family, icmp| match Socket::open(family, icmp, clock) {
            Err(_) if is_family_absent(family == Family::V6) => Ok(None),
            opened => opened.map(Some),
        };
        let sockets = match (open(Family::V4, ICMP::V4), open(Family::V6, ICMP::V6)) {
            // The IPv4 error is reported: its remedies are those of both families.
            (Err(error), Err(_) | Ok(None)) | (Ok(None), Err(error)) => return Err(error),
            (Ok(None), Ok(None)) => {
                return Err(IcmpSocketError::Unavailable(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)));
            }
            (v4, v6) => [
                v4.inspect_err(|error| log::warn!("IPv4: {error}")).ok().flatten(),
                v6.inspect_err(|error| log::warn!("IPv6: {error}")).ok().flatten(),
            ],
        };
        Ok(Self {
            sockets,
            arrivals: Batch::new(IP_HEADER_BYTES_MAX + ECHO_HEADER_BYTES + payload_bytes),
            departures: Batch::new(DEPARTURE_HEADER_BYTES + ECHO_HEADER_BYTES + PAYLOAD_BYTES_MIN),
            steps: StepAlarm::new().inspect_err(|error| Lack::ClockSteps.log(error)).ok(),
            turns_are_frequent: false,
        })
    }

    /// Returns the kinds of the open sockets, for the log.
    pub fn describe(&self) -> String {
        let name = |socket: &Option<Socket>| match socket.as_ref().map(|s| s.kind) {
            Some(SocketKind::Datagram) => "SOCK_DGRAM",
            Some(SocketKind::Raw) => "SOCK_RAW",
            None => "none",
        };
        format!("IPv4 {}, IPv6 {}", name(&self.sockets[0]), name(&self.sockets[1]))
    }

    /// Returns the number of packets that the kernel has dropped so far because a
    /// socket's queue was full. `None` if it does not tell it.
    pub fn drops(&self) -> Option<u64> {
        let sockets = self.sockets.iter().flatten();
        sockets.map(|socket| receive_queue(socket.fd.as_fd()).map(|queue| u64::from(queue.drops))).sum()
    }
}

/// Returns why there is no socket: permission, which can be granted, or anything else.
fn refused(error: io::Error) -> IcmpSocketError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => IcmpSocketError::Refused(error),
        _ => IcmpSocketError::Unavailable(error),
    }
}

async fn stepped(steps: Option<&StepAlarm>) {
    match steps {
        Some(steps) => steps.stepped().await,
        None => std::future::pending().await,
    }
}

async fn wait(socket: Option<&Socket>) {
    match socket {
        Some(socket) => socket.fd.readable().await,
        None => std::future::pending().await,
    }
}

impl Socket {
    fn open(family: Family, icmp: ICMP, clock: &dyn Clock) -> Result<Self, IcmpSocketError> {
        let opened = AsyncSocket::new(&Config::builder().kind(icmp).build()).map_err(refused)?;
        let kind = match opened.get_type() {
            socket2::Type::RAW => SocketKind::Raw,
            _ => SocketKind::Datagram,
        };
        // A duplicate is used because tokio has surge-ping's own descriptor registered. That
        // one is closed here.
        let setup = |operation| move |error| IcmpSocketError::Setup { operation, error };
        let fd = duplicate(opened.get_native_sock()).map_err(setup("duplicate the descriptor"))?;
        options::enable_timestamps(&fd);
        options::check_batches(&fd);
        drop(opened);
        let fd = WatchedDescriptor::new(fd, "an ICMP socket").map_err(setup("register for events"))?;
        let real_time = RealTime::new(clock);
        Ok(Self { fd, family, kind, used: false, stamped: false, logged: false, real_time })
    }

    /// Delivers everything that has arrived and left. Returns whether nothing is left.
    fn receive(
        &mut self,
        [arrivals, departures]: [&mut Batch; 2],
        clock: &dyn Clock,
        deliver: &mut dyn FnMut(Delivery<'_>),
    ) -> bool {
        let (mut any_arrived, mut failed) = (false, None);
        for _ in 0..READS_MAX {
            // Arrivals are read first and departures second, but departures are delivered
            // first: a request that was answered has left, so its timestamp is there. The call
            // consumes an ICMP error that the kernel reports on the socket. Other packets are
            // then read by the next call.
            let steps = self.real_time.steps();
            let arrived = arrivals.receive(self.fd.as_fd(), Queue::Arrivals);
            let mut departed = BATCH;
            while departed == BATCH {
                departed = departures.receive(self.fd.as_fd(), Queue::Departures).unwrap_or(0);
                let now = self.real_time.check(clock);
                for packet in departures.packets() {
                    deliver(Delivery::Departure(Flow(0), packet.bytes, self.real_time.moment(packet.stamp, now)));
                }
            }
            let arrived = match arrived {
                Ok(arrived) => arrived,
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            any_arrived |= arrived > 0;
            let now = self.real_time.check(clock);
            for packet in arrivals.packets() {
                self.stamped = packet.stamp.is_some();
                let moment = self.real_time.moment(packet.stamp, now);
                deliver(Delivery::Arrival(Flow(0), datagram(&packet, moment)));
            }
            // If a step was noticed, packets stamped before it may arrive after this
            // read, so reading continues.
            if arrived < BATCH && steps == self.real_time.steps() {
                self.real_time.emptied();
                return true;
            }
        }
        // A lasting error is not caused by a packet. It is handled as if nothing had arrived,
        // because losses must still be decided.
        let is_lasting = failed.is_some() && !any_arrived;
        if let (true, Some(error)) = (is_lasting && !self.logged, failed) {
            self.logged = true;
            log::warn!("cannot read an ICMP socket, so its probes count as lost: {error}");
        }
        is_lasting
    }
}

impl EchoWire for IcmpSockets {
    fn identify(&mut self, identifier: u16) {
        for socket in self.sockets.iter().flatten() {
            let filtered = options::listen_only_to(socket.fd.get(), socket.family, socket.kind, identifier);
            Lack::Filters.tolerate(&filtered);
        }
    }

    fn kind(&self, family: Family) -> SocketKind {
        self.sockets[family as usize].as_ref().map_or(SocketKind::Datagram, |socket| socket.kind)
    }
}

impl Readable for IcmpSockets {
    /// Also ends when the real-time clock is stepped.
    async fn readable(&self) {
        tokio::select! {
            () = wait(self.sockets[0].as_ref()) => {}
            () = wait(self.sockets[1].as_ref()) => {}
            () = stepped(self.steps.as_ref()) => {}
        }
    }
}

impl Wire for IcmpSockets {
    fn make_room(&mut self, peers: usize) {
        for socket in self.sockets.iter().flatten() {
            options::make_room(socket.fd.get(), peers);
        }
    }

    fn attend(&mut self, turns_are_frequent: bool) {
        self.turns_are_frequent = turns_are_frequent;
    }

    fn send(&mut self, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, Result<(), SendError>)) {
        let mut from = 0;
        // Consecutive packets of one family are sent in one call.
        for run in packets.chunk_by(|one, next| one.to.is_ipv6() == next.to.is_ipv6()) {
            match &mut self.sockets[usize::from(run[0].to.is_ipv6())] {
                None => (from..from + run.len()).for_each(|i| sent(i, Err(SendError::NoSocket))),
                Some(socket) => {
                    socket.used = true;
                    batch::send_all(socket.fd.as_fd(), run, &mut |i, result| {
                        sent(from + i, result.map_err(|error| SendError::from(&error)));
                    });
                }
            }
            from += run.len();
        }
    }

    fn receive(&mut self, clock: &dyn Clock, deliver: &mut dyn FnMut(Delivery<'_>)) -> bool {
        let Self { sockets, arrivals, departures, turns_are_frequent, .. } = self;
        let mut drained = true;
        for socket in sockets.iter_mut().flatten().filter(|socket| socket.used) {
            drained &= socket.receive([arrivals, departures], clock, deliver);
            socket.fd.watch(!(socket.stamped && *turns_are_frequent));
        }
        drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::MonotonicClock;
    use std::os::fd::OwnedFd;

    #[test]
    fn a_socket_that_can_never_be_read_delays_no_other_socket() {
        // This is not a socket, so every read of it fails.
        let fd = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let mut socket = Socket {
            fd: WatchedDescriptor::unwatched(fd, "a file"),
            family: Family::V4,
            kind: SocketKind::Datagram,
            used: true,
            stamped: false,
            logged: false,
            real_time: RealTime::new(&MonotonicClock),
        };
        let mut batches = [Batch::new(100), Batch::new(100)];
        let [arrivals, departures] = &mut batches;
        let drained = socket.receive([arrivals, departures], &MonotonicClock, &mut |_| panic!("nothing is heard"));
        assert!(drained && socket.logged);
    }
}
