//! The parts of the API's protobuf that we read. Labels, owners, `managedFields` and hints are
//! skipped. Everything borrows from the body.
//!
//! Field numbers are those of `generated.proto` in k8s.io/api/discovery/v1,
//! k8s.io/apimachinery/pkg/apis/meta/v1 and k8s.io/apimachinery/pkg/runtime. They never change. An
//! object comes in an envelope: `k8s\0` and a `runtime.Unknown` that names its type.
//!
//! The trap is a body that parses but is not what was asked for. Almost any bytes are some protobuf
//! message, and an empty body is an empty one. So the envelope's kind is checked, and a resource
//! version is required.

use super::protobuf::{Broken, FieldValue, MessageFields};
use crate::discovery::update::Readiness;

/// The first bytes of every body.
pub const MAGIC: [u8; 4] = *b"k8s\0";
/// The name of the HTTP port in our Service.
const PORT_NAME: &str = "http";

/// The type that an object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectKind {
    group_version: &'static str,
    name: &'static str,
}

impl ObjectKind {
    /// One slice, or an item of [`ObjectKind::SLICES`].
    pub const SLICE: Self = Self { group_version: "discovery.k8s.io/v1", name: "EndpointSlice" };
    /// A list of slices.
    pub const SLICES: Self = Self { group_version: "discovery.k8s.io/v1", name: "EndpointSliceList" };
    /// The metadata of one object.
    pub const METADATA: Self = Self { group_version: "meta.k8s.io/v1", name: "PartialObjectMetadata" };
    /// A list of the metadata of objects.
    pub const METADATA_LIST: Self = Self { group_version: "meta.k8s.io/v1", name: "PartialObjectMetadataList" };
    const STATUS: Self = Self { group_version: "v1", name: "Status" };

    /// Checks that `type_meta` is of this kind.
    ///
    /// # Errors
    /// What kind it is instead.
    pub fn check(self, type_meta: &[u8]) -> Result<(), String> {
        let (mut group_version, mut name) = ("", "");
        for field in MessageFields::new(type_meta) {
            match field? {
                (1, value) => group_version = value.text()?,
                (2, value) => name = value.text()?,
                _ => {}
            }
        }
        if (group_version, name) == (self.group_version, self.name) {
            return Ok(());
        }
        let short = |text: &str| text.chars().take(64).collect::<String>();
        Err(format!("not {} {} but {:?} {:?}", self.group_version, self.name, short(group_version), short(name)))
    }
}

/// Returns the message in an envelope.
///
/// # Errors
/// It is not an envelope, or its kind is not `kind`.
pub fn open(body: &[u8], kind: ObjectKind) -> Result<&[u8], String> {
    let envelope = body.strip_prefix(&MAGIC).ok_or("not an object in protobuf")?;
    let (mut type_meta, mut raw) = (&[][..], None);
    for field in MessageFields::new(envelope) {
        match field? {
            (1, value) => type_meta = value.bytes()?,
            (2, value) => raw = Some(value.bytes()?),
            (3, FieldValue::Bytes(encoding)) if !encoding.is_empty() => {
                return Err("an object in another encoding".into());
            }
            _ => {}
        }
    }
    kind.check(type_meta)?;
    raw.ok_or_else(|| "an empty envelope".into())
}

/// Reads a resource version. It has always been an unsigned number, and by contract since
/// Kubernetes 1.35 (KEP-5504).
fn version(value: FieldValue) -> Result<u64, String> {
    let text = value.text()?;
    text.parse().map_err(|_| format!("resourceVersion {:?}", text.chars().take(64).collect::<String>()))
}

/// The metadata of an object that we use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// Unique in its namespace. Never empty, except in a bookmark.
    pub name: &'a str,
    /// Grows with every change. Never 0.
    pub version: u64,
    /// Creation time, in seconds since the epoch.
    pub created: u64,
}

impl<'a> Metadata<'a> {
    /// Reads name, version and creation time from an ObjectMeta.
    fn read(message: &'a [u8]) -> Result<Self, String> {
        let mut read = Self::default();
        for field in MessageFields::new(message) {
            match field? {
                (1, value) => read.name = value.text()?,
                (6, value) => read.version = version(value)?,
                (8, value) => {
                    let time = MessageFields::new(value.bytes()?);
                    read.created =
                        time.filter_map(Result::ok).find(|(n, _)| *n == 1).map_or(Ok(0), |(_, s)| s.number())?;
                }
                _ => {}
            }
        }
        if read.version == 0 { Err("an object without resourceVersion".into()) } else { Ok(read) }
    }

