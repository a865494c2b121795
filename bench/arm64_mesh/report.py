"""Writes raw.csv and summary.md of bench/arm64, and holds the rows against bench/budget.toml."""

import argparse
import csv
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "core_counts"))
import budget
import measured
from measured import Matrix, Point
from report import table

CPUS, THP = 2, "always"


def memory(figures: dict[Point, dict[str, int]], builds: list[str], pages: list[str], peers: int) -> str:
    """Rss, and in brackets what of it was written, by build and page size."""
    rows = []
    for build in builds:
        found = [figures.get(Point(f"{build}-arm64-{size}k", CPUS, THP, peers)) for size in pages]
        rows.append([build, *(f"{row['rss_kb']:,} ({row['private_dirty_kb']:,})" if row else "–" for row in found)])
    return table(["build", *(f"{size} KiB pages" for size in pages)], rows)


def meshes(lines: list[str]) -> str:
    rows = list(csv.reader(line for line in lines if not line.startswith("#")))
    columns = ["build", "pages_kib", "links", "fewest_received", "sent", "lost", "kernel_stamps", "user_stamps", "constants_dirty_kb",
               "constants_sealed", "verdict"]
    places = [rows[0].index(name) for name in columns]
    return table([name.replace("_", " ") for name in columns], [[row[place] for place in places] for row in rows[1:]])


def main() -> int:
    parser = argparse.ArgumentParser()
    for flag in ("--builds", "--pages", "--peers"):
        parser.add_argument(flag, required=True, type=lambda text: text.split(","))
    parser.add_argument("--origin", required=True, type=pathlib.Path)
    parser.add_argument("--rows", required=True, type=pathlib.Path)
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("budget", type=pathlib.Path)
    options = parser.parse_args()
    origin = options.origin.read_text()
    raw = origin + ",".join(measured.COLUMNS) + "\n" + options.rows.read_text()
    (options.report / "raw.csv").write_text(raw)
    figures = measured.read(raw.splitlines(), "scraped")
    parts = [
        "# The agent on arm64",
        "\n".join(f"- {line.removeprefix('# ')}" for line in origin.splitlines()),
        "## A mesh of three agents",
        "Counters of all agents when each link has 20 answered probes. *Constants dirty*: KB of relocated constants. All columns"
        " are in mesh.csv.",
        meshes((options.report / "mesh.csv").read_text().splitlines()),
    ]
    for peers in options.peers:
        parts += [
            f"## Resident memory, {peers} peers",
            "Rss of smaps_rollup in KB, and in brackets Private_Dirty, 1 s after the load of bench/cores: 60 scrapes at once,"
            f" 48 compressed ones at once, and 16 one after another. {CPUS} CPUs, transparent_hugepage={THP}.",
            memory(figures, options.builds, options.pages, int(peers)),
        ]
    # There is no ceiling for pages of 64 KiB.
    names = [f"{build}-arm64-{size}k" for size in options.pages if str(size) != "64" for build in options.builds]
    matrix = Matrix(names, [CPUS], [int(peers) for peers in options.peers], [THP])
    found = budget.violations(budget.parse(options.budget.read_text()), figures, matrix)
    parts += ["## The budget", "\n".join(f"- {line}" for line in found) or "Every row is within bench/budget.toml."]
    (options.report / "summary.md").write_text("\n\n".join(parts) + "\n")
    for line in found:
        print(f"bench/arm64: {line}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
