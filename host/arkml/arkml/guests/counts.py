"""Counts of a guest's submits, rows and errors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Statistics:
    """
    Counts since a guest was loaded.

    `submits` counts submits that were answered, `rows` the rows in them; `non_finite_features`
    values that were passed on as they are, `non_finite_actions` values that were answered as zero;
    `errors` import calls that were refused, by the name of their code; `limits` those of them that
    reached one of `Limits`, by the name of the error; `refusals` the pushes and submits among them,
    by a sentence that names function, code and why, with the numbers of the last one of its kind.
    """

    submits: int = 0
    rows: int = 0
    non_finite_features: int = 0
    non_finite_actions: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    limits: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(
            self.submits + other.submits,
            self.rows + other.rows,
            self.non_finite_features + other.non_finite_features,
            self.non_finite_actions + other.non_finite_actions,
            self.errors + other.errors,
            self.limits + other.limits,
            self.refusals + other.refusals,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain ints and dicts, as JSON takes them."""
        return {
            "submits": self.submits,
            "rows": self.rows,
            "non_finite_features": self.non_finite_features,
            "non_finite_actions": self.non_finite_actions,
            "errors": dict(self.errors),
            "limits": dict(self.limits),
            "refusals": dict(self.refusals),
        }
