//! Output lines for attempts, and for targets at the end.

use std::fmt::Write as _;
use std::time::Duration;

use kube_canary_model::check::CheckPhase;

use super::super::output::{self, PingForm, QUANTILES, Seconds, SelectQuantile, Time};
use super::{AttemptCounters, EndedAttempt, time};
use crate::config::PingCheck;
use crate::sys::clock;
use crate::sys::table::{self, ColumnKind, TableCell, known, percent};
use crate::sys::terminal::{Terminal, Tint};
use crate::units::Nanos;

const HEADS: [(&str, ColumnKind); 9] = [
    ("TARGET", ColumnKind::Text),
    ("TRIED", ColumnKind::Number),
    ("GOOD", ColumnKind::Number),
    ("FAILED", ColumnKind::Number),
    ("FAILURES", ColumnKind::Number),
    ("MIN", ColumnKind::Number),
    ("P50", ColumnKind::Number),
    ("P99", ColumnKind::Number),
    ("MAX", ColumnKind::Number),
];

/// Returns the name of a target as it is written in this form.
pub fn name(form: PingForm, check: &PingCheck) -> String {
    output::name(form, if form == PingForm::Json { &check.typed } else { &check.label })
}

/// Writes what is done. In JSON it writes nothing.
pub fn heading(text: &mut String, form: PingForm, targets: usize, interval: Duration) {
    if form != PingForm::Json {
        let targets = output::targets(targets);
        let _ = writeln!(text, "{targets}, an attempt every {interval:?}");
    }
}

/// Writes the line of an attempt.
pub fn attempt(text: &mut String, form: PingForm, name: &str, ended: &EndedAttempt) {
    let _ = match form {
        PingForm::Text(terminal) => as_text(text, terminal, name, ended),
        PingForm::Json => as_json(text, name, ended),
    };
}

fn phases(ended: &EndedAttempt) -> impl Iterator<Item = (&'static str, Nanos)> {
    let timed = CheckPhase::ALL.into_iter().zip(ended.found.phases);
    timed.filter_map(|(phase, time)| Some((phase.label(), time?)))
}

fn as_text(text: &mut String, terminal: Terminal, name: &str, ended: &EndedAttempt) -> std::fmt::Result {
    text.push_str(name);
    if let Some(to) = ended.to.filter(|_| ended.addresses > 1) {
        write!(text, " at {}", to.ip())?;
    }
    match ended.found.end {
        Ok(()) => write!(text, ": {}", Time(time(&ended.found)))?,
        Err(failure) => write!(text, ": {}", terminal.paint(Tint::Bad, &format!("failed: {}", failure.words())))?,
    }
    // The time of a single phase is that of the attempt.
    let least = if ended.found.end.is_ok() { 2 } else { 1 };
    if phases(ended).count() >= least {
        let phases: Vec<_> =
            phases(ended).map(|(phase, time)| format!("{} {}", phase.replace('_', " "), Time(time))).collect();
        write!(text, " ({})", phases.join(", "))?;
    }
    if let Some(end) = ended.found.certificate_not_after {
        write!(text, ", certificate valid until {}", clock::date(end))?;
    }
    text.push('\n');
    Ok(())
}

fn as_json(text: &mut String, name: &str, ended: &EndedAttempt) -> std::fmt::Result {
    write!(text, "{{\"target\":{name},\"attempt\":{},\"address\":", ended.number)?;
    match ended.to {
        Some(to) => write!(text, "\"{}\"", to.ip())?,
        None => text.push_str("null"),
    }
    match ended.found.end {
        Ok(()) => write!(text, ",\"seconds\":{}", Seconds(time(&ended.found)))?,
        Err(_) => text.push_str(",\"seconds\":null"),
    }
    text.push_str(",\"phases\":{");
    for (place, (phase, time)) in phases(ended).enumerate() {
        write!(text, "{}\"{phase}\":{}", if place > 0 { "," } else { "" }, Seconds(time))?;
    }
    match ended.found.end {
        Ok(()) => text.push_str("},\"failure\":null"),
        Err(failure) => write!(text, "}},\"failure\":\"{}\"", failure.label())?,
    }
    match ended.found.certificate_not_after {
        Some(end) => writeln!(text, ",\"certificate_not_after_unix_seconds\":{end}}}"),
        None => writeln!(text, ",\"certificate_not_after_unix_seconds\":null}}"),
    }
}

/// Writes a summary of every target.
pub fn summary<'a>(text: &mut String, form: PingForm, targets: impl Iterator<Item = (&'a str, &'a AttemptCounters)>) {
    match form {
        PingForm::Text(terminal) => {
            text.push('\n');
            let lines = targets.map(|(name, tally)| cells(name, tally));
            text.push_str(&table::render_on(terminal.unlimited(), HEADS, lines));
        }
        PingForm::Json => targets.for_each(|(name, tally)| object(text, name, tally)),
    }
}

fn object(text: &mut String, name: &str, tally: &AttemptCounters) {
    let AttemptCounters { good, failed, times } = tally;
    let tried = good + failed;
    let _ = write!(text, "{{\"target\":{name},\"tried\":{tried},\"good\":{good},\"failed\":{failed}");
    let quantiles = times.quantiles();
    for (quantile, select) in QUANTILES {
        let _ = match quantiles {
            Some(quantiles) => write!(text, ",\"{quantile}_seconds\":{}", Seconds(select(quantiles))),
            None => write!(text, ",\"{quantile}_seconds\":null"),
        };
    }
    text.push_str("}\n");
}

