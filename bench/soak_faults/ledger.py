"""What the agents' own figures must obey, sample after sample: no sockets, no clock.

Exact are the objects of /api/v1/peers, each read at one moment: sent - received - lost is the
number of probes in flight. The samples of /metrics are written family by family, while probes are
sent, so their differences scatter by what happened between two families. A difference that stays
is a defect: the smallest of a quiet minute's scrapes shows it.
"""

import collections, itertools, math

import paths
from lab import samples

# A probe is lost after the timeout, and its loss is withheld for at most 3 s while discovery is
# asked (DOUBT_TIME). One interval more, for the probe that is just being sent.
DOUBT_SECONDS = 3.0
# The build that records a call stack at each allocation, under one lock, and keeps it in tables of
# its own. It is here for its report at the end. Its memory and its speed are those of a test.
LEAK_FINDER = "leak-finder"
# The longest back-off after an outage of the API is a random part of a minute; then a connection
# and a list.
RETURN_SECONDS = 75
# From a list to the last loss of the one before it: the timeout, the doubt, and the distance of two
# samples.
SETTLED_SECONDS = 6
# Probes lost between two reports of the agent: the one before, at `since`, and the one that shows
# the loss, at `at`. Most are a second apart, and up to half a minute where clients take all places
# and reports are refused.
Loss = collections.namedtuple("Loss", "since at agent node network count")
# `agent` is None for all of them.
Excuse = collections.namedtuple("Excuse", "agent node network begin end why")


def in_flight_max(interval, timeout):
    """The most probes of one peer that can be in flight, or have a withheld loss."""
    return int((timeout + DOUBT_SECONDS) / interval) + 2


class Ledger:
    """One agent's counters over the whole run."""

    def __init__(self, agent, in_flight, mortal=()):
        """Answers are kept of the nodes `mortal`, those that may be dead at times."""
        self.agent, self.in_flight, self.last, self.at = agent, in_flight, {}, None
        self.mortal = frozenset(mortal)
        self.losses, self.problems, self.answers = [], [], []
        self.states = {}
        self.pods, self.moves = {}, []
        self.sent = self.received = self.lost = self.withdrawn = 0
        self.under_way, self.zones, self.peers = {}, {}, {}

    def problem(self, text):
        # The list is bounded: a broken counter is broken in every sample.
        if len(self.problems) < 50:
            self.problems.append(f"{self.agent}: {text}")

    def report(self, at, row):
        """An answer of /api/v1/peers."""
        since = at if self.at is None else self.at
        now, states, paused = {}, {}, at - since > 3
        pods = {peer["node"]: peer["address"] for peer in row["peers"] if peer["network"] == "pod" and peer["state"] != "left"}
        for node in self.pods.keys() | pods.keys():
            if self.pods.get(node) != pods.get(node):
                self.moves.append((since, at, node, pods.get(node)))
        self.pods = pods
        for peer in row["peers"]:
            key = (peer["node"], peer["network"], peer["protocol"])
            counters = now[key] = (peer["sent"], peer["received"], peer["lost"])
            states[key] = peer["state"]
            sent, received, lost = counters
            if not 0 <= sent - received - lost <= self.in_flight:
                self.problem(
                    f"at {at:.0f} s {'/'.join(key)} has sent {sent}, received {received} "
                    f"and lost {lost}; {self.in_flight} can be under way"
                )
            before = self.last.get(key, (0, 0, 0))
            # A peer that was forgotten begins at 0 again: seen without it, or between two samples
            # if it had left before, or in a pause of the samples.
            if sent < before[0] and (paused or self.states.get(key) == "left"):
                self.forget(before)
                before = (0, 0, 0)
            grown = [new - old for new, old in zip(counters, before)]
            if min(grown) < 0:
                self.problem(f"at {at:.0f} s counters of {'/'.join(key)} fell from {before} to {counters}")
                grown = [0, 0, 0]
            if self.at is not None or key in self.last:
                self.sent, self.received, self.lost = (
                    old + new for old, new in zip((self.sent, self.received, self.lost), grown)
                )
            if grown[2]:
                self.losses.append(Loss(since, at, self.agent, key[0], key[1], grown[2]))
            if grown[1] and key[0] in self.mortal:
                self.answers.append((self.at, at, key[0], key[1], grown[1]))
        for key in self.last.keys() - now.keys():
            self.forget(self.last[key])
        self.last, self.states, self.at = now, states, at

    def forget(self, counters):
        """A peer is no longer there. Probes that were withdrawn because it left before they were
        decided count in its `sent` and nowhere else."""
        sent, received, lost = counters
        self.withdrawn += sent - received - lost

    def quiet_report(self, row):
        for peer in row["peers"]:
            key = (peer["node"], peer["network"], peer["protocol"])
            smallest(self.under_way, key, peer["sent"] - peer["received"] - peer["lost"])

    def quiet_scrape(self, text):
        """A scrape in the quiet minute."""
        for scope, into in (("zone_probes", self.zones), ("probes", self.peers)):
            of = {}
            for name, labels, value in samples(text):
                for what in ("sent", "received", "lost"):
                    if name == f"{scope}_{what}_total":
                        of.setdefault(tuple(sorted(labels.items())), {})[what] = value
            for key, it in of.items():
                smallest(into, key, it["sent"] - it["received"] - it["lost"])

    def identity(self):
        """After the quiet minute: series whose difference never was 0."""
        for what, of in (("row", self.under_way), ("series", self.peers), ("zone series", self.zones)):
            for key, difference in of.items():
                if difference:
                    self.problem(f"{what} {key}: sent - received - lost was {difference:.0f} or more throughout the quiet minute")


def smallest(into, key, value):
    if key not in into or abs(value) < abs(into[key]):
        into[key] = value


