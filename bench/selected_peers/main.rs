//! The peers that each node of a mesh probes: `selected_peers MAX_PEERS SELECTED < MEMBERS`, run by
//! bench/scale.
//!
//! MEMBERS has a line `NODE ZONE` for each node. The program prints `members RESIDENT_BYTES`. Then
//! it prints, for each node in the same order, a line with the numbers of its peers. The reader of
//! these lines computes the statistics. Last, it prints `alone NODE MICROSECONDS FACTS…` for
//! SELECTED nodes. Each of these is computed by itself, as an agent does it. If that gives other
//! peers, the program fails.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use kube_canary::discovery::members::{MemberId, Members};
use kube_canary::discovery::selection::{self, Scheme};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        || arguments.next().ok_or("selected_peers MAX_PEERS SELECTED")?.parse::<usize>().map_err(|e| e.to_string());
    let (max_peers, selected) = (number()?, number()?);
    let text = std::io::read_to_string(std::io::stdin())?;
    let nodes: Vec<_> = text.lines().filter_map(|line| line.split_once(' ')).collect();

    let mut members = Members::new(Duration::from_mins(5));
    let ids: Vec<MemberId> =
        nodes.iter().map(|(node, zone)| members.put(node, Some(zone)).ok_or("no room")).collect::<Result<_, _>>()?;
    let full = max_peers == 0 || nodes.len() <= max_peers + 1;
    let scheme = (!full).then(|| Scheme::new(&members, max_peers));
    let chosen = |at: usize| -> BTreeSet<MemberId> {
        match &scheme {
            Some(scheme) => scheme.chosen_by(ids[at]).into_iter().collect(),
            None => ids.iter().copied().filter(|id| *id != ids[at]).collect(),
        }
    };

    let mut out = std::io::stdout().lock();
    writeln!(out, "members {}", members.resident_bytes())?;
    for at in 0..ids.len() {
        // Members are numbered in their order, so the numbers are those of the lines as well.
        let peers: Vec<_> = chosen(at).into_iter().map(|id| id.0.to_string()).collect();
        writeln!(out, "{}", peers.join(" "))?;
    }
    for at in (0..ids.len()).step_by((ids.len() / selected.max(1)).max(1)) {
        let begin = Instant::now();
        let alone = selection::select(&members, nodes[at].0, Some(nodes[at].1), max_peers);
        let took = begin.elapsed();
        let picked: BTreeSet<_> = ids.iter().copied().filter(|id| alone.contains(*id)).collect();
        if picked != chosen(at) {
            return Err(format!("{}: alone it comes to other peers than all together", nodes[at].0).into());
        }
        let facts = alone.facts();
        writeln!(
            out,
            "alone {at} {} {} {} {} {} {}",
            took.as_micros(),
            facts.members,
            facts.watchers_in_zone,
            facts.watchers_elsewhere,
            facts.watchers_missing,
            facts.watchers_missing_elsewhere
        )?;
    }
    Ok(())
}
