//! How much memory the running malloc holds, by purpose. These are the malloc's own figures under
//! jemalloc's names (jemalloc(3), `stats.*`).
//!
//! glibc has two of these figures. musl keeps none, and those of mimalloc have other meanings. A
//! figure that a malloc does not report is absent, not 0.

use std::ffi::CStr;

use super::ask::FigureSource;
use super::mallctl;

/// One of jemalloc's figures, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stat {
    /// Bytes in use by the program.
    Allocated,
    /// Bytes in pages that hold any allocated bytes.
    Active,
    /// Bytes of the malloc's own data structures.
    Metadata,
    /// Bytes in the malloc's pages that can be resident: an upper bound.
    Resident,
    /// Bytes in mappings that are in use.
    Mapped,
    /// Bytes in mappings that are kept for later and have no memory behind them.
    Retained,
}

impl Stat {
    /// All six figures of this type.
    pub const ALL: [Self; 6] =
        [Self::Allocated, Self::Active, Self::Metadata, Self::Resident, Self::Mapped, Self::Retained];

    /// Returns the value of the label `stat` in metrics.
    pub const fn label(self) -> &'static str {
        ["allocated", "active", "metadata", "resident", "mapped", "retained"][self as usize]
    }

    const fn mallctl_name(self) -> &'static CStr {
        [c"stats.allocated", c"stats.active", c"stats.metadata", c"stats.resident", c"stats.mapped", c"stats.retained"]
            [self as usize]
    }
}

/// Reads the figures of the running malloc. [`super::info_and_stats`] creates it.
#[derive(Clone, Copy, Debug)]
pub struct Stats(pub(super) FigureSource);

impl Stats {
    /// Makes jemalloc update its figures. Without this call they stay as they were at the last one.
    /// Takes the lock of each arena.
    pub fn refresh(self) {
        if let FigureSource::Jemalloc(mallctl) = self.0 {
            // The result is ignored: if jemalloc has no statistics, `read` returns none.
            let _ = mallctl::write(mallctl, c"epoch", 1_u64);
        }
    }

    /// Returns a figure as of the last [`Self::refresh`], in bytes. Returns none if this malloc
    /// does not keep it.
    pub fn read(self, stat: Stat) -> Option<u64> {
        match self.0 {
            FigureSource::Jemalloc(mallctl) => {
                mallctl::read::<usize>(mallctl, stat.mallctl_name()).map(|bytes| bytes as u64)
            }
            #[cfg(target_env = "gnu")]
            FigureSource::Glibc => glibc(stat),
            FigureSource::None => None,
        }
    }
}

#[cfg(target_env = "gnu")]
fn glibc(stat: Stat) -> Option<u64> {
    let (allocated, mapped) = super::glibc::allocated_and_mapped();
    match stat {
        // Memory in glibc's thread caches counts as allocated, as it does in jemalloc.
        Stat::Allocated => Some(allocated),
        Stat::Mapped => Some(mapped),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_the_figures_and_of_jemalloc() {
        for stat in Stat::ALL {
            assert_eq!(stat.label(), format!("{stat:?}").to_lowercase());
            assert_eq!(stat.mallctl_name().to_str(), Ok(&*format!("stats.{}", stat.label())));
        }
    }

    #[test]
    fn allocated_bytes_are_in_the_refreshed_figures() {
        const BYTES: u64 = 64 << 20;
        let (_, stats) = super::super::info_and_stats();
        let read = || {
            stats.refresh();
            Stat::ALL.map(|stat| stats.read(stat))
        };
        let before = read();
        let held = std::hint::black_box(vec![1_u8; 64 << 20]);
        let during = read();
        drop(held);
        let jemalloc = cfg!(feature = "jemalloc");
        for ((stat, before), during) in Stat::ALL.into_iter().zip(before).zip(during) {
            let glibc = cfg!(target_env = "gnu") && matches!(stat, Stat::Allocated | Stat::Mapped);
            assert_eq!((before.is_some(), during.is_some()), (jemalloc || glibc, jemalloc || glibc), "{stat:?}");
            // Other tests free less than a quarter of that at the same time.
            let grows = matches!(stat, Stat::Allocated | Stat::Active | Stat::Resident | Stat::Mapped);
            if let (Some(before), Some(during), true) = (before, during, grows) {
                assert!(during > before + BYTES / 4 * 3, "{stat:?}: {before} {during}");
            }
        }
    }
}
