#!/usr/bin/env python3
"""Cases of whole meshes for `promtool test rules`: writes them, as JSON (which YAML contains), below the directory given.

Each case says which alerts have fired by when, and that no other ever has. `--seeds N` runs each fault with as many dice. Agents
are scraped every 15 s and the rules evaluated every 30 s, as shipped, if the case does not say otherwise. A fault begins one
second after an evaluation, which is the latest that it can be found.
"""

import argparse
import json
from pathlib import Path

from mesh import ECHO, Fault, Mesh, between, both_ways, into, out_of, reader, requests, requests_of, requests_to, zones_apart

THREE = {"a": "z1", "b": "z2", "c": "z3"}
# As where nodes have no zone.
ONE_ZONE = dict.fromkeys("abc", "unknown")
TWELVE = {f"n{i:02}": f"z{i % 3}" for i in range(12)}
# A zone of 2 beside one of 6: a bad pair of zones spoils 6 of 7 links of a node.
LOPSIDED = {f"a{i}": "za" for i in range(2)} | {f"b{i}": "zb" for i in range(6)}
# Each probes 12 of 39 others, and is probed by 6 at least.
FORTY = {f"n{i:02}": f"z{i % 3}" for i in range(40)}
WARM = 240  # seconds before anything goes wrong: nodes are known by then
BEGIN = WARM + 1  # just after an evaluation
NAMES = ("alertname", "node", "source_node", "peer_node", "source_zone", "peer_zone", "reason")
ALL_PROTOCOLS = ("icmp", "udp", "tcp")


def alert(name, **labels):
    return {"alertname": name} | labels


def node(name):
    return alert("KubeCanaryNodeLossy", node=name)


def links(nodes, *pairs):
    both = [pair for a, b in pairs for pair in ((a, b), (b, a))]
    return [
        alert("KubeCanaryLinkLossy", source_node=s, peer_node=p, source_zone=nodes[s], peer_zone=nodes[p]) for s, p in both
    ]


def zone_pair(a, b):
    return [alert("KubeCanaryZonePairLossy", source_zone=s, peer_zone=p) for s, p in ((a, b), (b, a))]


def samples(found):
    """`count by` over ALERTS, as promtool expects it."""
    return [{"labels": "{" + ",".join(f'{k}="{v}"' for k, v in one.items()) + "}", "value": 1} for one in found]


class Case:
    def __init__(self, name, mesh, seconds, checks):
        self.name, self.mesh, self.seconds, self.checks = name, mesh, seconds, checks

    def write(self, directory, rules):
        text = {
            "rule_files": [str(rules)],
            # Without an order, promtool chooses a random one. This is the worst one: an alert reads
            # the recorded values of the evaluation before. That may happen in Prometheus, where
            # each group has its own moment in the interval.
            "group_eval_order": ["kube-canary-agents", "kube-canary-slow", "kube-canary-mesh", "kube-canary-peers"],
            "evaluation_interval": "30s" if self.mesh.scrape >= 15 else f"{self.mesh.scrape}s",
            "tests": [
                {
                    "name": self.name,
                    "interval": f"{self.mesh.scrape}s",
                    "input_series": self.mesh.run(self.seconds),
                    "promql_expr_test": self.checks,
                }
            ],
        }
        (directory / f"{self.name}.json").write_text(json.dumps(text))


BY_NETWORK = ("network", *NAMES)


def firing(at, *expected, by=NAMES):
    """Exactly these fire at that second."""
    expr = f'count by ({",".join(by)}) (ALERTS{{alertstate="firing"}})'
    return {"expr": expr, "eval_time": f"{at}s", "exp_samples": samples(expected)}


def ever(at, *expected, by=NAMES):
    """Exactly these have fired, at one time or another."""
    expr = f'group by ({",".join(by)}) (max_over_time(ALERTS{{alertstate="firing"}}[{at}s]))'
    return {"expr": expr, "eval_time": f"{at}s", "exp_samples": samples(expected)}


def direction_on(at, name, network, way):
    expr = f'count by (direction) (kube_canary:node_loss_direction{{node="{name}",network="{network}"}})'
    return {"expr": expr, "eval_time": f"{at}s", "exp_samples": samples([{"direction": way}])}


def direction(at, **of):
    expr = "count by (node, direction) (kube_canary:node_loss_direction)"
    return {"expr": expr, "eval_time": f"{at}s", "exp_samples": samples({"node": n, "direction": d} for n, d in of.items())}


