//! Quantiles of a link as Prometheus computes them from what agents expose, compared with the same
//! round trips on a wire tap.
//!
//! Three agents probe their peers over the emulated link of `tests/netns`, whose delays spread over
//! two decades. The tap's times are the kernel's: the request as it enters the device and the reply
//! as it leaves it. Any delay of the machine is in both.
//!
//! Exactly the same round trips are compared. Prometheus shows how many observations the first and
//! the last scrape of its window had. The observations between them are those of the tap's replies,
//! which come in the order in which the agent counts them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::Value;

use crate::agent::{Agent, Maker, Peers};
use crate::common::until::{until, until_within};
use crate::decoder::{Decoder, FORMATS};
use crate::emulator::{Emulator, Fate, Probe};
use crate::namespace::Namespace;
use crate::prometheus::{Prometheus, Release};
use crate::random::Random;

const NODES: [&str; 3] = ["a", "b", "c"];
const INTERVAL: &str = "20ms";
const TIMEOUT: Duration = Duration::from_secs(1);
/// Probes of each link in the window: a thirtieth of them is above p99's neighbours.
const PROBES: u64 = 1_000;
/// The limit of every wait. A wait takes longer only if the event never happens.
const PATIENCE: Duration = Duration::from_mins(4);
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];
/// Bins per factor of 2 of the native histograms at default flags.
const BINS: f64 = 8.0;
/// A window that holds all scrapes.
const WINDOW: &str = "10m";

/// The address at which `source` probes `peer`. Each pair has its own, so that the tap can
/// tell the links apart.
fn address(source: usize, peer: usize) -> Ipv4Addr {
    let number = u8::try_from(10 * (source + 1) + peer).expect("few nodes");
    Ipv4Addr::new(198, 18, 1, number)
}

/// Log-normal with a median of 3 ms and a p99 of 30 ms, from 0.3 to 60 ms. The reference has eight
/// times as long delays: it reads the clock itself, so any delay of the machine changes its times.
fn delay(maker: Maker, peer: IpAddr, sequence: u16) -> Duration {
    let IpAddr::V4(address) = peer else { return Duration::ZERO };
    let scale = if maker == Maker::Reference { 8.0 } else { 1.0 };
    let mut random = Random(u64::from(address.to_bits()) << 16 | u64::from(sequence));
    // Irwin and Hall: the sum of 12 uniform numbers less 6 is nearly normal.
    let normal: f64 = (0..12).map(|_| random.below(1 << 32) as f64 / (1u64 << 32) as f64).sum::<f64>() - 6.0;
    Duration::from_secs_f64(scale * (0.003 * normal.exp()).clamp(0.000_3, 0.06))
}

struct Mesh<'a> {
    agents: Vec<Agent<'a>>,
    emulator: Emulator,
}

impl<'a> Mesh<'a> {
    fn start(maker: Maker, namespace: &'a Namespace) -> Self {
        let emulator = Emulator::new(namespace, move |peer, sequence| Fate::after(delay(maker, peer, sequence)));
        let start = |(index, name): (usize, &&str)| {
            let peers = Peers::new();
            let node = |peer: usize| (NODES[peer].to_owned(), address(index, peer), format!("zone-{}", NODES[peer]));
            peers.write((0..NODES.len()).map(node));
            let port = 9_877 + u16::try_from(index).expect("few nodes");
            let flags = ["--interval", INTERVAL, "--timeout", "1s"];
            Agent::start(maker, namespace, (name, port), &peers.0, &flags)
        };
        let agents = NODES.iter().enumerate().map(start).collect();
        Self { agents, emulator }
    }

    fn targets(&self) -> Vec<String> {
        self.agents.iter().map(|agent| agent.http.to_string()).collect()
    }
}

/// Seconds of the answered probes of a link, in the order of the answers.
fn tapped(log: &[Probe], address: Ipv4Addr) -> Vec<f64> {
    let first = |probe: &Probe| probe.first().map(|reply| (reply.order, reply.at.since(probe.entered).0));
    let mut answered: Vec<_> = log.iter().filter(|probe| probe.peer == address).filter_map(first).collect();
    answered.sort_unstable();
    let timeout = u64::try_from(TIMEOUT.as_nanos()).expect("short");
    answered
        .into_iter()
        .map(|(_, nanos)| nanos)
        .filter(|nanos| *nanos < timeout)
        .map(|nanos| nanos as f64 / 1e9)
        .collect()
}

