#!/usr/bin/env python3
"""Nodes that are only objects of the API: nodes.py SOCKET COUNT

SOCKET is that of `kubectl proxy --unix-socket`. Makes COUNT nodes in three zones of unequal sizes (1/2, 1/3, 1/6), renews
their leases as kubelets do, and does for the pods that are bound to them what a kubelet writes to the API: Running and not ready
with an address, then ready; for one that is being deleted: not ready and Succeeded once its containers would have stopped, then gone. So the
DaemonSet, scheduling and EndpointSlice controllers are the real ones. Addresses are of 198.18.0.0/15, which the slices accept.
Ends with its stdin; the nodes stay until they are deleted by their label `kube-canary.test/node`.
"""
import heapq, http.client, itertools, json, random, socket, sys, threading, time

# The times of a kubelet, as in bench/scale_mesh/plane.py: seconds, evenly distributed.
STOP, ADDRESS, READY = (5.3, 7.3), (0.7, 2.7), (0.5, 5.5)
LABEL, WORKERS, LEASE_SECONDS = "kube-canary.test/node", 6, 15
PATCH = "application/strategic-merge-patch+json"


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=3600)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Api:
    """One connection for each thread."""

    def __init__(self, path):
        self.path, self.own = path, threading.local()

    def ask(self, method, path, body=None, kind="application/json", accepted=(200, 201, 202)):
        if not hasattr(self.own, "connection"):
            self.own.connection = Connection(self.path)
        connection = self.own.connection
        try:
            connection.request(method, path, body and json.dumps(body), {"Content-Type": kind})
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        if answer.status not in accepted:
            raise OSError(f"{method} {path}: {answer.status} {said[:300]}")
        return answer.status, json.loads(said)

    def watch(self, path, version):
        connection = Connection(self.path)
        connection.request("GET", path if version is None else f"{path}?watch=1&resourceVersion={version}")
        answer = connection.getresponse()
        while line := answer.readline():
            yield json.loads(line)


def name(k):
    return f"ip-10-{k // 62500}-{k // 250 % 250}-{k % 250 + 2}.eu-west-1.compute.internal"


def zone(k):
    return "eu-west-1" + "aaabbc"[k % 6]


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def node(k):
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now(), "lastTransitionTime": now()}]
    resources = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name(k), "labels": {LABEL: "object", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name(k), "topology.kubernetes.io/zone": zone(k)}},
            "status": {"conditions": conditions, "allocatable": resources, "capacity": resources, "addresses": [{"type": "InternalIP", "address": f"10.200.{k // 250}.{k % 250 + 2}"}]}}


def lease(k):
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name(k), "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name(k), "leaseDurationSeconds": 40, "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())}}


class Kubelets:
    def __init__(self, api, count):
        self.api, self.count = api, count
        self.nodes = {name(k): k for k in range(count)}
        self.addresses, self.seen = itertools.count(), set()
        self.due, self.turns, self.changed = [], itertools.count(), threading.Condition()

    def later(self, seconds, work, *arguments):
        with self.changed:
            heapq.heappush(self.due, (time.monotonic() + seconds, next(self.turns), work, arguments))
            self.changed.notify()

    def work(self):
        while True:
            with self.changed:
                while not self.due or self.due[0][0] > time.monotonic():
                    self.changed.wait(self.due[0][0] - time.monotonic() if self.due else None)
                _, _, work, arguments = heapq.heappop(self.due)
            try:
                work(*arguments)
            except (OSError, http.client.HTTPException) as error:
                # The API may be stopped for a while. A kubelet also tries again.
                print(f"{work.__name__}: {error}", file=sys.stderr)
                self.later(2, work, *arguments)

    def join(self, k, ready):
        self.api.ask("POST", "/api/v1/nodes", node(k), accepted=(201, 409))
        self.renew(k)
        ready.release()

    def renew(self, k):
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        if self.api.ask("PATCH", f"{path}/{name(k)}", {"spec": lease(k)["spec"]}, "application/merge-patch+json", (200, 404))[0] == 404:
            self.api.ask("POST", path, lease(k), accepted=(201, 409))
        self.later(LEASE_SECONDS, self.renew, k)

    def status(self, pod, phase, ready, address, state):
        meta = pod["metadata"]
        container = {"name": pod["spec"]["containers"][0]["name"], "image": "none", "imageID": "none", "ready": ready, "started": ready, "restartCount": 0, "state": state}
        conditions = [{"type": t, "status": str(s), "lastTransitionTime": now()} for t, s in (("Initialized", True), ("ContainersReady", ready), ("Ready", ready))]
        status = {"phase": phase, "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions, "containerStatuses": [container]}
        self.api.ask("PATCH", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status", {"metadata": {"uid": meta["uid"]}, "status": status}, PATCH, (200, 404, 409))

    def started(self, pod):
        n = next(self.addresses)
        address = f"198.18.{n // 250 % 250}.{n % 250 + 2}" if n < 62500 else f"198.19.{n // 250 % 250}.{n % 250 + 2}"
        self.status(pod, "Running", False, address, {"running": {"startedAt": now()}})
        self.later(random.uniform(*READY), self.is_ready, pod, address)

    def is_ready(self, pod, address):
        self.status(pod, "Running", True, address, {"running": {"startedAt": now()}})

    def stopped(self, pod):
        meta, address = pod["metadata"], pod["status"].get("podIP", "198.18.0.1")
        self.status(pod, "Succeeded", False, address, {"terminated": {"exitCode": 0, "startedAt": now(), "finishedAt": now()}})
        self.api.ask("DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}, accepted=(200, 202, 404, 409))

    def look(self, pod):
        meta, leaving = pod["metadata"], "deletionTimestamp" in pod["metadata"]
        if pod["spec"].get("nodeName") not in self.nodes or (meta["uid"], leaving) in self.seen:
            return
        self.seen.add((meta["uid"], leaving))
        if leaving:
            self.later(random.uniform(*STOP), self.stopped, pod)
        elif "podIP" not in pod["status"]:
            self.later(random.uniform(*ADDRESS), self.started, pod)

    def run(self):
        for _ in range(WORKERS):
            threading.Thread(target=self.work, daemon=True).start()
        ready = threading.Semaphore(0)
        for k in range(self.count):
            self.later(0, self.join, k, ready)
        for _ in range(self.count):
            ready.acquire()
        print("ready", flush=True)
        threading.Thread(target=self.watch, daemon=True).start()
        sys.stdin.read()

    def watch(self):
        path = "/api/v1/pods"
        while True:
            try:
                pods = self.api.ask("GET", path)[1]
                for pod in pods["items"]:
                    self.look(pod)
                for event in self.api.watch(path, pods["metadata"]["resourceVersion"]):
                    if event["type"] in ("ADDED", "MODIFIED"):
                        self.look(event["object"])
            except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
                print(f"watch: {error}", file=sys.stderr)
            time.sleep(1)


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit("nodes.py SOCKET COUNT")
    Kubelets(Api(sys.argv[1]), int(sys.argv[2])).run()
