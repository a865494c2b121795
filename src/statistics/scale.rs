//! Division of the range of times into cells, shared by classic and native histograms.
//!
//! A native histogram of Prometheus has buckets whose bounds are powers of `2^(2^-schema)`: at
//! schema 3, each bucket is 9 % wider than the one before. The bounds of classic buckets are chosen
//! by the operator. Times are counted in *cells*, which end at the bounds of both. So a cell lies
//! within one bucket of each kind, and both histograms are exact sums of the same counters.
//! Quantiles in reports and verdicts use the same counters too.
//!
//! Times are whole nanoseconds; the bounds of native buckets are not. A time is within a bucket if
//! it is at most the bucket's bound rounded down.

use std::time::Duration;

use super::bounds::BucketBounds;
use crate::limits::RTT_BUCKETS_MAX;
use crate::units::Nanos;

/// Largest number of cells of a scale: a cell's number fits a byte.
pub const CELLS_MAX: usize = 256;
/// Largest number of native buckets of a scale, including the zero bucket.
pub const BINS_MAX: usize = CELLS_MAX - RTT_BUCKETS_MAX;
/// Largest number of native buckets per octave, of all links together. 128 links have eight each,
/// the finest resolution, and 512 have two. With 21 octaves, at six bytes a bucket, that is 126 KB.
const LINK_BINS_MAX: usize = 1_024;
/// Largest number of doublings that a scale covers. At the finest schema each
/// doubling has eight buckets.
const OCTAVES_MAX: i32 = 28;
/// Times up to two to this power, in seconds, count as zero: 0.95 µs. The power is higher if a
/// timeout is so long that more than [`OCTAVES_MAX`] doublings would be needed.
const LOWEST_POWER: i32 = -20;
/// The same for the coarsest schema: 7.6 µs. It is used for thousands of links, each with its own
/// buckets, so there are no buckets for times that no network reaches.
const LOWEST_POWER_COARSEST: i32 = -17;
/// The finest schema: its buckets are 9 % wide.
pub const SCHEMA_MAX: u8 = 3;
// All doublings, the zero bucket, and one bucket above the highest power of two for replies that
// are slightly too late.
const _: () = assert!((OCTAVES_MAX << SCHEMA_MAX) as usize + 2 <= BINS_MAX);

/// Division of times into cells. It does not change after the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    bounds: BucketBounds,
    schema: u8,
    longest: Duration,
    /// The zero bucket ends at two to this power, in seconds.
    lowest_power: i32,
    /// Upper bounds of all cells but the last, which has none.
    edges: Box<[Nanos]>,
    /// Number of cells that end at or below each classic bound.
    classic: Box<[u16]>,
    /// Number of the native bucket that contains each cell; 0 is the zero bucket.
    bins: Box<[u8]>,
}

impl Default for Scale {
    /// Returns the finest scale, with the default bounds and the default timeout.
    fn default() -> Self {
        Self::new(BucketBounds::default(), SCHEMA_MAX, Duration::from_secs(1))
    }
}

impl Scale {
    /// Makes a scale for times up to `longest`. Longer times are counted in the last native bucket.
    pub fn new(bounds: BucketBounds, schema: u8, longest: Duration) -> Self {
        let schema = schema.min(SCHEMA_MAX);
        let highest_power =
            (LOWEST_POWER + 1..32).find(|power| power_of_two(f64::from(*power)) >= Nanos::from(longest)).unwrap_or(32);
        let lowest_power = if schema == 0 { LOWEST_POWER_COARSEST } else { LOWEST_POWER };
        let lowest_power = lowest_power.max(highest_power - OCTAVES_MAX);
        let per_octave = 1_i32 << schema;
        let native: Vec<Nanos> = (0..=(highest_power - lowest_power) * per_octave)
            .map(|step| power_of_two(f64::from(lowest_power) + f64::from(step) / f64::from(per_octave)))
            .collect();
        let mut edges: Vec<Nanos> = native.iter().chain(bounds.as_slice()).copied().collect();
        edges.sort_unstable();
        edges.dedup();
        let bin = |upper: Nanos| u8::try_from(native.partition_point(|bound| *bound < upper)).unwrap_or(u8::MAX);
        let bins = edges.iter().copied().chain([Nanos(u64::MAX)]).map(bin).collect();
        let cells_up_to =
            |bound: &Nanos| u16::try_from(edges.partition_point(|edge| *edge <= *bound)).unwrap_or(u16::MAX);
        let classic = bounds.as_slice().iter().map(cells_up_to).collect();
        Self { bounds, schema, longest, lowest_power, edges: edges.into(), classic, bins }
    }

    /// Makes a scale with the same bounds and longest time at another schema.
    #[must_use]
    pub fn with_schema(&self, schema: u8) -> Self {
        Self::new(self.bounds.clone(), schema, self.longest)
    }

