//! A Prometheus in a namespace, with the shipped rules.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::common::process::{Process, unique};
use crate::common::scrape::fetch;
use crate::common::until::until;
use crate::namespace::{DIRECTORY, Namespace};

/// Of the canaries.
pub const PORT: u16 = 9_877;
const RULES: &str = include_str!("../../deploy/prometheus/kube-canary.rules.yaml");
/// Every time of the rules, of the scrapes and between probes is so much shorter: the same counts in less time.
pub const HASTE: u64 = 5;

/// Ends with this.
pub struct Prometheus<'a> {
    namespace: &'a Namespace,
    http: SocketAddr,
    _process: Process,
}

/// One that fires.
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
    /// Scrapes every 5 s, hastened.
    pub fn start(namespace: &'a Namespace, targets: &[String]) -> Self {
        let directory = Path::new(DIRECTORY);
        let (config, rules) = (unique(directory, "prometheus.yaml"), unique(directory, "rules.yaml"));
        fs::write(&rules, hastened(RULES)).expect("our own directory is writable");
        let every = format!("{}ms", 5_000 / HASTE);
        let text = format!(
            "global: {{scrape_interval: {every}, scrape_timeout: {every}, evaluation_interval: {every}}}\n\
             rule_files: [{}]\n\
             scrape_configs: [{{job_name: kube-canary, static_configs: [{{targets: {targets:?}}}]}}]\n",
            rules.display()
        );
        fs::write(&config, text).expect("our own directory is writable");
        let http = SocketAddr::from(([127, 0, 0, 1], 9_090));
        let mut command = namespace.command("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", unique(directory, "tsdb").display()));
        command.arg(format!("--web.listen-address={http}"));
        let process = Process::start(&mut command, directory);
        let prometheus = Self { namespace, http, _process: process };
        until("Prometheus is ready", || match prometheus.get("/-/ready") {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        prometheus
    }

    fn get(&self, path: &str) -> Result<(u16, String), String> {
        let answer = self.namespace.within(|| fetch(self.http, path, "")).map_err(|error| error.to_string())?;
        Ok((answer.status, answer.body))
    }

    fn data(&self, path: &str) -> Value {
        let (status, body) = self.get(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let json: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
        assert!(status == 200 && json["status"] == "success", "{path}: {body}");
        json["data"].clone()
    }

    /// The alerts that fire now.
    pub fn firing(&self) -> Vec<Alert> {
        let data = self.data("/api/v1/alerts");
        let alerts = data["alerts"].as_array().cloned().unwrap_or_default().into_iter();
        alerts.filter(|alert| alert["state"] == "firing").map(Alert).collect()
    }

    /// The value of every sample.
    pub fn query(&self, expression: &str) -> Vec<f64> {
        let escaped: String =
            expression.bytes().flat_map(|byte| format!("%{byte:02x}").into_bytes()).map(char::from).collect();
        let data = self.data(&format!("/api/v1/query?query={escaped}"));
        let samples = data["result"].as_array().cloned().unwrap_or_default();
        let value = |sample: &Value| sample["value"][1].as_str().and_then(|value| value.parse().ok());
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
            // A bracket of something else.
            _ => continue,
        };
        let Ok(number) = rest[..digits].parse::<u64>() else { continue };
        let _ = write!(text, "{}ms", number * seconds * 1_000 / HASTE);
        rest = &rest[digits + 1..];
        count += 1;
    }
    assert!(count > 20, "the rules have times: {count}");
    text + rest
}
