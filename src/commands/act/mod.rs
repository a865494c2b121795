//! `kube-canary act`: what the judges agree on becomes Events, messages and conditions of nodes.
//!
//! ```text
//! three agents ─► agreement ─► notices ───► Events, messages ─► outbox ─► post
//!                         └──► conditions ─► patches of nodes/status
//! ```
//!
//! `agreement`, `notices`, `conditions`, `lease`, `objects`, `messages` and `outbox` decide, and do
//! no I/O. `asking`, `cluster` and `post` do, and this file joins them ([ADR
//! 33](../../../docs/adr/0033-act.md)).
//!
//! The traps: an agent, a judge or a process may be wrong or gone at any moment, and a node that is
//! taken out of service for nothing costs more than one that is found late.

mod agreement;
mod asking;
mod cluster;
mod conditions;
mod lease;
mod messages;
mod metrics;
mod notices;
mod objects;
mod outbox;
mod post;
mod state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use self::agreement::agreement;
use self::asking::AgentList;
use self::cluster::{Cluster, ClusterError, MEMORY_BYTES_MAX};
use self::lease::Election;
use self::metrics::{ActMetrics, ActRoutes};
use self::notices::{Notice, Phase, occurrence};
use self::post::DeliveryOutcome;
use self::state::ActState;
use crate::commands::doctor::act::{ConditionMode, NODES_MAX};
use crate::commands::fleet::on_event_loop;
use crate::config::ActSettings;
use crate::http::{Hosts, ServeError, Server};
use crate::sys::clock;
use crate::sys::error::{SystemError, system};
use crate::sys::stop::Stop;
use crate::{allocator, logging};

/// Patches of conditions in a round, at five a second.
const PATCHES_PER_ROUND: usize = 20;
/// How often the Lease is renewed if there is nothing new to remember.
const RENEWAL: Duration = Duration::from_secs(10);
/// How often the names of all nodes are asked for.
const NAMES: Duration = Duration::from_mins(5);
/// Agents that are asked for them before conditions are taken back.
const NAMES_ATTEMPTS: usize = 5;
/// Longest time that the end may take.
const END_TIME: Duration = Duration::from_secs(1);
/// Time for which a refused object is left out.
const REFUSED_FOR: Duration = Duration::from_mins(1);
/// Notices that wait for a receiver's task, beside those in its outbox.
const NOTICES_MAX: usize = 64;

/// The reason why act ends.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// An event loop or a signal handler failed.
    #[error(transparent)]
    System(#[from] SystemError),
    /// Metrics cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Conditions cannot be taken back.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Another process writes the Lease.
    #[error("the Lease is written by another process; try again")]
    Lease,
    /// No agent tells which nodes there are.
    #[error("no agent tells the names of nodes; the conditions that are known are taken back")]
    Names,
}

/// Acts until a signal, or takes back all conditions.
///
/// # Errors
/// [`ActError`]
// This is separate from the agent's own code, which stays resident. If it were inlined, it would
// stay resident, too.
#[inline(never)]
pub fn run(settings: &ActSettings) -> Result<(), ActError> {
    logging::start(settings.log_level, settings.log_format);
    on_event_loop(async {
        if settings.remove {
            return remove(settings).await;
        }
        let mut stop = Stop::new().map_err(system("handle signals"))?;
        run_until(settings, stop.asked()).await
    })
}

/// Runs until `stopped`, and serves metrics.
///
/// # Errors
/// [`ActError::Serve`]
pub async fn run_until(settings: &ActSettings, stopped: impl Future<Output = ()>) -> Result<(), ActError> {
    let metrics = Arc::new(ActMetrics::default());
    {
        let mut numbers = metrics.lock();
        numbers.started = u32::try_from(clock::realtime().as_secs()).unwrap_or(u32::MAX);
        numbers.mode = match settings.conditions {
            None => ConditionMode::Off,
            Some(rules) if rules.dry_run => ConditionMode::DryRun,
            Some(_) => ConditionMode::On,
        };
    }
    let server =
        Server::bind(settings.listen)?.only_for(Hosts::new([])).start(1, Arc::new(ActRoutes(Arc::clone(&metrics))))?;
    log::info!("metrics at http://{}/metrics", server.local_addr());
    allocator::mark_baseline();
    let mut actor = Actor::new(settings, metrics);
    {
        let mut rounds = interval(settings.round);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped = pin!(stopped);
        loop {
            // A round that is dropped has done nothing by halves: what the API server has accepted
            // and the process has not noted is done again, to the same effect.
            let round = async {
                rounds.tick().await;
                actor.round().await;
                actor.cluster.mapped.give_back();
            };
            tokio::select! {
                () = round => {}
                () = &mut stopped => break,
            }
        }
    }
    // If the API server is silent, the Lease ends by itself.
    _ = timeout(END_TIME, actor.end()).await;
    Ok(())
}