def faulty(name, nodes, fault, expected, seed, within=95, lasts=240, ways=None, scrape=15, prepare=None):
    """A fault of `lasts` seconds: named `within` seconds, still and alone at its end, and gone 3 minutes later."""
    mesh = Mesh(nodes, scrape, seed)
    end = BEGIN + lasts
    mesh.faults = [Fault(matches, p, BEGIN, end) for matches, p in (fault if isinstance(fault, list) else [fault])]
    if prepare:
        prepare(mesh)
    last = end + 180
    checks = [firing(BEGIN), firing(BEGIN + within, *expected), firing(end, *expected), firing(last), ever(last, *expected)]
    checks += [direction(end, **ways)] if ways else []
    return Case(f"{name}-seed-{seed}", mesh, last, checks)


def quiet(name, nodes, prepare, seconds=900, scrape=15, seed=1):
    """Nothing fires, ever."""
    mesh = Mesh(nodes, scrape, seed)
    prepare(mesh)
    return Case(name, mesh, seconds, [ever(seconds)])


def faults(seed):
    for nodes, of, bad in ((THREE, "3", "c"), (TWELVE, "12", "n07")):
        for way, matches in (("in", into), ("out", out_of), ("both", both_ways)):
            p = 0.1
            yield faulty(f"node-{way}-of-{of}", nodes, (matches(bad), p), [node(bad)], seed, ways={bad: way})
        yield faulty(f"node-cut-of-{of}", nodes, (both_ways(bad), 1.0), [node(bad)], seed, within=50)
    yield faulty("node-at-5s", THREE, (into("c"), 0.1), [node("c")], seed, within=60, scrape=5, ways={"c": "in"})
    yield faulty("node-cut-at-5s", TWELVE, (both_ways("n07"), 1.0), [node("n07")], seed, within=25, scrape=5)
    yield faulty("node-at-30s", TWELVE, (into("n07"), 0.1), [node("n07")], seed, within=120, scrape=30)
    yield faulty("node-of-4", {**THREE, "d": "z1"}, (into("d"), 0.1), [node("d")], seed, ways={"d": "in"})
    yield faulty("node-of-one-zone", ONE_ZONE, (into("c"), 0.1), [node("c")], seed, ways={"c": "in"})
    pair = between("a", "b")
    yield faulty("link-of-one-zone", ONE_ZONE, (pair, 0.15), links(ONE_ZONE, ("a", "b")), seed, within=150)
    yield faulty("link-of-3", THREE, (pair, 0.15), links(THREE, ("a", "b")), seed, within=150)
    yield faulty("link-at-5s", THREE, (pair, 0.15), links(THREE, ("a", "b")), seed, within=120, scrape=5)
    yield faulty("link-of-2", {"a": "z1", "b": "z2"}, (pair, 0.3), links(THREE, ("a", "b")), seed, within=120)
    yield faulty("link-cut-of-12", TWELVE, (between("n01", "n02"), 1.0), links(TWELVE, ("n01", "n02")), seed, within=90)
    yield faulty("link-of-12", TWELVE, (between("n01", "n04"), 0.15), links(TWELVE, ("n01", "n04")), seed, within=150)
    yield faulty("zones-of-12", TWELVE, (zones_apart(TWELVE, "z0", "z1"), 0.1), zone_pair("z0", "z1"), seed, within=150)
    yield faulty("zones-lopsided", LOPSIDED, (zones_apart(LOPSIDED, "za", "zb"), 0.1), zone_pair("za", "zb"), seed, within=150)
    dead_link = [(into("n07"), 0.1), (between("n01", "n02"), 1.0)]
    yield faulty("node-and-link", TWELVE, dead_link, [node("n07"), *links(TWELVE, ("n01", "n02"))], seed)
    two = [(both_ways("n07"), 0.2), (both_ways("n02"), 0.2)]
    yield faulty("two-nodes", TWELVE, two, [node("n07"), node("n02")], seed)
    reports = alert("KubeCanaryNodeReportsLoss", node="n03")
    yield faulty("reader-of-12", TWELVE, (reader("n03"), 0.2), [reports], seed, within=120)
    yield faulty("reader-of-3", THREE, (reader("c"), 0.2), [alert("KubeCanaryNodeReportsLoss", node="c")], seed, within=150)


