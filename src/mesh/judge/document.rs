//! What a judge tells other agents, `/api/v1/judge/verdicts`: the verdicts that it holds, and those
//! of the last 24 hours.
//!
//! It comes from another pod and is not trusted. Its bytes and lists are bounded before they take
//! memory, and every text and number has a bound of its own: a document with one beyond it counts
//! as none. A verdict must have the id that its subject gives it, so that a false text cannot count
//! under the id of a true verdict. Times are given together with the judge's clock, so a wrong
//! clock shifts nothing.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::table::VerdictTable;
use crate::limits::{
    JUDGE_DOCUMENT_BYTES_MAX, JUDGE_PAST_MAX, JUDGE_VERDICTS_MAX, MESH_REPORTS_MAX, MESH_VERDICTS_MAX, NAME_BYTES_MAX,
};
use crate::mesh::verdicts::{
    self, Headline, Judgement, MeshState, Overall, RankedVerdicts, UnsentEntry, UnsentProbes, Verdict, wording,
};
use crate::report::{JUDGE_PROTOCOL, JudgeAnswer, Missing, at_most};

/// The path at which a judge serves its document.
pub const PATH: &str = "/api/v1/judge/verdicts";
/// The path at which an agent serves the same that it has copied from judges.
pub const KEPT_PATH: &str = "/api/v1/judge/kept";
/// Bytes of the subject of a verdict.
const SUBJECT_BYTES_MAX: usize = 128;
/// Largest number of nodes of a count. A mesh has fewer.
const COUNT_MAX: usize = 1 << 24;

/// What a judgement says beside its verdicts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Overview {
    /// Nodes whose report is missing or incomplete.
    #[serde(deserialize_with = "at_most::<_, MESH_REPORTS_MAX, _>")]
    pub missing: Vec<Missing>,
    /// Number of further ones.
    pub missing_not_listed: usize,
    /// Number of further nodes, which were not asked.
    pub not_gathered: usize,
    /// What the headline follows from, beside the verdicts.
    pub overall: Overall,
    /// Probes that could not be sent.
    #[serde(flatten)]
    pub unsent: UnsentProbes,
    /// Nodes whose agents are starved.
    #[serde(deserialize_with = "at_most::<_, MESH_REPORTS_MAX, _>")]
    pub starved: Vec<String>,
    /// The first nodes that are being removed.
    #[serde(deserialize_with = "at_most::<_, MESH_REPORTS_MAX, _>")]
    pub leaving: Vec<String>,
    /// Number of further nodes that are being removed.
    pub leaving_not_listed: usize,
}

impl Overview {
    /// Returns the overview of a judgement, and its verdicts.
    pub fn from_judgement(
        judgement: Judgement<'_>,
        (missing, missing_not_listed): (Vec<Missing>, usize),
        not_gathered: usize,
    ) -> (Self, RankedVerdicts) {
        let Judgement { found, unsent, overall, starved, leaving, leaving_not_listed } = judgement;
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let (starved, leaving) = (owned(starved), owned(leaving));
        let overview =
            Self { missing, missing_not_listed, not_gathered, overall, unsent, starved, leaving, leaving_not_listed };
        (overview, found)
    }
}

/// The document of a judge, without the answer whether it judges, which is as old as the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Held {
    /// The judge's clock when it wrote the document, in Unix seconds. Once it is read, the reader's
    /// clock.
    pub now_unix_seconds: u64,
    /// Number of nodes that were judged.
    pub nodes: usize,
    /// Since when all that happened is known.
    pub remembered_since_unix_seconds: u64,
    /// Until when it is.
    pub remembered_until_unix_seconds: u64,
    /// What the last judgement says beside its verdicts.
    pub overview: Overview,
    /// The verdicts that hold, the gravest first, and then those that have ended.
    #[serde(deserialize_with = "at_most::<_, JUDGE_VERDICTS_MAX, _>")]
    pub verdicts: Vec<Verdict>,
}

#[derive(Deserialize)]
struct JudgeDocument {
    judge: JudgeAnswer,
    #[serde(flatten)]
    held: Held,
}

