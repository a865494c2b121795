//! The real wire: of each family one sender for each flow, and the socket of the reflector.
//!
//! An epoll descriptor over all sockets says which of them have something to read, by one call. So
//! the others cost nothing, and tokio watches one descriptor. If turns are frequent it watches
//! none, and neither answers nor requests wake the thread.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use kube_canary_kernel::batch::{self, BATCH, Batch, Queue};
use kube_canary_kernel::socket::{ReceiveQueue, choose_by, receive_queue};
use rustix::event::{Timespec, epoll};
use socket2::{SockFilter, SockRef};

use super::open::{self, UdpSocketError};
use super::packets::{ARRIVAL_WORDS, ERROR_WORDS, entry};
use super::wire::{Answer, Reflected, UdpWire};
use crate::limits::{FLOWS_MAX, SENDER_FILTER_RANGES_MAX, STAMP_STRANGERS_EVERY, STAMP_STRANGERS_MAX};
use crate::peers::Family;
use crate::prober::clock::RealTime;
use crate::prober::descriptor::WatchedDescriptor;
use crate::prober::filter;
use crate::prober::options::UdpAbilities;
use crate::prober::pacer::Readable;
use crate::prober::wire::datagram;
use crate::prober::{Clock, Delivery, Flow, Moment, Outgoing, SendError, Sources, Wire, options};
use crate::sys::lacks::Lack;
use crate::units::Nanos;

/// Largest number of batches read before the prober sends again: a flood cannot
/// delay it for longer.
const READS_MAX: usize = 128;
/// Reads of one socket that fail before the others are read. A failure of an ICMP error is gone
/// with the read, and a lasting one is not.
const FAILURES_MAX: u32 = 3;
/// Bytes that are read of a datagram. A usual request has 72. Of a longer one, such as a probe of
/// the path MTU, the length is known and the rest is padding.
const DATAGRAM_BYTES: usize = 264;
/// Bytes of the headers before a datagram that leaves: Ethernet with two VLAN tags, IPv6, and UDP.
const DEPARTURE_HEADER_BYTES: usize = 22 + 40 + 8;
/// Bytes that are read of a departure: headers and a usual request.
const DEPARTURE_BYTES: usize = DEPARTURE_HEADER_BYTES + 72;

/// Number of IP families.
const FAMILIES: usize = 2;
/// Number of sockets. A bit of a [`Ready`] stands for each.
const SOCKETS_MAX: usize = FAMILIES * (FLOWS_MAX as usize + 1);
const _: () = assert!(SOCKETS_MAX <= u64::BITS as usize);

/// Which sockets have something to read, one bit each: first the senders by family and flow, then
/// the reflectors by family.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    arrivals: u64,
    errors: u64,
}

const fn sender_bit(family: usize, flow: usize) -> usize {
    family * FLOWS_MAX as usize + flow
}

const fn reflector_bit(family: usize) -> usize {
    FAMILIES * FLOWS_MAX as usize + family
}

#[derive(Debug)]
struct Sender {
    fd: OwnedFd,
    port: u16,
    /// Number of packets that the kernel had dropped when it was asked last. It counts what the
    /// filter drops, too.
    drops: u32,
}

/// The UDP sockets of both families. If the host lacks a family, sending to it returns
/// [`SendError::NoSocket`]. All sockets share the receive buffers, because they are read one
/// after the other. A packet is borrowed from them for one call of `deliver`.
#[derive(Debug)]
pub struct UdpSockets {
    /// By family and flow.
    senders: [Vec<Sender>; FAMILIES],
    /// What the kernel does for all senders.
    abilities: UdpAbilities,
    /// By family. The host or the listening address may lack one.
    reflectors: [Option<Sender>; FAMILIES],
    /// By family, what gets the requests of strangers. Nothing waits for these, so that a flood
    /// wakes no thread.
    strangers: [Option<OwnedFd>; FAMILIES],
    /// When they are read again, and how many batches of them were read this time: the first half
    /// of them over IPv4.
    strangers_at: Nanos,
    strangers_read: usize,
    epoll: WatchedDescriptor,
    ready: Ready,
    overflows: Overflows,
    arrivals: Batch<ARRIVAL_WORDS>,
    errors: Batch<ERROR_WORDS>,
    /// The real-time clock of what the senders have read, and of what the reflectors have.
    times: [RealTime; 2],
    turns_are_frequent: bool,
    /// Whether the kernel stamps what arrives, so that it need not be read at once.
    stamped: bool,
    /// Whether a failure to read was already logged: it is retried at every turn.
    logged: bool,
}

