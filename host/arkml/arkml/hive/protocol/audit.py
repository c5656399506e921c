"""Checksums of rows, to compare the rows of a sender with the rows of a learner."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from arkml.hive.protocol.rows import RowColumns

Words = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND = np.uint64(0x94D0_49BB_1331_11EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


AUDIT = "ARKML_AUDIT_ROWS"
"""The environment variable that makes hosts and learners hash each row if it is 1, for tests."""


def is_audited() -> bool:
    """Return whether rows are hashed, which tests switch on to find lost or changed rows."""
    return os.environ.get(AUDIT) == "1"


def row_hashes(session: int, kind: int, columns: RowColumns) -> Words:
    """
    Return a hash of each row: uint64, [n].

    The hash depends on the session, the kind, the agent, the step and the bits of the reward. The
    checksum of a set of rows is the XOR of their hashes, in any order.

    Args:
        session: Index of the session that sent the rows.
        kind: Number of their RowKind.
        columns: The rows.

    """
    # Arrays, never single numbers: numpy warns when the arithmetic of those wraps.
    start = _mixed(np.array([session << 2 | kind], np.uint64) + _GOLDEN)
    words = _mixed(start ^ columns.agent.astype(np.uint64, copy=False))
    reward = np.ascontiguousarray(columns.reward, np.float32).view(np.uint32)
    return _mixed(words ^ (columns.step.astype(np.uint64) << _32 | reward.astype(np.uint64)))


def checksum(hashes: Words) -> int:
    """Return the checksum of the rows with these hashes (uint64, [n]), 0 for none."""
    return int(np.bitwise_xor.reduce(hashes)) if len(hashes) else 0


def _mixed(words: Words) -> Words:
    """Return each word permuted by the output function of splitmix64: uint64, [n]."""
    words = words + _GOLDEN
    words = (words ^ (words >> _30)) * _FIRST
    words = (words ^ (words >> _27)) * _SECOND
    return words ^ (words >> _31)
