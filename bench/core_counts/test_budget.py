"""The budget's check, itself checked: python3 -B -m unittest discover -s bench/core_counts"""

import pathlib
import unittest

import budget
import measured
from measured import Matrix, Point

BUDGET = """
[musl]
rise = 90
any = { 10 = 1450, 200 = 1500 }
[arenas]
any = { 10 = 4000, 200 = 5000 }
64 = { 10 = 70_000, 200 = 80_000 }
"""


FILE_KB = 700


def row(rss: int, files: int = FILE_KB) -> dict[str, int]:
    return {"rss_kb": rss, "private_dirty_kb": rss - files}


def check(rss: dict[Point, int], matrix: Matrix, text: str = BUDGET) -> list[str]:
    return budget.violations(budget.parse(text), {point: row(kb) for point, kb in rss.items()}, matrix)


def musl(cores: int, peers: int = 200) -> Point:
    return Point("musl", cores, "always", peers)


# The builds that ship, at 200 peers: KB that the process wrote, KB of the program file.
# bench/budget.toml says how they were measured.
SHIPPED = [("system-musl", 630, 776), ("c-shim-musl", 650, 772), ("jemalloc", 989, 988)]
# The largest difference of two rows: far more than was ever measured.
SPREAD_KB = 40


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
        self.assertEqual(check({musl(1): 1000, musl(64): 1090}, self.matrix), [])
        self.assertEqual(
            check({musl(1): 1000, musl(64): 1091}, self.matrix),
            [
                "rises with the CPUs: musl, 64 processors, 200 peers, huge pages always: 391 KB written,"
                " 390 KB allowed (90 above the 300 KB at 1 CPU)"
            ],
        )

    def test_pages_of_the_program_file_that_one_row_alone_has_are_no_rise(self):
        limits = budget.parse(BUDGET)
        chance = {musl(1): row(1490), musl(64): row(1490 + 192, FILE_KB + 192)}
        self.assertEqual(budget.violations(limits, chance, self.matrix), [])
        program = {point: row(1490 + 192, FILE_KB + 192) for point in chance}
        found = budget.violations(limits, program, self.matrix)
        self.assertEqual(len(found), 2)
        self.assertIn("1682 KB measured, 1500 KB allowed", found[0])

    def test_200_KB_more_are_found_wherever_they_are(self):
        shipped = budget.parse((pathlib.Path(__file__).parent.parent / "budget.toml").read_text())
        for name, written, files in SHIPPED:
            matrix = Matrix([name], [1, 8, 64], [200], ["always"])
            for more in range(-SPREAD_KB, SPREAD_KB + 1, 4):
                usual = {point: row(written + files + more, files) for point in matrix.points()}
                self.assertEqual(budget.violations(shipped, usual, matrix), [], name)
                heap = {point: row(written + files + more + 200, files) for point in matrix.points()}
                self.assertEqual(len(budget.violations(shipped, heap, matrix)), 3, name)
                program = {point: row(written + files + more + 200, files + 200) for point in matrix.points()}
                self.assertEqual(len(budget.violations(shipped, program, matrix)), 3, name)
                last = usual | {matrix.points()[-1]: row(written + files + more + 200, files)}
                self.assertEqual(len(budget.violations(shipped, last, matrix)), 2, name)

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

    def test_a_rise_that_cannot_be_seen_is_admitted(self):
        parsed = budget.parse(BUDGET)
        self.assertEqual(budget.rise_unchecked(parsed, self.matrix), [])
        self.assertEqual(budget.rise_unchecked(parsed, self.matrix._replace(cores=[64])), ["musl"])


class Parse(unittest.TestCase):
    def test_what_cannot_be_meant_is_refused(self):
        for text in (
            "[musl]\nrise = 1.03",
            "[musl]\nrise = 0",
            "[musl]\nrise = 200",
            "[musl]\nflat = 1.03",
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
            "musl,8,always,200,idle,5.3,5,932,929,408,0,1604,1768,1768,408,4,208,0,0,0",
            "musl,8,always,200,scraped,9.1,5,1384,1381,496,0,1624,1712,1708,496,4,288,0,836146,2762",
        ]
        figures = measured.read(lines, "scraped")
        self.assertEqual(list(figures), [musl(8)])
        self.assertEqual(figures[musl(8)]["rss_kb"], 1384)

    def test_a_row_that_is_there_twice_or_cut_short_is_refused(self):
        row = "musl,8,always,200,scraped,9.1,5,1384,1381,496,0,1624,1712,1708,496,4,288,0,836146,2762"
        for lines in ([self.head, row, row], [self.head, row[:-5].rsplit(",", 1)[0]], ["build,cores"], []):
            with self.assertRaises(measured.Malformed, msg=lines):
                measured.read(lines, "scraped")
