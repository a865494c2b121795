//! Output lines for probes, and for targets at the end. The form is text for users, or one JSON
//! object per line.
//!
//! JSON is written by hand into the one output buffer. A line has only numbers, values of closed
//! sets, and a name that was quoted at the start.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::rtts::Quantiles;
use super::tally::{ProbeOutcome, TargetCounters};
use crate::config::PingSettings;
use crate::sys::console::{escaped, printable};
use crate::sys::table::{self, ColumnKind, TableCell, known, percent};
use crate::sys::terminal::{Terminal, Tint};
use crate::units::Nanos;

/// Which form the output has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PingForm {
    /// Lines like those of ping(8).
    Text(Terminal),
    /// One JSON object per line.
    Json,
}

/// How a target is named in the output.
#[derive(Debug)]
pub struct TargetLabel {
    /// The name as typed; in JSON a string with its quotes.
    name: String,
    address: IpAddr,
}

impl TargetLabel {
    /// Makes the label of a target in this form.
    pub fn new(form: PingForm, name: &str, address: IpAddr) -> Self {
        Self { name: self::name(form, name), address }
    }

    /// Returns the name as it is written in this form.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Returns a name as it is written in this form; in JSON a string with its quotes.
pub fn name(form: PingForm, name: &str) -> String {
    match form {
        PingForm::Text(_) => printable(name),
        PingForm::Json => escaped(serde_json::Value::from(name).to_string()),
    }
}

/// Returns the number of targets in words.
pub fn targets(number: usize) -> String {
    if number == 1 { "1 target".to_owned() } else { format!("{number} targets") }
}

/// Writes the settings and addresses. In JSON it writes nothing.
pub fn heading(text: &mut String, settings: &PingSettings, labels: &[TargetLabel]) {
    if settings.json {
        return;
    }
    let (interval, timeout) = (settings.interval, settings.timeout);
    let targets = targets(labels.len());
    let what = match settings.udp {
        None => format!("{} bytes of payload", settings.payload_bytes),
        Some(udp) => format!("UDP port {}, source ports: {}", udp.port, udp.flows),
    };
    let _ = writeln!(text, "{targets}, {what}, a probe every {interval:?}, lost after {timeout:?}");
    for label in labels.iter().filter(|label| label.name.parse() != Ok(label.address)) {
        let _ = writeln!(text, "{} is {}", label.name, label.address);
    }
}

/// Writes the line of a probe.
pub fn probe(text: &mut String, form: PingForm, label: &TargetLabel, sequence: Option<u64>, outcome: ProbeOutcome) {
    let _ = match form {
        PingForm::Text(terminal) => as_text(text, terminal, label, sequence, outcome),
        PingForm::Json => as_json(text, label, sequence, outcome),
    };
}

fn as_text(
    text: &mut String,
    terminal: Terminal,
    label: &TargetLabel,
    sequence: Option<u64>,
    outcome: ProbeOutcome,
) -> std::fmt::Result {
    write!(text, "{}", label.name)?;
    if let Some(sequence) = sequence {
        write!(text, "  seq {sequence}")?;
    }
    match outcome {
        ProbeOutcome::Reply { rtt, reordered, stamp } => {
            let order = if reordered { ", after a later one" } else { "" };
            writeln!(text, "  {}  ({} stamps{order})", Time(rtt), stamp.label())
        }
        ProbeOutcome::Lost => writeln!(text, "  {}", terminal.paint(Tint::Bad, "lost")),
        ProbeOutcome::Late => writeln!(text, "  late: answered after it was counted lost"),
        ProbeOutcome::Duplicate => writeln!(text, "  duplicate: answered once more"),
        ProbeOutcome::Corrupt => writeln!(text, "  {}", terminal.paint(Tint::Bad, "corrupt: a damaged reply")),
        ProbeOutcome::SendError(reason) => {
            writeln!(text, "  {}", terminal.paint(Tint::Bad, &format!("not sent: {}", reason.words())))
        }
    }
}

fn as_json(text: &mut String, label: &TargetLabel, sequence: Option<u64>, outcome: ProbeOutcome) -> std::fmt::Result {
    write!(text, "{{\"target\":{}", label.name)?;
    if let Some(sequence) = sequence {
        write!(text, ",\"sequence\":{sequence}")?;
    }
    match outcome {
        ProbeOutcome::Reply { rtt, reordered, stamp } => {
            let (rtt, stamp) = (Seconds(rtt), stamp.label());
            write!(text, ",\"rtt_seconds\":{rtt},\"stamp\":\"{stamp}\",\"reordered\":{reordered}")?;
        }
        ProbeOutcome::Lost => text.push_str(",\"event\":\"lost\""),
        ProbeOutcome::Late => text.push_str(",\"event\":\"late\""),
        ProbeOutcome::Duplicate => text.push_str(",\"event\":\"duplicate\""),
        ProbeOutcome::Corrupt => text.push_str(",\"event\":\"corrupt\""),
        ProbeOutcome::SendError(reason) => write!(text, ",\"event\":\"send_error\",\"reason\":\"{}\"", reason.label())?,
    }
    text.push_str("}\n");
    Ok(())
}

/// Selects one of the quantiles.
pub type SelectQuantile = fn(Quantiles) -> Nanos;

/// The quantiles of a summary, with their names in JSON.
pub const QUANTILES: [(&str, SelectQuantile); 4] =
    [("min", |q| q.min), ("p50", |q| q.p50), ("p99", |q| q.p99), ("max", |q| q.max)];

/// Writes a summary of every target.
pub fn summary<'a>(
    text: &mut String,
    form: PingForm,
    targets: impl Iterator<Item = (&'a TargetLabel, &'a TargetCounters)>,
) {
    match form {
        PingForm::Text(terminal) => {
            text.push('\n');
            text.push_str(&table::render_on(
                terminal.unlimited(),
                HEADS,
                targets.map(|(label, tally)| cells(label, tally)),
            ));
        }
        PingForm::Json => targets.for_each(|(label, tally)| object(text, label, tally)),
    }
}

