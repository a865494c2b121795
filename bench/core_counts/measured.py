"""The rows of bench/cores: what the machines printed, as raw.csv holds it."""

import csv
import itertools
from typing import Iterable, NamedTuple

COLUMNS = (
    "build,cores,thp,peers,phase,age_s,threads,rss_kb,pss_kb,private_dirty_kb,anon_huge_kb,vm_hwm_kb,"
    "cgroup_kb,cgroup_working_set_kb,cgroup_anon_kb,cgroup_file_kb,cgroup_kernel_kb,cgroup_sock_kb,scrape_bytes,scrape_ms"
).split(",")


class Point(NamedTuple):
    """What one row is about. There is one of each phase: idle, scraped, returned."""

    build: str
    cores: int
    thp: str
    peers: int

    def __str__(self) -> str:
        processors = "1 processor" if self.cores == 1 else f"{self.cores} processors"
        return f"{self.build}, {processors}, {self.peers} peers, huge pages {self.thp}"


class Matrix(NamedTuple):
    """What was to be measured."""

    builds: list[str]
    cores: list[int]
    peers: list[int]
    thp: list[str]

    def points(self) -> list[Point]:
        ordered = itertools.product(self.thp, self.peers, self.builds, self.cores)
        return [Point(build, cores, thp, peers) for thp, peers, build, cores in ordered]


class Malformed(Exception):
    """A file that is not what bench/cores writes."""


def read(lines: Iterable[str], phase: str) -> dict[Point, dict[str, int]]:
    """The figures of one phase, by point. Lines that begin with # are provenance."""
    rows = csv.reader(line for line in lines if not line.startswith("#"))
    if (head := next(rows, None)) != COLUMNS:
        raise Malformed(f"the columns are {head}")
    figures: dict[Point, dict[str, int]] = {}
    for row in rows:
        if len(row) != len(COLUMNS):
            raise Malformed(f"{len(row)} columns in {row}")
        fields = dict(zip(COLUMNS, row))
        if fields["phase"] != phase:
            continue
        point = Point(fields["build"], int(fields["cores"]), fields["thp"], int(fields["peers"]))
        if point in figures:
            raise Malformed(f"twice: {point}")
        figures[point] = {name: int(fields[name]) for name in COLUMNS[6:]}
    return figures
