//! Generated meshes. Both directions of every probe are drawn, and the agents' reports of them are
//! put into a matrix.
//!
//! A probe is a bit: 60 of them, a second apart, for each source and peer, the newest first. Each
//! agent has its own window, with its own length and beginning. So counts of different agents
//! differ by a probe, as real ones do.

use std::sync::Arc;
use std::time::Duration;

use kube_canary::discovery::{MemberId, Members, Scheme};
use kube_canary::mesh::domains::Domains;
use kube_canary::mesh::matrix::Matrix;
use kube_canary::report::{Method, Network};

use super::rows::{EPOCH, Made, put};
pub use crate::splitmix::Random;

pub fn whole(number: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousands")]
    let whole = number as u32;
    whole
}

pub const PROBES: u32 = 60;

/// The fault of a mesh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Loses inbound and outbound probes at these rates.
    Node {
        node: usize,
        inwards: f64,
        outwards: f64,
    },
    /// Loses from `a` to `b`, and back.
    Link {
        a: usize,
        b: usize,
        there: f64,
        back: f64,
    },
    /// Loses between two zones, in either direction.
    Zones {
        a: usize,
        b: usize,
        rate: f64,
    },
    /// Everything loses, in either direction.
    Mesh {
        rate: f64,
    },
    /// Groups that do not reach each other. A node's group is the number of bounds that are
    /// at most its number.
    Split {
        bounds: (usize, usize),
        rate: f64,
    },
    /// A zone loses to all others, in either direction.
    CutOff {
        zone: usize,
        rate: f64,
    },
    /// A zone loses inside, in either direction.
    Inside {
        zone: usize,
        rate: f64,
    },
    /// A domain loses to all other nodes, in either direction.
    DomainCut {
        domain: usize,
        rate: f64,
    },
    /// A domain loses inside, in either direction.
    DomainInside {
        domain: usize,
        rate: f64,
    },
    /// One of this many paths loses, and the cells of a pair take different ones.
    Path {
        of: u64,
        rate: f64,
    },
    /// An agent that reports this loss for its probes to each of this many nodes after it.
    Liar {
        node: usize,
        about: usize,
        rate: f64,
    },
    /// Requests from one node to another are filtered, replies are not.
    Filter {
        from: usize,
        to: usize,
    },
    /// Round trips take longer, in microseconds.
    SlowNode {
        node: usize,
        extra_us: f64,
    },
    SlowLink {
        a: usize,
        b: usize,
        extra_us: f64,
    },
    SlowZones {
        a: usize,
        b: usize,
        extra_us: f64,
    },
    /// All links are slow, in microseconds.
    SlowMesh {
        extra_us: f64,
    },
    /// An agent that reports that all its round trips were far shorter until now.
    SaysSlow {
        node: usize,
    },
    /// An agent without an hour to compare with.
    Young {
        node: usize,
    },
    /// The agent itself loses this share of the answers, and reports that it is late.
    Starved {
        node: usize,
        rate: f64,
    },
    /// The report is missing.
    NoRow {
        node: usize,
    },
    /// The agent has started, or was stopped, this many seconds ago. Nothing answered UDP and TCP
    /// for this many seconds before.
    Restarted {
        node: usize,
        ago: u32,
        away: u32,
    },
    /// The agent does not run, and its kernel completes handshakes all the same.
    Frozen {
        node: usize,
    },
    /// The agent is of a version without UDP and TCP, and nothing answers them there.
    Older {
        node: usize,
    },
}

/// The networks on which the faults of a mesh lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// On the nodes' network, which carries the pods'.
    Both,
    /// On the overlay alone.
    Pods,
    /// On the nodes' network alone: the pods' takes another path.
    Nodes,
}

/// The plan of a mesh.
#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: usize,
    pub zones: usize,
    /// The number of the operator's failure domains. 0: there is no file.
    pub domains: usize,
    /// Seconds of a window, at least and at most.
    pub window: (f64, f64),
    /// Background loss of each direction.
    pub background: f64,
    /// Peers that each node probes. `None`: all others.
    pub degree: Option<usize>,
    /// Peers that each node probes, as the agents select them.
    pub selected: Option<usize>,
    /// The number of nodes that report. The reports of the others were not requested.
    pub rows: Option<usize>,
    /// Whether both address families are probed.
    pub dual: bool,
    /// Set if the nodes' network is probed, too: the networks on which the faults are.
    pub reach: Option<Reach>,
    /// Another program pings this node, so often per second.
    pub foreign: Option<(usize, f64)>,
    /// All agents share one namespace.
    pub shared: bool,
    pub faults: Vec<Fault>,
    /// Whether UDP and TCP are probed, too.
    pub protocols: bool,
    /// Faults that one protocol alone has.
    pub own: Vec<(Method, Fault)>,
    /// The faults have lost for this many seconds. `None`: for longer than a window.
    pub since: Option<u32>,
}

