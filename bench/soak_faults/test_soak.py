"""python3 -B -m unittest discover -s bench/soak_faults: what decides, without a network."""

import collections, json, types, unittest

import paths
import forge, judge, ledger, liars, members, plane, schedule
from ledger import Excuse, Ledger, Loss

NODE = plane.node_name(7)
INTERVAL = 0.041


class Schedule(unittest.TestCase):
    def test_a_seed_gives_the_same_faults_and_another_seed_others(self):
        self.assertEqual(schedule.schedule(3, 3000), schedule.schedule(3, 3000))
        self.assertNotEqual(schedule.schedule(3, 3000), schedule.schedule(4, 3000))

    def test_even_the_shortest_run_has_every_kind_and_ends_every_fault_in_time(self):
        for minutes in (4, 5, 60):
            seconds = schedule.phases(minutes).faults
            faults = schedule.schedule(1, seconds)
            self.assertEqual(
                {(f.lane, f.kind) for f in faults}, {(lane, kind) for lane, kinds in schedule.LANES.items() for kind in kinds}
            )
            for lane in schedule.LANES:
                of = [f for f in faults if f.lane == lane]
                for one, other in zip(of, of[1:]):
                    self.assertLess(one.begin + one.seconds, other.begin)
                self.assertLess(of[-1].begin + of[-1].seconds, seconds)

    def test_the_phases_are_the_minutes(self):
        for minutes in (4, 9, 10, 60):
            self.assertEqual(sum(schedule.phases(minutes)), minutes * 60)
            self.assertGreater(schedule.phases(minutes).faults, 0)

    def test_every_kind_of_liar_is_known(self):
        self.assertEqual(set(schedule.LANES["liars"]), set(liars.LIES))
        self.assertLessEqual(set(judge.TAKING_PLACES), set(schedule.LANES["clients"]))


def row(*counters, state="ready"):
    of = dict(zip(("sent", "received", "lost"), counters))
    peers = [{"node": NODE, "network": "pod", "protocol": "icmp", "state": state, "address": "127.1.0.1", **of}] if of else []
    return {"peers": peers}


class Identity(unittest.TestCase):
    def ledger(self):
        return Ledger("a", ledger.in_flight_max(0.041, 1.0), [NODE])

    def test_what_is_under_way_is_neither_negative_nor_more_than_can_be(self):
        # 4 s at 24 probes a second.
        self.assertEqual(ledger.in_flight_max(0.041, 1.0), 99)
        for counters, holds in (
            ((100, 99, 0), True),
            ((100, 100, 0), True),
            ((100, 1, 0), True),
            ((101, 1, 0), False),
            ((100, 100, 1), False),
        ):
            it = self.ledger()
            it.report(1, row(*counters))
            self.assertEqual(it.problems == [], holds, counters)

    def test_a_counter_that_falls_is_named_unless_its_peer_was_away(self):
        it = self.ledger()
        for at, report in enumerate([row(50, 50, 0), row(), row(5, 5, 0, state="left"), row(1, 1, 0)]):
            it.report(at, report)
        self.assertEqual(it.problems, [])
        it.report(4, row(0, 0, 0))
        self.assertEqual(len(it.problems), 1)

    def test_what_was_withdrawn_of_a_peer_that_is_gone_is_known(self):
        it = self.ledger()
        for at, report in enumerate([row(50, 50, 0), row(60, 50, 3, state="left"), row()]):
            it.report(at, report)
        self.assertEqual((it.sent - it.received - it.lost, it.withdrawn), (7, 7))

    def test_a_peer_may_have_been_away_in_a_pause_of_the_samples(self):
        it = self.ledger()
        it.report(0, row(50, 50, 0))
        it.report(10, row(5, 4, 1))
        self.assertEqual((it.problems, it.losses), ([], [Loss(0, 10, "a", NODE, "pod", 1)]))

    def test_everything_is_added_up_from_the_first_sample_on(self):
        it = self.ledger()
        for at, counters in enumerate([(50, 50, 0), (60, 58, 1), (70, 66, 3)]):
            it.report(at, row(*counters))
        self.assertEqual((it.sent, it.received, it.lost), (20, 16, 3))
        self.assertEqual([loss[:2] + loss[-1:] for loss in it.losses], [(0, 1, 1), (1, 2, 2)])
        self.assertEqual([answer[:2] for answer in it.answers], [(None, 0), (0, 1), (1, 2)])

    def test_a_series_whose_difference_never_is_zero_is_named(self):
        labels = f'{{network="pod",peer_node="{NODE}",peer_zone="z"}}'

        def text(sent, received):
            return "".join(
                f"kube_canary_probes_{what}_total{labels} {value}\n"
                for what, value in (("sent", sent), ("received", received), ("lost", 1))
            )

        for second, problems in ((text(20, 19), 0), (text(20, 18), 1)):
            it = self.ledger()
            it.quiet_scrape(text(10, 8))
            it.quiet_scrape(second)
            it.identity()
            self.assertEqual(len(it.problems), problems, it.problems)


