//! What no sequence of scrapes may show: a series that goes and comes back soon although its peer stayed, or a counter that
//! goes back.

use std::collections::{HashMap, HashSet};

use kube_canary::limits::SERIES_RETURN_TIME;
use kube_canary::units::Nanos;

use crate::exposition::{self, Sample};

#[derive(Debug)]
struct Seen {
    value: f64,
    /// Since when it has been missing.
    gone: Option<Nanos>,
    /// Which stay of its peer this was.
    stay: u64,
}

/// All series of the scrapes so far.
#[derive(Default)]
pub struct Watch {
    seen: HashMap<String, Seen>,
    /// Series that went and came back in time.
    pub returned: usize,
}

/// A series' name and labels, sorted.
fn key(sample: &Sample) -> String {
    format!("{} {:?}", sample.name, sample.labels)
}

fn is_counter(name: &str) -> bool {
    ["_total", "_count", "_sum", "_bucket"].iter().any(|suffix| name.ends_with(suffix))
}

impl Watch {
    /// Looks at a scrape. `stay` numbers the stays of the peer that a sample is of, and is the same as long as it stays.
    pub fn look(&mut self, now: Nanos, text: &str, stay: impl Fn(&Sample) -> u64) {
        let samples = exposition::parse(text).expect("what we expose can be read");
        let mut present = HashSet::with_capacity(samples.len());
        for sample in samples.iter().filter(|sample| sample.name.contains("probe")) {
            let (key, stay) = (key(sample), stay(sample));
            assert!(present.insert(key.clone()), "twice in a scrape: {key}");
            let new = Seen { value: sample.value, gone: None, stay };
            let Some(before) = self.seen.insert(key.clone(), new).filter(|before| before.stay == stay) else {
                continue;
            };
            if let Some(gone) = before.gone {
                let away = now.since(gone);
                assert!(away >= SERIES_RETURN_TIME.into(), "at {now:?} after {away:?} it is back: {key}");
                self.returned += 1;
            }
            let goes_back = is_counter(&sample.name) && sample.value < before.value;
            assert!(!goes_back, "at {now:?} from {} to {}: {key}", before.value, sample.value);
        }
        for (key, seen) in &mut self.seen {
            if !present.contains(key) {
                seen.gone.get_or_insert(now);
            }
        }
    }
}
