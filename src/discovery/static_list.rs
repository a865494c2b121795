//! Peers that the operator lists: `--peer NAME=ADDR[@ZONE]`, and a file with one such entry per
//! line.
//!
//! The file is checked about once a second, when the probe loop is awake. If it becomes invalid,
//! the last list stays.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tokio::sync::Notify;

use crate::discovery::address::valid_host_address;
use crate::discovery::report::Reporter;
use crate::discovery::update::{PeerList, PeerSpec, Update, Updates};
use crate::limits;
use crate::sys::files::{self, Version};

/// Why a list of peers is refused: what is wrong, where, and what would be accepted.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// An entry that cannot be read.
    #[error("{place}: bad peer '{text}': {reason}; accepted: NAME=ADDRESS[@ZONE], such as a=10.0.0.7@z1 or b=fd00::1")]
    Entry {
        /// The flag, or the file and line.
        place: EntryOrigin,
        /// The entry as written.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A name that an earlier entry has already.
    #[error("{place}: duplicate peer '{name}': accepted: one IPv4 and one IPv6 address per name")]
    Duplicate {
        /// The place of the second entry.
        place: EntryOrigin,
        /// The name that occurs twice.
        name: String,
    },
    /// A file that cannot be read.
    #[error("--peers-file {}: {source}; accepted: a readable text file with one NAME=ADDRESS[@ZONE] per line", path.display())]
    File {
        /// The path as given.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The list has more entries than there are slots.
    #[error("{place}: more than {} peers", limits::PEER_SLOTS_MAX)]
    TooMany {
        /// The first entry that is too many.
        place: EntryOrigin,
    },
}

impl PeerError {
    /// Returns whether the error may pass without a change of the file. For example, the system
    /// could not open or read it because there were no file descriptors.
    fn may_pass(&self) -> bool {
        // `Other`: not a regular file, or too long. `InvalidData`: not text.
        matches!(self, Self::File { source, .. } if !matches!(source.kind(), ErrorKind::Other | ErrorKind::InvalidData))
    }
}

/// Where an entry was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryOrigin {
    /// One of the `--peer` flags.
    Flag,
    /// A line of the peers file, counted from 1.
    Line(PathBuf, usize),
}

impl fmt::Display for EntryOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => write!(f, "--peer"),
            Self::Line(path, line) => write!(f, "--peers-file {}:{line}", path.display()),
        }
    }
}

/// Reads one `NAME=ADDR[@ZONE]`.
///
/// # Errors
/// What is wrong, as a clause.
pub fn parse_peer(text: &str) -> Result<PeerSpec, String> {
    let (node, rest) = text.split_once('=').ok_or("no '='")?;
    let (address, zone) = rest.split_once('@').map_or((rest, None), |(address, zone)| (address, Some(zone)));
    check_label("name", node)?;
    zone.map_or(Ok(()), |zone| check_label("zone", zone))?;
    if address.is_empty() {
        return Err("the address is empty".into());
    }
    let address = valid_host_address(address.parse().map_err(|_| "the address is neither IPv4 nor IPv6")?)?;
    Ok(PeerSpec { zone: zone.map(str::to_owned), ..PeerSpec::pod(node, address) })
}

/// Checks that a label can carry this node or zone name.
fn check_label(what: &str, value: &str) -> Result<(), String> {
    const _: () = assert!(limits::NAME_BYTES_MAX == 253, "the message says 253");
    let reason = if value.is_empty() {
        "is empty"
    } else if value.len() > limits::NAME_BYTES_MAX {
        "is longer than 253 bytes"
    } else if value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        "holds white space or a control character"
    } else {
        return Ok(());
    };
    Err(format!("the {what} {reason}"))
}

/// The peers and the file that the operator has given.
#[derive(Clone, Debug, Default)]
pub struct StaticConfig {
    /// The `--peer` values as typed.
    pub peers: Vec<String>,
    /// The path of `--peers-file`.
    pub file: Option<PathBuf>,
}