    /// Reads the metadata of an item of a metadata list, or of the message of one object.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_item(item: &'a [u8]) -> Result<Self, String> {
        let read = Self::read(last(item, 1)?.ok_or("an object without metadata")?)?;
        if read.name.is_empty() { Err("an object without a name".into()) } else { Ok(read) }
    }
}

/// Returns the last field of that number, which must contain bytes.
fn last(message: &[u8], number: u64) -> Result<Option<&[u8]>, String> {
    let mut found = None;
    for field in MessageFields::new(message) {
        let (at, value) = field?;
        if at == number {
            found = Some(value.bytes()?);
        }
    }
    Ok(found)
}

/// Returns the resource version of a list, from its ListMeta. A list that is one of several pages
/// is refused, because we never ask for pages.
///
/// # Errors
/// What is wrong with it.
pub fn list_version(message: &[u8]) -> Result<u64, String> {
    let mut at = 0;
    for field in MessageFields::new(message) {
        match field? {
            (2, value) => at = version(value)?,
            (3, value) if !value.bytes()?.is_empty() => return Err("a part of a list".into()),
            _ => {}
        }
    }
    if at == 0 { Err("a list without resourceVersion".into()) } else { Ok(at) }
}

/// The IP family that the addresses of a slice have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceFamily {
    /// The addresses have 4 bytes each.
    V4,
    /// The addresses have 16 bytes each.
    V6,
}

/// An EndpointSlice, read from its message.
#[derive(Clone, Debug)]
pub struct EndpointSlice<'a> {
    /// Its name, version and creation time.
    pub metadata: Metadata<'a>,
    /// None if its addresses are not IP addresses (FQDN).
    pub family: Option<SliceFamily>,
    /// The port named `http`, else the only port.
    pub port: Option<u16>,
    message: &'a [u8],
}

impl<'a> EndpointSlice<'a> {
    /// Reads an item of a list, or the message of one object. It checks all of it once, so that its
    /// endpoints cannot turn out to be broken later.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(message: &'a [u8]) -> Result<Self, String> {
        let mut slice = Self { metadata: Metadata::read_item(message)?, family: None, port: None, message };
        let (mut ports, mut named) = (0, None);
        for field in MessageFields::new(message) {
            match field? {
                (2, value) => drop(ApiEndpoint::read(value.bytes()?)?),
                (3, value) => {
                    let (name, port) = read_port(value.bytes()?)?;
                    ports += 1;
                    slice.port = if ports == 1 { port } else { None };
                    named = named.or((name == PORT_NAME).then_some(port));
                }
                (4, value) => {
                    slice.family = match value.text()? {
                        "IPv4" => Some(SliceFamily::V4),
                        "IPv6" => Some(SliceFamily::V6),
                        _ => None,
                    }
                }
                _ => {}
            }
        }
        if ports > 1 {
            slice.port = named.flatten();
        }
        Ok(slice)
    }

    /// Returns its endpoints, in the order of the message.
    pub fn endpoints(&self) -> impl Iterator<Item = ApiEndpoint<'a>> {
        MessageFields::new(self.message).filter_map(|field| match field {
            Ok((2, FieldValue::Bytes(endpoint))) => ApiEndpoint::read(endpoint).ok(),
            _ => None,
        })
    }
}

/// Returns name and number of an EndpointPort. The number is None if it is absent or
/// not a valid port.
fn read_port(message: &[u8]) -> Result<(&str, Option<u16>), Broken> {
    let (mut name, mut number) = ("", None);
    for field in MessageFields::new(message) {
        match field? {
            (1, value) => name = value.text()?,
            (3, value) => number = u16::try_from(value.number()?).ok().filter(|port| *port != 0),
            _ => {}
        }
    }
    Ok((name, number))
}

/// One endpoint of a slice. Absent texts are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiEndpoint<'a> {
    /// The first of its addresses. The API says that they are interchangeable, and that the first
    /// is the one to use.
    pub address: &'a str,
    /// The node that its pod runs on.
    pub node: &'a str,
    /// The name of the pod.
    pub pod: &'a str,
    /// The zone of the node.
    pub zone: &'a str,
    /// Its readiness, from its conditions.
    pub readiness: Readiness,
}

