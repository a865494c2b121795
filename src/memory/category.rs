//! The categories of memory, and the amounts in each.

/// What a page of memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Executable segments of programs and libraries.
    Text,
    /// Segments of programs and libraries that can neither be written nor executed.
    Rodata,
    /// Parts of programs and libraries that become read-only after relocation.
    Relro,
    /// Writable segments of programs and libraries, including the zeroed part (bss).
    Data,
    /// Memory from brk(2), and memory that an allocator has named as its own.
    Heap,
    /// Anonymous memory in none of the other categories.
    Anon,
    /// Stacks that can be distinguished from other anonymous memory.
    Stacks,
    /// Pages that the kernel maps into every process: vdso, vvar.
    Kernel,
    /// Files that are neither programs nor libraries.
    File,
    /// Shared memory without a file on a disk: memfd, System V, /dev/shm, devices.
    Shared,
}

impl Category {
    /// All categories, in the order of output.
    pub const ALL: [Self; 10] = {
        use Category::{Anon, Data, File, Heap, Kernel, Relro, Rodata, Shared, Stacks, Text};
        [Text, Rodata, Relro, Data, Heap, Anon, Stacks, Kernel, File, Shared]
    };

    /// Returns the name in JSON, in tables and in metrics.
    pub const fn label(self) -> &'static str {
        ["text", "rodata", "relro", "data", "heap", "anon", "stacks", "kernel", "file", "shared"][self as usize]
    }
}

/// Amounts of memory in KB, as the kernel counts. Resident memory is the sum of `clean` and
/// `dirty`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Resident pages that are identical to their source on disk.
    pub clean: u64,
    /// Resident pages that have no copy elsewhere.
    pub dirty: u64,
    /// Pages in the swap space.
    pub swap: u64,
}

impl Amounts {
    /// Returns the three amounts, with the values of their metric label.
    pub const fn states(&self) -> [(&'static str, u64); 3] {
        [("clean", self.clean), ("dirty", self.dirty), ("swap", self.swap)]
    }

    /// Adds amounts. A sum that would overflow stays at the largest number.
    pub fn add(&mut self, more: Self) {
        self.clean = self.clean.saturating_add(more.clean);
        self.dirty = self.dirty.saturating_add(more.dirty);
        self.swap = self.swap.saturating_add(more.swap);
    }
}

/// A process's memory in KB, all from one pass over its mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Amounts in the order of [`Category::ALL`]. Their clean and dirty parts add up to `rss`.
    pub amounts: [Amounts; Category::ALL.len()],
    /// Resident memory, in KB.
    pub rss: u64,
    /// Proportional resident memory: each page is divided by the number of processes that map it.
    /// The figure of each mapping is rounded down, so the kernel's own sum (`smaps_rollup`) is up
    /// to 1 KB per mapping larger.
    pub pss: u64,
    /// Resident pages that no other process maps.
    pub private: u64,
    /// Memory in the swap space.
    pub swap: u64,
    /// Huge pages of hugetlbfs. The kernel includes them in none of the above.
    pub hugetlb: u64,
    /// The number of mappings, of any kind.
    pub mappings: u64,
}

impl Footprint {
    /// Returns the amounts of one category.
    pub const fn amounts_in(&self, category: Category) -> Amounts {
        self.amounts[category as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_and_labels_are_in_the_order_of_their_numbers() {
        for (index, category) in Category::ALL.into_iter().enumerate() {
            assert_eq!(category as usize, index);
            assert_eq!(category.label(), format!("{category:?}").to_lowercase());
        }
    }
}
