"""Standard normal numbers that depend on seed, session, agent and step, and on nothing else."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats

Words = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND = np.uint64(0x94D0_49BB_1331_11EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)
_MINUS_TWO = np.float32(-2.0)
_HALF = np.float32(0.5)
_UNIT = np.float32(2.0**-32)
_TURN = np.float32(2.0 * np.pi * 2.0**-32)


def mix(words: Words) -> Words:
    """The output function of splitmix64: a permutation of 64-bit words that looks random."""
    words = (words ^ (words >> _30)) * _FIRST
    words = (words ^ (words >> _27)) * _SECOND
    return words ^ (words >> _31)


def streams(seed: int, keys: Words, ids: Words) -> Words:
    """
    One word for each agent, uint64, [n], that sets its numbers apart from those of others.

    ids: uint64, [n]. keys: uint64, [] or [n].
    """
    # Arrays, never single numbers: numpy warns when the arithmetic of those wraps.
    words = mix(np.array([seed & _MASK], np.uint64) + _GOLDEN)
    words = mix(words + np.atleast_1d(keys))
    return mix(words ^ ids)


def fill_normal(out: Floats, streams: Words, steps: Words) -> None:
    """
    Draw `out`, float32, [n, width], for n agents at their steps.

    streams, steps: uint64, [n]. A counter-based generator: the same stream and step give the same
    row, wherever the row lies in its batch.
    """
    width = out.shape[1]
    # One word makes two numbers, by Box and Muller: half of it the radius, half of it the angle.
    words = mix(mix(streams + steps * _GOLDEN)[:, None] + _offsets((width + 1) // 2))
    # In place from here on, contiguous: numpy's vector loops then treat every row alike.
    radius = (words >> _32).astype(np.float32)
    radius += _HALF
    radius *= _UNIT
    np.log(radius, out=radius)
    radius *= _MINUS_TWO
    np.sqrt(radius, out=radius)
    angle = (words & _LOW).astype(np.float32)
    angle *= _TURN
    odd = width // 2
    np.multiply(radius, np.cos(angle), out=out[:, 0::2])
    np.multiply(radius[:, :odd], np.sin(angle)[:, :odd], out=out[:, 1::2])


@cache
def _offsets(count: int) -> Words:
    return np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
