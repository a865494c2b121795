//! The numbers of a verdict, each by its name.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::report::Rounded;

/// What a number of a verdict counts or measures. Ratios are 0 to 1. A number that is 1 says that
/// something holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Probes over all links of the cause: answered or lost.
    Probes,
    /// Those that were lost.
    Lost,
    /// Pairs of nodes that were measured.
    Pairs,
    /// Pairs that lose, or are slow, or that large packets do not pass.
    PairsHit,
    /// The same over the links inside a zone or domain, if these are a part of their own.
    InsideProbes,
    /// See [`Figure::InsideProbes`].
    InsideLost,
    /// See [`Figure::InsideProbes`].
    InsidePairs,
    /// See [`Figure::InsideProbes`].
    InsidePairsHit,
    /// The links inside the zone or domain count with those to the others.
    WithInside,
    /// Probes of others to a node.
    ProbesTo,
    /// Those that were lost.
    LostTo,
    /// Nodes that sent them.
    Sources,
    /// Number of sources that lose.
    SourcesHit,
    /// Probes of a node itself.
    ProbesBy,
    /// Those that were lost.
    LostBy,
    /// Nodes that it sent them to.
    Targets,
    /// Targets to which it loses.
    TargetsHit,
    /// Probes of the first end of a link to the second.
    ProbesThere,
    /// Those that were lost.
    LostThere,
    /// Probes of the second end to the first.
    ProbesBack,
    /// Those that were lost.
    LostBack,
    /// Only the first end reports the loss, and what the second reports excludes it.
    ReportedByFirst,
    /// Only the second end reports the loss.
    ReportedBySecond,
    /// No other report names the first end.
    FirstIsAlone,
    /// No other report names the second end.
    SecondIsAlone,
    /// Packets that a node received or should have received, or that the second end of a link
    /// should have.
    CountedThere,
    /// Those that did not arrive.
    MissedThere,
    /// The same in the other direction: what others should have received of a node, or the first
    /// end of the second.
    CountedBack,
    /// Those that did not arrive.
    MissedBack,
    /// These are UDP packets, and not echo requests.
    CountedByUdp,
    /// The share of probes that links lose, if it does not follow from the other numbers.
    LossRatio,
    /// How many times the loss of the recent window is lost since the cause began. Only what began
    /// within that window has it. Of two judges, the one that says less is believed.
    AfterBeginTimes,
    /// The share that the other links lose.
    ElsewhereRatio,
    /// Probes of the pods' network over the same links, if it loses for the same reason.
    PodProbes,
    /// Those that were lost.
    PodLost,
    /// Probes by ICMP over the links of the cause.
    IcmpProbes,
    /// Those that were lost.
    IcmpLost,
    /// Probes by UDP over the same links.
    UdpProbes,
    /// Those that were lost.
    UdpLost,
    /// Handshakes of TCP over the same links.
    TcpProbes,
    /// Those that were lost.
    TcpLost,
    /// Probes over IPv4 over the links of the cause.
    Ipv4Probes,
    /// Those that were lost.
    Ipv4Lost,
    /// Probes over IPv6 over the same links.
    Ipv6Probes,
    /// Those that were lost.
    Ipv6Lost,
    /// The agent of the node does not answer either.
    AgentIsSilent,
    /// Reports that could not be read for this reason.
    UnreadReports,
    /// Members that are not listed.
    MembersNotListed,
    /// Median round-trip time. Only what is slow has it.
    RttSeconds,
    /// The round-trip time that it is compared with.
    UsualRttSeconds,
    /// The share of the flows of a link that lose.
    FlowRatio,
    /// Bytes of the largest packet that passes.
    PassesBytes,
    /// The network says that larger packets are too big.
    SaysTooBig,
    /// The network says nothing of larger packets.
    SaysNothing,
    /// How late an agent sends, as the 99th percentile.
    SendLagSeconds,
    /// How late an agent reads.
    ReadDelaySeconds,
    /// How long an agent waited for a CPU.
    RunDelaySeconds,
    /// Out of this time.
    OfSeconds,
    /// Probes that an agent did not send for want of time.
    ProbesSkipped,
    /// Out of this many.
    OfProbes,
    /// Packets that its socket dropped unread.
    PacketsDropped,
    /// A judge reports what the two others do not find.
    Adds,
    /// A judge does not report what the two others find.
    Lacks,
    /// Links over which probes could not be sent.
    Unsent,
    /// Out of this many links.
    UnsentOf,
    /// The share of the probes that could not be sent over these links, if it is not all.
    UnsentRatio,
    /// Links on which requests arrive from an address that is no member's.
    Rewritten,
    /// Out of this many links.
    RewrittenOf,
    /// Attempts of a check.
    Attempts,
    /// Those that failed. Only a check that fails has it.
    FailedAttempts,
    /// Those whose answer was slow.
    SlowAttempts,
    /// Nodes that made these attempts.
    CheckingNodes,
    /// Nodes of which attempts failed, or were slow.
    CheckingNodesHit,
    /// The verdict over a check is about a zone, and not about a node of this name.
    IsZone,
    /// Servers or addresses that the check of a node asks in turn.
    Servers,
    /// Those of which most attempts failed.
    ServersFailing,
    /// Median time of the answers to a check.
    AnswerSeconds,
    /// The time from which on an answer counts as slow.
    SlowFromSeconds,
    /// A number that this version does not know. It is left out as it is read.
    #[serde(other)]
    Other,
}

