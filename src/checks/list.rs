//! The list of checks: the defaults of a cluster, those of `--check`, and those of a file that is
//! read again when it changes.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kube_canary_model::check::{CHECKS_MAX, DEFAULT_CHECKS};

use super::Host;
use super::authorities::AuthoritiesFile;
use super::parse::CheckSpecError;
use super::target::{CheckSpec, CheckTarget, HostPort};
use crate::discovery::{DiscoverySource, KubernetesConfig};
use crate::limits::CHECKS_FILE_BYTES_MAX;
use crate::sys::files::{self, LastRead, Look};

/// The ports of the Service that agents check, by TCP and by UDP, as in the manifests.
const SERVICE_PORT: u16 = 80;
const SERVICE_UDP_PORT: u16 = 862;

/// What the operator wants to be checked.
#[derive(Clone, Debug)]
pub struct ChecksConfig {
    /// The checks of `--check`.
    pub specs: Vec<CheckSpec>,
    /// The file with further checks.
    pub file: Option<PathBuf>,
    /// Whether the default checks are on. They need Kubernetes discovery. Their names are reserved
    /// in any case, so that a file means the same everywhere.
    pub defaults: bool,
    /// Whether the agents answer by UDP, which one default check needs.
    pub by_udp: bool,
    /// The file of authorities that may sign the certificates of targets. `None`: certificates are
    /// not verified.
    pub authorities: Option<Arc<AuthoritiesFile>>,
    /// Largest number of attempts per second of all agents together, at the API server and at each
    /// target outside of the mesh.
    pub rate: f64,
}

/// Where a check was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOrigin {
    /// The flag, or the variable.
    Flag(String),
    /// A line of the checks file, counted from 1.
    Line(PathBuf, usize),
}

impl fmt::Display for CheckOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => out.write_str(name),
            Self::Line(path, line) => write!(out, "--checks-file {}:{line}", path.display()),
        }
    }
}

/// Why a list of checks is refused, in one line: where, what is wrong, and what is accepted.
#[derive(Debug, thiserror::Error)]
pub enum CheckListError {
    /// A check that cannot be read.
    #[error("{0}: {1}")]
    Check(CheckOrigin, CheckSpecError),
    /// A name that an earlier check has already.
    #[error("{0}: two checks have the NAME {1:?}; accepted: a NAME= before one of them")]
    Duplicate(CheckOrigin, Box<str>),
    /// The name of a default check.
    #[error("{0}: the NAME {1:?} is that of a default check; accepted: another NAME=, or --check none beside it")]
    Reserved(CheckOrigin, Box<str>),
    /// More checks than there may be.
    #[error("{0}: more than {CHECKS_MAX} checks; accepted: at most {CHECKS_MAX} with those of flags and the defaults")]
    TooMany(CheckOrigin),
    /// A file that cannot be read.
    #[error("--checks-file {}: {error}; accepted: a text file with one [NAME=]KIND:… per line, # comments", path.display())]
    File {
        /// The path as given.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A line that is not text.
    #[error("{0}: it is not UTF-8; accepted: one [NAME=]KIND:… per line, # comments")]
    Text(CheckOrigin),
}

impl ChecksConfig {
    /// Reads the checks of `--check`: flags or variables, and what each was given.
    ///
    /// # Errors
    /// The first bad check, or one that has no name of its own.
    pub fn read_flags<'a>(
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
        defaults: bool,
    ) -> Result<Vec<CheckSpec>, CheckListError> {
        let mut list = CheckCollector::new(defaults, &[]);
        for (flag, text) in given {
            list.add(text, &|| CheckOrigin::Flag(flag.to_owned()))?;
        }
        Ok(list.specs)
    }

