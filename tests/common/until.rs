//! Waits for what another process does, by polling with a deadline, and never by a fixed pause.

use std::thread;
use std::time::{Duration, Instant};

/// The limit of every wait. A wait takes longer only if the event never happens.
pub const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(10);

/// Returns the result of `look` as soon as it succeeds.
///
/// # Panics
/// With `what` and the last reason, if that takes longer than [`PATIENCE`].
pub fn until<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    until_within(PATIENCE, what, look)
}

/// The same with the limit `patience`.
///
/// # Panics
/// With `what` and the last reason, if that takes longer than `patience`.
pub fn until_within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + patience;
    loop {
        match look() {
            Ok(found) => return found,
            Err(reason) => assert!(Instant::now() < end, "not within {patience:?}: {what}; last: {reason}"),
        }
        thread::sleep(POLL);
    }
}

/// Waits until `so` returns true.
pub fn until_so(what: &str, mut so: impl FnMut() -> bool) {
    until(what, || if so() { Ok(()) } else { Err("not yet".into()) });
}
