"""A server of the DNS that has one IPv4 address for every name: any_name.py LISTEN ADDRESS"""
import socket
import sys

A_RECORD = b"\0\1"


def listen(at):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((at, 53))
    return server


def answer(server, address):
    """For ever."""
    while True:
        question, client = server.recvfrom(2000)
        end = 12
        while question[end]:
            end += question[end] + 1
        end += 5
        is_ipv4 = question[end - 4:end - 2] == A_RECORD
        said = question[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_ipv4 else b"\0\0") + bytes(4) + question[12:end]
        server.sendto(said + (b"\xc0\x0c\0\1\0\1\0\0\0\x05\0\4" + socket.inet_aton(address) if is_ipv4 else b""), client)


if __name__ == "__main__":
    answer(listen(sys.argv[1]), sys.argv[2])
