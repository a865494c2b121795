//! The limit on open file descriptors of the process (RLIMIT_NOFILE, getrlimit(2)).
//!
//! The soft limit is in force, and a process may raise its own up to the hard limit. Service
//! managers and container runtimes leave the soft limit at 1,024 for programs that use select(2).
//! This program does not.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns the limit that is in force. An infinite one is the largest number.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit to `wanted` if it is lower, as far as the hard limit allows. Returns the limit
/// that is then in force, which may be less than `wanted`.
pub fn raise_to(wanted: u64) -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let reachable = wanted.min(maximum.unwrap_or(u64::MAX));
    if limit() < reachable {
        // A security module may refuse the change, so the limit is read again.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(reachable), maximum });
    }
    limit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_that_of_proc_and_is_never_lowered() {
        let shown = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = shown.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let soft = line.split_ascii_whitespace().nth(3).unwrap();
        assert!(soft == "unlimited" || soft == limit().to_string(), "{line}");
        assert_eq!(raise_to(1), limit());
        assert!(limit() > 1);
    }
}
