#!/usr/bin/env python3
"""Checks layout/functions.ld against linker maps of the builds that it orders.

layout/check.py MAP...

A line that matches no function of any map is stale: the function was renamed or removed, and what
replaced it lies among the functions that never run. The check fails if more than one line in 20 is
stale, and `bench/layout` writes the list again. MAP is what GNU ld writes with -Map. A build writes
one if KUBE_CANARY_LINK_MAP names a file.

If the maps are of arm64, layout/aarch64.ld is checked, too: for stale lines, of which one in four is
allowed, and that the linker has put its functions where the file says. That list is made by hand.
"""

import pathlib
import re
import sys

# A compiler that inlines differently makes some lines stale. They cost nothing. Of the lines that a
# large renaming made stale, each cost up to 64 KB of resident memory.
STALE_SHARE_MAX = 0.05
# The list for arm64 is short, and the compiler may inline one function of it.
STALE_SHARE_MAX_ARM64 = 0.25
DIRECTORY = pathlib.Path(__file__).parent


def patterns(script: str) -> list[str]:
    """The section of each line of the list, which is its first pattern."""
    return re.findall(r"^    \*\((\.text\.[^ )]+) \.text\.unlikely\.", script, re.M)


def sections(linked: str) -> set[str]:
    """The code sections that were linked. The linker echoes its script with a star in front."""
    _, _, linked = linked.partition("Linker script and memory map")
    return set(re.findall(r"^ (\.text\.[^\s]+)", linked, re.M))


def selected(script: str) -> list[str]:
    """The section of each line that selects functions by name."""
    return re.findall(r"^    \*\((\.text\.[^ )]+)", script, re.M)


def place(linked: str, name: str) -> tuple[int, int]:
    """The address and the length of an output section. Both are 0 if there is none."""
    _, _, linked = linked.partition("Linker script and memory map")
    found = re.search(rf"^{re.escape(name)}\s+0x([0-9a-f]+)\s+0x([0-9a-f]+)", linked, re.M)
    return (int(found[1], 16), int(found[2], 16)) if found else (0, 0)


def is_arm64(linked: str) -> bool:
    """Whether a map is of a program for arm64. The linker names the format of what it writes."""
    return "littleaarch64" in linked


def misplaced(linked: str) -> str | None:
    """What is wrong with the place of the functions for arm64."""
    unread, bytes_before = place(linked, ".text.unread")
    added, bytes_added = place(linked, ".text.unread_aarch64")
    if not bytes_added:
        return ".text.unread_aarch64 is empty"
    gap = added - (unread + bytes_before)
    # A page, in which the functions begin behind the last of the others.
    return None if 0 <= gap < 4096 else f".text.unread_aarch64 is {gap} bytes behind the end of .text.unread"


def stale(script: list[str], maps: list[str]) -> list[str]:
    """The names that match no section of any map."""
    names = "\n".join(sorted(set().union(*map(sections, maps))))

    def expression(pattern: str) -> str:
        body = ".*".join(map(re.escape, pattern.removeprefix(".text.").split("*")))
        return rf"^\.text\.(?:unlikely\.)?{body}$"

    return [pattern for pattern in script if not re.search(expression(pattern), names, re.M)]


def report(file: str, names: list[str], maps: list[str], share_max: float) -> bool:
    """Prints the stale lines of a list. Returns whether there are few enough."""
    lines = stale(names, maps)
    for line in lines:
        print(f"layout/{file}: no build has {line}", file=sys.stderr)
    print(f"layout/check.py: {len(names) - len(lines)} of {len(names)} functions of {file} are in the builds")
    return len(lines) <= share_max * len(names)


def main() -> int:
    maps = [pathlib.Path(name).read_text(errors="replace") for name in sys.argv[1:]]
    if not maps or not all(map(sections, maps)):
        sys.exit("layout/check.py: needs linker maps with code, one for each build")
    good = report("functions.ld", patterns((DIRECTORY / "functions.ld").read_text()), maps, STALE_SHARE_MAX)
    arm64 = [linked for linked in maps if is_arm64(linked)]
    if arm64:
        names = selected((DIRECTORY / "aarch64.ld").read_text())
        good &= report("aarch64.ld", names, arm64, STALE_SHARE_MAX_ARM64)
        for wrong in filter(None, map(misplaced, arm64)):
            print(f"layout/aarch64.ld: {wrong}", file=sys.stderr)
            good = False
    return not good


if __name__ == "__main__":
    sys.exit(main())
