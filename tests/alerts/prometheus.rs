//! A Prometheus in a namespace, with the shipped rules.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::common::process::{Process, unique};
use crate::namespace::{DIRECTORY, Namespace, tool};
use crate::prometheus_api::{Api, samples, value};

/// The port of the agents' HTTP servers.
pub const PORT: u16 = 9_877;
const RULES: &str = include_str!("../../deploy/prometheus/kube-canary.rules.yaml");
/// The factor by which all times of the rules, of the scrapes and between probes are shorter. The
/// counts stay the same.
pub const HASTE: u64 = 5;

/// The kind of histograms that it requests from the agents. It takes their classic ones if
/// they have no others.
#[derive(Clone, Copy)]
pub enum Histograms {
    Classic,
    Native,
}

/// Whether native histograms are a setting, as from Prometheus 3.8 on. In older versions
/// they are a flag.
fn knows_the_setting() -> bool {
    let config = unique(Path::new(DIRECTORY), "setting.yaml");
    fs::write(&config, "global: {scrape_native_histograms: true}\n").expect("our own directory is writable");
    let output = tool("promtool").args(["check", "config"]).arg(&config).output();
    output.expect("promtool is there: install prometheus").status.success()
}

/// A Prometheus server, which is stopped when this is dropped.
pub struct Prometheus<'a> {
    api: Api<'a>,
    _process: Process,
}

/// An alert that fires.
#[derive(Debug)]
pub struct Alert(Value);

impl Alert {
    fn text(&self, kind: &str, name: &str) -> String {
        self.0[kind][name].as_str().unwrap_or_default().to_owned()
    }

    pub fn label(&self, name: &str) -> String {
        self.text("labels", name)
    }

    pub fn annotation(&self, name: &str) -> String {
        self.text("annotations", name)
    }
}

impl<'a> Prometheus<'a> {
    /// Starts a Prometheus that scrapes every 15 s divided by [`HASTE`].
    pub fn start(namespace: &'a Namespace, targets: &[String], histograms: Histograms) -> Self {
        let directory = Path::new(DIRECTORY);
        let (config, rules) = (unique(directory, "prometheus.yaml"), unique(directory, "rules.yaml"));
        fs::write(&rules, hastened(RULES)).expect("our own directory is writable");
        let every = format!("{}ms", 15_000 / HASTE);
        let (port, setting, flag) = match histograms {
            Histograms::Classic => (9_090, "", None),
            Histograms::Native if knows_the_setting() => (9_091, ", scrape_native_histograms: true", None),
            Histograms::Native => (9_091, "", Some("--enable-feature=native-histograms")),
        };
        let text = format!(
            "global: {{scrape_interval: {every}, scrape_timeout: {every}{setting}}}\n\
             rule_files: [{}]\n\
             scrape_configs: [{{job_name: kube-canary, static_configs: [{{targets: {targets:?}}}]}}]\n",
            rules.display()
        );
        fs::write(&config, text).expect("our own directory is writable");
        let http = SocketAddr::from(([127, 0, 0, 1], port));
        let mut command = namespace.command("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", unique(directory, "tsdb").display()));
        command.arg(format!("--web.listen-address={http}")).args(flag);
        let process = Process::start(&mut command, directory);
        let api = Api { namespace, address: http };
        api.wait_until_ready(&process);
        Self { api, _process: process }
    }

    /// Returns the alerts that fire now.
    pub fn firing(&self) -> Vec<Alert> {
        let answer = self.api.answer("/api/v1/alerts");
        let alerts = answer["data"]["alerts"].as_array().cloned().unwrap_or_default().into_iter();
        alerts.filter(|alert| alert["state"] == "firing").map(Alert).collect()
    }

    /// Returns the value of every sample.
    pub fn query(&self, expression: &str) -> Vec<f64> {
        let samples = samples(&self.api.query(expression, None));
        samples.iter().map(|sample| value(sample).expect("a number")).collect()
    }
}

/// The rules with every range, offset, delay and interval divided by [`HASTE`].
fn hastened(rules: &str) -> String {
    let (mut text, mut rest, mut count) = (String::new(), rules, 0);
    let marks = ["[", "offset ", "for: ", "interval: "];
    while let Some(at) = marks.iter().filter_map(|mark| Some(rest.find(mark)? + mark.len())).min() {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
        let seconds = match rest[digits..].chars().next() {
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3_600,
            // The bracket belongs to something else.
            _ => continue,
        };
        let Ok(number) = rest[..digits].parse::<u64>() else { continue };
        let _ = write!(text, "{}ms", number * seconds * 1_000 / HASTE);
        rest = &rest[digits + 1..];
        count += 1;
    }
    assert!(count > 10, "the rules have times: {count}");
    text + rest
}
