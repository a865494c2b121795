//! Counters of rare events over all links, by reason and by result.
//!
//! They are written after the registry's families, for the reason given in [`super::memory`].
//! There, ten counters would cost 7 KB.

use super::head::Head;
use crate::prober::SendError;
use crate::statistics::Statistics;

/// Number of series that are written.
pub const SERIES: usize = SendError::ALL.len() + 2;

/// Appends the families to a scrape.
pub fn write(statistics: &Statistics, head: &mut Head<'_>) {
    head.counters(
        "kube_canary_send_errors_by_reason_total",
        "Probes of all links that the kernel refused to send, by reason.",
        SendError::ALL.into_iter().map(|reason| ([("reason", reason.label())], statistics.send_errors(reason))),
    );
    head.counters(
        "kube_canary_terminating_by_result_total",
        "Probes to all peers that were terminating or had just left the list, by result.",
        [("received", true), ("lost", false)]
            .into_iter()
            .map(|(result, answered)| ([("result", result)], statistics.terminating(answered))),
    );
}
