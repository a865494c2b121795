//! What the agent knows of the mesh as a whole, and what it leaves out of its scrapes.
//!
//! Written by hand behind the registry's text, as [`super::memory`] is.

use std::io::Write as _;

use crate::peers::Directory;

/// Series that are written.
pub const SERIES: usize = 6;

/// Appends them.
pub fn write(directory: &Directory, suppressed: usize, out: &mut Vec<u8>) {
    let mesh = directory.mesh();
    let mut family = |name: &str, help: &str, samples: &[(&str, u64)]| {
        // Writing to a Vec cannot fail.
        let _ = writeln!(out, "# HELP kube_canary_{name} {help}\n# TYPE kube_canary_{name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(out, "kube_canary_{name}{labels} {value}");
        }
    };
    family(
        "mesh_members",
        "Nodes of the mesh, this one included, whether it probes them or not; 0 before the first list.",
        &[("", mesh.members.into())],
    );
    family(
        "watchers",
        "Nodes that probe this one, by the selection that all nodes make: of its own zone, and of others.",
        &[("{zone=\"own\"}", mesh.watchers_in_zone.into()), ("{zone=\"other\"}", mesh.watchers_elsewhere.into())],
    );
    family(
        "watchers_missing",
        "Watchers that this node should have and that nobody has room to be: of any zone, and of those of other zones.",
        &[
            ("{zone=\"any\"}", mesh.watchers_missing.into()),
            ("{zone=\"other\"}", mesh.watchers_missing_elsewhere.into()),
        ],
    );
    family(
        "suppressed_series",
        "Series that this scrape leaves out to stay within the series budget.",
        &[("", suppressed as u64)],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_series_are_written_as_are_counted() {
        let mut text = Vec::new();
        write(&Directory::default(), 7, &mut text);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), SERIES);
        assert!(
            text.contains("\nkube_canary_mesh_members 0\n") && text.ends_with("\nkube_canary_suppressed_series 7\n")
        );
    }
}
