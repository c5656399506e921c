"""Pictures of agents: their positions in a plane, or bars of their features and actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.envs.core.specs import Spec

Pixels = npt.NDArray[np.uint8]
"""A picture, uint8, [256, 256, 3]."""

RenderMode = Literal["ansi", "rgb_array"] | None

SIDE = 256  # pixels
_DOT = 5  # pixels from the middle of an agent
_MARGIN = 0.05  # of the picture, beyond what is declared
PAPER, LINE = (250, 250, 248), (205, 205, 200)
COLORS = ((31, 119, 180), (214, 39, 40), (44, 160, 44), (148, 103, 189), (255, 127, 14))
_DARKER = 0.6  # of a color, for the bars of actions
MOST_DRAWN = 16  # agents in a picture, but for one of a plane
_BARS = 64  # in one strip; of more values every second one is drawn, or every third …
_GAP = 4  # pixels between strips, and between features and actions


class Figure(NamedTuple):
    """
    An agent to draw.

    Attributes:
        features: float32, [num_features].
        action: float32, [num_actions], None before its first one.
        color: Number of the agent's color.

    """

    features: Floats
    action: Floats | None
    color: int


class Plane:
    """
    Draws the positions of agents in a plane, the two features that a spec declares as `positions`.

    The picture shows the declared bounds of these features, or, without bounds, the range that
    agents have reached so far.
    """

    def __init__(self, spec: Spec) -> None:
        assert spec.positions is not None
        columns = self._columns = list(spec.positions)
        self._scale = _Scale(*(bounds[columns] for bounds in _feature_bounds(spec)))

    def draw(self, agents: Sequence[Figure]) -> Pixels:
        """Return a picture, uint8, [256, 256, 3]. The second coordinate points up."""
        points = np.array([agent.features[self._columns] for agent in agents], np.float32)
        points = points.reshape(-1, len(self._columns))
        finite = np.asarray(np.isfinite(points).all(axis=1))
        image = Image.new("RGB", (SIDE, SIDE), PAPER)
        brush = ImageDraw.Draw(image)
        inner = SIDE * _MARGIN
        brush.rectangle((inner, inner, SIDE - 1 - inner, SIDE - 1 - inner), outline=LINE)
        self._scale.reach(points[finite])
        scaled = inner + self._scale.parts(points) * (SIDE - 1 - 2 * inner)
        for (x, y), agent, is_finite in zip(scaled.tolist(), agents, finite.tolist(), strict=True):
            if is_finite:
                box = (x - _DOT, SIDE - 1 - y - _DOT, x + _DOT, SIDE - 1 - y + _DOT)
                brush.ellipse(box, fill=COLORS[agent.color % len(COLORS)])
        return np.asarray(image)


class Bars:
    """
    Draws the features and the last actions of agents as bars, a strip for each of the first 16.

    A bar reaches from the middle of its range to the value. The range is between the declared
    bounds or, without bounds, between the values that agents have reached so far, at least from -1
    to 1. Actions are darker, in the last quarter of a strip. Missing entities have no bars.
    """

    def __init__(self, spec: Spec) -> None:
        actions = spec.actions
        zeros = np.zeros(len(actions.branches))
        last = np.array(actions.branches, np.float64) - 1
        low, high = np.array(actions.low), np.array(actions.high)
        # Of each part of entities: its first feature, the most of them, and the features of each.
        self._entities = [
            (columns.start, *part.shape)
            for part, columns in zip(spec.observations, spec.columns, strict=True)
            if part.kind == "entities"
        ]
        self._features = _Scale(*_feature_bounds(spec))
        self._actions = _Scale(np.append(low, zeros), np.append(high, last))

    def draw(self, agents: Sequence[Figure]) -> Pixels:
        """Return a picture, uint8, [256, 256, 3]; see `draw_bars` for agents of two behaviors."""
        return draw_bars([(self, agent) for agent in agents])

    def strip(self, brush: ImageDraw.ImageDraw, top: int, bottom: int, agent: Figure) -> None:
        """Draw the bars of one agent between the pixel rows `top` and `bottom` of a picture."""
        color = COLORS[agent.color % len(COLORS)]
        middle = 3 * SIDE // 4
        brush.line((0, (top + bottom) // 2, SIDE, (top + bottom) // 2), fill=LINE)
        box = (0, top, middle - _GAP, bottom)
        self._row(brush, box, self._features, agent.features, self._marks(agent.features), color)
        if agent.action is not None:
            darker = int(color[0] * _DARKER), int(color[1] * _DARKER), int(color[2] * _DARKER)
            box, marks = (middle, top, SIDE, bottom), np.ones(len(agent.action), np.bool_)
            self._row(brush, box, self._actions, agent.action, marks, darker)

    def _marks(self, features: Floats) -> Marks:
        """Return marks of features: False for features of missing entities."""
        marks = np.ones(len(features), np.bool_)
        for first, most, width in self._entities:
            is_there = np.arange(most) < features[first - 1]
            marks[first : first + most * width] = np.repeat(is_there, width)
        return marks

    def _row(
        self,
        brush: ImageDraw.ImageDraw,
        box: tuple[int, int, int, int],
        scale: _Scale,
        values: Floats,
        marks: Marks,
        color: tuple[int, int, int],
    ) -> None:
        left, top, right, bottom = box
        if not marks.any():
            return
        finite = np.where(np.isfinite(values) & marks, values, 0)
        scale.reach(finite[None])
        parts = scale.parts(finite)[marks]
        parts = parts[:: -(-len(parts) // _BARS)].clip(0, 1)
        edges = np.linspace(left, right, len(parts) + 1)
        middle = (top + bottom) / 2
        for part, start, end in zip(parts.tolist(), edges[:-1], edges[1:], strict=True):
            y = bottom - part * (bottom - top)
            corners = (start, min(y, middle), max(start, end - 2), max(y, middle))
            brush.rectangle(corners, fill=color)


def blank() -> Pixels:
    """Return a picture without agents, uint8, [256, 256, 3]."""
    return draw_bars([])


def draw_bars(agents: Sequence[tuple[Bars, Figure]]) -> Pixels:
    """
    Draw agents, each with the bars of its behavior, and return a picture, uint8, [256, 256, 3].
    """
    image = Image.new("RGB", (SIDE, SIDE), PAPER)
    brush = ImageDraw.Draw(image)
    agents = agents[:MOST_DRAWN]
    for number, (bars, agent) in enumerate(agents):
        top, bottom = (SIDE * n // len(agents) for n in (number, number + 1))
        bars.strip(brush, top + _GAP // 2, bottom - 1 - _GAP // 2, agent)
    return np.asarray(image)


class _Scale:
    """Bounds of values, declared or reached: low and high are float64, [n]."""

    def __init__(self, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]) -> None:
        self._is_open = ~(np.isfinite(low) & np.isfinite(high))
        self._low = np.where(self._is_open, -1.0, low)
        self._high = np.where(self._is_open, 1.0, high)

    def reach(self, values: npt.NDArray[np.floating]) -> None:
        """Extend the bounds that are not declared to values, [n, m]."""
        if len(values):
            low, high = values.min(0), values.max(0)
            self._low = np.where(self._is_open, np.minimum(self._low, low), self._low)
            self._high = np.where(self._is_open, np.maximum(self._high, high), self._high)

    def parts(self, values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return values, [..., m], as parts of the way from low to high."""
        width = np.where(self._high > self._low, self._high - self._low, 1.0)
        return (values - self._low) / width


def _feature_bounds(spec: Spec) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the bounds of all features of a spec, float64, [num_features] each."""
    low = [bound for part in spec.observations for bound in part.low]
    high = [bound for part in spec.observations for bound in part.high]
    return np.array(low, np.float64), np.array(high, np.float64)
