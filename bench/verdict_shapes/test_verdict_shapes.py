"""python3 -m unittest bench/verdict_shapes/test_verdict_shapes.py: the drawn meshes, and their scores."""
import json, pathlib, random, sys, unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import meshes, shapes
from score import ANY, Claim, Expected, scored


def verdict(kind, subject, direction="both", **more):
    return {"kind": kind, "subject": subject, "direction": direction, **more}


def mesh(size=6, zones=2):
    return meshes.Mesh(random.Random(1), size, zones)


class Drawing(unittest.TestCase):
    def test_a_binomial_has_its_mean_its_variance_and_its_ends(self):
        rng, trials, share = random.Random(2), 60, 0.05
        drawn = [meshes.binomial(rng, trials, share) for _ in range(20_000)]
        mean = sum(drawn) / len(drawn)
        variance = sum((k - mean) ** 2 for k in drawn) / len(drawn)
        # Both within six standard errors.
        self.assertAlmostEqual(mean, trials * share, delta=6 * (trials * share * (1 - share) / 20_000) ** 0.5)
        self.assertAlmostEqual(variance, trials * share * (1 - share), delta=0.2)
        self.assertEqual([meshes.binomial(rng, 60, end) for end in (0, 1)], [0, 60])

    def test_a_round_trip_takes_both_ways_and_a_request_is_counted_where_it_arrives(self):
        one = mesh()
        a, b = one.nodes[:2]
        one.seconds = dict.fromkeys(one.nodes, 60)
        one.ways.append(lambda source, to: 1.0 if (source, to) == (a, b) else 0.0)
        one.measure()
        self.assertEqual({pair for pair, (_, lost, _) in one.cells.items() if lost}, {(a, b), (b, a)})
        self.assertEqual((one.received[b], one.received[a]), (4 * 60, 5 * 60))

    def test_a_filter_drops_the_requests_of_its_source_alone(self):
        one = mesh()
        source = one.nodes[0]
        one.filters.append(lambda a, b: 1.0 if a == source else 0.0)
        one.measure()
        self.assertEqual({a for (a, _), (_, lost, _) in one.cells.items() if lost}, {source})

    def test_two_ways_lose_together_what_a_link_does(self):
        each = meshes.one_way(0.02)
        self.assertAlmostEqual(1 - (1 - each) ** 2, 0.02)

    def test_in_a_partial_mesh_everyone_has_24_peers_and_watchers_of_other_zones(self):
        one = meshes.Mesh(random.Random(3), 100, 3, partial=True)
        watchers = {n: [a for a in one.nodes if n in one.peers[a]] for n in one.nodes}
        self.assertEqual({len(peers) for peers in one.peers.values()}, {24})
        self.assertGreaterEqual(min(map(len, watchers.values())), 12)
        others = [sum(one.zone[a] != one.zone[n] for a in watchers[n]) for n in one.nodes]
        self.assertGreaterEqual(min(others), 6)

    def test_reports_are_a_json_object_a_line_with_the_source_first(self):
        one = mesh().measure()
        one.absent.add(one.nodes[2])
        lines = one.reports().splitlines()
        self.assertEqual(len(lines), 5)
        for line in lines:
            report = json.loads(line)
            self.assertEqual((list(report), len(report["peers"])), (["source", "peers"], 5))
            for peer in report["peers"]:
                recent = peer["recent"]
                self.assertEqual(recent["received"] + recent["lost"], recent["sent"])

    def test_a_key_is_a_mesh_and_another_seed_another(self):
        def reports(seed):
            drawn, _ = shapes.two(random.Random(seed), 30, 3, False, ("paths", "cut"))
            return drawn.measure().reports()
        self.assertEqual(reports("1/two/0/0"), reports("1/two/0/0"))
        self.assertNotEqual(reports("1/two/0/0"), reports("2/two/0/0"))

    def test_a_lost_handshake_is_soon_followed_by_another(self):
        rng = random.Random(4)
        drawn = [meshes.handshakes(rng, 60, share) for share in (0, 1) for _ in range(100)]
        self.assertEqual({probes for probes in drawn[:100]}, {(6, 0)})
        self.assertTrue(all(25 <= begun == lost <= 30 for begun, lost in drawn[100:]))

    def test_a_report_has_each_protocol_and_what_cannot_be_sent_with_its_reason(self):
        one = mesh()
        labels = shapes.protocols(one)
        a = one.nodes[0]
        one.unsent.append(lambda source, to, label: "no_route" if source == a and label in labels["udp"] else None)
        one.of_labels.append((labels["tcp"], lambda source, to: 1.0 if a in (source, to) else 0.0))
        peers = json.loads(one.measure().reports().splitlines()[0])["peers"]
        self.assertEqual([peer["protocol"] for peer in peers], ["icmp", "udp", "tcp"] * 5)
        self.assertEqual({(peer["protocol"], peer["recent"].get("send_error_reason"), peer["recent"]["lost"] > 0)
                          for peer in peers}, {("icmp", None, False), ("udp", "no_route", False), ("tcp", None, True)})


