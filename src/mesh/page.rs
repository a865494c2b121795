//! The mesh page: one document with inline style and script, so that a browser requests nothing
//! else, from this agent or from any other server.
//!
//! It is served as it is written in `page/`, without the comments and the indentation of its lines.
//! So the source that a browser shows can be read there and here, and what explains it costs no
//! memory. The server compresses it for clients that accept gzip. The bytes are constants of the
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

/// The Content-Security-Policy of the page. It allows the page's own style and script, and
/// requests to the agent that served it. It forbids frames: another page could lay its own buttons
/// over ours. It is sent as a header because browsers ignore `frame-ancestors` elsewhere.
pub const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The whole page, as it is written.
const SOURCE: &str = concat!(
    include_str!("page/head.html"),
    include_str!("page/page.css"),
    include_str!("page/body.html"),
    include_str!("page/page.js"),
    include_str!("page/nodes.js"),
    include_str!("page/zones.js"),
    include_str!("page/past.js"),
    include_str!("page/link.js"),
    include_str!("page/map.js"),
    "</script>\n</html>\n",
);

/// The bytes of the page, and how many they are. They are not in the program file.
const STRIPPED: ([u8; SOURCE.len()], usize) = stripped(SOURCE.as_bytes());

/// The page as it is served. An array rather than a text: a static has a name, by which the linker
/// keeps it apart from the constants of the agent, which are resident (layout/functions.ld).
static BYTES: [u8; STRIPPED.1] = {
    let mut bytes = [0; STRIPPED.1];
    bytes.copy_from_slice(STRIPPED.0.split_at(STRIPPED.1).0);
    bytes
};

/// Returns the lines of a text without their indentation, and without those that are comments or
/// empty. No text and no comment of the page continues on a second line.
const fn stripped<const N: usize>(source: &[u8]) -> ([u8; N], usize) {
    let (mut kept, mut len, mut at) = ([0; N], 0, 0);
    while at < source.len() {
        if source[at] == b' ' {
            at += 1;
            continue;
        }
        let is_comment = source[at] == b'/' && matches!(source[at + 1], b'/' | b'*') || source[at] == b'\n';
        let mut is_over = false;
        while !is_over {
            is_over = source[at] == b'\n';
            if !is_comment {
                kept[len] = source[at];
                len += 1;
            }
            at += 1;
        }
    }
    (kept, len)
}

/// Bytes of the page. After a request they stay resident until unused parts of the program file are
/// next released, and a client that accepts gzip receives a third of them.
const PAGE_BYTES_MAX: usize = 64 * 1_024;
const _: () = assert!(STRIPPED.1 <= PAGE_BYTES_MAX, "the page has outgrown its part of the memory budget");

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

    const DOCS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/");

    fn document() -> &'static str {
        std::str::from_utf8(&BYTES).expect("UTF-8")
    }

    #[test]
    fn only_comments_and_indentation_are_left_out() {
        let is_kept = |line: &&str| !line.is_empty() && !line.starts_with("//") && !line.starts_with("/*");
        let lines: Vec<&str> = SOURCE.lines().map(|line| line.trim_start_matches(' ')).filter(is_kept).collect();
        assert_eq!(document().lines().collect::<Vec<_>>(), lines);
        assert!(SOURCE.lines().all(|line| line.contains("/*") == line.ends_with("*/")), "comments of one line");
        // A text over several lines would lose a part of itself.
        let script = SOURCE.split_once("<script>").expect("a script").1;
        let broken: Vec<&str> = script.lines().filter(|line| line.matches('`').count() % 2 == 1).collect();
        assert!(broken.is_empty(), "{broken:?}");
    }

    #[test]
    fn each_runbook_is_a_heading_of_the_documents_that_alerts_name() {
        let headings = |text: &'static str| {
            let lines = text.lines().filter(|line| line.starts_with('#'));
            lines.map(|line| line.trim_start_matches(['#', ' ']).to_lowercase().replace(' ', "-")).collect::<Vec<_>>()
        };
        let alerts = headings(include_str!("../../docs/alerts.md"));
        let object = SOURCE.split_once("const RUNBOOKS = {").and_then(|(_, rest)| rest.split_once("};"));
        let names =
            object.expect("runbooks").0.split('\'').skip(1).step_by(2).chain(["kubecanaryfault", "udp-or-tcp-alone"]);
        let unknown: Vec<&str> = names.filter(|name| !alerts.iter().any(|heading| heading == name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert!(SOURCE.contains("'verdicts.md#flows-and-large-packets'"));
        assert!(
            headings(include_str!("../../docs/verdicts.md")).iter().any(|heading| heading == "flows-and-large-packets")
        );
        let rules = include_str!("../../deploy/prometheus/kube-canary.rules.yaml");
        assert!(rules.contains(&format!("runbook_url: {DOCS}alerts.md#kubecanaryfault")));
    }

    #[test]
    fn the_page_calls_those_lists_old_that_doctor_calls_so() {
        let line = format!("\nconst LIST_AGE = {};\n", crate::limits::LIST_AGE_MAX.as_secs());
        assert!(SOURCE.contains(&line), "{line}");
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
        assert_eq!(whole, BYTES);
        assert!(document().starts_with("<!doctype html>") && document().ends_with("</html>\n"), "{}", document());
    }

    #[test]
    fn the_page_requests_only_its_own_agent_and_takes_no_markup_from_data() {
        for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import", "src="]
        {
            assert!(!SOURCE.contains(forbidden), "{forbidden}");
        }
        // Names of XML namespaces, which are never requested, and documents that a reader opens.
        let addresses = SOURCE.matches("://").count();
        let namespaces = SOURCE.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(addresses, namespaces + SOURCE.matches(DOCS).count(), "an address in the page");
        for rule in ["default-src 'none'", "connect-src 'self'", "img-src data:", "frame-ancestors 'none'"] {
            assert!(POLICY.contains(rule), "{rule}");
        }
        assert!(!SOURCE.contains("http-equiv"), "the header is the only policy");
    }
}