impl Plan {
    pub fn new(nodes: usize) -> Self {
        let (window, faults) = ((60.0, 60.0), Vec::new());
        let (background, zones, domains) = (0.000_5, 1, 0);
        let (degree, selected, rows, dual, reach, foreign, shared) = (None, None, None, false, None, None, false);
        Self {
            nodes,
            zones,
            domains,
            window,
            background,
            degree,
            selected,
            rows,
            dual,
            reach,
            foreign,
            shared,
            faults,
            protocols: false,
            own: Vec::new(),
            since: None,
        }
    }

    pub fn zone_of(&self, node: usize) -> usize {
        node % self.zones
    }

    /// The domain of a node: nodes with consecutive numbers, whatever their zones. Without domains,
    /// the result is a domain without a fault.
    pub fn domain_of(&self, node: usize) -> usize {
        node * self.domains / self.nodes
    }

    /// All faults, each with its protocol if it has one.
    pub fn every_fault(&self) -> impl Iterator<Item = (Option<Method>, &Fault)> {
        let own = self.own.iter().map(|(method, fault)| (Some(*method), fault));
        self.faults.iter().map(|fault| (None, fault)).chain(own)
    }

    /// Whether the faults lose on this network.
    fn reaches(&self, network: Network) -> bool {
        match self.reach {
            None | Some(Reach::Both) => true,
            Some(Reach::Pods) => network == Network::Pod,
            Some(Reach::Nodes) => network == Network::Node,
        }
    }

    fn loss(&self, from: usize, to: usize, network: Network, method: Method) -> f64 {
        if !self.reaches(network) {
            return self.background;
        }
        let (from_zone, to_zone) = (self.zone_of(from), self.zone_of(to));
        let (from_domain, to_domain) = (self.domain_of(from), self.domain_of(to));
        let own = self.own.iter().filter(|(of, _)| *of == method).map(|(_, fault)| fault);
        let passes = self.faults.iter().chain(own).map(|fault| match *fault {
            Fault::Node { node, outwards, .. } if node == from => 1.0 - outwards,
            Fault::Node { node, inwards, .. } if node == to => 1.0 - inwards,
            Fault::Link { a, b, there, .. } if (a, b) == (from, to) => 1.0 - there,
            Fault::Link { a, b, back, .. } if (b, a) == (from, to) => 1.0 - back,
            Fault::Zones { a, b, rate } if (a, b) == (from_zone, to_zone) || (b, a) == (from_zone, to_zone) => {
                1.0 - rate
            }
            Fault::Mesh { rate } => 1.0 - rate,
            Fault::Split { bounds, rate } if group(bounds, from) != group(bounds, to) => 1.0 - rate,
            Fault::CutOff { zone, rate } if (zone == from_zone) != (zone == to_zone) => 1.0 - rate,
            Fault::Inside { zone, rate } if zone == from_zone && zone == to_zone => 1.0 - rate,
            Fault::DomainCut { domain, rate } if (domain == from_domain) != (domain == to_domain) => 1.0 - rate,
            Fault::DomainInside { domain, rate } if domain == from_domain && domain == to_domain => 1.0 - rate,
            _ => 1.0,
        });
        1.0 - passes.product::<f64>() * (1.0 - self.background)
    }

    /// The loss of the requests of one cell on their own path, with what its reporter invents.
    fn loss_of_cell(&self, from: usize, to: usize, method: Method, seed: u64) -> f64 {
        let faults = self.every_fault().filter(|(of, _)| of.is_none_or(|of| of == method));
        let lost = faults.map(|(_, fault)| match *fault {
            Fault::Path { of, rate } => {
                let on = |way: u64| {
                    Random((from * 100_003 + to) as u64 ^ seed.rotate_left(17) ^ way).next().is_multiple_of(of)
                };
                1.0 - (1.0 - if on(0) { rate } else { 0.0 }) * (1.0 - if on(1 << 50) { rate } else { 0.0 })
            }
            Fault::Liar { node, about, rate } if node == from && (to + self.nodes - node) % self.nodes <= about => rate,
            Fault::Filter { from: a, to: b } if (a, b) == (from, to) => 1.0,
            _ => 0.0,
        });
        1.0 - lost.map(|lost| 1.0 - lost).product::<f64>()
    }

