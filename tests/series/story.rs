//! Random stories of an agent.

use std::collections::{BTreeMap, BTreeSet};

use kube_canary::discovery::Network;
use kube_canary::exposition::Format;
use kube_canary::limits::SERIES_BUDGET_MIN;
use kube_canary::prober::{Event, SendError, Stamp};
use kube_canary::units::Nanos;

use crate::exposition::{self, Sample};
use crate::flapping::Watch;
use crate::leaks::NoLeaks;
use crate::mesh::{Agent, SECOND, Scrape, Way, name, series};
use crate::splitmix::Random;

/// Scrapes of a story, 15 seconds apart: an hour.
const SCRAPES: u64 = 240;
const STORIES: u64 = 24;

struct Story {
    agent: Agent,
    random: Random,
    now: Nanos,
    listed: BTreeSet<Way>,
    /// Of all that can be listed.
    nodes: u16,
    families: bool,
    networks: bool,
    forget_after: Nanos,
    /// Who is in the directory, and how often that has been somebody new.
    stays: BTreeMap<(String, String, String), (bool, u64)>,
}

impl Story {
    fn new(seed: u64, budget: usize) -> Self {
        let mut random = Random(seed);
        let mut below = |n: u64| random.next() % n;
        let nodes = [8, 14, 30, 60, 300][usize::try_from(below(5)).unwrap()];
        let zones = [1, 3, 8, 20][usize::try_from(below(4)).unwrap()];
        let (families, networks) = (below(4) == 0, below(4) == 0);
        let forget_after = Nanos([30, 300][usize::try_from(below(2)).unwrap()] * SECOND);
        Self {
            agent: Agent::new(budget, zones),
            now: Nanos(1_000 * SECOND),
            listed: BTreeSet::new(),
            nodes,
            families,
            networks,
            forget_after,
            stays: BTreeMap::new(),
            random,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next() % n
    }

    fn ways(&self, node: u16) -> Vec<Way> {
        let mut ways = vec![Way { node, v6: false, network: Network::Pod }];
        if self.families {
            ways.push(Way { node, v6: true, network: Network::Pod });
        }
        if self.networks {
            ways.push(Way { node, v6: false, network: Network::Node });
        }
        ways
    }

    fn node(&mut self) -> u16 {
        1 + u16::try_from(self.below(u64::from(self.nodes))).unwrap()
    }

    /// Nodes come and go, a few or many at once.
    fn churn(&mut self) {
        let count = match self.below(12) {
            0..=5 => 0,
            6..=8 => 1,
            9..=10 => self.below(4),
            _ => self.below(u64::from(self.nodes)),
        };
        for _ in 0..count {
            let node = self.node();
            let ways = self.ways(node);
            let comes = self.below(3) > 0;
            for way in ways {
                if comes {
                    self.listed.insert(way)
                } else {
                    self.listed.remove(&way)
                };
            }
        }
        let listed: Vec<Way> = self.listed.iter().copied().collect();
        self.agent.list(&listed, self.now);
        self.note();
        self.agent.forget(self.now, self.forget_after);
        self.note();
    }

    /// Takes note of who has come and gone.
    fn note(&mut self) {
        let directory = self.agent.view.directory.read().expect("no panic");
        let is = |peer: kube_canary::peers::Peer<'_>| {
            (peer.node().to_owned(), peer.protocol().label().to_owned(), peer.network().label().to_owned())
        };
        let present: BTreeSet<_> = directory.peers().map(|(_, peer)| is(peer)).collect();
        for (peer, (there, _)) in &mut self.stays {
            *there = *there && present.contains(peer);
        }
        for peer in present {
            let (there, stays) = self.stays.entry(peer).or_default();
            *stays += u64::from(!*there);
            *there = true;
        }
    }

    fn stay(&self, sample: &Sample) -> u64 {
        let peer = ["peer_node", "protocol", "network"].map(|label| sample.label(label).to_owned());
        self.stays.get(&peer.into()).map_or(0, |(_, stays)| *stays)
    }

