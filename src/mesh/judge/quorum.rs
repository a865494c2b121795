//! What judges agree on. No I/O, no clock.
//!
//! Of three judges one may be wrong, so what two of them say counts. If two answer, both must
//! agree. If one answers, what it says is `likely`, and its past is `unconfirmed`. So one judge
//! that lies can neither add a verdict nor hide one, nor decide its direction, severity, beginning
//! or end.
//!
//! No two judges have the same figures, because they collect at different times. The middle one of
//! each counts, and names count if two judges give them. The reader words it.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::document::{JudgeStatement, Overview};
use crate::limits::{JUDGE_PAST_MAX, MESH_VERDICTS_MAX};
use crate::mesh::verdicts::{
    self, Confidence, Direction, EXPLAINS_SECONDS, Headline, MeshState, NarrowLinks, Overall, StrangersSeen,
    UNSENT_MAX, UnexplainedLosses, UnsentEntry, UnsentProbes, Verdict, WorstLink,
};
use crate::report::Missing;
use crate::verdict::{CheckCause, Figures};

/// Beginnings and ends that differ by less are those of the same fault.
const SLACK_SECONDS: u64 = 60;

/// Returns the verdicts on which these judges agree: those that hold first, the gravest first.
/// Those that have ended follow, the last one first.
pub fn agreed(said: &[JudgeStatement]) -> Vec<Verdict> {
    agreed_of(&said.iter().map(|judge| judge.held.verdicts.as_slice()).collect::<Vec<_>>())
}

/// Does the same with the verdicts of each judge, or of agents that pass them on.
pub fn agreed_of(said: &[&[Verdict]]) -> Vec<Verdict> {
    let needed = needed(said.len());
    let mut taken = HashSet::new();
    let mut agreed = Vec::new();
    for (first, verdicts) in said.iter().enumerate() {
        for (place, verdict) in verdicts.iter().enumerate() {
            if !taken.insert((first, place)) {
                continue;
            }
            let mut group = vec![verdict];
            for (other, verdicts) in said.iter().enumerate().skip(first + 1) {
                let mut theirs = verdicts.iter().enumerate();
                // One judge that spans all times joins no two faults of others.
                let is_of_group = |theirs: &Verdict| group.iter().all(|one| is_same(one, theirs));
                let same = theirs.find(|(at, theirs)| !taken.contains(&(other, *at)) && is_of_group(theirs));
                if let Some((at, theirs)) = same {
                    taken.insert((other, at));
                    group.push(theirs);
                }
            }
            if group.len() >= needed {
                agreed.push(merged(&group, needed, said.len()));
            }
        }
    }
    agreed.sort_by_key(|verdict| (!verdict.holds(), Reverse(verdict.ended_unix_seconds), verdicts::gravity(verdict)));
    let (mut holding, mut ended) = (0, 0);
    agreed.retain(|verdict| {
        let (count, most) =
            if verdict.holds() { (&mut holding, MESH_VERDICTS_MAX) } else { (&mut ended, JUDGE_PAST_MAX) };
        *count += 1;
        *count <= most
    });
    agreed
}

/// Number of judges that must agree.
const fn needed(judges: usize) -> usize {
    if judges < 2 { 1 } else { 2 }
}

/// Returns since when and until when as many of these as must agree remember what happened. `None`
/// if there are none.
pub fn remembered(said: &[JudgeStatement]) -> Option<(u64, u64)> {
    let mut since: Vec<u64> = said.iter().map(|said| said.held.remembered_since_unix_seconds).collect();
    let mut until: Vec<u64> = said.iter().map(|said| said.held.remembered_until_unix_seconds).collect();
    since.sort_unstable();
    until.sort_unstable_by_key(|until| Reverse(*until));
    let place = needed(said.len()) - 1;
    Some((*since.get(place)?, *until.get(place)?))
}

