//! An agent's own samples. They are at the head of its metrics, before those of its peers.

use std::borrow::Cow;

use super::ask::More;
use super::row::Row;
use super::samples::Sample;

/// The samples that are used.
#[derive(Debug, Default)]
pub struct OwnSamples {
    rss: Option<f64>,
    dirty: Option<f64>,
    cpus: Option<f64>,
    threads: Option<f64>,
    cpu_seconds: Option<f64>,
    /// Allocator, narenas, linkage, libc, version.
    build: [Option<String>; 5],
}

impl OwnSamples {
    /// Takes a line. The first sample of a peer ends the search.
    pub fn take(&mut self, line: &str) -> More {
        let Some(sample) = Sample::parse(line) else { return More::Wanted };
        let value = sample.value;
        match sample.name {
            "process_resident_memory_bytes" => self.rss = Some(value),
            "process_threads" => self.threads = Some(value),
            "process_cpu_seconds_total" => self.cpu_seconds = Some(value),
            "kube_canary_cpus" => self.cpus = Some(value),
            // All dirty memory is the agent's own, except for the category `shared`, which other
            // processes may use, too.
            "kube_canary_memory_bytes" => {
                let is = |label, text| sample.label(label).is_some_and(|value| value == text);
                if is("state", "dirty") && !is("category", "shared") {
                    self.dirty = Some(self.dirty.unwrap_or(0.0) + value);
                }
            }
            "kube_canary_build_info" => {
                let label = |name| sample.label(name).map(Cow::into_owned);
                self.build = ["allocator", "narenas", "linkage", "libc", "version"].map(label);
            }
            _ if sample.label("peer_node").is_some() => return More::Enough,
            _ => {}
        }
        More::Wanted
    }

    /// Writes the samples into `row`. `sent` is the number of probes since the start.
    pub fn give(self, row: &mut Row, sent: u64) {
        let [allocator, narenas, linkage, libc, version] = self.build;
        row.rss_bytes = self.rss.and_then(whole);
        row.private_dirty_bytes = self.dirty.and_then(whole);
        row.cpus = self.cpus.and_then(whole);
        row.threads = self.threads.and_then(whole);
        row.narenas = narenas.and_then(|text| text.parse().ok());
        (row.allocator, row.linkage, row.libc, row.version) = (allocator, linkage, libc, version);
        row.cpu_seconds_per_probe = self.cpu_seconds.filter(|_| sent > 0).map(|seconds| seconds / sent as f64);
    }
}

fn whole(value: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range-checked")]
    (0.0..9.0e15).contains(&value).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_s_own_samples_are_those_before_its_peers() {
        let text = "# HELP process_threads Threads.\nprocess_threads 5\nprocess_cpu_seconds_total 0.5\n\
            process_resident_memory_bytes 1355776\nkube_canary_cpus 64\n\
            kube_canary_build_info{allocator=\"jemalloc\",libc=\"musl\",linkage=\"rust\",narenas=\"1\",version=\"0.1.0\"} 1\n\
            kube_canary_memory_bytes{category=\"heap\",state=\"dirty\"} 4096\n\
            kube_canary_memory_bytes{category=\"heap\",state=\"clean\"} 100\n\
            kube_canary_memory_bytes{category=\"anon\",state=\"dirty\"} 8192\n\
            kube_canary_memory_bytes{category=\"shared\",state=\"dirty\"} 100\n\
            kube_canary_probes_received_total{source_node=\"a\",peer_node=\"b\"} 7\nprocess_threads 9\n";
        let mut own = OwnSamples::default();
        let ended = text.lines().take_while(|line| own.take(line) == More::Wanted).count();
        assert_eq!(ended, 10, "nothing behind the first peer is read");
        let mut row = Row::default();
        own.give(&mut row, 1_000);
        assert_eq!(
            (row.rss_bytes, row.private_dirty_bytes, row.cpus, row.threads),
            (Some(1_355_776), Some(12_288), Some(64), Some(5))
        );
        assert_eq!(
            (row.allocator.as_deref(), row.narenas, row.linkage.as_deref()),
            (Some("jemalloc"), Some(1), Some("rust"))
        );
        assert_eq!((row.libc.as_deref(), row.version.as_deref()), (Some("musl"), Some("0.1.0")));
        assert!((row.cpu_seconds_per_probe.unwrap() - 0.0005).abs() < 1e-9);
        let mut silent = Row::default();
        OwnSamples::default().give(&mut silent, 0);
        assert_eq!(silent, Row::default());
    }
}
