//! The settings of `kube-canary demo`.

use std::time::Duration;

use super::UsageError;
use super::run::{duration_between, number_between};
use super::typed::Typed;
use crate::limits::{DEMO_NODES_MAX, INTERVAL_MAX, INTERVAL_MIN};

/// The first line that `demo --help` shows.
pub const ABOUT: &str = "Runs a mesh of real agents, one process each, on this machine's loopback addresses.";
/// The grammar of `--fault`, as an error shows it.
const FAULT: &str =
    "NODE:in, NODE:out, NODE:both or NODE-NODE, and behind it :PERCENT% or :DELAY, such as node3:in:10%";
/// The default interval, which is that of an agent.
const INTERVAL: Duration = Duration::from_secs(1);
/// The default interval with faults: a verdict needs a number of losses, so it comes in seconds.
const INTERVAL_OF_FAULTS: Duration = Duration::from_millis(200);
/// The longest delay. With the default timeout, a probe that takes longer is lost.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// The settings that `demo` runs with.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoSettings {
    /// The number of agents to start.
    pub nodes: u8,
    /// Time between two probes of a peer.
    pub interval: Duration,
    /// The HTTP port of every agent.
    pub port: u16,
    /// Stop after this many seconds. None means at a signal.
    pub seconds: Option<u64>,
    /// What the network does to packets between the nodes. Without faults, there is no network
    /// between them: all are on loopback.
    pub faults: Vec<Fault>,
}

/// What happens to the packets between certain nodes. A node is an index, which begins with 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// The node that sends the packets. None means any.
    pub from: Option<u8>,
    /// The node that the packets are sent to. None means any.
    pub to: Option<u8>,
    /// What happens to these packets.
    pub effect: Effect,
}

/// What a fault does to a packet: it drops or delays it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// It is dropped with this probability, above 0 and up to 1.
    Loss(f64),
    /// It arrives later by this time, at most a second.
    Delay(Duration),
}

impl DemoSettings {
    pub(super) fn resolve(typed: &Typed) -> Result<Self, UsageError> {
        let nodes = typed.value("nodes", number_between(2, DEMO_NODES_MAX))?.unwrap_or(3);
        let mut faults = Vec::new();
        for (flag, text) in typed.texts("fault") {
            for text in text.split(',').map(str::trim) {
                faults
                    .extend(Fault::parse(text, nodes).map_err(|accepted| UsageError::expected(flag, text, &accepted))?);
            }
        }
        let interval = typed.value("interval", duration_between(INTERVAL_MIN, INTERVAL_MAX))?;
        Ok(Self {
            nodes,
            interval: interval.unwrap_or(if faults.is_empty() { INTERVAL } else { INTERVAL_OF_FAULTS }),
            port: typed.value("port", number_between(1, u16::MAX))?.unwrap_or(9_877),
            seconds: typed.value("seconds", number_between(1, 86_400))?,
            faults,
        })
    }

    /// Returns the name of a node, by its index.
    pub fn node_name(index: u8) -> String {
        format!("node{}", u16::from(index) + 1)
    }
}

impl Fault {
    /// Reads one `--fault`. It makes two faults if it concerns both directions.
    fn parse(text: &str, nodes: u8) -> Result<Vec<Self>, String> {
        let (place, effect) = text.rsplit_once(':').ok_or(FAULT)?;
        let node = |name: &str| {
            let last = DemoSettings::node_name(nodes - 1);
            let found = (0..nodes).find(|index| DemoSettings::node_name(*index) == name);
            found.ok_or_else(|| format!("a node from node1 to {last}; there is no {name:?}"))
        };
        let effect = Effect::parse(effect)?;
        let fault = |from, to| Self { from, to, effect };
        if let Some((name, direction)) = place.split_once(':') {
            let node = Some(node(name)?);
            return match direction {
                "in" => Ok(vec![fault(None, node)]),
                "out" => Ok(vec![fault(node, None)]),
                "both" => Ok(vec![fault(None, node), fault(node, None)]),
                _ => Err(FAULT.into()),
            };
        }
        let (a, b) = place.split_once('-').ok_or(FAULT)?;
        let (a, b) = (Some(node(a)?), Some(node(b)?));
        if a == b { Err("two different nodes".into()) } else { Ok(vec![fault(a, b), fault(b, a)]) }
    }
}

