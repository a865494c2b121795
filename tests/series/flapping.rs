//! What no sequence of scrapes may show: a series that goes and comes back soon although its peer stayed, or a counter that
//! goes back.

use std::collections::HashMap;

use kube_canary::limits::SERIES_RETURN_TIME;
use kube_canary::units::Nanos;

#[derive(Debug)]
struct Seen {
    value: f64,
    /// Since when it has been missing.
    gone: Option<Nanos>,
    /// Which stay of its peer this was.
    stay: u64,
    /// The last scrape that it was in.
    scrape: u64,
}

/// All series of the scrapes so far.
#[derive(Default)]
pub struct Watch {
    seen: HashMap<String, Seen>,
    scrapes: u64,
    /// Series that went and came back in time.
    pub returned: usize,
}

fn is_counter(series: &str) -> bool {
    let name = series.split('{').next().unwrap_or(series);
    ["_total", "_count", "_sum", "_bucket"].iter().any(|suffix| name.ends_with(suffix))
}

impl Watch {
    /// Looks at a scrape. `stay` numbers the stays of the peer that a series is of, and is the same as long as it stays.
    pub fn look(&mut self, now: Nanos, text: &str, stay: impl Fn(&str) -> u64) {
        self.scrapes += 1;
        let scrape = self.scrapes;
        for line in text.lines().filter(|line| !line.starts_with('#') && line.contains("_probe")) {
            let (series, value) = line.rsplit_once(' ').expect("a value behind a blank");
            let new = Seen { value: value.parse().expect("a number"), gone: None, stay: stay(series), scrape };
            let Some(seen) = self.seen.get_mut(series) else {
                self.seen.insert(series.to_owned(), new);
                continue;
            };
            let before = std::mem::replace(seen, new);
            assert_ne!(before.scrape, scrape, "twice in a scrape: {series}");
            if before.stay != seen.stay {
                continue;
            }
            if let Some(gone) = before.gone {
                let away = now.since(gone);
                assert!(away >= SERIES_RETURN_TIME.into(), "at {now:?} after {away:?} it is back: {series}");
                self.returned += 1;
            }
            let goes_back = is_counter(series) && seen.value < before.value;
            assert!(!goes_back, "at {now:?} from {} to {}: {series}", before.value, seen.value);
        }
        for seen in self.seen.values_mut().filter(|seen| seen.scrape != scrape) {
            seen.gone.get_or_insert(now);
        }
    }
}
