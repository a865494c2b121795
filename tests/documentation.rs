//! The documentation of a public function says what it does, and that of a type or a constant has a
//! verb, a unit, a bound, a shape or a source. A figure between markers is that of the report.
//!
//! The check of documentation reads the text, not the grammar. A function's documentation begins
//! with a verb in the third person or with "Whether". For everything else, one of the words below
//! is enough. A word that is missing here can be added. The aim is to find documentation that only
//! repeats a name.

#[path = "common/sources.rs"]
mod sources;

use std::collections::BTreeMap;

use sources::{read, root, rust_files};

/// Documents with figures of docs/report.md between markers.
const MARKED: [&str; 6] = [
    "README.md",
    "docs/operators-guide.md",
    "deploy/base/daemonset.yaml",
    "deploy/daemonset.yaml",
    "deploy/helm/kube-canary/values.yaml",
    "src/commands/demo/table.rs",
];

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

/// Returns the words of each marked text by its name. What precedes the marker in its line, such as
/// the `#` of a comment, precedes every line of the text.
fn marked_texts(document: &str) -> BTreeMap<String, Vec<String>> {
    let (mut texts, mut lines) = (BTreeMap::new(), document.lines());
    while let Some(line) = lines.next() {
        let Some((prefix, name)) = line.split_once("<!-- report: ") else { continue };
        let name = name.trim_end_matches(" -->").to_owned();
        let text = lines.by_ref().take_while(|line| !line.ends_with("<!-- end of report -->"));
        let plain = text.map(|line| line.strip_prefix(prefix).unwrap_or(line).trim().to_owned());
        let words = plain.flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
        assert!(texts.insert(name.clone(), words).is_none(), "two texts are marked {name}");
    }
    texts
}

#[test]
fn marked_figures_are_those_of_the_report() {
    let report = marked_texts(&read(&root().join("docs/report.md")));
    let mut unused: Vec<&String> = report.keys().collect();
    for path in MARKED {
        let texts = marked_texts(&read(&root().join(path)));
        assert!(!texts.is_empty(), "{path}: no text is marked");
        for (name, words) in texts {
            let expected = report.get(&name).unwrap_or_else(|| panic!("{path}: docs/report.md has no text {name}"));
            assert_eq!(
                &words, expected,
                "{path}: {name} is not the report's: `bench/report --only none --write` copies it"
            );
            unused.retain(|unused| **unused != name);
        }
    }
    assert!(unused.is_empty(), "no document has these texts of docs/report.md: {unused:?}");
}

#[test]
fn marked_text_ends_at_its_marker_and_lacks_its_prefix() {
    let texts =
        marked_texts("a\n  # <!-- report: costs -->\n  # 1 KB,\n  #  2 KB\n  # <!-- end of report -->\n  # more\n");
    assert_eq!(texts, BTreeMap::from([("costs".to_owned(), ["1", "KB,", "2", "KB"].map(str::to_owned).to_vec())]));
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
