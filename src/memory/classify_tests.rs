use std::collections::HashMap;

use super::*;
use crate::memory::elf::tests::{Header, LOAD, RELRO, STATIC_PIE, file, read};
use crate::memory::smaps;

const PAGE: u64 = 0x1000;

/// Files by their inode, and pages by their address: 'c' of a file, 'd' anonymous, 's' swapped.
#[derive(Default)]
struct Scripted {
    files: HashMap<u64, FileContent>,
    pages: HashMap<u64, char>,
    no_page_map: bool,
}

impl ClassifierSources for &Scripted {
    fn content(&mut self, mapping: &Mapping, _: &[u8]) -> FileContent {
        self.files.get(&mapping.inode).copied().unwrap_or(FileContent::Unknown)
    }

    fn pages(&mut self, start: u64, end: u64, page: u64) -> Option<Amounts> {
        assert_eq!((start % PAGE, end % PAGE, page), (0, 0, PAGE));
        let count =
            |kind| 4 * self.pages.iter().filter(|(at, is)| (start..end).contains(*at) && **is == kind).count() as u64;
        (!self.no_page_map).then(|| Amounts { clean: count('c'), dirty: count('d'), swap: count('s') })
    }
}

fn program(headers: &[Header]) -> FileContent {
    FileContent::Program(read(&file(true, headers)).unwrap())
}

/// The smaps text of a mapping. `dirty` of the `rss` KB are private and dirty.
fn mapping(head: &str, rss: u64, dirty: u64, swap: u64) -> String {
    let clean = rss - dirty;
    format!(
        "{head}\nKernelPageSize:        4 kB\nRss: {rss} kB\nPss: {rss} kB\nShared_Clean: {clean} kB\n\
         Private_Dirty: {dirty} kB\nSwap: {swap} kB\nVmFlags: rd mr \n"
    )
}

fn classified(sources: &Scripted, stacks: &[ThreadStack], text: &str) -> Footprint {
    let mut classifier = Classifier::new(sources, stacks);
    let (mut buffer, mut path) = ([0; 4_096], [0; 256]);
    smaps::each(&mut text.as_bytes(), &mut buffer, &mut path, &mut |m, p| classifier.add(m, p)).unwrap();
    let total = classifier.total();
    let sum = total.amounts.iter().fold(Amounts::default(), |mut sum, more| {
        sum.add(*more);
        sum
    });
    assert_eq!((sum.clean + sum.dirty, sum.swap), (total.rss, total.swap), "{total:?}");
    total
}

fn hold(total: &Footprint, expected: &[(Category, u64, u64, u64)]) {
    for category in Category::ALL {
        let listed = expected.iter().find(|(listed, ..)| *listed == category);
        let (clean, dirty, swap) = listed.map_or((0, 0, 0), |(_, clean, dirty, swap)| (*clean, *dirty, *swap));
        assert_eq!(total.amounts_in(category), Amounts { clean, dirty, swap }, "{category:?}");
    }
}

use Category::{Anon, Data, File, Heap, Kernel, Relro, Rodata, Shared, Stacks, Text};

#[test]
fn a_static_program_at_fixed_addresses_is_classified_by_its_segments() {
    let headers = [
        (LOAD, 4, 0, 0x40_0000, 0x28_000, 0x28_000),
        (LOAD, 5, 0x2_8000, 0x42_8000, 0x80_000, 0x80_000),
        (LOAD, 4, 0xa_8000, 0x4a_8000, 0x20_000, 0x20_000),
        (LOAD, 6, 0xc_8a00, 0x4c_9a00, 0x5_600, 0x9_000),
        (RELRO, 4, 0xc_8a00, 0x4c_9a00, 0x3_600, 0x3_600),
    ];
    let sources = Scripted { files: HashMap::from([(9, program(&headers))]), ..Scripted::default() };
    let text = [
        mapping("00400000-00428000 r--p 00000000 fe:00 9 /bin/static", 100, 0, 0),
        mapping("00428000-004a8000 r-xp 00028000 fe:00 9 /bin/static", 300, 0, 0),
        mapping("004a8000-004c8000 r--p 000a8000 fe:00 9 /bin/static", 80, 0, 0),
        mapping("004c9000-004cd000 r--p 000c8000 fe:00 9 /bin/static", 16, 12, 4),
        mapping("004cd000-004cf000 rw-p 000cc000 fe:00 9 /bin/static", 8, 8, 0),
        mapping("004cf000-004d3000 rw-p 00000000 00:00 0", 12, 12, 0),
        mapping("02000000-02021000 rw-p 00000000 00:00 0 [heap]", 40, 40, 8),
        mapping("7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]", 20, 20, 0),
        mapping("7ffc000fc000-7ffc00100000 r--p 00000000 00:00 0 [vvar]", 0, 0, 0),
        mapping("7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0 [vdso]", 8, 0, 0),
    ];
    let total = classified(&sources, &[], &text.concat());
    let expected = [
        (Text, 300, 0, 0),
        (Rodata, 180, 0, 0),
        (Relro, 4, 12, 4),
        (Data, 0, 20, 0),
        (Heap, 0, 40, 8),
        (Stacks, 0, 20, 0),
        (Kernel, 8, 0, 0),
    ];
    hold(&total, &expected);
    assert_eq!((total.rss, total.swap, total.private, total.mappings), (584, 12, 92, 10));
}

