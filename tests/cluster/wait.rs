//! Waiting by polling: every wait names what it awaits, and its failure quotes the last reason.

use std::time::{Duration, Instant};

/// Between two polls: short against the one-second probe interval, long against the cost of a scrape through the API server.
const PAUSE: Duration = Duration::from_millis(500);
/// Of every wait. It costs nothing when all is well, and nothing that is well takes so long.
const LIMIT: Duration = Duration::from_mins(10);

/// Polls until `poll` succeeds, and returns what it found.
///
/// # Panics
/// After [`LIMIT`], with what was awaited and the last reason.
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
