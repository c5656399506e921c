"""Charts of curves as SVG, with their numbers for the page's script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from arkml.base.terminal import harmless
from arkml.reports.groups import Doubles, Drawing

COLORS = 8
"""The number of colors of groups, the classes `c0`, `c1` and so on; they repeat."""

DASHES = 4
"""The number of dashes, the classes `d1`, `d2` and so on besides none, for groups beyond these."""

_WIDTH, _HEIGHT = 460, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 436, 30, 196  # edges of the plot, in pixels
_PREFIXES = ("", "k", "M", "G", "T")


def safe(text: object) -> str:
    """
    Return an untrusted text for HTML: without markup, control characters, or marks that reorder it.
    """
    return escape(harmless(str(text)))


def chart(title: str, about: str, drawings: Sequence[tuple[str, int, Drawing]]) -> str:
    """
    Return the chart of a metric as SVG, with a sentence about it.

    Each drawing comes with the label and the number of its group of runs.
    """
    lines = _lines(drawings)
    points = np.concatenate(lines)
    xs, ys = _ticks(points[:, 0]), _ticks(points[:, 1])
    x, y = _scale(xs, _LEFT, _RIGHT), _scale(ys, _BOTTOM, _TOP)
    parts = [
        f'<figure class="chart" aria-label="{safe(title)}"><div class="area">',
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{safe(title)}</title><desc>{safe(_course(drawings))}</desc>",
        f'<text class="name" x="{_LEFT}" y="18">{safe(title)}</text>',
        *_grid(xs, ys, x, y),
    ]
    for label, number, one in drawings:
        parts.append(_drawn(label, number, one, x, y))
    return "".join([*parts, "</svg></div>", f"<figcaption>{safe(about)}</figcaption></figure>"])


PLACE = {"left": _LEFT, "right": _RIGHT, "width": _WIDTH}
"""The edges of all plots and the width of all charts, in pixels, for the script that reads them."""


def numbers(
    drawings: Sequence[tuple[str, int, Drawing]], rows: dict[tuple[float, ...], int]
) -> dict[str, Any]:
    """
    Return the numbers of a chart for the page's script: its lines, and the rows at its edges.

    The rows of a line are given as an index into `rows`, to which new ones are added.
    """
    xs = _ticks(np.concatenate(_lines(drawings))[:, 0])
    lines = []
    for _, number, one in drawings:
        at = tuple(_short(one.line[:, 0], 12))
        line: dict[str, Any] = {"group": number, "x": rows.setdefault(at, len(rows))}
        line["y"] = _short(one.line[:, 1])
        if one.low is not None and one.high is not None:
            line["lowest"] = _short(np.interp(one.line[:, 0], one.low[:, 0], one.low[:, 1]))
            line["highest"] = _short(np.interp(one.line[:, 0], one.high[:, 0], one.high[:, 1]))
        lines.append(line)
    return {"lines": lines, "edges": _short(np.array([xs[0], xs[-1]]), 12)}


def style_of(number: int) -> str:
    """Return the classes of a group's lines: a color, and a dash where colors repeat."""
    round_ = number // COLORS % DASHES
    return f"c{number % COLORS}" + (f" d{round_}" if round_ else "")


def _lines(drawings: Sequence[tuple[str, int, Drawing]]) -> list[Doubles]:
    lines = [line for _, _, one in drawings for line in (one.line, one.low, one.high)]
    return [line for line in lines if line is not None]


def _short(values: Doubles, digits: int = 5) -> list[float]:
    """Return values with some digits, whole ones as integers, which JSON writes shorter."""
    short = (float(f"{value:.{digits}g}") for value in values.tolist())
    return [int(value) if value.is_integer() and abs(value) < 1e15 else value for value in short]


def _course(drawings: Sequence[tuple[str, int, Drawing]]) -> str:
    """Return texts on where each line begins and ends, for screen readers."""
    sentences = []
    for label, _, one in drawings:
        (begin, first), (end, last) = one.line[0].tolist(), one.line[-1].tolist()
        sentences.append(
            f"{label}: from {shown(first)} at {shown(begin)} rows to {shown(last)} at"
            f" {shown(end)} rows, lowest {shown(float(one.line[:, 1].min()))}, highest"
            f" {shown(float(one.line[:, 1].max()))}."
        )
    return " ".join(sentences)


def _grid(
    xs: Sequence[float],
    ys: Sequence[float],
    x: tuple[float, float, int, int],
    y: tuple[float, float, int, int],
) -> list[str]:
    """Return the lines and the numbers of both axes, in few characters: a report has many."""
    heights = [(_tenths(round(10 * _at(value, y))), shown(value)) for value in ys]
    places = [(_tenths(round(10 * _at(value, x))), shown(value)) for value in xs]
    places.append((str((_LEFT + _RIGHT) // 2), "rows"))
    lines = "".join(f"M{_LEFT} {at}h{_RIGHT - _LEFT}" for at, _ in heights)
    below = (f' y="{_HEIGHT - _BOTTOM - 19}"' if text == "rows" else "" for _, text in places)
    return [
        f'<path class="grid" d="{lines}"/><g class="y" transform="translate({_LEFT - 6} 4)">',
        *(f'<text y="{at}">{text}</text>' for at, text in heights),
        f'</g><g class="x" transform="translate(0 {_BOTTOM + 16})">',
        *(
            f'<text x="{at}"{lower}>{text}</text>'
            for (at, text), lower in zip(places, below, strict=True)
        ),
        "</g>",
    ]


def _drawn(
    label: str,
    number: int,
    one: Drawing,
    x: tuple[float, float, int, int],
    y: tuple[float, float, int, int],
) -> str:
    """Return the line of a group, with its band, or the dot of a single value."""
    style = style_of(number)
    parts = [f'<g data-group="{number}">']
    if one.low is not None and one.high is not None:
        around = np.concatenate([one.high, one.low[::-1]])
        parts.append(f'<path class="band {style}" d="{_path(around, x, y)}z"/>')
    parts.append(
        f'<path class="line {style}" d="{_path(one.line, x, y)}">'
        f"<title>{safe(label)}</title></path>"
    )
    if len(one.line) == 1:
        at_x, at_y = _at(one.line[0, 0], x), _at(one.line[0, 1], y)
        parts.append(f'<circle class="dot {style}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="3"/>')
    return "".join([*parts, "</g>"])


def shown(value: float) -> str:
    """Return a number as a short text."""
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
    """Return a line as the data of an SVG path: steps from its first point, in tenths."""
    places = [(round(10 * _at(a, x)), round(10 * _at(b, y))) for a, b in line.tolist()]
    steps = [
        _joined(_tenths(a - c), _tenths(b - d))
        for (c, d), (a, b) in pairwise(places)
        if (a, b) != (c, d)
    ]
    begin = f"M{_joined(*map(_tenths, places[0]))}"
    return begin + (f"l{reduce(_joined, steps)}" if steps else "")


def _joined(before: str, after: str) -> str:
    """Return two numbers of a path, with a space between them where it is needed."""
    return f"{before}{after}" if after.startswith("-") else f"{before} {after}"


def _tenths(count: int) -> str:
    """Return a number of tenths as SVG takes it in the fewest characters: 12, -3.5, .5."""
    sign, (whole, rest) = "-" if count < 0 else "", divmod(abs(count), 10)
    return f"{sign}{whole or ''}.{rest}" if rest else f"{sign}{whole}"
