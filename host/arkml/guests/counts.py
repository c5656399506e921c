"""What a guest did, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Statistics:
    """
    Counts since a guest was loaded.

    `submits` counts submits that were answered, `rows` the rows in them; `non_finite_features`
    values that were passed on as they are, `non_finite_actions` values that were answered as zero;
    `errors` import calls that were refused, by the name of their code; `limits` those of them that
    reached one of `Limits`, by the name of the error.
    """

    submits: int = 0
    rows: int = 0
    non_finite_features: int = 0
    non_finite_actions: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    limits: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(
            self.submits + other.submits,
            self.rows + other.rows,
            self.non_finite_features + other.non_finite_features,
            self.non_finite_actions + other.non_finite_actions,
            self.errors + other.errors,
            self.limits + other.limits,
        )
