//! The process-wide metrics, in the prometheus crate's registry.

use prometheus::core::Collector;
use prometheus::{
    Counter, Encoder, Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use super::api_server::ApiServerCollector;
use super::books::AllocatorMetrics;
use super::families::histogram_series;
use super::memory::{self, Memory};
use super::process::{ProcessCollector, cpus};
use super::series::{Costs, Plan, Planner};
use super::throttle::Throttle;
use super::{Format, View, mesh};
use crate::allocator::{AllocatorInfo, Stats};
use crate::http::ServerStats;
use crate::limits::HEAD_SHARED_TIME;
use crate::peers::Presence;
use crate::prober::Stamp;
use crate::statistics::{EchoCounters, probe_thread_run_delay};
use crate::units::Nanos;
use std::sync::{Arc, Mutex, PoisonError};

/// What the registry holds, brought up to date at each scrape.
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
    /// In the order of [`Stamp::ALL`].
    stamps: [IntCounter; 2],
    throttle: Option<ThrottleMetrics>,
    allocator: AllocatorMetrics,
    http_requests: IntCounter,
    http_refused: IntCounter,
    http: Arc<ServerStats>,
    series_budget: usize,
    encoded: Mutex<Encoded>,
}

/// What scrapes make in turn, and leave for each other.
#[derive(Debug, Default)]
struct Encoded {
    /// As last encoded, in each format.
    heads: [Head; 2],
    memory: Memory,
    planner: Planner,
}

/// The registry's text, when it was true, and the plan that it speaks of.
///
/// Shared: the scrapes that send it hold it, and so does this. Written only while nobody else holds it (`Arc::get_mut`), so one
/// buffer serves scrape after scrape; where slow scrapers hold an old one, it is theirs, and the last of them frees it.
#[derive(Debug, Default)]
struct Head {
    text: Arc<Vec<u8>>,
    /// None once the text is seen not to be shared: a plan that somebody holds is not renewed in its memory.
    plan: Option<Arc<Plan>>,
    at: Nanos,
}

#[derive(Debug)]
struct ThrottleMetrics {
    file: Throttle,
    periods: IntCounter,
    seconds: Counter,
}

impl ThrottleMetrics {
    /// None where no cpu controller tells.
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
                "Time that the agent's cgroup was held up for its CPU quota, added up over processors.",
            )?,
        };
        registry.register(Box::new(this.periods.clone()))?;
        registry.register(Box::new(this.seconds.clone()))?;
        Ok(Some(this))
    }

    fn update(&self) {
        if let Some(throttled) = self.file.read() {
            raise(&self.periods, throttled.periods);
            raise_seconds(&self.seconds, throttled.time);
        }
    }
}

/// What is fixed at start.
#[derive(Debug)]
pub struct Build<'a> {
    /// The running allocator.
    pub allocator: &'a AllocatorInfo,
    /// Its figures.
    pub stats: Stats,
    /// HTTP worker threads.
    pub http_workers: usize,
    /// Series of a scrape, at most.
    pub series_budget: usize,
}

fn int_counter(name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    IntCounter::new(format!("kube_canary_{name}"), help)
}

impl AgentMetrics {
    /// Registers everything.
    ///
    /// # Errors
    /// Only where two metrics share a name: a mistake of ours that the first test shows.
    pub fn new(build: &Build<'_>, http: Arc<ServerStats>) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let stamps = IntCounterVec::new(
            Opts::new("kube_canary_rtt_stamps_total", "Round-trip times, by who took the times they are made of."),
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
                "Time that the probe thread was runnable but waited for a processor.",
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
            series_budget: build.series_budget,
            encoded: Mutex::default(),
            registry,
        };
        let metrics: [Box<dyn Collector>; 14] = [
            Box::new(build_info(build)?),
            Box::new(fixed("cpus", "Processors of the machine that are online.", cpus())?),
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
        this.registry.register(Box::new(ProcessCollector::new()?))?;
        this.registry.register(Box::new(ApiServerCollector::new()?))?;
        Ok(this)
    }

