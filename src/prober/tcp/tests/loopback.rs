//! Real sockets on the loopback, where the kernel answers within microseconds.

use std::io::{self, Read};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::*;
use crate::prober::MonotonicClock;

const fn host(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

/// A prober on real sockets, which probes this address on this port.
fn prober(sockets: Sockets, to: IpAddr, port: u16) -> Prober<Sockets, MonotonicClock> {
    let settings = Settings { port, timeout: Nanos::from_millis(100), wait: Nanos(0), ..settings() };
    let mut prober = Prober::new(sockets, MonotonicClock, &settings);
    prober.apply(Change::Join { slot: SlotId(0) });
    prober.apply(probe(0, to, false));
    prober
}

/// Does turns until the first handshake has ended. Returns what was reported.
fn first(prober: &mut Prober<Sockets, MonotonicClock>) -> Vec<Reported> {
    let mut reports = Reports::default();
    let start = Instant::now();
    while reports.0.is_empty() || prober.awaits_any() {
        prober.turn(&mut reports);
        std::thread::sleep(Duration::from_millis(1));
        assert!(start.elapsed() < Duration::from_mins(1), "{reports:?}");
    }
    reports.take()
}

fn rtt(reports: &[Reported]) -> Nanos {
    match reports {
        [Reported::Event(_, Event::Sent), Reported::Event(_, Event::Received { rtt, stamp: Stamp::Kernel, .. })] => {
            *rtt
        }
        other => panic!("{other:?}"),
    }
}

fn port_of(sockets: &Sockets) -> u16 {
    sockets.addresses().next().unwrap().port()
}

#[test]
fn a_handshake_with_our_own_listener_has_the_kernels_time() {
    for address in [host(71), Ipv6Addr::LOCALHOST.into()] {
        let Ok(sockets) = Sockets::listen((address, 0).into()) else {
            assert!(address.is_ipv6(), "a host without IPv6");
            continue;
        };
        let port = port_of(&sockets);
        let mut prober = prober(sockets, address, port);
        let rtt = rtt(&first(&mut prober));
        assert!((1_000..100_000_000).contains(&rtt.0) && rtt.0.is_multiple_of(1_000), "{rtt:?}");
        assert!(prober.turn(&mut Reports::default()), "nothing waits to be accepted");
    }
}

/// The other end has reset or closed the connection before the prober looks.
#[test]
fn a_connection_that_the_other_end_has_closed_was_done() {
    for reset in [false, true] {
        let listener = TcpListener::bind((host(72), 0)).unwrap();
        let mut prober = prober(Sockets::without_listener(), host(72), listener.local_addr().unwrap().port());
        let mut reports = Reports::default();
        prober.turn(&mut reports);
        let (accepted, _) = listener.accept().unwrap();
        if reset {
            socket2::SockRef::from(&accepted).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(accepted);
        let mut all = reports.take();
        all.extend(first(&mut prober));
        assert!(rtt(&all).0 >= 1_000);
    }
}

#[test]
fn a_port_without_listener_is_refused_and_an_address_without_route_is_not_probed() {
    let unused = TcpListener::bind((host(73), 0)).unwrap().local_addr().unwrap().port();
    let mut to_nobody = prober(Sockets::without_listener(), host(73), unused);
    let lost = [event(0, Event::Sent), event(0, Event::Lost), Reported::Refused(SlotId(0))];
    assert_eq!(first(&mut to_nobody), lost);
    // A broadcast address is no destination of TCP.
    let mut nowhere = prober(Sockets::without_listener(), Ipv4Addr::BROADCAST.into(), unused);
    let reports = first(&mut nowhere);
    assert!(matches!(reports[..], [Reported::Event(SlotId(0), Event::NotSent(_))]), "{reports:?}");
}

/// A full backlog drops SYNs, as a network does.
#[test]
fn silence_is_lost_and_its_connection_makes_room() {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::new(host(74), 0).into()).unwrap();
    listener.listen(0).unwrap();
    let port = listener.local_addr().unwrap().as_socket().unwrap().port();
    let _fills = TcpStream::connect((host(74), port)).unwrap();
    let mut prober = prober(Sockets::without_listener(), host(74), port);
    assert_eq!(first(&mut prober), [event(0, Event::Sent), event(0, Event::Lost)]);
    assert_eq!(prober.wire().at(Place(0)).map(|_| ()), Some(()), "kept to see whether it is late");
    prober.apply(Change::Join { slot: SlotId(0) });
    assert!(prober.wire().at(Place(0)).is_none());
}

#[test]
fn neither_end_keeps_a_connection_after_it() {
    let sockets = Sockets::listen((host(75), 0).into()).unwrap();
    let port = port_of(&sockets);
    let mut prober = prober(sockets, host(75), port);
    rtt(&first(&mut prober));
    // A foreign client, which the listener closes.
    let mut client = TcpStream::connect((host(75), port)).unwrap();
    prober.turn(&mut Reports::default());
    let reset = client.read(&mut [0; 1]).unwrap_err();
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    drop(client);
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let hex = format!("4B00007F:{port:04X}");
    let left: Vec<&str> = table.lines().filter(|line| line.contains(&hex)).collect();
    assert_eq!(left.len(), 1, "only the listener: {left:?}");
}

/// Whether the kernel lets this user filter what arrives at a TCP socket. Linux 6.18 refuses it to
/// users without privilege.
fn may_filter() -> bool {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let program = crate::prober::stamp::filter::of_family(false, &[], 1);
    match socket.attach_filter(&program) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            false
        }
    }
}

