//! Attempts at checks, instead of probes of hosts.
//!
//! The trap: an attempt may take longer than the interval. A target has one attempt in progress, so
//! at most as many are in progress as there are targets.

mod lines;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use kube_canary_model::check::{CheckFailure, CheckPhase};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, sleep_until};

use super::outbox::PingOutbox;
use super::output::PingForm;
use super::rtts::Rtts;
use super::{IDLE, PingError, WRITE, unless_reader_is_gone};
use crate::checks::{
    AddressQuestions, Attempt, CheckTarget, Context, DnsRecord, Host, Resolution, addresses, attempt, system_dns,
};
use crate::commands::fleet::ask;
use crate::config::{PingChecks, PingSettings};
use crate::discovery::dns::AddressFamily;
use crate::sys::console::WRITE_RETRY;
use crate::sys::error::system;
use crate::sys::stop::StopOrEof;
use crate::sys::terminal::Terminal;
use crate::units::Nanos;

/// A target, and what has been found there.
struct TriedTarget {
    /// The name in the form of the output.
    name: String,
    target: CheckTarget,
    tally: AttemptCounters,
    /// When the next attempt may begin.
    due: Instant,
    /// Number of attempts that have begun.
    begun: u64,
    in_progress: bool,
    /// What the servers of the DNS have said, if the target is one.
    questions: AddressQuestions,
}

/// Counters of one target: `tried = good + failed`. An attempt that has not ended is in none.
#[derive(Debug, Default)]
struct AttemptCounters {
    good: u64,
    failed: u64,
    /// The times of good attempts.
    times: Rtts,
}

/// What all attempts need.
struct Plan {
    checks: PingChecks,
    /// The servers of resolv.conf.
    dns: Vec<SocketAddr>,
    /// The addresses of each target whose host is a node.
    nodes: Vec<Vec<IpAddr>>,
}

/// An attempt that has ended.
struct EndedAttempt {
    /// The place of its target.
    place: usize,
    /// Its number, counted from 0.
    number: u64,
    /// Where it went. `None` if the host has no address.
    to: Option<SocketAddr>,
    /// Number of addresses that are tried in turn.
    addresses: usize,
    found: Attempt,
}

struct Attempts {
    plan: Rc<Plan>,
    form: PingForm,
    targets: Vec<TriedTarget>,
    in_progress: JoinSet<EndedAttempt>,
    interval: Duration,
    /// Number of attempts per target.
    count: Option<u64>,
    /// No attempt has a line.
    quiet: bool,
    outbox: PingOutbox,
}

/// Makes attempts at the targets until each has had its number of them, a signal arrives, or the
/// reader of the output is gone. Returns whether every target has answered at least once.
///
/// # Errors
/// [`PingError`] if ping cannot start or continue.
pub async fn serve(settings: &PingSettings, checks: &PingChecks) -> Result<bool, PingError> {
    let mut stop = StopOrEof::new(settings.until_eof).map_err(system("handle signals"))?;
    let nodes = tokio::select! {
        nodes = addresses_of_nodes(settings, checks) => nodes,
        () = stop.asked() => return Ok(false),
    };
    let mut attempts = Attempts::new(settings, checks, nodes)?;
    let done = LocalSet::new().run_until(attempts.run(&mut stop)).await;
    unless_reader_is_gone(done.and_then(|()| attempts.end()))?;
    Ok(attempts.targets.iter().all(|target| target.tally.good > 0))
}

/// Returns the addresses of each target whose host is a node that the agent beside the command
/// lists, and none of any other.
async fn addresses_of_nodes(settings: &PingSettings, checks: &PingChecks) -> Vec<Vec<IpAddr>> {
    let mut found = Vec::with_capacity(checks.targets.len());
    for check in &checks.targets {
        found.push(match check.target.host() {
            Some((Host::Name(name), _)) => ask::node_addresses(&settings.own, name, AddressFamily::Any).await,
            _ => Vec::new(),
        });
    }
    found
}

