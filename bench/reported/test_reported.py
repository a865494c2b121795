"""What a report says of its figures, and the marked texts: python3 -m unittest discover"""
import unittest

import documents
import lab
import meshes
import tools

MARKED = "a\n  # <!-- report: request -->\n  # old\n  # <!-- end of report -->\nb\n"


class Documents(unittest.TestCase):
    def test_marked_text_is_replaced_behind_its_prefix(self):
        self.assertEqual(documents.replaced(MARKED, {"request": "1.2m"}), MARKED.replace("old", "1.2m"))

    def test_text_without_figures_stays(self):
        self.assertEqual(documents.replaced(MARKED, {}), MARKED)

    def test_changed_digit_is_a_difference(self):
        once = documents.replaced(MARKED, {"request": "1.2m"})
        self.assertNotEqual(documents.replaced(once.replace("1.2", "1.3"), {"request": "1.2m"}), once.replace("1.2", "1.3"))

    def test_long_text_is_wrapped(self):
        lines = documents.replaced(MARKED, {"request": "word " * 60}).splitlines()
        self.assertLessEqual(max(map(len, lines)), documents.COLUMNS)


class Figures(unittest.TestCase):
    def test_agents_and_judges_have_medians_of_their_own(self):
        row = {"name": "a", "judge": False, "rss_kb": 1, "cpu_ms": 0.5}
        found = meshes.summarized([row, row | {"rss_kb": 3}, row | {"rss_kb": 8}, row | {"judge": True, "rss_kb": 9}])
        self.assertEqual((found["agent"]["rss_kb"], found["agent"]["rss_kb_max"], found["judge"]["count"]), (3, 8, 1))

    def test_missing_figure_is_a_dash(self):
        self.assertEqual(documents.number(None), "–")

    def test_native_histogram_is_one_series(self):
        native = bytes([0x3A, 2, 0x28, 4])  # Metric.histogram with a schema
        classic = bytes([0x3A, 4, 0x1A, 0, 0x1A, 0])  # with two buckets
        family = b"".join(bytes([0x22, len(metric)]) + metric for metric in (native, classic))
        self.assertEqual(lab.series("protobuf", bytes([len(family)]) + family), 1 + 4)

    def test_reply_on_the_wire_belongs_to_the_request_before_it(self):
        lines = ["0 10.66.0.1 7 1 130", "8 10.66.0.1 7 1 100", "8 10.66.0.1 7 2 200", "0 10.66.0.1 8 2 210", "0 10.66.0.1 7 1 140"]
        self.assertEqual(tools.on_wire(lines), {("10.66.0.1", 1): 30})

    def test_addresses_are_those_of_the_floor(self):
        self.assertEqual(lab.addresses(256)[0::255], ["10.66.0.1", "10.66.1.0"])