def partly(mesh):
    mesh.degree = 12


def cut(mesh):
    mesh.capped = 12


def partial(seed):
    """Meshes of which each node probes a part, or exports a part."""
    for way, matches in (("in", into), ("both", both_ways)):
        yield faulty(f"partial-node-{way}", FORTY, (matches("n07"), 0.1), [node("n07")], seed, ways={"n07": way}, prepare=partly)
    yield faulty("partial-node-cut", FORTY, (both_ways("n07"), 1.0), [node("n07")], seed, within=50, prepare=partly)
    # The link to the next node in the ring is probed in one direction only.
    link = [alert("KubeCanaryLinkLossy", source_node="n01", peer_node="n02", source_zone="z1", peer_zone="z2")]
    yield faulty("partial-link-cut", FORTY, (between("n01", "n02"), 1.0), link, seed, within=90, prepare=partly)
    zones = (zones_apart(FORTY, "z0", "z1"), 0.1)
    yield faulty("partial-zones", FORTY, zones, zone_pair("z0", "z1"), seed, within=150, prepare=partly)
    two = [(both_ways("n07"), 0.2), (both_ways("n02"), 0.2)]
    yield faulty("partial-two-nodes", FORTY, two, [node("n07"), node("n02")], seed, prepare=partly)

    expected = [node("n07"), alert("KubeCanaryAgentMissing", node="n08")]
    mesh = Mesh(FORTY, seed=seed)
    partly(mesh)
    mesh.unscraped = {"n08"}
    mesh.faults = [Fault(out_of("n07"), 0.8, BEGIN, BEGIN + 180)]
    checks = [firing(BEGIN + 95, *expected), direction(BEGIN + 170, n07="both")]
    yield Case(f"partial-a-row-is-missing-seed-{seed}", mesh, BEGIN + 180, checks)

    # --max-series has cut most links of every agent. The exported links still name the node, but
    # not the direction.
    dead = [(both_ways(name), 1.0) for name in ("n07", "n02", "n11")]
    bad = [node(name) for name in ("n07", "n02", "n11")]
    yield faulty("capped-node", FORTY, (into("n07"), 0.1), [node("n07")], seed, prepare=cut)
    # The inbound requests are as many as the exported probes. By these sums alone, the loss would
    # seem to be outbound.
    yield faulty("capped-node-direction", FORTY, (into("n07"), 0.8), [node("n07")], seed, ways={"n07": "both"}, prepare=cut)
    yield faulty("capped-three-dead", FORTY, dead, bad, seed, within=50, prepare=cut)


def networks(seed):
    """Pods' and nodes' networks."""

    def both(mesh):
        mesh.networks = ("pod", "node")

    def of(network, found):
        return [one | {"network": network} for one in found]

    for nodes, size, bad in ((THREE, "3", "c"), (TWELVE, "12", "n07")):
        for name, network, said in (("both", None, "node"), ("pods", "pod", "pod"), ("nodes", "node", "node")):
            mesh = Mesh(nodes, seed=seed)
            both(mesh)
            mesh.faults = [Fault(into(bad), 0.1, BEGIN, BEGIN + 240, network)]
            expected = of(said, [node(bad)])
            at = BEGIN + 95
            checks = [
                firing(at, *expected, by=BY_NETWORK),
                firing(BEGIN + 240, *expected, by=BY_NETWORK),
                ever(BEGIN + 420, *expected, by=BY_NETWORK),
            ]
            # Requests are counted where the pods are.
            way = "both" if network == "node" else "in"
            checks.append(direction_on(BEGIN + 230, bad, said, way))
            yield Case(f"networks-{name}-of-{size}-seed-{seed}", mesh, BEGIN + 420, checks)
    mesh = Mesh(THREE, seed=seed)
    both(mesh)
    mesh.faults = [Fault(between("a", "b"), 0.2, BEGIN, BEGIN + 180)]
    expected = of("node", links(THREE, ("a", "b")))
    checks = [firing(BEGIN + 150, *expected, by=BY_NETWORK), ever(BEGIN + 360, *expected, by=BY_NETWORK)]
    yield Case(f"networks-link-seed-{seed}", mesh, BEGIN + 360, checks)

    # An agent that is starved is no fault of either network.
    mesh = Mesh(THREE, seed=seed)
    both(mesh)
    mesh.busy = {"c"}
    mesh.faults = [Fault(reader("c"), 0.2, WARM)]
    starved = alert("KubeCanaryAgentStarved", node="c", reason="run_delay")
    yield Case(f"networks-starved-seed-{seed}", mesh, WARM + 180, [firing(WARM + 180, starved), ever(WARM + 180, starved)])


