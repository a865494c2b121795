//! A real Prometheus in a namespace: Debian's, or the 3.x that `tests/exposition/tools/build`
//! compiles.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::common::process::{Process, unique};
use crate::namespace::{DIRECTORY, Namespace};
use crate::prometheus_api::{Api, samples, value};
use crate::tools;

/// The version of Prometheus, and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Debian's, which scrapes OpenMetrics.
    Debian,
    /// Debian's with `--enable-feature=native-histograms`, which scrapes protobuf.
    DebianNative,
    /// A 3.x, in which native histograms are stable. It has a job for each format.
    Three,
}

impl Release {
    /// The jobs, each of which scrapes all targets.
    pub fn jobs(self) -> &'static [&'static str] {
        match self {
            Self::Debian => &["openmetrics"],
            Self::DebianNative => &["protobuf"],
            Self::Three => &["protobuf", "text", "openmetrics"],
        }
    }

    fn configuration(self, job: &str) -> &'static str {
        match (self, job) {
            (Self::Debian | Self::DebianNative, _) => "",
            // The classic form of the same message is scraped as well.
            (Self::Three, "protobuf") => "scrape_native_histograms: true, always_scrape_classic_histograms: true, ",
            (Self::Three, "text") => "scrape_protocols: [PrometheusText0.0.4], ",
            (Self::Three, _) => "scrape_protocols: [OpenMetricsText1.0.0], ",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Debian => 9_090,
            Self::DebianNative => 9_091,
            Self::Three => 9_092,
        }
    }
}

/// A Prometheus server, which ends when this is dropped.
pub struct Prometheus<'a> {
    pub release: Release,
    api: Api<'a>,
    _process: Process,
}

impl<'a> Prometheus<'a> {
    /// Starts a Prometheus that scrapes every second.
    pub fn start(release: Release, namespace: &'a Namespace, targets: &[String]) -> Self {
        let directory = Path::new(DIRECTORY);
        let config = unique(directory, "prometheus.yaml");
        let job = |job: &&str| {
            let how = release.configuration(job);
            format!("{{job_name: {job}, {how}static_configs: [{{targets: {targets:?}}}]}}")
        };
        let jobs: Vec<String> = release.jobs().iter().map(job).collect();
        let text =
            format!("global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs: [{}]\n", jobs.join(", "));
        fs::write(&config, text).expect("our own directory is writable");
        let http = SocketAddr::from(([127, 0, 0, 1], release.port()));
        let mut command = namespace.command(match release {
            Release::Three => tools::path("prometheus"),
            _ => Path::new("prometheus"),
        });
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", unique(directory, "tsdb").display()));
        command.arg(format!("--web.listen-address={http}"));
        if release == Release::DebianNative {
            command.arg("--enable-feature=native-histograms");
        }
        let process = Process::start(&mut command, directory);
        let api = Api { namespace, address: http };
        api.wait_until_ready(&process);
        Self { release, api, _process: process }
    }

    fn without_warnings(&self, what: &str, answer: Value) -> Value {
        assert!(answer["warnings"].is_null(), "{:?} {what}: {answer}", self.release);
        answer
    }

    /// Returns the result of a query at a time, in seconds since the epoch, or now.
    pub fn query(&self, expression: &str, at: Option<f64>) -> Vec<Value> {
        samples(&self.without_warnings(expression, self.api.query(expression, at)))
    }

    /// Returns the only value of a query.
    pub fn value(&self, expression: &str, at: Option<f64>) -> f64 {
        let result = self.query(expression, at);
        assert_eq!(result.len(), 1, "{:?} {expression}: {result:?}", self.release);
        value(&result[0]).unwrap_or_else(|| panic!("{:?} {expression}: {result:?}", self.release))
    }

    /// Returns the errors of the targets that are down.
    pub fn errors(&self) -> Vec<String> {
        let path = "/api/v1/targets?state=active";
        let answer = self.without_warnings(path, self.api.answer(path));
        let targets = answer["data"]["activeTargets"].as_array().cloned().unwrap_or_default();
        let down = |target: &Value| {
            (target["health"] != "up").then(|| format!("{}: {}", target["scrapeUrl"], target["lastError"]))
        };
        targets.iter().filter_map(down).collect()
    }
}
