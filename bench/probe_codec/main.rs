//! The cost of encoding a probe and decoding its reply, without the system calls, in nanoseconds of
//! each round.
//!
//! `cargo run --release -p kube-canary-bench --bin probe_codec`

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use kube_canary::peers::SlotId;
use kube_canary::prober::icmp::{Decoded, EchoFormat};
use kube_canary::prober::{Label, ProbeKey, SocketKind};

/// The probes of one round, and the number of rounds.
const PROBES: u32 = 1_000_000;
const ROUNDS: usize = 9;

fn nanoseconds(key: &ProbeKey, format: &EchoFormat, peer: IpAddr, reply: u8) -> f64 {
    let mut message = vec![0; format.message_bytes()];
    let start = Instant::now();
    for index in 0..PROBES {
        #[expect(clippy::cast_possible_truncation, reason = "a sequence number wraps")]
        let label = Label { number: u64::from(index), slot: SlotId(index % 24), sequence: index as u16 };
        format.encode(key, black_box(label), peer, SocketKind::Datagram, &mut message);
        message[0] = reply;
        assert_eq!(format.decode(key, peer, black_box(&message), SocketKind::Datagram), Decoded::Reply(label));
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(PROBES)
}

fn main() {
    let key = ProbeKey::random();
    let format = EchoFormat::new(key.session(), 56);
    let peers: [(IpAddr, u8); 2] =
        [(Ipv4Addr::new(10, 0, 0, 2).into(), 0), (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(), 129)];
    for (peer, reply) in peers {
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| nanoseconds(&key, &format, peer, reply)).collect();
        rounds.sort_by(f64::total_cmp);
        println!("{peer}: {:.1} ns per probe (least of {ROUNDS} rounds; median {:.1})", rounds[0], rounds[ROUNDS / 2]);
    }
}
