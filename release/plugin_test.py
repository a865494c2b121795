#!/usr/bin/env python3
"""Tests of the kubectl plugin, without a cluster: python3 -B release/plugin_test.py

A program of its own takes the place of kubectl. It answers from a description of the cluster, and
records how it was called. Every test runs with each POSIX shell that is installed.
"""
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PLUGIN = pathlib.Path(__file__).resolve().parent / "kubectl-kube_canary"
SHELLS = {name: command for name, command in {
    "sh": ["sh"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"],
}.items() if shutil.which(command[0])}

KUBECTL = '''#!%s
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
cluster = json.loads((here / "cluster.json").read_text())
arguments = sys.argv[1:]
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([os.environ.get("KUBECONFIG"), arguments]) + "\\n")
words = [argument for argument in arguments if not argument.startswith("--context=")]
value = lambda flag: words[words.index(flag) + 1]
def refuse(error):
    print("Warning: a line before the cause", file=sys.stderr)
    sys.exit(error)
match words[0], words[1]:
    case "get", "daemonsets":
        if "daemonsets" in cluster["refused"]:
            refuse(cluster["refused"]["daemonsets"])
        print("".join(name + "\\n" for name in cluster["daemonsets"]), end="")
    case "get", "pods":
        wanted = dict(part.split("=") for part in value("--field-selector").split(","))
        node = wanted.get("spec.nodeName")
        for name, ready, deleted, release, on in cluster["pods"].get(value("--namespace"), []):
            if node in (None, on):
                print(name, ready, deleted, release, sep="|")
    case "get", "node":
        if "nodes" in cluster["refused"]:
            refuse(cluster["refused"]["nodes"])
        if words[2] not in cluster["nodes"]:
            refuse(f'Error from server (NotFound): nodes "{words[2]}" not found')
        print("node/" + words[2])
    case "exec", _:
        pod, command = words[words.index("--namespace") + 2], words[words.index("--") + 1:]
        if pod in cluster["hanging"]:
            time.sleep(600)
        if pod in cluster["refused"]:
            refuse(cluster["refused"][pod])
        if command[1] == "version":
            sys.exit(0)
        print("agent in", pod, *command, flush=True)
        if "--until-eof" in command and "--tty" not in words and "-c" not in command:
            (here / "running").write_text(str(os.getpid()))
            sys.stdin.read()
            print("the summary", flush=True)
        sys.exit(cluster["exit_code"])
    case "port-forward", _:
        pod, port = words[-2].removeprefix("pod/"), words[-1].split(":")[0] or "40217"
        if pod in cluster["hanging"]:
            time.sleep(600)
        if pod in cluster["refused"]:
            refuse(cluster["refused"][pod])
        (here / "forwarding").write_text(str(os.getpid()))
        print(f"Forwarding from 127.0.0.1:{port} -> 9877\\nForwarding from [::1]:{port} -> 9877", flush=True)
        if cluster["exit_code"]:
            refuse("error: lost connection to pod")
        time.sleep(600)
'''


def pod(name, node, ready="True", deleted="", release=""):
    return [name, ready, deleted, release, node]


class Plugin:
    """The tests, of the shell in `shell`."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        kubectl = self.directory / "kubectl"
        kubectl.write_text(KUBECTL % sys.executable)
        kubectl.chmod(0o755)
        (self.directory / "temporary").mkdir()
        self.environment = os.environ | {
            "PATH": f"{self.directory}:{os.environ['PATH']}", "TMPDIR": str(self.directory / "temporary")}
        self.environment.pop("KUBECONFIG", None)
        self.cluster = {"daemonsets": ["canary", "canary"], "refused": {}, "hanging": [], "exit_code": 0,
                        "nodes": ["node1", "node2", "node3", "node4"], "pods": {
            "canary": [pod("starting", "node1", ready="False"), pod("stopping", "node2", deleted="2026-11-23T18:00:00Z"),
                       pod("good", "node2"), pod("better", "node3")]}}

    def start(self, *arguments, **more):
        """Starts the plugin. Nothing is recorded of earlier calls."""
        (self.directory / "calls").write_text("")
        (self.directory / "cluster.json").write_text(json.dumps(self.cluster))
        return subprocess.Popen([*self.shell, str(PLUGIN), *arguments], env=self.environment, text=True, **more)

    def calls(self):
        return [json.loads(line) for line in (self.directory / "calls").read_text().splitlines()]

    def run_plugin(self, *arguments):
        """Runs the plugin without a terminal. Returns its exit code, output and errors."""
        plugin = self.start(*arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, errors = plugin.communicate(timeout=60)
        self.expect_nothing_left()
        return plugin.returncode, output, errors

    def expect_nothing_left(self):
        self.assertEqual(list((self.directory / "temporary").iterdir()), [])

    def expect(self, arguments, code, output="", error=None):
        """Expects this exit code and output. `error` is part of the one line of errors, if there is one."""
        done = self.run_plugin(*arguments)
        self.assertEqual(done[:2], (code, output), done[2])
        if error is None:
            self.assertEqual(done[2], "")
        else:
            self.assertIn(error, done[2])
            self.assertEqual(done[2].count("\n"), 1, done[2])
            self.assertTrue(done[2].startswith("kubectl kube-canary: "))

    def test_runs_the_command_in_a_ready_pod(self):
        self.expect(["doctor"], 0, "agent in good /kube-canary doctor\n")

    def test_returns_the_exit_code_of_the_command(self):
        self.cluster["exit_code"] = 1
        self.expect(["doctor", "--json"], 1, "agent in good /kube-canary doctor --json\n")

    def test_passes_arguments_on_as_they_are(self):
        code, _, errors = self.run_plugin("ping", "a b", "$HOME *", "", "-c", "3", "--", "-n", "--node")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(self.calls()[-1][1][-9:], ["ping", "--until-eof", "a b", "$HOME *", "", "-c", "3", "-n", "--node"])

    def test_takes_its_own_flags_before_and_behind_the_command(self):
        for flags in (["--node", "node3", "fleet", "-n", "canary"], ["fleet", "--namespace=canary", "--node=node3", "--"]):
            self.expect(flags, 0, "agent in better /kube-canary fleet\n")
            self.assertEqual([call[1][:2] for call in self.calls()], [["get", "pods"], ["exec", "--namespace"], ["exec", "--namespace"]])

    def test_pings_from_a_node(self):
        for arguments in (["ping", "node3", "--from", "node2", "--tcp", "443", "-c", "1"], ["ping", "--from=node2", "node3", "--tcp", "443", "-c", "1"]):
            self.expect(arguments, 0, "agent in good /kube-canary ping --until-eof node3 --tcp 443 -c 1\n")
        self.expect(["ping", "--from", "node2", "-c", "1", "dns:a@10.0.0.1", "--", "--from"], 0,
                    "agent in good /kube-canary ping --until-eof -c 1 dns:a@10.0.0.1 --from\n")
        self.expect(["ping", "node3", "--from"], 2, error="--from needs a value")

    def test_tells_a_node_without_an_agent_from_no_node(self):
        self.expect(["ping", "node3", "--from", "node9"], 3, error="the cluster has no node node9: kubectl get nodes lists them")
        self.expect(["ping", "node3", "--from", "node4"], 3, error="no agent runs on node node4 in namespace canary")
        self.cluster["refused"] = {"nodes": 'Error from server (Forbidden): nodes "node9" is forbidden'}
        self.expect(["ping", "node3", "--from", "node9"], 3, error="no agent runs on node node9 in namespace canary")

    def test_passes_context_and_kubeconfig_to_every_call(self):
        self.run_plugin("version", "--context", "east", "--kubeconfig=/a file")
        calls = self.calls()
        self.assertEqual(len(calls), 4)
        for kubeconfig, arguments in calls:
            self.assertEqual((kubeconfig, arguments[0]), ("/a file", "--context=east"))

    def test_asks_a_named_agent_that_is_not_ready(self):
        self.expect(["version", "--node", "node1"], 0)
        self.assertIn("starting", self.calls()[-1][1])

    def test_does_not_ask_a_pod_that_stops(self):
        self.cluster["pods"]["canary"] = self.cluster["pods"]["canary"][1:2]
        self.expect(["doctor", "--node", "node2"], 3, error="no agent runs on node node2 in namespace canary")

    def test_tries_another_agent(self):
        self.cluster["refused"]["good"] = "error dialing backend: i/o timeout"
        self.expect(["doctor"], 0, "agent in better /kube-canary doctor\n", error="pod good cannot be asked: error dialing backend: i/o timeout")

    def test_tries_another_agent_when_the_node_of_one_is_dead(self):
        self.cluster["hanging"] = ["good"]
        self.expect(["doctor"], 0, "agent in better /kube-canary doctor\n",
                    error="pod good cannot be asked: no answer within 5 seconds")
        self.cluster["exit_code"] = 1
        _, output, errors = self.run_plugin("page")
        self.assertEqual(output, "http://localhost:40217/\n")
        self.assertIn("pod good cannot be asked: no answer within 5 seconds", errors)
        self.assertIn("the page as pod better serves it", errors)

    def test_names_the_missing_right(self):
        self.cluster["refused"] = {"good": 'Error from server (Forbidden): cannot create resource "pods/exec"'}
        self.expect(["doctor"], 3, error="needs the verb create of pods/exec: Error from server (Forbidden)")
        self.expect(["page"], 3, error="needs the verb create of pods/portforward: Error from server (Forbidden)")
        self.cluster["refused"] = {"daemonsets": "Error from server (Forbidden): daemonsets.apps is forbidden"}
        self.expect(["doctor"], 3, error="name the agents' namespace by --namespace, or correct the access: Error from")
        self.expect(["doctor", "-n", "canary"], 0, "agent in good /kube-canary doctor\n")

    def test_names_several_installations(self):
        self.cluster["daemonsets"] = ["canary", "other", "canary"]
        self.expect(["doctor"], 3, error="2 namespaces have an installation; choose one by --namespace: canary other")
        self.expect(["doctor", "-n", "other"], 3, error="no agent runs in namespace other")

    def test_names_several_releases(self):
        self.cluster["pods"]["canary"] = [pod("good", "node1", release="blue"), pod("better", "node1", release="green")]
        self.expect(["doctor"], 3, error="choose one by --release: blue green")
        self.expect(["doctor", "--release", "green"], 0, "agent in better /kube-canary doctor\n")
        self.expect(["doctor", "--release", "red"], 3, error="no agent runs in namespace canary of release red")

    def test_says_what_is_missing(self):
        self.cluster["daemonsets"] = []
        self.expect(["doctor"], 3, error="install KubeCanary, or choose the cluster by --context")
        self.cluster["daemonsets"] = ["canary"]
        self.cluster["pods"]["canary"] = self.cluster["pods"]["canary"][:1]
        self.expect(["doctor"], 3, error="no agent in namespace canary is Ready")
        (self.directory / "kubectl").unlink()
        # A PATH with the shell alone. Its program is looked up in the PATH of this test.
        self.environment["PATH"] = str(self.directory)
        self.shell = [shutil.which(self.shell[0]), *self.shell[1:]]
        self.expect(["doctor"], 3, error="kubectl is not in the PATH")

    def test_refuses_bad_arguments(self):
        for arguments, error in (
            ([], "a command is missing"), (["dcotor"], "dcotor is not a command"), (["--json", "doctor"], "--json is not a flag"),
            (["doctor", "-n"], "-n needs a value"), (["doctor", "--node="], "--node needs a value"),
            (["page", "extra"], "page does not take extra"),
        ):
            self.expect(arguments, 2, error=error)
            self.assertEqual(self.calls(), [])

    def test_prints_its_manual(self):
        for arguments in (["--help"], ["-h"], ["help"], ["page", "--help"]):
            code, output, errors = self.run_plugin(*arguments)
            self.assertEqual((code, errors), (0, ""))
            self.assertIn("kubectl kube-canary doctor ", output)
        self.expect(["doctor", "--help"], 0, "agent in good /kube-canary doctor --help\n")

    def start_lasting(self, *arguments, **more):
        """Starts the plugin with a command that lasts, and returns it with the kubectl that runs that."""
        (self.directory / "running").unlink(missing_ok=True)
        # As in a terminal: a shell cannot handle a signal that it was started to ignore.
        plugin = self.start(*arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **more)
        plugin.first = plugin.stdout.readline()
        self.until(lambda: (self.directory / "running").exists() and (self.directory / "running").read_text())
        return plugin, int((self.directory / "running").read_text())

    def test_a_command_that_lasts_ends_with_its_summary_when_the_plugin_is_interrupted(self):
        self.cluster["exit_code"] = 1
        for arguments, sent in (
            (["ping", "node2"], signal.SIGINT), (["ping", "node2"], signal.SIGTERM), (["ping", "node2"], signal.SIGHUP),
            (["doctor", "--watch"], signal.SIGINT), (["fleet", "-w"], signal.SIGINT),
        ):
            plugin, kubectl = self.start_lasting(*arguments)
            self.assertEqual(plugin.first, " ".join(["agent in good /kube-canary", arguments[0], "--until-eof", *arguments[1:]]) + "\n")
            if sent == signal.SIGINT:
                # Ctrl-C is sent to all processes of the terminal.
                os.killpg(plugin.pid, sent)
            else:
                plugin.send_signal(sent)
            self.assertEqual((*plugin.communicate(timeout=60), plugin.returncode), ("the summary\n", "", 1))
            self.expect_nothing_left()
            self.expect_end_of(kubectl)

    def test_a_command_that_lasts_ends_when_the_plugin_is_killed(self):
        plugin, kubectl = self.start_lasting("ping", "node2")
        plugin.kill()
        self.assertEqual(plugin.communicate(timeout=60)[0], "the summary\n")
        self.expect_end_of(kubectl)

    def test_a_command_that_ends_by_itself_needs_no_end_of_input(self):
        self.expect(["ping", "-c", "3", "node2"], 0, "agent in good /kube-canary ping --until-eof -c 3 node2\n")
        self.cluster["exit_code"] = 2
        self.expect(["ping", "-c", "0"], 2, "agent in good /kube-canary ping --until-eof -c 0\n")

    def on_terminal(self, *arguments):
        """The last call of kubectl, of a plugin that runs on a terminal."""
        ours, theirs = pty.openpty()
        self.assertEqual(self.start(*arguments, stdin=theirs, stdout=theirs).wait(60), 0)
        os.close(theirs)
        os.close(ours)
        return self.calls()[-1][1]

    def test_gives_the_pod_a_terminal(self):
        for arguments in (["fleet", "-w"], ["doctor"], ["footprint"]):
            self.assertEqual(self.on_terminal(*arguments)[:3], ["exec", "--stdin", "--tty"])
        self.assertNotIn("--tty", self.on_terminal("ping", "-c", "1", "node2"))

    def test_tells_the_pod_whether_the_terminal_has_colours(self):
        self.environment.pop("NO_COLOR", None)
        self.environment["TERM"] = "xterm"
        self.assertEqual(self.on_terminal("ping", "-c", "1", "a")[-6:], ["--color", "always", "--until-eof", "-c", "1", "a"])
        self.assertEqual(self.on_terminal("fleet", "--watch")[-4:], ["--color", "always", "--until-eof", "--watch"])
        self.assertEqual(self.on_terminal("version")[-1], "version")
        self.environment["NO_COLOR"] = "1"
        self.assertEqual(self.on_terminal("doctor")[-3:], ["doctor", "--color", "never"])
        del self.environment["NO_COLOR"]
        self.environment["TERM"] = "dumb"
        self.assertEqual(self.on_terminal("doctor")[-3:], ["doctor", "--color", "never"])

    def test_prints_the_address_of_the_page_and_ends_the_forwarding(self):
        for sent, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
            # As in a terminal: a shell cannot handle a signal that it was started to ignore.
            plugin = self.start("page", "--port", "8080", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            self.assertEqual(plugin.stdout.readline(), "http://localhost:8080/\n")
            self.assertIn("the page as pod good serves it", plugin.stderr.readline())
            plugin.send_signal(sent)
            self.assertEqual((*plugin.communicate(timeout=60), plugin.returncode), ("", "", code))
            self.expect_nothing_left()
            self.expect_end_of(int((self.directory / "forwarding").read_text()))

    def until(self, happened):
        end = time.monotonic() + 60
        while not happened():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def expect_end_of(self, process):
        def has_ended():
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                return True
            return False

        self.until(has_ended)

    def test_says_when_the_forwarding_ends_by_itself(self):
        self.cluster["exit_code"] = 1
        code, output, errors = self.run_plugin("page")
        self.assertEqual((code, output), (1, "http://localhost:40217/\n"))
        self.assertIn("the connection to pod good has ended: error: lost connection to pod", errors)

    def test_tries_another_agent_for_the_page(self):
        self.cluster["refused"]["good"] = "error dialing backend: i/o timeout"
        self.cluster["exit_code"] = 1
        _, output, errors = self.run_plugin("page")
        self.assertEqual(output, "http://localhost:40217/\n")
        self.assertIn("the page as pod better serves it", errors)


def load_tests(loader, _tests, _pattern):
    """All tests in each shell."""
    cases = [type(f"Plugin in {name}", (Plugin, unittest.TestCase), {"shell": shell}) for name, shell in SHELLS.items()]
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        unittest.main()
    # A process for each shell: they wait most of the time.
    runs = [subprocess.Popen([sys.executable, "-B", __file__, "-k", f"Plugin in {name}."]) for name in SHELLS]
    sys.exit(max([run.wait() for run in runs], default=1))