    /// Some seconds of probes: mostly answers.
    fn live(&mut self) {
        self.agent.view.statistics.tick(self.now);
        let trouble = self.below(8);
        for (slot, listed) in self.agent.slots() {
            if !listed {
                continue;
            }
            self.agent.event(slot, Event::Sent);
            let event = match self.below(40) {
                0 => Event::Lost,
                1 if trouble > 5 => Event::NotSent(SendError::ALL[usize::try_from(self.below(8)).unwrap()]),
                // A drain of many.
                2..=12 if trouble == 3 => Event::Terminating { answered: self.below(2) == 0 },
                // No route to anybody.
                2..=30 if trouble == 4 => Event::NotSent(SendError::ALL[0]),
                _ => {
                    let rtt = Nanos(20_000 << self.below(8));
                    Event::Received { rtt, reordered: false, sequence: 0, stamp: Stamp::Kernel }
                }
            };
            self.agent.event(slot, event);
        }
    }

    /// A scrape, or two at once; in one of three, something happens between the frames.
    fn scrape(&mut self, watch: &mut Watch, budget: usize) -> (usize, usize) {
        let format = if self.below(2) == 0 { Format::Text } else { Format::OpenMetrics };
        let mut first = self.agent.scrape(self.now, format);
        let is_disturbed = self.below(3) == 0;
        if is_disturbed {
            for _ in 0..self.below(8) {
                first.go_on();
            }
            self.churn();
            self.live();
        }
        let second = (self.below(3) == 0).then(|| self.agent.scrape(self.now, Format::Text));
        let first = first.text();
        assert!(series(&first) <= budget, "{} of {budget} series at {:?}", series(&first), self.now);
        watch.look(self.now, &first, |sample| self.stay(sample));
        if let Some(second) = second.map(Scrape::text) {
            assert!(series(&second) <= budget);
            if !is_disturbed {
                assert_eq!(names(&first), names(&second), "two at one time export the same");
            }
        }
        let suppressed = exposition::parse(&first).expect("it can be read");
        let suppressed = suppressed.iter().find(|sample| sample.name == "kube_canary_suppressed_series").expect("it");
        let (shown, suppressed) = (series(&first), format!("{}", suppressed.value).parse().expect("a number"));
        if !is_disturbed {
            let whole = series(&self.agent.whole(self.now, format));
            assert_eq!(whole - shown, suppressed, "what is left out is counted");
        }
        (shown, suppressed)
    }
}

fn names(text: &str) -> BTreeSet<String> {
    let samples = exposition::parse(text).expect("what we expose can be read");
    samples.into_iter().map(|sample| format!("{} {:?}", sample.name, sample.labels)).collect()
}

/// What a scrape's peers and zones look like, to know that the stories have seen it all.
fn kind(text: &str) -> (bool, bool, bool) {
    let is_a = |family: &str, kind: &str| text.contains(&format!("# TYPE kube_canary_{family} {kind}\n"));
    (is_a("probe_rtt_seconds", "histogram"), is_a("zone_probe_rtt_seconds", "histogram"), text.contains(&name(0)))
}

#[test]
fn the_budget_holds_at_every_scrape_and_no_series_flaps() {
    let _no_leaks = NoLeaks::here();
    let (mut kinds, mut returned, mut suppressed) = (BTreeMap::new(), 0, 0);
    for seed in 0..STORIES {
        let budget = [SERIES_BUDGET_MIN, 260, 500, 500, 900, 3_000][usize::try_from(seed % 6).unwrap()];
        let mut story = Story::new(seed, budget);
        let mut watch = Watch::default();
        let mut most = 0;
        for _ in 0..SCRAPES {
            story.now = story.now.plus(Nanos(15 * SECOND));
            story.churn();
            story.live();
            let (shown, left_out) = story.scrape(&mut watch, budget);
            most = most.max(shown);
            suppressed += usize::from(left_out > 0);
            *kinds.entry(kind(&story.agent.scrape(story.now, Format::Text).text())).or_insert(0) += 1;
        }
        returned += watch.returned;
        assert!(most <= budget);
    }
    kube_canary::allocator::finder::unfollowed(|| {
        println!("{kinds:?}; {suppressed} scrapes left something out, {returned} series came back");
    });
    // All, counters with zones' histograms and without, and they came back.
    for kind in [(true, true, true), (true, false, true), (false, true, true), (false, false, true)] {
        assert!(kinds.get(&kind).is_some_and(|scrapes| *scrapes > 50), "{kind:?} in {kinds:?}");
    }
    assert!(suppressed > 1_000 && returned > 1_000, "{suppressed} {returned}");
}
