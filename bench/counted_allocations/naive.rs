//! The naive agent, as the examples of the libraries show it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use kube_canary::statistics::BucketBounds;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry, TextEncoder,
};
use surge_ping::{Client, Config, PingIdentifier, PingSequence};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{interval_at, sleep};

use super::{Counted, ROUNDS, ROUNDS_BEFORE, address, counting, interval};

const LABELS: [&str; 6] = ["source_node", "source_zone", "peer_node", "peer_zone", "protocol", "network"];

/// The metrics of all peers.
struct Metrics {
    registry: Registry,
    rtt: HistogramVec,
    counters: [IntCounterVec; 3],
}

/// The metrics of one peer.
struct Peer {
    rtt: Histogram,
    sent: IntCounter,
    received: IntCounter,
    lost: IntCounter,
}

impl Metrics {
    fn new() -> Self {
        let registry = Registry::new();
        let buckets = BucketBounds::default().as_slice().iter().map(|bound| bound.as_secs_f64()).collect();
        let rtt = HistogramOpts::new("probe_rtt_seconds", "Round-trip times.").buckets(buckets);
        let rtt = HistogramVec::new(rtt, &LABELS).expect("a name");
        registry.register(Box::new(rtt.clone())).expect("a new name");
        let counters = ["sent", "received", "lost"].map(|what| {
            let options = Opts::new(format!("probes_{what}_total"), format!("Probes {what}."));
            let counter = IntCounterVec::new(options, &LABELS).expect("a name");
            registry.register(Box::new(counter.clone())).expect("a new name");
            counter
        });
        Self { registry, rtt, counters }
    }

    fn peer(&self, peer: u16) -> Peer {
        let (node, zone) = (format!("node-{peer}"), format!("zone-{}", peer % 3));
        let labels = ["self", "zone-0", &node, &zone, "icmp", "pod"];
        let [sent, received, lost] = self.counters.each_ref().map(|counter| counter.with_label_values(&labels));
        Peer { rtt: self.rtt.with_label_values(&labels), sent, received, lost }
    }
}

/// Returns the counts of set-up, probing and one scrape.
pub fn count(peers: u16) -> Vec<Counted> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let interval = interval(peers);
    let sent = Rc::new(Cell::new(0));
    let lost = Rc::new(Cell::new(0));
    let mut counted = Vec::with_capacity(3);
    counting::begin();
    let metrics = Metrics::new();
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        // One client for all peers: dropping a clone would end the pings of the others.
        let client = Arc::new(Client::new(&Config::default()).expect("an ICMP socket"));
        let start = tokio::time::Instant::now();
        for peer in 0..peers {
            let (client, metrics) = (Arc::clone(&client), metrics.peer(peer));
            let (sent, lost) = (Rc::clone(&sent), Rc::clone(&lost));
            spawn_local(async move {
                let mut pinger = client.pinger(address(peer), PingIdentifier(peer)).await;
                pinger.timeout(interval);
                // Pings are spread over the interval: all at once, they would overflow the socket's
                // queue.
                let mut ticks = interval_at(start + interval * u32::from(peer) / u32::from(peers), interval);
                for sequence in 0.. {
                    ticks.tick().await;
                    metrics.sent.inc();
                    sent.set(sent.get() + 1);
                    if let Ok((_, rtt)) = pinger.ping(PingSequence(sequence), &[0; 56]).await {
                        metrics.received.inc();
                        metrics.rtt.observe(rtt.as_secs_f64());
                    } else {
                        metrics.lost.inc();
                        lost.set(lost.get() + 1);
                    }
                }
            });
        }
        sleep(interval * ROUNDS_BEFORE).await;
        counted.push(Counted { what: "setup", units: peers.into(), detail: lost.get(), asked: counting::asked() });
        let (sent_before, lost_before) = (sent.get(), lost.get());
        counting::begin();
        sleep(interval * ROUNDS).await;
        let asked = counting::asked();
        counted.push(Counted {
            what: "probe",
            units: sent.get() - sent_before,
            detail: lost.get() - lost_before,
            asked,
        });
    });
    let scrape = || {
        let mut text = Vec::new();
        TextEncoder::new().encode(&metrics.registry.gather(), &mut text).expect("memory");
        text.len() as u64
    };
    scrape();
    counting::begin();
    let bytes = scrape();
    counted.push(Counted { what: "scrape", units: 1, detail: bytes, asked: counting::asked() });
    counted
}
