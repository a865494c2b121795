//! The probes of others.

use super::*;

const WATCHER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 50)), 41_000);

fn request(number: u32, ssid: u16) -> Vec<u8> {
    let mut bytes = vec![0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes[14..16].copy_from_slice(&ssid.to_be_bytes());
    bytes[44..48].copy_from_slice(&[0x80, 1, 0, 24]);
    bytes[48..].copy_from_slice(b"the identity of a probe!");
    bytes
}

fn time(bytes: &[u8]) -> u64 {
    let bits = u64::from_be_bytes(bytes.try_into().unwrap());
    let (seconds, fraction) = (bits >> 32, bits & 0xffff_ffff);
    (seconds - 2_208_988_800) * 1_000_000_000 + ((fraction * 1_000_000_000) >> 32)
}

#[test]
fn a_member_is_answered_at_the_next_turn_and_the_wait_is_in_the_answer() {
    let mut world = World::new(0, |_, _| AT_ONCE);
    world.prober.set_members(&[WATCHER.ip()]);
    // The first batches teach how long an answer takes to leave.
    for number in 0..400_u32 {
        let arrived = world.clock.now();
        world.wire().fly(arrived, Packet::Request { from: WATCHER, bytes: request(number, 7) });
        world.clock.advance(Nanos(240 * MS));
        world.turn();
        let (to, bytes, called) = world.wire().answers.pop().unwrap();
        assert_eq!((to, bytes.len()), (WATCHER, REQUEST_BYTES));
        assert_eq!(bytes[..4], number.to_be_bytes(), "the count of this session");
        assert_eq!((&bytes[24..28], bytes[40], &bytes[48..]), (&number.to_be_bytes()[..], 60, &request(0, 7)[48..]));
        let (t2, t3) = (time(&bytes[16..24]), time(&bytes[4..12]));
        let real = world.clock.realtime().0;
        assert!(t2.abs_diff(real - 240 * MS) <= 2, "{t2}");
        let left = real - world.clock.now().since(called).0 + world.wire().answer_takes.0;
        if number > 200 {
            assert!(t3.abs_diff(left) < 500, "{}", t3.abs_diff(left));
        }
    }
}

#[test]
fn a_batch_is_answered_by_place_and_strangers_get_nothing() {
    let mut world = World::new(0, |_, _| AT_ONCE);
    let members: Vec<IpAddr> = (0..20).map(peer).collect();
    world.prober.set_members(&members);
    for round in 0..200_u32 {
        let now = world.clock.now();
        for number in 0..30 {
            let from = SocketAddr::new(peer(number), 40_000);
            world.wire().fly(now, Packet::Request { from, bytes: request(round, 3) });
        }
        world.clock.advance(Nanos(100 * MS));
        world.turn();
        let answers = std::mem::take(&mut world.wire().answers);
        assert_eq!(answers.len(), 20);
        let real = world.clock.realtime().0;
        for (place, (to, bytes, _)) in (0..).zip(&answers) {
            assert!(members.contains(&to.ip()) && bytes[..4] == round.to_be_bytes());
            let left = real + world.wire().answer_takes.0 + place * 1_000;
            assert!(round < 180 || time(&bytes[4..12]).abs_diff(left) < 500);
        }
    }
    let refusals = world.prober.reflecting().reflector.refusals();
    assert_eq!((refusals.not_a_member, world.prober.reflecting().reflector.answered()), (2_000, 4_000));
}

#[test]
fn a_step_of_the_clock_during_the_wait_does_not_change_the_wait() {
    let mut world = World::new(0, |_, _| AT_ONCE);
    world.prober.set_members(&[WATCHER.ip()]);
    for step in [3_600_000_000_000, -7_200_000_000_000] {
        let now = world.clock.now();
        world.wire().fly(now, Packet::Request { from: WATCHER, bytes: request(1, 7) });
        world.clock.advance(Nanos(100 * MS));
        world.clock.step(step);
        world.turn();
        let (_, bytes, _) = world.wire().answers.pop().unwrap();
        let dwell = time(&bytes[4..12]) - time(&bytes[16..24]);
        assert!(dwell.abs_diff(100 * MS) < 100_000, "{dwell}");
    }
}

#[test]
fn a_finished_prober_still_answers() {
    let mut world = World::new(3, |_, _| AT_ONCE);
    world.prober.set_members(&[WATCHER.ip()]);
    world.run(Nanos(2 * SECOND.0));
    world.prober.finish();
    let sent = world.wire().log.len();
    let now = world.clock.now();
    world.wire().fly(now, Packet::Request { from: WATCHER, bytes: request(1, 7) });
    world.run(Nanos(2 * SECOND.0));
    assert_eq!((world.wire().log.len(), world.wire().answers.len()), (sent, 1));
    assert!(!world.prober.awaits_any());
}
