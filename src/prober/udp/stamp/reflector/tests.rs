use super::*;
use crate::prober::udp::stamp::packet::{PADDING_BYTES, REQUEST_BYTES, write_request};
use crate::prober::udp::stamp::{ErrorEstimate, NtpTime, StampReply};
use crate::splitmix::Random;

const PORT: u16 = 8_080;
const SECOND: u64 = 1_000_000_000;
const START: Nanos = Nanos(1_000 * SECOND);
const MEMBER: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 40_000);

fn reflector(members: impl Iterator<Item = IpAddr>) -> Reflector {
    let mut reflector = Reflector::new(PORT, START);
    assert!(reflector.set_members(members));
    reflector
}

fn one_member() -> Reflector {
    reflector([MEMBER.ip()].into_iter())
}

fn reflection() -> Reflection {
    let at = NtpTime::from_unix(Nanos(1_795_467_890 * SECOND));
    Reflection { received_at: at, reflected_at: at, error: ErrorEstimate::UNKNOWN, ttl: 64, node: 7 }
}

fn request(ssid: u16) -> [u8; REQUEST_BYTES] {
    let mut out = [0; REQUEST_BYTES];
    write_request(&mut out, 1, ssid, NtpTime::default(), ErrorEstimate::UNKNOWN, &[7; PADDING_BYTES]);
    out
}

/// Returns the count in the answer to a request with this SSID.
fn ask(reflector: &mut Reflector, from: SocketAddr, ssid: u16, now: Nanos) -> Result<u32, Refused> {
    let mut out = [0; STAMP_ANSWER_BYTES_MAX];
    let bytes = reflector.answer(from, &request(ssid), &reflection(), now, &mut out)?;
    let reply = StampReply::read(&out[..bytes]).expect("an answer");
    assert_eq!((bytes, reply.ssid, reply.padding), (REQUEST_BYTES, ssid, Some(&[7; PADDING_BYTES])));
    Ok(reply.count)
}

fn second(n: u64) -> Nanos {
    START.plus(Nanos(n * SECOND))
}

#[test]
fn answers_count_from_zero_per_session_whatever_the_source_port() {
    let mut reflector = one_member();
    for (n, port) in (0..40).zip((40_000..40_016).cycle()) {
        let from = SocketAddr::new(MEMBER.ip(), port);
        assert_eq!(ask(&mut reflector, from, 5, second(n)), Ok(u32::try_from(n).unwrap()));
    }
    assert_eq!(ask(&mut reflector, MEMBER, 6, second(40)), Ok(0), "another process of the member");
    assert_eq!(ask(&mut reflector, MEMBER, 5, second(40)), Ok(40));
    assert_eq!(reflector.answered(), 42);
}

#[test]
fn the_count_wraps_after_32_bits() {
    let mut reflector = one_member();
    assert_eq!(ask(&mut reflector, MEMBER, 5, START), Ok(0));
    reflector.members.entry(MEMBER.ip()).unwrap().answers[1] = u32::MAX;
    assert_eq!(ask(&mut reflector, MEMBER, 5, START), Ok(u32::MAX));
    assert_eq!(ask(&mut reflector, MEMBER, 5, START), Ok(0));
}

#[test]
fn a_pair_of_sessions_keeps_its_place_until_it_is_idle_and_others_share_a_count() {
    let mut reflector = one_member();
    let mut ask = |ssid, at| ask(&mut reflector, MEMBER, ssid, second(at)).unwrap();
    assert_eq!([ask(2, 0), ask(3, 0), ask(4, 0), ask(2, 5)], [0, 0, 0, 1], "3 has the place of 2, and its own count");
    // 8 and 10 have no place. A sender without RFC 8972 has the SSID 0, which is one as any other.
    assert_eq!([ask(8, 9), ask(10, 9), ask(0, 9), ask(8, 9)], [0, 1, 2, 3]);
    // 4 is idle for more than 10 s, and 2 is not.
    assert_eq!([ask(8, 11), ask(2, 11), ask(3, 11), ask(8, 11)], [0, 2, 1, 1]);
    assert_eq!(ask(4, 11), 4, "it has no place any more");
    assert_eq!([ask(4, 40), ask(5, 40), ask(4, 41)], [0, 0, 1]);
}

