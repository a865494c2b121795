//! What the agents exported, step by step, and the result of the shipped rules on a clock that does
//! not depend on the machine.
//!
//! A step ends when every link has been probed [`PROBES`] times more, by the agents' own counters.
//! To the rules, a step is 5 seconds: a scrape of agents that probe once a second. A slow machine
//! makes steps with more probes, never with fewer. One record is judged at more than one
//! [`Cadence`]. A longer interval uses fewer of its scrapes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::PATIENCE;
use crate::common::process::unique;
use crate::common::scrape::Metrics;
use crate::common::until::until_within;
use crate::mesh::{Mesh, NODES, Node};
use crate::namespace::{run, tool};
use crate::prometheus::{HASTE, PORT};

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/prometheus/kube-canary.rules.yaml");
/// Seconds of a step, to the rules.
const STEP: usize = 5;
/// The least number of probes of each link in a step.
const PROBES: f64 = 5.0;
/// Echoes that may arrive between scrapes that count as simultaneous. With one more in flight on
/// each of two links, counts differ by 4. The rules tolerate a fifth of the lost probes,
/// which is above 22.
const BETWEEN: f64 = 2.0;
/// The pause between two reads of the counters, nearly a step. It saves CPU and decides nothing.
const PAUSE: Duration = Duration::from_millis(900 * STEP as u64 / HASTE);

/// How often the agents are scraped and the rules evaluated, in steps.
#[derive(Clone, Copy)]
pub struct Cadence {
    scrape: usize,
    evaluation: usize,
}

/// Every 5 s, as in deploy/overlays/prometheus-operator-5s.
pub const FAST: Cadence = Cadence { scrape: 1, evaluation: 1 };
/// Scrapes every 15 s and evaluations every 30 s, as shipped.
pub const SHIPPED: Cadence = Cadence { scrape: 3, evaluation: 6 };

/// The reasons for which an agent that sends at all counts as starved.
const REASONS: [&str; 5] = ["send_lag", "run_delay", "throttled", "skipped", "queue_drops"];
/// Series of nodes and reasons: 1 where the agent may be starved according to the record, and
/// where it must be.
const MAY: &str = "may_be_starved";
const MUST: &str = "must_be_starved";
/// The labels that distinguish one alert from another.
const LABELS: &str = "alertname, node, zone, reason, source_node, peer_node, source_zone, peer_zone";

/// One scrape of every node, in the order of [`NODES`].
type Scrapes = Vec<Metrics>;

pub struct Record<'a> {
    mesh: &'a Mesh,
    steps: Vec<Scrapes>,
}

fn scrape(node: &Node) -> Result<Metrics, String> {
    node.namespace.within(|| Metrics::of(([127, 0, 0, 1], PORT).into()))
}

/// Scrapes all nodes. Also returns the number of echoes that the last node answered in between.
fn scrapes(mesh: &Mesh) -> Result<(Scrapes, f64), String> {
    let mut scrapes = mesh.nodes.iter().rev().map(scrape).collect::<Result<Scrapes, String>>()?;
    let again = scrape(mesh.nodes.last().expect("a mesh has nodes"))?;
    let echoes = |metrics: &Metrics| metrics.value("echo_requests_received_total", &[]).expect("it is exported");
    let between = echoes(&again) - echoes(&scrapes[0]);
    scrapes.reverse();
    Ok((scrapes, between))
}

/// Returns the probes of each link between two scrapes.
fn probes(before: &Scrapes, after: &Scrapes) -> Vec<f64> {
    let agents = before.iter().zip(after).zip(NODES);
    let links = agents.flat_map(|((before, after), source)| {
        let peers = NODES.into_iter().filter(move |peer| *peer != source);
        peers.map(|peer| after.link(peer, "icmp").since(before.link(peer, "icmp")).sent)
    });
    links.collect()
}

/// Returns the most probes of one link between two scrapes.
fn longest(before: &Scrapes, after: &Scrapes) -> f64 {
    probes(before, after).into_iter().fold(0.0, f64::max)
}

/// The 95th percentile of how late an agent sent between two scrapes, in seconds, as Prometheus
/// interpolates it. Returns 0 if it sent nothing.
fn send_lag(before: &Metrics, after: &Metrics) -> f64 {
    const NAME: &str = "probe_send_lag_seconds_bucket";
    let buckets = after.0.iter().filter(|sample| sample.name == format!("kube_canary_{NAME}"));
    let grown: Vec<(f64, f64)> = buckets
        .map(|sample| {
            let bound = sample.label("le");
            let count = sample.value - before.value(NAME, &[("le", bound)]).unwrap_or(0.0);
            (bound.parse().expect("a bound is a number"), count)
        })
        .collect();
    let rank = 0.95 * grown.last().expect("it is a histogram").1;
    let (mut lower, mut below) = (0.0, 0.0);
    for (bound, count) in grown {
        if count >= rank {
            // Above the last bound, the result is the last bound.
            let is_inside = count > below && bound.is_finite();
            return if is_inside { lower + (bound - lower) * (rank - below) / (count - below) } else { lower };
        }
        (lower, below) = (bound, count);
    }
    lower
}

