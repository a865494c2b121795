//! Keeps musl's malloc small: a block of two pages or more is a separate mapping, which is returned
//! when the block is freed.
//!
//! musl serves blocks of up to 128 KiB from groups of blocks of one size. It unmaps a group when
//! the last of its blocks is free, and returns no page of it before. A group has more blocks the
//! more blocks there are. If every connection of the HTTP server is in use, hyper's two buffers of
//! 8 KiB per connection come in groups of 28, which are 256 KiB. The connection to the API server
//! has two buffers of the same size, and lives long. If it was opened again or read a change at
//! such a moment, one of its buffers held a whole group for as long as it lived. Among users of one
//! size, the one that lives longest decides what the others can return. So blocks of this size
//! share no memory with others.
//!
//! glibc's malloc has an option for this ([`super::glibc`]); musl's has none. It costs no time: a
//! malloc that returns freed memory maps these buffers for each connection anyway, as a group of
//! three.
//!
//! Only the plain binary uses this, in `src/main.rs`. Behind the C shim, the final link decides
//! which malloc serves. Tests and measurements bring allocators of their own.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{NonNull, copy_nonoverlapping, null_mut};

use kube_canary_kernel::region;

/// Uses the libc's malloc for small blocks and separate mappings for the others.
#[derive(Debug)]
pub struct LargeApart;

/// Whether a block is a separate mapping. Such a block loses half a page on average, which is
/// a quarter of it at most. The answer is the same for every call on a block, because every
/// call has its layout.
fn is_large(layout: Layout) -> bool {
    const PAGE_BYTES_MIN: usize = 4_096;
    // Nearly all blocks are small. For them, the page size is not looked up.
    layout.size() >= 2 * PAGE_BYTES_MIN && layout.size() >= 2 * region::page_bytes() && layout.align() <= PAGE_BYTES_MIN
}

fn map(bytes: usize) -> *mut u8 {
    region::map(bytes).map_or(null_mut(), NonNull::as_ptr)
}

// SAFETY: each block comes from the system's malloc or from a mapping of its own, by its layout
// alone, and goes back or grows where it came from. A mapping is aligned to a page, and neither
// unwinds.
unsafe impl GlobalAlloc for LargeApart {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller's promises are those that it asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            // The kernel maps zeroed pages.
            return map(layout.size());
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives up the block, which came from where its layout says. A mapping
        // has this size.
        unsafe {
            if is_large(layout) {
                region::unmap(block.cast(), layout.size());
            } else {
                System.dealloc(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        // SAFETY: the caller gives up the block, which came from where its layout says, for the one
        // that is returned. `new` has a size, as the caller promises. A copy is as long as the
        // shorter block, and a new block lies nowhere in an old one.
        unsafe {
            match (is_large(layout), is_large(new)) {
                (false, false) => System.realloc(block, layout, size),
                // The kernel moves the pages of a mapping that has no room to grow, and copies none.
                (true, true) => match libc::mremap(block.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) {
                    libc::MAP_FAILED => null_mut(),
                    moved => moved.cast(),
                },
                _ => {
                    let moved = self.alloc(new);
                    if !moved.is_null() {
                        copy_nonoverlapping(block, moved, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 1 << 17; // Two pages of any size that Linux has.

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 16).unwrap()
    }

    #[test]
    fn a_block_of_two_pages_or_more_is_a_mapping() {
        let two = 2 * region::page_bytes();
        assert_eq!([two - 1, two, 1 << 30].map(|bytes| is_large(layout(bytes))), [false, true, true]);
        assert!(!is_large(Layout::from_size_align(1 << 30, 1 << 20).unwrap()), "a mapping is not so aligned");
    }

    #[test]
    fn a_block_keeps_its_bytes_when_it_is_resized_and_when_that_fails() {
        let huge = isize::MAX.cast_unsigned() & !0xffff;
        let pattern = |at: usize| at.to_le_bytes()[0] ^ at.to_le_bytes()[1];
        let sizes = [[100, LARGE], [LARGE, 100], [LARGE, 3 * LARGE + 5], [3 * LARGE, LARGE + 1], [100, 200]];
        for [from, to] in sizes.into_iter().chain([[100, huge], [LARGE, huge]]) {
            for zeroed in [true, false, true] {
                // SAFETY: each block is written and read within its size, and given back once.
                // Bytes are read after they were written or zeroed.
                unsafe {
                    let allocate = if zeroed { GlobalAlloc::alloc_zeroed } else { GlobalAlloc::alloc };
                    let block = allocate(&LargeApart, layout(from));
                    assert!(!zeroed || (0..from).all(|at| block.add(at).read() == 0), "{from}");
                    (0..from).for_each(|at| block.add(at).write(pattern(at)));
                    let moved = LargeApart.realloc(block, layout(from), to);
                    assert_eq!(moved.is_null(), to == huge);
                    let (block, size) = if moved.is_null() { (block, from) } else { (moved, to) };
                    assert!((0..from.min(size)).all(|at| block.add(at).read() == pattern(at)), "{from} {to}");
                    block.write_bytes(0xff, size);
                    LargeApart.dealloc(block, layout(size));
                    assert!(LargeApart.alloc(layout(huge)).is_null());
                }
            }
        }
    }
}
