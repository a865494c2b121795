//! What a source reports about itself, as the verdicts keep it.

use crate::report::Source;

/// What a source reports about its last minute. A value is `None` if an older agent does not report
/// it. `f32` is exact for counts up to 16 million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Time between two probes of one peer.
    pub interval_seconds: Option<f32>,
    /// Time that the source's own counters cover.
    pub seconds: Option<f32>,
    /// Echo requests counted by the kernel in the source's network namespace.
    pub echo_requests_received: Option<f32>,
    /// 99th percentile of how late probes were sent.
    pub send_lag_p99_seconds: Option<f32>,
    /// 99th percentile of how late replies were read.
    pub read_delay_p99_seconds: Option<f32>,
    /// Probes not sent because the agent was stopped for longer than an interval.
    pub probes_skipped: Option<f32>,
    /// Packets dropped because the socket's queue was full.
    pub receive_queue_drops: Option<f32>,
    /// How long the probe thread waited for a CPU.
    pub run_delay_seconds: Option<f32>,
    /// Time since which the source has answered UDP and TCP probes without a gap.
    pub listening_seconds: Option<f32>,
    /// Time that the cells cover, in seconds.
    pub cells_seconds: f32,
    /// Number of probes sent in that time.
    pub sent: u32,
    /// Number of nodes of the mesh as the source reports it; 0 if it does not.
    pub members: u32,
}

impl Facts {
    pub(super) fn of(source: &Source<'_>) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "what is out of range is infinite")]
        let real = |value: Option<f64>| value.map(|value| value as f32);
        let count = |value: Option<u64>| value.map(|value| value as f32);
        let recent = &source.recent;
        Self {
            interval_seconds: real(source.interval_seconds),
            seconds: real(recent.seconds),
            echo_requests_received: count(recent.echo_requests_received),
            send_lag_p99_seconds: real(recent.send_lag_p99_seconds),
            read_delay_p99_seconds: real(recent.read_delay_p99_seconds),
            probes_skipped: count(recent.probes_skipped),
            receive_queue_drops: count(recent.receive_queue_drops),
            run_delay_seconds: real(recent.run_delay_seconds),
            listening_seconds: real(source.listening_seconds),
            cells_seconds: 0.0,
            sent: 0,
            members: source.members.map_or(0, |members| u32::try_from(members).unwrap_or(u32::MAX)),
        }
    }

    /// Returns the time that the counters cover, in seconds. If the source does not report it, it
    /// is the time of the cells.
    pub fn covered_seconds(&self) -> f32 {
        self.seconds.filter(|seconds| *seconds > 0.0).unwrap_or(self.cells_seconds)
    }
}
