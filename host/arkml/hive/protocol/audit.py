"""A checksum of rows, by which what a sender counted is compared with what a learner holds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from arkml.hive.protocol.rows import Columns

Words = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND = np.uint64(0x94D0_49BB_1331_11EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


def row_hashes(session: int, kind: int, columns: Columns) -> Words:
    """
    One word for each row: uint64, [n], of its session, kind, agent, step and bits of the reward.

    The rows of a set have the XOR of their words as a checksum, in whatever order they come.
    """
    # Arrays, never single numbers: numpy warns when the arithmetic of those wraps.
    start = _mixed(np.array([session << 2 | kind], np.uint64) + _GOLDEN)
    words = _mixed(start ^ columns.agent.astype(np.uint64, copy=False))
    reward = np.ascontiguousarray(columns.reward, np.float32).view(np.uint32)
    return _mixed(words ^ (columns.step.astype(np.uint64) << _32 | reward.astype(np.uint64)))


def checksum(hashes: Words) -> int:
    """The checksum of the rows with these hashes, 0 for none."""
    return int(np.bitwise_xor.reduce(hashes)) if len(hashes) else 0


def _mixed(words: Words) -> Words:
    """The output function of splitmix64: a permutation of 64-bit words that looks random."""
    words = words + _GOLDEN
    words = (words ^ (words >> _30)) * _FIRST
    words = (words ^ (words >> _27)) * _SECOND
    return words ^ (words >> _31)
