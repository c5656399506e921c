"""The policy files of a run, written as ONNX."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import NamedTuple

from arkml.base.files import write_atomic
from arkml.learning.algorithm import PolicyModel

INTERVAL = 0.05
"""
Least seconds from one published policy to the next.

With 0.25 a cart-pole that stands falls again more often: rows come from older policies.
"""

KEPT = 16
"""Published policies that stay on disk; link or copy one to keep it longer."""

_SHARE = 0.1  # largest share of the time that exports take


class PolicyFile(NamedTuple):
    """A policy on disk. `file` is relative to the directory of the run."""

    file: str
    sha256: str
    n_opts: int


class Publisher:
    """Writes policies into `directory`, numbered in order: the first is 0000000001.onnx."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = max(self._numbers(), default=0)
        self._seconds = 0.0
        self._at = float("-inf")

    def is_due(self, now: float) -> bool:
        """Return True if the last export is long enough ago. `now`: time.monotonic()."""
        return now - self._at >= max(INTERVAL, self._seconds / _SHARE)

    def write(self, policy: PolicyModel, began: float) -> PolicyFile:
        """
        Write a policy whose export began at `began`, in seconds of time.monotonic().

        The file is whole when its name appears. Raises OSError, and then there is no file.
        """
        self._directory.mkdir(exist_ok=True)
        self._number += 1
        path = self._directory / f"{self._number:010d}.onnx"
        try:
            write_atomic(path, policy.model, durable=False)
        except OSError:
            self._at = time.monotonic()  # a full disk is not tried again in every turn
            raise
        (self._directory / f"{self._number - KEPT:010d}.onnx").unlink(missing_ok=True)
        self._at = time.monotonic()
        self._seconds = self._at - began
        file = f"{self._directory.name}/{path.name}"
        return PolicyFile(file, hashlib.sha256(policy.model).hexdigest(), policy.n_opts)

    def _numbers(self) -> list[int]:
        return [int(p.stem) for p in self._directory.glob("*.onnx") if p.stem.isdecimal()]
