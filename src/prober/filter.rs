//! A packet filter for the UDP sockets of probes: a program of classic BPF that lets packets of
//! members pass and drops all others in the kernel. A flood of strangers then neither wakes the
//! probe thread nor fills the queue.
//!
//! The same program chooses between a socket for members and one for strangers ([`choosing`]). TCP
//! has no filter beside it: Linux 6.18 attaches none to a TCP socket of a process without
//! `CAP_NET_ADMIN`.
//!
//! It never drops a member. It may let strangers pass, which [`super::udp::stamp::Reflector`]
//! refuses: if members have too many separate ranges of addresses, the nearest are joined.
//!
//! # The program
//! The addresses are sorted ranges, found by a balanced tree of comparisons. An IPv6 address is
//! compared word by word: each single value of a word leads to a tree for the next word.
//!
//! # Traps
//! - The kernel counts what the filter drops as drops of the socket (`SK_MEMINFO_DROPS`,
//!   `SO_RXQ_OVFL`) and as `InErrors` of UDP. Of a socket with this filter, these are not requests
//!   that an agent was too slow to read.
//! - Errors and transmit timestamps do not pass the filter. They are always delivered.
//!
//! # Limits
//! A program has at most 4,096 instructions. The kernel also counts its memory against
//! `net.core.optmem_max` of the socket, and for a moment that of the program that it replaces. This
//! is 128 KB, or 20 KB before Linux 6.8. With 20 KB it refuses programs of more than 192 to 384
//! ranges, so [`attach`] tries fewer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::IpAddr;

use socket2::SockFilter;

use crate::limits::STAMP_FILTER_RANGES_MAX;

/// `BPF_MAXINSNS` of the kernel.
const INSTRUCTIONS_MAX: usize = 4_096;
/// `SKF_NET_OFF` of the kernel: an offset from here counts from the IP header.
const IP_HEADER: u32 = 0xfff0_0000;
/// Offset of the source address in an IPv4 header.
const SOURCE_V4: u32 = 12;
/// Offset of the source address in an IPv6 header.
const SOURCE_V6: u32 = 8;

/// `BPF_LD | BPF_W | BPF_ABS`: A = the word at offset k of the packet.
const LOAD: u16 = 0x20;
/// `BPF_LD | BPF_H | BPF_ABS`: A = the 16 bits at offset k. To the filter of a UDP socket, a packet
/// begins with the UDP header, and so with the source port.
const LOAD_HALF: u16 = 0x28;
/// `BPF_LD | BPF_W | BPF_MEM`: A = M\[k\].
const LOAD_KEPT: u16 = 0x60;
/// `BPF_ST`: M\[k\] = A.
const KEEP: u16 = 0x02;
/// `BPF_JMP | BPF_JA`: skips k instructions.
const JUMP: u16 = 0x05;
/// `BPF_JMP | BPF_JEQ | BPF_K`: skips jt instructions if A = k, and jf if not.
const IF_EQUAL: u16 = 0x15;
/// `BPF_JMP | BPF_JGT | BPF_K`: the same if A > k.
const IF_ABOVE: u16 = 0x25;
/// `BPF_JMP | BPF_JGE | BPF_K`: the same if A >= k.
const IF_AT_LEAST: u16 = 0x35;
/// `BPF_RET | BPF_K`: ends the program. The first k bytes of the packet pass.
const RETURN: u16 = 0x06;
/// How far a conditional jump may go. Its offsets have 8 bits, and up to two other instructions may
/// be added between it and its target.
const REACH: usize = 250;

/// Sets the filter of a socket, with half of the ranges as often as the kernel has no memory for
/// it. `program` makes it, and `attach` is `SO_ATTACH_FILTER` or `SO_ATTACH_REUSEPORT_CBPF`.
///
/// # Errors
/// The kernel refuses even one range, or has another reason. The former program stays.
pub fn attach(
    program: impl Fn(usize) -> Vec<SockFilter>,
    mut attach: impl FnMut(&[SockFilter]) -> io::Result<()>,
) -> io::Result<()> {
    let mut ranges_max = STAMP_FILTER_RANGES_MAX;
    loop {
        match attach(&program(ranges_max)) {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && ranges_max > 1 => ranges_max /= 2,
            result => return result,
        }
    }
}

/// Returns the program that lets only these sources pass, for a socket of IPv4, or of IPv6 alone.
/// At most `ranges_max` ranges of them are distinguished. Sources of the other family are left out.
pub fn from_sources(over_ipv6: bool, sources: &[IpAddr], ranges_max: usize) -> Vec<SockFilter> {
    finished(&instructions(over_ipv6, sources, ranges_max))
}

