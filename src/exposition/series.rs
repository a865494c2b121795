//! How many series an agent exports: it follows from its flags, from the links that it has, and from the zones that they lead
//! to, and never from what has happened to them.
//!
//! | | series in text |
//! |---|---|
//! | a link with `--link-series full` | 9 counters, and a histogram: a bucket per bound, `+Inf`, sum and count |
//! | a link with `--link-series counters` | 9 |
//! | a link with `--link-series none` | 0 |
//! | a pair of zones | 3 counters and a histogram |
//!
//! In protobuf a histogram is one series. Where all of them are more than `--max-series`, links in the highest slots are
//! left out as a whole, in every format. A link's slot is its own as long as the link is there, so that no other link that
//! comes or goes changes whether it is exported, unless slots are closed up after many have left.

use crate::limits::MAX_SERIES_DEFAULT;
use crate::peers::{Directory, Network, SlotId};

/// What is exported of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkSeries {
    /// Counters and the histogram of round-trip times.
    #[default]
    Full,
    /// Counters alone.
    Counters,
    /// Nothing: zone pairs, reports and verdicts still have what the links measure.
    None,
}

impl LinkSeries {
    /// What `--link-series` accepts.
    pub const ALL: [(Self, &str); 3] = [(Self::Full, "full"), (Self::Counters, "counters"), (Self::None, "none")];
}

/// The flags that decide.
#[derive(Clone, Copy, Debug)]
pub struct SeriesSettings {
    /// What is exported of a link.
    pub links: LinkSeries,
    /// Series of a scrape, at most.
    pub max: usize,
    /// The agent has its node's own addresses, and so have its peers: what it measures is the node network.
    pub on_host_network: bool,
}

impl Default for SeriesSettings {
    fn default() -> Self {
        Self { links: LinkSeries::default(), max: MAX_SERIES_DEFAULT, on_host_network: false }
    }
}

/// What of the links a scrape shows: the same from its first line to its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Links in slots below this one.
    pub slots_end: usize,
    /// Series of the others.
    pub suppressed: usize,
}

/// Counters of a link.
pub const LINK_COUNTERS: usize = 9;
/// Counters of a zone pair.
pub const ZONE_COUNTERS: usize = 3;

/// Series of a histogram with so many bounds: buckets with `+Inf`, sum and count.
pub const fn histogram_series(bounds: usize) -> usize {
    bounds + 3
}

impl SeriesSettings {
    /// The `network` label of a network.
    pub const fn network(&self, network: Network) -> &'static str {
        if self.on_host_network { Network::Node.label() } else { network.label() }
    }

    /// Series of a link, in text.
    pub const fn of_link(&self, bounds: usize) -> usize {
        match self.links {
            LinkSeries::Full => LINK_COUNTERS + histogram_series(bounds),
            LinkSeries::Counters => LINK_COUNTERS,
            LinkSeries::None => 0,
        }
    }

    /// What is shown beside so many other series, of histograms with so many bounds.
    pub fn shown(&self, others: usize, bounds: usize, directory: &Directory) -> Shown {
        let of_link = self.of_link(bounds);
        let slots_end = self.max.saturating_sub(others).checked_div(of_link).unwrap_or(0);
        // A link that joins while a scrape is sent is in the next one, with all of its series.
        let (slots, slots_end) = (directory.slot_count(), slots_end.min(directory.slot_count()));
        let hidden = (slots_end..slots).filter(|slot| directory.peer(SlotId::at(*slot)).is_some());
        Shown { slots_end, suppressed: hidden.count() * of_link }
    }
}
