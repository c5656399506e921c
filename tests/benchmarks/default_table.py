"""The results of the suite as a Markdown table, a line for each game."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from tests.benchmarks.suite import SUITE

HEADINGS = ("game", "goal", "by rows", "reached", "held", "median rows", "rows of each seed")
HOLDS = 4
"""Ratings of the five after the goal that have to be at it as well."""

Result = Mapping[str, Any]


def table(results: Sequence[Result]) -> str:
    """
    Return a Markdown table of all games that have results, in the order of the suite.

    A seed counts as reached within the rows of its game, and as held if four of the next five
    ratings are at the goal as well. A seed that never reaches the goal has its best rating in
    brackets. A form of another game has the ratio of the medians. Results of a learner other than
    ours have a table of their own, below.
    """
    learners = dict.fromkeys(result["learner"] for result in results)
    parts = [[one for one in results if one["learner"] == learner] for learner in learners]
    return "\n\n".join(map(_table, parts))


def is_reached(result: Result) -> bool:
    """Return whether a seed reached the goal within the rows of its game."""
    return result["rows"] is not None and result["rows"] <= SUITE[result["game"]].rows


def is_held(result: Result) -> bool:
    """Return whether a seed reached the goal in time and holds it in four of five ratings."""
    return is_reached(result) and result["held"] >= HOLDS


def _table(results: Sequence[Result]) -> str:
    learner = results[0]["learner"]
    first = HEADINGS[0] if learner == "ours" else f"{HEADINGS[0]}, stable-baselines3"
    lines = [(first, *HEADINGS[1:]), ("---",) * len(HEADINGS)]
    for game in SUITE:
        of_game = sorted(
            (one for one in results if one["game"] == game), key=lambda one: one["seed"]
        )
        if of_game:
            lines.append(_line(game, of_game, _median_rows(results, SUITE[game].plain)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _line(name: str, results: Sequence[Result], plain: float) -> tuple[str, ...]:
    game = SUITE[name]
    rows = _median_rows(results, name)
    shown = "not reached" if math.isinf(rows) else f"{rows:,.0f}"
    if game.plain and math.isfinite(rows) and math.isfinite(plain):
        shown += f" ({rows / plain:.2f} x {game.plain})"
    return (
        name,
        f"{game.goal:g}",
        f"{game.rows:,}",
        f"{sum(map(is_reached, results))} of {len(results)}",
        f"{sum(map(is_held, results))} of {len(results)}",
        shown,
        " ".join(map(_seed, results)),
    )


def _seed(result: Result) -> str:
    if result["rows"] is None:
        finite = [rating for rating in result["ratings"] if math.isfinite(rating)]
        return f"({max(finite):.4g})" if finite else "(diverged)"
    return f"{result['rows']:,}"


def _median_rows(results: Sequence[Result], game: str) -> float:
    rows = [
        math.inf if one["rows"] is None else one["rows"] for one in results if one["game"] == game
    ]
    return median(rows) if rows else math.inf
