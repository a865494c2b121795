//! Waiting by polling: every wait names what it awaits and how long at most, and its failure quotes the last reason.

use std::time::{Duration, Instant};

/// Between two polls: short against the one-second probe interval, long against the cost of a scrape through the API server.
const PAUSE: Duration = Duration::from_millis(500);

/// How a reason begins that lies in the machine and not in what is awaited: its time does not count.
pub const STARVED: &str = "an agent is starved";
/// For so many limits at most.
const STARVED_LIMITS: u32 = 4;

/// Polls until `poll` succeeds, and returns what it found.
///
/// # Panics
/// After `limit`, with what was awaited and the last reason.
pub fn until<T>(what: &str, limit: Duration, mut poll: impl FnMut() -> Result<T, String>) -> T {
    let (start, mut starved) = (Instant::now(), Duration::ZERO);
    loop {
        let asked = Instant::now();
        match poll() {
            Ok(found) => {
                eprintln!("  {:>5.1} s  {what}", start.elapsed().as_secs_f64());
                return found;
            }
            Err(reason) if reason.starts_with(STARVED) && starved < limit * STARVED_LIMITS => {
                // Asking again and again would be part of the reason.
                std::thread::sleep(PAUSE * 10);
                starved += asked.elapsed();
            }
            Err(reason) if start.elapsed() > limit + starved => {
                panic!("awaited for {} s in vain: {what}\nlast seen: {reason}", limit.as_secs())
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
