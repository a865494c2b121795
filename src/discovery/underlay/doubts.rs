//! Questions about node addresses, which no source knows. They are asked about the pods instead,
//! and share the pods' answers.

use std::collections::VecDeque;
use std::net::IpAddr;

/// Questions that wait for the answer on their pods. A new question replaces the oldest. This is
/// two families of the peers that are probed by default, and some more.
const DOUBTS_MAX: usize = 64;

/// Pairs of a pod's address that was asked about and the node's address that waits for the answer.
#[derive(Debug, Default)]
pub struct NodeDoubts(VecDeque<(IpAddr, IpAddr)>);

impl NodeDoubts {
    /// Records that the question about `node` was asked as one about `pod`. If there are too many,
    /// the oldest is dropped; the doubt of the probe loop ends by its own timeout.
    pub fn add(&mut self, pod: IpAddr, node: IpAddr) {
        self.0.retain(|(_, waiting)| *waiting != node);
        if self.0.len() == DOUBTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((pod, node));
    }

    /// Removes and returns a node's address that waits for the answer on `pod`. Call it
    /// until it returns None.
    pub fn answered(&mut self, pod: IpAddr) -> Option<IpAddr> {
        let at = self.0.iter().position(|(asked, _)| *asked == pod)?;
        self.0.remove(at).map(|(_, node)| node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn an_answer_on_a_pod_answers_for_its_node_once() {
        let mut doubts = NodeDoubts::default();
        doubts.add(ip(1), ip(101));
        doubts.add(ip(2), ip(102));
        doubts.add(ip(1), ip(101));
        assert_eq!(doubts.answered(ip(3)), None);
        assert_eq!((doubts.answered(ip(1)), doubts.answered(ip(1))), (Some(ip(101)), None));
        assert_eq!(doubts.answered(ip(2)), Some(ip(102)));
    }

    #[test]
    fn a_node_of_two_pods_waits_for_the_pod_that_was_asked_about_last() {
        let mut doubts = NodeDoubts::default();
        doubts.add(ip(1), ip(101));
        doubts.add(ip(2), ip(101));
        assert_eq!((doubts.answered(ip(1)), doubts.answered(ip(2))), (None, Some(ip(101))));
    }

    #[test]
    fn a_question_beyond_the_bound_replaces_the_oldest() {
        let mut doubts = NodeDoubts::default();
        for n in 0..=DOUBTS_MAX {
            let last = u8::try_from(n).unwrap();
            doubts.add(ip(last), [10, 1, 0, last].into());
        }
        assert_eq!((doubts.0.len(), doubts.answered(ip(0))), (DOUBTS_MAX, None));
        assert!(doubts.answered(ip(1)).is_some());
    }
}