#[test]
fn a_place_is_kept_for_four_intervals() {
    let mut reflector = one_member().for_interval(Nanos(60 * SECOND));
    for (ssid, at, count) in [(2, 0, 0), (4, 230, 0), (6, 235, 0), (2, 238, 1), (6, 471, 0), (2, 471, 2)] {
        assert_eq!(ask(&mut reflector, MEMBER, ssid, second(at)), Ok(count), "{ssid} at {at}");
    }
}

/// Asks as an agent that probes at the shortest interval, for ten seconds, among forged requests of
/// its address with any other SSIDs. Returns how many of its requests and of the others are
/// answered.
fn among_forged(reflector: &mut Reflector, forged_per_second: u64) -> [u64; 2] {
    let mut random = Random(7);
    let mut answered = [0; 2];
    for tick in 0..10 * forged_per_second {
        let now = START.plus(Nanos(tick * SECOND / forged_per_second));
        let ssid = u16::try_from(random.next() % 0xfffe).unwrap();
        let forged = if ssid >= 0x1234 { ssid + 2 } else { ssid };
        if tick % (forged_per_second / 100) == 0 {
            answered[0] += u64::from(ask(reflector, MEMBER, 0x1234, now).is_ok());
        }
        answered[1] += u64::from(ask(reflector, MEMBER, forged, now).is_ok());
    }
    answered
}

#[test]
fn forged_requests_of_a_member_take_nothing_of_its_own() {
    let mut reflector = one_member();
    let [own, forged] = among_forged(&mut reflector, 100_000);
    assert_eq!(own, 1_000, "all");
    // No more than the other place and all shares are granted, whatever is forged.
    let granted = (1 + STAMP_SHARES as u64) * (STAMP_BURST_MAX + 10 * STAMP_RATE_MAX);
    assert!((STAMP_RATE_MAX..=granted + 1).contains(&forged), "{forged}");
    // The count of its session is that of its own requests.
    assert_eq!(ask(&mut reflector, MEMBER, 0x1234, second(10)), Ok(1_000));
}

/// As after a restart: the forged requests are there before those of the member.
#[test]
fn forged_requests_that_hold_the_places_of_a_member_take_nothing_of_its_own() {
    let mut reflector = one_member();
    for ssid in [2, 4] {
        assert!(ask(&mut reflector, MEMBER, ssid, START).is_ok());
    }
    assert_eq!(among_forged(&mut reflector, 10_000), [1_000, 100_000], "all are within the shares");
}

#[test]
fn places_that_were_taken_by_forged_requests_do_not_lock_a_member_out() {
    let mut reflector = one_member();
    for n in 0..100 {
        for ssid in [2, 4] {
            assert!(ask(&mut reflector, MEMBER, ssid, second(n)).is_ok());
        }
        for _ in 0..100 {
            assert!(ask(&mut reflector, MEMBER, 0x1234, second(n)).is_ok(), "{n}");
        }
    }
}

#[test]
fn a_flood_of_one_pair_without_a_place_is_answered_at_the_rate_of_a_place() {
    let mut reflector = one_member();
    let keep = |reflector: &mut Reflector, now| [2, 4].map(|ssid| ask(reflector, MEMBER, ssid, now).is_ok());
    let mut answered = 0;
    for tick in 0..100_000_u64 {
        let now = START.plus(Nanos(tick * SECOND / 10_000));
        if tick.is_multiple_of(10_000) {
            assert_eq!(keep(&mut reflector, now), [true; 2]);
        }
        answered += u64::from(ask(&mut reflector, MEMBER, 0x1234, now).is_ok());
    }
    assert!(answered.abs_diff(STAMP_BURST_MAX + 10 * STAMP_RATE_MAX) <= 1, "{answered}");
}

#[test]
fn strangers_get_nothing_and_leave_nothing() {
    let mut reflector = one_member();
    let resident = reflector.resident_bytes();
    for n in 0..100_u8 {
        let from = SocketAddr::from(([10, 0, 1, n], 40_000));
        assert_eq!(ask(&mut reflector, from, 1, START), Err(Refused::NotAMember));
        let mut out = [0; STAMP_ANSWER_BYTES_MAX];
        let short = reflector.answer(from, &[], &reflection(), START, &mut out);
        assert_eq!(short, Err(Refused::NotAMember));
    }
    let refusals = Refusals { not_a_member: 200, ..Refusals::default() };
    assert_eq!((reflector.refusals(), reflector.answered(), reflector.resident_bytes()), (refusals, 0, resident));
}

