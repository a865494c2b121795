"""Three fake agents, whose histograms are of known distributions, in text or in protobuf.

They show what a Prometheus makes of classic and of native histograms, and whether queries of both agree. The encoder is one of
its own, beside that of the agent: metrics.proto of prometheus/client_model, MetricFamily messages with their length before them.
"""
import http.server
import math
import random
import statistics
import struct
import threading
import time

# As exported by default.
BOUNDS = [25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3, 250e-3, 1.0]
SCHEMA = 3  # bins grow by 2^(1/8), 9 %
ZONES = {"a": "z1", "b": "z2", "c": "z3"}
# Medians of the round-trip times from zone to zone, seconds.
RTT = {("z1", "z2"): 0.0004, ("z1", "z3"): 0.0017, ("z2", "z3"): 0.021}
LAG = {"a": 0.0002, "b": 0.0003, "c": 0.12}  # the agent on c is starved
READ_DELAY = 0.02
SIGMA = 0.3  # of the logarithm, of every distribution
PER_SECOND = 200
PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


def quantile(median, q):
    """The quantile of the distribution around a median."""
    return median * math.exp(SIGMA * statistics.NormalDist().inv_cdf(q))


def mean(median):
    return median * math.exp(SIGMA**2 / 2)


class Histogram:
    """What has been observed until now, at a constant rate, of a distribution around a median."""

    def __init__(self, median, count):
        values = [quantile(median, (i + 0.5) / 200) for i in range(200)]
        random.Random(median).shuffle(values)
        cycles, rest = divmod(count, len(values))
        times = [(value, cycles + (i < rest)) for i, value in enumerate(values)]
        self.count = count
        self.sum = sum(value * n for value, n in times)
        self.cumulative = [sum(n for value, n in times if value <= bound) for bound in BOUNDS]
        self.bins = {}
        for value, n in times:
            if n:
                index = math.ceil(math.log2(value) * 2**SCHEMA)
                self.bins[index] = self.bins.get(index, 0) + n

    def text(self, name, labels):
        for bound, count in zip([*map(repr, BOUNDS), "+Inf"], [*self.cumulative, self.count]):
            yield f"{name}_bucket{braces(labels | {'le': bound})} {count}"
        yield f"{name}_sum{braces(labels)} {self.sum!r}"
        yield f"{name}_count{braces(labels)} {self.count}"

    def protobuf(self):
        spans, deltas, before, end = [], [], 0, 0
        for index, count in sorted(self.bins.items()):
            if not spans or index != end:
                spans.append([index - end, 0])
            spans[-1][1] += 1
            deltas.append(zigzag(count - before))
            before, end = count, index + 1
        classic = (uint(1, count) + double(2, bound) for bound, count in zip(BOUNDS, self.cumulative))
        return b"".join([
            uint(1, self.count), double(2, self.sum), *(field(3, bucket) for bucket in classic),
            uint(5, zigzag(SCHEMA)), double(6, 2.0**-128), uint(7, 0),
            *(field(12, uint(1, zigzag(offset)) + uint(2, length)) for offset, length in spans),
            field(13, b"".join(map(varint, deltas))),
        ])


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def zigzag(value):
    return value << 1 if value >= 0 else -value * 2 - 1


def uint(number, value):
    return varint(number << 3) + varint(value)


def double(number, value):
    return varint(number << 3 | 1) + struct.pack("<d", value)


def field(number, message):
    message = message.encode() if isinstance(message, str) else message
    return varint(number << 3 | 2) + varint(len(message)) + message


def braces(labels):
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


# The type's name, its number in MetricType, and the field of Metric that holds such a value.
TYPES = {"counter": (0, 3), "gauge": (1, 2), "histogram": (4, 7)}


def as_text(families):
    lines = []
    for name, kind, metrics in families:
        lines.append(f"# TYPE {name} {kind}")
        for labels, value in metrics:
            lines += value.text(name, labels) if kind == "histogram" else [f"{name}{braces(labels)} {value}"]
    return ("\n".join(lines) + "\n").encode()


def as_protobuf(families):
    out = b""
    for name, kind, metrics in families:
        number, place = TYPES[kind]
        family = field(1, name) + uint(3, number)
        for labels, value in metrics:
            pairs = b"".join(field(1, field(1, key) + field(2, it)) for key, it in labels.items())
            family += field(4, pairs + field(place, value.protobuf() if kind == "histogram" else double(1, value)))
        out += varint(len(family)) + family
    return out


class Agent:
    """Serves what the agent of a node would export, from its start until it is closed."""

    def __init__(self, node):
        self.node, self.zone, self.started = node, ZONES[node], time.monotonic() - 1
        agent = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                protobuf = "application/vnd.google.protobuf" in self.headers.get("Accept", "")
                families = agent.families()
                body = as_protobuf(families) if protobuf else as_text(families)
                self.send_response(200)
                self.send_header("Content-Type", PROTOBUF if protobuf else "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.target = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def families(self):
        """Name, type and metrics (labels and value) of each family."""
        count = int((time.monotonic() - self.started) * PER_SECOND)
        links, zones = [], []
        for peer, zone in ZONES.items():
            if peer == self.node:
                continue
            both = {"source_zone": self.zone, "peer_zone": zone, "protocol": "icmp", "network": "pod"}
            median = RTT[min(self.zone, zone), max(self.zone, zone)]
            zones.append((both, median))
            links.append((both | {"source_node": self.node, "peer_node": peer}, median))

        def rtt(all_of):
            return [(labels, Histogram(median, count)) for labels, median in all_of]

        def total(all_of, value):
            return [(labels, value) for labels, _ in all_of]

        build = {"version": "0", "revision": "0", "allocator": f"allocator-{self.node}", "linkage": "static", "libc": "musl"}
        return [
            ("kube_canary_agent_info", "gauge", [({"node": self.node, "zone": self.zone}, 1)]),
            ("kube_canary_build_info", "gauge", [(build, 1)]),
            ("kube_canary_probe_rtt_seconds", "histogram", rtt(links)),
            ("kube_canary_probes_sent_total", "counter", total(links, count)),
            ("kube_canary_probes_received_total", "counter", total(links, count)),
            ("kube_canary_probes_lost_total", "counter", total(links, 0)),
            ("kube_canary_zone_probe_rtt_seconds", "histogram", rtt(zones)),
            ("kube_canary_zone_probes_sent_total", "counter", total(zones, count)),
            ("kube_canary_probe_send_lag_seconds", "histogram", [({}, Histogram(LAG[self.node], count))]),
            ("kube_canary_reply_read_delay_seconds", "histogram", [({}, Histogram(READ_DELAY, count))]),
        ]
