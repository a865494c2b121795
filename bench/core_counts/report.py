"""Makes a summary of the rows of bench/cores, and holds them against bench/budget.toml."""

import pathlib

import budget
import lab
import measured
from measured import Matrix, Point

Figures = dict[Point, dict[str, int]]
BUDGET = pathlib.Path(__file__).resolve().parent.parent / "budget.toml"


def by_cpus(figures: Figures, matrix: Matrix, thp: str, peers: int, key: str) -> str:
    """One figure, with builds as rows and numbers of CPUs as columns."""
    rows = []
    for build in matrix.builds:
        found = [figures.get(Point(build, cores, thp, peers)) for cores in matrix.cores]
        rows.append([build, *(f"{row[key]:,}" if row else "–" for row in found)])
    return lab.table(["build", *map(str, matrix.cores)], rows)


def judged(lines: list[str], matrix: Matrix) -> tuple[str, list[str]]:
    """The summary, and what is not within the budget. Lines that begin with # are provenance."""
    phases = {phase: measured.read(lines, phase) for phase in ("idle", "scraped", "returned")}
    limits = budget.parse(BUDGET.read_text())
    parts = [
        "# Resident memory by number of CPUs",
        "\n".join(f"- {line[2:]}" for line in lines if line.startswith("# ")),
        "KB, 1 s after 60 scrapes at once, 48 compressed ones at once, and 16 one after another. The working set is"
        " memory.current of the agent's cgroup less inactive_file, after another cgroup was charged on every CPU, which"
        " returns what the kernel had charged in advance. raw.csv has the other figures.",
    ]
    for thp in matrix.thp:
        for peers in matrix.peers:
            parts += [f"## {peers} peers, transparent_hugepage={thp}", "Resident (Rss of smaps_rollup):",
                      by_cpus(phases["scraped"], matrix, thp, peers, "rss_kb"), "Working set:",
                      by_cpus(phases["returned"], matrix, thp, peers, "cgroup_working_set_kb")]
    parts += [f"{build}: its rise with the CPUs is not checked: it takes 1 CPU and more" for build in budget.rise_unchecked(limits, matrix)]
    found = budget.violations(limits, phases["scraped"], matrix)
    if not found:
        parts.append(f"{len(matrix.points())} rows within the budget.")
    return "\n\n".join(parts) + "\n", found
