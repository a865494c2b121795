//! The same over the real sockets, to peers on loopback: the system calls, the timer and the runtime's waiting with them.

use kube_canary::discovery::Readiness;
use kube_canary::peers::Directory;
use kube_canary::prober::socket::Sockets;
use kube_canary::prober::{Clock, MonotonicClock, Prober, Settings, Timer};
use kube_canary::statistics::{Bounds, Statistics};
use kube_canary::units::Nanos;

use super::counting::{Asked, watch};
use super::{apply, list};

const PEERS: u8 = 200;

struct Agent {
    prober: Prober<Sockets, MonotonicClock>,
    statistics: Statistics,
    timer: Timer,
}

impl Agent {
    /// Until every peer has answered so often, but at most for `span`. Returns whether they have.
    async fn live(&mut self, answers: u64, span: Nanos) -> bool {
        let end = MonotonicClock.now().plus(span);
        let mut now = MonotonicClock.now();
        while now < end {
            self.statistics.tick(now);
            let drained = self.prober.turn(&mut &self.statistics);
            if kube_canary::prober::Stamp::ALL.iter().map(|s| self.statistics.stamps(*s)).sum::<u64>() >= answers {
                return true;
            }
            now = MonotonicClock.now();
            let due = if drained { self.prober.next_turn().unwrap_or(end) } else { now };
            self.timer.set(due.min(end)).expect("the timer is set");
            tokio::select! {
                () = self.timer.fired() => {}
                () = self.prober.wire().readable() => {}
            }
        }
        false
    }
}

#[test]
fn probes_over_real_sockets_allocate_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        // Where ICMP is permitted to nobody, `icmp` has moved us to where it is; no further way out.
        let sockets = Sockets::open(56).expect("ICMP sockets");
        let (interval, timeout) = (Nanos::from_millis(100), Nanos::from_millis(1_000));
        let settings = Settings { interval, timeout, payload_bytes: 56, node: "self".into() };
        let mut agent = Agent {
            prober: Prober::new(sockets, MonotonicClock, &settings),
            statistics: Statistics::new(Bounds::default(), interval),
            timer: Timer::new().expect("a timer"),
        };
        let peers = (0..PEERS).map(|i| (usize::from(i), [127, 3, 0, i + 1].into(), Readiness::Ready));
        let mut directory = Directory::default();
        apply(list(peers), &mut directory, &agent.statistics, &mut agent.prober, MonotonicClock.now());
        // Its own state is made when the runtime first waits.
        let span = Nanos::from_millis(60_000);
        assert!(agent.live(1, span).await, "nobody answers");

        // Taken apart by hand: what is watched spans waiting.
        let (answered, asked) = watch_while(agent.live(u64::from(PEERS) * 20, span)).await;
        assert!(answered, "too few answers within a minute");
        assert_eq!(asked, Asked::default());
    });
}

/// As [`watch`], of a future on this thread, over all of its polls and nothing between them but the runtime's own waiting.
async fn watch_while<T>(future: impl Future<Output = T>) -> (T, Asked) {
    let mut future = std::pin::pin!(future);
    let mut sum = Asked::default();
    let done = std::future::poll_fn(|cx| {
        let (poll, asked) = watch(|| future.as_mut().poll(cx));
        sum.allocations += asked.allocations;
        sum.frees += asked.frees;
        sum.bytes += asked.bytes;
        poll
    })
    .await;
    (done, sum)
}
