"""A mesh as it is, and the reports that its agents write.

A way is the path of a packet from one node to another. A probe of b by a takes the way a → b as a
request and b → a as a reply, and each packet is lost by itself with the probability of its way. So a
fault is what ways lose, and never what a report says. Some faults lose requests and replies of a way
differently; a policy filters requests alone.
"""
import bisect, hashlib, math

WINDOW = 60  # probes of a link in the recent window, one a second
SELECTED = 24  # peers of a node in a partial mesh, `--max-peers`
NOW = 1_800_000_000
FAULT_BEGAN = NOW - 90
STARVED = {"send_lag_p99_seconds": 0.4, "read_delay_p99_seconds": 0.5, "run_delay_seconds": 12.0, "probes_skipped": 9,
           "receive_queue_drops": 0}
HEALTHY = {"send_lag_p99_seconds": 0.001, "read_delay_p99_seconds": 0.001, "run_delay_seconds": 0.05,
           "probes_skipped": 0, "receive_queue_drops": 0}
# Upper bounds of an agent's histogram, in seconds, around the round trips without a fault.
BUCKETS = (0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5)

_cumulated = {}


def binomial(rng, trials, share):
    """How many of this many trials succeed, each with this probability."""
    if trials <= 0 or share <= 0:
        return 0
    if share >= 1:
        return trials
    key = trials, share
    table = _cumulated.get(key)
    if table is None:
        logs = [math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
                + k * math.log(share) + (trials - k) * math.log1p(-share) for k in range(trials)]
        table, sum_ = [], 0.0
        for log in logs:
            sum_ += math.exp(log)
            table.append(sum_)
        if len(_cumulated) > 50_000:
            _cumulated.clear()
        _cumulated[key] = table
    return bisect.bisect_right(table, rng.random())


def one_way(loss):
    """What each of two ways loses if both together lose this much."""
    return 1 - math.sqrt(1 - loss)


def lost(a, b, *lists):
    """The loss from a to b for all these reasons together."""
    kept = 1.0
    for reasons in lists:
        for reason in reasons:
            kept *= 1 - reason(a, b)
    # So that the same rate is always the same number.
    return round(1 - kept, 9)


