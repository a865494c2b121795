//! The process-wide metrics. Those of one series are in the prometheus crate's registry. Those with
//! labels, and those that not every agent has, are written by [`super::own`].

use prometheus::core::Collector;
use prometheus::{Counter, Gauge, Registry};

use super::families::{FamilyScope, numbers};
use super::head::FamilyWriter;
use super::memory::{self, MemoryMetrics};
use super::process::{ProcessReading, cpus, start_time};
use super::series::{SeriesSettings, Shown, histogram_series};
use super::throttle::{Throttle, Throttled};
use super::{Format, View, own};
use crate::allocator::{AllocatorInfo, Stats};
use crate::http::ServerStats;
use crate::memory::Footprint;
use crate::peers::{Directory, Method};
use crate::statistics::{EchoCounters, Scale, probe_thread_run_delay};
use crate::sys::descriptors;
use crate::units::Nanos;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long overlapping scrapes share one encoding of the agent's own metrics. Consecutive
/// scrapes never share it.
const HEAD_SHARED_TIME: Nanos = Nanos::from_millis(1_000);

/// The registry and the sources of its metrics. Each scrape brings them up to date.
#[derive(Debug)]
pub struct AgentMetrics {
    registry: Registry,
    counters: Vec<(Counter, Metric)>,
    gauges: Vec<(Gauge, Metric)>,
    allocator: AllocatorInfo,
    stats: Stats,
    cpus: Option<usize>,
    http_workers: usize,
    /// When the process started, since the epoch. It is read once. Computed at every
    /// scrape, it would vary by some microseconds, and a step of the real-time clock would
    /// look like a restart.
    start: Nanos,
    throttle: Option<Throttle>,
    http: Arc<ServerStats>,
    series: SeriesSettings,
    memory: MemoryMetrics,
    encoded: Mutex<Encoded>,
}

/// The sources of a metric's value at a scrape.
struct ScrapeSources<'a> {
    agent: &'a AgentMetrics,
    now: Nanos,
    view: &'a View,
    readings: &'a Readings,
}

