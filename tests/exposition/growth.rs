//! A mesh that grows from 3 nodes to 40 and back while it is scraped, in every format. What an
//! agent exposes follows from its flags, and no series changes its type, name or presence.
//!
//! Three agents are real. The addresses of the others are the namespace's own, and its kernel
//! answers for them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::agent::{Agent, Maker, Peers};
use crate::common::until::until;
use crate::decoder::{Decoder, FORMATS, GZIP, Scrape};
use crate::namespace::Namespace;

/// Sizes on both sides of possible limits: 12 histograms, and `--max-peers` other nodes.
const GROWS: [usize; 15] = [3, 4, 6, 9, 11, 12, 13, 14, 18, 23, 24, 25, 26, 33, 40];
const AGENTS: usize = 3;
const ZONES: usize = 3;
/// The most faults that are printed. A family that changes has as many as it has series.
const FAULTS_TOLD: usize = 20;

/// The links that must stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    /// The links between the agents stay. The others leave and are forgotten.
    BetweenAgents,
    /// Every link stays that was ever there. None is forgotten so soon.
    All,
}

fn node(number: usize) -> (String, Ipv4Addr, String) {
    let last = u8::try_from(number).expect("few nodes");
    (format!("node-{number:02}"), Ipv4Addr::new(198, 18, 2, last), format!("zone-{}", number % ZONES))
}

fn label<'a>(series: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = series.split_once(&format!("{name}=\""))?;
    rest.split('"').next()
}

/// A series without the labels that identify its link.
fn form(series: &str) -> String {
    let (name, labels) = series.split_once('{').expect("a series has labels, or none in braces");
    let own = labels.trim_end_matches('}').split(',').filter(|pair| !pair.starts_with("peer_"));
    format!("{name}{{{}}}", own.collect::<Vec<_>>().join(","))
}

/// All that one agent has exposed in one format.
#[derive(Default)]
struct Ledger {
    types: BTreeMap<String, String>,
    /// Series that stay, with their last value.
    staying: BTreeMap<String, f64>,
    created: BTreeMap<String, f64>,
    scrapes: usize,
    links_max: usize,
    series_max: usize,
}

impl Ledger {
    /// Adds a scrape, and returns its faults.
    fn add(&mut self, scrape: &Scrape, stays: Stays, nodes: usize) -> Vec<String> {
        let mut faults = Vec::new();
        let gone = |name: &&String| !scrape.types.contains_key(*name);
        faults.extend(self.types.keys().filter(gone).map(|name| format!("{name}: its family is gone")));
        let later = |name: &&String| self.scrapes > 0 && !self.types.contains_key(*name);
        faults
            .extend(scrape.types.keys().filter(later).map(|name| format!("{name}: its family was not there at first")));
        for (name, kind) in &scrape.types {
            let before = self.types.entry(name.clone()).or_insert_with(|| kind.clone());
            if before != kind {
                faults.push(format!("{name}: was a {before} and is a {kind}"));
            }
        }
        for (series, before) in &mut self.staying {
            let name = series.split('{').next().expect("a name");
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            let rises =
                ["counter", "histogram"].iter().any(|kind| self.types.get(family).is_some_and(|own| own == kind));
            match scrape.samples.get(series) {
                None => faults.push(format!("{series}: a gap")),
                Some(now) if rises && *now < *before => faults.push(format!("{series}: {now} after {before}")),
                Some(now) => *before = *now,
            }
        }
        for (series, value) in &scrape.samples {
            let stays = match label(series, "peer_node") {
                Some(peer) => stays == Stays::All || (1..=AGENTS).any(|number| node(number).0 == peer),
                // A pair of zones is there while there is a peer in that zone.
                None => label(series, "peer_zone").is_none(),
            };
            if stays {
                self.staying.entry(series.clone()).or_insert(*value);
            }
        }
        for (series, created) in &scrape.created {
            let before = *self.created.get(series).unwrap_or(created);
            let stays =
                self.staying.contains_key(series) || self.staying.contains_key(&series.replacen('{', "_count{", 1));
            if stays && (before - created).abs() > 1e-3 {
                faults.push(format!("{series}: created at {before} and at {created}"));
            }
            self.created.insert(series.clone(), *created);
        }
        faults.extend(Self::uneven(scrape, nodes));
        self.scrapes += 1;
        self.links_max = self.links_max.max(scrape.links);
        self.series_max = self.series_max.max(scrape.native_series);
        faults
    }

