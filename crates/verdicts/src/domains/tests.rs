use super::*;

fn domains(text: &str) -> Domains {
    Domains::parse(text.as_bytes()).unwrap_or_else(|bad| panic!("{bad:?} in {text}"))
}

fn bad(text: &[u8]) -> BadLine {
    Domains::parse(text).expect_err("a bad line")
}

fn domain_of<'a>(domains: &'a Domains, node: &str) -> &'a str {
    domains.name(domains.domain_of(node))
}

#[test]
fn a_star_stands_for_any_characters_and_for_none() {
    for (pattern, matching, others) in [
        ("rack-a-*", &["rack-a-", "rack-a-1", "rack-a-1.x"][..], &["rack-a", "rack-b-1", "x-rack-a-1"][..]),
        ("*.north", &[".north", "a.north", "a.north.north"], &["north", "a.northern"]),
        ("*", &["", "a"], &[]),
        ("a*b*c", &["abc", "a-b-c", "abbcc", "abcbc"], &["ab", "acb", "abcd", "xabc"]),
        ("a*a", &["aa", "aba"], &["a", "ab"]),
        ("a**b", &["ab", "a-b"], &["a", "b"]),
        ("*b*", &["b", "abc"], &["", "ac"]),
        ("ab*ba", &["abba", "ab-ba"], &["aba", "abab"]),
        ("é*", &["é", "éa"], &["e"]),
        ("a", &["a"], &["", "aa"]),
    ] {
        let found = domains(&format!("{pattern} d"));
        for name in matching {
            assert_eq!(domain_of(&found, name), "d", "{pattern} {name}");
        }
        for name in others {
            assert_eq!(domain_of(&found, name), "", "{pattern} {name}");
        }
    }
}

#[test]
fn the_first_line_that_matches_wins_whether_it_is_a_name_or_a_pattern() {
    let text = "# racks\n\nn1 first # a name before a pattern\nn* all\nn2 late\n  m1\tother  \r\nm1 again\n*1 ones\n";
    let found = domains(text);
    let names = ["n1", "n2", "n3", "m1", "x1", "x2"].map(|node| domain_of(&found, node));
    assert_eq!(names, ["first", "all", "all", "other", "ones", ""]);
    assert_eq!(found.count(), 6);
    let empty = domains("# nothing yet\n\n");
    assert_eq!(
        (empty.count(), empty.domain_of("n1"), empty.name(DOMAIN_NONE), empty.name(7)),
        (0, DOMAIN_NONE, "", "")
    );
}

#[test]
fn a_bad_line_is_named_with_what_is_wrong() {
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    for (text, line, reason) in [
        ("n1".to_owned(), 1, "\"n1\" is not a pattern and a domain"),
        ("a b\n\n# c\nn1 rack 1 # rack".to_owned(), 4, "\"n1 rack 1 # rack\" is not"),
        ("a b\nrack-a rack-*".to_owned(), 2, "the domain has a *"),
        (format!("a b\n{long} b"), 2, "the pattern is longer than 253 bytes"),
        (format!("a {long}"), 1, "the domain is longer than 253 bytes"),
        ("a\u{1b}[2J b".to_owned(), 1, "the pattern holds a control character"),
        ("a b\u{7}".to_owned(), 1, "the domain holds a control character"),
    ] {
        let found = bad(text.as_bytes());
        assert!(found.line == line && found.reason.starts_with(reason), "{found:?}");
    }
    assert_eq!(bad(b"a b\nc d\n\xff e\n"), BadLine { line: 3, reason: "not valid UTF-8".into() });
    // The error does not show the whole of a line of 1 MiB.
    assert!(bad("x".repeat(1 << 20).as_bytes()).reason.len() < 200);
}

#[test]
fn every_number_is_bounded_and_the_line_beyond_the_bound_is_named() {
    let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    for (most, line, reason) in [
        (DOMAINS_MAX, &(|n| format!("n{n} d{n}\n")) as &dyn Fn(usize) -> String, "more than 250 domains"),
        (DOMAIN_PATTERNS_MAX, &|n| format!("n{n}-* d\n"), "more than 500 patterns with a *"),
        (DOMAIN_LINES_MAX, &|n| format!("n{n} d\n"), "more than 10000 lines with a domain"),
    ] {
        assert!(Domains::parse(lines(most, line).as_bytes()).is_ok(), "{reason}");
        let found = bad(lines(most + 1, line).as_bytes());
        assert_eq!(found, BadLine { line: most + 1, reason: reason.to_owned() });
    }
    let all = domains(&lines(DOMAINS_MAX, &|n| format!("n{n} d{n}\n")));
    assert!((0..DOMAINS_MAX).all(|n| domain_of(&all, &format!("n{n}")) == format!("d{n}")));
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let words: [&[u8]; 12] =
        [b"a", b"*", b" ", b"\n", b"#", b"n1", "é".as_bytes(), b"\xff", b"\0", b"\r", b"**", b"\t"];
    // A linear congruential generator is random enough.
    let mut state = 1_u64;
    for _ in 0..20_000 {
        let mut text = Vec::new();
        for _ in 0..state % 23 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.extend_from_slice(words[(state >> 33) as usize % words.len()]);
        }
        state = state.wrapping_add(0x9e37_79b9);
        if let Ok(found) = Domains::parse(&text) {
            for node in ["", "a", "n1", "aé*", "nn1"] {
                assert!(usize::from(found.domain_of(node)) <= found.count());
            }
        }
    }
}