    /// The agent's own metrics as of now, and what of all others is exported. Encoded into the buffer of the scrape before;
    /// while others are still sending that, they and we share it, unless it is old.
    pub fn encode(&self, now: Nanos, view: &View, format: Format) -> (Arc<Vec<u8>>, Arc<Plan>) {
        // Under the lock also for what is updated: two scrapes at once must not both add what is missing.
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        let Encoded { heads, memory, planner } = &mut *encoded;
        for head in heads.iter_mut() {
            if Arc::get_mut(&mut head.text).is_some() {
                head.plan = None;
            }
        }
        let head = &mut heads[format as usize];
        if let Some(plan) = head.plan.take() {
            if now.since(head.at) < HEAD_SHARED_TIME.into() {
                return (Arc::clone(&head.text), Arc::clone(head.plan.insert(plan)));
            }
            head.text = Arc::default();
        }
        self.update(now, view);
        head.at = now;
        let families = self.registry.gather();
        let costs = self.costs(view, families.iter().map(|family| family.get_metric().len()).sum());
        // Nobody else has it, or we have just made it.
        let text = Arc::make_mut(&mut head.text);
        text.clear();
        if let Err(error) = TextEncoder::new().encode(&families, text) {
            log::warn!("encoding the agent's metrics: {error}");
        }
        drop(families);
        if format == Format::OpenMetrics {
            drop_total(text);
        }
        let plan = {
            let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
            let plan = planner.plan(now, &costs, &directory, &view.statistics);
            mesh::write(&directory, plan.suppressed(), text);
            plan
        };
        memory.write(now, text);
        head.plan = Some(Arc::clone(&plan));
        (Arc::clone(&head.text), plan)
    }

    /// What a scrape has besides peers and zones, and what each of them takes; the same from the first scrape on, although
    /// the memory may not be known yet.
    fn costs(&self, view: &View, registered: usize) -> Costs {
        let lag = histogram_series(view.statistics.send_lag().bounds());
        let own = registered + mesh::SERIES + memory::SERIES + 2 * lag;
        Costs { budget: self.series_budget, own, histogram: histogram_series(view.statistics.bounds()) }
    }

    fn update(&self, now: Nanos, view: &View) {
        let nodes = view.directory.read().unwrap_or_else(PoisonError::into_inner).nodes();
        for (presence, count) in [Presence::Ready, Presence::Unready, Presence::Terminating].into_iter().zip(nodes) {
            self.peers.with_label_values(&[presence.label()]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        // No list yet is as old as can be; +Inf makes any threshold fire.
        self.peer_list_age.set(view.health.list_age(now).map_or(f64::INFINITY, Nanos::as_secs_f64));
        raise(&self.unrelated, view.statistics.unrelated());
        raise(&self.skipped, view.statistics.skipped());
        raise(&self.queue_drops, view.statistics.receive_queue_drops());
        let echo = EchoCounters::read();
        raise(&self.echo_requests, echo.requests_received);
        raise(&self.echo_replies, echo.replies_sent);
        raise(&self.http_requests, self.http.requests_served());
        raise(&self.http_refused, self.http.requests_refused());
        if let Some(delay) = probe_thread_run_delay() {
            raise_seconds(&self.run_delay, delay);
        }
        if let Some(bytes) = view.about.resident.bytes(now) {
            self.resident_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        for (counter, stamp) in self.stamps.iter().zip(Stamp::ALL) {
            raise(counter, view.statistics.stamps(stamp));
        }
        if let Some(throttle) = &self.throttle {
            throttle.update();
        }
        self.allocator.update();
    }
}

/// Brings a counter up to `total`; it never goes down. Needs the lock of [`AgentMetrics::encode`].
fn raise(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

/// The same of a time.
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
    let opts = Opts::new("kube_canary_build_info", "The version, and the allocator that runs; always 1.")
        .const_label("version", env!("CARGO_PKG_VERSION"))
        .const_label("allocator", info.allocator)
        .const_label("narenas", narenas)
        .const_label("libc", info.libc)
        .const_label("linkage", info.linkage);
    let gauge = IntGauge::with_opts(opts)?;
    gauge.set(1);
    Ok(gauge)
}

/// OpenMetrics names a counter family without `_total`, which only its samples bear.
fn drop_total(text: &mut Vec<u8>) {
    const SUFFIX: &[u8] = b"_total";
    let (mut from, mut to) = (0, 0);
    while from < text.len() {
        let length = text[from..].iter().position(|&byte| byte == b'\n').map_or(text.len() - from, |end| end + 1);
        let line = &text[from..from + length];
        // The name ends at the first such place: the help text comes behind it.
        let suffix = line.strip_prefix(b"# ").and_then(|_| line.windows(7).position(|word| word == b"_total "));
        let kept = suffix.unwrap_or(length);
        text.copy_within(from..from + kept, to);
        let behind = from + kept + suffix.map_or(0, |_| SUFFIX.len());
        text.copy_within(behind..from + length, to + kept);
        to += kept + (from + length - behind);
        from += length;
    }
    text.truncate(to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_headers_lose_the_suffix_and_samples_keep_it() {
        let mut text =
            b"# HELP a_total Of _total things.\n# TYPE a_total counter\na_total 1\n# TYPE b gauge\nb 2\n".to_vec();
        let expected = "# HELP a Of _total things.\n# TYPE a counter\na_total 1\n# TYPE b gauge\nb 2\n";
        drop_total(&mut text);
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
