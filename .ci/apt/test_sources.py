"""Where this machine gets Debian from, in both formats of apt's sources; `python3 -m unittest`."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import sources

SCRIPT = pathlib.Path(__file__).with_name("sources.py")
ROOT = SCRIPT.parent.parent.parent


def printed(files, *arguments):
    """Runs the script with these files of sources. Returns its exit code, output and errors."""
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        (root / "parts").mkdir()
        for name, text in files.items():
            (root / name).write_text(text)
        (root / "apt.conf").write_text(f'Dir::Etc::SourceList "{root}/sources.list";\nDir::Etc::SourceParts "{root}/parts";\n')
        run = subprocess.run([sys.executable, "-B", SCRIPT, *arguments], capture_output=True, text=True,
                             env={**os.environ, "APT_CONFIG": str(root / "apt.conf")})
    return run.returncode, run.stdout, run.stderr


class Sources(unittest.TestCase):
    def test_one_line_entry_keeps_mirror_and_keyring(self):
        code, out, _ = printed({"sources.list": """
            # deb http://off.example/debian bookworm main
            deb-src http://source.example/debian bookworm main
            deb [ arch=amd64,arm64 signed-by=/k/a.gpg ] http://mirror.example:3142/debian/ bookworm main contrib # fast
            deb http://mirror.example/debian-security bookworm-security main
        """}, "trixie", "arm64")
        self.assertEqual((code, out), (0, "Types: deb\nURIs: http://mirror.example:3142/debian/\nSuites: trixie\n"
                                          "Components: main\nArchitectures: arm64\nSigned-By: /k/a.gpg\n"))

    def test_deb822_entry_keeps_a_key_of_several_lines(self):
        key = "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEZ\n -----END PGP PUBLIC KEY BLOCK-----"
        text = f"Types: deb deb-src\nURIs: https://a.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By:{key}\n"
        code, out, _ = printed({"parts/debian.sources": text}, "trixie")
        self.assertEqual((code, out), (0, "Types: deb\nURIs: https://a.example/debian\nSuites: trixie\nComponents: main\n"
                                          f"Signed-By: {key}\n"))

    def test_all_mirrors_are_used_and_others_archives_are_not(self):
        ring = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
        files = {"sources.list": f"deb {ring} http://a.example/debian stable main\ndeb {ring} http://b.example/debian/ stable main\n",
                 "parts/vendor.list": "deb [signed-by=/k/v.gpg] https://vendor.example stable main\n",
                 "parts/off.sources": "Enabled: no\nTypes: deb\nURIs: http://c.example/debian\nSuites: stable\nComponents: main\n",
                 "parts/ignored.save": "deb http://d.example/debian stable main\n"}
        code, out, _ = printed(files, "trixie")
        self.assertEqual((code, re.findall("URIs: (.*)", out)), (0, ["http://a.example/debian", "http://b.example/debian/"]))

    def test_machine_without_debian_is_told_so_in_one_line(self):
        for files in ({}, {"sources.list": "deb http://archive.example/ubuntu noble main\n", "parts/x.sources": "Types: deb\n"}):
            code, out, errors = printed(files, "trixie")
            self.assertEqual((code, out, errors.count("\n")), (1, "", 1), errors)
            self.assertIn("no archive of Debian", errors)
            self.assertIn("sources.list", errors)

    def test_apt_reads_what_is_printed(self):
        _, out, _ = printed({"sources.list": "deb [signed-by=/k/a.gpg trusted=yes] http://a.example/debian bookworm main\n"}, "trixie")
        self.assertEqual([(it["uris"], it["suites"], it["signed-by"]) for it in sources.deb822(out)],
                         [("http://a.example/debian", "trixie", "/k/a.gpg")])
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory, "debian.sources")
            file.write_text(out)
            uris = ["apt-get", "--print-uris", "update", "-o", f"Dir::Etc::SourceList={file}", "-o", "Dir::Etc::SourceParts=/dev/null",
                    "-o", f"Dir::State::Lists={directory}"]
            found = subprocess.run(uris, capture_output=True, text=True, check=True).stdout
        self.assertIn("'http://a.example/debian/dists/trixie/InRelease'", found)

    def test_no_script_names_a_mirror(self):
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        mirror = re.compile("deb" + r"\.debian\.org|snapshot\.debian" + r"\.org")
        for name in filter(None, names):
            file = ROOT / name
            if file.is_file() and not file.is_symlink():
                self.assertIsNone(mirror.search(file.read_text(errors="replace")), name)


if __name__ == "__main__":
    unittest.main()
