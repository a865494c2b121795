"""Meshes of 25 agents, one per network namespace, and agents of 10 to 1,000 peers."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

import any_name
import lab

AGENTS, ZONES = 25, 3
SIZES = (10, 24, 200, 1000)
LOST_OF_TEN = 3
VERDICT_SECONDS_MAX = 180
HELD_SECONDS, SHIFT_SECONDS = 25, 5
DROP = f"""table inet fault {{
  chain input {{
    type filter hook input priority 0
    iif eth0 numgen random mod 10 < {LOST_OF_TEN} drop
  }}
}}
"""


class Times:
    """Seconds that agents settle, which covers the search of the path MTU, and are measured."""

    def __init__(self, quick):
        self.settle, self.measured, self.faults = (30, 20, 1) if quick else (70, 120, 3)


# ---- what the default checks ask

def stand_ins(directory, bridge, service):
    """Flags of the default checks, with stand-ins for DNS and API server at the bridge. The
    second is the process to end."""
    threading.Thread(target=any_name.answer, args=(any_name.listen(bridge), "10.96.0.1"), daemon=True).start()
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    lab.said("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
             "-out", certificate, "-subj", "/CN=api", "-days", "2", "-addext", f"subjectAltName=IP:{bridge}")
    api = subprocess.Popen(["openssl", "s_server", "-quiet", "-accept", f"{bridge}:6443", "-cert", certificate, "-key", key],
                           stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [f"--check=dns:kubernetes.default.svc.cluster.local@{bridge}", f"--check=api=tls:{bridge}:6443",
            f"--check-ca={certificate}", f"--check=svc=http://{service}:{lab.PORT}/api/v1/identity",
            f"--check=svc-udp=udp:{service}:{lab.PORT}"], api


# ---- the mesh

def rows_of(agents, cpu):
    """A row of figures per agent: after each had 48 compressed scrapes at once."""
    rows = []
    for agent, ms in zip(agents, cpu):
        text = agent.scrape()
        bodies = {form: agent.scrape(form) for form in ("text", "protobuf")}
        row = {"name": agent.name, "judge": "\nkube_canary_judge 1" in text.decode(), "cpu_ms": round(ms, 3)}
        for form, body in bodies.items():
            row |= {f"{form}_series": lab.series(form, body), f"{form}_bytes": len(body),
                    f"{form}_gzip_bytes": len(agent.scrape(form, "gzip"))}
        idle = agent.memory()
        agent.storm()
        rows.append(row | agent.memory() | {"idle_rss_kb": idle["rss_kb"]})
    return rows


def summarized(rows):
    """Medians of agents and judges, and the range of what is resident."""
    found = {}
    for kind, is_judge in (("agent", False), ("judge", True)):
        own = [row for row in rows if row["judge"] == is_judge]
        if not own:
            continue
        figures = {key: lab.median([row.get(key) for row in own], 3 if key == "cpu_ms" else 0)
                   for key in own[0] if key not in ("name", "judge")}
        rss = [row["rss_kb"] for row in own]
        found[kind] = figures | {"count": len(own), "rss_kb_min": min(rss), "rss_kb_max": max(rss)}
    return found


def seconds_until(condition):
    begun = time.monotonic()
    while time.monotonic() - begun < VERDICT_SECONDS_MAX:
        if condition():
            return round(time.monotonic() - begun, 1)
        time.sleep(0.25)
    return None


def verdicts(nodes, agents, rows, faults):
    """Seconds until a verdict names a node that loses 30 % of what is sent to it, and until no
    verdict does after that has ended. The nodes are no judges."""
    others = [index for index, row in enumerate(rows) if not row["judge"]]
    asked, found = agents[others[-1]], []
    for number, index in enumerate(others[:faults]):
        name = agents[index].name
        # Judges judge every 15 s, and what is waited for here happens when they do. So the next
        # fault begins, and ends, at another time between two judgements.
        time.sleep(SHIFT_SECONDS * number)

        def is_named():
            answer = json.loads(asked.get("/api/v1/verdicts")[1])
            return any(verdict["subject"] == name for verdict in answer["verdicts"])

        subprocess.run(nodes[index].inside("nft", "-f", "-"), input=DROP, text=True, check=True)
        named = seconds_until(is_named)
        time.sleep(HELD_SECONDS + SHIFT_SECONDS * number)
        lab.said(*nodes[index].inside("nft", "delete", "table", "inet", "fault"))
        found.append({"node": name, "named_seconds": named, "ended_seconds": seconds_until(lambda: not is_named())})
    return found


def mesh(binary, times, with_checks=False):
    """A mesh at the defaults outside of a cluster, which check nothing; or with stand-ins for what
    the default checks ask."""
    directory, nodes, api = pathlib.Path(tempfile.mkdtemp(dir=lab.TARGET)), [], None
    try:
        nodes = [lab.Node() for _ in range(AGENTS)]
        peers = directory / "peers"
        peers.write_text("".join(f"{node.name}={node.address}@zone-{i % ZONES}\n" for i, node in enumerate(nodes)))
        flags = []
        if with_checks:
            flags, api = stand_ins(directory, "10.64.255.1", nodes[0].address)
        agents = [lab.Agent(node, binary, peers, *flags, zone=f"zone-{i % ZONES}") for i, node in enumerate(nodes)]
        for agent in agents:
            agent.wait()
        time.sleep(times.settle)
        rows = rows_of(agents, lab.cpu_ms_per_second(agents, times.measured))
        found = {"figures": summarized(rows), "raw": rows}
        if not with_checks:
            faults = verdicts(nodes, agents, rows, times.faults)
            found["figures"] |= {key: lab.median([fault[key] for fault in faults], 1) for key in ("named_seconds", "ended_seconds")}
            found["raw"] = {"agents": rows, "faults": faults}
        return found
    finally:
        for node in nodes:
            node.__exit__()
        if api:
            api.kill()
            api.wait()
        shutil.rmtree(directory)
        lab.remove_cgroups()


# ---- numbers of peers

def size(binary, peers, times):
    """An agent that probes that many peers, and judges nothing."""
    with tempfile.TemporaryDirectory(dir=lab.TARGET) as directory, lab.Node() as node:
        lab.said(*node.inside("ip", "route", "add", "local", "10.66.0.0/16", "dev", "lo"))
        addresses = lab.addresses(peers)
        everyone, measured = pathlib.Path(directory) / "peers", pathlib.Path(directory) / "measured"
        everyone.write_text("".join(f"peer-{n}={address}@zone-{n % ZONES}\n" for n, address in enumerate(addresses)))
        measured.write_text(f"bench={node.address}@zone-0\n")
        for n, address in enumerate(addresses):
            lab.Agent(node, binary, measured, "--judge", "never", name=f"peer-{n}", address=address)
        agent = lab.Agent(node, binary, everyone, "--judge", "never", "--max-peers", "0", "--max-series", "10000000", name="bench").wait()
        time.sleep(times.settle)
        cpu, = lab.cpu_ms_per_second([agent], times.measured / 2)
        row, = rows_of([agent], [cpu])
        row["peers"] = peers
        return row


def sizes(binary, times):
    try:
        rows = [size(binary, peers, times) for peers in SIZES]
    finally:
        lab.remove_cgroups()
    return {"figures": {str(row["peers"]): {key: value for key, value in row.items() if key not in ("name", "judge", "peers")}
                        for row in rows}, "raw": rows}
