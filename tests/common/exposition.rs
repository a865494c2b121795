//! A reader for the samples of the Prometheus text format 0.0.4, as small as the tests need it. It
//! is strict, because it judges what we expose: a line that it cannot read is an error that shows
//! the line.

use std::collections::BTreeMap;

/// One sample line of an exposition.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The metric's name, with `_bucket`, `_count` or `_sum` where the line has it.
    pub name: String,
    /// Unescaped label values by name.
    pub labels: BTreeMap<String, String>,
    /// The value; its unit is in the name.
    pub value: f64,
}

impl Sample {
    /// The label's value, or "" if the sample has none: Prometheus makes no
    /// difference between the two.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// Reads a whole exposition.
///
/// # Errors
/// The first line that is not a comment, empty, or `name{label="value",…} value [timestamp]`.
pub fn parse(text: &str) -> Result<Vec<Sample>, String> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| sample(line).ok_or_else(|| format!("not a sample: {line:?}")))
        .collect()
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        while !inside.starts_with('}') {
            let (label, quoted) = inside.split_once("=\"")?;
            let (value, after) = unescape(quoted)?;
            if labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            inside = after.strip_prefix(',').or_else(|| after.starts_with('}').then_some(after))?;
        }
        rest = &inside[1..];
    }
    let value = rest.split_whitespace().next()?.replace("+Inf", "inf").parse().ok()?;
    (!name.is_empty()).then(|| Sample { name: name.to_owned(), labels, value })
}

/// Returns the value up to its closing quote, and the text after the quote.
fn unescape(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    loop {
        match chars.next()?.1 {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                same @ ('\\' | '"') => same,
                _ => return None,
            }),
            plain => value.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn labels_values_and_comments_are_distinguished() {
        let text =
            "# HELP a b\n# TYPE a counter\na_total{x=\"1\",y=\"q\\\"\\\\\\n}, \"} 4.5 1700000000000\nb 1e3\nc{} +Inf\n";
        let samples = parse(text).unwrap();
        assert_eq!(samples.len(), 3);
        assert_eq!(samples[0].name, "a_total");
        assert_eq!(samples[0].label("y"), "q\"\\\n}, ");
        assert_eq!(samples[0].label("absent"), "");
        assert!((samples[0].value - 4.5).abs() < f64::EPSILON);
        assert!((samples[1].value - 1000.0).abs() < f64::EPSILON);
        assert!(samples[2].value.is_infinite());
    }

    #[test]
    fn a_broken_line_is_an_error_that_quotes_it() {
        for line in ["a{x=\"1} 2", "a{x=1} 2", "a", "a{x=\"1\"} two", "a{x=\"1\",x=\"2\"} 3", "a{x=\"\\q\"} 1"] {
            assert!(parse(line).unwrap_err().contains(line.split('"').next().unwrap()), "{line}");
        }
    }
}
