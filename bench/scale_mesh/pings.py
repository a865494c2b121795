"""Loopback addresses of a network namespace of its own that answer pings only while their pods live."""
import pathlib, subprocess, threading, time


def run(*words, text=None):
    subprocess.run(words, input=text, check=True, text=True)


class Alive:
    """Addresses that answer, as a set of nft."""

    def __init__(self):
        run("ip", "link", "set", "lo", "up")
        # Each agent has its own ICMP socket: with raw sockets, each would read the packets of all
        # others.
        pathlib.Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 0")
        run("nft", "-f", "-", text="table inet canary { set alive { type ipv4_addr; }; chain arriving { type filter hook input priority 0; "
            "icmp type echo-request ip daddr != @alive counter drop; }; }")
        self.lock, self.due = threading.Lock(), []

    def started(self, address):
        with self.lock:
            self.due.append(f"add element inet canary alive {{ {address} }}")

    def stopped(self, address):
        with self.lock:
            self.due.append(f"delete element inet canary alive {{ {address} }}")

    def flush(self):
        with self.lock:
            due, self.due = self.due, []
            # Under the lock, so that no other change overtakes it, and the caller's own changes are
            # in force when this returns.
            if due:
                run("nft", "-f", "-", text="\n".join(due) + "\n")

    def follow(self):
        def work():
            while True:
                self.flush()
                time.sleep(0.02)
        threading.Thread(target=work, daemon=True).start()
