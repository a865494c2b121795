//! The minutes in which an agent may trace what loses, so that the traces of a whole mesh have a
//! bound without any coordination.
//!
//! A fault in the middle of a network makes all agents see losses at once. Their traces would tell
//! the same, and be a load of their own on the routers. So an agent of a mesh of `n` may begin
//! traces only in one of `p` minutes, at most [`TRACES_PER_MINUTE`] in it:
//!
//! ```text
//! p = n × TRACES_PER_MINUTE / TRACES_PER_MESH_MINUTE, rounded up, from 1 to TRACE_WAIT_MINUTES_MAX
//! ```
//!
//! A hash of the node's name says in which one. So the agents are spread over the minutes, and all
//! together begin `n × TRACES_PER_MINUTE / p` traces a minute: up to 600 agents at most 120, and of
//! 5,000 agents 1,000. A link that begins to lose is traced within `p` minutes. Rejected: a chance
//! for each minute. It has the same rate, and no agent could be sure to have its turn.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::limits::{TRACE_WAIT_MINUTES_MAX, TRACES_PER_MESH_MINUTE, TRACES_PER_MINUTE};
use crate::units::Nanos;

const MINUTE: u64 = 60_000_000_000;

/// One minute of every `period`.
#[derive(Clone, Copy, Debug)]
pub struct Rota {
    /// In minutes, at least 1.
    period: u64,
    /// Number of the agent's minute in a period.
    place: u64,
}

impl Rota {
    /// Every minute.
    pub const ALWAYS: Self = Self { period: 1, place: 0 };

    /// Makes the rota of a node in a mesh with so many members, itself included.
    pub fn new(node: &str, members: u32) -> Self {
        let traces = u64::from(members) * TRACES_PER_MINUTE as u64;
        let period = traces.div_ceil(TRACES_PER_MESH_MINUTE).clamp(1, TRACE_WAIT_MINUTES_MAX);
        let mut hasher = DefaultHasher::new();
        node.hash(&mut hasher);
        Self { period, place: hasher.finish() % period }
    }

    /// Returns the first moment from `at` on in which a trace may begin.
    pub const fn next(self, at: Nanos) -> Nanos {
        let minute = at.0 / MINUTE;
        match (self.place + self.period - minute % self.period) % self.period {
            0 => at,
            wait => Nanos((minute + wait) * MINUTE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(number: u64) -> Nanos {
        Nanos(number * MINUTE + 7)
    }

    #[test]
    fn the_agents_of_a_mesh_are_spread_over_the_minutes_and_each_has_its_turn() {
        for (members, period) in [(1, 1), (60, 1), (61, 2), (300, 5), (600, 10), (1_000, 10), (5_000, 10)] {
            let rotas: Vec<Rota> = (0..members).map(|node| Rota::new(&format!("node-{node}"), members)).collect();
            for rota in &rotas {
                let turns = (90..90 + period).filter(|at| rota.next(minute(*at)) == minute(*at)).count();
                assert_eq!(turns, 1, "{members} members");
            }
            // With these names the fullest minute is at most a third above the mean.
            let mean = rotas.len() as f64 / period as f64;
            for at in 0..2 * period {
                let agents = rotas.iter().filter(|rota| rota.next(minute(at)) == minute(at)).count();
                assert!(agents as f64 <= 1.34 * mean + 1.0, "{agents} of {members} agents in minute {at}");
            }
        }
    }

    #[test]
    fn the_next_turn_is_the_begin_of_a_minute_of_the_node() {
        let rota = Rota { period: 10, place: 3 };
        for (at, next) in [(0, 3), (4, 13), (12, 13), (19, 23)] {
            assert_eq!(rota.next(minute(at)), Nanos(next * MINUTE), "at {at}");
        }
        assert_eq!(rota.next(minute(13)), minute(13));
        assert_eq!(Rota::ALWAYS.next(minute(5)), minute(5));
        assert_eq!(Rota::new("a", 0).period, 1, "the size of the mesh is not known");
    }
}
