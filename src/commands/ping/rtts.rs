//! The round-trip times of a target: exact up to a number of them, then counted in cells.
//!
//! A cell is as wide as 1/64 of the power of two that it is in. Its value is its middle, with an
//! error of at most 0.8 % over the whole range. There are at most 3,776 cells, and only those in
//! use are kept, with 8 bytes each. The round-trip times of a path fill between a few dozen and a
//! few hundred. HdrHistogram does the same with a table for the whole range. The smallest and the
//! largest time are exact.

use crate::units::Nanos;

/// Exact round-trip times kept per target, 8 bytes each. Further ones are counted in cells.
const EXACT_MAX: usize = 1_024;

/// Each power of two has two to this number of cells.
const FINE: u32 = 6;

/// The round-trip times of one target.
#[derive(Debug)]
pub struct Rtts {
    kept: KeptTimes,
    count: u64,
    min: Nanos,
    max: Nanos,
}

#[derive(Debug)]
enum KeptTimes {
    /// All times, in order of arrival.
    All(Vec<Nanos>),
    /// Cells in use, in ascending order, with their counts.
    Cells(Vec<(u16, u32)>),
}

/// The quantiles that the summary shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantiles {
    /// The smallest round-trip time.
    pub min: Nanos,
    /// The median: the smallest time that half of all do not exceed.
    pub p50: Nanos,
    /// The smallest time that 99 % of all do not exceed.
    pub p99: Nanos,
    /// The largest round-trip time.
    pub max: Nanos,
}

impl Default for Rtts {
    fn default() -> Self {
        Self { kept: KeptTimes::All(Vec::new()), count: 0, min: Nanos(u64::MAX), max: Nanos(0) }
    }
}

impl Rtts {
    /// Adds a round-trip time.
    pub fn add(&mut self, rtt: Nanos) {
        self.count += 1;
        (self.min, self.max) = (self.min.min(rtt), self.max.max(rtt));
        match &mut self.kept {
            KeptTimes::All(all) if all.len() < EXACT_MAX => all.push(rtt),
            KeptTimes::All(all) => {
                let mut cells = Vec::new();
                all.iter().chain([&rtt]).for_each(|&rtt| count(&mut cells, rtt));
                self.kept = KeptTimes::Cells(cells);
            }
            KeptTimes::Cells(cells) => count(cells, rtt),
        }
    }

    /// Returns the quantiles; `None` if there are no times.
    pub fn quantiles(&self) -> Option<Quantiles> {
        let (min, max) = (self.min, self.max);
        let at = |hundredths: u64| (self.count * hundredths).div_ceil(100).max(1);
        let [p50, p99] = match &self.kept {
            KeptTimes::All(all) if all.is_empty() => return None,
            KeptTimes::All(all) => {
                let mut sorted = all.clone();
                sorted.sort_unstable();
                [at(50), at(99)].map(|rank| sorted[usize::try_from(rank - 1).unwrap_or_default().min(sorted.len() - 1)])
            }
            KeptTimes::Cells(cells) => [at(50), at(99)].map(|rank| {
                let mut passed = 0;
                let cell = cells.iter().find(|(_, count)| {
                    passed += u64::from(*count);
                    passed >= rank
                });
                cell.map_or(max, |(cell, _)| middle(*cell).clamp(min, max))
            }),
        };
        Some(Quantiles { min, p50, p99, max })
    }
}

fn count(cells: &mut Vec<(u16, u32)>, rtt: Nanos) {
    let cell = cell(rtt);
    match cells.binary_search_by_key(&cell, |(cell, _)| *cell) {
        Ok(at) => cells[at].1 = cells[at].1.saturating_add(1),
        Err(at) => cells.insert(at, (cell, 1)),
    }
}

/// Returns the cell of a time. Each nanosecond up to 127 has its own cell; above that, each power
/// of two has 64.
fn cell(rtt: Nanos) -> u16 {
    let shift = rtt.0.checked_ilog2().unwrap_or(0).saturating_sub(FINE);
    let cell = (u64::from(shift) << FINE) + (rtt.0 >> shift);
    u16::try_from(cell).unwrap_or(u16::MAX)
}

fn middle(cell: u16) -> Nanos {
    let cell = u64::from(cell);
    let shift = (cell >> FINE).saturating_sub(1);
    let least = (cell - (shift << FINE)) << shift;
    Nanos(least + ((1 << shift) >> 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_the_bound_every_quantile_is_one_of_them() {
        let mut rtts = Rtts::default();
        assert_eq!(rtts.quantiles(), None);
        rtts.add(Nanos(7));
        let one = Quantiles { min: Nanos(7), p50: Nanos(7), p99: Nanos(7), max: Nanos(7) };
        assert_eq!(rtts.quantiles(), Some(one));
        let mut rtts = Rtts::default();
        (1..=1_000).rev().for_each(|n| rtts.add(Nanos(n)));
        let expected = Quantiles { min: Nanos(1), p50: Nanos(500), p99: Nanos(990), max: Nanos(1_000) };
        assert_eq!(rtts.quantiles(), Some(expected));
    }

    #[test]
    fn beyond_the_bound_they_are_within_one_percent() {
        let mut rtts = Rtts::default();
        let all: Vec<u64> = (0..100_000u64).map(|n| 20_000 + n * n % 99_991 * 37).collect();
        for &n in &all {
            rtts.add(Nanos(n));
        }
        let mut sorted = all;
        sorted.sort_unstable();
        let q = rtts.quantiles().unwrap();
        assert_eq!((q.min.0, q.max.0), (sorted[0], sorted[99_999]));
        for (got, exact) in [(q.p50, sorted[49_999]), (q.p99, sorted[98_999])] {
            assert!(got.0.abs_diff(exact) * 100 <= exact, "{got:?} for {exact}");
        }
    }

    #[test]
    fn cells_are_in_order_and_hold_their_middle() {
        let mut last = 0;
        for n in (0..200).chain((8..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + (1 << (bit - 2))])) {
            let cell = cell(Nanos(n));
            assert!(cell >= last && cell < 3_776, "{n}: {cell}");
            last = cell;
            assert_eq!(super::cell(middle(cell)), cell);
            assert!(u128::from(middle(cell).0.abs_diff(n)) * 128 <= u128::from(n), "{n}: {:?}", middle(cell));
        }
    }

    #[test]
    fn memory_does_not_grow_with_the_number_of_probes() {
        let mut rtts = Rtts::default();
        (0..1_000_000u64).for_each(|n| rtts.add(Nanos(50_000 + n % 20_000)));
        let KeptTimes::Cells(cells) = &rtts.kept else { panic!("past the bound") };
        assert!(cells.len() < 64, "{}", cells.len());
        assert_eq!(cells.iter().map(|(_, count)| u64::from(*count)).sum::<u64>(), 1_000_000);
    }
}