/// A function that returns a metric's value. Without one, the scrape leaves the metric out.
type MetricValue = fn(&ScrapeSources<'_>) -> Option<f64>;

/// Name, help text and value of a metric.
type Metric = (&'static str, &'static str, MetricValue);

#[rustfmt::skip]
const COUNTERS: [Metric; 8] = [
    ("kube_canary_probes_skipped_total", "Probes left out because the agent was stopped for longer than an interval.",
        |scrape| count(scrape.view.statistics.skipped())),
    ("kube_canary_replies_unrelated_total", "Echo replies that answer no probe of this agent.",
        |scrape| count(scrape.view.statistics.unrelated())),
    ("kube_canary_receive_queue_drops_total",
        "Packets that the kernel dropped because the agent's receive queue was full.",
        |scrape| count(scrape.view.statistics.receive_queue_drops()?)),
    ("kube_canary_echo_requests_received_total",
        "ICMP and ICMPv6 echo requests received by the agent's network namespace.",
        |scrape| count(scrape.readings.echo?.requests_received)),
    ("kube_canary_echo_replies_sent_total", "ICMP and ICMPv6 echo replies sent by the agent's network namespace.",
        |scrape| count(scrape.readings.echo?.replies_sent)),
    ("kube_canary_http_requests_total", "HTTP requests answered.", |scrape| count(scrape.agent.http.requests_served())),
    ("kube_canary_http_requests_refused_total", "HTTP requests refused with 503 because no permit was free.",
        |scrape| count(scrape.agent.http.requests_refused())),
    ("process_cpu_seconds_total", "User and system CPU time.",
        |scrape| Some(scrape.readings.process.cpu.as_secs_f64())),
];

/// The counter that only some kernels keep.
const RUN_DELAY: Metric = (
    "kube_canary_probe_thread_run_delay_seconds_total",
    "Time that the probe thread was runnable but waited for a CPU.",
    |scrape| scrape.readings.run_delay.map(Nanos::as_secs_f64),
);

/// The counters of a CPU controller.
#[rustfmt::skip]
const THROTTLING: [Metric; 2] = [
    ("kube_canary_cgroup_throttled_periods_total", "Periods in which the agent's cgroup used up its CPU quota.",
        |scrape| count(scrape.readings.throttled?.periods)),
    ("kube_canary_cgroup_throttled_seconds_total",
        "Time for which the agent's cgroup was throttled, added up over CPUs.",
        |scrape| Some(scrape.readings.throttled?.time.as_secs_f64())),
];

#[rustfmt::skip]
const GAUGES: [Metric; 9] = [
    ("kube_canary_cpus", "CPUs of the machine that are online.", |scrape| count(scrape.agent.cpus? as u64)),
    ("kube_canary_http_workers", "HTTP worker threads.", |scrape| count(scrape.agent.http_workers as u64)),
    // Without a list, the age is +Inf: that exceeds the threshold of any alert.
    ("kube_canary_peer_list_age_seconds", "Time since discovery last gave or confirmed the peer list.",
        |scrape| Some(scrape.view.health.list_age(scrape.now).map_or(f64::INFINITY, Nanos::as_secs_f64))),
    ("process_resident_memory_bytes", "Resident memory, from smaps_rollup.",
        |scrape| scrape.readings.resident_bytes.and_then(count)),
    ("process_open_fds", "Open file descriptors.", |scrape| scrape.readings.process.open_descriptors.and_then(count)),
    ("process_max_fds", "Limit on open file descriptors.", |_| count(descriptors::limit())),
    ("process_virtual_memory_bytes", "Virtual memory size.",
        |scrape| scrape.readings.process.virtual_bytes.and_then(count)),
    ("process_start_time_seconds", "Start of the process, in seconds since the epoch.",
        |scrape| Some(scrape.agent.start.as_secs_f64())),
    ("process_threads", "Threads of the process.", |scrape| scrape.readings.process.threads.and_then(count)),
];

#[expect(clippy::unnecessary_wraps, reason = "the result of a `MetricValue`")]
fn count(number: u64) -> Option<f64> {
    Some(number as f64)
}

/// The encoded heads, one for each format. One scrape makes a head; other scrapes may share it.
#[derive(Debug, Default)]
struct Encoded([EncodedHead; Format::ALL.len()]);

impl Encoded {
    /// Returns the head that another scrape is still sending, if it is younger than
    /// `HEAD_SHARED_TIME`.
    fn shared(&mut self, now: Nanos, format: Format) -> Option<(Arc<Vec<u8>>, Shown)> {
        let head = &mut self.0[format as usize];
        let is_shared = Arc::get_mut(&mut head.bytes).is_none() && now.since(head.at) < HEAD_SHARED_TIME;
        is_shared.then(|| (Arc::clone(&head.bytes), head.shown))
    }
}

/// What the kernel's files contain at a scrape. They are read before the lock is taken, because
/// reading can take long. A worker that waited for another worker's reading could answer no request
/// in that time, not even the kubelet's.
#[derive(Debug)]
struct Readings {
    echo: Option<EchoCounters>,
    run_delay: Option<Nanos>,
    resident_bytes: Option<u64>,
    throttled: Option<Throttled>,
    process: ProcessReading,
    memory: Option<Footprint>,
}

/// The agent's own families in one format, the time they were encoded, and which
/// links their scrape shows.
///
/// The buffer is shared between this struct and the scrapes that send it. It is
/// written only while no scrape holds it (`Arc::get_mut`), so one buffer serves
/// scrape after scrape. If slow scrapers still hold an old buffer, it is left to
/// them, and the last of them frees it.
#[derive(Debug, Default)]
struct EncodedHead {
    bytes: Arc<Vec<u8>>,
    shown: Shown,
    at: Nanos,
}

/// Counters that the kernel keeps. They may have counted before the agent started.
const OLDER_COUNTERS: [&str; 4] = [
    "kube_canary_echo_requests_received_total",
    "kube_canary_echo_replies_sent_total",
    "kube_canary_cgroup_throttled_periods_total",
    "kube_canary_cgroup_throttled_seconds_total",
];

/// What is fixed when the agent starts.
#[derive(Debug)]
pub struct AgentMetricsConfig<'a> {
    /// The allocator that runs.
    pub allocator: &'a AllocatorInfo,
    /// The allocator's figures.
    pub stats: Stats,
    /// Number of HTTP worker threads.
    pub http_workers: usize,
    /// Which series of the links are exported.
    pub series: SeriesSettings,
}

