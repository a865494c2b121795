"""A mesh that is rolled when asked to: `rolling.py NODES DIRECTORY PORT [SECONDS]`, in a network namespace of its own

Writes a service account's files to DIRECTORY, answers as the API server on PORT, and for all nodes' pods to pings. Says `ready`; every
line on standard input begins a rolling update of all pods, whose end it says with `rolled`. Ends with its standard input. With
SECONDS, a pod becomes unready or ready again this often.
"""
import itertools, sys, threading, time

import plane, server
from pings import Alive


def change(seconds):
    for turn in itertools.count():
        time.sleep(seconds)
        api.do(mesh.readiness, mesh.pods[turn // 2 % nodes], turn % 2 == 1)


nodes, directory, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
alive = Alive()
mesh = plane.Plane(nodes, alive.started, alive.stopped, alive.flush)
alive.follow()
api = server.Server(mesh, directory, port)
for seconds in map(float, sys.argv[4:]):
    threading.Thread(target=change, args=(seconds,), daemon=True).start()
print("ready", flush=True)
for _ in sys.stdin:
    api.do(mesh.rollout)
    while api.do(mesh.next_at) is not None:
        time.sleep(0.2)
    print("rolled", flush=True)
