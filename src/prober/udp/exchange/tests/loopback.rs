//! The real sockets on loopback: an agent that probes itself.

use std::time::{Duration, Instant};

use super::*;
use crate::prober::udp::UdpSockets;
use crate::prober::{MonotonicClock, Sources};
use crate::report::Stranger;

#[test]
fn an_agent_measures_itself_with_the_kernels_stamps_at_both_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let sockets = UdpSockets::open("127.0.0.1:0".parse().unwrap(), &Sources::default(), 4, &MonotonicClock).unwrap();
    let settings = Settings {
        interval: Nanos(20 * MS),
        timeout: Nanos(60_000 * MS),
        node: "self".into(),
        doubts: false,
        new_peer_silence: Nanos(0),
        replies_wait: Nanos(250 * MS),
    };
    let port = sockets.reflector_port();
    let mut prober = Udp::prober(sockets, MonotonicClock, &settings, (port, 4));
    let here = IpAddr::from(Ipv4Addr::LOCALHOST);
    prober.apply(Change::Join { slot: slot(0) });
    let (zone, network, terminating) = (ZoneId::UNKNOWN, Network::Pod, false);
    prober.apply(Change::Probe { slot: slot(0), address: here, zone, network, terminating });
    prober.set_members(&[here]);
    // A stranger on the same host has a queue of its own.
    let stranger = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
    stranger.send_to(&[0; 72], (Ipv4Addr::LOCALHOST, port)).unwrap();
    let (mut log, end) = (Log::default(), Instant::now() + Duration::from_mins(1));
    let of_kernel = |log: &Log| log.received().iter().filter(|(_, stamp)| *stamp == Stamp::Kernel).count();
    // The kernel starts to stamp a moment after it is asked to.
    while of_kernel(&log) < 40 {
        assert!(Instant::now() < end, "{log:?}");
        prober.turn(&mut |observation| log.observe(observation));
        std::thread::yield_now();
    }
    let lost = |event: &Event| matches!(event, Event::Lost | Event::NotSent(_) | Event::Duplicate);
    assert_eq!((log.count(slot(0), lost), log.unrelated), (0, 0));
    assert!(log.hops.iter().all(|hops| *hops == 1), "a time to live of 64");
    let flows: Vec<u8> = log.flows.iter().filter(|(.., answered)| *answered).map(|(_, flow, _)| *flow).collect();
    assert!((0..4).all(|flow| flows.contains(&flow)), "{flows:?}");
    assert!(prober.reflecting().reflector.answered() >= 40);
    assert_eq!((prober.reflecting().reflector.refusals().not_a_member, prober.wire_ref().drops()), (1, Some(0)));
    let strangers: Vec<Stranger> = prober.reflecting().reflector.strangers(MonotonicClock.now()).collect();
    assert_eq!(strangers, [Stranger { address: [127, 0, 0, 2].into(), ssid: 0, requests: 1 }]);
}
