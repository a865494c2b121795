//! What verdicts, their ends and meshes without one are called.

use super::*;
use kube_canary_model::report::SendError;
use kube_canary_model::verdict::{Example, Figures, Mention};

const NODES: [&str; 4] = ["a", "b", "c", "d"];

/// A mesh of two families that lose as `lost` says, in probes of 60.
fn dual(lost: impl Fn(&str, &str, bool) -> u32) -> Mesh {
    NODES.iter().fold(Mesh::new(), |mesh, from| {
        let of = |to: &str| {
            let v6 = with(peer(to, lost(from, to, true)), "protocol", json!("icmpv6"));
            [peer(to, lost(from, to, false)), v6]
        };
        let peers: Vec<Value> = NODES.iter().filter(|to| *to != from).flat_map(|to| of(to)).collect();
        mesh.row(&source(from, 360), &peers)
    })
}

#[test]
fn a_family_that_alone_loses_is_said() {
    let touches = |from: &str, to: &str| from == "c" || to == "c";
    let of_v6 = dual(|from, to, over_ipv6| if over_ipv6 && touches(from, to) { 60 } else { 0 }).verdicts();
    let both = dual(|from, to, _| if touches(from, to) { 60 } else { 0 }).verdicts();
    let more =
        dual(|from, to, over_ipv6| if touches(from, to) { 20 + u32::from(over_ipv6) * 20 } else { 0 }).verdicts();
    let link = |from: &str, to: &str| matches!((from, to), ("b", "a") | ("a", "b"));
    let of_v4 = dual(|from, to, over_ipv6| if !over_ipv6 && link(from, to) { 30 } else { 0 }).verdicts();
    let families = [&of_v6, &both, &more, &of_v4].map(|verdicts| (verdicts.len(), verdicts[0].family));
    assert_eq!(families, [(1, Some(Family::V6)), (1, None), (1, None), (1, Some(Family::V4))]);
    assert_eq!(summary(&of_v6[0]), "c: IPv6 alone is lost");
    assert_eq!(wording::title(&of_v6[0]), "node c, pod network, IPv6 only");
    assert!(evidence(&of_v6[0]).ends_with("; by family: IPv4 0.0 %, IPv6 100.0 %"), "{}", evidence(&of_v6[0]));
    assert_eq!(summary(&of_v4[0]), "a -> b loses 50 % by IPv4 alone");
    assert_eq!(
        (summary(&both[0]).as_str(), of_v6[0].severity),
        ("c is cut off: it loses all packets", Severity::Critical)
    );
    assert_ne!(of_v6[0].id, both[0].id);
}

fn ended(verdict: Verdict, since: u64, ended: u64) -> Verdict {
    Verdict { since_unix_seconds: Some(since), ended_unix_seconds: Some(ended), ..verdict }
}

#[test]
fn what_ended_verdicts_explain_is_well() {
    let lossy = |from: &str, to: &str| from == "c" || to == "c";
    let mesh = |also: bool| {
        NODES.iter().fold(Mesh::new(), |mesh, from| {
            let peers = NODES.iter().filter(|to| *to != from).map(|to| {
                let is_other = also && (*from, *to) == ("a", "b");
                let lost = if is_other { 80 } else { 40 * u32::from(lossy(from, to)) };
                with(peer(to, 0), "ten_minutes", json!({"seconds": 600, "sent": 600, "lost": lost}))
            });
            mesh.row(&source(from, 180), &peers.collect::<Vec<_>>())
        })
    };
    let node = |subject: &str| Verdict::new(Kind::Node, subject.into(), Network::Pod);
    let day = EPOCH - EPOCH % 86_400;
    let past = [ended(node("c"), day + 11_700, day + 11_760)];
    let line = |mesh: &Mesh, past: &[Verdict]| {
        let judgement = at_once(judge_in_slices(&mesh.matrix, past));
        assert_eq!(judgement.found.verdicts, []);
        let past: Vec<&Verdict> = past.iter().collect();
        let Headline { state, text } = headline(&[], &past, &judgement.overall);
        (state, text)
    };
    let quiet = mesh(false);
    let text = "well since 03:16 UTC; c lost packets from 03:15 to 03:16 UTC";
    assert_eq!(line(&quiet, &past), (MeshState::Well, text.to_owned()));
    assert_eq!(line(&quiet, &[]).0, MeshState::Losses);
    assert_eq!(line(&quiet, &[ended(node("d"), day, day + 60)]).0, MeshState::Losses, "of another node");
    // It holds until a judgement lacks it twice, and the losses are its own until then.
    assert_eq!(line(&quiet, &[node("c")]).0, MeshState::Well);
    let groups = Verdict::new(Kind::Partition, "a|c".into(), Network::Pod);
    assert_eq!(line(&quiet, &[ended(groups, day, day + 60)]).0, MeshState::Well, "an ended verdict has no members");
    let other = line(&mesh(true), &past);
    assert!(
        other.0 == MeshState::Losses && other.1.ends_with(": 13.3 % from a to b; no cause stands out"),
        "{other:?}"
    );
}

