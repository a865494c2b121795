//! Which of many sockets are ready: poll(2), over a list that may have holes.
#![expect(unsafe_code, reason = "rustix has no list with holes")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// A descriptor to poll, or none.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Polled(libc::pollfd);

impl Polled {
    /// A hole, which the kernel ignores: it reads no descriptor here (poll(2)).
    pub const NONE: Self = Self(libc::pollfd { fd: -1, events: 0, revents: 0 });

    /// Returns a descriptor to poll until it is readable or writable.
    pub fn watching(fd: &impl AsFd) -> Self {
        Self(libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN | libc::POLLOUT, revents: 0 })
    }

    /// Whether the kernel has reported anything.
    pub const fn is_ready(self) -> bool {
        self.0.revents != 0
    }
}

/// Asks the kernel which descriptors are ready, without waiting. Returns whether any is.
///
/// # Errors
/// The error of `poll`.
pub fn poll(fds: &mut [Polled]) -> io::Result<bool> {
    let count = libc::nfds_t::try_from(fds.len()).map_err(io::Error::other)?;
    // SAFETY: `Polled` is a `pollfd`, and the slice has `count` of them. A descriptor that was
    // closed only gives an event.
    let ready = unsafe { libc::poll(fds.as_mut_ptr().cast(), count, 0) };
    if ready < 0 { Err(io::Error::last_os_error()) } else { Ok(ready > 0) }
}
