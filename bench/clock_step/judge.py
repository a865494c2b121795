"""Judges the results of bench/clock_step/guest.

The truth is the phase without steps: the buckets of its probes, and the times of its ping. In a
machine of virtual time they differ by microseconds. With the clock being stepped
- no probe may be in a bucket above, none lost, late or double, and no line of ping may be longer;
- one may be in a bucket below only after a step shorter than the round trip, which leaves a stamp two possible meanings
  of which the agent takes the one with the shorter time, and calls it its own: by no more than the step, and never with the kernel's name;
- the accounts hold: of ping, all that were sent are received; at each scrape, sent = received + lost + in flight. A scrape
  is no snapshot: it counts received first, then the histogram, sent last, while the agent goes on. One probe per peer may
  be under way, and one per peer come and go meanwhile.
"""

import json
import re
from collections import Counter

import lab

PEERS = 8
TARGETS = 2
# By how much a line of ping may differ from the undisturbed ones, because of softirqs, caches and
# page faults of a busier machine. It is a tenth of the smallest step.
SLACK_SECONDS = 500e-6
NONE = ["none", "none-again"]
SIZES_MS = [5, 50, 500, 3_600_000]
COUNTERS = ["sent", "received", "lost", "late", "duplicate", "reordered", "corrupt"]
HEAD = ["wire", "step", "steps", "probes", "above", "below", "user-stamped", "ping: probes", "ms from", "to", "user-stamped"]


def scrape(path):
    """(counters, non-cumulative buckets by upper bound), both over all peers."""
    counters, cumulative = dict.fromkeys(COUNTERS + ["kernel", "user", "send_errors", "rtts"], 0), {}
    for name, labels, value in lab.samples(path.read_text()):
        if not labels or value != value:
            continue  # figures of the agent itself, and a sum of nothing
        value = int(value)
        if probes := re.fullmatch(r"probes_(\w+)_total", name):
            if probes[1] in COUNTERS:
                counters[probes[1]] += value
        elif name == "probe_send_errors_total":
            counters["send_errors"] += value
        elif name == "rtt_stamps_total":
            counters[labels["source"]] += value
        elif name == "probe_rtt_seconds_count":
            counters["rtts"] += value
        elif name == "probe_rtt_seconds_bucket":
            bound = float(labels["le"])
            cumulative[bound] = cumulative.get(bound, 0) + value
    below, buckets = 0, {}
    for bound in sorted(cumulative):
        buckets[bound], below = cumulative[bound] - below, cumulative[bound]
    return counters, buckets


class Phase:
    def __init__(self, directory, name, problems):
        self.name = name
        self.problem = lambda text: problems.append(f"{name}: {text}")
        before, after = (scrape(directory / f"{name}.{end}") for end in ("before", "after"))
        for counters, _ in (before, after):
            in_flight = counters["sent"] - counters["received"] - counters["lost"]
            if not 0 <= in_flight <= 2 * PEERS:
                self.problem(f"sent - received - lost = {in_flight}")
            if not 0 <= counters["rtts"] - counters["received"] <= PEERS:
                self.problem(f"{counters['received']} received, {counters['rtts']} in the histogram")
        self.counters = {key: after[0][key] - before[0][key] for key in after[0]}
        self.buckets = {bound: after[1][bound] - before[1][bound] for bound in after[1]}
        for key in ("lost", "late", "duplicate", "reordered", "corrupt", "send_errors"):
            if self.counters[key]:
                self.problem(f"{self.counters[key]} {key}")
        steps = directory / f"{name}.steps"
        self.steps = len(steps.read_text().splitlines()) if steps.exists() else 0
        lines = [json.loads(line) for line in (directory / f"{name}.ping").read_text().splitlines()]
        self.pings = [(line["rtt_seconds"], line["stamp"]) for line in lines if "rtt_seconds" in line]
        summaries = [line for line in lines if "sent" in line]
        if len(summaries) != TARGETS or len(lines) - TARGETS != len(self.pings):
            self.problem("ping told of something else than replies, or has no summary")
        if any(line["sent"] != line["received"] for line in summaries) or not self.pings:
            self.problem("ping: sent and received differ")

    def filled(self):
        return [bound for bound, count in self.buckets.items() if count]


def judged(directory, wire, asked):
    """Rows of figures, rows of the table, and what is wrong."""
    problems, raw, shown = [], [], []
    names = [f"{sign}{size}ms" for size in SIZES_MS for sign in ("", "-")]
    phases = [Phase(directory, name, problems) for name in [NONE[0], *names, NONE[1]]]
    truth = phases[0]
    lowest, highest = min(truth.filled(), default=0), max(truth.filled(), default=0)
    shortest, longest = min(truth.pings)[0], max(truth.pings)[0]
    if not truth.filled() or truth.counters["user"]:
        problems.append("none: no probes, or without stamps of the kernel")
    # Only a precise truth can show a step of 5 ms.
    if longest - shortest > 1e-3:
        problems.append(f"none: round trips from {shortest} to {longest} s are no truth to compare with")

    def bound_before(bound):
        return max((other for other in truth.buckets if other < bound), default=0)

    for phase in phases:
        of = f"{wire},{phase.name},{phase.steps}"
        raw += [f"{of},histogram,{bound},,{count}" for bound, count in phase.buckets.items()]
        counts = Counter((f"{rtt:.6f}", stamp) for rtt, stamp in phase.pings)
        raw += [f"{of},ping,{rtt},{stamp},{count}" for (rtt, stamp), count in sorted(counts.items())]
        step = 0 if phase.name in NONE else abs(int(phase.name[:-2])) / 1e3
        if step and phase.steps != asked:
            phase.problem(f"{phase.steps} of {asked} steps were made")
        above = sum(count for bound, count in phase.buckets.items() if bound > highest)
        below = sum(count for bound, count in phase.buckets.items() if bound < lowest)
        ambiguous = 0 < step < longest + SLACK_SECONDS
        if above:
            phase.problem(f"{above} probes in buckets above the truth")
        if below > (phase.counters["user"] if ambiguous else 0):
            phase.problem(f"{below} probes in buckets below the truth, {phase.counters['user']} without the kernel's stamps")
        if below and min(phase.filled()) <= bound_before(shortest - step):
            phase.problem("a probe is too short by more than the step")
        for source in ("kernel", "user"):
            least = shortest - (step if ambiguous and source == "user" else 0) - SLACK_SECONDS
            rtts = [rtt for rtt, stamp in phase.pings if stamp == source]
            if wrong := [rtt for rtt in rtts if not least <= rtt <= longest + SLACK_SECONDS]:
                phase.problem(f"ping: {len(wrong)} of {len(rtts)} {source}-stamped from {min(wrong)} to {max(wrong)} s")
        users = sum(stamp == "user" for _, stamp in phase.pings)
        times = [rtt for rtt, _ in phase.pings]
        shown.append([wire, phase.name, str(phase.steps), str(phase.counters["rtts"]), str(above), str(below), str(phase.counters["user"]),
                      str(len(times)), f"{min(times) * 1e3:.3f}", f"{max(times) * 1e3:.3f}", str(users)])
    return raw, shown, problems