/// Leaves out the judges that do not see the mesh, if two do. Nothing that they say is held against
/// them, so it does not count either: it would be free to claim that reports are missing.
pub fn seeing(mut said: Vec<JudgeStatement>) -> Vec<JudgeStatement> {
    if said.iter().filter(|said| said.held.sees_mesh()).count() >= 2 {
        said.retain(|said| said.held.sees_mesh());
    }
    said
}

/// Whether two judges speak of the same fault: one finding, at about the same time.
pub fn is_same(a: &Verdict, b: &Verdict) -> bool {
    are_simultaneous(a, b) && verdicts::is_same_finding(a, b)
}

/// Whether two verdicts hold or held at about the same time.
pub fn are_simultaneous(a: &Verdict, b: &Verdict) -> bool {
    let begin = |of: &Verdict| of.since_unix_seconds.unwrap_or(0);
    let end = |of: &Verdict| of.ended_unix_seconds.unwrap_or(u64::MAX).saturating_add(SLACK_SECONDS);
    begin(a) <= end(b) && begin(b) <= end(a)
}

/// Returns what at least `needed` of these have, each once, in the order in which it is first
/// found.
fn shared<'a, T: PartialEq + 'a>(all: &[&'a [T]], needed: usize) -> Vec<&'a T> {
    let mut shared: Vec<&T> = Vec::new();
    for one in all.iter().copied().flatten() {
        if !shared.contains(&one) && all.iter().filter(|other| other.contains(one)).count() >= needed {
            shared.push(one);
        }
    }
    shared
}

/// Returns the first of these of which at least `needed` are about the same, with the others that
/// are. `None` if there are too few of each.
fn alike<'a, T>(all: &[&'a T], needed: usize, is_same: impl Fn(&T, &T) -> bool) -> Option<Vec<&'a T>> {
    let same = |one: &T| -> Vec<&'a T> { all.iter().copied().filter(|other| is_same(one, other)).collect() };
    all.iter().map(|one| same(one)).find(|same| same.len() >= needed)
}

/// Returns the middle one, the lower of two; 0 of none.
fn middle<T: Ord + Copy + Default>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// Returns the verdict of a group of judges. At least one is given.
fn merged(group: &[&Verdict], needed: usize, judges: usize) -> Verdict {
    let group: Vec<Verdict> = group.iter().map(|verdict| (*verdict).clone().in_order()).collect();
    // Of two values the later beginning, the earlier end and the lesser severity count.
    let since = group.iter().filter_map(|verdict| verdict.since_unix_seconds.map(Reverse));
    let since = if since.clone().count() > 0 { Some(middle(since).0) } else { None };
    let ended = Some(middle(group.iter().map(|verdict| verdict.ended_unix_seconds.unwrap_or(u64::MAX))));
    // The later beginning of a short fault may follow the earlier end.
    let ended = ended.filter(|end| *end < u64::MAX).map(|end| end.max(since.unwrap_or(0)));
    let severity = middle(group.iter().map(|verdict| verdict.severity));
    let count = |direction: Direction| group.iter().filter(|verdict| verdict.direction == direction).count();
    let direction = [Direction::In, Direction::Out].into_iter().find(|direction| count(*direction) * 2 > group.len());
    let certain = group.iter().filter(|verdict| verdict.confidence == Confidence::Certain).count();
    let confirmed = group.iter().filter(|verdict| !verdict.unconfirmed).count();
    // Of a group of judges that is smaller than the number needed there are no others.
    let enough = needed.min(group.len());
    let of_place = |place: usize| -> Vec<&[String]> {
        group.iter().map(|verdict| verdict.members.get(place).map_or(&[][..], Vec::as_slice)).collect()
    };
    let places = middle(group.iter().map(|verdict| verdict.members.len()));
    let owned = |names: Vec<&String>| names.into_iter().cloned().collect();
    let members = (0..places).map(|place| owned(shared(&of_place(place), enough))).collect();
    let sizes = (0..middle(group.iter().map(|verdict| verdict.sizes.len())))
        .map(|place| middle(group.iter().filter_map(|verdict| verdict.sizes.get(place).copied())))
        .collect();
    let mentions: Vec<&[_]> = group.iter().map(|verdict| verdict.mentions.as_slice()).collect();
    let examples: Vec<&[_]> = group.iter().map(|verdict| verdict.example.as_slice()).collect();
    let reasons: Vec<&[_]> = group.iter().map(|verdict| verdict.reason.as_slice()).collect();
    let first = &group[0];
    Verdict {
        reason: shared(&reasons, enough).first().map(|reason| **reason),
        check: checked(&group, enough),
        id: first.id.clone(),
        members,
        sizes,
        direction: direction.unwrap_or(Direction::Both),
        severity,
        confidence: if judges > 1 && certain >= needed { Confidence::Certain } else { Confidence::Likely },
        family: first.family,
        protocol: first.protocol,
        figures: Figures::medians(&group.iter().map(|verdict| &verdict.figures).collect::<Vec<_>>(), enough),
        mentions: shared(&mentions, enough).into_iter().cloned().collect(),
        example: shared(&examples, enough).first().map(|example| (*example).clone()),
        since_unix_seconds: since,
        ended_unix_seconds: ended,
        judges: u8::try_from(group.len()).ok(),
        unconfirmed: ended.is_some() && (judges < 2 || confirmed < needed),
        ..Verdict::new(first.kind, first.subject.clone(), first.network)
    }
}

