"""Judges a run from the findings of run.py and watch.py, and writes its report."""

import collections

import paths
import lab
import ledger
from ledger import Excuse, Loss

COLUMNS = ("at", "agent", "rss_kb", "anonymous_kb", "live_bytes", "descriptors", "sockets", "threads")
# While these run, and until the agent has closed what they opened (REQUEST_HEAD_TIME 5 s,
# RESPONSE_TIME 30 s), all ordinary places may be taken, and a scrape is refused.
TAKING_PLACES, TAKEN_SECONDS = ("idle", "deaf", "slow-head", "connects", "collect", "unknown", "recursive"), 32
SHOWN = 20


def before_and_after(found, states):
    """Per agent, the states before and after the faults."""
    for name in found["agents"]:
        of = [state for state in states if state["agent"] == name]
        yield name, ledger.lowest(of, *found["before"]), ledger.lowest(of, *found["after"])


def losses(found):
    return [Loss(*loss) for agent in found["agents"].values() for loss in agent["losses"]]


def excuses(found):
    of_outages = [
        excuse
        for name, agent in found["agents"].items()
        for excuse in ledger.out_of_touch(name, agent["moves"], found["outages"], found["stopped"])
    ]
    return [Excuse(*excuse) for excuse in found["excuses"]] + of_outages


def left_over(found):
    drops = [drop for agent in found["agents"].values() for drop in agent["drops"]]
    return ledger.unexcused(losses(found), excuses(found), drops, found["interval"])


def refused_without_fault(found):
    """Scrapes that failed at other times than those in which clients took the places."""
    taken = [(fault["begin"], fault["end"] + TAKEN_SECONDS) for fault in found["faults"] if fault["kind"] in TAKING_PLACES]
    for name, agent in found["agents"].items():
        for at, error in agent["refused"]:
            if not any(begin <= at <= end for begin, end in taken):
                yield f"{name}: a scrape at {at:.0f} s failed: {error}"


def missed(found, states):
    """The faults of the run, one line each."""
    lines = []
    for name, before, after in before_and_after(found, states):
        lines += ledger.grown(name, before, after)
    for name, agent in found["agents"].items():
        lines += agent["problems"] + ledger.unanswered(agent["unhealthy"])
        dead = [Excuse(*excuse) for excuse in found["dead"]]
        lines += [
            f"{name}: {count} answers of {node} were counted at {at:.0f} s, while it was dead"
            for _, at, node, _, count in ledger.forged(agent["answers"], dead)
        ]
        if agent["late"] * 20 > agent["checks"]:
            lines.append(
                f"{name}: {agent['late']} of {agent['checks']} checks of /healthz began late: the "
                "machine was too busy for a result"
            )
        lines += found["leaks"][name]
    lines += [
        f"{loss.agent}: {loss.count} probes to {loss.node} ({loss.network}) were lost from "
        f"{loss.since:.0f} to {loss.at:.0f} s, without a fault"
        for loss in left_over(found)
    ]
    lines += refused_without_fault(found)
    lines += [f"{name} ended with {code}" for name, code in zip(found["agents"], found["codes"]) if code]
    if not found["calm"]:
        lines.append("the mesh was still changing in the quiet minute")
    return lines


FIGURES = {  # of the states
    "resident, KB, before → after": "rss_kb", "of it anonymous": "anonymous_kb", "live bytes": "live_bytes",
    "descriptors": "descriptors", "of them sockets": "sockets", "threads": "threads"}
OWN = {  # of the agents' metrics
    "packets dropped at the receive queue": "receive_queue_drops_total", "unrelated replies": "replies_unrelated_total",
    "corrupt replies, of the peers at the end": "probes_corrupt_total", "probes skipped": "probes_skipped_total",
    "requests answered": "http_requests_total", "requests refused with 503": "http_requests_refused_total",
    "CPU seconds": "process_cpu_seconds_total"}


def column(name, found, states, before, after, left):
    """The rows of an agent's column, by their titles."""
    agent = found["agents"][name]
    most = {figure: max(state[figure] for state in states if state["agent"] == name) for figure in ("rss_kb", "descriptors")}
    rows = {title: f"{before[figure]:,.0f} → {after[figure]:,.0f}" if figure in before else "–" for title, figure in FIGURES.items()}
    rows |= {"most resident at any time, KB": f"{most['rss_kb']:,}", "most descriptors at any time": f"{most['descriptors']:,}"}
    rows |= {f"probes {what}": f"{agent[what]:,}" for what in ("sent", "received", "lost", "withdrawn")}
    rows |= {"of the lost without a fault": f"{left:,}"}
    rows |= {title: f"{agent['own'].get(figure, 0):,.0f}" for title, figure in OWN.items()}
    return rows | {
        "checks of /healthz; of them unanswered": f"{agent['checks']:,}; {len(agent['unhealthy'])}",
        "slowest answer, s": f"{agent['slowest']:.3f}", "checks that began late": str(agent["late"]),
        "scrapes; of them refused": f"{agent['scrapes']:,}; {len(agent['refused'])}",
        "leaks at the end": str(len(found["leaks"][name])) if name == ledger.LEAK_FINDER else "–"}


def report(found, states):
    left = collections.Counter()
    for loss in left_over(found):
        left[loss.agent] += loss.count
    columns = {name: column(name, found, states, before, after, left[name]) for name, before, after in before_and_after(found, states)}
    titles = next(iter(columns.values()))
    causes = collections.Counter()
    for loss, why in ledger.reasons(losses(found), excuses(found), found["interval"]):
        causes[why or "no fault, or a packet dropped at the receive queue"] += loss.count
    counted = collections.Counter((fault["lane"], fault["kind"]) for fault in found["faults"])
    return [
        "", lab.table(["", *columns], [[title, *(rows[title] for rows in columns.values())] for title in titles]), "",
        "Faults: " + ", ".join(f"{kind} {count}" for (_, kind), count in sorted(counted.items())) + ".", "",
        "Lost, by cause: " + ", ".join(f"{why} {count:,}" for why, count in sorted(causes.items())) + ".", "",
        "Before and after are the lowest values of each quiet time. Withdrawn are probes whose "
        "peer left before they were decided: its `sent` had them, and its series has gone."]


def verdict(missed):
    if not missed:
        return ["", "All is as before the faults."]
    more = [f"- and {len(missed) - SHOWN} more"] if len(missed) > SHOWN else []
    return ["", f"**Not as it has to be ({len(missed)}):**", "", *(f"- {line}" for line in missed[:SHOWN]), *more]
