//! The same test over the real sockets, to peers on loopback. It covers the system calls, the timer
//! and the runtime's waiting.

use kube_canary::discovery::Readiness;
use kube_canary::peers::{Directory, Method};
use kube_canary::prober::icmp::IcmpSockets;
use kube_canary::prober::{Clock, Icmp, MonotonicClock, Pacer, Prober, Settings, Stamp};
use kube_canary::statistics::{Scale, Statistics};
use kube_canary::units::Nanos;

use super::counting::{Asked, watch};
use super::leaks::NoLeaks;
use super::{apply, list, wait_once};

const PEERS: u8 = 200;
const INTERVAL: Nanos = Nanos::from_millis(100);
const TIMEOUT: Nanos = Nanos::from_millis(1_000);

struct Agent {
    prober: Prober<Icmp<IcmpSockets>, MonotonicClock>,
    statistics: Statistics,
    pacer: Pacer,
}

impl Agent {
    /// Runs until there are `answers` answers in all, for at most a minute.
    /// Returns whether there are.
    async fn live(&mut self, answers: u64) -> bool {
        let end = MonotonicClock.now().plus(Nanos::from_millis(60_000));
        let mut now = MonotonicClock.now();
        while now < end {
            self.statistics.tick(now);
            let drained = self.prober.turn(&mut |observation| self.statistics.record(Method::Icmp, observation));
            if Stamp::ALL.iter().map(|s| self.statistics.stamps(*s)).sum::<u64>() >= answers {
                return true;
            }
            now = MonotonicClock.now();
            let latest = if drained { end } else { now };
            self.pacer.wait(&mut self.prober, latest).await.expect("the timer is set");
        }
        false
    }
}

#[test]
fn probes_over_real_sockets_allocate_nothing() {
    let _no_leaks = NoLeaks::here();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let settings = Settings {
        interval: INTERVAL,
        timeout: TIMEOUT,
        node: "self".into(),
        doubts: false,
        new_peer_silence: Nanos(0),
        replies_wait: Nanos::from_millis(250),
    };
    let mut agent = runtime.block_on(async {
        // If no user may use ICMP here, `icmp` has moved this process to a namespace that permits
        // it. There is no other way.
        let sockets = IcmpSockets::open(56, &MonotonicClock).expect("ICMP sockets");
        Agent {
            prober: Icmp::prober(sockets, MonotonicClock, &settings, 56),
            statistics: Statistics::new(Scale::default(), INTERVAL),
            pacer: Pacer::new().expect("a timer"),
        }
    });
    let peers = (0..PEERS).map(|i| (usize::from(i), [127, 3, 0, i + 1].into(), Readiness::Ready));
    let mut directory = Directory::default();
    apply(list(peers), &mut directory, &agent.statistics, &mut agent.prober, MonotonicClock.now());
    assert!(runtime.block_on(agent.live(u64::from(PEERS) * 3)), "nothing answers");
    wait_once(&runtime);
    let (answered, asked) = watch(|| runtime.block_on(agent.live(u64::from(PEERS) * 23)));
    assert!(answered, "too few answers");
    assert_eq!(asked, Asked::default());
}