fn cells(name: &str, tally: &AttemptCounters) -> [TableCell; HEADS.len()] {
    let AttemptCounters { good, failed, times } = tally;
    let tried = good + failed;
    let share = known((tried > 0).then(|| *failed as f64 / tried as f64), percent);
    let quantiles = times.quantiles();
    let time = |select: SelectQuantile| known(quantiles, |quantiles| Time(select(quantiles)).to_string());
    let [min, p50, p99, max] = QUANTILES.map(|(_, select)| time(select).into());
    let bad = |text: String| TableCell::tinted(text, Tint::Bad, *failed > 0);
    [
        name.to_owned().into(),
        tried.to_string().into(),
        good.to_string().into(),
        bad(failed.to_string()),
        bad(share),
        min,
        p50,
        p99,
        max,
    ]
}

#[cfg(test)]
mod tests {
    use kube_canary_model::check::CheckFailure;

    use super::*;
    use crate::checks::Attempt;

    const TEXT: PingForm = PingForm::Text(Terminal::PLAIN);
    const END: u64 = 1_798_761_600;

    fn ended(phases: [u64; 4], end: Result<(), CheckFailure>, certificate_not_after: Option<u64>) -> EndedAttempt {
        let phases = phases.map(|micros| (micros > 0).then_some(Nanos(micros * 1_000)));
        let found = Attempt { phases, end, certificate_not_after, ..Attempt::default() };
        EndedAttempt { place: 0, number: 4, to: Some("10.0.0.1:443".parse().unwrap()), addresses: 1, found }
    }

    fn line(form: PingForm, name: &str, ended: &EndedAttempt) -> String {
        let mut text = String::new();
        attempt(&mut text, form, name, ended);
        text
    }

    #[test]
    fn people_read_the_time_its_phases_and_the_end_of_the_certificate() {
        let good = ended([1_000, 2_000, 11_100, 0], Ok(()), Some(END));
        assert_eq!(
            line(TEXT, "tls h:443", &good),
            "tls h:443: 14.100 ms (resolve 1.000 ms, connect 2.000 ms, handshake 11.100 ms), certificate valid until \
             2027-01-01\n"
        );
        assert_eq!(line(TEXT, "dns a", &ended([0, 0, 0, 1_200], Ok(()), None)), "dns a: 1.200 ms\n");
        let of_two = EndedAttempt { addresses: 2, ..ended([0, 0, 0, 0], Err(CheckFailure::Timeout), None) };
        assert_eq!(line(TEXT, "dns a", &of_two), "dns a at 10.0.0.1: failed: no answer in time\n");
        let expired = ended([0, 2_000, 0, 0], Err(CheckFailure::CertificateExpired), Some(0));
        assert_eq!(
            line(TEXT, "tls h:443", &expired),
            "tls h:443: failed: certificate expired or not valid yet (connect 2.000 ms), certificate valid until \
             1970-01-01\n"
        );
    }

    #[test]
    fn json_has_one_object_per_line_with_the_fields_of_the_contract() {
        let good = ended([0, 2_000, 0, 3], Ok(()), Some(END));
        assert_eq!(
            line(PingForm::Json, "\"a\"", &good),
            "{\"target\":\"a\",\"attempt\":4,\"address\":\"10.0.0.1\",\"seconds\":0.002003000,\"phases\":\
             {\"connect\":0.002000000,\"first_byte\":0.000003000},\"failure\":null,\
             \"certificate_not_after_unix_seconds\":1798761600}\n"
        );
        let unresolved = EndedAttempt { to: None, ..ended([0; 4], Err(CheckFailure::Unresolved), None) };
        assert_eq!(
            line(PingForm::Json, "\"a\"", &unresolved),
            "{\"target\":\"a\",\"attempt\":4,\"address\":null,\"seconds\":null,\"phases\":{},\
             \"failure\":\"unresolved\",\"certificate_not_after_unix_seconds\":null}\n"
        );
    }

    #[test]
    fn the_summary_counts_attempts_and_times_the_good_ones() {
        let mut tally = AttemptCounters::default();
        tally.record(&ended([0, 1_500, 0, 0], Ok(()), None).found);
        tally.record(&ended([0, 9_000, 0, 0], Err(CheckFailure::Tls), None).found);
        let silent = AttemptCounters::default();
        let mut text = String::new();
        summary(&mut text, PingForm::Json, [("\"a\"", &tally), ("\"b\"", &silent)].into_iter());
        assert_eq!(
            text,
            "{\"target\":\"a\",\"tried\":2,\"good\":1,\"failed\":1,\"min_seconds\":0.001500000,\
             \"p50_seconds\":0.001500000,\"p99_seconds\":0.001500000,\"max_seconds\":0.001500000}\n\
             {\"target\":\"b\",\"tried\":0,\"good\":0,\"failed\":0,\"min_seconds\":null,\"p50_seconds\":null,\
             \"p99_seconds\":null,\"max_seconds\":null}\n"
        );
        text.clear();
        summary(&mut text, TEXT, [("tcp h:1", &tally), ("b", &silent)].into_iter());
        let words: Vec<Vec<&str>> = text
            .lines()
            .skip(1)
            .map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect())
            .collect();
        assert_eq!(words[0], HEADS.map(|(head, _)| head));
        assert_eq!(words[1], ["tcp h:1", "2", "1", "1", "50.0%", "1.500 ms", "1.500 ms", "1.500 ms", "1.500 ms"]);
        assert_eq!(words[2], ["b", "0", "0", "0", "-", "-", "-", "-", "-"]);
    }
}
