"""The shapes of faults: how each is drawn, in which sizes, and what a judgement of it should be.

`SHAPES` has, by name, a title, its cases (keyword arguments of its function) and what the pooled
judgements must reach. A function draws one mesh of a case, and returns what is expected of its verdicts.
"""
import functools
import itertools

from meshes import HEALTHY, Mesh, one_way
from score import ANY, Claim, Expected

SIZES = (12, 30, 100)
MESH, PATHS = Claim("mesh"), Claim("paths")


def ways(mesh, is_lost, loss):
    """Adds a fault that loses this much on each way from a to b for which `is_lost(a, b)` is true."""
    mesh.ways.append(lambda a, b: loss if is_lost(a, b) else 0.0)


def everywhere(mesh, loss):
    mesh.base = lambda a, b: loss


def crossing(mesh, group, loss, direction="both"):
    """Adds a fault of the ways between a group and the rest: out of it, into it, or both. In each case
    a round trip loses as much."""
    group = frozenset(group)
    each = one_way(loss) if direction == "both" else loss
    if direction in ("both", "out"):
        ways(mesh, lambda a, b: a in group and b not in group, each)
    if direction in ("both", "in"):
        ways(mesh, lambda a, b: b in group and a not in group, each)


def inside(mesh, group, loss):
    group, each = frozenset(group), one_way(loss)
    ways(mesh, lambda a, b: a in group and b in group, each)


def bad_node(mesh, node, loss, direction="both"):
    crossing(mesh, [node], loss, direction)
    return Claim("node", [node], None if direction == "both" else direction)


def hashed_paths(mesh, count, loss, by_kind=False):
    """Each flow takes one of this many parallel paths, of which one loses. A flow is an ordered pair of
    nodes, or its requests and its replies by themselves, as a hash over ICMP's types has it."""
    rng, taken = mesh.rng, {}

    def path(a, b):
        if (a, b) not in taken:
            taken[a, b] = rng.randrange(count)
        return taken[a, b]

    if not by_kind:
        ways(mesh, lambda a, b: path(a, b) == 0, loss)
        return
    for packets in (mesh.requests, mesh.replies):
        taken = {}
        packets.append(lambda a, b, taken=taken: loss if taken.setdefault((a, b), rng.randrange(count)) == 0 else 0.0)


def quiet(draw, domains=0):
    """Makes a function of a mesh one that draws the mesh as well. Half of the meshes lose a packet of
    5,000 everywhere."""
    def drawn(rng, size, zones, partial, *fault, even=True, domains=domains, **more):
        mesh = Mesh(rng, size, zones, partial, even, domains)
        everywhere(mesh, rng.choice((0.0, 0.000_2)))
        return draw(mesh, *fault, **more)
    return drawn


def uniform(rng, size, zones, partial, loss, spread=0.0):
    mesh = Mesh(rng, size, zones, partial)
    if not spread:
        everywhere(mesh, one_way(loss))
    else:
        rates = {}
        # In steps of a hundredth of the spread.
        drawn = [one_way(loss * (1 + spread * step / 100)) for step in range(-100, 101)]
        mesh.base = lambda a, b: rates.setdefault((a, b), rng.choice(drawn))
    if size >= 12 and loss >= 0.01:
        return mesh, Expected([MESH])
    return mesh, Expected(allowed=[] if loss <= 0.001 else [MESH])


def groups_of(mesh, shares):
    """Splits the nodes at random, so that no group is a zone."""
    order, groups, begin = mesh.rng.sample(mesh.nodes, len(mesh.nodes)), [], 0
    for share in shares[:-1]:
        end = begin + max(2, round(share * len(order)))
        groups.append(order[begin:end])
        begin = end
    return [*groups, order[begin:]]


def is_zone(mesh, group):
    return any(set(group) == set(mesh.of_zone(zone)) for zone in set(mesh.zone.values()))


