"""The checkpoints of a run: files with a learner's state, each either complete or absent."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from arkml.base.files import open_file, read_plain, write_atomic
from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError, InvalidSettings, ProtocolError
from arkml.hive.protocol.rows import Place
from arkml.hive.protocol.settings import Settings
from arkml.hive.protocol.wire import Count, WireStruct
from arkml.learning.algorithm import Diverged, State
from arkml.learning.encoders import count_numbers, encoded_width
from arkml.learning.place_choices import count_chooser_numbers
from arkml.learning.row_memory import available_memory

log = SafeLogger(__name__)

KEPT = 5
"""Newest checkpoints that are kept, besides the best one."""

SUFFIX = ".safetensors"
"""The end of a checkpoint's file name."""

DTYPES = {
    "F32": np.float32,
    "F64": np.float64,
    "I32": np.int32,
    "I64": np.int64,
    "U32": np.uint32,
    "U64": np.uint64,
}
"""The types of tensors, by their names in a safetensors file."""

_FORMAT = 2
_STATE, _DIGEST, _BEST = "arkml", "sha256", "best"
_HEADER_LENGTH = struct.Struct("<Q")
_MOST_HEADER = 100_000_000  # bytes, as in the package safetensors
_OWN_NETWORKS = {"sac": 11, "ppo": 8}  # with moments of Adam, targets and the weights before
_MOST_OTHERS = 1 << 20  # bytes of what is no network, such as a temperature
_MOST_REMEMBERED = 1 << 20  # agents whose memory a checkpoint has
_COPIES = 3  # the file, its tensors, and the bytes of one for the digest
_LOOKED_AT = 64  # bytes that tell a file of arkml 0.1
_ZIP, _FORMER_SUFFIX, _FORMER_NAME = b"PK\x03\x04", ".zip", b"state.pt"


class CheckpointDamaged(HiveError):
    """Raised when a checkpoint cannot be read, or does not match its checksum or the run."""


class CheckpointOutdated(CheckpointDamaged):
    """
    Raised when a checkpoint was written by an earlier version of arkml that this one cannot read.
    """


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """
    The state of a learner, as a checkpoint file holds it.

    Attributes:
        run: The id of the run in which the checkpoint was written.
        shaping: The settings that decide the shapes of the tensors, see `shaping_settings`.
        n_opts: The number of updates so far.
        rows: The number of rows of that run that had been read.
        cursor: The position in the log of that run up to which rows had been read.
        state: The tensors and plain values of the algorithm.
        facts: The remaining state of the learner as JSON values, for example statistics.

    """

    run: str
    shaping: Mapping[str, Any]
    n_opts: int
    rows: int
    cursor: Place
    state: State
    facts: Mapping[str, Any]

    def check_fits(self, settings: Settings) -> None:
        """
        Raise InvalidSettings if a run with these settings cannot continue from the checkpoint.
        """
        of_run = shaping_settings(settings)
        for name in {**of_run, **self.shaping}:
            if self.shaping.get(name) != of_run.get(name):
                raise InvalidSettings(
                    f"{name} is {of_run.get(name)!r}: the checkpoint {self.run}@{self.n_opts} was"
                    f" learned with {self.shaping.get(name)!r}"
                )


class Checkpoints:
    """
    The checkpoints in `directory`.

    Each is a safetensors file, for example `000000001000.safetensors` after 1,000 updates. The
    metadata of a file has everything but the tensors as JSON, and a checksum of all. The file
    `best` names the best checkpoint.
    """

    def __init__(self, directory: Path, *, kept: int = KEPT) -> None:
        self._directory = directory
        self._kept = kept

    def save(self, checkpoint: Checkpoint, *, best: bool = False) -> Path:
        """
        Write a checkpoint and drop old ones.

        Raises OSError, and Diverged if a tensor is not finite; then no checkpoint is dropped.
        """
        data = _packed(checkpoint)
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._path(checkpoint.n_opts)
        write_atomic(path, data, durable=True)
        if best:
            best_number = str(checkpoint.n_opts).encode()
            write_atomic(self._directory / _BEST, best_number, durable=True)
        self._prune()
        return path

    def newest(self, settings: Settings | None = None) -> Checkpoint | None:
        """
        Return the newest undamaged checkpoint, None if there is none; see `read_checkpoint`.

        Raises CheckpointOutdated if all checkpoints were written by an earlier version of arkml,
        InvalidSettings and HiveError.
        """
        for n_opts in reversed(self.numbers()):
            try:
                return read_checkpoint(self._path(n_opts), settings, follow=False)
            except CheckpointDamaged as error:
                log.warning("checkpoint %d is skipped: %s", n_opts, error)
        former = sorted(self._directory.glob(f"*{_FORMER_SUFFIX}"))
        if former:
            raise _outdated(former[-1])
        return None

    def find(self, n_opts: int, settings: Settings | None = None) -> Checkpoint | None:
        """
        Return the checkpoint after `n_opts` updates, None if there is none; see `read_checkpoint`.

        Raises CheckpointDamaged, or CheckpointOutdated for one of an earlier version of arkml,
        InvalidSettings and HiveError.
        """
        path = self._path(n_opts)
        for file in (path, path.with_suffix(_FORMER_SUFFIX)):
            if file.exists():
                return read_checkpoint(file, settings, follow=False)
        return None

    def numbers(self) -> list[int]:
        """Return the number of updates of each checkpoint, in ascending order."""
        return sorted(int(p.stem) for p in self._directory.glob(f"*{SUFFIX}") if p.stem.isdecimal())

    @property
    def best(self) -> int | None:
        """The number of updates of the best checkpoint, None if none is marked."""
        try:
            return int(read_plain(self._directory / _BEST, follow=False))
        except (OSError, ValueError):
            return None

    def _path(self, n_opts: int) -> Path:
        return self._directory / f"{n_opts:012d}{SUFFIX}"

    def _prune(self) -> None:
        for n_opts in self.numbers()[: -self._kept]:
            if n_opts != self.best:
                self._path(n_opts).unlink(missing_ok=True)


