"""The queries of a dashboard, and what they name."""
import re
from typing import NamedTuple

# Grafana's own variables, as on a dashboard over the last seconds.
BUILT_IN = {"__rate_interval": "8s", "__interval": "1s", "__range": "8s"}
# The replacement for a variable with fixed values in the dashboard: a test cannot wait for days.
CUSTOM = {"before": "5s"}


# A dashboard that needs these has labels that do not fit: they are slow over many series.
RELABELLING = re.compile(r"\blabel_(?:replace|join)\b")
HISTOGRAM = re.compile(r"_(?:rtt|send_lag|read_delay)_seconds")


class Unknown(Exception):
    """A variable that has no value."""


class Query(NamedTuple):
    place: str
    kind: str  # instant, range or label_values
    text: str


def panels(dashboard):
    """All panels, those of collapsed rows too."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def of(dashboard):
    """Every query but those of variables."""
    for panel in panels(dashboard):
        for target in panel.get("targets", []):
            yield Query(f"{panel['title']} {target['refId']}", "instant" if target["instant"] else "range", target["expr"])
    for annotation in dashboard["annotations"]["list"]:
        yield Query(f"annotation {annotation['name']}", "range", annotation["expr"])


def substitute(text, variables):
    def value(match):
        name = match[1] or match[2]
        if name not in variables:
            raise Unknown(f"${name} has no value: {text}")
        return variables[name]

    return re.sub(r"\$(\w+)|\$\{(\w+)\}", value, text)


def metrics(text):
    """The metrics that a query selects: every name before a brace or a range, and every name of ours wherever it stands."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    return set(re.findall(r"([a-zA-Z_:][\w:]*)\s*[{[]", bare)) | set(re.findall(r"\b(?:kube_canary|process)_\w+", bare))


# Each has a part of the message that the fault must cause.
MUST_FAIL = [
    (Query("", "instant", 'kube_canary_cpus{instance="nowhere"}'), "empty"),
    (Query("", "range", 'rate(kube_canary_probes_sent_total{source_node="nowhere"}[$__rate_interval])'), "empty"),
    (Query("", "label_values", "label_values(kube_canary_cpus, nowhere)"), "empty"),
    (Query("", "instant", "sum by (kube_canary_cpus"), "parse error"),
    (Query("", "instant", "kube_canary_cpus + on () kube_canary_cpus"), "many-to-many"),
    (Query("", "instant", "kube_canary_cpus or kube_canary_nonsense_total"), "no agent exports kube_canary_nonsense_total"),
    (Query("", "instant", 'kube_canary_cpus or node_load1{job="x"}'), "no agent exports node_load1"),
    (Query("", "instant", "0 * kube_canary_cpus / 0"), "NaN"),
    (Query("", "instant", "kube_canary_cpus * $nobody"), "$nobody has no value"),
    (Query("", "instant", 'label_join(kube_canary_cpus, "node", "", "instance")'), "label_join"),
    (Query("", "range", 'label_replace(kube_canary_cpus, "node", "$1", "instance", "(.*)")'), "label_replace"),
]
