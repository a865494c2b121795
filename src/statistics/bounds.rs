//! Upper bounds of classic histogram buckets, as the operator gives them with `--rtt-buckets`.

use std::time::Duration;

use crate::limits::RTT_BUCKETS_MAX;
use crate::units::Nanos;

/// Upper bounds of the buckets below +Inf, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketBounds(Box<[Nanos]>);

impl Default for BucketBounds {
    /// Returns 12 bounds from 25 µs to 1 s. A round trip within a rack takes 20 to 60 µs. The
    /// bounds are fine in the range of round trips within a region and coarse above: native
    /// histograms have the details.
    fn default() -> Self {
        const US: [u64; 12] = [25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000];
        Self(US.map(|us| Nanos(us * 1_000)).into())
    }
}

impl BucketBounds {
    /// Makes bounds from durations.
    ///
    /// # Errors
    /// Returns a sentence that says what is accepted: if there are no durations or too many, or if
    /// they are not ascending and above zero.
    pub fn new(durations: &[Duration]) -> Result<Self, String> {
        let bounds: Box<[Nanos]> = durations.iter().copied().map(Nanos::from).collect();
        if bounds.is_empty() || bounds.len() > RTT_BUCKETS_MAX {
            return Err(format!("1 to {RTT_BUCKETS_MAX} durations, separated by commas"));
        }
        if bounds[0] == Nanos(0) || bounds.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err("durations above zero, each larger than the one before".into());
        }
        Ok(Self(bounds))
    }

    /// Returns 12 bounds from 0.5 ms to 5 s, for checks: an answer of the cluster's DNS takes 1 ms,
    /// and a handshake with a target outside up to some 100 ms.
    pub fn for_checks() -> Self {
        const US: [u64; 12] =
            [500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000];
        Self(US.map(|us| Nanos(us * 1_000)).into())
    }

    /// Returns the bounds in ascending order.
    pub const fn as_slice(&self) -> &[Nanos] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_must_ascend_and_be_few() {
        let ms = Duration::from_millis;
        assert!(BucketBounds::new(&[ms(1), ms(2)]).is_ok());
        for bad in [vec![], vec![ms(0)], vec![ms(2), ms(1)], vec![ms(1), ms(1)], (1..=17).map(ms).collect()] {
            assert!(BucketBounds::new(&bad).is_err(), "{bad:?}");
        }
    }
}
