//! The turn of a protocol that sends datagrams in batches: it sends what is due, reads what has
//! arrived, and decides what has timed out.

use super::probing::{Common, Protocol};
use super::udp::Guest;
use super::{Clock, Sink};
use crate::peers::SlotId;
use crate::units::Nanos;

/// Requests per system call until the kernel has reported a departure. All of a batch have the time
/// just before the call, so a longer batch would make that time less precise.
pub const BATCH_UNSTAMPED: usize = 8;
/// If the prober has not run for longer than this, it reads replies before it sends. Its
/// send times wrap around after some minutes. Recording the next probe would move the
/// earlier ones into the future.
pub const STANDSTILL: Nanos = Nanos::from_millis(5_000);
/// How often the prober reads after a standstill, as long as packets are left. Each read takes
/// 4,096 packets. Together they exceed what the queues of all peers can hold.
const STANDSTILL_READS_MAX: usize = 16;

/// Sends probes and answers as datagrams, in batches.
pub trait Datagrams: Protocol {
    /// Sends to `first` and the peers after it in its cell, at most one batch. They were due at
    /// this time. Returns the next peer.
    fn send<C: Clock>(
        &mut self,
        common: &mut Common<C>,
        first: SlotId,
        due: Nanos,
        sink: &mut impl Sink,
    ) -> Option<SlotId>;
    /// Sends what is not in the schedule. Returns whether there was anything.
    fn send_further<C: Clock>(&mut self, _common: &mut Common<C>, _sink: &mut impl Sink) -> bool {
        false
    }
    /// Reads what has arrived, up to a bound. Returns whether that was everything.
    fn receive<C: Clock>(&mut self, common: &mut Common<C>, sink: &mut impl Sink, guest: &mut impl Guest) -> bool;
    /// Decides losses as of a time until which all arrivals were read.
    fn expire<C: Clock>(&mut self, common: &mut Common<C>, as_of: Nanos, sink: &mut impl Sink) {
        while let Some((slot, event)) = common.engine.expire(as_of) {
            sink.event(slot, event);
        }
    }
}

/// Does a turn. Returns its time, and whether everything that has arrived was read.
pub fn turn<C: Clock>(
    protocol: &mut impl Datagrams,
    common: &mut Common<C>,
    sink: &mut impl Sink,
    guest: &mut impl Guest,
) -> (Nanos, bool) {
    let (start, since_last) = common.begin_turn();
    let mut read = None;
    if since_last > STANDSTILL && (0..STANDSTILL_READS_MAX).any(|_| protocol.receive(common, sink, guest)) {
        protocol.expire(common, start, sink);
    }
    // Cells that become due during this loop are left to the next turn. A host that is too slow
    // for its interval must be able to leave the loop.
    while !common.finishing
        && let Some((due, first)) = common.schedule.advance(start)
    {
        let mut next = Some(first);
        while let Some(slot) = next {
            next = protocol.send(common, slot, due, sink);
            // Departures and, on a short path, replies are already there: they are read
            // before more is sent.
            let as_of = common.clock.now();
            read = Some((as_of, protocol.receive(common, sink, guest)));
        }
    }
    if protocol.send_further(common, sink) {
        let as_of = common.clock.now();
        read = Some((as_of, protocol.receive(common, sink, guest)));
    }
    common.report_skipped(sink);
    let (as_of, drained) = read.unwrap_or_else(|| (start, protocol.receive(common, sink, guest)));
    if drained {
        protocol.expire(common, as_of, sink);
    }
    (start, drained)
}
