"""docs/report.json as text: docs/report.md, and what stands between markers in other documents.

A marked text begins after a line that ends with `<!-- report: NAME -->` and ends before one with
`<!-- end of report -->`. What stands before the marker in its line (spaces, `# `) precedes each
line of the text, except of a name that begins with `code-`. docs/report.md has the marked texts as
well: tests/documentation.rs compares those with the documents, and needs no Python for it.
"""
import json
import re
import textwrap

import lab
from lab import table

REPORT, DATA = lab.ROOT / "docs/report.md", lab.ROOT / "docs/report.json"
COLUMNS = 100
MARKED = re.compile(r"^(?P<prefix>[^\n]*)<!-- report: (?P<name>[a-z-]+) -->\n(?P<text>.*?)^[^\n]*<!-- end of report -->$", re.M | re.S)
DOCUMENTS = ["README.md", "docs/operators-guide.md", "deploy/base/daemonset.yaml",
             "deploy/daemonset.yaml", "deploy/helm/kube-canary/values.yaml", "src/commands/demo/table.rs"]


def known():
    return json.loads(DATA.read_text()) if DATA.exists() else {}


def save(sections):
    """Writes the data and the report: one line of JSON per row of raw data."""
    parts = []
    for name, section in sections.items():
        raw = section["raw"] if isinstance(section["raw"], dict) else {"rows": section["raw"]}
        lists = (f"{json.dumps(key)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]" for key, rows in raw.items())
        values = (f'"{key}": {json.dumps(section[key])}' for key in ("about", "figures"))
        parts.append(f"{json.dumps(name)}: {{\n" + ",\n".join([*values, '"raw": {' + ",\n".join(lists) + "}"]) + "}")
    DATA.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    REPORT.write_text(rendered(sections))


# ---- figures as text

def number(value, digits=0):
    return "–" if value is None else f"{value:,.{digits}f}"


def memory_row(title, row):
    return [title, *(number(row.get(key)) for key in ("idle_rss_kb", "rss_kb", "private_kb", "working_set_kb")), number(row["cpu_ms"], 2)]


MEMORY_HEAD = ["", "resident before, KB", "resident after, KB", "written, KB", "working set, KB", "CPU, ms per second"]


def meshes_table(sections):
    names = {"mesh": "", "checks": ", with the default checks"}
    return table(MEMORY_HEAD, [memory_row(f"{kind}{text}", sections[name]["figures"][kind])
                               for name, text in names.items() if name in sections
                               for kind in ("agent", "judge") if kind in sections[name]["figures"]])


def scrape_table(sections):
    rows = []
    for name, title in (("mesh", "agent"), ("checks", "agent, with the default checks")):
        if name in sections:
            figures = sections[name]["figures"]["agent"]
            rows += [[f"{title}, {form}", *(number(figures[f"{form}_{key}"]) for key in ("series", "bytes", "gzip_bytes"))]
                     for form in ("text", "protobuf")]
    return table(["", "series", "bytes", "bytes with gzip"], rows)


def sizes_table(sections):
    return table(["peers", *MEMORY_HEAD[1:]], [memory_row(number(int(peers)), row) for peers, row in sections["sizes"]["figures"].items()])


def cpus_table(sections):
    figures = sections["cpus"]["figures"]
    names = {"system-musl": "system, musl (the image)", "c-shim-musl": "C shim, musl", "jemalloc": "jemalloc, as we configure it"}
    cores = list(next(iter(figures.values())))
    rows = [[names[build], *(f"{number(row[count]['rss_kb'])} ({number(row[count]['working_set_kb'])})" for count in cores)]
            for build, row in figures.items()]
    return table(["", *(f"{count} CPU{'s' * (count != '1')}" for count in cores)], rows)


def tools_table(sections):
    figures, rows = sections["tools"]["figures"], []
    names = {"kube-canary": "KubeCanary", "floor": "a minimal C program, four turns a second", "floor-kernel": "the same, kernel stamps, 10 ms",
             "floor-batch": "the same, own stamps, 10 ms"}
    for name in ("kube-canary", "floor", "floor-kernel", "floor-batch", "oping", "fping"):
        idle, busy = (figures[mode].get(name) for mode in ("idle", "busy"))
        if idle:
            rows.append([names.get(name, name), number(idle.get("cpu_us"), 1), number(idle.get("rss_kb")),
                         *(number(idle.get(key), 1) for key in ("error_p50_us", "error_p99_us")),
                         *(number(busy.get(key), 1) for key in ("p99_us", "wire_p99_us"))])
    return table(["", "CPU per probe, µs", "resident, KB", "error p50, µs", "error p99, µs", "busy: p99 reported, µs", "on the wire, µs"], rows)


