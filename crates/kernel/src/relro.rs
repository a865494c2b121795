//! Makes the constants that were relocated at the start read-only.
//!
//! A position-independent program fills in the addresses in its constants at its start. Most of
//! them are tables of functions. The program names their range in its header, as `PT_GNU_RELRO`, to
//! be made unwritable. glibc's loader does that, in a static program too. musl's does it only for
//! dynamic programs, and ours is static. Otherwise an attacker with write access to any address
//! could choose which function is called next.
#![expect(unsafe_code, reason = "the C library finds the program's header, and mprotect(2) has no safe form")]

use std::ffi::c_int;
use std::ops::Range;
use std::slice;

use crate::region::page_bytes;

/// The first and last address of a range, or zeros for none.
type FoundRange = [usize; 2];

unsafe extern "C" {
    // SAFETY: the type is that of link.h. The function calls back before it returns, with valid
    // descriptions and with the reference that it was given.
    safe fn dl_iterate_phdr(
        look: extern "C" fn(&libc::dl_phdr_info, usize, &mut FoundRange) -> c_int,
        found: &mut FoundRange,
    ) -> c_int;
}

/// Makes the relocated constants of this program unwritable. The program also runs if the kernel
/// refuses (a seccomp filter).
pub fn seal() {
    if let Some(range) = relocated() {
        protect(&range, libc::PROT_READ);
    }
}

fn protect(range: &Range<usize>, protection: c_int) {
    // SAFETY: the range is page-aligned and the linker's: nothing in it is written once relocations
    // are done, which they are before `main`, and all of it stays readable.
    unsafe { libc::mprotect(range.start as *mut _, range.len(), protection) };
}

/// The range of the program's relocated constants. None if they do not fill a page.
fn relocated() -> Option<Range<usize>> {
    let mut found = [0; 2];
    dl_iterate_phdr(look, &mut found);
    (found != [0; 2]).then_some(found[0]..found[1])
}

/// The first call is for the program itself. It ends the walk there, because the
/// loader handles the libraries.
extern "C" fn look(program: &libc::dl_phdr_info, _: usize, found: &mut FoundRange) -> c_int {
    // SAFETY: the C library describes the program's headers, which stay mapped as long as it runs.
    let headers = unsafe { slice::from_raw_parts(program.dlpi_phdr, program.dlpi_phnum.into()) };
    let range = headers.iter().find_map(|header| pages(program.dlpi_addr, header, page_bytes()));
    *found = range.map_or([0; 2], |range| [range.start, range.end]);
    1
}

/// The whole pages of a `PT_GNU_RELRO` header. Bytes before it in its first page belong to it. It
/// may share its last page with writable data.
fn pages(base: libc::Elf64_Addr, header: &libc::Elf64_Phdr, page: usize) -> Option<Range<usize>> {
    if header.p_type != libc::PT_GNU_RELRO {
        return None;
    }
    let start = usize::try_from(base.wrapping_add(header.p_vaddr)).ok()?;
    let end = start.checked_add(usize::try_from(header.p_memsz).ok()?)?;
    let (start, end) = (start / page * page, end / page * page);
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_are_sealed() {
        let header = |p_type, p_vaddr, p_memsz| libc::Elf64_Phdr {
            p_type,
            p_flags: 4,
            p_offset: 0,
            p_vaddr,
            p_paddr: 0,
            p_filesz: 0,
            p_memsz,
            p_align: 1,
        };
        let relro = |at, bytes| pages(0x7000_0000, &header(libc::PT_GNU_RELRO, at, bytes), 4_096);
        assert_eq!(relro(0x1578, 0xda88), Some(0x7000_1000..0x7000_f000));
        assert_eq!(relro(0x1000, 0x1fff), Some(0x7000_1000..0x7000_2000));
        assert_eq!(relro(0x1578, 0x888), None);
        assert_eq!(pages(0, &header(libc::PT_LOAD, 0x1000, 0x4000), 4_096), None);
    }

    /// The permissions of the mapping that holds an address.
    fn permissions(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let holds = |line: &&str| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let bound = |hex| usize::from_str_radix(hex, 16).unwrap();
            (bound(start)..bound(end)).contains(&address)
        };
        maps.lines().find(holds).unwrap().split(' ').nth(1).unwrap().to_owned()
    }

    #[test]
    fn relocated_constants_are_unwritable_after_sealing() {
        let range = relocated().expect("a program with tables of functions has relocated constants");
        // glibc's loader has already protected it; musl's has not.
        protect(&range, libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(permissions(range.start), "rw-p");
        seal();
        assert_eq!([range.start, range.end - 1].map(permissions), ["r--p", "r--p"]);
    }
}
