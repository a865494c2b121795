"""Answers for a dead peer: `forge.py OWN DEAD PEERS`

Reads the echo requests that arrive at the address OWN, as the peer there can, and sends echo
replies in the name of the address DEAD. What OWN was sent tells the prober's identifier, its cookie
and the number of a probe. The numbers are consecutive over all PEERS of the prober, so the probe to
DEAD has one of the numbers before and after.

Three forgeries are made for each number: as agents up to November 2026 check it (an unkeyed mix of
what was sent), and in the present form with the check that OWN was sent and with a random one.
"""
import heapq, os, socket, struct, sys, time

ECHO_REQUEST, ECHO_REPLY, ECHO_HEADER_BYTES = 8, 0, 8
SLOT_BITS = 14
MASK = (1 << 64) - 1
# Seconds after a request of ours: the probe to DEAD leaves anywhere in an interval of 1 s.
MOMENTS = (0.0, 0.2, 0.4, 0.6, 0.8)


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def echo(kind, identifier, sequence, payload):
    head = struct.pack("!BBHHH", kind, 0, 0, identifier, sequence)
    return struct.pack("!BBHHH", kind, 0, checksum(head + payload), identifier, sequence) + payload


def ip_packet(source, destination, message):
    """The kernel fills in the length and the checksum (ip(7), IP_HDRINCL)."""
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(message), 0, 0, 64, socket.IPPROTO_ICMP, 0,
                       socket.inet_aton(source), socket.inet_aton(destination))
    return head + message


def unkeyed_check(cookie, number, slot, sequence):
    """The check of earlier agents: 32 bits of splitmix64's finalizer."""
    x = cookie ^ number ^ slot << 32 ^ sequence << 16
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return (x ^ x >> 31) >> 32


def forgeries(payload, sequence, peers):
    """Payloads that may answer a probe near the one whose payload this is."""
    cookie, second, third = struct.unpack("!QQQ", payload[:24])
    slot = third >> 32
    for offset in range(-peers, peers + 1):
        number = second + offset
        if number >= 0:
            check = unkeyed_check(cookie, number, slot, sequence)
            yield struct.pack("!QQII", cookie, number, slot, check) + payload[24:]
        number = (second >> SLOT_BITS) + offset
        if number >= 0:
            packed = number << SLOT_BITS | second & (1 << SLOT_BITS) - 1
            yield struct.pack("!QQQ", cookie, packed, third) + payload[24:]
            yield struct.pack("!QQ", cookie, packed) + os.urandom(8) + payload[24:]


def main(own, dead, peers):
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    due, number = [], 0
    print("ready", flush=True)
    while True:
        raw.settimeout(max(0.001, due[0][0] - time.monotonic()) if due else None)
        try:
            packet = raw.recv(65_535)
        except TimeoutError:
            packet = b""
        if len(packet) >= 20 + ECHO_HEADER_BYTES + 24 and packet[16:20] == socket.inet_aton(own):
            message = packet[(packet[0] & 15) * 4:]
            kind, _, _, identifier, sequence = struct.unpack("!BBHHH", message[:ECHO_HEADER_BYTES])
            if kind == ECHO_REQUEST:
                prober = socket.inet_ntoa(packet[12:16])
                for moment in MOMENTS:
                    number += 1
                    at, payload = time.monotonic() + moment, message[ECHO_HEADER_BYTES:]
                    heapq.heappush(due, (at, number, prober, identifier, sequence, payload))
        while due and due[0][0] <= time.monotonic():
            _, _, prober, identifier, sequence, payload = heapq.heappop(due)
            for forged in forgeries(payload, sequence, peers):
                out.sendto(ip_packet(dead, prober, echo(ECHO_REPLY, identifier, sequence, forged)), (prober, 0))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
