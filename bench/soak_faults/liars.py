"""What agents of the mesh answer to /api/v1/identity and /api/v1/peers: the truth, and lies.

An answer is a function of the path and of the one that answers, and gives parts. Every lie ends by
itself: `BYTES` and `SECONDS` are far beyond what an agent may read.
"""

import asyncio, json

import plane

BYTES, SECONDS = 64 << 20, 90
PART = 64 << 10


class Self:
    def __init__(self, node, mesh):
        self.node, self.mesh, self.name = node, mesh, plane.node_name(node)

    def address(self):
        return f"127.200.0.{self.node + 1}"

    def others(self):
        return [
            (k, pod.address)
            for k, pod in list(self.mesh.pods.items())
            if k != self.node and pod.address
        ]

    def identity(self, **fields):
        return {
            "node": self.name,
            "zone": plane.zone_of(self.node),
            "version": "1.0.0",
            "allocator": "musl",
            "node_addresses": [self.address()],
            **fields,
        }

    def source(self, **fields):
        return {
            "node": self.name,
            "zone": plane.zone_of(self.node),
            "version": "1.0.0",
            "interval_seconds": 1.0,
            "members": len(self.mesh.pods),
            "hour_kept": True,
            "peer_list_age_seconds": 1.0,
            "echo_requests_received": 100000,
            "echo_replies_sent": 100000,
            "recent": {"seconds": 60.0, "echo_requests_received": 1500, "echo_replies_sent": 1500},
            **fields,
        }

    def peers(self):
        return [peer(plane.node_name(k), plane.zone_of(k), address) for k, address in self.others()]


def peer(name, zone, address, state="ready", lost=0, **fields):
    return {
        "node": name,
        "zone": zone,
        "network": "pod",
        "protocol": "icmp",
        "state": state,
        "address": address,
        "sent": 100000,
        "received": 100000 - lost,
        "lost": lost,
        "rtt_p50_seconds": 0.0001,
        "recent": {
            "seconds": 60.0,
            "sent": 60,
            "received": 60 - lost,
            "lost": lost,
            "rtt_p50_seconds": 0.0001,
        },
        **fields,
    }


def row(source, peers):
    """As an agent writes it: the source first, then one object a line."""
    lines = ",\n".join(json.dumps(it) for it in peers)
    return f'{{"source":{json.dumps(source)},"peers":[\n{lines}\n]}}\n'.encode()


def whole(body):
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
    )


OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


async def honest(path, me):
    if path == "/api/v1/identity":
        yield whole(json.dumps(me.identity()).encode())
    elif path == "/api/v1/peers":
        yield whole(row(me.source(), me.peers()))
    else:
        yield b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def lie(about):
    """Makes an answer of one path a lie, and leaves the other true."""

    def wrap(work):
        async def answer(path, me):
            async for part in work(me) if path == about else honest(path, me):
                yield part

        return answer

    return wrap


def endless(begin, part):
    async def answer(me):
        yield begin
        for _ in range(BYTES // len(part)):
            yield part

    return answer


def fixed(body):
    async def answer(me):
        yield whole(body(me))

    return answer


def next_of(me):
    return me.others()[me.node % len(me.others())]


async def trickle(me):
    yield OPEN
    for byte in row(me.source(), me.peers()):
        yield bytes([byte])
        await asyncio.sleep(0.5)


async def silent(path, me):
    await asyncio.sleep(SECONDS)
    yield b""


async def closing(path, me):
    yield b""


def invented(me):
    many = [
        peer(f"invented-{n}", f"zone-{n % 300}", f"127.250.{n // 250}.{n % 250}", lost=50)
        for n in range(15_000)
    ]
    return row(me.source(members=15_000), many)


def repeated(me):
    """Every node fifty times, as one that leaves; each loses everything besides."""
    return row(
        me.source(),
        [it | {"state": "terminating"} for it in me.peers() for _ in range(50)]
        + [it | {"recent": it["recent"] | {"received": 0, "lost": 60}} for it in me.peers()],
    )


def numbers(me):
    text = row(me.source(), me.peers()).decode()
    for at, number in enumerate(("1e999", "-1", "18446744073709551615", "0.5", "4294967296")):
        text = text.replace('"sent": 60', f'"sent": {number}', at + 1)
    return text.encode()


def addresses(me):
    """The node addresses of others, this host's, and what is none."""
    others = [f"127.200.0.{k + 1}" for k, _ in me.others()]
    return json.dumps(
        me.identity(
            node_addresses=[
                others[me.node % len(others)],
                "127.0.0.1",
                "0.0.0.0",
                "224.0.0.1",
                "nonsense",
            ]
            + others * 50
        )
    ).encode()


IDENTITY, REPORT = lie("/api/v1/identity"), lie("/api/v1/peers")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n" * (PART // 25)
LIES = {
    "identity-1xx": IDENTITY(endless(b"", CONTINUE)),
    "identity-endless": IDENTITY(endless(OPEN + b'{"node":"', b"x" * PART)),
    "identity-other": IDENTITY(
        fixed(lambda me: json.dumps(me.identity(node=plane.node_name(next_of(me)[0]))).encode())
    ),
    "identity-addresses": IDENTITY(fixed(addresses)),
    "report-1xx": REPORT(endless(b"", CONTINUE)),
    "report-endless": REPORT(endless(OPEN + b'{"source":{"node":"', b"x" * PART)),
    "report-invented": REPORT(fixed(invented)),
    "report-repeated": REPORT(fixed(repeated)),
    "report-other": REPORT(
        fixed(lambda me: row(me.source(node=plane.node_name(next_of(me)[0])), me.peers()))
    ),
    "report-trickle": REPORT(trickle),
    "report-numbers": REPORT(fixed(numbers)),
    "silent": silent,
    "closing": closing,
}
