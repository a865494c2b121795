"""Reads the agents once a second, for the whole run:
watch.py RESULT STATES BEGIN INTERVAL TIMEOUT NODE,… NAME=ADDRESS=PID…

Each agent's /healthz by a thread of its own, as a kubelet does: one request a second, answered
within a second (the leak finder's build has five, see ledger.py). A check that this process itself
began late says nothing and is counted. Beside it the reports, the scrapes and the kernel's figures,
into ledgers. Lines on standard input: `quiet` begins the quiet minute; its end ends all. RESULT
gets what was found, STATES a line a sample.
"""

import json, os, pathlib, sys, threading, time

import paths
import ledger
from lab import read, rollup, samples

KUBELET_SECONDS, READ_SECONDS = 1.0, 5.0
# A check that begins this much later than it should shows a delay of the machine, not of the agent.
LATE_SECONDS = 0.25
LEDGER = ("problems", "losses", "answers", "moves", "sent", "received", "lost", "withdrawn")


class Check(threading.Thread):
    """/healthz each second."""

    def __init__(self, name, address, begin):
        super().__init__(daemon=True)
        self.agent, self.address, self.begin = name, address, begin
        self.over, self.found, self.checks, self.late, self.slowest = False, [], 0, 0, 0.0

    def run(self):
        limit = KUBELET_SECONDS if self.agent != ledger.LEAK_FINDER else READ_SECONDS
        turn = time.monotonic()
        while not self.over:
            turn = max(turn + 1, time.monotonic())
            time.sleep(max(0, turn - time.monotonic()))
            began = time.monotonic()
            error = None
            try:
                read(self.address, "/healthz", limit)
            except OSError as raised:
                error = str(raised) or repr(raised)
            took = time.monotonic() - began
            self.checks += 1
            if began - turn > LATE_SECONDS:
                self.late, turn = self.late + 1, began
            else:
                self.slowest = max(self.slowest, took)
                if error and len(self.found) < 1000:
                    self.found.append((round(began - self.begin, 1), self.agent, took, error))


def state(pid):
    directory = pathlib.Path(f"/proc/{pid}")
    files = []
    for number in os.listdir(directory / "fd"):
        try:
            files.append(os.readlink(directory / "fd" / number))
        except FileNotFoundError:
            pass  # it was closed by now
    kb = rollup(pid)
    return {"descriptors": len(files), "sockets": sum(file.startswith("socket:") for file in files),
            "threads": len(os.listdir(directory / "task")), "rss_kb": kb["Rss"], "anonymous_kb": kb["Anonymous"]}


class Agent:
    def __init__(self, name, address, pid, begin, in_flight, mortal):
        self.name, self.address, self.pid, self.begin = name, address, pid, begin
        self.ledger = ledger.Ledger(name, in_flight, mortal)
        self.check = Check(name, address, begin)
        self.drops, self.refused, self.scrapes, self.own = [], [], 0, {}
        self.scraped = 0.0  # when /metrics was last answered

    def sample(self, quiet, out):
        at = time.monotonic() - self.begin
        it = {"agent": self.name, "at": round(at, 1), **state(self.pid), "live_bytes": None}
        try:
            self.scrapes += 1
            self.read(quiet, it)
        except OSError as error:
            self.refused.append((round(time.monotonic() - self.begin, 1), str(error)))
        out.write(json.dumps(it) + "\n")

    def read(self, quiet, it):
        row = json.loads(read(self.address, "/api/v1/peers", READ_SECONDS))
        # What it says happened before now.
        at = time.monotonic() - self.begin
        self.ledger.report(at, row)
        text = read(self.address, "/metrics", READ_SECONDS).decode()
        own = {}
        for name, labels, value in samples(text):
            if name in ("probes_corrupt_total", "probes_duplicate_total", "probes_late_total"):
                own[name] = own.get(name, 0) + value
            elif "peer_zone" not in labels:
                own[name if not labels else f"{name} {' '.join(labels.values())}"] = value
        dropped = own["receive_queue_drops_total"] - self.own.get("receive_queue_drops_total", 0)
        if dropped:
            self.drops.append((self.scraped, at, self.name, dropped))
        self.scraped = at
        it["live_bytes"], self.own = own.get("allocator_bytes allocated"), own
        if quiet:
            self.ledger.quiet_report(row)
            self.ledger.quiet_scrape(text)


def main(result, states, begin, interval, timeout, mortal, *agents):
    os.nice(-5)
    # The same clock as in run.py.
    begin, quiet = float(begin), threading.Event()
    in_flight = ledger.in_flight_max(float(interval), float(timeout))
    agents = [Agent(*word.split("=")[:2], int(word.split("=")[2]), begin, in_flight, mortal.split(",")) for word in agents]
    over = threading.Event()

    def listen():
        for line in sys.stdin:
            if line == "quiet\n":
                quiet.set()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    for agent in agents:
        agent.check.start()
    with open(states, "w") as out:
        while not over.is_set():
            turn = time.monotonic()
            for agent in agents:
                agent.sample(quiet.is_set(), out)
            over.wait(max(0, turn + 1 - time.monotonic()))
    for agent in agents:
        agent.check.over = True
    for agent in agents:
        agent.check.join(READ_SECONDS + 2)
        agent.ledger.identity()
    found = {}
    for agent in agents:
        it, check = agent.ledger, agent.check
        found[agent.name] = {name: getattr(it, name) for name in LEDGER} | {
            "drops": agent.drops, "refused": agent.refused, "scrapes": agent.scrapes, "own": agent.own,
            "unhealthy": check.found, "checks": check.checks, "late": check.late, "slowest": check.slowest}
    pathlib.Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
