//! Decides when the log names probes that cannot be sent: one line per cause, for any number of
//! peers and sockets. Another line follows when the cause spreads to another protocol, ends or
//! returns. No I/O, no clock.

use crate::limits::TCP_INTERVAL;
use crate::peers::{Family, Method};
use crate::prober::SendError;
use crate::units::Nanos;

/// A cause without another failed probe for this time, and for three intervals, is over: the last
/// minute of the reports has none of it then.
const OVER_AFTER: Nanos = Nanos::from_millis(60_000);

/// A handshake is decided within its timeout and this time, and counted in the next second.
const DECIDED_WITHIN: Nanos = Nanos::from_millis(1_000);

/// A cause: probes of one family that are not sent for one reason.
#[derive(Clone, Copy, Debug, Default)]
struct UnsentReason {
    /// Number of failed probes of each method when the counters were last read.
    counts: [u64; Method::ALL.len()],
    /// The methods whose probes fail, one bit each.
    methods: u8,
    /// The methods that the log has named.
    named: u8,
    /// When the first method failed that the log has not named.
    since: Nanos,
    /// When a failed probe was last noticed.
    last: Nanos,
}

/// What to say of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsentChange {
    /// Probes of these methods, one bit each, cannot be sent.
    Begun(u8),
    /// They are sent again, or no longer tried.
    Over,
}

/// The causes that the log has named.
#[derive(Debug)]
pub struct UnsentLog {
    causes: [[UnsentReason; SendError::ALL.len()]; Family::ALL.len()],
    /// A cause is named once every method had the time to meet it, so that one line names them all.
    wait: Nanos,
    over_after: Nanos,
}

impl UnsentLog {
    /// Makes it for probes of one peer that are `interval` apart and answered within `timeout`.
    pub fn new(interval: Nanos, timeout: Nanos) -> Self {
        let over_after = Nanos(interval.0.saturating_mul(3)).max(OVER_AFTER);
        let wait = interval.max(TCP_INTERVAL.into()).plus(timeout).plus(DECIDED_WITHIN);
        Self { causes: Default::default(), wait, over_after }
    }

    /// Reads the counters once a second, and calls `change` for each cause that the log must name.
    pub fn look(
        &mut self,
        now: Nanos,
        count: impl Fn(Method, Family, SendError) -> u64,
        mut change: impl FnMut(Family, SendError, UnsentChange),
    ) {
        for (family, causes) in Family::ALL.into_iter().zip(&mut self.causes) {
            for (reason, cause) in SendError::ALL.into_iter().zip(causes) {
                let counts = Method::ALL.map(|method| count(method, family, reason));
                if let Some(found) = cause.look(now, counts, self.wait, self.over_after) {
                    change(family, reason, found);
                }
            }
        }
    }
}

impl UnsentReason {
    fn look(&mut self, now: Nanos, counts: [u64; 3], wait: Nanos, over_after: Nanos) -> Option<UnsentChange> {
        let before = std::mem::replace(&mut self.counts, counts);
        let failed =
            counts.iter().zip(before).rev().fold(0, |bits, (now, before)| bits << 1 | u8::from(*now != before));
        if failed != 0 {
            self.last = now;
            if failed & !self.methods != 0 && self.methods == self.named {
                self.since = now;
            }
            self.methods |= failed;
        }
        if self.methods != self.named && now.since(self.since) >= wait {
            self.named = self.methods;
            return Some(UnsentChange::Begun(self.named));
        }
        if self.methods != 0 && now.since(self.last) > over_after {
            *self = Self { counts, ..Self::default() };
            return Some(UnsentChange::Over);
        }
        None
    }
}

/// Writes a change to the log.
pub fn write(family: Family, reason: SendError, change: UnsentChange) {
    let version = family.name();
    match change {
        UnsentChange::Begun(methods) => log::warn!(
            "probes cannot be sent by {} over {version}: {}; /api/v1/peers says to which peers",
            names(methods),
            reason.words()
        ),
        UnsentChange::Over => log::info!("no more probes over {version} fail to be sent: {}", reason.words()),
    }
}

fn names(methods: u8) -> String {
    let named = Method::ALL.into_iter().filter(|method| methods >> *method as u8 & 1 == 1);
    named.map(Method::name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns what the log says, and when, if probes fail at these seconds.
    fn said(
        failures: &[(Method, Family, SendError, std::ops::Range<u64>)],
    ) -> Vec<(u64, Family, SendError, UnsentChange)> {
        let (mut log, mut said) = (UnsentLog::new(Nanos(SECOND), Nanos(SECOND)), Vec::new());
        for second in 0..400 {
            let count = |method: Method, family, reason| {
                let mine =
                    failures.iter().filter(|failure| (failure.0, failure.1, failure.2) == (method, family, reason));
                // A handshake fails long after it has begun.
                let is_counted = |at: u64| method != Method::Tcp || at % 10 == 7;
                mine.map(|failure| failure.3.clone().filter(|at| *at <= second && is_counted(*at)).count() as u64 * 24)
                    .sum()
            };
            log.look(Nanos(second * SECOND), count, |family, reason, change| {
                said.push((second, family, reason, change));
            });
        }
        said
    }

    #[test]
    fn a_cause_has_one_line_for_all_methods_and_peers() {
        let all = Method::ALL.map(|method| (method, Family::V6, SendError::NoRoute, 5..400));
        assert_eq!(said(&all), [(17, Family::V6, SendError::NoRoute, UnsentChange::Begun(0b111))]);
        assert_eq!(names(0b101), "ICMP, TCP");
    }

    #[test]
    fn a_cause_that_ends_spreads_or_returns_has_another_line() {
        let (v4, firewall) = (Family::V4, SendError::NotPermitted);
        let found = said(&[
            (Method::Icmp, v4, firewall, 5..50),
            (Method::Udp, v4, firewall, 30..50),
            (Method::Icmp, v4, firewall, 200..210),
            (Method::Icmp, v4, SendError::NoBuffer, 205..206),
        ]);
        let begun = |second, reason, methods| (second, v4, reason, UnsentChange::Begun(methods));
        assert_eq!(
            found,
            [
                begun(17, firewall, 1),
                begun(42, firewall, 3),
                (110, v4, firewall, UnsentChange::Over),
                begun(212, firewall, 1),
                begun(217, SendError::NoBuffer, 1),
                (266, v4, SendError::NoBuffer, UnsentChange::Over),
                (270, v4, firewall, UnsentChange::Over),
            ]
        );
    }
}
