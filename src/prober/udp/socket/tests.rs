use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use super::*;
use crate::prober::{Datagram, MonotonicClock, Refusal, Unreachable};
use crate::units::Nanos;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn open(listen: &str) -> UdpSockets {
    UdpSockets::open(listen.parse().unwrap(), &Sources::default(), 4, &MonotonicClock).unwrap()
}

/// A delivery, without borrows.
#[derive(Debug)]
enum Seen {
    Departure(u8, Vec<u8>, Nanos),
    Arrival(u8, SocketAddr, Option<u8>, Vec<u8>, Nanos),
    Request(SocketAddr, Option<IpAddr>, Option<u8>, Vec<u8>, usize, Nanos),
    Answered(Vec<u8>),
    Refused(u8, SocketAddr, Option<IpAddr>, Refusal, Vec<u8>),
}

/// The time of a kernel's timestamp. Fails without one.
fn stamp(moment: Moment) -> Nanos {
    let (at, stamped) = moment.arrival(Nanos(0), false);
    assert!(stamped, "{moment:?}");
    at
}

fn seen(delivery: Delivery<'_>) -> Seen {
    match delivery {
        Delivery::Departure(flow, bytes, moment) => Seen::Departure(flow.0, bytes.to_vec(), stamp(moment)),
        Delivery::Arrival(flow, datagram) => {
            let Datagram { from, ttl, bytes, moment, .. } = datagram;
            Seen::Arrival(flow.0, from, ttl, bytes.to_vec(), stamp(moment))
        }
        Delivery::Refused { flow, to, offender, refusal, bytes, .. } => {
            Seen::Refused(flow.0, to, offender, refusal, bytes.to_vec())
        }
    }
}

fn reflected(delivery: Reflected<'_>) -> Seen {
    match delivery {
        Reflected::Request(Datagram { from, to, ttl, bytes, length, moment }) => {
            Seen::Request(from, to, ttl, bytes.to_vec(), length, stamp(moment))
        }
        Reflected::Answered(bytes, _) => Seen::Answered(bytes.to_vec()),
    }
}

/// Reads until a delivery is wanted, which the kernel may make in a thread of its own.
fn read_until(wire: &mut UdpSockets, wanted: impl Fn(&Seen) -> bool) -> Vec<Seen> {
    let end = Instant::now() + Duration::from_mins(1);
    let mut all = Vec::new();
    while !all.iter().any(&wanted) {
        assert!(Instant::now() < end, "{all:?}");
        wire.receive(&MonotonicClock, &mut |delivery| all.push(seen(delivery)));
        wire.requests(&MonotonicClock, &mut |delivery| all.push(reflected(delivery)));
        std::thread::yield_now();
    }
    all
}

fn send(wire: &mut UdpSockets, packet: Outgoing<'_>) -> Result<(), SendError> {
    let mut result = None;
    wire.send(&[packet], &mut |index, sent| assert!(index == 0 && result.replace(sent).is_none()));
    result.unwrap()
}

/// The kernel starts to stamp a moment after it is asked to. Sends until it does.
fn warm_up(wire: &mut UdpSockets) {
    let to = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = to.local_addr().unwrap();
    for flow in 0..4 {
        let end = Instant::now() + Duration::from_mins(1);
        let mut stamped = false;
        while !stamped {
            assert!(Instant::now() < end);
            send(wire, Outgoing { to, flow: Flow(flow), ttl: None, bytes: b"warm" }).ok();
            wire.receive(&MonotonicClock, &mut |delivery| {
                if let Delivery::Departure(_, _, moment) = delivery {
                    stamped |= moment.departure(Nanos(0)).is_some_and(|(_, stamped)| stamped);
                }
            });
        }
    }
}