/// Registers a metric and returns it.
fn registered<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> Result<M, prometheus::Error> {
    registry.register(Box::new(metric.clone())).map(|()| metric)
}

impl AgentMetrics {
    /// Creates a registry and registers all metrics in it.
    ///
    /// # Errors
    /// Fails only if two metrics share a name. That is a programming error, which
    /// the first test shows.
    pub fn new(build: &AgentMetricsConfig<'_>, http: Arc<ServerStats>) -> Result<Self, prometheus::Error> {
        let (registry, throttle) = (Registry::new(), Throttle::find());
        let run_delay = probe_thread_run_delay().map(|_| RUN_DELAY);
        let counters = COUNTERS.into_iter().chain(run_delay);
        let counters = counters.chain(THROTTLING.into_iter().filter(|_| throttle.is_some()));
        Ok(Self {
            counters: counters
                .map(|metric| Ok((registered(&registry, Counter::new(metric.0, metric.1)?)?, metric)))
                .collect::<Result<_, prometheus::Error>>()?,
            gauges: GAUGES
                .into_iter()
                .map(|metric| Ok((registered(&registry, Gauge::new(metric.0, metric.1)?)?, metric)))
                .collect::<Result<_, prometheus::Error>>()?,
            registry,
            allocator: build.allocator.clone(),
            stats: build.stats,
            cpus: cpus(),
            http_workers: build.http_workers,
            start: start_time(),
            throttle,
            http,
            series: build.series,
            memory: MemoryMetrics::default(),
            encoded: Mutex::default(),
        })
    }

    /// Returns the agent's own metrics at time `now`, encoded, and which series of the links are
    /// exported. They are encoded into the buffer of the scrape before. If other scrapes are still
    /// sending that buffer, this scrape shares it, unless it is too old.
    pub fn encode(&self, now: Nanos, view: &View, format: Format) -> (Arc<Vec<u8>>, Shown) {
        self.encode_with(now, view, format, || self.read(now, view))
    }

    fn encode_with(
        &self,
        now: Nanos,
        view: &View,
        format: Format,
        read: impl FnOnce() -> Readings,
    ) -> (Arc<Vec<u8>>, Shown) {
        let shared = self.lock().shared(now, format);
        if let Some(shared) = shared {
            return shared;
        }
        let readings = read();
        // The update needs the lock, too: two concurrent scrapes must not both add the same
        // difference.
        let mut encoded = self.lock();
        // Another scrape may have encoded these values while this one waited for the lock.
        if let Some(shared) = encoded.shared(now, format) {
            return shared;
        }
        let encoded = &mut encoded.0[format as usize];
        if Arc::get_mut(&mut encoded.bytes).is_none() {
            // Other scrapes still send this buffer, but it is too old to share.
            encoded.bytes = Arc::default();
        }
        let unknown = self.update(now, view, &readings);
        encoded.at = now;
        // No other scrape holds this buffer, or it has just been created, so this does not copy.
        let bytes = Arc::make_mut(&mut encoded.bytes);
        bytes.clear();
        let mut head = FamilyWriter::new(format, view.statistics.created(), bytes);
        for family in self.registry.gather().iter().filter(|family| !unknown.contains(&family.name())) {
            head.collected(family, |name| OLDER_COUNTERS.contains(&name));
        }
        own::write_build(&self.allocator, &mut head);
        own::write_allocator(self.stats, &mut head);
        own::write_api_server(&mut head);
        own::write_totals(&view.statistics, &mut head);
        {
            let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
            encoded.shown = self.shown(view, &directory, head.samples());
            own::write_mesh((&view.node, view.about.is_member), &directory, encoded.shown.suppressed, &mut head);
        }
        if let Some(footprint) = &readings.memory {
            memory::write(footprint, &mut head);
        }
        // After the decision which links are shown.
        if let Some(section) = view.later.get() {
            section.write(now, &mut head);
        }
        (Arc::clone(&encoded.bytes), encoded.shown)
    }

