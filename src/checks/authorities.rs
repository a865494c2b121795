//! The authorities that may sign the certificate of a target: a file of certificates in PEM.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;

use crate::http::tls;
use crate::limits::AUTHORITIES_BYTES_MAX;
use crate::sys::files;

/// Why a file of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}; accepted: a file of certificates in PEM", path.display())]
pub struct AuthoritiesError {
    path: PathBuf,
    reason: String,
}

/// Reads all certificates of a file of at most [`AUTHORITIES_BYTES_MAX`] bytes. There is at least
/// one.
///
/// # Errors
/// [`AuthoritiesError`]: the file cannot be read, or what it holds is no such certificate.
pub fn read(path: &Path) -> Result<RootCertStore, AuthoritiesError> {
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
            let error = read(&path).unwrap_err().to_string();
            let is_whole = error.contains(&*path.to_string_lossy()) && error.contains("accepted: ");
            assert!(is_whole && error.contains(reason) && error.lines().count() == 1, "{error}");
        }
    }
}
