use super::*;

/// A program header: type, flags, offset, address, bytes in the file, bytes in memory.
pub type Header = (u64, u64, u64, u64, u64, u64);

pub const LOAD: u64 = PT_LOAD;
pub const RELRO: u64 = PT_GNU_RELRO;
const R: u64 = 4;
const RX: u64 = 5;
const RW: u64 = 6;

/// Returns a file that consists of headers.
pub fn file(wide: bool, headers: &[Header]) -> Vec<u8> {
    let mut bytes = vec![0; if wide { 64 } else { 52 }];
    bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 1 + u8::from(wide), 1]);
    bytes[16..18].copy_from_slice(&3_u16.to_le_bytes());
    let (size, count) = (if wide { 56_u16 } else { 32 }, u16::try_from(headers.len()).unwrap());
    let mut put = |at: usize, value: u16| bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    put(if wide { 54 } else { 42 }, size);
    put(if wide { 56 } else { 44 }, count);
    put(if wide { 32 } else { 28 }, if wide { 64 } else { 52 });
    let half = |number: u64| u32::try_from(number).unwrap().to_le_bytes();
    for &(kind, flags, offset, address, file_bytes, memory_bytes) in headers {
        bytes.extend(half(kind));
        if wide {
            bytes.extend(half(flags));
        }
        for number in [offset, address, address, file_bytes, memory_bytes] {
            if wide {
                bytes.extend(number.to_le_bytes());
            } else {
                bytes.extend(half(number));
            }
        }
        if wide {
            bytes.extend(0x1000_u64.to_le_bytes());
        } else {
            bytes.extend(half(flags));
            bytes.extend(half(0x1000));
        }
    }
    bytes
}

