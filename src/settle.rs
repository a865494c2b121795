//! Gives back the pages of our text that are not needed now.
//!
//! Text is clean file memory, and the kernel keeps it mapped until it is short of memory; an agent that is judged by its
//! resident set gives it back itself, after its start and once a minute. What runs comes back by a minor fault per 64 KiB,
//! from the page cache, and `layout/functions.ld` keeps it apart from what does not.
#![expect(unsafe_code, reason = "madvise(2) has no safe wrapper in std")]

use std::fs;

/// Drops the mapping's pages of this program's own text. Where that cannot be found nothing happens.
pub fn give_back_text() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let Ok(program) = fs::read_link("/proc/self/exe") else { return };
    let program = program.to_string_lossy();
    // All ranges first: what finds them would be back at once.
    let ranges: Vec<(usize, usize)> = maps.lines().filter_map(|line| text_range(line, &program)).collect();
    for (start, end) in ranges {
        // SAFETY: the range is an executable, unwritable, private mapping of our own file, so that no page of it was
        // ever changed (there are no text relocations); the next access reads the same bytes from the file again.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
    }
}

/// The range of a maps line that is the text of `program`: `start-end r-xp offset device inode path`.
fn text_range(line: &str, program: &str) -> Option<(usize, usize)> {
    let (range, rest) = line.split_once(' ')?;
    let is_text =
        rest.starts_with("r-xp ") && rest.split_once('/').is_some_and(|(_, path)| format!("/{path}") == program);
    let (start, end) = range.split_once('-')?;
    let address = |hex| usize::from_str_radix(hex, 16).ok();
    is_text.then_some((address(start)?, address(end)?)).filter(|(start, end)| start < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_programs_own_text_is_given_back() {
        let text = "00401000-00600000 r-xp 00001000 fe:00 123   /kube-canary";
        assert_eq!(text_range(text, "/kube-canary"), Some((0x40_1000, 0x60_0000)));
        for other in [
            "00401000-00600000 r--p 00001000 fe:00 123   /kube-canary",
            "00401000-00600000 rwxp 00001000 fe:00 123   /kube-canary",
            "00401000-00600000 r-xp 00001000 fe:00 123   /lib/libc.so.6",
            "7ffd0000-7ffd1000 r-xp 00000000 00:00 0     [vdso]",
            "",
        ] {
            assert_eq!(text_range(other, "/kube-canary"), None, "{other}");
        }
    }

    #[test]
    fn the_program_goes_on_running() {
        give_back_text();
        assert_eq!(format!("{:.3}", std::hint::black_box(1.0_f64).sin()), "0.841");
    }
}
