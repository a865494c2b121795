//! The letters that wait for one receiver, and when the next attempt is due. No I/O, no clock.

use std::collections::VecDeque;
use std::time::Duration;

use super::messages::Letter;
use crate::discovery::kubernetes::Backoff;

/// Letters that wait. The oldest is lost for one more.
const LETTERS_MAX: usize = 64;
/// Ceilings of the wait after failures.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(2));

/// How an attempt has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The receiver has taken the letter.
    Taken,
    /// It refuses this letter, and will do so again.
    Refused(String),
    /// It may take the letter later, after this time if it says one.
    Failed(String, Duration),
}

/// The letters for one receiver, in order.
#[derive(Debug)]
pub struct Outbox {
    letters: VecDeque<Letter>,
    backoff: Backoff,
    at: Duration,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { letters: VecDeque::new(), backoff: Backoff::new(BACKOFF.0, BACKOFF.1), at: Duration::ZERO }
    }
}

impl Outbox {
    /// Adds a letter, in place of the same one that waits already: a receiver goes by what it gets
    /// last. Returns one that is lost for it. What repeats is not added while others wait.
    pub fn push(&mut self, letter: Letter) -> Option<Letter> {
        if letter.is_repetition && !self.letters.is_empty() {
            return None;
        }
        self.letters.retain(|other| other.id != letter.id);
        self.letters.push_back(letter);
        if self.letters.len() > LETTERS_MAX { self.letters.pop_front() } else { None }
    }

    /// Returns the next letter, and when it is due.
    pub fn next(&self) -> Option<(&Letter, Duration)> {
        self.letters.front().map(|letter| (letter, self.at))
    }

    /// Takes how the attempt to send the next letter has ended. Returns the letter if it is done
    /// with.
    pub fn ended(&mut self, sent: &Sent, now: Duration, random: f64) -> Option<Letter> {
        match sent {
            Sent::Taken | Sent::Refused(_) => {
                self.backoff.reset();
                self.at = now;
                self.letters.pop_front()
            }
            Sent::Failed(_, after) => {
                self.at = now + self.backoff.next(random).max(*after);
                None
            }
        }
    }
}

/// Returns what a status means.
pub fn from_status(status: u16, retry_after: Option<Duration>) -> Sent {
    let reason = format!("status {status}");
    match status {
        200..300 => Sent::Taken,
        // A wrong address or key may be corrected, and a receiver that is busy may recover.
        401 | 403 | 404 | 408 | 429 | 500.. => Sent::Failed(reason, retry_after.unwrap_or_default().min(BACKOFF.1)),
        _ => Sent::Refused(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(id: usize, is_repetition: bool) -> Letter {
        Letter { id: id.to_string(), ends: None, is_repetition, path: "", body: ().into() }
    }

    #[test]
    fn a_failed_letter_stays_first_and_waits_longer_each_time() {
        let mut outbox = Outbox::default();
        assert!(outbox.push(letter(1, false)).is_none() && outbox.push(letter(2, false)).is_none());
        let failed = Sent::Failed(String::new(), Duration::ZERO);
        let waits = [0; 9].map(|_| {
            assert!(outbox.ended(&failed, Duration::ZERO, 1.0).is_none());
            let (first, at) = outbox.next().unwrap();
            assert_eq!(first.id, "1");
            at.as_secs()
        });
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 120, 120, 120]);
        assert_eq!(outbox.ended(&Sent::Taken, Duration::from_secs(9), 1.0).unwrap().id, "1");
        assert_eq!(outbox.next().map(|(next, at)| (next.id.as_str(), at.as_secs())), Some(("2", 9)));
    }

    #[test]
    fn the_oldest_letter_is_lost_and_repetitions_never_push_one_out() {
        let mut outbox = Outbox::default();
        assert!((0..LETTERS_MAX).all(|id| outbox.push(letter(id, false)).is_none()));
        assert!(outbox.push(letter(7, false)).is_none(), "it waits already");
        assert_eq!(outbox.letters.back().unwrap().id, "7", "what is told last counts");
        assert!(outbox.push(letter(1_000, true)).is_none());
        assert_eq!(outbox.push(letter(1_001, false)).unwrap().id, "0");
        assert_eq!(outbox.letters.len(), LETTERS_MAX);
    }

    #[test]
    fn a_refusal_of_one_letter_does_not_hold_up_the_others() {
        assert!(matches!(from_status(400, None), Sent::Refused(_)));
        assert_eq!(from_status(202, None), Sent::Taken);
        let hour = Some(Duration::from_hours(1));
        assert_eq!(from_status(429, hour), Sent::Failed("status 429".into(), BACKOFF.1));
    }
}