/// The delays that an agent reports between two scrapes `seconds` apart, by each of [`REASONS`], as
/// a multiple of what the rules allow.
fn held_up(before: &Metrics, after: &Metrics, seconds: f64) -> [f64; 5] {
    let grown = |name: &str, labels: &[(&str, &str)]| {
        // Not every machine has a cgroup that counts this. Without it the rules have no data
        // either.
        let count = |metrics: &Metrics| metrics.value(name, labels).unwrap_or(0.0);
        count(after) - count(before)
    };
    let sent = grown("zone_probes_sent_total", &[]);
    [
        send_lag(before, after) / 0.1,
        grown("probe_thread_run_delay_seconds_total", &[]) / (0.2 * seconds),
        grown("cgroup_throttled_seconds_total", &[]) / (0.05 * seconds),
        grown("probes_skipped_total", &[]) / (0.02 * sent),
        grown("receive_queue_drops_total", &[]) / (0.005 * sent).max(2.5),
    ]
}

impl<'a> Record<'a> {
    /// Begins once every node has heard from every other.
    pub fn new(mesh: &'a Mesh) -> Self {
        let first = until_within(PATIENCE, "every link has been probed", || {
            let none = vec![Metrics(Vec::new()); NODES.len()];
            let (first, _) = scrapes(mesh)?;
            if probes(&none, &first).iter().all(|&count| count > 0.0) { Ok(first) } else { Err("not yet".into()) }
        });
        Self { mesh, steps: vec![first] }
    }

    /// Returns the number of the last step.
    pub fn now(&self) -> usize {
        self.steps.len() - 1
    }

    /// Records `count` steps, the last of which is simultaneous: to find a direction, the rules
    /// compare the count of echoes at the last node with the counts of the others.
    pub fn steps(&mut self, count: usize) {
        for left in (0..count).rev() {
            thread::sleep(PAUSE);
            let last = &self.steps[self.now()];
            let next = until_within(PATIENCE, "every link is probed", || {
                let (next, between) = scrapes(self.mesh)?;
                let probes = probes(last, &next);
                let is_enough = probes.iter().all(|&count| count >= PROBES) && (left > 0 || between <= BETWEEN);
                if is_enough { Ok(next) } else { Err(format!("{probes:?}, {between} between the scrapes")) }
            });
            self.steps.push(next);
        }
    }

    /// Continues until no link had more than twice its expected probes in the last `count` steps.
    pub fn steps_until_even(&mut self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while longest(&self.steps[self.now() - count], &self.steps[self.now()]) > 2.0 * PROBES * count as f64 {
            assert!(Instant::now() < deadline, "the machine is held up all the time");
            self.steps(1);
        }
    }

    /// Waits for `count` probes of one node to another since the last step.
    pub fn wait_for_probes(&self, source: &str, peer: &str, count: f64) {
        let at = NODES.iter().position(|name| *name == source).expect("a node");
        let before = self.steps[self.now()][at].link(peer, "icmp");
        until_within(PATIENCE, "it has probed on", || {
            let since = scrape(&self.mesh.nodes[at])?.link(peer, "icmp").since(before);
            if since.sent >= count { Ok(()) } else { Err(format!("{since:?}")) }
        });
    }

    /// Lets promtool evaluate the shipped rules over the whole record. If it is scraped at every
    /// step, it also checks the starved agents: an agent counts as starved if and only if it
    /// reports that it was delayed.
    ///
    /// # Panics
    /// If a check fails, with the output of promtool.
    pub fn judge(&self, cadence: Cadence, checks: &[Value]) {
        let most = self.steps.windows(2).map(|pair| longest(&pair[0], &pair[1])).fold(0.0, f64::max);
        println!("{} steps; the most probes of a link in one of them: {most}", self.now());
        let starved = "group by (node, reason) (kube_canary:agent_starved:value)";
        let ever = |expression: &str| format!("count_over_time(({expression})[{}s:{STEP}s])", self.now() * STEP);
        let wrongly = check(self.now(), &ever(&format!("{starved} unless on (node, reason) {MAY} == 1")), &[]);
        let overlooked = check(self.now(), &ever(&format!("{MUST} == 1 unless on (node, reason) {starved}")), &[]);
        let also = if cadence.scrape == 1 { vec![wrongly, overlooked] } else { Vec::new() };
        let checks = [checks, &also].concat();
        let test = json!({
            "rule_files": [RULES],
            "evaluation_interval": format!("{}s", cadence.evaluation * STEP),
            "tests": [{
                "interval": format!("{}s", cadence.scrape * STEP),
                "input_series": self.series(cadence.scrape),
                "promql_expr_test": checks,
            }],
        });
        // If a check fails, the file stays, and promtool reproduces the result at any time.
        let path = unique(Path::new(env!("CARGO_TARGET_TMPDIR")), "test.json");
        fs::write(&path, test.to_string()).expect("the target directory is writable");
        print!("{}", run(tool("promtool").args(["test", "rules"]).arg(&path), ""));
        let _ = fs::remove_file(path);
    }