/// Reads the headers of a file in memory.
pub fn read(bytes: &[u8]) -> Option<Elf> {
    Elf::read(|buffer, offset| {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let there = bytes.get(from..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(there.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    })
}

/// Headers as lld makes them. Segments end within pages. The next segment begins in the same page
/// of the file, but one page further in memory.
pub const STATIC_PIE: [Header; 5] = [
    (LOAD, R, 0, 0, 0x2_86bc, 0x2_86bc),
    (LOAD, RX, 0x2_86c0, 0x2_96c0, 0x1_0000, 0x1_0000),
    (LOAD, RW, 0x3_86c0, 0x3_a6c0, 0x1_0940, 0x1_0940),
    (LOAD, RW, 0x4_9000, 0x4_c000, 0x1200, 0x5340),
    (RELRO, R, 0x3_86c0, 0x3_a6c0, 0x1_0940, 0x1_0940),
];

const PAGE: u64 = 0x1000;

#[test]
fn the_pages_of_a_file_have_the_categories_of_its_segments() {
    for wide in [true, false] {
        let elf = read(&file(wide, &STATIC_PIE)).unwrap();
        let of = |address| elf.category(address, PAGE, false);
        assert_eq!(of(0), (Some(Category::Rodata), 0x2_9000), "{wide}");
        assert_eq!(of(0x2_8000), (Some(Category::Rodata), 0x2_9000));
        assert_eq!(of(0x2_9000), (Some(Category::Text), 0x3_a000));
        assert_eq!(of(0x3_9000), (Some(Category::Text), 0x3_a000));
        assert_eq!(of(0x3_a000), (Some(Category::Relro), 0x4_b000));
        assert_eq!(of(0x4_b000), (None, 0x4_c000), "nothing is mapped there");
        assert_eq!(of(0x4_c000), (Some(Category::Data), 0x5_2000));
        assert_eq!(of(0x5_2000), (None, u64::MAX));
    }
}

#[test]
fn anonymous_memory_is_bss_only_after_the_last_page_of_the_file() {
    let elf = read(&file(true, &STATIC_PIE)).unwrap();
    assert_eq!(elf.category(0x4_c000, PAGE, true), (None, 0x4_e000));
    assert_eq!(elf.category(0x4_e000, PAGE, true), (Some(Category::Data), 0x5_2000));
    assert_eq!(elf.category(0x3_a000, PAGE, true).0, None);
}

#[test]
fn relro_ends_with_the_last_whole_page_and_larger_pages_are_rounded_as_well() {
    let headers = [
        (LOAD, R, 0, 0, 0x800, 0x800),
        (LOAD, RW, 0x1d80, 0x3d80, 0x400, 0x900),
        (RELRO, R, 0x1d80, 0x3d80, 0x280, 0x280),
    ];
    let elf = read(&file(true, &headers)).unwrap();
    assert_eq!(elf.category(0x3000, PAGE, false).0, Some(Category::Relro));
    assert_eq!(elf.category(0x4000, PAGE, false).0, Some(Category::Data));
    let headers = [headers[0], headers[1], (RELRO, R, 0x1d80, 0x3d80, 0x270, 0x270)];
    assert_eq!(read(&file(true, &headers)).unwrap().category(0x3000, PAGE, false).0, Some(Category::Data));
    let elf =
        read(&file(true, &[(LOAD, RX, 0, 0x40_0000, 0x900, 0x900), (LOAD, RW, 0x1_0000, 0x42_0000, 9, 9)])).unwrap();
    assert_eq!(elf.category(0x40_0000, 0x1_0000, false), (Some(Category::Text), 0x41_0000));
}

#[test]
fn the_load_address_follows_from_a_segment_that_is_mapped_as_a_whole() {
    let elf = read(&file(true, &STATIC_PIE)).unwrap();
    let base = 0x7f00_0000_0000;
    assert_eq!(elf.bias(base, 0x2_9000, 0, PAGE, (false, false)), Some(base));
    assert_eq!(elf.bias(base, 0x9000, 0, PAGE, (false, false)), Some(base), "split by the kernel");
    assert_eq!(elf.bias(base + 0x2_9000, 0x1_1000, 0x2_8000, PAGE, (false, true)), Some(base));
    assert_eq!(elf.bias(base + 0x3_a000, 0x1_1000, 0x3_8000, PAGE, (false, false)), Some(base), "relocated, read-only");
    assert_eq!(elf.bias(base, 0x4_b000, 0, PAGE, (false, false)), None, "longer than the segment: somebody reads it");
    assert_eq!(elf.bias(base, 0x1000, 0x1_0000, PAGE, (false, false)), None);
    assert_eq!(elf.bias(base, 0x1000, 0, PAGE, (true, false)), None, "constants cannot be written");
    assert!(
        elf.holds(0x3_0000, 0x2_f000, PAGE) && !elf.holds(0x3_0000, 0x3_0000, PAGE) && !elf.holds(0x9_0000, 0, PAGE)
    );
    let endless = [STATIC_PIE[0], (LOAD, R, u64::MAX - 0xfff, 0x10_0000, 0x2000, 0x2000)];
    assert!(!read(&file(true, &endless)).unwrap().holds(0x10_1000, 0, PAGE));
}

#[test]
fn a_file_that_is_no_program_is_none() {
    let good = file(true, &STATIC_PIE);
    let damaged = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        read(&bytes).is_some()
    };
    assert!(damaged(4, 2), "unchanged");
    for (at, value) in [(0, 0), (4, 0), (4, 3), (5, 9), (16, 4), (54, 57), (56, 255), (56, 0), (33, 0xff)] {
        assert!(!damaged(at, value), "byte {at} = {value}");
    }
    assert!(read(b"#!/bin/sh\n").is_none() && read(&good[..80]).is_none() && read(&[]).is_none());
    let many: Vec<Header> = (0..=SEGMENTS_MAX as u64).map(|i| (LOAD, R, i << 12, i << 12, 9, 9)).collect();
    assert!(read(&file(true, &many)).is_none() && read(&file(true, &many[1..])).is_some());
    assert!(read(&file(true, &[STATIC_PIE[1], STATIC_PIE[0]])).is_none(), "not ascending");
    assert!(read(&file(true, &[(LOAD, R, 0, u64::MAX - 1, 9, 9)])).is_none(), "beyond the last address");
}
