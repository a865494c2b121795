//! Content coding: which responses may be compressed, and whether a client accepts that (RFC 9110,
//! section 12.5.3).

use hyper::{
    HeaderMap,
    header::{self, HeaderValue},
};

/// What a request and its path determine about the coding of the response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coding {
    /// The request headers that the response depends on. None if the path is never compressed.
    vary: Option<&'static str>,
    /// Whether the body is compressed, provided that it is long enough.
    pub(super) accepts_gzip: bool,
}

impl Coding {
    /// Determines the coding of the response to a request for `path` with these headers.
    pub(super) fn negotiate(path: &str, headers: &HeaderMap) -> Self {
        let vary = match path {
            "/metrics" | "/api/v1/peers" => Some("Accept, Accept-Encoding"),
            "/" => Some("Accept-Encoding"),
            _ => path.starts_with("/api/").then_some("Accept-Encoding"),
        };
        let fields = headers.get_all(header::ACCEPT_ENCODING);
        Self { vary, accepts_gzip: vary.is_some() && accepts_gzip(fields.iter().map(HeaderValue::as_bytes)) }
    }

    /// Adds the headers that describe the coding of the body. They also forbid caching, because
    /// each response has the figures of its own moment.
    pub(super) fn describe(self, is_compressed: bool, headers: &mut HeaderMap) {
        let Some(vary) = self.vary else { return };
        headers.insert(header::VARY, HeaderValue::from_static(vary));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if is_compressed {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
}

/// Whether these Accept-Encoding fields accept gzip, and do not prefer the uncompressed
/// body. It makes one pass over the fields, which are shorter than a request's head
/// ([`crate::limits::REQUEST_HEAD_BYTES_MAX`]). If in doubt it returns false: every client
/// can read an uncompressed body. An unreadable weight is 0. If a coding is listed twice,
/// the smaller weight counts.
fn accepts_gzip<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let (mut gzip, mut identity, mut others) = (None, None, None);
    for element in fields.into_iter().flat_map(|field| field.split(|byte| *byte == b',')) {
        let mut parts = element.splitn(2, |byte| *byte == b';').map(<[u8]>::trim_ascii);
        let coding = parts.next().unwrap_or_default();
        let listed = match coding {
            b"*" => &mut others,
            _ if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip") => &mut gzip,
            _ if coding.eq_ignore_ascii_case(b"identity") => &mut identity,
            _ => continue,
        };
        let weight = parts.next().map_or(Some(1_000), weight).unwrap_or(0);
        *listed = Some(listed.map_or(weight, |smallest: u16| smallest.min(weight)));
    }
    let gzip = gzip.or(others).unwrap_or(0);
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

/// The weight that a parameter `q=…` gives, in thousandths. None if the parameter gives no weight.
fn weight(parameter: &[u8]) -> Option<u16> {
    thousandths(parameter.strip_prefix(b"q=").or(parameter.strip_prefix(b"Q="))?)
}

/// Parses a weight `q` (RFC 9110, section 12.4.2), such as `0.5`, into thousandths. Media types have
/// the same weights. Returns none if the form is not that of the standard: 0 or 1, with at most
/// three decimals, and not more than 1.
pub fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, rest) = value.split_first()?;
    let digits = match rest {
        [] => rest,
        [b'.', digits @ ..] if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => digits,
        _ => return None,
    };
    let digit = |place| digits.get(place).map_or(0, |digit| u16::from(digit - b'0'));
    match (whole, digit(0) * 100 + digit(1) * 10 + digit(2)) {
        (b'0', fraction) => Some(fraction),
        (b'1', 0) => Some(1_000),
        _ => None,
    }
}

