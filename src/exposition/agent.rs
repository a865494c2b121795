//! The process-wide metrics, in the prometheus crate's registry.

use prometheus::core::Collector;
use prometheus::{Counter, Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::allocator::AllocatorMetrics;
use super::api_server::ApiServerCollector;
use super::head::Head;
use super::memory::{self, Memory};
use super::process::{ProcessCollector, ProcessReading, cpus};
use super::series::{SeriesSettings, Shown, ZONE_COUNTERS, histogram_series};
use super::throttle::{Throttle, Throttled};
use super::{Format, REVISION, View, mesh, totals};
use crate::allocator::{AllocatorInfo, Stats};
use crate::footprint::Footprint;
use crate::http::ServerStats;
use crate::peers::{Directory, Presence};
use crate::prober::Stamp;
use crate::statistics::{EchoCounters, Scale, probe_thread_run_delay};
use crate::units::Nanos;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long overlapping scrapes share one encoding of the agent's own metrics. Consecutive scrapes
/// never share it.
const HEAD_SHARED_TIME: Nanos = Nanos::from_millis(1_000);

/// The metrics in the registry. Each scrape brings them up to date.
#[derive(Debug)]
pub struct AgentMetrics {
    registry: Registry,
    peers: IntGaugeVec,
    peer_list_age: Gauge,
    unrelated: IntCounter,
    skipped: IntCounter,
    queue_drops: IntCounter,
    run_delay: Counter,
    resident_bytes: IntGauge,
    echo_requests: IntCounter,
    echo_replies: IntCounter,
    /// Counters in the order of [`Stamp::ALL`].
    stamps: [IntCounter; 2],
    throttle: Option<ThrottleMetrics>,
    allocator: AllocatorMetrics,
    http_requests: IntCounter,
    http_refused: IntCounter,
    http: Arc<ServerStats>,
    series: SeriesSettings,
    process: ProcessCollector,
    memory: Memory,
    encoded: Mutex<Encoded>,
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
    echo: EchoCounters,
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

#[derive(Debug)]
struct ThrottleMetrics {
    file: Throttle,
    periods: IntCounter,
    seconds: Counter,
}

impl ThrottleMetrics {
    /// Registers the metrics. Returns none if no CPU controller reports throttling.
    fn find(registry: &Registry) -> Result<Option<Self>, prometheus::Error> {
        let Some(file) = Throttle::find() else { return Ok(None) };
        let this = Self {
            file,
            periods: int_counter(
                "cgroup_throttled_periods_total",
                "Periods in which the agent's cgroup had used up its CPU quota.",
            )?,
            seconds: Counter::new(
                "kube_canary_cgroup_throttled_seconds_total",
                "Time that the agent's cgroup was held up for its CPU quota, added up over CPUs.",
            )?,
        };
        registry.register(Box::new(this.periods.clone()))?;
        registry.register(Box::new(this.seconds.clone()))?;
        Ok(Some(this))
    }

    fn update(&self, throttled: Throttled) {
        raise(&self.periods, throttled.periods);
        raise_seconds(&self.seconds, throttled.time);
    }
}

/// What is fixed when the agent starts.
#[derive(Debug)]
pub struct Build<'a> {
    /// The allocator that runs.
    pub allocator: &'a AllocatorInfo,
    /// The allocator's figures.
    pub stats: Stats,
    /// Number of HTTP worker threads.
    pub http_workers: usize,
    /// Which series of the links are exported.
    pub series: SeriesSettings,
}

fn int_counter(name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    IntCounter::new(format!("kube_canary_{name}"), help)
}

impl AgentMetrics {
    /// Creates a registry and registers all metrics in it.
    ///
    /// # Errors
    /// Fails only if two metrics share a name. That is a programming error, which
    /// the first test shows.
    pub fn new(build: &Build<'_>, http: Arc<ServerStats>) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let stamps = IntCounterVec::new(
            Opts::new("kube_canary_rtt_stamps_total", "Round-trip times, by the source of their timestamps."),
            &["source"],
        )?;
        let this = Self {
            stamps: Stamp::ALL.map(|stamp| stamps.with_label_values(&[stamp.label()])),
            throttle: ThrottleMetrics::find(&registry)?,
            allocator: AllocatorMetrics::register(&registry, build.stats)?,
            peers: IntGaugeVec::new(Opts::new("kube_canary_peers", "Other nodes in the list, by state."), &["state"])?,
            peer_list_age: Gauge::new(
                "kube_canary_peer_list_age_seconds",
                "Time since discovery last gave or confirmed the peer list.",
            )?,
            skipped: int_counter(
                "probes_skipped_total",
                "Probes left out because the agent stood still for longer than an interval.",
            )?,
            unrelated: int_counter("replies_unrelated_total", "Echo replies that answer no probe of this agent.")?,
            queue_drops: int_counter(
                "receive_queue_drops_total",
                "Packets that the kernel dropped because the agent's receive queue was full.",
            )?,
            run_delay: Counter::new(
                "kube_canary_probe_thread_run_delay_seconds_total",
                "Time that the probe thread was runnable but waited for a CPU.",
            )?,
            resident_bytes: IntGauge::new("process_resident_memory_bytes", "Resident memory, from smaps_rollup.")?,
            echo_requests: int_counter(
                "echo_requests_received_total",
                "ICMP and ICMPv6 echo requests received by the agent's network namespace.",
            )?,
            echo_replies: int_counter(
                "echo_replies_sent_total",
                "ICMP and ICMPv6 echo replies sent by the agent's network namespace.",
            )?,
            http_requests: int_counter("http_requests_total", "HTTP requests answered.")?,
            http_refused: int_counter("http_requests_refused_total", "HTTP requests refused with 503: no place free.")?,
            http,
            series: build.series,
            process: ProcessCollector::new()?,
            memory: Memory::default(),
            encoded: Mutex::default(),
            registry,
        };
        let metrics: [Box<dyn Collector>; 14] = [
            Box::new(build_info(build)?),
            Box::new(fixed("cpus", "CPUs of the machine that are online.", cpus())?),
            Box::new(fixed("http_workers", "HTTP worker threads.", build.http_workers)?),
            Box::new(this.peers.clone()),
            Box::new(this.peer_list_age.clone()),
            Box::new(this.unrelated.clone()),
            Box::new(this.skipped.clone()),
            Box::new(stamps),
            Box::new(this.queue_drops.clone()),
            Box::new(this.echo_requests.clone()),
            Box::new(this.echo_replies.clone()),
            Box::new(this.http_requests.clone()),
            Box::new(this.http_refused.clone()),
            Box::new(this.resident_bytes.clone()),
        ];
        metrics.into_iter().try_for_each(|metric| this.registry.register(metric))?;
        if probe_thread_run_delay().is_some() {
            this.registry.register(Box::new(this.run_delay.clone()))?;
        }
        this.registry.register(Box::new(this.process.clone()))?;
        this.registry.register(Box::new(ApiServerCollector::new()?))?;
        Ok(this)
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
        self.update(now, view, &readings);
        encoded.at = now;
        // No other scrape holds this buffer, or it has just been created, so this does not copy.
        let bytes = Arc::make_mut(&mut encoded.bytes);
        bytes.clear();
        let mut head = Head::new(format, view.statistics.created(), bytes);
        for family in self.registry.gather() {
            head.collected(&family, |name| OLDER_COUNTERS.contains(&name));
        }
        {
            let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
            encoded.shown = self.shown(view, &directory, head.samples());
            mesh::write(&view.node, &directory, encoded.shown.suppressed, &mut head);
        }
        totals::write(&view.statistics, &mut head);
        if let Some(footprint) = &readings.memory {
            memory::write(footprint, &mut head);
        }
        (Arc::clone(&encoded.bytes), encoded.shown)
    }

    /// Decides which links are shown beside `registered` series. The result is the same from the
    /// first scrape on, even if the memory categories are not known yet.
    fn shown(&self, view: &View, directory: &Directory, registered: usize) -> Shown {
        let statistics = &view.statistics;
        let of_histogram = |scale: &Scale| histogram_series(scale.bounds().as_slice().len());
        let lags = 2 * of_histogram(statistics.send_lag().scale());
        let zones = statistics.zone_pairs() * (ZONE_COUNTERS + of_histogram(statistics.zone_scale()));
        let bounds = statistics.scale().bounds().as_slice().len();
        self.series.shown(registered + mesh::SERIES + totals::SERIES + memory::SERIES + lags + zones, bounds, directory)
    }

    /// The flags that decide which series are exported.
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
            resident_bytes: view.about.resident.bytes(now),
            throttled: self.throttle.as_ref().and_then(|throttle| throttle.file.read()),
            process: ProcessReading::now(),
            memory: self.memory.read(now),
        }
    }

    fn update(&self, now: Nanos, view: &View, readings: &Readings) {
        let nodes = view.directory.read().unwrap_or_else(PoisonError::into_inner).nodes();
        for (presence, count) in [Presence::Ready, Presence::Unready, Presence::Terminating].into_iter().zip(nodes) {
            self.peers.with_label_values(&[presence.label()]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        // Without a list, the age is +Inf: that exceeds the threshold of any alert.
        self.peer_list_age.set(view.health.list_age(now).map_or(f64::INFINITY, Nanos::as_secs_f64));
        raise(&self.unrelated, view.statistics.unrelated());
        raise(&self.skipped, view.statistics.skipped());
        raise(&self.queue_drops, view.statistics.receive_queue_drops());
        raise(&self.echo_requests, readings.echo.requests_received);
        raise(&self.echo_replies, readings.echo.replies_sent);
        raise(&self.http_requests, self.http.requests_served());
        raise(&self.http_refused, self.http.requests_refused());
        if let Some(delay) = readings.run_delay {
            raise_seconds(&self.run_delay, delay);
        }
        if let Some(bytes) = readings.resident_bytes {
            self.resident_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        for (counter, stamp) in self.stamps.iter().zip(Stamp::ALL) {
            raise(counter, view.statistics.stamps(stamp));
        }
        if let (Some(throttle), Some(throttled)) = (&self.throttle, readings.throttled) {
            throttle.update(throttled);
        }
        self.process.update(&readings.process);
        self.allocator.update();
    }
}

/// Raises a counter to `total`; it never decreases. The caller must hold the lock of
/// [`AgentMetrics::encode`].
fn raise(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

/// Raises a counter in seconds to `total`, under the rules of [`raise`].
fn raise_seconds(counter: &Counter, total: Nanos) {
    counter.inc_by((total.as_secs_f64() - counter.get()).max(0.0));
}

fn fixed(name: &str, help: &str, value: usize) -> Result<IntGauge, prometheus::Error> {
    let gauge = IntGauge::new(format!("kube_canary_{name}"), help)?;
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    Ok(gauge)
}

fn build_info(build: &Build<'_>) -> Result<IntGauge, prometheus::Error> {
    let info = build.allocator;
    let narenas = info.narenas.map_or_else(String::new, |n| n.to_string());
    let opts = Opts::new("kube_canary_build_info", "The version, the commit, and the allocator that runs; always 1.")
        .const_label("version", env!("CARGO_PKG_VERSION"))
        .const_label("revision", REVISION)
        .const_label("allocator", info.allocator)
        .const_label("narenas", narenas)
        .const_label("libc", info.libc)
        .const_label("linkage", info.linkage);
    let gauge = IntGauge::with_opts(opts)?;
    gauge.set(1);
    Ok(gauge)
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
    use crate::exposition::{About, App, Health, Walks};
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
        let build = Build { allocator: &allocator, stats, http_workers: 2, series: SeriesSettings::default() };
        let agent = AgentMetrics::new(&build, Arc::new(ServerStats::default())).unwrap();
        let view = View {
            node: "self".into(),
            directory: RwLock::new(Directory::default()),
            statistics: Statistics::new(Scale::default(), Nanos::from_millis(1_000)),
            health: Health::default(),
            about: About::new(&allocator),
            walks: Walks::default(),
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