/// Returns what enough judges say of a check. What it asks for and why it fails count apart.
fn checked(group: &[Verdict], enough: usize) -> Option<CheckCause> {
    let causes: Vec<&CheckCause> = group.iter().filter_map(|verdict| verdict.check.as_ref()).collect();
    let kind = alike(&causes, enough, |a, b| a.kind == b.kind)?[0].kind;
    let failures = alike(&causes, enough, |a, b| a.failure == b.failure);
    Some(CheckCause { kind, failure: failures.and_then(|same| same[0].failure) })
}

/// Returns what these judges say beside the verdicts. At least one is given.
pub fn overview(said: &[JudgeStatement]) -> Overview {
    let needed = needed(said.len());
    let all = || said.iter().map(|judge| &judge.held.overview);
    let names = |list: fn(&Overview) -> &[String]| {
        let lists: Vec<&[String]> = all().map(list).collect();
        shared(&lists, needed).into_iter().cloned().collect()
    };
    let missing_nodes: Vec<Vec<&str>> =
        all().map(|one| one.missing.iter().map(|missing| missing.node.as_str()).collect()).collect();
    let missing_nodes: Vec<&[&str]> = missing_nodes.iter().map(Vec::as_slice).collect();
    let reasons: Vec<&[Missing]> = all().map(|one| one.missing.as_slice()).collect();
    let reasons = shared(&reasons, needed);
    let missing = shared(&missing_nodes, needed).into_iter().map(|node| {
        // Each judge has its own reason, and one alone may be anything.
        let reason = reasons.iter().find(|missing| missing.node == *node).copied();
        reason.cloned().unwrap_or_else(|| Missing::new((*node).to_owned(), "its report could not be read".to_owned()))
    });
    Overview {
        missing: missing.collect(),
        missing_not_listed: middle(all().map(|overview| overview.missing_not_listed)),
        not_gathered: middle(all().map(|overview| overview.not_gathered)),
        overall: overall(said, needed),
        unsent: unsent(said, needed, middle(all().map(|overview| overview.unsent.unsent_not_listed))),
        starved: names(|overview| &overview.starved),
        leaving: names(|overview| &overview.leaving),
        leaving_not_listed: middle(all().map(|overview| overview.leaving_not_listed)),
    }
}

