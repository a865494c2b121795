//! `kube-canary ping`: the agent's prober, sockets and schedule without the agent, for people and for tests.
//!
//! ```text
//! targets ─► prober ─► tally (per target) ─► output ─► outbox (standard output)
//! ```
//!
//! The traps: printing is done after a turn and only as far as the reader takes it, or a slow terminal would become send
//! lag; a target that has had its probes is paused and not stopped, which would withdraw what is under way; the prober
//! tells of a loss without its number, which [`sequences`] knows.

mod outbox;
mod output;
mod rtts;
mod sequences;
mod tally;

use std::io;
use std::net::IpAddr;

use crate::config::{PingSettings, PingTarget};
use crate::discovery::dns::{self, ResolveError};
use crate::limits::PING_OUTPUT_RETRY;
use crate::peers::{Change, Network, SlotId, ZoneId};
use crate::prober::socket::{SocketError, Sockets};
use crate::prober::{self, Clock, Event, MonotonicClock, Pacer, Prober, Sink};
use crate::stop::Stop;
use crate::units::Nanos;
use crate::{allocator, logging, priority};
use outbox::Outbox;
use output::{Form, Label};
use tally::Tally;

/// How long it sleeps at most, where nothing is due.
const IDLE: Nanos = Nanos::from_millis(60_000);

/// How long replies may wait to be read: a line for each is printed then.
const REPLIES_WAIT: Nanos = Nanos::from_millis(125);

/// Why there is no ping, or no more of it.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// No ICMP.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A name without an address.
    #[error("cannot resolve the target {target:?}: {error}; give its address")]
    Resolve {
        /// As typed.
        target: String,
        /// What DNS said.
        error: ResolveError,
    },
    /// The runtime, a signal handler, the timer or standard output.
    #[error("cannot {operation}: {error}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

fn system(operation: &'static str) -> impl Fn(io::Error) -> PingError {
    move |error| PingError::System { operation, error }
}