    /// Links that do not have the same series as the others of the scrape. If a link is forgotten
    /// while a scrape is sent, it may be missing from the end of the scrape.
    fn uneven(scrape: &Scrape, nodes: usize) -> Option<String> {
        let listed: BTreeSet<String> = (1..=nodes).map(|number| node(number).0).collect();
        let mut links: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for series in scrape.samples.keys() {
            if let Some(peer) = label(series, "peer_node").filter(|peer| listed.contains(*peer)) {
                links.entry(peer).or_default().insert(form(series));
            }
        }
        let (first, forms) = links.first_key_value()?;
        let (other, others) = links.iter().find(|(_, others)| *others != forms)?;
        let differ: Vec<_> = forms.symmetric_difference(others).take(3).collect();
        Some(format!("{first} and {other} have not the same series: {differ:?}"))
    }
}

/// Whether an agent has read the list of this many nodes, which was `written` this long ago.
/// Members that are no longer listed stay members for `--forget-after`. The age of the list shows
/// that it was read again.
fn has_heard(scrape: &Scrape, nodes: usize, written: Duration) -> bool {
    let value = |name: &str| scrape.samples.get(&format!("kube_canary_{name}{{}}"));
    match (value("mesh_members"), value("peer_list_age_seconds")) {
        (Some(members), Some(age)) => *members > nodes as f64 - 0.5 && *age < written.as_secs_f64() && scrape.links > 0,
        _ => scrape.links + 1 == nodes,
    }
}

fn nothing_changes_as_a_mesh_grows(maker: Maker, stays: Stays, flags: &[&str]) {
    let namespace = Namespace::new(format!("kc{}-growth-{maker:?}-{stays:?}", std::process::id()).to_lowercase());
    namespace.ip("link set lo up\nroute add local 198.18.2.0/24 dev lo\n");
    let peers = Peers::new();
    peers.write((1..=AGENTS).map(node));
    let flags = [&["--interval", "100ms", "--timeout", "1s"], flags].concat();
    let start = |number: usize| {
        let port = 9_876 + u16::try_from(number).expect("few agents");
        Agent::start(maker, &namespace, (&node(number).0, port), &peers.0, &flags)
    };
    let agents: Vec<Agent> = (1..=AGENTS).map(start).collect();
    let mut decoder = Decoder::start();
    let mut ledgers: BTreeMap<(usize, &str), Ledger> = BTreeMap::new();
    let mut turn = |nodes: usize, first: bool, written: Instant| -> Result<(), String> {
        let mut late = Vec::new();
        for (number, agent) in agents.iter().enumerate() {
            for (format, accept) in FORMATS {
                // Scrapes are plain and compressed in turn.
                let zipped = ledgers.values().map(|ledger| ledger.scrapes).sum::<usize>() % 2 == 1;
                let written = written.elapsed();
                let scrape = decoder.whole(&agent.scrape(format!("{accept}{}", if zipped { GZIP } else { "" })));
                assert_eq!(scrape.format, format);
                if !has_heard(&scrape, nodes, written) {
                    late.push(format!("{format} of {number}: {} links", scrape.links));
                }
                if !first {
                    let faults = ledgers.entry((number, format)).or_default().add(&scrape, stays, nodes);
                    let told = &faults[..faults.len().min(FAULTS_TOLD)];
                    let all = faults.len();
                    assert!(told.is_empty(), "{nodes} nodes, {format}: {all} faults\n{}", told.join("\n"));
                }
            }
        }
        if late.is_empty() { Ok(()) } else { Err(late.join(", ")) }
    };
    // The series at the beginning must stay from then on. They count once all agents probe all
    // others.
    let started = Instant::now();
    until("the agents probe each other", || turn(AGENTS, true, started));
    let back = GROWS.iter().rev().skip(1);
    for nodes in GROWS.iter().chain(back) {
        peers.write((1..=*nodes).map(node));
        let written = Instant::now();
        until(&format!("the agents know {nodes} nodes"), || turn(*nodes, false, written));
    }
    for ((number, format), ledger) in &ledgers {
        let Ledger { scrapes, links_max, series_max, .. } = ledger;
        println!("{maker:?} {number}, {format}: {scrapes} scrapes, at most {links_max} links and {series_max} series");
        assert!(*links_max >= 24, "it has not grown");
    }
}

#[test]
fn series_are_stable_while_a_mesh_grows_with_the_reference() {
    nothing_changes_as_a_mesh_grows(Maker::Reference, Stays::BetweenAgents, &[]);
}

#[test]
fn series_are_stable_while_a_full_mesh_grows() {
    let flags = ["--max-peers", "0", "--forget-after", "2s"];
    nothing_changes_as_a_mesh_grows(Maker::Agent, Stays::BetweenAgents, &flags);
}

#[test]
fn series_are_stable_while_a_mesh_grows_with_default_flags() {
    nothing_changes_as_a_mesh_grows(Maker::Agent, Stays::All, &[]);
}