fn overall(said: &[JudgeStatement], needed: usize) -> Overall {
    let all = || said.iter().map(|judge| &judge.held.overview.overall);
    let losses = |over_ten_minutes: bool| {
        let of = || {
            all()
                .filter_map(|overall| overall.losses.as_ref())
                .filter(move |losses| losses.over_ten_minutes == over_ten_minutes)
        };
        if of().count() < needed {
            return None;
        }
        let is_same = |a: &WorstLink, b: &WorstLink| {
            (&a.source, &a.peer, a.network, a.method) == (&b.source, &b.peer, b.network, b.method)
        };
        let worst = || of().filter_map(|losses| losses.worst.as_ref());
        let agreed = |link: &&WorstLink| worst().filter(|other| is_same(link, other)).count() >= needed;
        // The more cautious of those that agree counts.
        let worst = worst().filter(agreed).min_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio)).cloned();
        let (losing, links) = (middle(of().map(|losses| losses.losing)), middle(of().map(|losses| losses.links)));
        Some(UnexplainedLosses { over_ten_minutes, losing, links, worst })
    };
    let narrow: Vec<&NarrowLinks> = all().filter_map(|overall| overall.narrow.as_ref()).collect();
    let narrow = alike(&narrow, needed, |a, b| (&a.source, &a.peer) == (&b.source, &b.peer));
    let narrow = narrow.map(|links| NarrowLinks {
        pairs: middle(links.iter().map(|link| link.pairs)),
        passes_bytes: middle(links.iter().map(|link| link.passes_bytes)),
        ..links[0].clone()
    });
    let strangers: Vec<&StrangersSeen> = all().filter_map(|overall| overall.strangers.as_ref()).collect();
    let strangers = alike(&strangers, needed, |a, b| (&a.address, &a.node) == (&b.address, &b.node));
    let strangers = strangers.map(|seen| StrangersSeen {
        further: middle(seen.iter().map(|strangers| strangers.further)),
        ..seen[0].clone()
    });
    let first_unknown: Vec<&[String]> = all().map(|overall| overall.first_unknown.as_slice()).collect();
    Overall {
        losses: losses(false).or_else(|| losses(true)),
        unknown: middle(all().map(|overall| overall.unknown)),
        first_unknown: shared(&first_unknown, needed).first().map(|name| (*name).clone()),
        other_version: middle(all().map(|overall| overall.other_version)),
        rows_not_kept: middle(all().map(|overall| overall.rows_not_kept)),
        links_not_kept: middle(all().map(|overall| overall.links_not_kept)),
        is_unmeasured: all().filter(|overall| overall.is_unmeasured).count() >= needed,
        narrow,
        strangers,
    }
}

/// Returns the line for what these judges agree on. At least one is given.
pub fn headline(said: &[JudgeStatement], agreed: &[Verdict], overview: &Overview) -> Headline {
    let needed = needed(said.len());
    let now = said.iter().map(|judge| judge.held.now_unix_seconds).max().unwrap_or(0);
    let holding: Vec<Verdict> = agreed.iter().filter(|verdict| verdict.holds()).cloned().collect();
    let has_just_ended =
        |verdict: &&Verdict| verdict.ended_unix_seconds.is_some_and(|end| end + EXPLAINS_SECONDS > now);
    let past: Vec<&Verdict> = agreed.iter().filter(|verdict| !verdict.unconfirmed).filter(has_just_ended).collect();
    let line = verdicts::headline(&holding, &past, &overview.overall);
    if line.state != MeshState::Well {
        return line;
    }
    // Each of these finds something, but not the same.
    let claim = |said: &'_ JudgeStatement| {
        let mut held = said.held.verdicts.iter().filter(|verdict| verdict.holds() && !verdict.kind.is_agent_fault());
        held.next().cloned()
    };
    let is_not_well = |said: &&JudgeStatement| claim(said).is_some() || said.held.overview.overall.losses.is_some();
    let not_well = said.iter().filter(is_not_well).count();
    match said.iter().find_map(claim) {
        Some(claim) if not_well >= needed => verdicts::unconfirmed(&claim),
        _ if said.len() - not_well < needed => {
            Headline { state: MeshState::Losses, text: "the judges do not agree on a cause".into() }
        }
        _ => line,
    }
}