fn round_trip(listen: &str, to: IpAddr) {
    let runtime = runtime();
    let _guard = runtime.enter();
    let (mut near, mut far) = (open("[::]:0"), open(listen));
    warm_up(&mut near);
    let to = SocketAddr::new(to, far.reflector_port());
    let request = [7_u8; 300];
    send(&mut near, Outgoing { to, flow: Flow(2), ttl: Some(33), bytes: &request }).unwrap();
    let arrived = read_until(&mut far, |seen| matches!(seen, Seen::Request(..)));
    let [Seen::Request(from, local, ttl, bytes, length, t2)] = &arrived[..] else { panic!("{arrived:?}") };
    assert_eq!(Some(from.port()), near.source_port(Flow(2), to.is_ipv6()));
    assert_eq!((*local, *ttl, *length), (Some(to.ip()), Some(33), 300));
    assert_eq!(bytes[..], request[..DATAGRAM_BYTES], "cut at the buffer, and the length is known");

    far.answer(&[Answer { to: *from, from: *local, bytes: b"the answer", stamped: true }]);
    let answered = read_until(&mut far, |seen| matches!(seen, Seen::Answered(..)));
    assert!(matches!(&answered[..], [Seen::Answered(bytes)] if bytes.ends_with(b"the answer")), "{answered:?}");
    let mut both = read_until(&mut near, |seen| matches!(seen, Seen::Arrival(..)));
    let (Some(Seen::Arrival(2, source, ttl, bytes, t4)), Some(Seen::Departure(2, departed, t1)), None) =
        (both.pop(), both.pop(), both.pop())
    else {
        panic!("the departure comes first")
    };
    assert_eq!((source, ttl, &bytes[..]), (to, Some(64), &b"the answer"[..]));
    assert!(departed.windows(8).any(|part| part == &request[..8]), "behind its headers");
    assert!(t1 <= *t2 && *t2 <= t4, "{t1:?}, {t2:?}, {t4:?}");
}

#[test]
fn requests_and_answers_have_stamps_ttl_and_addresses_at_both_ends() {
    round_trip("127.0.0.1:0", Ipv4Addr::LOCALHOST.into());
    // A reflector for all addresses answers from the one that was asked, and not from the one that
    // the routing table prefers.
    round_trip("0.0.0.0:0", Ipv4Addr::new(127, 9, 9, 9).into());
    // What a host without IPv6 cannot run, the same lines run over IPv4.
    match UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => {
            round_trip("[::1]:0", Ipv6Addr::LOCALHOST.into());
            round_trip("[::]:0", Ipv6Addr::LOCALHOST.into());
        }
        Err(error) => eprintln!("NOT RUN over IPv6, which this host lacks: {error}"),
    }
    round_trip("[::]:0", Ipv4Addr::LOCALHOST.into());
}

#[test]
fn an_answer_is_stamped_only_if_it_asks_for_it() {
    let runtime = runtime();
    let _guard = runtime.enter();
    let mut wire = open("127.0.0.1:0");
    let end = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = end.local_addr().unwrap();
    for (bytes, stamped) in [(b"one", false), (b"two", true)] {
        wire.answer(&[Answer { to, from: None, bytes, stamped }]);
        end.recv(&mut [0; 8]).unwrap();
    }
    let all = read_until(&mut wire, |seen| matches!(seen, Seen::Answered(..)));
    assert!(matches!(&all[..], [Seen::Answered(bytes)] if bytes.ends_with(b"two")), "{all:?}");
}

#[test]
fn an_icmp_error_is_delivered_with_its_datagram_and_fails_no_later_one() {
    let runtime = runtime();
    let _guard = runtime.enter();
    let mut wire = open("127.0.0.1:0");
    warm_up(&mut wire);
    // Bound, so that no other socket gets the port, and connected elsewhere, so that it takes none.
    let elsewhere = UdpSocket::bind("127.0.0.1:0").unwrap();
    elsewhere.connect("127.0.0.9:9").unwrap();
    let closed = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), elsewhere.local_addr().unwrap().port());
    let open = UdpSocket::bind("127.0.0.1:0").unwrap();
    let packet = |to, bytes| Outgoing { to, flow: Flow(1), ttl: None, bytes };
    for _ in 0..3 {
        assert_eq!(send(&mut wire, packet(closed, b"to a closed port")), Ok(()));
        // On loopback, the error is there before the call returns. The next call fails for it once.
        let mut results = Vec::new();
        let two = [packet(open.local_addr().unwrap(), b"1"), packet(open.local_addr().unwrap(), b"2")];
        wire.send(&two, &mut |index, result| results.push((index, result)));
        assert_eq!(results, [(0, Ok(())), (1, Ok(()))]);
        let all = read_until(&mut wire, |seen| matches!(seen, Seen::Refused(..)));
        let refused: Vec<_> = all.iter().filter(|seen| matches!(seen, Seen::Refused(..))).collect();
        let [Seen::Refused(1, to, offender, Refusal::Unreachable(Unreachable::Port), bytes)] = &refused[..] else {
            panic!("{all:?}")
        };
        assert_eq!((*to, *offender, &bytes[..]), (closed, Some(Ipv4Addr::LOCALHOST.into()), &b"to a closed port"[..]));
        assert!(wire.receive(&MonotonicClock, &mut |delivery| panic!("{delivery:?}")), "nothing is left");
    }
}

