"""Demonstrations in memory: rows that were checked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EPISODE_ENDS, EpisodeState
from arkml.batches import Floats
from arkml.errors import UsageError
from arkml.hive.protocol.rows import MAX_WIDTH, RowColumns

MOST_BYTES = 1 << 30
"""Bytes of all columns of a file together."""

_LAST_STEP = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class DemonstrationSet:
    """
    Rows of demonstrations, in the order in which they were played.

    `branches` are the numbers of choices of the last actions, which are discrete, for example (3,
    2); None if the file does not say. `guest` (such as `npc.wasm`) and `sha256` identify the module
    that was played; `module` is its path on the machine that wrote the rows. They are empty if
    unknown. `warnings` are sentences about irregular rows.
    """

    columns: RowColumns
    branches: tuple[int, ...] | None = None
    guest: str = ""
    sha256: str = ""
    module: str = ""
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def features(self) -> int:
        """Number of features of a row."""
        return int(self.columns.features.shape[1])

    @property
    def actions(self) -> int:
        """Number of actions of a row."""
        return int(self.columns.action.shape[1])

    @property
    def episodes(self) -> int:
        """Number of rows that end an episode."""
        return int(np.isin(self.columns.state, EPISODE_ENDS).sum())

    @property
    def digest(self) -> str:
        """The SHA-256 of the rows, in hex; it is equal for sets with equal rows."""
        total = hashlib.sha256()
        for array in self.columns.arrays():
            total.update(f"{array.dtype.str}{array.shape}".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()


def row_columns(
    agent: npt.NDArray[Any],
    step: npt.NDArray[Any],
    state: npt.NDArray[Any],
    reward: npt.NDArray[Any],
    features: npt.NDArray[Any],
    action: npt.NDArray[Any],
) -> RowColumns:
    """
    Return rows as the columns that a hive takes, with policy version 0 and without metadata.

    agent, step, state, reward: [n]. features: [n, F]. action: [n, A].
    """
    rows = RowColumns.empty(len(agent), features.shape[1], action.shape[1])
    with np.errstate(over="ignore"):  # a number too large is infinite, and such rows are left out
        rows.agent[:], rows.step[:], rows.state[:] = agent, step, state
        rows.reward[:], rows.features[:], rows.action[:] = reward, features, action
    return rows


def checked(source: str, columns: dict[str, npt.NDArray[Any]]) -> tuple[RowColumns, list[str]]:
    """
    Check the rows of a file; return the usable rows, and warnings about the others.

    `columns` are the arguments of `row_columns`, of any real type, such as float64; `source` names
    the file. Rows that are not finite are left out. Raises UsageError for impossible values, such
    as a state of 7 or a negative step, and if no row is left.
    """
    _require_shapes(source, columns)
    _require_counts(source, columns)
    rows = row_columns(**columns)
    finite = np.isfinite(rows.reward) & np.isfinite(rows.features).all(axis=1)
    finite &= np.isfinite(rows.action).all(axis=1)
    warnings = []
    if lost := int((~finite).sum()):
        warnings.append(f"{lost:,} of {len(rows):,} rows of {source} are not finite: left out")
        rows = rows.take(finite)
    if not len(rows):
        raise UsageError(f"{source} has no rows to learn from")
    rows.action[np.isin(rows.state, EPISODE_ENDS)] = 0
    return rows, warnings


def outside(source: str, action: Floats, branches: tuple[int, ...]) -> list[str]:
    """Return a warning if continuous actions, float32, [n, A], are outside of [-1, 1]."""
    continuous = action[:, : action.shape[1] - len(branches)]
    wrong = int((np.abs(continuous) > 1).any(axis=1).sum()) if continuous.size else 0
    if not wrong:
        return []
    return [
        f"{wrong:,} of {len(action):,} rows of {source} have actions outside of [-1, 1]: learners"
        " take the nearest bound"
    ]


def require_choices(source: str, action: Floats, branches: tuple[int, ...]) -> None:
    """Raise UsageError if the last actions, float32, [n, A], are not choices of `branches`."""
    if len(branches) > action.shape[1]:
        raise UsageError(
            f"{source} has {action.shape[1]} actions, and branches of {list(branches)} choices"
        )
    for place, size in enumerate(branches, action.shape[1] - len(branches)):
        chosen = action[:, place]
        wrong = (chosen != np.floor(chosen)) | (chosen < 0) | (chosen >= size)
        if wrong.any():
            raise UsageError(
                f"row {int(wrong.argmax())} of {source} has {float(chosen[wrong][0]):g} as action"
                f" {place}, which has {size} choices, from 0 on"
            )


def _require_shapes(source: str, columns: dict[str, npt.NDArray[Any]]) -> None:
    count = len(columns["agent"]) if columns["agent"].ndim else 0
    for name, array in columns.items():
        wide = name in ("features", "action")
        if array.ndim != 1 + wide or len(array) != count:
            wanted = f"[{count}, {name}s]" if name == "action" else f"[{count}, {name}]"
            raise UsageError(
                f"{name!r} of {source} has the shape {list(array.shape)}: it takes"
                f" {wanted if wide else [count]}"
            )
        if wide and not 1 <= array.shape[1] <= MAX_WIDTH:
            raise UsageError(
                f"{name!r} of {source} is {array.shape[1]:,} wide: it takes 1 to {MAX_WIDTH:,}"
            )


def _require_counts(source: str, columns: dict[str, npt.NDArray[Any]]) -> None:
    """Raise UsageError for numbers that a hive's columns cannot hold, such as a step of -1."""
    most = {"agent": (1 << 64) - 1, "step": _LAST_STEP, "state": max(EpisodeState)}
    for name, last in most.items():
        array = columns[name]
        wrong = (array < 0) | (array > last) if len(array) else np.zeros(0, bool)
        if wrong.any():
            raise UsageError(
                f"row {int(wrong.argmax())} of {source} has {name} {array[wrong][0]}: it takes 0"
                f" to {int(last)}"
            )
