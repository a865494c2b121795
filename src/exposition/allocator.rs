//! The memory figures of the malloc that runs: `kube_canary_allocator_bytes{stat}`.

use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};

use crate::allocator::{Stat, Stats};

/// One gauge for each figure that this malloc keeps.
#[derive(Debug)]
pub struct AllocatorMetrics {
    stats: Stats,
    gauges: Vec<(Stat, IntGauge)>,
}

impl AllocatorMetrics {
    /// Registers the gauges. If the malloc keeps no figures, the family is not registered.
    ///
    /// # Errors
    /// None in practice: the name is valid and unique.
    pub fn register(registry: &Registry, stats: Stats) -> Result<Self, prometheus::Error> {
        stats.refresh();
        let opts = Opts::new(
            "kube_canary_allocator_bytes",
            "Memory by the allocator's own figures, named as jemalloc names them; those that it keeps.",
        );
        let family = IntGaugeVec::new(opts, &["stat"])?;
        let kept = Stat::ALL.into_iter().filter(|stat| stats.read(*stat).is_some());
        let gauges: Vec<_> = kept.map(|stat| (stat, family.with_label_values(&[stat.label()]))).collect();
        if !gauges.is_empty() {
            registry.register(Box::new(family))?;
        }
        Ok(Self { stats, gauges })
    }

    /// Sets the gauges to the malloc's current figures.
    pub fn update(&self) {
        if self.gauges.is_empty() {
            return;
        }
        self.stats.refresh();
        for (stat, gauge) in &self.gauges {
            if let Some(bytes) = self.stats.read(*stat) {
                gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
        }
    }
}
