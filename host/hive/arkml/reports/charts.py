"""Charts of curves as SVG, without scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from arkml.base.terminal import harmless
from arkml.reports.groups import Doubles, Drawing

COLORS = 8
"""The number of colors of groups, the classes `c0`, `c1` and so on; they repeat."""

_WIDTH, _HEIGHT = 460, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 436, 30, 196  # edges of the plot, in pixels
_PREFIXES = ("", "k", "M", "G", "T")


def safe(text: object) -> str:
    """Return untrusted text for HTML: without markup, controls, or marks that reorder it."""
    return escape(harmless(str(text)))


def chart(title: str, drawings: Sequence[tuple[str, int, Drawing]]) -> str:
    """Return one chart of a metric; each drawing has the label and the number of its group."""
    lines = [line for _, _, one in drawings for line in (one.line, one.low, one.high)]
    points = np.concatenate([line for line in lines if line is not None])
    xs, ys = _ticks(points[:, 0]), _ticks(points[:, 1])
    x, y = _scale(xs, _LEFT, _RIGHT), _scale(ys, _BOTTOM, _TOP)
    middle = (_LEFT + _RIGHT) // 2
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{safe(title)}</title>",
        f'<text class="name" x="{_LEFT}" y="18">{safe(title)}</text>',
    ]
    for value in ys:
        at = f"{_at(value, y):.1f}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="y" x="{_LEFT - 6}" y="{at}" dy="4">{shown(value)}</text>')
    for value in xs:
        at = f"{_at(value, x):.1f}"
        parts.append(f'<text class="x" x="{at}" y="{_BOTTOM + 16}">{shown(value)}</text>')
    parts.append(f'<text class="x" x="{middle}" y="{_HEIGHT - 3}">rows</text>')
    for label, number, one in drawings:
        color = f"c{number % COLORS}"
        if one.low is not None and one.high is not None:
            around = np.concatenate([one.high, one.low[::-1]])
            parts.append(f'<polygon class="band {color}" points="{_path(around, x, y)}"/>')
        parts.append(
            f'<polyline class="line {color}" points="{_path(one.line, x, y)}">'
            f"<title>{safe(label)}</title></polyline>"
        )
        if len(one.line) == 1:
            at_x, at_y = _at(one.line[0, 0], x), _at(one.line[0, 1], y)
            parts.append(f'<circle class="dot {color}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="3"/>')
    return "".join([*parts, "</svg>"])


def shown(value: float) -> str:
    """Return a number in few characters."""
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e15):
        return f"{value:.0e}"
    power = 0 if size < 10_000 else min(len(_PREFIXES) - 1, int(math.log10(size) // 3))
    return f"{value / 1_000**power:.6g}{_PREFIXES[power]}"


def _ticks(values: Doubles) -> list[float]:
    """Return some round numbers, evenly apart, from the lowest value or below to the highest."""
    low, high = float(values.min()), float(values.max())
    middle = max(abs(low), abs(high))
    if high - low <= 1e-9 * middle or high == low:
        low, high = low - (middle / 2 or 1.0), high + (middle / 2 or 1.0)
    rough = high / 5 - low / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, last + 1)]


def _scale(ticks: Sequence[float], begin: int, end: int) -> tuple[float, float, int, int]:
    return ticks[0], ticks[-1], begin, end


def _at(value: float, scale: tuple[float, float, int, int]) -> float:
    low, high, begin, end = scale
    share = (value / 2 - low / 2) / (high / 2 - low / 2)  # halves: the span may be beyond a float
    return begin + (end - begin) * share


def _path(line: Doubles, x: tuple[float, float, int, int], y: tuple[float, float, int, int]) -> str:
    return " ".join(f"{_at(a, x):.1f},{_at(b, y):.1f}" for a, b in line.tolist())