def allocations_table(sections):
    figures = sections["allocations"]["figures"]
    return table(["peers", "allocations per probe", "per scrape"],
                 [[number(figures["peers"]), number(figures["probe"], 2), number(figures["scrape"])]])


# ---- marked texts

def source(sections, name):
    about = sections[name]["about"]
    return f"{about['date']}, commit {about['commit']}"


def costs(sections):
    """What it costs, in the README."""
    agent, judge = sections["mesh"]["figures"]["agent"], sections["mesh"]["figures"]["judge"]
    checked = sections["checks"]["figures"]["agent"]
    lines = [
        f"- **Memory:** {number(agent['rss_kb'])} KB resident in a mesh of 25 with three protocols, a second after 48 compressed "
        f"scrapes at once; {number(judge['rss_kb'])} KB for each of the three agents that judge, and {number(checked['rss_kb'])} KB "
        "with the default checks.",
        f"- **CPU:** {number(agent['cpu_ms'], 1)} ms per second, {number(judge['cpu_ms'], 1)} for a judge and "
        f"{number(checked['cpu_ms'], 1)} with the default checks.",
        f"- **Prometheus:** {number(agent['text_series'])} series per agent in text, or {number(agent['protobuf_series'])} with native "
        f"histograms, in {number(agent['text_gzip_bytes'] / 1000, 1)} KB with gzip ([formula](docs/metrics.md)).",
        f"- **Time:** a node that loses 30 % of what is sent to it is named after {number(sections['mesh']['figures']['named_seconds'])} s. "
        f"The verdict ends {number(sections['mesh']['figures']['ended_seconds'])} s after the losses."]
    if "cpus" in sections:
        figures = sections["cpus"]["figures"]["system-musl"]
        rss = [row["rss_kb"] for row in figures.values()]
        lines.insert(1, f"- **By CPUs:** with 200 peers, {number(min(rss))} to {number(max(rss))} KB on {next(iter(figures))} to "
                        f"{list(figures)[-1]} CPUs.")
    if "tools" in sections:
        figures = sections["tools"]["figures"]["idle"]["kube-canary"]
        lines.append(f"- **Accuracy:** the median error of a round-trip time is {number(figures['error_p50_us'], 1)} µs, beside the "
                     "kernel's stamps on the wire.")
    lines.append(f"- Measured on {source(sections, 'mesh')}, by `bench/report` ([report](docs/report.md)).")
    return "\n".join(textwrap.fill(line, COLUMNS, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False) for line in lines)


def request(sections):
    """Why the manifest requests the CPU that it does."""
    agent, judge = sections["mesh"]["figures"]["agent"], sections["checks"]["figures"]["judge"]
    return f"An agent uses {number(agent['cpu_ms'], 1)}m, and one that judges and checks {number(judge['cpu_ms'], 1)}m."


def image(sections):
    """The constant that `demo` shows."""
    return f'const IMAGE_RSS_KB: &str = "{number(sections["mesh"]["figures"]["agent"]["rss_kb"])}";'


def sizes(sections):
    parts = [sizes_table(sections)]
    if "cpus" in sections:
        parts += ["With 200 peers, resident KB by CPUs, and in brackets the working set:", cpus_table(sections)]
    if "tools" in sections:
        figures = sections["tools"]["figures"]
        cpu = figures["idle"]["kube-canary"]["cpu_us"]
        parts.append(f"A probe by ICMP takes {number(cpu, 1)} µs of CPU with {number(figures['targets'])} peers.")
    return "\n" + "\n\n".join(parts) + "\n"


TEXTS = {"costs": costs, "request": request, "code-image": image, "sizes": sizes}
NEEDED = {"costs": ("mesh", "checks"), "code-image": ("mesh",), "request": ("mesh", "checks"), "sizes": ("sizes",)}


