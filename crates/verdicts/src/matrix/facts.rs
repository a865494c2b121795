//! What a source reports about itself, as the verdicts keep it: 48 bytes.

use super::cell::rtt_code;
use kube_canary_model::report::Source;

/// A number that an older agent may not report: 4 bytes, half of an `Option`. It is exact for
/// counts up to 16 million.
#[derive(Clone, Copy, Debug)]
pub struct KnownNumber(f32);

impl KnownNumber {
    /// It is not reported.
    pub const NONE: Self = Self(f32::NAN);

    /// Makes a number that is reported.
    pub const fn new(value: f32) -> Self {
        Self(value)
    }

    fn from_value(value: Option<f64>) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "what is out of range is infinite")]
        value.map_or(Self::NONE, |value| Self(value as f32))
    }

    fn from_count(value: Option<u64>) -> Self {
        value.map_or(Self::NONE, |value| Self(value as f32))
    }

    /// Returns the number; `None` if it is not reported.
    pub fn get(self) -> Option<f32> {
        (!self.0.is_nan()).then_some(self.0)
    }
}

impl Default for KnownNumber {
    fn default() -> Self {
        Self::NONE
    }
}

/// What a source reports about its last minute.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceFacts {
    /// Time between two probes of one peer.
    pub interval_seconds: KnownNumber,
    /// Time that the source's own counters cover.
    pub seconds: KnownNumber,
    /// Echo requests counted by the kernel in the source's network namespace.
    pub echo_requests_received: KnownNumber,
    /// 99th percentile of how late probes were sent.
    pub send_lag_p99_seconds: KnownNumber,
    /// 99th percentile of how late replies were read.
    pub read_delay_p99_seconds: KnownNumber,
    /// Probes not sent because the agent was stopped for longer than an interval.
    pub probes_skipped: KnownNumber,
    /// Packets dropped because the socket's queue was full.
    pub receive_queue_drops: KnownNumber,
    /// How long the probe thread waited for a CPU.
    pub run_delay_seconds: KnownNumber,
    /// Time since which the source has answered UDP and TCP probes without a gap.
    pub listening_seconds: KnownNumber,
    /// Time that the cells cover, in seconds.
    pub cells_seconds: f32,
    /// Number of probes sent in that time.
    pub sent: u32,
    /// Number of nodes of the mesh as the source reports it, at most 65,535; 0 if it does not.
    pub members: u16,
    /// Code of the 99th percentile of its round-trip times, as of a cell; 0 if it reports none.
    pub rtt_p99_code: u16,
}

impl SourceFacts {
    pub(super) fn from_source(source: &Source<'_>) -> Self {
        let recent = &source.recent;
        Self {
            interval_seconds: KnownNumber::from_value(source.interval_seconds),
            seconds: KnownNumber::from_value(recent.seconds),
            echo_requests_received: KnownNumber::from_count(recent.echo_requests_received),
            send_lag_p99_seconds: KnownNumber::from_value(recent.send_lag_p99_seconds),
            read_delay_p99_seconds: KnownNumber::from_value(recent.read_delay_p99_seconds),
            probes_skipped: KnownNumber::from_count(recent.probes_skipped),
            receive_queue_drops: KnownNumber::from_count(recent.receive_queue_drops),
            run_delay_seconds: KnownNumber::from_value(recent.run_delay_seconds),
            listening_seconds: KnownNumber::from_value(source.listening_seconds),
            cells_seconds: 0.0,
            sent: 0,
            members: source.members.map_or(0, |members| u16::try_from(members).unwrap_or(u16::MAX)),
            rtt_p99_code: rtt_code(recent.rtt_p99_seconds),
        }
    }

    /// Returns the time that the counters cover, in seconds. If the source does not report it, it
    /// is the time of the cells.
    pub fn covered_seconds(&self) -> f32 {
        self.seconds.get().filter(|seconds| *seconds > 0.0).unwrap_or(self.cells_seconds)
    }
}