class Shapes(unittest.TestCase):
    def test_the_first_mesh_of_every_shape_is_drawn_and_its_faults_are_there(self):
        for name, shape in shapes.SHAPES.items():
            for case in [case for case in shape.cases if case["size"] <= 30][:3]:
                drawn, expected = shape.draw(random.Random(name), **case)
                drawn.measure()
                self.assertEqual(len(drawn.nodes), case["size"], name)
                ideal = [verdict(claim.kind, " ".join(claim.names) or "*", network=claim.network, protocol=claim.protocol,
                                 family=claim.family) for claim in expected.required]
                result = scored(ideal, expected, drawn)
                self.assertEqual(result, {"innocent": False, "right": True, "exact": True}, name)
                self.assertTrue(expected.required or not expected.guilty or name.startswith(("liar", "policy")), name)

    def test_a_group_of_a_partition_is_no_zone(self):
        for seed in range(50):
            drawn, expected = shapes.partition(random.Random(seed), 12, 3, False, (0.5, 0.5))
            group = {b for b in drawn.nodes if drawn.fault_loss(drawn.nodes[0], b) == 0}
            self.assertFalse(shapes.is_zone(drawn, group))
            self.assertIn(min(group), expected.required[0].names)


class Scoring(unittest.TestCase):
    def setUp(self):
        self.mesh = mesh()
        self.a, self.b, self.c = self.mesh.nodes[:3]

    def result(self, verdicts, expected):
        found = scored(verdicts, expected, self.mesh)
        return found["innocent"], found["right"], found["exact"]

    def test_a_bad_node_is_named_once_and_not_with_its_victims(self):
        expected = Expected([shapes.bad_node(self.mesh, self.a, 0.5)], guilty=[self.a])
        bad, link = verdict("node", self.a), verdict("link", f"{self.b}->{self.a}")
        for verdicts, result in [
            ([bad], (False, True, True)), ([], (False, False, False)), ([bad, bad], (False, True, False)),
            # Its links do lose: not innocent, but the cause is the node.
            ([bad, link], (False, True, False)), ([link], (False, False, False)),
            ([verdict("node", self.b)], (True, False, False)), ([bad, verdict("zone", "z1")], (True, True, False)),
            ([verdict("node", self.a, "in")], (False, False, False)),
            ([bad, verdict("agent_starved", self.b)], (True, True, False)),
        ]:
            self.assertEqual(self.result(verdicts, expected), result, verdicts)

    def test_the_way_that_loses_may_be_left_out_and_must_not_be_the_other(self):
        expected = Expected([Claim("link", [self.a, self.b], self.a)])
        for subject, direction, fits in [
            (f"{self.a}->{self.b}", "out", True), (f"{self.b}->{self.a}", "in", True), (f"{self.b}->{self.a}", "both", True),
            (f"{self.a}->{self.b}", "in", False), (f"{self.b}->{self.a}", "out", False),
        ]:
            self.assertEqual(self.result([verdict("link", subject, direction)], expected)[1], fits, (subject, direction))

    def test_a_protocol_and_a_family_are_those_of_the_fault_or_not_said(self):
        claim = Claim("node", [self.a], protocol="udp", family=None)
        expected = Expected([claim], guilty=[self.a])
        for protocol, family, fits in [("udp", None, True), (None, None, False), ("udp", "ipv6", False), ("tcp", None, False)]:
            said = verdict("node", self.a, protocol=protocol, family=family)
            self.assertEqual(self.result([said], expected)[1], fits, (protocol, family))

    def test_a_subject_is_its_names_whatever_stands_between(self):
        expected = Expected([Claim("partition", [self.a, self.b])])
        for subject in (f"{self.a}|{self.b}", f"{self.b} | {self.a}", f"{self.a},{self.b}"):
            self.assertEqual(self.result([verdict("partition", subject)], expected), (False, True, True))
        self.assertEqual(self.result([verdict("partition", f"{self.a}|{self.c}")], expected), (True, False, False))
        self.assertEqual(self.result([verdict("mesh", "*")], Expected([Claim("mesh")])), (False, True, True))

    def test_a_liar_gets_itself_named_at_most_and_a_link_if_it_is_not_certain(self):
        allowed = [Claim(None, [self.a]), Claim("link", [self.a, self.b], ANY, at_most_likely=True)]
        expected = Expected(allowed=allowed, guilty=[self.a])
        link = f"{self.a}->{self.b}"
        for said, result in [
            (verdict("node", self.a, "out"), (False, True, True)), (verdict("agent_starved", self.a), (False, True, True)),
            (verdict("link", link, confidence="likely"), (False, True, True)), (verdict("link", link), (False, True, True)),
            (verdict("link", link, confidence="certain"), (False, True, False)),
            (verdict("node", self.b), (True, True, False)), (verdict("link", f"{self.c}->{self.b}"), (True, True, False)),
        ]:
            self.assertEqual(self.result([said], expected), result, said)
