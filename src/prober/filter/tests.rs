use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::SockRef;

use super::*;
use crate::splitmix::Random;

/// Runs a program over a packet that begins with the IP header. Returns whether it passes.
///
/// # Panics
/// On everything that the kernel refuses: other instructions, jumps beyond the end, and no return.
fn passes(program: &[Instruction], packet: &[u8]) -> bool {
    let (mut a, mut memory, mut at) = (0_u32, [None; 16], 0);
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let holds = match code {
            LOAD => {
                let offset = usize::try_from(k.checked_sub(IP_HEADER).expect("from the IP header")).unwrap();
                let Some(word) = packet.get(offset..).and_then(|bytes| bytes.first_chunk()) else { return false };
                a = u32::from_be_bytes(*word);
                continue;
            }
            KEEP => {
                memory[usize::try_from(k).unwrap()] = Some(a);
                continue;
            }
            LOAD_KEPT => {
                a = memory[usize::try_from(k).unwrap()].expect("a word that was kept");
                continue;
            }
            JUMP => {
                at += usize::try_from(k).unwrap();
                continue;
            }
            RETURN => return k > 0,
            IF_EQUAL => a == k,
            IF_ABOVE => a > k,
            IF_AT_LEAST => a >= k,
            _ => panic!("{code:#x}"),
        };
        at += usize::from(if holds { jt } else { jf });
    }
}

fn addresses<A: Into<IpAddr>>(sources: impl IntoIterator<Item = A>) -> Vec<IpAddr> {
    sources.into_iter().map(Into::into).collect()
}

fn program_v4(sources: &BTreeSet<Ipv4Addr>, ranges_max: usize) -> Vec<Instruction> {
    instructions(false, &addresses(sources.clone()), ranges_max)
}

fn program_v6(sources: &BTreeSet<Ipv6Addr>, ranges_max: usize) -> Vec<Instruction> {
    instructions(true, &addresses(sources.clone()), ranges_max)
}

fn passes_v4(program: &[Instruction], source: Ipv4Addr) -> bool {
    passes(program, &[&[0x45; 12][..], &source.octets(), &[0xff; 4]].concat())
}

fn passes_v6(program: &[Instruction], source: Ipv6Addr) -> bool {
    passes(program, &[&[0x60; 8][..], &source.octets(), &[0xff; 16]].concat())
}

fn low(n: u64) -> u32 {
    low_word(n.into())
}

#[test]
fn exactly_the_members_pass_if_their_ranges_are_few_enough() {
    let mut random = Random(1);
    for round in 0..200 {
        // Dense and sparse networks, so ranges and single addresses.
        let mask = u32::MAX >> (round % 28);
        let sources: BTreeSet<Ipv4Addr> =
            (0..random.next() % 500).map(|_| Ipv4Addr::from_bits(0xac10_0000 ^ (low(random.next()) & mask))).collect();
        let program = program_v4(&sources, STAMP_FILTER_RANGES_MAX);
        assert!(program.len() <= 4 * sources.len() + 4, "{} for {}", program.len(), sources.len());
        for source in &sources {
            assert!(passes_v4(&program, *source), "{source}");
            for near in [1, u32::MAX, 256, low(random.next())]
                .map(|step| Ipv4Addr::from_bits(source.to_bits().wrapping_add(step)))
            {
                assert_eq!(passes_v4(&program, near), sources.contains(&near), "{near}");
            }
        }
        for edge in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST] {
            assert_eq!(passes_v4(&program, edge), sources.contains(&edge));
        }
    }
}

#[test]
fn exactly_the_members_pass_with_ipv6_in_every_form_of_network() {
    let mut random = Random(2);
    for round in 0..200_u32 {
        // Bits that differ: of the last word, of two words, of one in the middle, or of all.
        let masks =
            [0xff, 0xffff_ffff_ffff, 0xff_ff00 << 64, u128::MAX, 0x3 | 0x3 << 32 | 0x3 << 64 | 0x3 << 96, 0x1f << 60];
        let mask = masks[usize::try_from(round).unwrap() % masks.len()];
        let mut address = || {
            0xfd00_0001_0002_0003_0004_0005_0006_0007
                ^ (u128::from(random.next()) << 64 | u128::from(random.next())) & mask
        };
        let sources: BTreeSet<Ipv6Addr> = (0..=round).map(|_| Ipv6Addr::from_bits(address())).collect();
        let program = program_v6(&sources, STAMP_FILTER_RANGES_MAX);
        assert!(program.len() <= 10 * sources.len() + 20, "{} for {}", program.len(), sources.len());
        for source in &sources {
            assert!(passes_v6(&program, *source), "{source}");
            for step in [1, u128::MAX, 1 << 32, 1 << 64, 1 << 96, address()] {
                let near = Ipv6Addr::from_bits(source.to_bits().wrapping_add(step));
                assert_eq!(passes_v6(&program, near), sources.contains(&near), "{near}");
            }
        }
    }
}

