//! Onlookers at some agents, and faults that they watch.
//!
//! The log has each headline once, with the seconds since the fault began or ended. What is wrong,
//! such as a verdict over anything but the fault, does not end the test at once, so that the log
//! shows what follows. It fails the test at the end of the step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::agents::{self, Pod};
use crate::cluster::Cluster;
use crate::judges::of_the_network;
use crate::view;
use crate::wait::until;

/// The pause before each look: with the pause of `until`, two seconds.
const PAUSE: Duration = Duration::from_millis(1_500);
/// The recent window of checks. Until it has passed, the next fault would be part of the last one.
const WINDOW: Duration = Duration::from_mins(1);
/// A time in whole seconds may be before the true one by this.
const ROUNDED_SECONDS: u64 = 2;

/// A fault, and what must be said of it.
pub struct Expected<'e> {
    pub kind: &'static str,
    pub subject: String,
    /// A part of the headline while the fault holds.
    pub says: String,
    /// How long it lasts at least.
    pub lasts: Duration,
    /// Whether a verdict may be about it: its parts may be named before the whole is.
    pub is_of_fault: &'e dyn Fn(&Value) -> bool,
}

impl Expected<'_> {
    fn is_named(&self, verdict: &Value) -> bool {
        verdict["kind"] == self.kind && verdict["subject"] == *self.subject
    }
}

struct Onlooker {
    node: String,
    pod: Pod,
    /// What its agent last said.
    headline: String,
}

pub struct Watch<'a> {
    cluster: &'a Cluster,
    /// The first one decides; what the others hear is printed.
    onlookers: Vec<Onlooker>,
    /// When the last fault began or ended.
    event: Instant,
    /// What was wrong, each once.
    pub wrong: BTreeSet<String>,
}

