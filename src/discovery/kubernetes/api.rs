//! What we read of the API's JSON (`discovery.k8s.io/v1`), and nothing else of it: serde skips `managedFields`, labels
//! and hints without keeping a byte. Strings borrow from the body.
//!
//! The trap: a body that parses but is not what was asked for. `{}` with status 200 from some proxy must not read as an
//! empty list, so kind and resource version are required.

use std::borrow::Cow;

use serde::Deserialize;

/// A string of the body; owned only where JSON escaped something in it.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    /// The string.
    pub fn get(&self) -> &str {
        &self.0
    }
}

/// The string, or empty.
pub fn or_empty<'t>(text: Option<&'t Text<'_>>) -> &'t str {
    text.map_or("", Text::get)
}

/// One page of an EndpointSliceList.
#[derive(Debug, Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    metadata: Option<ListMetadata<'a>>,
    #[serde(borrow)]
    items: Option<Vec<Object<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata<'a> {
    #[serde(borrow)]
    resource_version: Option<Text<'a>>,
    #[serde(borrow, rename = "continue")]
    continue_token: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    object: Object<'a>,
}

/// An EndpointSlice, or the Status of an ERROR event: one shape with everything optional spares a second pass.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Object<'a> {
    /// Name and versions.
    #[serde(borrow)]
    pub metadata: Option<Metadata<'a>>,
    /// `IPv4`, `IPv6` or `FQDN`.
    #[serde(borrow)]
    pub address_type: Option<Text<'a>>,
    /// May be null.
    #[serde(borrow)]
    pub endpoints: Option<Vec<Endpoint<'a>>>,
    /// May be null.
    #[serde(borrow)]
    pub ports: Option<Vec<Port<'a>>>,
    code: Option<u16>,
    #[serde(borrow)]
    message: Option<Text<'a>>,
}

/// ObjectMeta.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<'a> {
    /// Of the object, unique in its namespace.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// RFC 3339 in UTC, so that text order is time order.
    #[serde(borrow)]
    pub creation_timestamp: Option<Text<'a>>,
    #[serde(borrow)]
    resource_version: Option<Text<'a>>,
}

/// One endpoint of a slice.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint<'a> {
    /// Interchangeable, says the API; the first is the one to use.
    #[serde(borrow)]
    pub addresses: Option<Vec<Text<'a>>>,
    /// May be absent.
    pub conditions: Option<Conditions>,
    /// The node that the pod is on.
    #[serde(borrow)]
    pub node_name: Option<Text<'a>>,
    /// The node's zone.
    #[serde(borrow)]
    pub zone: Option<Text<'a>>,
    /// The pod.
    #[serde(borrow)]
    pub target_ref: Option<TargetRef<'a>>,
}

/// An endpoint's conditions; absent means unknown, which is to be read as its default.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Conditions {
    /// Always true with `publishNotReadyAddresses`.
    pub ready: Option<bool>,
    /// The readiness of the pod, whatever else.
    pub serving: Option<bool>,
    /// The pod is being deleted.
    pub terminating: Option<bool>,
}

/// The object behind an endpoint.
#[derive(Debug, Deserialize)]
pub struct TargetRef<'a> {
    /// Of the pod.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
}

/// One port of a slice.
#[derive(Debug, Deserialize)]
pub struct Port<'a> {
    /// Of the Service's port.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// Absent means all ports.
    pub port: Option<i64>,
}

/// A page, checked.
#[derive(Debug)]
pub struct Page<'a> {
    /// Of the whole list.
    pub resource_version: Text<'a>,
    /// Where the next page starts; None on the last.
    pub continue_token: Option<Text<'a>>,
    /// The slices of this page.
    pub slices: Vec<Object<'a>>,
}

