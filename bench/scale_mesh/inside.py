"""What bench/scale runs in a network and a mount namespace of its own: `inside.py agent|failing NODES BINARY RESULT`

agent: one real agent with Kubernetes discovery in a mesh of NODES, whose other nodes answer pings but are no processes.
failing: NODES real agents, of which one stops answering pings while its pod stays listed.
RESULT gets the figures as JSON. An address answers echo requests only while its pod lives (nft), so that peers vanish as they do.
"""
import concurrent.futures, json, pathlib, subprocess, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "reported"))
import encode, lab, plane, server
from lab import await_answer, read, rollup, samples, total
from pings import Alive

ACCOUNT, API_PORT = "/run/secrets/kubernetes.io/serviceaccount", 19879
SETTLE, QUIET, MINUTE = 25, 45, 75
FORMS = (encode.JSON, encode.PROTOBUF, encode.METADATA)
# Most of the others answer pings but are no agents. Builds without other probes ignore the
# variable. Three agents judge the mesh, and cost more. These do not.
SURROUNDINGS = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(API_PORT), "POD_NAMESPACE": "kube-canary",
                "KUBE_CANARY_PROBES": "icmp", "KUBE_CANARY_JUDGE": "never"}


def account():
    """The service account's directory is fixed; the mount namespace is ours."""
    lab.said("mount", "-t", "tmpfs", "tmpfs", "/run")
    pathlib.Path(ACCOUNT).mkdir(parents=True)


def start(binary, node, listen, log, *flags):
    return subprocess.Popen([binary, "run", "--node-name", node, "--listen", f"{listen}:{lab.PORT}", "--log-level", "warn", *flags],
                            stderr=log, env=SURROUNDINGS)


def chunked(data):
    return len(data) + len(b"%x\r\n\r\n" % len(data))


def traffic(before, after):
    """What went between, by kind of request."""
    grown = {}
    for (kind, name), value in after.items():
        grown.setdefault(kind, {})[name] = value - before[kind, name]
    figures = {kind: values for kind, values in grown.items() if any(values.values())}
    figures["bytes"] = sum(v.get("sent", 0) + v.get("received", 0) for v in figures.values())
    return figures


def watched_whole(events):
    """What a watch of everything gets for these events, by form."""
    return {form: sum(chunked(encode.event(form, e.kind, e.item)) for e in events) for form in FORMS}


class Most(threading.Thread):
    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.over, self.most = pid, False, 0

    def run(self):
        while not self.over:
            self.most = max(self.most, rollup(self.pid)["Rss"])
            time.sleep(0.25)