@quiet
def partition(mesh, shares, loss=1.0, one_sided=False, is_seen_whole=True):
    groups = groups_of(mesh, shares)
    while any(is_zone(mesh, group) for group in groups):
        groups = groups_of(mesh, shares)
    of = {node: number for number, group in enumerate(groups) for node in group}
    if one_sided:
        ways(mesh, lambda a, b: of[a] < of[b], loss)
    else:
        ways(mesh, lambda a, b: of[a] != of[b], one_way(loss) if loss < 1 else 1.0)
    if not is_seen_whole:
        mesh.absent.update(*groups[1:])
    return mesh, Expected([Claim("partition", [min(group) for group in groups])])


@quiet
def zone_cut(mesh, loss, is_seen_whole=True):
    zones = sorted(set(mesh.zone.values()))
    zone = mesh.rng.choice(zones)
    nodes = mesh.of_zone(zone)
    crossing(mesh, nodes, loss)
    if not is_seen_whole:
        mesh.absent.update(nodes)
    if len(nodes) == 1:
        # The links of the zone are those of its only node, and the narrower cause is named.
        return mesh, Expected([Claim("node", nodes)], guilty=[zone, *nodes])
    if len(zones) == 2:
        return mesh, Expected([Claim("zone_pair", zones)], guilty=zones)
    return mesh, Expected([Claim("zone", [zone])], guilty=[zone])


@quiet
def zone_inside(mesh, loss):
    zone = mesh.rng.choice(sorted(set(mesh.zone.values())))
    inside(mesh, mesh.of_zone(zone), loss)
    return mesh, Expected([Claim("zone", [zone])], guilty=[zone])


@quiet
def domain(mesh, loss, how):
    name = mesh.rng.choice(sorted(set(mesh.domain.values())))
    (crossing if how == "cut" else inside)(mesh, mesh.of_domain(name), loss)
    return mesh, Expected([Claim("domain", [name])], guilty=[name])


def dead(rng, size, zones, partial):
    mesh = Mesh(rng, size, zones, partial)
    everywhere(mesh, 1.0)
    return mesh, Expected([MESH])


@quiet
def paths(mesh, count, loss, by_kind=False):
    hashed_paths(mesh, count, loss, by_kind)
    return mesh, Expected([PATHS])


@quiet
def node(mesh, loss, direction, is_absent=False, is_missing_told=False):
    bad = mesh.rng.choice(mesh.nodes)
    if is_absent:
        mesh.absent.add(bad)
        mesh.is_missing_told = is_missing_told
    return mesh, Expected([bad_node(mesh, bad, loss, direction)], guilty=[bad])


BY_IPV4, BY_IPV6 = ("icmp", "udp", "tcp"), ("icmpv6", "udpv6", "tcpv6")


def protocols(mesh, families=1):
    """Lets agents probe by all protocols. Returns the labels of each, by its name."""
    mesh.labels = BY_IPV4 + BY_IPV6 if families == 2 else BY_IPV4
    return {name: tuple(label for label in mesh.labels if label.startswith(name)) for name in BY_IPV4}


def some_link(mesh):
    a = mesh.rng.choice(mesh.nodes)
    return a, mesh.rng.choice(mesh.peers[a])


def place(mesh, what):
    """Draws a part of a mesh. Returns the claim that it is the cause, whom a verdict may name, and whether a
    way is of it."""
    rng, zone = mesh.rng, mesh.zone
    if what == "node":
        bad = rng.choice(mesh.nodes)
        return Claim("node", [bad]), [bad], lambda a, b: bad in (a, b)
    if what == "link":
        pair = set(some_link(mesh))
        return Claim("link", pair), [], lambda a, b: {a, b} == pair
    if what == "zone":
        bad = rng.choice(sorted(set(zone.values())))
        return Claim("zone", [bad]), [bad], lambda a, b: (zone[a] == bad) != (zone[b] == bad)
    if what == "zone_pair":
        pair = set(rng.sample(sorted(set(zone.values())), 2))
        return Claim("zone_pair", pair), pair, lambda a, b: {zone[a], zone[b]} == pair
    return Claim("mesh"), [], lambda a, b: True


