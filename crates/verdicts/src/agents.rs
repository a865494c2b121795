//! Agents that were late themselves. What they measured is then their own delay and not the
//! network's.

use serde::Serialize;

use crate::matrix::{Matrix, SourceFacts};
use kube_canary_model::verdict::{Figure, Figures};

/// Limit of the send delay: a tenth of the interval, but never less than this.
const LAG_MIN_SECONDS: f32 = 0.05;
/// Limit of the send delay as a share of the interval.
const LAG_SHARE: f32 = 0.1;
/// Limit of the read delay; the kernel takes the timestamps of replies. In agents of earlier
/// versions, up to an eighth of a second is by design. Such a delay may show as any value up to the
/// end of its bucket, a quarter of a second.
const READ_DELAY_MIN_SECONDS: f32 = 0.3;
/// The share of its time that the probe thread may wait for a CPU.
const RUN_DELAY_SHARE: f32 = 0.1;
/// The share of its probes that an agent may skip, if it skips at least [`SKIPPED_TURNS_MIN`] turns
/// of all its peers.
const SKIPPED_SHARE: f32 = 0.01;
/// Fewer skipped turns do not count: one moment in which the agent did not run is no
/// lack of CPU time.
const SKIPPED_TURNS_MIN: f32 = 3.0;
/// The share of its probes whose replies the kernel may drop because the socket's queue is full.
const DROPS_SHARE: f32 = 0.005;
/// Fewer drops do not count.
const DROPS_MIN: f32 = 3.0;
/// The interval of an agent that does not report it.
const INTERVAL_SECONDS: f32 = 1.0;

/// Returns the figures of what an agent lacks. Empty if it lacks nothing.
pub fn symptoms(facts: &SourceFacts) -> Figures {
    let interval = facts.interval_seconds.get().filter(|seconds| *seconds > 0.0).unwrap_or(INTERVAL_SECONDS);
    let late = (interval * LAG_SHARE).max(LAG_MIN_SECONDS);
    let (seconds, sent) = (facts.covered_seconds(), facts.sent as f32);
    let mut symptoms = Figures::default();
    let mut add = |figure: Figure, value: f32| symptoms.set(figure, value.into());
    if let Some(lag) = facts.send_lag_p99_seconds.get().filter(|lag| *lag >= late) {
        add(Figure::SendLagSeconds, lag);
    }
    if let Some(delay) = facts.read_delay_p99_seconds.get().filter(|delay| *delay >= late.max(READ_DELAY_MIN_SECONDS)) {
        add(Figure::ReadDelaySeconds, delay);
    }
    if let Some(delay) =
        facts.run_delay_seconds.get().filter(|delay| seconds > 0.0 && *delay >= seconds * RUN_DELAY_SHARE)
    {
        add(Figure::RunDelaySeconds, delay);
        add(Figure::OfSeconds, seconds);
    }
    let many = |skipped: f32| {
        let all = skipped + sent;
        skipped > all * SKIPPED_SHARE && skipped >= all * interval * SKIPPED_TURNS_MIN / seconds.max(interval)
    };
    if let Some(skipped) = facts.probes_skipped.get().filter(|skipped| many(*skipped)) {
        add(Figure::ProbesSkipped, skipped);
        add(Figure::OfProbes, sent + skipped);
    }
    if let Some(drops) =
        facts.receive_queue_drops.get().filter(|drops| *drops >= DROPS_MIN && *drops > sent * DROPS_SHARE)
    {
        add(Figure::PacketsDropped, drops);
    }
    symptoms
}

/// Whether measurements by a node, and measurements of it, are evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Both are evidence: those by the node and those of it.
    Sound,
    /// The agent is starved: only what others measured of the node is evidence.
    Starved,
    /// The node is being removed, or another one has its address: neither is evidence.
    Leaving,
    /// The node may have been invented by the only row that names it: neither is evidence.
    Invented,
}

impl Standing {
    /// Whether what others measured of the node is evidence.
    pub const fn is_evidence_of_others(self) -> bool {
        matches!(self, Self::Sound | Self::Starved)
    }
}