def protocols(seed):
    """Probes by ICMP, UDP and TCP: what each shows alone, and what all show together."""
    by_protocol = ("protocol", *NAMES)

    def mesh_of(nodes, prepare=None):
        mesh = Mesh(nodes, seed=seed)
        mesh.protocols = ALL_PROTOCOLS
        if prepare:
            prepare(mesh)
        return mesh

    def only(nodes, protocol):
        return [alert("KubeCanaryProtocolLoss", node=it) | {"protocol": protocol} for it in nodes]

    def one(name, nodes, matches, p, bad, protocol, within=150, prepare=None):
        mesh = mesh_of(nodes, prepare)
        mesh.faults = [Fault(matches, p, BEGIN, BEGIN + 300, protocols=(protocol,))]
        expected = only(bad, protocol)
        checks = [firing(BEGIN), firing(BEGIN + within, *expected, by=by_protocol), firing(BEGIN + 300, *expected, by=by_protocol)]
        checks += [firing(BEGIN + 510), ever(BEGIN + 510, *expected, by=by_protocol)]
        return Case(f"{protocol}-{name}-seed-{seed}", mesh, BEGIN + 510, checks)

    for protocol in ("udp", "tcp"):
        # As policies for ingress and for egress do it.
        yield one("ingress-of-3", THREE, requests_to("c"), 1.0, ["c"], protocol)
        yield one("egress-of-3", THREE, requests_of("c"), 1.0, ["c"], protocol)
        yield one("everywhere", THREE, requests, 1.0, THREE, protocol)
    yield one("tenth-of-12", TWELVE, both_ways("n07"), 0.1, ["n07"], "udp", within=210)
    yield one("partial-in", FORTY, into("n07"), 1.0, ["n07"], "udp", prepare=partly)

    # All protocols alike: one alert, which is that of ICMP, with its direction.
    for name, nodes, bad, p in (("3", THREE, "c", 0.1), ("12", TWELVE, "n07", 0.1), ("cut", TWELVE, "n07", 1.0)):
        for way, matches in (("in", into), ("out", out_of)):
            mesh = mesh_of(nodes)
            mesh.faults = [Fault(matches(bad), p, BEGIN, BEGIN + 240)]
            checks = [firing(BEGIN + 95, node(bad)), firing(BEGIN + 240, node(bad)), ever(BEGIN + 450, node(bad))]
            checks += [direction(BEGIN + 240, **{bad: way})]
            yield Case(f"protocols-node-{way}-of-{name}-seed-{seed}", mesh, BEGIN + 450, checks)
    mesh = mesh_of(THREE)
    mesh.faults = [Fault(between("a", "b"), 0.2, BEGIN, BEGIN + 180)]
    expected = links(THREE, ("a", "b"))
    yield Case(f"protocols-link-seed-{seed}", mesh, BEGIN + 390, [firing(BEGIN + 150, *expected), ever(BEGIN + 390, *expected)])

    # ICMP alone, as by a rate limit of echoes.
    mesh = mesh_of(THREE)
    mesh.faults = [Fault(both_ways("c"), 0.1, BEGIN, BEGIN + 180, protocols=ECHO)]
    yield Case(f"protocols-echo-alone-seed-{seed}", mesh, BEGIN + 390, [firing(BEGIN + 95, node("c")), ever(BEGIN + 390, node("c"))])

    def all_alike(mesh):
        mesh.protocols = ALL_PROTOCOLS

    def restarts(mesh):
        # An agent that crashes answers no UDP for a while, but its pod answers echoes.
        all_alike(mesh)
        mesh.restarts = [("b", 301), ("b", 330), ("c", 500)]

    def upgrade(mesh):
        all_alike(mesh)
        mesh.icmp_only = {"n01", "n05", "n08"}

    def drains(mesh):
        all_alike(mesh)
        mesh.drains = {"n05": (300, 360), "n08": (310, 10**9)}
        mesh.rolls = [(name, 450 + 30 * index) for index, name in enumerate(list(mesh.nodes)[:4])]

    def one_in_a_thousand(mesh):
        all_alike(mesh)
        mesh.faults = [Fault(lambda frm, to, kind: kind != "read", 0.0005, 0)]

    yield quiet(f"protocols-restarts-seed-{seed}", THREE, restarts, seed=seed)
    yield quiet(f"protocols-older-agents-seed-{seed}", TWELVE, upgrade, seconds=600, seed=seed)
    yield quiet(f"protocols-drains-seed-{seed}", TWELVE, drains, seed=seed)
    yield quiet(f"protocols-one-in-a-thousand-seed-{seed}", TWELVE, one_in_a_thousand, seconds=600, seed=seed)