def texts(sections):
    """The marked texts for which there are figures."""
    return {name: text(sections) for name, text in TEXTS.items() if all(section in sections for section in NEEDED[name])}


# ---- the report

MEMORY = ("*Before* is before the scrapes, and the other figures are of a second after 48 compressed scrapes at once. *Written* is "
          "Private_Dirty. The working set is what `kubectl top` shows.")
CHAPTERS = {
    "mesh": ("A mesh of 25", meshes_table, "Medians of 22 agents and three judges, each in a network namespace, with the defaults: "
             "24 peers, three protocols. " + MEMORY),
    "sizes": ("Numbers of peers", sizes_table, "One agent that probes all peers and does not judge. Each peer is an agent, too, "
              "and probes this one. " + MEMORY),
    "cpus": ("Numbers of CPUs", cpus_table, "With 200 peers, of which 24 are agents and the others only answer ICMP, by `bench/cores` in virtual machines. Resident KB "
             "after its scrapes, and in brackets the working set once charges in advance are returned."),
    "tools": ("Beside other tools", tools_table, "One probe per second to 1,000 addresses over one veth pair. *Error* is the reported "
              "round-trip time less that on the wire, probe by probe. *Busy* is with four busy loops."),
    "allocations": ("Allocations", allocations_table, "By an allocator that counts, in a build without optimization."),
}


def wrapped(text):
    return textwrap.fill(text, COLUMNS, break_on_hyphens=False, break_long_words=False)


def rendered(sections):
    parts = ["# Report", wrapped("Made by `bench/report`; do not edit. [The raw data](report.json) lies beside it. `bench/report` "
                                 "says what it measures; compare only the figures of one section.")]
    for name, (title, shown, text) in CHAPTERS.items():
        if name not in sections:
            continue
        parts += [f"## {title}", wrapped(text), shown(sections)]
        if name == "mesh":
            found = sections[name]["figures"]
            parts += [scrape_table(sections),
                      wrapped(f"A node that loses 30 % of what is sent to it was named after {number(found['named_seconds'], 1)} s, and "
                              f"no verdict named it {number(found['ended_seconds'], 1)} s after the end (medians).")]
        parts.append("\n".join(f"- {line}" for own in (("mesh", "checks") if name == "mesh" else (name,)) if own in sections
                               for line in about(sections[own]["about"])))
    parts += ["## Texts in other documents", "tests/documentation.rs holds the documents against these."]
    parts += [f"```\n<!-- report: {name} -->\n{text}\n<!-- end of report -->\n```" for name, text in texts(sections).items()]
    return "\n\n".join(parts) + "\n"


def about(facts):
    yield f"commit {facts['commit']}, {facts['date']}, `{facts['command']}`, {facts.get('seconds', 0)} s"
    yield f"{facts['binary']}, {number(facts['binary_kb'])} KB; `{facts['machine']}`, load {facts['load']}"


def replaced(document, marked):
    """A document with the marked texts in their places."""
    def text(match):
        name, prefix = match["name"], match["prefix"]
        if name not in marked:
            return match[0]
        width = COLUMNS - len(prefix)
        if name.startswith("code-"):
            return f"{prefix}<!-- report: {name} -->\n{marked[name]}\n{prefix}<!-- end of report -->"
        lines = textwrap.wrap(marked[name], width) if prefix else marked[name].splitlines()
        body = "".join(f"{prefix}{line}".rstrip() + "\n" for line in lines)
        return f"{prefix}<!-- report: {name} -->\n{body}{prefix}<!-- end of report -->"

    return MARKED.sub(text, document)


def differences(sections):
    """A line for each document that is not what the data says."""
    marked, wrong = texts(sections), []
    for name in DOCUMENTS:
        document = (lab.ROOT / name).read_text()
        if replaced(document, marked) != document:
            wrong.append(f"{name}: a marked text differs from docs/report.json: bench/report --only none --write")
    if not REPORT.exists() or REPORT.read_text() != rendered(sections):
        wrong.append("docs/report.md differs from docs/report.json: bench/report --only none --write")
    return wrong


def write(sections):
    save(sections)
    for name in DOCUMENTS:
        path = lab.ROOT / name
        path.write_text(replaced(path.read_text(), texts(sections)))
