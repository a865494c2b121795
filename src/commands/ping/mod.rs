//! `kube-canary ping`: the agent's prober, sockets and schedule without the agent, for users and
//! for tests.
//!
//! ```text
//! targets ─► probes ─► tally (per target), flows ─► output, paths ─► outbox (standard output)
//! ```
//!
//! Checks as targets have [`attempts`] instead of probes.
//!
//! Traps:
//! - Output is written after a turn, and only as much as the reader accepts. Otherwise a slow
//!   terminal would delay probes.
//! - A target that has had its probes is paused and not stopped: stopping withdraws probes in
//!   flight.
//! - The prober reports a loss without its number; [`sequences`] knows the number.

mod attempts;
mod flows;
mod outbox;
mod output;
mod paths;
mod probes;
mod rtts;
mod sequences;
mod tally;

use std::io;
use std::net::IpAddr;

use crate::commands::fleet::ask;
use crate::config::{Host, PingSettings};
use crate::discovery::dns::{self, ResolveError};
use crate::peers::SlotId;
use crate::prober::icmp::IcmpSocketError;
use crate::prober::udp::UdpSocketError;
use crate::prober::udp::trace::TracedFlow;
use crate::prober::{Clock as _, Event, Flow, MonotonicClock, Observation, Pacer};
use crate::sys::console::WRITE_RETRY;
use crate::sys::error::{SystemError, system};
use crate::sys::priority;
use crate::sys::stop::StopOrEof;
use crate::sys::terminal::Terminal;
use crate::units::Nanos;
use crate::{
    allocator,
    logging::{self, LogFormat},
};
use flows::TargetFlows;
use outbox::PingOutbox;
use output::{PingForm, TargetLabel};
use probes::{Probes, Wires};
use tally::TargetCounters;

/// Longest sleep if nothing is due.
const IDLE: Nanos = Nanos::from_millis(60_000);

/// Longest time that replies may wait to be read; the line of each is printed then.
const REPLIES_WAIT: Nanos = Nanos::from_millis(125);

