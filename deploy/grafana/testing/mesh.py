"""Real canaries and a real Prometheus, in namespaces of their own: nobody else's ports, routes or packets are touched, and what is
in them ends with this process, also when it is killed.

Each binary runs twice, on what it takes for a small and a large machine (a file of its own over the kernel's list of processors),
so that there is a slope over processors. One canary loses what it is sent in part (nftables); one peer never answers and leaves the
list; one cannot be sent to. So all that a dashboard asks for has happened.
"""
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

PORT = 9877
# The canaries have 127.0.0.11 and following: 127.0.0.1 is an address of everybody's own, and so nobody's peer.
LOSSY = "127.0.0.12"
SILENT = "127.0.0.99"
PROMETHEUS = "http://127.0.0.1:9090"
CPU_LISTS = ["0-1", "0-31"]
WAIT_SECONDS = 60
OFFSET = "7s"  # beyond queries.CUSTOM's


class Refused(Exception):
    """What Prometheus says is wrong with a query."""


def isolate(argv):
    """Starts this program again in namespaces of its own, and goes on there only."""
    if "--isolated" in argv:
        return
    for program in ("prometheus", "nft", "unshare", "mount", "ip"):
        if not shutil.which(program):
            sys.exit(f"{program} is missing: install the package {PACKAGES.get(program, 'util-linux')}")
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    os.execvp("unshare", ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", *argv, "--isolated"])


PACKAGES = {"prometheus": "prometheus", "nft": "nftables", "ip": "iproute2"}
DROPS = f"""table inet faults {{
  chain input {{
    type filter hook input priority 0;
    ip daddr {SILENT} drop
    ip daddr {LOSSY} icmp type echo-request numgen random mod 100 < 20 drop
  }}
}}"""


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


class Mesh:
    """A context: enters with canaries and Prometheus warm, leaves when all have ended."""

    def __init__(self, binaries, directory):
        self.directory = directory
        self.processes = []
        kinds = [(binary.resolve(), cpus) for binary in binaries for cpus in CPU_LISTS]
        self.canaries = [(f"node-{n}", f"127.0.0.{10 + n}", f"zone-{n % 2}", *kind) for n, kind in enumerate(kinds, 1)]

    def __enter__(self):
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            subprocess.run(["nft", "-f", "-"], input=DROPS, text=True, check=True)
            for canary in self.canaries:
                self.start_canary(*canary)
            self.start_prometheus()
            self.until("every canary is scraped", f"count(kube_canary_build_info) == {len(self.canaries)}")
            self.until("loss shows", "count(rate(kube_canary_probes_lost_total[5s]) > 0) > 0")
            self.until("a peer cannot be sent to", "kube_canary_probe_send_errors_total > 0")
            self.write_peers(self.canaries[0][0], silent=False)
            # Two samples: one makes no rate.
            self.until("a peer has left", "rate(kube_canary_probes_terminating_total[8s])")
            self.until("there is a past", f"count(kube_canary_probes_sent_total offset {OFFSET}) > 0")
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, name, command):
        log = open(self.directory / f"{name}.log", "wb")
        self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def write_peers(self, node, silent):
        peers = [f"{name}={address}@{zone}" for name, address, zone, *_ in self.canaries if name != node]
        # An address for documentation (RFC 5737), to which there is no route here.
        peers.append("unroutable=203.0.113.1@zone-0")
        if silent:
            peers.append(f"silent={SILENT}@zone-1")
        file = self.directory / f"{node}.peers"
        new = file.with_suffix(".new")
        new.write_text("\n".join(peers) + "\n")
        new.rename(file)
        return file

    def start_canary(self, node, address, zone, binary, cpus):
        peers = self.write_peers(node, silent=node == self.canaries[0][0])
        listed = self.directory / f"{node}.cpus"
        listed.write_text(cpus + "\n")
        run = [str(binary), "run", "--discovery", "static", "--node-name", node, "--zone", zone, "--peers-file", str(peers),
               "--listen", f"{address}:{PORT}", "--interval", "200ms", "--timeout", "400ms"]
        script = 'mount --bind "$0" /sys/devices/system/cpu/online && exec "$@"'
        self.start(node, ["unshare", "--mount", "sh", "-c", script, str(listed), *run])

    def start_prometheus(self):
        targets = [f"{address}:{PORT}" for _, address, *_ in self.canaries]
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                  "scrape_configs": [{"job_name": "kube-canary", "static_configs": [{"targets": targets}]}]}
        file = self.directory / "prometheus.yml"
        file.write_text(json.dumps(config))  # JSON is YAML
        self.start("prometheus", ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={self.directory}/tsdb",
                                  f"--web.listen-address={PROMETHEUS.removeprefix('http://')}"])

    def until(self, what, condition):
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            if any(process.poll() is not None for process in self.processes):
                break
            try:
                if self.values("instant", condition):
                    return
            except (OSError, Refused):
                pass  # Prometheus does not listen yet, or is not ready
            time.sleep(0.2)
        logs = "".join(f"\n{log.name}: {log.read_text(errors='replace')[-600:]}" for log in sorted(self.directory.glob("*.log")))
        raise SystemExit(f"awaited in vain: {what}: {condition}{logs}")

    def exported(self):
        """Every name that a canary's /metrics holds, of all of them."""
        names = set()
        for _, address, *_ in self.canaries:
            for line in get(f"http://{address}:{PORT}/metrics").decode().splitlines():
                if line and not line.startswith("#"):
                    names.add(line.split("{")[0].split(" ")[0])
        return names

    def values(self, kind, text):
        """What a query returns, as Prometheus writes it."""
        now = time.time()
        if kind == "label_values":
            selector, label = text.removeprefix("label_values(").removesuffix(")").rsplit(",", 1)
            path, parameters = f"label/{label.strip()}/values", {"match[]": selector, "start": now - 60, "end": now}
        elif kind == "instant":
            path, parameters = "query", {"query": text, "time": now}
        else:
            path, parameters = "query_range", {"query": text, "start": now - 3, "end": now, "step": 1}
        try:
            answer = json.loads(get(f"{PROMETHEUS}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            # Until it is ready it says so in plain words.
            raise Refused(json.loads(said).get("error", error.reason) if said.startswith("{") else said or error.reason) from error
        data = answer["data"]
        if kind == "label_values":
            return data
        if data["resultType"] == "scalar":
            return [data["result"][1]]
        return [value for series in data["result"] for _, value in series.get("values", [series.get("value")])]
