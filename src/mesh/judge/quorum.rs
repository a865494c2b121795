//! What judges agree on. No I/O, no clock.
//!
//! Of three judges one may be wrong, so what two of them say counts. If two answer, both must
//! agree. If one answers, what it says is `likely`, and its past is `unconfirmed`. So one judge
//! that lies can neither add a verdict nor hide one, nor decide its direction, severity, beginning
//! or end.
//!
//! The sentence with the figures is that of one judge. No two judges have the same figures, because
//! they collect at different times. It comes from a judge that agrees in all else.

use std::collections::HashSet;

use super::document::{Overview, Said};
use crate::limits::{JUDGE_PAST_MAX, MESH_VERDICTS_MAX};
use crate::mesh::verdicts::{self, Confidence, Direction, Headline, State, UNSENT_MAX, Unsent, UnsentProbes, Verdict};
use crate::report::Missing;

/// Beginnings and ends that differ by less are those of the same fault.
const SLACK_SECONDS: u64 = 60;

/// Returns the verdicts on which these judges agree: those that hold first, the gravest first.
/// Those that have ended follow.
pub fn agreed(said: &[Said]) -> Vec<Verdict> {
    let needed = needed(said.len());
    let mut taken = HashSet::new();
    let mut agreed = Vec::new();
    for (first, Said { held, .. }) in said.iter().enumerate() {
        for (place, verdict) in held.verdicts.iter().enumerate() {
            if !taken.insert((first, place)) {
                continue;
            }
            let mut group = vec![verdict];
            for (other, Said { held, .. }) in said.iter().enumerate().skip(first + 1) {
                let mut theirs = held.verdicts.iter().enumerate();
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
    agreed.sort_by_key(|verdict| !verdict.holds());
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

/// Leaves out the judges that do not see the mesh, if two do. Nothing that they say is held against
/// them, so it does not count either: it would be free to claim that reports are missing.
pub fn seeing(mut said: Vec<Said>) -> Vec<Said> {
    if said.iter().filter(|said| said.held.sees_mesh()).count() >= 2 {
        said.retain(|said| said.held.sees_mesh());
    }
    said
}

/// Whether two judges speak of the same fault: one finding, at about the same time.
pub fn is_same(a: &Verdict, b: &Verdict) -> bool {
    are_simultaneous(a, b) && a.is_same_finding(b)
}

/// Whether two verdicts hold or held at about the same time.
pub fn are_simultaneous(a: &Verdict, b: &Verdict) -> bool {
    let begin = |of: &Verdict| of.since_unix_seconds.unwrap_or(0);
    let end = |of: &Verdict| of.ended_unix_seconds.unwrap_or(u64::MAX).saturating_add(SLACK_SECONDS);
    begin(a) <= end(b) && begin(b) <= end(a)
}

/// Returns the verdict of a group of judges. At least one is given.
fn merged(group: &[&Verdict], needed: usize, judges: usize) -> Verdict {
    let middle = |mut values: Vec<u64>, place: usize| {
        values.sort_unstable();
        values.get(place).copied()
    };
    // Of two values the later beginning, the earlier end and the lesser severity count.
    let (lower, upper) = ((group.len() - 1) / 2, group.len() / 2);
    let since = middle(group.iter().filter_map(|it| it.since_unix_seconds).collect(), upper)
        .or_else(|| group.iter().filter_map(|it| it.since_unix_seconds).max());
    let ends = group.iter().map(|it| it.ended_unix_seconds.unwrap_or(u64::MAX)).collect();
    let ended = middle(ends, lower).filter(|end| *end < u64::MAX);
    let mut severities: Vec<_> = group.iter().map(|it| it.severity).collect();
    severities.sort_unstable();
    let severity = severities[lower];
    let count = |direction: Direction| group.iter().filter(|it| verdicts::in_order(it).1 == direction).count();
    let direction = [Direction::In, Direction::Out].into_iter().find(|it| count(*it) * 2 > group.len());
    let direction = direction.unwrap_or(Direction::Both);
    let agrees = |it: &&&Verdict| it.severity == severity && verdicts::in_order(it).1 == direction;
    let text = *group.iter().find(agrees).unwrap_or(&group[0]);
    let certain = group.iter().filter(|it| it.confidence == Confidence::Certain).count();
    let confirmed = group.iter().filter(|it| !it.unconfirmed).count();
    Verdict {
        subject: verdicts::in_order(text).0.into_owned(),
        direction,
        severity,
        confidence: if judges > 1 && certain >= needed { Confidence::Certain } else { Confidence::Likely },
        since_unix_seconds: since,
        ended_unix_seconds: ended,
        judges: u8::try_from(group.len()).ok(),
        unconfirmed: ended.is_some() && (judges < 2 || confirmed < needed),
        ..text.clone()
    }
}

/// Returns what these judges say beside the `verdicts` that they agree on. At least one is given.
pub fn overview(said: &[Said], verdicts: &[Verdict]) -> Overview {
    let needed = needed(said.len());
    let all = || said.iter().map(|it| &it.held.overview);
    let middle = |number: fn(&Overview) -> usize| {
        let mut numbers: Vec<usize> = all().map(number).collect();
        numbers.sort_unstable();
        numbers.get(numbers.len() / 2).copied().unwrap_or(0)
    };
    let names = |list: fn(&Overview) -> &[String]| {
        let has = |other: &&Overview, name: &String| list(other).contains(name);
        let first = all().enumerate().flat_map(|(at, one)| {
            list(one).iter().filter(move |name| !all().take(at).any(|before| has(&before, name)))
        });
        first.filter(|name| all().filter(|one| has(one, name)).count() >= needed).cloned().collect()
    };
    let misses = |one: &Overview, node: &str| one.missing.iter().any(|it| it.node == node);
    let missing: Vec<Missing> = all()
        .enumerate()
        .flat_map(|(at, one)| {
            one.missing.iter().filter(move |it| !all().take(at).any(|before| misses(before, &it.node)))
        })
        .filter(|it| all().filter(|one| misses(one, &it.node)).count() >= needed)
        .cloned()
        .collect();
    let holding: Vec<Verdict> = verdicts.iter().filter(|it| it.holds()).cloned().collect();
    let unsent = unsent(said, needed, middle(|overview| overview.unsent.unsent_not_listed));
    let summed_up = verdicts::summed_up(&holding, &unsent);
    let Headline { state, text } = match summed_up {
        // A judge's own line also has the losses without a cause.
        Some(unsent) if holding.is_empty() => {
            shared(said, needed).filter(|line| line.state != State::Well).unwrap_or(unsent)
        }
        Some(found) => found,
        None => shared(said, needed)
            .unwrap_or_else(|| Headline { state: State::Losses, text: "the judges do not agree on a cause".into() }),
    };
    Overview {
        missing,
        missing_not_listed: middle(|it| it.missing_not_listed),
        not_gathered: middle(|it| it.not_gathered),
        headline: text,
        state,
        unsent,
        starved: names(|it| &it.starved),
        leaving: names(|it| &it.leaving),
        leaving_not_listed: middle(|it| it.leaving_not_listed),
    }
}

/// Returns what enough judges say could not be sent, as the first of them says it.
fn unsent(said: &[Said], needed: usize, unsent_not_listed: usize) -> UnsentProbes {
    let all = || said.iter().flat_map(|judge| &judge.held.overview.unsent.unsent);
    let judges = |of: &Unsent| {
        said.iter().filter(|judge| judge.held.overview.unsent.unsent.iter().any(|other| of.is_same(other))).count()
    };
    let mut agreed: Vec<Unsent> = Vec::new();
    for entry in all() {
        if agreed.len() < UNSENT_MAX && !agreed.iter().any(|before| before.is_same(entry)) && judges(entry) >= needed {
            agreed.push(entry.clone());
        }
    }
    UnsentProbes { unsent: agreed, unsent_not_listed }
}

/// Returns the line of a mesh without a verdict that enough judges share.
fn shared(said: &[Said], needed: usize) -> Option<Headline> {
    let of = |state: State| said.iter().map(|it| &it.held.overview).filter(move |it| it.state == state);
    for state in [State::Losses, State::Well] {
        if let Some(first) = of(state).next().filter(|_| of(state).count() >= needed) {
            return Some(Headline { state, text: first.headline.clone() });
        }
    }
    None
}

/// Returns the number of nodes that were judged: the middle one of what the judges say.
pub fn nodes(said: &[Said]) -> usize {
    let mut nodes: Vec<usize> = said.iter().map(|it| it.held.nodes).collect();
    nodes.sort_unstable();
    nodes.get((nodes.len().max(1) - 1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::super::document::tests::{JUDGE, held, verdict};
    use super::*;
    use crate::mesh::verdicts::{Kind, OfNetwork, Severity};
    use crate::report::{Method, Network, Protocol, SendError};

    fn said(verdicts: &[Verdict]) -> Said {
        Said { node: "n".into(), judge: JUDGE, held: held(verdicts.to_vec()) }
    }

    fn ended(verdict: Verdict, since: u64, end: u64) -> Verdict {
        Verdict { since_unix_seconds: Some(since), ended_unix_seconds: Some(end), ..verdict }
    }

    fn subjects(verdicts: &[Verdict]) -> Vec<&str> {
        verdicts.iter().map(|it| it.subject.as_str()).collect()
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
                assert!(agreed.iter().all(|it| it.judges >= Some(2) && it.confidence == Confidence::Certain));
                let overview = overview(&all, &agreed);
                assert!(overview.state == State::Cause && overview.headline.ends_with(", and 1 more"));
            }
        }
    }

    #[test]
    fn verdicts_that_share_only_an_id_are_not_the_same() {
        let (node, link) = (verdict("node", "innocent"), verdict("link", "a->b"));
        let others = [
            Verdict { subject: "guilty".into(), ..node.clone() },
            Verdict { kind: Kind::Zone, ..node.clone() },
            Verdict { network: OfNetwork::Node, ..node.clone() },
            Verdict { protocol: Some(Method::Udp), ..node.clone() },
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
        let neither = [said(&[]), said(&[link])];
        assert_eq!(overview(&neither, &agreed(&neither)).headline, "All well");
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
            evidence: "a lie".into(),
            ..true_one.clone()
        };
        for place in 0..3 {
            let mut all = vec![said(from_ref(&true_one)), said(from_ref(&turned))];
            all.insert(place, said(from_ref(&lie)));
            let found = agreed(&all).remove(0);
            assert_eq!((found.direction, found.severity), (Direction::Out, Severity::Warning));
            assert_eq!(
                (found.since_unix_seconds, &*found.subject, &*found.evidence),
                (Some(1_000), "a->b", "a->b loses")
            );
            // It says that the fault is over.
            all[place] = said(&[ended(lie.clone(), 1_000, 1_010)]);
            assert_eq!(agreed(&all)[0].ended_unix_seconds, None);
        }
        let over = |end| said(&[ended(true_one.clone(), 1_000, end)]);
        let ends = |said: &[Said]| agreed(said)[0].ended_unix_seconds;
        assert_eq!(ends(&[over(1_300), over(1_315), said(&[lie])]), Some(1_315));
        assert_eq!(ends(&[over(1_300), over(1_315)]), Some(1_300));
    }

    #[test]
    fn faults_of_one_subject_at_other_times_are_not_the_same() {
        let at = |since, end| ended(verdict("link", "a->b"), since, end);
        let all = [said(&[at(1_000, 1_100), at(5_000, 5_100)]), said(&[at(5_010, 5_115), at(1_015, 1_090)])];
        let times: Vec<_> = agreed(&all).iter().map(|it| (it.since_unix_seconds, it.ended_unix_seconds)).collect();
        assert_eq!(times, [(Some(1_015), Some(1_090)), (Some(5_010), Some(5_100))]);
        assert!(agreed(&[said(&[at(1_000, 1_100)]), said(&[at(1_161, 1_200)])]).is_empty());
        let flagged = |it: Verdict| Verdict { unconfirmed: true, ..it };
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
            assert!(found.iter().any(|it| it.ended_unix_seconds.is_some_and(|end| end < 1_200)), "{found:?}");
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
        let with = |missing: &[&str], state: State, not_gathered: usize| {
            let mut said = said(&[]);
            let missing = missing.iter().map(|node| Missing { node: (*node).into(), error: "refused".into() });
            said.held.overview.missing = missing.collect();
            said.held.overview.starved = vec!["s".into()];
            said.held.overview.headline = format!("{state:?}");
            (said.held.overview.state, said.held.overview.not_gathered) = (state, not_gathered);
            said
        };
        let all =
            [with(&["a", "b"], State::Well, 0), with(&["c"], State::Losses, 9), with(&["b", "c"], State::Losses, 2)];
        let found = overview(&all, &[]);
        let missing: Vec<&str> = found.missing.iter().map(|it| it.node.as_str()).collect();
        assert_eq!((missing, found.starved, found.not_gathered), (vec!["b", "c"], vec!["s".to_owned()], 2));
        assert_eq!((found.state, found.headline.as_str(), nodes(&all)), (State::Losses, "Losses", 3));
        let apart = overview(&all[..2], &[]);
        assert_eq!((apart.state, apart.headline.as_str()), (State::Losses, "the judges do not agree on a cause"));
    }

    fn with_unsent(node: &str, state: State, headline: &str) -> Said {
        let mut said = said(&[]);
        said.held.overview.unsent.unsent = vec![Unsent {
            node: node.into(),
            network: Network::Pod,
            protocols: vec![Protocol::Icmp],
            reason: SendError::NoRoute,
            peers: 2,
            peers_probed: 2,
            peer: None,
        }];
        (said.held.overview.state, said.held.overview.headline) = (state, headline.into());
        said
    }

    #[test]
    fn what_two_judges_say_could_not_be_sent_is_not_well_and_one_can_neither_add_nor_hide_it() {
        let (honest, text) =
            (with_unsent("a", State::Losses, "h"), "a cannot send ICMP over IPv4 to 2 of 2 peers: no route");
        for liar in [said(&[]), with_unsent("innocent", State::Losses, "a lie")] {
            for place in 0..3 {
                let mut all = vec![honest.clone(), honest.clone()];
                all.insert(place, liar.clone());
                let found = overview(&all, &[]);
                assert_eq!((found.state, found.unsent.unsent.len()), (State::Losses, 1));
                assert_eq!(found.unsent.unsent[0].node, "a");
                // Beside a verdict, the line is made of what they agree on.
                let agent = verdict("agent_unreachable", "b");
                assert_eq!(overview(&all, from_ref(&agent)).headline, format!("{text}; b is bad"));
            }
        }
        let apart = [with_unsent("a", State::Losses, "h"), with_unsent("b", State::Cause, "h")];
        let found = overview(&apart, &[]);
        assert_eq!((found.state, found.unsent.unsent.len()), (State::Losses, 0), "they do not agree on it");
    }
}
