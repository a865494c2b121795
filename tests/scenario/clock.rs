//! A clock that moves only when the test advances it.

use std::cell::Cell;
use std::rc::Rc;

use kube_canary::prober::Clock;
use kube_canary::units::Nanos;

/// An hour, in nanoseconds.
pub const HOUR: i64 = 3_600_000_000_000;

/// Monotonic and real time. Clones share both.
#[derive(Clone, Debug)]
pub struct ScriptedClock {
    monotonic: Rc<Cell<u64>>,
    real: Rc<Cell<u64>>,
}

impl ScriptedClock {
    /// The clock of an agent that starts three hours after its machine did, in 2020.
    pub fn new() -> Self {
        Self { monotonic: Rc::new(Cell::new(10_800_000_000_000)), real: Rc::new(Cell::new(1_600_000_000_000_000_000)) }
    }

    /// Advances both clocks by `span`.
    pub fn advance(&self, span: Nanos) {
        self.monotonic.set(self.monotonic.get() + span.0);
        self.real.set(self.real.get() + span.0);
    }

    /// Sets the real-time clock forward, or back if `by` is negative.
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
