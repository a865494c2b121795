//! The subjects of families, in order: links by their slots, zone pairs, the agent itself, and
//! checks.

use std::sync::Arc;

use super::View;
use super::families::{FamilyContent, FamilyDescription, FamilyScope};
use super::series::{SeriesSettings, Shown};
use crate::check::{CheckFailure, CheckPhase};
use crate::limits::ZONES_MAX;
use crate::peers::{Directory, Family, Method, Methods, SlotId, Via, ZoneId};
use crate::report::Protocol;
use crate::statistics::{
    CHECK_FAMILIES, ClassicReading, Histogram, HistogramReading, PeerStatistics, Scale, SendLag, ZoneStatistics,
};

/// The `family` label of attempts without an address, as those whose host could not be resolved.
const NO_FAMILY: &str = "none";
/// The largest number of zone pairs of a method: every zone, for each family and network.
const ZONE_PAIRS: usize = ZONES_MAX * Via::ALL.len();

/// The part of a view that a scrape shows.
#[derive(Clone, Copy, Debug)]
pub struct Subjects<'a> {
    pub view: &'a View,
    pub directory: &'a Directory,
    pub series: SeriesSettings,
    pub shown: Shown,
    /// The list of checks with which the scrape began. If another replaces it, the rest of a scrape
    /// has no checks: they may have other places in the new list.
    pub checks: u32,
}

/// One subject of a family.
#[derive(Clone, Debug)]
pub enum Subject<'a> {
    /// The statistics of a link.
    Link(PeerStatistics<'a>),
    /// A zone pair, and the scale of its round-trip times.
    Zone(&'a ZoneStatistics, &'a Scale),
    /// A lag of the agent, and the time from which it counts, in seconds since the epoch.
    Lag(&'a SendLag, u32),
    /// The times of a phase of a check, their scale, and the time from which they count, in seconds
    /// since the epoch.
    CheckTimes(Arc<Histogram>, &'a Scale, u32),
    /// A number of a check, a gauge of a link or a zone pair, and the time from which a counter counts.
    Number(u64, Option<u32>),
}

impl Subjects<'_> {
    /// Whether the family is exported at all.
    pub fn has(&self, family: &FamilyDescription) -> bool {
        match (family.scope, family.content) {
            (FamilyScope::Link, _) => self.methods().iter().any(|method| self.are_in(family, method)),
            (FamilyScope::Check, content) => {
                (0..self.end(family)).any(|subject| self.check(content, subject, |_, _| {}).is_some())
            }
            _ => true,
        }
    }

    fn methods(&self) -> Methods {
        self.view.statistics.methods()
    }

    /// Returns the slot or zone pair of a subject, and its method. Subjects are in the order of
    /// their slots, or zones and ways, and then of their methods.
    fn place_and_method(&self, subject: usize) -> Option<(usize, Method)> {
        let count = self.methods().count().max(1);
        Some((subject / count, self.methods().iter().nth(subject % count)?))
    }

    /// Whether the subject with this index has this family: not every method has all of them.
    pub fn is_in(&self, family: &FamilyDescription, subject: usize) -> bool {
        matches!(family.scope, FamilyScope::Agent | FamilyScope::Check)
            || self.place_and_method(subject).is_some_and(|(_, method)| self.are_in(family, method))
    }

    /// Whether the links or zone pairs of a method have this family.
    fn are_in(&self, family: &FamilyDescription, method: Method) -> bool {
        family.methods.contains(&method)
            && match (family.scope, family.content) {
                (FamilyScope::Link, FamilyContent::Rtt) => self.series.has_times(self.methods(), method),
                (FamilyScope::Link, _) => self.series.links >= family.links,
                _ => true,
            }
    }

    /// Returns one more than the index of the last subject.
    pub fn end(&self, family: &FamilyDescription) -> usize {
        match family.scope {
            FamilyScope::Link => self.directory.slot_count().min(self.shown.slots_end) * self.methods().count(),
            FamilyScope::Zone => ZONE_PAIRS * self.methods().count(),
            FamilyScope::Agent => 1,
            FamilyScope::Check => self.view.statistics.checks().count() * parts(family.content),
        }
    }

    /// Returns the scale of the times in this scope.
    pub fn scale(&self, scope: FamilyScope) -> &Scale {
        let statistics = &self.view.statistics;
        match scope {
            FamilyScope::Link => statistics.scale(),
            FamilyScope::Zone => statistics.zone_scale(),
            FamilyScope::Agent => statistics.send_lag().scale(),
            FamilyScope::Check => statistics.checks().scale(),
        }
    }

    /// Returns the subject with this index, and passes its labels to `label`. Returns none if the
    /// subject does not exist.
    pub fn get(
        &self,
        family: &FamilyDescription,
        subject: usize,
        mut label: impl FnMut(&str, &str),
    ) -> Option<Subject<'_>> {
        if family.scope == FamilyScope::Check {
            return self.check(family.content, subject, label);
        }
        let Self { directory, view: View { node, statistics, .. }, .. } = self;
        let (place, method) = self.place_and_method(subject)?;
        let (found, zone, via) = match (family.scope, family.content) {
            (FamilyScope::Agent, FamilyContent::ReadDelay) => {
                return Some(Subject::Lag(statistics.read_delay(), statistics.created()));
            }
            (FamilyScope::Agent, _) => return Some(Subject::Lag(statistics.send_lag(), statistics.created())),
            (FamilyScope::Zone, _) => {
                let (zone, via) = zone_pair(place);
                let pair = statistics.method(method).zone(zone, via)?;
                let found = match family.content {
                    FamilyContent::ZoneGauge(of_link, together) => {
                        let of_pair = directory.peers().filter(|(_, peer)| (peer.zone(), peer.via()) == (zone, via));
                        let links = of_pair.filter_map(|(slot, _)| statistics.udp(slot));
                        Subject::Number(links.map(|link| of_link(&link)).reduce(together).unwrap_or(0), None)
                    }
                    _ => Subject::Zone(pair, statistics.zone_scale()),
                };
                label("source_zone", directory.own_zone());
                (found, zone, via)
            }
            (FamilyScope::Link | FamilyScope::Check, _) => {
                let slot = SlotId::at(place);
                let peer = directory.peer(slot).filter(|peer| peer.via().allows(method))?;
                let found = match family.content {
                    FamilyContent::UdpGauge(of_link) => Subject::Number(of_link(&statistics.udp(slot)?), None),
                    _ => Subject::Link(statistics.method(method).slot(slot)?),
                };
                label("source_node", node);
                label("source_zone", directory.own_zone());
                label("peer_node", peer.node());
                (found, peer.zone(), peer.via())
            }
        };
        label("peer_zone", directory.zone_name(zone));
        label("protocol", Protocol::new(method, via.family).label());
        label("network", self.series.network(via.network));
        if let Some((name, value)) = family.label {
            label(name, value);
        }
        Some(found)
    }

    /// Returns a part of a check. Labels and numbers are read at the same moment.
    fn check(&self, content: FamilyContent, subject: usize, mut label: impl FnMut(&str, &str)) -> Option<Subject<'_>> {
        let (board, parts) = (self.view.statistics.checks(), parts(content));
        let (place, part) = (subject / parts, subject % parts);
        board.read_of(self.checks, place, |record| {
            let since = record.created;
            let (found, more) = match content {
                FamilyContent::CheckTimes => {
                    let (family, part) = (part / CheckPhase::ALL.len(), part % CheckPhase::ALL.len());
                    let times = Arc::clone(record.phases[family][part].as_ref()?);
                    let phase = ("phase", CheckPhase::ALL[part].label());
                    (Subject::CheckTimes(times, board.scale(), since), Some((family, phase)))
                }
                FamilyContent::CheckFailures => {
                    let (family, part) = (part / CheckFailure::ALL.len(), part % CheckFailure::ALL.len());
                    let count = Some(record.failures[family][part]).filter(|count| *count > 0)?;
                    let reason = ("reason", CheckFailure::ALL[part].label());
                    (Subject::Number(count, Some(since)), Some((family, reason)))
                }
                FamilyContent::CheckCertificate => (Subject::Number(record.certificate_not_after?, None), None),
                _ => (Subject::Number(record.attempts, Some(since)), None),
            };
            label("check", &record.spec.name);
            label("target", &record.target);
            if let Some((family, (name, value))) = more {
                label("family", Family::ALL.get(family).map_or(NO_FAMILY, |family| family.label()));
                label(name, value);
            }
            Some(found)
        })?
    }
}

