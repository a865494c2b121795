//! The end that is asked for from outside: SIGTERM and SIGINT.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both signals; they no longer end the process by themselves.
#[derive(Debug)]
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// From now on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for either. Cancel-safe.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
