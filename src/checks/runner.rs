//! Makes the attempts that are due, and passes on what they find.
//!
//! It is one task beside the connections of an HTTP worker. An attempt is a task of its own on the
//! same thread, so one that waits delays no other.
//!
//! The names of targets are resolved again after [`ADDRESSES_KEPT`]. If that fails, the attempt has
//! failed. The Service of the agents is an exception: its address does not change as long as it
//! exists, and a DNS that fails has a check of its own. So its name is resolved rarely as long as
//! the Service answers: a look-up is up to eight questions, and 5,000 agents make many.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube_canary_model::check::{CheckFailure, CheckPhase};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::attempt::{Attempt, Context, attempt};
use super::authorities::AuthoritiesFile;
use super::dns::{AddressQuestions, DnsRecord, SystemDns, addresses, in_domain_of, system_dns};
use super::list::ChecksFile;
use super::schedule::{CheckSchedule, DueAttempt};
use super::target::{CheckSpec, CheckTarget};
use crate::discovery::name_in_reports;
use crate::limits::AGENTS_MAX;
use crate::sys::{clock, settle, wall};
use crate::units::Nanos;

/// Time for which the addresses of a name and the contents of resolv.conf are used.
const ADDRESSES_KEPT: Nanos = Nanos::from_millis(30_000);
/// The same of the Service of the agents, as long as it answers.
const SERVICE_ADDRESS_KEPT: Nanos = Nanos::from_millis(600_000);
/// Nodes of the mesh before the first list: it may be as large as any.
const NODES_MAX: u32 = 5_000;
const _: () = assert!(NODES_MAX as usize == AGENTS_MAX);
/// Answers in a row that say that a Service rewrites our address, from which on it is believed. One
/// backend may lie.
const REWRITTEN: u32 = 2;
/// Least time between two looks at the operator's file. It is looked at when an attempt begins, if
/// one does within this time once more.
const LIST_INTERVAL: Duration = Duration::from_secs(5);

/// Where the results go, and what the checks need to know of the mesh.
pub trait CheckResults {
    /// Takes the list of checks that the places of later results refer to.
    fn replace(&self, specs: &[CheckSpec]);
    /// Takes the result of an attempt, which asked one of `servers` servers.
    fn record(&self, due: DueAttempt, servers: usize, now: Nanos, attempt: &Attempt);
    /// Returns the number of nodes of the mesh. `None` before the first list.
    fn nodes(&self) -> Option<u32>;
}

/// What an agent checks, how often, and its own name.
pub struct CheckPlan {
    /// The list of checks.
    pub list: ChecksFile,
    /// Attempts per second of all agents together at one target.
    pub rate: f64,
    /// The authorities of targets, if they are verified.
    pub authorities: Option<Arc<AuthoritiesFile>>,
    /// The name of this node.
    pub node: String,
}

/// Where a check goes.
#[derive(Clone, Debug, Default)]
struct ServerAddresses {
    /// At most three. Empty if they are not known.
    addresses: Vec<SocketAddr>,
    /// When they were found. `None` if they have to be found first.
    found: Option<Nanos>,
}

impl ServerAddresses {
    fn are_fresh(&self, now: Nanos, kept: Nanos) -> bool {
        self.found.is_some_and(|found| now.since(found) < kept)
    }
}

/// What a task is given.
struct AttemptWork {
    target: CheckTarget,
    servers: ServerAddresses,
    due: DueAttempt,
    record: DnsRecord,
    now: Nanos,
    /// How long the addresses are used.
    kept: Nanos,
    shared: Arc<Shared>,
}

/// What all tasks are given.
struct Shared {
    node: String,
    authorities: Option<Arc<AuthoritiesFile>>,
    cluster_name: Option<Box<str>>,
}

/// What a task has found.
struct Done {
    due: DueAttempt,
    record: DnsRecord,
    servers: usize,
    /// Other addresses, if the name was resolved.
    addresses: Option<Vec<SocketAddr>>,
    /// `None` if nothing was tried, because no address is known yet.
    attempt: Option<Attempt>,
}

/// Whether the Service of the agents rewrites the address of this pod, as some networks do. No
/// member of the mesh has that address.
#[derive(Default)]
struct Rewriting {
    /// Answers of other agents in a row that say so.
    in_row: u32,
    /// The log says that the check by UDP is off.
    is_told: bool,
}