    /// Returns the default checks that are on, with this source of peers.
    pub fn default_specs(&self, source: &DiscoverySource) -> Vec<CheckSpec> {
        match source {
            DiscoverySource::Kubernetes(config) if self.defaults => {
                let of_protocol = |spec: &CheckSpec| self.by_udp || !matches!(spec.target, CheckTarget::ServiceUdp(_));
                default_specs(config).into_iter().filter(of_protocol).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Reads the whole list: the defaults, then those of flags, then those of the file.
    ///
    /// # Errors
    /// [`CheckListError`]: the first bad line of the file, or a list that is too long.
    pub fn load(&self, source: &DiscoverySource) -> Result<Vec<CheckSpec>, CheckListError> {
        self.load_beside(&self.default_specs(source))
    }

    fn load_beside(&self, defaults: &[CheckSpec]) -> Result<Vec<CheckSpec>, CheckListError> {
        let mut list = CheckCollector::new(self.defaults, defaults);
        for spec in &self.specs {
            list.push(spec.clone(), &|| CheckOrigin::Flag("--check".to_owned()))?;
        }
        if let Some(path) = &self.file {
            let text = files::read(path, CHECKS_FILE_BYTES_MAX)
                .map_err(|error| CheckListError::File { path: path.clone(), error })?;
            list.add_file(&text, path)?;
        }
        Ok(list.specs)
    }
}

/// The default checks of a cluster.
fn default_specs(config: &KubernetesConfig) -> Vec<CheckSpec> {
    let server = match config.server.host.parse() {
        Ok(address) => Host::Address(address),
        Err(_) => Host::Name(config.server.host.as_str().into()),
    };
    let server = HostPort { host: server, port: config.server.port };
    // `.svc` and not the full name: clusters choose their own domain, which the search list has.
    let service = format!("{}-check.{}.svc", config.service, config.namespace);
    let service = |port| HostPort { host: Host::Name(service.as_str().into()), port };
    let authorities = Arc::new(AuthoritiesFile::new(config.account.join("ca.crt")));
    let targets = [
        CheckTarget::ClusterDns,
        CheckTarget::ApiServer { server, authorities },
        CheckTarget::Service(service(SERVICE_PORT)),
        CheckTarget::ServiceUdp(service(SERVICE_UDP_PORT)),
    ];
    DEFAULT_CHECKS.into_iter().zip(targets).map(|(name, target)| CheckSpec { name: name.into(), target }).collect()
}

/// A list that grows, and the names in it.
struct CheckCollector {
    reserved: bool,
    specs: Vec<CheckSpec>,
    names: HashSet<Box<str>>,
}

impl CheckCollector {
    fn new(reserved: bool, defaults: &[CheckSpec]) -> Self {
        Self { reserved, specs: defaults.to_vec(), names: HashSet::new() }
    }

    fn add(&mut self, text: &str, place: &dyn Fn() -> CheckOrigin) -> Result<(), CheckListError> {
        let spec = text.parse().map_err(|error| CheckListError::Check(place(), error))?;
        self.push(spec, place)
    }

    fn push(&mut self, spec: CheckSpec, place: &dyn Fn() -> CheckOrigin) -> Result<(), CheckListError> {
        if self.reserved && DEFAULT_CHECKS.contains(&&*spec.name) {
            return Err(CheckListError::Reserved(place(), spec.name));
        }
        if !self.names.insert(spec.name.clone()) {
            return Err(CheckListError::Duplicate(place(), spec.name));
        }
        if self.specs.len() == CHECKS_MAX {
            return Err(CheckListError::TooMany(place()));
        }
        self.specs.push(spec);
        Ok(())
    }

    fn add_file(&mut self, text: &[u8], path: &Path) -> Result<(), CheckListError> {
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let place = || CheckOrigin::Line(path.to_owned(), index + 1);
            let line = str::from_utf8(line).map_err(|_| CheckListError::Text(place()))?;
            let check = without_comment(line).trim();
            if !check.is_empty() {
                self.add(check, &place)?;
            }
        }
        Ok(())
    }
}

/// Returns the line up to its comment. A comment begins at the start of a line or behind white
/// space: a `#` within a URL is refused with it.
fn without_comment(line: &str) -> &str {
    let is_comment = |at: &usize| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = line.match_indices('#').map(|(at, _)| at).find(is_comment);
    &line[..comment.unwrap_or(line.len())]
}

/// Reads any text as a checks file. Only for fuzzing.
#[cfg(feature = "fuzzing")]
pub fn fuzz_file(text: &[u8]) {
    _ = CheckCollector::new(true, &[]).add_file(text, Path::new("checks"));
}

/// The list of checks, whose file is read again when it changes.
#[derive(Debug)]
pub struct ChecksFile {
    config: ChecksConfig,
    defaults: Vec<CheckSpec>,
    last: Mutex<LastList>,
}

#[derive(Debug, Default)]
struct LastList {
    file: LastRead<Vec<CheckSpec>>,
    was_read: bool,
}

impl ChecksFile {
    /// Returns the list of an agent that gets its peers from this source. Nothing is read yet.
    pub fn new(config: ChecksConfig, source: &DiscoverySource) -> Self {
        let defaults = config.default_specs(source);
        Self { config, defaults, last: Mutex::default() }
    }

    /// Whether the list may change.
    pub const fn may_change(&self) -> bool {
        self.config.file.is_some()
    }

    /// Returns the whole list if it has changed since the last call, and at the first call. If the
    /// file is bad, the last good list stays, and one line of the log says why. Takes one `stat` if
    /// nothing has changed, and none without a file.
    pub fn current(&self) -> Option<Vec<CheckSpec>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = !std::mem::replace(&mut last.was_read, true);
        let without_file = || ChecksConfig { file: None, ..self.config.clone() }.load_beside(&self.defaults);
        let Some(path) = &self.config.file else {
            return if is_first { without_file().ok() } else { None };
        };
        match last.file.look(path, |_| self.config.load_beside(&self.defaults)) {
            Look::New => {
                log::info!("--checks-file {}: {} checks with the others", path.display(), last.file.value().len());
                Some(last.file.value().clone())
            }
            Look::Refused(error) => {
                log::warn!("{error}; the checks read last stay");
                // The start has read the file. It may have become bad since.
                if is_first { without_file().ok() } else { None }
            }
            Look::Same => None,
        }
    }
}

#[cfg(test)]
mod tests;
