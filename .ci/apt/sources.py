#!/usr/bin/env python3
"""Prints where this machine gets Debian from, for another suite: a file of sources for apt.

    .ci/apt/sources.py SUITE [ARCHITECTURE]

Host, path and keyring are those of the machine's own sources, so that a mirror or a proxy that is
configured there is used here too. The output has the format deb822, which can hold a key itself. It
goes into a file whose name ends in `.sources`. Needs apt.
"""
import pathlib
import re
import subprocess
import sys

# The suites of Debian's archive, besides the codename of this machine.
SUITES = ("stable", "oldstable", "testing", "unstable", "sid", "bullseye", "bookworm", "trixie", "forky")
# What must hold for another suite of the same archive, too.
KEPT = ("signed-by", "trusted", "allow-insecure", "check-valid-until", "check-date")


def one_line(text):
    """The entries of a file in the format of sources.list: each is a dictionary of fields."""
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        found = re.fullmatch(r"(deb|deb-src)\s+(?:\[\s*(.*?)\s*\]\s+)?(\S+)\s+(\S+)\s*(.*)", line)
        if found:
            kind, options, uri, suite, components = found.groups()
            options = dict(option.split("=", 1) for option in (options or "").split() if "=" in option)
            yield {"types": kind, "uris": uri, "suites": suite, "components": components,
                   **{name.lower().rstrip("+-"): value.replace(",", " ") for name, value in options.items()}}


def deb822(text):
    """The entries of a file in the format deb822. A field may have several lines."""
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields, name = {}, None
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t") and name:
                fields[name] += "\n" + line.rstrip()
            elif ":" in line:
                name, value = line.split(":", 1)
                name = name.strip().lower()
                fields[name] = value.strip()
        if fields.get("enabled", "yes").lower() not in ("no", "false", "0"):
            yield fields


def read(files):
    """The entries of all files, in order."""
    for file in files:
        try:
            text = file.read_text()
        except OSError:
            continue
        yield from (deb822 if file.suffix == ".sources" else one_line)(text)


def archives(entries, codename):
    """The entries of Debian's archive: not of its security updates, and not of others who call
    their suites as Debian does."""
    suites = {*SUITES, codename} - {""}
    entries = [it for it in entries if "deb" in it.get("types", "").split() and "main" in it.get("components", "").split()]
    found = [it for it in entries if suites & {suite.rstrip("/") for suite in it.get("suites", "").split()}]

    def likeness(entry):
        path = entry["uris"].split()[0].rstrip("/") if entry.get("uris") else ""
        updated = any(it.get("uris") == entry.get("uris") and "-updates" in it.get("suites", "") for it in entries)
        return 4 * ("debian-archive" in entry.get("signed-by", "")) + 2 * updated + bool(re.search(r"/debian(/|$)", path))

    best = max(map(likeness, found), default=0)
    return [it for it in found if likeness(it) == best]


def written(entry, suite, architecture):
    """A stanza for the suite at the place of the entry."""
    lines = ["Types: deb", f"URIs: {entry['uris']}", f"Suites: {suite}", "Components: main"]
    if architecture:
        lines.append(f"Architectures: {architecture}")
    lines += [f"{name.title()}: {entry[name]}" for name in KEPT if name in entry]
    return "\n".join(lines) + "\n"


def configured():
    """The files of sources that apt reads, in its order."""
    names = ["SourceList/f", "SourceParts/d"]
    shell = [part for name in names for part in (name.split("/")[0], f"Dir::Etc::{name}")]
    text = subprocess.run(["apt-config", "shell", *shell], check=True, capture_output=True, text=True).stdout
    paths = dict(re.findall(r"^(\w+)='(.*)'$", text, re.MULTILINE))
    parts = pathlib.Path(paths["SourceParts"])
    files = sorted(it for it in parts.glob("*") if it.suffix in (".list", ".sources")) if parts.is_dir() else []
    return [pathlib.Path(paths["SourceList"]), *files]


def main(arguments):
    if len(arguments) not in (1, 2):
        sys.exit(__doc__)
    suite, architecture = (*arguments, "")[:2]
    files = configured()
    release = pathlib.Path("/etc/os-release").read_text()
    codename = "".join(re.findall(r'^VERSION_CODENAME="?(\w+)', release, re.MULTILINE))
    found = archives(read(files), codename)
    if not found:
        sys.exit(f".ci/apt/sources.py: no archive of Debian with the component main in the sources of apt "
                 f"({', '.join(map(str, files))}); add one, with its keyring")
    print("\n".join(written(entry, suite, architecture) for entry in found), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