    /// Returns the finest schema at which this many links have at most `LINK_BINS_MAX` buckets per
    /// octave. Returns 0, the coarsest, if none fits or if the number of links is unknown.
    pub fn schema_of(links: Option<usize>) -> u8 {
        let fits = |schema: &u8| links.is_some_and(|links| links << *schema <= LINK_BINS_MAX);
        (1..=SCHEMA_MAX).rev().find(fits).unwrap_or(0)
    }

    /// Returns the bounds of the classic buckets.
    pub const fn bounds(&self) -> &BucketBounds {
        &self.bounds
    }

    /// Returns the schema of the native histogram.
    pub const fn schema(&self) -> u8 {
        self.schema
    }

    /// Returns the upper bound of the zero bucket, in seconds.
    pub fn zero_threshold(&self) -> f64 {
        f64::from(self.lowest_power).exp2()
    }

    /// Returns the index, as Prometheus defines it, of native bucket `bin` (from 1 on). The bucket
    /// ends at `2^(index / 2^schema)` seconds.
    pub fn native_index(&self, bin: usize) -> i32 {
        (self.lowest_power << self.schema).saturating_add(i32::try_from(bin).unwrap_or(i32::MAX))
    }

    /// Returns the number of cells.
    pub const fn cells(&self) -> usize {
        self.bins.len()
    }

    /// Returns the number of native buckets, including the zero bucket.
    pub fn bin_count(&self) -> usize {
        self.bins.last().map_or(1, |bin| usize::from(*bin) + 1)
    }

    /// Returns the cell that contains `time`.
    pub fn cell(&self, time: Nanos) -> usize {
        self.edges.partition_point(|edge| *edge < time)
    }

    /// Returns the native bucket that contains `cell`.
    pub fn bin(&self, cell: usize) -> usize {
        self.bins.get(cell).map_or(0, |bin| usize::from(*bin))
    }

    /// Returns the number of cells that end at or below classic bound number `bound`.
    pub fn cells_up_to(&self, bound: usize) -> usize {
        self.classic.get(bound).map_or(self.cells(), |cells| usize::from(*cells))
    }

    /// Returns the `q`-quantile in seconds of counts per cell, interpolated within its cell. In the
    /// last cell it is the lower bound. `None` if all counts are zero.
    pub fn quantile(&self, q: f64, counts: impl IntoIterator<Item = u64, IntoIter: Clone>) -> Option<f64> {
        let (cell, part) = rank(q, counts.into_iter())?;
        Some(self.within(cell, cell, part))
    }

    /// Returns the same for counts per native bucket.
    pub fn quantile_of_bins(&self, q: f64, counts: impl IntoIterator<Item = u64, IntoIter: Clone>) -> Option<f64> {
        let (bin, part) = rank(q, counts.into_iter())?;
        let first = self.bins.partition_point(|at| usize::from(*at) < bin);
        let end = self.bins.partition_point(|at| usize::from(*at) <= bin);
        Some(self.within(first, end - 1, part))
    }

    /// Returns lower and upper bound of a cell in seconds. They are equal for the last cell.
    pub fn cell_bounds(&self, cell: usize) -> [f64; 2] {
        [0.0, 1.0].map(|part| self.within(cell, cell, part))
    }

    /// Returns a point within the cells from `first` to `last`, in seconds. The last cell of the
    /// scale has no width.
    fn within(&self, first: usize, last: usize, part: f64) -> f64 {
        let lower = first.checked_sub(1).map_or(0.0, |before| self.edges[before].as_secs_f64());
        let upper = self.edges.get(last).map_or(lower, |edge| edge.as_secs_f64());
        lower + (upper - lower) * part
    }
}

/// Returns two to `power` seconds, rounded down to nanoseconds.
fn power_of_two(power: f64) -> Nanos {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded down, and positive")]
    let nanos = (power.exp2() * 1e9) as u64;
    Nanos(nanos)
}

