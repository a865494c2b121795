//! The subject of a verdict, in at most 128 bytes, and the identity of a verdict.
//!
//! A verdict comes from other pods as well. So its id is a cryptographic hash, under which no other
//! subject can be found, and agents compare the fields themselves.

use std::borrow::Cow;
use std::fmt::Write as _;

use ring::digest::{Context, SHA256};

use kube_canary_model::method::{Family, Method, Methods};
use kube_canary_model::report::Network;
use kube_canary_model::verdict::{Kind, Verdict};

/// Largest number of bytes of a subject: it must suit a label value of a time-series database, and
/// a line of a table.
const SUBJECT_BYTES_MAX: usize = 128;
/// Hexadecimal digits of a hash: 128 bits.
const HASH_DIGITS: usize = 32;

/// Returns the subject of a node or zone.
pub fn from_name(name: &str) -> String {
    cut(name, SUBJECT_BYTES_MAX)
}

/// Returns the subject of a link, of two zones, or of a check.
pub fn from_ends(a: &str, b: &str) -> String {
    let room = (SUBJECT_BYTES_MAX - "->".len()) / 2;
    format!("{}->{}", cut(a, room), cut(b, room))
}

/// Returns the subject of groups, each given by its smallest name.
pub fn from_groups(firsts: &[&str]) -> String {
    cut(&firsts.join("|"), SUBJECT_BYTES_MAX)
}

/// What a verdict is about. Two verdicts of one identity are the same finding, by whatever agent
/// and at whatever time. Direction, severity, beginning and end are no part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity<'a> {
    /// What kind of fault it is.
    pub kind: Kind,
    /// The subject with its ends in order.
    pub subject: Cow<'a, str>,
    /// The label of the network of the probes.
    pub network: &'static str,
    /// The protocols of the probes. `None` if the verdict is about all.
    pub protocol: Option<Methods>,
    /// The address family of the probes. `None` if the verdict is about none in particular.
    pub family: Option<Family>,
}

/// Returns the identity of a verdict, which is the same in every agent.
pub fn identity(verdict: &Verdict) -> Identity<'_> {
    let Verdict { kind, network, protocol, family, .. } = *verdict;
    let subject = match verdict.ends() {
        Some((a, b)) if b < a => format!("{b}->{a}").into(),
        _ => Cow::Borrowed(verdict.subject.as_str()),
    };
    Identity { kind, subject, network: network.label(), protocol, family }
}

/// Whether both are the same finding, at whatever time. It compares the fields: an id may come from
/// another pod.
pub fn is_same_finding(a: &Verdict, b: &Verdict) -> bool {
    identity(a) == identity(b)
}

/// Returns the id of a verdict: the hash of its identity.
pub fn id(verdict: &Verdict) -> String {
    let Identity { kind, subject, network, protocol, family } = identity(verdict);
    hash(&[kind.label(), &subject, network, protocol.map_or("", Methods::label), family.map_or("", Family::label)])
}

/// Whether what the link between two nodes loses may belong to a verdict: it is about this link,
/// one of the two nodes, their zones, domains or groups, or links everywhere. Both ends are given
/// by node and zone.
///
/// A verdict names at most 64 members of a domain or of a group. The links of the others are left
/// out.
pub fn covers(verdict: &Verdict, (a, zone_a): (&str, &str), (b, zone_b): (&str, &str)) -> bool {
    let Verdict { subject, members, .. } = verdict;
    let is_two = |a: &str, b: &str| *subject == from_ends(a, b) || *subject == from_ends(b, a);
    let is_one = |a: &str, b: &str| *subject == from_name(a) || *subject == from_name(b);
    let group = |node: &str| members.iter().position(|group| group.iter().any(|member| member == node));
    match verdict.kind {
        Kind::Mtu => is_two(a, b) || is_one(a, b),
        Kind::Link | Kind::Flow => is_two(a, b),
        Kind::Node => is_one(a, b),
        Kind::Zone => is_one(zone_a, zone_b),
        Kind::ZonePair => is_two(zone_a, zone_b),
        Kind::Domain => group(a).or(group(b)).is_some(),
        Kind::Partition => group(a).zip(group(b)).is_some_and(|(a, b)| a != b),
        Kind::Mesh | Kind::Paths => true,
        // A check has no links.
        Kind::Check | Kind::AgentStarved | Kind::AgentUnreachable | Kind::AgentSuspect => false,
    }
}