impl Attempts {
    fn new(settings: &PingSettings, checks: &PingChecks, nodes: Vec<Vec<IpAddr>>) -> Result<Self, PingError> {
        let asks_system = |target: &CheckTarget| matches!(target, CheckTarget::Dns { server: None, .. });
        let dns = if checks.targets.iter().any(|check| asks_system(&check.target)) {
            system_dns().map_err(system("read /etc/resolv.conf"))?.servers
        } else {
            Vec::new()
        };
        let form = if settings.json { PingForm::Json } else { PingForm::Text(Terminal::stdout(settings.colours)) };
        let mut outbox = PingOutbox::stdout().map_err(system(WRITE))?;
        lines::heading(&mut outbox.text, form, checks.targets.len(), settings.interval);
        // The attempts are spread over the interval, as probes are.
        let apart = settings.interval / u32::try_from(checks.targets.len()).unwrap_or(u32::MAX).max(1);
        let (begin, places) = (Instant::now(), 0_u32..);
        let targets = checks.targets.iter().zip(places).map(|(check, place)| TriedTarget {
            name: lines::name(form, check),
            target: check.target.clone(),
            tally: AttemptCounters::default(),
            due: begin + apart * place,
            begun: 0,
            in_progress: false,
            questions: AddressQuestions::default(),
        });
        Ok(Self {
            targets: targets.collect(),
            plan: Rc::new(Plan { checks: checks.clone(), dns, nodes }),
            form,
            in_progress: JoinSet::new(),
            interval: settings.interval,
            count: settings.count,
            quiet: settings.quiet,
            outbox,
        })
    }

    async fn run(&mut self, stop: &mut StopOrEof) -> Result<(), PingError> {
        loop {
            // If the output is stuck, results must not pile up.
            let next = if self.outbox.is_full() { None } else { self.begin() };
            let passed_on = self.outbox.pass_on().map_err(system(WRITE))?;
            let is_full = self.outbox.is_full();
            if next.is_none() && !is_full && self.in_progress.is_empty() {
                return Ok(());
            }
            let wake = next.unwrap_or_else(|| Instant::now() + IDLE.into());
            tokio::select! {
                () = stop.asked() => return Ok(()),
                Some(ended) = self.in_progress.join_next() => {
                    self.record(ended.map_err(|error| system("end an attempt")(io::Error::other(error)))?);
                }
                () = sleep_until(wake), if !is_full => {}
                () = sleep(WRITE_RETRY), if !passed_on => {}
            }
        }
    }

    /// Begins the attempts that are due. Returns when the next one is, unless each target with
    /// attempts left has one in progress.
    fn begin(&mut self) -> Option<Instant> {
        let now = Instant::now();
        for (place, target) in self.targets.iter_mut().enumerate() {
            if target.is_waiting(self.count) && target.due <= now {
                let (plan, number, check) = (Rc::clone(&self.plan), target.begun, target.target.clone());
                self.in_progress.spawn_local(async move { plan.attempt(place, number, &check).await });
                target.in_progress = true;
                target.begun += 1;
                // An attempt that is too late moves those behind it.
                target.due = (target.due + self.interval).max(now);
            }
        }
        self.targets.iter().filter(|target| target.is_waiting(self.count)).map(|target| target.due).min()
    }

    fn record(&mut self, mut ended: EndedAttempt) {
        let Some(target) = self.targets.get_mut(ended.place) else { return };
        target.in_progress = false;
        if matches!(target.target, CheckTarget::Dns { .. } | CheckTarget::ClusterDns) {
            let (round, server) = in_turn(ended.number, ended.addresses);
            target.questions.settle(server, record(round), &mut ended.found);
        }
        target.tally.record(&ended.found);
        if !self.quiet {
            lines::attempt(&mut self.outbox.text, self.form, &target.name, &ended);
        }
    }

    fn end(&mut self) -> Result<(), PingError> {
        let tallies = self.targets.iter().map(|target| (&*target.name, &target.tally));
        lines::summary(&mut self.outbox.text, self.form, tallies);
        Ok(self.outbox.finish().map_err(system(WRITE))?)
    }
}

impl TriedTarget {
    /// Whether only time is missing until its next attempt.
    fn is_waiting(&self, count: Option<u64>) -> bool {
        !self.in_progress && count.is_none_or(|count| self.begun < count)
    }
}

impl AttemptCounters {
    fn record(&mut self, found: &Attempt) {
        if found.end.is_ok() {
            self.good += 1;
            self.times.add(time(found));
        } else {
            self.failed += 1;
        }
    }
}

/// Returns the time of an attempt: of all its phases that have ended.
fn time(found: &Attempt) -> Nanos {
    Nanos(found.phases.iter().flatten().fold(0, |sum, phase| sum.saturating_add(phase.0)))
}