#[test]
fn connections_are_accepted_from_members_alone_up_to_a_number_per_turn() {
    use crate::limits::TCP_ACCEPTS_MAX;
    let mut sockets = Sockets::listen((host(76), 0).into()).unwrap();
    let port = port_of(&sockets);
    let connect = |from: IpAddr| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
        let to = SocketAddr::new(host(76), port).into();
        socket.connect_timeout(&to, Duration::from_millis(300)).map(|()| socket)
    };
    assert!(connect(host(78)).is_ok(), "before the members are known");
    sockets.admit(&mut [host(77), Ipv6Addr::LOCALHOST.into()].into_iter());
    if !may_filter() {
        // A stranger is accepted and closed, within the rate of all.
        assert!(connect(host(78)).is_ok());
        return;
    }
    assert_eq!(connect(host(78)).unwrap_err().kind(), io::ErrorKind::TimedOut);
    let waiting: Vec<socket2::Socket> = (0..TCP_ACCEPTS_MAX).map(|_| connect(host(77)).unwrap()).collect();
    let mut accept = |most| sockets.read(most, &mut |_, _| panic!("no handshake of ours"));
    // The one from before is among them.
    assert_eq!([accept(TCP_ACCEPTS_MAX), accept(0), accept(TCP_ACCEPTS_MAX)], [TCP_ACCEPTS_MAX, 0, 1]);
    assert!(waiting.iter().all(|socket| socket.take_error().unwrap().is_some()), "all were reset");
    sockets.admit(&mut (0..=255).map(host));
    assert!(connect(host(78)).is_ok());
    sockets.admit(&mut std::iter::empty());
    assert!(connect(host(77)).is_err());
}

/// More members than one exact program can name, set again as lists change.
#[test]
fn the_kernel_takes_the_filter_of_a_mesh_of_5000_nodes() {
    let over = |address: IpAddr, strange: IpAddr, members: Vec<IpAddr>| {
        let Ok(mut sockets) = Sockets::listen((address, 0).into()) else {
            assert!(address.is_ipv6(), "a host without IPv6");
            return;
        };
        let port = port_of(&sockets);
        let connect = |from: IpAddr| {
            let socket =
                socket2::Socket::new(socket2::Domain::for_address((from, 0).into()), socket2::Type::STREAM, None);
            let socket = socket.unwrap();
            socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
            socket.connect_timeout(&SocketAddr::new(address, port).into(), Duration::from_millis(300))
        };
        for _ in 0..3 {
            sockets.admit(&mut members.iter().copied());
            assert!(connect(address).is_ok());
        }
        if strange != address {
            assert_eq!(connect(strange).is_err(), may_filter());
        }
        sockets.admit(&mut members.into_iter().filter(|member| *member != address));
        assert_eq!(connect(address).is_err(), may_filter());
    };
    let spread =
        (0..5_000_u32).map(|n| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 | n.wrapping_mul(2_654_435_761) >> 8)));
    over(host(81), host(82), spread.chain([host(81)]).collect());
    let v6 = |n: u128| IpAddr::from(Ipv6Addr::from_bits(0xfd00_1234 << 96 | n << 64 | (n * 7 % 250)));
    let here = IpAddr::from(Ipv6Addr::LOCALHOST);
    for nodes in [100, 500, 5_000] {
        over(here, here, (0..nodes).map(v6).chain([here]).collect());
    }
}

