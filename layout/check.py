#!/usr/bin/env python3
"""Checks layout/functions.ld against linker maps of the builds that it orders.

layout/check.py MAP...

A line that matches no function of any map is stale: the function was renamed or removed, and what
replaced it lies among the functions that never run. The check fails if more than one line in 20 is
stale, and `bench/layout` writes the list again. MAP is what GNU ld writes with -Map. A build writes
one if KUBE_CANARY_LINK_MAP names a file.
"""

import pathlib
import re
import sys

# A compiler that inlines differently makes some lines stale. They cost nothing. Of the lines that a
# large renaming made stale, each cost up to 64 KB of resident memory.
STALE_SHARE_MAX = 0.05


def patterns(script: str) -> list[str]:
    """The section of each line of the list, which is its first pattern."""
    return re.findall(r"^    \*\((\.text\.[^ )]+) \.text\.unlikely\.", script, re.M)


def sections(linked: str) -> set[str]:
    """The code sections that were linked. The linker echoes its script with a star in front."""
    _, _, linked = linked.partition("Linker script and memory map")
    return set(re.findall(r"^ (\.text\.[^\s]+)", linked, re.M))


def stale(script: str, maps: list[str]) -> list[str]:
    """The patterns that match no section of any map."""
    names = "\n".join(sorted(set().union(*map(sections, maps))))

    def expression(pattern: str) -> str:
        body = ".*".join(map(re.escape, pattern.removeprefix(".text.").split("*")))
        return rf"^\.text\.(?:unlikely\.)?{body}$"

    return [pattern for pattern in patterns(script) if not re.search(expression(pattern), names, re.M)]


def main() -> int:
    script = pathlib.Path(__file__).with_name("functions.ld").read_text()
    maps = [pathlib.Path(name).read_text(errors="replace") for name in sys.argv[1:]]
    if not maps or not all(map(sections, maps)):
        sys.exit("layout/check.py: needs linker maps with code, one for each build")
    lines = stale(script, maps)
    for line in lines:
        print(f"layout/functions.ld: no build has {line}", file=sys.stderr)
    total = len(patterns(script))
    print(f"layout/check.py: {total - len(lines)} of {total} functions are in the builds")
    return len(lines) > STALE_SHARE_MAX * total


if __name__ == "__main__":
    sys.exit(main())
