"""A child process that runs a block whenever it is asked: what has no place in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]


class Companion:
    """A module of the benchmarks, run with arguments; it calls `serve`."""

    def __init__(self, module: str, *arguments: object, python: str = sys.executable) -> None:
        self._name = module
        self._process = subprocess.Popen(
            [python, "-m", f"tests.benchmarks.{module}", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.finish()  # it is ready

    def begin(self) -> None:
        """Let it run a block."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def finish(self) -> float:
        """Wait for the block that was begun, and return its figure."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} ended with status {self._process.wait()}")
        return float(line)

    def measure(self) -> float:
        self.begin()
        return self.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def serve(block: Callable[[], float]) -> None:
    """Run `block` for every line of input and print its figure."""
    print(0.0, flush=True)
    for _ in sys.stdin:
        print(block(), flush=True)
