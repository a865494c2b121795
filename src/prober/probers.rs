//! The probers of an agent, one for each method, on one thread and with one timer.
//!
//! All of them use the same slots, and their schedules begin at the same time. So their turns fall
//! together, and another method costs no wake-up.

use std::io;
use std::net::IpAddr;

use super::icmp::IcmpSockets;
use super::pacer::Readable as _;
use super::timer::Timer;
use super::udp::Explorer;
use super::udp::route::KernelRoutes;
use super::{Clock as _, Icmp, MonotonicClock, Observation, Prober, tcp, udp};
use crate::peers::{Change, Compaction, Method};
use crate::sys::lacks::Lack;
use crate::units::Nanos;

/// Probes by ICMP over the real sockets.
pub type IcmpProber = Prober<Icmp<IcmpSockets>, MonotonicClock>;
/// Probes by UDP over the real sockets.
pub type UdpProber = Prober<udp::Udp<udp::UdpSockets>, MonotonicClock>;
/// Probes by TCP over the real sockets.
pub type TcpProber = Prober<tcp::Tcp<tcp::TcpSockets>, MonotonicClock>;

/// The probers of the methods in use. They are boxed, because each has several kilobytes.
#[derive(Debug)]
pub struct Probers {
    /// The prober by ICMP echo.
    pub icmp: Option<Box<IcmpProber>>,
    /// The prober by UDP, and the reflector for the probes of others.
    pub udp: Option<Box<UdpProber>>,
    /// The prober by TCP handshakes, and the listener for those of others.
    pub tcp: Option<Box<TcpProber>>,
    /// Traces and the search for the path MTU, by the sockets of the UDP prober.
    pub explorer: Option<Box<Explorer>>,
    /// Tells the MTU of routes. Without it, no path MTU is searched.
    routes: Option<KernelRoutes>,
    /// When the explorer's last turn was.
    explored: Nanos,
    timer: Timer,
}

/// Least time between two wake-ups for the explorer alone. What is due more often follows together.
const EXPLORER_GAP: Nanos = Nanos::from_millis(100);

/// Calls an expression for each prober in use.
macro_rules! each {
    ($self:ident, $prober:ident => $does:expr) => {{
        if let Some($prober) = &mut $self.icmp {
            $does;
        }
        if let Some($prober) = &mut $self.udp {
            $does;
        }
        if let Some($prober) = &mut $self.tcp {
            $does;
        }
    }};
}

impl Probers {
    /// Joins the probers. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The kernel's error for a timer, for example if no descriptor is left.
    pub fn new(
        icmp: Option<Box<IcmpProber>>,
        udp: Option<Box<UdpProber>>,
        explorer: Option<Box<Explorer>>,
        tcp: Option<Box<TcpProber>>,
    ) -> io::Result<Self> {
        // Without routes, no path MTU is searched.
        let searches_mtu = udp.as_ref().is_some_and(|udp| udp.wire_ref().abilities().allow_mtu_search());
        let routes =
            searches_mtu.then(|| KernelRoutes::open().inspect_err(|error| Lack::Netlink.log(error)).ok()).flatten();
        Ok(Self { icmp, udp, tcp, explorer, routes, explored: Nanos(0), timer: Timer::new()? })
    }

    /// Makes room for `slots` peers.
    pub fn reserve(&mut self, slots: usize) {
        each!(self, prober => prober.reserve(slots));
        if let Some(explorer) = &mut self.explorer {
            explorer.reserve(slots);
        }
    }

    /// Applies a change of the peer list.
    pub fn apply(&mut self, change: Change) {
        let address = |it: &Self| match change {
            Change::Probe { slot, .. } => it.udp.as_ref().and_then(|udp| udp.address(slot)),
            Change::Join { .. } | Change::Stop { .. } | Change::Zone { .. } => None,
        };
        let before = address(self);
        each!(self, prober => prober.apply(change));
        let moved = address(self) != before;
        if let Some(explorer) = &mut self.explorer {
            explorer.apply(change, moved);
        }
    }

    /// Moves peers as `compaction` says, and frees the memory of unused slots.
    pub fn compact(&mut self, compaction: &Compaction) {
        each!(self, prober => prober.compact(compaction));
        if let Some(explorer) = &mut self.explorer {
            explorer.compact(compaction);
        }
    }