class Losses(unittest.TestCase):
    DEAD = [Excuse(None, NODE, "pod", 10, 20, "dead")]

    def test_only_losses_of_the_fault_are_excused(self):
        for loss, excused in (
            (Loss(14, 15, "a", NODE, "pod", 3), True),
            (Loss(20, 21, "a", NODE, "pod", 3), False),
            (Loss(9, 10, "a", NODE, "pod", 3), False),
            (Loss(14, 15, "a", NODE, "node", 3), False),
            (Loss(14, 15, "a", "other", "pod", 3), False),
        ):
            left = ledger.unexcused([loss], self.DEAD, [], INTERVAL)
            self.assertEqual(left == [], excused, loss)

    def test_losses_of_a_fault_that_a_later_report_shows_are_of_that_fault(self):
        """As recorded on 2026-11-23: a pod was dead from 2472.3 s to 2490.0 s, and the agent's
        places were taken, so that 3 of 25 reports were answered. The last, 15 s after the one
        before it, came 1.5 s after the fault's time. Then probes were answered again."""
        dead = [Excuse(None, NODE, "pod", 2472.28, 2496.05, "dead")]
        it = Ledger("a", 99)
        for at, *counters in (
            (2472.5, 24, 19, 0),
            (2477.5, 146, 19, 102),
            (2482.5, 268, 19, 225),
            (2497.5, 634, 201, 433),
            (2500.5, 707, 274, 433),
        ):
            it.report(at, row(*counters))
        self.assertEqual(it.problems, [])
        self.assertEqual([loss.count for loss in it.losses], [102, 123, 208])
        self.assertEqual(ledger.unexcused(it.losses, dead, [], INTERVAL), [])

    def test_a_fault_explains_no_more_losses_than_probes_are_sent_in_its_time(self):
        """From 10 to 20, at two probes a second, seen by reports that are far apart."""
        for since, at, explained in ((15, 40, 11), (0, 15, 11), (0, 40, 21), (11, 19, 50)):
            loss = Loss(since, at, "a", NODE, "pod", 50)
            left = ledger.unexcused([loss], self.DEAD, [], 0.5)
            self.assertEqual(sum(loss.count for loss in left), 50 - explained, (since, at))

    def test_the_parts_of_a_loss_have_reasons_of_their_own(self):
        excuses = [*self.DEAD, Excuse("a", NODE, "pod", 25, 30, "stopped")]
        parts = ledger.reasons([Loss(15, 27, "a", NODE, "pod", 50)], excuses, 0.5)
        self.assertEqual([(loss.count, why) for loss, why in parts], [(11, "dead"), (5, "stopped"), (34, None)])

    def test_a_pod_that_stops_in_an_outage_is_excused_until_the_agent_has_another_address(self):
        """An outage from 10 to 20; all pods stop at 12 but those whose name says otherwise."""
        moves = [
            *((0, 0, NODE, "a"), (24, 25, NODE, "b")),
            *((0, 0, "known before", "c"), (10, 11, "known before", "d")),
            *((0, 0, "stopped before", "e"), (14, 15, "stopped before", None)),
            *((15, 16, "listed late", "f"), (16, 17, "listed late", None)),
            *((0, 0, "never learnt", "g"), (0, 0, "stopped long after", "h")),
        ]
        stopped = [
            *((12, NODE, "a"), (12, "known before", "c"), (9, "stopped before", "e")),
            *((12, "listed late", "f"), (12, "never learnt", "g")),
            (96, "stopped long after", "h"),
        ]
        excuses = list(ledger.out_of_touch("a", moves, [(10, 20)], stopped))
        self.assertEqual(
            [(it.node, it.begin, it.end) for it in excuses], [(NODE, 12, 31), ("listed late", 15, 23), ("never learnt", 12, 101)]
        )
        for agent, left in (("a", 0), ("b", 1)):
            losses = [Loss(19, 20, agent, NODE, "pod", 1)]
            self.assertEqual(len(ledger.unexcused(losses, excuses, [], INTERVAL)), left)

    def test_an_agent_may_miss_the_time_between_two_outages(self):
        moves, stopped = [(0, 0, NODE, "a"), (139, 140, NODE, "b")], [(12, NODE, "a")]
        ends = [
            [it.end for it in ledger.out_of_touch("a", moves, [(10, 20), outage], stopped)] for outage in ((90, 100), (96, 100))
        ]
        self.assertEqual(ends, [[146], [101]], "until it is back, or has to be")

    def test_the_list_of_an_agent_is_followed(self):
        it = Ledger("a", 99)
        for at, report in enumerate([row(1, 1, 0), row(2, 2, 0), row(3, 3, 0, state="left"), row(4, 4, 0)]):
            it.report(at, report)
        self.assertEqual(it.moves, [(0, 0, NODE, "127.1.0.1"), (1, 2, NODE, None), (2, 3, NODE, "127.1.0.1")])

    def test_a_packet_that_was_dropped_excuses_one_loss_of_its_agent(self):
        losses = [Loss(14, 15, "a", "x", "pod", 3), Loss(15, 16, "a", "y", "pod", 3), Loss(14, 15, "b", "x", "pod", 1)]
        left = ledger.unexcused(losses, [], [(13, 14, "a", 4)], INTERVAL)
        self.assertEqual(left, [Loss(15, 16, "a", "y", "pod", 2), Loss(14, 15, "b", "x", "pod", 1)])

    def test_a_dropped_packet_and_its_loss_may_be_seen_far_apart(self):
        for since, at, excused in ((15, 40, True), (30, 40, False), (5, 9, False), (5, 11, True)):
            loss = Loss(since, at, "a", "x", "pod", 1)
            left = ledger.unexcused([loss], [], [(10, 20, "a", 1)], INTERVAL)
            self.assertEqual(left == [], excused, (since, at))

    def test_answers_of_a_dead_address_are_found(self):
        answers = [(at - 1, at, NODE, "pod", 24) for at in range(30)]
        found = [answer[1] for answer in ledger.forged(answers, self.DEAD)]
        self.assertEqual(found, list(range(12, 21)))
        for other in ((14, 15, NODE, "node", 1), (None, 15, NODE, "pod", 1)):
            self.assertEqual(ledger.forged([other], self.DEAD), [])