/// A watch event, checked.
#[derive(Debug)]
pub enum Event<'a> {
    /// ADDED or MODIFIED; with the version to resume from.
    Put(Object<'a>, String),
    /// DELETED; with the version to resume from.
    Delete(Object<'a>, String),
    /// Nothing new up to this version.
    Bookmark(String),
    /// The watch is over.
    Error {
        /// HTTP status; 410 is Gone.
        code: u16,
        /// The server's words.
        message: String,
    },
}

/// Reads one page of a list.
///
/// # Errors
/// What is wrong with it.
pub fn parse_page(body: &[u8]) -> Result<Page<'_>, String> {
    let list: List = serde_json::from_slice(body).map_err(|e| format!("not an EndpointSliceList: {e}"))?;
    if or_empty(list.kind.as_ref()) != "EndpointSliceList" {
        return Err(format!("not an EndpointSliceList but {:?}", or_empty(list.kind.as_ref())));
    }
    let metadata = list.metadata.ok_or("an EndpointSliceList without metadata")?;
    let present = |text: &Text| !text.get().is_empty();
    Ok(Page {
        resource_version: metadata.resource_version.filter(present).ok_or("a list without resourceVersion")?,
        continue_token: metadata.continue_token.filter(present),
        slices: list.items.unwrap_or_default(),
    })
}

/// Reads one line of a watch.
///
/// # Errors
/// What is wrong with it.
pub fn parse_event(line: &[u8]) -> Result<Event<'_>, String> {
    let RawEvent { kind, object } = serde_json::from_slice(line).map_err(|e| format!("not a watch event: {e}"))?;
    if kind.get() == "ERROR" {
        let message = or_empty(object.message.as_ref()).to_owned();
        return Ok(Event::Error { code: object.code.unwrap_or(0), message });
    }
    let version = object.metadata.as_ref().map_or("", |m| or_empty(m.resource_version.as_ref())).to_owned();
    if version.is_empty() {
        return Err(format!("a {} event without resourceVersion", kind.get()));
    }
    match kind.get() {
        "ADDED" | "MODIFIED" => Ok(Event::Put(object, version)),
        "DELETED" => Ok(Event::Delete(object, version)),
        "BOOKMARK" => Ok(Event::Bookmark(version)),
        other => Err(format!("unknown event type {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gives_its_version_and_where_to_go_on() {
        let body = br#"{"kind":"EndpointSliceList","metadata":{"resourceVersion":"7","continue":"abc"},"items":[{}]}"#;
        let page = parse_page(body).unwrap();
        assert_eq!((page.resource_version.get(), or_empty(page.continue_token.as_ref())), ("7", "abc"));
        assert_eq!(page.slices.len(), 1);
        let last = br#"{"kind":"EndpointSliceList","metadata":{"resourceVersion":"7","continue":""},"items":null}"#;
        assert!(parse_page(last).unwrap().continue_token.is_none());
    }

    #[test]
    fn what_is_no_list_is_never_an_empty_list() {
        for body in [
            "{}",
            "[]",
            "",
            r#"{"kind":"Status","metadata":{"resourceVersion":"7"},"code":200}"#,
            r#"{"kind":"EndpointSliceList"}"#,
            r#"{"kind":"EndpointSliceList","metadata":{},"items":[]}"#,
            r#"{"kind":"EndpointSliceList","metadata":{"resourceVersion":""},"items":[]}"#,
            r#"{"kind":"EndpointSliceList","metadata":{"resourceVersion":"7"},"items":[{"endpoints":7}]}"#,
            "<html>log in</html>",
        ] {
            assert!(parse_page(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn the_five_kinds_of_event_are_told_apart() {
        let event = |kind: &str| format!(r#"{{"type":"{kind}","object":{{"metadata":{{"resourceVersion":"9"}}}}}}"#);
        for kind in ["ADDED", "MODIFIED"] {
            assert!(matches!(parse_event(event(kind).as_bytes()), Ok(Event::Put(_, v)) if v == "9"));
        }
        assert!(matches!(parse_event(event("DELETED").as_bytes()), Ok(Event::Delete(_, v)) if v == "9"));
        assert!(matches!(parse_event(event("BOOKMARK").as_bytes()), Ok(Event::Bookmark(v)) if v == "9"));
        assert!(parse_event(event("LATER").as_bytes()).is_err());
        let gone = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        assert!(matches!(parse_event(gone), Ok(Event::Error { code: 410, message }) if message == "too old"));
        assert!(parse_event(br#"{"type":"BOOKMARK","object":{}}"#).is_err());
        assert!(parse_event(br#"{"type":"ADDED"}"#).is_err());
    }

    #[test]
    fn escaped_strings_are_read_too() {
        let page = br#"{"kind":"EndpointSliceList","metadata":{"resourceVersion":"\u0037"},"items":[]}"#;
        assert_eq!(parse_page(page).unwrap().resource_version.get(), "7");
    }
}