/// Takes back the conditions of all nodes that agents or the memory name.
async fn remove(settings: &ActSettings) -> Result<(), ActError> {
    let (mut cluster, start) = (Cluster::new(&settings.kubernetes), Instant::now());
    // Another name than that of the process that acts, which may be in the same pod.
    let mut election = Election::taking(format!("{}-remove", settings.holder));
    let memory = cluster.lead(&mut election, None, start.elapsed()).await?.ok_or(ActError::Lease)?;
    let claimed = ActState::claimed_in(&memory);
    // The process that held the Lease may act until then.
    sleep(lease::TRUST).await;
    let mut agents = AgentList::new(settings.agents.clone());
    let mut names = None;
    for _ in 0..NAMES_ATTEMPTS {
        names = match names {
            None => agents.names().await,
            found => found,
        };
    }
    let are_known = names.is_some();
    let mut nodes = names.unwrap_or_default();
    nodes.extend(claimed);
    let mut refused = None;
    for (done, node) in nodes.iter().enumerate() {
        // No other process may set one before the end. 25 patches take 5 s.
        if done % 25 == 0 {
            cluster.lead(&mut election, Some(&memory), start.elapsed()).await?;
        }
        match cluster.apply(node, None).await {
            Err(error) if error.is_of_object => {
                log::warn!("{node}: {error}");
                refused = Some(error);
            }
            applied => applied?,
        }
    }
    if let Some(error) = refused {
        return Err(error.into());
    }
    cluster.lead(&mut election, Some(&ActState::without_conditions(&memory)), start.elapsed()).await?;
    log::info!("conditions of {} nodes are taken back", nodes.len());
    if are_known { Ok(()) } else { Err(ActError::Names) }
}

/// Logs and counts a failure of the API server.
fn noted<T>(metrics: &ActMetrics, result: Result<T, ClusterError>) -> Option<T> {
    let failed = |error: &ClusterError| {
        log::warn!("{error}");
        metrics.lock().failures += 1;
    };
    result.inspect_err(failed).ok()
}

/// Objects that the API server has refused, by their names, and when. They are left out for
/// [`REFUSED_FOR`], so that they keep no other object from its turn.
#[derive(Debug, Default)]
struct RefusedObjects(HashMap<String, Duration>);

impl RefusedObjects {
    fn has(&self, object: &str, now: Duration) -> bool {
        self.0.get(object).is_some_and(|at| now.saturating_sub(*at) < REFUSED_FOR)
    }

    /// Takes the result of a request about an object. Returns what it has brought; `None` if the
    /// object is refused.
    ///
    /// # Errors
    /// The API server does nothing now.
    fn take<T>(
        &mut self,
        object: &str,
        now: Duration,
        result: Result<T, ClusterError>,
        metrics: &ActMetrics,
    ) -> Result<Option<T>, ()> {
        let is_of_object = result.as_ref().is_err_and(|error| error.is_of_object);
        let done = noted(metrics, result);
        if is_of_object {
            self.0.retain(|_, at| now.saturating_sub(*at) < REFUSED_FOR);
            self.0.insert(object.to_owned(), now);
        }
        if done.is_some() || is_of_object { Ok(done) } else { Err(()) }
    }
}

/// One process, and what it knows.
struct Actor<'a> {
    settings: &'a ActSettings,
    start: Instant,
    metrics: Arc<ActMetrics>,
    agents: AgentList,
    cluster: Cluster,
    election: Election,
    /// `None` while another process acts.
    state: Option<ActState>,
    /// The memory that the Lease has, and when it was written.
    written: (String, Duration),
    last_round: Duration,
    names_at: Option<Duration>,
    receivers: Vec<mpsc::Sender<Notice>>,
    outcomes: mpsc::Receiver<DeliveryOutcome>,
    /// By occurrence, the number of receivers that have not taken the message of its end.
    untold: HashMap<String, usize>,
    /// Nodes that are refused to be read, or to get a condition.
    refused_nodes: RefusedObjects,
    /// Occurrences whose Events are refused.
    refused_events: RefusedObjects,
}

