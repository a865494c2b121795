"""Holds what bench/cores has measured against bench/budget.toml, which says how."""

import tomllib
from typing import NamedTuple

from measured import Matrix, Point

ANY = "any"
FLAT = "flat"


class Malformed(Exception):
    """A budget that cannot be meant."""


class Build(NamedTuple):
    """The budget of one build."""

    # Rss at any number of processors, as a multiple of that at 1; none: it may rise.
    flat: float | None
    # KB by processors (ANY: those not named) and peers.
    ceilings: dict[int | str, dict[int, int]]

    def ceiling(self, point: Point) -> int | None:
        """The KB that a row may have; none if nobody has said."""
        return self.ceilings.get(point.cores, self.ceilings.get(ANY, {})).get(point.peers)


def parse(text: str) -> dict[str, Build]:
    """Every value is looked at: a misspelt one would allow everything."""
    budget = {}
    for name, table in tomllib.loads(text).items():
        if not isinstance(table, dict):
            raise Malformed(f"{name}: a table per build is accepted")
        flat, ceilings = None, {}
        for key, value in table.items():
            if key == FLAT:
                if not isinstance(value, float) or not 1.0 <= value <= 2.0:
                    raise Malformed(f"{name}.{FLAT} = {value}: a factor from 1.0 to 2.0 is accepted")
                flat = value
                continue
            if key != ANY and not _is_count(key):
                raise Malformed(f"{name}.{key}: {FLAT}, {ANY} or a number of processors is accepted")
            if not isinstance(value, dict) or not value:
                raise Malformed(f"{name}.{key} = {value}: ceilings by the number of peers are accepted")
            for peers, kilobytes in value.items():
                if not _is_count(peers) or type(kilobytes) is not int or kilobytes < 1:
                    raise Malformed(f"{name}.{key}.{peers} = {kilobytes}: peers = KB is accepted")
            ceilings[key if key == ANY else int(key)] = {int(peers): kb for peers, kb in value.items()}
        budget[name] = Build(flat, ceilings)
    return budget


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and not text.startswith("0")


def violations(budget: dict[str, Build], measured: dict[Point, dict[str, int]], matrix: Matrix) -> list[str]:
    """A line for each point of the matrix that is above its ceiling, rises with the processors where it may not, was
    not measured, or has no ceiling."""
    found = []
    for point in matrix.points():
        build = budget.get(point.build)
        allowed = build.ceiling(point) if build else None
        row = measured.get(point)
        if allowed is None:
            found.append(f"no ceiling: {point}")
        if row is None:
            found.append(f"not measured: {point}")
            continue
        rss = row["rss_kb"]
        if allowed is not None and rss > allowed:
            found.append(f"above its ceiling: {point}: {rss} KB measured, {allowed} KB allowed")
        single = measured.get(point._replace(cores=1))
        if build and build.flat and single and rss > build.flat * single["rss_kb"]:
            allowed = int(build.flat * single["rss_kb"])
            found.append(
                f"rises with the processors: {point}: {rss} KB measured, {allowed} KB allowed"
                f" ({build.flat} times the {single['rss_kb']} KB at 1 processor)"
            )
    return found


def flat_unchecked(budget: dict[str, Build], matrix: Matrix) -> list[str]:
    """Builds whose flatness this matrix cannot show."""
    if 1 in matrix.cores and len(matrix.cores) > 1:
        return []
    return [name for name in matrix.builds if name in budget and budget[name].flat]
