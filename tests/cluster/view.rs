//! What an operator is shown of the mesh: by any canary's verdicts, by `kube-canary doctor`, and by the alerts of a Prometheus
//! that runs among the pods.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::canaries::{self, Pod};
use crate::cluster::Cluster;
use crate::process::Background;
use crate::wait::{STARVED, until};

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/prometheus/kube-canary.rules.yaml");
/// Set, it has the alerts tried as well. The rules judge nodes that have been there for three minutes.
pub const WITH_PROMETHEUS: &str = "KUBE_CANARY_TEST_PROMETHEUS";

/// A finding: what, who, which way.
pub type Finding = [String; 3];

/// A finding as it should be.
pub fn finding(kind: &str, subject: &str, direction: &str) -> Finding {
    [kind, subject, direction].map(str::to_owned)
}

fn findings(document: &Value) -> Vec<Finding> {
    let verdicts = document["verdicts"].as_array().into_iter().flatten();
    let text = |verdict: &Value, field: &str| verdict[field].as_str().unwrap_or_default().to_owned();
    verdicts.map(|verdict| ["kind", "subject", "direction"].map(|field| text(verdict, field))).collect()
}

/// What was found, unless an agent was starved: on a busy machine one is for a moment, and what it measured is then out of the
/// evidence for a minute.
fn of_agents_in_time(found: Vec<Finding>) -> Result<Vec<Finding>, String> {
    let starved = found.iter().any(|[kind, ..]| ["agent_starved", "KubeCanaryAgentStarved"].contains(&kind.as_str()));
    if starved { Err(format!("{STARVED}: {found:?}")) } else { Ok(found) }
}

/// The verdicts of the canary in `pod`, over a mesh of which no row is missing.
///
/// # Errors
/// No answer, a row is missing, or an agent is starved.
pub fn verdicts(cluster: &Cluster, pod: &Pod) -> Result<Vec<Finding>, String> {
    let said = canaries::get(cluster, pod, "/api/v1/verdicts")?;
    let document: Value = serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))?;
    of_all_rows(&document)?;
    of_agents_in_time(findings(&document))
}

/// A canary that the machine holds up for two seconds is missing.
fn of_all_rows(document: &Value) -> Result<(), String> {
    let whole = document["missing"].as_array().is_some_and(Vec::is_empty);
    if whole { Ok(()) } else { Err(document.to_string()) }
}

/// What `kube-canary doctor` finds, asked beside `pod`; and that its exit code says the same.
///
/// # Errors
/// It fails, a row is missing, or an agent is starved.
pub fn doctor(cluster: &Cluster, pod: &Pod) -> Result<Vec<Finding>, String> {
    let program = env!("CARGO_BIN_EXE_kube-canary");
    let output = cluster.in_pod_output(&pod.name, &[program, "doctor", "--url", "http://127.0.0.1", "--json"])?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let document: Value = serde_json::from_str(&said)
        .map_err(|error| format!("{error}: {said}{}", String::from_utf8_lossy(&output.stderr)))?;
    of_all_rows(&document)?;
    let found = findings(&document);
    assert_eq!(output.status.code(), Some(i32::from(!found.is_empty())), "{said}");
    of_agents_in_time(found)
}

/// A Prometheus in a pod's network namespace, with the shipped rules.
pub struct Prometheus<'a> {
    cluster: &'a Cluster,
    pod: String,
    directory: PathBuf,
    _process: Background,
}

impl<'a> Prometheus<'a> {
    /// Scrapes `pods` every 5 s.
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
        until("a Prometheus", Duration::from_secs(30), || this.get("/-/ready"));
        this
    }

    fn get(&self, path: &str) -> Result<String, String> {
        let url = format!("http://127.0.0.1:9090{path}");
        self.cluster.in_pod(&self.pod, &["curl", "--silent", "--show-error", "--fail", "--max-time", "5", &url])
    }

    /// The alerts that fire: name, node, direction.
    ///
    /// # Errors
    /// It does not answer, or an agent is starved.
    pub fn firing(&self) -> Result<Vec<Finding>, String> {
        let said = self.get("/api/v1/alerts")?;
        let document: Value = serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))?;
        let alerts = document["data"]["alerts"].as_array().ok_or(said)?.iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let found = firing.map(|alert| {
            let (labels, annotations) = (&alert["labels"], &alert["annotations"]);
            [text(&labels["alertname"]), text(&labels["node"]), text(&annotations["direction"])]
        });
        of_agents_in_time(found.collect())
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("{}: {error}", self.directory.display());
        }
    }
}
