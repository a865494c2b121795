//! A descriptor that tokio watches as long as it is asked to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use kube_canary_kernel::socket::watch;
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
enum Descriptor {
    Watched(AsyncFd<OwnedFd>),
    Unwatched(OwnedFd),
}

/// A descriptor that tokio watches or not. If it is watched, each event wakes the thread, even if
/// no task waits for it.
#[derive(Debug)]
pub struct WatchedDescriptor {
    /// Always present, except during a change.
    fd: Option<Descriptor>,
    /// Its name in the log.
    name: &'static str,
    /// Whether a failure was already logged: the operation is retried at every turn.
    logged: bool,
}

impl WatchedDescriptor {
    /// Makes tokio watch `fd`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The error of `epoll_ctl`.
    pub fn new(fd: OwnedFd, name: &'static str) -> io::Result<Self> {
        Ok(Self { fd: Some(Descriptor::Watched(watch(fd)?)), name, logged: false })
    }

    /// Takes `fd` without making tokio watch it.
    #[cfg(test)]
    pub const fn unwatched(fd: OwnedFd, name: &'static str) -> Self {
        Self { fd: Some(Descriptor::Unwatched(fd)), name, logged: false }
    }

    /// Returns the descriptor, watched or not.
    #[expect(clippy::expect_used, reason = "there before and after every call")]
    pub fn get(&self) -> &OwnedFd {
        match self.fd.as_ref().expect("present") {
            Descriptor::Watched(fd) => fd.get_ref(),
            Descriptor::Unwatched(fd) => fd,
        }
    }

    /// Makes tokio watch the descriptor, or not.
    pub fn watch(&mut self, watched: bool) {
        self.fd = match self.fd.take() {
            Some(Descriptor::Watched(fd)) if !watched => Some(Descriptor::Unwatched(fd.into_inner())),
            Some(Descriptor::Unwatched(fd)) if watched => Some(match fd.try_clone().and_then(watch) {
                Ok(watched) => Descriptor::Watched(watched),
                Err(error) => {
                    if !std::mem::replace(&mut self.logged, true) {
                        log::warn!("cannot wait for {}, so it is only read when probes are sent: {error}", self.name);
                    }
                    Descriptor::Unwatched(fd)
                }
            }),
            same => same,
        };
    }

    /// Waits until the descriptor is readable, if tokio watches it. Cancel-safe.
    pub async fn readable(&self) {
        match &self.fd {
            // Readiness is edge-triggered, and the caller reads until nothing is left, so it
            // can be cleared here.
            Some(Descriptor::Watched(fd)) => match fd.readable().await {
                Ok(mut guard) => guard.clear_ready(),
                Err(error) => {
                    log::error!("cannot wait for {}: {error}", self.name);
                    std::future::pending::<()>().await;
                }
            },
            _ => std::future::pending().await,
        }
    }
}

impl AsFd for WatchedDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get().as_fd()
    }
}
