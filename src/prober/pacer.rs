//! Waiting between the turns of a prober on real sockets: what `run` and `ping` have in common.

use std::io;

use super::socket::Sockets;
use super::timer::Timer;
use super::{Clock, Prober};
use crate::units::Nanos;

/// Knows when the next turn is due.
#[derive(Debug)]
pub struct Pacer {
    timer: Timer,
}

impl Pacer {
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// What the kernel says of a timer; no descriptor left, for one.
    pub fn new() -> io::Result<Self> {
        Ok(Self { timer: Timer::new()? })
    }

    /// Waits until `prober` has something to do, but not beyond `latest`. Cancel-safe.
    ///
    /// # Errors
    /// What the kernel says when the timer is set.
    pub async fn wait<C: Clock>(&self, prober: &mut Prober<Sockets, C>, latest: Nanos) -> io::Result<()> {
        let due = prober.next_turn().map_or(latest, |due| due.min(latest));
        self.timer.set(due)?;
        tokio::select! {
            biased;
            () = self.timer.fired() => {}
            () = prober.wire().readable() => {}
        }
        Ok(())
    }
}
