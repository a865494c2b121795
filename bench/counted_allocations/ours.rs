//! The agent's own stages over real sockets, wired as in `src/agent.rs`.

use std::sync::{Arc, RwLock};

use kube_canary::allocator;
use kube_canary::discovery::{PeerList, PeerSpec};
use kube_canary::exposition::{
    About, AgentMetrics, AgentMetricsConfig, Format, Health, HeardStrangers, MetricsBody, PeerTraces, SeriesSettings,
    View, Walks,
};
use kube_canary::http::{Render as _, ServerStats};
use kube_canary::limits::{FRAME_BYTES, MAX_SERIES_MAX};
use kube_canary::peers::{Directory, Method, OwnNode};
use kube_canary::prober::icmp::IcmpSockets;
use kube_canary::prober::{Clock as _, Icmp, MonotonicClock, Pacer, Prober, Settings};
use kube_canary::statistics::{Scale, Statistics};
use kube_canary::units::Nanos;

use super::counting::allocations;
use super::{Counted, ROUNDS, ROUNDS_BEFORE, address, interval};

struct Agent {
    prober: Prober<Icmp<IcmpSockets>, MonotonicClock>,
    pacer: Pacer,
    view: Arc<View>,
}

impl Agent {
    fn new(peers: u16, interval: Nanos, about: About) -> Self {
        let settings = Settings {
            interval,
            timeout: interval,
            node: "self".into(),
            doubts: false,
            new_peer_silence: Nanos(0),
            replies_wait: Nanos::from_millis(250),
        };
        let sockets = IcmpSockets::open(56, &MonotonicClock).expect("ICMP sockets");
        let mut prober = Icmp::prober(sockets, MonotonicClock, &settings, 56);
        let statistics = Statistics::new(Scale::default(), interval);
        let mut directory = Directory::default();
        let spec = |peer| PeerSpec {
            zone: Some(format!("zone-{}", peer % 3)),
            ..PeerSpec::pod(format!("node-{peer}"), address(peer))
        };
        let own = OwnNode { node: "self".into(), ..OwnNode::default() };
        let list = PeerList { peers: (0..peers).map(spec).collect() };
        for change in directory.apply(list, &own, MonotonicClock.now()).changes {
            statistics.apply(change);
            prober.apply(change);
        }
        let (node, directory, health) = ("self".into(), RwLock::new(directory), Health::default());
        let view = Arc::new(View {
            node,
            directory,
            statistics,
            health,
            about,
            walks: Walks::default(),
            strangers: HeardStrangers::default(),
            later: std::sync::OnceLock::new(),
            traces: PeerTraces::default(),
        });
        Self { prober, pacer: Pacer::new().expect("a timer"), view }
    }

    async fn live(&mut self, span: Nanos) {
        let mut now = MonotonicClock.now();
        let end = now.plus(span);
        while now < end {
            self.view.statistics.tick(now);
            let drained = self.prober.turn(&mut |observation| self.view.statistics.record(Method::Icmp, observation));
            now = MonotonicClock.now();
            let latest = if drained { end } else { now };
            self.pacer.wait(&mut self.prober, latest).await.expect("the timer is set");
        }
    }

    /// Returns the probes sent and lost so far.
    fn probes(&self) -> (u64, u64) {
        let directory = self.view.directory.read().expect("no panic");
        let readings = directory
            .peers()
            .filter_map(|(slot, _)| self.view.statistics.method(Method::Icmp).slot(slot))
            .map(|slot| slot.read());
        readings.fold((0, 0), |(sent, lost), peer| (sent + peer.sent, lost + peer.lost))
    }
}

/// Returns the counts of probing and of one scrape.
pub fn count(peers: u16) -> [Counted; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let interval = Nanos::from(interval(peers));
    let spans = |rounds: u32| Nanos(interval.0 * u64::from(rounds));
    let (info, stats) = allocator::info_and_stats();
    let about = About::new(&info);
    let mut agent = runtime.block_on(async { Agent::new(peers, interval, about) });
    runtime.block_on(agent.live(spans(ROUNDS_BEFORE)));
    let (sent_before, lost_before) = agent.probes();
    let before = allocations();
    runtime.block_on(agent.live(spans(ROUNDS)));
    let asked = allocations() - before;
    let (sent, lost) = agent.probes();
    let probe = Counted { what: "probe", units: sent - sent_before, detail: lost - lost_before, allocations: asked };

    let build = AgentMetricsConfig {
        allocator: &info,
        stats,
        http_workers: 4,
        series: SeriesSettings { max: MAX_SERIES_MAX, ..SeriesSettings::default() },
    };
    let metrics = AgentMetrics::new(&build, Arc::new(ServerStats::default())).expect("names of their own");
    // The frame belongs to the HTTP worker, which keeps it between scrapes.
    let mut frame = Vec::with_capacity(FRAME_BYTES);
    let mut scrape = || {
        let mut body = MetricsBody::new(Arc::clone(&agent.view), &metrics, Format::Text);
        let mut bytes = 0;
        loop {
            frame.clear();
            let more = body.render(&mut frame);
            bytes += frame.len() as u64;
            if !more {
                return bytes;
            }
        }
    };
    scrape();
    let before = allocations();
    let bytes = scrape();
    [probe, Counted { what: "scrape", units: 1, detail: bytes, allocations: allocations() - before }]
}