impl StaticConfig {
    /// Reads everything: the flags first, then the file.
    ///
    /// # Errors
    /// The first bad entry, a duplicate, or an unreadable file.
    pub fn load(&self) -> Result<PeerList, PeerError> {
        // It outlives the list, which borrows names from it to find duplicates. Copies would
        // fragment the heap.
        let text;
        let mut list = Collector::default();
        for text in &self.peers {
            list.add(text.trim(), || EntryOrigin::Flag)?;
        }
        if let Some(path) = &self.file {
            text = read(path).map_err(|source| PeerError::File { path: path.clone(), source })?;
            list.add_file(&text, path)?;
        }
        Ok(PeerList { peers: list.peers })
    }
}

#[derive(Default)]
struct Collector<'a> {
    peers: Vec<PeerSpec>,
    seen: HashSet<(&'a str, bool)>,
}

/// Reads any text as a peers file. Only for fuzzing.
#[cfg(feature = "fuzzing")]
pub fn fuzz_file(text: &[u8]) {
    if let Ok(text) = std::str::from_utf8(text) {
        let _ = Collector::default().add_file(text, Path::new("peers"));
    }
}

impl<'a> Collector<'a> {
    fn add_file(&mut self, text: &'a str, path: &Path) -> Result<(), PeerError> {
        self.peers.reserve_exact(text.lines().count().min(limits::PEER_SLOTS_MAX));
        for (index, line) in text.lines().enumerate() {
            let entry = line.split('#').next().unwrap_or_default().trim();
            if !entry.is_empty() {
                self.add(entry, || EntryOrigin::Line(path.to_owned(), index + 1))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, text: &'a str, place: impl FnOnce() -> EntryOrigin) -> Result<(), PeerError> {
        let spec = match parse_peer(text) {
            Ok(spec) => spec,
            Err(reason) => return Err(PeerError::Entry { place: place(), text: text.to_owned(), reason }),
        };
        if self.peers.len() == limits::PEER_SLOTS_MAX {
            return Err(PeerError::TooMany { place: place() });
        }
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        if !self.seen.insert((name, spec.address.is_ipv6())) {
            return Err(PeerError::Duplicate { place: place(), name: spec.node });
        }
        self.peers.push(spec);
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<String> {
    let bytes = files::read(path, limits::PEERS_FILE_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not valid UTF-8"))
}

/// Decides what to send after each check of the file. No I/O, no clock.
struct FileCheck {
    reporter: Reporter,
    /// The version at the last check. None before the first.
    seen: Option<Version>,
    /// The last list matches the content of the file.
    is_current: bool,
    /// The file could not be read, for a reason that may pass without an edit.
    retry: bool,
}

impl FileCheck {
    const fn new() -> Self {
        Self { reporter: Reporter::new("static"), seen: None, is_current: false, retry: false }
    }

    /// Loads the file if this version is new, and returns the update to send.
    fn update(&mut self, version: Version, load: impl FnOnce() -> Result<PeerList, PeerError>) -> Option<Update> {
        let edited = self.seen.replace(version) != Some(version);
        if !edited && !self.retry {
            return self.is_current.then_some(Update::Confirmed);
        }
        let loaded = load();
        self.is_current = loaded.is_ok();
        self.retry = loaded.as_ref().is_err_and(PeerError::may_pass);
        match loaded {
            Ok(list) => {
                self.reporter.recovered();
                Some(Update::List(list))
            }
            Err(error) => {
                if edited {
                    // The error may differ from that of the version before. It is logged once for
                    // each version.
                    self.reporter.forget();
                }
                self.reporter.failed("file", &error);
                None
            }
        }
    }
}

/// Sends the list. On each notification, sends a new list if the file has changed, or
/// [`Update::Confirmed`] if it has not. Returns when the receiver is closed.
pub async fn run(config: StaticConfig, notified: &Notify, updates: Updates) {
    let mut check = FileCheck::new();
    loop {
        // Taken before the content is read. An edit in between then shows up as a change at the
        // next check.
        let version = config.file.as_deref().map(Version::read).unwrap_or_default();
        let update = check.update(version, || config.load());
        if updates.is_closed() {
            return;
        }
        if let Some(update) = update
            && updates.send(update).await.is_err()
        {
            return;
        }
        notified.notified().await;
    }
}

#[cfg(test)]
mod tests;