/// What one judge says, by this agent's clock.
#[derive(Clone, Debug)]
pub struct JudgeStatement {
    /// The name that discovery gives the judge.
    pub node: Box<str>,
    /// Whether and how long it judges.
    pub judge: JudgeAnswer,
    /// The verdicts that it holds, and its past.
    pub held: Held,
}

impl Held {
    /// Returns what a table holds, with a number of nodes and what is said beside the verdicts.
    pub fn from_table(table: &VerdictTable, (nodes, overview): (usize, Overview), now_unix_seconds: u64) -> Self {
        let (remembered_since_unix_seconds, remembered_until_unix_seconds) = table.remembered(now_unix_seconds);
        Self {
            now_unix_seconds,
            nodes,
            remembered_since_unix_seconds,
            remembered_until_unix_seconds,
            overview,
            verdicts: table.verdicts(),
        }
    }

    /// Whether the judge sees the mesh: it has asked all nodes, and has the reports of more than
    /// half of them. What it does not find may be there if not.
    pub fn sees_mesh(&self) -> bool {
        let Overview { missing, missing_not_listed, not_gathered, overall, .. } = &self.overview;
        let missing = missing.len().saturating_add(*missing_not_listed).saturating_add(overall.other_version);
        *not_gathered == 0 && missing.saturating_mul(2) < self.nodes.max(1)
    }

    /// Returns the part of the document that follows [`head`]. If it would be too long, the members
    /// of groups are left out, then the rest from its end on.
    pub fn text(mut self) -> Arc<[u8]> {
        let room = JUDGE_DOCUMENT_BYTES_MAX - 512;
        let mut text = json(&self);
        if text.len() > room {
            self.verdicts.iter_mut().for_each(|verdict| verdict.members = Vec::new());
            text = json(&self);
        }
        while text.len() > room {
            let Overview { missing, missing_not_listed, starved, leaving, .. } = &mut self.overview;
            *missing_not_listed += missing.split_off(missing.len() / 2).len();
            starved.truncate(starved.len() / 2);
            leaving.truncate(leaving.len() / 2);
            self.verdicts.truncate(self.verdicts.len() / 2);
            text = json(&self);
        }
        text_of_fields(&text)
    }
}

/// Returns the beginning of a document: the answer whether the agent judges. The text of
/// [`Held::text`] follows.
pub fn head(judge: &JudgeAnswer) -> Vec<u8> {
    format!("{{\"judge\":{},", json(judge)).into_bytes()
}

/// Returns the fields of a value as they follow others in an object.
pub fn fields(value: &impl Serialize) -> Arc<[u8]> {
    text_of_fields(&json(value))
}

/// Returns the text of an object without its brace, in a line.
fn text_of_fields(object: &str) -> Arc<[u8]> {
    [object.get(1..).unwrap_or("}").as_bytes(), b"\n"].concat().into()
}

/// Returns what `/api/v1/verdicts` says of a mesh beside its judges, as fields that follow others
/// in an object: its state in one line, what is said beside the verdicts, and those that hold, the
/// gravest first. It is worded here: no text of a judge reaches a reader.
pub fn now(
    Headline { text, state }: &Headline,
    overview: &Overview,
    verdicts: &[Verdict],
    remembered_since_unix_seconds: Option<u64>,
) -> Arc<[u8]> {
    #[derive(Serialize)]
    struct Now<'a> {
        headline: &'a str,
        state: MeshState,
        #[serde(skip_serializing_if = "Option::is_none")]
        remembered_since_unix_seconds: Option<u64>,
        #[serde(flatten)]
        overview: &'a Overview,
        #[serde(serialize_with = "wording::worded")]
        verdicts: &'a [Verdict],
    }
    fields(&Now { headline: text, state: *state, remembered_since_unix_seconds, overview, verdicts })
}

/// Returns the fields of these verdicts as they follow others in an object.
pub fn history(verdicts: &[Verdict], remembered_since_unix_seconds: Option<u64>) -> Arc<[u8]> {
    #[derive(Serialize)]
    struct Past<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        remembered_since_unix_seconds: Option<u64>,
        #[serde(serialize_with = "wording::worded")]
        verdicts: &'a [Verdict],
    }
    fields(&Past { remembered_since_unix_seconds, verdicts })
}

