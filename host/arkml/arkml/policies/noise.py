"""
Standard normal noise, white or pink, that depends only on seed, session, agent, step and index.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats

Words = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
OCTAVES = 8
"""Normal numbers that a pink one is the sum of."""

GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
SECOND = np.uint64(0x94D0_49BB_1331_11EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFF_FFFF)
_MINUS_TWO = np.float32(-2.0)
_HALF = np.float32(0.5)
_OCTAVES = np.arange(OCTAVES, dtype=np.uint64)[:, None]
_SHARE = np.float32(OCTAVES**-0.5)
_NEVER = np.uint64(_MASK)  # no step
_NOBODY: Words = np.empty(0, np.uint64)
UNIT = np.float32(2.0**-32)
TURN = np.float32(2.0 * np.pi * 2.0**-32)


def mix(words: Words) -> Words:
    """
    Scramble 64-bit words by the output function of splitmix64, a permutation.

    words: uint64, of any shape.
    """
    words = (words ^ (words >> _30)) * FIRST
    words = (words ^ (words >> _27)) * SECOND
    return words ^ (words >> _31)


def streams(seed: int, keys: Words, ids: Words) -> Words:
    """
    Return the number of each agent's random stream: uint64, [n].

    ids: uint64, [n], the agents' ids. keys: uint64, [] or [n], the keys of their sessions.
    """
    # Arrays, never scalars: numpy warns where scalar arithmetic wraps.
    words = mix(np.array([seed & _MASK], np.uint64) + GOLDEN)
    words = mix(words + np.atleast_1d(keys))
    return mix(words ^ ids)


def fill_normal(out: Floats, streams: Words, steps: Words) -> None:
    """
    Fill `out`, float32, [n, width], with white noise for n agents at their steps.

    streams, steps: uint64, [n]. The generator is counter-based: equal streams and steps give equal
    rows anywhere in a batch.
    """
    width = out.shape[1]
    # By Box and Muller one word makes two numbers: radius and angle, from half of it each.
    words = mix(mix(streams + steps * GOLDEN)[:, None] + _offsets((width + 1) // 2))
    # In place and contiguous from here on, so that numpy's vector loops treat every row alike.
    radius = (words >> _32).astype(np.float32)
    radius += _HALF
    radius *= UNIT
    np.log(radius, out=radius)
    radius *= _MINUS_TWO
    np.sqrt(radius, out=radius)
    angle = (words & _LOW).astype(np.float32)
    angle *= TURN
    odd = width // 2
    np.multiply(radius, np.cos(angle), out=out[:, 0::2])
    np.multiply(radius[:, :odd], np.sin(angle)[:, :odd], out=out[:, 1::2])


class PinkNoise:
    """
    Fills arrays as `fill_normal` does, but with pink noise, which changes slowly from step to step.

    This is the method of Voss: each number is a sum of eight standard normal numbers, of which the
    kth is drawn again every 2^k steps, divided by the square root of eight. Each number alone is
    standard normal.

    The normal numbers of the last batch are kept: while agents stay in their rows, two of eight
    are drawn in a step. What is kept never changes a result.
    """

    def __init__(self) -> None:
        self._agents: Words = _NOBODY
        self._streams: Words = np.empty((OCTAVES, 0), np.uint64)
        self._drawn_at: Words = self._streams
        self._normal: Floats = np.empty((OCTAVES, 0, 0), np.float32)

    def __call__(self, out: Floats, streams: Words, steps: Words) -> None:
        """Fill `out`, float32, [n, width]. streams, steps: uint64, [n]."""
        agents, own, before, normal = self._agents, self._streams, self._drawn_at, self._normal
        if normal.shape[1:] != out.shape or not np.array_equal(agents, streams):
            agents, own = streams.copy(), mix(streams + _OCTAVES * GOLDEN)
            before, normal = np.full_like(own, _NEVER), np.empty((OCTAVES, *out.shape), np.float32)
        self._agents = _NOBODY  # until all is whole, which an interrupt may prevent
        drawn_at = (steps + (own >> _32)) >> _OCTAVES  # agents do not change at the same time
        rows = np.flatnonzero(drawn_at != before)
        drawn = np.empty((rows.size, out.shape[1]), np.float32)
        fill_normal(drawn, own.ravel()[rows], drawn_at.ravel()[rows])
        normal.reshape(drawn_at.size, out.shape[1])[rows] = drawn
        self._streams, self._drawn_at, self._normal = own, drawn_at, normal
        self._agents = agents
        out[...] = 0
        for part in normal:
            out += part  # one by one, so that a row is the same in a batch of any size
        out *= _SHARE


@cache
def _offsets(count: int) -> Words:
    return np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