impl UdpSockets {
    /// Opens `flows` senders (1 to [`FLOWS_MAX`]) of each family, which send from `sources`, and
    /// the reflector at `listen`. With `[::]`, the reflector serves both families. Must be called
    /// within a tokio runtime.
    ///
    /// # Errors
    /// [`UdpSocketError`], for example if the port is taken. It is no error if the host lacks a
    /// family.
    pub fn open(listen: SocketAddr, sources: &Sources, flows: u8, clock: &dyn Clock) -> Result<Self, UdpSocketError> {
        let sender = |(fd, port)| Sender { fd, port, drops: 0 };
        let flows = flows.clamp(1, FLOWS_MAX);
        let (reflectors, strangers) = open::reflectors(listen)?;
        let reflectors = reflectors.map(|opened| opened.map(sender));
        let at = listen.ip();
        let (v4, of_v4) = open::senders(false, at, sources, flows)?;
        let (v6, of_v6) = open::senders(true, at, sources, flows)?;
        if v4.is_empty() && v6.is_empty() {
            return Err(UdpSocketError::setup("open")(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)));
        }
        let senders = [v4, v6].map(|opened| opened.into_iter().map(sender).collect());
        let made = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from);
        let made = made.map_err(UdpSocketError::setup("make an epoll descriptor for"))?;
        let sockets = Self {
            senders,
            abilities: of_v4.and(of_v6),
            reflectors,
            strangers,
            strangers_at: clock.now(),
            strangers_read: 0,
            epoll: WatchedDescriptor::new(made, "the UDP sockets").map_err(UdpSocketError::setup("register"))?,
            ready: Ready::default(),
            overflows: Overflows::default(),
            arrivals: Batch::new(DATAGRAM_BYTES),
            errors: Batch::new(DEPARTURE_BYTES),
            times: [RealTime::new(clock), RealTime::new(clock)],
            turns_are_frequent: false,
            stamped: false,
            logged: false,
        };
        for (bit, fd) in sockets.all() {
            let data = epoll::EventData::new_u64(bit as u64);
            epoll::add(&sockets.epoll, fd, data, epoll::EventFlags::IN)
                .map_err(io::Error::from)
                .map_err(UdpSocketError::setup("register"))?;
        }
        Ok(sockets)
    }

    /// Returns every socket and its bit.
    fn all(&self) -> impl Iterator<Item = (usize, &OwnedFd)> {
        let senders = self.senders.iter().enumerate().flat_map(|(family, senders)| {
            senders.iter().enumerate().map(move |(flow, sender)| (sender_bit(family, flow), &sender.fd))
        });
        let reflectors = self.reflectors.iter().enumerate();
        senders.chain(reflectors.filter_map(|(family, it)| Some((reflector_bit(family), &it.as_ref()?.fd))))
    }

    /// Returns what is open, for the log.
    pub fn describe(&self) -> String {
        let family = |family: usize| match (&self.senders[family][..], &self.reflectors[family]) {
            ([], _) => "none".to_owned(),
            ([first, rest @ ..], None) => format!("{} flows from port {}, no reflector", 1 + rest.len(), first.port),
            (senders, Some(reflector)) => format!("{} flows, reflector on port {}", senders.len(), reflector.port),
        };
        format!("IPv4 {}, IPv6 {}", family(0), family(1))
    }

    /// Returns what the kernel does for the senders, besides carrying their packets.
    pub const fn abilities(&self) -> UdpAbilities {
        self.abilities
    }

    /// Returns the source ports of the flows of a family. Empty if this host lacks it.
    pub fn source_ports(&self, family: Family) -> Vec<u16> {
        self.senders[family as usize].iter().map(|sender| sender.port).collect()
    }

    /// Returns the port of the reflector, for either family.
    pub fn reflector_port(&self) -> u16 {
        self.reflectors.iter().flatten().map(|reflector| reflector.port).next().unwrap_or_default()
    }

    /// Returns the number of packets that the kernel has dropped so far because the queue of a flow
    /// was full. The reflector is left out: what it has not read is a loss that its peer counts.
    ///
    /// The kernel counts what a filter drops in the same way. So only drops that are found beside a
    /// full queue count, and no more of them than were read from it. `None` if the kernel does not
    /// tell it.
    pub fn drops(&self) -> Option<u64> {
        let sender = self.senders.iter().flatten().next()?;
        receive_queue(sender.fd.as_fd()).map(|_| self.overflows.answers)
    }

    /// Returns whether the kernel has dropped requests since the last call because the queue of a
    /// reflector was full.
    pub const fn overran(&mut self) -> bool {
        std::mem::replace(&mut self.overflows.requests, false)
    }

    /// Asks the kernel which sockets have something to read.
    fn look(&mut self) {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; SOCKETS_MAX];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.ready = Ready::default();
        match epoll::wait(&self.epoll, &mut events, Some(&now)) {
            Ok((events, _)) => {
                for event in events {
                    let (data, flags) = (event.data, event.flags);
                    let bit = 1_u64.checked_shl(u32::try_from(data.u64()).unwrap_or(u32::MAX)).unwrap_or_default();
                    self.ready.arrivals |= if flags.contains(epoll::EventFlags::IN) { bit } else { 0 };
                    self.ready.errors |= if flags.contains(epoll::EventFlags::ERR) { bit } else { 0 };
                }
            }
            // Interrupted, or out of memory: it is as if every socket had something.
            Err(_) => self.ready = Ready { arrivals: u64::MAX, errors: u64::MAX },
        }
    }

    /// Delivers a batch of what strangers have sent, from time to time. Returns whether there was
    /// one. What it lacks, the kernel has dropped.
    fn read_strangers(&mut self, clock: &dyn Clock, deliver: &mut dyn FnMut(Reflected<'_>)) -> bool {
        const BATCHES: usize = STAMP_STRANGERS_MAX / BATCH;
        let now = clock.now();
        if now < self.strangers_at {
            return false;
        }
        while self.strangers_read < FAMILIES * BATCHES {
            let family = self.strangers_read / BATCHES;
            let strangers = self.strangers[family].as_ref().map(AsFd::as_fd);
            let arrived = strangers.and_then(|fd| self.arrivals.receive(fd, Queue::Arrivals).ok()).unwrap_or(0);
            self.strangers_read = if arrived < BATCH { (family + 1) * BATCHES } else { self.strangers_read + 1 };
            for packet in self.arrivals.packets().take(arrived) {
                deliver(Reflected::Request(datagram(&packet, Moment::read(now))));
            }
            if arrived > 0 {
                return true;
            }
        }
        (self.strangers_at, self.strangers_read) = (now.plus(STAMP_STRANGERS_EVERY.into()), 0);
        false
    }

    fn log_failure(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.logged, true) {
            log::warn!("cannot read a UDP socket, so its probes count as lost: {error}");
        }
    }
}

