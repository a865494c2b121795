//! The probes of a ping: the agent's ICMP prober, or its UDP prober with traces.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{PingError, REPLIES_WAIT, Results};
use crate::config::{PingSettings, UdpPing};
use crate::peers::{Change, Network, SlotId, ZoneId};
use crate::prober::icmp::IcmpSockets;
use crate::prober::udp::trace::{Reason, TracedFlow};
use crate::prober::udp::{Explorer, Udp, UdpSockets, UdpWire as _};
use crate::prober::{Clock as _, Flow, Icmp, IcmpProber, MonotonicClock, Pacer, Settings, Sources, UdpProber};
use crate::sys::error::system;
use crate::units::Nanos;

/// The sockets, which are opened before any name is resolved.
#[derive(Debug)]
pub enum Wires {
    Icmp(IcmpSockets),
    Udp(UdpSockets, UdpPing),
}

impl Wires {
    pub fn open(settings: &PingSettings) -> Result<Self, PingError> {
        let Some(udp) = settings.udp else {
            return Ok(Self::Icmp(IcmpSockets::open(settings.payload_bytes, &MonotonicClock)?));
        };
        // The port of the reflector does not matter: without members, it answers nothing.
        let any = |address: IpAddr| {
            UdpSockets::open(SocketAddr::new(address, 0), &Sources::default(), udp.flows, &MonotonicClock)
        };
        let sockets = any(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| any(Ipv4Addr::UNSPECIFIED.into()))?;
        if udp.trace && !sockets.abilities().errors {
            let error = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
            return Err(system("trace paths, because this kernel reports no ICMP errors")(error).into());
        }
        Ok(Self::Udp(sockets, udp))
    }
}

/// Probes the targets of a ping.
#[derive(Debug)]
pub enum Probes {
    Icmp(Box<IcmpProber>),
    Udp(Box<UdpProbes>),
}

/// Probes the targets of a ping by UDP.
#[derive(Debug)]
pub struct UdpProbes {
    prober: UdpProber,
    explorer: Explorer,
    addresses: Vec<IpAddr>,
    traces: bool,
    /// Flows to be traced, one after the other.
    untraced: VecDeque<(SlotId, Flow)>,
}

impl Probes {
    /// Starts to probe the addresses, in the slots from 0 on.
    pub fn new(settings: &PingSettings, wires: Wires, addresses: &[IpAddr]) -> Self {
        let probing = Settings {
            interval: settings.interval.into(),
            timeout: settings.timeout.into(),
            node: String::new(),
            doubts: false,
            // A person wants to see every loss.
            new_peer_silence: Nanos(0),
            replies_wait: REPLIES_WAIT,
        };
        let changes = addresses.iter().enumerate().flat_map(|(index, &address)| {
            let (slot, zone, network) = (SlotId::at(index), ZoneId::UNKNOWN, Network::Pod);
            [Change::Join { slot }, Change::Probe { slot, address, zone, network, terminating: false }]
        });
        match wires {
            Wires::Icmp(sockets) => {
                let mut prober = Icmp::prober(sockets, MonotonicClock, &probing, settings.payload_bytes);
                prober.reserve(addresses.len());
                changes.for_each(|change| prober.apply(change));
                Self::Icmp(Box::new(prober))
            }
            Wires::Udp(sockets, UdpPing { port, flows, trace }) => {
                let start = MonotonicClock.now();
                let mut prober = Udp::prober(sockets, MonotonicClock, &probing, (port, flows));
                let mut explorer = Explorer::new(flows, port, probing.timeout, start);
                prober.reserve(addresses.len());
                explorer.reserve(addresses.len());
                changes.for_each(|change| prober.apply(change));
                let addresses = addresses.to_vec();
                let first = (0..addresses.len()).map(|index| (SlotId::at(index), Flow(0)));
                let untraced = if trace { first.collect() } else { VecDeque::new() };
                Self::Udp(Box::new(UdpProbes { prober, explorer, addresses, traces: trace, untraced }))
            }
        }
    }

    /// Sends, reads and decides. Returns whether everything was read.
    pub fn turn(&mut self, results: &mut Results) -> bool {
        match self {
            Self::Icmp(prober) => prober.turn(&mut |observation| results.observe(observation)),
            Self::Udp(probes) => probes.turn(results),
        }
    }

    /// Stops sending to a slot. Probes in flight still count.
    pub fn pause(&mut self, slot: SlotId) {
        match self {
            Self::Icmp(prober) => prober.pause(slot),
            Self::Udp(probes) => probes.prober.pause(slot),
        }
    }

    /// Returns whether a trace is in progress or waits.
    pub fn is_tracing(&self) -> bool {
        match self {
            Self::Icmp(_) => false,
            Self::Udp(probes) => !probes.explorer.tracer.is_idle() || !probes.untraced.is_empty(),
        }
    }

    /// Returns the port of a flow to a slot.
    pub fn source_port(&self, slot: SlotId, flow: Flow) -> Option<u16> {
        match self {
            Self::Icmp(_) => None,
            Self::Udp(probes) => {
                let over_ipv6 = probes.addresses.get(slot.index())?.is_ipv6();
                probes.prober.wire_ref().source_port(flow, over_ipv6)
            }
        }
    }

    /// Waits until there is something to do, but not beyond `latest`. Cancel-safe.
    pub async fn wait(&mut self, pacer: &Pacer, latest: Nanos) -> io::Result<()> {
        match self {
            Self::Icmp(prober) => pacer.wait(prober, latest).await,
            Self::Udp(probes) => {
                let next = probes.explorer.next_due().or_else(|| probes.waits_to_trace().then(|| MonotonicClock.now()));
                let latest = next.map_or(latest, |due| due.min(latest));
                pacer.wait(&mut probes.prober, latest).await
            }
        }
    }
}

impl UdpProbes {
    /// Whether the next trace can begin.
    fn waits_to_trace(&self) -> bool {
        self.explorer.tracer.is_idle() && !self.untraced.is_empty()
    }

    fn turn(&mut self, results: &mut Results) -> bool {
        let as_of = self.prober.clock().now();
        let Self { prober, explorer, .. } = self;
        let observe = &mut |observation| results.observe(observation);
        let drained = prober.turn_with(observe, &mut |delivery| explorer.deliver(delivery));
        let losing = results.losing.drain(..);
        self.untraced.extend(losing.filter(|flow| self.traces && flow.1 != Flow(0)));
        if self.waits_to_trace()
            && let Some((slot, flow)) = self.untraced.pop_front()
        {
            self.explorer.tracer.want(slot, flow, Reason::Requested, as_of);
        }
        if drained {
            let addresses = &self.addresses;
            let address = |slot: SlotId| addresses.get(slot.index()).copied();
            self.explorer.turn(self.prober.wire(), &MonotonicClock, as_of, address, |_| 0);
        }
        if let Some(trace) = self.explorer.tracer.take_finished() {
            let over_ipv6 = self.addresses.get(trace.slot.index()).is_some_and(IpAddr::is_ipv6);
            let trace: TracedFlow = *trace;
            let port = self.prober.wire_ref().source_port(trace.flow, over_ipv6);
            results.traced(&trace, port);
        }
        drained
    }
}
