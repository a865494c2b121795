"""A Prometheus as a dashboard asks it."""
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from scraping.prometheus import Prometheus, Refused, value  # noqa: E402, F401


class Server(Prometheus):
    """Answers every query for one time, at which all that a dashboard asks for is there. So no answer depends on when it is asked."""

    at = None
    has_native = False

    def settled(self, targets):
        """The latest time up to which no sample is still to come, or 0.

        A target's scrapes follow each other and are stored whole, a failed one as well. So none is
        in progress whose samples are older than the newest ones of each target.
        """
        last = self.query(f"min(timestamp(up)) and on () (count(up) == {targets})", time.time())
        return last[0][1] if last else 0.0

    def exported(self):
        """Every name that was scraped. Prometheus adds names of its own. A histogram has its names of both forms."""
        names = self.values("label_values", 'label_values({job="kube-canary"}, __name__)')
        families = self.get("/api/v1/metadata")
        histograms = {name for name, known in families.items() if known[0]["type"] == "histogram"}
        both = {name + suffix for name in histograms for suffix in ("", "_bucket", "_sum", "_count")}
        return {name for name in names if name != "up" and not name.startswith("scrape_")} | both

    def values(self, kind, text, at=None):
        """What a query returns at the pinned time, or at another one; of a histogram the count."""
        at = self.at if at is None else at
        if kind == "label_values":
            selector, label = text.removeprefix("label_values(").removesuffix(")").rsplit(",", 1)
            return self.get(f"/api/v1/label/{label.strip()}/values", **{"match[]": selector, "start": at - 60, "end": at})
        if kind == "instant":
            return [number for _, number in self.query(text, at)]
        answer = self.get("/api/v1/query_range", query=text, start=at - 3, end=at, step=1)
        return [value({kind.removesuffix("s"): one}) for series in answer["result"] for kind in ("values", "histograms")
                for one in series.get(kind, [])]