impl Sender {
    /// Returns how many packets were dropped since the last call, if the queue is so full that it
    /// may have been for want of room. A part of it was just read.
    fn overflow(&mut self) -> usize {
        let Some(ReceiveQueue { used, limit, drops }) = receive_queue(self.fd.as_fd()) else { return 0 };
        let dropped = drops.wrapping_sub(std::mem::replace(&mut self.drops, drops));
        if used >= limit / 2 { dropped as usize } else { 0 }
    }
}

/// What the kernel has dropped because a queue was full.
#[derive(Clone, Copy, Debug, Default)]
struct Overflows {
    /// Number of packets that came to senders.
    answers: u64,
    /// Whether requests to a reflector were dropped since [`UdpSockets::overran`].
    requests: bool,
}

/// What one call reads with.
struct Reader<'a> {
    arrivals: &'a mut Batch<ARRIVAL_WORDS>,
    errors: &'a mut Batch<ERROR_WORDS>,
    real_time: &'a mut RealTime,
    clock: &'a dyn Clock,
    stamped: &'a mut bool,
    overflows: &'a mut Overflows,
    /// Batches left to read.
    reads: usize,
}

impl Reader<'_> {
    /// Delivers what a sender has. Returns whether nothing is left.
    fn sender(
        &mut self,
        sender: &mut Sender,
        flow: Flow,
        has_arrivals: bool,
        deliver: &mut dyn FnMut(Delivery<'_>),
    ) -> io::Result<bool> {
        let (mut failed, mut failures, mut any) = (None, 0_u32, false);
        let mut dropped = 0;
        let mut wanted = has_arrivals;
        while self.reads > 0 {
            // Arrivals are read first and departures second, but departures are delivered first: a
            // request that was answered has left, so its timestamp is there. The first call fails
            // with an ICMP error if one is on the error queue. It consumes the failure, but not
            // the error.
            let arrived = if wanted { self.arrivals.receive(sender.fd.as_fd(), Queue::Arrivals) } else { Ok(0) };
            let (delivered, emptied) = self.errors_of(sender, flow, deliver);
            any |= delivered;
            self.reads = self.reads.saturating_sub(1);
            let arrived = match arrived {
                Ok(arrived) => arrived,
                // What fails each time must leave reads for the other sockets.
                Err(error) if failures == FAILURES_MAX && !any => return Err(error),
                Err(error) => {
                    (failed, failures) = (Some(error), failures + 1);
                    continue;
                }
            };
            any |= arrived > 0;
            if arrived == BATCH && dropped == 0 {
                dropped = sender.overflow();
            }
            let counted = dropped.min(arrived);
            dropped -= counted;
            self.overflows.answers += counted as u64;
            let now = self.real_time.check(self.clock);
            for packet in self.arrivals.packets().take(arrived) {
                *self.stamped = packet.stamp.is_some();
                let moment = self.real_time.moment(packet.stamp, now);
                deliver(Delivery::Arrival(flow, datagram(&packet, moment)));
            }
            if arrived < BATCH && emptied {
                if any || wanted {
                    return Ok(true);
                }
                // The socket was ready, and had nothing on the error queue: it has the failure of
                // an ICMP error for which the queue had no room. A read of arrivals consumes it.
                wanted = true;
            }
        }
        match failed {
            Some(error) if !any => Err(error),
            _ => Ok(false),
        }
    }

    /// Delivers what is on the error queue of a sender. Returns whether there was anything, and
    /// whether nothing is left.
    fn errors_of(&mut self, sender: &Sender, flow: Flow, deliver: &mut dyn FnMut(Delivery<'_>)) -> (bool, bool) {
        let mut any = false;
        while self.reads > 0 {
            let count = self.errors.receive(sender.fd.as_fd(), Queue::Errors).unwrap_or(0);
            let now = self.real_time.check(self.clock);
            for packet in self.errors.packets().take(count) {
                let moment = self.real_time.moment(packet.stamp, now);
                if let Some(delivery) = entry(&packet, flow, moment) {
                    deliver(delivery);
                }
            }
            any |= count > 0;
            if count < BATCH {
                return (any, true);
            }
            self.reads -= 1;
        }
        (any, false)
    }

    /// Delivers the departures of a reflector, and at most one batch of requests. Returns whether
    /// nothing is left. Few answers are stamped as they leave, so mostly there are no departures.
    fn reflector(
        &mut self,
        reflector: &mut Sender,
        has_departures: bool,
        deliver: &mut dyn FnMut(Reflected<'_>),
    ) -> io::Result<bool> {
        let read = |errors: &mut Batch<_>| errors.receive(reflector.fd.as_fd(), Queue::Errors).unwrap_or(0);
        let count = if has_departures { read(self.errors) } else { 0 };
        let now = self.real_time.check(self.clock);
        for packet in self.errors.packets().take(count) {
            deliver(Reflected::Answered(packet.bytes, self.real_time.moment(packet.stamp, now)));
        }
        let arrived = self.arrivals.receive(reflector.fd.as_fd(), Queue::Arrivals)?;
        self.overflows.requests |= arrived == BATCH && reflector.overflow() > 0;
        let now = self.real_time.check(self.clock);
        for packet in self.arrivals.packets().take(arrived) {
            *self.stamped = packet.stamp.is_some();
            let moment = self.real_time.moment(packet.stamp, now);
            deliver(Reflected::Request(datagram(&packet, moment)));
        }
        Ok(arrived < BATCH && count < BATCH)
    }
}

impl Readable for UdpSockets {
    async fn readable(&self) {
        self.epoll.readable().await;
    }
}

impl Wire for UdpSockets {
    fn make_room(&mut self, peers: usize) {
        self.all().for_each(|(_, fd)| options::make_room(fd, peers));
    }

    fn attend(&mut self, turns_are_frequent: bool) {
        self.turns_are_frequent = turns_are_frequent;
    }

    fn send(&mut self, packets: &[Outgoing<'_>], sent: &mut dyn FnMut(usize, Result<(), SendError>)) {
        let mut from = 0;
        let socket = |packet: &Outgoing<'_>| (packet.to.is_ipv6(), packet.flow);
        // Consecutive packets of one socket are sent in one call.
        for run in packets.chunk_by(|one, next| socket(one) == socket(next)) {
            let (over_ipv6, flow) = socket(&run[0]);
            match self.senders[usize::from(over_ipv6)].get(usize::from(flow.0)) {
                None => (from..from + run.len()).for_each(|i| sent(i, Err(SendError::NoSocket))),
                Some(sender) => batch::send_all(sender.fd.as_fd(), run, &mut |i, result| {
                    sent(from + i, result.map_err(|error| SendError::from(&error)));
                }),
            }
            from += run.len();
        }
    }

    fn receive(&mut self, clock: &dyn Clock, deliver: &mut dyn FnMut(Delivery<'_>)) -> bool {
        let (mut drained, mut failed) = (true, None);
        let mut reads = READS_MAX;
        // If a step of the clock was noticed, packets stamped before it may arrive after this read,
        // so there is another.
        for _ in 0..2 {
            let steps = self.times[0].steps();
            self.look();
            let Self { senders, arrivals, errors, times: [real_time, _], stamped, ready, overflows, .. } = self;
            let mut reader = Reader { arrivals, errors, real_time, clock, stamped, overflows, reads };
            for (family, senders) in senders.iter_mut().enumerate() {
                for (flow, sender) in (0..).zip(senders) {
                    let bit = 1 << sender_bit(family, usize::from(flow));
                    if (ready.arrivals | ready.errors) & bit == 0 {
                        continue;
                    }
                    match reader.sender(sender, Flow(flow), ready.arrivals & bit != 0, deliver) {
                        Ok(emptied) => drained &= emptied,
                        // A lasting error is not caused by a packet. It is handled as if nothing
                        // had arrived, because losses must still be decided.
                        Err(error) => failed = Some(error),
                    }
                }
            }
            reads = reader.reads;
            if steps == self.times[0].steps() {
                if drained {
                    self.times[0].emptied();
                }
                break;
            }
        }
        if let Some(error) = failed {
            self.log_failure(&error);
        }
        let watched = !(self.stamped && self.turns_are_frequent);
        self.epoll.watch(watched);
        drained
    }
}

impl UdpWire for UdpSockets {
    fn source_port(&self, flow: Flow, over_ipv6: bool) -> Option<u16> {
        Some(self.senders[usize::from(over_ipv6)].get(usize::from(flow.0))?.port)
    }

    fn admit(&mut self, members: &[IpAddr]) {
        for (over_ipv6, reflector) in [false, true].into_iter().zip(&self.reflectors) {
            let Some(reflector) = reflector else { continue };
            if self.strangers[usize::from(over_ipv6)].is_some() {
                let attach = |program: &[SockFilter]| choose_by(&reflector.fd, program);
                if let Err(error) = filter::attach(|ranges| filter::choosing(over_ipv6, members, ranges), attach) {
                    log::debug!("what strangers send by UDP is not told from what members send: {error}");
                }
            }
            let attach = |program: &[SockFilter]| SockRef::from(&reflector.fd).attach_filter(program);
            let program = |ranges| filter::from_sources(over_ipv6, members, ranges);
            Lack::Filters.tolerate(&filter::attach(program, attach));
        }
    }

    fn admit_answers(&mut self, peers: &[IpAddr], port: u16) {
        for (over_ipv6, senders) in [false, true].into_iter().zip(&self.senders) {
            let attach = |program: &[SockFilter]| {
                senders.iter().try_for_each(|sender| SockRef::from(&sender.fd).attach_filter(program))
            };
            let program = |ranges: usize| {
                let ranges = ranges.min(SENDER_FILTER_RANGES_MAX);
                filter::from_port(port, filter::from_sources(over_ipv6, peers, ranges))
            };
            Lack::Filters.tolerate(&filter::attach(program, attach));
        }
    }

    fn answer(&mut self, answers: &[Answer<'_>]) {
        for run in answers.chunk_by(|one, next| one.to.is_ipv6() == next.to.is_ipv6()) {
            if let Some(reflector) = &self.reflectors[usize::from(run[0].to.is_ipv6())] {
                // What cannot be sent is dropped. The source of the request counts a lost answer.
                batch::send_all(reflector.fd.as_fd(), run, &mut |_, _| {});
            }
        }
    }

    fn requests(&mut self, clock: &dyn Clock, deliver: &mut dyn FnMut(Reflected<'_>)) -> bool {
        // One source of requests a call: the next one is served after the answers to these.
        if self.read_strangers(clock, deliver) {
            return false;
        }
        let (mut served, mut drained, mut failed) = (false, true, None);
        let Self { reflectors, arrivals, errors, times: [_, real_time], stamped, ready, overflows, .. } = self;
        let steps = real_time.steps();
        let mut reader = Reader { arrivals, errors, real_time, clock, stamped, overflows, reads: 1 };
        for (family, reflector) in reflectors.iter_mut().enumerate() {
            let bit = 1 << reflector_bit(family);
            let Some(reflector) = reflector.as_mut().filter(|_| (ready.arrivals | ready.errors) & bit != 0) else {
                continue;
            };
            if std::mem::replace(&mut served, true) {
                drained = false;
                break;
            }
            match reader.reflector(reflector, ready.errors & bit != 0, deliver) {
                Ok(false) => {
                    drained = false;
                    break;
                }
                Ok(true) => {}
                Err(error) => failed = Some(error),
            }
            ready.arrivals &= !bit;
            ready.errors &= !bit;
        }
        if drained && steps == self.times[1].steps() {
            self.times[1].emptied();
        }
        if let Some(error) = failed {
            self.log_failure(&error);
        }
        drained
    }
}

#[cfg(test)]
mod tests;