    /// By each reason, whether the rules may call a node's agent starved at that step.
    /// Also returns whether they must call it so.
    ///
    /// The rules' 2 minutes are the last 24 steps, or 23, because Prometheus 3 leaves out the
    /// sample at their very beginning. Where the result depends on that, or on rounding,
    /// it may be either.
    fn starved(&self, at: usize, step: usize) -> Vec<(&'static str, bool, bool)> {
        let before = |steps: usize| Some(&self.steps[step.checked_sub(steps)?][at]);
        let after = &self.steps[step][at];
        let (Some(first), Some(second)) = (before(24), before(23)) else {
            // The rules use a longer window than there is.
            return REASONS.map(|reason| (reason, true, false)).to_vec();
        };
        let (long, short) = (held_up(first, after, 120.0), held_up(second, after, 115.0));
        let answer = |(reason, (long, short)): (&'static str, (f64, f64))| {
            (reason, long.max(short) > 0.95, long.min(short) > 1.05)
        };
        REASONS.into_iter().zip(long.into_iter().zip(short)).map(answer).collect()
    }

    /// Every series, with its values at every so many steps.
    fn series(&self, every: usize) -> Vec<Value> {
        let mut series: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut put = |name: String, step: usize, value: f64| {
            let values = series.entry(name).or_insert_with(|| vec!["_".into(); self.steps.len()]);
            values[step] = value.to_string();
        };
        for (step, scrapes) in self.steps.iter().enumerate() {
            for (node, metrics) in NODES.into_iter().zip(scrapes) {
                for sample in &metrics.0 {
                    let labels = sample.labels.iter().map(|(name, value)| format!("{name}={value:?},"));
                    let labels: String = labels.collect();
                    put(
                        format!("{}{{{labels}job=\"kube-canary\",instance=\"{node}\"}}", sample.name),
                        step,
                        sample.value,
                    );
                }
            }
        }
        for (at, node) in NODES.into_iter().enumerate() {
            for step in 0..self.steps.len() {
                for (reason, may, must) in self.starved(at, step) {
                    for (name, value) in [(MAY, may), (MUST, must)] {
                        let name = format!("{name}{{node=\"{node}\",reason=\"{reason}\"}}");
                        put(name, step, f64::from(u8::from(value)));
                    }
                }
            }
        }
        for (name, values) in series.iter().filter(|(name, _)| name.starts_with(MUST)) {
            let steps = values.iter().filter(|value| *value == "1").count();
            if steps > 0 {
                println!("{name} in {steps} steps");
            }
        }
        let thinned = |values: Vec<String>| values.into_iter().step_by(every).collect::<Vec<_>>().join(" ");
        series.into_iter().map(|(name, values)| json!({"series": name, "values": thinned(values)})).collect()
    }
}

fn check(step: usize, expression: &str, expected: &[&str]) -> Value {
    let samples: Vec<Value> = expected.iter().map(|labels| json!({"labels": labels, "value": 1})).collect();
    json!({"expr": expression, "eval_time": format!("{}s", step * STEP), "exp_samples": samples})
}

/// The agents of a record do not judge, and an alert says so.
const JUDGES: &str = "alertname!=\"KubeCanaryJudgesMissing\"";

/// Exactly these alerts fire at that step, besides the alerts of starved agents.
pub fn firing(step: usize, expected: &[&str]) -> Value {
    // An alert lasts until the next evaluation, whose scrapes are up to 15 s older.
    let rightly = format!("unless on (node, reason) max_over_time({MAY}[60s]) == 1");
    check(step, &format!("count by ({LABELS}) (ALERTS{{alertstate=\"firing\",{JUDGES}}} {rightly})"), expected)
}

/// Exactly these alerts have fired until that step, besides those of starved agents.
pub fn ever(step: usize, expected: &[&str]) -> Value {
    let alerts = format!("ALERTS{{alertstate=\"firing\",alertname!=\"KubeCanaryAgentStarved\",{JUDGES}}}");
    check(step, &format!("group by ({LABELS}) (max_over_time({alerts}[{}s]))", (step + 1) * STEP), expected)
}

/// The direction of the loss, for every node that loses packets.
pub fn direction(step: usize, expected: &[&str]) -> Value {
    check(step, "count by (node, direction) (kube_canary:node_loss_direction)", expected)
}

/// The alert of a starved agent fires at that step.
pub fn starved(step: usize, node: &str, reason: &str) -> Value {
    let labels = format!("alertname=\"KubeCanaryAgentStarved\",node=\"{node}\",reason=\"{reason}\"");
    let expression = format!("count by (node) (ALERTS{{alertstate=\"firing\",{labels}}})");
    check(step, &expression, &[&format!("{{node=\"{node}\"}}")])
}