#[test]
fn no_member_is_ever_dropped_however_few_ranges_there_are() {
    let mut random = Random(3);
    for (count, ranges_max) in
        [(1, 0), (2, 1), (40, 1), (40, 7), (5_000, 512), (5_000, 64), (16_384, 512), (9_000, 9_999)]
    {
        let sources: BTreeSet<Ipv4Addr> =
            (0..count).map(|_| Ipv4Addr::from_bits(0x0a00_0000 | low(random.next()) & 0xff_ffff)).collect();
        let program = program_v4(&sources, ranges_max);
        assert!(program.len() <= 4 * 512 && sources.iter().all(|source| passes_v4(&program, *source)), "{count}");
        assert!(!passes_v4(&program, [11, 0, 0, 0].into()) && !passes_v4(&program, [9, 255, 255, 255].into()));
        for mask in [u128::MAX, 0xffff << 64, u128::MAX >> 64, 0xff_0000_00ff << 30] {
            let mut address =
                || 0xfd00 << 112 | (u128::from(random.next()) << 64 | u128::from(random.next())) & mask >> 8;
            let sources: BTreeSet<Ipv6Addr> = (0..count).map(|_| Ipv6Addr::from_bits(address())).collect();
            let program = program_v6(&sources, ranges_max);
            assert!(program.len() <= INSTRUCTIONS_MAX, "{}", program.len());
            assert!(sources.iter().all(|source| passes_v6(&program, *source)), "{count} {mask:x}");
            assert!(!passes_v6(&program, Ipv6Addr::from_bits(0xfc_ff << 112)));
        }
    }
}

#[test]
fn the_nearest_ranges_are_joined() {
    let ranges = |sources: &[u128], most| joined(sources, most);
    assert_eq!(ranges(&[], 3), [[0; 2]; 0]);
    assert_eq!(ranges(&[5, 6, 7, 7, 9], 9), [[5, 7], [9, 9]]);
    let sources = [1, 2, 10, 30, 35, 100, u128::MAX];
    assert_eq!(ranges(&sources, 9), [[1, 2], [10, 10], [30, 30], [35, 35], [100, 100], [u128::MAX; 2]]);
    assert_eq!(ranges(&sources, 5), [[1, 2], [10, 10], [30, 35], [100, 100], [u128::MAX; 2]]);
    assert_eq!(ranges(&sources, 3), [[1, 35], [100, 100], [u128::MAX; 2]]);
    assert_eq!(ranges(&sources, 1), [[1, u128::MAX]]);
}

#[test]
fn fewer_ranges_are_tried_until_the_kernel_has_memory_for_them() {
    let sources: BTreeSet<Ipv4Addr> = (0..5_000).map(|n| Ipv4Addr::from_bits(0x0a00_0000 + 7 * n * n)).collect();
    let sources = addresses(sources);
    let program = |ranges_max| from_sources(false, &sources, ranges_max);
    let fails = |code| Err(io::Error::from_raw_os_error(code));
    for most in [5_000, 1_100, 300, 9] {
        let mut lengths = Vec::new();
        let result = attach(program, |program| {
            lengths.push(program.len());
            if program.len() > most { fails(libc::ENOMEM) } else { Ok(()) }
        });
        assert!(result.is_ok() && lengths.is_sorted_by(|a, b| a > b), "{lengths:?}");
        assert!(lengths.iter().all(|length| (*length <= most) == (lengths.last() == Some(length))), "{lengths:?}");
    }
    for code in [libc::ENOMEM, libc::EPERM] {
        let mut tries = 0;
        let refused = attach(program, |_| {
            tries += 1;
            fails(code)
        });
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(code));
        assert_eq!(tries, if code == libc::ENOMEM { 10 } else { 1 }, "512 ranges to one");
    }
}

#[test]
fn a_program_is_of_the_sources_of_one_family_in_whatever_order() {
    let of = |over_ipv6, sources: &[&str]| {
        let sources: Vec<IpAddr> = sources.iter().map(|source| source.parse().unwrap()).collect();
        instructions(over_ipv6, &sources, 512)
    };
    let both = ["10.0.0.9", "fd00::2", "::ffff:10.0.0.1", "fd00::1"];
    assert_eq!(of(false, &both), of(false, &["10.0.0.1", "10.0.0.9"]));
    assert_eq!(of(true, &both), of(true, &["fd00::1", "fd00::2"]));
    assert_ne!(of(true, &both), of(true, &["fd00::1"]));
}

#[test]
fn a_packet_that_is_too_short_is_dropped_and_without_members_all_are() {
    let one = program_v4(&BTreeSet::from([Ipv4Addr::new(10, 0, 0, 1)]), 9);
    assert!(!passes(&one, &[0; 15]));
    assert!(!passes_v4(&program_v4(&BTreeSet::new(), 9), Ipv4Addr::LOCALHOST));
    assert!(!passes_v6(&program_v6(&BTreeSet::new(), 9), Ipv6Addr::LOCALHOST));
}

