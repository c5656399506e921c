"""Pictures of agents in a plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from arkml.batches import Floats
from arkml.envs.core.specs import Spec
from arkml.errors import UsageError

Pixels = npt.NDArray[np.uint8]
"""A picture, uint8, [256, 256, 3]."""

RenderMode = Literal["ansi", "rgb_array"] | None

SIDE = 256  # pixels
_DOT = 5  # pixels from the middle of an agent
_MARGIN = 0.05  # of the picture, beyond what is declared
_PAPER, _LINE = (250, 250, 248), (205, 205, 200)
_COLORS = ((31, 119, 180), (214, 39, 40), (44, 160, 44), (148, 103, 189), (255, 127, 14))


class Plane:
    """
    Draws the places of agents, the features that a spec declares as `positions`.

    What is seen are the declared bounds of these features, and where there are none everything
    that an agent has reached so far. Raises UsageError if no positions are declared.
    """

    def __init__(self, spec: Spec) -> None:
        if spec.positions is None:
            raise UsageError("render_mode 'rgb_array' takes a spec that declares 'positions'")
        self._columns = list(spec.positions)
        self._width = sum(part.size for part in spec.observations)
        low = [bound for part in spec.observations for bound in part.low]
        high = [bound for part in spec.observations for bound in part.high]
        self._low = np.array([low[column] for column in self._columns])
        self._high = np.array([high[column] for column in self._columns])
        self._is_open = ~(np.isfinite(self._low) & np.isfinite(self._high))
        self._low[self._is_open], self._high[self._is_open] = -1.0, 1.0

    def draw(self, features: Sequence[Floats], colors: Sequence[int]) -> Pixels:
        """
        Return a picture, uint8, [256, 256, 3], of agents with features, float32, [num_features].

        colors: for each agent the number of its color. The second coordinate points up.
        """
        places = np.array(features, np.float32).reshape(-1, self._width)[:, self._columns]
        places = places[np.isfinite(places).all(1)]
        if len(places):
            grown = np.minimum(self._low, places.min(0)), np.maximum(self._high, places.max(0))
            self._low = np.where(self._is_open, grown[0], self._low)
            self._high = np.where(self._is_open, grown[1], self._high)
        image = Image.new("RGB", (SIDE, SIDE), _PAPER)
        brush = ImageDraw.Draw(image)
        inner = SIDE * _MARGIN
        brush.rectangle((inner, inner, SIDE - 1 - inner, SIDE - 1 - inner), outline=_LINE)
        width = np.where(self._high > self._low, self._high - self._low, 1.0)
        scaled = inner + (places - self._low) / width * (SIDE - 1 - 2 * inner)
        for (x, y), color in zip(scaled.tolist(), colors, strict=False):
            box = (x - _DOT, SIDE - 1 - y - _DOT, x + _DOT, SIDE - 1 - y + _DOT)
            brush.ellipse(box, fill=_COLORS[color % len(_COLORS)])
        return np.asarray(image)