/// Returns the number of subjects that a check has in a family.
const fn parts(content: FamilyContent) -> usize {
    match content {
        FamilyContent::CheckTimes => CheckPhase::ALL.len() * Family::ALL.len(),
        FamilyContent::CheckFailures => CheckFailure::ALL.len() * CHECK_FAMILIES,
        _ => 1,
    }
}

impl Subject<'_> {
    /// Returns the subject's value in a family of numbers, and the time from which a counter
    /// counts, in seconds since the epoch. Returns none for other families.
    pub fn count(&self, family: &FamilyDescription) -> Option<(u64, Option<u32>)> {
        match (self, family.content) {
            (Self::Link(link), FamilyContent::LinkCounter(count)) => {
                let reading = link.read();
                Some((count(&reading), Some(reading.created)))
            }
            (Self::Zone(pair, _), FamilyContent::ZoneCounter(count)) => {
                let reading = pair.read();
                Some((count(&reading), Some(reading.created)))
            }
            (Self::Number(number, since), _) => Some((*number, *since)),
            _ => None,
        }
    }

    /// Returns the time from which the subject counts, in seconds since the epoch.
    pub fn created(&self) -> u32 {
        match self {
            Self::Link(link) => link.created(),
            Self::Zone(pair, _) => pair.created(),
            Self::Lag(_, created) | Self::CheckTimes(_, _, created) => *created,
            Self::Number(..) => 0,
        }
    }

    /// Returns the subject's times as a classic histogram.
    pub fn classic(&self) -> ClassicReading {
        match self {
            Self::Link(link) => link.classic(),
            Self::Zone(pair, scale) => pair.classic(scale),
            Self::Lag(lag, _) => lag.classic(),
            Self::CheckTimes(times, scale, _) => times.classic(scale),
            Self::Number(..) => ClassicReading::default(),
        }
    }

    /// Reads the subject's times into `times`.
    pub fn read_times(&self, times: &mut HistogramReading) {
        match self {
            Self::Link(link) => link.read_rtt(times),
            Self::Zone(pair, _) => pair.read_rtt(times),
            Self::Lag(lag, _) => lag.read_into(times),
            Self::CheckTimes(phase, ..) => phase.read_into(times),
            Self::Number(..) => {}
        }
    }
}

/// Returns the zone pair at this index. The order is by zone, then by family and network.
const fn zone_pair(pair: usize) -> (ZoneId, Via) {
    #[expect(clippy::cast_possible_truncation, reason = "below ZONES_MAX, which is below 256")]
    let zone = (pair / Via::ALL.len()) as u8;
    (ZoneId(zone), Via::ALL[pair % Via::ALL.len()])
}
const _: () = assert!(ZONES_MAX <= 256);
