//! Checks in the compact form: some 10 bytes and its name for one that is well.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::time_code::{time_code, time_seconds};
use crate::check::{Check, CheckFailure, CheckKind, is_check_name};
use crate::method::Family;

/// Bytes of the longest check.
pub(super) const CHECK_BYTES_MAX: usize = 96;

/// What is reported of a check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CompactCheck<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Place in [`CheckKind::ALL`].
    kind: u8,
    tried: u32,
    servers: u8,
    reaches_itself: bool,
    #[serde(with = "postcard::fixint::le")]
    time: u16,
    trouble: Option<CheckTrouble>,
}

/// What a check does not have of which all attempts were good.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct CheckTrouble {
    failed: u32,
    slow: u32,
    good_in_row: u8,
    failed_in_row: u8,
    reason: Option<CheckFailure>,
    /// The family that alone is hit, and the attempts over it.
    family: Option<(Family, u32)>,
    /// Seconds since it began.
    age: Option<u64>,
    servers_failing: u8,
    #[serde(with = "postcard::fixint::le")]
    slow_from: u16,
}

impl CompactCheck<'static> {
    /// Returns the check as it is written. `None` if its name or kind cannot be.
    pub fn from_check(check: &Check<'_>, now_unix_seconds: u64) -> Option<Self> {
        let kind = CheckKind::ALL.iter().position(|kind| *kind == check.kind)?;
        let narrow = |count: u32| u8::try_from(count).unwrap_or(u8::MAX);
        let failed = check.failed.min(check.tried);
        let slow = check.slow.min(check.tried - failed);
        let trouble = CheckTrouble {
            failed,
            slow,
            good_in_row: narrow(check.good_in_row),
            failed_in_row: narrow(check.failed_in_row),
            reason: (failed > 0).then(|| check.reason.unwrap_or(CheckFailure::Other)),
            family: check.family.map(|family| (family, check.family_tried.clamp(failed + slow, check.tried))),
            age: check.since_unix_seconds.map(|since| now_unix_seconds.saturating_sub(since)),
            servers_failing: check.servers_failing.min(check.servers),
            slow_from: time_code(check.slow_from_seconds),
        };
        is_check_name(&check.name).then(|| Self {
            name: Cow::Owned(check.name.clone().into_owned()),
            kind: u8::try_from(kind).unwrap_or(u8::MAX),
            tried: check.tried,
            servers: check.servers,
            reaches_itself: check.reaches_itself,
            time: time_code(check.time_p50_seconds),
            trouble: (failed + slow > 0).then_some(trouble),
        })
    }
}

impl<'a> CompactCheck<'a> {
    /// Returns the check. `None` if it has a value that cannot be.
    fn check(self, now_unix_seconds: u64) -> Option<Check<'a>> {
        let Self { name, kind, tried, servers, reaches_itself, time, trouble } = self;
        let kind = *CheckKind::ALL.get(usize::from(kind))?;
        let time_p50_seconds = time_seconds(time);
        let well = Check { name, kind, tried, servers, reaches_itself, time_p50_seconds, ..Check::default() };
        let Some(trouble) = trouble else { return Some(well) };
        let CheckTrouble { failed, slow, good_in_row, failed_in_row, reason, family, age, .. } = trouble;
        let CheckTrouble { servers_failing, slow_from, .. } = trouble;
        let bad = failed.checked_add(slow).filter(|bad| (1..=tried).contains(bad))?;
        let family_fits = family.is_none_or(|(_, of_family)| (bad..=tried).contains(&of_family));
        let is_possible = (failed > 0) == reason.is_some() && family_fits && servers_failing <= servers;
        is_possible.then(|| Check {
            failed,
            slow,
            good_in_row: good_in_row.into(),
            failed_in_row: failed_in_row.into(),
            reason,
            family: family.map(|(family, _)| family),
            family_tried: family.map_or(0, |(_, tried)| tried),
            since_unix_seconds: age.map(|age| now_unix_seconds.saturating_sub(age)),
            servers_failing,
            slow_from_seconds: time_seconds(slow_from),
            ..well
        })
    }
}

