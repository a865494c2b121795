//! Agents that were late themselves: what they measured is then their own, not the network's.

use crate::mesh::matrix::{Facts, Matrix};

/// How late probes may be sent, or replies read: a tenth of the interval, and never less than this.
const LAG_MIN_SECONDS: f64 = 0.05;
/// Likewise, as a share of the interval.
const LAG_SHARE: f64 = 0.1;
/// The share of its time that the probe thread may wait for a processor.
const RUN_DELAY_SHARE: f64 = 0.1;
/// The share of its probes that an agent may skip.
const SKIPPED_SHARE: f64 = 0.01;
/// The share of its probes whose replies its socket may have no room for; a few are none.
const DROPS_SHARE: f64 = 0.005;
/// So many are none.
const DROPS_MIN: u64 = 3;
/// The interval of an agent that does not say.
const INTERVAL_SECONDS: f64 = 1.0;

/// What an agent lacks, in words; empty where nothing.
pub fn symptoms(facts: &Facts) -> String {
    let recent = &facts.recent;
    let interval = facts.interval_seconds.filter(|seconds| *seconds > 0.0).unwrap_or(INTERVAL_SECONDS);
    let late = (interval * LAG_SHARE).max(LAG_MIN_SECONDS);
    let seconds = recent.seconds.filter(|seconds| *seconds > 0.0).unwrap_or(facts.cells_seconds);
    let sent = facts.sent as f64;
    let mut symptoms: Vec<String> = Vec::new();
    if let Some(lag) = recent.send_lag_p99_seconds.filter(|lag| *lag >= late) {
        symptoms.push(format!("it sends {:.0} ms late (99th percentile)", lag * 1e3));
    }
    if let Some(delay) = recent.read_delay_p99_seconds.filter(|delay| *delay >= late) {
        symptoms.push(format!("it reads replies {:.0} ms late (99th percentile)", delay * 1e3));
    }
    if let Some(delay) = recent.run_delay_seconds.filter(|delay| seconds > 0.0 && *delay >= seconds * RUN_DELAY_SHARE) {
        symptoms.push(format!("it waited {delay:.1} s of {seconds:.0} s for a processor"));
    }
    if let Some(skipped) = recent.probes_skipped.filter(|n| *n as f64 > (*n as f64 + sent) * SKIPPED_SHARE) {
        symptoms.push(format!("it skipped {skipped} probes of {:.0}", sent + skipped as f64));
    }
    if let Some(drops) = recent.receive_queue_drops.filter(|n| *n >= DROPS_MIN && *n as f64 > sent * DROPS_SHARE) {
        symptoms.push(format!("its socket dropped {drops} packets unread"));
    }
    symptoms.join(", ")
}

/// Whose rows are discounted.
pub fn starved(matrix: &Matrix) -> Vec<bool> {
    matrix.numbers().map(|node| matrix.row(node).is_some_and(|row| !symptoms(&row.facts).is_empty())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::row::RecentSource;

    fn facts(recent: RecentSource) -> Facts {
        Facts { interval_seconds: Some(1.0), recent, cells_seconds: 60.0, sent: 600 }
    }

    #[test]
    fn an_agent_in_time_has_no_symptoms_and_an_older_one_says_nothing() {
        let fine = RecentSource {
            seconds: Some(60.0),
            send_lag_p99_seconds: Some(0.049),
            read_delay_p99_seconds: Some(0.04),
            probes_skipped: Some(6),
            receive_queue_drops: Some(2),
            run_delay_seconds: Some(5.9),
            ..RecentSource::default()
        };
        assert_eq!(symptoms(&facts(fine)), "");
        assert_eq!(symptoms(&facts(RecentSource::default())), "");
        assert_eq!(symptoms(&Facts::default()), "");
    }

    #[test]
    fn each_symptom_is_named_with_its_figure() {
        let seconds = Some(60.0);
        for (recent, expected) in [
            (RecentSource { send_lag_p99_seconds: Some(0.25), ..RecentSource::default() }, "it sends 250 ms late"),
            (
                RecentSource { read_delay_p99_seconds: Some(0.1), ..RecentSource::default() },
                "reads replies 100 ms late",
            ),
            (RecentSource { probes_skipped: Some(7), ..RecentSource::default() }, "skipped 7 probes of 607"),
            (RecentSource { receive_queue_drops: Some(4), ..RecentSource::default() }, "dropped 4 packets"),
            (RecentSource { seconds, run_delay_seconds: Some(6.0), ..RecentSource::default() }, "6.0 s of 60 s"),
        ] {
            let found = symptoms(&facts(recent));
            assert!(found.contains(expected), "{found}");
        }
    }
}
