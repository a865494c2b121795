//! The prober over a scripted wire and clock, and over real sockets on the loopback.

mod loopback;
mod scripted;
mod world;

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::peers::{Change, Network, SlotId, ZoneId};
use crate::prober::{Clock, Event, Prober, Settings, Sink, Stamp};

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

/// What the prober has reported, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reported {
    Event(SlotId, Event),
    Refused(SlotId),
    Repeated(SlotId, u32),
    Skipped(u64),
}

#[derive(Debug, Default)]
struct Reports(Vec<Reported>);

impl Reports {
    fn take(&mut self) -> Vec<Reported> {
        std::mem::take(&mut self.0)
    }
}

impl Sink for Reports {
    fn event(&mut self, slot: SlotId, event: Event) {
        self.0.push(Reported::Event(slot, event));
    }

    fn send_lag(&mut self, _: Nanos) {
        panic!("a handshake waits for a turn on purpose");
    }

    fn skipped(&mut self, probes: u64) {
        self.0.push(Reported::Skipped(probes));
    }

    fn read_delay(&mut self, _: Nanos) {
        panic!("no handshake is stamped on arrival");
    }

    fn unrelated(&mut self) {
        panic!("nothing unrelated arrives");
    }

    fn refused(&mut self, slot: SlotId) {
        self.0.push(Reported::Refused(slot));
    }

    fn syn_retransmissions(&mut self, slot: SlotId, count: u32) {
        self.0.push(Reported::Repeated(slot, count));
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

fn received(slot: u32, us: u64, sequence: u16) -> Reported {
    let (rtt, stamp) = (Nanos(us * 1_000), Stamp::Kernel);
    Reported::Event(SlotId(slot), Event::Received { rtt, reordered: false, sequence, stamp })
}

fn event(slot: u32, event: Event) -> Reported {
    Reported::Event(SlotId(slot), event)
}