def selection(nodes, zones):
    """The peers of each node if it probes a part of the mesh. Each has 12 watchers or more, 6 of them
    in other zones if these have enough. Drawn on two rings as docs/adr/0012 says, without its exchanges."""
    place = {ring: {n: hashlib.sha256(f"{ring} {n}".encode()).digest() for n in nodes} for ring in (1, 2)}
    rings = {ring: sorted(nodes, key=place[ring].get) for ring in (1, 2)}
    watched = {n: set() for n in nodes}  # by a watcher: its peers

    def give(ring, wanted, fits):
        order, have = rings[ring], {n: sum(n in peers for peers in watched.values()) for n in nodes}
        for distance in range(1, len(order)):
            for at, node in enumerate(order):
                watcher = order[at - distance]
                if (have[node] < wanted and len(watched[watcher]) < SELECTED and node not in watched[watcher]
                        and fits(watcher, node)):
                    watched[watcher].add(node)
                    have[node] += 1

    give(1, SELECTED // 4, lambda watcher, node: zones[watcher] != zones[node])
    give(2, SELECTED // 2, lambda watcher, node: zones[watcher] == zones[node])
    give(2, SELECTED // 2, lambda watcher, node: True)
    for at, watcher in enumerate(rings[2]):
        for distance in range(1, len(nodes)):
            if len(watched[watcher]) == SELECTED:
                break
            watched[watcher].add(rings[2][(at + distance) % len(nodes)])
    return {node: sorted(peers) for node, peers in watched.items()}


class Mesh:
    def __init__(self, rng, size, zones=1, partial=False, even=True, domains=0):
        self.rng = rng
        names = rng.sample(range(10 * size), size)
        self.nodes = [f"n{number:05}" for number in names]
        shares = [1] * zones if even else [rng.uniform(0.5, 2) for _ in range(zones)]
        order = [f"z{at % zones + 1}" for at in range(zones)]
        order += [f"z{at + 1}" for at in (range(zones) if even else ())] * (size // zones)
        order += rng.choices([f"z{at + 1}" for at in range(zones)], shares, k=max(0, size - len(order)))
        self.zone = dict(zip(self.nodes, order))
        mixed = rng.sample(self.nodes, size)
        self.domain = {n: f"rack{at % domains + 1}" for at, n in enumerate(mixed)} if domains else {}
        if partial and size > SELECTED + 1:
            self.peers = selection(self.nodes, self.zone)
        else:
            self.peers = {n: [other for other in self.nodes if other != n] for n in self.nodes}
        # Half of all meshes are of agents that began their windows at different times.
        is_settled = rng.random() < 0.5
        self.seconds = {n: WINDOW if is_settled else rng.randint(WINDOW // 2, WINDOW) for n in self.nodes}
        self.base = lambda a, b: 0.0  # what a way loses without a fault
        self.ways = []  # functions of source and destination: what a fault loses there
        self.requests, self.replies = [], []  # the same, of packets of one type alone
        self.filters = []  # what a policy drops of requests: no fault
        self.late = {}  # starved agents: the share of their replies that they lose themselves
        self.slow = []  # functions of two nodes: by what a round trip is longer
        self.usual = {}  # what the quickest minute of a report's last hour had, by source and destination
        self.absent = set()  # nodes whose report is not there
        self.is_missing_told = False  # whether the reports are one document that names those nodes
        self.faulty = None  # the networks that faults lose packets of; None if the pods' is the only one
        self.lies = []  # functions that change what was measured
        self.drops = {}  # what agents say of packets that their sockets dropped
        self.cells, self.received, self.ghosts = {}, {}, {}
        self.node_cells = {}  # of the nodes' network
        self.labels = ("icmp",)  # protocols of the probes by which reports name them; the first is of `cells`
        self.of_labels = []  # pairs of labels and a function as in `ways`: what faults lose of these alone
        self.unsent = []  # functions of source, destination and label: why no probe can be sent, or None
        self.more_cells = {}  # by label, of all but the first

    def of_zone(self, zone):
        return [n for n in self.nodes if self.zone[n] == zone]

    def of_domain(self, domain):
        return [n for n in self.nodes if self.domain[n] == domain]

    def fault_loss(self, a, b):
        """What faults alone lose on a way, of either type of packets."""
        return lost(a, b, self.ways, self.requests, self.replies, [way for _, way in self.of_labels])

    def losses(self, a, b, network, label):
        """What the requests from a to b lose in a network, and their replies."""
        has_faults = not self.faulty or network in self.faulty
        own = [way for labels, way in self.of_labels if label in labels]
        there = lost(a, b, [self.base], *([self.ways, own, self.requests, self.filters] if has_faults else []))
        back = lost(b, a, [self.base], *([self.ways, own, self.replies] if has_faults else []))
        return there, 1 - (1 - back) * (1 - self.late[a]) if a in self.late else back

    def measure(self):
        """Draws all probes."""
        rng = self.rng
        arrivals = dict.fromkeys(self.nodes, 0)
        for a in self.nodes:
            sent = self.seconds[a]
            for b in self.peers[a]:
                there, back = self.losses(a, b, "pod", self.labels[0])
                arrived = sent - binomial(rng, sent, there)
                answered = arrived - binomial(rng, arrived, back)
                # The destination counts in a window of its own.
                own = self.seconds[b]
                arrivals[b] += arrived if own == sent else own - binomial(rng, own, there)
                rtt = (0.000_2 if self.zone[a] == self.zone[b] else 0.000_9) * rng.uniform(0.9, 1.1)
                self.usual[a, b] = min(bound for bound in BUCKETS if bound >= rtt)
                for longer in self.slow:
                    rtt += longer(a, b)
                self.cells[a, b] = sent, sent - answered, rtt
                if self.faulty:
                    there, back = self.losses(a, b, "node", self.labels[0])
                    self.node_cells[a, b] = sent, binomial(rng, sent, 1 - (1 - there) * (1 - back)), rtt
                for label in self.labels[1:]:
                    there, back = self.losses(a, b, "pod", label)
                    loss = 1 - (1 - there) * (1 - back)
                    probes = handshakes(rng, sent, loss) if label.startswith("tcp") else (sent, binomial(rng, sent, loss))
                    self.more_cells.setdefault(label, {})[a, b] = *probes, rtt
        self.received = arrivals
        for lie in self.lies:
            lie(self)
        return self

    def report(self, a, watchers):
        seconds, count = self.seconds[a], self.received[a]
        recent = {"seconds": float(seconds), "echo_requests_received": count, "echo_replies_sent": count,
                  **(self.drops.get(a, STARVED) if a in self.late else HEALTHY)}
        text = ",".join(f'"{key}":{value}' for key, value in recent.items())
        source = (f'{{"node":"{a}","zone":"{self.zone[a]}","version":"0","interval_seconds":1.0,"hour_kept":true,'
                  f'"echo_requests_received":{count},"echo_replies_sent":{count},"members":{len(self.nodes)},'
                  f'"watchers":{watchers[a]},"watchers_missing":0,"peer_list_age_seconds":5.0,"listening_seconds":600.0,'
                  f'"recent":{{{text}}}}}')
        peers = []
        for b in self.peers[a]:
            for label in self.labels:
                cell = self.more_cells[label][a, b] if label in self.more_cells else self.cells[a, b]
                reason = next(filter(None, (why(a, b, label) for why in self.unsent)), None)
                peers.append(unsent_object(b, self.zone[b], label, reason) if reason else
                             peer_object(b, self.zone[b], *cell, self.usual[a, b], label=label))
        peers += [peer_object(b, self.zone[b], *self.node_cells[a, b], self.usual[a, b], "node")
                  for b in self.peers[a] if self.node_cells]
        peers += [peer_object(*ghost) for ghost in self.ghosts.get(a, [])]
        return f'{{"source":{source},"peers":[{",".join(peers)}]}}\n'

    def reports(self):
        """All reports, a line each."""
        watchers = dict.fromkeys(self.nodes, 0)
        for peers in self.peers.values():
            for b in peers:
                watchers[b] += 1
        reports = [self.report(a, watchers) for a in self.nodes if a not in self.absent]
        if not self.is_missing_told:
            return "".join(reports)
        missing = ",".join(f'{{"node":"{node}","error":"timed out"}}' for node in sorted(self.absent))
        return f'{{"rows":[{",".join(reports)}],"missing":[{missing}],"not_gathered":0}}\n'

    def domains_file(self):
        return "".join(f"{node} {domain}\n" for node, domain in self.domain.items())


def handshakes(rng, seconds, loss):
    """How many handshakes an agent begins in this time, and how many are lost. It begins one every ten
    seconds, and another two seconds after one that is lost."""
    begun, lost, at = 0, 0, rng.uniform(0, 10)
    while at < seconds:
        is_lost = rng.random() < loss
        begun, lost, at = begun + 1, lost + is_lost, at + (2 if is_lost else 10)
    return begun, lost


def unsent_object(node, zone, label, reason):
    return (f'{{"node":"{node}","zone":"{zone}","network":"pod","protocol":"{label}","state":"ready","address":"10.0.0.1",'
            f'"sent":0,"received":0,"lost":0,"late":0,"since_unix_seconds":null,"usual_rtt_p50_seconds":null,'
            f'"recent":{{"seconds":60.0,"sent":0,"received":0,"lost":0,"send_errors":60,"send_error_reason":"{reason}"}}}}')


def peer_object(node, zone, sent, lost, rtt, usual=None, network="pod", label="icmp"):
    got = sent - lost
    # A probe is sent every second, but by TCP every ten.
    seconds = WINDOW if label.startswith("tcp") else sent
    p50, p99 = (f"{rtt:.6f}", f"{rtt * 1.5:.6f}") if got else ("null", "null")
    since = FAULT_BEGAN if lost else "null"
    hour = f"{usual:.6f}" if usual else "null"
    return (f'{{"node":"{node}","zone":"{zone}","network":"{network}","protocol":"{label}","state":"ready","address":"10.0.0.1",'
            f'"sent":{sent},"received":{got},"lost":{lost},"late":0,"since_unix_seconds":{since},'
            f'"usual_rtt_p50_seconds":{hour},"recent":{{"seconds":'
            f'{seconds}.0,"sent":{sent},"received":{got},"lost":{lost},"rtt_p50_seconds":{p50},"rtt_p99_seconds":{p99}}}}}')
