"""The attacks: `attacks.py NAME BINARY quick|full RESULT`, in a network namespace of its own and in
an empty directory. RESULT gets the figures as JSON.

Each attack is a function that takes a mesh of 20 agents and the seconds that it may last. It attacks
one agent, and returns what was measured. `result` says in words what the attacker got, and the
further figures are what bench/attacks has bounds for.
"""
import json, pathlib, signal, sys, time

import liar, mesh
from mesh import Mesh

# Names of one letter each, so that a path has room for many.
AGENTS = "abcdefghijklmnopqrst"
# As in a large mesh, each agent probes a part of the others, and knows the rest by reports.
PART, ALL = 8, 0
# Seconds until the probes of a minute show an outage, which a verdict needs.
OUTAGE_SECONDS = 60
# The number of names in a path that fits a request's 8 KiB.
HOPS_MAX = 3_700
# Seconds for which liars lie, so that readers are answered during that time.
LYING_SECONDS = 6
SECONDS = {"quick": 8, "full": 20}
# Name → (function, how its mesh is made).
ATTACKS = {}


def attack(max_peers, names=AGENTS, liars="z", **more):
    """Puts a function into ATTACKS, with the arguments of its mesh."""
    def put(function):
        ATTACKS[function.__name__] = function, {"names": names, "liars": liars, "max_peers": max_peers, **more}
        return function
    return put


def hour_by(names):
    """A path of the hour that goes through agents in turn."""
    return "/api/v1/hour/" + "/".join(names)


