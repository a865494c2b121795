//! The A/B verdict. It compares builds on machines with the same number of CPUs, and names the one
//! with the least memory.
//!
//! The trap is to compare groups that differ in more than their allocator. Groups are compared only
//! at the same number of CPUs, and different versions are reported. A difference is stated only if
//! the ranges do not overlap.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::summary::NodeSummary;
use crate::sys::console::printable;
use crate::sys::table::{self, ColumnKind, TableCell, kilobytes, known, percent, time};
use crate::sys::terminal::Terminal;

/// The number of nodes that a group needs for a meaningful range.
const NODES_MIN: usize = 3;

/// One build on machines with the same number of CPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BuildGroup {
    /// The properties that distinguish it from other groups.
    #[serde(flatten)]
    pub build: AgentBuild,
    /// The number of agents in the group.
    pub nodes: usize,
    /// Resident memory, in bytes.
    pub rss_bytes: Option<Range<u64>>,
    /// Private dirty memory, in bytes.
    pub private_dirty_bytes: Option<Range<u64>>,
    /// CPU time per probe, in seconds.
    pub cpu_seconds_per_probe: Option<Range<f64>>,
    /// Whether its median of resident memory is the smallest among the groups with as many CPUs.
    /// There must be at least two.
    pub smallest: bool,
}

/// The properties that are the same in a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct AgentBuild {
    /// The number of CPUs of the machine.
    pub cpus: u64,
    /// The malloc that runs.
    pub allocator: String,
    /// The number of jemalloc's arenas.
    pub narenas: Option<u64>,
    /// How the program was linked: `rust` or `c-shim`.
    pub linkage: Option<String>,
    /// The libc of the build.
    pub libc: Option<String>,
}

/// How a figure is distributed in a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range<T> {
    /// The median. For an even number of values it is the lower one in the middle, so it belongs
    /// to a real agent.
    pub median: T,
    /// The smallest value in the group.
    pub min: T,
    /// The largest value in the group.
    pub max: T,
}

impl<T: Copy + PartialOrd> Range<T> {
    fn from_values(values: impl Iterator<Item = T>) -> Option<Self> {
        let mut values: Vec<T> = values.collect();
        values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        let (min, max) = (*values.first()?, *values.last()?);
        Some(Self { median: values[(values.len() - 1) / 2], min, max })
    }

    fn show(self, show: impl Fn(T) -> String) -> String {
        format!("{} ({}..{})", show(self.median), show(self.min), show(self.max))
    }
}

/// Returns the groups of all agents that report their build, sorted by CPUs,
/// then by resident memory.
pub fn by_build(nodes: &[NodeSummary]) -> Vec<BuildGroup> {
    let mut found: BTreeMap<AgentBuild, Vec<&NodeSummary>> = BTreeMap::new();
    for node in nodes {
        if let (Some(cpus), Some(allocator)) = (node.cpus, node.allocator.clone()) {
            let build = AgentBuild {
                cpus,
                allocator,
                narenas: node.narenas,
                linkage: node.linkage.clone(),
                libc: node.libc.clone(),
            };
            found.entry(build).or_default().push(node);
        }
    }
    let mut groups: Vec<BuildGroup> = (found.into_iter())
        .map(|(build, nodes)| BuildGroup {
            build,
            nodes: nodes.len(),
            rss_bytes: Range::from_values(nodes.iter().filter_map(|node| node.rss_bytes)),
            private_dirty_bytes: Range::from_values(nodes.iter().filter_map(|node| node.private_dirty_bytes)),
            cpu_seconds_per_probe: Range::from_values(nodes.iter().filter_map(|node| node.cpu_seconds_per_probe)),
            smallest: false,
        })
        .collect();
    let rss = |group: &BuildGroup| group.rss_bytes.map_or(u64::MAX, |rss| rss.median);
    groups.sort_by_key(|group| (group.build.cpus, rss(group)));
    for same in groups.chunk_by_mut(|a, b| a.build.cpus == b.build.cpus) {
        let compared = same.iter().filter(|group| group.rss_bytes.is_some()).count();
        same[0].smallest = compared > 1;
    }
    groups
}

