//! Makes sentences of a verdict: its title, one line that sums it up, and the evidence with its
//! figures. The program that shows a verdict words it, so that the words of one program never reach
//! the readers of another.

mod check;
mod summary;
mod words;

pub use check::was_bad;
pub use summary::summary;
pub use words::{percent, symptoms, where_to};

use std::fmt::Write as _;

use kube_canary_model::check::CheckKind;
use kube_canary_model::method::Method;
use kube_canary_model::report::Way;
use kube_canary_model::verdict::{Direction, Example, Figure, Kind, Mention, Verdict};
use serde::{Serialize, Serializer};

use crate::overall::{NarrowLinks, Overall};
use crate::rewritten::StrangersSeen;
use words::{Of, addresses, alone, disputed, reached};

/// From this loss of all links on, a rule of the cluster may be the cause of what UDP or TCP alone
/// loses. After twelve seconds of a minute, a rule has dropped this much.
const RULE: f64 = 0.2;

/// A verdict with its sentences, as readers get it.
#[derive(Serialize)]
struct Worded<'a> {
    #[serde(flatten)]
    verdict: &'a Verdict,
    /// The finding and its place.
    title: String,
    /// The finding with its size in a few plain words.
    summary: String,
    /// One sentence with the figures.
    evidence: String,
}

/// Writes verdicts with their sentences, for readers.
///
/// # Errors
/// Those of the serializer.
pub fn worded<S: Serializer>(verdicts: &[Verdict], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(verdicts.iter().map(|verdict| Worded {
        verdict,
        title: title(verdict),
        summary: summary(verdict),
        evidence: evidence(verdict),
    }))
}

/// Returns the finding and its place, as a title.
pub fn title(verdict: &Verdict) -> String {
    let verdict = &verdict.clone().in_direction();
    let subject = &verdict.subject;
    let mut network = format!("{} network", verdict.network.label());
    if let Some(alone) = alone(verdict) {
        let _ = write!(network, ", {alone} only");
    }
    let direction = |out: &str, inbound: &str| match verdict.direction {
        Direction::Out => format!(", {out}"),
        Direction::In => format!(", {inbound}"),
        Direction::Both => String::new(),
    };
    let that_way = || direction("that way", "the way back");
    if verdict.is_unsent() {
        network += ": cannot be sent";
    }
    match verdict.kind {
        Kind::Node => format!("node {subject}{}, {network}", direction("what it sends", "what is sent to it")),
        Kind::Link => format!("link {subject}{}, {network}", that_way()),
        Kind::Flow => format!("some flows of link {subject}{}, {network}", that_way()),
        Kind::Mtu if subject == "*" => format!("large packets on most links, {network}"),
        Kind::Mtu => format!("large packets of {subject}{}, {network}", that_way()),
        Kind::Mesh => format!("all links, {network}"),
        Kind::Partition => format!("partition {subject}, {network}"),
        Kind::Paths => format!("one of several parallel paths, {network}"),
        Kind::Zone => format!("zone {subject}, {network}"),
        Kind::Domain => format!("domain {subject}, {network}"),
        Kind::ZonePair => format!("zones {subject}{}, {network}", that_way()),
        Kind::Check => check::title(verdict),
        Kind::AgentStarved => format!("agent on {subject}: its own lag, not the network's"),
        Kind::AgentUnreachable => format!("agent on {subject}: does not answer"),
        Kind::AgentSuspect => format!("agent on {subject}: does not judge as the two other judges do"),
    }
}

/// The documents that explain verdicts.
const DOCS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/");

/// Returns the document that says what to do.
pub fn runbook(verdict: &Verdict) -> String {
    let place = match verdict.kind {
        _ if verdict.is_unsent() => return format!("{DOCS}verdicts.md#probes-that-cannot-be-sent"),
        Kind::Flow | Kind::Mtu => return format!("{DOCS}verdicts.md#flows-and-large-packets"),
        Kind::Check => "kubecanarycheck",
        _ if verdict.protocol.is_some_and(|methods| !methods.has(Method::Icmp)) => "udp-or-tcp-alone",
        Kind::Node => "a-node",
        Kind::Link => "a-link",
        Kind::Zone | Kind::ZonePair | Kind::Domain => "zones",
        Kind::AgentSuspect => "kubecanaryjudgesuspect",
        Kind::AgentStarved | Kind::AgentUnreachable => "kubecanaryagentfault",
        Kind::Mesh | Kind::Partition | Kind::Paths => "kubecanaryfault",
    };
    format!("{DOCS}alerts.md#{place}")
}