impl<'a> Actor<'a> {
    /// Makes a process, with a task for each receiver.
    fn new(settings: &'a ActSettings, metrics: Arc<ActMetrics>) -> Self {
        let (sender, outcomes) = mpsc::channel(NOTICES_MAX);
        let receivers = settings.receivers.iter().map(|receiver| {
            let (notices, taken) = mpsc::channel(NOTICES_MAX);
            tokio::spawn(post::deliver(receiver.clone(), settings.authorities.clone(), taken, sender.clone()));
            notices
        });
        Self {
            receivers: receivers.collect(),
            settings,
            start: Instant::now(),
            metrics,
            agents: AgentList::new(settings.agents.clone()),
            cluster: Cluster::new(&settings.kubernetes),
            election: Election::new(settings.holder.clone()),
            state: None,
            written: (String::new(), Duration::ZERO),
            last_round: Duration::ZERO,
            names_at: None,
            outcomes,
            untold: HashMap::new(),
            refused_nodes: RefusedObjects::default(),
            refused_events: RefusedObjects::default(),
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Does one round: asks, decides, renews the Lease, and acts.
    async fn round(&mut self) {
        if self.state.is_none() {
            self.stand_by().await;
        }
        if self.state.is_some() {
            self.hear().await;
            // What asks agents is other code than what asks the API server.
            self.cluster.mapped.give_back();
            self.read_nodes().await;
            self.keep_lease().await;
        }
        if self.state.is_some() {
            self.write_events().await;
            self.send_messages();
            self.patch_conditions().await;
        }
        self.count();
    }

    /// Takes the Lease, if no process holds it.
    async fn stand_by(&mut self) {
        let now = self.now();
        let taken = self.cluster.lead(&mut self.election, None, now).await;
        if let Some(Some(memory)) = noted(&self.metrics, taken) {
            log::info!("this process acts now");
            self.state = Some(ActState::restored(&memory, self.settings.conditions));
            (self.written, self.last_round, self.names_at) = ((memory, now), now, None);
            self.untold.clear();
        }
    }

    async fn hear(&mut self) {
        let said = self.agents.verdicts().await;
        let now = self.now();
        // Time in which this process did not run is no time in which a verdict held.
        let elapsed = now.saturating_sub(self.last_round).min(2 * self.settings.round);
        self.last_round = now;
        let Some(state) = &mut self.state else { return };
        match agreement(said) {
            Some(agreed) => state.hear(&agreed, elapsed, clock::realtime().as_secs()),
            None => state.hear_nothing(elapsed),
        }
        let are_due = self.names_at.is_none_or(|at| now.saturating_sub(at) >= NAMES);
        if self.settings.conditions.is_some()
            && are_due
            && let Some(names) = self.agents.names().await
        {
            self.names_at = Some(now);
            state.conditions.take_names(names);
        }
    }

    async fn read_nodes(&mut self) {
        let now = self.now();
        let Self { state: Some(state), cluster, metrics, refused_nodes, .. } = self else { return };
        for name in state.conditions.to_read(now, |name| refused_nodes.has(name, now)) {
            let read = cluster.node(&name).await;
            let Ok(facts) = refused_nodes.take(&name, now, read, metrics) else { return };
            if let Some(facts) = facts {
                state.conditions.learn(&name, facts, now);
            }
        }
    }

    /// Renews the Lease with what must be remembered, before anything is done. Stops to act if
    /// another process has it.
    async fn keep_lease(&mut self) {
        let (now, memory) = (self.now(), self.state.as_ref().map_or_else(String::new, ActState::memory));
        let (written, at) = &self.written;
        if *written != memory || now.saturating_sub(*at) >= RENEWAL || !self.election.leads(now) {
            if memory.len() > MEMORY_BYTES_MAX {
                log::warn!("the Lease has no room for what this process must remember: {} bytes", memory.len());
            }
            let renewed = self.cluster.lead(&mut self.election, Some(&memory), now).await;
            if noted(&self.metrics, renewed).is_some() && self.election.leads(now) {
                self.written = (memory, now);
            }
        }
        if !self.election.leads(self.now()) {
            log::warn!("this process does not hold the Lease, and does not act");
            self.state = None;
        }
    }

    async fn write_events(&mut self) {
        let now = self.now();
        let Self { state: Some(state), cluster, metrics, election, refused_events, .. } = self else { return };
        for (occurrence, note) in state.notices.events(now, |occurrence| refused_events.has(occurrence, now)) {
            let written = cluster.event(&note, election.holder()).await;
            let Ok(written) = refused_events.take(&occurrence, now, written, metrics) else { return };
            if written.is_some() {
                state.notices.event_accepted(&occurrence, now);
                metrics.lock().events += 1;
            }
        }
    }

    /// Passes messages to the receivers, and takes what has become of earlier ones.
    fn send_messages(&mut self) {
        let now = self.now();
        let Some(state) = &mut self.state else { return };
        for notice in state.messages(now) {
            let mut waiting = 0;
            for receiver in &self.receivers {
                // A receiver that takes nothing has lost it, as if its outbox had.
                waiting += usize::from(receiver.try_send(notice.clone()).is_ok());
            }
            if notice.phase == Phase::End {
                self.untold.insert(occurrence(&notice.verdict), waiting);
            }
        }
        while let Ok(DeliveryOutcome { receiver, result, ends }) = self.outcomes.try_recv() {
            *self.metrics.lock().messages.entry((receiver, result)).or_default() += 1;
            if let Some(waiting) = ends.and_then(|ends| self.untold.get_mut(&ends)) {
                *waiting = waiting.saturating_sub(1);
            }
        }
        for (occurrence, _) in self.untold.extract_if(|_, waiting| *waiting == 0) {
            state.notices.delivered(&occurrence);
        }
    }

    async fn patch_conditions(&mut self) {
        let dry_run = self.settings.conditions.is_none_or(|rules| rules.dry_run);
        let now = self.now();
        let Self { state: Some(state), cluster, metrics, election, start, refused_nodes, .. } = self else { return };
        for change in state.conditions.changes(|name| refused_nodes.has(name, now)) {
            if !dry_run {
                // The Lease may end while patches wait for their turn.
                if !election.leads(start.elapsed()) {
                    return;
                }
                let applied = cluster.apply(&change.node, Some(&change)).await;
                match refused_nodes.take(&change.node, now, applied, metrics) {
                    Ok(Some(())) => {}
                    Ok(None) => continue,
                    Err(()) => return,
                }
            }
            let (node, status) = (&change.node, change.status.label());
            let verb = if dry_run { "would be" } else { "is" };
            let why = if change.sentence.is_empty() { "no verdict" } else { &change.sentence };
            log::info!("condition of {node} {verb} {status}: {why}");
            *metrics.lock().changes.entry((status, dry_run)).or_default() += 1;
            state.conditions.accepted(&change, clock::realtime().as_secs());
        }
    }

    /// Sets the numbers to what the round has found.
    fn count(&self) {
        let state = self.state.as_ref();
        let of = |count: fn(&ActState) -> usize| state.map_or(0, count) as u64;
        let mut numbers = self.metrics.lock();
        numbers.leads = state.is_some();
        numbers.is_silent = state.is_some_and(|state| state.notices.is_silent());
        numbers.rounds += u64::from(state.is_some());
        numbers.verdicts = of(|state| state.notices.holding().count());
        numbers.not_false = of(|state| state.conditions.not_false());
        numbers.waiting = of(|state| state.conditions.waiting());
        numbers.requests = self.cluster.requests;
        let mut conditions = state.into_iter().flat_map(|state| state.conditions.accepted_not_false());
        numbers.nodes = conditions.by_ref().take(NODES_MAX).collect();
        numbers.not_listed = conditions.count() as u64;
    }

    /// Ends: gives back the Lease. What is not delivered is in its memory.
    async fn end(mut self) {
        let now = self.now();
        if let Some(memory) = self.state.as_ref().map(ActState::memory) {
            let done = self.cluster.give_back(&mut self.election, &memory, now).await;
            noted(&self.metrics, done);
        }
    }
}