/// Figures that change places if a link is seen from its other end.
const TURNED: [(Figure, Figure); 6] = [
    (Figure::ProbesThere, Figure::ProbesBack),
    (Figure::LostThere, Figure::LostBack),
    (Figure::ReportedByFirst, Figure::ReportedBySecond),
    (Figure::FirstIsAlone, Figure::SecondIsAlone),
    (Figure::CountedThere, Figure::CountedBack),
    (Figure::MissedThere, Figure::MissedBack),
];
/// Largest number of figures.
const FIGURES_MAX: usize = Figure::Other as usize;
/// A larger figure is none: a mesh of 50,000 nodes counts less.
const VALUE_MAX: f64 = 1e15;

/// The numbers of a verdict, each at most once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures(Vec<(Figure, f64)>);

impl Figures {
    /// Returns a figure; `None` if it is not there.
    pub fn get(&self, figure: Figure) -> Option<f64> {
        let place = self.0.binary_search_by_key(&figure, |(of, _)| *of).ok()?;
        Some(self.0[place].1)
    }

    /// Returns a figure as a count; 0 if it is not there.
    pub fn count(&self, figure: Figure) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 10^15")]
        self.get(figure).map_or(0, |value| value.round() as u64)
    }

    /// Whether a figure is there and not 0.
    pub fn has(&self, figure: Figure) -> bool {
        self.get(figure).is_some_and(|value| value > 0.0)
    }

    /// Returns the share of `whole` that `part` is, 0 to 1. `None` if there is no `whole`.
    pub fn ratio(&self, part: Figure, whole: Figure) -> Option<f64> {
        let whole = self.get(whole).filter(|whole| *whole > 0.0)?;
        Some((self.get(part).unwrap_or(0.0) / whole).clamp(0.0, 1.0))
    }

    /// Sets a figure. What is no number, negative or too large becomes the nearest that can be.
    pub fn set(&mut self, figure: Figure, value: f64) {
        let value = if value.is_nan() { 0.0 } else { value.clamp(0.0, VALUE_MAX) };
        match self.0.binary_search_by_key(&figure, |(of, _)| *of) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (figure, value)),
        }
    }

    /// Returns these figures with others, which replace those of the same name.
    #[must_use]
    pub fn with<const N: usize>(mut self, others: [(Figure, f64); N]) -> Self {
        for (figure, value) in others {
            self.set(figure, value);
        }
        self
    }

    /// Adds the figures of another that are not there.
    pub fn complete(&mut self, other: &Self) {
        for (figure, value) in &other.0 {
            if self.get(*figure).is_none() {
                self.set(*figure, *value);
            }
        }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes the figures over all links those over the links inside a zone or domain.
    pub fn move_inside(&mut self) {
        for (from, to) in [
            (Figure::Probes, Figure::InsideProbes),
            (Figure::Lost, Figure::InsideLost),
            (Figure::Pairs, Figure::InsidePairs),
            (Figure::PairsHit, Figure::InsidePairsHit),
        ] {
            if let Some(value) = self.get(from) {
                self.0.retain(|(figure, _)| *figure != from);
                self.set(to, value);
            }
        }
    }

    /// Sees a link from its other end.
    pub(super) fn turn(&mut self) {
        for (one, other) in TURNED {
            let (a, b) = (self.get(one), self.get(other));
            self.0.retain(|(figure, _)| *figure != one && *figure != other);
            for (figure, value) in [(one, b), (other, a)] {
                if let Some(value) = value {
                    self.set(figure, value);
                }
            }
        }
    }

    /// Returns the middle one of each figure that `needed` of these have, the lower of two.
    pub fn medians(all: &[&Self], needed: usize) -> Self {
        let mut middle = Self::default();
        for (figure, _) in all.iter().flat_map(|figures| &figures.0) {
            let mut values: Vec<f64> = all.iter().filter_map(|figures| figures.get(*figure)).collect();
            values.sort_unstable_by(f64::total_cmp);
            if values.len() >= needed.max(1) {
                middle.set(*figure, values[(values.len() - 1) / 2]);
            }
        }
        middle
    }

    /// Returns the bytes that they take.
    pub const fn bytes(&self) -> usize {
        self.0.len() * size_of::<(Figure, f64)>()
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Number(f64);
        impl Serialize for Number {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 10^15")]
                if self.0.fract() == 0.0 {
                    serializer.serialize_u64(self.0 as u64)
                } else {
                    Rounded(self.0).serialize(serializer)
                }
            }
        }
        serializer.collect_map(self.0.iter().map(|(figure, value)| (figure, Number(*value))))
    }
}

