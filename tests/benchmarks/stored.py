"""The result as JSON: written, read, and put together from more than one run."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.benchmarks.measuring import Spread
from tests.benchmarks.rows import AtLeast, AtMost, Limit, NotWithin, Reached, Row

Notes = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured on a machine; `elsewhere` has the machine of topics of another one."""

    machine: Mapping[str, Any]
    notes: Notes
    rows: Sequence[Row]
    elsewhere: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def with_topics(self, other: Result, order: Collection[str]) -> Result:
        """This result with the topics of another one in the place of its own."""
        notes = {**self.notes, **other.notes}
        kept = [row for row in self.rows if row.topic not in other.notes]
        rows = [*kept, *other.rows]
        elsewhere = {**self.elsewhere, **dict.fromkeys(other.notes, other.machine)}
        return Result(
            self.machine,
            {topic: notes[topic] for topic in order if topic in notes},
            [row for topic in order for row in rows if row.topic == topic],
            {topic: found for topic, found in elsewhere.items() if found != self.machine},
        )


def as_json(result: Result) -> dict[str, Any]:
    return {
        "machine": dict(result.machine),
        "elsewhere": {topic: dict(found) for topic, found in result.elsewhere.items()},
        "notes": {topic: list(lines) for topic, lines in result.notes.items()},
        "rows": [_row_as_json(row) for row in result.rows],
    }


def from_json(document: Mapping[str, Any]) -> Result:
    """The result that `as_json` made the document of."""
    rows = [_row_from_json(item) for item in document["rows"]]
    return Result(document["machine"], document["notes"], rows, document["elsewhere"])


def machine() -> dict[str, Any]:
    """Return the processor, and the versions of what was measured."""
    packages = ("wasmtime", "onnxruntime", "numpy", "jax", "torch", "stable_baselines3")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    for line in described.read_text().splitlines() if described.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _row_as_json(row: Row) -> dict[str, Any]:
    """With the kind of its limit and its verdict; null for what was not reached."""
    limit: dict[str, Any] | None = None
    match row.limit:
        case AtMost(bound=bound):
            limit = {"at most": bound}
        case AtLeast(bound=bound):
            limit = {"at least": bound}
        case None:
            pass
    spreads = {name: _spread_as_json(getattr(row, name)) for name in ("ours", "theirs", "ratio")}
    seeds = {who: [_reached_as_json(one) for one in each] for who, each in row.seeds.items()}
    told = {"limit": limit, "seeds": seeds, "verdict": row.verdict.value}
    return asdict(row) | spreads | told


def _row_from_json(item: Mapping[str, Any]) -> Row:
    values = {name: value for name, value in item.items() if name != "verdict"}
    limits: dict[str, type[AtMost | AtLeast]] = {"at most": AtMost, "at least": AtLeast}
    limit: Limit | None = None
    for kind, bound in (values["limit"] or {}).items():
        limit = limits[kind](bound)
    spreads = {name: _spread_from_json(values[name]) for name in ("ours", "theirs", "ratio")}
    seeds = {who: tuple(map(_reached_from_json, each)) for who, each in values["seeds"].items()}
    return Row(**{**values, **spreads, "limit": limit, "seeds": seeds})


def _spread_as_json(spread: Spread | None) -> dict[str, float | None] | None:
    if spread is None:
        return None
    return {name: None if math.isinf(one) else one for name, one in asdict(spread).items()}


def _spread_from_json(item: Mapping[str, float | None] | None) -> Spread | None:
    if item is None:
        return None
    return Spread(**{name: math.inf if one is None else one for name, one in item.items()})


def _reached_as_json(figure: Reached) -> float | dict[str, float]:
    return {"not within": figure.bound} if isinstance(figure, NotWithin) else figure


def _reached_from_json(item: float | Mapping[str, float]) -> Reached:
    return NotWithin(item["not within"]) if isinstance(item, Mapping) else item