def agent(nodes, binary):
    account()
    alive = Alive()
    mesh = plane.Plane(nodes, alive.started, alive.stopped, alive.flush)
    alive.follow()
    api = server.Server(mesh, ACCOUNT, API_PORT)
    found = {"nodes": nodes, "slices": len(mesh.slices)}
    with open("/run/agent.log", "w+") as log:
        process = start(binary, plane.node_name(0), "127.0.0.1", log)
        try:
            await_answer("127.0.0.1", process)
            most = Most(process.pid)
            most.start()
            time.sleep(SETTLE)
            after_sync = api.counts.now()
            found["sync"] = traffic({key: 0 for key in after_sync}, after_sync)
            items = list(mesh.slices.values())
            found["sync_whole"] = {form: len(encode.many(form, items, mesh.version)) for form in FORMS}
            with concurrent.futures.ThreadPoolExecutor(20) as pool:
                text = list(pool.map(lambda _: read("127.0.0.1", "/metrics").decode(), range(20)))[-1]
            time.sleep(2)
            found["rss_kb"] = rollup(process.pid)["Rss"]
            found.update(exposed(text))
            found["heard_of_api"] = total(text, "api_received_bytes_total")
            row = json.loads(read("127.0.0.1", "/api/v1/peers"))
            peers = sorted({peer["node"] for peer in row["peers"]})
            found["peers"] = len(peers)

            # ---- one endpoint's change: of a peer, and of another node
            by_name = {plane.node_name(k): k for k in range(nodes)}
            strangers = sorted(set(by_name) - set(peers) - {plane.node_name(0)})
            for what, names in (("change_of_a_peer", peers), ("change_of_another", strangers)):
                names = names[::max(1, len(names) // 4)][:4]
                before, first = api.counts.now(), len(mesh.events)
                for name in names:
                    for ready in (False, True):
                        api.do(mesh.readiness, mesh.pods[by_name[name]], ready)
                        time.sleep(2)
                time.sleep(QUIET)
                changes = len(mesh.events) - first
                found[what] = {"changes": changes, **traffic(before, api.counts.now()), "whole": watched_whole(mesh.events[first:])}

            # ---- a rollout of all pods
            before, first, lost_before = api.counts.now(), len(mesh.events), total(text, "probes_lost_total")
            began, requests = time.monotonic(), len(api.log)
            api.do(mesh.rollout)
            while api.do(mesh.next_at) is not None:
                time.sleep(0.5)
                if process.poll() is not None:
                    sys.exit("the canary ended in the rollout")
            found["rollout_seconds"] = time.monotonic() - began
            time.sleep(MINUTE)
            events = mesh.events[first:]
            found["rollout"] = {"events": len(events), **traffic(before, api.counts.now()), "whole": watched_whole(events)}
            found["rollout"]["requests_at"] = [(round(at, 2), kind, path.rsplit("/", 1)[-1]) for at, kind, path in api.log[requests:]]
            most.over = True
            text = read("127.0.0.1", "/metrics").decode()
            found["rss_most_kb"], found["rss_after_kb"] = most.most, rollup(process.pid)["Rss"]
            found["after"] = exposed(text)
            found["heard_of_api_after"] = total(text, "api_received_bytes_total")
            found["slowest_get"] = api.slowest
            found["lost_of"] = {labels["peer_node"]: value for name, labels, value in samples(text) if name == "probes_lost_total" and value}
            found["lost"] = total(text, "probes_lost_total") - lost_before
            found["terminating_probes"] = total(text, "probes_terminating_total")
            found["sent"] = total(text, "probes_sent_total")
        finally:
            lab.stop([process])
            log.seek(0)
            found["log"] = log.read()[-2000:]
    return found


def exposed(text):
    """Series by what they are of, and memory by category (KB, resident)."""
    figures = {"scrape_bytes": len(text), "series": 0, "peer_series": 0, "zone_series": 0, "memory_kb": {}}
    for name, labels, value in samples(text):
        figures["series"] += 1
        figures["peer_series"] += "peer_node" in labels
        figures["zone_series"] += "peer_zone" in labels and "peer_node" not in labels
        if name == "memory_bytes" and labels["state"] in ("clean", "dirty"):
            figures["memory_kb"][labels["category"]] = figures["memory_kb"].get(labels["category"], 0) + value / 1024
        if name in ("mesh_members", "watchers", "watchers_missing", "suppressed_series", "peer_list_age_seconds"):
            figures["/".join([name, *labels.get("zone", "").split()])] = value
    return figures


def failing(nodes, binary):
    account()
    alive = Alive()
    mesh = plane.Plane(nodes, alive.started, alive.stopped, alive.flush)
    api = server.Server(mesh, ACCOUNT, API_PORT)
    addresses = {plane.node_name(k): pod.address for k, pod in mesh.pods.items()}
    found, processes = {"nodes": nodes, "victims": []}, []
    with open("/run/agents.log", "w+") as log, concurrent.futures.ThreadPoolExecutor(64) as pool:
        try:
            for k in range(nodes):
                processes.append(start(binary, plane.node_name(k), mesh.pods[k].address, log))
            for process, address in zip(processes, addresses.values()):
                await_answer(address, process, seconds=180)
            time.sleep(SETTLE)
            rows = dict(zip(addresses, pool.map(lambda address: json.loads(read(address, "/api/v1/peers", 30)), addresses.values())))
            watchers = {name: [source for source, row in rows.items() if any(p["node"] == name for p in row["peers"])] for name in addresses}
            found["watched_by_min"], found["watched_by_mean"] = min(map(len, watchers.values())), sum(map(len, watchers.values())) / nodes

            def losses(source):
                row = {}
                for name, labels, value in samples(read(addresses[source], "/metrics", 30).decode()):
                    if name == "probes_lost_total":
                        row[labels["peer_node"]] = row.get(labels["peer_node"], 0) + value
                return row

            for victim in list(addresses)[1::max(1, nodes // 5)][:5]:
                asked = watchers[victim]
                before = dict(zip(asked, pool.map(losses, asked)))
                alive.stopped(addresses[victim])
                alive.flush()
                began, requests = time.monotonic(), api.counts.now()
                time.sleep(3.0)
                after = dict(zip(asked, pool.map(losses, asked)))
                took = time.monotonic() - began
                seen = sum(after[s].get(victim, 0) > before[s].get(victim, 0) for s in asked)
                elsewhere = sum(after[s][peer] - before[s].get(peer, 0) for s in asked for peer in after[s] if peer != victim)
                time.sleep(12)
                later = traffic(requests, api.counts.now())
                alive.started(addresses[victim])
                alive.flush()
                found["victims"].append({"watchers": len(asked), "seen": seen, "seconds": took, "lost_elsewhere": elsewhere,
                                         "gets_in_15_s": later.get("get", {}).get("requests", 0), "api_bytes_in_15_s": later["bytes"]})
                time.sleep(10)
        finally:
            lab.stop(processes)
            log.seek(0)
            found["log"] = log.read()[-2000:]
    return found


if __name__ == "__main__":
    what, nodes, binary, result = sys.argv[1:]
    figures = {"agent": agent, "failing": failing}[what](int(nodes), binary)
    pathlib.Path(result).write_text(json.dumps(figures))
