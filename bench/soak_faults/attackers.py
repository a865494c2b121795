"""One attacker of the agents, as a process: attackers.py KIND SECONDS PORT TARGET… -- ADDRESS…

TARGETs are the agents' addresses; ADDRESSes are those in whose name packets are forged. Every kind
has a rate and ends after SECONDS, or at SIGTERM.
"""

import os, pathlib, random, select, socket, struct, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scale_mesh"))
import plane

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


def connect(target, port):
    it = socket.socket()
    it.settimeout(2)
    try:
        it.connect((target, port))
        return it
    except OSError:
        it.close()
        return None


def head(path):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def hold(targets, port, end, most, begin, go_on=None):
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
                connection = connect(target, port)
                if connection:
                    if begin:
                        connection.send(begin)
                    all_of.append(connection)


def is_closed(connection):
    """By the kernel's word, without reading what there is to read."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != 1  # TCP_ESTABLISHED


def ask(target, port, path, seconds):
    connection = connect(target, port)
    if connection is None:
        return
    connection.settimeout(seconds)
    try:
        connection.send(head(path))
        while connection.recv(65536):
            pass
    except OSError:
        pass
    connection.close()


def loops(targets, port, end, path, count, per_second):
    def work(target, number):
        for turn, _ in enumerate(until(end, per_second)):
            ask(target, port, path(number, turn), 1)

    threads = [
        threading.Thread(target=work, args=(target, n), daemon=True)
        for target in targets
        for n in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0, end + 2 - time.monotonic()))


def connects(targets, port, end):
    for turn, _ in enumerate(until(end, CONNECTIONS_PER_SECOND)):
        if connection := connect(targets[turn % len(targets)], port):
            connection.close()


# ---- packets ----


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def echo(kind, identifier, sequence, payload):
    blank = struct.pack("!BBHHH", kind, 0, 0, identifier, sequence) + payload
    return blank[:2] + struct.pack("!H", checksum(blank)) + blank[4:]


def packet(source, target, message):
    addresses = socket.inet_aton(source) + socket.inet_aton(target)
    return (
        struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(message), 0, 0, 64, 1, 0) + addresses + message
    )


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


def forged_replies(addresses, end, source):
    """Made of what a member knows: the identifier, the cookie, the numbers. Not the check."""
    known, wire = overheard(), raw()
    numbers = identifiers()
    for turn, _ in enumerate(until(end, PACKETS_PER_SECOND / 20)):
        if not numbers:
            return
        for _ in range(20):
            identifier = source.choice(numbers)
            sequence, payload = known.get(identifier, (0, bytes(56)))
            number = (
                int.from_bytes(payload[8:16], "big")
                + (source.randrange(2000) << 14)
                + source.randrange(-64, 64)
            )
            payload = (
                payload[:8]
                + (number % 2**64).to_bytes(8, "big")
                + source.randbytes(8)
                + payload[24:]
            )
            if source.random() < 0.2:
                payload = source.randbytes(len(payload))
            message = echo(0, identifier, (sequence + source.randrange(3000)) % 65536, payload)
            send(wire, packet(source.choice(addresses), AGENT, message), AGENT)


def forged_requests(addresses, targets, end, source):
    wire = raw()
    for _ in until(end, PACKETS_PER_SECOND / 20):
        for _ in range(20):
            target = source.choice([AGENT, *targets])
            message = echo(
                8,
                source.randrange(65536),
                source.randrange(65536),
                source.randbytes(source.choice((0, 24, 56, 1400))),
            )
            send(wire, packet(source.choice(addresses), target, message), target)


def raw():
    wire = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    wire.setblocking(False)
    return wire


def send(wire, data, target):
    try:
        wire.sendto(data, (target, 0))
    except OSError:
        pass  # a full buffer: this one is left out


def main(kind, seconds, port, *rest):
    os.nice(5)
    split = rest.index("--")
    targets, addresses, port, end = (
        rest[:split],
        rest[split + 1 :],
        int(port),
        time.monotonic() + float(seconds),
    )
    source, many = random.Random(f"{kind}{seconds}"), "/b/a" * 900
    {
        "idle": lambda: hold(targets, port, end, IDLE, b""),
        "deaf": lambda: hold(targets, port, end, DEAF, head("/metrics") * 4 + head(REPORTS)),
        "slow-head": lambda: hold(targets, port, end, SLOW, b"GET /metrics HTTP/1.1\r\nX: ", b"x"),
        "recursive": lambda: loops(
            targets, port, end, lambda n, t: f"/api/v1/hour{many}/{t}", 2, 10
        ),
        "unknown": lambda: loops(
            targets, port, end, lambda n, t: f"/api/v1/hour/none-{n}-{t}/x", LOOPS, 10
        ),
        "collect": lambda: loops(targets, port, end, lambda n, t: REPORTS, LOOPS, 10),
        "connects": lambda: connects(targets, port, end),
        "forged-replies": lambda: forged_replies(addresses, end, source),
        "forged-requests": lambda: forged_requests(addresses, targets, end, source),
    }[kind]()


if __name__ == "__main__":
    main(*sys.argv[1:])
