"""The mesh of the soak: a control plane whose nodes join and leave, an API server that fails, and
stand-in agents, which answer the truth or a lie, as their node does at the moment."""

import asyncio, collections, threading, time

import paths
import encode, lab, plane, server
import liars
from inside import API_PORT
from liar import write

# At a tenth, a rollout of this mesh would take two minutes.
plane.UNAVAILABLE = 0.34
# A watch sends each event within a second, or breaks.
EVENTS_KEPT = 1000


class Mesh(plane.Plane):
    """Nodes below `fixed` keep their pods. `opened(address, node)` and `closed(address)` are called
    when a pod starts and stops."""

    def __init__(self, nodes, fixed, opened, closed, alive, seed):
        self.missing, self.daemon_client, self.busy = collections.deque(), plane.Bucket(), False
        self.old, self.away, self.fixed, self.opened = collections.deque(), set(), fixed, opened
        self.stopped_at = []  # (moment, node, address)
        self.owner = {}

        def stopped(address):
            self.stopped_at.append((time.monotonic(), self.owner.pop(address), address))
            alive.stopped(address)
            closed(address)

        super().__init__(nodes, alive.started, stopped, alive.flush, seed)

    def write(self, name, endpoints):
        """Of an hour's events only the last are kept whole: a slice of this mesh takes 40 KB."""
        super().write(name, endpoints)
        if (old := len(self.events) - EVENTS_KEPT - 1) >= 0:
            self.events[old] = self.events[old]._replace(item=None, forms={})
            self.history_from = str(self.events[old].version)

    def give_address(self, pod):
        super().give_address(pod)
        self.owner[pod.address] = pod.node
        self.opened(pod.address, pod.node)

    def rollout(self):
        """All pods but the fixed ones."""
        nodes = [k for k in self.pods if k >= self.fixed]
        self.old = collections.deque(self.random.sample(nodes, len(nodes)))
        self.roll()

    def replace(self, nodes):
        """Their pods stop at once, whatever a rollout does, and others start."""
        for pod in [self.pods.pop(node) for node in nodes if node in self.pods]:
            pod.terminating = True
            self.rolling.add(pod)
            self.changed()
            self.after(self.random.uniform(*plane.STOP), self.down, pod)

    def leave(self, nodes):
        self.away.update(nodes)
        self.replace(nodes)

    def join(self, nodes):
        back = [node for node in nodes if node in self.away]
        self.away.difference_update(back)
        # A pod that has not stopped yet is followed by another, as in any replacement.
        here = {*self.pods, *(pod.node for pod in self.rolling), *self.missing}
        self.missing.extend(node for node in back if node not in here)
        self.roll()

    def delete(self):
        while self.old and self.old[0] not in self.pods:
            self.old.popleft()  # it was replaced by now
        if self.old:
            return super().delete()
        self.busy = False
        self.roll()

    def create(self):
        while self.missing and self.missing[0] in self.pods:
            self.missing.popleft()
        if self.missing:
            return super().create()
        self.busy = False
        self.roll()

    def down(self, pod):
        """As a plane's, but a node that is away gets no other pod."""
        if pod.node not in self.away:
            return super().down(pod)
        self.stopped(pod.address)
        self.rolling.discard(pod)
        self.changed()

    def is_calm(self):
        return not (self.old or self.missing or self.rolling)


class Api(server.Server):
    """Refuses everything while `refuses` is set."""

    refuses = False

    def answer(self, connection, target, head, size):
        if self.refuses:
            body = encode.status(encode.JSON, 403, "Forbidden", "refused by the soak")
            return self.send(connection, "get", 403, encode.JSON, body)
        super().answer(connection, target, head, size)

    def expire(self):
        """As after a compaction: no watch can begin at what was before now."""
        with self.changed:
            self.plane.history_from = self.plane.version


class Crowd:
    """Stand-in agents, each at the address of its pod; nodes of `own` have real ones."""

    def __init__(self, own):
        self.own, self.lies, self.servers, self.mesh = own, {}, {}, None
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def opened(self, address, node):
        self.call(self.open(address, node))

    def closed(self, address):
        self.call(self.close(address))

    async def open(self, address, node):
        if node not in self.own:
            talk = lambda reader, writer: self.converse(node, reader, writer)
            self.servers[address] = await asyncio.start_server(talk, address, lab.PORT, limit=16 << 10)

    async def close(self, address):
        if here := self.servers.pop(address, None):
            here.close()

    async def converse(self, node, reader, writer):
        try:
            async with asyncio.timeout(liars.SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split()[1].decode()
                await write(writer, liars.answer(self.lies.get(node), path, liars.Self(node, self.mesh)))
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, UnicodeDecodeError):
            pass  # The agent has had enough, or the time is over.
        finally:
            writer.close()


class Wire:
    """Faults of the network, as rules of nft."""

    def __init__(self):
        lab.nft("add table inet soak; add chain inet soak faults { type filter hook input priority -1; };")

    def api(self, verdict):
        lab.nft(f"add rule inet soak faults tcp dport {API_PORT} {verdict}; "
                f"add rule inet soak faults tcp sport {API_PORT} {verdict}")

    def mend(self):
        lab.nft("flush chain inet soak faults")
