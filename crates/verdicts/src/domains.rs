//! The failure domains of an operator: racks or power feeds, for example.
//!
//! Each line of the file has a pattern of node names and the name of their domain. The file is the
//! only source of domains: no report can claim one.

use kube_canary_model::limits::{
    DOMAIN_LINES_MAX, DOMAIN_PATTERNS_MAX, DOMAINS_FILE_BYTES_MAX, DOMAINS_MAX, NAME_BYTES_MAX,
};

/// The domain number of nodes without a domain.
pub const DOMAIN_NONE: u8 = 0;
/// The wildcard of a pattern: it matches any characters, also none.
const ANY: char = '*';
/// Largest number of characters of a bad line that its error shows.
const SHOWN_MAX: usize = 80;

const _: () = assert!(DOMAINS_MAX < u8::MAX as usize);
const _: () = assert!(NAME_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(DOMAIN_LINES_MAX <= u16::MAX as usize && DOMAINS_FILE_BYTES_MAX <= u32::MAX as u64);

/// A line that is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Number of the line, counted from 1.
    pub line: usize,
    /// What is wrong with the line.
    pub reason: String,
}

/// Position of a name in [`Domains::text`].
#[derive(Clone, Copy, Debug, Default)]
struct NameSpan {
    begin: u32,
    len: u8,
}

/// A node name or pattern, and the number of its domain: 12 bytes.
#[derive(Clone, Copy, Debug)]
struct DomainLine {
    nodes: NameSpan,
    /// Position among all lines of the file.
    order: u16,
    domain: u8,
}

/// The domains, and which nodes are in them. Takes 12 bytes per line, and the names.
#[derive(Debug, Default)]
pub struct Domains {
    text: String,
    /// The names of the domains, sorted. The number of a domain is its index here plus 1.
    names: Vec<NameSpan>,
    /// Lines without a wildcard, sorted by name, then by their order in the file.
    nodes: Vec<DomainLine>,
    /// Lines with a wildcard, in the order of the file.
    patterns: Vec<DomainLine>,
}

impl Domains {
    /// Parses the text of a file. A line has a pattern and a domain, separated by white space; `#`
    /// begins a comment. A node belongs to the domain of the first line that matches it.
    ///
    /// # Errors
    /// [`BadLine`]: the first bad line.
    pub fn parse(text: &[u8]) -> Result<Self, BadLine> {
        let text = str::from_utf8(text).map_err(|error| {
            let line = text[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
            BadLine { line, reason: "not valid UTF-8".to_owned() }
        })?;
        let (mut entries, mut names): (Vec<(&str, &str)>, Vec<&str>) = (Vec::new(), Vec::new());
        let mut patterns = 0;
        for (index, line) in text.lines().enumerate() {
            let bad = |reason: String| BadLine { line: index + 1, reason };
            let mut fields = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(nodes) = fields.next() else { continue };
            let (Some(domain), None) = (fields.next(), fields.next()) else {
                let shown: String = line.chars().take(SHOWN_MAX).collect();
                return Err(bad(format!("{shown:?} is not a pattern and a domain")));
            };
            check(nodes, "pattern").and_then(|()| check(domain, "domain")).map_err(bad)?;
            if domain.contains(ANY) {
                return Err(bad(format!("the domain has a {ANY}, which only a pattern may have")));
            }
            patterns += usize::from(nodes.contains(ANY));
            if patterns > DOMAIN_PATTERNS_MAX {
                return Err(bad(format!("more than {DOMAIN_PATTERNS_MAX} patterns with a {ANY}")));
            }
            if entries.len() == DOMAIN_LINES_MAX {
                return Err(bad(format!("more than {DOMAIN_LINES_MAX} lines with a domain")));
            }
            if let Err(place) = names.binary_search(&domain) {
                if names.len() == DOMAINS_MAX {
                    return Err(bad(format!("more than {DOMAINS_MAX} domains")));
                }
                names.insert(place, domain);
            }
            entries.push((nodes, domain));
        }
        Ok(Self::from_entries(&entries, &names, patterns))
    }

    fn from_entries(entries: &[(&str, &str)], names: &[&str], patterns: usize) -> Self {
        let bytes = entries.iter().map(|(nodes, _)| nodes).chain(names).map(|name| name.len()).sum();
        let mut domains = Self {
            text: String::with_capacity(bytes),
            names: Vec::with_capacity(names.len()),
            nodes: Vec::with_capacity(entries.len() - patterns),
            patterns: Vec::with_capacity(patterns),
        };
        for name in names {
            let span = domains.add(name);
            domains.names.push(span);
        }
        for (order, (nodes, domain)) in (0..).zip(entries) {
            let place = names.binary_search(domain).unwrap_or_default();
            let domain = u8::try_from(place + 1).unwrap_or(DOMAIN_NONE);
            let line = DomainLine { nodes: domains.add(nodes), order, domain };
            if nodes.contains(ANY) { &mut domains.patterns } else { &mut domains.nodes }.push(line);
        }
        let Self { text, nodes, .. } = &mut domains;
        nodes.sort_unstable_by_key(|line| (get(text, line.nodes), line.order));
        domains
    }

    /// Appends a name whose length was checked.
    fn add(&mut self, name: &str) -> NameSpan {
        let begin = u32::try_from(self.text.len()).unwrap_or_default();
        self.text.push_str(name);
        NameSpan { begin, len: u8::try_from(name.len()).unwrap_or_default() }
    }

    /// Returns the number of the domain of `node`, or [`DOMAIN_NONE`].
    pub fn domain_of(&self, node: &str) -> u8 {
        let first = self.nodes.partition_point(|line| get(&self.text, line.nodes) < node);
        let exact = self.nodes.get(first).filter(|line| get(&self.text, line.nodes) == node);
        let before = exact.map_or(u16::MAX, |line| line.order);
        let mut patterns = self.patterns.iter().take_while(|line| line.order < before);
        let line = patterns.find(|line| is_match(get(&self.text, line.nodes), node)).or(exact);
        line.map_or(DOMAIN_NONE, |line| line.domain)
    }

    /// Returns the name of a domain. It is empty if there is no such domain.
    pub fn name(&self, domain: u8) -> &str {
        let place = usize::from(domain).checked_sub(1);
        place.and_then(|place| self.names.get(place)).map_or("", |span| get(&self.text, *span))
    }

    /// Returns the number of domains.
    pub const fn count(&self) -> usize {
        self.names.len()
    }
}

fn get(text: &str, span: NameSpan) -> &str {
    let begin = span.begin as usize;
    text.get(begin..begin + usize::from(span.len)).unwrap_or_default()
}

fn check(name: &str, what: &str) -> Result<(), String> {
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("the {what} is longer than {NAME_BYTES_MAX} bytes"));
    }
    if name.chars().any(char::is_control) {
        return Err(format!("the {what} holds a control character"));
    }
    Ok(())
}

/// Whether `pattern` matches `name`. Takes time proportional to the lengths of both.
fn is_match(pattern: &str, name: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once(ANY) else { return pattern == name };
    let Some(mut name) = name.strip_prefix(begin) else { return false };
    let (middle, end) = rest.rsplit_once(ANY).unwrap_or(("", rest));
    for part in middle.split(ANY) {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests;