/// Parses any bytes as an Accept-Encoding header, and as one of several.
#[cfg(feature = "fuzzing")]
pub fn fuzz_accept_encoding(data: &[u8]) {
    let accepted = accepts_gzip([data]);
    assert_eq!(accepted, accepts_gzip(data.split(|byte| *byte == b',')), "a list in one field or in many");
    assert!(!accepts_gzip([data, b"gzip;q=0"]), "what is excluded is not accepted");
    assert!(!accepted || accepts_gzip([data, b"gzip"]), "no more is asked for");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(field: &str) -> bool {
        accepts_gzip([field.as_bytes()])
    }

    #[test]
    fn gzip_is_accepted_if_it_or_a_wildcard_has_a_weight_above_0() {
        for field in [
            "gzip",
            "GZip",
            "x-gzip",
            "gzip, deflate, br, zstd",
            "deflate , gzip",
            "gzip;q=1",
            "gzip;q=1.000",
            "gzip;q=0.001",
            "gzip ; q=0.5",
            "gzip;\tQ=0.5\t",
            "*",
            "*;q=0.1",
            "br;q=1, *;q=0.5",
            "identity;q=0, *",
            "identity;q=0.5, gzip;q=0.5",
            ",, gzip ,",
            "gzip;q=1.",
            "br;q=x, gzip",
        ] {
            assert!(accepts(field), "{field}");
        }
    }

    #[test]
    fn gzip_is_not_accepted_if_excluded_less_preferred_or_malformed() {
        for field in [
            "",
            ",",
            "br",
            "identity",
            "gzip;q=0",
            "gzip;q=0.000",
            "gzip;q=0, *",
            "*, gzip;q=0",
            "*;q=0",
            "*;q=0, identity",
            "gzip;q=0.4, identity;q=0.5",
            "identity, *;q=0.9",
            "gzip, gzip;q=0",
            "gzip;q=0, x-gzip",
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.1234",
            "gzip;q=-1",
            "gzip;q=.5",
            "gzip;q=",
            "gzip;q",
            "gzip;",
            "gzip;q =1",
            "gzip;q= 1",
            "gzip;level=9",
            "gzip;q=1;q=1",
            "gzipped",
            "gz ip",
            "\"gzip\"",
            "gzip deflate",
            "gzip\u{e9}",
        ] {
            assert!(!accepts(field), "{field}");
        }
    }

    #[test]
    fn several_fields_are_one_list() {
        assert!(accepts_gzip([b"br".as_slice(), b"gzip;q=0.5"]));
        assert!(!accepts_gzip([b"gzip".as_slice(), b"identity, gzip;q=0"]));
        assert!(!accepts_gzip([]));
    }

    #[test]
    fn only_metrics_the_page_and_the_api_depend_on_accept_encoding() {
        let mut request = HeaderMap::new();
        request.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        for (path, vary) in [
            ("/metrics", Some("Accept, Accept-Encoding")),
            ("/", Some("Accept-Encoding")),
            ("/api/v1/peers", Some("Accept, Accept-Encoding")),
            ("/api/v1/verdicts", Some("Accept-Encoding")),
            ("/healthz", None),
            ("/readyz", None),
            ("/api", None),
            ("//", None),
            ("/metrics/", None),
        ] {
            let coding = Coding::negotiate(path, &request);
            assert_eq!((coding.vary, coding.accepts_gzip), (vary, vary.is_some()), "{path}");
            let mut response = HeaderMap::new();
            coding.describe(true, &mut response);
            assert_eq!(response.len(), if vary.is_some() { 3 } else { 0 }, "{path}");
        }
    }

    #[test]
    fn a_weight_has_the_form_of_the_standard() {
        let valid = [("1", 1_000), ("0", 0), ("0.5", 500), ("0.125", 125), ("1.000", 1_000), ("0.", 0)];
        for (text, weight) in valid {
            assert_eq!(thousandths(text.as_bytes()), Some(weight), "{text}");
        }
        for text in ["", "1.001", "2", "0.1234", "-1", "1e0", ".5", "0.5.5", "NaN"] {
            assert_eq!(thousandths(text.as_bytes()), None, "{text}");
        }
    }
}
