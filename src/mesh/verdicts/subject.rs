//! The subject of a verdict, in at most 128 bytes, and the verdict's id.

use super::{Kind, OfNetwork, OfProtocol, Verdict};

/// Largest number of bytes of a subject: it must suit a label value of a time-series database, and
/// a line of a table.
const SUBJECT_BYTES_MAX: usize = 128;
/// Digits of the hash at the end of a name that was cut.
const CUT_DIGITS: usize = 8;

/// Returns the subject of a node or zone.
pub fn of_one(name: &str) -> String {
    cut(name, SUBJECT_BYTES_MAX)
}

/// Returns the subject of a link or of two zones.
pub fn of_two(a: &str, b: &str) -> String {
    let room = (SUBJECT_BYTES_MAX - "->".len()) / 2;
    format!("{}->{}", cut(a, room), cut(b, room))
}

/// Returns the subject of groups, each given by its smallest name.
pub fn of_groups(firsts: &[&str]) -> String {
    cut(&firsts.join("|"), SUBJECT_BYTES_MAX)
}

/// Returns the id of a verdict, which is the same in every agent.
pub fn id(verdict: &Verdict) -> String {
    let kind = serde_json::to_string(&verdict.kind).unwrap_or_default();
    let network = match verdict.network {
        OfNetwork::Pod => "pod",
        OfNetwork::Node => "node",
    };
    let protocol = verdict.protocol.map_or("", OfProtocol::label);
    format!("{:016x}", hash(&[kind.trim_matches('"'), &verdict.subject, network, protocol]))
}

/// Whether what UDP probes show of the link between two nodes may belong to a verdict: it is about
/// this link, one of the two nodes, or links everywhere.
pub fn covers_udp_between(verdict: &Verdict, a: &str, b: &str) -> bool {
    let subject = &verdict.subject;
    verdict.network == OfNetwork::Pod
        && matches!(verdict.protocol, None | Some(OfProtocol::Udp))
        && match verdict.kind {
            Kind::Link | Kind::Flow | Kind::Mtu if *subject == of_two(a, b) || *subject == of_two(b, a) => true,
            Kind::Node | Kind::Mtu => *subject == of_one(a) || *subject == of_one(b),
            Kind::Mesh | Kind::Paths => true,
            _ => false,
        }
}

/// Cuts a name that is too long and appends a hash of the whole, so that two names with the
/// same beginning stay different.
fn cut(name: &str, bytes: usize) -> String {
    if name.len() <= bytes {
        return name.to_owned();
    }
    let kept = &name[..name.floor_char_boundary(bytes - CUT_DIGITS - 1)];
    let digits = format!("{:016x}", hash(&[name]));
    format!("{kept}~{}", &digits[..CUT_DIGITS])
}

/// Returns the 64-bit FNV-1a hash of the parts, each followed by a zero byte. It must be the same
/// in every version, and any program can compute it. It is no defence against forged names.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_stay_different() {
        let names = ["a", "b"].map(|end| format!("{}{end}", "n".repeat(253)));
        let [first, second] = names.each_ref().map(|name| of_one(name));
        assert!(first.len() == SUBJECT_BYTES_MAX && second.len() == SUBJECT_BYTES_MAX && first != second);
        assert!(of_two(&names[0], &names[1]).len() <= SUBJECT_BYTES_MAX);
        assert_eq!(of_two("a", "b"), "a->b");
    }
}
