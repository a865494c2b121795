//! What memory is for, and how much of it there is.

/// What a page of memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Executable segments of programs and libraries.
    Text,
    /// Their segments that can neither be written nor executed.
    Rodata,
    /// What they have read-only once it is relocated.
    Relro,
    /// Their writable segments, what begins as zeros (bss) included.
    Data,
    /// What brk(2) gave, and what an allocator has named as its own.
    Heap,
    /// Other anonymous memory.
    Anon,
    /// Stacks, as far as they can be told from other anonymous memory.
    Stacks,
    /// What the kernel maps into every process: vdso, vvar.
    Kernel,
    /// Files that are no programs.
    File,
    /// Shared memory without a file on a disk: memfd, System V, /dev/shm, devices.
    Shared,
}

impl Category {
    /// All of them, in the order of output.
    pub const ALL: [Self; 10] = [
        Self::Text,
        Self::Rodata,
        Self::Relro,
        Self::Data,
        Self::Heap,
        Self::Anon,
        Self::Stacks,
        Self::Kernel,
        Self::File,
        Self::Shared,
    ];

    /// As in JSON, in tables and in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Rodata => "rodata",
            Self::Relro => "relro",
            Self::Data => "data",
            Self::Heap => "heap",
            Self::Anon => "anon",
            Self::Stacks => "stacks",
            Self::Kernel => "kernel",
            Self::File => "file",
            Self::Shared => "shared",
        }
    }
}

/// Memory in KB, as the kernel counts: resident memory is `clean` and `dirty` together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Resident, and the same as what it was read from.
    pub clean: u64,
    /// Resident, and nowhere else.
    pub dirty: u64,
    /// In the swap space.
    pub swap: u64,
}

impl Amounts {
    /// The three, with the names they have as a metric's label.
    pub const fn states(&self) -> [(&'static str, u64); 3] {
        [("clean", self.clean), ("dirty", self.dirty), ("swap", self.swap)]
    }

    /// Adds up; far beyond what a machine holds it stays at the largest number.
    pub fn add(&mut self, more: Self) {
        self.clean = self.clean.saturating_add(more.clean);
        self.dirty = self.dirty.saturating_add(more.dirty);
        self.swap = self.swap.saturating_add(more.swap);
    }
}

/// A process's memory in KB, all from one pass over its mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// In the order of [`Category::ALL`]; their clean and dirty parts add up to `rss`.
    pub amounts: [Amounts; Category::ALL.len()],
    /// Resident.
    pub rss: u64,
    /// Resident, each page divided by the number of processes that map it. Each mapping's is rounded down: the kernel's
    /// own sum (`smaps_rollup`) is up to 1 KB per mapping larger.
    pub pss: u64,
    /// Resident, of pages that no other process maps.
    pub private: u64,
    /// In the swap space.
    pub swap: u64,
    /// Huge pages of hugetlbfs, which the kernel counts in none of the above.
    pub hugetlb: u64,
    /// Mappings.
    pub mappings: u64,
}

impl Footprint {
    /// Of one category.
    pub const fn of(&self, category: Category) -> Amounts {
        self.amounts[category as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_in_the_order_of_their_numbers() {
        for (index, category) in Category::ALL.into_iter().enumerate() {
            assert_eq!(category as usize, index);
        }
    }
}
