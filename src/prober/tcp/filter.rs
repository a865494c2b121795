//! A filter in the kernel that drops what comes from addresses outside a list: classic BPF
//! (`SO_ATTACH_FILTER`), which needs no privilege.
//!
//! A source address is one word of 32 bits, or four. The program compares word by word: it
//! branches by the first words, and compares the last one with a list of values and ranges. The
//! kernel bounds the size of a program (`net.core.optmem_max`, 20 KB on older kernels). If it
//! refuses an exact one, a coarser one is tried, which admits more addresses and never fewer:
//! - IPv6: only the first 96, 64 or 32 bits are compared. A /64 is usually a node's pods.
//! - IPv4: the closest addresses are joined to ranges.
//!
//! 500 IPv4 addresses make 8 KB in the kernel, and 100 of IPv6 make 13 KB.

use std::io;
use std::net::IpAddr;

use socket2::SockFilter;

// From linux/filter.h: load a word of the packet, or of scratch memory; store; jump; return.
const LOAD: u16 = 0x20;
const RECALL: u16 = 0x60;
const STORE: u16 = 0x02;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;
/// Offsets from here on count from the header of the network layer. At 0 is that of the transport.
const NETWORK_HEADER: u32 = (-0x10_0000_i32).cast_unsigned();
/// Offset of the source address in the header of the network layer.
const SOURCE_AT_V4: u32 = 12;
const SOURCE_AT_V6: u32 = 8;
/// Instructions of a program (`BPF_MAXINSNS`).
const INSTRUCTIONS_MAX: usize = 4_096;
/// Ranges between two returns: a conditional jump reaches 255 instructions.
const RANGES_PER_RETURN: usize = 100;

/// How exact a program is: the number of words that it compares, and of ranges in the last one.
const PLANS_V4: [(usize, usize); 3] = [(1, usize::MAX), (1, 512), (1, 128)];
const PLANS_V6: [(usize, usize); 4] = [(4, usize::MAX), (3, usize::MAX), (2, usize::MAX), (1, 128)];

/// An address, or its words. IPv4 has only the first.
type Words = [u32; 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

const fn plain(code: u16, value: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, value }
}

const ACCEPT: Instruction = plain(RETURN, u32::MAX);
const DROP: Instruction = plain(RETURN, 0);

/// Attaches a filter that accepts packets from the `members` of one family, and perhaps from a few
/// others. `attach` attaches a program to the socket.
///
/// # Errors
/// The last error of `attach`, if the kernel has refused every program.
pub fn attach(
    members: &[IpAddr],
    over_ipv6: bool,
    mut attach: impl FnMut(&[SockFilter]) -> io::Result<()>,
) -> io::Result<()> {
    let mut members: Vec<Words> = members.iter().filter(|ip| ip.is_ipv6() == over_ipv6).map(|ip| words(*ip)).collect();
    members.sort_unstable();
    let mut refused = io::Error::from(io::ErrorKind::OutOfMemory);
    for &(words, ranges_max) in if over_ipv6 { &PLANS_V6[..] } else { &PLANS_V4[..] } {
        let Some(program) = program(&members, words, ranges_max, over_ipv6) else { continue };
        let made = |i: Instruction| SockFilter::new(i.code, i.if_true, i.if_false, i.value);
        match attach(&program.into_iter().map(made).collect::<Vec<_>>()) {
            Ok(()) => return Ok(()),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn words(address: IpAddr) -> Words {
    match address {
        IpAddr::V4(v4) => [v4.to_bits(), 0, 0, 0],
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            #[expect(clippy::cast_possible_truncation, reason = "the word that is meant")]
            [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
        }
    }
}

/// Returns the program that compares so many `words`; `None` if it would be too long. The members
/// are sorted.
fn program(members: &[Words], words: usize, ranges_max: usize, over_ipv6: bool) -> Option<Vec<Instruction>> {
    let mut program = Vec::new();
    let source_at = if over_ipv6 { SOURCE_AT_V6 } else { SOURCE_AT_V4 };
    for (word, offset) in (0..words).zip((NETWORK_HEADER + source_at..).step_by(size_of::<u32>())) {
        program.extend([plain(LOAD, offset), plain(STORE, u32::try_from(word).ok()?)]);
    }
    let mut rest = Rest { program, words, ranges_max };
    rest.compare(members, 0);
    Some(rest.program).filter(|program| program.len() <= INSTRUCTIONS_MAX)
}

/// A program whose comparisons are being added.
struct Rest {
    program: Vec<Instruction>,
    words: usize,
    ranges_max: usize,
}

impl Rest {
    /// Compares this word and the later ones with those of `members`, which are alike before it.
    fn compare(&mut self, members: &[Words], word: usize) {
        self.program.push(plain(RECALL, u32::try_from(word).unwrap_or_default()));
        if word + 1 >= self.words {
            self.compare_last(members.iter().map(|member| member[word]));
        } else {
            for group in members.chunk_by(|a, b| a[word] == b[word]) {
                let [first, ..] = group else { continue };
                let jump_over = self.program.len() + 1;
                // A conditional jump does not reach over the group.
                self.program.extend([
                    Instruction { code: JUMP_EQUAL, if_true: 1, if_false: 0, value: first[word] },
                    plain(JUMP, 0),
                ]);
                self.compare(group, word + 1);
                let over = self.program.len() - jump_over - 1;
                self.program[jump_over].value = u32::try_from(over).unwrap_or_default();
            }
        }
        self.program.push(DROP);
    }

    /// Accepts these values of the last word, which are in ascending order.
    fn compare_last(&mut self, values: impl Iterator<Item = u32>) {
        for ranges in ranges(values, self.ranges_max).chunks(RANGES_PER_RETURN) {
            let lengths = ranges.iter().map(|(low, high)| if low == high { 1 } else { 2 });
            // The jump over the acceptance that follows the ranges counts, too.
            let mut to_acceptance = lengths.sum::<u8>() + 1;
            for &(low, high) in ranges {
                to_acceptance -= 1;
                if low == high {
                    let jump = Instruction { code: JUMP_EQUAL, if_true: to_acceptance, if_false: 0, value: low };
                    self.program.push(jump);
                } else {
                    to_acceptance -= 1;
                    self.program.extend([
                        Instruction { code: JUMP_GREATER_OR_EQUAL, if_true: 0, if_false: 1, value: low },
                        Instruction { code: JUMP_GREATER, if_true: 0, if_false: to_acceptance, value: high },
                    ]);
                }
            }
            self.program.extend([plain(JUMP, 1), ACCEPT]);
        }
    }
}

/// Returns the values as ranges (first and last value), at most so many: those with the smallest
/// gaps between them are joined.
fn ranges(values: impl Iterator<Item = u32>, most: usize) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for value in values {
        match ranges.last_mut() {
            Some((_, high)) if value <= high.saturating_add(1) => *high = value,
            _ => ranges.push((value, value)),
        }
    }
    while ranges.len() > most {
        let mut gaps: Vec<u32> = ranges.windows(2).map(|pair| pair[1].0 - pair[0].1).collect();
        let surplus = ranges.len() - most;
        let (_, widest, _) = gaps.select_nth_unstable(surplus - 1);
        let widest = *widest;
        // Of gaps that are equally wide, as many are closed as needed.
        let mut left = surplus;
        ranges.dedup_by(|next, kept| {
            let joined = left > 0 && next.0 - kept.1 <= widest;
            if joined {
                kept.1 = next.1;
                left -= 1;
            }
            joined
        });
    }
    ranges
}

#[cfg(test)]
mod tests;
