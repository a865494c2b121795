use super::*;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Runs a program as the kernel does. The packet is the header of the network layer.
fn accepts(program: &[Instruction], header: &[u8]) -> bool {
    let (mut a, mut memory, mut at) = (0, [0; 16], 0);
    loop {
        let Instruction { code, if_true, if_false, value } = program[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { if_true } else { if_false });
        match code {
            LOAD => {
                let offset = usize::try_from(value.checked_sub(NETWORK_HEADER).unwrap()).unwrap();
                a = u32::from_be_bytes(header[offset..offset + 4].try_into().unwrap());
            }
            RECALL => a = memory[value as usize],
            STORE => memory[value as usize] = a,
            JUMP => at += value as usize,
            JUMP_EQUAL => at += jump(a == value),
            JUMP_GREATER => at += jump(a > value),
            JUMP_GREATER_OR_EQUAL => at += jump(a >= value),
            RETURN => return value != 0,
            _ => panic!("{code:#x}"),
        }
    }
}

fn header(source: IpAddr) -> Vec<u8> {
    let mut header = vec![0xee; 40];
    match source {
        IpAddr::V4(v4) => header[12..16].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => header[8..24].copy_from_slice(&v6.octets()),
    }
    header
}

/// A generator of numbers that are the same in every run.
fn numbers() -> impl FnMut() -> u32 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state >> 32).unwrap()
    }
}

fn made(members: &BTreeSet<IpAddr>, plan: (usize, usize)) -> Option<Vec<Instruction>> {
    let over_ipv6 = members.first().is_some_and(IpAddr::is_ipv6);
    let mut members: Vec<Words> = members.iter().map(|ip| words(*ip)).collect();
    members.sort_unstable();
    program(&members, plan.0, plan.1, over_ipv6)
}

fn v4s(count: usize, spread: u32) -> BTreeSet<IpAddr> {
    let mut next = numbers();
    let mut members = BTreeSet::new();
    while members.len() < count {
        members.insert(Ipv4Addr::from_bits(0x0a00_0000 | (next() % spread)).into());
    }
    members
}

/// Pods: a prefix of their cluster, a /64 of their node, and a few low bits.
fn v6s(count: usize) -> BTreeSet<IpAddr> {
    let mut next = numbers();
    let mut members = BTreeSet::new();
    while members.len() < count {
        let (node, pod) = (u128::from(next() % 4_000), u128::from(next() % 250));
        members.insert(Ipv6Addr::from_bits(0xfd00_1234_u128 << 96 | node << 64 | pod).into());
    }
    members
}

#[test]
fn an_exact_program_accepts_the_members_and_no_other_address() {
    for (count, spread) in [(0, 1), (1, 1 << 24), (24, 1 << 16), (300, 400), (512, 1 << 20), (1_200, 1 << 24)] {
        let members = v4s(count, spread);
        let program = made(&members, (1, usize::MAX)).unwrap();
        let mut next = numbers();
        let near = members.iter().flat_map(|ip| {
            let IpAddr::V4(v4) = ip else { unreachable!() };
            [-1, 0, 1].map(|by| Ipv4Addr::from_bits(v4.to_bits().wrapping_add_signed(by)))
        });
        for ip in near.chain((0..5_000).map(|_| Ipv4Addr::from_bits(next()))) {
            assert_eq!(accepts(&program, &header(ip.into())), members.contains(&ip.into()), "{count}: {ip}");
        }
    }
    for count in [1, 2, 24, 100, 300] {
        let members = v6s(count);
        let program = made(&members, (4, usize::MAX)).unwrap();
        for ip in &members {
            let IpAddr::V6(v6) = ip else { unreachable!() };
            for bit in (0..128).map(|bit| v6.to_bits() ^ 1 << bit).chain([v6.to_bits()]) {
                let ip = IpAddr::from(Ipv6Addr::from_bits(bit));
                assert_eq!(accepts(&program, &header(ip)), members.contains(&ip), "{count}: {ip}");
            }
        }
    }
}

#[test]
fn a_coarser_program_is_shorter_and_accepts_every_member() {
    let members = v4s(5_000, 1 << 22);
    assert_eq!(made(&members, PLANS_V4[0]), None, "longer than the kernel allows");
    for (plan, longest) in [(PLANS_V4[1], 1_100), (PLANS_V4[2], 300)] {
        let program = made(&members, plan).unwrap();
        assert!(program.len() <= longest, "{}", program.len());
        assert!(members.iter().all(|ip| accepts(&program, &header(*ip))));
        for outside in [Ipv4Addr::new(9, 255, 255, 255), Ipv4Addr::new(11, 0, 0, 0)] {
            assert!(!accepts(&program, &header(outside.into())));
        }
    }
    let members = v6s(2_000);
    assert_eq!(made(&members, PLANS_V6[0]), None, "longer than the kernel allows");
    let nodes = made(&members, PLANS_V6[2]).unwrap();
    assert!(members.iter().all(|ip| accepts(&nodes, &header(*ip))));
    let elsewhere = Ipv6Addr::from_bits(0xfd00_1234_u128 << 96 | 5_000 << 64 | 1);
    assert!(!accepts(&nodes, &header(elsewhere.into())), "another node");
}

#[test]
fn the_smallest_gaps_are_joined_first_and_only_as_many_as_needed() {
    let values = [1, 2, 3, 10, 12, 14, 40, 100];
    let of = |most| ranges(values.into_iter(), most);
    assert_eq!(of(9), [(1, 3), (10, 10), (12, 12), (14, 14), (40, 40), (100, 100)]);
    assert_eq!(of(5), [(1, 3), (10, 12), (14, 14), (40, 40), (100, 100)]);
    assert_eq!(of(2), [(1, 40), (100, 100)]);
    assert_eq!(of(1), [(1, 100)]);
    assert_eq!(ranges([7, 7, u32::MAX, u32::MAX].into_iter(), 5), [(7, 7), (u32::MAX, u32::MAX)]);
}

#[test]
fn a_program_that_is_refused_is_followed_by_a_coarser_one() {
    let members: Vec<IpAddr> = v6s(200).into_iter().collect();
    let mut lengths = Vec::new();
    let most_of = |most: usize, lengths: &mut Vec<usize>| {
        attach(&members, true, |program| {
            lengths.push(program.len());
            if program.len() <= most { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOMEM)) }
        })
    };
    assert!(most_of(500, &mut lengths).is_ok());
    assert!(lengths.len() > 1 && lengths.is_sorted_by(|a, b| a > b), "{lengths:?}");
    assert_eq!(most_of(0, &mut lengths).unwrap_err().raw_os_error(), Some(libc::ENOMEM));
}