    fn extra_us(&self, a: usize, b: usize) -> f64 {
        let zones = (self.zone_of(a), self.zone_of(b));
        let same = |x: (usize, usize), y: (usize, usize)| x == y || (x.1, x.0) == y;
        let extras = self.faults.iter().map(|fault| match *fault {
            Fault::SlowNode { node, extra_us } if node == a || node == b => extra_us,
            Fault::SlowLink { a: x, b: y, extra_us } if same((x, y), (a, b)) => extra_us,
            Fault::SlowZones { a: x, b: y, extra_us } if same((x, y), zones) => extra_us,
            Fault::SlowMesh { extra_us } => extra_us,
            _ => 0.0,
        });
        extras.sum()
    }

    /// An agent's report of the quickest minute of its hour.
    fn usual_seconds(&self, node: usize, seconds: f64) -> Option<f64> {
        match self
            .faults
            .iter()
            .find(|fault| matches!(fault, Fault::SaysSlow { node: x } | Fault::Young { node: x } if *x == node))
        {
            Some(Fault::SaysSlow { .. }) => Some(1e-9),
            Some(_) => None,
            None => Some(seconds),
        }
    }

    /// The share of answers that the agent itself loses.
    pub fn own_loss(&self, node: usize) -> f64 {
        let found = self.faults.iter().find_map(|fault| match *fault {
            Fault::Starved { node: starved, rate } if starved == node => Some(rate),
            _ => None,
        });
        found.unwrap_or(0.0)
    }

    /// The newest probes by UDP and TCP that the agent of a node did not answer, as bits. Probes to
    /// a starved agent are lost at random.
    fn unanswered(&self, node: usize, method: Method, random: &mut Random) -> u64 {
        self.faults.iter().fold(random.bits(self.own_loss(node)), |bits, fault| match *fault {
            Fault::Restarted { node: it, ago, away } if it == node => bits | ((1 << away) - 1) << ago,
            Fault::Older { node: it } if it == node => u64::MAX,
            Fault::Frozen { node: it } if it == node && method == Method::Udp => u64::MAX,
            _ => bits,
        })
    }

    /// The newest handshakes that the host of a node refused, as bits, because no agent listened.
    fn refused(&self, node: usize) -> u64 {
        self.faults.iter().fold(0, |bits, fault| match *fault {
            Fault::Restarted { node: it, ago, away } if it == node => bits | ((1 << away) - 1) << ago,
            Fault::Older { node: it } if it == node => u64::MAX,
            _ => bits,
        })
    }

    fn is_older(&self, node: usize) -> bool {
        self.faults.contains(&Fault::Older { node })
    }

    /// Since when the agent of a node answers, in seconds.
    pub fn listening_seconds(&self, node: usize) -> Option<f64> {
        if !self.protocols || self.is_older(node) {
            return None;
        }
        let of = |fault: &Fault| match *fault {
            Fault::Restarted { node: it, ago, .. } if it == node => Some(f64::from(ago)),
            Fault::Starved { node: it, .. } if it == node => Some(3.0),
            _ => None,
        };
        Some(self.faults.iter().find_map(of).unwrap_or(3_600.0))
    }

    pub fn has_row(&self, node: usize) -> bool {
        !self.faults.contains(&Fault::NoRow { node }) && self.rows.is_none_or(|rows| node < rows)
    }

    fn selection(&self, peers: usize) -> Vec<Vec<usize>> {
        let mut members = Members::new(Duration::from_mins(5));
        let put = |node: usize| members.put(&name(node), Some(&zone_name(self.zone_of(node)))).expect("room");
        let ids: Vec<MemberId> = (0..self.nodes).map(put).collect();
        let scheme = Scheme::new(&members, peers);
        let place = |id: &MemberId| ids.iter().position(|other| other == id).expect("a member");
        ids.iter().map(|id| scheme.chosen_by(*id).iter().map(place).collect()).collect()
    }

    /// Returns the peers that each node probes.
    pub fn probed(&self, random: &mut Random) -> Vec<Vec<usize>> {
        if let Some(peers) = self.selected.filter(|peers| *peers + 1 < self.nodes) {
            return self.selection(peers);
        }
        let others = |node: usize| (0..self.nodes).filter(move |other| *other != node).collect::<Vec<_>>();
        let mut choose = |node: usize| {
            let mut others = others(node);
            if let Some(degree) = self.degree.filter(|degree| *degree < others.len()) {
                for place in 0..degree {
                    let from = place + random.below(others.len() - place);
                    others.swap(place, from);
                }
                others.truncate(degree);
            }
            others
        };
        (0..self.nodes).map(&mut choose).collect()
    }
}

pub fn group(bounds: (usize, usize), node: usize) -> usize {
    usize::from(node >= bounds.0) + usize::from(node >= bounds.1)
}

