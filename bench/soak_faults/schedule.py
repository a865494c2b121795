"""When which fault begins and how long it takes: made from a seed, without a clock.

Four lanes run side by side, so that faults of different kinds overlap and those of one kind do
not. Each lane begins its faults at even distances and goes through all of its kinds before it
repeats one, so that even the shortest run has every kind. Every fault is over before its lane's
next begins, and before the faults' time ends.
"""

import collections, math, random

Fault = collections.namedtuple("Fault", "lane kind begin seconds")

LANES = {
    # The control plane, and the API server in front of it.
    "control": ("rollout", "churn", "flapping", "api-refused", "api-silent", "api-errors", "api-expired", "rollout-without-api"),
    # Members of the mesh that answer with lies (liars.py).
    "liars": (
        "identity-1xx",
        "identity-endless",
        "identity-other",
        "identity-addresses",
        "report-1xx",
        "report-endless",
        "report-invented",
        "report-repeated",
        "report-other",
        "report-trickle",
        "report-numbers",
        "silent",
        "closing",
    ),
    # Clients of port 9877 (attackers.py).
    "clients": ("idle", "deaf", "recursive", "unknown", "connects", "slow-head", "collect"),
    # Packets, and addresses that stop answering.
    "packets": ("forged-replies", "forged-requests", "dead-and-forged", "dead"),
}
# The shortest time between two faults of a lane: in an hour, that is 86 faults of each lane. Below
# 20 s, the next fault would cut off an agent's recovery after an outage (its back-off).
SPACING_SECONDS = 40
# Of the time until the lane's next fault.
SHARE = (0.4, 0.7)

# The phases of a run, in seconds. Agents start and are read as they will be during the faults. Then
# they are left alone and measured. Then come the faults. Then they are left alone again. The last
# phase is longer than a minute, because agents give back file pages once a minute.
Phases = collections.namedtuple("Phases", "settle before faults after")
# From the end of the faults until the measurement. Readers that do not read have been ended by
# then; what is left are timeouts of seconds, and the idle time of API connections (5 s).
QUIET_AFTER_SECONDS = 12


def phases(minutes):
    """Short runs are less strict: in the shorter time before, less may have been given back."""
    total = round(minutes * 60)
    settle, before, after = (60, 75, 80) if minutes >= 10 else (20, 25, 75)
    return Phases(settle, before, total - settle - before - after, after)


def schedule(seed, seconds):
    """Faults in the order in which they begin, from 0 to `seconds`."""
    source, faults = random.Random(seed), []
    for lane, kinds in LANES.items():
        count = max(len(kinds), math.floor(seconds / SPACING_SECONDS))
        spacing = seconds / count
        rounds = []
        while len(rounds) < count:
            rounds += source.sample(kinds, len(kinds))
        for turn, kind in enumerate(rounds[:count]):
            faults.append(Fault(lane, kind, round(turn * spacing, 3), round(spacing * source.uniform(*SHARE), 3)))
    return sorted(faults, key=lambda fault: (fault.begin, fault.lane))
