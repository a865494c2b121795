//! Classifies each mapping by its purpose, and adds the amounts up. This module only decides: the
//! content of files and the state of pages come through [`ClassifierSources`].
//!
//! | mapping | category |
//! |---|---|
//! | of a program file at the address of one of its segments, and the zeros after it | text, rodata, relro, data |
//! | private, of an unreadable file | by its permissions: text, data, rodata; relro if written before protected |
//! | of any other file | file |
//! | of no file on a disk: memfd, System V, `/dev/…`, shared and anonymous | shared |
//! | `[heap]`; named by an allocator (`[anon:…malloc…]`, `scudo`) | heap |
//! | `[stack]`; named as one; at a thread's stack ([`super::stacks`]) | stacks |
//! | other anonymous memory: large allocations, other arenas, garbage-collected heaps, JIT code | anon |
//! | any other name in brackets: vdso, vvar | kernel |
//!
//! A mapping may contain two categories. A static-PIE program of musl's protects no relro, so relro
//! and data are one mapping. A heap may grow out of bss, and a stack may join the mapping after it.
//! Then the smaller parts are counted page by page, and the largest part gets the rest. So the
//! kernel's total for the mapping is neither exceeded nor lost. Trap: the page table also shows
//! pages of zeros that were only read, which the kernel does not count as resident.

use super::smaps::Mapping;
use super::stacks::ThreadStack;
use super::{Amounts, Category, Elf, Footprint};

/// What is known about the content of a file.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and the agent's must not be on the heap")]
pub enum FileContent {
    /// A program or a library.
    Program(Elf),
    /// Neither a program nor a library.
    Other,
    /// The file cannot be read.
    Unknown,
}

/// The other information that a classification needs.
pub trait ClassifierSources {
    /// Returns the content of the file behind a mapping of `path`.
    fn content(&mut self, mapping: &Mapping, path: &[u8]) -> FileContent;
    /// Counts the pages between two addresses, in KB. All resident pages are clean, except
    /// anonymous ones. Returns none if the kernel does not provide the page map.
    fn pages(&mut self, start: u64, end: u64, page: u64) -> Option<Amounts>;
}

/// The file whose consecutive mappings are being read.
#[derive(Clone, Copy, Debug)]
struct MappedFile {
    device: u64,
    inode: u64,
    content: FileContent,
    /// The difference between addresses in memory and in the file, known after the first segment.
    bias: Option<u64>,
}

/// The relation between a mapping and its file.
enum FileRelation {
    /// The mapping is part of a loaded program.
    Loaded,
    /// The mapping is not part of a loaded program.
    Other,
    /// The file cannot be read, so the relation is unknown.
    Nothing,
}

/// Adds mappings up, in ascending order.
pub struct Classifier<'a, S> {
    sources: S,
    stacks: &'a [ThreadStack],
    object: Option<MappedFile>,
    total: Footprint,
}

/// The page size if the kernel does not report one (before 2.6.29): 4 KB.
const PAGE_BYTES: u64 = 4_096;

impl<'a, S: ClassifierSources> Classifier<'a, S> {
    /// Creates a classifier without mappings. `stacks` are the stacks that have no name.
    pub fn new(sources: S, stacks: &'a [ThreadStack]) -> Self {
        Self { sources, stacks, object: None, total: Footprint::default() }
    }

    /// Returns the sum of all added mappings.
    pub fn total(&self) -> Footprint {
        self.total
    }

    /// Adds one mapping with its path.
    pub fn add(&mut self, mapping: &Mapping, path: &[u8]) {
        let dirty = mapping.dirty();
        // Shared_Clean and Private_Clean are not used. So the sum equals Rss even if a kernel omits
        // some lines.
        let amounts = Amounts { clean: mapping.rss - dirty, dirty, swap: mapping.swap };
        let total = &mut self.total;
        total.mappings += 1;
        total.rss = total.rss.saturating_add(mapping.rss);
        total.pss = total.pss.saturating_add(mapping.pss);
        total.private = total.private.saturating_add(mapping.private());
        total.swap = total.swap.saturating_add(mapping.swap);
        let huge = mapping.shared_hugetlb.saturating_add(mapping.private_hugetlb);
        total.hugetlb = total.hugetlb.saturating_add(huge);

        let page = if mapping.page == 0 { PAGE_BYTES } else { mapping.page.saturating_mul(1_024) };
        let whole = self.whole(mapping, path, page);
        self.split(mapping, page, whole, amounts);
    }

    /// The category of the whole mapping, except for the parts that a program assigns otherwise.
    fn whole(&mut self, mapping: &Mapping, path: &[u8], page: u64) -> Category {
        if let Some(name) = path.strip_prefix(b"[") {
            return bracketed(name);
        }
        if mapping.inode == 0 && path.is_empty() {
            return Category::Anon;
        }
        let off_disk = !path.starts_with(b"/")
            || [b"/dev/".as_slice(), b"/memfd:", b"/SYSV", b"/anon_hugepage", b"/[aio]"]
                .iter()
                .any(|prefix| path.starts_with(prefix));
        let other = if off_disk { Category::Shared } else { Category::File };
        // Opening a device may have any effect.
        if mapping.may(b's') || path.starts_with(b"/dev/") {
            return other;
        }
        match self.file(mapping, path, page) {
            FileRelation::Loaded | FileRelation::Nothing if mapping.may(b'x') => Category::Text,
            FileRelation::Loaded | FileRelation::Nothing if mapping.may(b'w') => Category::Data,
            FileRelation::Nothing if mapping.private_dirty > 0 || mapping.swap > 0 => Category::Relro,
            FileRelation::Loaded | FileRelation::Nothing => Category::Rodata,
            FileRelation::Other => other,
        }
    }

