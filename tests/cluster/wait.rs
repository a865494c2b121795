//! Waiting by polling: every wait names what it awaits and how long at most, and its failure quotes the last reason.

use std::time::{Duration, Instant};

/// Between two polls: short against the one-second probe interval, long against the cost of a scrape through the API server.
const PAUSE: Duration = Duration::from_millis(500);

/// Polls until `poll` succeeds, and returns what it found.
///
/// # Panics
/// After `limit`, with what was awaited and the last reason.
pub fn until<T>(what: &str, limit: Duration, mut poll: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match poll() {
            Ok(found) => {
                eprintln!("  {:>5.1} s  {what}", start.elapsed().as_secs_f64());
                return found;
            }
            Err(reason) if start.elapsed() > limit => {
                panic!("awaited for {} s in vain: {what}\nlast seen: {reason}", limit.as_secs())
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