/// Reads the document of the agent on `node`. None if it does not judge, or if the document is not
/// one. `now_unix_seconds` is this agent's clock.
pub fn read(node: &str, body: &[u8], now_unix_seconds: u64) -> Option<JudgeStatement> {
    by_own_clock(node, body, now_unix_seconds).filter(|said| said.judge.counts())
}

/// Does the same with a document of [`KEPT_PATH`], which needs no judge.
pub fn read_kept(node: &str, body: &[u8], now_unix_seconds: u64) -> Option<JudgeStatement> {
    by_own_clock(node, body, now_unix_seconds).filter(|said| said.judge.protocol == JUDGE_PROTOCOL)
}

fn by_own_clock(node: &str, body: &[u8], now_unix_seconds: u64) -> Option<JudgeStatement> {
    let JudgeDocument { judge, mut held } = serde_json::from_slice(body).ok()?;
    if !is_valid(&held) {
        return None;
    }
    // The age of the document counts as well: its clock was read when it was written.
    let age = whole_seconds(judge.age_seconds);
    let shift = i128::from(now_unix_seconds) - i128::from(held.now_unix_seconds) - i128::from(age);
    // Three rounded times are up to a second off. Clocks that agree give the same times everywhere.
    let shift = if shift.abs() > 1 { shift } else { 0 };
    // What is said to come has no end that one could wait for, so it is now.
    let shifted = |time: u64| {
        u64::try_from((i128::from(time) + shift).max(0)).map_or(now_unix_seconds, |time| time.min(now_unix_seconds))
    };
    for verdict in &mut held.verdicts {
        verdict.since_unix_seconds = verdict.since_unix_seconds.map(shifted);
        let ended = verdict.ended_unix_seconds.map(shifted);
        // Nothing ends before it begins.
        verdict.ended_unix_seconds = ended.map(|end| end.max(verdict.since_unix_seconds.unwrap_or(0)));
        verdict.judges = None;
    }
    held.remembered_since_unix_seconds = shifted(held.remembered_since_unix_seconds);
    held.remembered_until_unix_seconds = shifted(held.remembered_until_unix_seconds);
    held.now_unix_seconds = now_unix_seconds;
    Some(JudgeStatement { node: node.into(), judge, held })
}

/// Returns the whole seconds of an age; 0 if it is none.
pub fn whole_seconds(age: f64) -> u64 {
    Duration::try_from_secs_f64(age).unwrap_or_default().as_secs()
}

/// Whether a document is one that a judge of this version may write.
fn is_valid(held: &Held) -> bool {
    let Held { nodes, overview, verdicts, .. } = held;
    let Overview {
        missing,
        missing_not_listed,
        not_gathered,
        overall,
        starved,
        leaving,
        leaving_not_listed,
        unsent: UnsentProbes { unsent, unsent_not_listed },
    } = overview;
    let Overall { unknown, other_version, .. } = overall;
    let lists = [*missing_not_listed, *leaving_not_listed, *unsent_not_listed];
    let counts = [*nodes, *not_gathered, *unknown, *other_version].into_iter().chain(lists);
    counts.max().is_none_or(|most| most <= COUNT_MAX)
        && overall.is_bounded()
        && missing.iter().all(|missing| is_name(&missing.node) && missing.error.len() <= Missing::ERROR_BYTES_MAX)
        && starved.iter().chain(leaving).all(|name| is_name(name))
        && unsent.iter().all(UnsentEntry::is_bounded)
        && verdicts.iter().all(is_valid_verdict)
        && verdicts.iter().filter(|verdict| verdict.holds()).count() <= MESH_VERDICTS_MAX
        && verdicts.iter().filter(|verdict| !verdict.holds()).count() <= JUDGE_PAST_MAX
}

/// Whether a verdict is one that a judge of this version may write: it has the id that its subject
/// gives it, and its names are bounded.
pub fn is_valid_verdict(verdict: &Verdict) -> bool {
    let Verdict { subject, members, mentions, example, .. } = verdict;
    let of_example = example.iter().flat_map(|example| [&example.from, &example.to]);
    let names = members.iter().flatten().chain(mentions.iter().map(|(_, name)| name)).chain(of_example);
    verdict.id == verdicts::id(verdict) && subject.len() <= SUBJECT_BYTES_MAX && names.map(String::as_str).all(is_name)
}

const fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
}

/// Serializing these types cannot fail.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::mesh::verdicts::{UNSENT_MAX, UnexplainedLosses, WorstLink};
    use crate::report::{Method, Network};
    use crate::verdict::{Example, Mention};

    pub fn verdict(kind: &str, subject: &str) -> Verdict {
        let value = serde_json::json!({"kind": kind, "subject": subject, "direction": "both", "network": "pod",
            "confidence": "certain", "severity": "warning", "figures": {"probes": 100, "lost": 9},
            "since_unix_seconds": 1_000});
        let verdict: Verdict = serde_json::from_value(value).expect("a verdict");
        Verdict { id: verdicts::id(&verdict), ..verdict }
    }

    pub fn held(verdicts: Vec<Verdict>) -> Held {
        let overview = Overview::default();
        Held {
            now_unix_seconds: 2_000,
            nodes: 3,
            remembered_since_unix_seconds: 500,
            remembered_until_unix_seconds: 2_000,
            overview,
            verdicts,
        }
    }

    pub const JUDGE: JudgeAnswer =
        JudgeAnswer { judges: true, since_seconds: 900.0, rounds: 60, age_seconds: 10.0, ..JudgeAnswer::NO };

    fn whole(held: Held) -> Vec<u8> {
        [&*head(&JUDGE), &*held.text()].concat()
    }

    fn document_of(verdicts: Vec<Verdict>) -> Vec<u8> {
        whole(held(verdicts))
    }

    #[test]
    fn a_document_is_read_by_ones_own_clock() {
        let ended = Verdict { ended_unix_seconds: Some(1_500), judges: Some(3), ..verdict("link", "a->b") };
        let said = read("n", &document_of(vec![ended]), 7_010).expect("a document");
        // It was written at 2,000 of its clock, ten seconds before 7,010 of ours.
        let read = &said.held.verdicts[0];
        assert_eq!((read.since_unix_seconds, read.ended_unix_seconds), (Some(6_000), Some(6_500)));
        assert_eq!((&*said.node, said.held.nodes, said.judge.rounds, read.judges), ("n", 3, 60, None));
    }

    #[test]
    fn clocks_that_agree_within_a_second_shift_nothing() {
        // It was written ten seconds ago.
        for (now, since) in [(2_008, 998), (2_009, 1_000), (2_010, 1_000), (2_011, 1_000), (2_012, 1_002)] {
            let said = read("n", &document_of(vec![verdict("link", "a->b")]), now).expect("a document");
            assert_eq!(said.held.verdicts[0].since_unix_seconds, Some(since), "{now}");
        }
    }

    #[test]
    fn nothing_ends_in_the_future_or_before_it_begins() {
        let ended = Verdict { ended_unix_seconds: Some(u64::MAX), ..verdict("link", "a->b") };
        let said = read("n", &document_of(vec![ended]), 7_010).expect("a document");
        assert_eq!(said.held.verdicts[0].ended_unix_seconds, Some(7_010));
        let before = Verdict { ended_unix_seconds: Some(0), ..verdict("link", "a->b") };
        let read = read("n", &document_of(vec![before]), 2_010).expect("a document").held.verdicts.remove(0);
        assert_eq!((read.since_unix_seconds, read.ended_unix_seconds), (Some(1_000), Some(1_000)));
    }

    #[test]
    fn a_verdict_under_a_false_id_a_judge_that_does_not_judge_and_other_texts_are_refused() {
        let good = document_of(vec![verdict("link", "a->b")]);
        assert!(read("n", &good, 0).is_some());
        let false_id = Verdict { id: verdict("link", "a->c").id, ..verdict("link", "a->b") };
        assert!(read("n", &document_of(vec![false_id]), 0).is_none());
        let text = String::from_utf8(good).unwrap();
        for (from, to) in [("\"judges\":true", "\"judges\":false"), ("10.0", "99.0"), ("\"nodes\"", "\"n\""), ("]", "")]
        {
            let other = text.replacen(from, to, 1);
            assert!(other != text && read("n", other.as_bytes(), 0).is_none(), "{other}");
        }
        assert!(read("n", b"", 0).is_none());
    }

    #[test]
    fn lists_are_bounded_before_they_take_memory() {
        let ended = Verdict { ended_unix_seconds: Some(1_500), ..verdict("link", "a->b") };
        let verdicts = [vec![verdict("link", "a->b"); MESH_VERDICTS_MAX], vec![ended.clone(); JUDGE_PAST_MAX]].concat();
        assert!(read("n", &document_of(verdicts.clone()), 0).is_some());
        let with = |changed: &Verdict| {
            let mut verdicts = verdicts.clone();
            verdicts[MESH_VERDICTS_MAX] = changed.clone();
            verdicts
        };
        assert!(read("n", &document_of(with(&verdict("node", "a"))), 0).is_none(), "more than 64 that hold");
        let more = [verdicts.clone(), vec![ended.clone()]].concat();
        assert!(read("n", &document_of(more), 0).is_none());
        for list in ["missing", "starved", "leaving"] {
            let item = if list == "missing" { "{\"node\":\"\",\"error\":\"\"}" } else { "\"\"" };
            let with = |count: usize| {
                let items = vec![item; count].join(",");
                let text = String::from_utf8(document_of(Vec::new())).unwrap();
                text.replacen(&format!("\"{list}\":[]"), &format!("\"{list}\":[{items}]"), 1).into_bytes()
            };
            assert!(read("n", &with(MESH_REPORTS_MAX), 0).is_some(), "{list}");
            assert!(read("n", &with(MESH_REPORTS_MAX + 1), 0).is_none(), "{list}");
        }
    }

    #[test]
    fn each_text_and_number_of_a_document_has_a_bound() {
        let [name, error] = [NAME_BYTES_MAX, Missing::ERROR_BYTES_MAX].map(|bytes| [bytes, bytes + 1]);
        let verdict = |change: &dyn Fn(&mut Verdict)| {
            let mut verdict = verdict("partition", "a|b");
            change(&mut verdict);
            held(vec![verdict])
        };
        let overview = |change: &dyn Fn(&mut Overview)| {
            let mut held = held(Vec::new());
            change(&mut held.overview);
            held
        };
        let missing = |node: usize, error: usize| {
            overview(&|overview| overview.missing = vec![Missing { node: "n".repeat(node), error: "e".repeat(error) }])
        };
        let groups =
            |groups: usize, names: usize| verdict(&|verdict| verdict.members = vec![vec!["n".into(); names]; groups]);
        let worst = |change: &dyn Fn(&mut WorstLink)| {
            let mut link = WorstLink {
                source: "s".into(),
                peer: "p".into(),
                network: Network::Pod,
                method: Method::Icmp,
                loss_ratio: 1.0,
                since_unix_seconds: None,
            };
            change(&mut link);
            let losses = UnexplainedLosses { over_ten_minutes: false, losing: 1, links: 1, worst: Some(link) };
            overview(&|overview| overview.overall.losses = Some(losses.clone()))
        };
        let mentions = |count: usize| verdict(&|verdict| verdict.mentions = vec![(Mention::Error, "e".into()); count]);
        let of_two: [(&str, [Held; 2]); 17] = [
            ("worst source", name.map(|bytes| worst(&|link| link.source = "n".repeat(bytes)))),
            ("worst peer", name.map(|bytes| worst(&|link| link.peer = "n".repeat(bytes)))),
            ("worst ratio", [1.0, 1.5].map(|ratio| worst(&|link| link.loss_ratio = ratio))),
            (
                "unknown",
                name.map(|bytes| overview(&|overview| overview.overall.first_unknown = Some("n".repeat(bytes)))),
            ),
            (
                "mention",
                name.map(|bytes| verdict(&|verdict| verdict.mentions = vec![(Mention::By, "n".repeat(bytes))])),
            ),
            ("mentions", [mentions(4), mentions(5)]),
            (
                "example",
                name.map(|bytes| {
                    verdict(&|verdict| {
                        verdict.example = Some(Example { from: "n".repeat(bytes), ..Example::default() });
                    })
                }),
            ),
            ("sizes", [17, 18].map(|groups| verdict(&|verdict| verdict.sizes = vec![1; groups]))),
            ("missing node", name.map(|bytes| missing(bytes, 1))),
            ("missing error", error.map(|bytes| missing(1, bytes))),
            ("starved", name.map(|bytes| overview(&|overview| overview.starved = vec!["n".repeat(bytes)]))),
            ("leaving", name.map(|bytes| overview(&|overview| overview.leaving = vec!["n".repeat(bytes)]))),
            ("member", name.map(|bytes| verdict(&|verdict| verdict.members = vec![vec!["n".repeat(bytes)]]))),
            ("members", [groups(17, 64), groups(17, 65)]),
            ("groups", [groups(17, 0), groups(18, 0)]),
            (
                "not gathered",
                [COUNT_MAX, COUNT_MAX + 1].map(|count| overview(&|overview| overview.not_gathered = count)),
            ),
            ("nodes", [COUNT_MAX, COUNT_MAX + 1].map(|nodes| Held { nodes, ..held(Vec::new()) })),
        ];
        for (what, documents) in of_two {
            let is_read = documents.map(|held| {
                let text = [head(&JUDGE), fields(&held).to_vec()].concat();
                read("n", &text, 7_010).is_some()
            });
            assert_eq!(is_read, [true, false], "{what}");
        }
        for since in ["-1.0", "1e300"] {
            let text = String::from_utf8(document_of(Vec::new())).unwrap().replacen("900.0", since, 1);
            assert!(read("n", text.as_bytes(), 7_010).is_none(), "{since}");
        }
    }

    #[test]
    fn what_a_judge_writes_is_within_the_bounds() {
        let mut own = held(Vec::new());
        own.overview.missing = vec![Missing::new("n".into(), "é".repeat(5_000))];
        let said = read("n", &whole(own), 7_010).expect("a document");
        assert_eq!(said.held.overview.missing[0].error.len(), Missing::ERROR_BYTES_MAX);
    }

    #[test]
    fn what_could_not_be_sent_is_bounded() {
        let with = |count: usize, name: usize| {
            let entry = serde_json::json!({"node": "n".repeat(name), "network": "pod", "protocols": ["icmp"],
                "reason": "no_route", "peers": 1, "peers_probed": 1});
            let text = String::from_utf8(document_of(Vec::new())).unwrap();
            let entries = serde_json::to_string(&vec![entry; count]).unwrap();
            read("n", text.replacen("\"unsent\":[]", &format!("\"unsent\":{entries}"), 1).as_bytes(), 0)
        };
        let said = with(UNSENT_MAX, 253).expect("a document");
        assert_eq!(said.held.overview.unsent.unsent.len(), UNSENT_MAX);
        assert!(with(UNSENT_MAX + 1, 1).is_none() && with(1, 254).is_none());
        let older = String::from_utf8(document_of(Vec::new())).unwrap().replacen(
            "\"unsent\":[],\"unsent_not_listed\":0,",
            "",
            1,
        );
        assert_eq!(
            read("n", older.as_bytes(), 0).expect("of a judge of an earlier version").held.overview.unsent,
            UnsentProbes::default()
        );
    }

    #[test]
    fn the_longest_document_fits_and_keeps_the_gravest_verdicts() {
        let long = |n: usize| Verdict {
            members: vec![vec!["m".repeat(253); 64]; 2],
            mentions: vec![(Mention::Error, "e".repeat(253)); 4],
            ..verdict("domain", &format!("{n}{}", "d".repeat(124)))
        };
        let ended = |n| Verdict { ended_unix_seconds: Some(1_500), ..long(n) };
        let all = (0..MESH_VERDICTS_MAX).map(long).chain((MESH_VERDICTS_MAX..JUDGE_VERDICTS_MAX).map(ended));
        let mut longest = held(all.collect());
        longest.overview.missing = vec![Missing { node: "n".repeat(253), error: "e".repeat(200) }; MESH_REPORTS_MAX];
        let text = whole(longest);
        assert!(text.len() <= JUDGE_DOCUMENT_BYTES_MAX, "{}", text.len());
        let said = read("n", &text, 0).expect("a document");
        assert!(said.held.verdicts.len() > MESH_VERDICTS_MAX / 4 && said.held.verdicts[0].subject.starts_with('0'));
    }
}
