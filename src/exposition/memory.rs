//! `memory_bytes`: the agent's own memory by category.
//!
//! The family is written after the registry's families. In the registry, its thirty gauges would
//! cost more than the whole reading. The worker that serves the scrape reads the memory, never the
//! probe thread. It reads rarely (`MEMORY_CATEGORIES_TIME`) and uses the last reading in between.

use super::cached::Cached;
use super::head::FamilyWriter;
use crate::memory::{self, Category, Footprint};
use crate::units::Nanos;

const NAME: &str = "kube_canary_memory_bytes";
const HELP: &str = "Resident (clean, dirty) and swapped memory of the agent, by category; read once a minute.";

/// How long the agent's memory by category is reused. A reading parses 30 KB of text, and makes
/// code resident that nothing else runs.
const MEMORY_CATEGORIES_TIME: Nanos = Nanos::from_millis(60_000);
/// Number of series, once there is a reading: each category has three states.
pub const SERIES: usize = 3 * Category::ALL.len();

/// The last reading of the memory by category.
#[derive(Debug, Default)]
pub struct MemoryMetrics(Cached<Footprint>);

impl MemoryMetrics {
    /// Returns the memory by category. The reading is at most a minute old, unless
    /// another thread is reading now. Returns none if /proc does not provide it.
    pub fn read(&self, now: Nanos) -> Option<Footprint> {
        self.0.get(now, MEMORY_CATEGORIES_TIME, || match memory::read_own() {
            Ok(footprint) => Some(footprint),
            Err(error) => {
                log::debug!("cannot read the agent's own memory: {error}");
                None
            }
        })
    }
}

/// Appends the family to a scrape.
pub fn write(footprint: &Footprint, head: &mut FamilyWriter<'_>) {
    head.gauges(
        NAME,
        HELP,
        Category::ALL.into_iter().flat_map(|category| {
            footprint.amounts_in(category).states().map(|(state, kilobytes)| {
                ([("category", category.label()), ("state", state)], kilobytes.saturating_mul(1_024))
            })
        }),
    );
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    /// Returns the sum of all samples with these states, and their number.
    fn sum(text: &[u8], states: &[&str]) -> (u64, usize) {
        let text = std::str::from_utf8(text).unwrap();
        let of = |line: &&str| states.iter().any(|state| line.contains(&format!("state=\"{state}\"")));
        let values: Vec<u64> =
            text.lines().filter(of).map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        (values.iter().sum(), values.len())
    }

    #[test]
    fn every_category_has_every_state_and_they_add_up() {
        let footprint = MemoryMetrics::default().read(Nanos(1)).unwrap();
        let mut text = Vec::new();
        write(&footprint, &mut FamilyWriter::new(Format::Text, 1, &mut text));
        assert_eq!(sum(&text, &["clean", "dirty"]), (footprint.rss * 1_024, 2 * Category::ALL.len()));
        assert_eq!(sum(&text, &["swap"]), (footprint.swap * 1_024, Category::ALL.len()));
        assert_eq!(sum(&text, &["clean", "dirty", "swap"]).1, SERIES);
    }
}
