"""The budget's check, itself checked: python3 -B -m unittest discover -s bench/core_counts"""

import pathlib
import unittest

import budget
import measured
from measured import Matrix, Point

BUDGET = """
[musl]
flat = 1.03
any = { 10 = 1450, 200 = 1500 }
[arenas]
any = { 10 = 4000, 200 = 5000 }
64 = { 10 = 70_000, 200 = 80_000 }
"""


def check(rss: dict[Point, int], matrix: Matrix, text: str = BUDGET) -> list[str]:
    return budget.violations(budget.parse(text), {point: {"rss_kb": kb} for point, kb in rss.items()}, matrix)


def musl(cores: int, peers: int = 200) -> Point:
    return Point("musl", cores, "always", peers)


class Violations(unittest.TestCase):
    matrix = Matrix(["musl"], [1, 64], [200], ["always"])

    def test_at_the_ceiling_is_within_it(self):
        self.assertEqual(check({musl(1): 1500, musl(64): 1500}, self.matrix), [])

    def test_a_row_above_its_ceiling_is_named_with_both_figures(self):
        self.assertEqual(
            check({musl(1): 1490, musl(64): 1501}, self.matrix),
            ["above its ceiling: musl, 64 processors, 200 peers, huge pages always: 1501 KB measured, 1500 KB allowed"],
        )

    def test_a_rise_below_the_ceiling_is_found(self):
        self.assertEqual(check({musl(1): 1000, musl(64): 1030}, self.matrix), [])
        self.assertEqual(
            check({musl(1): 1000, musl(64): 1031}, self.matrix),
            [
                "rises with the processors: musl, 64 processors, 200 peers, huge pages always: 1031 KB measured,"
                " 1030 KB allowed (1.03 times the 1000 KB at 1 processor)"
            ],
        )

    def test_a_missing_row_is_found(self):
        self.assertEqual(
            check({musl(1): 1000}, self.matrix), ["not measured: musl, 64 processors, 200 peers, huge pages always"]
        )
        self.assertEqual(len(check({}, self.matrix)), 2)

    def test_a_row_of_other_huge_pages_is_no_substitute(self):
        rows = {musl(1): 1000, musl(64)._replace(thp="madvise"): 1000}
        self.assertEqual(len(check(rows, self.matrix)), 1)

    def test_a_row_without_a_ceiling_is_found(self):
        rows = {musl(1, 1000): 1, musl(64, 1000): 1}
        found = check(rows, self.matrix._replace(peers=[1000]))
        self.assertEqual(found[0], "no ceiling: musl, 1 processor, 1000 peers, huge pages always")
        self.assertEqual(len(found), 2)
        unknown = Point("unknown", 1, "always", 10)
        self.assertEqual(len(check({unknown: 1}, Matrix(["unknown"], [1], [10], ["always"]))), 1)

    def test_a_number_of_processors_overrides_any(self):
        arenas = {Point("arenas", 1, "always", 200): 5001, Point("arenas", 64, "always", 200): 80_000}
        found = check(arenas, self.matrix._replace(builds=["arenas"]))
        self.assertEqual(len(found), 1)
        self.assertIn("arenas, 1 processor, 200 peers", found[0])

    def test_flatness_that_cannot_be_seen_is_admitted(self):
        parsed = budget.parse(BUDGET)
        self.assertEqual(budget.flat_unchecked(parsed, self.matrix), [])
        self.assertEqual(budget.flat_unchecked(parsed, self.matrix._replace(cores=[64])), ["musl"])


class Parse(unittest.TestCase):
    def test_what_cannot_be_meant_is_refused(self):
        for text in (
            "[musl]\nflat = 103",
            "[musl]\nflat = 0.9",
            "[musl]\nall = { 10 = 1 }",
            "[musl]\n0 = { 10 = 1 }",
            "[musl]\nany = 1500",
            "[musl]\nany = {}",
            "[musl]\nany = { ten = 1500 }",
            '[musl]\nany = { 10 = "1500" }',
            "[musl]\nany = { 10 = 0 }",
            "[musl]\nany = { 10 = true }",
            "musl = 1500",
        ):
            with self.assertRaises(budget.Malformed, msg=text):
                budget.parse(text)

    def test_the_budget_of_the_repository_is_accepted(self):
        text = (pathlib.Path(__file__).parent.parent / "budget.toml").read_text()
        self.assertIn("system-musl", budget.parse(text))


class Rows(unittest.TestCase):
    head = ",".join(measured.COLUMNS)

    def test_one_phase_is_read(self):
        lines = [
            "# provenance",
            self.head,
            "musl,8,always,200,idle,5.3,5,932,929,408,0,1604,1768,208,0,0,0",
            "musl,8,always,200,scraped,9.1,5,1384,1381,496,0,1624,1712,288,0,836146,2762",
        ]
        figures = measured.read(lines, "scraped")
        self.assertEqual(list(figures), [musl(8)])
        self.assertEqual(figures[musl(8)]["rss_kb"], 1384)

    def test_a_row_that_is_there_twice_or_cut_short_is_refused(self):
        row = "musl,8,always,200,scraped,9.1,5,1384,1381,496,0,1624,1712,288,0,836146,2762"
        for lines in ([self.head, row, row], [self.head, row[:-5].rsplit(",", 1)[0]], ["build,cores"], []):
            with self.assertRaises(measured.Malformed, msg=lines):
                measured.read(lines, "scraped")


if __name__ == "__main__":
    unittest.main()