class States(unittest.TestCase):
    STATE = {"descriptors": 30, "sockets": 14, "threads": 5, "rss_kb": 2000, "anonymous_kb": 700, "live_bytes": 300_000}

    def test_the_lowest_of_a_time_is_compared(self):
        figures = ((1, 30, None), (2, 34, None), (3, 33, 900), (9, 1, 1))
        states = [self.STATE | {"at": at, "descriptors": descriptors, "live_bytes": live} for at, descriptors, live in figures]
        before = ledger.lowest(states, 2, 5)
        self.assertEqual((before["descriptors"], before["live_bytes"]), (33, 900))
        self.assertNotIn("live_bytes", ledger.lowest(states, 1, 2))

    def test_one_descriptor_more_is_named_and_a_tenth_of_memory_is_not(self):
        for figure, value, count in (
            ("threads", 5, 0), ("descriptors", 31, 1), ("descriptors", 29, 0), ("threads", 6, 1), ("rss_kb", 2200, 0),
            ("rss_kb", 2201, 1), ("anonymous_kb", 850, 0), ("anonymous_kb", 851, 1), ("live_bytes", 365_536, 0),
            ("live_bytes", 365_537, 1),
        ):
            self.assertEqual(len(list(ledger.grown("a", self.STATE, self.STATE | {figure: value}))), count, (figure, value))

    def test_of_the_leak_finder_only_what_is_counted_is_compared(self):
        for more, count in (({"rss_kb": 9000, "anonymous_kb": 9000}, 0), ({"sockets": 15}, 1)):
            grown = list(ledger.grown(ledger.LEAK_FINDER, self.STATE, self.STATE | more))
            self.assertEqual(len(grown), count, more)


