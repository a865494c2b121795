"""A mesh of agents, second by second, as the series that Prometheus would scrape of it.

Every agent sends one probe a second to every other node; each of the two packets of an echo passes the faults that are
there at that second, and is lost by a seeded die. What is counted where follows the agent: a loss one second after it was sent
(the timeout), an echo request once it has reached the node's network namespace, a reply once it has left it.
"""

import random

ABSENT = "_"
STALE = "stale"
# Of ICMP the node's kernel answers the probes, of the others the agent itself.
ECHO = ("icmp", "icmpv6")
# Seconds between two probes of a peer, where it is not 1.
INTERVALS = {"tcp": 10, "tcpv6": 10}


class Fault:
    """Packets that match are lost with probability `p` from `start` to `end` (seconds); on one network, or on all, and by the
    protocols named, or by all.
    """

    def __init__(self, matches, p, start, end=10**9, network=None, protocols=None):
        self.matches, self.p, self.start, self.end = matches, p, start, end
        self.network, self.protocols = network, protocols

    def hits(self, frm, to, kind, via):
        network, protocol = via
        there = self.network in (None, network) and (self.protocols is None or protocol in self.protocols)
        return there and self.matches(frm, to, kind)


def into(node):
    return lambda frm, to, kind: to == node and kind != "read"


def out_of(node):
    return lambda frm, to, kind: frm == node and kind != "read"


def both_ways(node):
    return lambda frm, to, kind: node in (frm, to) and kind != "read"


def between(a, b):
    return lambda frm, to, kind: {frm, to} == {a, b} and kind != "read"


def requests_to(node):
    """Only requests: a policy that keeps track of connections admits the replies to the node's own probes."""
    return lambda frm, to, kind: to == node and kind == "request"


def requests_of(node):
    return lambda frm, to, kind: frm == node and kind == "request"


def requests(frm, to, kind):
    return kind == "request"


def reader(node):
    """Replies that reach the node, but not its agent."""
    return lambda frm, to, kind: to == node and kind == "read"


def zones_apart(zones, a, b):
    return lambda frm, to, kind: sorted((zones[frm], zones[to])) == sorted((a, b)) and kind != "read"


