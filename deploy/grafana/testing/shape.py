"""What a panel must have, whatever Prometheus answers."""
from . import queries

# The panels that every Grafana 10 and 11 includes.
PANELS = {"row", "stat", "table", "timeseries", "state-timeline", "heatmap"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def faults(dashboard):
    if not dashboard.get("uid") or dashboard.get("id") is not None:
        yield "a fixed uid and no id are wanted"
    if dashboard["schemaVersion"] != 39:
        yield f"schemaVersion {dashboard['schemaVersion']}: 39 is what Grafana 10.3 to 11 read without a migration"
    names = [variable["name"] for variable in dashboard["templating"]["list"]]
    if names[:3] != ["datasource", "cluster", "job"]:
        yield "the variables datasource, cluster and job come first"
    panels = list(queries.panels(dashboard))
    ids = [panel["id"] for panel in panels]
    if len(ids) != len(set(ids)):
        yield "two panels have one id"
    for panel in panels:
        yield from (f"{panel['title']}: {fault}" for fault in of_panel(panel))
    for query in queries.of(dashboard):
        if 'job=~"$job"' not in query.text:
            yield f"{query.place}: the job is not chosen by $job"
    for annotation in dashboard["annotations"]["list"]:
        if annotation["datasource"] != DATASOURCE:
            yield f"annotation {annotation['name']}: another datasource than $datasource"
    yield from overlaps([panel for panel in dashboard["panels"]])


def of_panel(panel):
    if panel["type"] not in PANELS:
        yield f"the panel type {panel['type']} is not one of {', '.join(sorted(PANELS))}"
    if panel["type"] == "row":
        return
    if not panel.get("description"):
        yield "it has no description"
    if not panel["fieldConfig"]["defaults"].get("unit"):
        yield "it has no unit"
    targets = panel["targets"]
    if not targets or len({target["refId"] for target in targets}) != len(targets):
        yield "it has no query, or two of one refId"
    for source in (panel, *targets):
        if source["datasource"] != DATASOURCE:
            yield "another datasource than $datasource"
    for target in targets:
        if "rate(" in target["expr"] and "[$__rate_interval]" not in target["expr"]:
            yield "a rate over something else than $__rate_interval"


def overlaps(panels):
    """Panels that lie on each other: Grafana would move them, each time it saves."""
    taken = {}
    for panel in panels:
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            yield f"{panel['title']}: wider than the page"
        for cell in ((x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])):
            if cell in taken:
                yield f"{panel['title']} lies on {taken[cell]}"
                break
            taken[cell] = panel["title"]


def clashes(dashboards):
    uids = [dashboard["uid"] for dashboard in dashboards]
    if len(uids) != len(set(uids)):
        yield f"two dashboards have one uid: {uids}"
