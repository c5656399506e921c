"""Results of trainings that differ only in their seed, and a picture of their learning curves."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.training.pictures import as_png, new_figure, note_empty
from arkml.training.results import Series

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SeedResult:
    """
    The result of one training among several with different seeds.

    `status` is the exit code of the training's process, `document` its output with `--json`, or
    empty. `goal` is the mean return that all trainings should reach, or None.
    """

    seed: int
    directory: Path
    status: int
    document: Mapping[str, Any]
    goal: float | None

    @property
    def series(self) -> Series:
        """The learning curve as pairs (rows, mean return)."""
        means = self.document.get("mean_return") or {}
        return [(int(rows), float(value)) for rows, value in means.get("series") or ()]

    @property
    def best_return(self) -> float | None:
        """
        The mean return of the best policy, or None.

        It is of the episodes after the policy was chosen or, without any, of those that chose it.
        """
        policy = self.document.get("policy") or {}
        again = policy.get("confirmed")
        score = policy.get("score") if again is None else again["mean"]
        return None if score is None else float(score)

    @property
    def rows_to_goal(self) -> int | None:
        """Rows after which the training reached its goal, None if it did not."""
        if self.goal is None or self.document.get("end_reason") != "return":
            return None
        rows = self.document.get("rows")
        return None if rows is None else int(rows)

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values, without the curve."""
        names = ("run", "end_reason", "rows", "updates", "seconds", "error")
        return {
            "seed": self.seed,
            "status": self.status,
            "directory": str(self.directory),
            "rows_to_goal": self.rows_to_goal,
            "best_return": self.best_return,
            **{name: self.document[name] for name in names if name in self.document},
        }


def median_rows(results: Sequence[SeedResult]) -> float | None:
    """Return the median of rows to the goal, None unless more than half of the seeds reached it."""
    rows = [np.inf if one.rows_to_goal is None else one.rows_to_goal for one in results]
    median = statistics.median(rows) if rows else np.inf
    return None if np.isinf(median) else float(median)


class Band(NamedTuple):
    """Median, lowest and highest mean return of several seeds over rows; each float64, [points]."""

    rows: Doubles
    median: Doubles
    low: Doubles
    high: Doubles


def band_of(curves: Sequence[Series]) -> Band | None:
    """
    Return median, lowest and highest value of curves at all of their points; None without points.

    Each curve is interpolated linearly, and counts from its first point on. After its last point it
    keeps its value, since a training that reaches its goal ends before the others.
    """
    arrays = [np.array(curve, np.float64) for curve in curves if curve]
    if not arrays:
        return None
    rows = np.unique(np.concatenate([array[:, 0] for array in arrays]))
    values = np.array([np.interp(rows, a[:, 0], a[:, 1], left=np.nan) for a in arrays])
    return Band(
        rows, np.nanmedian(values, axis=0), np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    )


def draw_band(title: str, results: Sequence[SeedResult]) -> bytes:
    """Return a PNG of the mean returns of all seeds over rows. Raises the errors of matplotlib."""
    figure = new_figure(8, 4.5)
    axes = figure.add_subplot()
    for one in results:
        if one.series:
            axes.plot(*zip(*one.series, strict=True), color="tab:blue", alpha=0.25, linewidth=1)
    band = band_of([one.series for one in results])
    if band is not None:
        axes.fill_between(band.rows, band.low, band.high, alpha=0.2, label="lowest to highest")
        axes.plot(band.rows, band.median, label=f"median of {len(results)} seeds", linewidth=2)
        axes.legend(loc="lower right")
    else:
        note_empty(axes)
    axes.set(title=title, xlabel="rows learned from", ylabel="mean return")
    axes.grid(alpha=0.3)
    return as_png(figure)
