//! What an operator sees of the mesh: the verdicts of any agent, `kube-canary doctor`, and the
//! alerts of a Prometheus that runs in the pods' network.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::agents::{self, Pod};
use crate::cluster::Cluster;
use crate::process::Background;
use crate::rows::{self, Finding};
use crate::wait::until;

const PROGRAM: &str = env!("CARGO_BIN_EXE_kube-canary");
const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/prometheus/kube-canary.rules.yaml");
/// If this variable is set, the alerts are tested as well.
pub const WITH_PROMETHEUS: &str = "KUBE_CANARY_TEST_PROMETHEUS";

/// The losses that the reports of all agents show. Also asserts that the agent in `pod` passes on
/// each of these reports, or says why it is missing.
///
/// # Errors
/// If an agent does not answer.
pub fn losses(cluster: &Cluster, pod: &Pod, all: &BTreeMap<String, Pod>) -> Result<BTreeSet<Finding>, String> {
    let names: Vec<&str> = all.keys().map(String::as_str).collect();
    let answer = agents::json(cluster, pod, &format!("/api/v1/mesh/{}", names.join(",")))?;
    let of = |list: &str| answer[list].as_array().cloned().unwrap_or_default();
    let told = of("rows").into_iter().map(|row| row["source"]["node"].clone());
    let told: BTreeSet<String> = told
        .chain(of("missing").into_iter().map(|it| it["node"].clone()))
        .filter_map(|node| node.as_str().map(str::to_owned))
        .collect();
    assert!(told.iter().map(String::as_str).eq(names), "{answer}");
    Ok(rows::losses(&agents::rows(cluster, all)?))
}

/// The losses that the reports of all agents show: kind, subject and protocol, which is empty if
/// all protocols share the loss.
///
/// # Errors
/// If an agent does not answer.
pub fn protocols(cluster: &Cluster, all: &BTreeMap<String, Pod>) -> Result<BTreeSet<Finding>, String> {
    let rows: Vec<Value> = agents::rows(cluster, all)?.iter().map(rows::without_lag).collect();
    let verdicts = rows::judge(&rows, &[]);
    let field = |verdict: &Value, name: &str| verdict[name].as_str().unwrap_or_default().to_owned();
    let short = |verdict: &Value| ["kind", "subject", "protocol"].map(|name| field(verdict, name));
    Ok(verdicts.as_array().expect("a list of verdicts").iter().map(short).collect())
}

/// The losses that doctor names, given the reports of all agents.
///
/// # Errors
/// If an agent does not answer.
pub fn doctor(cluster: &Cluster, all: &BTreeMap<String, Pod>) -> Result<BTreeSet<Finding>, String> {
    Ok(rows::losses_by_doctor(&agents::rows(cluster, all)?, &mut Command::new(PROGRAM)))
}

/// The losses that doctor names if it runs beside `pod` and collects the reports itself. No report
/// may be missing. Its exit code must agree with its verdicts.
///
/// # Errors
/// If it fails, or if a report is missing. An agent that the machine delays for
/// two seconds is missing.
pub fn doctor_in_pod(cluster: &Cluster, pod: &Pod) -> Result<BTreeSet<Finding>, String> {
    let output =
        cluster.in_pod_output(&pod.name, &[PROGRAM, "doctor", "--collect", "--url", "http://127.0.0.1", "--json"])?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let document: Value = serde_json::from_str(&said)
        .map_err(|error| format!("{error}: {said}{}", String::from_utf8_lossy(&output.stderr)))?;
    if document["missing"].as_array().is_none_or(|missing| !missing.is_empty()) {
        return Err(said);
    }
    // Without a verdict, it may still report links that lost probes in the last ten minutes.
    let is_well = document["state"] == "well";
    assert_eq!(output.status.code(), Some(i32::from(!is_well)), "{said}");
    assert!(!is_well || document["verdicts"].as_array().is_some_and(Vec::is_empty), "{said}");
    Ok(rows::losses_in(&document["verdicts"]))
}

/// Runs doctor beside `pod`, where it asks the judges.
///
/// # Errors
/// If its exit code is not 0: what it prints.
pub fn doctor_by_judges(cluster: &Cluster, pod: &Pod) -> Result<(), String> {
    let output = cluster.in_pod_output(&pod.name, &[PROGRAM, "doctor", "--url", "http://127.0.0.1"])?;
    let said = [output.stdout, output.stderr].concat();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned()) }
}

/// A Prometheus in a pod's network namespace, with the shipped rules.
pub struct Prometheus<'a> {
    cluster: &'a Cluster,
    pod: String,
    directory: PathBuf,
    _process: Background,
}

impl<'a> Prometheus<'a> {
    /// Starts a Prometheus that scrapes `pods` every 5 s.
    pub fn start<'p>(cluster: &'a Cluster, at: &Pod, pods: impl Iterator<Item = &'p Pod>) -> Self {
        let directory = std::env::temp_dir().join(format!("kube-canary-prometheus-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory of our own");
        let targets: Vec<String> = pods.map(|pod| format!("{}:9877", pod.addresses[0])).collect();
        let config = directory.join("prometheus.yaml");
        let text = format!(
            "global: {{scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 5s}}\nrule_files: [{RULES}]\n\
             scrape_configs: [{{job_name: kube-canary, static_configs: [{{targets: {targets:?}}}]}}]\n"
        );
        fs::write(&config, text).expect("our own directory is writable");
        let config = format!("--config.file={}", config.display());
        let data = format!("--storage.tsdb.path={}", directory.join("data").display());
        let command = ["prometheus", &config, &data, "--web.listen-address=127.0.0.1:9090"];
        let process = cluster.start_in_pod(&at.name, &command).unwrap();
        let this = Self { cluster, pod: at.name.clone(), directory, _process: process };
        until("a Prometheus", || this.get("/-/ready"));
        this
    }

    fn get(&self, path: &str) -> Result<String, String> {
        let url = format!("http://127.0.0.1:9090{path}");
        self.cluster.in_pod(&self.pod, &["curl", "--silent", "--show-error", "--fail", "--max-time", "5", &url])
    }

    /// The alerts that fire, except those of agents: name, subject, direction.
    ///
    /// # Errors
    /// If Prometheus does not answer.
    pub fn firing(&self) -> Result<BTreeSet<Finding>, String> {
        let said = self.get("/api/v1/alerts")?;
        let document: Value = serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))?;
        let alerts = document["data"]["alerts"].as_array().ok_or(said)?.iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let found = firing.map(|alert| {
            let (labels, annotations) = (&alert["labels"], &alert["annotations"]);
            [text(&labels["alertname"]), text(&labels["subject"]), text(&annotations["direction"])]
        });
        Ok(found.filter(|[alert, ..]| alert != "KubeCanaryAgentFault").collect())
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("{}: {error}", self.directory.display());
        }
    }
}
