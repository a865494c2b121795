//! Waiting by polling. Every wait names its condition, and its failure shows the last reason.

use std::time::{Duration, Instant};

/// The pause between two polls: short against the one-second probe interval, long against the cost
/// of a scrape through the API server.
const PAUSE: Duration = Duration::from_millis(500);
/// The limit of every wait. Without a fault, no wait takes this long, so the limit costs nothing.
const LIMIT: Duration = Duration::from_mins(10);

/// Polls until `poll` succeeds, and returns its result.
///
/// # Panics
/// After [`LIMIT`], with `what` and the last reason.
pub fn until<T>(what: &str, mut poll: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match poll() {
            Ok(found) => {
                eprintln!("  {:>5.1} s  {what}", start.elapsed().as_secs_f64());
                return found;
            }
            Err(reason) if start.elapsed() > LIMIT => panic!("not within {LIMIT:?}: {what}\nlast seen: {reason}"),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