/// Probes the targets until each has had its number of probes, a signal comes, or nobody reads any more. Gives whether
/// every target has answered in time at least once.
///
/// # Errors
/// [`PingError`].
// Apart from the agent's own code, which stays resident: inlined, it would stay with it.
#[inline(never)]
pub fn run(settings: &PingSettings) -> Result<bool, PingError> {
    // Standard output is for results; a family without a socket shows in those of its targets.
    logging::start(log::LevelFilter::Error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the probe thread's runtime"))?;
    priority::of_probes();
    let done = runtime.block_on(serve(settings));
    runtime.shutdown_background();
    done
}

async fn serve(settings: &PingSettings) -> Result<bool, PingError> {
    let sockets = Sockets::open(settings.payload_bytes, &MonotonicClock)?;
    let mut stop = Stop::new().map_err(system("handle signals"))?;
    allocator::mark_baseline();
    let addresses = tokio::select! {
        addresses = resolve(&settings.targets) => addresses?,
        () = stop.asked() => return Ok(false),
    };
    let mut ping = Ping::new(settings, sockets, &addresses)?;
    match ping.probe(&mut stop).await.and_then(|()| ping.end()) {
        // Nobody reads any more: nothing is left to say.
        Err(PingError::System { error, .. }) if error.kind() == io::ErrorKind::BrokenPipe => {}
        done => done?,
    }
    Ok(ping.book.tallies.iter().all(|tally| tally.received > 0))
}

async fn resolve(targets: &[(String, PingTarget)]) -> Result<Vec<IpAddr>, PingError> {
    let mut addresses = Vec::with_capacity(targets.len());
    for (text, target) in targets {
        addresses.push(match target {
            PingTarget::Address(address) => *address,
            PingTarget::Name(name) => {
                dns::host_address(name).await.map_err(|error| PingError::Resolve { target: text.clone(), error })?
            }
        });
    }
    Ok(addresses)
}

struct Ping {
    prober: Prober<Sockets, MonotonicClock>,
    pacer: Pacer,
    book: Book,
}

/// Where the prober's results go.
struct Book {
    form: Form,
    labels: Vec<Label>,
    tallies: Vec<Tally>,
    outbox: Outbox,
    /// Probes per target.
    count: Option<u64>,
    /// Targets that have had them, since the last turn.
    done: Vec<SlotId>,
    /// Probes under way or still to be sent: what a count waits for.
    targets_left: usize,
    in_flight: u64,
}

impl Ping {
    fn new(settings: &PingSettings, sockets: Sockets, addresses: &[IpAddr]) -> Result<Self, PingError> {
        let form = if settings.json { Form::Json } else { Form::People };
        let names = settings.targets.iter().map(|(text, _)| text);
        let labels: Vec<Label> = names.zip(addresses).map(|(name, address)| Label::new(form, name, *address)).collect();
        let mut outbox = Outbox::stdout().map_err(system(WRITE))?;
        output::heading(&mut outbox.text, settings, &labels);
        let probing = prober::Settings {
            interval: settings.interval.into(),
            timeout: settings.timeout.into(),
            payload_bytes: settings.payload_bytes,
            node: String::new(),
            doubts: false,
            replies_wait: REPLIES_WAIT,
        };
        let mut prober = Prober::new(sockets, MonotonicClock, &probing);
        prober.reserve(addresses.len());
        for (index, &address) in addresses.iter().enumerate() {
            let slot = SlotId::at(index);
            prober.apply(Change::Join { slot });
            prober.apply(Change::Probe {
                slot,
                address,
                zone: ZoneId::UNKNOWN,
                network: Network::Pod,
                terminating: false,
            });
        }
        let book = Book {
            form,
            tallies: labels.iter().map(|_| Tally::default()).collect(),
            targets_left: labels.len(),
            labels,
            outbox,
            count: settings.count,
            done: Vec::new(),
            in_flight: 0,
        };
        Ok(Self { prober, pacer: Pacer::new().map_err(system("make the pacing timer"))?, book })
    }

    async fn probe(&mut self, stop: &mut Stop) -> Result<(), PingError> {
        let mut drained = true;
        loop {
            // Where the output is stuck, results must not pile up: then nothing is sent, and what arrives waits in the
            // socket with the kernel's stamp.
            if !self.book.outbox.is_full() {
                drained = self.prober.turn(&mut self.book);
                self.book.done.drain(..).for_each(|slot| self.prober.pause(slot));
            }
            let passed_on = self.book.outbox.pass_on().map_err(system(WRITE))?;
            if self.book.targets_left == 0 && self.book.in_flight == 0 && drained {
                return Ok(());
            }
            let now = self.prober.clock().now();
            let retry = now.plus(PING_OUTPUT_RETRY.into());
            if self.book.outbox.is_full() {
                tokio::select! {
                    () = tokio::time::sleep(PING_OUTPUT_RETRY) => continue,
                    () = stop.asked() => return Ok(()),
                }
            }
            let latest = match (drained, passed_on) {
                (false, _) => now,
                (true, false) => retry,
                (true, true) => now.plus(IDLE),
            };
            tokio::select! {
                waited = self.pacer.wait(&mut self.prober, latest) => waited.map_err(system("set the pacing timer"))?,
                () = stop.asked() => return Ok(()),
            }
        }
    }

    fn end(&mut self) -> Result<(), PingError> {
        let Book { form, labels, tallies, outbox, .. } = &mut self.book;
        output::summary(&mut outbox.text, *form, labels.iter().zip(tallies.iter()));
        outbox.finish().map_err(system(WRITE))
    }
}

const WRITE: &str = "write to standard output";

impl Book {
    fn book(&mut self, slot: SlotId, event: Event, replied: Option<u16>) {
        let (Some(tally), Some(label)) = (self.tallies.get_mut(slot.index()), self.labels.get(slot.index())) else {
            return;
        };
        let (in_flight, tried) = (tally.in_flight(), tally.tried());
        if let Some((sequence, told)) = tally.book(event, replied) {
            output::told(&mut self.outbox.text, self.form, label, sequence, told);
        }
        self.in_flight = self.in_flight - in_flight + tally.in_flight();
        if tally.tried() > tried && Some(tally.tried()) == self.count {
            self.done.push(slot);
            self.targets_left -= 1;
        }
    }
}

impl Sink for Book {
    fn event(&mut self, slot: SlotId, event: Event) {
        self.book(slot, event, None);
    }

    fn event_of_reply(&mut self, slot: SlotId, sequence: u16, event: Event) {
        self.book(slot, event, Some(sequence));
    }

    fn send_lag(&mut self, _lag: Nanos) {}

    fn read_delay(&mut self, _delay: Nanos) {}

    fn skipped(&mut self, _: u64) {}

    fn unrelated(&mut self) {}
}