/// The smallest time that at least this part of all times does not exceed.
fn quantile(times: &[f64], part: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil();
    let last = sorted.len() - 1;
    (0..).zip(&sorted).find(|(index, _)| f64::from(*index + 1) >= rank).map_or(sorted[last], |(_, time)| *time)
}

/// The native bin of a time.
fn bin(seconds: f64) -> f64 {
    (seconds.log2() * BINS - 1e-9).ceil()
}

/// A selector, and the samples of it that a range query of the window would use.
struct Window {
    selector: String,
    /// The time of the last sample.
    at: f64,
    /// Observations at the first sample, and at the last.
    counts: [usize; 2],
}

impl Window {
    /// The window of the series `name` of a link, native or not.
    fn of(prometheus: &Prometheus, job: &str, name: &str, source: &str, peer: &str) -> Result<Self, String> {
        let selector = format!("{name}{{job=\"{job}\",source_node=\"{source}\",peer_node=\"{peer}\"}}");
        let result = prometheus.query(&format!("{selector}[{WINDOW}]"), None);
        let native = name == "kube_canary_probe_rtt_seconds";
        let samples = match &result[..] {
            [series] => series[if native { "histograms" } else { "values" }].as_array().cloned().unwrap_or_default(),
            other => {
                return Err(format!(
                    "{:?}: {} series of {selector}; {:?}",
                    prometheus.release,
                    other.len(),
                    prometheus.errors()
                ));
            }
        };
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return Err(format!("{:?}: {selector} is not native: {:?}", prometheus.release, prometheus.errors()));
        };
        let count = |sample: &Value| {
            let text = if native { sample[1]["count"].as_str() } else { sample[1].as_str() };
            text.and_then(|text| text.parse().ok()).expect("a count")
        };
        let at = last[0].as_f64().expect("a time");
        Ok(Self { selector, at, counts: [count(first), count(last)] })
    }

    fn probes(&self) -> u64 {
        (self.counts[1] - self.counts[0]) as u64
    }
}

/// A histogram of one job: its form, and the range of values within which its quantile must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Native,
    Classic,
}

fn forms(release: Release, job: &str) -> &'static [Form] {
    match (release, job) {
        (Release::DebianNative, _) => &[Form::Native],
        (Release::Three, "protobuf") => &[Form::Native, Form::Classic],
        _ => &[Form::Classic],
    }
}

/// Waits until every window has enough probes.
fn wait_for_windows(servers: &[Prometheus]) {
    for prometheus in servers {
        for job in prometheus.release.jobs() {
            for form in forms(prometheus.release, job) {
                for (source, peer) in links() {
                    until_within(PATIENCE, "the window is full", || {
                        let name = form.counted();
                        let window = Window::of(prometheus, job, name, NODES[source], NODES[peer])?;
                        if window.probes() >= PROBES { Ok(()) } else { Err(format!("{} probes", window.probes())) }
                    });
                }
            }
        }
    }
}

fn links() -> impl Iterator<Item = (usize, usize)> {
    let nodes = 0..NODES.len();
    nodes
        .clone()
        .flat_map(move |source| nodes.clone().map(move |peer| (source, peer)))
        .filter(|(source, peer)| source != peer)
}

impl Form {
    /// The series that counts observations.
    fn counted(self) -> &'static str {
        match self {
            Self::Native => "kube_canary_probe_rtt_seconds",
            Self::Classic => "kube_canary_probe_rtt_seconds_count",
        }
    }

    fn expression(self, part: f64, selector: &str) -> String {
        let selector = match self {
            Self::Native => selector.to_owned(),
            Self::Classic => selector.replacen("_count{", "_bucket{", 1),
        };
        format!("histogram_quantile({part}, rate({selector}[{WINDOW}]))")
    }
}

