//! A descriptor that tokio watches as long as it is asked to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use kube_canary_kernel::socket::watch;
use tokio::io::unix::AsyncFd;

use super::timer;

/// A descriptor that tokio watches or not. If it is watched, each event wakes the thread, even if
/// no task waits for it.
#[derive(Debug)]
pub struct WatchedDescriptor {
    fd: OwnedFd,
    /// A duplicate of it, while tokio watches.
    watched: Option<AsyncFd<OwnedFd>>,
    /// Its name in the log.
    name: &'static str,
    /// Whether a failure was already logged: the operation is retried at every turn.
    logged: bool,
}

impl WatchedDescriptor {
    /// Makes tokio watch `fd`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The error of `epoll_ctl`, or of the call that duplicates the descriptor.
    pub fn new(fd: OwnedFd, name: &'static str) -> io::Result<Self> {
        Ok(Self { watched: Some(watch(fd.try_clone()?)?), fd, name, logged: false })
    }

    /// Takes `fd` without making tokio watch it.
    #[cfg(test)]
    pub const fn unwatched(fd: OwnedFd, name: &'static str) -> Self {
        Self { fd, watched: None, name, logged: false }
    }

    /// Returns the descriptor, watched or not.
    pub const fn get(&self) -> &OwnedFd {
        &self.fd
    }

    /// Makes tokio watch the descriptor, or not.
    pub fn watch(&mut self, watched: bool) {
        if watched == self.watched.is_some() {
            return;
        }
        let made = watched.then(|| self.fd.try_clone().and_then(watch)).transpose();
        self.watched = made.unwrap_or_else(|error| {
            if !std::mem::replace(&mut self.logged, true) {
                log::warn!("cannot wait for {}, so it is only read when probes are sent: {error}", self.name);
            }
            None
        });
    }

    /// Waits until the descriptor is readable, if tokio watches it. Cancel-safe.
    pub async fn readable(&self) {
        // This clears the readiness, which is edge-triggered, so the caller reads until nothing is
        // left.
        match &self.watched {
            Some(fd) => timer::readable(fd, self.name).await,
            None => std::future::pending().await,
        }
    }
}

impl AsFd for WatchedDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get().as_fd()
    }
}
