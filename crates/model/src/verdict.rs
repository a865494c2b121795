//! A verdict: what judges say of a mesh. It has figures and names, and no sentence: what shows it
//! words it, so no text of a judge reaches a reader.

mod figures;

pub use figures::{Figure, Figures};

use serde::{Deserialize, Deserializer, Serialize};

use crate::check::{CheckFailure, CheckKind};
use crate::limits::NAME_BYTES_MAX;
use crate::method::{Family, Methods};
use crate::report::{Network, SendError, Way, at_most};

/// The most groups that a partition has, a number.
pub const GROUPS_MAX: usize = 17;
/// Largest number of listed members per group.
pub const MEMBERS_MAX: usize = 64;
/// Largest number of names that a verdict mentions beside its subject and members.
const MENTIONS_MAX: usize = 4;

/// What a verdict is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// All links lose alike.
    Mesh,
    /// Groups of nodes that are healthy inside do not reach each other.
    Partition,
    /// Some of all links lose, spread over nodes: those on one of several parallel paths.
    Paths,
    /// A node loses, or is slow, with all peers.
    Node,
    /// A zone is cut off from all others, or bad inside.
    Zone,
    /// A failure domain of the operator is cut off from all other nodes, or bad inside.
    Domain,
    /// The links between two zones lose.
    ZonePair,
    /// The link between two nodes is bad.
    Link,
    /// Some flows of a link lose, and the others do not.
    Flow,
    /// Large packets do not pass a link, those of a node, or most links.
    Mtu,
    /// A check fails, or is slow: for most nodes, for a zone or for a node. It has no links.
    Check,
    /// An agent was late itself: its measurements show its own delay.
    AgentStarved,
    /// The report of an agent is missing.
    AgentUnreachable,
    /// A judge says what the two others do not find, or hides what they find.
    AgentSuspect,
}

impl Kind {
    /// Returns the label of the kind, as in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Mesh => "mesh",
            Self::Partition => "partition",
            Self::Paths => "paths",
            Self::Node => "node",
            Self::Zone => "zone",
            Self::Domain => "domain",
            Self::ZonePair => "zone_pair",
            Self::Link => "link",
            Self::Flow => "flow",
            Self::Mtu => "mtu",
            Self::Check => "check",
            Self::AgentStarved => "agent_starved",
            Self::AgentUnreachable => "agent_unreachable",
            Self::AgentSuspect => "agent_suspect",
        }
    }

    /// Whether it is a fault of links, and neither of an agent alone nor of what a check asks. Only
    /// such a fault explains losses and missing reports.
    pub fn is_network_fault(self) -> bool {
        self < Self::Check
    }

    /// Whether it is about an agent alone, and about nothing that pods use.
    pub fn is_agent_fault(self) -> bool {
        self >= Self::AgentStarved
    }

    /// Whether its subject may have two ends.
    pub const fn may_have_ends(self) -> bool {
        matches!(self, Self::Link | Self::Flow | Self::Mtu | Self::ZonePair)
    }
}

/// How certain a verdict is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Both ends agree. Beyond what a verdict needs, chance causes this in less than one
    /// of 3,000 meshes.
    Certain,
    /// The evidence is weaker, or only one end gives it.
    #[default]
    Likely,
}

/// How much the cause affects the users of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something is slow, or is a single link, one of several paths or an agent, or ICMP alone is
    /// lost.
    #[default]
    Warning,
    /// More than a single link loses packets, or large ones do not pass.
    Critical,
}

impl Severity {
    /// Returns the label of the severity.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// The direction in which packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Inbound: towards the node.
    In,
    /// Outbound: from the node. For a link `a->b`: from `a` to `b`.
    Out,
    /// Both directions, or the direction is unknown.
    Both,
}

impl Direction {
    /// Returns the label of the direction.
    pub const fn label(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Both => "both",
        }
    }

    /// Returns the direction of a link whose ends are given in the opposite order.
    #[must_use]
    pub const fn turned(self) -> Self {
        match self {
            Self::In => Self::Out,
            Self::Out => Self::In,
            Self::Both => Self::Both,
        }
    }
}

/// Which part a name has in a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mention {
    /// The third zone of a detour that would be quicker.
    By,
    /// The node whose report is the only one that could be read.
    OnlyReport,
    /// Why the report of the node is missing.
    Error,
    /// The address that its packets come from, as other nodes see it.
    SeenAs,
    /// The address that it has in the list of members.
    ListedAs,
    /// The finding about which judges differ, such as `node n3`.
    Disputed,
}

/// What a verdict says of a check beside its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckCause {
    /// What the check asks for.
    pub kind: CheckKind,
    /// Why most attempts failed. `None` if the answers are slow, or if judges differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<CheckFailure>,
}

