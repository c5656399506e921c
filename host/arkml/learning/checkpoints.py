"""The checkpoints of a run: a learner's state, in files that are whole or absent."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import lzma
import pickle
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from arkml.errors import HiveError
from arkml.files import write_atomic
from arkml.hive.protocol.segments import Place
from arkml.learning.algorithm import State

log = logging.getLogger(__name__)

KEPT = 5
"""Newest checkpoints that are kept, besides the best one."""

_FORMAT = 1
_STATE, _FACTS, _MANIFEST, _BEST = "state.pt", "state.json", "manifest.json", "best"


class CheckpointDamaged(HiveError):
    """A checkpoint cannot be read, or its content does not match its checksums or the run."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """
    The state of a learner.

    `run` is the run it was written in, `rows` the number of rows of that run that had been read, up
    to `cursor` in its log. `facts` are the learner's own, as JSON values.
    """

    run: str
    n_opts: int
    rows: int
    cursor: Place
    state: State
    facts: Mapping[str, Any]


class Checkpoints:
    """The checkpoints in `directory`: `<n_opts>.zip`, and `best`, a file that names one of them."""

    def __init__(self, directory: Path, *, kept: int = KEPT) -> None:
        self._directory = directory
        self._kept = kept

    def save(self, checkpoint: Checkpoint, *, best: bool = False) -> Path:
        """Write a checkpoint and drop old ones. Raises OSError, and then none is dropped."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._path(checkpoint.n_opts)
        write_atomic(path, _packed(checkpoint), durable=True)
        if best:
            best_number = str(checkpoint.n_opts).encode()
            write_atomic(self._directory / _BEST, best_number, durable=True)
        self._prune()
        return path

    def newest(self) -> Checkpoint | None:
        """Return the newest undamaged checkpoint, None if there is none."""
        for n_opts in reversed(self.numbers()):
            try:
                return self.load(n_opts)
            except CheckpointDamaged as error:
                log.warning("checkpoint %d is skipped: %s", n_opts, error)
        return None

    def load(self, n_opts: int) -> Checkpoint:
        """Return the checkpoint after `n_opts` updates. Raises CheckpointDamaged."""
        return _unpacked(self._path(n_opts))

    def numbers(self) -> list[int]:
        """Return the numbers of updates of all checkpoints, in ascending order."""
        return sorted(int(p.stem) for p in self._directory.glob("*.zip") if p.stem.isdecimal())

    @property
    def best(self) -> int | None:
        """The number of updates of the best checkpoint, None if none is marked."""
        try:
            return int((self._directory / _BEST).read_text())
        except (OSError, ValueError):
            return None

    def _path(self, n_opts: int) -> Path:
        return self._directory / f"{n_opts:012d}.zip"

    def _prune(self) -> None:
        for n_opts in self.numbers()[: -self._kept]:
            if n_opts != self.best:
                self._path(n_opts).unlink(missing_ok=True)


def _packed(checkpoint: Checkpoint) -> bytes:
    tensors = io.BytesIO()
    torch.save(dict(checkpoint.state.tensors), tensors)
    facts = {
        "format": _FORMAT,
        "run": checkpoint.run,
        "n_opts": checkpoint.n_opts,
        "rows": checkpoint.rows,
        "cursor": list(checkpoint.cursor),
        "algorithm": dict(checkpoint.state.plain),
        "facts": dict(checkpoint.facts),
    }
    parts = {_STATE: tensors.getvalue(), _FACTS: json.dumps(facts).encode()}
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in (*parts.items(), (_MANIFEST, json.dumps(sums).encode())):
            archive.writestr(name, data)
    return packed.getvalue()


def _unpacked(path: Path) -> Checkpoint:
    try:
        with zipfile.ZipFile(path) as archive:
            parts = {name: archive.read(name) for name in (_STATE, _FACTS, _MANIFEST)}
        sums = json.loads(parts.pop(_MANIFEST))
        for name, data in parts.items():
            if hashlib.sha256(data).hexdigest() != sums[name]:
                raise CheckpointDamaged(f"{name} in {path.name} does not match its checksum")
        facts = json.loads(parts[_FACTS])
        if facts["format"] != _FORMAT:
            raise CheckpointDamaged(f"{path.name} has format {facts['format']}, expected {_FORMAT}")
        tensors = torch.load(io.BytesIO(parts[_STATE]), map_location="cpu", weights_only=True)
        return Checkpoint(
            facts["run"],
            facts["n_opts"],
            facts["rows"],
            Place(*facts["cursor"]),
            State(tensors, facts["algorithm"]),
            facts["facts"],
        )
    except (
        OSError,
        EOFError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        RuntimeError,
        NotImplementedError,
        IndexError,
        OverflowError,
        lzma.LZMAError,
        struct.error,
        zlib.error,
        zipfile.BadZipFile,
        pickle.UnpicklingError,
    ) as error:
        raise CheckpointDamaged(f"{path.name} cannot be read: {error}") from error