#[test]
fn the_gravest_verdict_comes_first_and_agents_last() {
    let of = |kind: Kind, subject: &str, severity: Severity| {
        let figures = Figures::default().with([(Figure::Probes, 10.0), (Figure::Lost, 10.0)]);
        Verdict { severity, figures, ..Verdict::new(kind, subject.into(), Network::Pod) }
    };
    let agent = of(Kind::AgentUnreachable, "x", Severity::Warning);
    let link = of(Kind::Link, "a->b", Severity::Warning);
    let zone = of(Kind::Zone, "z", Severity::Critical);
    let said = |verdicts: &[Verdict]| headline(verdicts, &[], &Overall::default()).text;
    for verdicts in [[agent.clone(), link.clone(), zone.clone()], [zone.clone(), agent.clone(), link.clone()]] {
        assert_eq!(said(&verdicts), "zone z is cut off from all other zones, and 2 more");
    }
    assert_eq!(said(&[agent, link.clone()]), "a -> b loses all its packets, and 1 more");
    assert_eq!(unconfirmed(&link).text, "a -> b: loss seen, not yet confirmed");
    assert_eq!(unconfirmed(&link).state, MeshState::Losses);
    let check = |figure: Figure| Verdict {
        figures: Figures::default().with([(figure, 3.0)]),
        ..Verdict::new(Kind::Check, "*->dns".into(), Network::Pod)
    };
    assert_eq!(unconfirmed(&check(Figure::FailedAttempts)).text, "dns: failures seen, not yet confirmed");
    assert_eq!(unconfirmed(&check(Figure::SlowAttempts)).text, "dns: slow answers seen, not yet confirmed");
    let unsent = Verdict { reason: Some(SendError::NoRoute), ..Verdict::new(Kind::Node, "n1".into(), Network::Pod) };
    assert_eq!(unconfirmed(&unsent).text, "n1: probes that could not be sent seen, not yet confirmed");
    let rtts = Figures::default().with([(Figure::RttSeconds, 0.1), (Figure::UsualRttSeconds, 0.01)]);
    let slow = Verdict { figures: rtts, ..link };
    assert_eq!(unconfirmed(&slow).text, "a -> b: slow round trips seen, not yet confirmed");
    let holes = Verdict {
        since_unix_seconds: Some(36_000),
        ended_unix_seconds: Some(36_300),
        ..Verdict::new(Kind::Mtu, "*".into(), Network::Pod)
    };
    let past = headline(&[], &[&holes], &Overall::default()).text;
    assert_eq!(past, "well since 10:05 UTC; most links lost large packets from 10:00 to 10:05 UTC");
}

