//! The same over the real sockets of UDP and TCP, to this process itself: it reflects and accepts,
//! too. It also covers traces and the search for the path MTU.

use std::net::{IpAddr, Ipv4Addr};

use kube_canary::peers::{Change, Method, Methods, Network, SlotId, ZoneId};
use kube_canary::prober::{Clock, MonotonicClock, Probers, Settings, Sources, tcp, udp};
use kube_canary::statistics::{Scale, Statistics};
use kube_canary::units::Nanos;

use super::counting::{Asked, watch};
use super::leaks::NoLeaks;
use super::wait_once;

/// So many that a handshake begins ten times a second.
const PEERS: u8 = 100;
const INTERVAL: Nanos = Nanos::from_millis(200);
/// No probe is lost because the machine is slow.
const TIMEOUT: Nanos = Nanos::from_millis(60_000);
const FLOWS: u8 = 4;

struct Agent {
    probers: Probers,
    statistics: Statistics,
}

impl Agent {
    fn open() -> Self {
        let any = (Ipv4Addr::UNSPECIFIED, 0).into();
        let sockets = udp::UdpSockets::open(any, &Sources::default(), FLOWS, &MonotonicClock).expect("UDP sockets");
        let port = sockets.reflector_port();
        let explorer = udp::Explorer::new(FLOWS, port, TIMEOUT, MonotonicClock.now());
        let settings = Settings {
            interval: INTERVAL,
            timeout: TIMEOUT,
            node: "self".to_owned(),
            doubts: false,
            new_peer_silence: Nanos(0),
            replies_wait: Nanos::from_millis(250),
        };
        let udp = udp::Udp::prober(sockets, MonotonicClock, &settings, (port, FLOWS));
        let sockets = tcp::TcpSockets::listen(any).expect("a TCP listener");
        let port = sockets.addresses().next().expect("an address").port();
        let handshakes = tcp::Handshakes { port, retries_lost: true, unsent_wait: tcp::UNSENT_WAIT };
        let tcp = tcp::Tcp::prober(sockets, MonotonicClock, &settings, handshakes);
        let probers =
            Probers::new(None, Some(Box::new(udp)), Some(Box::new(explorer)), Some(Box::new(tcp))).expect("a timer");
        let statistics =
            Statistics::for_methods(Scale::default(), INTERVAL, Methods::new([Method::Udp, Method::Tcp]), Methods::ALL);
        Self { probers, statistics }
    }

    fn join(&mut self) {
        self.probers.reserve(PEERS.into());
        for i in 0..PEERS {
            let (slot, address) = (SlotId(i.into()), IpAddr::from([127, 3, 0, i + 1]));
            let (zone, network, terminating) = (ZoneId::UNKNOWN, Network::Pod, false);
            for change in [Change::Join { slot }, Change::Probe { slot, address, zone, network, terminating }] {
                self.statistics.apply(change);
                self.probers.apply(change);
            }
        }
        // The source of what is sent to any of them.
        self.probers.set_members(&[Ipv4Addr::LOCALHOST.into()]);
    }

    fn answers(&self, method: Method) -> u64 {
        let of = self.statistics.method(method);
        (0..u32::from(PEERS)).filter_map(|slot| Some(of.slot(SlotId(slot))?.read().received)).sum()
    }

    /// Runs until there are this many answers by UDP and by TCP in all, for at most a minute.
    /// Returns whether there are.
    async fn live(&mut self, by_udp: u64, by_tcp: u64) -> bool {
        let end = MonotonicClock.now().plus(Nanos::from_millis(60_000));
        let mut now = MonotonicClock.now();
        while now < end {
            self.statistics.tick(now);
            let drained = self.probers.turn(&mut |method, observation| self.statistics.record(method, observation));
            self.probers.drops();
            if self.answers(Method::Udp) >= by_udp && self.answers(Method::Tcp) >= by_tcp {
                return true;
            }
            now = MonotonicClock.now();
            self.probers.wait(if drained { end } else { now }).await.expect("the timer is set");
        }
        false
    }
}

#[test]
fn probes_by_udp_and_tcp_allocate_nothing() {
    let _no_leaks = NoLeaks::here();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut agent = runtime.block_on(async { Agent::open() });
    agent.join();
    assert!(runtime.block_on(agent.live(u64::from(PEERS), 5)), "nothing answers");
    wait_once(&runtime);
    let (answered, asked) = watch(|| runtime.block_on(agent.live(u64::from(PEERS) * 10, 25)));
    assert!(answered, "too few answers");
    assert_eq!(asked, Asked::default());
}