/// A flow that loses, or a link that large packets do not pass, as an example of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Example {
    /// Where the packets were sent from.
    pub from: String,
    /// Where they were sent to.
    pub to: String,
    /// The source port of the flow; 0 without a flow.
    pub source_port: u16,
    /// Number of flows of the link that lose.
    pub losing: u8,
    /// Number of flows of the link.
    pub probed: u8,
    /// Where they were lost.
    pub way: Way,
}

/// A verdict, as judges exchange it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// 32 hexadecimal digits: a hash of what the verdict is about, so it is the same in every
    /// agent.
    #[serde(default)]
    pub id: String,
    /// What the verdict is about.
    pub kind: Kind,
    /// Name of the node, zone or domain. `a->b` for a link or two zones; for a link in the
    /// direction of the loss, if that is known. `a|b` for a partition, with the smallest name
    /// of each group. `*` for `mesh` and `paths`. For a check `*->CHECK`, `NODE->CHECK` or
    /// `ZONE->CHECK`. At most 128 bytes: a longer name is cut, and ends in a hash.
    pub subject: String,
    /// Node names of each group of a partition, or of a domain as one group. At most 64 nodes per
    /// group are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "groups")]
    pub members: Vec<Vec<String>>,
    /// Number of nodes of each group of a partition.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "at_most::<_, GROUPS_MAX, _>")]
    pub sizes: Vec<u16>,
    /// How certain the verdict is.
    #[serde(default)]
    pub confidence: Confidence,
    /// How much the cause affects the users of the network.
    #[serde(default)]
    pub severity: Severity,
    /// Direction of the loss. For a link, `out` is from the first node to the second.
    pub direction: Direction,
    /// The network of the probes.
    pub network: Network,
    /// The address family of the probes. `None` if several are measured and the verdict is about
    /// none of them in particular.
    #[serde(default)]
    pub family: Option<Family>,
    /// The protocols of the probes, if it is about some of those that are measured and not about
    /// all.
    #[serde(default)]
    pub protocol: Option<Methods>,
    /// Why probes could not be sent. `None` if all were. It is no part of what the verdict is
    /// about: a kernel that refuses what its agent sends may as well drop what others send there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SendError>,
    /// What is said of the check, if the verdict is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckCause>,
    /// The numbers that it follows from.
    #[serde(default)]
    pub figures: Figures,
    /// Names that are not part of the subject, each part once.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "at_most::<_, MENTIONS_MAX, _>")]
    pub mentions: Vec<(Mention, String)>,
    /// One of several links or flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub example: Option<Example>,
    /// When it began, in Unix seconds; `None` if unknown.
    pub since_unix_seconds: Option<u64>,
    /// When it ended, in Unix seconds. `None` if it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_seconds: Option<u64>,
    /// How many judges have it. `None` in the judgement of a single agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judges: Option<u8>,
    /// Whether it is over, and only one judge says that it was there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unconfirmed: bool,
    /// Since when nearly all its links have lost nothing, in Unix seconds. `None` if unknown, or if
    /// they lose now.
    #[serde(skip)]
    pub calm_since_unix_seconds: Option<u64>,
    /// Sort key of verdicts of one kind, the larger first.
    #[serde(skip)]
    pub weight: f64,
}

/// Reads the members of a verdict. Empty lists take more memory than text, so that they are bounded
/// as they are read.
fn groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    struct Group(#[serde(deserialize_with = "at_most::<_, MEMBERS_MAX, _>")] Vec<String>);

    let groups: Vec<Group> = at_most::<_, GROUPS_MAX, _>(deserializer)?;
    Ok(groups.into_iter().map(|Group(names)| names).collect())
}

impl Verdict {
    /// Makes a verdict over a subject, without figures.
    pub fn new(kind: Kind, subject: String, network: Network) -> Self {
        Self {
            id: String::new(),
            kind,
            subject,
            members: Vec::new(),
            sizes: Vec::new(),
            confidence: Confidence::Likely,
            severity: Severity::Warning,
            direction: Direction::Both,
            network,
            family: None,
            protocol: None,
            reason: None,
            check: None,
            figures: Figures::default(),
            mentions: Vec::new(),
            example: None,
            since_unix_seconds: None,
            ended_unix_seconds: None,
            judges: None,
            unconfirmed: false,
            calm_since_unix_seconds: None,
            weight: 0.0,
        }
    }

    /// Whether it has not ended.
    pub const fn holds(&self) -> bool {
        self.ended_unix_seconds.is_none()
    }

