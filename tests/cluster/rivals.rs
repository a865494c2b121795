//! Two other programs that watch a cluster, kubenurse and goldpinger, beside our agents: what each
//! sees of the same faults, and how long it takes.
//!
//! `KUBE_CANARY_TEST_RIVALS` names a directory with the two static programs, built from their own
//! sources.
//!
//! Any error that one of the three counts, on any node, is taken as its sign: an agent must count
//! one not later than the other two. Beside it is the time at which two judges agree on a verdict,
//! which the other two do not have: it names the cause. goldpinger also answers when a reader asks
//! it. It then looks at once, so this has no time of its own, and it is asked once, at the end.

mod install;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Test;
use crate::agents::{self, Pod};
use crate::checks::{HTTP_PORT, OUTSIDE, Restart, TLS_PORT, certify};
use crate::cluster::Cluster;
use crate::directory::Directory;
use crate::exposition::{self, Sample};
use crate::faults::{ApiAway, LinkDown, NodeRules, Undo};
use crate::judges::of_the_network;
use crate::process::Background;
use crate::wait::until;
use install::Rivals;

pub const DIRECTORY: &str = "KUBE_CANARY_TEST_RIVALS";
/// How long a fault lasts at most. It ends sooner if all three have seen it.
const LASTS: Duration = Duration::from_secs(90);
/// How long it is calm after a fault: the recent window of checks, and longer than the slowest of
/// the three needs for a round of its checks.
const CALM: Duration = Duration::from_mins(1);
/// After this long, no error can be of the fault that has ended.
const AFTERMATH: Duration = Duration::from_secs(35);
/// Two readings of the same instant may be this far apart: the pause between them, the time that
/// they take on a busy machine, and the age of what an agent knows from the judges.
const READING: Duration = Duration::from_secs(5);
/// Within this time the judges name each fault.
const NAMED: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(500);
/// A mean over this is slow: no answer takes as long without the fault.
const SLOW_SECONDS: f64 = 0.2;

/// Whose a sign is, by the prefix of its series.
const SOURCES: [&str; 3] = ["kube_canary_", "kubenurse_", "goldpinger_"];
const OWN: usize = 0;
const KUBENURSE: usize = 1;
const GOLDPINGER: usize = 2;

/// What an agent's own counters show of a fault.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    /// Failures of a check.
    Failures,
    /// The duration of a check. Those of the other two count as well then.
    Slowness,
    /// Losses of probes of a peer.
    Loss,
}

struct Sign {
    after: Duration,
    what: String,
}

/// A series of a node that has grown.
struct Grown {
    node: String,
    /// An index of [`SOURCES`].
    source: usize,
    series: String,
}

/// What was seen of one fault.
#[derive(Default)]
struct Row {
    fault: String,
    /// The judges' verdict.
    verdict: Option<Sign>,
    /// The first sign of each source.
    signs: [Option<Sign>; 3],
    /// What goldpinger said when it was asked at the end.
    asked: bool,
}

/// The programs outside the cluster that all check.
pub struct Outside {
    directory: Directory,
}

impl Outside {
    fn new() -> Self {
        let directory = Directory::new("rivals");
        certify(&directory, OUTSIDE);
        std::fs::write(directory.path("https.py"), install::HTTPS).unwrap();
        let this = Self { directory };
        this.certificate("valid");
        this
    }

    fn authorities(&self) -> String {
        ["valid", "expired"].map(|name| std::fs::read_to_string(self.directory.path(name)).unwrap()).concat()
    }

    /// Lets the server have this certificate from now on.
    fn certificate(&self, name: &str) {
        std::fs::copy(self.directory.path(name), self.directory.path("next")).unwrap();
        std::fs::rename(self.directory.path("next"), self.directory.path("certificate")).unwrap();
    }