/// The relro of a static-PIE program that does not protect it, and the data after it. lld leaves a
/// page between them, GNU ld none.
fn unprotected() -> (Scripted, String) {
    let headers = [
        STATIC_PIE[0],
        STATIC_PIE[1],
        (LOAD, 6, 0x3_9000, 0x3_a000, 0x9_000, 0xc_000),
        (RELRO, 4, 0x3_9000, 0x3_a000, 0x3_000, 0x3_000),
    ];
    let base = 0x7f11_2200_0000;
    let pages = [(0x3_a000, 'd'), (0x3_b000, 'c'), (0x3_c000, 's'), (0x3_d000, 'd'), (0x3_e000, 'd'), (0x3_f000, 'c')];
    let pages = pages.into_iter().map(|(at, kind)| (base + at, kind)).collect();
    let sources = Scripted { files: HashMap::from([(7, program(&headers))]), pages, no_page_map: false };
    let text = [
        mapping("7f1122000000-7f1122029000 r--p 00000000 fe:00 7 /kube-canary", 60, 0, 0),
        mapping("7f1122029000-7f112203a000 r-xp 00028000 fe:00 7 /kube-canary", 40, 0, 0),
        mapping("7f112203a000-7f1122043000 rw-p 00039000 fe:00 7 /kube-canary", 20, 12, 4),
        mapping("7f1122043000-7f1122046000 rw-p 00000000 00:00 0", 8, 8, 0),
    ];
    (sources, text.concat())
}

#[test]
fn a_mapping_of_two_kinds_is_counted_page_by_page() {
    let (sources, text) = unprotected();
    let total = classified(&sources, &[], &text);
    hold(&total, &[(Text, 40, 0, 0), (Rodata, 60, 0, 0), (Relro, 4, 4, 4), (Data, 4, 16, 0)]);
}

#[test]
fn without_a_page_map_the_larger_part_gets_all_memory() {
    let (mut sources, text) = unprotected();
    sources.no_page_map = true;
    hold(&classified(&sources, &[], &text), &[(Text, 40, 0, 0), (Rodata, 60, 0, 0), (Data, 8, 20, 4)]);
}

#[test]
fn pages_that_change_during_the_reading_change_no_sum() {
    let (mut sources, text) = unprotected();
    // All of relro is touched in the meantime, and dirty: no more is taken than the mapping has.
    sources.pages.extend((0x3_a000..0x3_d000).step_by(0x1000).map(|at| (0x7f11_2200_0000 + at, 'd')));
    hold(
        &classified(&sources, &[], &text),
        &[(Text, 40, 0, 0), (Rodata, 60, 0, 0), (Relro, 0, 12, 0), (Data, 8, 8, 4)],
    );
    sources.pages = HashMap::new();
    hold(&classified(&sources, &[], &text), &[(Text, 40, 0, 0), (Rodata, 60, 0, 0), (Data, 8, 20, 4)]);
}

