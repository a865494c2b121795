//! The authorities that may sign the certificate of a target: a file of certificates in PEM.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::RootCertStore;

use crate::http::tls;
use crate::limits::AUTHORITIES_BYTES_MAX;
use crate::sys::files::{self, LastRead, Look};

/// Why a file of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}; accepted: a file of certificates in PEM", path.display())]
struct AuthoritiesError {
    path: PathBuf,
    reason: String,
}

/// A file of authorities, which is read again when it has changed. What is kept of a certificate is
/// its trust anchor: name and key, about 600 bytes. While the file is bad, its last good content
/// stays.
#[derive(Debug)]
pub struct AuthoritiesFile {
    path: PathBuf,
    last: Mutex<LastRead<Option<Arc<RootCertStore>>>>,
}

impl AuthoritiesFile {
    /// Makes a file that is read when it is first used.
    pub fn new(path: PathBuf) -> Self {
        Self { path, last: Mutex::default() }
    }

    /// Makes a file, and reads it.
    ///
    /// # Errors
    /// Why it cannot be used, in one line that names it.
    pub fn open(path: PathBuf) -> Result<Self, String> {
        let file = Self::new(path);
        let mut refusal = None;
        file.look(|error| refusal = Some(error.to_owned()));
        refusal.map_or(Ok(file), Err)
    }

    /// Returns the authorities, at least one. `None`: the file was never good. Takes one `stat` if
    /// it has not changed. The log says once why a version is not used.
    pub fn current(&self) -> Option<Arc<RootCertStore>> {
        self.look(|error| log::warn!("checks: {error}; the authorities read last stay"))
    }

    fn look(&self, refused: impl FnOnce(&str)) -> Option<Arc<RootCertStore>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Look::Refused(error) = last.look(&self.path, |path| read(path).map(Arc::new).map(Some)) {
            refused(error);
        }
        last.value().clone()
    }
}

/// Two files are the same if they have one path.
impl PartialEq for AuthoritiesFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for AuthoritiesFile {}

/// Reads all certificates of a file of at most [`AUTHORITIES_BYTES_MAX`] bytes. There is at least
/// one.
fn read(path: &Path) -> Result<RootCertStore, AuthoritiesError> {
    let error = |reason| AuthoritiesError { path: path.to_owned(), reason };
    let pem = files::read(path, AUTHORITIES_BYTES_MAX).map_err(|system| error(system.to_string()))?;
    tls::authorities(&pem).map_err(error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_without_certificates_is_named() {
        let path = std::env::temp_dir().join(format!("kube-canary-authorities-{}", std::process::id()));
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (text, reason) in [
            (Some(""), "no certificate in it"),
            (Some("no PEM"), "no certificate in it"),
            (Some(garbage), "invalid peer certificate"),
            (Some("-----BEGIN CERTIFICATE-----\n"), ""),
            (None, "No such file"),
        ] {
            match text {
                Some(text) => fs::write(&path, text).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let error = AuthoritiesFile::open(path.clone()).unwrap_err();
            let is_whole = error.contains(&*path.to_string_lossy()) && error.contains("accepted: ");
            assert!(is_whole && error.contains(reason) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn a_file_is_parsed_once_until_it_changes_and_its_last_good_content_stays() {
        let path = std::env::temp_dir().join(format!("kube-canary-authorities-kept-{}", std::process::id()));
        let pem = || rcgen::generate_simple_self_signed(vec!["a.example".into()]).unwrap().cert.pem();
        let file = AuthoritiesFile::new(path.clone());
        assert!(file.current().is_none(), "no file");
        fs::write(&path, pem()).unwrap();
        let first = file.current().unwrap();
        assert!(Arc::ptr_eq(&first, &file.current().unwrap()), "parsed again");
        // Another size tells the versions apart within one tick of the change time.
        fs::write(&path, pem() + &pem()).unwrap();
        let second = file.current().unwrap();
        assert_eq!((first.len(), second.len()), (1, 2));
        for text in [Some("no certificate"), None] {
            match text {
                Some(text) => fs::write(&path, text).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            assert!(Arc::ptr_eq(&second, &file.current().unwrap()), "{text:?}");
        }
    }
}
