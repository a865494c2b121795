//! Whether an agent judges the mesh, `/api/v1/judge`: 150 bytes that other agents ask for.

use serde::{Deserialize, Serialize};

/// The path of the answer.
pub const JUDGE_PATH: &str = "/api/v1/judge";
/// Bytes of the answer that are read.
pub const JUDGE_BYTES_MAX: usize = 512;
/// What a judge collects, how it judges, and how it names verdicts. Judges of different numbers
/// cannot confirm each other, so each number has three judges during a rollout.
pub const JUDGE_PROTOCOL: u32 = 10;
/// A judge whose last judgement is older, or that has not judged for as long since it began, is
/// not counted. A collection takes at most 20 s, and may wait as long for another.
const AGE_SECONDS_MAX: f64 = 60.0;

/// A time that no agent has judged for, in seconds: 300 years.
const SINCE_SECONDS_MAX: f64 = 1e10;

/// The answer of an agent. Times are ages, so a wrong clock shifts nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgeAnswer {
    /// Its [`JUDGE_PROTOCOL`].
    pub protocol: u32,
    /// Whether the agent judges.
    pub judges: bool,
    /// How long it has judged, in seconds; 0 if it does not.
    pub since_seconds: f64,
    /// How often it has judged since.
    pub rounds: u32,
    /// The age of its last judgement in seconds. Before the first one, the time since it began.
    pub age_seconds: f64,
}

impl JudgeAnswer {
    /// The answer of an agent that does not judge.
    pub const NO: Self =
        Self { protocol: JUDGE_PROTOCOL, judges: false, since_seconds: 0.0, rounds: 0, age_seconds: 0.0 };

    /// Reads an answer that comes from another pod. None if it is not one.
    pub fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// Whether the agent counts as a judge: it judges by our protocol, and not too long ago.
    pub fn counts(&self) -> bool {
        self.judges
            && self.protocol == JUDGE_PROTOCOL
            && (0.0..=AGE_SECONDS_MAX).contains(&self.age_seconds)
            && (0.0..=SINCE_SECONDS_MAX).contains(&self.since_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_judge_of_our_protocol_counts_that_has_just_judged() {
        let judge = JudgeAnswer { judges: true, since_seconds: 40.0, rounds: 2, age_seconds: 9.0, ..JudgeAnswer::NO };
        let text = serde_json::to_vec(&judge).expect("JSON");
        assert!(text.len() < JUDGE_BYTES_MAX / 2 && JudgeAnswer::read(&text) == Some(judge) && judge.counts());
        let others = [
            JudgeAnswer::NO,
            JudgeAnswer { protocol: JUDGE_PROTOCOL + 1, ..judge },
            JudgeAnswer { age_seconds: 61.0, ..judge },
            JudgeAnswer { age_seconds: -1.0, ..judge },
            JudgeAnswer { age_seconds: f64::NAN, ..judge },
            JudgeAnswer { since_seconds: -1.0, ..judge },
            JudgeAnswer { since_seconds: f64::INFINITY, ..judge },
        ];
        assert!(!others.iter().any(JudgeAnswer::counts));
        assert_eq!([&b"{}"[..], b"no\n", b"", b"[]", &[0xff]].map(JudgeAnswer::read), [None; 5]);
    }
}
