//! The agent's heap profile, where it is asked for (`--heap-profile FILE`): to `FILE.1`, `FILE.2`, … at each SIGUSR2, and to
//! `FILE` when the agent is asked to end, while everything is still there.

use std::io;
use std::path::PathBuf;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::allocator::{HeapProfile, ProfileError};

/// A profile, and the signal that has it written; or none.
#[derive(Debug)]
pub struct Profiling(Option<(HeapProfile, Signal)>);

/// Why it does not start.
#[derive(Debug, thiserror::Error)]
pub enum ProfilingError {
    /// jemalloc refuses.
    #[error("cannot start --heap-profile: {0}")]
    Profile(#[from] ProfileError),
    /// The kernel refuses.
    #[error("cannot handle SIGUSR2: {0}")]
    Signal(#[from] io::Error),
}

impl Profiling {
    /// From now on, if a file is given. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`ProfilingError`].
    pub fn start(file: Option<PathBuf>) -> Result<Self, ProfilingError> {
        // Elsewhere the command line has refused the flag, and all this is compiled away.
        let Some(file) = file.filter(|_| HeapProfile::AVAILABLE) else { return Ok(Self(None)) };
        let asked = signal(SignalKind::user_defined2())?;
        Ok(Self(Some((HeapProfile::start(file)?, asked))))
    }

    /// Waits for SIGUSR2, for ever without a profile. Cancel-safe.
    pub async fn asked(&mut self) {
        match &mut self.0 {
            Some((_, asked)) => drop(asked.recv().await),
            None => std::future::pending().await,
        }
    }

    /// Writes a numbered profile.
    pub fn write_numbered(&mut self) {
        if let Some((profile, _)) = &mut self.0 {
            match profile.write_numbered() {
                Ok(file) => log::info!("heap profile in {}", file.display()),
                Err(error) => log::warn!("{error}"),
            }
        }
    }

    /// Writes the last profile.
    pub fn write_last(&self) {
        if let Some((profile, _)) = &self.0 {
            match profile.write_last() {
                Ok(file) => log::info!("heap profile in {}", file.display()),
                Err(error) => log::warn!("{error}"),
            }
        }
    }
}
