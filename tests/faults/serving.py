"""A hive that is served on an address of its own, and hosts that use it."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tools.houses import PYTHONPATH

from arkml.runs.hive_access import HiveGrant

ROOT = Path(__file__).parents[2]
TOKEN = "faults"
CLOCK = Path(__file__).with_name("clock")
"""A folder for Python's path, by which the time jumps."""


def environment(**more):
    """That of this process, with the package and its tests on Python's path."""
    path = os.pathsep.join(filter(None, (PYTHONPATH, str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **more}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class Served:
    """
    `python -m arkml.server` on one directory and one port, however often it is started.

    With `clock` its time is later by the seconds in that file.
    """

    def __init__(self, data, port=0, clock=None):
        self.data = data
        self._environment = environment(ARKML_HIVE_TOKEN=TOKEN)
        if clock is not None:
            path = os.pathsep.join((str(CLOCK), self._environment["PYTHONPATH"]))
            self._environment |= {"PYTHONPATH": path, "ARKML_TEST_CLOCK": str(clock)}
        self.port = port or free_port()
        self._process = None

    @property
    def pid(self):
        return self._process.pid

    def grant(self, port=0):
        """How a host uses it, through another port if there is one."""
        return HiveGrant(hive=f"127.0.0.1:{port or self.port}", token=TOKEN)

    def start(self):
        self.data.mkdir(exist_ok=True)
        with (self.data / "hive.log").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "arkml.server", "--data", str(self.data),
                 "--port", str(self.port)],
                stdout=subprocess.PIPE, stderr=output, text=True,
                env=self._environment,
            )  # fmt: skip
        told = json.loads(self._process.stdout.readline())
        assert told.get("port") == self.port, told
        return self

    def end(self, number=signal.SIGTERM):
        """End it; what it starts next goes on where it was."""
        if self._process is not None:
            self._process.send_signal(number)
            with self._process as process:
                process.wait(30)
            self._process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.end()


class OtherHost:
    """A host in another process, which plays until it is killed; `told` is what it says of it."""

    def __init__(self, folder, **grant):
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.host", str(folder), json.dumps(grant)],
            stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment(),
        )  # fmt: skip
        self.told = json.loads(self._process.stdout.readline())

    @property
    def accepted(self):
        """How many of its rows it knows to be at the hive."""
        return int.from_bytes((self._folder / "accepted").read_bytes(), "little")

    def kill(self):
        self._process.kill()
        with self._process as process:
            process.wait(10)
