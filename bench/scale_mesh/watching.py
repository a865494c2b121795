"""Agents that follow a rollout of `plane.Plane`: what they ask, receive, and count lost without a loss. No sockets, no clock.

`Record` keeps a rollout: each event of a slice with its bytes, and when each pod lived. `Agent` follows it by one `Design`:

- `Design(whole=True)`: one watch of whole slices. A loss counts at once, or after `hold` seconds unless the list says otherwise.
- `Design(whole=False)`: a watch of metadata, and slices read one at a time by the plan of src/discovery/kubernetes/plan.rs.
  With `doubts`, a loss waits until its slice is read, as src/prober/doubts.rs has it. Until 2026-11-23 slices without peers waited
  four times as long (`factor`), reads for doubts were spread (`spread`), and a silent peer was asked about once (`once`).

Between the API server and an agent lies `latency` for events, and `answer` for a read. No packet is lost: whatever counts as lost is a
pod that was replaced, and is counted falsely.
"""
import bisect, collections, heapq, itertools, random

import encode, plane

INTERVAL, TIMEOUT, SLACK = 1.0, 1.0, 0.125  # --interval, --timeout, and until a turn decides
HEAD, REQUEST = 350, 1137  # bytes, docs/adr/0013
COALESCE, SPACING, MIDDLE, FACTOR = 0.1, 0.8, 40.0, 4  # seconds, src/discovery/kubernetes/plan.rs
QUESTION, DOUBT, DOUBT_SPACING, DOUBT_SPREAD = 0.05, 3.0, 0.004, 0.2
IDLE = 5.0  # the second connection stays open unused

Design = collections.namedtuple("Design", "whole doubts hold factor spread once", defaults=(False, True, 0.0, 1, False, False))
Change = collections.namedtuple("Change", "at name nodes addresses event metadata body")


def chunked(data):
    return len(data) + len(b"%x\r\n\r\n" % len(data))


class Record:
    """A rollout of `nodes` pods, `unavailable` of them at a time, which stop `stop` seconds after their deletion."""

    def __init__(self, nodes, unavailable=plane.UNAVAILABLE, stop=plane.STOP, seed=1):
        self.nodes, self.died, changed = nodes, {}, (plane.UNAVAILABLE, plane.STOP)
        plane.UNAVAILABLE, plane.STOP = unavailable, stop
        mesh = plane.Plane(nodes, stopped=lambda address: self.died.setdefault(address, mesh.now), seed=seed)
        first = len(mesh.events)
        mesh.rollout()
        mesh.run()
        plane.UNAVAILABLE, plane.STOP = changed
        self.seconds = mesh.now
        self.changes = [self.change(event) for event in mesh.events]
        self.first, self.rolled = self.changes[:first], self.changes[first:]
        self.versions = collections.defaultdict(list)
        for change in self.changes:
            self.versions[change.name].append(change)
        self.list_bytes = sum(change.body for change in self.first)
        self.at = {}  # of an address: when a slice first had it
        for change in self.changes:
            for address in change.addresses:
                self.at.setdefault(address, change.at)

    @staticmethod
    def change(event):
        endpoints = event.item["endpoints"]
        addresses = {e["addresses"][0]: (e["nodeName"], e["conditions"]["terminating"]) for e in endpoints}
        whole, metadata = (chunked(encode.event(form, event.kind, event.item)) for form in (encode.PROTOBUF, encode.METADATA))
        body = len(encode.one(encode.PROTOBUF, event.item))
        return Change(event.at, event.item["metadata"]["name"], {node for node, _ in addresses.values()}, addresses, whole, metadata, body)

    def newest(self, name, now):
        versions = self.versions[name]
        return versions[bisect.bisect_right(versions, now, key=lambda change: change.at) - 1]


class Stale:
    def __init__(self, now, drawn):
        self.since, self.drawn, self.doubted = now, drawn, None


