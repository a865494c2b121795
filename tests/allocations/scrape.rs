//! The peak memory of a scrape: the same for any number of peers.

use std::sync::{Arc, RwLock};

use kube_canary::allocator;
use kube_canary::allocator::finder::unfollowed;
use kube_canary::discovery::Readiness;
use kube_canary::exposition::{
    About, AgentMetrics, AgentMetricsConfig, Format, Health, HeardStrangers, MetricsBody, PeerTraces, SeriesSettings,
    View, Walks,
};
use kube_canary::http::{Render, ServerStats};
use kube_canary::limits::{FRAME_BYTES, MAX_SERIES_DEFAULT, MAX_SERIES_MAX};
use kube_canary::peers::{Directory, Method, Methods, OwnNode};
use kube_canary::statistics::{Scale, Statistics};
use kube_canary::units::Nanos;

use super::counting::{Asked, watch};
use super::leaks::NoLeaks;
use super::list;

const INTERVAL: Nanos = Nanos::from_millis(1_000);
/// Bodies that are rendered in turn, as a worker does for clients that read at the same pace.
const SCRAPES: usize = 16;

/// An agent that has `peers` peers and has not probed any of them yet.
fn view(peers: usize) -> Arc<View> {
    view_by(Methods::new([Method::Icmp]), peers)
}

/// The same with these methods.
pub fn view_by(methods: Methods, peers: usize) -> Arc<View> {
    let statistics = Statistics::for_methods(Scale::default(), INTERVAL, methods, Methods::ALL);
    let mut directory = Directory::default();
    let address = |i: usize| [10, 2, u8::try_from(i / 250).unwrap(), u8::try_from(i % 250 + 1).unwrap()].into();
    let listed = list((0..peers).map(|i| (i, address(i), Readiness::Ready)));
    let own = OwnNode { node: "self".into(), ..OwnNode::default() };
    directory.apply(listed, &own, Nanos(0)).changes.into_iter().for_each(|change| statistics.apply(change));
    let (node, directory, health) = ("self".into(), RwLock::new(directory), Health::default());
    let about = About::new(&allocator::info());
    Arc::new(View {
        node,
        directory,
        statistics,
        health,
        about,
        traces: PeerTraces::default(),
        walks: Walks::default(),
        strangers: HeardStrangers::default(),
        later: std::sync::OnceLock::new(),
    })
}

/// The time at which all scrapes begin. Scrapes that begin a second apart do not share their text.
const NOW: Nanos = Nanos::from_millis(10_000);

/// Renders `SCRAPES` scrapes into one buffer, a frame of each in turn. Returns what they request
/// from the allocator, and the bytes of a scrape.
fn scrape(view: &Arc<View>, agent: &AgentMetrics) -> (Asked, usize) {
    let mut frame = Vec::with_capacity(FRAME_BYTES);
    // The first scrape allocates what the registry keeps, and the text that simultaneous scrapes
    // share.
    MetricsBody::at(NOW, Arc::clone(view), agent, Format::Text).render(&mut frame);
    let mut bodies = Vec::with_capacity(SCRAPES);
    let (total, asked) = watch(|| {
        bodies.extend((0..SCRAPES).map(|_| (MetricsBody::at(NOW, Arc::clone(view), agent, Format::Text), true)));
        let mut total = 0;
        while bodies.iter().any(|(_, more)| *more) {
            for (body, more) in bodies.iter_mut().filter(|(_, more)| *more) {
                frame.clear();
                *more = body.render(&mut frame);
                assert_eq!(frame.capacity(), FRAME_BYTES, "a frame never grows");
                total += frame.len();
            }
        }
        total
    });
    (asked, total / SCRAPES)
}

pub fn metrics(max: usize) -> AgentMetrics {
    let (allocator, stats) = allocator::info_and_stats();
    let series = SeriesSettings { max, ..SeriesSettings::default() };
    let build = AgentMetricsConfig { allocator: &allocator, stats, http_workers: 4, series };
    AgentMetrics::new(&build, Arc::new(ServerStats::default())).expect("names of their own")
}