/// Returns what enough judges say could not be sent, as the first of them says it.
fn unsent(said: &[JudgeStatement], needed: usize, unsent_not_listed: usize) -> UnsentProbes {
    let all = || said.iter().flat_map(|judge| &judge.held.overview.unsent.unsent);
    let judges = |of: &UnsentEntry| {
        said.iter().filter(|judge| judge.held.overview.unsent.unsent.iter().any(|other| of.is_same(other))).count()
    };
    let mut agreed: Vec<UnsentEntry> = Vec::new();
    for entry in all() {
        if agreed.len() < UNSENT_MAX && !agreed.iter().any(|before| before.is_same(entry)) && judges(entry) >= needed {
            agreed.push(entry.clone());
        }
    }
    UnsentProbes { unsent: agreed, unsent_not_listed }
}

/// Returns the number of nodes that were judged: the middle one of what the judges say.
pub fn nodes(said: &[JudgeStatement]) -> usize {
    middle(said.iter().map(|judge| judge.held.nodes))
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::super::document::tests::{JUDGE, held, verdict};
    use super::*;
    use crate::check::{CheckFailure, CheckKind};
    use crate::mesh::verdicts::{Kind, Severity};
    use crate::report::{Method, Methods, Network, Protocol, SendError};
    use crate::verdict::{Figure, Mention};

    fn said(verdicts: &[Verdict]) -> JudgeStatement {
        JudgeStatement { node: "n".into(), judge: JUDGE, held: held(verdicts.to_vec()) }
    }

    fn ended(verdict: Verdict, since: u64, end: u64) -> Verdict {
        Verdict { since_unix_seconds: Some(since), ended_unix_seconds: Some(end), ..verdict }
    }

    fn subjects(verdicts: &[Verdict]) -> Vec<&str> {
        verdicts.iter().map(|verdict| verdict.subject.as_str()).collect()
    }

    #[test]
    fn two_judges_say_what_a_check_asks_for_and_why_it_fails() {
        let check = |kind, failure| {
            let check = Some(CheckCause { kind, failure });
            said(&[Verdict { check, ..verdict("check", "*->dns") }])
        };
        let timeout = Some(CheckFailure::Timeout);
        let all = [check(CheckKind::Dns, timeout), check(CheckKind::Dns, None), check(CheckKind::Tls, timeout)];
        assert_eq!(agreed(&all)[0].check, Some(CheckCause { kind: CheckKind::Dns, failure: timeout }));
        assert_eq!(agreed(&all[..2])[0].check, Some(CheckCause { kind: CheckKind::Dns, failure: None }));
        assert_eq!(agreed(&all[1..])[0].check, None);
        assert_eq!(agreed(&all[..1])[0].subject, "*->dns");
    }

    #[test]
    fn what_two_of_three_judges_hold_counts_and_one_can_neither_add_nor_hide_a_verdict() {
        let (link, node, invented) = (verdict("link", "a->b"), verdict("node", "c"), verdict("node", "innocent"));
        let honest = said(&[node.clone(), link.clone()]);
        for liar in [said(&[]), said(from_ref(&invented)), said(&[invented, link, node])] {
            for place in 0..3 {
                let mut all = vec![honest.clone(), honest.clone()];
                all.insert(place, liar.clone());
                let agreed = agreed(&all);
                let mut found = subjects(&agreed);
                found.sort_unstable();
                assert_eq!(found, ["a->b", "c"]);
                assert!(
                    agreed.iter().all(|verdict| verdict.judges >= Some(2) && verdict.confidence == Confidence::Certain)
                );
                let said = headline(&all, &agreed, &overview(&all));
                assert!(said.state == MeshState::Cause && said.text.ends_with(", and 1 more"));
            }
        }
    }

    /// The best-ranked judge was replaced a moment ago.
    #[test]
    fn what_the_first_judge_lacks_has_its_place_among_the_others() {
        let grave = Verdict { severity: Severity::Critical, ..verdict("node", "c") };
        let small = Verdict { severity: Severity::Warning, ..verdict("link", "a->b") };
        let both = said(&[grave, small.clone()]);
        assert_eq!(subjects(&agreed(&[said(&[small]), both.clone(), both])), ["c", "a->b"]);
    }

    #[test]
    fn verdicts_that_share_only_an_id_are_not_the_same() {
        let (node, link) = (verdict("node", "innocent"), verdict("link", "a->b"));
        let others = [
            Verdict { subject: "guilty".into(), ..node.clone() },
            Verdict { kind: Kind::Zone, ..node.clone() },
            Verdict { network: Network::Node, ..node.clone() },
            Verdict { protocol: Some(Methods::UDP), ..node.clone() },
        ];
        for other in others {
            assert!(other.id == node.id && agreed(&[said(from_ref(&node)), said(&[other])]).is_empty());
        }
        let turned = Verdict { subject: "b->a".into(), id: String::new(), ..link.clone() };
        assert_eq!(subjects(&agreed(&[said(&[turned]), said(&[link])])), ["a->b"], "the ends in another order");
    }

    #[test]
    fn a_judge_that_claims_to_lack_reports_counts_no_more_than_a_silent_one() {
        let (node, lie) = (verdict("node", "c"), verdict("node", "innocent"));
        let honest = [said(from_ref(&node)), said(&[node.clone(), lie.clone()])];
        let mut liar = said(&[lie]);
        liar.held.overview.missing = vec![Missing { node: "x".into(), error: "timeout".into() }; 2];
        for place in 0..3 {
            let mut all = honest.to_vec();
            all.insert(place, liar.clone());
            assert_eq!(subjects(&agreed(&seeing(all))), ["c"]);
        }
        assert_eq!(seeing(vec![liar.clone(), liar.clone(), said(&[])]).len(), 3, "most lack reports");
        assert_eq!(seeing(vec![liar]).len(), 1);
    }

    #[test]
    fn two_judges_must_agree_and_what_one_says_alone_is_likely() {
        let (link, node) = (verdict("link", "a->b"), verdict("node", "c"));
        let both = agreed(&[said(&[link.clone(), node.clone()]), said(&[node])]);
        assert_eq!(subjects(&both), ["c"]);
        let alone = agreed(&[said(&[link.clone(), ended(verdict("node", "d"), 100, 200)])]);
        assert_eq!((subjects(&alone), alone[0].confidence), (vec!["a->b", "d"], Confidence::Likely));
        assert!(!alone[0].unconfirmed && alone[1].unconfirmed);
        let text = |all: &[JudgeStatement]| headline(all, &agreed(all), &overview(all)).text;
        assert_eq!(text(&[said(&[]), said(from_ref(&link))]), "the judges do not agree on a cause");
        assert_eq!(text(&[said(&[]), said(&[]), said(from_ref(&link))]), "all well", "one may lie");
        let others = [said(from_ref(&link)), said(&[verdict("node", "c")]), said(&[])];
        assert_eq!(text(&others), "a -> b: loss seen, not yet confirmed");
    }

    #[test]
    fn a_liar_does_not_decide_the_direction_severity_beginning_or_end() {
        let true_one = Verdict { direction: Direction::Out, ..verdict("link", "a->b") };
        // The same direction, as an agent with other evidence gives it.
        let turned = Verdict { subject: "b->a".into(), direction: Direction::In, ..true_one.clone() };
        let lie = Verdict {
            direction: Direction::In,
            severity: Severity::Critical,
            since_unix_seconds: Some(1),
            figures: Figures::default().with([(Figure::Probes, 1e9), (Figure::Lost, 1e9), (Figure::Adds, 1.0)]),
            mentions: vec![(Mention::Error, "a lie".into())],
            members: vec![vec!["innocent".into()]],
            ..true_one.clone()
        };
        for place in 0..3 {
            let mut all = vec![said(from_ref(&true_one)), said(from_ref(&turned))];
            all.insert(place, said(from_ref(&lie)));
            let found = agreed(&all).remove(0);
            assert_eq!((found.direction, found.severity), (Direction::Out, Severity::Warning));
            assert_eq!((found.since_unix_seconds, &*found.subject), (Some(1_000), "a->b"));
            assert_eq!((&found.figures, found.mentions.len(), found.members.concat().len()), (&true_one.figures, 0, 0));
            // It says that the fault is over.
            all[place] = said(&[ended(lie.clone(), 1_000, 1_010)]);
            assert_eq!(agreed(&all)[0].ended_unix_seconds, None);
        }
        let over = |end| said(&[ended(true_one.clone(), 1_000, end)]);
        let ends = |said: &[JudgeStatement]| agreed(said)[0].ended_unix_seconds;
        assert_eq!(ends(&[over(1_300), over(1_315), said(&[lie])]), Some(1_315));
        assert_eq!(ends(&[over(1_300), over(1_315)]), Some(1_300));
    }

    #[test]
    fn faults_of_one_subject_at_other_times_are_not_the_same() {
        let at = |since, end| ended(verdict("link", "a->b"), since, end);
        let all = [said(&[at(1_000, 1_100), at(5_000, 5_100)]), said(&[at(5_010, 5_115), at(1_015, 1_090)])];
        let times: Vec<_> =
            agreed(&all).iter().map(|verdict| (verdict.since_unix_seconds, verdict.ended_unix_seconds)).collect();
        assert_eq!(times, [(Some(5_010), Some(5_100)), (Some(1_015), Some(1_090))], "the last one first");
        assert!(agreed(&[said(&[at(1_000, 1_100)]), said(&[at(1_161, 1_200)])]).is_empty());
        let short = &agreed(&[said(&[at(1_000, 1_004)]), said(&[at(1_005, 1_009)])])[0];
        assert_eq!((short.since_unix_seconds, short.ended_unix_seconds), (Some(1_005), Some(1_005)));
        let flagged = |verdict: Verdict| Verdict { unconfirmed: true, ..verdict };
        let taken_over = [said(&[flagged(at(1_000, 1_100))]), said(&[at(1_000, 1_100)])];
        assert!(agreed(&taken_over)[0].unconfirmed, "both know it from one");
    }

    #[test]
    fn a_judge_that_spans_all_times_hides_no_past() {
        let at = |since, end| ended(verdict("link", "a->b"), since, end);
        let span = at(0, u64::MAX);
        let honest = [said(&[at(9_000, 9_100), at(1_000, 1_100)]), said(&[at(1_010, 1_110)])];
        for place in 0..3 {
            let mut all = honest.to_vec();
            all.insert(place, said(from_ref(&span)));
            let found = agreed(&all);
            assert!(found.iter().any(|verdict| verdict.ended_unix_seconds.is_some_and(|end| end < 1_200)), "{found:?}");
        }
    }

    #[test]
    fn no_more_verdicts_are_agreed_on_than_a_judge_may_hold() {
        let all: Vec<Verdict> = (0..96).map(|n| verdict("node", &format!("n{n}"))).collect();
        let lists = [said(&all[..64]), said(&all[32..]), said(&[&all[..32], &all[64..]].concat())];
        assert_eq!(agreed(&lists).len(), MESH_VERDICTS_MAX);
    }

    #[test]
    fn the_rest_of_the_answer_is_what_two_judges_share() {
        let with = |missing: &[(&str, &str)], losing: Option<(u32, &str)>, not_gathered: usize| {
            let mut said = said(&[]);
            let overview = &mut said.held.overview;
            let missing = missing.iter().map(|(node, error)| Missing { node: (*node).into(), error: (*error).into() });
            overview.missing = missing.collect();
            overview.starved = vec!["s".into()];
            overview.not_gathered = not_gathered;
            overview.overall.losses = losing.map(|(losing, source)| {
                let (source, peer, network, method) = (source.into(), "p".into(), Network::Pod, Method::Icmp);
                let worst = WorstLink { source, peer, network, method, loss_ratio: 0.5, since_unix_seconds: None };
                UnexplainedLosses { over_ten_minutes: false, losing, links: 90, worst: Some(worst) }
            });
            said
        };
        let all = [
            with(&[("a", "refused"), ("b", "refused")], None, 0),
            with(&[("c", "refused")], Some((4, "x")), 9),
            with(&[("b", "a lie"), ("c", "refused")], Some((7, "x")), 2),
        ];
        let found = overview(&all);
        let missing: Vec<(&str, &str)> =
            found.missing.iter().map(|missing| (missing.node.as_str(), missing.error.as_str())).collect();
        assert_eq!(missing, [("b", "its report could not be read"), ("c", "refused")]);
        assert_eq!((&found.starved, found.not_gathered, nodes(&all)), (&vec!["s".to_owned()], 2, 3));
        let line = |all: &[JudgeStatement]| headline(all, &[], &overview(all)).text;
        assert_eq!(line(&all), "4 of 90 links lose: 50.0 % from x to p; no cause stands out");
        assert_eq!(line(&all[..2]), "the judges do not agree on a cause");
        let other = with(&[], Some((7, "y")), 0);
        assert_eq!(line(&[all[1].clone(), other]), "4 of 90 links lose; no cause stands out", "one names each link");
    }

    #[test]
    fn links_that_two_judges_find_narrow_are_noted_with_the_middle_figures() {
        let with = |narrow: Option<(&str, u32, u16)>| {
            let mut said = said(&[]);
            said.held.overview.overall.narrow = narrow.map(|(source, pairs, passes_bytes)| NarrowLinks {
                pairs,
                source: source.into(),
                peer: "p".into(),
                passes_bytes,
            });
            said
        };
        let noted = |all: [Option<(&str, u32, u16)>; 3]| {
            let links = overview(&all.map(with)).overall.narrow?;
            Some((links.source, links.pairs, links.passes_bytes))
        };
        let lie = Some(("a", 90, 1));
        assert_eq!(noted([Some(("a", 4, 1_300)), Some(("a", 5, 1_308)), lie]), Some(("a".into(), 5, 1_300)));
        assert_eq!(noted([Some(("a", 4, 1_300)), None, None]), None);
        assert_eq!(noted([Some(("a", 4, 1_300)), Some(("b", 4, 1_300)), None]), None);
    }

    fn with_unsent(node: &str) -> JudgeStatement {
        let mut said = said(&[]);
        said.held.overview.unsent.unsent = vec![UnsentEntry {
            node: node.into(),
            network: Network::Pod,
            protocols: vec![Protocol::Icmp],
            reason: SendError::NoRoute,
            peers: 2,
            peers_probed: 2,
            peer: None,
        }];
        said
    }

    #[test]
    fn one_judge_can_neither_add_nor_hide_what_could_not_be_sent() {
        let honest = with_unsent("a");
        for liar in [said(&[]), with_unsent("innocent")] {
            for place in 0..3 {
                let mut all = vec![honest.clone(), honest.clone()];
                all.insert(place, liar.clone());
                let found = overview(&all).unsent.unsent;
                assert_eq!(found.iter().map(|missing| missing.node.as_str()).collect::<Vec<_>>(), ["a"]);
            }
        }
        assert_eq!(overview(&[with_unsent("a"), with_unsent("b")]).unsent.unsent, [], "they do not agree on it");
    }

    #[test]
    fn the_reason_for_which_probes_were_not_sent_is_that_of_two_judges() {
        let of = |reason: Option<SendError>| said(&[Verdict { reason, ..verdict("node", "a") }]);
        let [route, firewall, none] = [Some(SendError::NoRoute), Some(SendError::NotPermitted), None].map(of);
        for (all, expected) in [
            (vec![firewall.clone(), route.clone(), route.clone()], Some(SendError::NoRoute)),
            (vec![route.clone(), none.clone(), none.clone()], None),
            (vec![none, firewall, route.clone()], None),
            (vec![route], Some(SendError::NoRoute)),
        ] {
            assert_eq!(agreed(&all)[0].reason, expected);
        }
    }
}