impl<'a> Watch<'a> {
    pub fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, onlookers: Vec::new(), event: Instant::now(), wrong: BTreeSet::new() }
    }

    /// Watches at the agents of these nodes from now on.
    pub fn at(&mut self, nodes: &[&String], pods: &BTreeMap<String, Pod>) {
        let onlooker =
            |node: &&String| Onlooker { node: (*node).clone(), pod: pods[*node].clone(), headline: String::new() };
        self.onlookers = nodes.iter().map(onlooker).collect();
    }

    /// Asks the agent beside an onlooker. The API server would take most of the CPU time of such
    /// a request.
    fn get(&self, onlooker: &Onlooker, path: &str) -> Result<Value, String> {
        let said = agents::get_from(self.cluster, &onlooker.node, &onlooker.pod, path)?;
        serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))
    }

    /// Prints the headlines that have changed, and returns the document of the first onlooker.
    fn look(&mut self, is_of_fault: impl Fn(&Value) -> bool) -> Result<Value, String> {
        std::thread::sleep(PAUSE);
        let mut onlookers = std::mem::take(&mut self.onlookers);
        let documents: Vec<_> = onlookers.iter().map(|it| self.get(it, "/api/v1/verdicts")).collect();
        let seconds = self.event.elapsed().as_secs_f64();
        for (onlooker, document) in onlookers.iter_mut().zip(&documents) {
            let now = document.as_ref().map_or("no answer", headline);
            if now != onlooker.headline {
                eprintln!("  {seconds:>5.1} s  | {}: {now}", onlooker.node);
                now.clone_into(&mut onlooker.headline);
            }
            if let Ok(document) = document {
                self.check(&of_the_network(document), &is_of_fault);
            }
        }
        self.onlookers = onlookers;
        documents.into_iter().next().expect("there is an onlooker")
    }

    /// Keeps what is wrong, if it does not hold.
    pub fn require(&mut self, holds: bool, what: String) {
        if !holds && !self.wrong.contains(&what) {
            eprintln!("  {:>5.1} s  WRONG: {what}", self.event.elapsed().as_secs_f64());
            self.wrong.insert(what);
        }
    }

    /// Requires that verdicts are of the fault, if two judges agree on them.
    fn check(&mut self, verdicts: &[Value], is_of_fault: impl Fn(&Value) -> bool) {
        let is_agreed = |verdict: &&Value| verdict["judges"].as_u64() >= Some(2);
        for verdict in verdicts.iter().filter(is_agreed).filter(|verdict| !is_of_fault(verdict)) {
            let [kind, subject, since] = ["kind", "subject", "since_unix_seconds"].map(|name| &verdict[name]);
            self.require(false, format!("{kind} {subject} since {since} is named"));
        }
    }

    /// Injects a fault and ends it, when it has lasted and is named. Returns the verdict over it
    /// from the past.
    pub fn fault<T>(&mut self, expected: &Expected, inject: impl FnOnce() -> T) -> Value {
        let injected = unix_seconds();
        self.event = Instant::now();
        let fault = inject();
        until(&format!("the fault has lasted, and the headline has \"{}\"", expected.says), || {
            let document = self.look(expected.is_of_fault)?;
            let is_named = of_the_network(&document).iter().any(|verdict| expected.is_named(verdict));
            let is_done = is_named && headline(&document).contains(&expected.says);
            let left = expected.lasts.saturating_sub(self.event.elapsed());
            if is_done && left.is_zero() { Ok(()) } else { Err(format!("{left:?} to go: {document}")) }
        });
        drop(fault);
        eprintln!("         it has ended");
        self.event = Instant::now();
        let was = format!("; {} lost packets from ", expected.subject.replace("->", " -> "));
        until(&format!("the headline has \"well since\" and \"{was}\""), || {
            let document = self.look(expected.is_of_fault)?;
            let is_done = headline(&document).starts_with("well since ") && headline(&document).contains(&was);
            if is_done { Ok(()) } else { Err(document.to_string()) }
        });
        until("doctor finds nothing", || {
            self.look(expected.is_of_fault)?;
            view::doctor_by_judges(self.cluster, &self.onlookers[0].pod)
        });
        let past = self.past_since(injected);
        self.check(&past, expected.is_of_fault);
        let named: Vec<_> = past.into_iter().filter(|verdict| expected.is_named(verdict)).collect();
        self.require(named.len() == 1, format!("not in the past once: {named:?}"));
        let verdict = named.into_iter().next().expect("it is in the past");
        let [since, ended] = ["since_unix_seconds", "ended_unix_seconds"].map(|name| verdict[name].as_u64());
        eprintln!("         injected at {injected}; of the past: {since:?} to {ended:?}");
        let is_own = since.is_some_and(|since| since + ROUNDED_SECONDS >= injected);
        self.require(is_own, format!("{} since {since:?}, before it was injected at {injected}", expected.subject));
        verdict
    }

    /// Injects faults of what pods depend on, and ends them when verdicts over these subjects, and
    /// no others, have held for a time.
    pub fn checks<T>(&mut self, fault: &str, subjects: &[String], lasts: Duration, inject: impl FnOnce() -> T) {
        eprintln!("  {fault}: {subjects:?}");
        self.event = Instant::now();
        let expected: BTreeSet<String> = subjects.iter().cloned().collect();
        let is_of_fault = |verdict: &Value| {
            verdict["kind"] == "check" && verdict["subject"].as_str().is_some_and(|subject| expected.contains(subject))
        };
        let injected = inject();
        let (mut named, mut held_since) = (BTreeSet::new(), None);
        until(&format!("{subjects:?} named, and nothing else"), || {
            let document = self.look(is_of_fault)?;
            let at = self.event.elapsed();
            let mut found = BTreeSet::new();
            for verdict in of_the_network(&document) {
                let subject = verdict["subject"].as_str().unwrap_or_default().to_owned();
                if named.insert(subject.clone()) {
                    eprintln!("  {:>5.1} s  NAMED: {}", at.as_secs_f64(), verdict["summary"]);
                }
                found.insert(subject);
            }
            if found != expected {
                held_since = None;
                return Err(document.to_string());
            }
            let since = at.saturating_sub(*held_since.get_or_insert(at));
            if since >= lasts { Ok(()) } else { Err(format!("named for {since:?}")) }
        });
        drop(injected);
        eprintln!("         it has ended");
        self.event = Instant::now();
        until("the headline has \"well\"", || {
            let document = self.look(is_of_fault)?;
            let is_well = of_the_network(&document).is_empty() && headline(&document).contains("well");
            if is_well { Ok(()) } else { Err(document.to_string()) }
        });
        eprintln!("  {:>5.1} s  WELL", self.event.elapsed().as_secs_f64());
        self.calm(WINDOW);
    }

    /// Goes on for a time after the last fault has ended. Nothing may begin.
    pub fn calm(&mut self, lasts: Duration) {
        until(&format!("{} s since the end of the fault", lasts.as_secs()), || {
            self.look(|_| false)?;
            let left = lasts.saturating_sub(self.event.elapsed());
            if left.is_zero() { Ok(()) } else { Err(format!("{left:?} to go")) }
        });
    }

    /// The verdicts over the network that have ended since then.
    pub fn past_since(&self, unix_seconds: u64) -> Vec<Value> {
        let history = until("the history", || self.get(&self.onlookers[0], "/api/v1/history"));
        let is_new = |verdict: &Value| {
            let ended = verdict["ended_unix_seconds"].as_u64();
            ended.is_some_and(|ended| ended + ROUNDED_SECONDS >= unix_seconds)
        };
        of_the_network(&history).into_iter().filter(is_new).collect()
    }
}

fn headline(document: &Value) -> &str {
    document["headline"].as_str().unwrap_or_default()
}

/// Returns the time now, in Unix seconds.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs()
}
