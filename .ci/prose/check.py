#!/usr/bin/env python3
"""Finds comments and documents that are hard to read: .ci/prose/check.py [--list] [PATH...]

Reads the comments of all committed sources and all Markdown documents, and counts what
docs/glossary.md and CONTRIBUTING.md ask not to write. Each kind has a limit, LIMITS: a few hits are
right where they are. A limit only ever falls. Exit code 1 if a kind has more hits.

  --list   prints every hit, not the counts alone
  PATH     only these; there are no limits then
"""
import collections
import pathlib
import re
import subprocess
import sys

COLUMNS = 100
WIDE = f"comment over {COLUMNS} columns"
# What a kind may have in the whole tree.
LIMITS = {
    "data as a person": 20,
    "idiom": 20,
    "not the glossary's word": 20,
    "fragment as documentation": 20,
    "so many for this many": 0,
    "name as a person": 0,
    WIDE: 20,
}
WORDS = {
    # Slots, peers and packets are things.
    "data as a person": r"\b(who|whom|whoever|nobody|somebody|everybody|he|his|him|himself)\b",
    "idiom": r"\b(let(s|ting)? go|(is|are|was|were|be) told|likewise|anew|in vain|thereof|hitherto|meanwhile)\b",
    # Of a number that is given.
    "so many for this many": r"\b[Ss]o (many|much|long|few)\b(?! (as|that))",
    "not the glossary's word": r"\b(processor time|processors?|the way (there|back)|under way|gather(s|ed|ing)?)\b",
}
# The name of a function, such as a test's, that speaks of data as of people, or in words of its own.
NAME = re.compile(r"\bfn (\w+_)?(who|whom|nobody|somebody|told|tells|stood|blamed?|blames|his|him|canar(y|ies)|gather\w*)(_\w+)?\b(?<!_main)")
# A comment of one to three words in front of an item.
FRAGMENT = re.compile(r"///\s+(\w+[ ,]?){1,3}\.")
SUFFIXES = (".rs", ".c", ".h", ".sh", ".py", ".js", ".yaml", ".yml", ".toml", ".ld")
# A row of a table, a rule of dashes, and a path or an address.
UNBREAKABLE = re.compile(r"\|.*|-{3,}.*|\S+$")
COMMENT = re.compile(r"(?:^|\s)(///?!?|//!|#|/\*|\*)(?:\s(.*))?$")
# What others wrote, what programs wrote, and what quotes either.
SKIPPED = re.compile(r"(^|/)(results|golden|corpus)/|^(Cargo\.lock|LICENSE|CHANGELOG\.md)$|^layout/|^\.ci/prose/|/prometheusrule\.yaml$")


def is_source(path):
    if path.suffix in SUFFIXES:
        return True
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def comments(path, text):
    """Number and prose of every line that has some. Code in backquotes is no prose."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if path.suffix == ".md":
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced:
                yield number, re.sub(r"`[^`]*`", "", line)
        else:
            found = COMMENT.search(line)
            if found and found[2]:
                yield number, re.sub(r"`[^`]*`", "", found[2])


def hits(path, text):
    """Kind and line of each place that a person should look at."""
    lines = text.splitlines()
    for number, prose in comments(path, text):
        for kind, pattern in WORDS.items():
            if re.search(pattern, prose, re.IGNORECASE):
                yield kind, number
        is_alone = COMMENT.match(lines[number - 1].lstrip())
        is_wide = path.suffix != ".md" and is_alone and len(lines[number - 1]) > COLUMNS
        if is_wide and not UNBREAKABLE.match(prose.strip()):
            yield WIDE, number
    if path.suffix == ".rs":
        previous = ""
        for number, line in enumerate(lines, 1):
            following = lines[number].lstrip() if number < len(lines) else ""
            if NAME.search(line):
                yield "name as a person", number
            is_whole = not previous.startswith("///") and not following.startswith("///")
            if is_whole and FRAGMENT.fullmatch(line.strip()):
                yield "fragment as documentation", number
            previous = line.strip()


def main(arguments):
    is_listed = "--list" in arguments
    paths = [argument for argument in arguments if argument != "--list"]
    listed = subprocess.run(["git", "ls-files", "-z", "--", *(paths or ["."])], capture_output=True, check=True)
    counts = collections.Counter()
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = pathlib.Path(name)
        if SKIPPED.search(name) or not path.is_file() or path.is_symlink():
            continue
        if path.suffix != ".md" and not is_source(path):
            continue
        text = path.read_text(encoding="utf-8")
        for kind, number in hits(path, text):
            counts[kind] += 1
            if is_listed:
                print(f"{name}:{number}: {kind}: {text.splitlines()[number - 1].strip()[:100]}")
    failed = False
    for kind, limit in LIMITS.items():
        is_over = not paths and counts[kind] > limit
        failed |= is_over
        print(f"{counts[kind]:5} {kind}{f', at most {limit}' if not paths else ''}{': FAILED' if is_over else ''}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
