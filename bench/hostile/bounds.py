"""What an attack may cost and change at most: each bound with its reason."""

# Resident memory of any agent, KB. It is 1.4 MB at rest, and 2.5 MB during a scrape in a mesh of
# 20. The container's memory limit is far above.
RSS_KB = 4_096
# The share of one core that an attack may take of the attacked agent in all. A collection without
# end is limited to a tenth (COLLECTION_PAUSE_FACTOR of src/mesh/routes.rs), and probes and scrapes
# take 1 %.
CPU_SHARE = 0.15
# CPU seconds of one collection with one endless report. At most 60 MiB of it are read
# (REPORT_BYTES_MAX), which takes 300 ms.
CPU_COLLECTION = 0.5
# CPU seconds of a request for which no other agent is asked. 0.08 ms are usual, most of which is
# the kernel's share of a connection.
CPU_REQUEST = 0.000_3
# Seconds for a collection that a liar delays: the 5 s that a report or its reader may take
# (src/mesh/times.rs), the pause after it, and the collection itself.
COLLECTION_SECONDS = 8
AGENTS = 20


def path_once(f):
    yield f["requests"] <= 1, "more than the one request itself"


def path_loop(f):
    yield f["requests"] <= f["gets"], "more than one request for each GET"


def leaving(f):
    yield f["blamed"] == 3, "the outage is hidden"


def frames(f):
    yield f["ghosts"] == 0, "reports of nodes that do not exist"
    yield f["blamed"] == 0, "an honest node is blamed"


def impersonates(f):
    yield f["forged"] == 0, "a liar's report under an honest node's name"


def dead_addresses(f):
    yield f["took_seconds"] <= COLLECTION_SECONDS, f"a collection takes more than {COLLECTION_SECONDS} s"
    yield f["rows"] == AGENTS, "an honest report is missing"


def unknown_loop(f):
    # The honest reader's meshes ask all members. No other request may ask any.
    fan_out = sum(answers["asked"] for path, answers in f["polls"].items() if "/mesh" in path) * (AGENTS + 1)
    yield f["requests"] <= f["gets"] + fan_out, "other agents are asked"
    yield f["cpu_target"] <= CPU_SHARE * f["seconds"] + CPU_REQUEST * f["gets"], \
        f"more than {CPU_REQUEST * 1e6:.0f} µs of CPU a request"


def silent_reader(f):
    yield f["took_seconds"] <= COLLECTION_SECONDS, f"others wait for more than {COLLECTION_SECONDS} s"


def endless(f):
    yield f["cpu_target"] <= CPU_COLLECTION, f"more than {CPU_COLLECTION} s of CPU"
    yield f["took_seconds"] <= COLLECTION_SECONDS, f"a collection takes more than {COLLECTION_SECONDS} s"
    yield f["rows"] == AGENTS, "an honest report is missing"
    yield f["named"], "the report that was cut off is not named"


def forged_replies(f):
    yield f["received"] == 0, "forged replies count as received"


CHECKS = (path_once, path_loop, leaving, frames, impersonates, dead_addresses, unknown_loop, silent_reader,
          forged_replies)
OWN = {check.__name__: check for check in CHECKS} | {"endless_string": endless, "endless_objects": endless}
# Attacks whose CPU is limited by the cost of one collection, or one request.
CPU_OF_THEIR_OWN = ("endless_string", "endless_objects", "unknown_loop", "dead_addresses")


def missed(name, figures):
    """Sentences on the bounds that this attack misses."""
    checks = [(figures["lost"] == 0, f"{figures['lost']} probes between honest agents were lost"),
              (figures["rss_kb"] <= RSS_KB, f"{figures['rss_kb']:,} KB are resident, more than {RSS_KB:,}")]
    for path, answers in figures["polls"].items():
        not_answered = answers["asked"] - answers["answered"]
        checks.append((not_answered == 0, f"{path} was not answered {not_answered} of {answers['asked']} times"))
    if name not in CPU_OF_THEIR_OWN:
        share = figures["cpu_target"] / figures["seconds"]
        checks.append((share <= CPU_SHARE, f"the attacked agent takes {share:.0%} of a core, not {CPU_SHARE:.0%}"))
    return [text for holds, text in (*checks, *OWN.get(name, lambda _: ())(figures)) if not holds]
