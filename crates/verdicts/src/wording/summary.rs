//! Sums up a verdict in a few plain words with its size, for headlines.

use std::fmt::Write as _;

use kube_canary_model::report::SendError;
use kube_canary_model::verdict::{Direction, Example, Figure, Kind, Mention, Verdict};

use super::check;
use super::words::{Of, addresses, alone, disputed, percent, reached, symptoms, where_to, with_noun};

/// From this loss on, nothing worth mentioning arrives.
const CUT_OFF: f64 = 0.9;
/// From this loss on, nothing arrives.
const DOWN: f64 = 0.99;

/// Returns a share as a headline has it.
fn size(rate: f64) -> String {
    match rate {
        _ if rate >= DOWN => "all".into(),
        _ if rate >= 0.01 => format!("{:.0} %", rate * 100.0),
        _ => percent(rate),
    }
}

/// Returns a share as a headline has it if it does not say of what.
fn amount(rate: f64) -> String {
    if rate >= DOWN { "all packets".into() } else { size(rate) }
}

/// Returns the finding with its size in a few plain words, for headlines.
pub fn summary(verdict: &Verdict) -> String {
    let verdict = &verdict.clone().in_direction();
    let mut text = match verdict.kind {
        Kind::AgentStarved => format!("the agent on {} is starved: {}", verdict.subject, symptoms(verdict)),
        Kind::AgentUnreachable => format!("the agent on {} does not answer; {}", verdict.subject, reached(verdict)),
        Kind::AgentSuspect => format!("the agent on {} is suspect: {}", verdict.subject, disputed(verdict)),
        Kind::Check => check::summary(verdict),
        _ if !verdict.is_loss() => slow_summary(verdict),
        _ if Of(verdict).has(Figure::Rewritten) => {
            let [seen, listed] = addresses(verdict);
            format!("{} sends from {seen} instead of {listed}, so that UDP probes get no answer", verdict.subject)
        }
        _ if verdict.is_unsent() => unsent_summary(verdict),
        Kind::Flow | Kind::Mtu => part_summary(verdict),
        _ => loss_summary(verdict),
    };
    text += where_to(verdict.network);
    if let Some(only) = verdict.mentioned(Mention::OnlyReport) {
        let _ = write!(text, ", as far as {only} sees");
    }
    text
}

fn slow_summary(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let (slow, all) = (of.count(Figure::PairsHit), of.count(Figure::Pairs));
    match (verdict.kind, verdict.ends()) {
        (Kind::Node, _) => format!("{} is slow to {slow} of {all} nodes", verdict.subject),
        (Kind::Zone, _) => format!("{} is slow", with_noun("zone", &verdict.subject)),
        (Kind::ZonePair, Some((a, b))) => {
            format!("{} <-> {} is slow", with_noun("zone", a), with_noun("zone", b))
        }
        (_, Some((a, b))) => format!("{a} -> {b} is slow"),
        _ => "all links are slow".to_owned(),
    }
}

/// Sums up what cannot be sent.
fn unsent_summary(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let protocol = verdict.protocol.map(|protocol| format!(" {}", protocol.name())).unwrap_or_default();
    let family = verdict.family.map(|family| format!(" over {}", family.name())).unwrap_or_default();
    let (what, subject) = (format!("{protocol}{family}"), &verdict.subject);
    let zone = with_noun("zone", subject);
    let ends = verdict.ends().map(|(a, b)| match verdict.kind {
        Kind::ZonePair => (with_noun("zone", a), with_noun("zone", b)),
        _ => (a.to_owned(), b.to_owned()),
    });
    let (unsent, all) = (of.count(Figure::Unsent), of.count(Figure::UnsentOf));
    let share = verdict.figures.get(Figure::UnsentRatio);
    let has_no_route = verdict.reason == Some(SendError::NoRoute) && unsent == all && share.is_none();
    let finding = match (verdict.kind, verdict.direction, ends) {
        (_, Direction::Both, Some((a, b))) => format!("{a} and {b} cannot send{what} to each other"),
        (_, _, Some((a, b))) => format!("{a} cannot send{what} to {b}"),
        (Kind::Node, Direction::In, _) if has_no_route => return format!("nobody has a route to {subject}{family}"),
        (Kind::Node, Direction::In, _) if unsent == all => format!("nobody can send{what} to {subject}"),
        (Kind::Node, Direction::In, _) => format!("{unsent} of {all} nodes cannot send{what} to {subject}"),
        (Kind::Zone, Direction::In, _) => format!("no other zone can send{what} to {zone}"),
        (Kind::Zone, Direction::Out, _) => format!("{zone} cannot send{what} to all other zones"),
        (Kind::Zone, Direction::Both, _) => format!("{zone} and all other zones cannot send{what} to each other"),
        (Kind::Mesh, ..) if unsent == all => format!("no node can send{what}"),
        (Kind::Mesh, ..) => format!("most nodes cannot send{what}"),
        _ => format!("{subject} cannot send{what}"),
    };
    let share =
        share.map(|share| format!(", for {} of the probes of the last minute", size(share))).unwrap_or_default();
    format!("{finding}{share}: {}", verdict.reason.unwrap_or(SendError::Other).words())
}

/// Sums up what some flows of a link lose, or large packets.
fn part_summary(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let subject = verdict.subject.replace("->", " -> ");
    let bytes = of.count(Figure::PassesBytes);
    match (verdict.kind, &verdict.example) {
        (Kind::Flow, Some(Example { losing, probed, .. })) => format!("{losing} of {probed} flows {subject} lose"),
        (Kind::Flow, None) => format!("some flows {subject} lose"),
        _ if verdict.ends().is_some() => format!("packets over {bytes} bytes do not pass {subject}"),
        _ => {
            let of_node = if subject == "*" { String::new() } else { format!(" of {subject}") };
            let (hit, all) = (of.count(Figure::PairsHit), of.count(Figure::Pairs));
            format!("packets over {bytes} bytes do not pass on {hit} of {all} links{of_node}")
        }
    }
}

