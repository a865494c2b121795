#!/usr/bin/env python3
"""Cases of whole meshes for `promtool test rules`: writes them, as JSON (which YAML contains), below the directory given.

Each case says which alerts have fired by when, and that no other ever has. Agents are scraped every 15 s and the rules evaluated
as shipped, if the case does not say otherwise.
"""

import argparse
import json
from pathlib import Path

from mesh import Mesh

TWELVE = {f"n{i:02}": f"z{i % 3}" for i in range(12)}
FORTY = {f"n{i:02}": f"z{i % 3}" for i in range(40)}
# Beyond the hour before which no loss counts.
LONG = 4800


class Case:
    def __init__(self, name, mesh, seconds, checks):
        self.name, self.mesh, self.seconds, self.checks = name, mesh, seconds, checks

    def write(self, directory, rules):
        text = {
            "rule_files": [str(rules)],
            # Without an order, promtool chooses a random one. This is the worst one: an alert reads
            # the recorded values of the evaluation before. That may happen in Prometheus, where
            # each group has its own moment in the interval.
            "group_eval_order": ["kube-canary-loss", "kube-canary-agents", "kube-canary-verdicts"],
            "evaluation_interval": "15s",
            "tests": [
                {
                    "name": self.name,
                    "interval": f"{self.mesh.scrape}s",
                    "input_series": self.mesh.run(self.seconds),
                    "promql_expr_test": self.checks,
                }
            ],
        }
        (directory / f"{self.name}.json").write_text(json.dumps(text))


def samples(found, value=1):
    return [{"labels": "{" + ",".join(f'{k}="{v}"' for k, v in one.items()) + "}", "value": value} for one in found]


def firing(at, *expected):
    """Exactly these fire at that second."""
    expr = 'count by (alertname) (ALERTS{alertstate="firing"})'
    return {"expr": expr, "eval_time": f"{at}s", "exp_samples": samples({"alertname": name} for name in expected)}


def ever(at, *expected):
    """Exactly these have fired, at one time or another."""
    expr = f'group by (alertname) (max_over_time(ALERTS{{alertstate="firing"}}[{at}s]))'
    return {"expr": expr, "eval_time": f"{at}s", "exp_samples": samples({"alertname": name} for name in expected)}


def quiet(name, nodes, prepare, seconds=1200, scrape=15):
    """Nothing fires, ever."""
    mesh = Mesh(nodes, scrape)
    prepare(mesh)
    return Case(name, mesh, seconds, [ever(seconds)])


def calm():
    """What must not fire."""
    yield quiet("well", TWELVE, lambda mesh: None)

    def one_lost(mesh):
        mesh.one_of = {("n01", LONG - 300): 1}

    yield quiet("one-lost-probe", dict(list(TWELVE.items())[:3]), one_lost, seconds=LONG)
    yield quiet("one-lost-probe-at-60s", dict(list(TWELVE.items())[:3]), one_lost, seconds=LONG, scrape=60)

    def begins_with_losses(mesh):
        mesh.one_of = {("n01", 5): 60}

    yield quiet("losses-of-the-first-minute", dict(list(TWELVE.items())[:3]), begins_with_losses, seconds=LONG)

    def drain(mesh):
        mesh.leaves = {"n05": 300, "n06": 330}

    yield quiet("drain", TWELVE, drain)

    def join(mesh):
        # One after the other, so that there always is a new one.
        mesh.joins = {f"n{node:02}": 300 + 30 * node for node in range(6, 12)}

    yield quiet("join", TWELVE, join)

    def rollout(mesh):
        # As many at a time as take their turns without a pause.
        mesh.rolls = [(name, 250 + 60 * index) for index, name in enumerate(mesh.nodes)]

    yield quiet("rollout", TWELVE, rollout)
    yield quiet("rollout-of-3", dict(list(TWELVE.items())[:3]), rollout)


def lasting():
    """What fires."""
    mesh = Mesh(TWELVE)
    mesh.unscraped = {"n05", "n06"}
    missing = {"expr": 'ALERTS{alertname="KubeCanaryAgentMissing"}', "eval_time": "600s", "exp_samples": samples(
        [{"__name__": "ALERTS", "alertname": "KubeCanaryAgentMissing", "alertstate": "firing", "severity": "warning", "job": "kube-canary",
          "namespace": "kube-canary"}])}
    yield Case("agents-not-scraped", mesh, 600, [firing(600, "KubeCanaryAgentMissing"), ever(600, "KubeCanaryAgentMissing"), missing])

    mesh = Mesh(TWELVE)
    mesh.dies = {"n05": 300}
    yield Case("agent-dies", mesh, 720, [firing(570), firing(720, "KubeCanaryAgentMissing"), ever(720, "KubeCanaryAgentMissing")])

    # Judges that are no targets, while others take their place for the mesh alone.
    mesh = Mesh(TWELVE)
    mesh.unscraped = {"n00", "n01"}
    both = ("KubeCanaryAgentMissing", "KubeCanaryJudgesMissing")
    yield Case("judges-not-scraped", mesh, 600, [firing(600, *both), ever(600, *both)])


def recorded():
    """What the rules record grows with the pairs of zones, and not with the nodes."""
    for nodes in (TWELVE, FORTY):
        expr = 'count({__name__=~"kube_canary:.*"})'
        check = {"expr": expr, "eval_time": "300s", "exp_samples": samples([{}], 6 * 9)}
        yield Case(f"recorded-of-{len(nodes)}", Mesh(nodes), 300, [check])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rules", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--prefix", default="", help="of the files' names")
    arguments = parser.parse_args()
    for case in (*calm(), *lasting(), *recorded()):
        if arguments.only in case.name:
            case.name = arguments.prefix + case.name
            case.write(arguments.directory, arguments.rules.resolve())


if __name__ == "__main__":
    main()
