//! Parses the text exposition format line by line: name, labels and value, and nothing else.
//!
//! It is our own because it is so small. The crates that parse the format hold a whole scrape and
//! depend on regular expressions or dates. We read a dozen samples at the head of megabytes.

use std::borrow::Cow;

/// A sample that borrows its line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The name of the metric, with its suffix.
    pub name: &'a str,
    /// The text between the braces, with or without a last comma.
    labels: &'a str,
    /// The value. Its unit is in the name.
    pub value: f64,
}

impl<'a> Sample<'a> {
    /// Parses `name{label="value",…} value [timestamp]`. Returns none for a comment
    /// or an invalid line.
    pub fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim();
        let end = line.find(['{', ' ', '\t']).filter(|end| *end > 0 && !line.starts_with('#'))?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => {
                let close = closing_brace(inside)?;
                (&inside[..close], &inside[close + 1..])
            }
            None => ("", rest),
        };
        // Rust parses +Inf and NaN as the format writes them.
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }

    /// Returns the unescaped value of a label. Returns none if the sample has no such label, or an
    /// empty one: Prometheus treats the two alike.
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.labels;
        loop {
            let (found, quoted) = rest.split_once("=\"")?;
            let end = closing_quote(quoted)?;
            if found.trim() == name {
                return Some(unescape(&quoted[..end])).filter(|value| !value.is_empty());
            }
            rest = quoted[end + 1..].trim_start().strip_prefix(',')?;
        }
    }
}

/// Finds the brace that ends the labels. A brace inside a value is part of the value.
fn closing_brace(inside: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + inside[from..].find(['"', '}'])?;
        if inside.as_bytes()[at] == b'}' {
            return Some(at);
        }
        from = at + 1 + closing_quote(&inside[at + 1..])? + 1;
    }
}

/// Finds the quote that ends a value. The text starts after its first quote.
fn closing_quote(quoted: &str) -> Option<usize> {
    let mut escaped = false;
    quoted.bytes().position(|byte| {
        let end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        end
    })
}

fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some('n')) => value.push('\n'),
            ('\\', Some(same @ ('\\' | '"'))) => value.push(same),
            // As in Prometheus, a backslash before any other character stands for itself.
            (plain, _) => {
                value.push(plain);
                continue;
            }
        }
        chars.next();
    }
    value.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(line: &str, name: &str) -> Option<String> {
        Sample::parse(line).unwrap().label(name).map(Cow::into_owned)
    }

    #[test]
    fn a_sample_has_a_name_labels_and_a_value() {
        for (line, name, value) in [
            ("process_threads 5", "process_threads", 5.0),
            ("a{x=\"1\",y=\"2\"} 1e3 1700000000000", "a", 1_000.0),
            ("a{} -0.5", "a", -0.5),
            ("a\t7", "a", 7.0),
            ("a{x=\"}\"} +Inf", "a", f64::INFINITY),
        ] {
            let sample = Sample::parse(line).unwrap();
            assert_eq!((sample.name, sample.value.total_cmp(&value)), (name, std::cmp::Ordering::Equal), "{line}");
        }
        assert!(Sample::parse("a NaN").unwrap().value.is_nan());
    }

    #[test]
    fn label_values_are_read_with_their_escapes() {
        let line = r#"a{x="q\"\\\n}, y=\"no\"",y="",z="ü \q",last="\\",} 1"#;
        assert_eq!(label(line, "x").unwrap(), "q\"\\\n}, y=\"no\"");
        assert_eq!(label(line, "y"), None);
        assert_eq!(label(line, "z").unwrap(), "ü \\q");
        assert_eq!(label(line, "last").unwrap(), "\\");
        assert_eq!(label(line, "absent"), None);
        assert_eq!(label("a 1", "x"), None);
    }

    #[test]
    fn what_is_no_sample_is_none_and_no_panic() {
        for line in
            ["", "#", "# HELP a b", "a", "a{", "a{x=\"1} 2", "a{x=\"1\"}", "a two", "{x=\"1\"} 1", "a{\"\\", "a{x=\"ü"]
        {
            assert_eq!(Sample::parse(line), None, "{line}");
        }
        assert_eq!(label("a{x} 1", "x"), None);
        assert_eq!(label("a{x=\"1\"y=\"2\"} 1", "y"), None);
    }
}
