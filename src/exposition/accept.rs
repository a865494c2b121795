//! Chooses the exposition format of a response from the Accept header (RFC 9110, section 12.5.1).

use crate::http::thousandths;

/// A format in which metrics can be exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus protobuf: length-delimited messages of the type
    /// `io.prometheus.client.MetricFamily`.
    Protobuf,
}

/// The most media ranges of an `Accept` header that are examined. Scrapers send up to six.
const RANGES_MAX: usize = 32;

impl Format {
    /// All formats. A client without a preference gets the first one.
    pub const ALL: [Self; 3] = [Self::Text, Self::OpenMetrics, Self::Protobuf];

    /// Returns the format that an `Accept` header prefers: the one with the highest `q`. If
    /// several have the same `q`, the one named first wins. If the header names none of the three,
    /// the result is text.
    pub fn accepted(accept: &str) -> Self {
        let mut best = (0, Self::Text);
        for range in accept.split(',').take(RANGES_MAX) {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let parameters = parts
                .filter_map(|part| part.split_once('='))
                .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')));
            let found = Self::ALL.into_iter().find(|format| format.is_named(media_type, &parameters));
            let (Some(format), Some(weight)) = (found, weight(parameters)) else { continue };
            if weight > best.0 {
                best = (weight, format);
            }
        }
        best.1
    }

    /// Returns the value of the Content-Type header for this format.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// Whether a media range, such as `text/plain; version=0.0.4`, means this format.
    fn is_named<'a>(self, media_type: &str, parameters: &(impl Iterator<Item = (&'a str, &'a str)> + Clone)) -> bool {
        let is_type = |name: &str| media_type.eq_ignore_ascii_case(name);
        let value =
            |name: &str| parameters.clone().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        match self {
            Self::Text => {
                is_type("*/*")
                    || is_type("text/*")
                    || is_type("text/plain") && matches!(value("version"), None | Some("0.0.4" | "1.0.0"))
            }
            // Clients that ask for 0.0.1 alone can read 1.0.0, too.
            Self::OpenMetrics => {
                is_type("application/openmetrics-text") && matches!(value("version"), None | Some("0.0.1" | "1.0.0"))
            }
            Self::Protobuf => {
                is_type("application/vnd.google.protobuf")
                    && value("proto") == Some("io.prometheus.client.MetricFamily")
                    && value("encoding").is_none_or(|encoding| encoding == "delimited")
            }
        }
    }
}

/// The weight `q` in thousandths. It is 1,000 if none is given, and none if it is not valid.
fn weight<'a>(mut parameters: impl Iterator<Item = (&'a str, &'a str)>) -> Option<u16> {
    let given = parameters.find(|(name, _)| name.eq_ignore_ascii_case("q"));
    given.map_or(Some(1_000), |(_, text)| thousandths(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

    #[test]
    fn scrapers_get_what_they_prefer() {
        let with = |rest: &str| format!("{PROTOBUF}{rest}");
        for (accept, format) in [
            (String::new(), Format::Text),
            ("*/*".into(), Format::Text),
            ("text/html,application/xhtml+xml;q=0.9".into(), Format::Text),
            // Prometheus 2.42 with native histograms, and without.
            (
                with(
                    ",application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ),
                Format::Protobuf,
            ),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
                    .into(),
                Format::OpenMetrics,
            ),
            // Prometheus 3, whose order of protocols can be changed.
            (
                with(
                    ";q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                      application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
                      text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                ),
                Format::Protobuf,
            ),
            (with(";q=0.2,text/plain;version=0.0.4;q=0.6"), Format::Text),
            (with(";q=0"), Format::Text),
            (with(";q=0,application/openmetrics-text;q=0.001"), Format::OpenMetrics),
            ("application/vnd.google.protobuf;proto=other;encoding=delimited".into(), Format::Text),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text".into(),
                Format::Text,
            ),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=1.000".into(), Format::OpenMetrics),
            ("text/plain;version=9.9".into(), Format::Text),
            ("application/openmetrics-text;q=2".into(), Format::Text),
            (";;;==,,q=1;".into(), Format::Text),
        ] {
            assert_eq!(Format::accepted(&accept), format, "{accept}");
        }
    }

    #[test]
    fn a_weight_that_is_not_given_is_the_highest() {
        assert_eq!(weight([("version", "1")].into_iter()), Some(1_000));
        assert_eq!(weight([("version", "1"), ("Q", "0.5")].into_iter()), Some(500));
        assert_eq!(weight([("q", "2")].into_iter()), None);
    }
}
