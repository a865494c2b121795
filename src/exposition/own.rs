//! The agent's own families with labels, and those that not every agent has. They are written after
//! the registry's families: there, the totals alone would cost 7 KB.

use super::REVISION;
use super::head::FamilyWriter;
use crate::allocator::{AllocatorInfo, Stat, Stats};
use crate::discovery::kubernetes::traffic::{Verb, received_bytes};
use crate::peers::{Directory, Method, Presence};
use crate::prober::{SendError, Stamp};
use crate::statistics::Statistics;

/// Number of series that [`write_mesh`] writes.
pub const MESH_SERIES: usize = 12;

/// Appends the version, the commit, and the allocator that runs.
pub fn write_build(info: &AllocatorInfo, head: &mut FamilyWriter<'_>) {
    let narenas = info.narenas.map_or_else(String::new, |narenas| narenas.to_string());
    let labels = [
        ("allocator", info.allocator),
        ("libc", info.libc),
        ("linkage", info.linkage),
        ("narenas", &narenas),
        ("revision", REVISION),
        ("version", env!("CARGO_PKG_VERSION")),
    ];
    let help = "The version, the commit, and the allocator that runs; always 1.";
    head.gauges("kube_canary_build_info", help, [(labels, 1)]);
}

/// Appends the figures that the running malloc keeps, if any.
pub fn write_allocator(stats: Stats, head: &mut FamilyWriter<'_>) {
    stats.refresh();
    let figures = Stat::ALL.map(|stat| (stat, stats.read(stat)));
    head.gauges(
        "kube_canary_allocator_bytes",
        "Memory by the allocator's own figures, under jemalloc's names; only those that it keeps.",
        figures.into_iter().filter_map(|(stat, bytes)| Some(([("stat", stat.label())], bytes?))),
    );
}

/// Appends the traffic between discovery and the API server. With peers from another source, these
/// would be four useless series.
pub fn write_api_server(head: &mut FamilyWriter<'_>) {
    if Verb::ALL.iter().all(|verb| verb.requests() == 0) {
        return;
    }
    head.counters(
        "kube_canary_api_received_bytes_total",
        "Bytes received from the Kubernetes API server, TLS included.",
        [([], received_bytes())],
    );
    head.counters(
        "kube_canary_api_requests_total",
        "Requests sent to the Kubernetes API server.",
        Verb::ALL.map(|verb| ([("verb", verb.label())], verb.requests())),
    );
}

/// Appends counters of rare events over all links.
pub fn write_totals(statistics: &Statistics, head: &mut FamilyWriter<'_>) {
    head.counters(
        "kube_canary_rtt_stamps_total",
        "Round-trip times, by the source of their timestamps.",
        Stamp::ALL.map(|stamp| ([("source", stamp.label())], statistics.stamps(stamp))),
    );
    head.counters(
        "kube_canary_send_errors_by_reason_total",
        "Probes of all links that the kernel refused to send, by reason.",
        SendError::ALL.map(|reason| ([("reason", reason.label())], statistics.send_errors(reason))),
    );
    if statistics.methods().has(Method::Udp) {
        head.counters(
            "kube_canary_udp_requests_refused_total",
            "UDP packets that this agent did not answer: from no member, too many, or no probes. Most are dropped by the kernel and not counted.",
            [([], statistics.requests_refused())],
        );
    }
    head.counters(
        "kube_canary_terminating_by_result_total",
        "Probes to all peers that were terminating or had just left the list, by result.",
        [("received", true), ("lost", false)]
            .map(|(result, answered)| ([("result", result)], statistics.terminating(answered))),
    );
}

/// Appends the facts about the mesh as a whole, and the number of series that the scrape leaves
/// out.
pub fn write_mesh(
    (node, is_member): (&str, bool),
    directory: &Directory,
    suppressed: usize,
    head: &mut FamilyWriter<'_>,
) {
    let mesh = directory.mesh();
    let states = [Presence::Ready, Presence::Unready, Presence::Terminating, Presence::Displaced];
    let states = states.into_iter().zip(directory.nodes());
    head.gauges(
        "kube_canary_peers",
        "Other nodes in the list, by state.",
        states.map(|(presence, nodes)| ([("state", presence.label())], nodes as u64)),
    );
    head.gauges(
        "kube_canary_agent_info",
        "Node and zone of the agent; always 1. Joins the agent's own series to its node.",
        [([("node", node), ("zone", directory.own_zone())], 1)],
    );
    head.gauges(
        "kube_canary_agent_is_member",
        "Whether the agent is a member of the mesh: 0 if it probes the mesh from outside.",
        [([], is_member.into())],
    );
    head.gauges(
        "kube_canary_mesh_members",
        "Nodes of the mesh, this agent's included, whether it probes them or not; 0 before the first list.",
        [([], mesh.members.into())],
    );
    head.gauges(
        "kube_canary_watchers",
        "Nodes that probe this one by the selection that all nodes compute: in its own zone, and in others.",
        [([("zone", "own")], mesh.watchers_in_zone.into()), ([("zone", "other")], mesh.watchers_elsewhere.into())],
    );
    head.gauges(
        "kube_canary_watchers_missing",
        "Watchers that this node lacks because no agent has room: in any zone, and in other zones.",
        [
            ([("zone", "any")], mesh.watchers_missing.into()),
            ([("zone", "other")], mesh.watchers_missing_elsewhere.into()),
        ],
    );
    head.gauges(
        "kube_canary_suppressed_series",
        "Series of the links that this scrape leaves out to stay within --max-series.",
        [([], suppressed as u64)],
    );
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    #[test]
    fn as_many_series_are_written_as_are_counted() {
        let mut text = Vec::new();
        let mut head = FamilyWriter::new(Format::Text, 1, &mut text);
        write_mesh(("n1", true), &Directory::default(), 7, &mut head);
        assert_eq!(head.samples(), MESH_SERIES);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), MESH_SERIES);
        assert!(text.contains("\nkube_canary_agent_info{node=\"n1\",zone=\"unknown\"} 1\n"), "{text}");
        assert!(
            text.contains("\nkube_canary_mesh_members 0\n") && text.ends_with("\nkube_canary_suppressed_series 7\n")
        );
    }
}
