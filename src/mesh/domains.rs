//! The file of an operator's failure domains ([`Domains`]).
//!
//! It is read before a judgement, if it has changed since the last one. If the new content is bad,
//! the last good domains stay in use.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use kube_canary_verdicts::domains::Domains;

use crate::limits::DOMAINS_FILE_BYTES_MAX;
use crate::sys::files::{self, LastRead, Look};

/// Why a domains file is refused: the place, the reason, and what is accepted.
#[derive(Debug, thiserror::Error)]
#[error("--domains-file {}{place}: {reason}; accepted: NODE-NAME-PATTERN DOMAIN, such as rack-a-* rack-a", path.display())]
pub struct DomainsError {
    path: PathBuf,
    /// The bad line, as `:LINE`; empty if the file as a whole is bad.
    place: String,
    reason: String,
}

/// Reads a file of at most [`DOMAINS_FILE_BYTES_MAX`] bytes.
///
/// # Errors
/// [`DomainsError`]: the file cannot be read, or a line is bad.
pub fn read(path: &Path) -> Result<Domains, DomainsError> {
    let error = |place, reason| DomainsError { path: path.to_owned(), place, reason };
    let text = files::read(path, DOMAINS_FILE_BYTES_MAX).map_err(|system| error(String::new(), system.to_string()))?;
    Domains::parse(&text).map_err(|bad| error(format!(":{}", bad.line), bad.reason))
}

/// A domains file, and what was last read of it. Nothing is read before the first judgement.
#[derive(Debug)]
pub struct DomainsFile {
    path: PathBuf,
    last: Mutex<LastRead<Arc<Domains>>>,
}

impl DomainsFile {
    /// Returns the file at this path.
    pub fn new(path: PathBuf) -> Self {
        Self { path, last: Mutex::default() }
    }

    /// Returns the domains of the file, or the last good ones if the file is bad. Calls `say` once
    /// for each version that is read and once for each new error.
    pub fn current(&self, say: impl FnOnce(log::Level, &str)) -> Arc<Domains> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.look(&self.path, |path| read(path).map(Arc::new)) {
            Look::Same => {}
            Look::New => {
                let (path, count) = (self.path.display(), last.value().count());
                say(log::Level::Info, &format!("--domains-file {path}: {count} domains"));
            }
            Look::Refused(error) => say(log::Level::Warn, &format!("{error}; the domains read last stay")),
        }
        Arc::clone(last.value())
    }
}

#[cfg(test)]
mod tests;