class Mesh:
    """`nodes`: name to zone; `scrape`: seconds between scrapes.

    Prometheus spreads its scrapes over the interval, so each agent is scraped at a second of its own. promtool knows no such
    offsets: what is scraped up to an interval before has the time of the next common scrape.
    """

    def __init__(self, nodes, scrape=15, seed=1):
        self.nodes, self.scrape = nodes, scrape
        self.random = random.Random(seed)
        self.offset = {node: random.Random(f"{seed} {node}").randrange(scrape) for node in nodes}
        self.faults = []
        self.joins = {}  # node: second
        self.leaves = {}  # node: second; the others forget it 300 s later
        self.dies = {}  # node: second; it stays in the lists of all others
        self.unscraped = set()  # agents that run, but are no targets
        self.rolls = []  # (node, second): a pod that is replaced by one with another address, gone for 20 s
        self.restarts = []  # (node, second): the agent's process starts again, in the same pod, gone for 5 s
        self.pingers = {}  # node: echo requests a second of somebody else
        self.single = []  # (source, peer, second): one probe lost
        self.stops = []  # (source, peer, second): probes no more, though it lists it
        self.networks = ("pod",)
        self.protocols = ("icmp",)
        self.one_protocol = set()  # nodes that have the first of these only
        self.icmp_only = set()  # nodes whose agents are older than UDP and TCP probes
        self.busy = set()  # nodes whose agents wait for a CPU half of the time
        self.degree = None  # each probes the next half of these in a ring, and as many that are drawn
        self.capped = None  # each exports so many of its links only, always the same (--max-series)
        self.older = set()  # nodes whose agents are older than kube_canary_agent_info
        self.drains = {}  # node: (terminating from, left at); it goes on answering for 5 s

    def selected(self):
        """The peers of each node."""
        names = sorted(self.nodes)
        n, of = len(names), {}
        for place, name in enumerate(names):
            others = [names[(place + step) % n] for step in range(1, n)]
            if self.degree:
                near = self.degree // 2
                others = others[:near] + random.Random(f"{name} of {n}").sample(others[near:], self.degree - near)
            of[name] = others
        return of

    def vias(self, source, selected):
        """The peers of a source, each on every network and by every protocol that both have."""
        for peer in selected:
            one = source in self.one_protocol or peer in self.one_protocol
            protocols = [it for it in self.protocols if it in ECHO or source not in self.icmp_only]
            for network in self.networks:
                for protocol in protocols[:1] if one else protocols:
                    # The node's own address is probed by ICMP alone.
                    if network == "pod" or protocol in ECHO:
                        yield peer, (network, protocol)

    def run(self, seconds):
        nodes = self.nodes
        samples = {}  # series key to values, one per scrape
        steps = seconds // self.scrape + 1
        address = {node: f"{node}-0" for node in nodes}
        selected = self.selected()
        watchers = {node: [s for s in nodes if node in selected[s]] for node in nodes}
        vias = {source: list(self.vias(source, selected[source])) for source in nodes}
        pair = {}  # (source, peer, (network, protocol)): [sent, received, lost, while it was terminating]
        zone = {}  # (source, zone, (network, protocol)): [decided, received, lost]
        echo = {node: [0, 0] for node in nodes}
        undecided = {}  # second: losses to count
        generation = dict.fromkeys(nodes, 0)
        started = {node: self.joins.get(node, 0) for node in nodes}
        never = (10**9, 10**9)

        def gone(node, t):
            drained = self.drains.get(node, never)[0] + 5
            return t < self.joins.get(node, 0) or t >= min(self.leaves.get(node, 10**9), self.dies.get(node, 10**9), drained)

        def listed(node, t):
            return self.joins.get(node, 0) <= t < min(self.leaves.get(node, 10**9), self.drains.get(node, never)[1])

        def terminating(node, t):
            return t >= self.drains.get(node, never)[0]

        def down(node, t):
            rolling = any(n == node and at <= t < at + 20 for n, at in self.rolls)
            restarting = any(n == node and at <= t < at + 5 for n, at in self.restarts)
            return rolling, restarting

        def passes(frm, to, kind, via):
            hit = (f for f in current if f.hits(frm, to, kind, via))
            return all(self.random.random() >= f.p for f in hit)

        def zones(source, via, peer_zone):
            return {"source_zone": nodes[source], "peer_zone": peer_zone, "network": via[0], "protocol": via[1]}

        def put(step, name, labels, value):
            key = (name, tuple(sorted(labels.items())))
            samples.setdefault(key, {})[step] = value

        for t in range(seconds + 1):
            current = [f for f in self.faults if f.start <= t < f.end]
            for node in nodes:
                if (node, t) in self.rolls or (node, t) in self.restarts:
                    generation[node] += 1
                    started[node] = t + (20 if (node, t) in self.rolls else 5)
                    for key in [k for k in pair if k[0] == node]:
                        pair[key] = [0, 0, 0, 0]
                    for key in [k for k in zone if k[0] == node]:
                        zone[key] = [0, 0, 0]
                    if (node, t) in self.rolls:
                        echo[node] = [0, 0]
                        address[node] = f"{node}-{generation[node]}"
            for source, peer, via, born in undecided.pop(t, []):
                if born == generation[source]:
                    pair[source, peer, via][2] += 1
                    zone[source, nodes[peer], via][2] += 1
            for source in nodes:
                if gone(source, t) or any(down(source, t)):
                    continue
                for peer, via in vias[source]:
                    network, protocol = via
                    if not listed(peer, t) or down(peer, t)[0]:
                        continue  # a pod that is replaced is terminating, and then not in the list: its probes do not count
                    counts = pair.setdefault((source, peer, via), [0, 0, 0, 0])
                    of_zone = zone.setdefault((source, nodes[peer], via), [0, 0, 0])
                    if any(s == source and p == peer and t >= at for s, p, at in self.stops):
                        continue
                    if t % INTERVALS.get(protocol, 1):
                        continue
                    if terminating(peer, t):
                        counts[3] += 1
                        continue
                    counts[0] += 1
                    of_zone[0] += 1
                    there = not gone(peer, t) and (source, peer, t) not in self.single
                    there = there and passes(source, peer, "request", via)
                    # A restarting agent answers no UDP and TCP, and an older one never does.
                    there = there and (protocol in ECHO or not (down(peer, t)[1] or peer in self.icmp_only))
                    back = False
                    if there:
                        # Packets to the node's own address do not reach its pod.
                        if network == "pod" and protocol in ECHO:
                            echo[peer][0] += 1
                            echo[peer][1] += 1
                        back = passes(peer, source, "reply", via) and passes(peer, source, "read", via)
                    if back:
                        counts[1] += 1
                        of_zone[1] += 1
                    else:
                        undecided.setdefault(t + 1, []).append((source, peer, via, generation[source]))
            for node, requests in self.pingers.items():
                echo[node][0] += requests
                echo[node][1] += requests
            for source in nodes:
                step, early = divmod(t + self.offset[source], self.scrape)
                if early or step >= steps or gone(source, t) or any(down(source, t)) or source in self.unscraped:
                    continue
                target = {"job": "kube-canary", "namespace": "kube-canary", "instance": f"{address[source]}:9877"}
                peers, leaving, there = set(), set(), []
                for peer, via in vias[source]:
                    left = min(self.leaves.get(peer, 10**9), self.drains.get(peer, never)[1])
                    if (source, peer, via) not in pair or t >= left + 300:
                        continue
                    # Nodes, each counted once, on however many networks and protocols it is probed.
                    if listed(peer, t) and not down(peer, t)[0]:
                        (leaving if terminating(peer, t) else peers).add(peer)
                    there.append((peer, via))
                if self.capped:
                    there.sort(key=lambda key: random.Random(f"{source} {key}").random())
                for peer, via in there[: self.capped]:
                    labels = target | zones(source, via, nodes[peer]) | {"source_node": source, "peer_node": peer}
                    sent, received, lost, ending = pair[source, peer, via]
                    for name, value in (("sent", sent), ("received", received), ("lost", lost)):
                        put(step, f"kube_canary_probes_{name}_total", labels, value)
                    if via[1] in ECHO:
                        put(step, "kube_canary_probes_late_total", labels, 0)
                        put(step, "kube_canary_probes_terminating_total", labels, ending)
                for (node, peer_zone, via), (sent, received, lost) in zone.items():
                    if node == source:
                        labels = target | zones(source, via, peer_zone)
                        for name, value in (("sent", sent), ("received", received), ("lost", lost)):
                            put(step, f"kube_canary_zone_probes_{name}_total", labels, value)
                put(step, "kube_canary_peers", target | {"state": "ready"}, len(peers))
                put(step, "kube_canary_peers", target | {"state": "terminating"}, len(leaving))
                put(step, "kube_canary_peers", target | {"state": "unready"}, 0)
                put(step, "kube_canary_mesh_members", target, len(nodes))
                for where, apart in (("own", False), ("other", True)):
                    those = [w for w in watchers[source] if (nodes[w] != nodes[source]) == apart]
                    put(step, "kube_canary_watchers", target | {"zone": where}, len(those))
                for where in ("any", "other"):
                    put(step, "kube_canary_watchers_missing", target | {"zone": where}, 0)
                put(step, "kube_canary_suppressed_series", target, 29 * max(0, len(there) - (self.capped or len(there))))
                put(step, "kube_canary_build_info", target | {"allocator": "musl", "version": "0"}, 1)
                if source not in self.older:
                    put(step, "kube_canary_agent_info", target | {"node": source, "zone": nodes[source]}, 1)
                put(step, "kube_canary_peer_list_age_seconds", target, 30)
                put(step, "process_resident_memory_bytes", target, 1_500_000)
                put(step, "process_start_time_seconds", target, started[source])
                put(step, "kube_canary_echo_requests_received_total", target, echo[source][0])
                put(step, "kube_canary_echo_replies_sent_total", target, echo[source][1])
                for name in ("probes_skipped_total", "receive_queue_drops_total"):
                    put(step, f"kube_canary_{name}", target, 0)
                put(step, "kube_canary_probe_thread_run_delay_seconds_total", target, t / 2 if source in self.busy else 0)
        return [self.series(key, values, steps) for key, values in samples.items()]

    @staticmethod
    def series(key, values, steps):
        name, labels = key
        text, before = [], False
        for step in range(steps):
            there = step in values
            text.append(str(values[step]) if there else STALE if before else ABSENT)
            before = there
        labels = ",".join(f'{label}="{value}"' for label, value in labels)
        return {"series": f"{name}{{{labels}}}", "values": " ".join(text)}
