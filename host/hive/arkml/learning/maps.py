"""Layers of networks on maps, [n, height, width, channels], in numpy or JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from arkml.batches import Floats


class Arrays(NamedTuple):
    """
    The array library that layers compute with, and operations in which libraries differ.

    Attributes:
        xp: numpy or jax.numpy.
        convolve: Convolves maps, [n, height, width, channels], with a weight, [window * window *
            channels, filters], given window and step; returns [n, height', width', filters].
        by_few: Applies a function, with results [n, numbers], to maps, a few rows at a time where
            that takes less memory and time.

    """

    xp: Any
    convolve: Callable[[Any, Any, int, int], Any]
    by_few: Callable[[Callable[[Any], Any], Any], Any]


def _convolved(maps: Floats, weight: Floats, window: int, step: int) -> Floats:
    """Return a convolution in numpy, as a product with all windows; see `Arrays.convolve`."""
    height, width = ((length - window) // step * step + 1 for length in maps.shape[1:3])
    shifted = [
        maps[:, down : down + height : step, across : across + width : step]
        for down in range(window)
        for across in range(window)
    ]
    made: Floats = np.concatenate(shifted, -1) @ weight
    return made


NUMPY = Arrays(np, _convolved, lambda function, maps: function(maps))