/// Returns the command to enter next. `None` if a shell could read a name as more than a word.
pub fn next_command(verdict: &Verdict) -> Option<String> {
    let verdict = &verdict.clone().in_direction();
    let is_plain = |name: &str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let subject = verdict.subject.as_str();
    match (verdict.kind, verdict.ends()) {
        (Kind::Link | Kind::Flow | Kind::Mtu, Some((a, b))) if is_plain(a) && is_plain(b) => {
            let flags = match verdict.kind {
                Kind::Flow => "--udp --flows 16 --trace ",
                Kind::Mtu => "--payload-bytes 1400 ",
                _ => "",
            };
            Some(format!("kubectl -n kube-canary exec POD-ON-{a} -- /kube-canary ping {flags}{b}"))
        }
        (Kind::Node | Kind::AgentStarved, _) if is_plain(subject) => Some(format!("kubectl describe node {subject}")),
        (Kind::AgentUnreachable, _) if is_plain(subject) => {
            Some(format!("kubectl -n kube-canary get pod --field-selector spec.nodeName={subject} -o wide"))
        }
        (Kind::AgentSuspect, _) => {
            Some("kubectl -n kube-canary exec daemonset/kube-canary -- /kube-canary doctor --history".to_owned())
        }
        (Kind::Check, _) => {
            let (kind, (_, name)) = (verdict.check?.kind, verdict.checked()?);
            Some(next_command_of_check(kind, name).to_owned())
        }
        _ => None,
    }
}

/// Returns the command to enter next for a check of this kind and name. The names are those of the
/// checks that are there by default.
pub fn next_command_of_check(kind: CheckKind, name: &str) -> &'static str {
    match (kind, name) {
        (CheckKind::Dns, _) => "kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide",
        (CheckKind::Tls, "api-server") => "kubectl get --raw /readyz",
        _ => "kubectl -n kube-canary exec daemonset/kube-canary -- /kube-canary doctor",
    }
}

/// Returns one sentence with the figures.
pub fn evidence(verdict: &Verdict) -> String {
    let verdict = &verdict.clone().in_direction();
    let mut text = match verdict.kind {
        Kind::AgentStarved => {
            format!("its agent lags, and what it measured is discounted: {}", symptoms(verdict))
        }
        Kind::AgentUnreachable => format!("its report is missing{}; {}", Of(verdict).error(), reached(verdict)),
        Kind::AgentSuspect => disputed(verdict),
        Kind::Check => check::evidence(verdict),
        Kind::Mtu => holes_sentence(verdict),
        Kind::Flow => format!(
            "{}; it lost {} of its last {} probes, and the other flows of this link do not lose",
            link_flows_sentence(verdict),
            Of(verdict).count(Figure::Lost),
            Of(verdict).count(Figure::Probes)
        ),
        _ if !verdict.is_loss() => slow_sentence(verdict),
        _ if Of(verdict).has(Figure::Rewritten) => rewritten_sentence(verdict),
        _ if verdict.is_unsent() => String::new(),
        _ if Of(verdict).has(Figure::FlowRatio) => flows_sentence(verdict),
        Kind::Node => node_sentence(verdict),
        Kind::Link => link_sentence(verdict),
        _ => wide_sentence(verdict),
    };
    by_protocol(&mut text, verdict);
    by_family(&mut text, verdict);
    let of = Of(verdict);
    if of.has(Figure::AfterBeginTimes) {
        let _ = write!(text, "; since it began, {} are lost", percent(of.loss()));
    }
    if let Some(reason) = verdict.reason {
        let (unsent, all) = (of.count(Figure::Unsent), of.count(Figure::UnsentOf));
        let lead = if text.is_empty() { "" } else { "; " };
        let share = verdict.figures.get(Figure::UnsentRatio);
        let share = share.map(|share| format!("{} of the last minute's ", percent(share))).unwrap_or_default();
        let _ = write!(
            text,
            "{lead}{share}probes over {unsent} of {all} links could not be sent: {}; they count as neither sent nor lost",
            reason.words()
        );
    }
    if of.has(Figure::MembersNotListed) {
        let _ = write!(text, "; {} members are not listed", of.count(Figure::MembersNotListed));
    }
    if let Some(only) = verdict.mentioned(Mention::OnlyReport) {
        let _ = write!(text, "; only the report of {only} could be read, so it may also be {only} alone");
    }
    match of.count(Figure::UnreadReports) {
        0 => {}
        1 => text += "; for this reason 1 report could not be read",
        reports => {
            let _ = write!(text, "; for this reason {reports} reports could not be read");
        }
    }
    text
}