pub fn name(node: usize) -> String {
    format!("node-{node}")
}

pub fn zone_name(zone: usize) -> String {
    format!("zone-{zone}")
}

pub fn domain_name(domain: usize) -> String {
    format!("rack-{domain}")
}

/// Returns the bounds of the histogram's bucket, in seconds.
fn bucket(us: f64) -> (f64, f64) {
    let bounds = [10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5, 1e6];
    let at = bounds.iter().position(|bound| us <= *bound).unwrap_or(bounds.len() - 1);
    (if at == 0 { 0.0 } else { bounds[at - 1] / 1e6 }, bounds[at] / 1e6)
}

/// Makes the mesh of a plan. Also returns the peers that each node probes.
pub fn make(plan: &Plan, seed: u64) -> (Matrix, Vec<Vec<usize>>) {
    let random = &mut Random(seed);
    let probed = plan.probed(random);
    let windows: Vec<f64> = (0..plan.nodes).map(|_| random.between(plan.window.0, plan.window.1)).collect();
    let place = |random: &mut Random| (random.between(0.0, 1_000.0), random.between(0.0, 1_000.0));
    let places: Vec<(f64, f64)> = (0..plan.zones).map(|_| place(random)).collect();
    // The number of the newest 60 probes that a window of this many seconds covers.
    let covered = |seconds: f64, phase: f64| (1_u64 << whole((seconds - phase).ceil()).min(PROBES)) - 1;
    let (mut counted, mut rows) = (vec![0_u64; plan.nodes], Vec::new());
    for (from, peers) in probed.iter().enumerate() {
        let mut row: Vec<Made> = Vec::new();
        for to in peers {
            let networks = [Network::Pod, Network::Node].into_iter().take(1 + usize::from(plan.reach.is_some()));
            let families = [false, true].into_iter().take(1 + usize::from(plan.dual));
            for (network, over_ipv6) in networks.flat_map(|network| families.clone().map(move |six| (network, six))) {
                let more = if plan.protocols && network == Network::Pod && !plan.is_older(from) { 2 } else { 0 };
                for method in Method::ALL.into_iter().take(1 + more) {
                    let phase = random.unit();
                    let recent = plan.since.map_or(u64::MAX, |since| (1 << since) - 1);
                    let loss = |random: &mut Random, from: usize, to: usize| {
                        let lost = random.bits(plan.loss(from, to, network, method));
                        if plan.since.is_some() { lost & recent | random.bits(plan.background) } else { lost }
                    };
                    let (there, back) = (loss(random, from, *to), loss(random, *to, from));
                    let of_cell = random.bits(plan.loss_of_cell(from, *to, method, seed));
                    let mut unread = random.bits(plan.own_loss(from)) | of_cell & recent;
                    // Packets to the node do not reach its pod.
                    if network == Network::Pod && method == Method::Icmp {
                        counted[*to] += u64::from((!there & covered(windows[*to], phase)).count_ones());
                    }
                    let mut window = covered(windows[from], phase);
                    if method != Method::Icmp {
                        unread |= plan.unanswered(*to, method, random);
                    }
                    if method == Method::Tcp {
                        window &= handshakes(random.between(0.0, HANDSHAKE_SECONDS), there | back | unread);
                    }
                    if plan.since.is_some() {
                        // The newest probes are not lost yet.
                        window &= if method == Method::Udp { !3 } else { !1 };
                    }
                    let unanswered = (there | back | unread) & window;
                    // An answer tells where the probes before it were lost.
                    let answered = (!unanswered & window).trailing_zeros();
                    let known = u64::MAX.checked_shl(answered).map_or(0, |before| unanswered & before);
                    let ways = (method == Method::Udp).then(|| {
                        let there = there | plan_is_away(plan, *to, unread);
                        ((known & there).count_ones(), (known & !there).count_ones())
                    });
                    let zones = [plan.zone_of(from), plan.zone_of(*to)];
                    let [a, b] = zones.map(|zone| places[zone]);
                    let far = if zones[0] == zones[1] { 0.0 } else { 300.0 + (a.0 - b.0).hypot(a.1 - b.1) };
                    // It is the same for both directions.
                    let pair = Random((from.min(*to) * 1_000 + from.max(*to)) as u64 ^ seed).unit();
                    let usual = 60.0 + 120.0 * pair + far * (0.9 + 0.2 * pair);
                    let (least, most) = bucket(usual + plan.extra_us(from, *to));
                    let [lost_in_row, answered_since, answered_before] = last_losses(unanswered, window);
                    row.push(Made {
                        to: *to,
                        network,
                        over_ipv6,
                        method,
                        sent: window.count_ones(),
                        lost: unanswered.count_ones(),
                        refused: method == Method::Tcp && plan.refused(*to) & window != 0,
                        ways,
                        arrived: !(there | plan_is_away(plan, *to, unread)),
                        lost_in_row,
                        answered_since,
                        answered_before,
                        answered_seconds: 0,
                        heard: None,
                        rtt_seconds: f64::midpoint(least, most),
                        usual_rtt_seconds: plan.usual_seconds(from, bucket(usual).1),
                        flows: None,
                    });
                }
            }
        }
        rows.push(row);
    }
    if plan.protocols {
        hear(&mut rows, |node| covered(windows[node], 0.5));
    }
    if plan.shared {
        let all = counted.iter().sum();
        counted.fill(all);
    }
    if let Some((node, rate)) = plan.foreign {
        counted[node] += u64::from(whole(rate * windows[node]));
    }
    let mut matrix = Matrix::new(EPOCH);
    for (node, row) in rows.iter().enumerate() {
        if plan.has_row(node) {
            put(plan, &mut matrix, node, row, (windows[node], counted[node]));
        } else if plan.rows.is_none_or(|rows| node < rows) {
            matrix.missing(&name(node), "timed out");
        }
    }
    matrix.finish();
    if plan.domains > 0 {
        let line = |node: usize| format!("{} {}\n", name(node), domain_name(plan.domain_of(node)));
        let file: String = (0..plan.nodes).map(line).collect();
        matrix.set_domains(&Arc::new(Domains::parse(file.as_bytes()).expect("a domains file")));
    }
    (matrix, probed)
}

