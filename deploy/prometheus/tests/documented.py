#!/usr/bin/env python3
"""Every alert has its section in the documentation, its runbook_url leads there, and no section is left over. No rule reads links.

    documented.py RULES ALERTS METRICS
"""

import re
import sys
import tomllib
from pathlib import Path

rules, document, metrics = (Path(argument).read_text() for argument in sys.argv[1:])
alerts = re.findall(r"^ *- alert: (\w+)$", rules, re.MULTILINE)
runbooks = re.findall(r"^ *runbook_url: (\S+)$", rules, re.MULTILINE)
sections = re.findall(r"^### (KubeCanary\w+)$", document, re.MULTILINE)
repository = tomllib.loads((Path(__file__).resolve().parents[3] / "Cargo.toml").read_text())["package"]["repository"]
wanted = [f"{repository}/blob/main/docs/alerts.md#{alert.lower()}" for alert in alerts]
assert alerts and runbooks == wanted, f"runbook_url: {set(runbooks) ^ set(wanted)}"
assert sorted(sections) == sorted(alerts), f"sections of {sys.argv[2]}: {set(sections) ^ set(alerts)}"
# A full mesh has the square of its nodes of them.
links = re.findall(r"^\| `(kube_canary_\w+)`", metrics.split("\n## Per link\n")[1].split("\n## ")[0], re.MULTILINE)
expressions = "\n".join(line.split("#")[0] for line in rules.split("\n"))
reading = [name for name in links if re.search(rf"\b{name}(_bucket|_sum|_count)?\b", expressions)]
assert len(links) > 5 and not reading, f"rules that read series of links: {reading} of {links}"
print(f"{sys.argv[2]}: {len(alerts)} alerts, a section each; no rule reads one of the {len(links)} metrics of links")