/// Returns the standing of each node.
pub fn standings(matrix: &Matrix) -> Vec<Standing> {
    let starved = |node: u16| matrix.row(node).is_some_and(|row| !symptoms(&row.facts).is_empty());
    let standing = |node: u16| match matrix.get(node) {
        member if member.is_leaving() || member.is_displaced => Standing::Leaving,
        _ if starved(node) => Standing::Starved,
        _ => Standing::Sound,
    };
    let mut standings: Vec<Standing> = matrix.numbers().map(standing).collect();
    matrix.invented().for_each(|node| standings[usize::from(node)] = Standing::Invented);
    standings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::KnownNumber;
    use crate::wording;
    use kube_canary_model::report::Network;
    use kube_canary_model::verdict::{Kind, Verdict};

    fn symptoms(facts: &SourceFacts) -> String {
        let figures = super::symptoms(facts);
        wording::symptoms(&Verdict { figures, ..Verdict::new(Kind::AgentStarved, "a".into(), Network::Pod) })
    }

    const FACTS: SourceFacts = SourceFacts {
        interval_seconds: KnownNumber::new(1.0),
        seconds: KnownNumber::new(60.0),
        echo_requests_received: KnownNumber::NONE,
        send_lag_p99_seconds: KnownNumber::NONE,
        read_delay_p99_seconds: KnownNumber::NONE,
        probes_skipped: KnownNumber::NONE,
        receive_queue_drops: KnownNumber::NONE,
        run_delay_seconds: KnownNumber::NONE,
        listening_seconds: KnownNumber::NONE,
        cells_seconds: 60.0,
        sent: 600,
        members: 0,
        rtt_p99_code: 0,
    };

    #[test]
    fn an_agent_in_time_has_no_symptoms_and_an_older_one_says_nothing() {
        let fine = SourceFacts {
            send_lag_p99_seconds: KnownNumber::new(0.049),
            read_delay_p99_seconds: KnownNumber::new(0.25),
            probes_skipped: KnownNumber::new(6.0),
            receive_queue_drops: KnownNumber::new(2.0),
            run_delay_seconds: KnownNumber::new(5.9),
            ..FACTS
        };
        assert_eq!([fine, FACTS, SourceFacts::default()].map(|facts| symptoms(&facts)), ["", "", ""]);
    }

    #[test]
    fn one_stall_of_an_agent_of_few_peers_is_no_lack_of_time() {
        // Two of 60 turns are skipped, with two peers: 3 % of the probes.
        let stalled = SourceFacts { probes_skipped: KnownNumber::new(4.0), sent: 116, ..FACTS };
        assert_eq!(symptoms(&stalled), "");
        assert_eq!(
            symptoms(&SourceFacts { probes_skipped: KnownNumber::new(6.0), sent: 114, ..FACTS }),
            "it skipped 6 probes of 120"
        );
        // With many turns, the share decides: 3,000 turns of 20 ms.
        let quick = SourceFacts { interval_seconds: KnownNumber::new(0.02), sent: 5_950, ..FACTS };
        assert_eq!(symptoms(&SourceFacts { probes_skipped: KnownNumber::new(50.0), ..quick }), "");
        assert_eq!(
            symptoms(&SourceFacts { probes_skipped: KnownNumber::new(62.0), ..quick }),
            "it skipped 62 probes of 6012"
        );
    }

    #[test]
    fn each_symptom_is_named_with_its_figure() {
        for (facts, expected) in [
            (SourceFacts { send_lag_p99_seconds: KnownNumber::new(0.25), ..FACTS }, "it sends 250 ms late"),
            (SourceFacts { read_delay_p99_seconds: KnownNumber::new(0.4), ..FACTS }, "reads replies 400 ms late"),
            (SourceFacts { probes_skipped: KnownNumber::new(30.0), sent: 570, ..FACTS }, "skipped 30 probes of 600"),
            (SourceFacts { receive_queue_drops: KnownNumber::new(4.0), ..FACTS }, "dropped 4 packets"),
            (SourceFacts { run_delay_seconds: KnownNumber::new(6.0), ..FACTS }, "6.0 s of 60 s"),
        ] {
            let found = symptoms(&facts);
            assert!(found.contains(expected), "{found}");
        }
    }
}
