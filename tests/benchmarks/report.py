"""The result as a table for people, as a page, and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.benchmarks.measuring import Spread
from tests.benchmarks.rows import AtLeast, AtMost, Limit, Row

HEADINGS = ("what", "ours", "competitor", "ratio", "limit", "verdict", "spread (p10-p90)")


def table(rows: Sequence[Row]) -> str:
    """Aligned columns of plain text."""
    lines = [HEADINGS, *(cells(row, f"{row.topic}: {row.name}") for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def cells(row: Row, name: str) -> tuple[str, ...]:
    """A row as the texts of its columns."""
    theirs = f"{_number(row.theirs.median)} {row.unit}" if row.theirs else ""
    judged = row.ratio or row.ours
    verdict = row.verdict.value + (f": {row.why_not}" if row.why_not else "")
    return (
        name,
        f"{_number(row.ours.median)} {row.unit}",
        f"{row.competitor} {theirs}".strip(),
        f"{row.ratio.median:.2f}x" if row.ratio else "",
        _limit(row),
        verdict,
        _range(judged, "x" if row.ratio else f" {row.unit}"),
    )


def page(
    rows: Sequence[Row], notes: Mapping[str, Sequence[str]], machine: Mapping[str, Any]
) -> str:
    """The page of the documentation."""
    parts = [
        "<!-- Written by `make bench BENCH=--write`. Do not edit. -->",
        "# Benchmarks",
        f"`make bench` on {machine['processor']}: {_versions(machine)}.",
        _INTRODUCTION,
    ]
    for topic in dict.fromkeys(row.topic for row in rows):
        parts += [f"## {topic.capitalize()}", " ".join(notes.get(topic, ()))]
        lines = ["| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
        lines += [
            "| " + " | ".join(cells(row, row.name)) + " |" for row in rows if row.topic == topic
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(part for part in parts if part) + "\n"


def as_json(
    rows: Sequence[Row], notes: Mapping[str, Sequence[str]], machine: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "machine": dict(machine),
        "notes": {topic: list(lines) for topic, lines in notes.items()},
        "rows": [asdict(row) | _judged(row) for row in rows],
    }


def _judged(row: Row) -> dict[str, Any]:
    """What `asdict` cannot tell: which kind of limit, and the verdict."""
    limit: dict[str, Any] | None = None
    match row.limit:
        case AtMost(bound=bound):
            limit = {"at most": bound}
        case AtLeast(bound=bound):
            limit = {"at least": bound}
        case None:
            pass
    return {"limit": limit, "verdict": row.verdict.value}


def machine() -> dict[str, Any]:
    """The processor, and the versions of what was measured."""
    packages = ("wasmtime", "onnxruntime", "numpy")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


_INTRODUCTION = """\
Ours and a competitor run in turn, in short blocks of one run; a ratio is the median over the rounds
of the quotient of figures of the same round, its spread the 10th and 90th percentile. Limits,
epochs and time budgets are on, as under `arkml run`. The peer is a native Rust host of the same
guest on wasmtime, with onnxruntime or tract, without limits or epochs. Times are those of one core.
A ratio is ours divided by theirs where the limit is an upper one, and how many times ours is faster
where it is a lower one."""


def _versions(machine: Mapping[str, Any]) -> str:
    names = {"python": "Python", "wasmtime": "wasmtime", "onnxruntime": "onnxruntime"}
    found = [f"{name} {machine[key]}" for key, name in names.items()]
    return ", ".join([*found, f"numpy {machine['numpy']}", f"{machine['cores']} cores"])


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    for line in described.read_text().splitlines() if described.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _limit(row: Row) -> str:
    limit: Limit | None = row.limit
    if limit is None:
        return ""
    unit = "x" if row.ratio or row.competitor else f" {row.unit}"
    match limit:
        case AtMost(bound=bound):
            return f"≤ {bound:g}{unit}"
        case AtLeast(bound=bound):
            return f"≥ {bound:g}{unit}"


def _range(spread: Spread, unit: str) -> str:
    return f"{_number(spread.low)}-{_number(spread.high)}{unit}"


def _number(figure: float) -> str:
    """Three digits that mean something."""
    if abs(figure) >= 100:
        return f"{figure:.0f}"
    return f"{figure:.1f}" if abs(figure) >= 10 else f"{figure:.2f}"
