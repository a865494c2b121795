//! What the agents that were asked in a round agree on. No I/O, no clock.
//!
//! Each agent passes on what the judges agree on. It may lie, so what counts is what two of three
//! agents say, by the same function as the judges use among themselves. An agent that found fewer
//! than two judges says nothing of the mesh.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use crate::commands::doctor::judges::{Judge, VERDICTS_MAX};
use crate::mesh::verdicts::Verdict;
use crate::mesh::{JUDGES, agreed, is_valid_verdict};
use crate::report::at_most;

/// Agents that are asked in a round.
pub const ASKED: usize = 3;
/// Agents that must agree.
const NEEDED: usize = 2;
/// A judgement of this age, in seconds, is none. The alerts take the same.
const AGE_SECONDS_MAX: f64 = 90.0;

/// The answer of an agent to `/api/v1/verdicts`.
#[derive(Clone, Debug, Deserialize)]
pub struct AgentSaid {
    #[serde(deserialize_with = "at_most::<_, JUDGES, _>")]
    judges: Vec<Judge>,
    nodes: usize,
    #[serde(deserialize_with = "at_most::<_, VERDICTS_MAX, _>")]
    verdicts: Vec<Verdict>,
}

/// What two agents say.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// The verdicts that two agents have, with the middle figures.
    pub verdicts: Vec<Verdict>,
    /// The ids of verdicts that one of only two agents has: whether they hold is not known.
    pub in_doubt: Vec<String>,
    /// The number of nodes that were judged: the middle one of what the agents say, the lower of
    /// two.
    pub nodes: usize,
}

impl AgentSaid {
    /// Reads an answer. `None` if it is not one, or if it has a verdict that no agent writes, or
    /// one twice: an agent has one voice.
    pub fn read(body: &[u8]) -> Option<Self> {
        let mut said: Self = serde_json::from_slice(body).ok()?;
        said.verdicts.retain(Verdict::holds);
        let mut ids = HashSet::new();
        let is_good = said.verdicts.iter().all(|verdict| is_valid_verdict(verdict) && ids.insert(&verdict.id));
        is_good.then_some(said)
    }

    fn has_judges(&self) -> bool {
        self.judges.iter().filter(|judge| judge.age_seconds < AGE_SECONDS_MAX).count() >= NEEDED
    }
}

/// Returns what two of these agents say. `None` if fewer than two know of two judges.
pub fn agreement(mut said: Vec<AgentSaid>) -> Option<Agreement> {
    said.retain(AgentSaid::has_judges);
    if said.len() < NEEDED {
        return None;
    }
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for verdict in said.iter().flat_map(|one| &one.verdicts) {
        *counts.entry(&verdict.id).or_default() += 1;
    }
    let is_doubtful = |(_, count): &(&str, usize)| said.len() == NEEDED && *count == 1;
    let in_doubt = counts.into_iter().filter(is_doubtful).map(|(id, _)| id.to_owned()).collect();
    let mut nodes: Vec<usize> = said.iter().map(|one| one.nodes).collect();
    nodes.sort_unstable();
    let lists: Vec<&[Verdict]> = said.iter().map(|one| one.verdicts.as_slice()).collect();
    Some(Agreement { verdicts: agreed(&lists), in_doubt, nodes: nodes[(nodes.len() - 1) / 2] })
}
