"""Groups of runs in a chart: runs that differ only in their seed share a band."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.hive.protocol.parts import in_words
from arkml.hive.protocol.settings import rounded
from arkml.reports.report_runs import Curve, ReportedRun
from arkml.training.results import EVALUATION_RETURN
from arkml.training.seeds import band_of

COLUMNS = 190
"""The places of a chart between which curves are drawn; each keeps its lowest and highest value."""

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RunGroup:
    """
    Runs of one guest that have all settings but the seed in common; `label` names them.

    Either all runs of the group have evaluations, or none has.
    """

    label: str
    runs: Sequence[ReportedRun]


@dataclass(frozen=True, slots=True)
class Drawing:
    """
    One metric of one group of runs: a line and, for several runs, a band from lowest to highest.

    line, low and high: float64, [points, 2], (rows, value). `low` and `high` are None for one run.
    """

    line: Doubles
    low: Doubles | None
    high: Doubles | None


def grouped(runs: Sequence[ReportedRun]) -> list[RunGroup]:
    """Return the runs in groups, in the order of their first runs."""
    groups: dict[str, list[ReportedRun]] = {}
    for run in runs:
        key = json.dumps([run.info.game, _settings(run)], sort_keys=True)
        groups.setdefault(key, []).append(run)
    names = [run.info.name for run in runs]
    return [RunGroup(_label(members, names, runs), members) for members in groups.values()]


def draw(group: RunGroup, metric: str) -> Drawing | None:
    """Return the drawing of a metric, None if no run of the group has it."""
    curves = [curve for run in group.runs if (curve := _by_rows(run.curves.get(metric, ())))]
    if not curves:
        return None
    if len(curves) == 1:
        return Drawing(_thinned(np.array(curves[0], np.float64)), None, None)
    band = band_of([[(int(x), value) for x, value in curve] for curve in curves])
    assert band is not None
    lines = (band.median, band.low, band.high)
    return Drawing(*(_thinned(np.stack([band.rows, values], axis=1)) for values in lines))


def constant(groups: Sequence[RunGroup], metric: str) -> float | None:
    """Return the value of a metric that is the same in all runs at all times, else None."""
    curves = (run.curves.get(metric, ()) for group in groups for run in group.runs)
    values = {value for curve in curves for _, value in curve}
    return values.pop() if len(values) == 1 else None


def _label(
    members: Sequence[ReportedRun], names: Sequence[str], runs: Sequence[ReportedRun]
) -> str:
    """Return the name of a group, with the settings in which it differs from others."""
    first, own = members[0].info, _settings(members[0])
    others = [_settings(run) for run in runs]
    differing = [n for n in own if any(one.get(n, own[n]) != own[n] for one in others)]
    text = ", ".join([first.name, *(f"{n} {_shown(own[n])}" for n in differing)])
    if len(members) > 1:
        return f"{text}, {len(members)} runs"
    return text if names.count(first.name) == 1 else f"{text} ({first.id})"


def _settings(run: ReportedRun) -> dict[str, Any]:
    """Return the settings of a run but the seed, its guest, and whether it was evaluated."""
    settings = {n: rounded(v) for n, v in run.settings.as_json().items() if n != "seed"}
    return settings | {
        "parts": in_words(run.settings.parts),
        "guest": run.info.guest or "unknown",
        "evaluations": "some" if EVALUATION_RETURN in run.curves else "none",
    }


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _by_rows(curve: Curve) -> list[tuple[float, float]]:
    """Return a curve with one value for each number of rows, the last."""
    return sorted(dict(curve).items())


def _thinned(line: Doubles) -> Doubles:
    """Return the first, lowest, highest and last point of each column of a chart."""
    if len(line) <= 4 * COLUMNS:
        return line
    rows, values = line[:, 0], line[:, 1]
    span = (rows[-1] - rows[0]) or 1.0
    columns = np.minimum((rows - rows[0]) / span * COLUMNS, COLUMNS - 1).astype(np.int64)
    begins = np.flatnonzero(np.diff(columns, prepend=-1)).tolist()
    kept: set[int] = set()
    for begin, end in zip(begins, [*begins[1:], len(line)], strict=True):
        part = values[begin:end]
        kept |= {begin, begin + int(part.argmin()), begin + int(part.argmax()), end - 1}
    return line[sorted(kept)]