def thresholds():
    """A link's 5 %: of the probes of one pair, on one network and by one protocol, whatever else the agent probes."""

    def mesh(every):
        mesh = Mesh(THREE)
        mesh.single = [("a", "b", at) for at in range(BEGIN, BEGIN + 240, every)]
        return mesh

    link = links(THREE, ("a", "b"))[:1]
    for name, of in (("networks", {"networks": ("pod", "node")}), ("families", {"protocols": ("icmp", "icmpv6")})):
        lossy = mesh(14)  # 7 %
        vars(lossy).update(of)
        expr = "count by (source_node) (kube_canary:pair_lossy:ratio2m > 0.06 < 0.08)"
        value = {"expr": expr, "eval_time": f"{WARM + 180}s", "exp_samples": [{"labels": '{source_node="a"}', "value": 2}]}
        yield Case(f"threshold-of-two-{name}", lossy, WARM + 210, [firing(WARM + 180, *link), ever(WARM + 210, *link), value])

    # 3 %, where half of the peers have one family.
    well = mesh(30)
    well.protocols, well.one_protocol = ("icmp", "icmpv6"), {"c"}
    yield Case("threshold-where-families-are-mixed", well, WARM + 240, [ever(WARM + 240)])


def directions(seed):
    """Where the evidence does not hold, it says `both`."""

    def pinged(mesh):
        mesh.pingers = {"c": 1}

    yield faulty("pinged-by-others", THREE, (into("c"), 0.1), [node("c")], seed, ways={"c": "both"}, prepare=pinged)

    missing = alert("KubeCanaryAgentMissing", node="n01")
    mesh = Mesh(TWELVE, seed=seed)
    mesh.unscraped = {"n01"}
    # So many requests that the sums almost agree.
    mesh.faults = [Fault(out_of("n07"), 0.8, BEGIN, BEGIN + 180)]
    checks = [firing(BEGIN + 95, missing, node("n07")), direction(BEGIN + 170, n07="both")]
    yield Case(f"a-row-is-missing-seed-{seed}", mesh, BEGIN + 180, checks)

    # Two families of the scraped agents do not replace the agents that are not scraped.
    mesh = Mesh(THREE, seed=seed)
    mesh.protocols = ("icmp", "icmpv6")
    mesh.unscraped = {"b"}
    mesh.faults = [Fault(into("c"), 0.9, BEGIN, BEGIN + 180)]
    yield Case(f"families-a-row-is-missing-seed-{seed}", mesh, BEGIN + 180, [direction(BEGIN + 170, c="both")])
    mesh = Mesh(THREE, seed=seed)
    mesh.protocols = ("icmp", "icmpv6")
    mesh.faults = [Fault(into("c"), 0.1, BEGIN, BEGIN + 180)]
    checks = [firing(BEGIN + 95, node("c")), direction(BEGIN + 170, c="in")]
    yield Case(f"families-direction-of-3-seed-{seed}", mesh, BEGIN + 180, checks)