    /// Whether packets are lost, or not sent at all. False if links are slow or an agent is late.
    pub fn is_loss(&self) -> bool {
        self.kind.is_network_fault() && !self.figures.has(Figure::RttSeconds)
    }

    /// Whether it is over what could not be sent, and over no loss.
    pub fn is_unsent(&self) -> bool {
        self.reason.is_some() && self.loss_ratio().is_none()
    }

    /// Whether something is slow, and nothing is lost or fails.
    pub fn is_slow(&self) -> bool {
        match self.kind {
            Kind::Check => !self.figures.has(Figure::FailedAttempts),
            kind => kind.is_network_fault() && self.figures.has(Figure::RttSeconds),
        }
    }

    /// Returns the severity of a verdict that `before` it had another one. That of a check follows
    /// from its rate, and is that of the alert, so it only rises while the check fails.
    pub fn severity_after(&self, before: &Self) -> Severity {
        let fail = self.kind == Kind::Check && !self.is_slow() && !before.is_slow();
        if fail { self.severity.max(before.severity) } else { self.severity }
    }

    /// Returns whose attempts a verdict over a check is about, `*` for all nodes, and the name of
    /// the check. The names of nodes and zones have no `>`.
    pub fn checked(&self) -> Option<(&str, &str)> {
        self.subject.split_once("->").filter(|_| self.kind == Kind::Check)
    }

    /// Returns the two ends of its subject, if it has two. A check is no end: its subject is never
    /// turned.
    pub fn ends(&self) -> Option<(&str, &str)> {
        self.subject.split_once("->").filter(|_| self.kind.may_have_ends())
    }

    /// Returns the same verdict with the two ends of its subject in the order of their names. The
    /// evidence decides the order in which a judge finds them, and judges with other evidence turn
    /// it.
    #[must_use]
    pub fn in_order(self) -> Self {
        let is_against = self.ends().is_some_and(|(a, b)| b < a);
        if is_against { self.turned() } else { self }
    }

    fn turned(mut self) -> Self {
        if let Some((a, b)) = self.ends() {
            self.subject = format!("{b}->{a}");
            self.direction = self.direction.turned();
            self.figures.turn();
        }
        self
    }

    /// Returns the same verdict with its subject in the direction of the loss, as people read it,
    /// or from the end that alone reports it.
    #[must_use]
    pub fn in_direction(self) -> Self {
        let is_against = self.direction == Direction::In
            || self.direction == Direction::Both && self.figures.has(Figure::ReportedBySecond);
        if is_against { self.turned() } else { self }
    }

    /// Returns a name that it mentions.
    pub fn mentioned(&self, part: Mention) -> Option<&str> {
        self.mentions.iter().find(|(of, _)| *of == part).map(|(_, name)| name.as_str())
    }

    /// Adds a name, of which this many bytes are kept.
    #[must_use]
    pub fn mentioning(mut self, part: Mention, name: &str) -> Self {
        self.mentions.push((part, name[..name.floor_char_boundary(NAME_BYTES_MAX)].to_owned()));
        self
    }

    /// Returns what a share of the recent window, 0 to 1, is of the time after the cause began.
    pub fn after_begin(&self, share: f64) -> f64 {
        (share * self.figures.get(Figure::AfterBeginTimes).unwrap_or(1.0).max(1.0)).min(1.0)
    }

    /// Returns the share of packets that is lost since the cause began, or of a check's attempts
    /// that fail, 0 to 1. `None` if none are, or if it is not known.
    pub fn loss_ratio(&self) -> Option<f64> {
        let of = |parts: &[Figure], wholes: &[Figure]| {
            let sum =
                |figures: &[Figure]| figures.iter().map(|figure| self.figures.get(*figure).unwrap_or(0.0)).sum::<f64>();
            (sum(wholes) > 0.0).then(|| (sum(parts) / sum(wholes)).clamp(0.0, 1.0))
        };
        if self.kind == Kind::Check {
            return self.figures.ratio(Figure::FailedAttempts, Figure::Attempts).filter(|_| !self.is_slow());
        }
        if !self.is_loss() {
            return None;
        }
        self.figures
            .get(Figure::LossRatio)
            .or_else(|| of(&[Figure::Lost], &[Figure::Probes]))
            .or_else(|| of(&[Figure::InsideLost], &[Figure::InsideProbes]))
            .or_else(|| of(&[Figure::LostTo, Figure::LostBy], &[Figure::ProbesTo, Figure::ProbesBy]))
            .or_else(|| of(&[Figure::LostThere, Figure::LostBack], &[Figure::ProbesThere, Figure::ProbesBack]))
            .map(|share| self.after_begin(share))
    }
}