#[test]
fn a_heap_that_grew_out_of_bss_is_split_at_its_end() {
    let (mut sources, text) = unprotected();
    sources.pages.extend([
        (0x7f11_2204_3000, 'd'),
        (0x7f11_2204_5000, 'd'),
        (0x7f11_2204_6000, 'd'),
        (0x7f11_2204_7000, 'd'),
    ]);
    let grown = mapping("7f1122043000-7f1122066000 rw-p 00000000 00:00 0 [heap]", 16, 16, 0);
    let text = text[..text.find("7f1122043000-7f1122046000").unwrap()].to_owned() + &grown;
    let total = classified(&sources, &[], &text);
    hold(&total, &[(Text, 40, 0, 0), (Rodata, 60, 0, 0), (Relro, 4, 4, 4), (Data, 4, 16, 0), (Heap, 0, 8, 0)]);
}

#[test]
fn each_library_of_a_dynamic_program_is_classified_by_its_own_headers() {
    let library = [
        (LOAD, 4, 0, 0, 0x1_000, 0x1_000),
        (LOAD, 5, 0x1_000, 0x1_000, 0x4_000, 0x4_000),
        (LOAD, 6, 0x5_d80, 0x6_d80, 0x4_00, 0x2_500),
        (RELRO, 4, 0x5_d80, 0x6_d80, 0x2_80, 0x2_80),
    ];
    let files = HashMap::from([(1, program(&library)), (2, program(&library)), (3, FileContent::Other)]);
    let sources = Scripted { files, ..Scripted::default() };
    let text = [
        mapping("7f0000000000-7f0000001000 r--p 00000000 fe:00 1 /lib/a.so", 4, 0, 0),
        mapping("7f0000001000-7f0000005000 r-xp 00001000 fe:00 1 /lib/a.so", 16, 0, 0),
        mapping("7f0000006000-7f0000007000 r--p 00005000 fe:00 1 /lib/a.so", 4, 4, 0),
        mapping("7f0000007000-7f0000008000 rw-p 00006000 fe:00 1 /lib/a.so", 4, 4, 0),
        mapping("7f0000008000-7f000000a000 rw-p 00000000 00:00 0", 8, 8, 0),
        mapping("7f0000010000-7f0000020000 r--p 00000000 fe:00 3 /usr/lib/locale/locale-archive", 60, 0, 0),
        // Mappings of another program at another address. A change of protection has split its
        // text.
        mapping("7f0000100000-7f0000101000 r--p 00000000 fe:00 2 /lib/b.so", 4, 0, 0),
        mapping("7f0000101000-7f0000103000 r-xp 00001000 fe:00 2 /lib/b.so", 8, 0, 0),
        mapping("7f0000103000-7f0000104000 rwxp 00003000 fe:00 2 /lib/b.so", 4, 4, 0),
        mapping("7f0000104000-7f0000105000 r-xp 00004000 fe:00 2 /lib/b.so", 4, 0, 0),
        // A process reads the same file.
        mapping("7f0000200000-7f0000209000 r--p 00000000 fe:00 2 /lib/b.so", 36, 0, 0),
        mapping("7f0000300000-7f0000309000 r--s 00000000 fe:00 2 /lib/b.so", 8, 0, 0),
    ];
    let total = classified(&sources, &[], &text.concat());
    // Relro covers the last page only in part, and bss begins at the page after it: the file's bss
    // ends at 0x9280.
    hold(&total, &[(Text, 28, 4, 0), (Rodata, 8, 0, 0), (Relro, 0, 4, 0), (Data, 0, 12, 0), (File, 104, 0, 0)]);
}

#[test]
fn a_file_that_cannot_be_read_counts_by_its_permissions() {
    let text = [
        mapping("00001000-00002000 r--p 00000000 fe:00 5 /gone (deleted)", 4, 0, 0),
        mapping("00002000-00003000 r-xp 00001000 fe:00 5 /gone (deleted)", 4, 0, 0),
        mapping("00003000-00004000 r--p 00002000 fe:00 5 /gone (deleted)", 4, 4, 0),
        mapping("00004000-00005000 rw-p 00003000 fe:00 5 /gone (deleted)", 4, 4, 0),
        mapping("00005000-00006000 rw-s 00000000 fe:00 6 /data", 8, 4, 0),
        mapping("00006000-00007000 r--s 00000000 00:05 7 /dev/shm/x (deleted)", 4, 0, 0),
    ];
    let total = classified(&Scripted::default(), &[], &text.concat());
    hold(
        &total,
        &[(Rodata, 4, 0, 0), (Text, 4, 0, 0), (Relro, 0, 4, 0), (Data, 0, 4, 0), (File, 4, 4, 0), (Shared, 4, 0, 0)],
    );
}

