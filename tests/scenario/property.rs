//! Thousands of small random scripts, each checked against the oracle.

use kube_canary::prober::{SendError, SocketKind};
use kube_canary::statistics::PeerReading;
use kube_canary::units::Nanos;

use super::clock::HOUR;
use super::oracle::{Place, expected};
use super::random::Random;
use super::wire::{Damage, Fate, Probe};
use super::world::{MS, Plan, World, ip};

const SCRIPTS: u64 = 3_000;
const PEERS: [(&str, &str); 3] = [("a", "10.0.0.2"), ("b", "10.0.0.3"), ("six", "fd00::2")];

fn fate(random: &mut Random, timeout: Nanos) -> Fate {
    if random.chance(8) {
        return Fate::Refused(SendError::ALL[usize::try_from(random.below(10)).unwrap()]);
    }
    let timeout_us = timeout.0 / 1_000;
    let mut fate = Fate::lost();
    for _ in 0..[0, 1, 1, 1, 1, 2, 3][usize::try_from(random.below(7)).unwrap()] {
        let us = match random.below(6) {
            0 => timeout_us + 1 + random.below(150_000),
            1 => timeout_us,
            2 | 3 => 1 + random.below(timeout_us),
            _ => 1 + random.below(300),
        };
        fate = match random.below(20) {
            0 => fate.damaged(us, Damage::PayloadBit(usize::try_from(random.below(400)).unwrap())),
            1 => fate.damaged(us, Damage::Sequence),
            2 => fate.damaged(us, Damage::Truncated(usize::try_from(1 + random.below(30)).unwrap())),
            3 => fate.damaged(us, Damage::ForeignCookie),
            _ => fate.and(us),
        };
    }
    fate
}

/// Runs the script of `seed` and returns the counters that differ from the oracle's.
fn differences(seed: u64) -> Vec<String> {
    let mut random = Random(seed);
    let kind = |random: &mut Random| if random.chance(50) { SocketKind::Raw } else { SocketKind::Datagram };
    let plan = Plan {
        interval: Nanos(100 * MS),
        timeout: Nanos((20 + random.below(330)) * MS),
        payload_bytes: [24, 56, 300][usize::try_from(random.below(3)).unwrap()],
        kinds: [kind(&mut random), kind(&mut random)],
        ..Plan::default()
    };
    let mut world = World::new(plan, &PEERS);
    let start = world.now();
    for (_, address) in PEERS {
        let mut of_link = Random(random.next());
        world
            .wire()
            .script(ip(address), move |n| if n < 10 { fate(&mut of_link, plan.timeout) } else { Fate::reply(7) });
    }
    for _ in 0..10 {
        match random.below(4) {
            // At least two turns follow, so that no packet that is about to be read was stamped by
            // another clock.
            0 => world.wire().step_clock(if random.chance(50) { HOUR } else { -HOUR }),
            1 => {
                world.stand_still(Nanos(random.below(700 * MS)));
                world.turn();
            }
            _ => {}
        }
        world.run(Nanos(random.below(120 * MS)));
    }
    for (_, address) in PEERS {
        world.run_until_tried(ip(address), 10);
    }
    world.settle();
    let mut differences = Vec::new();
    for (node, address) in PEERS {
        let log: Vec<Probe> = world.wire().log(ip(address)).to_vec();
        let probes: Vec<_> = log.iter().map(|probe| (ip(address), probe)).collect();
        let place = Place { since: start, address: Some(ip(address)), terminating: false };
        let (expected, got) = (expected(&[place], &probes, plan.timeout), world.read(node));
        if (PeerReading { created: got.created, ..expected }) != got {
            differences.push(format!("seed {seed}, {node}, {plan:?}: expected {expected:?}, got {got:?}"));
        }
    }
    differences
}

#[test]
fn whatever_the_script_the_counters_are_the_oracles() {
    for seed in 0..SCRIPTS {
        let differences = differences(seed);
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}
