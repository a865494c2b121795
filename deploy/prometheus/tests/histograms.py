#!/usr/bin/env python3
"""What the rules make of histograms, in a real Prometheus that has them natively, and in one that has the classic ones.

    histograms.py RULES

promtool of Prometheus 2.42 has no native histograms in its unit tests. So the agents of deploy/scraping serve known distributions,
and the recorded series must hold their quantiles: to a bin of 9 % natively, and as interpolated within a bucket otherwise. Groups
are evaluated every second here. What follows from these series is a matter of floats, and of the other tests.
"""
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from scraping import agents  # noqa: E402
from scraping.prometheus import Prometheus  # noqa: E402

P50 = "kube_canary:zone_pair_rtt_seconds:p50_5m"
MEAN = "kube_canary:zone_pair_rtt_seconds:mean_5m"
STARVED = 'kube_canary:agent_starved:value{reason="send_lag"}'
# All expressions that read histograms. No other expression may read one.
RECORDED = {"kube_canary:zone_pair_rtt_seconds:p50_5m", "kube_canary:zone_pair_rtt_seconds:mean_5m", "kube_canary:agent_starved:value"}
BIN = 2 ** (1 / 2**agents.SCHEMA)


def interpolated(median, q):
    """The quantile of a distribution as classic buckets have it."""
    histogram = agents.Histogram(median, 20_000)
    rank, below, lower = q * histogram.count, 0, 0.0
    for bound, count in zip(agents.BOUNDS, histogram.cumulative):
        if count >= rank:
            return lower + (bound - lower) * (rank - below) / (count - below)
        below, lower = count, bound
    raise AssertionError("beyond the last bound")


def close(value, expected, factor):
    return expected / factor <= value <= expected * factor


def faults(prometheus, native):
    """Returns the faults of the recorded series."""
    p50 = {(labels["source_zone"], labels["peer_zone"]): value for labels, value in prometheus.query(P50)}
    mean = {(labels["source_zone"], labels["peer_zone"]): value for labels, value in prometheus.query(MEAN)}
    pairs = {pair: median for (a, b), median in agents.RTT.items() for pair in ((a, b), (b, a))}
    if set(p50) != set(pairs):
        yield f"{P50} is of {sorted(p50)}"
    for pair, value in p50.items():
        expected, factor = (pairs[pair], BIN) if native else (interpolated(pairs[pair], 0.5), 1.05)
        if not close(value, expected, factor):
            yield f"{P50} of {pair} is {value}, not {expected}"
    # The mean is used where the median is coarse.
    if set(mean) != (set() if native else set(pairs)):
        yield f"{MEAN} is of {sorted(mean)}"
    for pair, value in mean.items():
        if not close(value, agents.mean(pairs[pair]), 1.05):
            yield f"{MEAN} of {pair} is {value}, not {agents.mean(pairs[pair])}"
    starved = [(labels["node"], value) for labels, value in prometheus.query(STARVED)]
    expected, factor = (agents.quantile(agents.LAG["c"], 0.95), BIN) if native else (interpolated(agents.LAG["c"], 0.95), 1.05)
    if [node for node, _ in starved] != ["c"] or not close(starved[0][1], expected, factor):
        yield f"{STARVED} is {starved}, not of c, {expected}"


def main():
    (rules,) = map(pathlib.Path, sys.argv[1:])
    text = re.sub(r"^( *interval): \d+s$", r"\1: 1s", rules.read_text(), flags=re.MULTILINE)
    reading = re.compile(r"kube_canary_(?:zone_)?(?:probe_rtt|probe_send_lag|reply_read_delay)_seconds(?:_bucket|_sum|_count)?\[")
    found = {rule.split("\n")[0] for rule in re.split(r"^ *- (?:record|alert): ", text, flags=re.MULTILINE)[1:] if reading.search(rule)}
    if found != RECORDED:
        sys.exit(f"rules that read histograms, which this test does not know: {found ^ RECORDED}")
    running = [agents.Agent(node) for node in agents.ZONES]
    targets = [agent.target for agent in running]
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        hastened = pathlib.Path(directory, "rules.yaml")
        hastened.write_text(text)
        for name, native in (("native", True), ("classic", False)):
            with Prometheus(directory, name, targets, native, hastened) as prometheus:
                series = "kube_canary_probe_rtt_seconds"
                there, absent = (series, f"{series}_bucket") if native else (f"{series}_bucket", series)
                # The rates of a few scrapes are nearly those of whole cycles.
                prometheus.wait_for([f"min(count_over_time({there}[1m])) > 8", P50, STARVED])
                wrong += [f"{name}: {fault}" for fault in faults(prometheus, native)]
                if prometheus.query(absent):
                    wrong.append(f"{name}: {absent} is there as well")
    for agent in running:
        agent.close()
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{rules.name}: {len(found)} rules read histograms, native and classic ones alike")


if __name__ == "__main__":
    main()
