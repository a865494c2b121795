"""What agents of the mesh answer to /api/v1/identity and /api/v1/peers: the truth, and lies.

An answer is what hostile/liar.py writes. Every lie ends by itself: `BYTES` and `SECONDS` are far
beyond what an agent may read.
"""
import json

import paths
import plane
from liar import NOT_FOUND, OK

BYTES, SECONDS = 64 << 20, 90
IDENTITY, REPORT = "/api/v1/identity", "/api/v1/peers"


class Self:
    def __init__(self, node, mesh):
        self.node, self.mesh, self.name = node, mesh, plane.node_name(node)

    def others(self):
        return [(k, pod.address) for k, pod in list(self.mesh.pods.items()) if k != self.node and pod.address]

    def neighbour(self):
        """The name of another node."""
        others = self.others()
        return plane.node_name(others[self.node % len(others)][0])

    def identity(self, **fields):
        return {"node": self.name, "zone": plane.zone_of(self.node), "version": "1.0.0", "allocator": "musl",
                "node_addresses": [node_address(self.node)], **fields}

    def source(self, **fields):
        return {"node": self.name, "zone": plane.zone_of(self.node), "version": "1.0.0", "interval_seconds": 1.0,
                "members": len(self.mesh.pods), "hour_kept": True, "peer_list_age_seconds": 1.0,
                "echo_requests_received": 100000, "echo_replies_sent": 100000,
                "recent": {"seconds": 60.0, "echo_requests_received": 1500, "echo_replies_sent": 1500}, **fields}

    def peers(self):
        return [peer(plane.node_name(k), plane.zone_of(k), address) for k, address in self.others()]


def node_address(k):
    """Of the node, not of its pod."""
    return f"127.200.0.{k + 1}"


def peer(name, zone, address, lost=0):
    recent = {"seconds": 60.0, "sent": 60, "received": 60 - lost, "lost": lost, "rtt_p50_seconds": 0.0001}
    return {"node": name, "zone": zone, "network": "pod", "protocol": "icmp", "state": "ready", "address": address,
            "sent": 100000, "received": 100000 - lost, "lost": lost, "rtt_p50_seconds": 0.0001, "recent": recent}


def row(source, peers):
    """As an agent writes it: the source first, then one object a line."""
    lines = ",\n".join(map(json.dumps, peers))
    return f'{{"source":{json.dumps(source)},"peers":[\n{lines}\n]}}\n'


def whole(body):
    return {"head": OK.replace("Connection", f"Content-Length: {len(body)}\r\nConnection") + body}


def honest(path, me):
    if path == IDENTITY:
        return whole(json.dumps(me.identity()))
    return whole(row(me.source(), me.peers())) if path == REPORT else {"head": NOT_FOUND}


def endless(head, piece):
    return {"head": head, "piece": piece, "times": BYTES // len(piece)}


def invented(me):
    many = [peer(f"invented-{n}", f"zone-{n % 300}", f"127.250.{n // 250}.{n % 250}", lost=50) for n in range(15_000)]
    return row(me.source(members=15_000), many)


def repeated(me):
    """Every node fifty times, as one that leaves; each loses everything besides."""
    leaving = [it | {"state": "terminating"} for it in me.peers() for _ in range(50)]
    return row(me.source(), leaving + [it | {"recent": it["recent"] | {"received": 0, "lost": 60}} for it in me.peers()])


def numbers(me):
    text = row(me.source(), me.peers())
    for at, number in enumerate(("1e999", "-1", "18446744073709551615", "0.5", "4294967296")):
        text = text.replace('"sent": 60', f'"sent": {number}', at + 1)
    return text


def addresses(me):
    """The node addresses of others, this host's, and what is none."""
    others = [node_address(k) for k, _ in me.others()]
    several = [others[me.node % len(others)], "127.0.0.1", "0.0.0.0", "224.0.0.1", "nonsense", *others * 50]
    return json.dumps(me.identity(node_addresses=several))


CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n"
# Kind → (the path of which an answer is a lie, or None for all, and the answer). Others are true.
LIES = {
    "identity-1xx": (IDENTITY, lambda me: endless("", CONTINUE)),
    "identity-endless": (IDENTITY, lambda me: endless(OK + '{"node":"', "x")),
    "identity-other": (IDENTITY, lambda me: whole(json.dumps(me.identity(node=me.neighbour())))),
    "identity-addresses": (IDENTITY, lambda me: whole(addresses(me))),
    "report-1xx": (REPORT, lambda me: endless("", CONTINUE)),
    "report-endless": (REPORT, lambda me: endless(OK + '{"source":{"node":"', "x")),
    "report-invented": (REPORT, lambda me: whole(invented(me))),
    "report-repeated": (REPORT, lambda me: whole(repeated(me))),
    "report-other": (REPORT, lambda me: whole(row(me.source(node=me.neighbour()), me.peers()))),
    "report-trickle": (REPORT, lambda me: {"head": OK, "trickle": row(me.source(), me.peers())}),
    "report-numbers": (REPORT, lambda me: whole(numbers(me))),
    "silent": (None, lambda me: {"hold": SECONDS}),
    "closing": (None, lambda me: {}),
}


def answer(kind, path, me):
    """The answer of a node that lies in this way; None: it tells the truth."""
    about, lie = LIES.get(kind, ("", None))
    return lie(me) if about in (None, path) else honest(path, me)