    fn serve(&self, cluster: &Cluster) -> [Background; 2] {
        let path = |name| self.directory.path(name);
        let https = ["python3", "-B", &path("https.py"), OUTSIDE, TLS_PORT, &path("certificate"), &path("key")];
        [serve_http(cluster), cluster.start_on_node("cp", &https).unwrap()]
    }
}

fn http() -> String {
    format!("http://{OUTSIDE}:{HTTP_PORT}/")
}

fn https() -> String {
    format!("https://{OUTSIDE}:{TLS_PORT}/")
}

fn serve_http(cluster: &Cluster) -> Background {
    cluster.start_on_node("cp", &["python3", "-m", "http.server", "-b", OUTSIDE, HTTP_PORT]).unwrap()
}

impl Test {
    pub(crate) fn rivals_see_no_more(&self) {
        let directory = std::env::var_os(DIRECTORY).map(PathBuf::from).expect(DIRECTORY);
        let outside = Outside::new();
        let [target, _tls] = outside.serve(&self.cluster);
        let mut target = Some(target);
        let rivals = Rivals::install(&self.cluster, &directory, &self.zones, &outside);
        let pods = self.agents_with(&format!("outside={} certificate={}", http(), https()));
        let judges = until("three judges", || self.judges(&pods));
        self.past(&pods);
        let node = judges[2].as_str();
        let far = self.zones.keys().find(|node| !judges.contains(node)).expect("not all nodes judge").as_str();
        let zone = self.zones[node].as_str();
        let mut watch = SideBySide::new(&self.cluster, &pods, &rivals, &judges[0]);
        watch.calm();
        let run = |tool: &'static [&'static str], undo: &'static [&'static str]| {
            self.cluster.verb(tool).unwrap();
            Undo::new(&self.cluster, undo)
        };
        watch.fault("the DNS has no server", &["*->dns"], Shown::Failures, || {
            run(&["dns-scale", "0"], &["dns-scale", "2"])
        });
        watch.fault("one of two servers of the DNS takes 500 ms", &["*->dns"], Shown::Slowness, || {
            run(&["dns-delay", "0.5"], &["dns-delay", "0"])
        });
        watch.fault("the API server is stopped", &["*->api-server"], Shown::Failures, || ApiAway::start(&self.cluster));
        let of_node = ["dns", "api-server", "service", "service-udp"].map(|check| format!("{node}->{check}"));
        let of_node: Vec<&str> = of_node.iter().map(String::as_str).collect();
        watch.fault("a node has no rules of kube-proxy", &of_node, Shown::Failures, || {
            self.cluster.verb(&["proxy-stop", node]).unwrap();
            Undo::new(&self.cluster, &["proxy-start", node])
        });
        watch.fault("port 53 is blocked on a node", &of_node[..1], Shown::Failures, || {
            NodeRules::of_dns(&self.cluster, node)
        });
        let in_zone = format!("{zone}->outside");
        watch.fault("a target outside is away for a zone", &[&in_zone], Shown::Failures, || {
            let nodes = pods.keys().filter(|node| self.zones[*node] == zone);
            nodes.map(|node| NodeRules::from_port(&self.cluster, node, OUTSIDE, HTTP_PORT)).collect::<Vec<_>>()
        });
        watch.fault("a certificate has expired", &["*->certificate"], Shown::Failures, || {
            outside.certificate("expired");
            Restart(None::<Background>, || outside.certificate("valid"))
        });
        watch.fault("a target outside is away", &["*->outside"], Shown::Failures, || {
            target = None;
            Restart(None::<Background>, || target = Some(serve_http(&self.cluster)))
        });
        watch.fault("the link of a node is down", &[far], Shown::Loss, || LinkDown::start(&self.cluster, far));
        let rows = watch.rows;
        eprintln!("\n{}", table(&rows));
        drop((rivals, target));
        self.agents_with("");
        let wrong: Vec<String> = rows.iter().flat_map(wrong).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// Reads the metrics of all programs of all nodes, and what the judges say.
