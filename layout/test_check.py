"""Tests of layout/check.py, by `python3 -B -m unittest discover -s layout`."""

import unittest

from check import patterns, sections, stale

SCRIPT = """SECTIONS
{
  .text.steady : ALIGN(262144)
  {
    *(.text._ZN3our4send17h*E .text.unlikely._ZN3our4send17h*E)
    *(.text._RNvCs*_4core3fmt .text.unlikely._RNvCs*_4core3fmt)
    *libc.a:*(.text .text.*)
  }
}
"""
MAP = """Discarded input sections

 .text._ZN3our4send17h00E
                0x0       0x10 a.o

Linker script and memory map

 *(.text._ZN3our4send17h*E .text.unlikely._ZN3our4send17h*E)
 .text._RNvCs8x_4core3fmt
                0x1000       0x10 a.o
"""


class Check(unittest.TestCase):
    def test_lines_of_whole_files_are_not_names(self):
        self.assertEqual(patterns(SCRIPT), [".text._ZN3our4send17h*E", ".text._RNvCs*_4core3fmt"])

    def test_discarded_sections_and_echoed_patterns_are_not_linked(self):
        self.assertEqual(sections(MAP), {".text._RNvCs8x_4core3fmt"})

    def test_a_line_without_a_function_in_any_map_is_stale(self):
        self.assertEqual(stale(SCRIPT, [MAP]), [".text._ZN3our4send17h*E"])
        other = MAP.replace("_RNvCs8x_4core3fmt", "unlikely._ZN3our4send17hffE")
        self.assertEqual(stale(SCRIPT, [MAP, other]), [])


if __name__ == "__main__":
    unittest.main()