def calm():
    """What must not fire."""
    yield quiet("well-of-3", THREE, lambda mesh: None)

    def one_lost(mesh):
        mesh.single = [("a", "c", 300)]

    yield quiet("one-lost-probe", THREE, one_lost)
    yield quiet("one-lost-probe-at-30s", THREE, one_lost, scrape=30)

    def one_in_a_thousand(mesh):
        mesh.faults = [Fault(lambda frm, to, kind: kind != "read", 0.0005, 0)]

    yield quiet("one-in-a-thousand", TWELVE, one_in_a_thousand)

    def drain(mesh):
        mesh.leaves = {"n05": 300}

    yield quiet("drain", TWELVE, drain)

    def drain_of_3(mesh):
        mesh.leaves = {"c": 300}

    yield quiet("drain-of-3", THREE, drain_of_3)

    def drain_slowly(mesh):
        # It stops answering while it is terminating, and stays so for a while, or for good.
        mesh.drains = {"n05": (300, 360), "n08": (310, 10**9)}

    yield quiet("drain-slowly", TWELVE, drain_slowly, seconds=1200)

    def drain_partly(mesh):
        partly(mesh)
        mesh.drains = {"n05": (300, 330), "n06": (330, 360)}

    yield quiet("partial-drain", FORTY, drain_partly)
    yield quiet("partial-well", FORTY, partly)

    def one_in_a_thousand_of_a_part(mesh):
        cut(mesh)
        mesh.faults = [Fault(lambda frm, to, kind: kind != "read", 0.0005, 0)]

    yield quiet("capped-one-in-a-thousand", FORTY, one_in_a_thousand_of_a_part)

    def upgrade(mesh):
        mesh.older = {"n01", "n05", "n08"}

    yield quiet("older-agents", TWELVE, upgrade)

    def join(mesh):
        # Its routes take three seconds to spread.
        mesh.joins = {"n05": 300}
        mesh.faults = [Fault(both_ways("n05"), 1.0, 300, 303)]

    yield quiet("join", TWELVE, join)

    def rollout(mesh):
        mesh.rolls = [(name, 250 + 30 * index) for index, name in enumerate(mesh.nodes)]

    yield quiet("rollout-of-3", THREE, rollout)
    yield quiet("rollout-of-12", TWELVE, rollout)

    def restart(mesh):
        mesh.restarts = [("b", 301)]

    yield quiet("restart", THREE, restart)

    mesh = Mesh(THREE)
    restart(mesh)
    mesh.faults = [Fault(into("c"), 0.1, BEGIN, BEGIN + 180)]
    checks = [firing(BEGIN + 95, node("c")), firing(BEGIN + 180, node("c")), ever(BEGIN + 360, node("c"))]
    yield Case("restart-while-a-node-is-bad", mesh, BEGIN + 360, checks)


def lasting():
    """What takes longer."""
    mesh = Mesh(THREE)
    mesh.stops = [("a", "b", 300)]
    silent = alert("KubeCanaryPairSilent", source_node="a", source_zone="z1", peer_node="b", peer_zone="z2")
    yield Case("pair-stopped", mesh, 900, [firing(690), firing(860, silent), ever(900, silent)])

    mesh = Mesh(TWELVE)
    mesh.faults = [Fault(between("n01", "n02"), 1.0, 0)]
    pairs = [("n01", "n02"), ("n02", "n01")]
    silent = [
        alert("KubeCanaryPairSilent", source_node=s, source_zone=TWELVE[s], peer_node=p, peer_zone=TWELVE[p]) for s, p in pairs
    ]
    yield Case("pair-never-answered", mesh, 420, [firing(180), firing(420, *silent), ever(420, *silent)])

    mesh = Mesh(TWELVE)
    mesh.dies = {"n05": BEGIN}
    yield Case("node-dies", mesh, 900, [firing(BEGIN + 50, node("n05")), firing(900, node("n05")), ever(900, node("n05"))])

    mesh = Mesh(TWELVE)
    mesh.unscraped = {"n05"}
    missing = alert("KubeCanaryAgentMissing", node="n05")
    yield Case("agent-not-scraped", mesh, 420, [firing(120), firing(420, missing), ever(420, missing)])

    mesh = Mesh(THREE)
    mesh.stops = [("a", "b", 300), ("a", "c", 300)]
    starved = alert("KubeCanaryAgentStarved", node="a", reason="silent")
    yield Case("agent-sends-nothing", mesh, 1000, [firing(400), firing(560, starved), ever(1000, starved)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rules", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--nodes-max", type=int, default=1000, help="cases of meshes of at most so many nodes")
    parser.add_argument("--prefix", default="", help="of the files' names")
    arguments = parser.parse_args()
    cases = [*calm(), *lasting(), *thresholds()] + [c for seed in range(1, arguments.seeds + 1) for c in (*faults(seed), *directions(seed), *partial(seed), *networks(seed), *protocols(seed))]
    for case in cases:
        if arguments.only in case.name and len(case.mesh.nodes) <= arguments.nodes_max:
            case.name = arguments.prefix + case.name
            case.write(arguments.directory, arguments.rules.resolve())


if __name__ == "__main__":
    main()
