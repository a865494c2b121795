#!/usr/bin/python3
"""Reads an agent's text and OpenMetrics with Python's prometheus_client, a second parser of both.

    tests/exposition/parsers.py http://HOST:PORT/metrics

Needs Debian's python3-prometheus-client. Exits with 1 and what is wrong if a parser refuses a
scrape, a series comes twice, a counter or histogram has no `_created` in OpenMetrics, or one format
has a series that the other has not. Prints one line per format.
"""
import gzip
import sys
import urllib.request

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

TIMEOUT_SECONDS = 30
FORMATS = {
    "text": ("text/plain;version=0.0.4", "text/plain; version=0.0.4", parser.text_string_to_metric_families),
    "openmetrics": ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text; version=1.0.0",
                    openmetrics_parser.text_string_to_metric_families),
}


def fetch(url, accept, encoding):
    """The Content-Type, and the text, decompressed."""
    request = urllib.request.Request(url, headers={"Accept": accept, "Accept-Encoding": encoding})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        body = answer.read()
        if answer.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        return answer.headers["Content-Type"], body.decode()


def key(sample):
    """Name and labels; bounds are numbers, which the formats write differently."""
    labels = {name: float(value) if name == "le" else value for name, value in sample.labels.items()}
    return sample.name, tuple(sorted(labels.items()))


def read(families):
    """Returns the series of a scrape and its faults: all series but `_created`, and these apart."""
    series, created, faults = {}, set(), []
    for family in families:
        for sample in family.samples:
            name, labels = key(sample)
            if sample.name.endswith("_created"):
                created.add((name.removesuffix("_created"), labels))
            elif (name, labels) in series:
                faults.append(f"{name}{dict(labels)}: twice")
            else:
                series[name, labels] = family.type
    return series, created, faults


def begins(series):
    """What must have a time of creation: not the kernel's counters, which may be older than the process."""
    for (name, labels), kind in series.items():
        if name.startswith(("kube_canary_echo_", "kube_canary_cgroup_throttled_")):
            continue
        if kind == "counter":
            yield name.removesuffix("_total"), labels
        elif kind == "histogram" and name.endswith("_count"):
            yield name.removesuffix("_count"), labels


def main(url):
    faults, seen = [], {}
    for format_name, (accept, expected, parse) in FORMATS.items():
        for encoding in ("identity", "gzip"):
            content_type, text = fetch(url, accept, encoding)
            if not content_type.startswith(expected):
                faults.append(f"{format_name}: Content-Type {content_type}")
                continue
            try:
                series, created, wrong = read(parse(text))
            except ValueError as error:
                faults.append(f"{format_name}, {encoding}: refused: {error}")
                continue
            if format_name == "openmetrics":
                missing = [begun for begun in begins(series) if begun not in created]
                wrong += [f"{name}{dict(labels)}: no _created" for name, labels in missing]
            faults += [f"{format_name}, {encoding}: {fault}" for fault in wrong]
            print(f"{format_name}, {encoding}: {len(series)} series by prometheus_client")
            first, names = seen.setdefault("first", (format_name, set(series)))
            for name, labels in names.symmetric_difference(series):
                faults.append(f"{name}{dict(labels)}: in one of {first} and {format_name}")
    print("\n".join(faults[:20]), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
