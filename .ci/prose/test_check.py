"""What the check of prose finds, and what it leaves alone."""
import pathlib
import unittest

import check


def kinds(name, text):
    return [(kind, number) for kind, number in check.hits(pathlib.Path(name), text)]


class Check(unittest.TestCase):
    def test_words_in_comments_are_found_and_those_in_code_are_not(self):
        self.assertEqual(kinds("a.rs", "// a peer who left\n"), [("data as a person", 1)])
        self.assertEqual(kinds("a.rs", 'let who = "who"; // `who` is a name\n'), [])
        self.assertEqual(kinds("a.py", "x = 1  # per processor\n"), [("not the glossary's word", 1)])
        self.assertEqual(kinds("a.sh", "# read anew\n"), [("idiom", 1)])

    def test_documents_are_prose_outside_of_their_code(self):
        self.assertEqual(kinds("a.md", "nobody\n```\nnobody\n```\nhe\n"), [("data as a person", 1), ("data as a person", 5)])

    def test_a_short_sentence_alone_is_a_fragment(self):
        self.assertEqual(kinds("a.rs", "/// All targets.\nfn a() {}\n"), [("fragment as documentation", 1)])
        self.assertEqual(kinds("a.rs", "/// All targets.\n///\n/// They are sorted by name.\nfn a() {}\n"), [])

    def test_names_of_functions_are_found_by_whole_words(self):
        self.assertEqual(kinds("a.rs", "fn a_peer_who_left() {}\n"), [("name as a person", 1)])
        self.assertEqual(kinds("a.rs", "fn whole_reports(who: u8) {}\nfn kube_canary_main() {}\n"), [])

    def test_a_long_comment_is_found_and_long_code_or_a_long_address_is_not(self):
        long = "word " * 25
        self.assertEqual(kinds("a.rs", f"    // {long}\n"), [("comment over 100 columns", 1)])
        self.assertEqual(kinds("a.rs", f"let a = \"{long}\";\n"), [])
        self.assertEqual(kinds("a.rs", f"// https://example.org/{'a' * 120}\n"), [])


if __name__ == "__main__":
    unittest.main()