/// Returns the program that chooses a listener for a handshake, by its index among those of one
/// port (`SO_ATTACH_REUSEPORT_CBPF`): the first for these sources, and the second for all others.
pub fn choosing(over_ipv6: bool, sources: &[IpAddr], ranges_max: usize) -> Vec<SockFilter> {
    let mut program = instructions(over_ipv6, sources, ranges_max);
    for result in program.iter_mut().filter(|instruction| instruction.code == RETURN) {
        result.k = u32::from(result.k == 0);
    }
    finished(&program)
}

/// Returns the program that chooses the first listener for all.
pub fn choosing_first() -> [SockFilter; 1] {
    [SockFilter::new(RETURN, 0, 0, 0)]
}

fn instructions(over_ipv6: bool, sources: &[IpAddr], ranges_max: usize) -> Vec<Instruction> {
    let of_family = sources.iter().filter_map(|source| match source.to_canonical() {
        IpAddr::V4(source) => Some(source.to_bits().into()).filter(|_| !over_ipv6),
        IpAddr::V6(source) => Some(source.to_bits()).filter(|_| over_ipv6),
    });
    let mut addresses: Vec<u128> = of_family.collect();
    addresses.sort_unstable();
    if over_ipv6 {
        fitting(&addresses, ranges_max, SOURCE_V6, words)
    } else {
        fitting(&addresses, ranges_max, SOURCE_V4, |address| [low_word(address)])
    }
}

/// Returns a program for a UDP socket that lets pass what `program` does, if it comes from this
/// source port.
pub fn from_port(port: u16, program: Vec<SockFilter>) -> Vec<SockFilter> {
    let head = [(LOAD_HALF, 0, 0, 0), (IF_EQUAL, 1, 0, port.into()), (RETURN, 0, 0, 0)];
    let head = head.into_iter().map(|(code, jt, jf, k)| SockFilter::new(code, jt, jf, k));
    head.chain(program).collect()
}

/// Returns the words of an IPv6 address.
fn words(address: u128) -> [u32; 4] {
    [96, 64, 32, 0].map(|shift| low_word(address >> shift))
}

#[expect(clippy::cast_possible_truncation, reason = "the other words are taken apart")]
const fn low_word(address: u128) -> u32 {
    address as u32
}

/// One instruction, as in `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

fn finished(program: &[Instruction]) -> Vec<SockFilter> {
    program.iter().map(|one| SockFilter::new(one.code, one.jt, one.jf, one.k)).collect()
}

/// Returns the program of as many ranges as an accepted program can have.
fn fitting<const N: usize>(
    addresses: &[u128],
    ranges_max: usize,
    offset: u32,
    words: impl Fn(u128) -> [u32; N],
) -> Vec<Instruction> {
    let mut most = ranges_max.clamp(1, STAMP_FILTER_RANGES_MAX);
    loop {
        let ranges: Vec<_> = joined(addresses, most).into_iter().map(|range| range.map(&words)).collect();
        let program = program(&ranges, offset);
        if program.len() <= INSTRUCTIONS_MAX || most == 1 {
            return program;
        }
        most /= 2;
    }
}

/// Returns the first and last address of each range. Addresses without a gap between them are one
/// range. If there are more than `most`, only the largest gaps are left out of the ranges. The
/// addresses are in ascending order.
fn joined(addresses: &[u128], most: usize) -> Vec<[u128; 2]> {
    // The smallest gap is the first. It is removed for a larger one.
    let mut gaps = BinaryHeap::with_capacity(most + 1);
    let mut ends: Option<[u128; 2]> = None;
    for &source in addresses {
        let Some([_, last]) = &mut ends else {
            ends = Some([source; 2]);
            continue;
        };
        let gap = source.saturating_sub(*last);
        if gap > 1 {
            gaps.push(Reverse((gap, *last, source)));
            if gaps.len() == most {
                gaps.pop();
            }
        }
        *last = source;
    }
    let Some([first, last]) = ends else { return Vec::new() };
    let mut bounds = vec![first, last];
    bounds.extend(gaps.into_iter().flat_map(|Reverse((_, before, after))| [before, after]));
    bounds.sort_unstable();
    bounds.chunks_exact(2).map(|range| [range[0], range[1]]).collect()
}

/// A range of one word of addresses.
#[derive(Clone, Copy, Debug)]
struct Piece<'a, const N: usize> {
    from: u32,
    to: u32,
    /// Ranges that all have the one value of this word, whose next word decides. If there are none,
    /// the whole piece passes.
    inner: &'a [[[u32; N]; 2]],
}

