"""Tests of layout/check.py, by `python3 -B -m unittest discover -s layout`."""

import pathlib
import re
import unittest

from check import is_arm64, misplaced, patterns, sections, selected, stale

LAYOUT = pathlib.Path(__file__).parent
FUNCTIONS, AARCH64 = ((LAYOUT / name).read_text() for name in ("functions.ld", "aarch64.ld"))

SCRIPT = """SECTIONS
{
  .text.unread : ALIGN(262144)
  {
    *(.text._RNvCs*_3our4send .text.unlikely._RNvCs*_3our4send)
    *(.text._RNvCs*_4core3fmt .text.unlikely._RNvCs*_4core3fmt)
    *libc.a:*(.text .text.*)
  }
}
"""
MAP = """Discarded input sections

 .text._RNvCsA_3our4send
                0x0       0x10 a.o

Linker script and memory map

 *(.text._RNvCs*_3our4send .text.unlikely._RNvCs*_3our4send)
 .text._RNvCs8x_4core3fmt
                0x1000       0x10 a.o
"""


class Check(unittest.TestCase):
    def test_lines_of_whole_files_are_not_names(self):
        self.assertEqual(patterns(SCRIPT), [".text._RNvCs*_3our4send", ".text._RNvCs*_4core3fmt"])

    def test_discarded_sections_and_echoed_patterns_are_not_linked(self):
        self.assertEqual(sections(MAP), {".text._RNvCs8x_4core3fmt"})

    def test_a_line_without_a_function_in_any_map_is_stale(self):
        self.assertEqual(stale(patterns(SCRIPT), [MAP]), [".text._RNvCs*_3our4send"])
        other = MAP.replace("_RNvCs8x_4core3fmt", "unlikely._RNvCsB_3our4send")
        self.assertEqual(stale(patterns(SCRIPT), [MAP, other]), [])


ARM64 = """Linker script and memory map

.text.unread    0x0000000000040000    0x1234
 .text._RNvCsA_3our4send
                0x0000000000040000       0x10 a.o
.text.unread_aarch64
                0x0000000000041240      0x5d0
OUTPUT(kube-canary elf64-littleaarch64)
"""


def path(name):
    """The identifiers of a mangled name. Each has its length in front."""
    rest, parts = name.partition("Cs*_")[2], []
    while found := re.search(r"\d+", rest):
        begin, end = found.end(), found.end() + int(found[0])
        parts.append(rest[begin:end])
        rest = rest[end:]
    return parts


class ListForArm64(unittest.TestCase):
    def test_it_is_put_behind_a_section_that_the_other_list_makes(self):
        (section,) = re.findall(r"^INSERT AFTER (\S+);$", AARCH64, re.M)
        self.assertIn(f"\n  {section} :", FUNCTIONS)
        self.assertEqual(re.findall(r"^  (\.text\.\S+) :$", AARCH64, re.M), [section + "_aarch64"])

    def test_it_takes_no_function_from_its_place_among_those_of_an_unread_agent(self):
        unread = FUNCTIONS.partition("  .text.unread :")[2].partition("\n  }\n")[0]
        self.assertGreater(len(selected(unread)), 100)
        self.assertEqual(set(selected(AARCH64)) & set(selected(unread)), set())

    def test_our_own_functions_in_it_exist(self):
        self.assertEqual(path("_RNvM*NtNtCs*_11kube_canary6prober5eventNtB*_9SendError5label"), ["kube_canary", "prober", "event", "SendError", "label"])
        own = [path(name) for name in selected(AARCH64) if "Cs*_11kube_canary" in name]
        self.assertTrue(own)
        for _, *parts, function in own:
            modules = [part for part in parts if part.islower()]
            file = LAYOUT.parent / "src" / pathlib.Path(*modules)
            text = next(it for it in (file.with_suffix(".rs"), file / "mod.rs") if it.is_file()).read_text()
            for word in [*(part for part in parts if not part.islower()), f"fn {function}"]:
                self.assertIn(word, text)

    def test_the_map_says_where_its_functions_are(self):
        self.assertTrue(is_arm64(ARM64) and not is_arm64(MAP))
        self.assertIsNone(misplaced(ARM64))
        self.assertIn("behind", misplaced(ARM64.replace("0x0000000000041240", "0x0000000000080000")))
        self.assertIn("empty", misplaced(ARM64.replace("0x5d0", "0x0")))
        self.assertIn("empty", misplaced(MAP))


if __name__ == "__main__":
    unittest.main()