@quiet
def zone_pair(mesh, loss):
    claim, guilty, is_of = place(mesh, "zone_pair")
    ways(mesh, is_of, one_way(loss))
    return mesh, Expected([claim], guilty=guilty)


@quiet
def zones_apart(mesh, loss):
    """All links between zones lose, and none inside."""
    ways(mesh, lambda a, b: mesh.zone[a] != mesh.zone[b], one_way(loss))
    zones = sorted(set(mesh.zone.values()))
    return mesh, Expected([Claim("zone_pair", list(pair)) for pair in itertools.combinations(zones, 2)], guilty=zones)


@quiet
def networks(mesh, loss, faulty, what):
    """A node, or a link, that is bad in the pods' network, the nodes', or both. If it is bad in both, the
    nodes' network is the cause."""
    mesh.faulty = faulty
    claim, guilty, is_of = place(mesh, what)
    claim.network = "node" if "node" in faulty else "pod"
    ways(mesh, is_of, one_way(loss))
    return mesh, Expected([claim], guilty=guilty)


def lost_of(mesh, labels, is_of, loss):
    mesh.of_labels.append((labels, lambda a, b: one_way(loss) if is_of(a, b) else 0.0))


@quiet
def one_protocol(mesh, what, which, loss, beside=0.0):
    """One protocol is lost in a part of a mesh, all of which may lose as well."""
    labels = protocols(mesh)
    claim, guilty, is_of = place(mesh, what)
    claim.protocol = which
    lost_of(mesh, labels[which], is_of, loss)
    if beside:
        everywhere(mesh, one_way(beside))
    return mesh, Expected([claim, *([Claim("mesh", protocol=None)] if beside else [])], guilty=guilty)


@quiet
def two_protocols(mesh, which, loss):
    """Each of two nodes loses another protocol."""
    labels, bad = protocols(mesh), mesh.rng.sample(mesh.nodes, 2)
    for node, name in zip(bad, which):
        lost_of(mesh, labels[name], lambda a, b, node=node: node in (a, b), loss)
    return mesh, Expected([Claim("node", [node], protocol=name) for node, name in zip(bad, which)], guilty=bad)


@quiet
def several(mesh, which, families=1):
    """Faults of different protocols or families at once: of each the part of the mesh, what it loses, and how
    much. No node, link, zone or pair of zones has two of them."""
    labels, required, guilty, drawn = protocols(mesh, families), [], [], []

    def is_twice(claim, is_of):
        of_link = [other.names for other, _ in drawn if other.kind == "link"]
        return (any(claim.names & other.names for other, _ in drawn) or any(is_of(*sorted(names)) for names in of_link)
                or claim.kind == "link" and any(other(*sorted(claim.names)) for _, other in drawn))

    for what, of, loss in which:
        claim, bad, is_of = place(mesh, what)
        while is_twice(claim, is_of):
            claim, bad, is_of = place(mesh, what)
        drawn.append((claim, is_of))
        claim.protocol, claim.family = of if of in labels else None, of if of.startswith("ipv") else None
        required.append(claim)
        guilty += bad
        hit = {"all": mesh.labels, "ipv4": BY_IPV4, "ipv6": BY_IPV6, **labels}[of]
        lost_of(mesh, hit, is_of, loss)
    return mesh, Expected(required, guilty=guilty)


def one_family(rng, size, zones, partial, what, which, loss):
    """One address family is lost in a part of a mesh, by all protocols."""
    return several(rng, size, zones, partial, ((what, which, loss),), 2)