/// Sends a datagram from `source`, and one from `member`. Asserts whether the first passes.
///
/// A datagram that should pass is waited for, so it does not matter when the kernel delivers it.
fn assert_passes(socket: &UdpSocket, source: IpAddr, member: IpAddr, expected: bool) {
    let to = socket.local_addr().unwrap();
    for (from, text) in [(source, b"asked"), (member, b"after")] {
        let sender = UdpSocket::bind(SocketAddr::new(from, 0)).unwrap();
        assert_eq!(sender.send_to(text, to).unwrap(), 5);
    }
    let read = |_| {
        let mut bytes = [0; 5];
        assert_eq!(socket.recv_from(&mut bytes).expect("a datagram of a member").0, 5);
        bytes
    };
    let arrived: BTreeSet<_> = (0..if expected { 2 } else { 1 }).map(read).collect();
    let wanted = if expected { BTreeSet::from([*b"asked", *b"after"]) } else { BTreeSet::from([*b"after"]) };
    assert_eq!(arrived, wanted, "{source}");
}

fn socket(at: &str) -> UdpSocket {
    let socket = UdpSocket::bind(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    socket
}

#[test]
fn the_kernel_lets_members_pass_and_drops_others() {
    let address = |last| Ipv4Addr::new(127, 0, 0, last);
    let socket = socket("127.0.0.1:0");
    let check = |last, member, expected| {
        assert_passes(&socket, address(last).into(), address(member).into(), expected);
    };
    check(3, 2, true);
    SockRef::from(&socket).attach_filter(&from_sources(false, &addresses([2, 4, 5, 6].map(address)), 512)).unwrap();
    for last in 1..8 {
        check(last, 2, [2, 4, 5, 6].contains(&last));
    }
    // The filter is replaced when members change.
    SockRef::from(&socket).attach_filter(&from_sources(false, &addresses([3].map(address)), 512)).unwrap();
    for last in 2..5 {
        check(last, 3, last == 3);
    }
}

#[test]
fn the_kernel_lets_one_source_port_pass() {
    let socket = socket("127.0.0.1:0");
    let [right, wrong] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let stranger = UdpSocket::bind(("127.0.0.2", right.local_addr().unwrap().port())).unwrap();
    let members = from_sources(false, &["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()], 9);
    let program = from_port(right.local_addr().unwrap().port(), members);
    SockRef::from(&socket).attach_filter(&program).unwrap();
    for (from, text) in [(&wrong, b"wrong"), (&stranger, b"other"), (&right, b"right")] {
        from.send_to(text, socket.local_addr().unwrap()).unwrap();
    }
    let mut bytes = [0; 5];
    socket.recv(&mut bytes).unwrap();
    assert_eq!(&bytes, b"right");
}

#[test]
fn the_kernel_filters_ipv6() {
    let socket = socket("[::1]:0");
    let one = Ipv6Addr::LOCALHOST;
    let many = |own: bool| (0..4_u16).map(|n| Ipv6Addr::new(0xfd00, n, 0, 0, 0, 0, 0, n)).chain(own.then_some(one));
    SockRef::from(&socket).attach_filter(&from_sources(true, &addresses(many(true)), 512)).unwrap();
    assert_passes(&socket, one.into(), one.into(), true);
    SockRef::from(&socket).attach_filter(&from_sources(true, &addresses(many(false)), 512)).unwrap();
    UdpSocket::bind("[::1]:0").unwrap().send_to(b"asked", socket.local_addr().unwrap()).unwrap();
    // Loopback has only one address of IPv6, so no other datagram can follow. The kernel usually
    // delivers during the call.
    socket.set_nonblocking(true).unwrap();
    assert_eq!(socket.recv_from(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn the_kernel_accepts_the_largest_programs() {
    let (four, six) = (socket("127.0.0.1:0"), socket("[::1]:0"));
    let mut random = Random(4);
    for ranges_max in [512, 512, 64, 1] {
        let sources: BTreeSet<Ipv4Addr> = (0..5_000)
            .map(|_| Ipv4Addr::from_bits(0xc0a8_0000 | low(random.next()) & 0xffff))
            .chain([Ipv4Addr::LOCALHOST])
            .collect();
        SockRef::from(&four).attach_filter(&from_sources(false, &addresses(sources), ranges_max)).unwrap();
        assert_passes(&four, Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into(), true);
        let sources: BTreeSet<Ipv6Addr> = (0..5_000)
            .map(|_| Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(random.next()) << 44 | u128::from(random.next())))
            .chain([Ipv6Addr::LOCALHOST])
            .collect();
        SockRef::from(&six).attach_filter(&from_sources(true, &addresses(sources), ranges_max)).unwrap();
        assert_passes(&six, Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into(), true);
    }
}
