//! The default checks of many agents in one process, run by bench/check-load:
//! `check_load NODES SPREAD SECONDS ACCOUNT`.
//!
//! Each agent is the library's own [`checks::run`], so what is asked, when and how is what agents
//! do. They begin one after the other within SPREAD seconds, as in a rollout. Then the program
//! prints `begin`, after SECONDS `end`, and `CHECK MICROSECONDS END` for each attempt in between.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use kube_canary::check::{CheckFailure, DEFAULT_CHECKS};
use kube_canary::checks::{self, Attempt, CheckPlan, CheckResults, CheckSpec, ChecksConfig, ChecksFile, DueAttempt};
use kube_canary::discovery::{DiscoverySource, KubernetesConfig};
use kube_canary::limits::CHECK_RATE_DEFAULT;
use kube_canary::units::Nanos;
use tokio::time::sleep;

/// The nodes of the mesh, and the attempts of each check since the window began.
#[derive(Clone)]
struct Recorder(u32, Rc<RefCell<[Vec<Attempt>; DEFAULT_CHECKS.len()]>>);

impl CheckResults for Recorder {
    fn replace(&self, _: &[CheckSpec]) {}

    fn record(&self, due: DueAttempt, _: usize, _: Nanos, attempt: &Attempt) {
        self.1.borrow_mut()[due.check].push(attempt.clone());
    }

    fn nodes(&self) -> Option<u32> {
        Some(self.0)
    }
}

async fn play(nodes: u32, spread: Duration, window: Duration, source: DiscoverySource) {
    let (recorder, rate) = (Recorder(nodes, Rc::default()), f64::from(CHECK_RATE_DEFAULT));
    for number in 0..nodes {
        let config = ChecksConfig {
            specs: Vec::new(),
            file: None,
            defaults: true,
            // An agent answers one address and session no more than 256 times a second.
            by_udp: false,
            authorities: None,
            rate,
        };
        let list = ChecksFile::new(config, &source);
        let plan = CheckPlan { list, rate, authorities: None, node: format!("node-{number}") };
        let agent = checks::run(plan, recorder.clone());
        tokio::task::spawn_local(async move {
            sleep(spread * number / nodes).await;
            agent.await;
        });
    }
    sleep(spread).await;
    recorder.1.take();
    println!("begin");
    sleep(window).await;
    let found = recorder.1.take();
    println!("end");
    for (name, attempts) in DEFAULT_CHECKS.iter().zip(found) {
        for Attempt { phases, end, .. } in attempts {
            let micros: u64 = phases.iter().flatten().map(|time| time.0 / 1_000).sum();
            println!("{name} {micros} {}", end.map_or_else(CheckFailure::label, |()| "ok"));
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, spread, window, account] = &words[..] else { return Err("NODES SPREAD SECONDS ACCOUNT".into()) };
    let (variable, namespace) = (|name: &str| std::env::var(name).ok(), Some("default".to_owned()));
    let source = KubernetesConfig::in_cluster(variable, account.into(), namespace, "kube-canary".to_owned())?;
    let [spread, window] = [Duration::from_secs(spread.parse()?), Duration::from_secs(window.parse()?)];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let played = play(nodes.parse()?, spread, window, DiscoverySource::Kubernetes(Box::new(source)));
    tokio::task::LocalSet::new().block_on(&runtime, played);
    Ok(())
}
