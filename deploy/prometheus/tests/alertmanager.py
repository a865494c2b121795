#!/usr/bin/env python3
"""What deploy/prometheus/alertmanager.yml makes of alerts: amtool checks it and its routes, and an Alertmanager says what it groups and inhibits.

    alertmanager.py CONFIG RULES

The Alertmanager is a real one on a free port of 127.0.0.1. Its receivers are replaced, so it notifies nobody.
"""
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

WAIT_SECONDS = 60
RECEIVERS = {"critical": "pager", "warning": "tickets", "info": "notes"}
CAUSE = ("cluster", "job", "namespace", "alertname", "id")
MESH = {"cluster": "c", "job": "kube-canary", "namespace": "kube-canary"}


def fault(kind, subject, protocol="all", **labels):
    return MESH | {"alertname": "KubeCanaryFault", "id": f"{kind} {subject}", "kind": kind, "subject": subject, "protocol": protocol} | labels


def agent(kind, subject, **labels):
    return MESH | {"alertname": "KubeCanaryAgentFault", "id": f"{kind} {subject}", "kind": kind, "subject": subject} | labels


def budget(speed, source, peer, **labels):
    subject = "->".join(sorted((source, peer)))
    return MESH | {"alertname": f"KubeCanaryLossBudget{speed}", "source_zone": source, "peer_zone": peer, "subject": subject} | labels


# Each: the alerts that fire together, and those of them that are inhibited. Each has a cluster of
# its own, so that it has no part in another.
SCENES = {
    "the whole mesh loses": ([fault("mesh", "*"), budget("Fast", "z1", "z2"), budget("Slow", "z1", "z1"), agent("agent_starved", "n")], [1, 2]),
    "another mesh loses": ([fault("mesh", "*"), budget("Fast", "z1", "z2", namespace="other")], []),
    "two zones": ([fault("zone_pair", "z1->z2"), budget("Fast", "z2", "z1"), budget("Slow", "z1", "z2"), budget("Fast", "z1", "z3")], [1, 2]),
    "a node": ([fault("node", "n"), agent("agent_unreachable", "n"), agent("agent_unreachable", "m"), agent("agent_starved", "n")], [1]),
    "a node does not explain the losses of zones": ([fault("node", "n"), budget("Fast", "z1", "z2")], []),
    "a node that loses UDP answers by TCP": ([fault("node", "n", "udp"), agent("agent_unreachable", "n")], []),
    "a link of that name": ([fault("link", "n"), agent("agent_unreachable", "n"), budget("Fast", "n", "n")], []),
    "fast and slow": ([budget("Fast", "z1", "z2"), budget("Slow", "z1", "z2"), budget("Slow", "z2", "z1")], [1]),
    "no fault inhibits another": ([fault("mesh", "*"), fault("zone_pair", "z1->z2"), fault("node", "z1->z2")], []),
}


def amtool(*arguments):
    done = subprocess.run(["amtool", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"amtool {' '.join(arguments)}: {done.stdout}")


def routes(config, rules):
    """Every severity of the rules goes to its receiver, and alerts of others stay with the default."""
    severities = set(re.findall(r"\bseverity: (\w+)", rules)) | set(re.findall(r"\}\}(critical|warning|info)\{\{", rules))
    if severities != set(RECEIVERS):
        sys.exit(f"severities of the rules: {sorted(severities)}; routes are tested for {sorted(RECEIVERS)}")
    cases = [({"alertname": "KubeCanaryFault", "severity": it}, RECEIVERS[it]) for it in sorted(severities)]
    cases.append(({"alertname": "NodeDown", "severity": "critical"}, "tickets"))
    for labels, receiver in cases:
        given = [f"{name}={value}" for name, value in labels.items()]
        amtool("config", "routes", "test", f"--config.file={config}", f"--verify.receivers={receiver}", *given)
    return len(cases)


class Alertmanager:
    def __init__(self, directory, config):
        text = re.sub(r"http://[^']+", "http://127.0.0.1:9/", pathlib.Path(config).read_text())
        file = directory / "alertmanager.yml"
        file.write_text(text)
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        # Debian's name, and that of the project.
        program = shutil.which("prometheus-alertmanager") or "alertmanager"
        self.url = f"http://{address}/api/v2"
        self.log = open(directory / "log", "w+")
        self.process = subprocess.Popen([program, f"--config.file={file}", f"--storage.path={directory}/data", "--cluster.listen-address=",
                                         f"--web.listen-address={address}"], stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as answer:
            return json.load(answer)

    def post(self, alerts):
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/alerts", body, {"Content-Type": "application/json"})).close()

    def wait(self, what, condition):
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if condition():
                    return
            except (OSError, urllib.error.HTTPError):
                pass  # it does not listen yet
            time.sleep(0.1)
        self.log.seek(0)
        sys.exit(f"not within {WAIT_SECONDS} s: {what}\n{self.log.read()[-2000:]}")


def inhibited(config):
    """Returns the faults of what is inhibited."""
    alerts = [[labels | {"cluster": name} for labels in of] for name, (of, _) in SCENES.items()]
    count = sum(map(len, alerts))
    with tempfile.TemporaryDirectory() as directory:
        server = Alertmanager(pathlib.Path(directory), config)
        try:
            server.wait("it answers", lambda: server.get("/status"))
            # What explains comes first, as it does from Prometheus.
            server.post([of[0] for of in alerts])
            server.post([labels for of in alerts for labels in of[1:]])

            def states():
                return {frozenset(it["labels"].items()): it["status"]["inhibitedBy"] for it in server.get("/alerts")}

            # It has processed all once as many are inhibited as should be. Which ones is checked
            # below.
            most = sum(len(expected) for _, expected in SCENES.values())
            server.wait("the alerts are inhibited", lambda: len(states()) == count and sum(map(bool, states().values())) >= most)
            found = states()
            # One group for each cause in each mesh.
            causes = {frozenset((name, labels[name]) for name in CAUSE if name in labels) for of in alerts for labels in of}
            server.wait("one group per cause", lambda: {frozenset(it["labels"].items()) for it in server.get("/alerts/groups")} == causes)
        finally:
            server.close()
    for (name, (_, expected)), of in zip(SCENES.items(), alerts):
        places = [place for place, labels in enumerate(of) if found[frozenset(labels.items())]]
        if places != expected:
            yield f"{name}: inhibited are {places} of {of}, not {expected}"


def main():
    config, rules = sys.argv[1:]
    amtool("check-config", config)
    routed = routes(config, pathlib.Path(rules).read_text())
    wrong = list(inhibited(config))
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{pathlib.Path(config).name}: accepted by amtool, {routed} routes, {len(SCENES)} cases of what is inhibited")


if __name__ == "__main__":
    main()
