//! A clock that moves when it is told to.

use std::cell::Cell;
use std::rc::Rc;

use kube_canary::prober::Clock;
use kube_canary::units::Nanos;

/// An hour.
pub const HOUR: i64 = 3_600_000_000_000;

/// Monotonic and real time; clones share both.
#[derive(Clone, Debug)]
pub struct ScriptedClock {
    monotonic: Rc<Cell<u64>>,
    real: Rc<Cell<u64>>,
}

impl ScriptedClock {
    /// An agent that starts three hours after its machine did, in 2020.
    pub fn new() -> Self {
        Self { monotonic: Rc::new(Cell::new(10_800_000_000_000)), real: Rc::new(Cell::new(1_600_000_000_000_000_000)) }
    }

    /// Time passes, on both clocks.
    pub fn advance(&self, span: Nanos) {
        self.monotonic.set(self.monotonic.get() + span.0);
        self.real.set(self.real.get() + span.0);
    }

    /// The real-time clock is set.
    pub fn step(&self, by: i64) {
        self.real.set(self.real.get().checked_add_signed(by).expect("after 1970"));
    }
}

impl Clock for ScriptedClock {
    fn now(&self) -> Nanos {
        Nanos(self.monotonic.get())
    }

    fn realtime(&self) -> Nanos {
        Nanos(self.real.get())
    }
}
