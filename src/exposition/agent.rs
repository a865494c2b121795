//! The process-wide metrics, in the prometheus crate's registry.

use prometheus::core::Collector;
use prometheus::{Encoder, Gauge, IntCounter, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

use super::process::{self, ProcessCollector};
use super::{Format, View, now};
use crate::allocator::AllocatorInfo;
use crate::http::ServerStats;
use crate::peers::Presence;
use crate::statistics::EchoCounters;
use crate::units::Nanos;
use std::sync::{Arc, Mutex, PoisonError};

/// What the registry holds, brought up to date at each scrape.
#[derive(Debug)]
pub struct AgentMetrics {
    registry: Registry,
    peers: IntGaugeVec,
    peer_list_age: Gauge,
    unrelated: IntCounter,
    queue_drops: IntCounter,
    run_delay: prometheus::Counter,
    echo_requests: IntCounter,
    echo_replies: IntCounter,
    http_requests: IntCounter,
    http_refused: IntCounter,
    http: Arc<ServerStats>,
    updating: Mutex<()>,
}

/// What is fixed at start.
#[derive(Debug)]
pub struct Build<'a> {
    /// The running allocator.
    pub allocator: &'a AllocatorInfo,
    /// HTTP worker threads.
    pub http_workers: usize,
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
        let this = Self {
            peers: IntGaugeVec::new(Opts::new("kube_canary_peers", "Peers in the list, by state."), &["state"])?,
            peer_list_age: Gauge::new(
                "kube_canary_peer_list_age_seconds",
                "Time since discovery last gave or confirmed the peer list.",
            )?,
            unrelated: int_counter("replies_unrelated_total", "Echo replies that answer no probe of this agent.")?,
            queue_drops: int_counter(
                "receive_queue_drops_total",
                "Packets that the kernel dropped because the agent's receive queue was full.",
            )?,
            run_delay: prometheus::Counter::new(
                "kube_canary_probe_thread_run_delay_seconds_total",
                "Time that the probe thread was runnable but waited for a processor.",
            )?,
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
            updating: Mutex::new(()),
            registry,
        };
        let metrics: [Box<dyn Collector>; 11] = [
            Box::new(build_info(build)?),
            Box::new(fixed("cpus", "Processors of the machine that are online.", process::cpus())?),
            Box::new(fixed("http_workers", "HTTP worker threads.", build.http_workers)?),
            Box::new(this.peers.clone()),
            Box::new(this.peer_list_age.clone()),
            Box::new(this.unrelated.clone()),
            Box::new(this.queue_drops.clone()),
            Box::new(this.echo_requests.clone()),
            Box::new(this.echo_replies.clone()),
            Box::new(this.http_requests.clone()),
            Box::new(this.http_refused.clone()),
        ];
        metrics.into_iter().try_for_each(|metric| this.registry.register(metric))?;
        if process::probe_thread_run_delay().is_some() {
            this.registry.register(Box::new(this.run_delay.clone()))?;
        }
        this.registry.register(Box::new(ProcessCollector::new()?))?;
        Ok(this)
    }

    /// The registry's metrics as of now.
    pub fn encode(&self, view: &View, format: Format) -> Vec<u8> {
        // Two scrapes at once must not both add what is missing.
        let _one_at_a_time = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        self.update(view);
        let mut out = Vec::with_capacity(4_096);
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut out) {
            log::warn!("encoding the agent's metrics: {error}");
        }
        match format {
            Format::Text => out,
            Format::OpenMetrics => without_total(&out),
        }
    }

    fn update(&self, view: &View) {
        let mut counts = [(Presence::Ready, 0), (Presence::Unready, 0), (Presence::Terminating, 0)];
        {
            let directory = view.directory.read().unwrap_or_else(PoisonError::into_inner);
            for (_, peer) in directory.peers() {
                if let Some((_, count)) = counts.iter_mut().find(|(presence, _)| *presence == peer.presence()) {
                    *count += 1;
                }
            }
        }
        for (presence, count) in counts {
            self.peers.with_label_values(&[presence.label()]).set(count);
        }
        // No list yet is as old as can be; +Inf makes any threshold fire.
        self.peer_list_age.set(view.health.list_age(now()).map_or(f64::INFINITY, Nanos::as_secs_f64));
        raise(&self.unrelated, view.statistics.unrelated());
        raise(&self.queue_drops, view.health.receive_queue_drops());
        let echo = EchoCounters::read();
        raise(&self.echo_requests, echo.requests_received);
        raise(&self.echo_replies, echo.replies_sent);
        raise(&self.http_requests, self.http.requests_served());
        raise(&self.http_refused, self.http.requests_refused());
        if let Some(delay) = process::probe_thread_run_delay() {
            self.run_delay.inc_by((delay.as_secs_f64() - self.run_delay.get()).max(0.0));
        }
    }
}

/// Brings a counter up to `total`; it never goes down. Needs the lock of [`AgentMetrics::encode`].
fn raise(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
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
fn without_total(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|&b| b == b'\n') {
        match line.strip_prefix(b"# ").and_then(|_| line.windows(7).position(|w| w == b"_total ")) {
            Some(at) => {
                out.extend_from_slice(&line[..at]);
                out.extend_from_slice(&line[at + 6..]);
            }
            None => out.extend_from_slice(line),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_headers_lose_the_suffix_and_samples_keep_it() {
        let text = b"# HELP a_total Of _total things.\n# TYPE a_total counter\na_total 1\n# TYPE b gauge\nb 2\n";
        let expected = "# HELP a Of _total things.\n# TYPE a counter\na_total 1\n# TYPE b gauge\nb 2\n";
        assert_eq!(String::from_utf8(without_total(text)).unwrap(), expected);
    }
}
