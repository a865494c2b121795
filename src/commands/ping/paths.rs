//! Output of a trace: a line per hop, or one JSON object.

use std::fmt::Write as _;

use super::output::{PingForm, Seconds, TargetLabel, Time};
use crate::prober::udp::trace::{End, TracedFlow};
use crate::sys::table::{self, ColumnKind, TableCell, known};
use crate::sys::terminal::Tint;

const HEADS: [(&str, ColumnKind); 5] = [
    ("HOP", ColumnKind::Number),
    ("ADDRESS", ColumnKind::Text),
    ("SENT", ColumnKind::Number),
    ("ANSWERED", ColumnKind::Number),
    ("BEST", ColumnKind::Number),
];

/// Writes a trace of a target, of the flow with this source port.
pub fn trace(text: &mut String, form: PingForm, label: &TargetLabel, trace: &TracedFlow, port: Option<u16>) {
    match form {
        PingForm::Text(terminal) => {
            let port = known(port, |port| port.to_string());
            let _ = writeln!(text, "\n{}  path of flow {}, source port {port}", label.name(), trace.flow.0);
            let lines = trace.hops().iter().zip(1_u8..).map(|(hop, ttl)| {
                let is_silent = hop.address.is_none();
                [
                    ttl.to_string().into(),
                    known(hop.address, |address| address.to_string()).into(),
                    hop.sent.to_string().into(),
                    TableCell::tinted(hop.answered.to_string(), Tint::Bad, !is_silent && hop.answered < hop.sent),
                    known(hop.best_rtt(), |rtt| Time(rtt).to_string()).into(),
                ]
            });
            text.push_str(&table::render_on(terminal.unlimited(), HEADS, lines));
            let end = trace.finding.to_string();
            let end = if trace.reached() { end } else { terminal.paint(Tint::Bad, &end) };
            let _ = writeln!(text, "{}: {end}\n", word(trace.end));
        }
        PingForm::Json => {
            let port = known(port, |port| port.to_string()).replace(table::UNKNOWN, "null");
            let (name, flow, end) = (label.name(), trace.flow.0, word(trace.end));
            let finding = trace.finding;
            let _ = write!(
                text,
                "{{\"target\":{name},\"flow\":{flow},\"source_port\":{port},\"end\":\"{end}\",\
                 \"finding\":\"{finding}\",\"hops\":["
            );
            for (hop, ttl) in trace.hops().iter().zip(1_u8..) {
                let comma = if ttl > 1 { "," } else { "" };
                let address = hop.address.map_or_else(|| "null".to_owned(), |address| format!("\"{address}\""));
                let rtt = hop.best_rtt().map_or_else(|| "null".to_owned(), |rtt| Seconds(rtt).to_string());
                let (sent, answered) = (hop.sent, hop.answered);
                let _ = write!(
                    text,
                    "{comma}{{\"ttl\":{ttl},\"address\":{address},\"sent\":{sent},\"answered\":{answered},\
                     \"rtt_best_seconds\":{rtt}}}"
                );
            }
            text.push_str("]}\n");
        }
    }
}

const fn word(end: End) -> &'static str {
    match end {
        End::Silent => "silent",
        End::Reached => "reached",
        End::Refused(_) => "refused",
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::*;
    use crate::peers::SlotId;
    use crate::prober::Moment;
    use crate::prober::udp::trace::{Reason, Tracer};
    use crate::prober::{Flow, Refusal};
    use crate::sys::terminal::Terminal;
    use crate::units::Nanos;

    /// A path of a router, a silent hop and a router, behind which nothing answers.
    fn dead(form: PingForm) -> String {
        let mut tracer = Tracer::new(16);
        tracer.want(SlotId(0), Flow(3), Reason::Requested, Nanos(0));
        let to = SocketAddr::from(([192, 0, 2, 1], 9_877));
        for ms in (0..10_000).step_by(25) {
            let now = Nanos::from_millis(ms);
            while let Some(packet) = tracer.due(now, |_| Some(to)) {
                let from = IpAddr::from([10, 0, packet.ttl, 1]);
                if [1, 3].contains(&packet.ttl) {
                    let moment = Moment::read(now.plus(Nanos(1_500_000)));
                    let packet = (packet.slot, packet.flow, packet.sequence);
                    assert!(tracer.refused(packet, Some(from), Refusal::TimeExceeded, moment));
                }
            }
        }
        let mut text = String::new();
        let label = TargetLabel::new(form, "a", [192, 0, 2, 1].into());
        assert!(tracer.is_idle());
        trace(&mut text, form, &label, tracer.take_finished().unwrap(), Some(40_312));
        text
    }

    #[test]
    fn text_has_a_line_per_hop_and_says_where_the_path_dies() {
        assert_eq!(
            dead(PingForm::Text(Terminal::PLAIN)),
            "\na  path of flow 3, source port 40312\n\
             HOP  ADDRESS   SENT  ANSWERED      BEST\n\
             \x20 1  10.0.1.1     3         3  1.500 ms\n\
             \x20 2  -            3         0         -\n\
             \x20 3  10.0.3.1     3         3  1.500 ms\n\
             silent: no answer from behind 10.0.3.1\n\n"
        );
    }

    #[test]
    fn json_is_one_object_with_all_hops() {
        let text = dead(PingForm::Json);
        assert_eq!(text.lines().count(), 1);
        let hop = |ttl, address: Option<&str>, answered, rtt: Option<f64>| {
            let (sent, rtt_best_seconds) = (3, rtt);
            serde_json::json!({
                "ttl": ttl, "address": address, "sent": sent, "answered": answered, "rtt_best_seconds": rtt_best_seconds
            })
        };
        let (first, last) = (Some("10.0.1.1"), Some("10.0.3.1"));
        let expected = serde_json::json!({
            "target": "a", "flow": 3, "source_port": 40_312, "end": "silent", "finding": "no answer from behind 10.0.3.1",
            "hops": [hop(1, first, 3, Some(0.0015)), hop(2, None, 0, None), hop(3, last, 3, Some(0.0015))]
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
    }
}