fn loss_summary(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let (loss, alone, subject) = (of.loss(), alone(verdict), &verdict.subject);
    let what = match (verdict.kind, verdict.ends()) {
        (Kind::Mesh, _) => "all links".to_owned(),
        (Kind::Paths, _) => "one of several parallel paths".to_owned(),
        (Kind::Partition, _) => {
            let sizes: Vec<String> = verdict.sizes.iter().map(ToString::to_string).collect();
            return format!("the mesh is split: {} nodes do not reach each other", sizes.join(" | "))
                + &alone.map(|alone| format!(" by {alone}")).unwrap_or_default();
        }
        (Kind::Zone, _) => with_noun("zone", subject),
        (Kind::Domain, _) => with_noun("domain", subject),
        (Kind::ZonePair, Some((a, b))) => format!("{} and {}", with_noun("zone", a), with_noun("zone", b)),
        (_, Some((a, b))) => format!("{a} -> {b}"),
        _ => subject.clone(),
    };
    if of.has(Figure::FlowRatio) {
        let links = of.count(Figure::PairsHit);
        let of_node = if verdict.kind == Kind::Node { format!(" to {links} nodes") } else { String::new() };
        let rest = if of_node.is_empty() { format!(": some flows of {links} links") } else { of_node };
        return if verdict.kind == Kind::Node {
            format!("{what} loses packets of some flows{rest}")
        } else {
            format!("{what} loses packets{rest}")
        };
    }
    let verb = if matches!(verdict.kind, Kind::Mesh | Kind::ZonePair) { "lose" } else { "loses" };
    let tail = match verdict.kind {
        Kind::Paths => format!(": {} of {} links", of.count(Figure::PairsHit), of.count(Figure::Pairs)),
        Kind::Mesh if alone.is_none() && loss < CUT_OFF => " alike".to_owned(),
        Kind::Zone | Kind::Domain => extent(verdict).to_owned(),
        _ => String::new(),
    };
    if let Some(alone) = alone {
        return if loss >= CUT_OFF {
            let are = if verdict.protocol.is_none_or(|methods| methods.count() == 1) { "is" } else { "are" };
            format!("{what}: {alone} alone {are} lost{tail}")
        } else {
            format!("{what} {verb} {} by {alone} alone{tail}", size(loss))
        };
    }
    // The way of a loss is known some seconds after the loss. Of a fault that has just begun, the
    // round trips tell more.
    let is_young = of.has(Figure::AfterBeginTimes);
    let missed = |missed: Figure, counted: Figure| size(if is_young { loss } else { of.ratio(missed, counted) });
    match (verdict.kind, verdict.direction) {
        (Kind::Node, Direction::Both) if loss >= DOWN && of.has(Figure::AgentIsSilent) => {
            format!("{what} is down: nobody reaches it")
        }
        (Kind::Node, Direction::Both) if loss >= DOWN => format!("{what} is cut off: it loses all packets"),
        (Kind::Node, Direction::Out) => {
            format!("{what} loses {} of what it sends", missed(Figure::MissedBack, Figure::CountedBack))
        }
        (Kind::Node, Direction::In) => {
            format!("{what} loses {} of what is sent to it", missed(Figure::MissedThere, Figure::CountedThere))
        }
        (Kind::ZonePair, _) if loss >= CUT_OFF => format!("{what} cannot reach each other"),
        (Kind::ZonePair, _) => format!("{what} lose {} between them", amount(loss)),
        (Kind::Zone | Kind::Domain, _) if is_cut_off(verdict) => {
            let others = if verdict.kind == Kind::Zone { "zones" } else { "nodes" };
            let inside = of.0.figures.ratio(Figure::InsideLost, Figure::InsideProbes);
            let inside = inside.map(|inside| amount(verdict.after_begin(inside)));
            let inside = inside.map(|amount| format!(", and loses {amount} inside")).unwrap_or_default();
            format!("{what} is cut off from all other {others}{inside}")
        }
        (Kind::Mesh, _) if loss >= CUT_OFF => format!("{what} lose nearly all packets"),
        (Kind::Mesh | Kind::Zone | Kind::Domain | Kind::Paths, _) => format!("{what} {verb} {}{tail}", amount(loss)),
        _ if loss >= DOWN => format!("{what} loses all its packets"),
        _ => format!("{what} loses {} of its packets", size(loss)),
    }
}

/// Whether a zone or domain loses nearly all to the others, at a rate of its own.
fn is_cut_off(verdict: &Verdict) -> bool {
    let of = Of(verdict);
    !of.has(Figure::WithInside) && verdict.after_begin(of.ratio(Figure::Lost, Figure::Probes)) >= CUT_OFF
}

/// Returns over which links a zone or domain loses.
fn extent(verdict: &Verdict) -> &'static str {
    let of = Of(verdict);
    let is_outside = of.has(Figure::Probes);
    let is_inside = of.has(Figure::InsideProbes) || of.has(Figure::WithInside);
    match (verdict.kind, is_outside, is_inside) {
        (_, false, true) => " inside",
        (Kind::Zone, _, false) => " to all other zones",
        (Kind::Zone, ..) => " inside and to all other zones",
        (_, _, false) => " to all other nodes",
        _ => " inside and to all other nodes",
    }
}
