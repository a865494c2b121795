//! `kube-canary run`: joins the stages on the probe thread, and starts the HTTP workers beside it.
//!
//! The calling thread becomes the probe thread. It runs discovery, pacing, sending and receiving on
//! one current-thread runtime, and never waits for a worker. A change of the list needs the
//! directory's write lock. If a worker holds that lock for a frame, the change is tried again some
//! milliseconds later.

mod checks;
mod open;
mod other_nodes;
mod udp_links;
mod unsent;

use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock, RwLock};

use kube_canary_kernel::stack;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use crate::config::RunSettings;
use crate::discovery::{self, MeshFacts, Ourselves, PeerList, Roster, Update, dns};
use crate::exposition::{
    About, AgentMetrics, AgentMetricsConfig, App, Health, HeardStrangers, PeerTraces, SeriesSettings, View, Walks,
};
use crate::http::{Hosts, ServeError, Server};
use crate::limits::{LEAVE_GRACE, PROBES_FINISH_TIME, QUESTIONS_MAX};
use crate::mesh::domains::DomainsFile;
use crate::mesh::{JudgeTimes, MeshRoutes, Times};
use crate::peers::{Directory, Family, OwnNode};
use crate::prober::icmp::IcmpSocketError;
use crate::prober::{Probers, tcp, udp};
use crate::profiling::{Profiling, ProfilingError};
use crate::report::Session;
use crate::statistics::Statistics;
use crate::sys::error::{SystemError, system};
use crate::sys::lacks::Lack;
use crate::sys::settle::{self, MappedFiles};
use crate::sys::stop::Stop;
use crate::sys::{clock, priority, wall};
use crate::units::Nanos;
use crate::{allocator, logging};
use unsent::UnsentLog;

/// The interval of the loop if nothing else is due. Each turn updates the heartbeat and handles the
/// peers that have left the list.
const HOUSEKEEPING: Nanos = Nanos::from_millis(1_000);
/// How long replies may wait for the next turn. With four or more peers and an interval of 1 s,
/// turns are this close together on average, so replies do not wake the thread. The kernel takes
/// the times of replies, and the next scrape is the first to read them.
const REPLIES_WAIT: Nanos = Nanos::from_millis(250);
/// Delay before a list is applied again after it found the directory locked. A worker holds the
/// lock for a frame, about 50 µs. If the worker has lost its CPU, 200 attempts a second cost
/// nothing, and lists arrive at least 100 ms apart.
const LIST_RETRY: Nanos = Nanos::from_millis(5);

/// After this long without a turn, the agent has not served the probes of others: their losses to
/// it say nothing of the network. Without probes, turns are [`HOUSEKEEPING`] apart.
const LISTENING_GAP: Nanos = Nanos::from_millis(2_000);

