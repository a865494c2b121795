"""The harness of the measurements: a network namespace per node, agents, readings and scrapes.

`isolate` moves the program into a network namespace of its own. It has a bridge; the nodes are
namespaces whose `eth0` is in it. So the program reaches every agent, and nothing outside.
"""
import argparse
import http.client
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
TRIPLE = f"{platform.machine()}-unknown-linux-musl"
PORT = 9877
# Only ends a run that would hang.
HANG_SECONDS = 60
# As many as may be served at once (limits::CONNECTIONS_PER_WORKER), less some.
STORM = 48
# After it, connections are still being closed.
QUIET_SECONDS = 1
CLOSE = {"Connection": "close"}
SAMPLE, LABEL = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)"), re.compile(r'(\w+)="([^"]*)"')
ACCEPTS = {
    "text": "text/plain;version=0.0.4;q=0.6,*/*;q=0.1",
    "openmetrics": "application/openmetrics-text;version=1.0.0;q=0.6,*/*;q=0.1",
    "protobuf": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,*/*;q=0.1",
}


def parser(description, *flags):
    """A parser of options with these flags."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in flags:
        made.add_argument(f"--{flag}", action="store_true")
    return made


def existing(path):
    """The type of an option that names a file or a directory."""
    return pathlib.Path(path).resolve(strict=True)


def words(kind=str):
    """The type of an option that is a list."""
    return lambda text: [kind(word) for word in text.split(",")]


def said(*command):
    """What a command prints. A command that fails ends the program."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def built(*options, target=TRIPLE, **settings):
    """The binary of this checkout, static unless the target says otherwise."""
    command = ["cargo", "build", "--quiet", "--locked", "--release", "--target", target, "--bin", "kube-canary", *options]
    if subprocess.run(command, cwd=ROOT, env=os.environ | settings, stdout=subprocess.DEVNULL).returncode:
        sys.exit(f"{' '.join(command)} failed")
    return TARGET / target / "release/kube-canary"


def commit():
    # A report that is being written is no change of what is measured.
    changed = said("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/report.json")
    return said("git", "describe", "--always", "--abbrev=12", "--exclude=*") + ("-dirty" if changed else "")


def is_isolated():
    return "KUBE_CANARY_ISOLATED" in os.environ


def isolate():
    """Begins again in a network namespace of its own, which gets a bridge."""
    if not is_isolated():
        os.environ["KUBE_CANARY_ISOLATED"] = "yes"
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        os.execvp("unshare", ["unshare", *user, "--net", "--fork", "--kill-child", "--", sys.executable, "-B", *sys.argv])
    for command in ("link set lo up", "link add br0 type bridge", "address add 10.64.255.1/16 dev br0", "link set br0 up"):
        said("ip", *command.split())


def loopback():
    """Prepares the network namespace in which this process is, for agents on loopback."""
    said("ip", "link", "set", "lo", "up")
    # Each agent has its own ICMP socket: with raw sockets, each would read the packets of all
    # others.
    pathlib.Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 2147483647")


def nft(text):
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)


def environment():
    """Ours without the settings of an agent: the defaults are measured."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}


def stop(processes):
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# ---- what agents answer

def get(address, path, seconds=HANG_SECONDS, headers=CLOSE, connection=None):
    """Status and body of an answer, over a connection that stays or one of its own."""
    client = connection or http.client.HTTPConnection(address, PORT, timeout=seconds)
    try:
        client.request("GET", path, headers=headers)
        answer = client.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise OSError(repr(error)) from error
    finally:
        if not connection:
            client.close()


def read(address, path, seconds=HANG_SECONDS):
    """The body of an answer with the status 200."""
    status, body = get(address, path, seconds)
    if status != 200:
        raise OSError(f"status {status}: {body[:100].decode(errors='replace').strip()}")
    return body


def await_answer(address, process, path="/readyz", seconds=HANG_SECONDS):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            return read(address, path, seconds)
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{address} does not answer {path}")


def samples(text):
    """Name without the prefix, labels and value of each line of a scrape."""
    for line in text.splitlines():
        if line and line[0] != "#":
            name, labels, value = SAMPLE.fullmatch(line).groups()
            yield name.removeprefix("kube_canary_"), dict(LABEL.findall(labels or "")), float(value)


def total(text, name):
    return sum(value for found, _, value in samples(text) if found == name)


# ---- nodes and agents

class Node:
    """A network namespace with `eth0` in the bridge, and the processes in it. A context."""

    made = 0

    def __init__(self):
        Node.made += 1
        self.name = f"node-{Node.made}"
        self.address = f"10.64.{Node.made // 250}.{Node.made % 250 + 1}"
        self.processes = []
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo && exec sleep infinity"], stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        port = f"veth{Node.made}"
        said("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", self.holder.pid)
        said("ip", "link", "set", port, "master", "br0", "up")
        setup = f"""ip link set lo up && ip link set eth0 up && ip address add {self.address}/16 dev eth0 &&
            echo '0 0' >/proc/sys/net/ipv4/ping_group_range && echo 0 >/proc/sys/net/ipv4/icmp_ratelimit"""
        said(*self.inside("sh", "-c", setup))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.holder.kill()
        self.holder.wait()

    def inside(self, *command):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *map(str, command)]

    def start(self, *command, **options):
        process = subprocess.Popen(self.inside(*command), env=environment(), **options)
        self.processes.append(process)
        return process

    def stop(self):
        """Ends the processes that were started here."""
        stop(self.processes)
        self.processes.clear()

    def icmp(self, counter):
        """A counter of the namespace's kernel, such as InType8: the echo requests that arrived."""
        lines = [line.split() for line in pathlib.Path(f"/proc/{self.holder.pid}/net/snmp").read_text().splitlines()]
        names, values = [line for line in lines if line[0] == "IcmpMsg:"] or ([], [])
        return int(dict(zip(names, values)).get(counter, 0))


class Agent:
    """An agent at a node, with the defaults unless flags say otherwise."""

    def __init__(self, node, binary, peers, *flags, name=None, address=None, zone="zone-0"):
        self.name, self.address = name or node.name, address or node.address
        command = [binary, "run", "--node-name", self.name, "--zone", zone, "--listen", f"{self.address}:{PORT}",
                   "--pod-addresses", self.address, "--discovery", "static", "--peers-file", peers, "--log-level", "warn"]
        self.cgroup = Cgroup(self.name)
        self.process = node.start(*command, *flags, preexec_fn=self.cgroup.enter)

    @property
    def pid(self):
        return self.process.pid

    def cpu_seconds(self):
        return cpu_seconds(self.pid)

    def memory(self):
        """KB. The sum is of smaps_rollup, because the counters of status lag by pages per thread."""
        found = {name: rollup(self.pid)[key] for name, key in (("rss_kb", "Rss"), ("private_kb", "Private_Dirty"))}
        working_set = self.cgroup.working_set_kb()
        return found | ({"working_set_kb": working_set} if working_set else {})

    def connection(self):
        return http.client.HTTPConnection(self.address, PORT, timeout=HANG_SECONDS)

    def get(self, path, headers=None, connection=None):
        return get(self.address, path, headers=headers or {}, connection=connection)

    def scrape(self, form="text", encoding="identity", connection=None):
        status, body = self.get("/metrics", {"Accept": ACCEPTS[form], "Accept-Encoding": encoding}, connection)
        if status != 200:
            raise OSError(f"{self.name}: status {status}")
        return body

    def wait(self):
        """Waits until it answers."""
        await_answer(self.address, self.process, "/healthz")
        return self

    def storm(self, form="text"):
        """Has 48 clients at once, each of which takes a compressed scrape whole."""
        ready, failed = threading.Barrier(STORM), []

        def client():
            ready.wait()
            try:
                self.scrape(form, "gzip")
            except OSError as error:
                failed.append(error)

        threads = [threading.Thread(target=client) for _ in range(STORM)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise OSError(f"{self.name}: {len(failed)} of {STORM} scrapes at once failed: {failed[0]}")
        time.sleep(QUIET_SECONDS)


class Cgroup:
    """A memory cgroup of one process, where this machine lets us make one."""

    def __init__(self, name):
        self.directory = None
        for root, self.version in ((pathlib.Path("/sys/fs/cgroup/memory"), 1), (pathlib.Path("/sys/fs/cgroup"), 2)):
            try:
                directory = root / f"kube-canary-{os.getpid()}-{name}"
                directory.mkdir(exist_ok=True)
                if (directory / "memory.stat").exists():
                    self.directory = directory
                    return
                directory.rmdir()
            except OSError:
                continue

    def enter(self):
        """Called in the child, before it becomes the program."""
        if self.directory:
            (self.directory / "cgroup.procs").write_text("0")

    def working_set_kb(self):
        """What `kubectl top` shows: the charge less the inactive pages of files."""
        if not self.directory:
            return None
        used, inactive = ("memory.usage_in_bytes", "total_inactive_file") if self.version == 1 else ("memory.current", "inactive_file")
        stat = dict(line.split() for line in (self.directory / "memory.stat").read_text().splitlines())
        return (int((self.directory / used).read_text()) - int(stat[inactive])) // 1024


def remove_cgroups():
    """Removes the cgroups of this program, once their processes have ended."""
    for root in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        for directory in pathlib.Path(root).glob(f"kube-canary-{os.getpid()}-*"):
            try:
                directory.rmdir()
            except OSError as error:  # It takes a few KB, and the measurement took an hour.
                print(f"{directory}: {error}", file=sys.stderr)


def rollup(pid):
    """KB of smaps_rollup, by its names."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(rest.split()[0]) for name, rest in (line.split(":", 1) for line in lines)}


def cpu_seconds(pid):
    """CPU time of all threads: schedstat has nanoseconds."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()) / 1e9


def addresses(count):
    """10.66.0.1 and on: bench/floor.c counts in the same way."""
    return [f"10.66.{n // 256}.{n % 256}" for n in range(1, count + 1)]


def cpu_ms_per_second(agents, seconds):
    """CPU time of each agent over that many seconds."""
    begun, before = time.monotonic(), [agent.cpu_seconds() for agent in agents]
    time.sleep(seconds)
    passed = time.monotonic() - begun
    return [(agent.cpu_seconds() - earlier) / passed * 1e3 for agent, earlier in zip(agents, before)]


def median(values, digits=0):
    values = [value for value in values if value is not None]
    return round(statistics.median(values), digits) if values else None


# ---- what a scrape holds

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Number and value of each field of a protobuf message; bytes of what has a length."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        else:
            width, at = varint(data, at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
            value, at = data[at:at + width], at + width
        yield tag >> 3, value


def series(form, body):
    """The series of a scrape. A native histogram is one."""
    if form != "protobuf":
        lines = [line for line in body.decode().splitlines() if line and line[0] != "#"]
        return sum(1 for line in lines if not re.match(r"\w+_created[{ ]", line))
    count = at = 0
    while at < len(body):
        length, at = varint(body, at)
        for number, value in fields(body[at:at + length]):
            if number == 4:  # MetricFamily.metric; in Metric.histogram, 5 is the schema and 3 a bucket
                inner = [number for field, inner in fields(value) if field == 7 for number, _ in fields(inner)]
                count += 1 if not inner or 5 in inner else 2 + inner.count(3)
        at += length
    return count


# ---- where figures come from, and how they are shown

def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"Linux {platform.release()} {platform.machine()}, {os.cpu_count()} CPUs, {model[1] if model else 'unknown'}"


def load():
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def provenance(binary, command, commit):
    """Facts about a measurement."""
    return {
        "commit": commit,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": command,
        "binary": said(binary, "version"),
        "binary_kb": pathlib.Path(binary).stat().st_size // 1024,
        "machine": machine(),
        "load": load(),
    }


def origin(command):
    """The lines of a report that say where its figures come from."""
    shown = " ".join(word.rsplit("/", 1)[-1] for word in sys.argv[1:])
    return [f"- commit {commit()}", f"- {machine()}, load average {load()}",
            f"- {time.strftime('%Y-%m-%d', time.gmtime())}, command: {command} {shown}".rstrip()]


def results(name):
    """The directory of the report that is written today."""
    directory = ROOT / f"bench/results/{name}-{time.strftime('%Y-%m-%d', time.gmtime())}"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