/// The classic bounds of a link, in ascending order.
fn bounds(prometheus: &Prometheus, window: &Window) -> Vec<f64> {
    let buckets = window.selector.replacen("_count{", "_bucket{", 1);
    let result = prometheus.query(&buckets, Some(window.at));
    let bound = |series: &Value| series["metric"]["le"].as_str().and_then(|le| le.replace("+Inf", "inf").parse().ok());
    let mut bounds: Vec<f64> = result.iter().filter_map(bound).collect();
    bounds.sort_by(f64::total_cmp);
    bounds
}

/// Judges one quantile of one link, of one form of one job. Returns by how many bins it differs.
fn judge(prometheus: &Prometheus, form: Form, window: &Window, tapped: &[f64], part: f64) -> Result<f64, String> {
    let said = prometheus.value(&form.expression(part, &window.selector), Some(window.at));
    let wire = quantile(tapped, part);
    let off = bin(said) - bin(wire);
    let what = || {
        format!(
            "{:?} {}: p{} is {said}, on the wire {wire}",
            prometheus.release,
            window.selector,
            (part * 100.0).round()
        )
    };
    match form {
        Form::Native if off.abs() <= 1.0 => Ok(off),
        Form::Native => Err(what()),
        Form::Classic => {
            let bounds = bounds(prometheus, window);
            let lower = bounds.iter().copied().filter(|bound| *bound < said).fold(0.0, f64::max);
            let upper = bounds.iter().copied().find(|bound| *bound >= said).ok_or_else(what)?;
            // The tolerance of the native form may reach beyond a bound of the wire's time.
            let slack = (1.0 / BINS).exp2();
            if (lower / slack..=upper * slack).contains(&wire) {
                Ok(off)
            } else {
                Err(what() + &format!(": {bounds:?}"))
            }
        }
    }
}

fn quantiles_are_those_of_the_wire(maker: Maker) {
    let namespace = Namespace::new(format!("kc{}-quantiles-{maker:?}", std::process::id()).to_lowercase());
    let mesh = Mesh::start(maker, &namespace);
    let mut decoder = Decoder::start();
    for (format, accept) in FORMATS {
        assert_eq!(decoder.read(&mesh.agents[0].scrape(accept), false).format, format, "it was asked for");
    }
    let releases = [Release::Debian, Release::DebianNative, Release::Three];
    let servers = releases.map(|release| Prometheus::start(release, &namespace, &mesh.targets()));
    wait_for_windows(&servers);
    for agent in &mesh.agents {
        for (format, accept) in FORMATS {
            let scrape = decoder.whole(&agent.scrape(accept));
            assert_eq!(scrape.links, NODES.len() - 1, "{format}");
        }
    }
    let mut wrong = Vec::new();
    for prometheus in &servers {
        for job in prometheus.release.jobs() {
            for form in forms(prometheus.release, job) {
                let mut offs = Vec::new();
                for (source, peer) in links() {
                    let window = Window::of(prometheus, job, form.counted(), NODES[source], NODES[peer]);
                    let window = window.unwrap_or_else(|error| panic!("{error}"));
                    let times = until("the tap's log is as long", || {
                        let times = tapped(&mesh.emulator.log(), address(source, peer));
                        let there = times.len();
                        if there >= window.counts[1] {
                            Ok(times)
                        } else {
                            Err(format!("{there} of {:?}", window.counts))
                        }
                    });
                    let times = &times[window.counts[0]..window.counts[1]];
                    for part in QUANTILES {
                        match judge(prometheus, *form, &window, times, part) {
                            Ok(off) => offs.push(off),
                            Err(fault) => wrong.push(fault),
                        }
                    }
                }
                let exact = offs.iter().filter(|off| off.abs() < 0.5).count();
                let (release, form) = (prometheus.release, if *form == Form::Native { "native" } else { "classic" });
                println!(
                    "{maker:?}, {release:?}, {job}, {form}: {exact} of {} quantiles in the wire's own bin",
                    offs.len()
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn quantiles_equal_the_wire_with_the_reference() {
    quantiles_are_those_of_the_wire(Maker::Reference);
}

#[test]
fn quantiles_equal_the_wire_with_our_agent() {
    quantiles_are_those_of_the_wire(Maker::Agent);
}
