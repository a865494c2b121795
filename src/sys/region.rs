//! Memory that is planned once, touched as it is used, and released when it is unused.
//!
//! The data of peers is in separate mappings rather than in the heap. A mapping is as large as its
//! limit from the start. A page becomes resident when it is first written, and returns to the
//! system as soon as none of its elements is used. The resident set after 5,000 peers have become
//! ten must not depend on how a malloc keeps freed memory. musl's keeps groups of large blocks,
//! glibc's the heap below its last block, mimalloc's whole segments of memory that was never
//! written.
//!
//! The price is half a page per table on average, which a heap would use for other data.
//!
//! Both types are the only owner of their mapping, and unmap it on drop.
#![expect(unsafe_code, reason = "mmap(2), madvise(2) and memory that they hand out have no safe form")]

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::mem::needs_drop;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::slice;

/// Releases a mapping: munmap(2).
///
/// # Safety
/// It is a complete mapping from [`map`], perhaps resized, and has this many bytes. It
/// is not used afterwards.
pub(crate) use libc::munmap as unmap;
pub(crate) use rustix::param::page_size as page_bytes;

/// Types for which zero bytes are a valid value.
///
/// # Safety
/// All bytes zero must be a valid value.
pub unsafe trait Zero {}

/// Types that may become zero bytes while other threads read them.
///
/// # Safety
/// The type consists only of atomic integers.
pub unsafe trait Atomic: Zero + Sync {}

/// Creates a private mapping of this many bytes, all zero. Returns none if the system has no room.
pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping anywhere; nothing else is touched.
    let start = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

/// A list that never moves and has a maximum length.
pub struct List<T> {
    start: NonNull<T>,
    capacity: usize,
    /// The first elements, which are values. Those after them are zero bytes.
    len: usize,
}

// SAFETY: a list owns its elements like a `Vec`.
unsafe impl<T: Send> Send for List<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for List<T> {}

impl<T> List<T> {
    /// Creates an empty list for at most `capacity` elements, which is at least one. If the system
    /// has no memory, the process ends, as for any other allocation.
    ///
    /// # Panics
    /// If so many elements have more than `isize::MAX` bytes, as `Vec` does.
    pub fn new(capacity: usize) -> Self {
        Self::try_new(capacity).unwrap_or_else(|layout| handle_alloc_error(layout))
    }

    /// As [`List::new`], but if the system has no memory, returns the layout of the elements.
    fn try_new(capacity: usize) -> Result<Self, Layout> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 4_096 && !needs_drop::<T>()) };
        let capacity = capacity.max(1);
        // A smaller mapping would be written beyond its end, because all bounds are checked against
        // the capacity.
        let Ok(layout) = Layout::array::<T>(capacity) else { panic!("capacity overflow: {capacity} elements") };
        let start = map(layout.size()).ok_or(layout)?.cast();
        Ok(Self { start, capacity, len: 0 })
    }

    const fn bytes(&self) -> usize {
        self.capacity * size_of::<T>()
    }

    /// Returns the bytes that are resident, in whole pages. These are pages that were written, and
    /// those that were never written but read.
    pub fn resident_bytes(&self) -> usize {
        const PAGES: usize = 256;
        let (page, mut pages) = (page_bytes(), [0_u8; PAGES]);
        let chunks = (0..self.bytes()).step_by(PAGES * page);
        let resident = chunks.map(|from| {
            let bytes = (self.bytes() - from).min(PAGES * page);
            // SAFETY: asks about a part of our own mapping; the answer has a byte for each of its
            // pages.
            let error = unsafe { libc::mincore(self.start.as_ptr().byte_add(from).cast(), bytes, pages.as_mut_ptr()) };
            let answered = if error == 0 { &pages[..bytes.div_ceil(page)] } else { &[] };
            answered.iter().filter(|answer| **answer & 1 == 1).count()
        });
        resident.sum::<usize>() * page
    }

    /// Releases all whole pages after the first `len` elements. Their bytes are zero afterwards.
    /// The page with the last of these elements is unchanged.
    fn give_back(&self, len: usize) {
        let from = (len * size_of::<T>()).next_multiple_of(page_bytes());
        if from < self.bytes() {
            // SAFETY: whole pages inside the mapping (the kernel rounds its end up to a page's).
            // Our callers give back either what is behind the end of a list, to which there is no
            // reference, or atomics, which may turn zero.
            unsafe {
                libc::madvise(self.start.as_ptr().byte_add(from).cast(), self.bytes() - from, libc::MADV_DONTNEED)
            };
        }
    }
}

