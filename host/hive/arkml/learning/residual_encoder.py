"""
Residual networks over grids and images, as in IMPALA (Espeholt et al. 2018).

A block is a convolution of 3 x 3, a maximum over 3 x 3 with stride 2, and two residual units, each
of two convolutions of 3 x 3. All layers are padded with zeros to keep the height and the width of
their maps, except that the stride halves both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from arkml.learning.algorithm import Layer
from arkml.learning.maps import Arrays

WINDOW = 3

_FILTERS = (16, 32, 32)
_LEAST_SIDE = 4  # of maps that another block halves


class ResidualBlock(NamedTuple):
    """
    The weights of the convolutions of a block.

    Attributes:
        entry: The first convolution, before maps are halved: [9 * channels, filters].
        inner, outer: The convolutions of the first residual unit: [9 * filters, filters] each.
        next_inner, next_outer: The convolutions of the second residual unit.

    """

    entry: Layer
    inner: Layer
    outer: Layer
    next_inner: Layer
    next_outer: Layer

    @property
    def units(self) -> tuple[tuple[Layer, Layer], ...]:
        """The two convolutions of each residual unit."""
        return (self.inner, self.outer), (self.next_inner, self.next_outer)


class ResidualEncoder(NamedTuple):
    """
    The blocks over a grid or an image, and a linear layer on their outputs, with ReLUs around it.
    """

    blocks: list[ResidualBlock]
    last: Layer


def block_filters(height: int, width: int) -> list[int]:
    """
    Return the number of filters of each block for maps of this height and width.

    There are three blocks, fewer if maps become smaller than four cells on a side, at least one.
    """
    filters: list[int] = []
    for each in _FILTERS:
        if filters and min(height, width) < _LEAST_SIDE:
            break
        filters.append(each)
        height, width = halved(height, width)
    return filters


def halved(*sides: int) -> tuple[int, ...]:
    """Return the height and width of maps after a block."""
    return tuple((side + 1) // 2 for side in sides)


def residual_encoder(layers: Sequence[Layer]) -> ResidualEncoder:
    """Return an encoder made of these layers, in the order of their application."""
    *convolutions, last = layers
    each = len(ResidualBlock._fields)
    firsts = range(0, len(convolutions), each)
    return ResidualEncoder([ResidualBlock(*convolutions[n : n + each]) for n in firsts], last)


def blocks_seen(arrays: Arrays, encoder: ResidualEncoder, maps: Any) -> Any:
    """Apply the blocks to maps, [n, height, width, channels]; return flat outputs, [n, numbers]."""
    xp = arrays.xp

    def convolved(layer: Layer, values: Any) -> Any:
        padded = xp.pad(values, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return arrays.convolve(padded, layer.weight, WINDOW, 1) + layer.bias

    for block in encoder.blocks:
        maps = _largest_around(xp, convolved(block.entry, maps))
        for inner, outer in block.units:
            added = convolved(inner, xp.maximum(maps, 0.0))
            maps = maps + convolved(outer, xp.maximum(added, 0.0))
    return xp.maximum(maps, 0.0).reshape(len(maps), -1)


def _largest_around(xp: Any, maps: Any) -> Any:
    """Return the largest of the 3 x 3 cells around every second cell, as far as cells exist."""
    for axis in (1, 2):
        around = [(1, 1) if each == axis else (0, 0) for each in range(4)]
        padded = xp.pad(maps, around, constant_values=-xp.inf)
        count = maps.shape[axis]
        before, here, after = (
            padded[(slice(None),) * axis + (slice(first, first + count, 2),)] for first in range(3)
        )
        maps = xp.maximum(xp.maximum(before, here), after)
    return maps
