//! A reading of the kernel's files that stays valid for some time.
//!
//! The files are read without holding the lock, because a reading can take long: the kernel walks
//! page tables, or brings pages back from a slow disk. An HTTP worker that waited for such a
//! reading could answer no other request in that time, not even the kubelet's.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::units::Nanos;

/// The last reading, and whether a thread is about to replace it.
#[derive(Debug)]
pub struct Cached<T> {
    state: Mutex<CacheState<T>>,
}

#[derive(Debug)]
struct CacheState<T> {
    last: Option<(Nanos, T)>,
    is_being_read: bool,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self { state: Mutex::new(CacheState { last: None, is_being_read: false }) }
    }
}

impl<T: Copy> Cached<T> {
    /// Returns the last reading if it is younger than `valid_for`, or if another thread is reading
    /// now. Otherwise calls `read` and returns its result. Several threads may read at once only
    /// while there is no reading at all. If a reading fails, the last one stays valid.
    pub fn get(&self, now: Nanos, valid_for: Nanos, read: impl FnOnce() -> Option<T>) -> Option<T> {
        {
            let mut state = self.lock();
            if let Some((at, value)) = state.last
                && (state.is_being_read || now.since(at) < valid_for)
            {
                return Some(value);
            }
            state.is_being_read = true;
        }
        let found = read();
        let mut state = self.lock();
        state.is_being_read = false;
        if let Some(value) = found {
            state.last = Some((now, value));
        }
        state.last.map(|(_, value)| value)
    }

    fn lock(&self) -> MutexGuard<'_, CacheState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Nanos = Nanos::from_millis(5_000);

    #[test]
    fn a_reading_stands_for_its_time_and_a_failure_leaves_the_last() {
        let cached = Cached::default();
        let mut found = [Some(1), None, Some(3)].into_iter();
        let mut at = |ms| cached.get(Nanos::from_millis(ms), TIME, || found.next().unwrap());
        assert_eq!([1_000, 5_999].map(&mut at), [Some(1); 2]);
        assert_eq!(at(6_000), Some(1), "the kernel does not tell");
        assert_eq!([6_001, 11_000].map(&mut at), [Some(3); 2]);
    }

    #[test]
    fn no_thread_waits_during_a_reading() {
        let cached = Cached::default();
        let at = |ms, read: &dyn Fn() -> Option<i32>| cached.get(Nanos::from_millis(ms), TIME, read);
        // Each closure represents a thread that asks while the previous reading is in progress.
        let first = at(1, &|| {
            assert_eq!(at(2, &|| Some(2)), Some(2), "there is none yet: it reads for itself");
            Some(1)
        });
        assert_eq!(first, Some(1));
        let second = at(10_000, &|| {
            assert_eq!(at(10_001, &|| panic!("it is being read")), Some(1), "the last");
            Some(5)
        });
        assert_eq!((second, at(10_002, &|| panic!("it is young"))), (Some(5), Some(5)));
    }
}
