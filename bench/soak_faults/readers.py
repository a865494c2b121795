"""Readers of the agents as they are everywhere: readers.py ADDRESS…, until SIGTERM.

Three Prometheus servers that scrape each agent, one of them by OpenMetrics, and a browser with the
page open: as many requests in an hour as else in a day.
"""
import sys, threading, time

import paths
import lab
from attackers import REPORTS

# 15 s in a day are 0.6 s in an hour.
SCRAPE_SECONDS, PAGE_SECONDS = 15 / 24, 60 / 24
TEXT, OPENMETRICS = "text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"
PAGE = ("/", REPORTS, "/api/v1/verdicts", "/api/v1/peers", "/readyz")


def again(seconds, address, pages, accept="*/*"):
    def run():
        while True:
            turn = time.monotonic()
            for path in pages:
                try:
                    lab.get(address, path, 35, lab.CLOSE | {"Accept": accept})
                except OSError:
                    pass  # What is refused is counted by watch.py.
            time.sleep(max(0, turn + seconds - time.monotonic()))

    threading.Thread(target=run, daemon=True).start()


for address in sys.argv[1:]:
    for accept in (TEXT, TEXT, OPENMETRICS):
        again(SCRAPE_SECONDS, address, ["/metrics"], accept)
    again(PAGE_SECONDS, address, PAGE)
threading.Event().wait()
