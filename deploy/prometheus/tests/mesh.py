"""A mesh of agents, second by second, as the series that the rules read of it.

Every agent sends one probe a second to every other member. Nothing is random.
"""

ABSENT = "_"
STALE = "stale"
GONE = 20  # seconds that a pod that is replaced is in no list of peers
STARTS = 40  # seconds from then, or from the time when a node joins, to the first scrape
JUDGES = 3
# What every agent exports at all times, beside what follows from the mesh.
CONSTANT = {
    "kube_canary_suppressed_series": 0,
    "kube_canary_peer_list_age_seconds": 30,
    "process_resident_memory_bytes": 1_500_000,
}


class Mesh:
    """`nodes`: name to zone; `scrape`: seconds between scrapes.

    Prometheus spreads its scrapes over the interval, so each agent is scraped at a second of its own. promtool knows no such
    offsets: what is scraped up to an interval before has the time of the next common scrape.
    """

    def __init__(self, nodes, scrape=15):
        self.nodes, self.scrape = nodes, scrape
        self.offset = {node: place * 7 % scrape for place, node in enumerate(nodes)}
        self.joins = {}  # node: second
        self.leaves = {}  # node: second
        self.dies = {}  # node: second; it stays in the lists of all others
        self.rolls = []  # (node, second): a pod that is replaced by one with another address
        self.unscraped = set()  # agents that run, but are no targets
        self.one_of = {}  # (source, second): it loses this many more probes to each zone with peers

    def is_listed(self, node, t):
        rolls = any(at <= t < at + GONE for of, at in self.rolls if of == node)
        return self.joins.get(node, 0) <= t < self.leaves.get(node, 10**9) and not rolls

    def runs(self, node, t):
        begins = [at + GONE for of, at in self.rolls if of == node] + [at for of, at in self.joins.items() if of == node]
        starts = any(at <= t < at + STARTS for at in begins)
        return self.is_listed(node, t) and t < self.dies.get(node, 10**9) and not starts

    def agent(self, node, t):
        """The series of an agent that follow from the mesh alone: names with labels to values."""
        members = [it for it in self.nodes if self.is_listed(it, t)]
        judges = [it for it in members if self.runs(it, t)][:JUDGES]
        yield "kube_canary_agent_info", {"node": node, "zone": self.nodes[node]}, 1
        yield "kube_canary_build_info", {"allocator": "musl", "version": "0"}, 1
        yield "kube_canary_mesh_members", {}, len(members)
        yield "kube_canary_judge", {}, int(node in judges)
        if node in judges:
            yield "kube_canary_judgement_age_seconds", {}, t % 15
        for zone in ("any", "other"):
            yield "kube_canary_watchers_missing", {"zone": zone}, 0
        for name, value in CONSTANT.items():
            yield name, {}, value

    def run(self, seconds):
        """The input series of a test."""
        steps = seconds // self.scrape + 1
        samples = {}  # series to values, one per scrape
        zones = sorted(set(self.nodes.values()))
        counts = {node: {zone: [0, 0, 0] for zone in zones} for node in self.nodes}
        pod = dict.fromkeys(self.nodes, 0)
        for t in range(seconds + 1):
            listed = [node for node in self.nodes if self.is_listed(node, t)]
            for node in self.nodes:
                if (node, t) in self.rolls:
                    pod[node] += 1
                    counts[node] = {zone: [0, 0, 0] for zone in zones}
                if not self.runs(node, t):
                    continue
                for peer in listed:
                    if peer != node:
                        # The kernel answers for a pod whose agent is still starting.
                        is_lost = t >= self.dies.get(peer, 10**9)
                        count(counts[node][self.nodes[peer]], is_lost)
                for zone in {self.nodes[peer] for peer in listed if peer != node}:
                    for _ in range(self.one_of.get((node, t), 0)):
                        count(counts[node][zone], True)
                step, early = divmod(t + self.offset[node], self.scrape)
                if early or step >= steps or node in self.unscraped:
                    continue
                target = {"job": "kube-canary", "namespace": "kube-canary", "instance": f"{node}-{pod[node]}:9877"}
                exported = [*self.agent(node, t), *of_zones(self.nodes[node], counts[node])]
                for name, labels, value in exported:
                    samples.setdefault(series(name, target | labels), {})[step] = value
        return [{"series": name, "values": values(of, steps)} for name, of in samples.items()]


def count(of_zone, is_lost):
    of_zone[0] += 1
    of_zone[2 if is_lost else 1] += 1


def of_zones(source_zone, counts):
    for zone, totals in counts.items():
        labels = {"source_zone": source_zone, "peer_zone": zone, "network": "pod", "protocol": "icmp"}
        for name, value in zip(("sent", "received", "lost"), totals):
            yield f"kube_canary_zone_probes_{name}_total", labels, value


def series(name, labels):
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"


def values(of, steps):
    text, before = [], False
    for step in range(steps):
        there = step in of
        text.append(str(of[step]) if there else STALE if before else ABSENT)
        before = there
    return " ".join(text)
