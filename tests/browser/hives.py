"""Hives and trainings in processes of their own, for people who look at them in a browser."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading

import httpx
from tests.browser.served import GUESTS, ROOT
from tests.waiting import eventually

PATIENCE = 240
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
LINK = re.compile(r"page: (\S+)")


class Command:
    """A command of `arkml` that runs; `said` are the lines of its standard error."""

    def __init__(self, *words, **environment):
        self.said = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "arkml", *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        )  # fmt: skip
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self):
        for line in self.process.stderr:
            self.said.append(line)

    def match(self, pattern):
        """Wait for a line, and return its match."""
        return eventually(lambda: self._search(pattern), PATIENCE)

    def _search(self, pattern):
        assert self.process.poll() is None or self._reading.is_alive() or self.said, self.said
        found = (pattern.search(line) for line in list(self.said))
        return next((one for one in found if one), None)

    def wait(self):
        """Wait for the end, and return the exit status."""
        return self.process.wait(PATIENCE)

    def end(self, number=signal.SIGTERM):
        """End it, and wait for that."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reading.join()
        self.process.stderr.close()


@contextlib.contextmanager
def command(*words, **environment):
    """Run a command of `arkml`, which is ended if it still runs."""
    one = Command(*words, **environment)
    try:
        yield one
    finally:
        one.end()


def arkml(*words):
    """Run a command of `arkml` to its end, and return what it says."""
    line = [sys.executable, "-m", "arkml", *map(str, words)]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


class ServedHive:
    """A hive that `arkml hive serve` serves, and its API."""

    def __init__(self, port, token=None):
        self.port, self.token = port, token
        self.address = f"127.0.0.1:{port}"
        self.link = f"http://{self.address}/"
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(
            base_url=f"{self.link}v1", timeout=60.0, trust_env=False, headers=headers
        )

    def get(self, path, **parameters):
        answer = self.http.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def runs(self):
        return self.get("/runs")["runs"]

    def run(self, run_id):
        return self.get(f"/runs/{run_id}")["run"]

    def the_run(self):
        """The only run, once there is one with a policy."""
        return eventually(lambda: next(iter(self.runs()), None), PATIENCE)["id"]

    def metrics(self, run_id):
        values = self.get(f"/runs/{run_id}/metrics")["metrics"]
        return {name: value for name, value, _ in values}

    def curve(self, run_id, name):
        [curve] = self.get(f"/runs/{run_id}/curves", names=f'["{name}"]')["curves"]
        return curve["points"]


@contextlib.contextmanager
def serving(data, *options, token=None):
    """Serve a hive, with the operator's token if there is one."""
    words = ("hive", "serve", "--port", 0, "--data", data, *options)
    with command(*words, **secret(token)) as served:
        hive = ServedHive(int(served.match(ADDRESS)[1]), token)
        hive.process, hive.data = served, data
        try:
            yield hive
        finally:
            hive.http.close()


def training(hive, out, *options, guest="c_pendulum"):
    """Train a guest on a hive."""
    given = ("--hive", hive.address, "--out", out, *options)
    return command("train", GUESTS / f"{guest}.wasm", *given, **secret(hive.token))


def secret(token):
    """The environment that has a token, if there is one."""
    return {"ARKML_HIVE_TOKEN": token} if token else {}


__all__ = [
    "GUESTS",
    "LINK",
    "ROOT",
    "Command",
    "ServedHive",
    "arkml",
    "command",
    "serving",
    "training",
]