/// Whether most links of one loss may be those of another. A single link is only one of a node's or
/// a zone's, and two nodes have one in common.
pub fn may_share_links(one: &Verdict, other: &Verdict) -> bool {
    let is_narrow = |verdict: &Verdict| matches!(verdict.kind, Kind::Link | Kind::Flow);
    let ends = |verdict: &Verdict| {
        verdict
            .ends()
            .filter(|_| is_narrow(verdict))
            .map(|(a, b)| if a < b { [a, b] } else { [b, a] }.map(str::to_owned))
    };
    one.is_loss()
        && other.is_loss()
        && match (ends(one), ends(other)) {
            (Some(one), other) => other == Some(one),
            (None, Some(ends)) => one.kind != Kind::Node || ends.contains(&one.subject),
            (None, None) => one.kind != Kind::Node || other.kind != Kind::Node,
        }
}

/// Whether the recent windows may show a verdict for the same reason as one that has ended: losses,
/// or failures of the same check.
pub fn may_be_rest(verdict: &Verdict, ended: &Verdict) -> bool {
    match verdict.checked() {
        Some((_, check)) => ended.checked().is_some_and(|(_, other)| other == check),
        None => ended.is_loss(),
    }
}

/// Whether what UDP probes show of the link between two nodes may belong to a verdict.
pub fn covers_udp_between(verdict: &Verdict, a: (&str, &str), b: (&str, &str)) -> bool {
    let is_of_pods = verdict.network == Network::Pod;
    is_of_pods && verdict.protocol.is_none_or(|methods| methods.has(Method::Udp)) && covers(verdict, a, b)
}

/// Cuts a name that is too long and appends a hash of the whole, so that two names with the
/// same beginning stay different.
fn cut(name: &str, bytes: usize) -> String {
    if name.len() <= bytes {
        return name.to_owned();
    }
    let kept = &name[..name.floor_char_boundary(bytes - HASH_DIGITS - 1)];
    format!("{kept}~{}", hash(&[name]))
}

