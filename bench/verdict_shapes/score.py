"""Compares the kind, subject and direction of each verdict with the drawn faults."""
import re


def names_in(subject):
    """The names in a subject, whatever stands between them."""
    return frozenset(re.findall(r"[A-Za-z0-9]+", subject))


def lost_ways(verdict):
    """What a verdict says of the direction: the node's way, or the link's source; None: both, or nothing."""
    direction = verdict.get("direction", "both")
    if direction == "both":
        return None
    if verdict["kind"] == "link":
        ends = re.findall(r"[A-Za-z0-9]+", verdict["subject"])
        return ends[0] if direction == "out" else ends[-1]
    return direction


ANY = "any"


class Claim:
    """A verdict that fits: its kind (None is any), its names, the way that loses (None if both do, or `ANY`), its
    network (None is any), and its protocol and address family (None if none is named, or `ANY`)."""

    def __init__(self, kind, names=(), way=None, at_most_likely=False, network=None, protocol=ANY, family=ANY):
        self.kind, self.names, self.way, self.at_most_likely = kind, frozenset(names), way, at_most_likely
        self.network, self.protocol, self.family = network, protocol, family

    def fits(self, verdict):
        if self.kind not in (None, verdict["kind"]):
            return False
        if self.network not in (None, verdict.get("network")):
            return False
        named = ("protocol", self.protocol), ("family", self.family)
        if any(wanted not in (ANY, verdict.get(field)) for field, wanted in named):
            return False
        if self.names != names_in(verdict["subject"]):
            return False
        if self.at_most_likely and verdict.get("confidence", "likely") != "likely":
            return False
        said = lost_ways(verdict)
        # It may say that it cannot tell. It may not say another way.
        return said is None or self.kind is None or self.way in (ANY, said)


class Expected:
    """`required` verdicts must be there, `allowed` ones may be. `guilty` are the names of nodes, zones and
    domains that are really bad: a verdict of another kind about them blames nothing innocent."""

    def __init__(self, required=(), allowed=(), guilty=()):
        self.required, self.allowed, self.guilty = list(required), list(allowed), frozenset(guilty)


def is_innocent(verdict, expected, mesh):
    """Whether what a verdict blames has no fault."""
    kind, names = verdict["kind"], names_in(verdict["subject"])
    if kind in ("mesh", "paths"):
        return False
    if kind == "link" and len(names) == 2:
        a, b = sorted(names)
        if a in mesh.zone and b in mesh.zone and (mesh.fault_loss(a, b) > 0 or mesh.fault_loss(b, a) > 0):
            return False
    if kind in ("zone_pair", "link"):
        return not names & expected.guilty
    return not names <= expected.guilty


def scored(verdicts, expected, mesh):
    """Whether an innocent is blamed, all required verdicts are there, and no others are."""
    found = [[verdict for verdict in verdicts if claim.fits(verdict)] for claim in expected.required]
    claims = expected.required + expected.allowed
    others = [verdict for verdict in verdicts if not any(claim.fits(verdict) for claim in claims)]
    twice = any(len(fitting) > 1 for fitting in found)
    innocent = any(is_innocent(verdict, expected, mesh) for verdict in others)
    right = all(found)
    return {"innocent": innocent, "right": right, "exact": right and not others and not twice}