def explained(loss, excuse, interval):
    """Returns how many of the probes the fault explains: all if both reports are within its time,
    else as many as are sent in that part of its time that lies between the reports."""
    if excuse.begin <= loss.since and loss.at <= excuse.end:
        return loss.count
    seconds = min(loss.at, excuse.end) - max(loss.since, excuse.begin)
    return min(loss.count, int(seconds / interval) + 1) if seconds > 0 else 0


def reasons(losses, excuses, interval):
    """Yields each loss with its reason, in parts if it has several, and None for what has none."""
    of = collections.defaultdict(list)
    for excuse in excuses:
        of[excuse.node, excuse.network].append(excuse)
    for loss in losses:
        left = loss.count
        for excuse in of[loss.node, loss.network]:
            if left and excuse.agent in (None, loss.agent):
                count = explained(loss._replace(count=left), excuse, interval)
                left -= count
                if count:
                    yield loss._replace(count=count), excuse.why
        if left:
            yield loss._replace(count=left), None


def unexcused(losses, excuses, drops, interval):
    """Losses that no fault explains.

    `drops` are (since, at, agent, packets that the kernel dropped because the agent's receive queue
    was full), from one scrape to the next. Each may be one reply, whose loss shows until the
    timeout and the doubt are over."""
    left = [loss for loss, why in reasons(losses, excuses, interval) if why is None]
    for since, at, agent, count in drops:
        for index, loss in enumerate(left):
            may_show = since <= loss.at and loss.since <= at + DOUBT_SECONDS + 3
            if loss.agent == agent and may_show and count:
                taken = min(count, loss.count)
                count -= taken
                left[index] = loss._replace(count=loss.count - taken)
    return [loss for loss in left if loss.count]


def joined(outages):
    """Outages as an agent may see them: one that begins before it has to be back from the last goes
    on with that."""
    together = []
    for begin, end in sorted(outages):
        if together and begin <= together[-1][1] + RETURN_SECONDS:
            together[-1][1] = max(end, together[-1][1])
        else:
            together.append([begin, end])
    return together


def out_of_touch(agent, moves, outages, stopped):
    """Excuses for pods that stopped when an agent could not learn of it, because of an outage of
    the API or the back-off behind it: until it has another address of their node.

    `moves` are (since, at, node, the pod's address in the agent's list), from one report to the
    next, and `stopped` (at, node, address)."""
    spans = collections.defaultdict(list)  # of an address, which is of one pod only
    for _, of in itertools.groupby(sorted(moves, key=lambda move: move[2]), lambda move: move[2]):
        of = list(of)
        left = [at for _, at, _, _ in of[1:]] + [math.inf]
        for (since, _, _, address), until in zip(of, left):
            spans[address].append((since, until))
    for at, node, address in stopped:
        ends = [end + RETURN_SECONDS for begin, end in joined(outages) if begin <= at <= end + RETURN_SECONDS]
        for begin, until in spans[address] if ends else ():
            begin, end = max(begin, at), min(until, max(ends))
            if begin < end:
                why = "stopped while the API was away"
                yield Excuse(agent, node, "pod", begin, end + SETTLED_SECONDS, why)


def forged(answers, dead):
    """Answers counted of addresses that answered nothing. `answers` are (since, at, node, network,
    count), of two samples that are both within that time; replies that were in flight are read
    within half a second."""
    return [
        answer
        for answer in answers
        for excuse in dead
        if tuple(answer[2:4]) == (excuse.node, excuse.network)
        and answer[0] is not None
        and excuse.begin + 0.5 <= answer[0]
        and answer[1] <= excuse.end
    ]


# ---- the states before and after ----

# How much more an agent may have after the faults. Descriptors, sockets and threads: none. RSS: a
# tenth. It consists mostly of file pages, which agents give back once a minute, so the lowest
# values of a minute are compared. Anonymous memory: what gathering-2026-11-23 allows,
# because a malloc keeps partly used pages. Live bytes: text that the next scrape reuses, names of
# members that came and went, the plan of the series.
RSS_FACTOR, ANONYMOUS_KB, LIVE_BYTES = 1.10, 150, 64 * 1024
EXACT = ("descriptors", "sockets", "threads")


def lowest(states, begin, end):
    """The least of each figure between two times. What every scrape takes and gives back is not
    counted, nor is what a collection of the page leaves for some seconds."""
    within = [state for state in states if begin <= state["at"] <= end]
    return {
        name: min(state[name] for state in within if state[name] is not None)
        for name in (*EXACT, "rss_kb", "anonymous_kb", "live_bytes")
        if any(state[name] is not None for state in within)
    }


def grown(agent, before, after):
    """The differences from the start."""
    for name in EXACT:
        if after[name] > before[name]:
            yield f"{agent}: {after[name]} {name}, {before[name]} before the faults"
    if agent == LEAK_FINDER:
        return
    if after["rss_kb"] > before["rss_kb"] * RSS_FACTOR:
        yield f"{agent}: {after['rss_kb']} KB resident, {before['rss_kb']} before the faults"
    if after["anonymous_kb"] > before["anonymous_kb"] + ANONYMOUS_KB:
        yield f"{agent}: {after['anonymous_kb']} KB of anonymous memory, {before['anonymous_kb']} before the faults"
    if after.get("live_bytes", 0) > before.get("live_bytes", 0) + LIVE_BYTES:
        yield f"{agent}: {after['live_bytes']:,} live bytes, {before['live_bytes']:,} before the faults"


def unanswered(checks):
    """Checks of /healthz that failed. `checks` are (at, agent, seconds, error)."""
    return [f"{agent}: /healthz at {at:.0f} s: {error} after {seconds:.2f} s" for at, agent, seconds, error in checks if error]
