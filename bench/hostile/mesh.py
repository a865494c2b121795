"""A mesh of real agents on loopback addresses of a network namespace of its own, and the
figures that are measured during an attack."""
import contextlib, json, os, pathlib, re, subprocess, sys, threading, time

import client, liar

HERE = pathlib.Path(__file__).resolve().parent
INTERVAL = "1s"
START_SECONDS = 30
POLL_SECONDS = 0.25
# A collection of the whole mesh is expensive, and the requests of one honest reader must not be the
# load.
MESH_POLL_SECONDS = 3
# The default timeouts of Prometheus and the kubelet, and the longest time of a collection.
SCRAPE_SECONDS, HEALTH_SECONDS, MESH_SECONDS = 10, 1, 40
MEMORY_SECONDS = 0.25


def sh(*command, text=None):
    subprocess.run(command, input=text, text=True, check=True)


def namespace():
    """Prepares the network namespace in which this process is."""
    sh("ip", "link", "set", "lo", "up")
    pathlib.Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 2147483647")
    sh("nft", "-f", "-", text="table ip faults { chain in { type filter hook input priority 0; }; }")


def drop(match):
    sh("nft", "add", "rule", "ip", "faults", "in", *match.split(), "drop")


def cpu_seconds(pid):
    """CPU time of all threads: schedstat, where utime and stime count in steps of 10 ms."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def rss_kb(pid):
    return int(re.search(r"^Rss:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1])


class Answers:
    """What one reader was answered: shares and times."""

    def __init__(self):
        self.statuses, self.seconds = [], []

    def add(self, status, seconds):
        self.statuses.append(status)
        self.seconds.append(seconds)

    def figures(self):
        asked, answered = len(self.statuses), self.statuses.count(200)
        return {"asked": asked, "answered": answered, "slowest_seconds": max(self.seconds, default=0)}


class Mesh:
    """`names` are agents, `liars` are members that a server of lies answers for: at first as honest
    agents do, or as `lies` has it. Every agent probes `max_peers` others (0: all). `flags` has further
    flags of single agents. To be used in a `with`."""

    def __init__(self, binary, names, liars, max_peers, lies=None, flags=None):
        self.names, self.members = list(names), [*names, *liars]
        self.address = {name: f"127.0.1.{number}" for number, name in enumerate(self.members, 1)}
        self.own_requests, self.children, self.agents, self.lying = 0, [], {}, set()
        self.lock = threading.Lock()
        self.command = [binary, "run", "--discovery", "static", "--peers-file", "peers", "--max-peers", str(max_peers),
                        "--interval", INTERVAL, "--log-level", "warn"]
        self.flags = flags or {}
        self.reports_path = self.reports_of(self.members)
        self.first = {self.address[name]: lies or {"/api/v1/peers": self.report(name)} for name in liars}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        peers = [f"{name}={self.address[name]}@z{number % 3}\n" for number, name in enumerate(self.members)]
        pathlib.Path("peers").write_text("".join(peers))
        self.tell(self.first)
        with open("log", "w") as log:
            for name in self.names:
                own = ["--node-name", name, "--listen", f"{self.address[name]}:{client.PORT}"]
                own += self.flags.get(name, [])
                # Liars are no agents, and the attacks are on echoes. Builds without other probes
                # ignore the variable.
                environment = {**os.environ, "KUBE_CANARY_PROBES": "icmp", "KUBE_CANARY_JUDGE": "never"}
                self.agents[name] = subprocess.Popen([*self.command, *own], stderr=log, env=environment)
        end = time.monotonic() + START_SECONDS
        for name in self.names:
            while client.get(self.address[name], "/readyz", 1)[0] != 200:
                if time.monotonic() > end or self.agents[name].poll() is not None:
                    sys.exit(f"{name} is not ready: {pathlib.Path('log').read_text()[:500]}")
                time.sleep(0.05)

    def stop(self):
        processes = [*self.children, *self.agents.values()]
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()

    def tell(self, lies):
        """What the liars answer from now on, by address and path."""
        liar.publish("lies", lies)
        if new := set(lies) - self.lying:
            self.lying |= new
            self.child("liar.py", "lies", *new)

    def report(self, name, peers=None, head=liar.OK):
        """What an honest agent of this name says: it hears from all members, or as `peers` has it."""
        peers = [self.peer(other) for other in self.members if other != name] if peers is None else peers
        source = {"node": name, "zone": "z", "version": "told", "recent": {"seconds": 50}}
        head = f'{head}{{"source":{json.dumps(source)},"peers":['
        return {"head": head, "piece": ",".join(map(json.dumps, peers)), "times": 1, "tail": "]}\n"}

    def peer(self, name, lost=0, state="ready", address=None):
        sent = 50
        recent = {"seconds": 50, "sent": sent, "received": sent - lost, "lost": lost,
                  "rtt_p50_seconds": 0.0001, "rtt_p99_seconds": 0.0002}
        return {"node": name, "network": "pod", "protocol": "icmp", "state": state,
                "address": address or self.address[name], "recent": recent}

    def child(self, program, *arguments):
        """Starts a program of this directory, and returns it once it has printed that it is ready."""
        command = [sys.executable, "-B", HERE / program, *map(str, arguments)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        if child.stdout.readline() != "ready\n":
            sys.exit(f"{program} does not start")
        return child

    def end_child(self, child):
        """Ends its input, and returns its last output."""
        said, _ = child.communicate(timeout=MESH_SECONDS + 5)
        self.children.remove(child)
        return said

    def get(self, name, path, seconds=MESH_SECONDS):
        status, body = client.get(self.address[name], path, seconds)
        with self.lock:
            self.own_requests += status not in (0, 503)
        return status, body

    def ask(self, name, path):
        """The body of an agent's answer. One that is still full of what attacked it is asked again."""
        end = time.monotonic() + MESH_SECONDS
        while True:
            status, body = self.get(name, path)
            if status == 200:
                return body
            if time.monotonic() > end:
                sys.exit(f"{name} answers {path} with {status}")
            time.sleep(0.2)

    def json(self, name, path):
        status, body = self.get(name, path)
        return json.loads(body) if status == 200 else None

    def peers_of(self, name):
        return {peer["node"]: peer for peer in json.loads(self.ask(name, "/api/v1/peers"))["peers"]}

    @staticmethod
    def reports_of(nodes):
        """The path of the reports of these nodes."""
        return "/api/v1/mesh/" + ",".join(nodes)

    def said(self, name):
        """What the judges say, by this agent."""
        return json.loads(self.ask(name, "/api/v1/verdicts"))

    def living(self, dead):
        return [name for name in self.names if name not in dead]

    def requests(self, dead):
        """Requests that all agents answered, without those of this program."""
        total = 0
        for name in self.living(dead):
            text = self.ask(name, "/metrics")
            total += int(re.search(r"^kube_canary_http_requests_total (\d+)", text.decode(), re.M)[1])
        return total - self.own_requests

    def lost(self, dead):
        """Probes lost between agents, but for those to the dead."""
        reports = (self.peers_of(name).items() for name in self.living(dead))
        return sum(peer["lost"] for report in reports for node, peer in report if node not in dead)

    @contextlib.contextmanager
    def measured(self, target, dead=(), mesh=True):
        """Measures until the end of the block. The figures are in the dictionary that it gives.
        `target` is the agent that is attacked; `mesh`: an honest reader asks it for the mesh."""
        over, figures, rss = threading.Event(), {}, [0]

        def poll(path, seconds, pause, answers):
            while not over.is_set():
                begun = time.monotonic()
                status, _ = self.get(target, path, seconds)
                answers.add(status, time.monotonic() - begun)
                over.wait(pause)

        def memory():
            while not over.is_set():
                rss[0] = max(rss[0], *(rss_kb(agent.pid) for agent in self.agents.values()))
                over.wait(MEMORY_SECONDS)

        polls = {"/metrics": (SCRAPE_SECONDS, POLL_SECONDS), "/healthz": (HEALTH_SECONDS, POLL_SECONDS)}
        if mesh:
            polls[self.reports_path] = MESH_SECONDS, MESH_POLL_SECONDS
        answers = {path: Answers() for path in polls}
        threads = [threading.Thread(target=poll, args=(path, *times, answers[path])) for path, times in polls.items()]
        threads.append(threading.Thread(target=memory))
        requests, lost = self.requests(dead), self.lost(dead)
        cpu = {name: cpu_seconds(agent.pid) for name, agent in self.agents.items()}
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            yield figures
        finally:
            seconds = time.monotonic() - begun
            spent = {name: cpu_seconds(agent.pid) - cpu[name] for name, agent in self.agents.items()}
            over.set()
            for thread in threads:
                thread.join()
        figures.update(seconds=seconds, cpu_all=sum(spent.values()), cpu_target=spent[target], rss_kb=rss[0],
                       requests=self.requests(dead) - requests, lost=self.lost(dead) - lost,
                       polls={path: answer.figures() for path, answer in answers.items()})
