"""The policy versions of one run: the newest, the recent ones, and the best."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from arkml.base.files import read_plain, write_atomic
from arkml.errors import HiveError
from arkml.hive.protocol.runs import BEST_NAME, PUBLISHED_NAME
from arkml.hive.protocol.wire import WireStruct
from arkml.server.hive_files import inside, read_kept, read_object
from arkml.server.learner_events import PolicyFile

KEPT = 64
"""Number of recent policy versions that are kept."""

RESERVED = 1_000
"""Versions that one writing of `run.json` sets aside."""

_NEWEST = "newest.json"
_RATINGS = "ratings.json"
_HELD = "held_"


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """
    One version of a run's policy.

    Attributes:
        version: Its number, from 1.
        n_opts: The number of updates that made it.
        sha256: The SHA-256 of its file in hex.
        data: Its ONNX file.

    """

    version: int
    n_opts: int
    sha256: str
    data: bytes


class EvaluatedVersions(WireStruct, frozen=True):
    """The mean return of the last evaluation of each version, by number, if it has one."""

    mean_returns: dict[int, float]


class PolicyVersions:
    """
    The policy versions of a run, in the folder `published` of its directory.

    Version numbers only increase, also across restarts: `limit` is at least the largest earlier
    one. The folder has hard links to files that the learner wrote, so versions remain when the
    learner deletes its own files.
    """

    def __init__(self, run: Path, limit: int) -> None:
        self._run = run
        self._directory = run / PUBLISHED_NAME
        self._directory.mkdir(exist_ok=True)
        ratings = read_kept(self._directory / _RATINGS, EvaluatedVersions)
        self.ratings = {} if ratings is None else ratings.mean_returns
        """The mean return of the last evaluation of versions that were kept then."""
        for held in self._directory.glob(f"{_HELD}*"):
            held.unlink()
        self.published = 0
        """The number of versions that this process has published."""
        self.newest = self._recover(limit)
        """The newest policy version, None before the first."""
        self._version = self.newest.version if self.newest else limit

    @property
    def last_version(self) -> int:
        """The largest number of a version so far, or one that an earlier process reserved."""
        return self._version

    def _recover(self, limit: int) -> PolicyVersion | None:
        path = self._directory / _NEWEST
        if not path.exists():
            return None
        try:
            known = read_object(path)
            version, n_opts, sha256 = int(known["version"]), int(known["n_opts"]), known["sha256"]
            data = _read_verified(self._file(version), sha256)
        except (HiveError, OSError, KeyError, TypeError, ValueError):
            return None
        is_last = limit - RESERVED <= version <= limit
        return PolicyVersion(version, n_opts, sha256, data) if is_last else None

    def publish(self, file: PolicyFile) -> PolicyVersion:
        """
        Make a learner's file the next policy version.

        Raises HiveError if it is not within the run's directory or has another checksum, and
        OSError.
        """
        path = inside(self._run, file.file)
        data = _read_verified(path, file.sha256)
        newest = PolicyVersion(self._version + 1, file.n_opts, file.sha256, data)
        kept = self._file(newest.version)
        kept.unlink(missing_ok=True)
        os.link(path, kept)
        known = {"version": newest.version, "n_opts": newest.n_opts, "sha256": newest.sha256}
        write_atomic(self._directory / _NEWEST, json.dumps(known).encode(), durable=False)
        self._version, self.newest = newest.version, newest
        self.published += 1
        self._file(newest.version - KEPT).unlink(missing_ok=True)
        return newest

    def read_export(self, file: PolicyFile) -> bytes:
        """Return the content of a file that a learner exported. Raises HiveError and OSError."""
        return _read_verified(inside(self._run, file.file), file.sha256)

    def read(self, version: int) -> bytes | None:
        """Return the file of a version, None if it is not kept any more. Raises OSError."""
        if not 0 < version <= self._version:
            return None
        for path in (self._file(version), self._held_file(version)):
            with suppress(FileNotFoundError):
                return read_plain(path, follow=False)
        return None

    def kept(self) -> list[tuple[int, int]]:
        """
        Return the versions that `read` finds, oldest first, as (number, time of publication).

        Times are in nanoseconds since the Unix epoch. Raises OSError.
        """
        found: dict[int, int] = {}
        for path in self._directory.glob("*.onnx"):
            number = path.stem.removeprefix(_HELD)
            if number.isdecimal() and 0 < int(number) <= self._version:
                with suppress(FileNotFoundError):
                    found[int(number)] = path.stat().st_mtime_ns
        return sorted(found.items())

    def rate(self, version: int, mean_return: float) -> None:
        """Store the mean return of a version's evaluation. Raises OSError."""
        kept = {**self.ratings, version: mean_return}
        self.ratings = {one: score for one, score in kept.items() if self.has(one)}
        content = EvaluatedVersions(self.ratings).as_bytes()
        write_atomic(self._directory / _RATINGS, content, durable=False)

    def has(self, version: int) -> bool:
        """Return whether the file of a version is kept."""
        return self._file(version).exists() or self._held_file(version).exists()

    def hold(self, version: int) -> bool:
        """
        Keep the file of a version until `release` is called; return False if it is gone already.

        Raises OSError.
        """
        if not 0 < version <= self._version:
            return False
        with suppress(FileNotFoundError):
            os.link(self._file(version), self._held_file(version))
            return True
        return False

    def release(self, version: int) -> None:
        """Stop holding the file of a version, if it is held. Raises OSError."""
        self._held_file(version).unlink(missing_ok=True)

    def keep_best(self, data: bytes) -> None:
        """Store the ONNX file of the best version. Raises OSError."""
        write_atomic(self._run / BEST_NAME, data, durable=True)

    def read_best(self) -> bytes | None:
        """Return the ONNX file of the best version, None before any was rated. Raises OSError."""
        try:
            return read_plain(self._run / BEST_NAME, follow=False)
        except FileNotFoundError:
            return None

    def best_at(self) -> int:
        """
        Return when the best version was stored, in nanoseconds since the Unix epoch.

        Returns 0 without a best version. Raises OSError.
        """
        try:
            return (self._run / BEST_NAME).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _file(self, version: int) -> Path:
        return self._directory / f"{version:010d}.onnx"

    def _held_file(self, version: int) -> Path:
        return self._directory / f"{_HELD}{version:010d}.onnx"


def _read_verified(path: Path, sha256: str) -> bytes:
    data = read_plain(path, follow=False)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise HiveError(f"{path.name} does not have the SHA-256 sum {sha256}")
    return data