/// A full backlog drops SYNs. It has room again once the kernel has repeated one.
#[test]
fn a_handshake_whose_syn_was_repeated_says_so() {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::new(host(83), 0).into()).unwrap();
    listener.listen(0).unwrap();
    let to = listener.local_addr().unwrap().as_socket().unwrap();
    let _fills = TcpStream::connect(to).unwrap();
    let mut sockets = Sockets::without_listener();
    assert_eq!(sockets.connect(Place(0), to), Ok(Begun::InFlight));
    let repeated = |sockets: &Sockets| calls::info(sockets.at(Place(0)).unwrap().as_fd()).unwrap().retransmissions;
    while repeated(&sockets) == 0 {
        sockets.read(64, &mut |_, outcome| panic!("{outcome:?}"));
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(listener.accept().unwrap());
    let mut outcomes = Vec::new();
    while outcomes.is_empty() {
        sockets.read(64, &mut |_, outcome| outcomes.push(outcome));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(matches!(outcomes[..], [Outcome::Done { retransmissions: 2.., .. }]), "{outcomes:?}");
}

#[test]
fn the_ipv6_wildcard_is_both_families_on_one_port() {
    let sockets = Sockets::listen((Ipv6Addr::UNSPECIFIED, 0).into()).unwrap();
    let addresses: Vec<SocketAddr> = sockets.addresses().collect();
    assert!(addresses[0].is_ipv4() && addresses.iter().all(|address| address.port() == addresses[0].port()));
    assert!(TcpStream::connect((host(79), addresses[0].port())).is_ok());
    let refused = Sockets::listen(addresses[0]).unwrap_err();
    assert_eq!(refused.error.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn a_listener_says_that_it_had_no_more_room() {
    let mut sockets = Sockets::listen((host(81), 0).into()).unwrap();
    let to = sockets.addresses().next().unwrap();
    // One that is reset by its source stays in the queue until it is accepted.
    drop(TcpStream::connect(to).unwrap());
    while sockets.read(64, &mut |_, _| {}) == 0 {}
    assert!(!sockets.overran(), "one is no flood");
    let is_full = |sockets: &Sockets| sockets.listeners[0].as_ref().unwrap().is_full();
    while !is_full(&sockets) {
        drop(TcpStream::connect(to).unwrap());
    }
    while sockets.read(64, &mut |_, _| {}) > 0 {}
    assert!(sockets.overran() && !sockets.overran());
}

#[test]
fn all_places_are_used_and_freed_again() {
    let mut sockets = Sockets::listen((host(80), 0).into()).unwrap();
    let to = sockets.addresses().next().unwrap();
    for place in (0..64).map(Place) {
        assert_eq!(sockets.connect(place, to), Ok(Begun::InFlight));
    }
    assert_eq!(sockets.end, 64);
    sockets.close(Place(63));
    sockets.close(Place(20));
    assert_eq!(sockets.end, 63);
    let mut done = Vec::new();
    while done.len() < 62 {
        sockets.read(64, &mut |place, outcome| {
            assert!(matches!(outcome, Outcome::Done { retransmissions: 0, .. }));
            done.push(place.0);
        });
    }
    assert!(sockets.end == 0 && done.iter().all(|place| !matches!(place, 20 | 63)), "{done:?}");
    assert_eq!(sockets.connect(Place(64), to), Err(SendError::TableFull));
}