/// Divides ranges by their word `at`. All words before are the same.
///
/// A range that spans several values of a word that is not the last passes for all of each of them.
fn pieces<const N: usize>(ranges: &[[[u32; N]; 2]], at: usize) -> Vec<Piece<'_, N>> {
    let mut pieces: Vec<Piece<'_, N>> = Vec::with_capacity(ranges.len());
    let mut begin = 0;
    for (index, [from, to]) in ranges.iter().enumerate() {
        let (from, to) = (from[at], to[at]);
        let is_decided = from != to || at + 1 == N;
        match pieces.last_mut() {
            Some(piece) if piece.to == from => {
                let is_single = piece.from == piece.to && !is_decided && !piece.inner.is_empty();
                piece.inner = if is_single { &ranges[begin..=index] } else { &[] };
                piece.to = to;
            }
            _ => {
                begin = index;
                pieces.push(Piece { from, to, inner: if is_decided { &[] } else { &ranges[index..=index] } });
            }
        }
    }
    pieces
}

fn program<const N: usize>(ranges: &[[[u32; N]; 2]], offset: u32) -> Vec<Instruction> {
    let mut program = Reversed::default();
    let begin = program.tree(&pieces(ranges, 0), 0, [0, u32::MAX]);
    if N == 1 {
        program.before(begin, LOAD, IP_HEADER + offset);
    } else {
        program.before(begin, LOAD_KEPT, 0);
        for word in (0..N).rev().map(number) {
            program.push(KEEP, word);
            program.push(LOAD, IP_HEADER + offset + 4 * word);
        }
    }
    program.code.reverse();
    program.code
}

/// A program that is written from its end, so the targets of all jumps are known. A label is the
/// index of an instruction, counted from the end.
#[derive(Debug, Default)]
struct Reversed {
    code: Vec<Instruction>,
    /// The newest label at which a packet is dropped, and that at which it passes.
    results: [Option<usize>; 2],
}

impl Reversed {
    /// Adds an instruction before all others. Returns its label.
    fn push(&mut self, code: u16, k: u32) -> usize {
        self.code.push(Instruction { code, jt: 0, jf: 0, k });
        self.code.len() - 1
    }

    /// Returns how many instructions the next one must skip to reach `label`.
    fn distance(&self, label: usize) -> usize {
        self.code.len() - 1 - label
    }

    /// Adds an instruction whose next one is that at `label`.
    fn before(&mut self, label: usize, code: u16, k: u32) -> usize {
        let distance = self.distance(label);
        if distance > 0 {
            self.push(JUMP, number(distance));
        }
        self.push(code, k)
    }

    /// Adds a conditional jump to one of two labels.
    fn branch(&mut self, code: u16, k: u32, yes: usize, no: usize) -> usize {
        let [yes, no] = [yes, no].map(|label| {
            let distance = self.distance(label);
            if distance > REACH { self.push(JUMP, number(distance)) } else { label }
        });
        let [jt, jf] = [yes, no].map(|label| u8::try_from(self.distance(label)).expect("in reach"));
        self.code.push(Instruction { code, jt, jf, k });
        self.code.len() - 1
    }

    /// Returns a label in reach at which a packet passes, or is dropped.
    fn result(&mut self, passes: bool) -> usize {
        let newest = self.results[usize::from(passes)].filter(|label| self.distance(*label) <= REACH);
        let label = newest.unwrap_or_else(|| self.push(RETURN, if passes { u32::MAX } else { 0 }));
        self.results[usize::from(passes)] = Some(label);
        label
    }

    /// Adds the instructions that decide by word `at`, which is in A and within `bounds`.
    fn tree<const N: usize>(&mut self, pieces: &[Piece<'_, N>], at: usize, [least, most]: [u32; 2]) -> usize {
        match pieces {
            [] => self.result(false),
            [piece] => {
                let hit = self.hit(piece, at);
                let miss = self.result(false);
                if piece.from == piece.to && least < most {
                    return self.branch(IF_EQUAL, piece.from, hit, miss);
                }
                let mut label = hit;
                if piece.to < most {
                    label = self.branch(IF_ABOVE, piece.to, miss, label);
                }
                if piece.from > least {
                    label = self.branch(IF_AT_LEAST, piece.from, label, miss);
                }
                label
            }
            _ => {
                let (lower, upper) = pieces.split_at(pieces.len() / 2);
                let bound = upper[0].from;
                let upper = self.tree(upper, at, [bound, most]);
                let lower = self.tree(lower, at, [least, bound - 1]);
                self.branch(IF_AT_LEAST, bound, upper, lower)
            }
        }
    }

    /// Returns the label for a word in this piece.
    fn hit<const N: usize>(&mut self, piece: &Piece<'_, N>, at: usize) -> usize {
        if piece.inner.is_empty() {
            return self.result(true);
        }
        let label = self.tree(&pieces(piece.inner, at + 1), at + 1, [0, u32::MAX]);
        self.before(label, LOAD_KEPT, number(at + 1))
    }
}

/// Returns a number of instructions or words.
fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