def shaping_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide the shapes of a learner's tensors, as JSON values."""
    later: dict[str, Any] = {"memory": settings.memory}  # left out by those that do without
    if settings.parts:
        later |= {"parts": [part.as_json() for part in settings.parts]}
        later |= {"encoder": settings.encoder}
    if settings.frames > 1:
        later |= {"frames": settings.frames}
    return {
        "learner": settings.learner,
        "features": settings.features,
        "actions": settings.actions,
        "branches": list(settings.branches),
        "hidden": settings.hidden,
        "layers": settings.layers,
    } | {name: value for name, value in later.items() if value}


def read_checkpoint(
    path: Path, settings: Settings | None = None, *, follow: bool = True
) -> Checkpoint:
    """
    Return the checkpoint in a file, which is not trusted.

    The header of the file is checked before tensors are read: tensors must have the declared sizes,
    and fit into memory.

    Args:
        path: The file.
        settings: Settings of a run that is to continue from the checkpoint, which is refused if it
            has other shapes or, for a learner of arkml, more bytes than its tensors can have.
        follow: Whether the file may be a symbolic link, for example a file that a user named.

    Raises:
        CheckpointDamaged: The file is not a checkpoint.
        CheckpointOutdated: The file was written by arkml 0.1.
        InvalidSettings: The checkpoint has other shapes.
        HiveError: There is not enough memory for it.

    """
    try:
        with open_file(path, follow=follow) as file:
            size = os.fstat(file.fileno()).st_size
            begin = file.read(_LOOKED_AT)
            if begin.startswith(_ZIP) and _FORMER_NAME in begin:
                raise _outdated(path)
            file.seek(0)
            header = _Header(file, size)
            if settings is not None:
                header.facts.checkpoint({}).check_fits(settings)
                header.require_size_for(settings)
            if _COPIES * size > (available := available_memory()):
                raise HiveError(
                    f"the checkpoint {path.name} has {size:,} bytes: reading it takes"
                    f" {_COPIES * size:,} bytes of memory, and {available:,.0f} are free"
                )
            return header.unpacked(header.data + file.read(size - len(header.data)))
    except OSError as error:
        raise CheckpointDamaged(f"{path.name} cannot be read: {error}") from error
    except (
        SafetensorError,
        ProtocolError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        raise CheckpointDamaged(f"{path.name} cannot be read: {error}") from error


class _Metadata(WireStruct, frozen=True):
    """The texts in the header of a checkpoint: its facts as JSON, and a checksum of all."""

    arkml: str
    sha256: str


class _Tensor(WireStruct, frozen=True):
    """A tensor in the header of a safetensors file, apart from its shape."""

    dtype: str
    data_offsets: tuple[Count, Count]


class _Facts(WireStruct, frozen=True, forbid_unknown_fields=True):
    """The metadata of a checkpoint: everything except its tensors."""

    format: Count
    run: str
    shaping: dict[str, Any]
    n_opts: Count
    rows: Count
    cursor: tuple[Count, Count]
    algorithm: dict[str, Any]
    facts: dict[str, Any]

    def checkpoint(self, tensors: Mapping[str, np.ndarray[Any, Any]]) -> Checkpoint:
        """Return the checkpoint with tensors."""
        return Checkpoint(
            self.run,
            self.shaping,
            self.n_opts,
            self.rows,
            Place(*self.cursor),
            State(tensors, self.algorithm),
            self.facts,
        )


def _packed(checkpoint: Checkpoint) -> bytes:
    tensors = {name: np.asarray(t, order="C") for name, t in checkpoint.state.tensors.items()}
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES.values():
            raise TypeError(f"tensor {name!r} is of {tensor.dtype}: expected one of {_DTYPE_NAMES}")
        if not np.isfinite(tensor).all():
            raise Diverged(f"{name} is not finite after {checkpoint.n_opts} updates")
    facts = _Facts(
        format=_FORMAT,
        run=checkpoint.run,
        shaping=dict(checkpoint.shaping),
        n_opts=checkpoint.n_opts,
        rows=checkpoint.rows,
        cursor=(checkpoint.cursor.segment, checkpoint.cursor.offset),
        algorithm=dict(checkpoint.state.plain),
        facts=dict(checkpoint.facts),
    )
    # Not `as_json`, which has None for a number that is not finite, such as a mean return.
    text = json.dumps({name: getattr(facts, name) for name in facts.__struct_fields__})
    return save(tensors, {_STATE: text, _DIGEST: _digest(text, tensors)})


class _Header:
    """
    The header of a safetensors file whose tensors have known types and own names.

    Raises ValueError and ProtocolError, also for a file of another size than the header says.
    """

    def __init__(self, file: IO[bytes], size: int) -> None:
        prefix = file.read(_HEADER_LENGTH.size)
        if len(prefix) < _HEADER_LENGTH.size:
            raise ValueError(f"it has {len(prefix)} bytes")
        (length,) = _HEADER_LENGTH.unpack(prefix)
        if length > min(size - _HEADER_LENGTH.size, _MOST_HEADER):
            raise ValueError(f"its header has {length} bytes, and the file {size}")
        text = file.read(length)
        self.data = prefix + text
        values = _object(text)
        metadata = _Metadata.from_json(values.pop("__metadata__", None))
        tensors = {name: _Tensor.from_json(tensor) for name, tensor in values.items()}
        for name, tensor in tensors.items():
            if tensor.dtype not in DTYPES:
                raise ValueError(f"tensor {name!r} is not of one of the types {_DTYPE_NAMES}")
        self._tensor_bytes = max((one.data_offsets[1] for one in tensors.values()), default=0)
        if len(self.data) + self._tensor_bytes != size:
            raise ValueError(
                f"its tensors have {self._tensor_bytes} bytes, and the file has"
                f" {size - len(self.data)} for them"
            )
        self._text, self._sha256 = metadata.arkml, metadata.sha256
        facts = _object(self._text)
        if facts.get("format") != _FORMAT:
            raise ValueError(f"it has format {facts.get('format')!r}, expected {_FORMAT}")
        self.facts = _Facts.from_json(facts)

    def require_size_for(self, settings: Settings) -> None:
        """Raise ValueError for tensors with more bytes than a run with these settings has."""
        most = _most_tensor_bytes(settings)
        if most is not None and self._tensor_bytes > most:
            raise ValueError(
                f"its tensors have {self._tensor_bytes} bytes, and a run with these settings has"
                f" at most {most}"
            )

    def unpacked(self, data: bytes) -> Checkpoint:
        """Return the checkpoint in a whole file, which begins with this header."""
        tensors = load(data)  # checks the rest of the header, also that the metadata are texts
        if _digest(self._text, tensors) != self._sha256:
            raise ValueError("its content does not match its checksum")
        for name, tensor in tensors.items():
            if not np.isfinite(tensor).all():
                raise ValueError(f"tensor {name!r} is not finite")
        return self.facts.checkpoint(tensors)


def _most_tensor_bytes(settings: Settings) -> int | None:
    """Return the most bytes of a learner's tensors, None for a learner of another package."""
    if settings.learner not in _OWN_NETWORKS:
        return None
    outputs = 2 * settings.actions + sum(settings.branches)
    hidden = [settings.hidden] * settings.layers
    widths = [encoded_width(settings) + settings.actions, *hidden, outputs]
    network = sum((before + 1) * after for before, after in pairwise(widths))
    network += count_numbers(settings) + count_chooser_numbers(settings)
    remembered = 0
    if memory := settings.memory:  # a unit for both networks, and what each of them takes of it
        first, second = widths[1:3]
        network += widths[0] * first + 2 * (first + 1) * memory + memory * second
        remembered = _MOST_REMEMBERED * (4 * memory + 8)  # and the numbers of rows
    return 4 * _OWN_NETWORKS[settings.learner] * network + remembered + _MOST_OTHERS


def _object(data: str | bytes) -> dict[str, Any]:
    """Return a JSON object. Raises ValueError, also for a name that occurs twice."""
    values = json.loads(data, object_pairs_hook=_distinct)
    if not isinstance(values, dict):
        raise ValueError(f"expected a JSON object, got {json.dumps(values)[:80]}")  # noqa: TRY004
    return values


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return values


def _digest(text: str, tensors: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Return the SHA-256 of the JSON and of the name, type, shape and content of each tensor."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, tensor.dtype.str, tensor.shape]).encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def _outdated(path: Path) -> CheckpointOutdated:
    return CheckpointOutdated(
        f"{path.name} was written by arkml 0.1 with stable-baselines3 and cannot be continued:"
        " train again, or with that version"
    )


_DTYPE_NAMES = ", ".join(np.dtype(dtype).name for dtype in DTYPES.values())
