"""Pictures of what agents observe: the images and grids in their observations."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import numpy as np

from arkml.arrays import rounded_bytes
from arkml.batches import Floats
from arkml.envs.core.specs import ObservationPart, Spec
from arkml.envs.drawing import COLORS, LINE, MOST_DRAWN, PAPER, SIDE, Figure, Pixels, Plane

_OPAQUE = 4  # channels of an image that has an opacity
_FAINTEST = 0.2  # of a color, for the smallest number that is not 0
_TURN = 0.382  # of the circle of hues, from one further color to the next


def picture_of(spec: Spec) -> Plane | Pictures | None:
    """
    Return the object that draws the agents of a behavior, or None.

    It draws agents in a plane if the spec declares positions, else the images and grids that they
    observe, if there are any.
    """
    if spec.positions is not None:
        return Plane(spec)
    has_any = any(part.kind in ("image", "grid") for part in spec.observations)
    return Pictures(spec) if has_any else None


class Pictures:
    """
    Draws the images and grids that agents observe, side by side, for the first 16 agents.

    Each image is enlarged by a whole factor, without smoothing. A large image is reduced to every
    second pixel, or every third, and so on. Lines separate the images.
    """

    def __init__(self, spec: Spec) -> None:
        self._drawn = [
            (columns, part, _Cells(part))
            for part, columns in zip(spec.observations, spec.columns, strict=True)
            if part.kind in ("image", "grid")
        ]

    def draw(self, agents: Sequence[Figure]) -> Pixels:
        """Return a picture of agents, uint8, [256, 256, 3]."""
        tiles = [
            _image_colors(part, values) if part.kind == "image" else cells.colors(values)
            for agent in agents[:MOST_DRAWN]
            for columns, part, cells in self._drawn
            for values in [agent.features[columns].reshape(part.shape)]
        ]
        canvas = np.full((SIDE, SIDE, 3), PAPER, np.uint8)
        across = int(np.ceil(np.sqrt(len(tiles))))
        down = -(-len(tiles) // max(1, across))
        for number, tile in enumerate(tiles):
            row, column = divmod(number, across)
            top, bottom = (SIDE * n // down for n in (row, row + 1))
            left, right = (SIDE * n // across for n in (column, column + 1))
            _place(canvas, tile, (top, left, bottom, right))
        return canvas


class _Cells:
    """The colors of a grid; numbers are drawn as parts of the largest, declared or reached."""

    def __init__(self, part: ObservationPart) -> None:
        self._categories = part.categories
        count = part.categories or part.shape[-1]
        self._palette = np.array([_color(index) for index in range(count)], np.float32)
        if part.categories:
            self._palette[0] = PAPER
        bounds = np.abs([*part.low, *part.high])
        self._most = float(bounds[np.isfinite(bounds)].max(initial=0))

    def colors(self, values: Floats) -> Pixels:
        """
        Return the colors of cells, uint8, [height, width, 3].

        A category has a color, and 0 that of paper, as all that is no category. Of channels the
        last one is drawn whose number is not 0.
        """
        if self._categories:
            is_one = (values == np.floor(values)) & (values > 0) & (values < self._categories)
            with np.errstate(invalid="ignore"):
                chosen = np.where(is_one, values, 0).astype(np.int64)
            return self._palette[chosen].astype(np.uint8)
        sizes = np.where(np.isfinite(values), np.abs(values), 0)
        self._most = max(self._most, float(sizes.max(initial=0)))
        channels = sizes.shape[-1]
        chosen = channels - 1 - np.argmax(sizes[..., ::-1] > 0, axis=-1)
        size = np.take_along_axis(sizes, chosen[..., None], -1)
        strength = np.where(size > 0, _FAINTEST + (1 - _FAINTEST) * size / (self._most or 1), 0)
        paper = np.array(PAPER, np.float32)
        mixed: Pixels = (paper + strength * (self._palette[chosen] - paper)).astype(np.uint8)
        return mixed


def _image_colors(part: ObservationPart, values: Floats) -> Pixels:
    """
    Return the colors of an image, uint8, [height, width, 3], of values, [height, width, channels].

    One channel is gray, four have an opacity, and of others the first three are red, green, blue.
    """
    pixels, channels = rounded_bytes(values), part.shape[-1]
    if channels == 1:
        return np.repeat(pixels, 3, -1)
    if channels == _OPAQUE:
        paper = np.array(PAPER, np.float32)
        opacity = pixels[..., 3:].astype(np.float32) / 255
        mixed: Pixels = (paper + opacity * (pixels[..., :3] - paper)).astype(np.uint8)
        return mixed
    colors = np.zeros((*pixels.shape[:2], 3), np.uint8)
    colors[..., : min(3, channels)] = pixels[..., :3]
    return colors


def _color(index: int) -> tuple[float, ...]:
    if index < len(COLORS):
        return COLORS[index]
    return tuple(255 * part for part in colorsys.hls_to_rgb(index * _TURN % 1, 0.5, 0.6))


def _place(canvas: Pixels, tile: Pixels, box: tuple[int, int, int, int]) -> None:
    """Draw a tile, [height, width, 3], in the middle of a box: top, left, bottom, right."""
    top, left, bottom, right = box
    room = np.array((bottom - top, right - left))
    sides = np.array(tile.shape[:2])
    if (sides > room).any():
        step = int(np.ceil(sides / room).max())
        tile = tile[::step, ::step]
    factor = int((room // tile.shape[:2]).min())
    tile = tile.repeat(factor, 0).repeat(factor, 1)
    height, width = tile.shape[:2]
    top_edge, left_edge = top + (room[0] - height) // 2, left + (room[1] - width) // 2
    canvas[top_edge : top_edge + height, left_edge : left_edge + width] = tile
    if top:
        canvas[top, left:right] = LINE
    if left:
        canvas[top:bottom, left] = LINE