#[test]
fn what_is_no_request_is_refused_and_takes_nothing_of_the_member() {
    let mut reflector = one_member();
    let mut out = [0; STAMP_ANSWER_BYTES_MAX];
    let (mut refused, resident) = (0, reflector.resident_bytes());
    for bytes in (0..BASE_BYTES).cycle().take(2_000) {
        let result = reflector.answer(MEMBER, &vec![0; bytes], &reflection(), START, &mut out);
        assert_eq!(result, Err(Refused::Malformed));
        refused += 1;
    }
    for port in [0, PORT] {
        let from = SocketAddr::new(MEMBER.ip(), port);
        assert_eq!(ask(&mut reflector, from, 1, START), Err(Refused::Malformed), "port {port}");
        refused += 1;
    }
    assert_eq!(reflector.refusals(), Refusals { malformed: refused, ..Refusals::default() });
    assert_eq!(reflector.resident_bytes(), resident);
    assert_eq!(ask(&mut reflector, MEMBER, 1, START), Ok(0));
}

#[test]
fn a_member_that_asks_at_the_shortest_interval_is_always_answered() {
    let mut reflector = one_member();
    // A queue of a second is read at once every ten seconds.
    for (count, tick) in (0..6_000_u64).enumerate() {
        let asked = Nanos(tick * SECOND / 100);
        let read =
            if asked.0 % (10 * SECOND) < SECOND { asked.0 / (10 * SECOND) * 10 * SECOND + SECOND } else { asked.0 };
        assert_eq!(
            ask(&mut reflector, MEMBER, 1, START.plus(Nanos(read))),
            Ok(u32::try_from(count).unwrap()),
            "{tick}"
        );
    }
}

#[test]
fn a_flood_of_one_member_is_answered_at_the_granted_rate_and_takes_nothing_of_others() {
    let other = SocketAddr::from(([10, 0, 0, 2], 40_000));
    let mut reflector = reflector([MEMBER.ip(), other.ip()].into_iter());
    let (mut answered, mut refused) = (0_u64, 0_u64);
    for tick in 0..100_000_u64 {
        let now = START.plus(Nanos(tick * SECOND / 10_000));
        match ask(&mut reflector, MEMBER, 1, now) {
            Ok(_) => answered += 1,
            Err(reason) => {
                assert_eq!(reason, Refused::TooOften);
                refused += 1;
            }
        }
        if tick % 100 == 0 {
            assert_eq!(ask(&mut reflector, other, 1, now), Ok(u32::try_from(tick / 100).unwrap()));
        }
    }
    let granted = STAMP_BURST_MAX + 10 * STAMP_RATE_MAX;
    assert!(answered.abs_diff(granted) <= 1, "{answered} of {granted}");
    assert_eq!(reflector.refusals(), Refusals { too_often: refused, ..Refusals::default() });
    assert_eq!(reflector.answered(), answered + 1_000);
    // After a second of silence all is granted again, and never more.
    let later = second(11);
    let burst = (0..1_000).filter(|_| ask(&mut reflector, MEMBER, 1, later).is_ok()).count();
    assert_eq!(u64::try_from(burst).unwrap(), STAMP_BURST_MAX);
}

#[test]
fn the_requests_of_the_last_minute_are_counted_per_member() {
    let mut reflector = one_member();
    for n in 0..600 {
        let now = second(n);
        ask(&mut reflector, MEMBER, 1, now).unwrap();
        let halves = if n < 30 { n } else { 30 + n % 30 };
        assert_eq!(u64::from(reflector.heard(MEMBER.ip(), now)), halves + 1, "{n}: one at each second of the halves");
    }
    let mut heard = |n| reflector.heard(MEMBER.ip(), second(n));
    assert_eq!([heard(600), heard(629), heard(630), heard(10_000)], [30, 30, 0, 0]);
    assert_eq!(reflector.heard("10.0.0.9".parse().unwrap(), second(1)), 0);
}

