//! Metrics about the mesh as a whole, and about what the scrapes leave out.
//!
//! They are written after the registry's families, for the reason given in [`super::memory`].

use super::head::Head;
use crate::peers::Directory;

/// Number of series that are written.
pub const SERIES: usize = 7;

/// Appends the families to a scrape.
pub fn write(node: &str, directory: &Directory, suppressed: usize, head: &mut Head<'_>) {
    let mesh = directory.mesh();
    head.gauge(
        "kube_canary_agent_info",
        "The node of the agent and its zone; always 1. Joins the agent's own series to its node.",
        &[(&[("node", node), ("zone", directory.own_zone())], 1)],
    );
    head.gauge(
        "kube_canary_mesh_members",
        "Nodes of the mesh, this one included, whether it probes them or not; 0 before the first list.",
        &[(&[], mesh.members.into())],
    );
    head.gauge(
        "kube_canary_watchers",
        "Nodes that probe this one, by the selection that all nodes make: of its own zone, and of others.",
        &[(&[("zone", "own")], mesh.watchers_in_zone.into()), (&[("zone", "other")], mesh.watchers_elsewhere.into())],
    );
    head.gauge(
        "kube_canary_watchers_missing",
        "Watchers that this node should have, for which no agent has room: of any zone, and of those of other zones.",
        &[
            (&[("zone", "any")], mesh.watchers_missing.into()),
            (&[("zone", "other")], mesh.watchers_missing_elsewhere.into()),
        ],
    );
    head.gauge(
        "kube_canary_suppressed_series",
        "Series of the links that this scrape leaves out to stay within --max-series.",
        &[(&[], suppressed as u64)],
    );
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    #[test]
    fn as_many_series_are_written_as_are_counted() {
        let mut text = Vec::new();
        let mut head = Head::new(Format::Text, 1, &mut text);
        write("n1", &Directory::default(), 7, &mut head);
        assert_eq!(head.samples(), SERIES);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), SERIES);
        assert!(text.contains("\nkube_canary_agent_info{node=\"n1\",zone=\"unknown\"} 1\n"), "{text}");
        assert!(
            text.contains("\nkube_canary_mesh_members 0\n") && text.ends_with("\nkube_canary_suppressed_series 7\n")
        );
    }
}
