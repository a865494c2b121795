//! Random stories of an agent.

use std::collections::{BTreeMap, BTreeSet};

use kube_canary::discovery::Network;
use kube_canary::exposition::Format;
use kube_canary::limits::SERIES_BUDGET_MIN;
use kube_canary::prober::{Event, SendError, Stamp};
use kube_canary::units::Nanos;

use crate::flapping::Watch;
use crate::leaks::NoLeaks;
use crate::mesh::{Agent, SECOND, Scrape, Way, series};
use crate::splitmix::Random;

/// Scrapes of a story, 15 seconds apart: 40 minutes.
const SCRAPES: u64 = 160;
const STORIES: usize = 18;

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
    /// How often peers have moved to other slots.
    moves: usize,
}

impl Story {
    /// Numbers that follow each other meet all shapes with all budgets.
    fn new(seed: usize, budget: usize) -> Self {
        let mut random = Random(seed as u64);
        let mut below = |n: u64| random.next() % n;
        let (nodes, zones) = ([12, 8, 30, 60, 220][seed % 5], [1, 3, 8, 20][seed % 4]);
        let (families, networks) = (seed % 4 == 2, seed % 7 == 4);
        let forget_after = Nanos(if below(2) == 0 { 30 } else { 300 } * SECOND);
        Self {
            agent: Agent::new(budget, zones),
            now: Nanos(1_000 * SECOND),
            listed: BTreeSet::new(),
            nodes,
            families,
            networks,
            forget_after,
            stays: BTreeMap::new(),
            moves: 0,
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
        if self.below(30) == 0 {
            // Most of the cluster is scaled away.
            let stays = self.node();
            self.listed.retain(|way| way.node.abs_diff(stays) < 6);
        }
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
        self.moves += usize::from(self.agent.forget(self.now, self.forget_after));
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

    fn stay(&self, series: &str) -> u64 {
        let peer = ["peer_node", "protocol", "network"].map(|label| {
            let (_, value) = series.split_once(&format!(",{label}=\""))?;
            value.split('"').next().map(str::to_owned)
        });
        let [Some(node), Some(protocol), Some(network)] = peer else { return 0 };
        self.stays.get(&(node, protocol, network)).map_or(0, |(_, stays)| *stays)
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

    /// A scrape, or two at once; in one of three, something happens between the frames. Gives its text, and how many series
    /// it says that it leaves out.
    fn scrape(&mut self, watch: &mut Watch, budget: usize) -> (String, usize) {
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
        watch.look(self.now, &first, |series| self.stay(series));
        if let Some(second) = second.map(Scrape::text) {
            assert!(series(&second) <= budget);
            assert!(is_disturbed || names(&first) == names(&second), "two at one time export the same");
        }
        let left_out = first.lines().find_map(|line| line.strip_prefix("kube_canary_suppressed_series "));
        let left_out = left_out.expect("it is there").parse().expect("a number");
        if !is_disturbed && self.below(4) == 0 {
            let whole = series(&self.agent.whole(self.now, format));
            assert_eq!(whole - series(&first), left_out, "what is left out is counted");
        }
        (first, left_out)
    }
}

/// Name and labels of every series of a scrape.
pub fn names(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect()
}

/// Whether peers and zones have histograms: to know that the stories have seen it all.
fn kind(text: &str) -> (bool, bool) {
    let has_histogram = |family: &str| text.contains(&format!("# TYPE kube_canary_{family} histogram\n"));
    (has_histogram("probe_rtt_seconds"), has_histogram("zone_probe_rtt_seconds"))
}

#[test]
fn the_budget_holds_at_every_scrape_and_no_series_flaps() {
    let _no_leaks = NoLeaks::here();
    let (mut kinds, mut returned, mut suppressed, mut moves) = (BTreeMap::new(), 0, 0, 0);
    for seed in 0..STORIES {
        let budget = [SERIES_BUDGET_MIN, 260, 500, 500, 900, 3_000][seed % 6];
        let mut story = Story::new(seed, budget);
        let mut watch = Watch::default();
        let mut most = 0;
        for _ in 0..SCRAPES {
            story.now = story.now.plus(Nanos(15 * SECOND));
            story.churn();
            story.live();
            let (text, left_out) = story.scrape(&mut watch, budget);
            most = most.max(series(&text));
            suppressed += usize::from(left_out > 0);
            *kinds.entry(kind(&text)).or_insert(0) += 1;
        }
        returned += watch.returned;
        moves += story.moves;
        kube_canary::allocator::finder::unfollowed(|| println!("{seed}: at most {most} of {budget} series"));
    }
    kube_canary::allocator::finder::unfollowed(|| {
        println!("{kinds:?}; {suppressed} scrapes left something out, {returned} series came back, {moves} moves");
    });
    for kind in [(true, true), (true, false), (false, true), (false, false)] {
        assert!(kinds.get(&kind).is_some_and(|scrapes| *scrapes > 20), "{kind:?} in {kinds:?}");
    }
    assert!(suppressed > 500 && returned > 500 && moves > 3, "{suppressed} {returned} {moves}");
}
