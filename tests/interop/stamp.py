#!/usr/bin/env python3
"""STAMP as scapy implements it.

  stamp.py ask HOST PORT  asks a reflector from 127.0.0.1, and checks every field of its answers
  stamp.py read HEX       prints the fields of a request
  stamp.py answer HEX     prints the answer to a request, in hexadecimal
"""

import socket
import sys
import time

from scapy.contrib.stamp import (
    ErrorEstimate,
    STAMPSessionReflectorTestUnauthenticated as Answer,
    STAMPSessionSenderTestUnauthenticated as Request,
    STAMPTestTLV as TLV,
)

UNRECOGNIZED, MALFORMED = 0x80, 0x40
PADDING = 1
# Seconds by which an estimate of a departure may be too late. It finds another unit or epoch.
DEPARTURE_ERROR = 1
# From 1900, where NTP begins, to 1970.
NTP_TO_UNIX = 2_208_988_800


def request(sequence, ssid, tlvs=(), error=None):
    """A request that is written now."""
    return Request(
        seq=sequence,
        ts=time.time() + NTP_TO_UNIX,
        err_estimate=error or ErrorEstimate(S=1, Z=0, scale=20, multiplier=3),
        ssid=ssid,
        tlv_objects=list(tlvs),
    )


def same(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found!r} instead of {expected!r}")


class Session:
    """A socket that asks one reflector."""

    def __init__(self, host, port):
        self.answers = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.connect((host, port))
        # It only ends a run that would hang.
        self.socket.settimeout(60)

    def ask(self, packet, count, length=None):
        """Checks the answer, which must be the reflector's `count`th of the session. Returns it."""
        sent = bytes(packet)
        before = time.time()
        self.socket.send(sent)
        raw = self.socket.recv(65_535)
        after = time.time()
        answer = Answer(raw)
        same("length", len(raw), length or len(sent))
        same("bytes that scapy makes of its own reading", bytes(answer), raw)
        same("sequence number", answer.seq, count)
        same("SSID", answer.ssid, packet.ssid)
        same("sequence number of the sender", answer.seq_sender, packet.seq)
        same("what the sender wrote of its time", raw[28:38], sent[4:14])
        same("reserved bytes", (answer.mbz1, answer.mbz2), (0, 0))
        same("format of timestamps", answer.err_estimate.Z, 0)
        if answer.err_estimate.multiplier == 0:
            sys.exit("multiplier: RFC 4656 does not allow zero")
        received, reflected = answer.ts_rx - NTP_TO_UNIX, answer.ts - NTP_TO_UNIX
        # A microsecond, because scapy has timestamps as floating-point numbers. The reflector
        # writes when the answer will leave, by what earlier answers took: an estimate.
        if not before - 1e-6 <= received <= reflected + 1e-6 <= after + DEPARTURE_ERROR:
            sys.exit(f"times: sent {before}, received {received}, reflected {reflected}, answered {after}")
        self.answers += 1
        return answer


def flags(answer):
    return [(int(tlv.flags), tlv.type, tlv.len, bytes(tlv.value)) for tlv in answer.tlv_objects]


def ask(host, port):
    session, other_port = Session(host, port), Session(host, port)
    padding = TLV(flags=UNRECOGNIZED, type=PADDING, len=24, value=bytes(range(24)))
    for count in range(20):
        answer = (session, other_port)[count % 2].ask(request(1_000 + count, 7, [padding]), count)
        same("TLVs", flags(answer), [(0, PADDING, 24, bytes(range(24)))])
    same("TLVs of a base packet", flags(session.ask(request(0, 8), 0)), [])
    same("a session of its own", flags(session.ask(request(1, 7, [padding]), 20)), [(0, PADDING, 24, bytes(range(24)))])

    unknown = TLV(flags=UNRECOGNIZED, type=2, len=4, value=b"\0\0\0\0")
    answer = session.ask(request(2, 7, [padding, unknown, padding]), 21)
    same("flags", [tlv[:2] for tlv in flags(answer)], [(0, PADDING), (UNRECOGNIZED, 2), (0, PADDING)])

    # scapy writes this length, although the value is shorter.
    cut = TLV(flags=UNRECOGNIZED, type=PADDING, len=24, value=b"short")
    answer = session.ask(request(3, 7, [cut]), 22)
    same("flags", flags(answer), [(MALFORMED, PADDING, 24, b"short")])

    answer = session.ask(request(4, 7, [padding], ErrorEstimate(S=0, Z=1, scale=1, multiplier=1)), 23)
    same("error estimate of the sender", bytes(answer.err_estimate_sender), bytes([0x41, 1]))

    large = TLV(flags=UNRECOGNIZED, type=PADDING, len=1_400, value=bytes(range(24)) + bytes(1_376))
    answer = session.ask(request(5, 7, [large]), 24, length=72)
    same("TLVs of a small answer", flags(answer), [(0, PADDING, 24, bytes(range(24)))])
    print(session.answers + other_port.answers)


def read(raw):
    packet = Request(raw)
    same("bytes that scapy makes of its own reading", bytes(packet), raw)
    print("seq", packet.seq)
    print("ts", round(packet.ts - NTP_TO_UNIX))
    error = packet.err_estimate
    print("err_estimate", error.S, error.Z, error.scale, error.multiplier)
    print("ssid", packet.ssid)
    print("mbz", packet.mbz)
    for tlv in packet.tlv_objects:
        print("tlv", int(tlv.flags), tlv.type, tlv.len, bytes(tlv.value).hex())


def answer(raw):
    packet = Request(raw)
    for tlv in packet.tlv_objects:
        tlv.flags = 0
    print(bytes(Answer(
        seq=41,
        ts=packet.ts + 2.5,
        err_estimate=ErrorEstimate(S=1, Z=0, scale=17, multiplier=9),
        ssid=packet.ssid,
        ts_rx=packet.ts + 2,
        seq_sender=packet.seq,
        ts_sender=packet.ts,
        err_estimate_sender=packet.err_estimate,
        ttl_sender=57,
        tlv_objects=packet.tlv_objects,
    )).hex())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["ask", host, port]:
            ask(host, int(port))
        case ["read", text]:
            read(bytes.fromhex(text))
        case ["answer", text]:
            answer(bytes.fromhex(text))
        case _:
            sys.exit(__doc__)
