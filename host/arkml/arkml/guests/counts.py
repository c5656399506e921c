"""Counts of a guest's submits, rows and errors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_MOST_REFUSALS = 256
_OTHERS = "others"


@dataclass(slots=True)
class Statistics:
    """
    Counts since a guest was loaded.

    `submits` counts answered submits and `rows` their rows. `non_finite_features` counts values
    that reached the policy as they were, `non_finite_actions` values that were answered as zero.
    `errors` counts refused import calls by the name of their code, and `limits` the refusals that
    reached one of `Limits`, by the name of the error. `refusals` counts refused pushes and submits,
    and other imports whose arguments were invalid, by a sentence that names the function, the code
    and the reason, with the numbers of a guest's latest refusal of its kind. Of several guests
    together, the rarest beyond 256 sentences are counted under "others".
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
            _bounded(self.refusals + other.refusals),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain ints and dicts, which JSON can hold."""
        return {
            "submits": self.submits,
            "rows": self.rows,
            "non_finite_features": self.non_finite_features,
            "non_finite_actions": self.non_finite_actions,
            "errors": dict(self.errors),
            "limits": dict(self.limits),
            "refusals": dict(self.refusals),
        }


def _bounded(refusals: Counter[str]) -> Counter[str]:
    """Return refusals of guests that follow each other, which may have numbers of their own."""
    if len(refusals) <= _MOST_REFUSALS:
        return refusals
    kept = Counter(dict(refusals.most_common(_MOST_REFUSALS - 1)))
    kept[_OTHERS] += refusals.total() - kept.total()
    return kept
