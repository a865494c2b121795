//! The prober over a scripted wire and clock, and over real sockets on the loopback.

mod loopback;
mod scripted;
mod world;

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::peers::{Change, Network, SlotId, ZoneId};
use crate::prober::{Clock, Event, Observation, Prober, Settings, Stamp};

/// A clock that stands still until it is set.
#[derive(Clone, Debug, Default)]
pub struct SetClock(Rc<Cell<Nanos>>);

impl SetClock {
    fn set(&self, ms: u64) {
        self.0.set(Nanos::from_millis(ms));
    }
}

impl Clock for SetClock {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn realtime(&self) -> Nanos {
        self.0.get()
    }
}

/// What the prober has observed, in order. Which reply has caused an event is left out.
#[derive(Debug, Default)]
struct Observed(Vec<Observation>);

impl Observed {
    fn take(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.0)
    }

    fn observe(&mut self, observation: Observation) {
        self.0.push(match observation {
            Observation::Probe { slot, event, .. } => Observation::probe(slot, event),
            Observation::Refused(_) | Observation::SynRetransmissions { .. } | Observation::Skipped(_) => observation,
            other => panic!("{other:?} is not of TCP"),
        });
    }
}

/// Handshakes that are not repeated, and lost after the timeout.
const PLAIN: Handshakes = Handshakes { port: 7_000, retries_lost: false, unsent_wait: Nanos(0) };

fn settings() -> Settings {
    Settings {
        interval: Nanos::from_millis(1_000),
        timeout: Nanos::from_millis(1_000),
        // The wheel starts at once.
        node: String::new(),
        doubts: false,
        new_peer_silence: Nanos(0),
        replies_wait: Nanos::from_millis(250),
    }
}

fn probe(slot: u32, address: IpAddr, terminating: bool) -> Change {
    let (slot, zone, network) = (SlotId(slot), ZoneId::UNKNOWN, Network::Pod);
    Change::Probe { slot, address, zone, network, terminating }
}

fn received(slot: u32, us: u64, sequence: u16) -> Observation {
    let (rtt, stamp) = (Nanos(us * 1_000), Stamp::Kernel);
    Observation::probe(SlotId(slot), Event::Received { rtt, reordered: false, sequence, stamp })
}

fn event(slot: u32, event: Event) -> Observation {
    Observation::probe(SlotId(slot), event)
}
