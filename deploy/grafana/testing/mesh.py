"""Real agents and two real Prometheus, in namespaces of their own: no other ports, routes or packets are touched, and what is
in them ends with this process, also when it is killed. One Prometheus has the agents' classic histograms, one their native ones.

Each binary runs twice, on what it takes for a small and a large machine (a file of its own over the kernel's list of processors),
so that there is a slope over processors. One agent loses what it is sent in part (nftables); one peer never answers and leaves the
list; one cannot be sent to. So all that a dashboard asks for has happened.

Every query is evaluated at one time, at which all of that is in Prometheus. So its result does not
depend on when it is asked.
"""
import os
import shutil
import subprocess
import sys
import time
import urllib.request

from . import queries
from .server import Refused, Server

PORT = 9877
# The agents have 127.0.0.11 and following. 127.0.0.1 is each agent's own address, and so cannot be
# a peer's.
LOSSY = "127.0.0.12"
SILENT = "127.0.0.99"
CPU_LISTS = ["0-1", "0-31"]
WAIT_SECONDS = 180
# A peer that left is still probed for 10 s. It leaves and comes back in turn until the test has
# seen that.
LEAVING_SECONDS = 15


def isolate(argv):
    """Starts this program again in namespaces of its own, and goes on there only."""
    if "--isolated" in argv:
        return
    for program in ("prometheus", "nft", "unshare", "mount", "ip"):
        if not shutil.which(program):
            sys.exit(f"{program} is missing: install the package {PACKAGES.get(program, 'util-linux')}")
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    os.execvp("unshare", ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", *argv, "--isolated"])


PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
PACKAGES = {"prometheus": "prometheus", "nft": "nftables", "ip": "iproute2"}
# Drops exactly every fourth probe, not at random. The other agents, an odd number, send to it in
# turn. Four has no common divisor with an odd number, so each of them loses some and none loses
# all.
DROPS = f"""table inet faults {{
  chain input {{
    type filter hook input priority 0;
    ip daddr {SILENT} drop
    ip daddr {LOSSY} icmp type echo-request numgen inc mod 4 == 0 drop
  }}
}}"""


class Mesh:
    """A context: enters when the agents and both Prometheus are warm, leaves when all have ended."""

    def __init__(self, binaries, directory):
        self.directory = directory
        self.processes = []
        kinds = [(binary.resolve(), cpus) for binary in binaries for cpus in CPU_LISTS]
        self.agents = [(f"node-{n}", f"127.0.0.{10 + n}", f"zone-{n % 2}", *kind) for n, kind in enumerate(kinds, 1)]
        targets = [f"{address}:{PORT}" for _, address, *_ in self.agents]
        self.servers = [Server(directory, name, targets, native) for name, native in (("classic", False), ("native", True))]

    def __enter__(self):
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            subprocess.run(["nft", "-f", "-"], input=DROPS, text=True, check=True)
            for agent in self.agents:
                self.start_agent(*agent)
            for server in self.servers:
                server.__enter__()
            self.pin()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for server in self.servers:
            server.__exit__()
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
        peers = [f"{name}={address}@{zone}" for name, address, zone, *_ in self.agents if name != node]
        # An address for documentation (RFC 5737), to which there is no route here.
        peers.append("unroutable=203.0.113.1@zone-0")
        if silent:
            peers.append(f"silent={SILENT}@zone-1")
        file = self.directory / f"{node}.peers"
        new = file.with_suffix(".new")
        new.write_text("\n".join(peers) + "\n")
        new.rename(file)
        return file

    def start_agent(self, node, address, zone, binary, cpus):
        peers = self.write_peers(node, silent=node == self.agents[0][0])
        listed = self.directory / f"{node}.cpus"
        listed.write_text(cpus + "\n")
        run = [str(binary), "run", "--discovery", "static", "--node-name", node, "--zone", zone, "--peers-file", str(peers),
               "--listen", f"{address}:{PORT}", "--interval", "200ms", "--timeout", "400ms",
               # One check that is well, and one that fails.
               "--check", f"own=tcp:{address}:{PORT}", "--check", "closed=tcp:127.0.0.1:1"]
        script = 'mount --bind "$0" /sys/devices/system/cpu/online && exec "$@"'
        # The faults are losses of echoes, and the panels of flows are of UDP.
        self.start(node, ["env", "KUBE_CANARY_PROBES=icmp,udp", "unshare", "--mount", "sh", "-c", script, str(listed), *run])

    def serves_native(self):
        """Whether the agents have native histograms: older builds answer with text to any request."""
        request = urllib.request.Request(f"http://{self.agents[0][1]}:{PORT}/metrics", headers={"Accept": PROTOBUF})
        with urllib.request.urlopen(request) as answer:
            return answer.headers["Content-Type"].startswith("application/vnd.google.protobuf")

    def conditions(self, server):
        """What has to be in a Prometheus for every query to return data, in the order in which it
        comes.
        """
        window, before, count = queries.BUILT_IN["__rate_interval"], queries.CUSTOM["before"], len(self.agents)
        zone, lossy = self.agents[0][2], self.agents[1][0]
        links = count * (count - 1)
        form = f"histogram_count(rate(kube_canary_probe_rtt_seconds{{protocol='icmp'}}[{window}]))" if server.has_native else \
            f"rate(kube_canary_probe_rtt_seconds_count{{protocol='icmp'}}[{window}])"
        return {
            "every agent is scraped": f"count(kube_canary_build_info) == {count}",
            "every agent probes every other one and is answered": f"count({form} > 0) == {links}",
            "every other agent loses what it sends to the lossy one":
                f'count(rate(kube_canary_probes_lost_total{{peer_node="{lossy}",protocol="icmp"}}[{window}]) > 0) == {count - 1}',
            "a peer cannot be sent to":
                f'rate(kube_canary_zone_probe_send_errors_total{{source_zone="{zone}"}}[{window}]) > 0',
            "two judges hold a verdict": "count by (id) (kube_canary_verdict == 1) >= 2",
            "a peer has left": f'rate(kube_canary_zone_probes_terminating_total{{source_zone="{zone}"}}[{window}]) > 0',
            "there is a past":
                f"count(count by (source_node) (kube_canary_probes_sent_total offset {before})) == {count}",
        }

    def pin(self):
        """Finds, for each Prometheus, a time at which all conditions hold: that of every query from then on."""
        end, leaves, silent = time.monotonic() + WAIT_SECONDS, time.monotonic(), True
        lacks = dict.fromkeys(self.servers, "Prometheus answers")
        native = None
        while time.monotonic() < end and all(process.poll() is None for process in self.processes):
            for server in list(lacks):
                try:
                    if native is None:
                        native = self.serves_native()
                    server.has_native = native and server.native
                    at = server.settled(len(self.agents))
                    conditions = self.conditions(server).items()
                    lacks[server] = next((what for what, condition in conditions if not server.values("instant", condition, at)), None)
                    if lacks[server] is None:
                        server.at = at
                        del lacks[server]
                except (OSError, Refused):
                    pass  # Prometheus, or an agent, does not listen yet, or is not ready
            if not lacks:
                return
            if "a peer has left" in lacks.values() and time.monotonic() >= leaves:
                silent = not silent
                self.write_peers(self.agents[0][0], silent)
                leaves = time.monotonic() + LEAVING_SECONDS
            time.sleep(0.2)
        logs = "".join(f"\n{log.name}: {log.read_text(errors='replace')[-600:]}" for log in sorted(self.directory.glob("**/*log")))
        raise SystemExit(f"not so within {WAIT_SECONDS} s, or a process has ended: {[*lacks.values()]}{logs}")
