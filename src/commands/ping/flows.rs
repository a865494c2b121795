//! Losses by source port of a target that is probed by UDP.

use std::fmt::Write as _;

use super::output::{PingForm, TargetLabel};
use crate::limits::FLOWS_MAX;
use crate::prober::Flow;
use crate::sys::table::{self, ColumnKind, TableCell, known, percent};
use crate::sys::terminal::Tint;

/// The counts of one flow.
#[derive(Clone, Copy, Debug, Default)]
struct FlowCount {
    received: u64,
    lost: u64,
}

/// The counts of all flows of a target.
#[derive(Debug)]
pub struct TargetFlows {
    counts: [FlowCount; FLOWS_MAX as usize],
    used: u8,
}

impl TargetFlows {
    /// Makes empty counts for this many flows.
    pub fn new(flows: u8) -> Self {
        Self { counts: [FlowCount::default(); FLOWS_MAX as usize], used: flows.min(FLOWS_MAX) }
    }

    /// Counts the outcome of a probe. Returns whether it is the first loss of its flow.
    pub fn record(&mut self, flow: u8, answered: bool) -> bool {
        let Some(count) = self.counts.get_mut(usize::from(flow)) else { return false };
        *(if answered { &mut count.received } else { &mut count.lost }) += 1;
        !answered && count.lost == 1
    }

    fn used(&self) -> impl Iterator<Item = (Flow, FlowCount)> {
        (0..self.used).map(Flow).zip(self.counts)
    }
}

const HEADS: [(&str, ColumnKind); 6] = [
    ("TARGET", ColumnKind::Same),
    ("FLOW", ColumnKind::Number),
    ("PORT", ColumnKind::Number),
    ("RECEIVED", ColumnKind::Number),
    ("LOST", ColumnKind::Number),
    ("LOSS", ColumnKind::Number),
];

/// Writes a summary by flow. JSON has all flows, and text those of targets that have lost on some
/// of them.
pub fn summary(
    text: &mut String,
    form: PingForm,
    labels: &[TargetLabel],
    flows: &[TargetFlows],
    port: impl Fn(usize, Flow) -> Option<u16>,
) {
    let by_target = labels.iter().zip(flows).enumerate();
    let all = by_target.flat_map(|(index, (label, flows))| {
        let loses = flows.counts.iter().any(|count| count.lost > 0);
        flows.used().map(move |(flow, count)| (index, label, flow, count, loses))
    });
    match form {
        PingForm::Text(terminal) => {
            let losing = all.filter(|(.., loses)| *loses);
            let lines: Vec<[TableCell; HEADS.len()]> = losing
                .map(|(index, label, flow, count, _)| {
                    let probes = count.received + count.lost;
                    let loss = known((probes > 0).then(|| count.lost as f64 / probes as f64), percent);
                    let bad = |text| TableCell::tinted(text, Tint::Bad, count.lost > 0);
                    [
                        label.name().to_owned().into(),
                        flow.0.to_string().into(),
                        known(port(index, flow), |port| port.to_string()).into(),
                        count.received.to_string().into(),
                        bad(count.lost.to_string()),
                        bad(loss),
                    ]
                })
                .collect();
            if !lines.is_empty() {
                text.push('\n');
                text.push_str(&table::render_on(terminal.unlimited(), HEADS, lines));
            }
        }
        PingForm::Json => all.for_each(|(index, label, flow, FlowCount { received, lost }, _)| {
            let name = label.name();
            let port = known(port(index, flow), |port| port.to_string()).replace(table::UNKNOWN, "null");
            let flow = flow.0;
            let _ = writeln!(
                text,
                "{{\"target\":{name},\"flow\":{flow},\"source_port\":{port},\"received\":{received},\"lost\":{lost}}}"
            );
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::terminal::Terminal;

    fn written(form: PingForm) -> String {
        let labels = ["a", "b"].map(|name| TargetLabel::new(form, name, [192, 0, 2, 1].into()));
        let mut flows = [TargetFlows::new(2), TargetFlows::new(2)];
        assert!(!flows[0].record(0, true) && flows[0].record(1, false) && !flows[0].record(1, false));
        assert!(!flows[1].record(0, true) && !flows[1].record(99, false));
        let mut text = String::new();
        let port = |_, flow: Flow| (flow.0 == 1).then_some(40_312);
        summary(&mut text, form, &labels, &flows, port);
        text
    }

    #[test]
    fn text_has_the_flows_of_targets_with_loss() {
        let expected = "\nFLOW   PORT  RECEIVED  LOST    LOSS\n   0      -         1     0    0.0%\n   1  40312         0     2  100.0%\n";
        assert_eq!(written(PingForm::Text(Terminal::PLAIN)), expected);
    }

    #[test]
    fn json_has_an_object_for_each_flow() {
        let text = written(PingForm::Json);
        assert_eq!(text.lines().count(), 4);
        let of = |line: usize| serde_json::from_str::<serde_json::Value>(text.lines().nth(line).unwrap()).unwrap();
        let expected = serde_json::json!({"target": "a", "flow": 1, "source_port": 40_312, "received": 0, "lost": 2});
        assert_eq!(of(1), expected);
        assert_eq!(of(2)["source_port"], serde_json::Value::Null);
    }
}
