//! Real sockets on the loopback, where the kernel answers within microseconds.

use std::io::{self, Read};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use kube_canary_kernel::tcp_info;

use super::*;
use crate::prober::MonotonicClock;

const ALL: Accepts = Accepts { members: 64, strangers: 64 };

const fn host(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

/// A prober on real sockets, which probes this address on this port.
fn prober(sockets: TcpSockets, to: IpAddr, port: u16) -> Prober<Tcp<TcpSockets>, MonotonicClock> {
    let settings = Settings { timeout: Nanos::from_millis(100), replies_wait: Nanos(0), ..settings() };
    let mut prober = Tcp::prober(sockets, MonotonicClock, &settings, Handshakes { port, ..PLAIN });
    prober.apply(Change::Join { slot: SlotId(0) });
    prober.apply(probe(0, to, false));
    prober
}

/// Does turns until the first handshake has ended. Returns what was reported.
fn first(prober: &mut Prober<Tcp<TcpSockets>, MonotonicClock>) -> Vec<Observation> {
    let mut observed = Observed::default();
    let start = Instant::now();
    while observed.0.is_empty() || prober.awaits_any() {
        prober.turn(&mut |observation| observed.observe(observation));
        std::thread::sleep(Duration::from_millis(1));
        assert!(start.elapsed() < Duration::from_mins(1), "{observed:?}");
    }
    observed.take()
}

fn rtt(reports: &[Observation]) -> Nanos {
    match reports {
        [
            Observation::Probe { event: Event::Sent, .. },
            Observation::Probe { event: Event::Received { rtt, stamp: Stamp::Kernel, .. }, .. },
        ] => *rtt,
        other => panic!("{other:?}"),
    }
}

fn port_of(sockets: &TcpSockets) -> u16 {
    sockets.addresses().next().unwrap().port()
}

#[test]
fn a_handshake_with_our_own_listener_has_the_kernels_time() {
    for address in [host(71), Ipv6Addr::LOCALHOST.into()] {
        let Ok(sockets) = TcpSockets::listen((address, 0).into()) else {
            assert!(address.is_ipv6(), "a host without IPv6");
            continue;
        };
        let port = port_of(&sockets);
        let mut prober = prober(sockets, address, port);
        let rtt = rtt(&first(&mut prober));
        assert!((1_000..100_000_000).contains(&rtt.0) && rtt.0.is_multiple_of(1_000), "{rtt:?}");
        assert!(prober.turn(&mut |_| ()), "nothing waits to be accepted");
    }
}

/// The other end has reset or closed the connection before the prober looks.
#[test]
fn a_connection_that_the_other_end_has_closed_was_done() {
    for reset in [false, true] {
        let listener = TcpListener::bind((host(72), 0)).unwrap();
        let mut prober = prober(TcpSockets::without_listener(), host(72), listener.local_addr().unwrap().port());
        let mut observed = Observed::default();
        prober.turn(&mut |observation| observed.observe(observation));
        let (accepted, _) = listener.accept().unwrap();
        if reset {
            socket2::SockRef::from(&accepted).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(accepted);
        let mut all = observed.take();
        all.extend(first(&mut prober));
        assert!(rtt(&all).0 >= 1_000);
    }
}

#[test]
fn a_port_without_listener_is_refused_and_an_address_without_route_is_not_probed() {
    // Bound, so that no other socket gets the port, and not listening.
    let bound = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    bound.bind(&SocketAddr::new(host(73), 0).into()).unwrap();
    let unused = bound.local_addr().unwrap().as_socket().unwrap().port();
    let mut to_nobody = prober(TcpSockets::without_listener(), host(73), unused);
    let lost = [event(0, Event::Sent), event(0, Event::Lost), Observation::Refused(SlotId(0))];
    assert_eq!(first(&mut to_nobody), lost);
    // A broadcast address is no destination of TCP.
    let mut nowhere = prober(TcpSockets::without_listener(), Ipv4Addr::BROADCAST.into(), unused);
    let reports = first(&mut nowhere);
    assert!(
        matches!(reports[..], [Observation::Probe { slot: SlotId(0), event: Event::NotSent(_), .. }]),
        "{reports:?}"
    );
}

/// A full backlog drops SYNs, as a network does.
#[test]
fn silence_is_lost_and_its_connection_makes_room() {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::new(host(74), 0).into()).unwrap();
    listener.listen(0).unwrap();
    let port = listener.local_addr().unwrap().as_socket().unwrap().port();
    let _fills = TcpStream::connect((host(74), port)).unwrap();
    let mut prober = prober(TcpSockets::without_listener(), host(74), port);
    assert_eq!(first(&mut prober), [event(0, Event::Sent), event(0, Event::Lost)]);
    assert_eq!(prober.wire().at(Place(0)).map(|_| ()), Some(()), "kept to see whether it is late");
    prober.apply(Change::Join { slot: SlotId(0) });
    assert!(prober.wire().at(Place(0)).is_none());
}

#[test]
fn neither_end_keeps_a_connection_after_it() {
    let sockets = TcpSockets::listen((host(75), 0).into()).unwrap();
    let port = port_of(&sockets);
    let mut prober = prober(sockets, host(75), port);
    rtt(&first(&mut prober));
    // A foreign client, which the listener closes.
    let mut client = TcpStream::connect((host(75), port)).unwrap();
    prober.turn(&mut |_| ());
    let reset = client.read(&mut [0; 1]).unwrap_err();
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    drop(client);
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let hex = format!("4B00007F:{port:04X}");
    // 0A is the state of a listener.
    let is_listener = |line: &&str| line.split_whitespace().nth(3) == Some("0A");
    let (listeners, left): (Vec<&str>, Vec<&str>) =
        table.lines().filter(|line| line.contains(&hex)).partition(is_listener);
    assert_eq!((listeners.len(), left.len()), (2, 0), "only the listeners of members and strangers: {left:?}");
}

/// Connects from this address, which the kernel does within microseconds unless it drops the SYN.
fn connect(from: IpAddr, to: SocketAddr) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&to.into(), Duration::from_millis(300)).map(|()| socket)
}