/// The reason why the agent stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The ICMP sockets could not be opened.
    #[error(transparent)]
    Socket(#[from] IcmpSocketError),
    /// The UDP sockets could not be opened.
    #[error(transparent)]
    Udp(#[from] udp::UdpSocketError),
    /// The listener for TCP handshakes could not be opened.
    #[error(transparent)]
    Tcp(#[from] tcp::ListenError),
    /// The HTTP server could not start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The runtime, a signal handler or the timer.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The heap profile could not start.
    #[error(transparent)]
    Profiling(#[from] ProfilingError),
    /// Two metrics have the same name.
    #[error("cannot register the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Runs the agent until SIGTERM or SIGINT.
///
/// # Errors
/// [`RunError`], if the agent cannot start.
pub fn run(settings: &RunSettings) -> Result<(), RunError> {
    logging::start(settings.log_level, settings.log_format);
    wall::build(|| std::process::abort());
    // tokio makes such a pair for signals, and panics if the kernel refuses it.
    drop(UnixStream::pair().map_err(system("make a socket pair for signals"))?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the probe thread's runtime"))?;
    priority::mark_probe_thread();
    // Discovery is a separate task on this thread, and its futures must stay on this thread. Boxed,
    // because the stack would hold the future twice.
    let done = LocalSet::new().block_on(&runtime, Box::pin(serve(settings)));
    // The set is dropped, and every task with it. None of our tasks blocks, so there is no thread
    // pool to wait for.
    runtime.shutdown_background();
    done
}

async fn serve(settings: &RunSettings) -> Result<(), RunError> {
    let StartedAgent { mut probing, updates, stop, mut profiling, source, server } = start(settings)?;
    let done = probing.run(updates, stop, &mut profiling).await;
    profiling.write_last();

    source.abort();
    server.shutdown();
    log::info!("{}: stopped", settings.node_name);
    done
}

/// All parts of an agent that runs.
struct StartedAgent {
    probing: Box<ProbeLoop>,
    updates: mpsc::Receiver<Update>,
    stop: Stop,
    profiling: Profiling,
    source: JoinHandle<()>,
    server: Server,
}

/// Starts the parts. A function of its own, whose frame does not stay on the stack.
#[inline(never)]
fn start(settings: &RunSettings) -> Result<StartedAgent, RunError> {
    let stop = Stop::new().map_err(system("handle signals"))?;
    let profiling = Profiling::start(settings.heap_profile.clone())?;
    let bound = Server::bind(settings.listen)?;
    let (mut probers, described) = open::probers(settings)?;
    log::info!("{}: {described}; HTTP on {}", settings.node_name, bound.local_addr());
    let (allocator, stats) = allocator::info_and_stats();
    let view = Arc::new(new_view(settings, About { is_member: settings.is_member, ..About::new(&allocator) }));
    view.health.beat(clock::monotonic());
    let of_pod = pod_addresses(settings);
    let build = AgentMetricsConfig {
        allocator: &allocator,
        stats,
        http_workers: settings.http_workers,
        series: settings.series(&of_pod),
    };
    let series = build.series;
    let agent = AgentMetrics::new(&build, bound.stats())?;
    let node_addresses = settings.node_addresses.clone();
    let app = App { view: Arc::clone(&view), agent, allocator, node_addresses };
    let http_port = bound.local_addr().port();
    let domains = settings.domains_file.clone().map(DomainsFile::new);
    if !settings.is_member {
        log::info!("{}: no member of the mesh, which is probed from outside", settings.node_name);
    }
    let judge = settings.may_judge.then(JudgeTimes::default);
    let routes = MeshRoutes::new(app, http_port, Times::default(), domains, judge);
    let routes =
        checks::AgentRoutes::new(routes, Arc::clone(&view), settings.checks.clone(), settings.discovery.clone());
    let bound = bound.only_for(hosts(settings));
    let server = bound.start(settings.http_workers, Arc::new(routes))?;

    if let Some(udp) = &mut probers.udp {
        let wire = udp.wire();
        view.statistics.set_flow_ports(Family::ALL.map(|family| wire.source_ports(family)));
        let listed = |over_ipv6: bool| of_pod.iter().copied().find(move |address| address.is_ipv6() == over_ipv6);
        let addresses = [listed(false), listed(true)].into_iter().flatten();
        let addresses = addresses.filter(|_| !settings.pod_addresses.is_empty()).collect();
        view.strangers.set_own(Session { ssid: udp.ssid(), addresses });
    }
    view.statistics.set_listening_since(clock::monotonic());
    allocator::mark_baseline();
    let (asked, questions) = mpsc::channel(QUESTIONS_MAX);
    let own = OwnNode {
        node: settings.node_name.clone(),
        zone: settings.zone.clone(),
        addresses: own_addresses(settings, &of_pod),
    };
    let probing = Box::new(ProbeLoop::new(settings, own, probers, Arc::clone(&view), asked, series));
    let (found, updates) = mpsc::channel(1);
    let ourselves = Ourselves {
        node: settings.node_name.clone(),
        zone: settings.zone.clone(),
        max_peers: settings.max_peers,
        forget_after: settings.forget_after,
        node_network: settings.node_network,
        addresses: probing.own.addresses.clone(),
        http_port,
        each_second: Arc::clone(&probing.each_second),
    };
    let source = spawn_local(discovery::run(settings.discovery.clone(), ourselves, questions, found));
    Ok(StartedAgent { probing, updates, stop, profiling, source, server })
}

/// Returns what the workers read, without peers.
fn new_view(settings: &RunSettings, about: About) -> View {
    let (methods, timed) = (settings.probes, settings.series(&[]).timed(settings.probes));
    View {
        node: settings.node_name.clone(),
        directory: RwLock::new(Directory::default()),
        statistics: Statistics::for_methods(settings.scale(), settings.interval.into(), methods, timed),
        health: Health::default(),
        about,
        traces: PeerTraces::default(),
        walks: Walks::default(),
        strangers: HeardStrangers::default(),
        later: OnceLock::new(),
    }
}

struct ProbeLoop {
    probers: Probers,
    view: Arc<View>,
    own: OwnNode,
    /// The agents outside of the mesh whose probes are answered.
    outside: Vec<IpAddr>,
    /// How long a peer that has left the list is still probed.
    grace: Nanos,
    forget_after: Nanos,
    /// The channel for doubts about the list.
    asked: mpsc::Sender<IpAddr>,
    /// Set if all nodes are probed, until the first list shows the resulting number of series.
    announced: Option<SeriesSettings>,
    /// A list that waits for the directory's lock.
    pending: Option<PeerList>,
    mesh: MeshFacts,
    /// A roster that waits for the directory's lock.
    roster: Option<Arc<Roster>>,
    housekept: Nanos,
    /// The half of the recent window in which the counts of the reflector were last published.
    heard_half: u32,
    /// When the last turn began.
    turned: Nanos,
    /// Number of slots that may be in use.
    slots: usize,
    /// The slot that is the first to get extra probes in the next second.
    first_extra: usize,
    /// Notified once a second, for the parts of discovery that check something as often.
    each_second: Arc<Notify>,
    /// What of the program is released each second.
    mapped: MappedFiles,
    unsent: UnsentLog,
    /// A warning was logged since the last list that another node answers for a peer.
    told_of_other: bool,
}

impl ProbeLoop {
    fn new(
        settings: &RunSettings,
        own: OwnNode,
        probers: Probers,
        view: Arc<View>,
        asked: mpsc::Sender<IpAddr>,
        series: SeriesSettings,
    ) -> Self {
        view.statistics.set_receive_queue_drops(probers.drops());
        Self {
            probers,
            view,
            own,
            outside: settings.outside.clone(),
            grace: settings.forget_after.min(LEAVE_GRACE).into(),
            forget_after: settings.slots_kept_for().into(),
            asked,
            announced: (settings.max_peers == 0).then_some(series),
            pending: None,
            mesh: MeshFacts::default(),
            roster: None,
            housekept: Nanos(0),
            heard_half: 0,
            turned: clock::monotonic(),
            slots: 0,
            first_extra: 0,
            each_second: Arc::default(),
            mapped: MappedFiles::find(),
            unsent: UnsentLog::new(settings.interval.into(), settings.timeout.into()),
            told_of_other: false,
        }
    }

    async fn run(
        &mut self,
        mut updates: mpsc::Receiver<Update>,
        mut stop: Stop,
        profiling: &mut Profiling,
    ) -> Result<(), RunError> {
        // After a stop request: the time until which probes in flight are awaited.
        let mut end = None;
        let (mut turn_due, mut latest) = (true, Nanos(0));
        loop {
            if std::mem::replace(&mut turn_due, true) {
                let drained = self.turn();
                let list_waits = self.pending.is_some() || self.roster.is_some();
                latest = clock::monotonic().plus(idle_time(drained, list_waits));
            }
            let now = clock::monotonic();
            if end.is_some_and(|end| now >= end || !self.probers.awaits_any()) {
                return Ok(());
            }
            tokio::select! {
                waited = self.probers.wait(end.map_or(latest, |end| end.min(latest))) => {
                    waited.map_err(system("set the pacing timer"))?;
                }
                // No update is read while a list waits, because later updates refer to that list.
                Some(update) = updates.recv(), if self.pending.is_none() => turn_due = self.update(update),
                () = profiling.asked() => profiling.write_numbered(),
                () = stop.asked(), if end.is_none() => {
                    // This comes first, so that no more requests are sent to this agent. HTTP
                    // continues to run: a last scrape finds every probe answered or lost.
                    self.view.health.stop();
                    self.probers.finish();
                    log::info!("{}: stopping", self.own.node);
                    end = Some(now.plus(PROBES_FINISH_TIME.into()));
                }
            }
        }
    }

    /// Applies an update. Returns whether it needs a turn. A confirmation, which may come every
    /// second, does not.
    fn update(&mut self, update: Update) -> bool {
        if matches!(update, Update::List(_) | Update::Confirmed) {
            self.view.health.list_confirmed(clock::monotonic());
        }
        match update {
            Update::List(list) | Update::Amended(list) => self.pending = Some(list),
            Update::Confirmed => return false,
            Update::Mesh(mesh) => {
                self.mesh = mesh;
                if let Some(explorer) = &mut self.probers.explorer {
                    explorer.tracer.set_members(mesh.members);
                }
            }
            Update::Roster(roster) => self.roster = Some(roster),
            Update::Sure(address) | Update::Unsure(address) => self.probers.answered(address),
        }
        true
    }

    /// Does one turn. Returns whether every packet that has arrived is read.
    fn turn(&mut self) -> bool {
        let now = clock::monotonic();
        if now.since(std::mem::replace(&mut self.turned, now)) > LISTENING_GAP {
            self.view.statistics.set_listening_since(now);
        }
        self.view.health.beat(now);
        self.view.statistics.tick(now);
        self.apply(now);
        // The counts of the half that is over leave the reports of both at once.
        let is_due = now.since(self.housekept) >= HOUSEKEEPING;
        if is_due || self.view.statistics.recent_halves().is_some_and(|(.., current)| current != self.heard_half) {
            self.publish_heard(now);
        }
        if is_due {
            self.housekept = now;
            self.forget(now);
            self.serve_udp(now);
            let statistics = &self.view.statistics;
            self.unsent.look(now, |method, family, why| statistics.send_errors_of(method, family, why), unsent::write);
            self.each_second.notify_one();
            self.view.statistics.set_receive_queue_drops(self.probers.drops());
            if self.probers.overran() {
                // Losses to this agent are no evidence then, whichever members they are of.
                self.view.statistics.set_listening_since(now);
            }
            stack::give_back();
        }
        if settle::was_asked() || is_due {
            self.mapped.give_back();
        }
        let drained = self.probers.turn(&mut |method, observation| self.view.statistics.record(method, observation));
        self.displace();
        // If the source is slow or has ended, this does not wait for it.
        self.probers.ask(|address| self.asked.try_send(address).is_ok());
        drained
    }

    fn apply(&mut self, now: Nanos) {
        if self.pending.is_none() && self.roster.is_none() {
            return;
        }
        let Ok(mut directory) = self.view.directory.try_write() else { return };
        if let Some(roster) = self.roster.take() {
            directory.set_roster(roster);
        }
        let Some(list) = self.pending.take() else {
            admit(&mut self.probers, &directory, &self.outside);
            return;
        };
        let applied = directory.apply(list, &self.own, now);
        directory.set_mesh(self.mesh);
        self.probers.reserve(directory.slot_count());
        self.slots = directory.slot_count();
        for change in applied.changes {
            // This happens under the lock, so no scrape sees a slot's old numbers under its new
            // name.
            self.view.statistics.apply(change);
            self.probers.apply(change);
            Self::expect(&mut self.probers, change, &directory);
        }
        self.told_of_other = false;
        admit(&mut self.probers, &directory, &self.outside);
        let statistics = &self.view.statistics;
        let (methods, bounds) = (statistics.methods(), statistics.scale().bounds().as_slice().len());
        let [.., displaced] = directory.nodes();
        let peers = directory.nodes().iter().sum::<usize>();
        let (links, made) = directory.peers().fold((0, 0), |(links, made), (_, peer)| {
            let per_peer = |series: &SeriesSettings| series.series_per_peer(methods, peer.via(), bounds);
            (links + 1, made + self.announced.as_ref().map_or(0, per_peer))
        });
        drop(directory);
        log::info!("{peers} peers");
        if displaced > 0 {
            log::info!("{displaced} of them are not probed: other nodes of the list hold their addresses");
        }
        if peers > 0
            && let Some(series) = self.announced.take()
        {
            let max = series.max;
            log::info!("--max-peers 0 probes all nodes: {links} addresses have {made} series (--max-series {max})");
        }
        if applied.without_slot > 0 {
            log::warn!("{} peers are left out because every slot is taken", applied.without_slot);
        }
    }

    /// Stops probing peers that left some time ago, removes peers that have been away for long,
    /// and compacts the slots.
    fn forget(&mut self, now: Nanos) {
        let is_due = |directory: &Directory| {
            directory.has_stoppable(now, self.grace)
                || directory.has_forgettable(now, self.forget_after)
                || (directory.is_sparse() && self.view.walks.are_over())
        };
        if !self.view.directory.try_read().is_ok_and(|directory| is_due(&directory)) {
            return;
        }
        let Ok(mut directory) = self.view.directory.try_write() else { return };
        for change in directory.stop(now, self.grace) {
            self.view.statistics.apply(change);
            self.probers.apply(change);
        }
        directory.forget(now, self.forget_after);
        if self.view.walks.are_over()
            && let Some(compaction) = directory.compact()
        {
            self.view.statistics.compact(&compaction);
            self.probers.compact(&compaction);
            self.slots = compaction.slots();
        }
    }
}

/// Makes probes by UDP and TCP be answered that come from members, and from these agents outside.
fn admit(probers: &mut Probers, directory: &Directory, outside: &[IpAddr]) {
    let mut admitted = directory.member_addresses();
    admitted.extend_from_slice(outside);
    admitted.sort_unstable();
    admitted.dedup();
    probers.set_members(&admitted);
}

/// The names under which browsers may address the agent: those of the Service,
/// and the configured ones.
fn hosts(settings: &RunSettings) -> Hosts {
    // Without a resolv.conf, names are not completed.
    let search = dns::system().map(|system| system.search).unwrap_or_default();
    Hosts::new(settings.discovery.service_names(&search).into_iter().chain(settings.allow_hosts.iter().cloned()))
}

/// How long the loop may wait if no probe is due. It does not wait while packets are left to read.
/// If a list waits for the directory, the loop tries again soon, but not at once. The worker that
/// holds the lock may need this CPU to release it.
fn idle_time(drained: bool, list_waits: bool) -> Nanos {
    match (drained, list_waits) {
        (false, _) => Nanos(0),
        (true, true) => LIST_RETRY,
        (true, false) => HOUSEKEEPING,
    }
}

/// The addresses that must never be probed: those of the pod ([`pod_addresses`]), the listening
/// address, and those of the node.
fn own_addresses(settings: &RunSettings, of_pod: &[IpAddr]) -> Vec<IpAddr> {
    let mut own = of_pod.to_vec();
    if !settings.listen.ip().is_unspecified() {
        own.push(settings.listen.ip());
    }
    own.extend_from_slice(&settings.node_addresses);
    own
}

/// The addresses of the agent's pod: the configured ones, or else those of the interfaces. On the
/// host network these are the node's addresses.
fn pod_addresses(settings: &RunSettings) -> Vec<IpAddr> {
    let mut own = settings.pod_addresses.clone();
    if own.is_empty() {
        match if_addrs::get_if_addrs() {
            Ok(interfaces) => own.extend(interfaces.iter().map(if_addrs::Interface::ip)),
            Err(error) => Lack::Netlink.log(&error),
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;
    use crate::config::{self, Command};
    use crate::prober::udp::stamp::packet::{REQUEST_BYTES, write_request};
    use crate::prober::udp::stamp::{ErrorEstimate, NtpTime};

    #[test]
    fn a_roster_that_comes_without_a_list_changes_which_members_are_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let line = "run --discovery static --node-name own --listen 127.0.0.1:0 --peer near=127.0.0.2 --probes udp";
            let line = line.split_whitespace().map(Into::into).collect::<Vec<_>>();
            let Ok(Command::Run(settings)) = config::parse(&line, &|_| None) else { panic!("of `run`") };
            let (probers, _) = open::probers(&settings).expect("UDP sockets");
            let port = probers.udp.as_ref().expect("UDP is probed").wire_ref().reflector_port();
            let (allocator, _) = allocator::info_and_stats();
            let view = Arc::new(new_view(&settings, About::new(&allocator)));
            let (asked, _questions) = mpsc::channel(1);
            let mut probing = ProbeLoop::new(&settings, OwnNode::default(), probers, view, asked, settings.series(&[]));
            let far = UdpSocket::bind("127.0.0.3:0").expect("an address of loopback");
            far.set_read_timeout(Some(Duration::from_millis(10))).expect("a time limit");

            let roster = Roster::new(
                [discovery::ListedMember {
                    node: "far",
                    address: IpAddr::from([127, 0, 0, 3]),
                    http_port: None,
                    zone: None,
                }]
                .into_iter(),
                false,
            );
            assert!(probing.update(Update::Roster(Arc::new(roster))));
            let mut request = [0; REQUEST_BYTES];
            write_request(&mut request, 0, 1, NtpTime::from_unix(clock::realtime()), ErrorEstimate::UNKNOWN, &[0; 24]);
            let mut answer = [0; REQUEST_BYTES];
            // A minute at most.
            let is_answered = (0..6_000).any(|_| {
                far.send_to(&request, ("127.0.0.1", port)).expect("loopback takes it");
                probing.turn();
                far.recv(&mut answer).is_ok()
            });
            assert!(is_answered);
        });
    }

    #[test]
    fn the_loop_waits_while_a_list_waits_and_only_packets_keep_it_awake() {
        assert_eq!([(false, false), (false, true)].map(|(drained, waits)| idle_time(drained, waits)), [Nanos(0); 2]);
        assert_eq!(idle_time(true, true), Nanos::from_millis(5));
        assert_eq!(idle_time(true, false), HOUSEKEEPING);
    }
}
