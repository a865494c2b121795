//! Memory that is planned once, touched as it is used, and released when it is unused.
//!
//! The data of many peers is in separate mappings rather than in the heap. A mapping is as large as
//! its limit from the start. A page becomes resident when it is first written, and returns to the
//! system as soon as none of its elements is used. The resident set after 5,000 peers have become
//! ten must not depend on how a malloc keeps freed memory. musl's keeps groups of large blocks,
//! glibc's the heap below its last block, mimalloc's whole segments of memory that was never
//! written.
//!
//! The price is half a page per table on average, which a heap would use for other data. So what is
//! smaller than half a page is a block of the heap. An agent with 24 peers has a
//! dozen of them, of some hundred bytes each.
//!
//! Both types are the only owner of their memory, and release it on drop.
#![expect(unsafe_code, reason = "mmap(2), madvise(2) and memory that they hand out have no safe form")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::mem::needs_drop;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, copy_nonoverlapping, null_mut};
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use zerocopy::FromZeros;

/// Largest number of bytes that are a block of the heap. A mapping takes a page at least.
const HEAP_BYTES_MAX: usize = 2_048;

/// Releases a mapping: munmap(2).
///
/// # Safety
/// It is a complete mapping from [`map`], perhaps resized, and has this many bytes. It
/// is not used afterwards.
pub use libc::munmap as unmap;

/// Returns the bytes of a page. The C library is asked once: it takes the answer from a table,
/// whose pages would be resident for it alone.
pub fn page_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(rustix::param::page_size)
}

/// Types that may become zero bytes while other threads read them. [`atomic!`](crate::atomic)
/// implements it for a struct.
///
/// # Safety
/// The type consists only of atomic integers.
pub unsafe trait Atomic: FromZeros + Sync {
    /// Copies another value, one integer after the other. What is the same is not written, so that
    /// no page becomes resident by it. The caller keeps readers and writers away.
    fn copy_from(&self, other: &Self);
}

macro_rules! integers {
    ($($integer:ty),+) => {
        $(
            // SAFETY: an atomic integer.
            unsafe impl Atomic for $integer {
                fn copy_from(&self, other: &Self) {
                    let value = other.load(Ordering::Relaxed);
                    if self.load(Ordering::Relaxed) != value {
                        self.store(value, Ordering::Relaxed);
                    }
                }
            }
        )+
    };
}
integers!(AtomicU8, AtomicU16, AtomicU32, AtomicU64);

// SAFETY: as its elements.
unsafe impl<T: Atomic, const N: usize> Atomic for [T; N] {
    fn copy_from(&self, other: &Self) {
        self.iter().zip(other).for_each(|(to, from)| to.copy_from(from));
    }
}

/// Implements [`region::Atomic`](crate::region::Atomic) for a struct, of which it takes the name
/// and those of all fields. It compiles only if no field is left out and each is `Atomic` itself.
/// The struct derives `FromZeros` of zerocopy.
///
/// ```
/// # use std::sync::atomic::{AtomicU8, AtomicU32};
/// #[derive(zerocopy::FromZeros)]
/// struct Count {
///     probes: AtomicU32,
///     lost: [AtomicU8; 2],
/// }
/// kube_canary_kernel::atomic!(Count { probes, lost });
/// ```
///
/// What is not atomic is refused:
/// ```compile_fail,E0277
/// # use std::sync::atomic::AtomicU32;
/// #[derive(zerocopy::FromZeros)]
/// struct Count {
///     probes: AtomicU32,
///     lost: u8,
/// }
/// kube_canary_kernel::atomic!(Count { probes, lost });
/// ```
///
/// So is a list of fields that is not complete:
/// ```compile_fail,E0027
/// # use std::sync::atomic::AtomicU32;
/// #[derive(zerocopy::FromZeros)]
/// struct Count {
///     probes: AtomicU32,
///     lost: u8,
/// }
/// kube_canary_kernel::atomic!(Count { probes });
/// ```
#[macro_export]
macro_rules! atomic {
    ($name:ident $(<$part:ident>)? { $($field:ident),+ $(,)? }) => {
        // SAFETY: `copy_from` names every field, and each is `Atomic`.
        unsafe impl $(<$part: $crate::region::Atomic>)? $crate::region::Atomic for $name $(<$part>)? {
            fn copy_from(&self, other: &Self) {
                let Self { $($field),+ } = self;
                $($crate::region::Atomic::copy_from($field, &other.$field);)+
            }
        }
    };
}

