//! The agent's heap profile, if it is requested (`--heap-profile FILE`). Each SIGUSR2 writes to
//! `FILE.1`, `FILE.2`, …. The stop writes to `FILE`, while all memory is still allocated.

use std::io;
use std::path::PathBuf;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::allocator::{HeapProfile, ProfileError};

/// A profile and the signal that writes it, or none.
#[derive(Debug)]
pub struct Profiling(Option<(HeapProfile, Signal)>);

/// The reason why profiling does not start.
#[derive(Debug, thiserror::Error)]
pub enum ProfilingError {
    /// jemalloc refused to start the profile.
    #[error("cannot start --heap-profile: {0}")]
    Profile(#[from] ProfileError),
    /// The kernel refused the signal handler.
    #[error("cannot handle SIGUSR2: {0}")]
    Signal(#[from] io::Error),
}

impl Profiling {
    /// Starts profiling if a file is given. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`ProfilingError`].
    pub fn start(file: Option<PathBuf>) -> Result<Self, ProfilingError> {
        // In other builds the command line has refused the flag, and this code is removed by the
        // compiler.
        let Some(file) = file.filter(|_| HeapProfile::AVAILABLE) else { return Ok(Self(None)) };
        let asked = signal(SignalKind::user_defined2())?;
        Ok(Self(Some((HeapProfile::start(file)?, asked))))
    }

    /// Waits for SIGUSR2. Without a profile it waits forever. Cancel-safe.
    pub async fn asked(&mut self) {
        match &mut self.0 {
            Some((_, asked)) => drop(asked.recv().await),
            None => std::future::pending().await,
        }
    }

    /// Writes a numbered profile, and logs its name.
    pub fn write_numbered(&mut self) {
        if let Some((profile, _)) = &mut self.0 {
            match profile.write_numbered() {
                Ok(file) => log::info!("heap profile in {}", file.display()),
                Err(error) => log::warn!("{error}"),
            }
        }
    }

    /// Writes the last profile, and logs its name.
    pub fn write_last(&self) {
        if let Some((profile, _)) = &self.0 {
            match profile.write_last() {
                Ok(file) => log::info!("heap profile in {}", file.display()),
                Err(error) => log::warn!("{error}"),
            }
        }
    }
}
