//! The last hour of several links as one: what an agent measured of all its peers.
//!
//! A minute stores the share of the probes that was lost, not their number. All links of an agent
//! have as many probes in a minute, so the share of all is the mean. Round-trip times are octaves:
//! the median of the links' medians, and the highest of the links' 99th percentiles, because that
//! of all probes is not known.

use super::super::minute::{self, OCTAVES};
use super::{HourReading, HourStep};
use crate::units::Nanos;

/// The sums of one minute.
#[derive(Clone, Copy, Debug, Default)]
struct MinuteSum {
    loss: f64,
    measured: u16,
    /// Number of links by the octave of their median.
    medians: [u16; OCTAVES],
    p99: Option<usize>,
}

/// The hour of links that are read one after the other.
#[derive(Clone, Debug)]
pub struct LinksHour {
    sums: Vec<MinuteSum>,
    ended: u32,
    /// When the last minute ended, on the monotonic clock.
    pub end: Nanos,
}

impl LinksHour {
    /// Returns the hour of no link, over the same minutes as this one's.
    pub fn over(hour: &HourReading) -> Self {
        let sums = vec![MinuteSum::default(); hour.minutes.count];
        Self { sums, ended: hour.minutes.ended, end: hour.end }
    }

    /// Adds a link. If a minute has ended since the first was read, the link's last is left out.
    pub fn add(&mut self, hour: &HourReading) {
        let newer = hour.minutes.ended.saturating_sub(self.ended) as usize;
        let older_first = hour.minutes.as_slice().iter().rev().skip(newer);
        for (sum, minute) in self.sums.iter_mut().rev().zip(older_first) {
            let Some(loss) = minute.loss() else { continue };
            sum.loss += loss;
            sum.measured += 1;
            if let Some([p50, p99]) = minute.times() {
                sum.medians[p50] += 1;
                sum.p99 = sum.p99.max(Some(p99));
            }
        }
    }

    /// Returns the minutes in order from the oldest.
    pub fn steps(&self) -> Vec<HourStep> {
        self.sums.iter().map(MinuteSum::step).collect()
    }
}

impl MinuteSum {
    fn step(&self) -> HourStep {
        let links: u16 = self.medians.iter().sum();
        let reached = self.medians.iter().scan(0, |sum, links| {
            *sum += links;
            Some(*sum)
        });
        let median = reached.zip(0..).find(|(reached, _)| links > 0 && *reached >= links.div_ceil(2));
        HourStep {
            loss: (self.measured > 0).then(|| self.loss / f64::from(self.measured)),
            rtt_p50_seconds: median.map(|(_, octave)| minute::upper(octave)),
            rtt_p99_seconds: self.p99.map(minute::upper),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::minute::Minute;
    use super::super::{HOUR_STEPS, Minutes};
    use super::*;

    fn reading(ended: u32, minutes: &[Minute]) -> HourReading {
        let mut all = [Minute::NOT_MEASURED; HOUR_STEPS];
        all[..minutes.len()].copy_from_slice(minutes);
        HourReading { minutes: Minutes { all, count: minutes.len(), ended }, probes: 60, end: Nanos(1) }
    }

    #[test]
    fn a_minute_has_the_mean_loss_the_middle_median_and_the_highest_99th_percentile() {
        let well = |p50, p99| Minute::new(60, 0, Some([p50, p99]));
        let dead = Minute::new(0, 60, None);
        let links = [[well(3, 5), dead], [well(4, 9), well(4, 4)], [well(8, 8), Minute::NOT_MEASURED]];
        let readings = links.map(|minutes| reading(2, &minutes));
        let mut hour = LinksHour::over(&readings[0]);
        for reading in &readings {
            hour.add(reading);
        }
        let step = |loss, p50, p99| HourStep {
            loss: Some(loss),
            rtt_p50_seconds: Some(minute::upper(p50)),
            rtt_p99_seconds: Some(minute::upper(p99)),
        };
        assert_eq!(hour.steps(), [step(0.0, 4, 9), step(0.5, 4, 4)]);
    }

    #[test]
    fn a_minute_without_a_measurement_has_none_and_one_that_ends_meanwhile_shifts_nothing() {
        let (lost, none) = (Minute::new(0, 60, None), Minute::NOT_MEASURED);
        let first = reading(2, &[none, lost]);
        let mut hour = LinksHour::over(&first);
        hour.add(&first);
        hour.add(&reading(3, &[none, lost, Minute::new(60, 0, None)]));
        let losses: Vec<_> = hour.steps().into_iter().map(|step| step.loss).collect();
        assert_eq!(losses, [None, Some(1.0)]);
        assert_eq!(hour.steps()[1].rtt_p50_seconds.or(hour.steps()[1].rtt_p99_seconds), None);
    }
}
