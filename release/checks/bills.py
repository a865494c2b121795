#!/usr/bin/env python3
"""Checks the bills of materials in a directory: release/checks/bills.py DIRECTORY

Other libraries validate them. The list of crates must be that of `cargo tree`, and that in the
binary, which rust-audit-info reads.
"""
import json
import pathlib
import re
import subprocess
import sys
import tarfile

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

TARGETS = {"amd64": "x86_64-unknown-linux-musl", "arm64": "aarch64-unknown-linux-musl"}
directory = pathlib.Path(sys.argv[1])


def said(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, **more).stdout


def check(bill):
    name = bill.name.removesuffix(".cdx.json")
    _, arch, build = re.fullmatch(r"(.*)-linux-(amd64|arm64)-?(.*)", name).groups()
    if error := JsonStrictValidator(SchemaVersion.V1_5).validate_str(bill.read_text()):
        sys.exit(f"{bill}: {error}")
    document = parse_file(str(bill.with_name(f"{name}.spdx.json")))
    if errors := validate_full_spdx_document(document):
        sys.exit(f"{name}.spdx.json: {errors}")
    own = {"kube-canary", "rust-std"}
    parts = json.loads(bill.read_text())["components"]
    lists = {
        "CycloneDX": {(part["name"], part["version"]) for part in parts if part["name"] not in own},
        "SPDX": {(part.name, part.version) for part in document.packages if part.name not in own},
    }
    tree = said("cargo", "tree", "--locked", "--package", "kube-canary", "--edges", "normal,build", "--prefix", "none", "--format", "{p}",
                "--target", TARGETS[arch], "--features", build, text=True)
    lists["cargo tree"] = {part for part in re.findall(r"^([\w-]+) v(\S+)", tree, re.M) if part[0] not in own}
    with tarfile.open(directory / f"{name}.tar.gz") as archive:
        binary = pathlib.Path(directory.parent / "audited")
        binary.write_bytes(archive.extractfile(f"{name}/kube-canary").read())
    audited = json.loads(said("rust-audit-info", str(binary)))["packages"]
    lists["the binary"] = {(part["name"], part["version"]) for part in audited if part["name"] not in own}
    for source, parts in lists.items():
        if difference := parts ^ lists["cargo tree"]:
            sys.exit(f"{name}: {source} and cargo tree differ in {sorted(difference)}")
    print(f"{name}: {len(lists['cargo tree'])} crates in CycloneDX, SPDX and the binary")


bills = sorted(directory.glob("*.cdx.json"))
if len(bills) != 6:
    sys.exit(f"{directory}: {len(bills)} bills instead of 6")
for bill in bills:
    check(bill)