    /// Sets the members of the mesh: only they are answered. Call it after the changes of a
    /// list.
    pub fn set_members(&mut self, members: &[IpAddr]) {
        if let Some(udp) = &mut self.udp
            && !udp.set_members(members)
        {
            log::warn!("some members have no room among those whose UDP probes are answered");
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.set_members(members);
        }
    }

    /// Stops sending. Probes in flight still count.
    pub fn finish(&mut self) {
        each!(self, prober => prober.finish());
    }

    /// Whether the outcome of a probe is still open.
    pub fn awaits_any(&mut self) -> bool {
        let mut any = false;
        each!(self, prober => any |= prober.awaits_any());
        any
    }

    /// Passes on the new questions, as [`Prober::ask`] does.
    pub fn ask(&mut self, mut ask: impl FnMut(IpAddr) -> bool) {
        each!(self, prober => prober.ask(&mut ask));
    }

    /// Receives the answer to the question about this address.
    pub fn answered(&mut self, address: IpAddr) {
        each!(self, prober => prober.answered(address));
    }

    /// Does a turn of each, and passes on what they observe. Returns whether everything that has
    /// arrived was read.
    pub fn turn(&mut self, observe: &mut impl FnMut(Method, Observation)) -> bool {
        let mut drained = true;
        if let Some(icmp) = &mut self.icmp {
            drained &= icmp.turn(&mut |observation| observe(Method::Icmp, observation));
        }
        if let Some(udp) = &mut self.udp {
            let observe = &mut |observation| observe(Method::Udp, observation);
            drained &= match &mut self.explorer {
                None => udp.turn(observe),
                Some(explorer) => {
                    let as_of = MonotonicClock.now();
                    let drained = udp.turn_with(observe, &mut |delivery| explorer.deliver(delivery));
                    if drained {
                        let routes = &self.routes;
                        let mtu = |to| routes.as_ref().and_then(|routes| routes.mtu(to)).unwrap_or_default();
                        udp.explore(explorer, as_of, mtu);
                        self.explored = as_of;
                    }
                    drained
                }
            };
        }
        if let Some(tcp) = &mut self.tcp {
            drained &= tcp.turn(&mut |observation| observe(Method::Tcp, observation));
        }
        drained
    }

    /// Returns the number of packets that the kernel dropped because a queue was full. `None` if it
    /// does not tell it.
    pub fn drops(&self) -> Option<u64> {
        let icmp = self.icmp.as_ref().map_or(Some(0), |icmp| icmp.wire_ref().drops())?;
        Some(icmp + self.udp.as_ref().map_or(Some(0), |udp| udp.wire_ref().drops())?)
    }

    /// Returns whether the kernel has dropped requests or handshakes of others since the last call,
    /// because more came than this agent serves.
    pub fn overran(&mut self) -> bool {
        let udp = self.udp.as_mut().is_some_and(|udp| udp.wire().overran());
        self.tcp.as_mut().is_some_and(|tcp| tcp.wire().overran()) || udp
    }

    /// Waits until a prober has something to do, but not beyond `latest`. Handshakes never wake the
    /// thread. Cancel-safe.
    ///
    /// # Errors
    /// The kernel's error when the timer is set.
    pub async fn wait(&mut self, latest: Nanos) -> io::Result<()> {
        let mut due = latest;
        each!(self, prober => due = prober.next_turn().map_or(due, |next| next.min(due)));
        // If turns are frequent, the next one comes soon enough.
        if self.udp.as_ref().is_some_and(|udp| !udp.is_frequent())
            && let Some(next) = self.explorer.as_ref().and_then(|explorer| explorer.next_due())
        {
            due = due.min(next.max(self.explored.plus(EXPLORER_GAP)));
        }
        self.timer.set(due)?;
        let Self { icmp, udp, timer, .. } = self;
        let echoes = async {
            match icmp {
                Some(icmp) => icmp.wire_ref().readable().await,
                None => std::future::pending().await,
            }
        };
        let datagrams = async {
            match udp {
                Some(udp) => udp.wire_ref().readable().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = timer.fired() => {}
            () = echoes => {}
            () = datagrams => {}
        }
        Ok(())
    }
}