struct Checks<R> {
    plan: CheckPlan,
    results: R,
    specs: Vec<CheckSpec>,
    servers: Vec<ServerAddresses>,
    /// The questions to the DNS for each check.
    questions: Vec<AddressQuestions>,
    schedule: CheckSchedule,
    tasks: JoinSet<Done>,
    shared: Arc<Shared>,
    /// The log says that the default check of the DNS is off.
    is_told_off: bool,
    /// The log says that a Service has no address.
    is_told_unknown: bool,
    rewriting: Rewriting,
    /// The log says that resolv.conf cannot be read.
    is_system_unread: bool,
    /// What resolv.conf said when it was last read.
    system: SystemDns,
    /// When resolv.conf is read next.
    system_due: Nanos,
    /// A list that waits for the attempts in progress.
    next_list: Option<Vec<CheckSpec>>,
}

/// Checks for ever, unless there is nothing to check.
pub async fn run(plan: CheckPlan, results: impl CheckResults) {
    let mut checks = Checks::new(plan, results);
    let mut look_at = Instant::now();
    loop {
        let now = Instant::now();
        if look_at <= now {
            checks.next_list = checks.plan.list.current().or(checks.next_list.take());
            look_at = now + LIST_INTERVAL;
        }
        if checks.tasks.is_empty()
            && let Some(specs) = checks.next_list.take()
        {
            checks.replace(specs);
            if checks.specs.is_empty() && !checks.plan.list.may_change() {
                return;
            }
        }
        let begins = checks.begin();
        if checks.tasks.is_empty() {
            settle::ask();
        }
        let wake = begins.filter(|begins| *begins < look_at + LIST_INTERVAL).unwrap_or(look_at);
        tokio::select! {
            biased;
            Some(done) = checks.tasks.join_next() => checks.end(done.ok()),
            () = sleep_until(wake) => {}
        }
    }
}

impl<R: CheckResults> Checks<R> {
    fn new(plan: CheckPlan, results: R) -> Self {
        let shared = Shared { node: plan.node.clone(), authorities: plan.authorities.clone(), cluster_name: None };
        Self {
            schedule: CheckSchedule::new(name_in_reports(&plan.node), plan.rate),
            plan,
            results,
            specs: Vec::new(),
            servers: Vec::new(),
            questions: Vec::new(),
            tasks: JoinSet::new(),
            shared: Arc::new(shared),
            is_told_off: false,
            is_told_unknown: false,
            rewriting: Rewriting::default(),
            is_system_unread: false,
            system: SystemDns::default(),
            system_due: Nanos(0),
            next_list: None,
        }
    }

