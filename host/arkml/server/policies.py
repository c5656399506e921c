"""The policies of one run: their versions, the newest, and the best."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from arkml.errors import HiveError
from arkml.files import write_atomic
from arkml.hive.protocol.messages import Message
from arkml.server.files import inside, read_object

KEPT = 64
"""So many of the newest policies are kept, for the time that an evaluation takes."""

RESERVED = 1_000
"""Versions that one writing of `run.json` sets aside."""

_NEWEST = "newest.json"


@dataclass(frozen=True, slots=True)
class Policy:
    """A published policy: an ONNX file."""

    version: int
    n_opts: int
    sha256: str
    data: bytes


class Policies:
    """
    Versions only grow, also from one process to the next: `limit` is above all that went before.

    Files that the learner published are linked into `directory`, the server's own.
    """

    def __init__(self, run: Path, limit: int) -> None:
        self._run = run
        self._directory = run / "published"
        self._directory.mkdir(exist_ok=True)
        self.newest: Policy | None = self._recovered(limit)
        self.version = self.newest.version if self.newest else limit

    def _recovered(self, limit: int) -> Policy | None:
        path = self._directory / _NEWEST
        if not path.exists():
            return None
        try:
            known = read_object(path)
            version, n_opts, sha256 = int(known["version"]), int(known["n_opts"]), known["sha256"]
            data = _verified(self._file(version), sha256)
        except (HiveError, OSError, KeyError, TypeError, ValueError):
            return None
        is_last = limit - RESERVED <= version <= limit
        return Policy(version, n_opts, sha256, data) if is_last else None

    def publish(self, message: Message) -> Policy:
        """
        The next version, from what a learner says of its file.

        Raises HiveError or OSError if that is not what it says.
        """
        path = inside(self._run, message.get("file"))
        sha256, n_opts = str(message.get("sha256")), int(message.get("n_opts", 0))
        policy = Policy(self.version + 1, n_opts, sha256, _verified(path, sha256))
        kept = self._file(policy.version)
        kept.unlink(missing_ok=True)
        os.link(path, kept)
        known = {"version": policy.version, "n_opts": n_opts, "sha256": sha256}
        write_atomic(self._directory / _NEWEST, json.dumps(known).encode(), durable=False)
        self.version, self.newest = policy.version, policy
        self._file(policy.version - KEPT).unlink(missing_ok=True)
        return policy

    def exported(self, message: Message) -> bytes:
        """What a learner exported when it was asked to. Raises HiveError or OSError."""
        return _verified(inside(self._run, message.get("file")), str(message.get("sha256")))

    def keep_best(self, version: int) -> bool:
        """Keep a version as the best; False if it is not there any more. Raises OSError."""
        if not 0 < version <= self.version:
            return False
        try:
            data = self._file(version).read_bytes()
        except FileNotFoundError:
            return False
        write_atomic(self._run / "best.onnx", data, durable=True)
        return True

    def best(self) -> bytes | None:
        """The best policy, None if none was found so. Raises OSError."""
        try:
            return (self._run / "best.onnx").read_bytes()
        except FileNotFoundError:
            return None

    def _file(self, version: int) -> Path:
        return self._directory / f"{version:010d}.onnx"


def _verified(path: Path, sha256: str) -> bytes:
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise HiveError(f"{path.name} does not have the sum {sha256}")
    return data