/// Formats the table, followed by one sentence for each number of CPUs. With `is_wide` every figure
/// has its range. Without, only resident memory has one, and lines fit into the terminal.
pub fn render(groups: &[BuildGroup], nodes: &[NodeSummary], is_wide: bool, terminal: Terminal) -> String {
    let terminal = if is_wide { terminal.unlimited() } else { terminal };
    let heads = [
        ("CORES", ColumnKind::Number),
        ("ALLOCATOR", ColumnKind::Text),
        ("NARENAS", ColumnKind::Number),
        ("LINKAGE", ColumnKind::Text),
        ("LIBC", ColumnKind::Text),
        ("NODES", ColumnKind::Number),
        ("RSS KB", ColumnKind::Number),
        ("DIRTY KB", ColumnKind::Number),
        ("CPU/PROBE", ColumnKind::Number),
    ];
    let cells = |group: &BuildGroup| {
        let BuildGroup { build, nodes, .. } = group;
        [
            build.cpus.to_string(),
            build.allocator.clone(),
            known(build.narenas, |n| n.to_string()),
            known(build.linkage.clone(), |name| name),
            known(build.libc.clone(), |name| name),
            nodes.to_string(),
            known(group.rss_bytes, |range| range.show(kilobytes)),
            known(
                group.private_dirty_bytes,
                |range| if is_wide { range.show(kilobytes) } else { kilobytes(range.median) },
            ),
            known(group.cpu_seconds_per_probe, |range| if is_wide { range.show(time) } else { time(range.median) }),
        ]
        .map(TableCell::from)
    };
    let mut text = table::render_on(terminal, heads, groups.iter().map(cells));
    let mut sentence = |sentence: &str| {
        text.push_str(&terminal.wrap(&printable(sentence), 4));
        text.push('\n');
    };
    sentence("");
    sentence("Median (smallest..largest) of the nodes.");
    for same in groups.chunk_by(|a, b| a.build.cpus == b.build.cpus) {
        let cores = if same[0].build.cpus == 1 { "core" } else { "cores" };
        sentence(&format!("{} {cores}: {}.", same[0].build.cpus, verdict(same)));
    }
    let mut versions: Vec<&str> = nodes.iter().filter_map(|node| node.version.as_deref()).collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        sentence(&format!("Their versions differ ({}): some of this may be theirs.", versions.join(", ")));
    }
    text
}

/// Names the smallest of these groups, which are sorted by resident memory. Also says whether
/// the difference is clear.
fn verdict(same: &[BuildGroup]) -> String {
    let measured: Vec<(&BuildGroup, Range<u64>)> = same.iter().filter_map(|g| Some((g, g.rss_bytes?))).collect();
    let [(smallest, least), others @ ..] = &measured[..] else { return "no agent says what it takes".into() };
    let Some((next, more)) = others.first() else {
        return format!("only {}, with nothing to compare it to", smallest.build.name());
    };
    let less = more.median - least.median;
    let mut text = format!("{} is smallest: {} KB", smallest.build.name(), kilobytes(least.median));
    if less > 0 {
        let share = less as f64 / more.median as f64;
        let _ = write!(text, ", {} KB ({}) below {}", kilobytes(less), percent(share), next.build.name());
    } else {
        let _ = write!(text, ", as {}", next.build.name());
    }
    // All other groups are checked: even one with a higher median may have a lower minimum.
    let overlap = others.iter().find(|(_, range)| range.min <= least.max);
    let few = measured.iter().any(|(group, _)| group.nodes < NODES_MIN);
    let _ = match overlap {
        Some((other, _)) => {
            write!(text, "; but its range overlaps that of {}: no clear difference", other.build.name())
        }
        None if few => write!(text, "; with fewer than {NODES_MIN} nodes of each that may be chance"),
        None => write!(text, "; no ranges overlap"),
    };
    text
}