/// Returns all checks of a report. `None` if a name or a value cannot be, or if they are not in
/// order.
pub(super) fn read(checks: Vec<CompactCheck<'_>>, now_unix_seconds: u64) -> Option<Vec<Check<'_>>> {
    let is_in_order = checks.is_sorted_by(|a, b| a.name < b.name);
    let may_be = is_in_order && checks.iter().all(|check| is_check_name(&check.name));
    checks.into_iter().map(|check| check.check(now_unix_seconds)).collect::<Option<_>>().filter(|_| may_be)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::{NOW, source, well, written_by};
    use super::super::{CompactReader, CompactWriter, add};
    use super::*;
    use crate::check::{CHECK_NAME_BYTES_MAX, CHECKS_MAX};
    use crate::report::Protocol;

    /// A check of which everything is reported.
    pub(in super::super) fn failing(name: &str) -> Check<'_> {
        Check {
            name: name.into(),
            kind: CheckKind::Http,
            tried: 12,
            failed: 5,
            slow: 2,
            good_in_row: 1,
            failed_in_row: 0,
            reason: Some(CheckFailure::Status),
            family: Some(Family::V6),
            family_tried: 8,
            reaches_itself: true,
            since_unix_seconds: Some(NOW - 90),
            servers: 3,
            servers_failing: 1,
            time_p50_seconds: Some(0.25),
            slow_from_seconds: Some(0.1),
        }
    }

    fn healthy(name: &str) -> Check<'_> {
        Check {
            name: name.into(),
            kind: CheckKind::Dns,
            tried: 12,
            servers: 1,
            time_p50_seconds: Some(0.001),
            ..Check::default()
        }
    }

    fn written(checks: &[Check<'_>]) -> Vec<u8> {
        let mut writer = CompactWriter::new(&source(), 0, NOW);
        for check in checks {
            writer.check(check);
        }
        writer.peer(7, &well(Protocol::Icmp));
        writer.end(0)
    }

    fn read(bytes: &[u8]) -> Option<Vec<Check<'_>>> {
        CompactReader::new(bytes, NOW + 5).ok().map(|reader| reader.checks)
    }

    fn plain(checks: &[Check<'_>]) -> Vec<String> {
        let rounded = |time: Option<f64>| time.map(|time| (time * 1e3).round() / 1e3);
        let plain = checks.iter().map(|check| Check {
            time_p50_seconds: rounded(check.time_p50_seconds),
            slow_from_seconds: rounded(check.slow_from_seconds),
            ..check.clone()
        });
        plain.map(|check| serde_json::to_string(&check).unwrap()).collect()
    }

    #[test]
    fn checks_are_read_as_they_were_written_in_order_of_their_names() {
        let bytes = written(&[failing("web"), healthy("dns"), failing("dns"), healthy("api")]);
        // The reader's clock is 5 s ahead, and so is the moment.
        let expected = [healthy("api"), healthy("dns"), Check { since_unix_seconds: Some(NOW - 85), ..failing("web") }];
        assert_eq!(plain(&read(&bytes).expect("a report")), plain(&expected));
        assert_eq!(read(&written_by(&source(), &[])), Some(Vec::new()));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), None, "{end} bytes");
        }
    }

    #[test]
    fn healthy_checks_take_20_bytes_each() {
        let names = ["cluster-dns", "api-server", "service-tcp"];
        let more = written(&names.map(healthy)).len() - written(&[]).len();
        assert!(more <= 3 * 20, "{more}");
    }

    #[test]
    fn what_a_reader_would_refuse_is_not_written() {
        let long = "n".repeat(CHECK_NAME_BYTES_MAX + 1);
        let other = Check { kind: CheckKind::Other, ..healthy("quic") };
        let checks = [healthy(""), healthy(&long), healthy("a b"), other];
        assert_eq!(read(&written(&checks)), Some(Vec::new()));
        let wrong = Check { tried: 4, failed: 9, slow: 9, reason: None, servers_failing: 9, ..failing("web") };
        let bytes = written(&[wrong]);
        let read_again = read(&bytes).expect("a report").remove(0);
        assert_eq!((read_again.failed, read_again.slow, read_again.servers_failing), (4, 0, 3));
        assert_eq!(read_again.reason, Some(CheckFailure::Other));
        let names: Vec<String> = (0..=CHECKS_MAX).map(|name| name.to_string()).collect();
        let many: Vec<Check<'_>> = names.iter().map(|name| healthy(name)).collect();
        assert_eq!(read(&written(&many)).map(|checks| checks.len()), Some(CHECKS_MAX));
    }

    #[test]
    fn checks_with_values_that_cannot_be_are_refused() {
        let compact = |check: &Check<'_>| CompactCheck::from_check(check, NOW).expect("a check");
        let is_read = |checks: Vec<CompactCheck<'_>>| super::read(checks, NOW).is_some();
        let with = |change: &dyn Fn(&mut CompactCheck<'_>, &mut CheckTrouble)| {
            let mut check = compact(&failing("web"));
            let mut trouble = check.trouble.expect("trouble");
            change(&mut check, &mut trouble);
            is_read(vec![CompactCheck { trouble: Some(trouble), ..check }])
        };
        assert!(with(&|_, _| {}));
        assert!(!with(&|check, _| check.kind = 7), "no such kind");
        assert!(!with(&|check, _| check.name = "a b".into()), "no name");
        assert!(!with(&|check, _| check.tried = 6), "fewer attempts than bad ones");
        assert!(!with(&|_, trouble| trouble.failed = u32::MAX), "too many");
        assert!(!with(&|_, trouble| trouble.reason = None), "failed without a reason");
        assert!(!with(&|_, trouble| trouble.failed = 0), "a reason, and none failed");
        assert!(!with(&|_, trouble| (trouble.failed, trouble.slow, trouble.reason) = (0, 0, None)), "no trouble");
        assert!(!with(&|_, trouble| trouble.servers_failing = 4), "more servers than there are");
        for of_family in [6, 13] {
            assert!(!with(&|_, trouble| trouble.family = Some((Family::V4, of_family))), "{of_family} of 7 to 12");
        }
        let two = |a: &str, b: &str| is_read(vec![compact(&healthy(a)), compact(&healthy(b))]);
        assert_eq!([two("a", "b"), two("a", "a"), two("b", "a")], [true, false, false]);
    }

    #[test]
    fn a_list_of_more_than_32_checks_is_refused() {
        let bytes = written(&[healthy("dns")]);
        let at = bytes.windows(5).position(|window| window == b"\x01\x03dns").expect("the checks");
        for count in [0, 2, 33, 0xff] {
            let changed = [&bytes[..at], &[count], &bytes[at + 1..]].concat();
            assert_eq!(read(&changed), None, "{count}");
        }
    }

    #[test]
    fn no_check_is_longer_than_its_limit() {
        let name = "n".repeat(CHECK_NAME_BYTES_MAX);
        let wide = Some(f64::MAX);
        let longest = Check {
            tried: u32::MAX,
            failed: u32::MAX / 2,
            slow: u32::MAX / 2,
            good_in_row: u32::MAX,
            failed_in_row: u32::MAX,
            family_tried: u32::MAX,
            reason: Some(CheckFailure::Other),
            since_unix_seconds: Some(0),
            servers: u8::MAX,
            servers_failing: u8::MAX,
            time_p50_seconds: wide,
            slow_from_seconds: wide,
            ..failing(&name)
        };
        let length = add(Vec::new(), &CompactCheck::from_check(&longest, u64::MAX)).len();
        assert_eq!(length, CHECK_BYTES_MAX);
    }
}
