"""How long the command line takes until a guest has had its first frame."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.measuring import Block
from tests.benchmarks.rows import AtMost, Row, against, alone
from tests.benchmarks.subjects import FIXTURES

TOPIC = "startup"
APPLET = FIXTURES / "guests" / "c_applet.wasm"
LIMIT = AtMost(0.5)
RUN = ["-m", "arkml", "run", str(APPLET), "--frames", "1"]
LIBRARIES = ["-c", "import numpy, wasmtime, onnxruntime"]
SHOWN = 8  # packages


def rows(bench: Bench) -> Iterator[Row]:
    bench.say("arkml run, cold")
    blocks: dict[str, Block] = {
        "run": lambda: _seconds(RUN),
        "libraries": lambda: _seconds(LIBRARIES),
    }
    figures = bench.interleave(blocks, rounds=5 if bench.quick else 15)
    name = "arkml run --frames 1"
    yield alone(TOPIC, name, "s", figures["run"], LIMIT)
    yield against(TOPIC, name, "s", figures["run"], "importing its libraries", figures["libraries"])
    cost = Counter(_import_seconds())
    shown = ", ".join(f"{name} {seconds * 1e3:.0f}" for name, seconds in cost.most_common(SHOWN))
    bench.note(
        TOPIC,
        "From the start of the interpreter to its end, in a process of its own. Imports of one run"
        f" by package, in ms under -X importtime, which slows them: {shown};"
        f" all {cost.total() * 1e3:.0f}.",
    )


def _seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True, cwd=ROOT)
    return time.perf_counter() - start


def _import_seconds() -> dict[str, float]:
    """The seconds that the modules of each package took, without what they import."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *RUN],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    cost: Counter[str] = Counter()
    for line in done.stderr.splitlines():
        own, _, name = line.removeprefix("import time:").partition("|")
        if line.startswith("import time:") and own.strip().isdigit():
            package = name.partition("|")[2].strip().partition(".")[0]
            known = package in sys.stdlib_module_names
            cost["the standard library" if known else package] += int(own) / 1e6
    return cost