#[test]
fn a_taken_port_is_an_error_that_names_the_flag() {
    let runtime = runtime();
    let _guard = runtime.enter();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = UdpSockets::open(taken.local_addr().unwrap(), &Sources::default(), 1, &MonotonicClock).unwrap_err();
    assert!(error.to_string().contains("--udp-port"), "{error}");
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), taken.local_addr().unwrap().port());
    let error = UdpSockets::open(any, &Sources::default(), 1, &MonotonicClock).unwrap_err();
    assert!(error.to_string().contains("--udp-port"), "{error}");
}

#[test]
fn what_arrives_wakes_the_thread_only_if_turns_are_rare() {
    let runtime = runtime();
    let mut wire = {
        let _guard = runtime.enter();
        open("127.0.0.1:0")
    };
    let (end, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), wire.reflector_port());
    let ask = |wire: &mut UdpSockets| {
        end.send_to(b"request", (Ipv4Addr::LOCALHOST, to)).unwrap();
        read_until(wire, |seen| matches!(seen, Seen::Request(..)));
    };
    let woken = |wire: &UdpSockets| {
        runtime.block_on(async { tokio::time::timeout(Duration::from_millis(100), wire.readable()).await.is_ok() })
    };
    {
        let _guard = runtime.enter();
        warm_up(&mut wire);
        ask(&mut wire);
    }
    for (frequent, _) in [(false, 0), (true, 0), (false, 1), (true, 1)] {
        let _guard = runtime.enter();
        wire.attend(frequent);
        wire.receive(&MonotonicClock, &mut |_| {});
        wire.requests(&MonotonicClock, &mut |_| {});
        while woken(&wire) {}
        end.send_to(b"request", (Ipv4Addr::LOCALHOST, to)).unwrap();
        assert_eq!(woken(&wire), !frequent, "frequent: {frequent}");
        read_until(&mut wire, |seen| matches!(seen, Seen::Request(..)));
    }
}

#[test]
fn a_flood_of_strangers_fills_no_queue_and_one_of_a_member_is_counted() {
    const FLOOD: u64 = 5_000;
    let runtime = runtime();
    let _guard = runtime.enter();
    let mut wire = open("127.0.0.1:0");
    let member = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = member.local_addr().unwrap().port();
    let stranger = UdpSocket::bind(("127.0.0.2", port)).unwrap();
    // Room for a few hundred packets, whatever the default of this host is.
    SockRef::from(&wire.senders[0][0].fd).set_recv_buffer_size(100 * 1_024).unwrap();
    wire.admit_answers(&[Ipv4Addr::LOCALHOST.into()], port);
    let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), wire.source_port(Flow(0), false).unwrap());
    let flood = |wire: &mut UdpSockets, from: &UdpSocket| {
        for _ in 0..FLOOD {
            from.send_to(b"flood", to).unwrap();
        }
        // After the flood, a member is heard.
        let end = Instant::now() + Duration::from_mins(1);
        let (mut arrived, mut last) = (0, false);
        while !last {
            assert!(Instant::now() < end);
            member.send_to(b"last", to).unwrap();
            wire.receive(&MonotonicClock, &mut |delivery| {
                let Delivery::Arrival(_, datagram) = delivery else { return };
                last |= datagram.bytes == b"last";
                arrived += u64::from(datagram.bytes == b"flood");
            });
        }
        (arrived, wire.drops().expect("Linux tells it since 4.12"))
    };
    assert_eq!(flood(&mut wire, &stranger), (0, 0));
    let (arrived, drops) = flood(&mut wire, &member);
    assert!(arrived < FLOOD && (1..=arrived + 1).contains(&drops), "{drops} beside {arrived}");
}