impl<T: Copy> List<T> {
    /// Adds an element. Returns whether there was room.
    #[must_use]
    pub fn push(&mut self, value: T) -> bool {
        if self.len == self.capacity {
            return false;
        }
        // SAFETY: inside the mapping, and aligned as its start is.
        unsafe { self.start.as_ptr().add(self.len).write(value) };
        self.len += 1;
        true
    }

    /// Adds all elements, or none if there is no room. Returns whether there was room.
    #[must_use]
    pub fn extend(&mut self, values: &[T]) -> bool {
        values.len() <= self.capacity - self.len && values.iter().all(|value| self.push(*value))
    }

    /// Sets the length to `len`, or to the capacity if that is less. New elements are copies of
    /// `value`. The memory of removed elements is released.
    pub fn resize(&mut self, len: usize, value: T) {
        while self.len < len && self.push(value) {}
        if len < self.len {
            self.len = len;
            self.give_back(len);
        }
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this size; no reference outlives its owner.
        unsafe { unmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` elements were written, or are zero bytes of a `T: Zero`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; `&mut self` makes it the only reference.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

/// A table of fixed length: a full list. Elements are zero until they are written.
pub struct Table<T>(List<T>);

impl<T: Zero> Table<T> {
    /// Creates a table of `len` zero elements, at least one.
    pub fn new(len: usize) -> Self {
        Self::full(List::new(len))
    }

    /// Creates a table as [`Table::new`] does, but returns none if the system has no memory.
    pub fn try_new(len: usize) -> Option<Self> {
        List::try_new(len).ok().map(Self::full)
    }

    /// Zero bytes are values, so all elements exist from the start.
    fn full(mut list: List<T>) -> Self {
        list.len = list.capacity;
        Self(list)
    }

    /// Returns the address of the first element. C code may keep addresses that are derived from it
    /// while the table is used.
    pub fn start(&self) -> *mut T {
        self.0.start.as_ptr()
    }

    /// Returns the bytes of the table that are resident, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.0.resident_bytes()
    }
}

impl<T: Atomic> Table<T> {
    /// Releases the whole pages at and after element `len`, which are no longer used. They
    /// then read as zeroes.
    pub fn give_back(&self, len: usize) {
        self.0.give_back(len);
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for Table<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("capacity", &self.0.capacity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Cell(AtomicU64);
    // SAFETY: an atomic integer.
    unsafe impl Zero for Cell {}
    // SAFETY: an atomic integer.
    unsafe impl Atomic for Cell {}

    #[test]
    fn a_table_is_resident_where_it_was_written_and_is_zero_after_its_release() {
        let table = Table::<Cell>::new(512 * 100);
        let pages = || table.resident_bytes() / 4_096;
        assert_eq!(pages(), 0);
        assert!(table.iter().step_by(512).all(|cell| cell.0.load(Ordering::Relaxed) == 0));
        table.iter().for_each(|cell| cell.0.store(7, Ordering::Relaxed));
        assert_eq!(pages(), 100);
        table.give_back(1_000);
        assert_eq!(pages(), 2);
        assert_eq!(table.iter().filter(|cell| cell.0.load(Ordering::Relaxed) == 7).count(), 1_024);
        table.give_back(0);
        assert_eq!(pages(), 0);
    }

    #[test]
    fn a_list_grows_to_its_limit_and_releases_the_pages_after_its_end() {
        let mut list = List::<u32>::new(3 * 1_024);
        assert!(list.is_empty() && list.push(5) && list.extend(&[6, 7]));
        list.resize(3 * 1_024, 9);
        assert!(list.len() == 3_072 && !list.push(1) && !list.extend(&[1]) && list.extend(&[]));
        assert_eq!((list[..4].to_vec(), list.resident_bytes() / 4_096), (vec![5, 6, 7, 9], 3));
        list[0] = 4;
        list.resize(2, 0);
        assert_eq!((list.to_vec(), list.resident_bytes() / 4_096), (vec![4, 6], 1));
        list.resize(0, 0);
        assert_eq!(list.resident_bytes() / 4_096, 0);
        assert!(list.push(1) && list[..] == [1]);
    }

    #[test]
    #[should_panic(expected = "capacity overflow")]
    fn a_capacity_that_no_address_space_holds_is_refused() {
        drop(List::<u64>::new(usize::MAX / 4));
    }

    #[test]
    fn a_dropped_list_is_unmapped() {
        // The address range is so large that no other thread maps anything into its middle once it
        // is free.
        let list = List::<u8>::new(1 << 34);
        let middle = list.as_ptr().wrapping_add(1 << 33).addr();
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| {
                let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
                let [start, end] = [start, end].map(|bound| usize::from_str_radix(bound, 16).unwrap());
                (start..end).contains(&middle)
            })
        };
        assert!(is_mapped());
        drop(list);
        assert!(!is_mapped());
    }
}
