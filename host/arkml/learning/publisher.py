"""Writes policies as ONNX files that are whole when their names appear."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import NamedTuple

from arkml.files import write_atomic
from arkml.learning.algorithm import Diverged, PolicyWeights
from arkml.learning.export import Ask, check, to_onnx

INTERVAL = 0.25
"""Seconds from one published policy to the next, at least."""

KEPT = 16
"""So many published policies stay on disk. Whoever needs one for longer links or copies it."""

_SHARE = 0.05  # of the time, at most, goes into exports


class Published(NamedTuple):
    """A policy as a file. `file` is relative to the directory of the run."""

    file: str
    sha256: str
    n_opts: int


class Publisher:
    """The files in `directory`, numbered from 1 in the order in which they were written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = max(self._numbers(), default=0)
        self._seconds = 0.0
        self._at = float("-inf")

    def is_due(self, now: float) -> bool:
        """Whether the last export is long enough ago. `now`: time.monotonic()."""
        return now - self._at >= max(INTERVAL, self._seconds / _SHARE)

    def write(self, weights: PolicyWeights, ask: Ask) -> Published:
        """
        Write a policy that answers as `ask` does.

        Raises Diverged, ExportWrong or OSError; then there is no file.
        """
        began = time.monotonic()
        if not weights.is_finite():
            raise Diverged(f"weights are not finite after {weights.n_opts} updates")
        model = to_onnx(weights)
        check(model, weights, ask)
        self._directory.mkdir(exist_ok=True)
        self._number += 1
        path = self._directory / f"{self._number:010d}.onnx"
        try:
            write_atomic(path, model, durable=False)
        except OSError:
            self._at = time.monotonic()  # or a full disk would be tried in every turn
            raise
        (self._directory / f"{self._number - KEPT:010d}.onnx").unlink(missing_ok=True)
        self._at = time.monotonic()
        self._seconds = self._at - began
        file = f"{self._directory.name}/{path.name}"
        return Published(file, hashlib.sha256(model).hexdigest(), weights.n_opts)

    def _numbers(self) -> list[int]:
        return [int(p.stem) for p in self._directory.glob("*.onnx") if p.stem.isdecimal()]
