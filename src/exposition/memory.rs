//! `memory_bytes`: the agent's own memory, by what it is for.
//!
//! Written behind the registry's families, for thirty gauges would cost it more than the whole reading does. Read by
//! the worker that serves the scrape, never by the probe thread, and rarely ([`MEMORY_CATEGORIES_TIME`]); between two
//! readings the last one stands.

use super::head::Head;
use super::kept::Kept;
use crate::footprint::{self, Category, Footprint};
use crate::limits::MEMORY_CATEGORIES_TIME;
use crate::units::Nanos;

const NAME: &str = "kube_canary_memory_bytes";
const HELP: &str = "Resident (clean, dirty) and swapped memory of the agent, by what it is for; read once a minute.";

/// Series that are written, once anything is: a category has three states.
pub const SERIES: usize = 3 * Category::ALL.len();

/// The last reading.
#[derive(Debug, Default)]
pub struct Memory(Kept<Footprint>);

impl Memory {
    /// The memory by category, at most [`MEMORY_CATEGORIES_TIME`] old unless it is being read; none
    /// where /proc does not tell.
    pub fn read(&self, now: Nanos) -> Option<Footprint> {
        self.0.get(now, MEMORY_CATEGORIES_TIME, || match footprint::read_own() {
            Ok(footprint) => Some(footprint),
            Err(error) => {
                log::debug!("reading the agent's own memory: {error}");
                None
            }
        })
    }
}

/// Appends the family.
pub fn write(footprint: &Footprint, head: &mut Head<'_>) {
    head.gauges(
        NAME,
        HELP,
        Category::ALL.into_iter().flat_map(|category| {
            footprint.of(category).states().into_iter().map(move |(state, kilobytes)| {
                let labels = [("category", category.label()), ("state", state)];
                (labels.into_iter(), kilobytes.saturating_mul(1_024) as f64)
            })
        }),
    );
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    /// The sum of all samples, and how many there are.
    fn sum(text: &[u8], states: &[&str]) -> (u64, usize) {
        let text = std::str::from_utf8(text).unwrap();
        let of = |line: &&str| states.iter().any(|state| line.contains(&format!("state=\"{state}\"")));
        let values: Vec<u64> =
            text.lines().filter(of).map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        (values.iter().sum(), values.len())
    }

    #[test]
    fn every_category_has_every_state_and_they_add_up() {
        let footprint = Memory::default().read(Nanos(1)).unwrap();
        let mut text = Vec::new();
        write(&footprint, &mut Head::new(Format::Text, 1, &mut text));
        assert_eq!(sum(&text, &["clean", "dirty"]), (footprint.rss * 1_024, 2 * Category::ALL.len()));
        assert_eq!(sum(&text, &["swap"]), (footprint.swap * 1_024, Category::ALL.len()));
        assert_eq!(sum(&text, &["clean", "dirty", "swap"]).1, SERIES);
    }
}
