//! The mesh page: one document with inline style and script, so that a browser requests nothing
//! else, from this agent or from any other server.
//!
//! It is served as it is written in `page/`, so the source that a browser shows can be read there
//! and here. The server compresses it for clients that accept gzip. The bytes are constants of the
//! program file: they are read from it on a request, and [`crate::sys::settle`] returns their
//! memory within a minute.
//!
//! Rejected: a generated or minified document, which needs a second language's grammar in the
//! build.
//!
//! Names come from other agents. The script writes them only as text nodes. The policy that is sent
//! with the document ([`POLICY`]) lets the script connect only to the agent that served it.

use crate::http::{Render, Reply};
use crate::limits::FRAME_BYTES;

/// The Content-Security-Policy of [`DOCUMENT`]. It allows the page's own style and script, and
/// requests to the agent that served it. It forbids frames: another page could lay its own buttons
/// over ours. It is sent as a header because browsers ignore `frame-ancestors` elsewhere.
pub const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The whole page, as it is served.
pub const DOCUMENT: &str = concat!(
    include_str!("page/head.html"),
    include_str!("page/page.css"),
    include_str!("page/body.html"),
    include_str!("page/page.js"),
    include_str!("page/link.js"),
    include_str!("page/map.js"),
    "</script>\n</html>\n",
);

/// The bytes of [`DOCUMENT`]. An array rather than a text: a static has a name, by which the linker
/// keeps it apart from the constants of the agent, which are resident (layout/functions.ld).
static BYTES: [u8; DOCUMENT.len()] = {
    let mut bytes = [0; DOCUMENT.len()];
    bytes.copy_from_slice(DOCUMENT.as_bytes());
    bytes
};

/// Bytes of the page. After a request they stay resident until unused parts of the program file are
/// next released, and a client that accepts gzip receives a third of them.
const PAGE_BYTES_MAX: usize = 60 * 1_024;
const _: () = assert!(DOCUMENT.len() <= PAGE_BYTES_MAX, "the page has outgrown its part of the memory budget");

/// Returns the answer to `GET /`.
pub fn reply() -> Reply {
    Reply::Page { policy: POLICY, body: Box::new(PageBody::default()) }
}

/// The body of the page, which is sent in frames.
#[derive(Debug, Default)]
pub struct PageBody {
    sent: usize,
}

impl Render for PageBody {
    fn render(&mut self, out: &mut Vec<u8>) -> bool {
        let rest = &BYTES[self.sent..];
        let piece = &rest[..rest.len().min(FRAME_BYTES)];
        out.extend_from_slice(piece);
        self.sent += piece.len();
        self.sent < BYTES.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_calls_those_lists_old_that_doctor_calls_so() {
        let line = format!("\nconst LIST_AGE = {};\n", crate::limits::LIST_AGE_MAX.as_secs());
        assert!(DOCUMENT.contains(&line), "{line}");
    }

    #[test]
    fn frames_add_up_to_the_document() {
        let (mut body, mut frame, mut whole) = (PageBody::default(), Vec::with_capacity(FRAME_BYTES), Vec::new());
        loop {
            frame.clear();
            let more = body.render(&mut frame);
            assert_eq!(frame.capacity(), FRAME_BYTES);
            whole.extend_from_slice(&frame);
            if !more {
                break;
            }
        }
        assert_eq!(String::from_utf8(whole).expect("UTF-8"), DOCUMENT);
        assert!(DOCUMENT.starts_with("<!doctype html>") && DOCUMENT.ends_with("</html>\n"), "{DOCUMENT}");
    }

    #[test]
    fn the_page_requests_only_its_own_agent_and_takes_no_markup_from_data() {
        for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import", "src="]
        {
            assert!(!DOCUMENT.contains(forbidden), "{forbidden}");
        }
        // Names of XML namespaces, which are never requested.
        let addresses = DOCUMENT.matches("://").count();
        assert_eq!(addresses, DOCUMENT.matches("http://www.w3.org/2000/svg").count(), "an address in the page");
        for rule in ["default-src 'none'", "connect-src 'self'", "img-src data:", "frame-ancestors 'none'"] {
            assert!(POLICY.contains(rule), "{rule}");
        }
        assert!(!DOCUMENT.contains("http-equiv"), "the header is the only policy");
    }
}
