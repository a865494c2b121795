//! The table of all followed allocations that are live.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::site::CallStack;

/// Allocations that the leak finder follows at once, at 40 bytes each, and 400 more with a
/// call stack. An agent has a thousand, a test's wire half a million. Further allocations
/// are reported as such.
const LEAK_LIVE_MAX: usize = 1 << 20;

/// One allocation that is followed and live.
#[derive(Clone, Debug)]
pub(super) struct LiveAllocation {
    pub(super) bytes: usize,
    /// The number of the scope that follows it.
    pub(super) scope: u32,
    pub(super) stack: Option<Box<CallStack>>,
}

/// Hashes an address. A malloc returns multiples of 16, and this table is not exposed to attackers.
/// In a debug build the standard hasher takes a microsecond.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(byte.into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_usize(number as usize);
    }

    fn write_usize(&mut self, number: usize) {
        // Fibonacci hashing: 2^64 divided by the golden ratio. The hash table uses the low bits and
        // the highest.
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_right(32);
    }
}

/// Live allocations by address.
#[derive(Debug)]
pub(super) struct LiveAllocations {
    live: HashMap<usize, LiveAllocation, BuildHasherDefault<Spread>>,
    /// Number of live allocations of each scope that has any. With thousands of short scopes, most
    /// need not search the blocks of the others.
    counts: HashMap<u32, usize, BuildHasherDefault<Spread>>,
    /// Allocations that were not recorded because the table was full.
    missed: u64,
}

static LIVE_ALLOCATIONS: Mutex<LiveAllocations> = Mutex::new(LiveAllocations {
    live: HashMap::with_hasher(BuildHasherDefault::new()),
    counts: HashMap::with_hasher(BuildHasherDefault::new()),
    missed: 0,
});

/// Locks the table. Call this only while this thread is not followed, because it allocates.
pub(super) fn live_allocations() -> MutexGuard<'static, LiveAllocations> {
    LIVE_ALLOCATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveAllocations {
    pub(super) fn insert(&mut self, address: usize, live: LiveAllocation) {
        if self.live.len() < LEAK_LIVE_MAX {
            *self.counts.entry(live.scope).or_default() += 1;
            if let Some(stale) = self.live.insert(address, live) {
                self.count_down(stale.scope);
            }
        } else {
            self.missed += 1;
        }
    }

    pub(super) fn remove(&mut self, address: usize) -> Option<LiveAllocation> {
        let live = self.live.remove(&address)?;
        self.count_down(live.scope);
        Some(live)
    }

    fn count_down(&mut self, scope: u32) {
        if let Some(count) = self.counts.get_mut(&scope) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&scope);
            }
        }
    }

    pub(super) fn remove_scope(&mut self, scope: u32) {
        if self.counts.remove(&scope).is_some() {
            self.live.retain(|_, live| live.scope != scope);
        }
    }

    /// Returns the live allocations of a scope, and how many allocations of all scopes
    /// could not be recorded.
    pub(super) fn live_in_scope(&self, scope: u32) -> (Vec<LiveAllocation>, u64) {
        if !self.counts.contains_key(&scope) {
            return (Vec::new(), self.missed);
        }
        (self.live.values().filter(|live| live.scope == scope).cloned().collect(), self.missed)
    }
}