class Agent:
    """One agent with `peers` others, through the whole rollout."""

    def __init__(self, record, design, latency, answer, seed, peers=24):
        self.record, self.design, self.latency, self.answer = record, design, latency, answer
        self.random = random.Random(seed)
        names = [plane.node_name(k) for k in range(record.nodes)]
        self.peers = set(self.random.sample(names, min(peers, record.nodes - 1)))
        self.now, self.turns, self.due, self.reading, self.wake = 0.0, itertools.count(), [], None, 0
        self.content, self.slices_of, self.stale = {}, collections.Counter(), {}
        self.bytes, self.reads, self.lost, self.open_seconds, self.open_until = 0, [], 0, 0.0, 0.0
        self.withheld, self.settled, self.seen = {}, {}, {}
        for change in record.first:
            self.take(change)
        for change in record.rolled:
            self.after(change.at + latency, self.heard, change)
        of = {address: node for change in record.changes for address, (node, _) in change.addresses.items()}
        for address, died in record.died.items():
            if of[address] in self.peers:
                phase = self.random.random() * INTERVAL
                self.after(died + (phase - died) % INTERVAL, self.probe, address)
        while self.due:
            self.now, _, work, arguments = heapq.heappop(self.due)
            work(*arguments)
        # How long a new address waits in the API for its first probe.
        self.late = [self.seen[a] - record.at[a] for a in self.seen if record.at[a] > 0]

    def after(self, at, work, *arguments):
        heapq.heappush(self.due, (at, next(self.turns), work, arguments))

    # ---- the list ----
    def take(self, change):
        before = self.content.get(change.name)
        self.content[change.name] = change
        for node in change.nodes & self.peers:
            self.slices_of[node] += 1
        for node in before.nodes & self.peers if before else ():
            self.slices_of[node] -= 1
        for address, (node, _) in change.addresses.items():
            if node in self.peers:
                self.seen.setdefault(address, self.now)

    def slice_of(self, address):
        """The slice that has this address, not terminating."""
        for name, change in self.content.items():
            if not change.addresses.get(address, ("", True))[1]:
                return name
        return None

    def heard(self, change):
        if self.design.whole:
            self.bytes += change.event
            return self.take(change)
        self.bytes += change.metadata
        if change.at > self.content[change.name].at if change.name in self.content else True:
            self.stale.setdefault(change.name, Stale(self.now, self.random.random()))
        self.plan()

    # ---- the plan ----
    def due_at(self, name, missing):
        stale, others = self.stale[name], max(len(self.content) - 1, 0)
        pause = min(SPACING * others, MIDDLE) * (0.5 + stale.drawn)
        ours = missing or name not in self.content or not self.content[name].nodes.isdisjoint(self.peers)
        at = stale.since + max(pause * (1 if ours else self.design.factor), COALESCE)
        if stale.doubted is None:
            return at
        spread = min(DOUBT_SPACING * others, DOUBT_SPREAD) * stale.drawn if self.design.spread else 0.0
        return min(at, stale.doubted + spread)

    def plan(self):
        if self.reading or not self.stale:
            return
        missing = any(not self.slices_of[peer] for peer in self.peers)
        order = {name: (self.stale[name].doubted is None, self.due_at(name, missing)) for name in self.stale}
        name = min(order, key=order.get)
        self.wake += 1
        self.after(max(self.now, order[name][1]), self.read, name, self.wake)

    def read(self, name, wake):
        if wake == self.wake and not self.reading:
            self.reading = name
            self.reads.append(self.now)
            self.after(self.now + self.answer, self.has_read, name)

    def has_read(self, name):
        change = self.record.newest(name, self.now - self.answer / 2)
        self.bytes += change.body + HEAD + REQUEST
        self.open_seconds += min(IDLE, self.now + IDLE - self.open_until)
        self.open_until, self.reading = self.now + IDLE, None
        self.take(change)
        self.stale.pop(name, None)
        for address in list(self.withheld):
            held_by = self.slice_of(address)
            if held_by is None:
                del self.withheld[address]
            elif held_by not in self.stale:
                self.lose(address)
        self.plan()

    # ---- probes to a pod that is gone ----
    def probe(self, address):
        if self.slice_of(address) is None:
            return
        self.after(self.now + INTERVAL, self.probe, address)
        self.after(self.now + TIMEOUT + self.random.random() * SLACK, self.decide, address)

    def decide(self, address):
        held_by = self.slice_of(address)
        if held_by is None:
            return
        if self.design.hold:
            return self.after(self.now + self.design.hold, self.held, address)
        if address in self.withheld:
            self.withheld[address] += 1
        elif self.design.whole or not self.design.doubts or self.now < self.settled.get(address, 0.0):
            self.lost += 1
        else:
            self.withheld[address] = 1
            self.settled[address] = self.now + DOUBT
            self.after(self.now + QUESTION, self.ask, address)
            self.after(self.now + DOUBT, self.give_up, address)

    def held(self, address):
        self.lost += self.slice_of(address) is not None

    def ask(self, address):
        if address not in self.withheld:
            return
        held_by = self.slice_of(address)
        if held_by is None:
            del self.withheld[address]
        elif held_by not in self.stale:
            self.lose(address)
        else:
            if self.stale[held_by].doubted is None:
                self.stale[held_by].doubted = self.now
            self.plan()

    def lose(self, address):
        self.lost += self.withheld.pop(address)
        if self.design.once:
            self.settled[address] = float("inf")

    def give_up(self, address):
        self.lost += self.withheld.pop(address, 0)
