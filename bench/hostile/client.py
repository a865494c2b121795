"""A client that asks too much: `client.py loop ADDRESS PATH CLIENTS`, `client.py every SECONDS ADDRESS
PATH`, `client.py silent ADDRESS PATH`. Each goes on until the end of its standard input.

loop: CLIENTS threads ask again as soon as they have an answer. At the end it prints how often each
status came, as JSON (0: no answer).
every: asks once in this many SECONDS, without waiting for answers.
silent: asks once and reads nothing.
"""
import collections, json, socket, sys, threading, time

from mesh import answer, lab

ANSWER_SECONDS = 40


def loop(address, path, clients):
    answers, over = collections.Counter(), threading.Event()

    def ask():
        while not over.is_set():
            answers[answer(address, path, ANSWER_SECONDS)[0]] += 1

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(int(clients))]
    for thread in threads:
        thread.start()
    until_end()
    over.set()
    for thread in threads:
        thread.join()
    print(json.dumps(answers), flush=True)


def until_end():
    print("ready", flush=True)
    sys.stdin.read()


def ask_only(address, path):
    """Sends a request, and returns the connection. Nothing is read of it."""
    connection = socket.socket()
    # The smallest buffer that the kernel accepts: it holds little for this client.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    connection.connect((address, lab.PORT))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {address}:{lab.PORT}\r\n\r\n".encode())
    return connection


def every(seconds, address, path):
    def ask():
        connections = []
        while True:
            connections.append(ask_only(address, path))
            time.sleep(float(seconds))

    threading.Thread(target=ask, daemon=True).start()
    until_end()


def silent(address, path):
    connection = ask_only(address, path)
    until_end()
    connection.close()


if __name__ == "__main__":
    {"loop": loop, "every": every, "silent": silent}[sys.argv[1]](*sys.argv[2:])
