//! The number of series that an agent exports. It follows from the agent's flags, from its links,
//! and from the zones that they lead to. It never depends on what has happened to them.
//!
//! | | series in text |
//! |---|---|
//! | a link by the first method of `--probes`, with `--link-series one` | 3 counters, and a histogram: a bucket per bound, `+Inf`, sum and count |
//! | the same by other methods | 3 counters |
//! | a link with `--link-series counters` | 3 counters |
//! | a link with `--link-series none` | 0 |
//! | a link by ICMP, with `--link-series full` | 9 counters and a histogram |
//! | the same by UDP | 3 counters, 3 gauges and a histogram |
//! | the same by TCP | 3 counters |
//! | a pair of zones by ICMP | 9 counters and a histogram |
//! | the same by UDP | 3 counters and 3 gauges |
//! | the same by TCP | 3 counters |
//!
//! In protobuf a histogram is one series. If there are more series than `--max-series`, the links
//! in the highest slots are left out entirely, in every format. A link keeps its slot as long as
//! the link exists. So a link that joins or leaves does not change which other links are exported.
//! The exception is when slots are compacted after many links have left.

use super::families::{FamilyScope, LinkSeries, numbers};
use crate::limits::MAX_SERIES_DEFAULT;
use crate::peers::{Directory, Method, Methods, Network, SlotId, Via};

/// The flags that decide which series are exported.
#[derive(Clone, Copy, Debug)]
pub struct SeriesSettings {
    /// Which series of a link are exported.
    pub links: LinkSeries,
    /// The most series in one scrape.
    pub max: usize,
    /// Whether the agent and its peers have the addresses of their nodes. It then
    /// measures the node network.
    pub on_host_network: bool,
}

impl Default for SeriesSettings {
    fn default() -> Self {
        Self { links: LinkSeries::default(), max: MAX_SERIES_DEFAULT, on_host_network: false }
    }
}

/// Which links a scrape shows. It is the same from the first line of a scrape to its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Links in slots below this one are shown.
    pub slots_end: usize,
    /// Number of series of the links that are not shown.
    pub suppressed: usize,
}

/// Returns the series of a histogram with `bounds` bounds: its buckets with `+Inf`, sum and count.
pub const fn histogram_series(bounds: usize) -> usize {
    bounds + 3
}

impl SeriesSettings {
    /// Returns the value of the `network` label for a network.
    pub const fn network(&self, network: Network) -> &'static str {
        if self.on_host_network { Network::Node.label() } else { network.label() }
    }

    /// Whether links have a histogram by this one of the methods.
    pub fn has_times(&self, methods: Methods, method: Method) -> bool {
        // By TCP, round-trip times are in the reports alone.
        method != Method::Tcp
            && match self.links {
                LinkSeries::Full => true,
                LinkSeries::One => methods.iter().next() == Some(method),
                LinkSeries::Counters | LinkSeries::None => false,
            }
    }

    /// Returns those of the methods by which links have a histogram.
    pub fn timed(&self, methods: Methods) -> Methods {
        Methods::new(methods.iter().filter(|method| self.has_times(methods, *method)))
    }

    fn series_per_link(&self, methods: Methods, method: Method, bounds: usize) -> usize {
        let times = if self.has_times(methods, method) { histogram_series(bounds) } else { 0 };
        numbers(FamilyScope::Link, method, self.links) + times
    }

    /// Returns the number of series of all links to a peer in the text format.
    pub fn series_per_peer(&self, methods: Methods, via: Via, bounds: usize) -> usize {
        let allowed = methods.iter().filter(|method| via.allows(*method));
        allowed.map(|method| self.series_per_link(methods, method, bounds)).sum()
    }

    /// Returns which links are shown beside `others` other series. Histograms have `bounds` bounds.
    pub fn shown(&self, others: usize, methods: Methods, bounds: usize, directory: &Directory) -> Shown {
        let per_slot: usize = methods.iter().map(|method| self.series_per_link(methods, method, bounds)).sum();
        let slots_end = self.max.saturating_sub(others).checked_div(per_slot).unwrap_or(0);
        // A link that joins while a scrape is sent appears in the next scrape, with all of its
        // series.
        let (slots, slots_end) = (directory.slot_count(), slots_end.min(directory.slot_count()));
        let hidden = (slots_end..slots).filter_map(|slot| directory.peer(SlotId::at(slot)));
        Shown { slots_end, suppressed: hidden.map(|peer| self.series_per_peer(methods, peer.via(), bounds)).sum() }
    }
}
