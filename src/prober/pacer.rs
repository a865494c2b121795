//! Waits between the turns of a prober on real sockets. `run` and `ping` share it.

use std::io;

use super::socket::Sockets;
use super::timer::Timer;
use super::udp::{Udp, UdpSockets};
use super::{Clock, Icmp, Prober};
use crate::units::Nanos;

/// Waits for the prober's next turn.
#[derive(Debug)]
pub struct Pacer {
    timer: Timer,
}

impl Pacer {
    /// Makes a pacer. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The kernel's error for a timer, for example if no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { timer: Timer::new()? })
    }

    /// Waits until `prober` has something to do, but not beyond `latest`. Cancel-safe.
    ///
    /// # Errors
    /// The kernel's error when the timer is set.
    pub async fn wait<C: Clock>(&self, prober: &mut Prober<Icmp<Sockets>, C>, latest: Nanos) -> io::Result<()> {
        let due = prober.next_turn().map_or(latest, |due| due.min(latest));
        self.timer.set(due)?;
        tokio::select! {
            biased;
            () = self.timer.fired() => {}
            () = prober.wire().readable() => {}
        }
        Ok(())
    }
    /// Waits until a UDP prober has something to do, but not beyond `latest`. Cancel-safe.
    ///
    /// # Errors
    /// The kernel's error when the timer is set.
    pub async fn wait_udp<C: Clock>(&self, prober: &mut Prober<Udp<UdpSockets>, C>, latest: Nanos) -> io::Result<()> {
        let due = prober.next_turn().map_or(latest, |due| due.min(latest));
        self.timer.set(due)?;
        tokio::select! {
            biased;
            () = self.timer.fired() => {}
            () = prober.wire_ref().readable() => {}
        }
        Ok(())
    }
}
