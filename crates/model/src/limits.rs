//! The bounds of what reports say and of the mesh that they make, each with its reason.

use std::time::Duration;

/// Peer slots. Both families count, and so do peers that have left but are not forgotten yet. The
/// value fits a dual-stack mesh of 5,000 nodes (the largest supported Kubernetes cluster) and more
/// than half as many again in a rollout.
pub const PEER_SLOTS_MAX: usize = 16_384;
/// Bytes of a node name or a zone: a DNS subdomain (RFC 1123), as Kubernetes allows.
pub const NAME_BYTES_MAX: usize = 253;
/// Shortest probing interval. A peer's 32-bit counters last 497 days at 10 ms and 136 years at 1 s.
/// Totals over all peers have 64 bits.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Evidence in nats from which on a flow is said to lose while the others of its link do not. A
/// flow that loses a fifth takes more than a minute to give more. With less, the flows of a link
/// that loses a twentieth to a fifth would lose by chance more often than once in 250 links and ten
/// minutes.
pub const FLOW_NATS_MIN: u8 = 5;
/// Largest number of flows, and the default of `--flows`: source ports of UDP probes. A fabric of
/// 16 parallel paths carries 16 flows on 10 of them on average.
pub const FLOWS_MAX: u8 = 16;
/// Agents that are asked: the largest supported Kubernetes cluster.
pub const AGENTS_MAX: usize = 5_000;
/// Sessions of strangers that a report lists.
pub const STRANGERS_MAX: usize = 8;
/// Objects of one report, `/api/v1/peers`: all slots, each by three methods. 5,000 nodes of two
/// families have 29,994 with `--max-peers 0`. Agents read a report object by object, so this takes
/// none of their memory.
pub const REPORT_PEERS_MAX: usize = 3 * PEER_SLOTS_MAX;
/// Reports of a mesh that are collected and judged. The rest is counted.
pub const MESH_REPORTS_MAX: usize = 300;
/// Nodes of a mesh that are distinguished: the largest supported Kubernetes cluster, which
/// 300 reports may name.
pub const MESH_NODES_MAX: usize = 5_000;
/// Zones of a mesh that are distinguished. Further ones count as `unknown`. Regions have 3 to 6.
/// Verdicts keep 320 bytes of sums for each pair of zones.
pub const MESH_ZONES_MAX: usize = 17;
/// Failure domains that `--domains-file` may name: as many as fit a byte, with values to spare.
/// Verdicts keep 72 bytes of sums for each.
pub const DOMAINS_MAX: usize = 250;
/// Lines of a domains file that name a domain: one for each node of twice the
/// largest supported Kubernetes cluster.
pub const DOMAIN_LINES_MAX: usize = 10_000;
/// Lines of a domains file with a wildcard: two for each domain. They are compared with a node's
/// name one after the other. Plain names are looked up.
pub const DOMAIN_PATTERNS_MAX: usize = 500;
/// Bytes of a domains file: the most that a ConfigMap holds.
pub const DOMAINS_FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes that are kept of a mesh and used to judge it. A collection may peak at 1 MB. 300 nodes
/// that each probe all others take 780 KB, of which their cells take 718 KB.
pub const MESH_BYTES_MAX: usize = 900_000;
/// Verdicts that are reported, gravest first.
pub const MESH_VERDICTS_MAX: usize = 64;
/// Reports that a judge collects, and nodes that it distinguishes: the largest supported Kubernetes
/// cluster.
pub const JUDGED_NODES_MAX: usize = AGENTS_MAX;
/// Bytes that a judge keeps of a mesh and uses to judge it. 5,000 nodes that probe 24 peers by
/// three methods take 2.6 MB if nothing is lost, of which their cells take 1 MB, and 4.5 MB if all
/// links lose.
pub const JUDGED_BYTES_MAX: usize = 5_000_000;