    /// Decides which links are shown beside `written` series and those that follow. The result is
    /// the same from the first scrape on, even if the memory categories are not known yet.
    fn shown(&self, view: &View, directory: &Directory, written: usize) -> Shown {
        let statistics = &view.statistics;
        let of_histogram = |scale: &Scale| histogram_series(scale.bounds().as_slice().len());
        let lags = 2 * of_histogram(statistics.send_lag().scale());
        let zone_series = |method| {
            let times = if method == Method::Icmp { of_histogram(statistics.zone_scale()) } else { 0 };
            statistics.method(method).zone_pairs() * (numbers(FamilyScope::Zone, method, self.series.links) + times)
        };
        let zones: usize = Method::ALL.into_iter().map(zone_series).sum();
        let bounds = statistics.scale().bounds().as_slice().len();
        let others = written + own::MESH_SERIES + memory::SERIES + lags + zones;
        self.series.shown(others, statistics.methods(), bounds, directory)
    }

    /// Returns the flags that decide which series are exported.
    pub const fn series(&self) -> SeriesSettings {
        self.series
    }

    fn lock(&self) -> MutexGuard<'_, Encoded> {
        self.encoded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the kernel's files, or returns a reading that is still recent enough.
    fn read(&self, now: Nanos, view: &View) -> Readings {
        Readings {
            echo: EchoCounters::read(),
            run_delay: probe_thread_run_delay(),
            resident_bytes: view.about.resident.get(now).map(|resident| resident.bytes),
            throttled: self.throttle.as_ref().and_then(Throttle::read),
            process: ProcessReading::now(),
            memory: self.memory.read(now),
        }
    }

    /// Sets every metric of the registry. A counter never decreases. Returns the names of those
    /// that have no value at present: what they hold is of an earlier time, or the 0 that they
    /// begin with. The caller must hold the lock of [`AgentMetrics::encode`].
    fn update(&self, now: Nanos, view: &View, readings: &Readings) -> Vec<&'static str> {
        let sources = ScrapeSources { agent: self, now, view, readings };
        let mut unknown = Vec::new();
        for (counter, (name, _, value)) in &self.counters {
            match value(&sources) {
                Some(total) => counter.inc_by((total - counter.get()).max(0.0)),
                None => unknown.push(*name),
            }
        }
        for (gauge, (name, _, value)) in &self.gauges {
            match value(&sources) {
                Some(value) => gauge.set(value),
                None => unknown.push(*name),
            }
        }
        unknown
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::RwLock;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::time::Duration;

    use super::*;
    use crate::allocator;
    use crate::exposition::{About, App, Health, HeardStrangers, PeerTraces, Walks};
    use crate::http::{Reply, Routes, Server};
    use crate::statistics::Statistics;
    use crate::sys::clock::monotonic;

    /// Nothing here takes longer, unless a worker waits for something that never arrives.
    const PATIENCE: Duration = Duration::from_mins(1);

    /// An agent whose scrapes of `/held` block while they read the kernel's files.
    struct Held {
        app: App,
        reading: SyncSender<()>,
        go_on: Mutex<Receiver<()>>,
    }

    impl Routes for Held {
        fn route(&self, path: &str, accept: &str) -> Reply {
            if path != "/held" {
                return self.app.route(path, accept);
            }
            let (now, view, agent) = (monotonic(), &self.app.view, &self.app.agent);
            let (text, _) = agent.encode_with(now, view, Format::Text, || {
                let readings = agent.read(now, view);
                self.reading.send(()).unwrap();
                self.go_on.lock().unwrap().recv().unwrap();
                readings
            });
            Reply::text(200, text.to_vec())
        }
    }

    fn app() -> App {
        let (allocator, stats) = allocator::info_and_stats();
        let build =
            AgentMetricsConfig { allocator: &allocator, stats, http_workers: 2, series: SeriesSettings::default() };
        let agent = AgentMetrics::new(&build, Arc::new(ServerStats::default())).unwrap();
        let view = View {
            node: "self".into(),
            directory: RwLock::new(Directory::default()),
            statistics: Statistics::new(Scale::default(), Nanos::from_millis(1_000)),
            health: Health::default(),
            about: About::new(&allocator),
            traces: PeerTraces::default(),
            walks: Walks::default(),
            strangers: HeardStrangers::default(),
            later: std::sync::OnceLock::new(),
        };
        view.health.beat(monotonic());
        App { view: Arc::new(view), agent, allocator, node_addresses: Vec::new() }
    }

    /// Sends a request. Returns the connection, from which the answer can be read.
    fn ask(server: SocketAddr, path: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        BufReader::new(stream)
    }