#[test]
fn what_is_heard_covers_the_halves_of_the_recent_window() {
    let mut reflector = one_member();
    // Halves of 20 s that begin at 7 s.
    for n in 0..300 {
        let now = second(n);
        reflector.set_halves(second(7), Nanos(20 * SECOND));
        ask(&mut reflector, MEMBER, 1, now).unwrap();
        if n >= 47 {
            assert_eq!(u64::from(reflector.heard(MEMBER.ip(), now)), 20 + (n - 7) % 20 + 1, "{n}");
        }
    }
    reflector.set_halves(second(7), Nanos(0));
    assert!(reflector.heard(MEMBER.ip(), second(300)) <= 1, "no half is without length");
}

#[test]
fn a_member_that_stays_keeps_its_session_and_one_that_left_gets_no_answer() {
    let other = IpAddr::from([10, 0, 0, 2]);
    let mut reflector = reflector([MEMBER.ip(), other].into_iter());
    assert_eq!(ask(&mut reflector, MEMBER, 1, START), Ok(0));
    assert!(reflector.set_members([[9, 9, 9, 9].into(), MEMBER.ip()].into_iter()));
    assert_eq!(ask(&mut reflector, MEMBER, 1, START), Ok(1));
    assert_eq!(ask(&mut reflector, SocketAddr::new(other, 1), 1, START), Err(Refused::NotAMember));
    assert!(reflector.set_members([other].into_iter()));
    assert_eq!(ask(&mut reflector, MEMBER, 1, START), Err(Refused::NotAMember));
}

#[test]
fn every_member_of_the_largest_mesh_may_ask_within_64_bytes_each() {
    let members = || (0..5_000_u16).map(|n| IpAddr::from([10, 1, n.to_be_bytes()[0], n.to_be_bytes()[1]]));
    let mut reflector = reflector(members());
    let listed = reflector.resident_bytes();
    assert!(listed <= 6 * 5_000 + 2 * 4_096, "{listed}");
    for member in members() {
        assert_eq!(ask(&mut reflector, SocketAddr::new(member, 40_000), 3, START), Ok(0));
    }
    let watched = reflector.resident_bytes() - listed;
    assert!(watched <= 64 * 5_000 + 4_096, "{watched}");
}

#[test]
fn no_bytes_make_it_panic_and_no_answer_is_longer_than_its_request() {
    let mut random = Random(18);
    let mut reflector = one_member();
    let mut answered = 0;
    for round in 0..20_000_u64 {
        let len = usize::try_from(random.next() % if round % 8 == 0 { 9_001 } else { 300 }).unwrap();
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| random.next().to_le_bytes()).flatten().take(len).collect();
        // Half of the inputs have TLVs that are nearly right.
        for at in (BASE_BYTES..len).step_by(8).take_while(|_| round % 2 == 0) {
            let tlv = [0x80, (random.next() % 3).to_le_bytes()[0], 0, (random.next() % 6).to_le_bytes()[0]];
            bytes[at..].iter_mut().zip(tlv).for_each(|(byte, with)| *byte = with);
        }
        let mut out = [0; STAMP_ANSWER_BYTES_MAX];
        let result = reflector.answer(MEMBER, &bytes, &reflection(), second(round), &mut out);
        assert_eq!(result.is_ok(), len >= BASE_BYTES, "{len}");
        if let Ok(length) = result {
            assert!(length <= len && length >= BASE_BYTES, "{length} for {len}");
            let reply = StampReply::read(&out[..length]).expect("an answer");
            assert_eq!(reply.sender_sequence.to_be_bytes(), bytes[..4]);
            answered += 1;
        }
        let _ = StampReply::read(&bytes).map(|reply| reply.dwell());
    }
    assert!(answered > 10_000, "{answered}");
}

#[test]
fn packets_that_are_longer_than_probes_are_answered_and_not_heard() {
    let mut reflector = one_member();
    let mut out = [0; STAMP_ANSWER_BYTES_MAX];
    for (bytes, heard) in [(REQUEST_BYTES, 1), (REQUEST_BYTES + 1, 1), (264, 1), (BASE_BYTES, 2)] {
        let result = reflector.answer(MEMBER, &vec![0; bytes], &reflection(), START, &mut out);
        assert!(result.is_ok_and(|length| length <= bytes), "{bytes}");
        assert_eq!(reflector.heard(MEMBER.ip(), START), heard, "{bytes}");
    }
}