impl AgentBuild {
    fn name(&self) -> String {
        let narenas = self.narenas.map(|n| format!(", narenas {n}")).unwrap_or_default();
        let linkage = self.linkage.as_deref().unwrap_or("?");
        let libc = self.libc.as_deref().filter(|libc| *libc != self.allocator);
        let libc = libc.map(|libc| format!(" on {libc}")).unwrap_or_default();
        format!("{}{libc} ({linkage}{narenas})", self.allocator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(allocator: &str, cpus: u64, kilobytes: &[u64]) -> Vec<NodeSummary> {
        let row = |rss: &u64| NodeSummary {
            cpus: Some(cpus),
            allocator: Some(allocator.into()),
            narenas: (allocator == "jemalloc").then_some(1),
            linkage: Some("rust".into()),
            libc: Some("musl".into()),
            version: Some("0.1.0".into()),
            rss_bytes: Some(rss << 10),
            cpu_seconds_per_probe: Some(0.000_01),
            ..NodeSummary::default()
        };
        kilobytes.iter().map(row).collect()
    }

    fn sentence(rows: &[NodeSummary], cores: &str) -> String {
        let text = render(&by_build(rows), rows, false, Terminal::PLAIN);
        text.lines().find(|line| line.starts_with(cores)).unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    #[test]
    fn builds_are_grouped_by_cores_and_the_smallest_median_is_named() {
        let mut all = rows("jemalloc", 4, &[1_900, 1_860, 1_880, 1_870]);
        all.extend(rows("musl", 4, &[1_300, 1_320, 1_340]));
        all.extend(rows("musl", 64, &[1_400]));
        all.push(NodeSummary { error: Some("refused".into()), ..NodeSummary::default() });
        let groups = by_build(&all);
        let found: Vec<_> =
            groups.iter().map(|g| (g.build.cpus, g.build.allocator.as_str(), g.nodes, g.smallest)).collect();
        assert_eq!(found, [(4, "musl", 3, true), (4, "jemalloc", 4, false), (64, "musl", 1, false)]);
        let jemalloc = groups[1].rss_bytes.unwrap();
        assert_eq!((jemalloc.median >> 10, jemalloc.min >> 10, jemalloc.max >> 10), (1_870, 1_860, 1_900));
        let text = render(&groups, &all, true, Terminal::PLAIN);
        assert!(text.contains("1,320 (1,300..1,340)") && text.contains("10 µs (10 µs..10 µs)"), "{text}");
        let text = render(&groups, &all, false, Terminal { columns: 100, has_colours: false });
        assert!(text.contains("1,320 (1,300..1,340)") && !text.contains("10 µs ("), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains(" below jemalloc on musl (rust, narenas 1);\n    no ranges overlap.\n"), "{text}");
        assert_eq!(
            sentence(&all, "4 cores"),
            "4 cores: musl (rust) is smallest: 1,320 KB, 550 KB (29.4%) below jemalloc on musl (rust, narenas 1); no ranges overlap."
        );
        assert_eq!(sentence(&all, "64 cores"), "64 cores: only musl (rust), with nothing to compare it to.");
        let json = serde_json::to_value(&groups).unwrap();
        assert_eq!(json[0]["allocator"], "musl");
        assert_eq!(json[0]["rss_bytes"]["median"], 1_320 << 10);
    }

    #[test]
    fn a_smallest_build_is_named_only_if_ranges_and_nodes_allow_it() {
        let mut overlapping = rows("musl", 4, &[1_300, 1_320, 1_900]);
        overlapping.extend(rows("jemalloc", 4, &[1_860, 1_870, 1_880]));
        assert!(
            sentence(&overlapping, "4 cores")
                .ends_with("overlaps that of jemalloc on musl (rust, narenas 1): no clear difference.")
        );
        let mut few = rows("musl", 4, &[1_300, 1_320, 1_340]);
        few.extend(rows("jemalloc", 4, &[1_860, 1_870]));
        assert!(sentence(&few, "4 cores").ends_with("; with fewer than 3 nodes of each that may be chance."));
        let mut mixed = few.clone();
        mixed[0].version = Some("0.2.0".into());
        let shown = |rows: &[NodeSummary]| render(&by_build(rows), rows, false, Terminal::PLAIN);
        assert!(shown(&mixed).contains("Their versions differ (0.1.0, 0.2.0)"));
        assert!(!shown(&few).contains("differ ("));
    }
}