class Mesh(unittest.TestCase):
    def mesh(self):
        here, alive = {}, types.SimpleNamespace(started=lambda _: None, stopped=lambda _: None, flush=lambda: None)
        mesh = members.Mesh(33, 6, here.__setitem__, here.pop, alive, 1)
        return mesh, here

    def assert_whole(self, mesh, here, nodes):
        self.assertTrue(mesh.is_calm())
        self.assertEqual(set(mesh.pods), nodes)
        self.assertEqual(here, {pod.address: pod.node for pod in mesh.pods.values()})
        listed = collections.Counter(e["targetRef"]["uid"] for item in mesh.slices.values() for e in item["endpoints"])
        self.assertEqual(listed, collections.Counter(pod.uid for pod in mesh.pods.values()))
        self.assertTrue(all(pod.ready for pod in mesh.pods.values()))

    def test_nodes_leave_join_and_roll_whatever_happens_at_the_same_time(self):
        mesh, here = self.mesh()
        fixed = [mesh.pods[k].address for k in range(6)]
        mesh.rollout()
        for _ in range(200):
            mesh.step()
        mesh.leave([8, 9, 10])
        mesh.replace([9, 11, 12])
        for _ in range(50):
            mesh.step()
        mesh.rollout()
        mesh.run()
        self.assert_whole(mesh, here, set(range(33)) - {8, 9, 10})
        mesh.join([8, 9])
        mesh.run()
        self.assert_whole(mesh, here, set(range(33)) - {10})
        mesh.leave([11])
        mesh.join([10, 11])
        mesh.run()
        self.assert_whole(mesh, here, set(range(33)))
        self.assertEqual([mesh.pods[k].address for k in range(6)], fixed)

    def test_old_events_are_no_longer_there_to_watch_from(self):
        mesh, _ = self.mesh()
        kept, members.EVENTS_KEPT = members.EVENTS_KEPT, 10
        self.addCleanup(setattr, members, "EVENTS_KEPT", kept)
        mesh.rollout()
        mesh.run()
        whole = [event for event in mesh.events if event.item]
        self.assertEqual(whole, mesh.events[-10:])
        self.assertEqual(int(mesh.history_from), mesh.events[-11].version)


class Packets(unittest.TestCase):
    def test_a_forged_packet_is_as_a_kernel_takes_it(self):
        data = forge.ip_packet("127.1.0.7", "127.0.0.1", forge.echo(forge.ECHO_REPLY, 513, 7, b"odd"))
        self.assertEqual((data[0], data[9], data[12:20]), (0x45, 1, bytes([127, 1, 0, 7, 127, 0, 0, 1])))
        self.assertEqual((data[20:22], data[24:28], data[28:]), (b"\0\0", bytes([2, 1, 0, 7]), b"odd"))
        self.assertEqual(forge.checksum(data[20:]), 0)


class Lies(unittest.TestCase):
    def answer(self, kind, path):
        alive = types.SimpleNamespace(started=lambda _: None, stopped=lambda _: None, flush=lambda: None)
        mesh = members.Mesh(20, 3, lambda *_: None, lambda _: None, alive, 1)
        return liars.answer(kind, path, liars.Self(7, mesh))["head"]

    def test_the_truth_is_a_report_and_an_identity(self):
        report = json.loads(self.answer(None, "/api/v1/peers").partition("\r\n\r\n")[2])
        self.assertEqual((report["source"]["node"], len(report["peers"])), (NODE, 19))
        identity = json.loads(self.answer(None, "/api/v1/identity").partition("\r\n\r\n")[2])
        self.assertEqual((identity["node"], identity["node_addresses"]), (NODE, [liars.node_address(7)]))

    def test_a_lie_is_about_one_path(self):
        for kind in ("report-invented", "report-repeated", "report-other", "report-numbers"):
            body = self.answer(kind, "/api/v1/peers")
            self.assertNotEqual(body, self.answer(None, "/api/v1/peers"), kind)
            self.assertEqual(self.answer(kind, "/api/v1/identity"), self.answer(None, "/api/v1/identity"), kind)
        self.assertNotIn(NODE, self.answer("identity-other", "/api/v1/identity"))
