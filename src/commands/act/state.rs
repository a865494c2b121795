//! What one process knows, and what of it the Lease remembers. No I/O, no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::agreement::Agreement;
use super::conditions::{ConditionReason, Conditions};
use super::notices::{KeptNotices, Notice, Notices};
use crate::config::NodeConditions;

/// What is reported, and what nodes have.
#[derive(Debug)]
pub struct ActState {
    /// Which verdicts hold, with their Events and messages.
    pub notices: Notices,
    /// Which nodes have the condition.
    pub conditions: Conditions,
}

/// The memory in the Lease. What cannot be read is forgotten: nodes are read again, and open
/// verdicts are reported again under their ids.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Memory {
    notices: KeptNotices,
    conditions: BTreeMap<String, ConditionReason>,
}

impl ActState {
    /// Makes what a process knows that has just taken the Lease.
    pub fn restored(memory: &str, rules: Option<NodeConditions>) -> Self {
        let Memory { notices, conditions } = serde_json::from_str(memory).unwrap_or_default();
        Self { notices: Notices::new(notices), conditions: Conditions::new(rules, conditions) }
    }

    /// Returns the nodes that a memory claims.
    pub fn claimed_in(memory: &str) -> impl Iterator<Item = String> {
        let Memory { conditions, .. } = serde_json::from_str(memory).unwrap_or_default();
        conditions.into_keys()
    }

    /// Returns a memory that claims no node. Messages that are still to be sent stay in it.
    pub fn without_conditions(memory: &str) -> String {
        let memory: Memory = serde_json::from_str(memory).unwrap_or_default();
        serde_json::to_string(&Memory { conditions: BTreeMap::new(), ..memory }).unwrap_or_default()
    }

    /// Returns the memory as text for the Lease.
    pub fn memory(&self) -> String {
        let memory = Memory { notices: self.notices.kept(), conditions: self.conditions.claimed() };
        // Serializing these types cannot fail.
        serde_json::to_string(&memory).unwrap_or_default()
    }

    /// Takes what agents agree on.
    pub fn hear(&mut self, agreed: &Agreement, elapsed: Duration, now_unix_seconds: u64) {
        self.notices.hear(agreed, elapsed, now_unix_seconds);
        self.conditions.hear(self.notices.holding(), agreed.nodes, elapsed);
    }

    /// Takes a round in which judges were silent.
    pub fn hear_nothing(&mut self, elapsed: Duration) {
        self.notices.hear_nothing(elapsed);
        self.conditions.hear_nothing(elapsed);
    }

    /// Returns the messages that are due.
    pub fn messages(&mut self, now: Duration) -> Vec<Notice> {
        let conditions = &self.conditions;
        self.notices.messages(|node| conditions.is_planned(node), now)
    }
}
