"""A DaemonSet's life as the control plane writes it into EndpointSlices, as events in time: no sockets, no clock of its own.

Modelled on what sets how many events a rollout makes, each after the source of Kubernetes 1.34 (its defaults):
- the DaemonSet controller deletes old pods up to maxUnavailable (10 %, rounded up) and creates new ones where none is left, both
  through a client of 20 requests a second, burst 30;
- the EndpointSlice controller takes all changes at once, then writes the slices one after the other through such a client of
  its own, which is what batches changes; endpoints move into holes as in k8s.io/endpointslice reconciler.go;
- a kubelet stops a pod about 6 s after its deletion (preStop sleeps for 5), reports the address of a new one after 1 to 2 s and its
  readiness up to 5 s later, at the readiness probe's next turn.
The report cluster-350-2026-11-21 is of such a rollout with the real controllers.
"""
import collections, heapq, itertools, random, time, zlib

PER_SLICE, QPS, BURST = 100, 20, 30
UNAVAILABLE = 0.10
STOP, ADDRESS, READY = (5.3, 7.3), (0.7, 2.7), (0.5, 5.5)  # seconds, evenly distributed
NOTICE = 0.02  # until a watcher has an event
REQUEST = 0.006  # of a write by a controller
EPOCH = 1_790_000_000
Event = collections.namedtuple("Event", "version at kind item forms")


def node_name(k):
    return f"ip-10-{k // 62500}-{k // 250 % 250}-{k % 250 + 2}.eu-west-1.compute.internal"


def zone_of(k):
    """Three zones: a half, a third, a sixth."""
    return "eu-west-1" + "aaabbc"[k % 6]


def address_of(n):
    """Loopback, from 127.1.0.1 on: a machine of any network answers them all."""
    return f"127.{1 + n // 62500}.{n // 250 % 250}.{n % 250 + 1}"


class Pod:
    def __init__(self, node, uid, old=False):
        self.node, self.old = node, old
        self.name, self.uid = f"kube-canary-{uid % 36**5:05x}"[:17], f"{uid:08x}-735f-4c18-a07c-{uid:012x}"
        self.address, self.ready, self.terminating = None, False, False

    def endpoint(self):
        return {"addresses": [self.address], "conditions": {"ready": True, "serving": self.ready, "terminating": self.terminating},
                "targetRef": {"kind": "Pod", "namespace": "kube-canary", "name": self.name, "uid": self.uid},
                "nodeName": node_name(self.node), "zone": zone_of(self.node)}


class Bucket:
    """client-go's limiter: when the next request may go."""

    def __init__(self):
        self.tokens, self.at = float(BURST), 0.0

    def take(self, now):
        now = max(now, self.at)
        self.tokens, self.at = min(BURST, self.tokens + (now - self.at) * QPS), now
        self.tokens -= 1
        if self.tokens < 0:
            self.at, self.tokens = now - self.tokens / QPS, 0.0
        return self.at