    /// Returns the relation between a mapping and its file. It is a program's only if the mapping
    /// is part of the program as it is loaded.
    fn file(&mut self, mapping: &Mapping, path: &[u8], page: u64) -> FileRelation {
        let same = |object: &MappedFile| object.inode == mapping.inode && object.device == mapping.device;
        if !self.object.as_ref().is_some_and(same) {
            let content = self.sources.content(mapping, path);
            self.object = Some(MappedFile { device: mapping.device, inode: mapping.inode, content, bias: None });
        }
        let Some(object) = &mut self.object else { return FileRelation::Nothing };
        let elf = match &object.content {
            FileContent::Program(elf) => elf,
            FileContent::Other => return FileRelation::Other,
            FileContent::Unknown => return FileRelation::Nothing,
        };
        if object.bias.is_some_and(|bias| elf.holds(mapping.start.wrapping_sub(bias), mapping.offset, page)) {
            return FileRelation::Loaded;
        }
        let permits = (mapping.may(b'w'), mapping.may(b'x'));
        let bias = elf.bias(mapping.start, mapping.end - mapping.start, mapping.offset, page, permits);
        // A process that only reads a program's file does not change where the program is loaded.
        object.bias = bias.or(object.bias);
        if bias.is_some() { FileRelation::Loaded } else { FileRelation::Other }
    }

    /// Adds the amounts of a mapping to the categories of its parts: to `whole`, except for the
    /// parts that the program assigns otherwise.
    fn split(&mut self, mapping: &Mapping, page: u64, whole: Category, amounts: Amounts) {
        let mut bytes = [0_u64; Category::ALL.len()];
        self.parts(mapping, page, whole, &mut |_, category, start, end| bytes[category as usize] += end - start);
        // Of categories with equally many bytes, the first one.
        let most = Category::ALL.into_iter().rev().max_by_key(|category| bytes[*category as usize]).unwrap_or(whole);
        let mut remaining = amounts;
        if bytes.iter().filter(|bytes| **bytes > 0).count() > 1 && amounts != Amounts::default() {
            let mut found = [Amounts::default(); Category::ALL.len()];
            self.parts(mapping, page, whole, &mut |sources, category, start, end| {
                if category != most
                    && let Some(pages) = sources.pages(start, end, page)
                {
                    found[category as usize].add(take(&mut remaining, pages));
                }
            });
            self.total.amounts.iter_mut().zip(found).for_each(|(total, found)| total.add(found));
        }
        self.total.amounts[most as usize].add(remaining);
    }

    /// Calls `visit` with each part of a mapping.
    fn parts(
        &mut self,
        mapping: &Mapping,
        page: u64,
        whole: Category,
        visit: &mut dyn FnMut(&mut S, Category, u64, u64),
    ) {
        let program = self.object.as_ref().and_then(|object| match &object.content {
            FileContent::Program(elf) => object.bias.map(|bias| (elf, bias, object)),
            _ => None,
        });
        // The mapping belongs to this file, or may be its bss: private memory without a file.
        let zeros = mapping.inode == 0 && matches!(whole, Category::Heap | Category::Anon);
        let program = program.filter(|(elf, bias, object)| {
            let same = mapping.inode == object.inode && mapping.device == object.device && !mapping.may(b's');
            zeros || same && elf.holds(mapping.start.wrapping_sub(*bias), mapping.offset, page)
        });
        let stacks = if whole == Category::Anon { self.stacks } else { &[] };
        let mut start = mapping.start;
        while start < mapping.end {
            let (mut category, mut end) = (None, mapping.end);
            if let Some((elf, bias, _)) = program {
                let address = start.wrapping_sub(bias);
                let (found, until) = elf.category(address, page, zeros);
                // Each step advances by at least a page, and there are at most two for each
                // segment.
                (category, end) = (found, start.saturating_add((until - address).max(page)).min(end));
            }
            for stack in stacks.iter().filter(|stack| stack.start < stack.end) {
                if category.is_none() && (stack.start..stack.end).contains(&start) {
                    (category, end) = (Some(Category::Stacks), end.min(stack.end));
                } else if stack.start > start {
                    end = end.min(stack.start);
                }
            }
            visit(&mut self.sources, category.unwrap_or(whole), start, end);
            start = end;
        }
    }
}

/// Subtracts `pages` from `remaining` as far as possible, and returns what was subtracted. The
/// process runs at the same time, so the two may disagree on what is dirty. Resident pages
/// stay resident even then.
fn take(remaining: &mut Amounts, pages: Amounts) -> Amounts {
    let resident = pages.clean.saturating_add(pages.dirty);
    let swap = pages.swap.min(remaining.swap);
    let mut dirty = pages.dirty.min(remaining.dirty);
    let clean = (resident - dirty).min(remaining.clean);
    dirty = (resident - clean).min(remaining.dirty);
    *remaining =
        Amounts { clean: remaining.clean - clean, dirty: remaining.dirty - dirty, swap: remaining.swap - swap };
    Amounts { clean, dirty, swap }
}

/// The category of a name in brackets. `name` is the part after the first bracket.
fn bracketed(name: &[u8]) -> Category {
    let holds = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    if name.starts_with(b"anon_shmem") {
        Category::Shared
    } else if name.starts_with(b"anon:") && holds(b"stack") {
        Category::Stacks
    } else if name.starts_with(b"heap") || name.starts_with(b"anon:") && (holds(b"malloc") || holds(b"scudo")) {
        Category::Heap
    } else if name.starts_with(b"anon:") {
        Category::Anon
    } else if name.starts_with(b"stack") {
        Category::Stacks
    } else {
        Category::Kernel
    }
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
