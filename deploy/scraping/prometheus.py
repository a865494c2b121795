"""A real Prometheus on a free port of 127.0.0.1."""
import json
import pathlib
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

READY_SECONDS = 60


class Refused(Exception):
    """What Prometheus says is wrong with a query."""


def knows_the_setting(directory):
    """Whether native histograms are a setting (from 3.8 on); before, they are a feature flag."""
    file = pathlib.Path(directory, "setting.yml")
    file.write_text("global: {scrape_native_histograms: true}\n")
    return subprocess.run(["promtool", "check", "config", file], capture_output=True).returncode == 0


class Prometheus:
    """Scrapes the targets every second, their native histograms or their classic ones, and evaluates the rules given. A context."""

    def __init__(self, directory, name, targets, native, rules=None, job="kube-canary"):
        self.directory, self.name = pathlib.Path(directory, name), name
        self.directory.mkdir()
        settings = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        flags = []
        if native and knows_the_setting(self.directory):
            settings["scrape_native_histograms"] = True
        elif native:
            flags = ["--enable-feature=native-histograms"]
        config = {"global": settings, "scrape_configs": [{"job_name": job, "static_configs": [{"targets": list(targets)}]}],
                  "rule_files": [str(rules)] if rules else []}
        file = self.directory / "prometheus.yml"
        file.write_text(json.dumps(config))  # JSON is YAML
        self.native = native
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{address}"
        self.command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={self.directory}/tsdb",
                        f"--web.listen-address={address}", *flags]

    def __enter__(self):
        self.log = open(self.directory / "log", "w+")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def get(self, path, **parameters):
        try:
            with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(parameters, doseq=True)}", timeout=READY_SECONDS) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            # Until it is ready, it answers in plain text.
            raise Refused(json.loads(said).get("error", error.reason) if said.startswith("{") else said or error.reason) from error

    def query(self, text, at=None):
        """The samples: labels and value, of a histogram the count."""
        answer = self.get("/api/v1/query", query=text, **({} if at is None else {"time": at}))
        if answer["resultType"] == "scalar":
            return [({}, float(answer["result"][1]))]
        return [(one["metric"], value(one)) for one in answer["result"]]

    def wait_for(self, conditions):
        """Until every query returns something."""
        end, lacks = time.monotonic() + READY_SECONDS, "ready"
        while time.monotonic() < end and self.process.poll() is None:
            try:
                lacks = next((text for text in conditions if not self.query(text)), None)
                if lacks is None:
                    return
            except (OSError, Refused) as error:
                lacks = error
            time.sleep(0.2)
        self.log.seek(0)
        raise SystemExit(f"{self.name}: not so within {READY_SECONDS} s, or Prometheus has ended: {lacks}\n{self.log.read()[-2000:]}")


def value(one):
    if "histogram" in one:
        return float(one["histogram"][1]["count"])
    return float(one["value"][1])