fn by_protocol(text: &mut String, verdict: &Verdict) {
    let measured = [
        (Method::Icmp, Figure::IcmpLost, Figure::IcmpProbes),
        (Method::Udp, Figure::UdpLost, Figure::UdpProbes),
        (Method::Tcp, Figure::TcpLost, Figure::TcpProbes),
    ];
    let rate = |lost: Figure, probes: Figure| verdict.figures.ratio(lost, probes);
    let rates: Vec<String> = measured
        .into_iter()
        .filter_map(|(method, lost, probes)| Some(format!("{} {}", method.name(), percent(rate(lost, probes)?))))
        .collect();
    if rates.is_empty() {
        return;
    }
    let _ = write!(text, "; by protocol: {}", rates.join(", "));
    let Some(own) = verdict.protocol.filter(|own| verdict.kind == Kind::Mesh && !own.has(Method::Icmp)) else { return };
    let mut of_own = measured.into_iter().filter(|(method, ..)| own.has(*method));
    if of_own.all(|(_, lost, probes)| rate(lost, probes).is_some_and(|rate| rate >= RULE)) {
        let _ = write!(text, "; a NetworkPolicy or a firewall may not let {} through", own.name());
    }
}

fn by_family(text: &mut String, verdict: &Verdict) {
    let rate = |lost: Figure, probes: Figure| verdict.figures.ratio(lost, probes);
    let rates = [rate(Figure::Ipv4Lost, Figure::Ipv4Probes), rate(Figure::Ipv6Lost, Figure::Ipv6Probes)];
    if let ([Some(v4), Some(v6)], Some(_)) = (rates, verdict.family) {
        let _ = write!(text, "; by family: IPv4 {}, IPv6 {}", percent(v4), percent(v6));
    }
}

fn node_sentence(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let (sources, targets) = (of.count(Figure::Sources), of.count(Figure::Targets));
    let mut text = String::new();
    if sources > 0 {
        let rate = percent(of.ratio(Figure::LostTo, Figure::ProbesTo));
        let hit = of.count(Figure::SourcesHit);
        let _ = write!(text, "loses {rate} of the probes from {hit} of {sources} sources");
    }
    if targets > 0 {
        let rate = percent(of.ratio(Figure::LostBy, Figure::ProbesBy));
        let lead = if sources > 0 { ", and " } else { "loses " };
        let hit = of.count(Figure::TargetsHit);
        let _ = write!(text, "{lead}{rate} of its own to {hit} of {targets} nodes");
    }
    if of.has(Figure::AgentIsSilent) {
        let _ = write!(text, "; its agent does not answer either{}", of.error());
    }
    text += &of.pods();
    if verdict.direction != Direction::Both {
        let _ = write!(text, "; {} were lost, and {}", of.counted_there("to it"), of.counted_back("from it"));
    }
    text
}

