"""What needs builds of its own: memory by number of CPUs, and the count of allocations."""
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import lab

PEERS = 1000


def commit(binary):
    """The commit of a binary, which it names itself, or of this checkout."""
    if binary:
        return json.loads(lab.said(binary, "version", "--json"))["revision"]
    return lab.commit()


def cpus(binary, quick):
    """Resident KB of each build with 200 peers on 1, 8 and 64 CPUs, by bench/cores."""
    names = ["system-musl-protocols"] if binary else ["system-musl-protocols", "jemalloc-protocols", "c-shim-musl-protocols"]
    cores = "1,64" if quick else "1,8,64"
    with tempfile.TemporaryDirectory(dir=lab.TARGET) as out:
        command = ["bench/cores", "--cores", cores, "--peers", "200", "--thp", "always", "--builds", ",".join(names), "--out", out]
        surroundings = os.environ | ({"KUBE_CANARY_BENCH_BIN": str(binary)} if binary else {})
        # It compares with ceilings, which .ci/full does as well; here, a row above one is a figure.
        subprocess.run(command, cwd=lab.ROOT, env=surroundings, stdout=subprocess.DEVNULL)
        if not (pathlib.Path(out) / "raw.csv").exists():
            sys.exit(f"bench/report: {' '.join(command)}: measured nothing")
        lines = (pathlib.Path(out) / "raw.csv").read_text().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    figures = {}
    for row in rows:
        cell = figures.setdefault(row["build"].removesuffix("-protocols"), {}).setdefault(row["cores"], {})
        if row["phase"] == "scraped":
            cell |= {"rss_kb": int(row["rss_kb"]), "private_kb": int(row["private_dirty_kb"])}
        elif row["phase"] == "returned":
            cell["working_set_kb"] = int(row["cgroup_working_set_kb"])
    return {"figures": figures, "raw": rows}


def allocations():
    """Allocations per probe and per scrape, counted by bench/counted_allocations."""
    lab.said("cargo", "build", "--quiet", "--locked", "--package", "kube-canary-bench", "--bin", "counted_allocations")
    # For the kernel's permission to ping.
    setup = "ip link set lo up && echo '0 0' >/proc/sys/net/ipv4/ping_group_range && exec \"$0\" \"$@\""
    program = ["unshare", "--net", "sh", "-c", setup, lab.TARGET / "debug/counted_allocations"]
    names = ("peers", "what", "units", "detail", "allocations")
    rows = [dict(zip(names, line.split(","))) for line in lab.said(*program, PEERS).splitlines()]
    figures = {row["what"]: round(int(row["allocations"]) / int(row["units"]), 2) for row in rows}
    return {"figures": {"peers": PEERS} | figures, "raw": rows}