    /// Returns the status line of an answer, and whether the answer has the last
    /// sample of the registry.
    fn answer(connection: BufReader<TcpStream>) -> (String, bool) {
        let lines: Vec<String> = connection.lines().map(Result::unwrap).collect();
        (lines[0].clone(), lines.iter().any(|line| line.starts_with("process_threads ")))
    }

    #[test]
    fn a_scrape_that_stands_still_in_a_file_holds_up_no_other_worker() {
        let ((reading, is_reading), (resume, go_on)) = (sync_channel(1), sync_channel(1));
        let routes = Held { app: app(), reading, go_on: Mutex::new(go_on) };
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap().start(2, Arc::new(routes)).unwrap();
        // This is dropped before the server, which waits for its workers. So a failing test ends as
        // well.
        let resume = resume;
        let held = ask(server.local_addr(), "/held");
        is_reading.recv_timeout(PATIENCE).unwrap();
        // One of the two workers is blocked, so the other takes every request.
        for (path, is_scrape) in [("/metrics", true), ("/healthz", false), ("/metrics", true), ("/healthz", false)] {
            let (status, has_samples) = answer(ask(server.local_addr(), path));
            assert_eq!((status.as_str(), has_samples), ("HTTP/1.1 200 OK", is_scrape), "{path}");
        }
        resume.send(()).unwrap();
        assert_eq!(answer(held), ("HTTP/1.1 200 OK".to_owned(), true));
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_absent_in_every_format_and_comes_back() {
        let App { view, mut agent, .. } = app();
        agent.cpus = None;
        let untold = || Readings {
            echo: None,
            run_delay: None,
            resident_bytes: None,
            throttled: None,
            process: ProcessReading { cpu: Nanos(1), open_descriptors: None, virtual_bytes: None, threads: None },
            memory: None,
        };
        let untold_names = [
            "kube_canary_echo_requests_received_total",
            "kube_canary_echo_replies_sent_total",
            "kube_canary_probe_thread_run_delay_seconds_total",
            "kube_canary_cpus",
            "kube_canary_memory_bytes",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
            "process_threads",
        ];
        let has = |bytes: &[u8], name: &str| {
            // OpenMetrics names a family of counters without the suffix.
            let name = name.strip_suffix("_total").unwrap_or(name).as_bytes();
            bytes.windows(name.len()).any(|window| window == name)
        };
        for (second, format) in (1..).zip(Format::ALL) {
            let at = |part: u64| Nanos::from_millis(second * 10_000 + part * 2_000);
            let (bytes, _) = agent.encode_with(at(0), &view, format, untold);
            assert!(untold_names.iter().all(|name| !has(&bytes, name)), "{format:?}");
            assert!(has(&bytes, "process_cpu_seconds") && has(&bytes, "kube_canary_http_workers"));
            drop(bytes);
            let (bytes, _) = agent.encode_with(at(1), &view, format, || agent.read(at(1), &view));
            assert!(has(&bytes, "process_threads") && has(&bytes, "kube_canary_echo_replies_sent"), "{format:?}");
            drop(bytes);
            let (bytes, _) = agent.encode_with(at(2), &view, format, untold);
            assert!(untold_names.iter().all(|name| !has(&bytes, name)), "{format:?}, known before");
        }
    }

    #[test]
    fn scrapes_share_their_text_at_the_same_time_and_never_one_after_the_other() {
        let App { view, agent, .. } = app();
        let at = |seconds: u64| agent.encode(Nanos::from_millis(seconds * 1_000), &view, Format::Text).0;
        let (first, second) = (at(1), at(1));
        assert!(Arc::ptr_eq(&first, &second), "at the same time");
        let later = at(2);
        assert!(!Arc::ptr_eq(&first, &later), "it is old");
        // If another scrape encodes while this one reads, this one takes the other's text.
        let mut other = None;
        let (mine, _) = agent.encode_with(Nanos::from_millis(3_000), &view, Format::Text, || {
            other = Some(at(3));
            agent.read(Nanos::from_millis(3_000), &view)
        });
        assert!(other.is_some_and(|other| Arc::ptr_eq(&other, &mine)));
        drop((first, second, later, mine));
        let text = at(3).to_vec();
        view.health.list_confirmed(Nanos::from_millis(3_000));
        assert_ne!(at(3).to_vec(), text, "no scrape sends the text any longer");
    }
}