/// The number of agents of each budget, of which the median is compared.
const AGENTS: usize = 16;
/// The registry keeps its metrics in an order that is random in each agent, and sorts them
/// in a `BTreeMap`. A leaf holds 5 to 11 entries in 1,160 bytes, so 17 to 21 metrics take
/// two leaves or three.
const LEAF_BYTES: i64 = 1_160;

/// Returns what the second scrape of an agent takes, the median of [`AGENTS`] agents. The first
/// allocates what an agent keeps: the text of its own families.
fn median_asked(peers: usize, max: usize, format: Format) -> Asked {
    let view = view(peers);
    let mut frame = Vec::with_capacity(FRAME_BYTES);
    let mut scrape = |agent: &AgentMetrics, now: Nanos| {
        let mut body = MetricsBody::at(now, Arc::clone(&view), agent, format);
        loop {
            frame.clear();
            if !body.render(&mut frame) {
                break;
            }
        }
    };
    let agents = (0..AGENTS).map(|_| metrics(max));
    let mut asked: Vec<Asked> = agents
        .map(|agent| {
            scrape(&agent, NOW);
            // This is before the work that a scrape does once in some seconds is due again.
            watch(|| scrape(&agent, NOW.plus(Nanos::from_millis(10)))).1
        })
        .collect();
    asked.sort_by_key(|asked| (asked.peak, asked.frees));
    asked[AGENTS / 2]
}

#[test]
fn the_series_limit_adds_no_allocation_to_a_scrape() {
    let _no_leaks = NoLeaks::here();
    let cases = [(24, MAX_SERIES_MAX), (5_000, MAX_SERIES_MAX), (5_000, MAX_SERIES_DEFAULT)];
    let [few, whole, cut] = cases.map(|(peers, max)| median_asked(peers, max, Format::Text));
    unfollowed(|| println!("24 peers, 5,000, 5,000 of which some are left out: {few:?} {whole:?} {cut:?}"));
    let most = few.peak + LEAF_BYTES + 64;
    assert!(whole.peak <= most && cut.peak <= most, "{few:?} {whole:?} {cut:?}");
    // The number of buffers is the same, but for a leaf. How many times each grows depends on the
    // digits of this process's figures.
    for other in [whole, cut] {
        assert!(other.frees.abs_diff(few.frees) <= 1, "{few:?} {whole:?} {cut:?}");
    }
}

#[test]
fn a_scrape_in_protobuf_allocates_nothing_per_link() {
    let _no_leaks = NoLeaks::here();
    let [few, many] = [24, 5_000].map(|peers| median_asked(peers, MAX_SERIES_MAX, Format::Protobuf));
    unfollowed(|| println!("24 peers, 5,000: {few:?} {many:?}"));
    // Per peer: two bytes for the labels, and three words of 64 buckets at the finest resolution.
    assert!(many.peak <= few.peak + 5_000 * (2 + 24), "{few:?} {many:?}");
    assert!(many.allocations <= few.allocations + 4, "{few:?} {many:?}");
}

#[test]
fn the_peak_of_a_scrape_does_not_grow_with_the_number_of_peers() {
    let _no_leaks = NoLeaks::here();
    let agent = metrics(MAX_SERIES_MAX);
    let [few, many] = [10, 5_000].map(|peers| {
        let (asked, bytes) = scrape(&view(peers), &agent);
        unfollowed(|| {
            println!("{peers} peers: {bytes} bytes a scrape; {SCRAPES} at once take {} at their peak", asked.peak);
        });
        (asked, bytes)
    });
    assert!(many.1 > 100 * few.1, "a scrape of 5,000 peers is long");
    // The longest name has a few characters more.
    assert!(many.0.peak <= few.0.peak + 1_024, "{few:?} {many:?}");
    assert!(many.0.allocations <= few.0.allocations + SCRAPES as u64, "{few:?} {many:?}");
}