@quiet
def unsendable(mesh, what, which, reason, beside=0.0):
    """What cannot be sent: out of a node, or to it, or in another part of a mesh; by all protocols, by one, or
    over one family. All links may lose as well."""
    labels = protocols(mesh, families=2 if which.startswith("ipv") else 1)
    way = what if what in ("out", "in") else None
    claim, guilty, is_of = place(mesh, "node" if way else what)
    if way:
        bad, claim.way = guilty[0], way
        is_of = (lambda a, b: a == bad) if way == "out" else lambda a, b: b == bad
    hit = {"all": mesh.labels, "ipv4": BY_IPV4, "ipv6": BY_IPV6, **labels}[which]
    claim.protocol, claim.family = which if which in labels else None, which if which.startswith("ipv") else None
    mesh.unsent.append(lambda a, b, label: reason if label in hit and is_of(a, b) else None)
    if beside:
        everywhere(mesh, one_way(beside))
    return mesh, Expected([claim, *([Claim("mesh", protocol=None)] if beside else [])], guilty=guilty)


@quiet
def nodes(mesh, count, loss):
    bad = mesh.rng.sample(mesh.nodes, count)
    return mesh, Expected([bad_node(mesh, one, loss) for one in bad], guilty=bad)


@quiet
def link(mesh, loss, direction):
    a, b = some_link(mesh)
    if direction == "both":
        ways(mesh, lambda source, to: {source, to} == {a, b}, one_way(loss))
        return mesh, Expected([Claim("link", [a, b])])
    ways(mesh, lambda source, to: (source, to) == (a, b), loss)
    return mesh, Expected([Claim("link", [a, b], a)])


@quiet
def slow(mesh, factor, what):
    claim, _, is_of = place(mesh, what)
    mesh.slow.append(lambda a, b: factor * 0.001 if is_of(a, b) else 0.0)
    return mesh, Expected([claim], guilty=claim.names)