/// Returns the index of the `q`-quantile among counts, and which share of that count is not above
/// it. `None` if all counts are zero.
pub(super) fn rank(q: f64, counts: impl Iterator<Item = u64> + Clone) -> Option<(usize, f64)> {
    let total: u64 = counts.clone().sum();
    let rank = q * total as f64;
    let mut below = 0.0;
    let mut last = None;
    for (index, count) in counts.enumerate() {
        let count = count as f64;
        if count > 0.0 {
            last = Some((index, ((rank - below) / count).clamp(0.0, 1.0)));
            if below + count >= rank {
                break;
            }
        }
        below += count;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Nanos {
        Nanos(n * 1_000)
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Returns the index as Prometheus defines it: the smallest one whose bound is
    /// not below the time.
    fn index_by_definition(time: Nanos, schema: u8) -> i32 {
        let exact = time.as_secs_f64().log2() * f64::from(1_u32 << schema);
        #[expect(clippy::cast_possible_truncation, reason = "small")]
        let index = exact.ceil() as i32;
        index
    }

    #[test]
    fn a_time_is_in_the_native_bucket_that_prometheus_defines_and_below_its_classic_bounds() {
        let mut random = 1_u64;
        for schema in 0..=SCHEMA_MAX {
            let scale = Scale::new(BucketBounds::default(), schema, ms(1_000));
            let mut checked = 0;
            for _ in 0..20_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Times are spread evenly over the powers of two, up to the timeout.
                let time = Nanos(((random >> 20) % (1 << (10 + random % 20))).min(1_000_000_000));
                let cell = scale.cell(time);
                for (number, bound) in scale.bounds().as_slice().iter().enumerate() {
                    assert_eq!(cell < scale.cells_up_to(number), time <= *bound, "{time:?} {bound:?}");
                }
                if time.as_secs_f64() > scale.zero_threshold() {
                    let exact = time.as_secs_f64().log2() * f64::from(1_u32 << schema);
                    // Skip times for which floating point cannot say on which side of
                    // a bound they are.
                    if (exact - exact.round()).abs() > 1e-6 {
                        let index = scale.native_index(scale.bin(cell));
                        assert_eq!(index, index_by_definition(time, schema), "{time:?}");
                        checked += 1;
                    }
                } else {
                    assert_eq!(scale.bin(cell), 0, "{time:?}");
                }
            }
            assert!(checked > 10_000, "{checked}");
        }
    }

    #[test]
    fn powers_of_two_end_their_buckets() {
        let scale = Scale::default();
        for (time, index) in [(250_000_000, -16), (250_000_001, -15), (1_000_000_000, 0), (500_000_000, -8)] {
            assert_eq!(scale.native_index(scale.bin(scale.cell(Nanos(time)))), index, "{time}");
        }
        assert_eq!((scale.bin(scale.cell(Nanos(953))), scale.bin(scale.cell(Nanos(954)))), (0, 1));
        // Times beyond the range are still counted.
        assert_eq!(scale.native_index(scale.bin(scale.cell(Nanos(u64::MAX)))), 1);
    }

    #[test]
    fn every_scale_has_its_room() {
        for schema in 0..=SCHEMA_MAX {
            for longest in [1, 1_000, 2_000, 60_000, 300_000, 1_000_000_000] {
                let wide: Vec<Duration> = (1..=16).map(|n| ms(n * 7)).collect();
                for bounds in [BucketBounds::default(), BucketBounds::new(&wide).unwrap()] {
                    let scale = Scale::new(bounds, schema, ms(longest));
                    assert!(scale.cells() <= CELLS_MAX && scale.bin_count() <= BINS_MAX);
                    let bins: Vec<usize> = (0..scale.cells()).map(|cell| scale.bin(cell)).collect();
                    assert!(bins.is_sorted() && bins.windows(2).all(|pair| pair[1] - pair[0] <= 1) && bins[0] == 0);
                }
            }
        }
    }

    #[test]
    fn links_decide_on_the_schema() {
        let schemas = [1, 24, 128, 129, 256, 257, 512, 513, 1_000_000].map(|links| Scale::schema_of(Some(links)));
        assert_eq!(schemas, [3, 3, 3, 2, 2, 1, 1, 0, 0]);
        assert_eq!(Scale::schema_of(None), 0);
    }

    #[test]
    fn quantiles_are_within_the_bucket_of_the_exact_one() {
        let scale = Scale::default();
        let times: Vec<Nanos> = (1..=1_000).map(|n| us(n * n)).collect();
        let (mut cells, mut bins) = ([0_u64; CELLS_MAX], [0_u64; BINS_MAX]);
        for time in &times {
            let cell = scale.cell(*time);
            cells[cell] += 1;
            bins[scale.bin(cell)] += 1;
        }
        for (q, exact) in [(0.5, times[499]), (0.99, times[989]), (0.01, times[9]), (1.0, times[999])] {
            let exact = exact.as_secs_f64();
            for found in [scale.quantile(q, cells), scale.quantile_of_bins(q, bins)] {
                let found = found.unwrap();
                assert!((found / exact).log2().abs() <= 1.0 / 8.0, "{q}: {found} {exact}");
            }
        }
        assert_eq!((scale.quantile(0.5, [0; 8]), scale.quantile_of_bins(0.5, [0; 8])), (None, None));
    }

    #[test]
    fn ranks_are_those_of_the_counts() {
        assert_eq!(rank(0.99, [1, 1, 98].into_iter()).map(|(index, _)| index), Some(2));
        assert_eq!(rank(0.5, [4, 0, 0].into_iter()), Some((0, 0.5)));
        assert_eq!(rank(0.5, [0, 0].into_iter()), None);
    }
}
