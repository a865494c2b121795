//! An agent without prober and HTTP, and its exported series.

use std::net::IpAddr;
use std::sync::{Arc, RwLock};

use kube_canary::allocator;
use kube_canary::discovery::{PeerList, PeerSpec};
use kube_canary::exposition::{
    About, AgentMetrics, AgentMetricsConfig, Format, Health, HeardStrangers, LinkSeries, MetricsBody, PeerTraces,
    SeriesSettings, View, Walks,
};
use kube_canary::http::{Render as _, ServerStats};
use kube_canary::limits::{FRAME_BYTES, LEAVE_GRACE};
use kube_canary::peers::{Directory, Method, Methods, OwnNode, Presence, SlotId};
use kube_canary::prober::{Event, Observation};
use kube_canary::report::Network;
use kube_canary::statistics::{Scale, Statistics};
use kube_canary::units::Nanos;

pub const SECOND: u64 = 1_000_000_000;

/// A peer to list: its number, and which of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    pub node: u16,
    pub v6: bool,
    pub network: Network,
}

pub struct Agent {
    pub view: Arc<View>,
    metrics: AgentMetrics,
    pub zones: u16,
}

/// A scrape that is being rendered.
pub struct Scrape(MetricsBody, Vec<u8>, bool);

impl Scrape {
    /// Renders a frame. Returns whether there is more.
    pub fn go_on(&mut self) -> bool {
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        self.2 = self.2 && self.0.render(&mut frame);
        assert_eq!(frame.capacity(), FRAME_BYTES, "a frame never grows");
        self.1.extend_from_slice(&frame);
        self.2
    }

    /// Renders the rest, and returns all bytes.
    pub fn bytes(mut self) -> Vec<u8> {
        while self.go_on() {}
        self.1
    }

    /// Returns the same as text, for a format that is text.
    pub fn text(self) -> String {
        String::from_utf8(self.bytes()).expect("UTF-8")
    }
}

/// Counts the sample lines of an exposition.
pub fn series(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#')).count()
}

impl Agent {
    /// An agent that probes by ICMP alone.
    pub fn new(links: LinkSeries, max: usize, zones: u16) -> Self {
        Self::by(Methods::new([Method::Icmp]), links, max, zones)
    }

    pub fn by(methods: Methods, links: LinkSeries, max: usize, zones: u16) -> Self {
        let (allocator, stats) = allocator::info_and_stats();
        let build = AgentMetricsConfig {
            allocator: &allocator,
            stats,
            http_workers: 4,
            series: SeriesSettings { links, max, ..SeriesSettings::default() },
        };
        let metrics = AgentMetrics::new(&build, Arc::new(ServerStats::default())).expect("names of their own");
        let view = View {
            node: name(0),
            directory: RwLock::new(Directory::default()),
            statistics: Statistics::for_methods(Scale::default(), Nanos(SECOND), methods, Methods::ALL),
            health: Health::default(),
            about: About::new(&allocator),
            traces: PeerTraces::default(),
            walks: Walks::default(),
            strangers: HeardStrangers::default(),
            later: std::sync::OnceLock::new(),
        };
        Self { view: Arc::new(view), metrics, zones }
    }

    /// Makes these the list from now on.
    pub fn list(&self, ways: &[Way], now: Nanos) {
        let spec = |way: &Way| {
            let [high, low] = way.node.to_be_bytes();
            let net = way.network as u8;
            let address = if way.v6 {
                IpAddr::from([0xfd00, 0, 0, 0, 0, 0, net.into(), way.node])
            } else {
                IpAddr::from([10, net, high, low])
            };
            let zone = format!("eu-central-1{}", char::from(b'a' + u8::try_from(way.node % self.zones).unwrap()));
            PeerSpec { zone: Some(zone), network: way.network, ..PeerSpec::pod(name(way.node), address) }
        };
        let own = OwnNode { node: name(0), zone: Some("eu-central-1a".into()), ..OwnNode::default() };
        let mut directory = self.view.directory.write().expect("no panic");
        let applied = directory.apply(PeerList { peers: ways.iter().map(spec).collect() }, &own, now);
        assert_eq!(applied.without_slot, 0);
        applied.changes.into_iter().for_each(|change| self.view.statistics.apply(change));
    }

    /// Forgets the peers that left at least `after` ago. Compacts the slots, unless a scrape is in
    /// progress. Returns whether slots were compacted.
    pub fn forget(&self, now: Nanos, after: Nanos) -> bool {
        let mut directory = self.view.directory.write().expect("no panic");
        // As in the agent, probing of these peers ends first.
        directory.stop(now, after.min(LEAVE_GRACE.into())).for_each(|change| self.view.statistics.apply(change));
        directory.forget(now, after);
        if !self.view.walks.are_over() {
            return false;
        }
        let compaction = directory.compact();
        if let Some(compaction) = &compaction {
            self.view.statistics.compact(compaction);
        }
        compaction.is_some()
    }

    pub fn event(&self, slot: SlotId, event: Event) {
        self.view.statistics.record(Method::Icmp, Observation::probe(slot, event));
    }

    /// Returns the slots, and whether each has a listed peer.
    pub fn slots(&self) -> Vec<(SlotId, bool)> {
        let directory = self.view.directory.read().expect("no panic");
        directory.peers().map(|(slot, peer)| (slot, peer.presence() != Presence::Left)).collect()
    }

    pub fn scrape(&self, now: Nanos, format: Format) -> Scrape {
        Scrape(MetricsBody::at(now, Arc::clone(&self.view), &self.metrics, format), Vec::new(), true)
    }
}

/// Returns a name as long as a node's name in a large cloud.
pub fn name(number: u16) -> String {
    format!("ip-10-123-{}-{}.eu-central-1.compute.internal", 100 + number / 156, 100 + number % 156)
}
