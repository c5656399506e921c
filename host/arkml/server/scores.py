"""Which policy of a run is the best so far."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from arkml.errors import HiveRefused
from arkml.hive.protocol.runs import Best
from arkml.server.document import Document
from arkml.server.policies import Policies

EVALUATION, TRAINING = "evaluation", "training"

_EVERY = 10.0
"""Seconds between two best policies that only training has found so."""


def mean(values: Sequence[float]) -> float:
    """Return the mean, which is finite if all values are: their sum need not be."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        half = math.fsum(value / len(values) / 2 for value in values)
        return min(max(2 * half, min(values)), max(values))


class Scores:
    """Keeps the best policy: by evaluations, or by training while nobody has evaluated any."""

    def __init__(self, document: Document, policies: Policies) -> None:
        self._document = document
        self._policies = policies
        self._kept_at = float("-inf")

    def evaluated(self, version: int, returns: Sequence[float]) -> Best | None:
        """The version with these returns, if it is the best now. For a thread."""
        if not returns:
            raise HiveRefused("an evaluation has at least one episode", 422)
        score = mean(returns)
        best = self._document.best
        if best is not None and best.by == EVALUATION and best.score >= score:
            return None
        return self._kept(EVALUATION, score, version)

    def trained(self, score: float) -> Best | None:
        """The newest version, if it is the best now by the episodes of training. For a thread."""
        best, newest = self._document.best, self._policies.newest
        if newest is None or time.monotonic() - self._kept_at < _EVERY:
            return None
        if best is not None and (best.by == EVALUATION or best.score >= score):
            return None
        return self._kept(TRAINING, score, newest.version)

    def _kept(self, by: str, score: float, version: int) -> Best | None:
        newest = self._policies.newest
        if newest is None or not self._policies.keep_best(version):
            return None
        self._kept_at = time.monotonic()
        return Best(by, score, version, newest.n_opts)
