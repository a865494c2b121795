//! The service account's files, as the kubelet mounts and rotates them: token, CA bundle,
//! namespace.
//!
//! They are read on each use and not kept, because a projected token lives an hour. Reading 2 KB
//! per request is cheaper than a watch on a directory of swapped symlinks. Requests are rare: a
//! watch every five minutes, and a slice every second or two in a rollout.

use std::path::{Path, PathBuf};

use super::failure::ApiFailure;
use crate::sys::files;

/// The directory in which Kubernetes has mounted the service account.
pub const DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Bytes of a file (token, CA bundle, namespace). A bundle of a dozen roots is 20 KB.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// A directory that holds `token`, `ca.crt` and `namespace`.
#[derive(Clone, Debug)]
pub struct Account {
    directory: PathBuf,
}

impl Account {
    /// Makes an account from the files in `directory`.
    pub const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns the present bearer token.
    ///
    /// # Errors
    /// [`ApiFailure::Credentials`]
    pub fn token(&self) -> Result<String, ApiFailure> {
        self.text("token")
    }

    /// Returns the namespace of the pod.
    ///
    /// # Errors
    /// [`ApiFailure::Credentials`]
    pub fn namespace(&self) -> Result<String, ApiFailure> {
        self.text("namespace")
    }

    /// Returns the PEM bundle of authorities that may sign the API server's certificate, and
    /// its path for messages.
    ///
    /// # Errors
    /// [`ApiFailure::Credentials`]
    pub fn authorities(&self) -> Result<(Vec<u8>, PathBuf), ApiFailure> {
        let path = self.directory.join("ca.crt");
        let bytes = read(&path)?;
        Ok((bytes, path))
    }

    fn text(&self, name: &str) -> Result<String, ApiFailure> {
        let path = self.directory.join(name);
        let text = String::from_utf8(read(&path)?).map_err(|e| credentials(&path, &e))?;
        match text.trim() {
            "" => Err(credentials(&path, &"empty")),
            text => Ok(text.to_owned()),
        }
    }
}

/// A truncated bundle would lack authorities. A truncated token would be refused without a reason.
fn read(path: &Path) -> Result<Vec<u8>, ApiFailure> {
    files::read(path, FILE_BYTES_MAX).map_err(|error| credentials(path, &error))
}

/// Makes an [`ApiFailure::Credentials`] about that file.
pub fn credentials(path: &Path, reason: &dyn std::fmt::Display) -> ApiFailure {
    ApiFailure::Credentials { path: path.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_is_empty_too_long_or_not_there_is_named() {
        let directory = std::env::temp_dir().join(format!("kube-canary-account-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let account = Account::new(directory.clone());
        for (text, expected) in [
            (Some(" \n".to_owned()), Err("token: empty")),
            (Some("x".repeat(256 << 10)), Ok(256 << 10)),
            (Some("x".repeat((256 << 10) + 1)), Err("token: longer than 262144 bytes")),
            (None, Err("token: No such file")),
        ] {
            match text {
                Some(text) => fs::write(directory.join("token"), text).unwrap(),
                None => fs::remove_file(directory.join("token")).unwrap(),
            }
            match (account.token(), expected) {
                (Ok(token), Ok(length)) => assert_eq!(token.len(), length),
                (Err(failure), Err(part)) => assert!(failure.to_string().contains(part), "{failure}"),
                (token, expected) => panic!("{:?}, not {expected:?}", token.map(|token| token.len())),
            }
        }
        fs::remove_dir(directory).unwrap();
    }
}
