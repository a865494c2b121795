//! Waiting for what another process does: polled until it is so, with a deadline, and never a fixed pause.

use std::thread;
use std::time::{Duration, Instant};

/// Nothing here takes longer, unless it never happens.
pub const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(10);

/// What `look` finds as soon as it finds it.
///
/// # Panics
/// With `what` and the last reason, where that takes longer than [`PATIENCE`].
pub fn until<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    until_within(PATIENCE, what, look)
}

/// Likewise, of what may take so long.
///
/// # Panics
/// Likewise.
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

/// Waits until `so`.
pub fn until_so(what: &str, mut so: impl FnMut() -> bool) {
    until(what, || if so() { Ok(()) } else { Err("not yet".into()) });
}