fn object(text: &mut String, label: &TargetLabel, tally: &TargetCounters) {
    let TargetCounters { sent, received, lost, late, duplicate, reordered, corrupt, send_errors, .. } = tally;
    let _ = write!(
        text,
        "{{\"target\":{},\"address\":\"{}\",\"sent\":{sent},\"received\":{received},\"lost\":{lost},\
         \"in_flight\":{},\"late\":{late},\"duplicate\":{duplicate},\"reordered\":{reordered},\"corrupt\":{corrupt},\
         \"send_errors\":{send_errors},\"received_with_kernel_stamps\":{}",
        label.name,
        label.address,
        tally.in_flight(),
        tally.stamped_by_kernel
    );
    let quantiles = tally.rtts.quantiles();
    for (name, field) in QUANTILES {
        let _ = match quantiles {
            Some(quantiles) => write!(text, ",\"rtt_{name}_seconds\":{}", Seconds(field(quantiles))),
            None => write!(text, ",\"rtt_{name}_seconds\":null"),
        };
    }
    text.push_str("}\n");
}

const HEADS: [(&str, ColumnKind); 15] = [
    ("TARGET", ColumnKind::Text),
    ("SENT", ColumnKind::Number),
    ("RECEIVED", ColumnKind::Number),
    ("LOST", ColumnKind::Number),
    ("LOSS", ColumnKind::Number),
    ("LATE", ColumnKind::Rare),
    ("DUPLICATE", ColumnKind::Rare),
    ("REORDERED", ColumnKind::Rare),
    ("CORRUPT", ColumnKind::Rare),
    ("ERRORS", ColumnKind::Rare),
    ("KERNEL", ColumnKind::Number),
    ("MIN", ColumnKind::Number),
    ("P50", ColumnKind::Number),
    ("P99", ColumnKind::Number),
    ("MAX", ColumnKind::Number),
];

fn cells(label: &TargetLabel, tally: &TargetCounters) -> [TableCell; HEADS.len()] {
    let share = |part: u64, whole: u64| known((whole > 0).then(|| part as f64 / whole as f64), percent);
    let quantiles = tally.rtts.quantiles();
    let time = |field: SelectQuantile| known(quantiles, |quantiles| Time(field(quantiles)).to_string());
    let [min, p50, p99, max] = QUANTILES.map(|(_, field)| time(field).into());
    let bad = |text: String, number: u64| TableCell::tinted(text, Tint::Bad, number > 0);
    let count = |number: u64| number.to_string().into();
    [
        label.name.clone().into(),
        count(tally.sent),
        count(tally.received),
        bad(tally.lost.to_string(), tally.lost),
        bad(share(tally.lost, tally.received + tally.lost), tally.lost),
        count(tally.late),
        count(tally.duplicate),
        count(tally.reordered),
        bad(tally.corrupt.to_string(), tally.corrupt),
        bad(tally.send_errors.to_string(), tally.send_errors),
        share(tally.stamped_by_kernel, tally.received).into(),
        min,
        p50,
        p99,
        max,
    ]
}

/// Seconds as a JSON number with nanosecond precision: no float rounds it.
pub struct Seconds(pub Nanos);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}", self.0.0 / 1_000_000_000, self.0.0 % 1_000_000_000)
    }
}