impl<'a> ApiEndpoint<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Broken> {
        let mut read = Self { address: "", node: "", pod: "", zone: "", readiness: Readiness::Ready };
        for field in MessageFields::new(message) {
            match field? {
                (1, value) if read.address.is_empty() => read.address = value.text()?,
                (2, value) => read.readiness = readiness(value.bytes()?)?,
                (4, value) => {
                    for field in MessageFields::new(value.bytes()?) {
                        if let (3, name) = field? {
                            read.pod = name.text()?;
                        }
                    }
                }
                (6, value) => read.node = value.text()?,
                (7, value) => read.zone = value.text()?,
                _ => {}
            }
        }
        Ok(read)
    }
}

/// Returns `Terminating` by that condition, else reads `serving`. It reads `ready` only if
/// `serving` is absent: with `publishNotReadyAddresses`, `ready` is true for every pod. An absent
/// condition means true (discovery.k8s.io/v1).
fn readiness(conditions: &[u8]) -> Result<Readiness, Broken> {
    let (mut ready, mut serving, mut terminating) = (None, None, None);
    for field in MessageFields::new(conditions) {
        match field? {
            (1, value) => ready = Some(value.number()? != 0),
            (2, value) => serving = Some(value.number()? != 0),
            (3, value) => terminating = Some(value.number()? != 0),
            _ => {}
        }
    }
    Ok(match terminating {
        Some(true) => Readiness::Terminating,
        _ if serving.or(ready).unwrap_or(true) => Readiness::Ready,
        _ => Readiness::Unready,
    })
}

/// An event that a metadata-only watch reports.
#[derive(Debug, PartialEq, Eq)]
pub enum WatchEvent<'a> {
    /// ADDED or MODIFIED: an object has changed.
    Changed(Metadata<'a>),
    /// DELETED: an object is gone.
    Deleted(Metadata<'a>),
    /// Nothing new up to this version.
    Bookmark(u64),
    /// The server ends the watch with an error.
    Error {
        /// HTTP status; 410 is Gone.
        code: u16,
        /// The message of the server.
        message: &'a str,
    },
}

impl<'a> WatchEvent<'a> {
    /// Reads a `WatchEvent`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(frame: &'a [u8]) -> Result<Self, String> {
        let kind = std::str::from_utf8(last(frame, 1)?.unwrap_or_default()).map_err(|_| Broken)?;
        let object = last(frame, 2)?.ok_or("a watch event without an object")?;
        let body = last(object, 1)?.ok_or("a watch event with an empty object")?;
        let metadata = || Metadata::read_item(open(body, ObjectKind::METADATA)?);
        match kind {
            "ADDED" | "MODIFIED" => Ok(Self::Changed(metadata()?)),
            "DELETED" => Ok(Self::Deleted(metadata()?)),
            "BOOKMARK" => {
                // A bookmark has no name.
                let message = last(open(body, ObjectKind::METADATA)?, 1)?.ok_or("a bookmark without metadata")?;
                Ok(Self::Bookmark(Metadata::read(message)?.version))
            }
            "ERROR" => {
                let status = Status::read(body)?;
                Ok(Self::Error { code: status.code, message: status.message })
            }
            other => Err(format!("a watch event of type {:?}", other.chars().take(64).collect::<String>())),
        }
    }
}

/// A `Status`, which the API server sends instead of an object.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status<'a> {
    code: u16,
    message: &'a str,
    reason: &'a str,
    /// The name of the object that it is about.
    name: &'a str,
}

impl<'a> Status<'a> {
    fn read(body: &'a [u8]) -> Result<Self, String> {
        let mut status = Self::default();
        for field in MessageFields::new(open(body, ObjectKind::STATUS)?) {
            match field? {
                (3, value) => status.message = value.text()?,
                (4, value) => status.reason = value.text()?,
                (5, value) => {
                    let name = last(value.bytes()?, 1)?.unwrap_or_default();
                    status.name = std::str::from_utf8(name).map_err(|_| Broken)?;
                }
                (6, value) => status.code = u16::try_from(value.number()?).unwrap_or(0),
                _ => {}
            }
        }
        Ok(status)
    }
}

/// Returns whether the body of a 404 says that no object of that name exists. A 404 from anything
/// but the API server does not say so. Nor does a 404 for a path that the API server does not serve
/// (yet).
pub fn is_not_found(body: &[u8], name: &str) -> bool {
    Status::read(body).is_ok_and(|s| (s.code, s.reason, s.name) == (404, "NotFound", name))
}

#[cfg(test)]
mod tests;
