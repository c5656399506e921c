"""How long the command line takes until a guest has had its first frame."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.measuring import Block
from tests.benchmarks.rows import AtMost, Row, against, alone_with_control
from tests.benchmarks.spinner import control
from tests.benchmarks.subjects import FIXTURES

TOPIC = "startup"
APPLET = FIXTURES / "guests" / "c_applet.wasm"
LIMIT = AtMost(0.5)
RUN = ["-m", "arkml", "run", str(APPLET), "--frames", "1"]
LIBRARIES = ["-c", "import numpy, wasmtime, onnxruntime"]
SHOWN = 8  # packages


def rows(bench: Bench) -> Iterator[Row]:
    bench.say("arkml run, cold")
    with tempfile.TemporaryDirectory() as compiled:
        yield from _rows(bench, Interpreter(compiled))


def _rows(bench: Bench, interpreter: Interpreter) -> Iterator[Row]:
    blocks: dict[str, Block] = {
        "control": control,
        "run": lambda: interpreter.seconds(RUN),
        "libraries": lambda: interpreter.seconds(LIBRARIES),
    }
    figures = bench.interleave(blocks, rounds=5 if bench.quick else 15)
    name = "arkml run --frames 1"
    yield alone_with_control(TOPIC, name, "s", figures["run"], figures["control"], LIMIT)
    yield against(TOPIC, name, "s", figures["run"], "importing its libraries", figures["libraries"])
    cost = interpreter.import_seconds(RUN)
    dearest = sorted(cost, key=lambda package: -cost[package])[:SHOWN]
    shown = ", ".join(f"{package} {cost[package] * 1e3:.0f}" for package in dearest)
    bench.note(
        TOPIC,
        "From the start of the interpreter to its end, in a process of its own. Imports of one run"
        f" by package, in ms under -X importtime, which slows them: {shown};"
        f" all {sum(cost.values()) * 1e3:.0f}.",
    )


class Interpreter:
    """
    New processes of Python that find their modules compiled, as after an installation.

    `compiled` is the folder where the compiled ones lie; whoever runs first fills it.
    """

    def __init__(self, compiled: str) -> None:
        self._environment = os.environ | {"PYTHONPYCACHEPREFIX": compiled}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for arguments in (RUN, LIBRARIES):
            self.seconds(arguments)

    def seconds(self, arguments: list[str]) -> float:
        """How long a process lives."""
        start = time.perf_counter()
        self._run(arguments)
        return time.perf_counter() - start

    def import_seconds(self, arguments: list[str]) -> dict[str, float]:
        """The seconds that the modules of each package took, without what they import."""
        cost: dict[str, float] = defaultdict(float)
        for line in self._run(["-X", "importtime", *arguments]).splitlines():
            own, _, name = line.removeprefix("import time:").partition("|")
            if line.startswith("import time:") and own.strip().isdigit():
                package = name.partition("|")[2].strip().partition(".")[0]
                known = package in sys.stdlib_module_names
                cost["the standard library" if known else package] += int(own) / 1e6
        return cost

    def _run(self, arguments: list[str]) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env=self._environment,
        )
        return done.stderr
