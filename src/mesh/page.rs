//! The mesh page: one document with inline style and script, so that a browser requests nothing
//! else, from this agent or from any other server.
//!
//! It is assembled at compile time from `page/`, line by line. Indentation, empty lines and comment
//! lines are left out, and so are spaces beside punctuation outside quotes. Therefore a comment in
//! these files must be on its own lines, and no text may span lines.
//!
//! Rejected: a generated or compressed document. The source that a browser shows can be read there
//! and here. The bytes are constants of the program file, and [`crate::sys::settle`] returns their
//! memory within a minute of their use.
//!
//! Names come from other agents. The script writes them only as text nodes. The policy that is sent
//! with the document ([`POLICY`]) lets the script connect only to the agent that served it.

use crate::http::{Render, Reply};
use crate::limits::{FRAME_BYTES, PAGE_BYTES_MAX};

/// The Content-Security-Policy of [`DOCUMENT`]. It allows the page's own style and script, and
/// requests to the agent that served it. It forbids frames: another page could lay its own buttons
/// over ours. It is sent as a header because browsers ignore `frame-ancestors` elsewhere.
pub const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The files of the page. The first is the document; a line `@@name` in it is
/// replaced by that file.
const FILES: [(&str, &str); 5] = [
    ("index.html", include_str!("page/index.html")),
    ("page.css", include_str!("page/page.css")),
    ("page.js", include_str!("page/page.js")),
    ("pair.js", include_str!("page/pair.js")),
    ("map.js", include_str!("page/map.js")),
];

const DOCUMENT_BYTES: usize = assemble(&mut []);
static BYTES: [u8; DOCUMENT_BYTES] = {
    let mut bytes = [0; DOCUMENT_BYTES];
    assemble(&mut bytes);
    bytes
};

/// The whole page, as it is served.
pub const DOCUMENT: &str = match std::str::from_utf8(&BYTES) {
    Ok(text) => text,
    Err(_) => panic!("whole lines of UTF-8 files are UTF-8"),
};

const _: () = assert!(DOCUMENT_BYTES <= PAGE_BYTES_MAX, "the page has outgrown its part of the memory budget");

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
        let rest = &DOCUMENT.as_bytes()[self.sent..];
        let piece = &rest[..rest.len().min(FRAME_BYTES)];
        out.extend_from_slice(piece);
        self.sent += piece.len();
        self.sent < DOCUMENT_BYTES
    }
}

/// Writes the document into `out`, unless `out` is too short. Returns the document's length.
const fn assemble(out: &mut [u8]) -> usize {
    let document = FILES[0].1.as_bytes();
    let (mut at, mut written) = (0, 0);
    while at < document.len() {
        let (start, end) = line(document, at);
        at = end + 1;
        if end - start > 2 && document[start] == b'@' && document[start + 1] == b'@' {
            written = insert(document, start + 2, end, out, written);
        } else {
            written = copy(document, start, end, out, written);
        }
    }
    written
}

/// Copies the file that is named between `start` and `end`.
const fn insert(document: &[u8], start: usize, end: usize, out: &mut [u8], mut written: usize) -> usize {
    let mut file = 1;
    while !is(FILES[file].0.as_bytes(), document, start, end) {
        file += 1;
        assert!(file < FILES.len(), "index.html names a file that is not there");
    }
    let text = FILES[file].1.as_bytes();
    let dense: &[u8] = if is(b"page.css", document, start, end) { b":;,{}" } else { b"=,;:?{}()[]<>|&*!" };
    let mut at = 0;
    while at < text.len() {
        let (start, end) = line(text, at);
        at = end + 1;
        written = copy_dense(text, start, end, dense, out, written);
    }
    written
}

/// Copies a line of the style or script without the spaces beside the characters `dense`, except
/// inside quotes. In a line with a slash or a backquote, quotes may be parts of patterns or of
/// nested texts, so such a line is copied unchanged.
const fn copy_dense(text: &[u8], start: usize, end: usize, dense: &[u8], out: &mut [u8], mut written: usize) -> usize {
    if has(b"/`", text, start, end) || start == end {
        return copy(text, start, end, out, written);
    }
    let (mut at, mut quote) = (start, 0);
    // The end of the line is copied, too.
    while at <= end && at < text.len() {
        let byte = text[at];
        let is_idle = quote == 0
            && byte == b' '
            && (has(dense, text, at - 1, at)
                || (dense.len() > 5 || text[at + 1] != b':') && has(dense, text, at + 1, at + 2));
        if byte == quote {
            quote = 0;
        } else if quote == 0 && (byte == b'\'' || byte == b'"') {
            quote = byte;
        }
        if !is_idle {
            if written < out.len() {
                out[written] = byte;
            }
            written += 1;
        }
        at += 1;
    }
    written
}

