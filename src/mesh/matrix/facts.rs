//! What a source says of itself, as the verdicts keep it.

use crate::mesh::row::Source;

/// What a source says of its last minute; `None` where an older canary does not. In 32 bits, which
/// count exactly up to 16 million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Between two probes of one peer.
    pub interval_seconds: Option<f32>,
    /// How much time its counters cover.
    pub seconds: Option<f32>,
    /// Echo requests that its network namespace counted.
    pub echo_requests_received: Option<f32>,
    /// How late probes were sent.
    pub send_lag_p99_seconds: Option<f32>,
    /// How late replies were read.
    pub read_delay_p99_seconds: Option<f32>,
    /// Probes that were not sent, for want of time.
    pub probes_skipped: Option<f32>,
    /// Packets that its socket had no room for.
    pub receive_queue_drops: Option<f32>,
    /// How long its probe thread waited for a processor.
    pub run_delay_seconds: Option<f32>,
    /// The time that its cells cover.
    pub cells_seconds: f32,
    /// Probes that it sent in that time.
    pub sent: u32,
    /// How many nodes the mesh has, as its source says; 0 where it does not say.
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
            cells_seconds: 0.0,
            sent: 0,
            members: source.members.map_or(0, |members| u32::try_from(members).unwrap_or(u32::MAX)),
        }
    }

    /// The time that its counters cover; that of its cells, where it does not say.
    pub fn covered_seconds(&self) -> f32 {
        self.seconds.filter(|seconds| *seconds > 0.0).unwrap_or(self.cells_seconds)
    }
}
