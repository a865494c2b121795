//! The service account's files, as the kubelet mounts and rotates them: token, CA bundle, namespace.
//!
//! They are read when they are used, and not kept: a projected token lives an hour, and 2 KB that are read once per
//! request (every five minutes) are cheaper than a watch on a directory of swapped symlinks.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::failure::Failure;
use crate::limits;

/// Where Kubernetes mounts it.
pub const DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A directory with `token`, `ca.crt` and `namespace`.
#[derive(Clone, Debug)]
pub struct Account {
    directory: PathBuf,
}

impl Account {
    /// The files in `directory`.
    pub const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The bearer token of this moment.
    ///
    /// # Errors
    /// [`Failure::Credentials`]
    pub fn token(&self) -> Result<String, Failure> {
        self.text("token")
    }

    /// The namespace of the pod.
    ///
    /// # Errors
    /// [`Failure::Credentials`]
    pub fn namespace(&self) -> Result<String, Failure> {
        self.text("namespace")
    }

    /// The PEM bundle of authorities that may sign the API server's certificate, and its path for messages.
    ///
    /// # Errors
    /// [`Failure::Credentials`]
    pub fn authorities(&self) -> Result<(Vec<u8>, PathBuf), Failure> {
        let path = self.directory.join("ca.crt");
        let bytes = read(&path)?;
        Ok((bytes, path))
    }

    fn text(&self, name: &str) -> Result<String, Failure> {
        let path = self.directory.join(name);
        let text = String::from_utf8(read(&path)?).map_err(|e| credentials(&path, &e))?;
        match text.trim() {
            "" => Err(credentials(&path, &"empty")),
            text => Ok(text.to_owned()),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limits::CREDENTIAL_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|e| credentials(path, &e))?;
    Ok(bytes)
}

/// A [`Failure::Credentials`] about that file.
pub fn credentials(path: &Path, reason: &dyn std::fmt::Display) -> Failure {
    Failure::Credentials { path: path.to_owned(), reason: reason.to_string() }
}
