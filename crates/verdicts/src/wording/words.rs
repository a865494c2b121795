//! Parts of sentences, and the figures of a verdict by short names.

use kube_canary_model::method::{Family, Methods};
use kube_canary_model::report::Network;
use kube_canary_model::verdict::{Figure, Mention, Verdict};

/// Returns a share with a decimal, as evidence has it.
pub fn percent(rate: f64) -> String {
    if rate > 0.0 && rate < 0.000_5 { "less than 0.1 %".into() } else { format!("{:.1} %", rate * 100.0) }
}

/// Returns a round-trip time in a unit that fits it.
pub fn time(seconds: f64) -> String {
    match seconds * 1e6 {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 100_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.0} ms", us / 1e3),
    }
}

/// Returns the network for headlines; empty for the pods' network, which is the default.
pub const fn where_to(network: Network) -> &'static str {
    if matches!(network, Network::Node) { " (node network)" } else { "" }
}

/// Returns what a verdict is about alone: protocols, a family, or both. `None` if about all.
pub fn alone(verdict: &Verdict) -> Option<String> {
    match (verdict.protocol.map(Methods::name), verdict.family.map(Family::name)) {
        (None, None) => None,
        (Some(protocol), Some(family)) => Some(format!("{protocol} over {family}")),
        (protocol, family) => protocol.or(family).map(str::to_owned),
    }
}

/// Gives the figures of a verdict by short names.
pub struct Of<'a>(pub &'a Verdict);

impl Of<'_> {
    /// Returns a count, or 0.
    pub fn count(&self, figure: Figure) -> u64 {
        self.0.figures.count(figure)
    }

    /// Whether the verdict has this figure.
    pub fn has(&self, figure: Figure) -> bool {
        self.0.figures.has(figure)
    }

    /// Returns a figure, or 0.
    pub fn value(&self, figure: Figure) -> f64 {
        self.0.figures.get(figure).unwrap_or(0.0)
    }

    /// Returns the share of a part, or 0.
    pub fn ratio(&self, part: Figure, whole: Figure) -> f64 {
        self.0.figures.ratio(part, whole).unwrap_or(0.0)
    }

    /// Returns the loss of what the verdict is about: of its family alone, if it is about one.
    pub fn loss(&self) -> f64 {
        match self.0.family {
            Some(Family::V4) => self.0.after_begin(self.ratio(Figure::Ipv4Lost, Figure::Ipv4Probes)),
            Some(Family::V6) => self.0.after_begin(self.ratio(Figure::Ipv6Lost, Figure::Ipv6Probes)),
            None => self.0.loss_ratio().unwrap_or(0.0),
        }
    }

    /// Returns the round-trip time, and that of what it is compared with.
    pub fn times(&self) -> [String; 2] {
        [Figure::RttSeconds, Figure::UsualRttSeconds].map(|figure| time(self.value(figure)))
    }

    /// Returns what was counted in one direction.
    pub fn counted(&self, [counted, missed]: [Figure; 2], whose: &str) -> String {
        let unit = if self.has(Figure::CountedByUdp) { "UDP packets" } else { "requests" };
        format!("{} of {} {unit} {whose}", self.count(missed), self.count(counted))
    }

    /// Returns what was counted of requests to the peer.
    pub fn counted_there(&self, whose: &str) -> String {
        self.counted([Figure::CountedThere, Figure::MissedThere], whose)
    }

    /// Returns what was counted of requests from the peer.
    pub fn counted_back(&self, whose: &str) -> String {
        self.counted([Figure::CountedBack, Figure::MissedBack], whose)
    }

    /// Returns the text about the pods' network, if it loses for the same reason.
    pub fn pods(&self) -> String {
        let ratio = self.0.figures.ratio(Figure::PodLost, Figure::PodProbes);
        ratio.map(|ratio| format!("; so does the pod network, {}", percent(ratio))).unwrap_or_default()
    }

    /// Returns the reason for a missing report in brackets, if it is known.
    pub fn error(&self) -> String {
        self.0
            .mentioned(Mention::Error)
            .filter(|error| !error.is_empty())
            .map(|error| format!(" ({error})"))
            .unwrap_or_default()
    }
}

/// Returns in words what an agent lacks.
pub fn symptoms(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let mut symptoms: Vec<String> = Vec::new();
    if of.has(Figure::SendLagSeconds) {
        let ms = of.value(Figure::SendLagSeconds) * 1e3;
        symptoms.push(format!("it sends {ms:.0} ms late (99th percentile)"));
    }
    if of.has(Figure::ReadDelaySeconds) {
        let ms = of.value(Figure::ReadDelaySeconds) * 1e3;
        symptoms.push(format!("it reads replies {ms:.0} ms late (99th percentile)"));
    }
    if of.has(Figure::RunDelaySeconds) {
        let (delay, seconds) = (of.value(Figure::RunDelaySeconds), of.value(Figure::OfSeconds));
        symptoms.push(format!("it waited {delay:.1} s of {seconds:.0} s for a CPU"));
    }
    if of.has(Figure::ProbesSkipped) {
        let (skipped, all) = (of.count(Figure::ProbesSkipped), of.count(Figure::OfProbes));
        symptoms.push(format!("it skipped {skipped} probes of {all}"));
    }
    if of.has(Figure::PacketsDropped) {
        symptoms.push(format!("its socket dropped {} packets unread", of.count(Figure::PacketsDropped)));
    }
    symptoms.join(", ")
}

/// Returns where the packets of a node come from, and where they should.
pub fn addresses(verdict: &Verdict) -> [&str; 2] {
    let of = |part: Mention| verdict.mentioned(part).filter(|name| !name.is_empty());
    [of(Mention::SeenAs).unwrap_or("another address"), of(Mention::ListedAs).unwrap_or("its own")]
}

/// Returns what is known of a node whose agent does not answer.
pub fn reached(verdict: &Verdict) -> String {
    let of = Of(verdict);
    let (probes, lost) = (of.count(Figure::ProbesTo), of.count(Figure::LostTo));
    match (probes, probes.saturating_sub(lost)) {
        (0, _) => "nothing is measured of its node".to_owned(),
        (probes, 0) => format!("its node answered none of {probes} probes"),
        (probes, answered) => format!(
            "its node answers {} of the probes of {} sources",
            percent(answered as f64 / probes as f64),
            of.count(Figure::Sources)
        ),
    }
}

/// Returns what a judge that differs from the others finds or lacks.
pub fn disputed(verdict: &Verdict) -> String {
    let finds = if Of(verdict).has(Figure::Adds) {
        "as a judge it reports what the two others do not find"
    } else {
        "as a judge it does not report what the two others find"
    };
    let what = verdict.mentioned(Mention::Disputed).map(|what| format!(": {what}")).unwrap_or_default();
    format!("{finds}{what}")
}

/// Returns the name of a zone or domain with its noun, unless the name has it.
pub fn with_noun(noun: &str, name: &str) -> String {
    if name.to_lowercase().contains(noun) { name.to_owned() } else { format!("{noun} {name}") }
}