@quiet
def slow_mesh(mesh, factor, age):
    """All round trips take longer by this many milliseconds; one in five agents may have just started."""
    mesh.slow.append(lambda a, b: factor * 0.001)
    young = set(mesh.rng.sample(mesh.nodes, len(mesh.nodes) // 5)) if age == "mixed" else set()
    mesh.lies.append(lambda it: it.usual.update({pair: None for pair in it.usual if pair[0] in young}))
    return mesh, Expected([Claim("mesh")])


@quiet
def starved(mesh, loss, has_drops=False):
    bad = mesh.rng.choice(mesh.nodes)
    mesh.late[bad] = loss
    if has_drops:
        # In time, but for what its socket had no room for.
        drops = round(mesh.seconds[bad] * len(mesh.peers[bad]) * loss)
        mesh.drops[bad] = {**HEALTHY, "receive_queue_drops": drops}
    return mesh, Expected([Claim("agent_starved", mesh.late)], guilty=mesh.late)


def light_link(rng, size, zones, partial, loss):
    """Too little for a verdict, or just enough."""
    mesh, expected = link(rng, size, zones, partial, loss, "both")
    return mesh, Expected(allowed=expected.required)


@functools.partial(quiet, domains=5)
def two(mesh, which, node_loss=0.3):
    """Two faults at once."""
    rng, zones = mesh.rng, sorted(set(mesh.zone.values()))
    required, guilty, all_zones = [], [], rng.sample(zones, len(zones))
    for fault in which:
        if fault == "mesh":
            everywhere(mesh, one_way(0.02))
            required.append(MESH)
        elif fault == "paths":
            hashed_paths(mesh, rng.choice((4, 8)), rng.uniform(0.5, 1))
            required.append(PATHS)
        elif fault == "partition":
            group = set(rng.sample(mesh.nodes, len(mesh.nodes) // 3))
            ways(mesh, lambda a, b, group=group: (a in group) != (b in group), 1.0)
            required.append(Claim("partition", [min(group), min(set(mesh.nodes) - group)]))
        elif fault in ("cut", "inside"):
            zone = all_zones.pop()
            (crossing if fault == "cut" else inside)(mesh, mesh.of_zone(zone), 0.2)
            required.append(Claim("zone", [zone]))
            guilty.append(zone)
        elif fault == "domain":
            name = rng.choice(sorted(set(mesh.domain.values())))
            crossing(mesh, mesh.of_domain(name), 0.3)
            required.append(Claim("domain", [name]))
            guilty.append(name)
        elif fault == "node":
            bad = rng.choice(mesh.nodes)
            required.append(bad_node(mesh, bad, node_loss))
            guilty.append(bad)
        elif fault == "link":
            pair = frozenset(some_link(mesh))
            ways(mesh, lambda source, to, pair=pair: {source, to} == pair, one_way(0.5))
            required.append(Claim("link", pair))
    return mesh, Expected(required, guilty=guilty)


@quiet
def liar(mesh, says, count=1):
    rng = mesh.rng
    liars = rng.sample(mesh.nodes, count)
    allowed, required, guilty = [Claim(None, [one]) for one in liars], [], list(liars)
    honest = [n for n in mesh.nodes if n not in liars]
    if says == "nothing lost":
        # A node is really bad, and the liar denies it.
        bad = rng.choice(honest)
        required.append(bad_node(mesh, bad, 0.3))
        guilty.append(bad)
    victim = rng.choice(honest)
    if says == "it is this one":
        for one in liars:
            allowed.append(Claim("link", [one, victim], ANY, at_most_likely=True))
            if victim not in mesh.peers[one]:
                mesh.peers[one][-1] = victim

    def lie(mesh):
        for one in liars:
            for b in mesh.peers[one]:
                sent, _, rtt = mesh.cells[one, b]
                if says == "all lost":
                    mesh.cells[one, b] = sent, sent, rtt
                elif says == "nothing lost":
                    mesh.cells[one, b] = sent, 0, rtt
                elif says == "it is this one" and b == victim:
                    mesh.cells[one, b] = sent, sent, rtt
                elif says == "absurd counts":
                    mesh.cells[one, b] = 4_000_000_000, rng.randrange(4_000_000_000), rtt
            if says == "ghosts":
                mesh.ghosts[one] = [(f"ghost{n}", f"zone{n % 7}", 60, 50, 0.001) for n in range(40)]
            if says == "counted nothing":
                mesh.received[one] = 0

    mesh.lies.append(lie)
    return mesh, Expected(required, allowed, guilty)


@quiet
def policy(mesh, where):
    """A filter of requests: all of a source's, or at one destination alone."""
    source = mesh.rng.choice(mesh.nodes)
    if where == "egress":
        mesh.filters.append(lambda a, b: 1.0 if a == source else 0.0)
        return mesh, Expected(allowed=[Claim(None, [source])], guilty=[source])
    target = mesh.rng.choice(mesh.peers[source])
    mesh.filters.append(lambda a, b: 1.0 if (a, b) == (source, target) else 0.0)
    allowed = [Claim(None, [source]), Claim("link", [source, target], ANY)]
    return mesh, Expected(allowed=allowed, guilty=[source])


class Shape:
    def __init__(self, title, draw, cases, exact=0.98, per_case=10):
        self.title, self.draw, self.cases, self.exact, self.per_case = title, draw, list(cases), exact, per_case


def cases(sizes=SIZES, zones=(1, 3), partial=(False, True), **lists):
    """All combinations, except partial meshes of 25 nodes or fewer, and zones of a single node."""
    found = [{}]
    for key, values in {"size": sizes, "zones": zones, "partial": partial, **lists}.items():
        found = [{**case, key: value} for case in found for value in values]
    return [c for c in found if (c["size"] > 25 or not c["partial"]) and (c["zones"] == 1 or 2 * c["zones"] <= c["size"])]


ZONES, BIG = (3, 6), (30, 100)
BOTH = ("both", "in", "out")
SHAPES = {
    "uniform": Shape("the same loss on every link, 1 % and more, from 12 nodes on", uniform,
                     cases((12, 30, 100, 300), (1, 2, 3, 6), loss=(0.01, 0.02, 0.03, 0.05, 0.1, 0.3)), 0.99, per_case=4),
    "uniform-small": Shape("the same, 0.5 %, or fewer than 12 nodes", uniform,
                           cases((3, 5), (1, 2), loss=(0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.3))
                           + cases((12, 30, 100, 300), (1, 2, 3, 6), loss=(0.005,)), 0.99),
    "noise": Shape("at most 0.1 % on every link", uniform, cases((3, 12, 30, 100), (1, 2, 3, 6), loss=(0.0, 0.001)), 0.99),
    "partition-even": Shape("two groups of the same size do not reach each other", partition,
                            cases(zones=(1, 2, 3), shares=((0.5, 0.5),))),
    "partition-uneven": Shape("two groups, one of a sixth to a third", partition,
                              cases(zones=(1, 2, 3), shares=((1 / 6, 5 / 6), (1 / 3, 2 / 3)))),
    "partition-three": Shape("three groups", partition, cases(zones=(1, 3), shares=((1 / 3, 1 / 3, 1 / 3), (0.5, 0.3, 0.2)))),
    "zone-cut": Shape("a zone does not reach the others", zone_cut, cases(zones=(2, 3, 6), loss=(1.0,))),
    "zone-lossy": Shape("a zone loses 20 % to the others", zone_cut, cases(zones=(2, 3, 6), loss=(0.2,))),
    "zone-inside": Shape("a zone loses 10 or 50 % inside", zone_inside, cases(zones=(2, 3), loss=(0.1, 0.5))),
    "domain-cut": Shape("a domain loses 20 or 100 % to the rest", domain,
                        cases(zones=(1, 3), domains=(4,), loss=(0.2, 1.0), how=("cut",))),
    "domain-inside": Shape("a domain loses 30 % inside", domain,
                           cases((30, 100), zones=(1, 3), domains=(4,), loss=(0.3,), how=("inside",))),
    "dead": Shape("everything is lost", dead, cases((3, 5, 12, 30, 100), (1, 2, 3, 6))),
    "paths": Shape("one of 4 or 8 paths loses 50 to 100 %, from 30 nodes on", paths,
                   cases(BIG, count=(4, 8), loss=(0.5, 0.75, 1.0))),
    "paths-12": Shape("the same, of 12 nodes", paths, cases((12,), count=(4, 8), loss=(0.5, 0.75, 1.0)), 0.8),
    "two": Shape("two of these at once, from 30 nodes on", two,
                 cases(BIG, ZONES, which=(("cut", "inside"), ("paths", "cut"), ("partition", "inside"), ("mesh", "cut"),
                                          ("mesh", "inside"), ("mesh", "paths"), ("paths", "inside")))),
    "two-domain": Shape("a domain and one of these at once", two,
                        cases(BIG, (3,), which=(("domain", "mesh"), ("domain", "inside")))),
    "mesh-and-node": Shape("a lossy mesh with a worse node", two, cases(zones=(1, 3), which=(("mesh", "node"),))),
    "node": Shape("a node loses 5 to 100 %", node, cases((6, 12, 30, 100), loss=(0.05, 0.2, 1.0), direction=BOTH)),
    "node-absent": Shape("a node loses everything, and its report is not there", node,
                         cases((6, 12, 30, 100), loss=(1.0,), direction=("both",), is_absent=(True,))),
    "nodes": Shape("two nodes lose 30 %", nodes, cases((8, 12, 30, 100), count=(2,), loss=(0.3,))),
    "link": Shape("a link loses 30 to 100 %", link, cases((6, 12, 30, 100), loss=(0.3, 1.0), direction=("both", "out"))),
    "zone-pair": Shape("a pair of three or more zones loses 20 or 100 %", zone_pair, cases(zones=(3, 4), loss=(0.2, 1.0))),
    "zones-apart": Shape("all links between zones lose 5 or 30 %", zones_apart, cases((12, 30, 100), zones=(2, 3, 4), loss=(0.05, 0.3))),
    "slow": Shape("a node is slow by 3 or 10 ms", slow, cases(zones=(1, 3), factor=(3, 10), what=("node",))),
    "slow-mesh": Shape("all links are slow by 12 or 50 ms", slow_mesh,
                       cases((3, 6, 12, 30, 100), (1, 3), factor=(12, 50), age=("old", "mixed"))),
    "liar-all": Shape("an agent says that it loses everything", liar, cases(zones=(1, 3), says=("all lost",))),
    "liar-nothing": Shape("an agent says that it loses nothing, beside a node that loses 30 %", liar,
                          cases(zones=(1, 3), says=("nothing lost",))),
    "liar-frames": Shape("an agent says that it loses everything to one node", liar,
                         cases(zones=(1, 3), says=("it is this one",))),
    "liar-ghosts": Shape("an agent names 40 nodes that do not exist", liar, cases(zones=(1, 3), says=("ghosts",))),
    "liar-absurd": Shape("an agent sends counts of billions", liar, cases(zones=(1, 3), says=("absurd counts",))),
    "policy-egress": Shape("a policy drops all requests of one source", policy, cases(zones=(1, 3), where=("egress",))),
    "policy-ingress": Shape("a policy drops the requests of one source at one node", policy,
                            cases(zones=(1, 3), where=("ingress",))),
    # Further shapes.
    "uneven-loss": Shape("every way loses 2 %, give or take a third", uniform,
                         cases(zones=(1, 3), loss=(0.02,), spread=(0.33,))),
    "partition-one-way": Shape("a group does not reach the other, which does", partition,
                               cases(zones=(1, 3), shares=((0.5, 0.5), (0.3, 0.7)), one_sided=(True,))),
    "partition-one-side": Shape("two groups; only the reports of one can be had", partition,
                                cases(zones=(1, 3), shares=((0.5, 0.5), (0.3, 0.7)), is_seen_whole=(False,))),
    "zone-one-side": Shape("a zone that is cut off, without its reports", zone_cut,
                           cases(zones=(3, 6), loss=(1.0,), is_seen_whole=(False,))),
    "partition-leaky": Shape("95 % lost between two groups", partition,
                             cases(zones=(1, 3), shares=((0.5, 0.5), (0.3, 0.7)), loss=(0.95,))),
    "zones-uneven": Shape("a zone of another size than the others loses 30 or 100 % to them", zone_cut,
                          cases(zones=(3, 6), loss=(0.3, 1.0), even=(False,))),
    "paths-of-16": Shape("one of 16 paths loses everything", paths, cases(BIG, count=(16,), loss=(1.0,))),
    "paths-by-type": Shape("one of 4 paths loses 75 %; requests and replies of a link may take different ones", paths,
                           cases(BIG, count=(4,), loss=(0.75,), by_kind=(True,))),
    "nodes-three": Shape("three nodes lose 20 %", nodes, cases((12, 30, 100), count=(3,), loss=(0.2,))),
    "node-and-link": Shape("a node and a link elsewhere", two, cases(BIG, (1, 3), which=(("node", "link"),))),
    "partition-and-node": Shape("a partition, and a node that is bad in its group", two,
                                cases(BIG, (1, 3), which=(("partition", "node"),))),
    "starved": Shape("a starved agent loses 15 % of its replies itself", starved,
                     cases(zones=(1, 3), loss=(0.15,))),
    "starved-drops": Shape("an agent's socket drops 2 or 15 % of its replies", starved,
                           cases(zones=(1, 3), loss=(0.02, 0.15), has_drops=(True,))),
    "node-missing": Shape("a node loses everything, and the mesh says that its report is missing", node,
                          cases((3, 6, 12, 30, 100), loss=(1.0,), direction=("both",), is_absent=(True,), is_missing_told=(True,))),
    "networks": Shape("a node or link loses in the pods' network, the nodes', or both", networks,
                      cases((6, 12, 30), loss=(0.3, 1.0), faulty=(("pod",), ("node",), ("pod", "node")), what=("node", "link"))),
    "networks-light": Shape("a node loses 5 or 10 % in the pods' network, the nodes', or both", networks,
                            cases((12, 30), loss=(0.05, 0.1), faulty=(("pod",), ("node",), ("pod", "node")), what=("node",))),
    "protocol": Shape("one protocol loses 30 or 100 % at a node, a link or a pair of zones", one_protocol,
                      cases((6, 12, 30), (3,), (False,), what=("node", "link", "zone_pair"), which=BY_IPV4, loss=(0.3, 1.0))),
    "protocol-and-mesh": Shape("the same at a node, and all links lose 3 % by all protocols", one_protocol,
                               cases((12, 30), (3,), (False,), what=("node",), which=BY_IPV4, loss=(0.5, 1.0), beside=(0.03,))),
    "protocols-two": Shape("each of two nodes loses another protocol", two_protocols,
                           cases((12, 30), (3,), which=(("icmp", "udp"), ("udp", "tcp"), ("icmp", "tcp")), loss=(0.5, 1.0))),
    "several": Shape("two faults of different protocols or families at once", several,
                     cases((12, 30), (3,), (False,), families=(1, 2), which=(
                         (("node", "all", 0.3), ("node", "udp", 0.5)), (("node", "all", 0.3), ("node", "tcp", 1.0)),
                         (("zone", "tcp", 1.0), ("node", "udp", 0.5)), (("zone_pair", "all", 0.3), ("node", "udp", 1.0)),
                         (("mesh", "udp", 1.0), ("node", "all", 0.3)), (("mesh", "udp", 1.0), ("node", "tcp", 1.0)),
                         (("link", "udp", 1.0), ("node", "all", 1.0)), (("zone", "all", 1.0), ("node", "icmp", 1.0))))),
    "several-families": Shape("a fault of one address family, and another fault", several,
                              cases((12, 30), (3,), (False,), families=(2,), which=(
                                  (("node", "ipv6", 1.0), ("node", "all", 0.3)), (("node", "ipv6", 1.0), ("node", "udp", 1.0)),
                                  (("mesh", "ipv6", 1.0), ("node", "all", 0.3)), (("zone", "ipv6", 1.0), ("node", "tcp", 1.0)),
                                  (("node", "ipv4", 0.3), ("node", "ipv6", 0.3)), (("link", "ipv6", 1.0), ("zone", "all", 0.3))))),
    "family": Shape("one address family loses 30 or 100 % in a part of a mesh", one_family,
                    cases((6, 12, 30), (3,), (False,), what=("node", "link", "zone", "zone_pair", "mesh"),
                          which=("ipv4", "ipv6"), loss=(0.3, 1.0))),
    "unsendable": Shape("nothing can be sent out of a node, to it, or in another part of a mesh", unsendable,
                        cases((6, 12, 30), (3,), (False,), what=("out", "in", "link", "zone", "zone_pair", "mesh"),
                              which=("all", "ipv6", "udp"), reason=("no_route", "not_permitted"))),
    "unsendable-and-mesh": Shape("the same of a node, and all links lose 3 %", unsendable,
                                 cases((12, 30), (3,), (False,), what=("out", "in"), which=("all", "udp"),
                                       reason=("not_permitted",), beside=(0.03,))),
    "slow-link": Shape("a link is slow by 6 or 20 ms", slow, cases(zones=(1, 3), factor=(6, 20), what=("link",))),
    "link-light": Shape("a link loses 5 or 8 %", light_link, cases((6, 12, 30), zones=(1, 3), loss=(0.05, 0.08))),
    "partition-and-lossy-node": Shape("a partition, and a node that loses 70 % in its group", two,
                                      cases(BIG, (1, 3), which=(("partition", "node"),), node_loss=(0.7,))),
    "liars-two": Shape("two agents say that they lose everything to one node", liar,
                       cases(zones=(1, 3), says=("it is this one",), count=(2,))),
    "liars-three": Shape("three agents do", liar, cases((30, 100), (1, 3), says=("it is this one",), count=(3,))),
    "liar-counter": Shape("an agent says that no request has reached it", liar,
                          cases(zones=(1, 3), says=("counted nothing",))),
}
