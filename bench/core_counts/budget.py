"""Holds what bench/cores has measured against bench/budget.toml, which says how."""

import tomllib
from typing import NamedTuple

from measured import Matrix, Point

ANY = "any"
RISE = "rise"
# A rise of 200 KB must be found, so no rise of that size can be allowed.
RISE_MAX = 150


class Malformed(Exception):
    """A budget that cannot be meant."""


class Build(NamedTuple):
    """The budget of one build."""

    # KB of written pages that any number of CPUs may have above those at 1. None: there is no
    # limit.
    rise: int | None
    # KB by the number of CPUs (ANY: all that are not named) and of peers.
    ceilings: dict[int | str, dict[int, int]]

    def ceiling(self, point: Point) -> int | None:
        """The KB that a row may have, or None without a ceiling."""
        return self.ceilings.get(point.cores, self.ceilings.get(ANY, {})).get(point.peers)


def parse(text: str) -> dict[str, Build]:
    """Every value is looked at: a misspelt one would allow everything."""
    budget = {}
    for name, table in tomllib.loads(text).items():
        if not isinstance(table, dict):
            raise Malformed(f"{name}: a table per build is accepted")
        rise, ceilings = None, {}
        for key, value in table.items():
            if key == RISE:
                if type(value) is not int or not 1 <= value <= RISE_MAX:
                    raise Malformed(f"{name}.{RISE} = {value}: KB from 1 to {RISE_MAX} are accepted")
                rise = value
                continue
            if key != ANY and not _is_count(key):
                raise Malformed(f"{name}.{key}: {RISE}, {ANY} or a number of processors is accepted")
            if not isinstance(value, dict) or not value:
                raise Malformed(f"{name}.{key} = {value}: ceilings by the number of peers are accepted")
            for peers, kilobytes in value.items():
                if not _is_count(peers) or type(kilobytes) is not int or kilobytes < 1:
                    raise Malformed(f"{name}.{key}.{peers} = {kilobytes}: peers = KB is accepted")
            ceilings[key if key == ANY else int(key)] = {int(peers): kb for peers, kb in value.items()}
        budget[name] = Build(rise, ceilings)
    return budget


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and not text.startswith("0")


def steady(measured: dict[Point, dict[str, int]], matrix: Matrix) -> dict[Point, int]:
    """Rss, with the fewest pages of the program file that the build has at any number of CPUs.

    These do not follow the CPUs. But code that runs only while the computer is slow maps 64 KB of
    them, in one row and not in another.
    """
    figures = {}
    for point, row in measured.items():
        same = [measured.get(point._replace(cores=cores)) for cores in matrix.cores]
        files = min(_file_kb(other) for other in (*same, row) if other)
        figures[point] = row["private_dirty_kb"] + files
    return figures


def _file_kb(row: dict[str, int]) -> int:
    return row["rss_kb"] - row["private_dirty_kb"]


def violations(budget: dict[str, Build], measured: dict[Point, dict[str, int]], matrix: Matrix) -> list[str]:
    """A line for each point of the matrix that is above its ceiling, rises with the CPUs where it
    may not, was not measured, or has no ceiling."""
    found = []
    figures = steady(measured, matrix)
    for point in matrix.points():
        build = budget.get(point.build)
        allowed = build.ceiling(point) if build else None
        row = measured.get(point)
        if allowed is None:
            found.append(f"no ceiling: {point}")
        if row is None:
            found.append(f"not measured: {point}")
            continue
        if allowed is not None and figures[point] > allowed:
            figure = f"{figures[point]} KB measured, {allowed} KB allowed"
            found.append(f"above its ceiling: {point}: {figure}")
        single = measured.get(point._replace(cores=1))
        if build and build.rise and single:
            written, limit = row["private_dirty_kb"], single["private_dirty_kb"] + build.rise
            if written > limit:
                found.append(
                    f"rises with the CPUs: {point}: {written} KB written, {limit} KB allowed"
                    f" ({build.rise} above the {single['private_dirty_kb']} KB at 1 CPU)"
                )
    return found


def rise_unchecked(budget: dict[str, Build], matrix: Matrix) -> list[str]:
    """Builds whose rise with the CPUs this matrix cannot show."""
    if 1 in matrix.cores and len(matrix.cores) > 1:
        return []
    return [name for name in matrix.builds if name in budget and budget[name].rise]
