use super::*;

/// A reader that returns `step` bytes at a time.
struct SlowFile<'a>(&'a [u8], usize);

impl Read for SlowFile<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(into.len());
        self.0.read(&mut into[..count])
    }
}

fn parsed(text: &str, step: usize, buffer: usize) -> io::Result<Vec<(Mapping, String)>> {
    let (mut buffer, mut path) = (vec![0; buffer], [0; 64]);
    let mut found = Vec::new();
    each(&mut SlowFile(text.as_bytes(), step), &mut buffer, &mut path, &mut |mapping, path| {
        found.push((*mapping, String::from_utf8_lossy(path).into_owned()));
    })?;
    Ok(found)
}

const TWO: &str = "\
55d5c0a00000-55d5c0a02000 r--p 00001000 fe:01 247278                     /usr/bin/a file (deleted)
Size:                  8 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                   8 kB
Pss:                   4 kB
Pss_Dirty:             0 kB
Shared_Clean:          4 kB
Shared_Dirty:          0 kB
Private_Clean:         0 kB
Private_Dirty:         4 kB
Swap:                 12 kB
SwapPss:               6 kB
THPeligible:           0
ProtectionKey:         0
VmFlags: rd mr mw me 
7ffd00000000-7ffd00021000 rw-s 00000000 00:00 0
Rss:            4294967296 kB
Private_Dirty:  4294967296 kB
Private_Hugetlb:    2048 kB
";

#[test]
fn mappings_are_complete_for_every_size_of_reads() {
    let whole = parsed(TWO, 100_000, 16_384).unwrap();
    assert_eq!(whole.len(), 2);
    let (first, path) = &whole[0];
    assert_eq!((first.start, first.end, first.offset), (0x55d5_c0a0_0000, 0x55d5_c0a0_2000, 0x1000));
    assert_eq!((&first.permissions, first.device, first.inode), (b"r--p", 0xfe << 32 | 1, 247_278));
    assert_eq!((first.page, first.rss, first.pss, first.private(), first.dirty()), (4, 8, 4, 4, 4));
    assert_eq!((first.swap, first.swap_pss, path.as_str()), (12, 6, "/usr/bin/a file (deleted)"));
    let (second, path) = &whole[1];
    assert!(second.may(b's') && !second.may(b'p') && path.is_empty());
    assert_eq!((second.rss, second.dirty(), second.private_hugetlb), (1 << 32, 1 << 32, 2_048));
    for step in [1, 2, 3, 7, 27, 28, 29] {
        for buffer in [128, 131, 4_096] {
            assert_eq!(parsed(TWO, step, buffer).unwrap(), whole, "{step} {buffer}");
        }
    }
}

#[test]
fn fields_that_a_kernel_does_not_report_are_zero() {
    let text = "1000-2000 r-xp 00000000 08:01 7 /a\nSize: 4 kB\nRss: 4 kB\nShared_Clean: 4 kB\nReferenced: 4 kB\n";
    let (mapping, _) = parsed(text, 9, 128).unwrap()[0];
    assert_eq!((mapping.rss, mapping.pss, mapping.swap, mapping.page, mapping.private()), (4, 0, 0, 0, 0));
}

#[test]
fn a_number_that_is_too_large_becomes_the_largest() {
    let text = format!("1000-2000 rw-p 00000000 00:00 0\nRss: 4 kB\nPrivate_Dirty: {}9 kB\nSwap: -1 kB\n", u64::MAX);
    let (mapping, _) = parsed(&text, 100, 128).unwrap()[0];
    assert_eq!((mapping.private_dirty, mapping.dirty(), mapping.swap), (u64::MAX, 4, 0));
}

#[test]
fn a_long_path_is_cut_and_the_next_mapping_is_complete() {
    let long = "/x".repeat(3_000);
    let text = format!(
        "1000-2000 r--p 00000000 08:01 7 {long}\nRss: 4 kB\n2000-3000 rw-p 00000000 00:00 0 [heap]\nRss: 8 kB\n"
    );
    for step in [1, 100, 100_000] {
        let found = parsed(&text, step, 128).unwrap();
        assert_eq!(found.iter().map(|(mapping, _)| mapping.rss).collect::<Vec<_>>(), [4, 8], "{step}");
        assert!(long.starts_with(&found[0].1) && found[0].1.len() <= 64 && found[1].1 == "[heap]");
    }
}

#[test]
fn the_rollup_is_read_as_a_mapping() {
    let text = "55894ffd3000-7fff7aaf0000 ---p 00000000 00:00 0                          [rollup]\n\
        Rss:                1764 kB\nPss:                 231 kB\nPss_Anon:            116 kB\nSwapPss:               5 kB\n";
    let found = parsed(text, 4_096, 4_096).unwrap();
    assert_eq!((found.len(), found[0].0.rss, found[0].0.pss, found[0].0.swap_pss), (1, 1_764, 231, 5));
}

#[test]
fn another_text_is_an_error_that_shows_its_line() {
    for text in
        ["cafe\n", "2000-1000 r--p 00000000 00:00 0\n", "1000-2000 r--p\n", "1000-2000 r--p 0 0:0 0\nnonsense\n"]
    {
        let error = parsed(text, 100, 128).unwrap_err();
        assert!(error.kind() == io::ErrorKind::InvalidData && error.to_string().contains("no line of smaps"), "{text}");
    }
    assert!(parsed("", 100, 128).unwrap().is_empty());
}