impl<'de> Deserialize<'de> for Figures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Figures;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("numbers from 0 to 10^15 by their names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Figures, A::Error> {
                let (mut figures, mut read) = (Figures::default(), 0);
                while let Some((figure, value)) = map.next_entry::<Figure, f64>()? {
                    read += 1;
                    if read > FIGURES_MAX || !(0.0..=VALUE_MAX).contains(&value) {
                        return Err(A::Error::custom("a figure that no verdict has"));
                    }
                    if figure != Figure::Other {
                        figures.set(figure, value);
                    }
                }
                Ok(figures)
            }
        }
        deserializer.deserialize_map(Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_they_are_written_and_unknown_ones_are_left_out() {
        let figures =
            Figures::default().with([(Figure::Lost, 12.0), (Figure::Probes, 120.0), (Figure::LossRatio, 0.25)]);
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(text, r#"{"probes":120,"lost":12,"loss_ratio":0.25}"#);
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
        let newer = serde_json::from_str::<Figures>(r#"{"lost":12,"new":1,"probes":120.0,"loss_ratio":0.25}"#);
        assert_eq!(newer.unwrap(), figures);
        for bad in [r#"{"lost":-1}"#, r#"{"lost":1e16}"#, r#"{"lost":"1"}"#, r#"{"lost":null}"#, "[]"] {
            assert!(serde_json::from_str::<Figures>(bad).is_err(), "{bad}");
        }
        let many: Vec<String> = (0..=FIGURES_MAX).map(|n| format!(r#""n{n}":1"#)).collect();
        assert!(serde_json::from_str::<Figures>(&format!("{{{}}}", many.join(","))).is_err());
    }

    #[test]
    fn the_middle_of_what_judges_say_counts() {
        let of = |lost: f64| Figures::default().with([(Figure::Lost, lost)]);
        let alone = of(7.0).with([(Figure::Adds, 1.0)]);
        let medians = Figures::medians;
        assert_eq!(medians(&[&of(1e9), &of(5.0), &alone], 2), of(7.0));
        assert_eq!(medians(&[&of(9.0), &of(5.0)], 2), of(5.0), "the lower of two");
        assert_eq!(medians(&[&alone], 1), alone);
        assert_eq!(medians(&[], 0), Figures::default());
    }

    #[test]
    fn a_link_can_be_seen_from_either_end() {
        let mut figures = Figures::default().with([
            (Figure::ProbesThere, 60.0),
            (Figure::LostThere, 3.0),
            (Figure::ReportedByFirst, 1.0),
        ]);
        let before = figures.clone();
        figures.turn();
        let turned = [(Figure::ProbesBack, 60.0), (Figure::LostBack, 3.0), (Figure::ReportedBySecond, 1.0)];
        assert_eq!(figures, Figures::default().with(turned));
        figures.turn();
        assert_eq!(figures, before);
    }
}
