"""The result as a table for people, and as a page of the documentation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.benchmarks.measuring import Spread
from tests.benchmarks.rows import AtLeast, AtMost, Limit, NotWithin, Reached, Row
from tests.benchmarks.stored import Result

HEADINGS = ("what", "ours", "competitor", "ratio", "limit", "verdict", "spread (p10-p90)")

Line = tuple[str, ...]


def table(rows: Sequence[Row]) -> str:
    """Aligned columns of plain text: all rows, and below them those of each seed."""
    lines = [HEADINGS, *(cells(row, f"{row.topic}: {row.name}") for row in rows)]
    parts = [lines, [*each_seed(rows)]]
    return "\n\n".join(_aligned(part) for part in parts if part)


def cells(row: Row, name: str) -> Line:
    """A row as the texts of its columns."""
    theirs = _quantity(row.theirs.median, row.unit) if row.theirs else ""
    verdict = row.verdict.value + (f": {row.why_not}" if row.why_not else "")
    is_ratio = row.ratio is not None and not row.seeds
    judged = row.ratio if row.ratio is not None and is_ratio else row.ours
    return (
        name,
        _quantity(row.ours.median, row.unit),
        f"{row.competitor} {theirs}".strip(),
        f"{row.ratio.median:.2f}x" if row.ratio and math.isfinite(row.ratio.median) else "",
        _limit(row),
        verdict,
        _range(judged, "x" if is_ratio else f" {row.unit}"),
    )


def each_seed(rows: Sequence[Row]) -> Iterator[Line]:
    """The headings and a line for each learner of the rows that have seeds, if there are any."""
    seeded = [row for row in rows if row.seeds]
    count = max((len(figures) for row in seeded for figures in row.seeds.values()), default=0)
    if not count:
        return
    yield ("each seed", "learner", *(str(seed) for seed in range(count)))
    for row in seeded:
        for learner, figures in row.seeds.items():
            shown = [_reached(figure) for figure in figures]
            name = f"{row.name}, {row.unit}" if row.unit else row.name
            yield (name, learner, *shown, *[""] * (count - len(shown)))


def page(result: Result) -> str:
    """The page of the documentation: the topics of the notes, in their order."""
    parts = [
        "<!-- Written by `make bench BENCH=--write`. Do not edit. -->",
        "# Benchmarks",
        f"`make bench` on {_described(result.machine)}",
        _INTRODUCTION,
    ]
    for topic, lines in result.notes.items():
        found = [row for row in result.rows if row.topic == topic]
        other = result.elsewhere.get(topic)
        parts += [
            f"## {topic.capitalize()}",
            " ".join(lines),
            f"Measured on {_described(other)}" if other and found else "",
            _marked([HEADINGS, *(cells(row, row.name) for row in found)]) if found else _UNMEASURED,
            _marked([*each_seed(found)]),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


_UNMEASURED = "Not measured since it was changed."

_INTRODUCTION = """\
arkml and a competitor run in turn, in short blocks of one run. A ratio is the median over the
rounds of the quotient of the two figures of a round; its spread is the 10th and 90th percentile.
Limits, epochs and time budgets are on, as under `arkml run`. The peer is a native Rust host of the
same guest on wasmtime, with onnxruntime or tract, without limits or epochs. Times are of one core.
With an upper limit (≤) a ratio is our figure divided by theirs; with a lower limit (≥) it is the
factor by which ours is faster. Limits guard against regressions, so they may lie on the wrong side
of 1, where arkml is slower."""


def _aligned(lines: Sequence[Line]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _marked(lines: Sequence[Line]) -> str:
    """A table in Markdown."""
    if not lines:
        return ""
    headings, *others = lines
    marked = ["| " + " | ".join(line) + " |" for line in others]
    return "\n".join(["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings), *marked])


def _described(machine: Mapping[str, Any]) -> str:
    names = {"python": "Python", "stable_baselines3": "stable-baselines3"}
    of = ("python", "wasmtime", "onnxruntime", "numpy", "jax", "torch", "stable_baselines3")
    found = [f"{names.get(key, key)} {machine[key]}" for key in of if key in machine]
    found.append(f"{machine['cores']} cores")
    return f"{machine['processor']}: {', '.join(found)}."


def _limit(row: Row) -> str:
    limit: Limit | None = row.limit
    if limit is None:
        return ""
    is_beside = row.theirs is not None and not row.seeds  # as it is, where there is no ratio
    is_ratio = row.ratio or (row.competitor and not is_beside)
    unit = "x" if is_ratio else f" {row.unit}"
    match limit:
        case AtMost(bound=bound):
            return f"≤ {bound:g}{unit}"
        case AtLeast(bound=bound):
            return f"≥ {bound:g}{unit}"


def _quantity(figure: float, unit: str) -> str:
    return "not reached" if math.isinf(figure) else f"{_number(figure)} {unit}".strip()


def _reached(figure: Reached) -> str:
    if isinstance(figure, NotWithin):
        return f"not within {_number(figure.bound)}"
    return _number(figure)


def _range(spread: Spread, unit: str) -> str:
    if math.isinf(spread.low):
        return ""
    if math.isinf(spread.high):
        return f"{_number(spread.low)}{unit} to not reached"
    between = " to " if spread.low < 0 else "-"
    return f"{_number(spread.low)}{between}{_number(spread.high)}{unit}".strip()


def _number(figure: float) -> str:
    """Three digits that mean something."""
    if abs(figure) >= 100:
        return f"{figure:.0f}"
    return f"{figure:.1f}" if abs(figure) >= 10 else f"{figure:.2f}"