class Plane:
    """Calls `started(address)` and `stopped(address)` when a pod's address begins and ends to answer, and `flush()` before a slice is
    published: until that returns, all of these calls must have taken effect, so that no address is listed before it answers."""

    def __init__(self, nodes, started=lambda address: None, stopped=lambda address: None, flush=lambda: None, seed=1):
        self.random, self.started, self.stopped, self.flush = random.Random(seed), started, stopped, flush
        self.now, self.due, self.turns = 0.0, [], itertools.count()
        self.versions, self.uids, self.addresses = itertools.count(81_000_000, 7), itertools.count(0x6fcc65b6), itertools.count()
        self.events, self.nodes, self.pods = [], nodes, {}
        for k in range(nodes):
            pod = self.pods[k] = Pod(k, next(self.uids))
            self.give_address(pod)
            pod.ready = True
        self.slices, self.dirty, self.syncing, self.slice_client = {}, False, False, Bucket()
        everyone = [pod.endpoint() for pod in self.pods.values()]
        self.random.shuffle(everyone)
        for first in range(0, nodes, PER_SLICE):
            self.write(f"kube-canary-{first // PER_SLICE:03}x{first % 7}", everyone[first:first + PER_SLICE])
        self.history_from = self.version
        self.rolling = set()

    # ---- time ----
    def after(self, seconds, work, *arguments):
        heapq.heappush(self.due, (self.now + seconds, next(self.turns), work, arguments))

    def next_at(self):
        return self.due[0][0] if self.due else None

    def step(self):
        at, _, work, arguments = heapq.heappop(self.due)
        self.now = max(self.now, at)
        work(*arguments)

    def run(self):
        """To the end, at once."""
        while self.due:
            self.step()

    # ---- the store ----
    def write(self, name, endpoints):
        self.flush()
        self.version = str(next(self.versions))
        old, moment = self.slices.get(name), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH + self.now))
        labels = {"app.kubernetes.io/name": "kube-canary", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                  "kubernetes.io/service-name": "kube-canary", "service.kubernetes.io/headless": ""}
        fields = {"f:addressType": {}, "f:endpoints": {}, "f:metadata": {
            "f:annotations": {".": {}, "f:endpoints.kubernetes.io/last-change-trigger-time": {}}, "f:generateName": {},
            "f:labels": {".": {}, **{f"f:{label}": {} for label in labels}},
            "f:ownerReferences": {".": {}, 'k:{"uid":"00f1197a-722f-4c17-9d94-9fa4b873b81c"}': {}}}, "f:ports": {}}
        meta = {"name": name, "generateName": "kube-canary-", "namespace": "kube-canary", "uid": f"30b3ba1c-dd81-4ab2-844d-{zlib.crc32(name.encode()):012}",
                "resourceVersion": self.version, "generation": old["metadata"]["generation"] + 1 if old else 1, "creationTimestamp": "2026-09-01T06:11:32Z",
                "labels": labels, "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": moment},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "kube-canary", "uid": "00f1197a-722f-4c17-9d94-9fa4b873b81c",
                                     "controller": True, "blockOwnerDeletion": True}],
                "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "discovery.k8s.io/v1", "time": moment,
                                   "fieldsType": "FieldsV1", "fieldsV1": fields}]}
        self.slices[name] = {"metadata": meta, "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "http", "protocol": "TCP", "port": 9877}]}
        self.events.append(Event(int(self.version), self.now, "MODIFIED" if old else "ADDED", self.slices[name], {}))

    # ---- the EndpointSlice controller ----
    def changed(self):
        self.dirty = True
        if not self.syncing:
            self.syncing = True
            self.after(NOTICE, self.sync)

    def sync(self):
        self.dirty = False
        wanted = {pod.uid: pod for pod in self.all_pods() if pod.address}
        writes, whole, untouched = [], {}, []
        for name, item in self.slices.items():
            kept = [wanted.pop(e["targetRef"]["uid"]).endpoint() for e in item["endpoints"] if e["targetRef"]["uid"] in wanted]
            whole[name] = kept
            (untouched if kept == item["endpoints"] else writes).append(name)
        new = [pod.endpoint() for pod in wanted.values()]
        for name in sorted(writes, key=lambda name: -len(whole[name])):
            room = PER_SLICE - len(whole[name])
            whole[name] += new[:room]
            del new[:room]
        while new:
            fitting = [name for name in untouched if len(whole[name]) + len(new) <= PER_SLICE]
            name = max(fitting, key=lambda name: len(whole[name]), default=None)
            if name is None:
                name = f"kube-canary-{len(self.slices):03}n"
                whole[name] = []
            else:
                untouched.remove(name)
            whole[name] = whole[name] + new[:PER_SLICE]
            del new[:PER_SLICE]
            writes.append(name)
        self.random.shuffle(writes)
        self.put(writes, whole)

    def put(self, writes, whole):
        if not writes:
            self.syncing = False
            if self.dirty:
                self.changed()
            return
        at = self.slice_client.take(self.now)
        self.after(at - self.now + REQUEST, self.wrote, writes, whole)

    def wrote(self, writes, whole):
        name = writes.pop()
        # An emptied slice would be deleted; it stays here, empty, until it is filled again.
        self.write(name, whole[name])
        self.put(writes, whole)

    def all_pods(self):
        return itertools.chain(self.pods.values(), self.rolling)

    # ---- kubelets ----
    def give_address(self, pod):
        pod.address = address_of(next(self.addresses))
        self.started(pod.address)

    def up(self, pod):
        self.give_address(pod)
        self.changed()
        self.after(self.random.uniform(*READY), self.readiness, pod, True)

    def readiness(self, pod, ready):
        pod.ready = ready
        self.changed()
        self.roll()

    def down(self, pod):
        self.stopped(pod.address)
        self.rolling.discard(pod)
        self.changed()
        self.missing.append(pod.node)
        self.roll()

    # ---- the DaemonSet controller ----
    def rollout(self):
        """Begins a rolling update of all pods."""
        self.missing, self.daemon_client, self.busy = collections.deque(), Bucket(), False
        for pod in self.pods.values():
            pod.old = True
        self.old = collections.deque(self.random.sample(sorted(self.pods), self.nodes))
        self.roll()

    def roll(self):
        if not hasattr(self, "missing") or self.busy:
            return
        unavailable = sum(not pod.ready for pod in self.pods.values()) + self.nodes - len(self.pods)
        if self.missing:
            work = self.create
        elif self.old and unavailable < max(1, -(-self.nodes * UNAVAILABLE // 1)):
            work = self.delete
        else:
            return
        self.busy = True
        self.after(self.daemon_client.take(self.now) - self.now + REQUEST, work)

    def create(self):
        node = self.missing.popleft()
        pod = self.pods[node] = Pod(node, next(self.uids))
        self.after(self.random.uniform(*ADDRESS), self.up, pod)
        self.busy = False
        self.roll()

    def delete(self):
        pod = self.pods.pop(self.old.popleft())
        pod.terminating = True
        self.rolling.add(pod)
        self.changed()
        self.after(self.random.uniform(*STOP), self.down, pod)
        self.busy = False
        self.roll()