struct SideBySide<'a> {
    cluster: &'a Cluster,
    /// The addresses of all metrics of each node.
    urls: BTreeMap<String, Vec<String>>,
    rivals: &'a Rivals<'a>,
    witness: (&'a str, &'a Pod),
    /// The series of each node, as they were last read.
    last: BTreeMap<String, BTreeMap<String, f64>>,
    rows: Vec<Row>,
}

impl<'a> SideBySide<'a> {
    fn new(cluster: &'a Cluster, pods: &'a BTreeMap<String, Pod>, rivals: &'a Rivals<'a>, witness: &'a String) -> Self {
        let urls = |(node, pod): (&String, &Pod)| {
            let own = format!("http://{}:9877/metrics", pod.addresses[0]);
            (node.clone(), [own].into_iter().chain(rivals.metrics(node)).collect())
        };
        let urls = pods.iter().map(urls).collect();
        Self { cluster, urls, rivals, witness: (witness, &pods[witness]), last: BTreeMap::new(), rows: Vec::new() }
    }

    /// Reads all, and returns what the judges say, and what has grown since the last look.
    fn look(&mut self, shown: Option<Shown>) -> (Result<Value, String>, Vec<Grown>) {
        std::thread::sleep(PAUSE);
        let cluster = self.cluster;
        let (said, pages) = std::thread::scope(|scope| {
            let readers: Vec<_> =
                self.urls.iter().map(|(node, urls)| (node, scope.spawn(|| read_all(cluster, node, urls)))).collect();
            let (node, pod) = self.witness;
            let said = agents::get_from(cluster, node, pod, "/api/v1/verdicts");
            let pages: Vec<_> =
                readers.into_iter().map(|(node, reader)| (node.clone(), reader.join().expect("no panic"))).collect();
            (said, pages)
        });
        let mut grown = Vec::new();
        for (node, page) in pages {
            let now = page.and_then(|page| series(&page));
            let Ok(now) = now else {
                eprintln!("  {node} is not read: {now:?}");
                continue;
            };
            let last = self.last.entry(node.clone()).or_default();
            if !last.is_empty() {
                let of_node = |(source, series)| Grown { node: node.clone(), source, series };
                grown.extend(signs(last, &now, shown).into_iter().map(of_node));
            }
            // A program that does not answer has no series. What it had counts when it is back.
            last.extend(now);
        }
        let said = said.and_then(|said| serde_json::from_str(&said).map_err(|error| format!("{error}: {said}")));
        (said, grown)
    }

    /// Injects a fault, and records the time until each source shows it. For the judges, that is a
    /// verdict over any of `subjects`.
    fn fault<T>(&mut self, name: &str, subjects: &[&str], shown: Shown, inject: impl FnOnce() -> T) {
        eprintln!("  {name}: {subjects:?}");
        let _ = self.look(None);
        let mut row = Row { fault: name.to_owned(), ..Row::default() };
        let begun = Instant::now();
        let injected = inject();
        let mut headline = String::new();
        while begun.elapsed() < LASTS && !(row.verdict.is_some() && row.signs.iter().all(Option::is_some)) {
            let (said, grown) = self.look(Some(shown));
            let after = begun.elapsed();
            let sign = |what: String| Sign { after, what };
            // Metrics of a node that is cut off can be read on this node alone: they do not count.
            let is_read = |it: &Grown| shown != Shown::Loss || !subjects.contains(&it.node.as_str());
            let counts = |it: &Grown| it.source != OWN || shown == Shown::Loss || is_of_checks(&it.series, subjects);
            for it in grown.into_iter().filter(is_read).filter(counts) {
                if row.signs[it.source].is_none() {
                    let what = format!("{}: {}", it.node, it.series);
                    eprintln!("  {:>5.1} s  {what}", after.as_secs_f64());
                    row.signs[it.source] = Some(sign(what));
                }
            }
            let now = said.as_ref().map_or_else(String::clone, |said| text(&said["headline"]));
            if now != headline {
                eprintln!("  {:>5.1} s  | {now}", after.as_secs_f64());
                headline = now;
            }
            if let (Ok(said), None) = (&said, &row.verdict) {
                row.verdict = agreed(said, subjects).map(sign);
                if let Some(verdict) = &row.verdict {
                    eprintln!("  {:>5.1} s  NAMED: {}", after.as_secs_f64(), verdict.what);
                }
            }
        }
        row.asked = self.rivals.check_all(self.witness.0).map_or(true, |said| is_bad(&said));
        eprintln!("  {:>5.1} s  goldpinger, when asked, shows it: {}", begun.elapsed().as_secs_f64(), row.asked);
        drop(injected);
        self.rows.push(row);
        self.calm();
    }

