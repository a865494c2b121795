"""CPU time per probe, loss and accuracy beside other tools and beside the floor in C.

One namespace probes addresses of another, whose kernel answers. Accuracy is the reported round-trip
time less that of the same packets on the wire, by a tap with the kernel's stamps
(bench/peers_tap.c). The tap costs the prober CPU time, so cost is measured without it.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import lab

WARM_SECONDS = 3
# What is in flight is answered or lost by then.
SETTLE_SECONDS = 1.5
BUSY_LOOPS = 4
STAMPS = ("kernel", "batch")


class Tool:
    """A prober: its name, and how it runs with a number of targets for some seconds."""

    def __init__(self, name, program):
        self.name, self.program = name, program

    def command(self, work, targets, seconds, is_quiet):
        file = work / "targets"
        if self.name.startswith("floor"):
            stamps = self.name.partition("-")[2]
            # As often as the agent wakes, if its cost is measured.
            more = ["-S", stamps, "-l", work / "floor.log"] if stamps else ["-T", "250", "-S", "kernel-data"]
            return [self.program, "-n", targets, "-s", seconds, *more]
        if self.name == "fping":  # its probes spread over the second
            return [self.program, "-c", seconds, "-p", "1000", "-i", f"{900 / targets:.3f}", "-f", file, *(["-q"] if is_quiet else [])]
        if self.name == "oping":
            return [self.program, "-i", "1", "-c", seconds, "-f", file]
        if is_quiet:
            return [self.program, "run", "--discovery", "static", "--peers-file", work / "peers", "--max-peers", "0", "--max-series",
                    "10000000", "--node-name", "bench", "--listen", "127.0.0.1:9877", "--log-level", "warn", "--probes", "icmp",
                    "--judge", "never"]
        return [self.program, "ping", "--json", "--interval", "1s", "--count", seconds, *file.read_text().split()]

    def round_trips(self, work, output):
        """(address, sequence or None, nanoseconds) of every reply."""
        if self.name.startswith("floor"):
            for line in (work / "floor.log").read_text().splitlines():
                address, sequence, ns = line.split()[:3]
                yield address, int(sequence), float(ns)
        elif self.name == "fping":
            for address, ms in re.findall(r"^([\d.]+)\s*: \[\d+\], \d+ bytes, ([\d.]+) ms", output, re.M):
                yield address, None, float(ms) * 1e6
        elif self.name == "oping":
            for address, sequence, ms in re.findall(r" from \S+ \((.*?)\): icmp_seq=(\d+) .* time=([\d.]+) ms", output):
                yield address, int(sequence), float(ms) * 1e6
        else:
            for line in output.splitlines():
                if '"rtt_seconds":' in line and (reply := json.loads(line)).get("rtt_seconds") is not None:
                    yield reply["target"], reply["sequence"], reply["rtt_seconds"] * 1e9


def quantile(values, share):
    return sorted(values)[int((len(values) - 1) * share)] if values else None


def micro(value):
    return None if value is None else round(value / 1e3, 1)


def cost(tool, near, far, work, targets, seconds):
    """CPU time per probe that the far kernel counted, memory, and what got lost on the wire."""
    requests, replies = far.icmp("InType8"), near.icmp("InType0")
    process = near.start(*tool.command(work, targets, WARM_SECONDS + seconds + 2, True), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(WARM_SECONDS)
    sent, cpu = far.icmp("InType8"), lab.cpu_seconds(process.pid)
    time.sleep(seconds)
    probes, cpu = far.icmp("InType8") - sent, lab.cpu_seconds(process.pid) - cpu
    rss = lab.rollup(process.pid)["Rss"]
    near.stop()
    time.sleep(SETTLE_SECONDS)
    lost = (far.icmp("InType8") - requests) - (near.icmp("InType0") - replies)
    return {"cpu_us": round(cpu / probes * 1e6, 2) if probes else None, "rss_kb": rss, "wire_lost": max(lost, 0)}


def on_wire(lines):
    """Nanoseconds from a request to its reply by address and sequence, of the packets that the tap saw."""
    requests, found = {}, {}
    for line in sorted(lines, key=lambda line: int(line.rsplit(" ", 1)[1])):
        kind, address, identifier, sequence, at = line.split()
        key, at = (address, identifier, sequence), int(at)
        if kind == "8":
            requests[key] = at
        elif begun := requests.pop(key, None):
            found[address, int(sequence)] = float(at - begun)
    return found


def accuracy(tool, tap, near, far, work, targets, seconds):
    """Reported round-trip times beside those on the wire, in µs."""
    wire_file = work / "wire"
    far_namespace = f"/proc/{far.holder.pid}/ns/net"
    listener = subprocess.Popen(near.inside(tap, "-i", "eth0", "-f", far_namespace, "-l", wire_file), stdout=subprocess.PIPE, text=True)
    if "ready" not in listener.stdout.readline():
        sys.exit("bench/report: the tap does not listen")
    with open(work / "out", "w") as out:
        near.start(*tool.command(work, targets, seconds, False), stdout=out, stderr=subprocess.DEVNULL).wait(seconds + lab.HANG_SECONDS)
    near.stop()
    time.sleep(SETTLE_SECONDS)
    listener.terminate()
    dropped = int(re.search(r"dropped=(\d+)", listener.communicate()[0])[1])
    wire = on_wire(wire_file.read_text().splitlines())
    reported = list(tool.round_trips(work, (work / "out").read_text()))
    errors = [abs(ns - wire[address, sequence % 65536]) for address, sequence, ns in reported
              if sequence is not None and (address, sequence % 65536) in wire]
    return {"reported": len(reported), "p99_us": micro(quantile([ns for *_, ns in reported], 0.99)),
            "wire_p99_us": micro(quantile(list(wire.values()), 0.99)), "error_p50_us": micro(quantile(errors, 0.5)),
            "error_p99_us": micro(quantile(errors, 0.99)), "tap_dropped": dropped}


def built(directory, name):
    program = directory / name
    lab.said("cc", "-O2", "-Wall", "-Wextra", "-std=gnu11", "-static", "-o", program, lab.ROOT / f"bench/{name}.c")
    return program


def measured(binary, work, targets, seconds, runs):
    floor, tap = built(work, "floor"), built(work, "peers_tap")
    tools = [Tool("floor", floor), Tool("kube-canary", binary)]
    tools += [Tool(name, program) for name in ("fping", "oping") if (program := shutil.which(name))]
    addresses = lab.addresses(targets)
    (work / "targets").write_text("".join(f"{address}\n" for address in addresses))
    (work / "peers").write_text("".join(f"node-{n}={address}\n" for n, address in enumerate(addresses)))
    raw = []
    with lab.Node() as near, lab.Node() as far:
        lab.said(*near.inside("ip", "route", "add", "10.66.0.0/16", "via", far.address))
        lab.said(*far.inside("ip", "route", "add", "local", "10.66.0.0/16", "dev", "lo"))
        # Else the first echo waits for the address of the neighbour.
        lab.said(*near.inside("ip", "neighbour", "replace", far.address, "lladdr", mac(far), "dev", "eth0", "nud", "permanent"))
        lab.said(*far.inside("ip", "neighbour", "replace", near.address, "lladdr", mac(near), "dev", "eth0", "nud", "permanent"))
        for run in range(runs):
            # Tools take turns, so that a noisy machine hits all alike.
            for mode in ("idle", "busy"):
                loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(BUSY_LOOPS if mode == "busy" else 0)]
                for tool in tools:
                    raw.append({"run": run, "mode": mode, "tool": tool.name} | cost(tool, near, far, work, targets, seconds))
                stamped = [Tool(f"floor-{stamps}", floor) for stamps in STAMPS]
                for tool in stamped + tools[1:]:
                    raw.append({"run": run, "mode": mode, "tool": tool.name} | accuracy(tool, tap, near, far, work, targets, seconds))
                for loop in loops:
                    loop.kill()
                    loop.wait()
    return raw


def mac(node):
    return lab.said(*node.inside("ip", "-br", "link", "show", "eth0")).split()[2]


def tools(binary, quick):
    targets, seconds, runs = (1000, 3, 1) if quick else (1000, 6, 3)
    with tempfile.TemporaryDirectory(dir=lab.TARGET) as directory:
        raw = measured(binary, pathlib.Path(directory), targets, seconds, runs)
    figures = {"targets": targets, "seconds": seconds, "runs": runs}
    for mode in ("idle", "busy"):
        for name in dict.fromkeys(row["tool"] for row in raw):
            rows = [row for row in raw if row["tool"] == name and row["mode"] == mode]
            keys = {key for row in rows for key in row} - {"run", "mode", "tool"}
            figures.setdefault(mode, {})[name] = {key: lab.median([row.get(key) for row in rows], 2) for key in sorted(keys)}
    return {"figures": figures, "raw": raw}
