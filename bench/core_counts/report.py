"""Makes summary.md and chart.svg of raw.csv, and holds it against the budget: see bench/cores."""

import argparse
import pathlib
import sys

import budget
import chart
import measured
from measured import Matrix, Point

CHART_PEERS, CHART_THP, DETAIL_PEERS = 200, "always", 200


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def by_cpus(figures: dict[Point, dict[str, int]], matrix: Matrix, thp: str, peers: int, key: str = "rss_kb") -> str:
    """One figure, with builds as rows and numbers of CPUs as columns."""
    ratio = len(matrix.cores) > 1
    rows = []
    for build in matrix.builds:
        found = [figures.get(Point(build, cores, thp, peers)) for cores in matrix.cores]
        cells = [f"{row[key]:,}" if row else "–" for row in found]
        if ratio:
            ends = found[0], found[-1]
            cells.append(f"{ends[1][key] / ends[0][key]:.2f}" if all(ends) else "–")
        rows.append([build, *cells])
    return table(["build", *map(str, matrix.cores), *([f"{matrix.cores[-1]} : {matrix.cores[0]}"] if ratio else [])], rows)


def details(figures: dict[Point, dict[str, int]], matrix: Matrix, thp: str, peers: int) -> str:
    """Everything else, at both ends: lowest / highest number of CPUs."""
    names = {
        "Pss": "pss_kb",
        "Private_Dirty": "private_dirty_kb",
        "AnonHugePages": "anon_huge_kb",
        "VmHWM": "vm_hwm_kb",
        "threads": "threads",
        "of the cgroup: anon": "cgroup_anon_kb",
        "file": "cgroup_file_kb",
        "kernel": "cgroup_kernel_kb",
        "sock": "cgroup_sock_kb",
    }
    rows = []
    for build in matrix.builds:
        ends = [figures.get(Point(build, cores, thp, peers)) for cores in (matrix.cores[0], matrix.cores[-1])]
        rows.append([build, *(" / ".join(f"{row[key]:,}" if row else "–" for row in ends) for key in names.values())])
    return table(["build", *names], rows)


def charged(phases: dict[str, dict[Point, dict[str, int]]], matrix: Matrix, thp: str, peers: int) -> list[str]:
    """What the cgroup is charged, in each phase."""
    named = {
        "memory.current after the scrapes": ("scraped", "cgroup_kb"),
        "Working set after the scrapes": ("scraped", "cgroup_working_set_kb"),
        "Working set when the charges in advance are returned": ("returned", "cgroup_working_set_kb"),
        "Working set before the scrapes": ("idle", "cgroup_working_set_kb"),
    }
    parts = [
        f"## What the platform charges, {peers} peers, transparent_hugepage={thp}",
        "KB of the agent's cgroup. The working set is memory.current less inactive_file: `kubectl top` shows it."
        " The kernel charges 64 pages at once, and each CPU keeps what is not used yet. The third table is read after"
        " another cgroup was charged on every CPU, which returns them. -cold: the page cache was empty at the start, so"
        " this cgroup is charged for the program file. -pinned: the agent is kept on two CPUs.",
    ]
    for title, (phase, key) in named.items():
        parts += [f"### {title}", by_cpus(phases[phase], matrix, thp, peers, key)]
    return parts


def summary(lines: list[str], phases: dict[str, dict[Point, dict[str, int]]], matrix: Matrix) -> str:
    figures = phases["scraped"]
    provenance = [line[2:].rstrip() for line in lines if line.startswith("# ")]
    parts = [
        "# Resident memory by number of processors",
        "\n".join(f"- {line}" for line in provenance),
        "Rss (smaps_rollup), KB, 1 s after 60 scrapes at once, 48 compressed ones at once, and 16 one after another.",
    ]
    for thp in matrix.thp:
        for peers in matrix.peers:
            parts += [f"## {peers} peers, transparent_hugepage={thp}", by_cpus(figures, matrix, thp, peers)]
    peers = DETAIL_PEERS if DETAIL_PEERS in matrix.peers else matrix.peers[0]
    thp = CHART_THP if CHART_THP in matrix.thp else matrix.thp[0]
    ends = f"{matrix.cores[0]} / {matrix.cores[-1]} processors"
    parts += [
        f"## The other figures, {peers} peers, transparent_hugepage={thp}, {ends}",
        "KB. Pages of a file are charged to the cgroup that read them first.",
        details(figures, matrix, thp, peers),
        *charged(phases, matrix, thp, peers),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=pathlib.Path, help="holds raw.csv; receives summary.md and chart.svg")
    parser.add_argument("budget", type=pathlib.Path)
    for name, kind in {"builds": str, "cores": int, "peers": int, "thp": str}.items():
        parser.add_argument(f"--{name}", required=True, type=lambda text, kind=kind: [kind(word) for word in text.split(",")])
    arguments = parser.parse_args()
    matrix = Matrix(arguments.builds, sorted(arguments.cores), sorted(arguments.peers), arguments.thp)
    lines = (arguments.directory / "raw.csv").read_text().splitlines()
    try:
        phases = {phase: measured.read(lines, phase) for phase in ("idle", "scraped", "returned")}
        figures = phases["scraped"]
        limits = budget.parse(arguments.budget.read_text())
    except (measured.Malformed, budget.Malformed, ValueError) as error:
        print(f"bench/cores: {error}", file=sys.stderr)
        return 1
    text = summary(lines, phases, matrix)
    (arguments.directory / "summary.md").write_text(text)
    print(text)
    if CHART_PEERS in matrix.peers and CHART_THP in matrix.thp and len(matrix.cores) > 1:
        lines_of = {
            build: [(cores, row["rss_kb"]) for cores in matrix.cores if (row := figures.get(Point(build, cores, CHART_THP, CHART_PEERS)))]
            for build in matrix.builds
        }
        (arguments.directory / "chart.svg").write_text(
            chart.draw(lines_of, f"Resident memory after scrapes, {CHART_PEERS} peers, huge pages {CHART_THP}")
        )
    for build in budget.rise_unchecked(limits, matrix):
        print(f"bench/cores: {build}: its rise with the CPUs is not checked: it takes 1 CPU and more")
    found = budget.violations(limits, figures, matrix)
    for line in found:
        print(f"bench/cores: {line}", file=sys.stderr)
    if not found:
        print(f"bench/cores: {len(matrix.points())} rows within the budget")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