/// Seconds between two handshakes, and from a lost one to the next: a second until it is lost, one
/// more, and up to a quarter until the turn.
const HANDSHAKE_SECONDS: f64 = 10.0;
const RETRY_SECONDS: f64 = 2.25;

/// Returns the seconds in which a source begins handshakes, as bits. Those that meet a bit of
/// `lost` are lost. The schedule began `phase` seconds after the oldest bit.
fn handshakes(phase: f64, lost: u64) -> u64 {
    let (mut begun, mut scheduled, mut retry) = (0, phase, f64::INFINITY);
    loop {
        let at = scheduled.min(retry);
        if at >= f64::from(PROBES) {
            return begun;
        }
        let bit = 1 << (PROBES - 1 - whole(at));
        begun |= bit;
        let is_retry = retry <= scheduled;
        if is_retry {
            retry = f64::INFINITY;
        } else {
            scheduled += HANDSHAKE_SECONDS;
        }
        if lost & bit != 0 && retry.is_infinite() {
            retry = at + RETRY_SECONDS;
        }
    }
}

/// The requests that no agent counted, of those without an answer: those to an agent that is away.
fn plan_is_away(plan: &Plan, node: usize, unread: u64) -> u64 {
    let is_away =
        |fault: &Fault| matches!(fault, Fault::Restarted { node: it, .. } | Fault::Older { node: it } if *it == node);
    if plan.faults.iter().any(is_away) { unread } else { 0 }
}

/// Puts what a reflector has counted of a peer into its report of that peer.
fn hear(rows: &mut [Vec<Made>], covered: impl Fn(usize) -> u64) {
    let mut arrived = std::collections::HashMap::new();
    for (from, row) in rows.iter().enumerate() {
        for cell in row.iter().filter(|cell| cell.method == Method::Udp) {
            arrived.insert((from, cell.to, cell.over_ipv6), cell.arrived);
        }
    }
    for (from, row) in rows.iter_mut().enumerate() {
        for cell in row.iter_mut().filter(|cell| cell.method == Method::Udp) {
            let bits = arrived.get(&(cell.to, from, cell.over_ipv6)).copied().unwrap_or_default();
            cell.heard = Some((bits & covered(from)).count_ones());
        }
    }
}

/// Returns how many probes of a window were last lost in a row, and how many were answered since.
/// The newest is the lowest bit.
fn last_losses(unanswered: u64, window: u64) -> [u32; 3] {
    let probes = || (0..u64::BITS).filter(|at| window >> at & 1 == 1).map(|at| unanswered >> at & 1 == 1);
    let count = |of: usize| u32::try_from(of).expect("at most 64");
    let answered = probes().take_while(|is_lost| !is_lost).count();
    let lost = probes().skip(answered).take_while(|is_lost| *is_lost).count();
    let before = probes().skip(answered + lost).take_while(|is_lost| !is_lost).count();
    if lost == 0 { [0; 3] } else { [lost, answered, before].map(count) }
}