fn link_sentence(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let (a, b) = verdict.ends().unwrap_or((&verdict.subject, ""));
    let side = |from: &str, to: &str, probes: Figure, lost: Figure| match of.count(probes) {
        0 => format!("{from} to {to} is not measured"),
        probes => format!("{} of {probes} from {from} to {to}", of.count(lost)),
    };
    let mut text = format!(
        "loses {} of the round trips: {}, {}",
        percent(verdict.loss_ratio().unwrap_or(0.0)),
        side(a, b, Figure::ProbesThere, Figure::LostThere),
        side(b, a, Figure::ProbesBack, Figure::LostBack)
    );
    if of.has(Figure::ReportedByFirst) {
        let _ = write!(text, "; only {a} reports the loss, and what {b} reports excludes it");
    }
    text += &of.pods();
    if verdict.direction != Direction::Both {
        let [from_a, from_b] = [a, b].map(|node| format!("from {node}"));
        let _ = write!(text, "; {} were lost, and {}", of.counted_there(&from_a), of.counted_back(&from_b));
    }
    for (node, alone) in [(a, Figure::FirstIsAlone), (b, Figure::SecondIsAlone)] {
        if of.has(alone) {
            let _ = write!(text, "; no other collected report names {node}: the cause may be {node}");
        }
    }
    text
}

fn wide_sentence(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let (pairs, hit) = (of.count(Figure::Pairs), of.count(Figure::PairsHit));
    let rate = percent(verdict.loss_ratio().unwrap_or(0.0));
    let subject = &verdict.subject;
    let text = match verdict.kind {
        Kind::Mesh => format!(
            "{rate} of the probes are lost on links that no other cause explains, and {hit} of {pairs} pairs of nodes \
             lose: no node, zone or link stands out"
        ),
        Kind::Paths => format!(
            "{hit} of {pairs} pairs of nodes lose, {rate} of the probes of those that do, and they are spread over nodes \
             and zones as one of several parallel paths is"
        ),
        Kind::Partition => {
            let sizes: Vec<String> = verdict.sizes.iter().map(ToString::to_string).collect();
            format!(
                "{rate} of the probes between groups of {} nodes are lost, on {hit} of {pairs} pairs; the groups begin \
                 with {}",
                sizes.join(" and "),
                subject.replace('|', " and ")
            )
        }
        Kind::ZonePair => {
            let (a, b) = verdict.ends().unwrap_or((subject, ""));
            let elsewhere = percent(of.value(Figure::ElsewhereRatio));
            format!(
                "{rate} of the probes between zones {a} and {b} are lost, on {hit} of {pairs} pairs of nodes; elsewhere \
                 {elsewhere}"
            )
        }
        _ => part_sentence(verdict),
    };
    text + &of.pods()
}

/// The sentence over a zone or domain: its links to the others, those inside, or both.
fn part_sentence(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let (noun, others) = if verdict.kind == Kind::Zone { ("zone", "others") } else { ("domain", "other nodes") };
    let subject = &verdict.subject;
    let clause = |between: &str, [probes, lost, pairs, hit]: [Figure; 4]| {
        format!(
            "{} of the probes {between} are lost, on {} of {} pairs of nodes",
            percent(of.ratio(lost, probes)),
            of.count(hit),
            of.count(pairs)
        )
    };
    let mut clauses = Vec::new();
    if of.has(Figure::Probes) {
        let within = if of.has(Figure::WithInside) { ", and within it," } else { "" };
        clauses.push(clause(
            &format!("between {noun} {subject} and all {others}{within}"),
            [Figure::Probes, Figure::Lost, Figure::Pairs, Figure::PairsHit],
        ));
    }
    if of.has(Figure::InsideProbes) {
        clauses.push(clause(
            &format!("within {noun} {subject}"),
            [Figure::InsideProbes, Figure::InsideLost, Figure::InsidePairs, Figure::InsidePairsHit],
        ));
    }
    clauses.push(format!("elsewhere {}", percent(of.value(Figure::ElsewhereRatio))));
    clauses.join("; ")
}

