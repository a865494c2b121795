"""What bench/soak runs in a network and a mount namespace of its own:
run.py SEED MINUTES RESULT STATES NAME=BINARY…

Real agents are the first nodes of a mesh whose others are stand-ins (members.py). RESULT gets what
happened as JSON; bench/soak judges it.
"""

import functools, json, pathlib, random, subprocess, sys, time

from paths import HERE
import inside, lab, plane
import ledger, liars, members, schedule
from pings import Alive

NODES = 33
# Probes of a day at one a second are those of an hour at 24 a second.
INTERVAL, TIMEOUT = 0.041, 1.0
# A peer is forgotten after the churn below has kept it away for long, and not after a short while.
FORGET_SECONDS = 10
# Seconds from the end of a lie about a node's address: the pod is replaced, and the new one is
# asked.
TRUTH_SECONDS = 30
# How many nodes after the agents are never rolled: these die at times.
MORTALS = 3


class Soak:
    def __init__(self, seed, binaries, directory):
        self.random, self.begin, self.directory = (random.Random(f"soak {seed}"), time.monotonic(), directory)
        self.agents = list(range(len(binaries)))
        self.mortals = list(range(len(binaries), len(binaries) + MORTALS))
        self.movable = list(range(len(binaries) + MORTALS, NODES))
        self.log, self.excuses, self.dead, self.processes = [], [], [], []
        self.outages = []  # [begin, end]
        inside.account()
        self.alive = Alive()
        for address in ["127.0.0.1", *map(liars.node_address, range(NODES))]:
            self.alive.started(address)
        self.alive.flush()
        self.wire = members.Wire()
        self.crowd = members.Crowd(self.agents)
        self.mesh = members.Mesh(NODES, len(binaries) + MORTALS, self.crowd.opened, self.crowd.closed, self.alive, seed)
        self.crowd.mesh = self.mesh
        self.alive.follow()
        self.api = members.Api(self.mesh, inside.ACCOUNT, inside.API_PORT)
        self.addresses = [self.mesh.pods[k].address for k in self.agents]
        self.running = [self.start(k, binary) for k, binary in enumerate(binaries.values())]
        self.names = list(binaries)

    def now(self):
        return time.monotonic() - self.begin

    def start(self, k, binary):
        log = open(self.directory / f"agent-{k}.log", "w")
        flags = {"--pod-addresses": self.addresses[k], "--node-addresses": liars.node_address(k), "--network": "pod,node",
                 "--interval": f"{INTERVAL * 1000:.0f}ms", "--timeout": f"{TIMEOUT:.0f}s", "--forget-after": f"{FORGET_SECONDS}s",
                 "--max-series": "10000000"}
        return inside.start(binary, plane.node_name(k), self.addresses[k], log, *(word for flag in flags.items() for word in flag))

    def child(self, script, *arguments, **options):
        process = subprocess.Popen([sys.executable, "-B", HERE / script, *map(str, arguments)], **options)
        self.processes.append(process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.terminate()
        process.wait()

    # ---- faults: each begins, and gives what ends it ----

    def fault(self, kind, lane, seconds):
        begin = {
            "rollout": self.rollout,
            "churn": self.churn,
            "flapping": self.flapping,
            "api-refused": functools.partial(self.outage, "reject with tcp reset"),
            "api-silent": functools.partial(self.outage, "drop"),
            "api-errors": self.api_errors,
            "api-expired": self.api_expired,
            "rollout-without-api": self.rollout_without_api,
            "forged-replies": self.attack,
            "forged-requests": self.attack,
            "dead": functools.partial(self.die, False),
            "dead-and-forged": functools.partial(self.die, True),
        }.get(kind, self.lie if lane == "liars" else self.attack)
        return begin(*((kind, seconds) if begin in (self.lie, self.attack) else (seconds,)))

    def rollout(self, _):
        self.api.do(self.mesh.rollout)
        return lambda: None

    def churn(self, seconds):
        """Some leave for good, as far as the agents know, and some for less than they remember."""
        away = self.random.sample(self.movable, 6)
        self.api.do(self.mesh.leave, away)
        return lambda: self.api.do(self.mesh.join, away)

    def flapping(self, _):
        chosen = [node for node in self.random.sample(self.movable, 6)]

        def ready(value):
            for node in chosen:
                if pod := self.mesh.pods.get(node):
                    self.mesh.readiness(pod, value)

        self.api.do(ready, False)
        return lambda: self.api.do(ready, True)

    def away(self, begin, end):
        """The API is away between the two calls."""
        self.outages.append([self.now(), None])
        begin()

        def mend():
            end()
            self.outages[-1][1] = self.now()

        return mend

    def outage(self, verdict, _):
        return self.away(lambda: self.wire.api(verdict), self.wire.mend)

    def rollout_without_api(self, seconds):
        mend = self.outage("drop", seconds)
        self.api.do(self.mesh.rollout)
        return mend

    def api_errors(self, _):
        return self.away(*(functools.partial(setattr, self.api, "refuses", value) for value in (True, False)))

    def api_expired(self, seconds):
        mend = self.outage("reject with tcp reset", seconds)
        self.api.expire()
        return mend

    def lie(self, kind, _):
        """Pods of three nodes are replaced by those that lie, and then by true ones."""
        chosen = self.random.sample(self.movable, 3)
        begun = self.now()

        def change(kind):
            for node in chosen:
                self.crowd.lies[node] = kind
            self.api.do(self.mesh.replace, chosen)

        change(kind)

        def mend():
            change(None)
            # If a node reports another node's address as its own, losses there do not count as
            # faults of the agent.
            if kind == "identity-addresses":
                end = self.now() + TRUTH_SECONDS
                self.excuses += [ledger.Excuse(None, plane.node_name(node), "node", begun, end, kind) for node in chosen]

        return mend

    def attack(self, kind, seconds, addresses=None):
        others = [pod.address for pod in list(self.mesh.pods.values()) if pod.address and pod.node not in self.agents]
        process = self.child("attackers.py", kind, seconds, *self.addresses, "--", *(addresses or others))
        return lambda: self.end(process)

    def die(self, forge, seconds):
        """One node's pod answers no more, while it stays listed; others may answer in its name."""
        node = self.random.choice(self.mortals)
        address, begun = self.mesh.pods[node].address, self.now()
        self.alive.stopped(address)
        self.alive.flush()
        silent = self.now()
        end_attack = self.attack("forged-replies", seconds, [address]) if forge else lambda: None

        def mend():
            end_attack()
            answers = self.now()
            self.alive.started(address)
            self.alive.flush()
            name = plane.node_name(node)
            self.dead.append(ledger.Excuse(None, name, "pod", silent, answers, "dead"))
            end = self.now() + TIMEOUT + ledger.DOUBT_SECONDS + 2
            self.excuses.append(ledger.Excuse(None, name, "pod", begun, end, "dead"))

        return mend

    # ---- the run ----

    def faults(self, planned):
        """Begins and ends all, each at its time. Returns when the first began."""
        began, running = self.now(), {}
        # A lane's next fault begins after the end of the one before it.
        turns = sorted(
            [(fault.begin, True, fault) for fault in planned] + [(fault.begin + fault.seconds, False, fault) for fault in planned]
        )
        for at, begins, fault in turns:
            self.rest(began + at - self.now())
            if begins:
                running[fault] = self.now(), self.fault(fault.kind, fault.lane, fault.seconds)
            else:
                begun, mend = running.pop(fault)
                mend()
                self.log.append({"lane": fault.lane, "kind": fault.kind, "begin": round(begun, 1), "end": round(self.now(), 1)})
        return began

    def check(self):
        for name, process in zip(self.names, self.running):
            if process.poll() is not None:
                sys.exit(f"{name} ended with {process.returncode}")

    def rest(self, seconds):
        """Returns when it began."""
        begun = self.now()
        while (left := begun + seconds - self.now()) > 0:
            time.sleep(min(left, 0.5))
            self.check()
        return begun

    def run(self, seed, minutes, result, states):
        phases = schedule.phases(minutes)
        for address, process in zip(self.addresses, self.running):
            lab.await_answer(address, process)
        self.begin = time.monotonic()
        found = self.directory / "watched.json"
        watched = [f"{name}={address}={process.pid}" for name, address, process in zip(self.names, self.addresses, self.running)]
        mortals = ",".join(map(plane.node_name, self.mortals))
        watch = self.child("watch.py", found, states, self.begin, INTERVAL, TIMEOUT, mortals, *watched, stdin=subprocess.PIPE, text=True)
        readers = self.child("readers.py", *self.addresses)
        self.rest(phases.settle)
        self.end(readers)
        before = self.rest(phases.before)
        readers = self.child("readers.py", *self.addresses)
        begun = self.faults(schedule.schedule(seed, phases.faults))
        self.end(readers)
        self.rest(schedule.QUIET_AFTER_SECONDS)
        print("quiet", file=watch.stdin, flush=True)
        after = self.rest(phases.after - schedule.QUIET_AFTER_SECONDS)
        end = self.now()
        calm = self.mesh.is_calm()
        watch.stdin.close()
        if watch.wait(60):
            sys.exit(f"watch.py: exit code {watch.returncode}")
        for process in self.running:
            process.terminate()
        codes = [process.wait(30) for process in self.running]
        logs = {name: (self.directory / f"agent-{k}.log").read_text() for k, name in enumerate(self.names)}
        pathlib.Path(result).write_text(json.dumps({
            "interval": INTERVAL, "agents": json.loads(found.read_text()), "faults": self.log, "excuses": self.excuses,
            "dead": self.dead, "before": [before + min(schedule.QUIET_AFTER_SECONDS, phases.before / 2), begun],
            "after": [after, end], "outages": self.outages,
            "stopped": [(at - self.begin, plane.node_name(node), address) for at, node, address in self.mesh.stopped_at],
            "codes": codes, "leaks": {name: [line for line in log.splitlines() if "LEAK" in line] for name, log in logs.items()},
            "calm": calm, "logs": {name: log[-3000:] for name, log in logs.items()}}))

    def close(self):
        for process in [*self.processes, *self.running]:
            self.end(process)


def main(seed, minutes, result, states, *binaries):
    directory = pathlib.Path(result).parent
    soak = Soak(int(seed), dict(word.split("=", 1) for word in binaries), directory)
    try:
        soak.run(int(seed), float(minutes), result, states)
    finally:
        soak.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
