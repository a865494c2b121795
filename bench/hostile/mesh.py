"""A mesh of real agents on loopback addresses of a network namespace of its own, and the
figures that are measured during an attack."""
import contextlib, json, os, pathlib, subprocess, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "reported"))
import lab
import liar

HERE = pathlib.Path(__file__).resolve().parent
INTERVAL = "1s"
POLL_SECONDS = 0.25
# A collection of the whole mesh is expensive, and the requests of one honest reader must not be the
# load.
MESH_POLL_SECONDS = 3
# The default timeouts of Prometheus and the kubelet, and the longest time of a collection.
SCRAPE_SECONDS, HEALTH_SECONDS, MESH_SECONDS = 10, 1, 40
MEMORY_SECONDS = 0.25


def namespace():
    """Prepares the network namespace in which this process is."""
    lab.loopback()
    lab.nft("table ip faults { chain in { type filter hook input priority 0; }; }")


def drop(match):
    lab.nft(f"add rule ip faults in {match} drop")


def answer(address, path, seconds):
    """The status and the body, read whole; 0 if there is no whole answer."""
    try:
        return lab.get(address, path, seconds)
    except OSError as error:
        return 0, str(error).encode()


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
                own = ["--node-name", name, "--listen", f"{self.address[name]}:{lab.PORT}"]
                own += self.flags.get(name, [])
                # Liars are no agents, and the attacks are on echoes. Builds without other probes
                # ignore the variable.
                environment = {**os.environ, "KUBE_CANARY_PROBES": "icmp", "KUBE_CANARY_JUDGE": "never"}
                self.agents[name] = subprocess.Popen([*self.command, *own], stderr=log, env=environment)
        for name in self.names:
            try:
                lab.await_answer(self.address[name], self.agents[name])
            except SystemExit as error:
                sys.exit(f"{name}: {error}: {pathlib.Path('log').read_text()[:500]}")

    def stop(self):
        lab.stop([*self.children, *self.agents.values()])

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
        status, body = answer(self.address[name], path, seconds)
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
        texts = (self.ask(name, "/metrics").decode() for name in self.living(dead))
        return int(sum(lab.total(text, "http_requests_total") for text in texts)) - self.own_requests

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
                took = time.monotonic() - begun
                answers |= {"asked": answers["asked"] + 1, "answered": answers["answered"] + (status == 200),
                            "slowest_seconds": max(answers["slowest_seconds"], took)}
                over.wait(pause)

        def memory():
            while not over.is_set():
                rss[0] = max(rss[0], *(lab.rollup(agent.pid)["Rss"] for agent in self.agents.values()))
                over.wait(MEMORY_SECONDS)

        polls = {"/metrics": (SCRAPE_SECONDS, POLL_SECONDS), "/healthz": (HEALTH_SECONDS, POLL_SECONDS)}
        if mesh:
            polls[self.reports_path] = MESH_SECONDS, MESH_POLL_SECONDS
        answers = {path: {"asked": 0, "answered": 0, "slowest_seconds": 0} for path in polls}
        threads = [threading.Thread(target=poll, args=(path, *times, answers[path])) for path, times in polls.items()]
        threads.append(threading.Thread(target=memory))
        requests, lost = self.requests(dead), self.lost(dead)
        cpu = {name: lab.cpu_seconds(agent.pid) for name, agent in self.agents.items()}
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            yield figures
        finally:
            seconds = time.monotonic() - begun
            spent = {name: lab.cpu_seconds(agent.pid) - cpu[name] for name, agent in self.agents.items()}
            over.set()
            for thread in threads:
                thread.join()
        figures.update(seconds=seconds, cpu_all=sum(spent.values()), cpu_target=spent[target], rss_kb=rss[0],
                       requests=self.requests(dead) - requests, lost=self.lost(dead) - lost,
                       polls=answers)