/// Sentences and sizes of verdicts that no mesh of the other tests has.
#[test]
fn headlines_are_plain_and_have_sizes() {
    let of = |kind: Kind, subject: &str, figures: &[(Figure, f64)]| {
        let mut all = Figures::default();
        for (figure, value) in figures {
            all.set(*figure, *value);
        }
        Verdict { figures: all, ..Verdict::new(kind, subject.into(), Network::Pod) }
    };
    let lost =
        |part: f64| [(Figure::Probes, 100.0), (Figure::Lost, part), (Figure::Pairs, 66.0), (Figure::PairsHit, 12.0)];
    let to = |part: f64| [(Figure::ProbesTo, 100.0), (Figure::LostTo, part), (Figure::AgentIsSilent, 1.0)];
    let there = [(Figure::ProbesThere, 100.0), (Figure::LostThere, 20.0)];
    let sent = [(Figure::CountedBack, 100.0), (Figure::MissedBack, 20.0)];
    let udp = |verdict: Verdict| Verdict { protocol: Some(Methods::UDP), ..verdict };
    let example = Some(Example { losing: 4, probed: 16, ..Example::default() });
    for (verdict, expected) in [
        (of(Kind::Node, "node3", &to(100.0)), "node3 is down: nobody reaches it"),
        (of(Kind::Node, "node3", &to(50.0)), "node3 loses 50 % of its packets"),
        (Verdict { direction: Direction::Out, ..of(Kind::Node, "node4", &sent) }, "node4 loses 20 % of what it sends"),
        (of(Kind::ZonePair, "zone-1->zone-2", &lost(95.0)), "zone-1 and zone-2 cannot reach each other"),
        (of(Kind::ZonePair, "a->b", &lost(20.0)), "zone a and zone b lose 20 % between them"),
        (
            udp(of(Kind::Link, "node2->node5", &[(Figure::ProbesThere, 9.0), (Figure::LostThere, 9.0)])),
            "node2 -> node5: UDP alone is lost",
        ),
        (of(Kind::Link, "a->b", &there), "a -> b loses 20 % of its packets"),
        (Verdict { direction: Direction::In, ..of(Kind::Link, "a->b", &there) }, "b -> a loses 20 % of its packets"),
        (of(Kind::Paths, "*", &lost(50.0)), "one of several parallel paths loses 50 %: 12 of 66 links"),
        (of(Kind::Mesh, "*", &lost(99.5)), "all links lose nearly all packets"),
        (udp(of(Kind::Mesh, "*", &lost(99.5))), "all links: UDP alone is lost"),
        (udp(of(Kind::Mesh, "*", &lost(2.0))), "all links lose 2 % by UDP alone"),
        (of(Kind::Mesh, "*", &lost(0.4)), "all links lose 0.4 % alike"),
        (of(Kind::Zone, "z", &[(Figure::InsideProbes, 10.0), (Figure::InsideLost, 1.0)]), "zone z loses 10 % inside"),
        (Verdict { example, ..of(Kind::Flow, "a->b", &[]) }, "4 of 16 flows a -> b lose"),
        (of(Kind::Flow, "a->b", &[]), "some flows a -> b lose"),
        (
            of(Kind::Mtu, "*", &[(Figure::PassesBytes, 1_400.0), (Figure::Pairs, 6.0), (Figure::PairsHit, 5.0)]),
            "packets over 1400 bytes do not pass on 5 of 6 links",
        ),
        (
            Verdict { sizes: vec![6, 6], ..of(Kind::Partition, "a|g", &lost(100.0)) },
            "the mesh is split: 6 | 6 nodes do not reach each other",
        ),
    ] {
        assert_eq!(summary(&verdict), expected);
    }
    let suspect = suspect("j", true, &of(Kind::Node, "n3", &[]));
    let said = "as a judge it reports what the two others do not find: node n3";
    assert_eq!(evidence(&suspect), said);
    let alone = Verdict { mentions: Vec::new(), ..suspect.clone() };
    assert_eq!(
        (evidence(&alone).as_str(), suspect.mentioned(Mention::Disputed)),
        (&said[..said.len() - 9], Some("node n3"))
    );
}