impl Plan {
    async fn attempt(&self, place: usize, number: u64, target: &CheckTarget) -> EndedAttempt {
        let mut ended = EndedAttempt { place, number, to: None, addresses: 1, found: Attempt::default() };
        let (servers, resolve_time) = match self.servers(place, target).await {
            Ok(found) => found,
            Err(failure) => {
                ended.found.end = Err(failure);
                return ended;
            }
        };
        ended.addresses = servers.len();
        let (round, at) = in_turn(number, servers.len());
        let Some(to) = servers.get(at) else {
            ended.found.end = Err(CheckFailure::Unresolved);
            return ended;
        };
        ended.to = Some(*to);
        let context = Context {
            own_node: "",
            authorities: self.checks.authorities.as_deref(),
            cluster_name: "",
            record: record(round),
        };
        ended.found = attempt(target, *to, &context).await;
        ended.found.phases[CheckPhase::Resolve as usize] = resolve_time;
        ended
    }

    /// Returns where a target may be tried, and how long it took to resolve its name.
    async fn servers(
        &self,
        place: usize,
        target: &CheckTarget,
    ) -> Result<(Vec<SocketAddr>, Option<Nanos>), CheckFailure> {
        let Some((host, port)) = target.host() else {
            return Ok(match target {
                CheckTarget::Dns { server: Some(server), .. } => (vec![*server], None),
                _ => (self.dns.clone(), None),
            });
        };
        if let Some(node) = self.nodes.get(place).filter(|node| !node.is_empty()) {
            return Ok((node.iter().map(|address| (*address, port).into()).collect(), None));
        }
        let Resolution { addresses, time } = addresses(host).await;
        Ok((addresses?.into_iter().map(|address| (address, port).into()).collect(), time))
    }
}

/// Returns what a server of the DNS is asked for in a round. Each is asked for both, as by an
/// agent.
const fn record(round: u64) -> DnsRecord {
    if round.is_multiple_of(2) { DnsRecord::A } else { DnsRecord::Aaaa }
}

/// Returns the round of an attempt, and which of the addresses it is made at.
fn in_turn(number: u64, addresses: usize) -> (u64, usize) {
    let addresses = addresses.max(1) as u64;
    (number / addresses, usize::try_from(number % addresses).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn plan(dns: &[&str]) -> Plan {
        let checks = PingChecks { targets: Vec::new(), authorities: None };
        let dns = dns.iter().map(|server| server.parse().unwrap()).collect();
        Plan { checks, dns, nodes: vec![Vec::new(), vec![[10, 0, 0, 9].into()]] }
    }

    fn target(text: &str) -> CheckTarget {
        text.parse::<crate::checks::CheckSpec>().unwrap().target
    }

    #[test]
    fn addresses_take_turns() {
        let turns: Vec<_> = (0..5).map(|number| in_turn(number, 2)).collect();
        assert_eq!(turns, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]);
        assert_eq!(in_turn(3, 0), (3, 0));
    }

    #[tokio::test]
    async fn each_target_has_its_servers() {
        let plan = plan(&["10.0.0.1:53", "10.0.0.2:53"]);
        for (place, text, expected) in [
            (0, "dns:a", "[10.0.0.1:53, 10.0.0.2:53]"),
            (0, "dns:a@10.0.0.3:54", "[10.0.0.3:54]"),
            (0, "tcp:10.0.0.4:5", "[10.0.0.4:5]"),
            (1, "tcp:node3:5", "[10.0.0.9:5]"),
        ] {
            let (servers, time) = plan.servers(place, &target(text)).await.unwrap();
            assert_eq!((format!("{servers:?}").as_str(), time), (expected, None));
        }
        let none = Plan { dns: Vec::new(), ..plan }.attempt(0, 0, &target("dns:a")).await;
        assert_eq!((none.to, none.found.end), (None, Err(CheckFailure::Unresolved)));
    }

    #[tokio::test]
    async fn an_attempt_ends_with_its_address_and_its_phases() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let plan = plan(&[]);
        let good = plan.attempt(3, 7, &target(&format!("tcp:{to}"))).await;
        assert_eq!((good.place, good.number, good.to, good.addresses), (3, 7, Some(to), 1));
        assert_eq!(
            (good.found.end, good.found.phases.map(|time| time.is_some())),
            (Ok(()), [false, true, false, false])
        );
        let mut tally = AttemptCounters::default();
        tally.record(&good.found);
        tally.record(&Attempt { end: Err(CheckFailure::Timeout), ..Attempt::default() });
        assert_eq!((tally.good, tally.failed), (1, 1));
        assert_eq!(tally.times.quantiles().unwrap().max, time(&good.found));
    }
}
