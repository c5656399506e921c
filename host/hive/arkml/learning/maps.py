"""Maps, [n, height, width, channels], and what networks make of them, in numpy or JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from arkml.batches import Floats


class Arrays(NamedTuple):
    """
    A library of arrays.

    Attributes:
        xp: numpy or jax.numpy.
        convolve: Returns maps, [n, height', width', filters], of others, [n, height, width,
            channels], by a weight, [window * window * channels, filters], a window and a step.
        by_few: Returns the results of a function, [n, numbers], of maps, of a few rows at a time
            where that takes less memory and time.

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
