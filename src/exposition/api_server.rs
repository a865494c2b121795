//! Metrics about discovery's requests to the API server and its answers. They are registered only
//! if discovery uses an API server: with peers from another source, they would be four useless
//! series.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, Opts};

use crate::discovery::kubernetes::traffic::{Verb, received_bytes};

/// Collects the traffic between this process and the API server.
#[derive(Debug)]
pub struct ApiServerCollector {
    received: IntCounter,
    requests: IntCounterVec,
}

impl ApiServerCollector {
    /// Creates a collector whose counters are zero.
    ///
    /// # Errors
    /// None in practice: the names are valid.
    pub fn new() -> Result<Self, prometheus::Error> {
        Ok(Self {
            received: IntCounter::new(
                "kube_canary_api_received_bytes_total",
                "Bytes received from the Kubernetes API server, TLS included.",
            )?,
            requests: IntCounterVec::new(
                Opts::new("kube_canary_api_requests_total", "Requests sent to the Kubernetes API server."),
                &["verb"],
            )?,
        })
    }
}

impl Collector for ApiServerCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.received.desc().into_iter().chain(self.requests.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if Verb::ALL.iter().all(|verb| verb.requests() == 0) {
            return Vec::new();
        }
        // Collected under the lock of `AgentMetrics::encode`, so each difference is added only
        // once.
        self.received.inc_by(received_bytes().saturating_sub(self.received.get()));
        for verb in Verb::ALL {
            let counter = self.requests.with_label_values(&[verb.label()]);
            counter.inc_by(verb.requests().saturating_sub(counter.get()));
        }
        self.received.collect().into_iter().chain(self.requests.collect()).collect()
    }
}
