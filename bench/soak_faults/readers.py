"""Readers of the agents as they are everywhere: readers.py ADDRESS…, until SIGTERM.

Three Prometheus servers that scrape each agent, one of them by OpenMetrics, and a browser with the
page open: as many requests in an hour as else in a day.
"""

import http.client, pathlib, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scale_mesh"))
import plane

# 15 s in a day are 0.6 s in an hour.
SCRAPE_SECONDS, PAGE_SECONDS = 15 / 24, 60 / 24
SCRAPERS = (
    "text/plain;version=0.0.4",
    "text/plain;version=0.0.4",
    "application/openmetrics-text;version=1.0.0",
)
REPORTS = "/api/v1/mesh/" + ",".join(map(plane.node_name, (1, 2, 3)))
PAGE = ("/", REPORTS, "/api/v1/verdicts", "/api/v1/peers", "/readyz")


def read(address, path, accept="*/*"):
    connection = http.client.HTTPConnection(address, 9877, timeout=35)
    try:
        connection.request("GET", path, headers={"Accept": accept, "Connection": "close"})
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass  # What is refused is counted by watch.py.
    finally:
        connection.close()


def again(seconds, work):
    def run():
        while True:
            turn = time.monotonic()
            work()
            time.sleep(max(0, turn + seconds - time.monotonic()))

    threading.Thread(target=run, daemon=True).start()


for address in sys.argv[1:]:
    for accept in SCRAPERS:
        again(
            SCRAPE_SECONDS, lambda address=address, accept=accept: read(address, "/metrics", accept)
        )
    again(PAGE_SECONDS, lambda address=address: [read(address, path) for path in PAGE])
threading.Event().wait()