#[test]
fn a_verdict_has_its_next_command_and_runbook_and_no_name_that_a_shell_could_read() {
    let of = |kind: Kind, subject: &str| {
        let verdict = Verdict::new(kind, subject.into(), Network::Pod);
        let runbook = wording::runbook(&verdict);
        (wording::next_command(&verdict), runbook.rsplit_once('/').expect("a path").1.to_owned())
    };
    let ping = "kubectl -n kube-canary exec POD-ON-a.x -- /kube-canary ping ".to_owned();
    for (kind, subject, command, runbook) in [
        (Kind::Link, "a.x->b-1", Some(ping.clone() + "b-1"), "alerts.md#a-link"),
        (Kind::Flow, "a.x->b", Some(ping + "--udp --flows 16 --trace b"), "verdicts.md#flows-and-large-packets"),
        (Kind::Node, "n", Some("kubectl describe node n".to_owned()), "alerts.md#a-node"),
        (Kind::Node, "$(reboot)", None, "alerts.md#a-node"),
        (Kind::Node, "-f", None, "alerts.md#a-node"),
        (Kind::Link, "a->b;reboot", None, "alerts.md#a-link"),
        (Kind::ZonePair, "a->b", None, "alerts.md#zones"),
        (Kind::Mtu, "*", None, "verdicts.md#flows-and-large-packets"),
        (Kind::Check, "a->dns", None, "alerts.md#kubecanarycheck"),
    ] {
        assert_eq!(of(kind, subject), (command, runbook.to_owned()), "{subject}");
    }
}

/// A mesh in which what touches `c` lost one probe of `one_of`, of those of the last `seconds`.
fn young(seconds: u32, one_of: u32) -> Mesh {
    let since = EPOCH - u64::from(seconds);
    NODES.iter().fold(Mesh::new(), |mesh, from| {
        let peers = NODES.iter().filter(|to| *to != from).map(|to| {
            let loses = *from == "c" || *to == "c";
            let lost = if loses { 1 + (seconds.min(60) - 1) / one_of } else { 0 };
            let since = if loses { json!(since) } else { Value::Null };
            with(peer(to, lost), "since_unix_seconds", since)
        });
        mesh.row(&source(from, 180), &peers.collect::<Vec<_>>())
    })
}

#[test]
fn a_fault_that_has_just_begun_has_the_size_that_it_has_since() {
    for (seconds, one_of, said) in [
        (16, 1, "c is cut off: it loses all packets"),
        (16, 5, "c loses 20 % of its packets"),
        (31, 5, "c loses 20 % of its packets"),
        (61, 5, "c loses 20 % of its packets"),
        (300, 5, "c loses 20 % of its packets"),
    ] {
        let verdicts = young(seconds, one_of).verdicts();
        assert_eq!((verdicts.len(), summary(&verdicts[0]).as_str()), (1, said), "{seconds} s, one of {one_of}");
    }
    let evidence = |seconds: u32| evidence(&young(seconds, 5).verdicts()[0]);
    let of_young = evidence(16);
    assert!(of_young.starts_with("loses 6.7 % of the probes from 3 of 3 sources"), "{of_young}");
    assert!(of_young.ends_with("; since it began, 20.0 % are lost"), "{of_young}");
    assert!(!evidence(61).contains("since it began"), "{}", evidence(61));
}

#[test]
fn a_fault_of_which_few_probes_tell_has_the_size_of_the_whole_window() {
    // Six cells with this many probes each.
    let [of_three, of_one] = [young(3, 1), young(1, 1)].map(|mesh| mesh.verdicts());
    assert_eq!(of_three[0].figures.get(Figure::AfterBeginTimes), Some(20.0));
    assert!(!of_one[0].figures.has(Figure::AfterBeginTimes), "{:?}", of_one[0].figures);
}

#[test]
fn a_young_fault_of_one_direction_has_the_size_of_its_round_trips() {
    let counts =
        [(Figure::ProbesBy, 60.0), (Figure::LostBy, 3.0), (Figure::CountedBack, 60.0), (Figure::MissedBack, 1.0)];
    let node =
        |figures| Verdict { direction: Direction::Out, figures, ..Verdict::new(Kind::Node, "c".into(), Network::Pod) };
    let figures = Figures::default().with(counts);
    assert_eq!(summary(&node(figures.clone())), "c loses 2 % of what it sends");
    let young = figures.with([(Figure::AfterBeginTimes, 4.0)]);
    assert_eq!(summary(&node(young)), "c loses 20 % of what it sends");
}