/// Returns the first 128 bits of SHA-256 over the parts, each followed by a zero byte, in
/// hexadecimal. It must be the same in every version, and any program can compute it.
fn hash(parts: &[&str]) -> String {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part.as_bytes());
        context.update(&[0]);
    }
    let digest = context.finish();
    let words = digest.as_ref().iter().take(HASH_DIGITS / 2);
    words.fold(String::with_capacity(HASH_DIGITS), |mut digits, byte| {
        // Writing to memory cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_belong_to_the_verdicts_about_their_link_its_nodes_zones_domains_and_groups() {
        let covers = |kind: &str, subject: &str, members: &[&[&str]], ends: [(&str, &str); 2]| {
            let verdict = serde_json::json!({"kind": kind, "subject": subject, "members": members, "direction": "both",
                "network": "pod", "evidence": "", "since_unix_seconds": null});
            let verdict: Verdict = serde_json::from_value(verdict).unwrap();
            covers_udp_between(&verdict, ends[0], ends[1])
        };
        let (a, b, c) = (("a", "x"), ("b", "y"), ("c", "z"));
        for (kind, subject, members, is_one) in [
            ("link", "b->a", &[][..], false),
            ("flow", "a->b", &[], false),
            ("node", "a", &[], true),
            ("zone", "x", &[], true),
            ("zone_pair", "y->x", &[], false),
            ("domain", "rack", &[&["a", "d"][..]], true),
            ("partition", "a|b", &[&["a", "d"], &["b", "e"]], false),
        ] {
            assert!(covers(kind, subject, members, [a, b]), "{kind}");
            assert!(covers(kind, subject, members, [b, a]), "{kind}");
            assert_eq!(covers(kind, subject, members, [a, c]), is_one, "{kind}");
            assert!(!covers(kind, subject, members, [c, c]), "{kind}");
        }
        assert!(!covers("partition", "a|b", &[&["a", "d"], &["b", "e"]], [a, ("d", "x")]), "of one group");
        assert!(covers("mesh", "*", &[], [a, c]) && covers("paths", "*", &[], [a, c]));
        assert!(!covers("agent_starved", "a", &[], [a, b]));
    }

    fn node(subject: &str) -> Verdict {
        let verdict = serde_json::json!({"kind": "node", "subject": subject, "direction": "both", "network": "pod",
            "evidence": "", "since_unix_seconds": null});
        serde_json::from_value(verdict).unwrap()
    }

    #[test]
    fn a_link_shares_the_links_of_what_holds_it_and_two_nodes_share_one() {
        let of = |kind: Kind, subject: &str| Verdict { kind, ..node(subject) };
        let (link, turned) = (of(Kind::Link, "a->b"), of(Kind::Flow, "b->a"));
        assert!(may_share_links(&link, &turned) && !may_share_links(&link, &of(Kind::Link, "a->c")));
        assert!(may_share_links(&node("a"), &link) && !may_share_links(&link, &node("a")));
        assert!(!may_share_links(&node("a"), &node("b")) && !may_share_links(&node("c"), &link));
        let pair = of(Kind::ZonePair, "x->y");
        assert!(
            may_share_links(&node("a"), &pair) && may_share_links(&pair, &node("a")) && may_share_links(&pair, &link)
        );
        assert!(!may_share_links(&of(Kind::AgentStarved, "a"), &link));
    }

    #[test]
    fn failures_of_a_check_are_the_rest_of_those_of_the_same_check() {
        let check = |subject: &str| Verdict { kind: Kind::Check, ..node(subject) };
        assert!(may_be_rest(&check("a->dns"), &check("*->dns")) && !may_be_rest(&check("a->dns"), &check("*->api")));
        assert!(!may_be_rest(&check("a->dns"), &node("a")) && !may_be_rest(&node("a"), &check("a->dns")));
        assert!(may_be_rest(&node("a"), &node("b")));
    }

    #[test]
    fn the_severity_of_a_check_rises_while_it_fails_and_that_of_a_slow_one_is_its_own() {
        use kube_canary_model::verdict::{Figure, Severity};
        let of = |severity, figure| {
            let mut verdict = Verdict { kind: Kind::Check, severity, ..node("*->dns") };
            verdict.figures.set(figure, 3.0);
            verdict
        };
        let [less, more] = [Severity::Warning, Severity::Critical].map(|severity| of(severity, Figure::FailedAttempts));
        let slow = of(Severity::Warning, Figure::SlowAttempts);
        assert_eq!((less.severity_after(&more), more.severity_after(&less)), (Severity::Critical, Severity::Critical));
        assert_eq!(slow.severity_after(&more), Severity::Warning);
    }

    #[test]
    fn ids_are_128_bits_of_sha_256() {
        // printf 'node\0n1\0pod\0\0\0' | sha256sum
        assert_eq!(id(&node("n1")), "09938417f9865e5e683dd24aa9f3cf4b");
        let name = "n".repeat(129);
        // (printf '%0129d' 0 | tr 0 n; printf '\0') | sha256sum
        assert!(from_name(&name).ends_with("~547a598bd3b6d4d41c11bb1874d52811"), "{}", from_name(&name));
    }

    /// FNV-1a of 64 bits gives both subjects one id. A minute of one CPU finds such a pair.
    #[test]
    fn subjects_that_collide_in_fnv_have_different_ids() {
        assert_ne!(id(&node("iiOSKwfOuFn")), id(&node("O1dIzOcz5ac")));
    }

    #[test]
    fn long_names_are_cut_and_stay_different() {
        let names = ["a", "b"].map(|end| format!("{}{end}", "n".repeat(253)));
        let [first, second] = names.each_ref().map(|name| from_name(name));
        assert!(first.len() == SUBJECT_BYTES_MAX && second.len() == SUBJECT_BYTES_MAX && first != second);
        assert!(from_ends(&names[0], &names[1]).len() <= SUBJECT_BYTES_MAX);
        assert_eq!(from_ends("a", "b"), "a->b");
    }
}
