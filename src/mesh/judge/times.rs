//! The times of judges.

use std::time::Duration;

/// The times of an agent that may judge. An agent uses the defaults. A test sets shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct JudgeTimes {
    /// How long fewer than three better-ranked members must have answered as judges before an
    /// agent begins. A judge that is only slow answers within it, and a restarted one is back.
    pub lacking: Duration,
    /// How much longer it waits for each better-ranked member.
    pub step: Duration,
    /// Time between two checks. It is not longer than `step`: then a member sees that the one
    /// before it has begun.
    pub check: Duration,
    /// The same for ranks 9 to 16 while there are three judges.
    pub rare_check: Duration,
    /// How long a member may take to answer whether it judges. It answers from memory.
    pub answer: Duration,
    /// Time between two judgements.
    pub round: Duration,
    /// Least time between two copies that members make of what the judges hold. So the past
    /// survives the end of all judges.
    pub copy: Duration,
    /// How long what the judges say is reused for readers.
    pub reuse: Duration,
}

const AGENT: JudgeTimes = JudgeTimes {
    lacking: Duration::from_secs(20),
    step: Duration::from_secs(2),
    check: Duration::from_secs(2),
    rare_check: Duration::from_mins(1),
    answer: Duration::from_secs(1),
    round: Duration::from_secs(15),
    copy: Duration::from_secs(15),
    reuse: Duration::from_secs(5),
};

const _: () = assert!(AGENT.check.as_nanos() <= AGENT.step.as_nanos());

impl Default for JudgeTimes {
    fn default() -> Self {
        AGENT
    }
}