/// Shows a time as text: 41.2 µs, 1.203 ms, 1.500 s.
pub struct Time(pub Nanos);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanos = self.0.0 as f64;
        match self.0.0 {
            0..1_000_000 => write!(f, "{:.1} µs", nanos / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.3} ms", nanos / 1e6),
            _ => write!(f, "{:.3} s", nanos / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::{Event, SendError, Stamp};

    const REPLY: ProbeOutcome = ProbeOutcome::Reply { rtt: Nanos(41_234), reordered: true, stamp: Stamp::User };

    fn lines(form: PingForm) -> String {
        let label = TargetLabel::new(form, "a", [192, 0, 2, 1].into());
        let mut text = String::new();
        for (sequence, what) in [
            (Some(7), REPLY),
            (Some(8), ProbeOutcome::Lost),
            (Some(8), ProbeOutcome::Late),
            (Some(7), ProbeOutcome::Duplicate),
            (None, ProbeOutcome::Corrupt),
            (Some(9), ProbeOutcome::SendError(SendError::NoRoute)),
        ] {
            probe(&mut text, form, &label, sequence, what);
        }
        text
    }

    fn tally() -> TargetCounters {
        let mut tally = TargetCounters::default();
        (0..4).for_each(|_| _ = tally.record(Event::Sent, None));
        for (sequence, stamp) in [(0, Stamp::User), (1, Stamp::Kernel)] {
            tally.record(Event::Received { rtt: Nanos(1_500_000), reordered: false, sequence, stamp }, Some(sequence));
        }
        tally.record(Event::Lost, None);
        tally.record(Event::NotSent(SendError::NoRoute), None);
        tally
    }

    #[test]
    fn json_has_one_object_per_line_with_the_fields_of_the_contract() {
        assert_eq!(
            lines(PingForm::Json),
            "{\"target\":\"a\",\"sequence\":7,\"rtt_seconds\":0.000041234,\"stamp\":\"user\",\"reordered\":true}\n\
             {\"target\":\"a\",\"sequence\":8,\"event\":\"lost\"}\n\
             {\"target\":\"a\",\"sequence\":8,\"event\":\"late\"}\n\
             {\"target\":\"a\",\"sequence\":7,\"event\":\"duplicate\"}\n\
             {\"target\":\"a\",\"event\":\"corrupt\"}\n\
             {\"target\":\"a\",\"sequence\":9,\"event\":\"send_error\",\"reason\":\"no_route\"}\n"
        );
        let mut text = String::new();
        let silent = TargetCounters::default();
        let odd = TargetLabel::new(PingForm::Json, "\"\\", [192, 0, 2, 2].into());
        let label = TargetLabel::new(PingForm::Json, "a", [192, 0, 2, 1].into());
        summary(&mut text, PingForm::Json, [(&label, &tally()), (&odd, &silent)].into_iter());
        let objects: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let expected = serde_json::json!({
            "target": "a", "address": "192.0.2.1", "sent": 4, "received": 2, "lost": 1, "in_flight": 1, "late": 0,
            "duplicate": 0, "reordered": 0, "corrupt": 0, "send_errors": 1, "received_with_kernel_stamps": 1,
            "rtt_min_seconds": 0.0015, "rtt_p50_seconds": 0.0015, "rtt_p99_seconds": 0.0015, "rtt_max_seconds": 0.0015
        });
        assert_eq!(objects[0], expected);
        assert_eq!((&objects[1]["target"], &objects[1]["rtt_p50_seconds"]), (&"\"\\".into(), &serde_json::Value::Null));
    }

    #[test]
    fn text_has_units_and_the_source_of_the_stamps() {
        assert_eq!(
            lines(PingForm::Text(Terminal::PLAIN)),
            "a  seq 7  41.2 µs  (user stamps, after a later one)\n\
             a  seq 8  lost\n\
             a  seq 8  late: answered after it was counted lost\n\
             a  seq 7  duplicate: answered once more\n\
             a  corrupt: a damaged reply\n\
             a  seq 9  not sent: no route\n"
        );
        for (nanos, shown) in [(0, "0.0 µs"), (1_203_456, "1.203 ms"), (1_500_000_000, "1.500 s")] {
            assert_eq!(Time(Nanos(nanos)).to_string(), shown);
        }
    }

    #[test]
    fn the_table_leaves_out_rare_columns_without_a_value() {
        let mut text = String::new();
        let label = TargetLabel::new(PingForm::Text(Terminal::PLAIN), "a", [192, 0, 2, 1].into());
        summary(&mut text, PingForm::Text(Terminal::PLAIN), [(&label, &tally())].into_iter());
        assert_eq!(
            text,
            "\nTARGET  SENT  RECEIVED  LOST   LOSS  ERRORS  KERNEL       MIN       P50       P99       MAX\n\
             a          4         2     1  33.3%       1   50.0%  1.500 ms  1.500 ms  1.500 ms  1.500 ms\n"
        );
        text.clear();
        summary(&mut text, PingForm::Text(Terminal::PLAIN), [(&label, &TargetCounters::default())].into_iter());
        assert!(text.ends_with("a          0         0     0     -       -    -    -    -    -\n"), "{text}");
    }
}
