"""One attacker of the agents, as a process: attackers.py KIND SECONDS TARGET… -- ADDRESS…

TARGETs are the agents' addresses; ADDRESSes are those in whose name packets are forged. Every kind
has a rate and ends after SECONDS, or at SIGTERM.
"""

import os, random, select, socket, struct, sys, threading, time

import paths
import forge, plane
from lab import PORT

REPORTS = "/api/v1/mesh/" + ",".join(map(plane.node_name, (1, 2, 3)))
PACKETS_PER_SECOND, CONNECTIONS_PER_SECOND = 4000, 200
IDLE, DEAF, SLOW, LOOPS = 150, 60, 80, 8
# The source address of an agent's packets on loopback.
AGENT = "127.0.0.1"


def until(end, per_second):
    """Turns at an even rate; a turn that is late is not made up for."""
    while (now := time.monotonic()) < end:
        yield now
        time.sleep(max(0, now + 1 / per_second - time.monotonic()))


def connect(target):
    try:
        return socket.create_connection((target, PORT), timeout=2)
    except OSError:
        return None


def head(path):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def hold(targets, end, most, begin, go_on=None):
    """Keeps up to `most` connections to each target, and opens another when one is closed."""
    held = {target: [] for target in targets}
    for _ in until(end, 20):
        for target, all_of in held.items():
            for connection in all_of[:]:
                readable = go_on is None or select.select([connection], [], [], 0)[0]
                if go_on and not readable:
                    try:
                        connection.send(go_on)
                        continue
                    except OSError:
                        pass
                elif not is_closed(connection):
                    continue
                connection.close()
                all_of.remove(connection)
            for _ in range(min(8, most - len(all_of))):
                connection = connect(target)
                if connection:
                    if begin:
                        connection.send(begin)
                    all_of.append(connection)


def is_closed(connection):
    """By the kernel's word, without reading what there is to read."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 1  # TCP_ESTABLISHED


def ask(target, path, seconds):
    if connection := connect(target):
        with connection:
            connection.settimeout(seconds)
            try:
                connection.send(head(path))
                while connection.recv(65536):
                    pass
            except OSError:
                pass


def loops(targets, end, path, count, per_second):
    def work(target, number):
        for turn, _ in enumerate(until(end, per_second)):
            ask(target, path(number, turn), 1)

    threads = [threading.Thread(target=work, args=(target, n), daemon=True) for target in targets for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0, end + 2 - time.monotonic()))


def connects(targets, end):
    for turn, _ in enumerate(until(end, CONNECTIONS_PER_SECOND)):
        if connection := connect(targets[turn % len(targets)]):
            connection.close()


# ---- packets ----


def identifiers():
    """Those of the agents' sockets: a stranger would guess them, 65,536 there are."""
    with open("/proc/net/icmp") as lines:
        return [int(line.split()[1].rsplit(":", 1)[1], 16) for line in list(lines)[1:]]


def overheard(seconds=2):
    """The last request of each agent that came by: (identifier, sequence, payload)."""
    found, end = {}, time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as wire:
        wire.settimeout(0.2)
        while time.monotonic() < end:
            try:
                data = wire.recv(2048)[20:]
            except TimeoutError:
                continue
            if data[:1] == b"\x08" and len(data) >= 32:
                identifier, sequence = struct.unpack("!HH", data[4:8])
                found[identifier] = sequence, data[8:]
    return found


def forged(end, message):
    """Sends what `message()` returns, (source, target, ICMP message), at an even rate."""
    wire = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    wire.setblocking(False)
    for _ in until(end, PACKETS_PER_SECOND / 20):
        for _ in range(20):
            source, target, echo = message()
            try:
                wire.sendto(forge.ip_packet(source, target, echo), (target, 0))
            except OSError:
                pass  # a full buffer: this one is left out


def forged_replies(addresses, end, random):
    """Made of what a member knows: the identifier, the cookie, the numbers. Not the check."""
    known, numbers = overheard(), identifiers()

    def message():
        identifier = random.choice(numbers)
        sequence, payload = known.get(identifier, (0, bytes(56)))
        number = int.from_bytes(payload[8:16], "big") + (random.randrange(2000) << 14) + random.randrange(-64, 64)
        payload = payload[:8] + (number % 2**64).to_bytes(8, "big") + random.randbytes(8) + payload[24:]
        if random.random() < 0.2:
            payload = random.randbytes(len(payload))
        sequence = (sequence + random.randrange(3000)) % 65536
        return random.choice(addresses), AGENT, forge.echo(forge.ECHO_REPLY, identifier, sequence, payload)

    if numbers:
        forged(end, message)


def forged_requests(addresses, targets, end, random):
    def message():
        payload = random.randbytes(random.choice((0, 24, 56, 1400)))
        echo = forge.echo(forge.ECHO_REQUEST, random.randrange(65536), random.randrange(65536), payload)
        return random.choice(addresses), random.choice([AGENT, *targets]), echo

    forged(end, message)


def main(kind, seconds, *rest):
    os.nice(5)
    split = rest.index("--")
    targets, addresses, end = rest[:split], rest[split + 1:], time.monotonic() + float(seconds)
    source, many = random.Random(f"{kind}{seconds}"), "/b/a" * 900
    {
        "idle": lambda: hold(targets, end, IDLE, b""),
        "deaf": lambda: hold(targets, end, DEAF, head("/metrics") * 4 + head(REPORTS)),
        "slow-head": lambda: hold(targets, end, SLOW, b"GET /metrics HTTP/1.1\r\nX: ", b"x"),
        "recursive": lambda: loops(targets, end, lambda n, t: f"/api/v1/hour{many}/{t}", 2, 10),
        "unknown": lambda: loops(targets, end, lambda n, t: f"/api/v1/hour/none-{n}-{t}/x", LOOPS, 10),
        "collect": lambda: loops(targets, end, lambda n, t: REPORTS, LOOPS, 10),
        "connects": lambda: connects(targets, end),
        "forged-replies": lambda: forged_replies(addresses, end, source),
        "forged-requests": lambda: forged_requests(addresses, targets, end, source),
    }[kind]()


if __name__ == "__main__":
    main(*sys.argv[1:])
