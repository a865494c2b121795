"""Loopback addresses of a network namespace of its own that answer pings only while their pods live."""
import pathlib, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "reported"))
import lab


class Alive:
    """Addresses that answer, as a set of nft."""

    def __init__(self):
        lab.loopback()
        lab.nft("table inet canary { set alive { type ipv4_addr; }; chain arriving { type filter hook input priority 0; "
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
                lab.nft("\n".join(due) + "\n")

    def follow(self):
        def work():
            while True:
                self.flush()
                time.sleep(0.02)
        threading.Thread(target=work, daemon=True).start()