impl Effect {
    fn parse(text: &str) -> Result<Self, String> {
        let loss = |percent: &str| percent.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
        let effect = match text.strip_suffix('%') {
            Some(percent) => loss(percent).map(|percent: f64| Self::Loss(percent / 100.0)),
            None => duration_between(Duration::from_nanos(1), DELAY_MAX)(text).ok().map(Self::Delay),
        };
        effect.ok_or_else(|| {
            format!("at the end a loss above 0% and up to 100%, or a delay up to {DELAY_MAX:?}, such as 10% or 20ms")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Command, parse};

    fn settings(line: &str) -> Result<DemoSettings, String> {
        let arguments = ["demo"].into_iter().chain(line.split_whitespace()).map(Into::into).collect::<Vec<_>>();
        match parse(&arguments, &|_| None) {
            Ok(Command::Demo(settings)) => Ok(settings),
            Ok(other) => panic!("{line}: {other:?}"),
            Err(error) => Err(error.0),
        }
    }

    #[test]
    fn a_demo_with_faults_probes_faster_unless_an_interval_is_given() {
        for (line, ms) in [("", 1_000), ("--fault node1:in:1%", 200), ("--fault node1:in:1% --interval 1s", 1_000)] {
            assert_eq!(settings(line).unwrap().interval, Duration::from_millis(ms), "{line}");
        }
    }

    #[test]
    fn a_fault_is_of_one_direction_or_of_two() {
        let fault = |from, to, effect| Fault { from, to, effect };
        let (tenth, delay) = (Effect::Loss(0.1), Effect::Delay(Duration::from_millis(20)));
        for (line, expected) in [
            ("", vec![]),
            ("--fault node3:in:10%", vec![fault(None, Some(2), tenth)]),
            ("--fault node1:out:20ms", vec![fault(Some(0), None, delay)]),
            ("--fault node2:both:10%", vec![fault(None, Some(1), tenth), fault(Some(1), None, tenth)]),
            ("--fault node1-node2:10%", vec![fault(Some(0), Some(1), tenth), fault(Some(1), Some(0), tenth)]),
            (
                "--nodes 10 --fault node10:in:0.5%,node9:out:100% --fault node1:in:1s",
                vec![
                    fault(None, Some(9), Effect::Loss(0.005)),
                    fault(Some(8), None, Effect::Loss(1.0)),
                    fault(None, Some(0), Effect::Delay(DELAY_MAX)),
                ],
            ),
        ] {
            assert_eq!(settings(line).map(|it| it.faults), Ok(expected), "{line}");
        }
    }

    #[test]
    fn a_bad_fault_is_one_line_that_names_flag_value_and_what_is_accepted() {
        for (text, named) in [
            ("node3", "NODE:in"),
            ("node3:10%", "NODE-NODE"),
            ("node3:up:10%", "NODE:both"),
            ("node3:in:10", "0%"),
            ("node3:in:0%", "above 0%"),
            ("node3:in:101%", "100%"),
            ("node3:in:NaN%", "100%"),
            ("node3:in:2s", "1s"),
            ("node3:in:", "20ms"),
            ("node4:in:10%", "\"node4\""),
            ("node0:in:10%", "node1 to node3"),
            ("node03:in:10%", "\"node03\""),
            ("node1-node7:10%", "\"node7\""),
            ("node1-node1:10%", "two different nodes"),
            ("node1:in:10%,", "NODE:in"),
        ] {
            let error = settings(&format!("--fault {text}")).unwrap_err();
            let value = format!("--fault {:?}", text.strip_prefix("node1:in:10%,").unwrap_or(text));
            assert!(
                error.starts_with(&value) && error.contains(named) && error.lines().count() == 1,
                "{text}: {error}"
            );
        }
    }
}