    fn replace(&mut self, specs: Vec<CheckSpec>) {
        let place = |spec: &CheckSpec| self.specs.iter().position(|before| before == spec);
        let kept = |spec| place(spec).map(|at| self.servers[at].clone()).unwrap_or_default();
        self.servers = specs.iter().map(kept).collect();
        self.questions = vec![AddressQuestions::default(); specs.len()];
        self.schedule.replace(&specs, clock::monotonic(), name_in_reports);
        self.results.replace(&specs);
        self.specs = specs;
        self.system_due = Nanos(0);
        let names: Vec<&str> = self.specs.iter().map(|spec| &*spec.name).collect();
        log::info!("checks: {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
    }

    /// Returns the number of servers of each check. One without any is not tried.
    fn server_counts(&self) -> Vec<usize> {
        let is_rewritten = self.rewriting.in_row >= REWRITTEN;
        let count = |(spec, servers): (&CheckSpec, &ServerAddresses)| match spec.target.host() {
            // Agents take requests by UDP from the addresses of members alone.
            Some(_) if is_rewritten && matches!(spec.target, CheckTarget::ServiceUdp(_)) => 0,
            // A host whose addresses are not known has one server: whichever is found.
            Some(_) => servers.addresses.len().max(1),
            None => servers.addresses.len(),
        };
        self.specs.iter().zip(&self.servers).map(count).collect()
    }

    /// Begins what is due, and returns when the next attempt is.
    fn begin(&mut self) -> Option<Instant> {
        // A new list waits for the attempts in progress.
        if self.next_list.is_some() {
            return None;
        }
        let (now, nodes) = (clock::monotonic(), self.results.nodes().unwrap_or(NODES_MAX));
        if self.system_due <= now {
            self.system_due = now.plus(ADDRESSES_KEPT);
            self.read_system();
        }
        let counts = self.server_counts();
        while let Some(due) = self.schedule.begin(now, &counts, nodes) {
            let (target, servers) = (self.specs[due.check].target.clone(), self.servers[due.check].clone());
            let record = self.questions[due.check].next(due.server + 1 >= counts[due.check]);
            let is_well = target.is_in_cluster() && !self.schedule.is_failing(due.check);
            let kept = if is_well { SERVICE_ADDRESS_KEPT } else { ADDRESSES_KEPT };
            let work = AttemptWork { target, servers, due, record, now, kept, shared: Arc::clone(&self.shared) };
            self.tasks.spawn_local(async move {
                // A panic of code that reads foreign data ends this attempt alone.
                let failed = Attempt { end: Err(CheckFailure::Other), ..Attempt::default() };
                let failed = Done { due, record, servers: 1, addresses: None, attempt: Some(failed) };
                wall::within(work.run()).await.unwrap_or(failed)
            });
        }
        let next = self.schedule.next(&counts, nodes)?;
        Some(Instant::now() + Duration::from(next.since(now)))
    }

    /// Reads resolv.conf, which names the servers of the DNS.
    fn read_system(&mut self) {
        let asks = |spec: &CheckSpec| matches!(spec.target, CheckTarget::Dns { .. } | CheckTarget::ClusterDns);
        if !self.specs.iter().any(asks) {
            return;
        }
        let system = system_dns();
        if let Err(error) = &system
            && !self.is_system_unread
        {
            log::warn!("checks: /etc/resolv.conf: {error}; what it said last stays");
        }
        self.is_system_unread = system.is_err();
        if let Ok(system) = system {
            self.system = system;
        }
        let SystemDns { servers, cluster_name } = &self.system;
        for (spec, of_check) in self.specs.iter().zip(&mut self.servers) {
            match &spec.target {
                CheckTarget::Dns { server: Some(server), .. } => of_check.addresses = vec![*server],
                CheckTarget::Dns { server: None, .. } => of_check.addresses.clone_from(servers),
                CheckTarget::ClusterDns if cluster_name.is_some() => of_check.addresses.clone_from(servers),
                CheckTarget::ClusterDns => of_check.addresses.clear(),
                _ => {}
            }
        }
        let is_default = |spec: &CheckSpec| spec.target == CheckTarget::ClusterDns;
        if cluster_name.is_none() && !self.is_told_off && self.specs.iter().any(is_default) {
            log::info!("check dns: off, because the search list of /etc/resolv.conf has no domain of a cluster");
        }
        self.is_told_off = cluster_name.is_none();
        if self.shared.cluster_name != *cluster_name {
            let Shared { node, authorities, .. } = &*self.shared;
            let (node, authorities) = (node.clone(), authorities.clone());
            self.shared = Arc::new(Shared { node, authorities, cluster_name: cluster_name.clone() });
        }
    }

    /// Says once that a check is off as long as the address of its Service is not known.
    fn tell_of_unknown(&mut self, check: usize, is_unknown: bool) {
        if is_unknown && !self.is_told_unknown {
            log::info!("check {}: off, until its name has an address", self.specs[check].name);
        }
        self.is_told_unknown |= is_unknown;
    }

    /// Notes what an answer through the Service of the agents says of our address.
    fn note_rewriting(&mut self, attempt: &Attempt) {
        if attempt.end.is_err() || attempt.is_own_answer {
            return;
        }
        let Rewriting { in_row, is_told } = &mut self.rewriting;
        *in_row = if attempt.is_rewritten { in_row.saturating_add(1) } else { 0 };
        let by_udp = |spec: &&CheckSpec| matches!(spec.target, CheckTarget::ServiceUdp(_));
        if *in_row == REWRITTEN
            && !std::mem::replace(is_told, true)
            && let Some(spec) = self.specs.iter().find(by_udp)
        {
            log::info!("check {}: off, because its Service rewrites the address of this pod", spec.name);
        }
    }

    fn end(&mut self, done: Option<Done>) {
        // A task ends without a result only if it is aborted.
        let Some(Done { due, record, servers, addresses, mut attempt }) = done else { return };
        let now = clock::monotonic();
        if let (CheckTarget::Dns { .. } | CheckTarget::ClusterDns, Some(attempt)) =
            (&self.specs[due.check].target, &mut attempt)
        {
            self.questions[due.check].settle(due.server, record, attempt);
        }
        if let (CheckTarget::Service(_), Some(attempt)) = (&self.specs[due.check].target, &attempt) {
            self.note_rewriting(attempt);
        }
        self.tell_of_unknown(due.check, attempt.is_none());
        if let Some(addresses) = addresses {
            self.servers[due.check] = ServerAddresses { addresses, found: Some(now) };
        }
        self.schedule.end(due.check, attempt.as_ref().is_none_or(|attempt| attempt.end.is_err()));
        if let Some(attempt) = attempt {
            self.results.record(due, servers, now, &attempt);
        }
    }
}

impl AttemptWork {
    async fn run(mut self) -> Done {
        let (due, record) = (self.due, self.record);
        let (mut found, mut resolve_time) = (None, None);
        if let Some((host, port)) = self.target.host()
            && !self.servers.are_fresh(self.now, self.kept)
        {
            let is_service = self.target.is_in_cluster();
            let full = is_service.then(|| in_domain_of(host, self.shared.cluster_name.as_deref()));
            let resolution = addresses(full.as_ref().unwrap_or(host)).await;
            resolve_time = resolution.time;
            match resolution.addresses {
                Ok(addresses) => {
                    let all: Vec<SocketAddr> = addresses.iter().map(|address| (*address, port).into()).collect();
                    self.servers.addresses.clone_from(&all);
                    found = Some(all);
                }
                // Its address stays as long as it exists, and the DNS has a check of its own. It is
                // asked again after a while.
                Err(_) if is_service => {
                    resolve_time = None;
                    found = Some(self.servers.addresses.clone());
                }
                Err(failure) => {
                    let attempt = Attempt { end: Err(failure), ..Attempt::default() };
                    return Done { due, record, servers: 1, addresses: None, attempt: Some(attempt) };
                }
            }
        }
        let servers = self.servers.addresses.len();
        let Some(to) = self.servers.addresses.get(due.server % servers.max(1)) else {
            return Done { due, record, servers: 1, addresses: found, attempt: None };
        };
        let context = Context {
            own_node: &self.shared.node,
            authorities: self.shared.authorities.as_deref(),
            cluster_name: self.shared.cluster_name.as_deref().unwrap_or_default(),
            record,
        };
        let mut attempt = attempt(&self.target, *to, &context).await;
        attempt.phases[CheckPhase::Resolve as usize] = resolve_time;
        Done { due, record, servers, addresses: found, attempt: Some(attempt) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ChecksConfig, Host, HostPort};
    use super::*;
    use crate::discovery::{DiscoverySource, StaticConfig};

    struct NoResults;

    impl CheckResults for NoResults {
        fn replace(&self, _: &[CheckSpec]) {}
        fn record(&self, _: DueAttempt, _: usize, _: Nanos, _: &Attempt) {}
        fn nodes(&self) -> Option<u32> {
            None
        }
    }

    #[test]
    fn a_service_that_rewrites_our_address_is_not_asked_by_udp() {
        let host = || HostPort { host: Host::Address([127, 0, 0, 1].into()), port: 1 };
        let targets = [("tcp", CheckTarget::Service(host())), ("udp", CheckTarget::ServiceUdp(host()))];
        let specs = targets.map(|(name, target)| CheckSpec { name: name.into(), target }).to_vec();
        let config = ChecksConfig { specs, file: None, defaults: false, by_udp: true, authorities: None, rate: 50.0 };
        let list = ChecksFile::new(config, &DiscoverySource::Static(StaticConfig::default()));
        let plan = CheckPlan { list, rate: 50.0, authorities: None, node: "own".to_owned() };
        let mut checks = Checks::new(plan, NoResults);
        let specs = checks.plan.list.current().expect("a list");
        checks.replace(specs);
        let answer = |is_rewritten, is_own_answer| Attempt { is_own_answer, is_rewritten, ..Attempt::default() };
        let mut after = |attempt: Attempt| {
            checks.note_rewriting(&attempt);
            checks.server_counts()[1]
        };
        assert_eq!([true, true, false].map(|is_rewritten| after(answer(is_rewritten, false))), [1, 0, 1]);
        assert_eq!([true, false, true, false].map(|is_own| after(answer(true, is_own))), [1, 1, 1, 0]);
        let failed = Attempt { end: Err(CheckFailure::Timeout), ..answer(false, false) };
        assert_eq!([after(failed), after(answer(false, false))], [0, 1], "no answer says nothing");
    }
}
