//! Waits between the turns of a prober on real sockets. `run` and `ping` share it.

use std::io;

use super::datagrams::{Datagrams, Exchange};
use super::timer::Timer;
use super::{Clock, Prober, Wire};
use crate::units::Nanos;

/// A wire that can be waited for.
pub trait Readable: Wire {
    /// Waits until there is something to read, if that must wake the thread ([`Wire::attend`]).
    /// Cancel-safe.
    fn readable(&self) -> impl Future<Output = ()>;
}

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
    pub async fn wait<W: Readable, E: Exchange<W>>(
        &self,
        prober: &mut Prober<Datagrams<W, E>, impl Clock>,
        latest: Nanos,
    ) -> io::Result<()> {
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