#[test]
fn a_virtual_machine_of_many_mappings_has_its_stacks_where_its_threads_are() {
    let mut text = String::new();
    let mut stacks = Vec::new();
    let base = 0x7f00_0000_0000_u64;
    for thread in 0..200 {
        let at = base + thread * 0x20_0000;
        text += &mapping(&format!("{:x}-{:x} ---p 00000000 00:00 0", at, at + 0x1000), 0, 0, 0);
        text += &mapping(&format!("{:x}-{:x} rw-p 00000000 00:00 0", at + 0x1000, at + 0x10_0000), 24, 24, 0);
        text += &mapping(&format!("{:x}-{:x} rw-p 00000000 00:00 0", at + 0x11_0000, at + 0x12_0000), 8, 8, 0);
        stacks.extend([
            ThreadStack { pointer: 0, start: at + 0x1000, end: at + 0x10_0000 },
            ThreadStack::at(at + 0x11_8000),
        ]);
    }
    text += &mapping("7f8000000000-7f8000100000 rwxp 00000000 00:00 0", 400, 400, 0);
    text += &mapping("7f8000200000-7f8000300000 rw-s 00000000 00:01 77 /memfd:heap (deleted)", 64, 32, 16);
    text += &mapping("7f8000300000-7f8000400000 rw-s 00000000 00:01 78 /SYSV00000000 (deleted)", 4, 4, 0);
    text += &mapping("7f8000400000-7f8000500000 rw-p 00000000 00:0f 79 /anon_hugepage (deleted)", 0, 0, 0);
    let total = classified(&Scripted::default(), &stacks, &text);
    hold(&total, &[(Stacks, 0, 4_800, 0), (Anon, 0, 2_000, 0), (Shared, 32, 36, 16)]);
    hold(&classified(&Scripted::default(), &[], &text), &[(Anon, 0, 6_800, 0), (Shared, 32, 36, 16)]);
}

#[test]
fn a_stack_that_runs_into_other_memory_is_split_at_its_end() {
    let pages = [(0x7_f000, 'd'), (0x8_0000, 'd'), (0x8_1000, 'd'), (0x4_0000, 'd'), (0x3_f000, 's')];
    let sources = Scripted { pages: HashMap::from(pages), ..Scripted::default() };
    let stacks = [0x1_0000, 0x4_0000, 0x30_0000].map(|start| ThreadStack { pointer: 0, start, end: start + 0x4_0000 });
    let text = mapping("00040000-00200000 rw-p 00000000 00:00 0", 400, 400, 8);
    hold(&classified(&sources, &stacks, &text), &[(Stacks, 0, 8, 0), (Anon, 0, 392, 8)]);
}

#[test]
fn a_name_in_brackets_decides_the_category() {
    for (name, category) in [
        ("[heap]", Heap),
        ("[anon: glibc: malloc arena]", Heap),
        ("[anon:scudo:primary]", Heap),
        ("[anon: glibc: pthread stack: 77]", Stacks),
        ("[anon:stack_and_tls:77]", Stacks),
        ("[anon:cache]", Anon),
        ("[anon_shmem:mine]", Shared),
        ("[stack]", Stacks),
        ("[stack:77]", Stacks),
        ("[vdso]", Kernel),
        ("[vvar_vclock]", Kernel),
        ("[vsyscall]", Kernel),
    ] {
        let text = mapping(&format!("00001000-00002000 rw-p 00000000 00:00 0 {name}"), 4, 4, 4);
        hold(&classified(&Scripted::default(), &[], &text), &[(category, 0, 4, 4)]);
    }
}

#[test]
fn a_sum_that_would_overflow_stays_at_the_largest_number() {
    let text = "00001000-00002000 rw-p 00000000 00:00 0\nRss: 18446744073709551615 kB\nPrivate_Dirty: 99999999999999999999 kB\n";
    let sources = Scripted::default();
    let mut classifier = Classifier::new(&sources, &[]);
    let (mut buffer, mut path) = ([0; 4_096], [0; 256]);
    for _ in 0..2 {
        smaps::each(&mut text.as_bytes(), &mut buffer, &mut path, &mut |m, p| classifier.add(m, p)).unwrap();
    }
    let total = classifier.total();
    assert_eq!((total.rss, total.amounts_in(Anon).dirty, total.private), (u64::MAX, u64::MAX, u64::MAX));
}
