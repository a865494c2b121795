//! Peers that the operator wrote down: `--peer NAME=ADDR[@ZONE]`, and a file with one of the same per line.
//!
//! The file is looked at about once a second, when the probe loop is awake. A file that has become bad keeps the last list.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tokio::sync::Notify;

use super::address::of_a_host;
use super::report::Reporter;
use super::{PeerList, PeerSpec, Update, Updates};
use crate::files::{self, Version};
use crate::limits;

/// Why a list of peers is refused: what, where, and what would be accepted.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// An entry that cannot be read.
    #[error("{place}: bad peer '{text}': {reason}; accepted: NAME=ADDRESS[@ZONE], such as a=10.0.0.7@z1 or b=fd00::1")]
    Entry {
        /// The flag, or the file and line.
        place: Place,
        /// As written.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A name that an earlier entry has.
    #[error("{place}: duplicate peer '{name}': accepted: one IPv4 and one IPv6 address per name")]
    Duplicate {
        /// Of the second entry.
        place: Place,
        /// The name.
        name: String,
    },
    /// A file that cannot be read.
    #[error("--peers-file {}: {source}; accepted: a readable text file with one NAME=ADDRESS[@ZONE] per line", path.display())]
    File {
        /// As given.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// More than the program has slots for.
    #[error("{place}: more than {} peers", limits::PEER_SLOTS_MAX)]
    TooMany {
        /// Where it became too many.
        place: Place,
    },
}

impl PeerError {
    /// Whether it may pass without a change of the file: the system could not open or read it, for want of descriptors, say.
    fn may_pass(&self) -> bool {
        // Other: not a regular file, or too long; InvalidData: not text.
        matches!(self, Self::File { source, .. } if !matches!(source.kind(), ErrorKind::Other | ErrorKind::InvalidData))
    }
}

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A `--peer` flag.
    Flag,
    /// A line of the peers file, counted from 1.
    Line(PathBuf, usize),
}

impl fmt::Display for Place {
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
pub fn parse_peer(text: &str) -> Result<PeerSpec, &'static str> {
    let (node, rest) = text.split_once('=').ok_or("no '='")?;
    let (address, zone) = match rest.split_once('@') {
        Some((address, zone)) => (address, Some(zone)),
        None => (rest, None),
    };
    check_name(node)?;
    if let Some(zone) = zone {
        check_name(zone).map_err(|reason| match reason {
            EMPTY_NAME => "the zone is empty",
            LONG_NAME => "the zone is longer than 253 bytes",
            _ => "the zone holds white space or a control character",
        })?;
    }
    if address.is_empty() {
        return Err("the address is empty");
    }
    let address: IpAddr = address.parse().map_err(|_| "the address is neither IPv4 nor IPv6")?;
    let address = of_a_host(address)?;
    let zone = zone.map(str::to_owned);
    Ok(PeerSpec { zone, ..PeerSpec::pod(node, address) })
}

const EMPTY_NAME: &str = "the name is empty";
const LONG_NAME: &str = "the name is longer than 253 bytes";

/// A node or zone name that a label can carry.
fn check_name(name: &str) -> Result<(), &'static str> {
    const _: () = assert!(limits::NAME_BYTES_MAX == 253, "the messages say 253");
    if name.is_empty() {
        return Err(EMPTY_NAME);
    }
    if name.len() > limits::NAME_BYTES_MAX {
        return Err(LONG_NAME);
    }
    if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("the name holds white space or a control character");
    }
    Ok(())
}

/// What the operator asked for.
#[derive(Clone, Debug, Default)]
pub struct StaticConfig {
    /// `--peer` values as typed.
    pub peers: Vec<String>,
    /// `--peers-file`.
    pub file: Option<PathBuf>,
}

impl StaticConfig {
    /// Reads everything: the flags first, then the file.
    ///
    /// # Errors
    /// The first bad entry, a duplicate, or an unreadable file.
    pub fn load(&self) -> Result<PeerList, PeerError> {
        // Outlives the list, which borrows the names of it to tell duplicates: copies would leave the heap in pieces.
        let text;
        let mut list = Collector::default();
        for text in &self.peers {
            list.add(text.trim(), || Place::Flag)?;
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

/// Reads the text of a peers file.
#[cfg(feature = "fuzzing")]
pub(super) fn parse_file(text: &str, path: &Path) -> Result<PeerList, PeerError> {
    let mut list = Collector::default();
    list.add_file(text, path)?;
    Ok(PeerList { peers: list.peers })
}

impl<'a> Collector<'a> {
    fn add_file(&mut self, text: &'a str, path: &Path) -> Result<(), PeerError> {
        self.peers.reserve_exact(text.lines().count().min(limits::PEER_SLOTS_MAX));
        for (index, line) in text.lines().enumerate() {
            let entry = line.split('#').next().unwrap_or_default().trim();
            if !entry.is_empty() {
                self.add(entry, || Place::Line(path.to_owned(), index + 1))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, text: &'a str, place: impl FnOnce() -> Place) -> Result<(), PeerError> {
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

/// What becomes of each look at the file. No I/O, no clock.
struct Look {
    reporter: Reporter,
    /// As of the last look; None before the first.
    seen: Option<Version>,
    /// The last list is what the file says.
    good: bool,
    /// It could not be read, for a reason that may pass without an edit.
    again: bool,
}

impl Look {
    const fn new() -> Self {
        Self { reporter: Reporter::new("static"), seen: None, good: false, again: false }
    }

    /// Has it loaded where that version was not, and gives what to send.
    fn at(&mut self, version: Version, load: impl FnOnce() -> Result<PeerList, PeerError>) -> Option<Update> {
        let edited = self.seen.replace(version) != Some(version);
        if !edited && !self.again {
            return self.good.then_some(Update::Confirmed);
        }
        let loaded = load();
        self.good = loaded.is_ok();
        self.again = loaded.as_ref().is_err_and(PeerError::may_pass);
        match loaded {
            Ok(list) => {
                self.reporter.recovered();
                Some(Update::List(list))
            }
            Err(error) => {
                if edited {
                    // What is wrong now may differ from what was wrong with the version before: said once for each.
                    self.reporter.forget();
                }
                self.reporter.failed("file", &error);
                None
            }
        }
    }
}

/// Sends the list, then whenever it is notified a new one if the file has changed, or [`Update::Confirmed`] if it has not.
/// Returns when nobody listens any more.
pub async fn run(config: StaticConfig, notified: &Notify, updates: Updates) {
    let mut look = Look::new();
    loop {
        // Taken before the content is read: an edit in between is seen as a change at the next tick.
        let version = config.file.as_deref().map(Version::of).unwrap_or_default();
        let update = look.at(version, || config.load());
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