    /// Waits for a time, and until nothing holds.
    fn calm(&mut self) {
        let begun = Instant::now();
        until(&format!("{} s, and no verdict", CALM.as_secs()), || {
            let (said, grown) = self.look(None);
            let since = begun.elapsed();
            for it in grown.into_iter().filter(|_| since > AFTERMATH) {
                eprintln!("  {:>5.1} s  without a fault: {}: {}", since.as_secs_f64(), it.node, it.series);
            }
            let said = said?;
            if since > CALM && of_the_network(&said).is_empty() { Ok(()) } else { Err(said.to_string()) }
        });
    }
}

/// Whether a series of our agents is of a check that these subjects name. Another check that shows
/// something at the same time does so by chance.
fn is_of_checks(series: &str, subjects: &[&str]) -> bool {
    let check = series.split(['{', ',', '}']).find_map(|label| label.strip_prefix("check="));
    subjects.iter().any(|subject| subject.split_once("->").is_some_and(|(_, of)| Some(of) == check))
}

/// Reads one page after the other. One that is missing is left out.
fn read_all(cluster: &Cluster, node: &str, urls: &[String]) -> Result<String, String> {
    let script = "curl --silent --fail --max-time 3 \"$@\"; true";
    let urls = urls.iter().map(String::as_str);
    let args: Vec<&str> = ["sh", "-c", script, "read"].into_iter().chain(urls).collect();
    cluster.on_node(node, &args)
}

/// The series in which signs are, with their labels.
fn series(page: &str) -> Result<BTreeMap<String, f64>, String> {
    let named = |sample: Sample| {
        let value = match sample.name.as_str() {
            "goldpinger_cluster_health_total" => 1.0 - sample.value,
            "goldpinger_nodes_health_total" if sample.label("status") != "unhealthy" => return None,
            _ => sample.value,
        };
        let labels: Vec<_> = sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Some((format!("{}{{{}}}", sample.name, labels.join(",")), value))
    };
    Ok(exposition::parse(page)?.into_iter().filter_map(named).collect())
}

/// The series that have grown and that show an error, or what `shown` says.
fn signs(last: &BTreeMap<String, f64>, now: &BTreeMap<String, f64>, shown: Option<Shown>) -> Vec<(usize, String)> {
    let growth = |series: &str| now.get(series).map_or(0.0, |value| value - last.get(series).unwrap_or(&0.0));
    let is_sign = |series: &str| {
        let (name, labels) = series.split_once('{').expect("labels");
        let is_error = match name {
            "kube_canary_check_failures_total" => shown != Some(Shown::Loss),
            "kube_canary_probes_lost_total" => shown == Some(Shown::Loss),
            "goldpinger_cluster_health_total" | "goldpinger_nodes_health_total" | "kubenurse_errors_total" => true,
            _ => name.starts_with("goldpinger_") && name.ends_with("errors_total"),
        };
        if is_error {
            return growth(series) > 0.0;
        }
        let is_time =
            name.contains("check_duration") || name.contains("request_duration") || name.contains("response_time");
        match name.strip_suffix("_sum") {
            Some(of) if is_time && shown == Some(Shown::Slowness) => {
                let count = growth(&format!("{of}_count{{{labels}"));
                count > 0.0 && growth(series) / count > SLOW_SECONDS
            }
            _ => false,
        }
    };
    let source = |series: &str| SOURCES.iter().position(|prefix| series.starts_with(prefix));
    let found = now.keys().filter(|series| is_sign(series));
    found.filter_map(|series| Some((source(series)?, series.clone()))).collect()
}

