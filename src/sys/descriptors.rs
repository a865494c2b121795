//! The limit on open file descriptors of the process (RLIMIT_NOFILE, getrlimit(2)).
//!
//! The soft limit is in force, and a process may raise its own up to the hard limit. Service
//! managers and container runtimes leave the soft limit at 1,024 for programs that use select(2).
//! This program does not.
#![expect(unsafe_code, reason = "getrlimit(2) and setrlimit(2) have no safe wrapper in std")]

/// The limit that is in force. If the kernel does not report it, it is infinite.
pub fn limit() -> u64 {
    read().rlim_cur
}

/// Raises the limit to `wanted` if it is lower, as far as the hard limit allows. Returns the limit
/// that is then in force, which may be less than `wanted`.
pub fn raise_to(wanted: u64) -> u64 {
    let now = read();
    if now.rlim_cur >= wanted || now.rlim_cur >= now.rlim_max {
        return now.rlim_cur;
    }
    let raised = libc::rlimit { rlim_cur: wanted.min(now.rlim_max), ..now };
    // SAFETY: `raised` is a valid rlimit that outlives the call; the kernel only reads it.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
    // A security module may refuse the change, so the limit is read again.
    limit()
}

fn read() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is a valid rlimit to write to. An error leaves it as it is.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_the_kernel_shows_and_is_never_lowered() {
        let shown = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = shown.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let soft = line.split_ascii_whitespace().nth(3).unwrap();
        assert!(soft == "unlimited" || soft == limit().to_string(), "{line}");
        assert_eq!(raise_to(1), limit());
        assert!(limit() > 1);
    }
}