/// Why ping cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// No ICMP socket is available.
    #[error(transparent)]
    Socket(#[from] IcmpSocketError),
    /// No UDP socket is available.
    #[error(transparent)]
    Udp(#[from] UdpSocketError),
    /// A name has no address.
    #[error("cannot resolve the target {target:?}: {error}; give its address")]
    Resolve {
        /// The target as typed.
        target: String,
        /// The error of DNS.
        error: ResolveError,
    },
    /// The runtime, a signal handler, the timer or standard output failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Probes the targets until each has had its number of probes, a signal arrives, or the reader of
/// the output is gone. With `--until-eof` it ends also when standard input does. Returns whether
/// every target has answered in time at least once.
///
/// # Errors
/// [`PingError`] if ping cannot start or continue.
// It is kept apart from the agent's own code, which stays resident. Inlined, this code
// would stay resident too.
#[inline(never)]
pub fn run(settings: &PingSettings) -> Result<bool, PingError> {
    // Standard output is for results. A family without a socket shows in the
    // results of its targets.
    logging::start(log::LevelFilter::Error, LogFormat::Text);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the probe thread's runtime"))?;
    let done = if let Some(checks) = &settings.checks {
        runtime.block_on(attempts::serve(settings, checks))
    } else {
        priority::mark_probe_thread();
        runtime.block_on(serve(settings))
    };
    runtime.shutdown_background();
    done
}

async fn serve(settings: &PingSettings) -> Result<bool, PingError> {
    let sockets = Wires::open(settings)?;
    let mut stop = StopOrEof::new(settings.until_eof).map_err(system("handle signals"))?;
    allocator::mark_baseline();
    let addresses = tokio::select! {
        addresses = resolve(settings) => addresses?,
        () = stop.asked() => return Ok(false),
    };
    let mut ping = Ping::new(settings, sockets, &addresses)?;
    unless_reader_is_gone(ping.probe(&mut stop).await.and_then(|()| ping.end()))?;
    Ok(ping.results.tallies.iter().all(|tally| tally.received > 0))
}

/// If the reader of the output is gone, no summary is written, and that is no error.
fn unless_reader_is_gone(done: Result<(), PingError>) -> Result<(), PingError> {
    match done {
        Err(PingError::System(SystemError { error, .. })) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

async fn resolve(settings: &PingSettings) -> Result<Vec<IpAddr>, PingError> {
    let mut addresses = Vec::with_capacity(settings.targets.len());
    for (text, target) in &settings.targets {
        match target {
            Host::Address(address) => addresses.push(*address),
            Host::Name(name) => {
                let node_addresses = ask::node_addresses(&settings.own, name, settings.family);
                let found = Box::pin(dns::named_addresses(name, settings.family, node_addresses)).await;
                let found = found.map_err(|error| PingError::Resolve { target: text.clone(), error })?;
                addresses.extend(found.first());
            }
        }
    }
    Ok(addresses)
}

struct Ping {
    probes: Probes,
    pacer: Pacer,
    results: Results,
}

/// The receiver of the prober's results.
struct Results {
    form: PingForm,
    labels: Vec<TargetLabel>,
    tallies: Vec<TargetCounters>,
    /// Losses by source port of each target; empty with ICMP.
    flows: Vec<TargetFlows>,
    /// Flows that have lost their first probe since the last turn.
    losing: Vec<(SlotId, Flow)>,
    outbox: PingOutbox,
    /// Number of probes per target.
    count: Option<u64>,
    /// No probe has a line.
    quiet: bool,
    /// Targets that have had all their probes since the last turn.
    done: Vec<SlotId>,
    /// Targets with probes left to send. With a count, ping waits for these, and for the probes in
    /// flight.
    targets_left: usize,
}

impl Ping {
    fn new(settings: &PingSettings, sockets: Wires, addresses: &[IpAddr]) -> Result<Self, PingError> {
        let form = if settings.json { PingForm::Json } else { PingForm::Text(Terminal::stdout(settings.colours)) };
        let names = settings.targets.iter().map(|(text, _)| text);
        let labels: Vec<TargetLabel> =
            names.zip(addresses).map(|(name, address)| TargetLabel::new(form, name, *address)).collect();
        let mut outbox = PingOutbox::stdout().map_err(system(WRITE))?;
        output::heading(&mut outbox.text, settings, &labels);
        let probes = Probes::new(settings, sockets, addresses);
        let results = Results {
            form,
            tallies: labels.iter().map(|_| TargetCounters::default()).collect(),
            flows: settings
                .udp
                .map(|udp| labels.iter().map(|_| TargetFlows::new(udp.flows)).collect())
                .unwrap_or_default(),
            losing: Vec::new(),
            targets_left: labels.len(),
            labels,
            outbox,
            count: settings.count,
            quiet: settings.quiet,
            done: Vec::new(),
        };
        Ok(Self { probes, pacer: Pacer::new().map_err(system("make the pacing timer"))?, results })
    }

    async fn probe(&mut self, stop: &mut StopOrEof) -> Result<(), PingError> {
        let mut drained = true;
        loop {
            // If the output is stuck, results must not pile up. Then nothing is sent, and replies
            // wait in the socket with the kernel's timestamp.
            if !self.results.outbox.is_full() {
                drained = self.probes.turn(&mut self.results);
                self.results.done.drain(..).for_each(|slot| self.probes.pause(slot));
            }
            let passed_on = self.results.outbox.pass_on().map_err(system(WRITE))?;
            let in_flight = self.results.tallies.iter().any(|tally| tally.in_flight() > 0) || self.probes.is_tracing();
            if self.results.targets_left == 0 && !in_flight && drained {
                return Ok(());
            }
            let now = MonotonicClock.now();
            let retry = now.plus(WRITE_RETRY.into());
            if self.results.outbox.is_full() {
                tokio::select! {
                    () = tokio::time::sleep(WRITE_RETRY) => continue,
                    () = stop.asked() => return Ok(()),
                }
            }
            let latest = match (drained, passed_on) {
                (false, _) => now,
                (true, false) => retry,
                (true, true) => now.plus(IDLE),
            };
            tokio::select! {
                waited = self.probes.wait(&self.pacer, latest) => waited.map_err(system("set the pacing timer"))?,
                () = stop.asked() => return Ok(()),
            }
        }
    }

    fn end(&mut self) -> Result<(), PingError> {
        let Results { form, labels, tallies, flows, outbox, .. } = &mut self.results;
        output::summary(&mut outbox.text, *form, labels.iter().zip(tallies.iter()));
        let port = |index, flow| self.probes.source_port(SlotId::at(index), flow);
        flows::summary(&mut outbox.text, *form, labels, flows, port);
        Ok(outbox.finish().map_err(system(WRITE))?)
    }
}

const WRITE: &str = "write to standard output";

impl Results {
    fn traced(&mut self, trace: &TracedFlow, port: Option<u16>) {
        if let Some(label) = self.labels.get(trace.slot.index()) {
            paths::trace(&mut self.outbox.text, self.form, label, trace, port);
        }
    }

    fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Probe { slot, event, reply } => self.record(slot, event, reply),
            Observation::Flow { slot, flow, answered, .. } => {
                if let Some(flows) = self.flows.get_mut(slot.index())
                    && flows.record(flow, answered)
                {
                    self.losing.push((slot, Flow(flow)));
                }
            }
            _ => {}
        }
    }

    fn record(&mut self, slot: SlotId, event: Event, replied: Option<u16>) {
        let (Some(tally), Some(label)) = (self.tallies.get_mut(slot.index()), self.labels.get(slot.index())) else {
            return;
        };
        let tried = tally.tried();
        if let Some((sequence, outcome)) = tally.record(event, replied)
            && !self.quiet
        {
            output::probe(&mut self.outbox.text, self.form, label, sequence, outcome);
        }
        if tally.tried() > tried && Some(tally.tried()) == self.count {
            self.done.push(slot);
            self.targets_left -= 1;
        }
    }
}