def until(found, seconds, pause=1):
    """Waits until `found` returns something true, and returns that; None after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(pause)
    return None


def percent(answers):
    return f"{100 * answers['answered'] / max(1, answers['asked']):.0f} %"


@attack(PART)
def none(m, seconds):
    """The cost of the readers of this command, without an attack."""
    with m.measured("a") as figures:
        time.sleep(seconds)
    return figures | {"result": "–"}


@attack(PART)
def path_once(m, _):
    """One GET of 7.5 KB that is forwarded from agent to agent."""
    with m.measured("a", mesh=False) as figures:
        status, _ = mesh.answer(m.address["a"], hour_by(((AGENTS[1:] + "a") * 200)[:HOPS_MAX]), 30)
        time.sleep(4)  # what is forwarded goes on
    return figures | {"result": f"status {status}, {figures['requests']:,} requests"}


@attack(ALL)
def path_loop(m, seconds):
    """Ten GETs a second, 1.2 KB in all, which take the places of one agent: half of them go to it and
    away from it 12 times. All end at an agent that does not answer."""
    m.tell({m.address["z"]: {"/api/v1/hour": {"hold": 30}}})
    pause, ways = 0.2, [hour_by("ba" * 12 + "zx"), hour_by("zx")]
    with m.measured("a", mesh=False) as figures:
        asking = [m.child("client.py", "every", pause, m.address["a"], path) for path in ways]
        time.sleep(seconds)
        for child in asking:
            m.end_child(child)
    gets = len(ways) * (figures["seconds"] / pause + 1)
    result = f"/metrics answered {percent(figures['polls']['/metrics'])}, {figures['requests']:,} requests"
    return figures | {"gets": gets, "result": result}


def blames(said, node):
    return any(node in verdict["subject"].split("->") for verdict in said["verdicts"])


@attack(ALL, flags={name: ["--judge", "auto"] for name in AGENTS})
def leaving(m, _):
    """A real outage, and a liar that says that all nodes leave, each 50 and 32,768 times."""
    mesh.drop(f"ip daddr {m.address['t']}")
    honest = until(lambda: blames(said := m.said("a"), "t") and said, OUTAGE_SECONDS)
    said = [honest or m.said("a")]
    leaving = [m.peer(name, state="terminating") for name in AGENTS]
    # A report of 1.4 MB names one node so often. A report that names all nodes would be cut off for
    # its length.
    for times, named in ((50, leaving), (32_768, [{"node": "t", "state": "terminating"}])):
        lie = m.report("z", named * times)
        m.tell({m.address["z"]: {"/api/v1/peers": lie}})
        with m.measured("a", dead="t") as figures:
            time.sleep(LYING_SECONDS)
            said.append(m.said("a"))
    blamed = sum(blames(one, "t") for one in said)
    said = [one["headline"] for one in said]
    result = f"honest: “{said[0]}”; 50 times: “{said[1]}”; 32,768 times: “{said[2]}”"
    return figures | {"blamed": blamed, "result": result}


def member_that_asks(m):
    """An agent that has the liar in its own list, and one that it does not probe."""
    for name in AGENTS:
        peers = m.peers_of(name)
        if "z" in peers:
            return name, next(other for other in AGENTS[::-1] if other != name and other not in peers)
    sys.exit("nobody probes the liar")


@attack(PART)
def frames(m, seconds):
    """A liar names 40 nodes that do not exist, which all lose 84 % to one honest node."""
    target, victim = member_that_asks(m)
    ghosts = {f"ghost-{n}": f"127.8.0.{n + 1}" for n in range(40)}
    honest = [m.peer(name) for name in AGENTS]
    invented = [m.peer(name, address=address) for name, address in ghosts.items()]
    lies = {m.address["z"]: {"/api/v1/peers": m.report("z", honest + invented)}}
    for name, address in ghosts.items():
        lies[address] = {"/api/v1/peers": m.report(name, [m.peer(victim, lost=42)])}
    m.tell(lies)
    with m.measured(target) as figures:
        time.sleep(seconds)
        document = m.json(target, m.reports_of([*AGENTS, "z", *ghosts])) or {"rows": []}
        said = m.said(target)
    shown = sum(row["source"]["node"].startswith("ghost-") for row in document["rows"])
    shown += sum(peer["node"].startswith("ghost-") for row in document["rows"] for peer in row["peers"])
    blamed = int(blames(said, victim))
    result = f"{shown} nodes that do not exist are in the reports; “{said['headline']}”"
    return figures | {"ghosts": shown, "blamed": blamed, "result": result}


@attack(PART)
def impersonates(m, seconds):
    """A liar names honest nodes at an address of its own, and answers there in their names."""
    target, _ = member_that_asks(m)
    far = [name for name in AGENTS if name != target and name not in m.peers_of(target)]
    place = {name: f"127.8.1.{number}" for number, name in enumerate(far, 1)}
    lies = {m.address["z"]: {"/api/v1/peers": m.report("z", [m.peer(name, address=place[name]) for name in far])}}
    for name in far:
        forged = m.report(name, [])
        lies[place[name]] = {"/api/v1/peers": forged | {"head": forged["head"].replace('"told"', '"forged"')}}
    m.tell(lies)
    with m.measured(target, mesh=False) as figures:
        most = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            document = m.json(target, m.reports_path) or {"rows": []}
            most = max(most, sum(row["source"].get("version") == "forged" for row in document["rows"]))
            time.sleep(1)
    return figures | {"forged": most, "result": f"{most} of {len(far)} nodes appeared with a forged report"}


@attack(PART)
def dead_addresses(m, _):
    """A liar names 400 nodes at addresses that do not answer."""
    target, _ = member_that_asks(m)
    mesh.drop("ip daddr 127.7.0.0/16")
    named = [m.peer(f"dead-{n}", address=f"127.7.{n // 250}.{n % 250 + 1}") for n in range(400)]
    m.tell({m.address["z"]: {"/api/v1/peers": m.report("z", named)}})
    with m.measured(target, mesh=False) as figures:
        begun = time.monotonic()
        document = m.json(target, m.reports_path) or {"rows": []}
        took = time.monotonic() - begun
    rows = sum(row["source"]["node"] in AGENTS for row in document["rows"])
    result = f"{took:.1f} s, {rows} of {len(AGENTS)} honest reports"
    return figures | {"took_seconds": took, "rows": rows, "result": result}


def asked_without_pause(m, seconds, path, clients):
    """Clients that request a path of one agent again and again: the cost, and how many times each
    status was answered."""
    with m.measured("a") as figures:
        asking = m.child("client.py", "loop", m.address["a"], path, clients)
        time.sleep(seconds)
        answers = json.loads(m.end_child(asking))
    return figures, answers


@attack(ALL)
def mesh_loop(m, seconds):
    """One client asks for the mesh again and again."""
    figures, answers = asked_without_pause(m, seconds, m.reports_path, 1)
    return figures | {"result": f"{answers.get('200', 0)} answers"}


@attack(PART)
def unknown_loop(m, seconds):
    """16 clients ask for the hour of a node that does not exist."""
    figures, answers = asked_without_pause(m, seconds, "/api/v1/hour/nobody/x", 16)
    statuses = ", ".join(f"{count:,} × {status}" for status, count in sorted(answers.items()))
    result = f"reports answered {percent(figures['polls'][m.reports_path])}; the clients got {statuses}"
    return figures | {"gets": sum(answers.values()), "result": result}


@attack(ALL)
def silent_reader(m, _):
    """One client asks for the mesh and does not read it."""
    with m.measured("a", mesh=False) as figures:
        m.child("client.py", "silent", m.address["a"], m.reports_path)
        begun = time.monotonic()
        answered = until(lambda: m.get("a", m.reports_path)[0] == 200, 60, pause=0.1)
        took = time.monotonic() - begun
    result = f"the next reader has the mesh after {took:.1f} s" if answered else "no mesh within 60 s"
    return figures | {"took_seconds": took, "result": result}


def endless(m, lie):
    """The cost of an endless report, and its effect on the others."""
    m.tell({m.address["z"]: {"/api/v1/peers": m.report("z") | lie | {"times": -1}}})
    with m.measured("a", mesh=False) as figures:
        begun = time.monotonic()
        _, body = m.get("a", m.reports_path)
        took = time.monotonic() - begun
    # Not part of the measurement: this takes longer than the collection of an endless report.
    document = json.loads(body)
    rows = sum(row["source"]["node"] in AGENTS for row in document["rows"])
    why = next((missing["error"] for missing in document["missing"] if missing["node"] == "z"), "not missing")
    result = f"{took:.1f} s, {rows} of {len(AGENTS)} honest reports; z: “{why}”"
    return figures | {"took_seconds": took, "rows": rows, "named": why != "not missing", "result": result}


@attack(ALL)
def endless_string(m, _):
    """A report of one string without end."""
    return endless(m, {"head": liar.OK + '{"endless":"', "piece": "x"})


@attack(ALL)
def endless_objects(m, _):
    """A report of objects without end."""
    return endless(m, {"piece": '{"node":"nobody"},'})


@attack(PART)
def forged_replies(m, seconds):
    """A peer that is probed forges the replies of a peer that is dead."""
    own, dead = [name for name in m.peers_of("a") if name in AGENTS][:2]
    mesh.drop(f"ip daddr {m.address[dead]}")
    time.sleep(2)  # for the probes that are in flight
    before = m.peers_of("a")[dead]
    with m.measured("a", dead=dead) as figures:
        m.child("forge.py", m.address[own], m.address[dead], 2 * PART)
        time.sleep(seconds)
    after = m.peers_of("a")[dead]
    sent, received, lost = (after[key] - before[key] for key in ("sent", "received", "lost"))
    result = f"of {sent} probes to the dead peer {received} “received”, {lost} lost"
    return figures | {"received": received, "result": result}


# Eight liars and 16 agents. In a mesh of more than 24 members an agent collects at most once in 15
# s, so it would refuse the readers of this command (src/mesh/routes.rs).
NOT_AGENTS = "mnopqrst"


@attack(ALL, names=AGENTS.replace(NOT_AGENTS, "0123"), liars=NOT_AGENTS,
        lies={"/api/v1/": {"piece": "HTTP/1.1 102 Processing\r\n\r\n", "times": -1}},
        flags={"a": ["--network", "pod,node"]})
def endless_1xx(m, seconds):
    """Eight peers answer 1xx without end, to identity requests and to requests of their report."""
    with m.measured("a") as figures:
        time.sleep(2 * seconds)
    return figures | {"result": f"{figures['cpu_target']:.1f} s of CPU in {figures['seconds']:.0f} s"}


def main(name, binary, length, result):
    # It raises an exception, so that the mesh is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    mesh.namespace()
    function, made = ATTACKS[name]
    with Mesh(binary, **made) as m:
        figures = function(m, SECONDS[length])
    pathlib.Path(result).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