fn waiting(sockets: &TcpSockets) -> [u32; 2] {
    sockets.listeners[0].as_ref().unwrap().waiting()
}

/// Accepts up to these numbers, and returns how many were of members.
fn accept(sockets: &mut TcpSockets, members: usize, strangers: usize) -> usize {
    sockets.read(Accepts { members, strangers }, &mut |_, _| panic!("no handshake of ours"))
}

fn is_reset(socket: &socket2::Socket) -> bool {
    socket.take_error().unwrap().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

#[test]
fn strangers_fill_a_queue_of_their_own_and_take_no_handshake_of_a_member() {
    use crate::limits::TCP_STRANGERS_MAX;
    let mut sockets = TcpSockets::listen((host(76), 0).into()).unwrap();
    let to = sockets.addresses().next().unwrap();
    let early = connect(host(78), to).unwrap();
    assert_eq!(waiting(&sockets), [1, 0], "all are members before these are known");
    sockets.admit(&[host(77), Ipv6Addr::LOCALHOST.into()]);
    let mut strangers = Vec::new();
    let dropped = loop {
        match connect(host(78), to) {
            Ok(stranger) => strangers.push(stranger),
            Err(error) => break error,
        }
    };
    assert_eq!(dropped.kind(), io::ErrorKind::TimedOut);
    // The kernel lets one more wait than it is asked for.
    assert_eq!((strangers.len(), waiting(&sockets)), (TCP_STRANGERS_MAX as usize + 1, [1, 65]));
    let members: Vec<socket2::Socket> = (0..100).map(|_| connect(host(77), to).unwrap()).collect();
    assert_eq!(accept(&mut sockets, 0, 0), 0);
    assert_eq!(accept(&mut sockets, 101, 0), 101);
    assert!(members.iter().chain([&early]).all(is_reset) && !strangers.iter().any(is_reset));
    assert_eq!(accept(&mut sockets, 0, 100), 0, "those of strangers are not counted");
    assert!(strangers.iter().all(is_reset));
    assert!(!sockets.overran(), "only the queue of strangers was full");
    sockets.admit(&(0..=255).map(host).collect::<Vec<_>>());
    assert!(connect(host(78), to).is_ok());
    assert_eq!(waiting(&sockets), [1, 0], "a stranger has become a member");
}

#[test]
fn one_listener_serves_all_where_the_kernel_does_not_choose() {
    let mut sockets = TcpSockets::listen((host(76), 0).into()).unwrap();
    let to = sockets.addresses().next().unwrap();
    sockets.listeners[0].as_mut().unwrap().serve_all();
    sockets.admit(&[host(77)]);
    let all: Vec<socket2::Socket> = [77, 78].into_iter().map(|from| connect(host(from), to).unwrap()).collect();
    assert_eq!(accept(&mut sockets, 64, 0), 2);
    assert!(all.iter().all(is_reset));
}

#[test]
fn a_second_agent_finds_the_port_taken() {
    let sockets = TcpSockets::listen((host(84), 0).into()).unwrap();
    let refused = TcpSockets::listen(sockets.addresses().next().unwrap()).unwrap_err();
    assert_eq!(refused.error.kind(), io::ErrorKind::AddrInUse);
}

/// More members than one exact program can name, set again as lists change.
#[test]
fn the_kernel_divides_members_and_strangers_in_a_mesh_of_5000_nodes() {
    let over = |address: IpAddr, strange: IpAddr, members: Vec<IpAddr>| {
        let Ok(mut sockets) = TcpSockets::listen((address, 0).into()) else {
            assert!(address.is_ipv6(), "a host without IPv6");
            return;
        };
        let to = sockets.addresses().next().unwrap();
        for count in 1..=3 {
            sockets.admit(&members);
            connect(address, to).unwrap();
            assert_eq!(waiting(&sockets), [count, 0]);
        }
        if strange != address {
            connect(strange, to).unwrap();
            assert_eq!(waiting(&sockets), [3, 1]);
            accept(&mut sockets, 0, 1);
        }
        sockets.admit(&members.into_iter().filter(|member| *member != address).collect::<Vec<_>>());
        connect(address, to).unwrap();
        assert_eq!(waiting(&sockets), [3, 1]);
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
    let mut sockets = TcpSockets::without_listener();
    assert_eq!(sockets.connect(Place(0), to), Ok(Begun::InFlight));
    let repeated =
        |sockets: &TcpSockets| tcp_info::read(sockets.at(Place(0)).unwrap().as_fd()).unwrap().retransmissions;
    while repeated(&sockets) == 0 {
        sockets.read(ALL, &mut |_, outcome| panic!("{outcome:?}"));
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(listener.accept().unwrap());
    let mut outcomes = Vec::new();
    while outcomes.is_empty() {
        sockets.read(ALL, &mut |_, outcome| outcomes.push(outcome));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(matches!(outcomes[..], [Handshake::Done { retransmissions: 2.., .. }]), "{outcomes:?}");
}

#[test]
fn the_ipv6_wildcard_is_both_families_on_one_port() {
    let sockets = TcpSockets::listen((Ipv6Addr::UNSPECIFIED, 0).into()).unwrap();
    let addresses: Vec<SocketAddr> = sockets.addresses().collect();
    assert!(addresses[0].is_ipv4() && addresses.iter().all(|address| address.port() == addresses[0].port()));
    assert!(TcpStream::connect((host(79), addresses[0].port())).is_ok());
    let refused = TcpSockets::listen(addresses[0]).unwrap_err();
    assert_eq!(refused.error.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn a_listener_says_that_it_had_no_more_room() {
    let mut sockets = TcpSockets::listen((host(81), 0).into()).unwrap();
    let to = sockets.addresses().next().unwrap();
    // One that is reset by its source stays in the queue until it is accepted.
    drop(TcpStream::connect(to).unwrap());
    while sockets.read(ALL, &mut |_, _| {}) == 0 {}
    assert!(!sockets.overran(), "one is no flood");
    let is_full = |sockets: &TcpSockets| sockets.listeners[0].as_ref().unwrap().is_full();
    while !is_full(&sockets) {
        drop(TcpStream::connect(to).unwrap());
    }
    while sockets.read(ALL, &mut |_, _| {}) > 0 {}
    assert!(sockets.overran() && !sockets.overran());
}

#[test]
fn all_places_are_used_and_freed_again() {
    let mut sockets = TcpSockets::listen((host(80), 0).into()).unwrap();
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
        sockets.read(ALL, &mut |place, outcome| {
            assert!(matches!(outcome, Handshake::Done { retransmissions: 0, .. }));
            done.push(place.0);
        });
    }
    assert!(sockets.end == 0 && done.iter().all(|place| !matches!(place, 20 | 63)), "{done:?}");
    assert_eq!(sockets.connect(Place(64), to), Err(SendError::TableFull));
}