/// The first verdict about one of these subjects on which two judges agree.
fn agreed(said: &Value, subjects: &[&str]) -> Option<String> {
    let verdicts = of_the_network(said);
    let is_of_fault = |verdict: &&Value| {
        verdict["judges"].as_u64() >= Some(2) && subjects.iter().any(|subject| verdict["subject"] == **subject)
    };
    verdicts.iter().find(is_of_fault).map(|verdict| text(&verdict["summary"]))
}

/// Whether an answer to `/check_all` shows anything bad, or nothing at all.
fn is_bad(said: &Value) -> bool {
    fn has_error(value: &Value) -> bool {
        match value {
            Value::Object(fields) => {
                fields.get("OK") == Some(&Value::Bool(false))
                    || fields.get("error").and_then(Value::as_str).is_some_and(|error| !error.is_empty())
                    || fields.values().any(has_error)
            }
            Value::Array(items) => items.iter().any(has_error),
            _ => false,
        }
    }
    has_error(said) || said["responses"].as_object().is_none_or(serde_json::Map::is_empty)
}

fn table(rows: &[Row]) -> String {
    let mut lines = vec![
        "| fault | two judges agree, s | verdict | agents' own counters, s | kubenurse, s | goldpinger, s | \
         goldpinger when asked |"
            .to_owned(),
        "|---|---:|---|---:|---:|---:|---|".to_owned(),
    ];
    let time = |sign: &Option<Sign>| {
        sign.as_ref().map_or_else(|| "not seen".to_owned(), |sign| format!("{:.1}", sign.after.as_secs_f64()))
    };
    lines.extend(rows.iter().map(|row| {
        let verdict = row.verdict.as_ref().map_or("none", |sign| &sign.what);
        let [own, kubenurse, goldpinger] = [OWN, KUBENURSE, GOLDPINGER].map(|source| time(&row.signs[source]));
        let asked = if row.asked { "shows it" } else { "all well" };
        let (fault, agreed) = (&row.fault, time(&row.verdict));
        format!("| {fault} | {agreed} | {verdict} | {own} | {kubenurse} | {goldpinger} | {asked} |")
    }));
    lines.join("\n")
}

/// What of a fault the others see and our judges do not, or later.
fn wrong(row: &Row) -> Vec<String> {
    let mut wrong = Vec::new();
    for (source, name) in [(KUBENURSE, "kubenurse"), (GOLDPINGER, "goldpinger")] {
        let (Some(sign), fault) = (&row.signs[source], &row.fault) else { continue };
        let (theirs, what) = (sign.after.as_secs_f64(), &sign.what);
        match &row.signs[OWN] {
            None => wrong.push(format!("{fault}: {name} counts it after {theirs:.1} s ({what}), and no agent does")),
            Some(ours) if ours.after > sign.after + READING => wrong.push(format!(
                "{fault}: {name} counts it after {theirs:.1} s ({what}), and an agent after {:.1} s",
                ours.after.as_secs_f64()
            )),
            Some(_) => {}
        }
    }
    let is_seen = row.asked || [KUBENURSE, GOLDPINGER].iter().any(|source| row.signs[*source].is_some());
    if is_seen && row.verdict.as_ref().is_none_or(|verdict| verdict.after > NAMED) {
        wrong.push(format!("{}: another program shows it, and judges do not name it in time", row.fault));
    }
    wrong
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
