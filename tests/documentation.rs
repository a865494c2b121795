//! The documentation of a public function says what it does, and that of a type or a constant has a
//! verb, a unit, a bound, a shape or a source.
//!
//! It checks the text, not the grammar. A function's documentation begins with a verb in the third
//! person or with "Whether". For everything else, one of the words below is enough. A word that is
//! missing here can be added. The aim is to find documentation that only repeats a name.

#[path = "common/sources.rs"]
mod sources;

use sources::{read, root, rust_files};

/// Verbs in a finite form. Words that are also nouns count, because the check does not parse.
const VERBS: &str = "
    accept accepts adds advances allow allows answer answers appear appears appends applies are arrive arrives
    asked asks be begin begins belong belongs borrows calls can cannot cause causes changed checks closes
    collect collects come comes compute computes connects consumes contain contains converts cost costs count
    counts cover covers creates decide decides decodes depend depends describes did differ differs do does drops
    encodes ends exist exists expects failed fails fills finds fires fit fits follow follows forgets formats
    frees gave get gets give gives grows had handles happened has have hold holds identifies is iterates joins
    judges keep keeps know knows last leads learns leave leaves left limits lists logs looks lose loses lost
    makes maps mark marks matches may mean means measured measures moves must names need needs notes numbers
    opens owns packs parses passes pauses points probe probes raises reach reaches read reads received receives records
    refers refused refuses registers releases remembers removes rendered renders repeats replaces report
    reported reports reserves resizes resolves returns run runs say says see sees selects send sends sent serve
    serves set sets share shares should show shows sorts spread stands start started starts state states stays
    stopped stops stores take takes tells took treat unmaps updates use used uses wait waits wakes wants was
    watches were will withholds work would wraps writes";
/// Words that say a unit, a bound or a shape.
const UNITS: &str = "
    all ascending bits both bounds bytes default each every index json kb largest list longest milliseconds
    minutes nanoseconds none number one order per percent position rfc seconds shortest smallest sum sums timeout utf-8";

/// A public item with its documentation.
#[derive(Debug, PartialEq, Eq)]
struct Item {
    line: usize,
    is_function: bool,
    documentation: String,
}

/// Returns the documented public items of a file.
fn items(source: &str) -> Vec<Item> {
    let (mut items, mut documentation, mut first, mut in_attribute) = (Vec::new(), String::new(), 0, false);
    for (number, line) in (1..).zip(source.lines().map(str::trim)) {
        if let Some(text) = line.strip_prefix("///") {
            if documentation.is_empty() {
                first = number;
            }
            documentation.push_str(text);
            continue;
        }
        if in_attribute || line.starts_with("#[") {
            in_attribute = !line.ends_with(']');
            continue;
        }
        let mut words = line.split_whitespace().skip_while(|word| ["const", "unsafe", "async"].contains(word));
        if words.next() == Some("pub") && !documentation.is_empty() {
            let is_qualifier = |word: &&str| ["unsafe", "async", "extern", "\"C\""].contains(word);
            let mut words = words.skip_while(is_qualifier).peekable();
            let is_constant = words.next_if_eq(&"const").is_some();
            let kind = words.find(|word| !is_qualifier(word)).unwrap_or_default();
            let is_item = ["fn", "struct", "enum", "static", "trait", "type", "mod", "union"].contains(&kind);
            if is_item || is_constant {
                let documentation = documentation.clone();
                items.push(Item { line: first, is_function: kind == "fn", documentation });
            }
        }
        documentation.clear();
    }
    items
}

/// Whether the documentation says something besides the name.
fn says_something(item: &Item) -> bool {
    let is_in = |list: &str, word: &str| list.split_whitespace().any(|known| known == word);
    let plain = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let mut words = item.documentation.split_whitespace().map(plain);
    if item.is_function {
        return words.next().is_some_and(|word| word == "whether" || is_in(VERBS, &word));
    }
    // A manual page, such as pipe(7), or a document of ours.
    let has_source = (1..=8).any(|page| item.documentation.contains(&format!("({page})")));
    has_source || item.documentation.contains("docs/") || words.any(|word| is_in(VERBS, &word) || is_in(UNITS, &word))
}

#[test]
fn public_documentation_says_more_than_the_name() {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for path in ["src", "crates"].iter().flat_map(|folder| rust_files(&root().join(folder))) {
        let items = items(&read(&path));
        checked += items.len();
        let path = path.strip_prefix(root()).expect("below it").display();
        let failed = items.iter().filter(|item| !says_something(item));
        wrong.extend(failed.map(|item| format!("{path}:{}:{}", item.line, item.documentation)));
    }
    assert!(checked > 1_000, "only {checked} items were found");
    assert!(
        wrong.is_empty(),
        "a function's documentation begins with a verb (Returns, Reads, Whether), and that of a type or a constant \
         has a verb, a unit or a source:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_check_finds_documentation_that_repeats_the_name() {
    for (source, expected) in [
        ("/// The settings of the prober.\n#[derive(Debug)]\npub struct Settings;\n", Some(false)),
        ("/// The settings that the prober runs with.\npub struct Settings;\n", Some(true)),
        ("/// Bytes of a frame.\npub const FRAME: usize = 1;\n", Some(true)),
        ("/// The peer.\n    pub const fn peer(&self) -> &Peer {\n", Some(false)),
        ("/// Returns the peer.\n    pub const unsafe fn peer(&self) -> &Peer {\n", Some(true)),
        ("/// Whether it waits.\n#[expect(\n    x\n)]\npub async fn waits() -> bool {\n", Some(true)),
        ("/// A number that is returned.\npub fn number() -> u8 {\n", Some(false)),
        ("/// The buffer of pipe(7).\npub type Buffer = [u8; 9];\n", Some(true)),
        ("/// The name.\nlet name = 1;\n", None),
        ("/// The name.\npub(super) struct Name;\n", None),
    ] {
        assert_eq!(items(source).first().map(says_something), expected, "{source}");
    }
}
