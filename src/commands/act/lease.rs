//! Which of several processes acts: the one that holds a Lease of the API. No I/O, no clock.
//!
//! As with client-go, no process trusts another's clock: a Lease is over if it has not changed for
//! its duration by the own monotonic clock. The version of the object decides between two that
//! take it at once.

use std::time::Duration;

use serde::Deserialize;

/// How long a Lease lasts that is not renewed.
pub const DURATION: Duration = Duration::from_secs(30);
/// A holder that could not renew for this long stops, before another may begin.
pub const TRUST: Duration = Duration::from_secs(20);
/// The annotation of the Lease with what the process remembers.
pub const MEMORY: &str = "kube-canary/act";

/// A Lease, as it was read.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LeaseObject {
    metadata: LeaseMetadata,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseMetadata {
    resource_version: String,
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u32>,
    lease_transitions: Option<u32>,
}

/// What to do with the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// There is none: create it.
    Create,
    /// Write it, over this version. The second is the number of changes of its holder.
    Write(String, u32),
    /// Another process holds it.
    Wait,
}

/// What one process knows of the Lease.
#[derive(Debug)]
pub struct Election {
    holder: String,
    /// The last version, and when it was first seen.
    seen: Option<(String, Duration)>,
    renewed: Option<Duration>,
    /// Whether it takes the Lease from any holder.
    is_taking: bool,
}

impl LeaseObject {
    /// Returns what the last holder remembers.
    pub fn memory(&self) -> Option<&str> {
        self.metadata.annotations.get(MEMORY).map(String::as_str)
    }
}

impl Election {
    /// Makes a process that does not hold the Lease.
    pub const fn new(holder: String) -> Self {
        Self { holder, seen: None, renewed: None, is_taking: false }
    }

    /// Makes a process that takes the Lease from any holder.
    pub fn taking(holder: String) -> Self {
        Self { is_taking: true, ..Self::new(holder) }
    }

    /// Returns the name of the process.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Whether the process may act now.
    pub fn leads(&self, now: Duration) -> bool {
        self.renewed.is_some_and(|at| now.saturating_sub(at) < TRUST)
    }

    /// Says what to do with the Lease as it is now.
    pub fn step(&mut self, found: Option<&LeaseObject>, now: Duration) -> LeaseStep {
        let Some(LeaseObject { metadata, spec }) = found else { return LeaseStep::Create };
        let version = &metadata.resource_version;
        let since = match &self.seen {
            Some((seen, at)) if seen == version => *at,
            _ => now,
        };
        self.seen = Some((version.clone(), since));
        let holder = spec.holder_identity.as_deref().unwrap_or("");
        let lasts = spec.lease_duration_seconds.map_or(DURATION, |seconds| Duration::from_secs(seconds.into()));
        let changes = spec.lease_transitions.unwrap_or(0);
        if holder == self.holder {
            return LeaseStep::Write(version.clone(), changes);
        }
        self.renewed = None;
        if self.is_taking || holder.is_empty() || now.saturating_sub(since) >= lasts {
            return LeaseStep::Write(version.clone(), changes.saturating_add(1));
        }
        LeaseStep::Wait
    }

    /// Takes whether the API server has accepted what was written at `now`.
    pub const fn written(&mut self, is_accepted: bool, now: Duration) {
        self.renewed = if is_accepted { Some(now) } else { None };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn lease(holder: &str, version: &str) -> LeaseObject {
        let text = format!(
            r#"{{"metadata":{{"resourceVersion":"{version}"}},"spec":{{"holderIdentity":"{holder}","leaseDurationSeconds":30,"leaseTransitions":4}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_lease_is_taken_once_it_has_not_changed_for_its_duration() {
        let mut election = Election::new("b".into());
        assert_eq!(election.step(None, S(0)), LeaseStep::Create);
        assert_eq!(election.step(Some(&lease("a", "1")), S(1)), LeaseStep::Wait);
        assert_eq!(election.step(Some(&lease("a", "2")), S(29)), LeaseStep::Wait);
        assert_eq!(election.step(Some(&lease("a", "2")), S(58)), LeaseStep::Wait);
        assert_eq!(election.step(Some(&lease("a", "2")), S(59)), LeaseStep::Write("2".into(), 5));
        assert_eq!(election.step(Some(&lease("", "3")), S(60)), LeaseStep::Write("3".into(), 5), "it was given back");
    }

    #[test]
    fn a_holder_that_cannot_renew_stops_before_another_begins() {
        let mut election = Election::new("a".into());
        assert!(!election.leads(S(0)));
        election.written(true, S(0));
        assert!(election.leads(S(19)) && !election.leads(S(20)));
        assert_eq!(election.step(Some(&lease("a", "1")), S(25)), LeaseStep::Write("1".into(), 4));
        election.written(true, S(25));
        assert_eq!(election.step(Some(&lease("b", "2")), S(26)), LeaseStep::Wait);
        assert!(!election.leads(S(26)), "another has taken it");
        const { assert!(TRUST.as_secs() < DURATION.as_secs()) };
    }
}
