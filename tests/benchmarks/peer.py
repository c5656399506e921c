"""The peer: a native Rust host of the same guest, run as a process for one short block each."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.subjects import BENCH_GUEST, policy_path


class PeerError(Exception):
    """The peer cannot be run."""


@dataclass(frozen=True, slots=True)
class Peer:
    """
    `path` names the program. It is no part of this repository: without it the rows that compare
    with it are measured on our side only.
    """

    path: Path

    def figures(self, engine: str, agents: int, features: int) -> dict[str, Any]:
        """One block of about 0.15 s: microseconds of each part of a frame."""
        command = [
            *(str(self.path), "--guest", str(BENCH_GUEST)),
            *("--engine", engine, "--model", str(policy_path(features))),
            *("--agents", str(agents), "--features", str(features)),
            *("--rounds", "1", "--ms", "10"),
        ]
        environment = os.environ | {"ORT_DYLIB_PATH": str(_onnxruntime_library())}
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
        except OSError as error:
            raise PeerError(f"{self.path} does not run: {error.strerror}") from None
        if done.returncode:
            raise PeerError(f"{self.path} failed: {done.stderr.strip()[-300:]}")
        figures: dict[str, Any] = json.loads(done.stdout)
        return figures


def _onnxruntime_library() -> Path:
    """The library inside the package that our own policies run in."""
    found = importlib.util.find_spec("onnxruntime")
    assert found is not None
    assert found.origin is not None
    return next((Path(found.origin).parent / "capi").glob("libonnxruntime.so.*"))