fn slow_sentence(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let ([own, usual], hit, all) = (of.times(), of.count(Figure::PairsHit), of.count(Figure::Pairs));
    let detour = verdict.mentioned(Mention::By).map(|by| format!("by way of zone {by} they would take {usual}"));
    match (verdict.kind, detour) {
        (Kind::Node, _) => {
            format!("round trips of {own} (median) to {hit} of {all} nodes; usual between such zones are {usual}")
        }
        (Kind::Link, Some(detour)) => format!("round trips of {own} (median); {detour}"),
        (Kind::Link, None) => format!("round trips of {own} (median); usual between such zones are {usual}"),
        (Kind::Mesh, _) => format!(
            "round trips of {own} (median); on {hit} of {all} pairs of nodes they take at least {:.0} times as long as \
             in the quickest minute of the last hour: no node, zone or link stands out",
            of.value(Figure::RttSeconds) / of.value(Figure::UsualRttSeconds).max(1e-6)
        ),
        (_, detour) => {
            let detour = detour.unwrap_or_else(|| format!("by way of another zone they would take {usual}"));
            format!("round trips of {own} (median of {hit} pairs of nodes); {detour}")
        }
    }
}

fn flow_phrase(example: &Example) -> String {
    let way = match example.way {
        Way::Out => ", on the way out",
        Way::In => ", on the way back",
        Way::Unknown => "",
    };
    let Example { from, to, source_port, losing, probed, .. } = example;
    format!("{losing} of {probed} flows from {from} to {to}, source port {source_port}{way}")
}

/// What losing flows of one link there are. Judges may know different ones.
fn link_flows_sentence(verdict: &Verdict) -> String {
    let share = percent(Of(verdict).value(Figure::FlowRatio));
    verdict.example.as_ref().map_or_else(|| format!("{share} of its flows lose"), flow_phrase)
}

fn flows_sentence(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let example =
        verdict.example.as_ref().map(|example| format!("; for example {}", flow_phrase(example))).unwrap_or_default();
    format!(
        "{} of the flows of {} pairs of nodes lose, and their other flows do not, as on one of several parallel \
         paths{example}",
        percent(of.value(Figure::FlowRatio)),
        of.count(Figure::PairsHit)
    )
}

fn holes_sentence(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let said = if of.has(Figure::SaysTooBig) {
        "a hop says that they are too big"
    } else if of.has(Figure::SaysNothing) {
        "nothing says so: they are dropped in silence"
    } else {
        "what the network says of them is not known"
    };
    let bytes = of.count(Figure::PassesBytes);
    let example = verdict.example.as_ref().map(|example| (example.from.as_str(), example.to.as_str()));
    let from_to = verdict.ends().or(example).map(|(from, to)| format!(" from {from} to {to}")).unwrap_or_default();
    let (hit, all) = (of.count(Figure::PairsHit), of.count(Figure::Pairs));
    let so_on = match (all, from_to.is_empty()) {
        (0, _) => String::new(),
        (_, true) => format!(" on {hit} of {all} pairs of nodes"),
        _ => format!(", and so on {hit} of {all} pairs of nodes"),
    };
    format!("packets over {bytes} bytes do not pass{from_to}{so_on}; {said}")
}

fn rewritten_sentence(verdict: &Verdict) -> String {
    let (of, [seen, listed]) = (Of(verdict), addresses(verdict));
    format!(
        "on {} of {} links its UDP probes arrive from {seen}, which is no member's address, instead of {listed}; no \
         packet is lost, but agents answer members alone: masquerading (NAT) of traffic between pods rewrites it",
        of.count(Figure::Rewritten),
        of.count(Figure::RewrittenOf)
    )
}

/// Returns what a reader should know of a mesh, though it is no fault.
pub fn notes(overall: &Overall) -> Vec<String> {
    let strangers = overall.strangers.as_ref().map(|StrangersSeen { address, node, further }| {
        let more = if *further > 0 { format!(", and so on for {further} more") } else { String::new() };
        format!("UDP probes come to {node} from {address}, which is no member's address{more}; they get no answer")
    });
    narrow_note(overall).into_iter().chain(strangers).collect()
}

fn narrow_note(overall: &Overall) -> Option<String> {
    let NarrowLinks { pairs, source, peer, passes_bytes } = overall.narrow.as_ref()?;
    // A judge of its own making may count none.
    let more = match pairs.saturating_sub(1) {
        0 => String::new(),
        1 => ", nor between 1 more pair of nodes".to_owned(),
        more => format!(", nor between {more} more pairs of nodes"),
    };
    Some(format!(
        "packets over {passes_bytes} bytes do not pass from {source} to {peer}{more}; the network says so, and the \
         kernels send smaller ones"
    ))
}