/// Creates a private mapping of this many bytes, all zero. Returns none if the system has no room.
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping anywhere; nothing else is touched.
    let start = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

/// A list that has a maximum length. It moves when it becomes small or no longer is.
pub struct List<T> {
    /// Dangling if there is no room.
    start: NonNull<T>,
    capacity: usize,
    /// Number of elements for which there is memory: the capacity if it is a mapping.
    room: usize,
    /// The first elements, which are values. Those of a table after them are zero bytes.
    len: usize,
}

// SAFETY: a list owns its elements like a `Vec`.
unsafe impl<T: Send> Send for List<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for List<T> {}

impl<T> List<T> {
    /// Number of elements that are a block of the heap.
    const HEAP_MAX: usize = HEAP_BYTES_MAX / size_of::<T>();

    /// Creates an empty list for at most `capacity` elements, which is at least one. If the system
    /// has no memory for an element, the process ends, as for any other allocation.
    ///
    /// # Panics
    /// If this many elements have more than `isize::MAX` bytes, as `Vec` does.
    pub fn new(capacity: usize) -> Self {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 4_096 && !needs_drop::<T>()) };
        let capacity = capacity.max(1);
        // A smaller mapping would be written beyond its end, because all bounds are checked against
        // the capacity.
        assert!(Layout::array::<T>(capacity).is_ok(), "capacity overflow: {capacity} elements");
        Self { start: NonNull::dangling(), capacity, room: 0, len: 0 }
    }

    /// Creates an empty list that has its memory from the start. It never moves, and adding
    /// elements allocates nothing.
    pub fn reserved(capacity: usize) -> Self {
        let mut list = Self::new(capacity);
        list.move_to(list.capacity).unwrap_or_else(|layout| handle_alloc_error(layout));
        list
    }

    /// Moves the elements to memory for `len` of them, which are at most the capacity and not fewer
    /// than there are. If the system has no memory, returns its layout and moves nothing.
    #[cold]
    fn move_to(&mut self, len: usize) -> Result<(), Layout> {
        let is_small = len <= Self::HEAP_MAX;
        let room = if is_small { len.next_power_of_two().min(Self::HEAP_MAX) } else { self.capacity };
        let room = room.min(self.capacity);
        let Ok(layout) = Layout::array::<T>(room) else { panic!("capacity overflow: {room} elements") };
        // SAFETY: the layout has a size, because an element and `room` have one.
        let start = if is_small { NonNull::new(unsafe { alloc_zeroed(layout) }) } else { map(layout.size()) };
        let start = start.ok_or(layout)?.cast::<T>();
        // SAFETY: both have room for `len` elements, and the new memory is apart from the old.
        unsafe { copy_nonoverlapping(self.start.as_ptr(), start.as_ptr(), self.len) };
        self.release();
        (self.start, self.room) = (start, room);
        Ok(())
    }

    /// Releases the memory, which must not be used afterwards.
    fn release(&mut self) {
        let Ok(layout) = Layout::array::<T>(self.room) else { return };
        // SAFETY: our own memory, of this layout; no reference outlives its owner.
        unsafe {
            if self.is_mapped() {
                unmap(self.start.as_ptr().cast(), layout.size());
            } else if self.room > 0 {
                dealloc(self.start.as_ptr().cast(), layout);
            }
        }
    }

    /// Whether the memory is a mapping, not a block of the heap.
    const fn is_mapped(&self) -> bool {
        self.room > Self::HEAP_MAX
    }

    const fn bytes(&self) -> usize {
        self.room * size_of::<T>()
    }

    /// Returns the bytes that are resident: those of the block of the heap, or else of whole pages.
    /// These are pages that were written, and those that were never written but read.
    pub fn resident_bytes(&self) -> usize {
        const PAGES: usize = 256;
        if !self.is_mapped() {
            return self.bytes();
        }
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
        if self.is_mapped() && from < self.bytes() {
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
    fn grow_or_end(&mut self, len: usize) {
        self.move_to(len).unwrap_or_else(|layout| handle_alloc_error(layout));
    }

    /// Adds an element. Returns whether there was room.
    #[must_use]
    pub fn push(&mut self, value: T) -> bool {
        if self.len == self.room {
            if self.len == self.capacity {
                return false;
            }
            self.grow_or_end(self.len + 1);
        }
        // SAFETY: inside the memory, and aligned as its start is.
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
        let len = len.min(self.capacity);
        if len > self.room {
            self.grow_or_end(len);
        }
        while self.len < len && self.push(value) {}
        if len < self.len {
            self.len = len;
            // An empty list keeps its mapping, because it is filled again.
            let is_small = (1..=Self::HEAP_MAX).contains(&len);
            if !(self.is_mapped() && is_small && self.move_to(len).is_ok()) {
                self.give_back(len);
            }
        }
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` elements were written, or are zero bytes of a `T: FromZeros`.
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

impl<T: FromZeros> Table<T> {
    /// Creates a table of `len` zero elements, at least one.
    pub fn new(len: usize) -> Self {
        Self::made(len).unwrap_or_else(|layout| handle_alloc_error(layout))
    }

    /// Creates a table as [`Table::new`] does, but returns none if the system has no memory.
    pub fn try_new(len: usize) -> Option<Self> {
        Self::made(len).ok()
    }

    /// Zero bytes are values, so all elements exist from the start.
    fn made(len: usize) -> Result<Self, Layout> {
        let mut list = List::new(len);
        list.move_to(list.capacity)?;
        list.len = list.capacity;
        Ok(Self(list))
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
    use std::sync::atomic::Ordering;

    #[derive(FromZeros)]
    struct Cell {
        number: AtomicU64,
    }
    crate::atomic!(Cell { number });

    #[test]
    fn a_table_is_resident_where_it_was_written_and_is_zero_after_its_release() {
        let table = Table::<Cell>::new(512 * 100);
        let pages = || table.resident_bytes() / 4_096;
        assert_eq!(pages(), 0);
        assert!(table.iter().step_by(512).all(|cell| cell.number.load(Ordering::Relaxed) == 0));
        table.iter().for_each(|cell| cell.number.store(7, Ordering::Relaxed));
        assert_eq!(pages(), 100);
        table.give_back(1_000);
        assert_eq!(pages(), 2);
        assert_eq!(table.iter().filter(|cell| cell.number.load(Ordering::Relaxed) == 7).count(), 1_024);
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
        list.resize(1_000, 0);
        assert_eq!((list[..2].to_vec(), list.resident_bytes() / 4_096), (vec![4, 6], 1));
        list.resize(2, 0);
        assert_eq!((list.to_vec(), list.resident_bytes()), (vec![4, 6], 8));
        list.resize(0, 0);
        assert!(list.push(1) && list[..] == [1]);
    }

    #[test]
    fn a_list_is_in_the_heap_while_it_is_small_and_keeps_its_elements_when_it_moves() {
        let mut list = List::<u64>::new(10_000);
        assert_eq!(list.resident_bytes(), 0);
        let mut sizes = Vec::new();
        for n in 0..1_000 {
            assert!(list.push(n));
            sizes.push(list.resident_bytes());
            assert!(list.iter().copied().eq(0..=n));
        }
        assert_eq!([0, 1, 32, 33, 255].map(|n| sizes[n]), [8, 16, 512, 512, 2_048]);
        assert_eq!([256, 511, 512, 999].map(|n| sizes[n]), [4_096, 4_096, 8_192, 8_192]);
        let mut few = List::<u64>::new(100);
        few.resize(300, 7);
        assert_eq!((few.len(), few.push(1), few.resident_bytes()), (100, false, 800));
        assert!(Table::<Cell>::new(100).iter().all(|cell| cell.number.load(Ordering::Relaxed) == 0));
    }

    #[test]
    #[should_panic(expected = "capacity overflow")]
    fn a_capacity_that_no_address_space_holds_is_refused() {
        drop(List::<u64>::new(usize::MAX / 4));
    }

    #[test]
    fn a_dropped_table_is_unmapped() {
        // The address range is so large that no other thread maps anything into its middle once it
        // is free.
        let table = Table::<u8>::new(1 << 34);
        let middle = table.as_ptr().wrapping_add(1 << 33).addr();
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| {
                let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
                let [start, end] = [start, end].map(|bound| usize::from_str_radix(bound, 16).unwrap());
                (start..end).contains(&middle)
            })
        };
        assert!(is_mapped());
        drop(table);
        assert!(!is_mapped());
    }
}