/// Whether any of `bytes` occurs in this part of the text.
const fn has(bytes: &[u8], text: &[u8], start: usize, end: usize) -> bool {
    let mut at = start;
    while at < end {
        let mut of = 0;
        while of < bytes.len() {
            if text[at] == bytes[of] {
                return true;
            }
            of += 1;
        }
        at += 1;
    }
    false
}

/// Returns the line that begins at `start`: from its first byte that is not a space, to its end.
const fn line(text: &[u8], mut start: usize) -> (usize, usize) {
    while start < text.len() && text[start] == b' ' {
        start += 1;
    }
    let mut end = start;
    while end < text.len() && text[end] != b'\n' {
        end += 1;
    }
    (start, end)
}

const fn copy(text: &[u8], start: usize, end: usize, out: &mut [u8], written: usize) -> usize {
    let comment = end - start >= 2 && text[start] == b'/' && (text[start + 1] == b'/' || text[start + 1] == b'*');
    if comment || start == end {
        return written;
    }
    let length = end - start + 1;
    if written + length <= out.len() {
        let (_, rest) = out.split_at_mut(written);
        let (line, _) = rest.split_at_mut(length);
        let (_, from) = text.split_at(start);
        let (from, _) = from.split_at(length);
        line.copy_from_slice(from);
    }
    written + length
}

const fn is(name: &[u8], text: &[u8], start: usize, end: usize) -> bool {
    let mut at = 0;
    while at < name.len() && start + at < end && name[at] == text[start + at] {
        at += 1;
    }
    at == name.len() && start + at == end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_calls_those_lists_old_that_doctor_calls_so() {
        let line = format!("\nconst LIST_AGE = {};\n", crate::limits::LIST_AGE_MAX.as_secs());
        assert!(FILES.iter().any(|(name, text)| *name == "page.js" && text.contains(&line)), "{line}");
    }

    #[test]
    fn spaces_are_left_out_beside_punctuation_and_nowhere_else() {
        let dense = |line: &[u8], dense: &[u8]| {
            let mut out = [0; 100];
            let written = copy_dense(line, 0, line.len() - 1, dense, &mut out, 0);
            String::from_utf8(out[..written].to_vec()).expect("text")
        };
        let script = b"=,;:?{}()[]<>|&*!";
        for (line, expected) in [
            ("const [a, b] = x ? [1] : y + -1;\n", "const[a,b]=x?[1]:y + -1;\n"),
            ("say('a, b', \"c = ' d\", e);\n", "say('a, b',\"c = ' d\",e);\n"),
            ("say(`a, ${b} = c`, d);\n", "say(`a, ${b} = c`, d);\n"),
            ("x = a / b, y;\n", "x = a / b, y;\n"),
            ("}\n", "}\n"),
        ] {
            assert_eq!(dense(line.as_bytes(), script), expected);
        }
        let style = "h1 span, a :hover { color: var(--x); margin: 0 auto; }\n";
        assert_eq!(dense(style.as_bytes(), b":;,{}"), "h1 span,a :hover{color:var(--x);margin:0 auto;}\n");
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
    fn every_line_that_says_something_is_in_the_document() {
        let says = |line: &&str| !(line.is_empty() || line.starts_with("//") || line.starts_with("/*"));
        let lines = |text: &'static str| text.lines().map(str::trim_start).filter(says);
        let mut expected = String::new();
        for of_document in lines(FILES[0].1) {
            match FILES.iter().find(|(name, _)| of_document.strip_prefix("@@") == Some(*name)) {
                Some((_, text)) => lines(text).for_each(|line| expected.extend([line, "\n"])),
                None => expected.extend([of_document, "\n"]),
            }
        }
        assert_eq!(DOCUMENT.replace(' ', ""), expected.replace(' ', ""));
        for line in lines(FILES[1].1).chain(lines(FILES[2].1)).filter(|line| line.contains('/') || line.contains('`')) {
            assert!(DOCUMENT.contains(line), "{line}");
        }
    }

    #[test]
    fn a_comment_in_the_sources_ends_on_its_line() {
        for (name, text) in FILES {
            for line in text.lines().map(str::trim).filter(|line| line.starts_with("/*")) {
                assert!(line.find("*/") == Some(line.len() - 2), "{name}: {line}");
            }
            assert!(text.ends_with('\n'), "{name}");
        }
    }

    #[test]
    fn the_page_asks_nobody_else_and_takes_no_markup_from_data() {
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
