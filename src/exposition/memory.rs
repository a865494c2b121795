//! `memory_bytes`: the agent's own memory, by what it is for.
//!
//! Written by hand behind the registry's text, for thirty gauges would cost it more than the whole reading does. Read by
//! the worker that serves the scrape, never by the probe thread, and rarely ([`MEMORY_CATEGORIES_TIME`]); between two
//! readings the last one stands.

use std::io::{self, Write as _};

use crate::footprint::{self, Category, Footprint};
use crate::limits::MEMORY_CATEGORIES_TIME;
use crate::units::Nanos;

const NAME: &str = "kube_canary_memory_bytes";
const HELP: &str = "Resident (clean, dirty) and swapped memory of the agent, by what it is for; read once a minute.";

/// Series that are written, once anything is: a category has three states.
pub const SERIES: usize = 3 * Category::ALL.len();

/// The last reading.
#[derive(Debug, Default)]
pub struct Memory {
    last: Option<(Nanos, Footprint)>,
}

impl Memory {
    /// Appends the family; nothing where /proc does not tell.
    pub fn write(&mut self, now: Nanos, out: &mut Vec<u8>) {
        self.write_as(now, out, footprint::read_own);
    }

    fn write_as(&mut self, now: Nanos, out: &mut Vec<u8>, read: impl FnOnce() -> io::Result<Footprint>) {
        if self.last.is_none_or(|(at, _)| now.since(at) >= MEMORY_CATEGORIES_TIME.into()) {
            match read() {
                Ok(footprint) => self.last = Some((now, footprint)),
                Err(error) => log::debug!("reading the agent's own memory: {error}"),
            }
        }
        let Some((_, footprint)) = &self.last else { return };
        // Writing to a Vec cannot fail.
        let _ = writeln!(out, "# HELP {NAME} {HELP}\n# TYPE {NAME} gauge");
        for category in Category::ALL {
            for (state, kilobytes) in footprint.of(category).states() {
                let (category, bytes) = (category.label(), kilobytes.saturating_mul(1_024));
                let _ = writeln!(out, "{NAME}{{category=\"{category}\",state=\"{state}\"}} {bytes}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        let (mut memory, mut text) = (Memory::default(), Vec::new());
        memory.write(Nanos(1), &mut text);
        let footprint = memory.last.unwrap().1;
        assert_eq!(sum(&text, &["clean", "dirty"]), (footprint.rss * 1_024, 2 * Category::ALL.len()));
        assert_eq!(sum(&text, &["swap"]), (footprint.swap * 1_024, Category::ALL.len()));
        assert_eq!(sum(&text, &["clean", "dirty", "swap"]).1, SERIES);
    }

    #[test]
    fn a_reading_stands_for_a_minute() {
        let mut memory = Memory::default();
        // Each reading finds a megabyte more.
        let mut readings = 0;
        let mut dirty = |seconds: u64| {
            let mut text = Vec::new();
            memory.write_as(Nanos::from_millis(seconds * 1_000), &mut text, || {
                readings += 1;
                let mut footprint = Footprint::default();
                footprint.amounts[0].dirty = readings << 10;
                Ok(footprint)
            });
            sum(&text, &["dirty"]).0 >> 20
        };
        assert_eq!([5, 6, 64, 65, 124, 125].map(&mut dirty), [1, 1, 1, 2, 2, 3]);
        // One that fails leaves the last.
        let mut text = Vec::new();
        memory.write_as(Nanos::from_millis(999_000), &mut text, || Err(io::ErrorKind::NotFound.into()));
        assert_eq!(sum(&text, &["dirty"]).0, 3 << 20);
    }
}
