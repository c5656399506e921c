"""Layers of networks on maps, [n, height, width, channels], in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from arkml.learning.maps import Arrays

_FEW, _FEW_CELLS = 8, 2_048  # rows at a time, and of small maps as many as have so many cells


def _convolve(maps: Any, weight: Any, window: int, step: int) -> Any:
    """
    Return a convolution as a product; see `Arrays.convolve`.

    On a processor the gradient of XLA's convolutions takes 24 times as long within a loop, such as
    the one over minibatches. Windows that are whole steps wide are made of blocks of a step, so
    that 8 x 8 pixels with a step of 4 are 4 pieces and not 64, which take as long to compile.
    """
    side = step if window % step == 0 else 1  # of a block
    blocks = _blocks(maps, window, step, side)
    wide, apart = window // side, step // side
    height, width = ((length - wide) // apart * apart + 1 for length in blocks.shape[1:3])
    shifted = [
        blocks[:, down : down + height : apart, across : across + width : apart]
        for down in range(wide)
        for across in range(wide)
    ]
    square = weight.reshape(wide, side, wide, side, maps.shape[-1], -1)
    products = square.transpose(0, 2, 1, 3, 4, 5).reshape(weight.shape)
    return jnp.concatenate(shifted, -1) @ products


def _blocks(maps: Any, window: int, step: int, side: int) -> Any:
    """Return the part of maps that windows see, in squares of `side`: their numbers in a row."""
    count, _, _, channels = maps.shape
    height, width = ((length - window) // step * step + window for length in maps.shape[1:3])
    high, wide = height // side, width // side
    blocks = maps[:, :height, :width].reshape(count, high, side, wide, side, channels)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(count, high, wide, -1)


def _by_few(function: Callable[[Any], Any], maps: Any) -> Any:
    """
    Return the results of a function of maps, some rows at a time; see `Arrays.by_few`.

    Its results are forgotten, and computed again for the gradient: the windows of many layers,
    which are nine times as large as their maps, stay in a processor's cache.
    """
    count, height, width = maps.shape[:3]
    few = max(_FEW, _FEW_CELLS // (height * width))
    parts = -(-count // few)
    rest = parts * few - count
    padded = jnp.pad(maps, ((0, rest), *((0, 0) for _ in maps.shape[1:])))
    made = jax.lax.map(jax.checkpoint(function), padded.reshape(parts, few, *maps.shape[1:]))
    return made.reshape(parts * few, -1)[:count]


JAX = Arrays(jnp, _convolve, _by_few)
