"""Encoding of the answer to a submit of `ark-ml-v5`."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EPISODE_ENDS
from arkml.abi.ml_v5 import MAX_ACTIONS, MAX_ROWS
from arkml.batches import Batch
from arkml.errors import InvalidArguments

_VERSION = 0
_HEADER = struct.Struct("<BBH")
_ROW_HEADER = 9  # u64 id, u8 has-data


def require_countable(num_rows: int, num_actions: int) -> None:
    """Raise InvalidArguments for more rows or actions than an answer can hold."""
    if num_rows > MAX_ROWS:
        raise InvalidArguments(f"{num_rows} rows in one submit of ml-v5, the limit is {MAX_ROWS}")
    if num_actions > MAX_ACTIONS:
        raise InvalidArguments(
            f"{num_actions} actions for a row of ml-v5, the limit is {MAX_ACTIONS}"
        )


def has_ended(batch: Batch) -> npt.NDArray[np.bool_]:
    """Return which rows of a batch end their episode, as a mask: bool, [n]."""
    state: npt.NDArray[np.uint32] = batch.rows["state"]
    return np.isin(state, EPISODE_ENDS)


def encode(batch: Batch) -> tuple[bytes, int]:
    """
    Return the answer to a batch, and the number of non-finite actions sent as zeros.

    The answer is a header, then for each row its id (8 bytes), has-data (1 byte) and, unless the
    row ended its episode, its actions: 17 bytes, for example, with two actions.
    """
    num_rows, num_actions = batch.actions.shape
    ended = has_ended(batch)
    rows = np.zeros(num_rows, _row_type(num_actions))
    rows["id"] = batch.rows["id"]
    rows["has_data"] = ~ended
    finite = np.isfinite(batch.actions)
    rows["actions"] = np.where(finite, batch.actions, np.float32(0))
    octets = rows.view(np.uint8).reshape(num_rows, _ROW_HEADER + 4 * num_actions)
    kept = np.ones(octets.shape, np.bool_)
    kept[ended, _ROW_HEADER:] = False
    non_finite = int(np.count_nonzero(~finite[~ended]))
    return _HEADER.pack(_VERSION, num_rows, num_actions) + octets[kept].tobytes(), non_finite


def _row_type(num_actions: int) -> np.dtype[Any]:
    return np.dtype([("id", "<u8"), ("has_data", "u1"), ("actions", "<f4", (num_actions,))])
