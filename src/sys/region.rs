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
#![expect(unsafe_code, reason = "mmap(2), madvise(2) and memory that they hand out have no safe wrapper in std")]

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

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

/// Room for a number of `T`, as a mapping.
struct Mapping<T> {
    start: NonNull<T>,
    capacity: usize,
}

// SAFETY: a mapping is owned memory like a `Box`'s; what is done with it is up to the types below.
unsafe impl<T: Send> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapping<T> {}

impl<T> Mapping<T> {
    /// Creates room for `capacity` elements, at least one, all zero bytes. If the system has no
    /// memory, the process ends, as for any other allocation.
    ///
    /// # Panics
    /// If so many elements have more than `isize::MAX` bytes, as `Vec` does.
    fn new(capacity: usize) -> Self {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 4_096 && !std::mem::needs_drop::<T>()) };
        let capacity = capacity.max(1);
        // A smaller mapping would be written beyond its end, because all bounds are checked against
        // the capacity.
        let Ok(layout) = Layout::array::<T>(capacity) else { panic!("capacity overflow: {capacity} elements") };
        let start = map(layout.size()).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start: start.cast(), capacity }
    }

    const fn bytes(&self) -> usize {
        self.capacity * size_of::<T>()
    }

    /// Bytes that are resident, in whole pages. These are pages that were written, and those that
    /// were never written but read.
    fn resident_bytes(&self) -> usize {
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

/// Creates a private mapping of this many bytes, all zero. Returns none if the system has no room.
pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping anywhere; nothing else is touched.
    let start = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

/// Releases a mapping to the system.
///
/// # Safety
/// It is a complete mapping from [`map`] or [`resize`] and has this many bytes. It
/// is not used afterwards.
pub(crate) unsafe fn unmap(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(start.cast(), bytes) };
}

/// Makes a mapping longer or shorter. If there is no room for it, it moves to another address: its
/// pages are moved, not copied. If the system has no room, returns null and changes nothing.
///
/// # Safety
/// As for [`unmap`]. Afterwards only the returned address may be used.
pub(crate) unsafe fn resize(start: *mut u8, from: usize, to: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    let moved = unsafe { libc::mremap(start.cast(), from, to, libc::MREMAP_MAYMOVE) };
    if moved == libc::MAP_FAILED { null_mut() } else { moved.cast() }
}

pub(crate) fn page_bytes() -> usize {
    // SAFETY: asks for a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4_096)
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this size; no reference outlives its owner.
        unsafe { unmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}

/// A table of fixed length. Elements are zero until they are written.
pub struct Table<T>(Mapping<T>);

impl<T: Zero> Table<T> {
    /// Creates a table of `len` zero elements, at least one.
    pub fn new(len: usize) -> Self {
        Self(Mapping::new(len))
    }

    /// Bytes of the table that are resident, in whole pages.
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
        // SAFETY: so many elements are mapped, each zero bytes, which `T: Zero` makes a value, or
        // written since.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.capacity) }
    }
}

impl<T> DerefMut for Table<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.capacity) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("capacity", &self.0.capacity).finish_non_exhaustive()
    }
}

/// A list that never moves and has a maximum length.
pub struct List<T> {
    mapping: Mapping<T>,
    len: usize,
}

impl<T: Copy> List<T> {
    /// Creates an empty list for at most `capacity` elements.
    pub fn new(capacity: usize) -> Self {
        Self { mapping: Mapping::new(capacity), len: 0 }
    }

    /// Bytes of the list that are resident, in whole pages.
    pub fn resident_bytes(&self) -> usize {
        self.mapping.resident_bytes()
    }

    /// Adds an element. Returns whether there was room.
    #[must_use]
    pub fn push(&mut self, value: T) -> bool {
        if self.len == self.mapping.capacity {
            return false;
        }
        // SAFETY: inside the mapping, and aligned as its start is.
        unsafe { self.mapping.start.as_ptr().add(self.len).write(value) };
        self.len += 1;
        true
    }

    /// Adds all elements, or none if there is no room. Returns whether there was room.
    #[must_use]
    pub fn extend(&mut self, values: &[T]) -> bool {
        values.len() <= self.mapping.capacity - self.len && values.iter().all(|value| self.push(*value))
    }

    /// Sets the length to `len`, or to the capacity if that is less. New elements are copies of
    /// `value`. The memory of removed elements is released.
    pub fn resize(&mut self, len: usize, value: T) {
        while self.len < len && self.push(value) {}
        if len < self.len {
            self.len = len;
            self.mapping.give_back(len);
        }
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` elements have been written.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start.as_ptr(), self.len) }
    }
}

impl<T: fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
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
    fn a_table_is_resident_where_it_was_written_and_comes_back_as_zeroes() {
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
    fn a_list_grows_to_its_limit_and_gives_back_what_is_behind_its_end() {
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
    fn what_is_dropped_is_unmapped() {
        // The address range is so large that no other thread maps anything into its middle once it
        // is free.
        let list = List::<u8>::new(1 << 34);
        let middle = list.as_ptr().wrapping_add(1 << 33);
        let mut answer = [0_u8; 64];
        let mut ask = || {
            // SAFETY: only asks; where nothing is mapped the kernel says so.
            unsafe { libc::mincore(middle.cast_mut().cast(), 64 * 4_096, answer.as_mut_ptr()) }
        };
        assert_eq!(ask(), 0);
        drop(list);
        let error = ask();
        assert_eq!((error, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOMEM)));
    }
}
