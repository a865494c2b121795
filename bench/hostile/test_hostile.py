"""python3 -m unittest bench/hostile/test_hostile.py: what the attackers send, and what bounds say."""
import csv, json, pathlib, struct, sys, tempfile, unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import attacks, bounds, forge, liar

REPORTS = sorted((pathlib.Path(__file__).parents[1] / "results").glob("attacks-*/raw.csv"))


class Forging(unittest.TestCase):
    def test_a_reply_has_the_checksum_of_rfc_1071(self):
        words = struct.unpack("!32H", forge.echo(forge.ECHO_REPLY, 7, 9, bytes(range(56))))
        total = sum(words)
        self.assertEqual((total & 0xFFFF) + (total >> 16), 0xFFFF)

    def test_the_numbers_before_and_after_are_forged_in_every_form(self):
        packed = 5 << forge.SLOT_BITS | 3
        payload = struct.pack("!QQQ", 1, packed, 2) + b"rest"
        forged = list(forge.forgeries(payload, 4, 2))
        self.assertEqual(len(forged), 3 * 5)
        self.assertEqual({(len(one), one[:8], one[24:]) for one in forged}, {(28, payload[:8], b"rest")})
        self.assertIn(struct.pack("!QQQ", 1, 6 << forge.SLOT_BITS | 3, 2) + b"rest", forged)


class Lying(unittest.TestCase):
    def test_what_is_published_last_is_told(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "lies"
            lies = liar.Lies(path)
            for text in ("one", "two"):
                liar.publish(path, {"127.0.0.2": {"/api/": {"head": text}}})
                self.assertEqual(lies.at("127.0.0.2", "/api/v1/peers"), {"head": text})
            self.assertIn("404", lies.at("127.0.0.2", "/")["head"])
            self.assertIn("404", lies.at("127.0.0.3", "/api/v1/peers")["head"])


class Bounds(unittest.TestCase):
    def test_every_attack_of_the_latest_report_missed_its_bounds_before_and_holds_them_now(self):
        with open(REPORTS[-1], newline="") as raw:
            found = {(row["binary"], row["attack"]): json.loads(row["figures"]) for row in csv.DictReader(raw)}
        for name in attacks.ATTACKS:
            self.assertEqual(bounds.missed(name, found["after", name]), [], name)
            self.assertEqual(bool(bounds.missed(name, found["before", name])), name != "none", name)
