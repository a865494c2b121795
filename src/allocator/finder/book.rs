//! Every allocation that is followed and live.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::site::Stack;
use crate::limits::LEAK_LIVE_MAX;

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) bytes: usize,
    /// Who follows it.
    pub(super) scope: u32,
    pub(super) stack: Option<Box<Stack>>,
}

/// Of an address: a malloc gives out multiples of 16, and nobody attacks this table. (A debug build takes a microsecond for
/// the standard one.)
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
        // Fibonacci hashing: 2^64 divided by the golden ratio. The table takes the low bits and the highest.
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_right(32);
    }
}

/// By address.
#[derive(Debug)]
pub(super) struct Book {
    live: HashMap<usize, Live, BuildHasherDefault<Spread>>,
    /// How many are of each scope, where there are any: thousands of short scopes need not look through the others' blocks.
    counts: HashMap<u32, usize, BuildHasherDefault<Spread>>,
    /// Not noted, for the book was full.
    missed: u64,
}

static BOOK: Mutex<Book> = Mutex::new(Book {
    live: HashMap::with_hasher(BuildHasherDefault::new()),
    counts: HashMap::with_hasher(BuildHasherDefault::new()),
    missed: 0,
});

/// Only to be called where nothing is followed: it allocates.
pub(super) fn book() -> MutexGuard<'static, Book> {
    BOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    pub(super) fn note(&mut self, address: usize, live: Live) {
        if self.live.len() < LEAK_LIVE_MAX {
            *self.counts.entry(live.scope).or_default() += 1;
            if let Some(stale) = self.live.insert(address, live) {
                self.count_down(stale.scope);
            }
        } else {
            self.missed += 1;
        }
    }

    pub(super) fn forget(&mut self, address: usize) -> Option<Live> {
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

    pub(super) fn forget_scope(&mut self, scope: u32) {
        if self.counts.remove(&scope).is_some() {
            self.live.retain(|_, live| live.scope != scope);
        }
    }

    /// What one of them follows, and how many allocations of anybody could not be noted.
    pub(super) fn of_scope(&self, scope: u32) -> (Vec<Live>, u64) {
        if !self.counts.contains_key(&scope) {
            return (Vec::new(), self.missed);
        }
        (self.live.values().filter(|live| live.scope == scope).cloned().collect(), self.missed)
    }
}
