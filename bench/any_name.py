"""A server of the DNS that has one IPv4 address for every name: any_name.py ADDRESS

It listens at 127.0.0.1:53, for an agent in the same network namespace.
"""

import socket
import sys

A_RECORD = b"\0\1"


def main():
    address = socket.inet_aton(sys.argv[1])
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    while True:
        question, client = server.recvfrom(512)
        end = 12
        while question[end]:
            end += question[end] + 1
        end += 5
        is_ipv4 = question[end - 4 : end - 2] == A_RECORD
        counts = b"\0\1" + (b"\0\1" if is_ipv4 else b"\0\0") + bytes(4)
        answer = question[:2] + b"\x81\x80" + counts + question[12:end]
        if is_ipv4:
            answer += b"\xc0\x0c\0\1\0\1\0\0\0\x05\0\4" + address
        server.sendto(answer, client)


main()
