"""python3 -m unittest bench/scale_mesh/test_watching.py: what an agent of the model asks and counts."""
import pathlib, sys, unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from watching import HEAD, REQUEST, Agent, Design, Record


class Watching(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.calm, cls.abrupt = Record(300), Record(300, stop=(0.3, 2.3))

    def test_a_watch_of_whole_slices_brings_every_event_and_asks_nothing(self):
        agent = Agent(self.calm, Design(whole=True), 0.05, 0.02, 1)
        self.assertEqual(agent.bytes, sum(change.event for change in self.calm.rolled))
        self.assertEqual((agent.reads, agent.lost, agent.withheld), ([], 0, {}))

    def test_each_read_of_the_plan_brings_one_slice(self):
        agent = Agent(self.calm, Design(), 0.05, 0.02, 1)
        bodies = agent.bytes - sum(change.metadata for change in self.calm.rolled) - len(agent.reads) * (HEAD + REQUEST)
        slices = [change.body for change in self.calm.changes]
        self.assertTrue(min(slices) <= bodies / len(agent.reads) <= max(slices))
        newest = {change.name: change for change in self.calm.changes}
        self.assertEqual(agent.content, newest, "in the end all is read")

    def test_doubts_keep_a_late_list_from_counting_losses(self):
        def lost(design):
            return sum(Agent(self.abrupt, design, 0.05, 0.02, seed).lost for seed in range(8))
        self.assertEqual(lost(Design()), 0)
        self.assertGreater(lost(Design(doubts=False)), 0)

    def test_an_event_that_comes_after_the_timeout_costs_losses_unless_they_are_held(self):
        def lost(hold):
            return Agent(self.abrupt, Design(whole=True, hold=hold), 5.0, 0.02, 1).lost
        self.assertGreater(lost(0.0), lost(2.0))
        self.assertEqual(lost(10.0), 0)


if __name__ == "__main__":
    unittest.main()