#[test]
fn a_reflector_says_that_its_queue_was_full_of_what_members_sent() {
    let runtime = runtime();
    let _guard = runtime.enter();
    let mut wire = open("127.0.0.1:0");
    let member = UdpSocket::bind("127.0.0.1:0").unwrap();
    let stranger = UdpSocket::bind("127.0.0.2:0").unwrap();
    SockRef::from(&wire.reflectors[0].as_ref().unwrap().fd).set_recv_buffer_size(100 * 1_024).unwrap();
    wire.admit(&[Ipv4Addr::LOCALHOST.into()]);
    let to = (Ipv4Addr::LOCALHOST, wire.reflector_port());
    for (from, overran) in [(&stranger, false), (&member, true), (&stranger, false)] {
        for _ in 0..5_000 {
            from.send_to(b"flood", to).unwrap();
        }
        // More than one batch, so that the queue is looked at.
        for _ in 0..2 * BATCH {
            member.send_to(b"last", to).unwrap();
        }
        let end = Instant::now() + Duration::from_mins(1);
        let mut last = false;
        while !last {
            assert!(Instant::now() < end);
            member.send_to(b"last", to).unwrap();
            wire.receive(&MonotonicClock, &mut |_| {});
            while !wire.requests(&MonotonicClock, &mut |delivery| {
                last |= matches!(delivery, Reflected::Request(datagram) if datagram.bytes == b"last");
            }) {}
        }
        assert_eq!((wire.overran(), wire.overran(), wire.drops()), (overran, false, Some(0)));
    }
}

#[test]
fn what_strangers_send_is_read_apart_once_a_second_and_up_to_a_number() {
    let runtime = runtime();
    let _guard = runtime.enter();
    let mut wire = open("127.0.0.1:0");
    let member = UdpSocket::bind("127.0.0.1:0").unwrap();
    let stranger = UdpSocket::bind("127.0.0.2:0").unwrap();
    wire.admit(&[Ipv4Addr::LOCALHOST.into()]);
    let to = (Ipv4Addr::LOCALHOST, wire.reflector_port());
    for _ in 0..1_000 {
        stranger.send_to(b"stranger", to).unwrap();
    }
    member.send_to(b"member", to).unwrap();
    let clock = Scripted(Cell::new(MonotonicClock.now().plus(Nanos(1))));
    let read = |wire: &mut UdpSockets| {
        let mut counts = [0, 0];
        requests(wire, &clock, |datagram| {
            let is_stranger = datagram.from.ip() == Ipv4Addr::new(127, 0, 0, 2);
            assert_eq!(datagram.bytes, if is_stranger { &b"stranger"[..] } else { b"member" });
            counts[usize::from(is_stranger)] += 1;
        });
        counts
    };
    let [members, strangers] = read(&mut wire);
    assert!(members == 1 && (1..=STAMP_STRANGERS_MAX).contains(&strangers), "{members} {strangers}");
    stranger.send_to(b"stranger", to).unwrap();
    assert_eq!(read(&mut wire), [0, 0], "not yet");
    clock.0.set(clock.0.get().plus(STAMP_STRANGERS_EVERY.into()));
    let [members, strangers] = read(&mut wire);
    assert!(members == 0 && (1..=STAMP_STRANGERS_MAX).contains(&strangers), "{members} {strangers}");
}

#[test]
fn requests_of_both_families_and_of_strangers_are_read_in_parts_that_can_be_answered() {
    /// More of each than half of what is answered at once.
    const EACH: usize = BATCH * 2 / 3;
    let runtime = runtime();
    let _guard = runtime.enter();
    let mut wire = open("[::]:0");
    let ends = ["127.0.0.1:0", "[::1]:0", "127.0.0.2:0"].map(|at| UdpSocket::bind(at).unwrap());
    wire.admit(&[Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    for end in &ends {
        let address = end.local_addr().unwrap();
        let to: IpAddr = if address.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        for _ in 0..EACH {
            end.send_to(b"request", (to, wire.reflector_port())).unwrap();
        }
    }
    let clock = Scripted(Cell::new(MonotonicClock.now().plus(Nanos(1))));
    let mut counts = [0; 3];
    requests(&mut wire, &clock, |datagram| {
        let of = ends.iter().position(|end| end.local_addr().unwrap() == datagram.from).unwrap();
        counts[of] += 1;
    });
    assert_eq!(counts, [EACH; 3]);
}

/// Reads all requests that there are. No call delivers more than can be answered at once.
fn requests(wire: &mut UdpSockets, clock: &Scripted, mut each: impl FnMut(&Datagram<'_>)) {
    wire.receive(clock, &mut |_| {});
    loop {
        let mut at_once = 0;
        let is_done = wire.requests(clock, &mut |delivery| {
            let Reflected::Request(datagram) = delivery else { return };
            at_once += 1;
            each(&datagram);
        });
        assert!(at_once <= BATCH, "{at_once}");
        if is_done {
            return;
        }
    }
}

/// A clock that stands still. The real-time clock is that of the kernel.
struct Scripted(Cell<Nanos>);

impl Clock for Scripted {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn realtime(&self) -> Nanos {
        MonotonicClock.realtime()
    }
}
