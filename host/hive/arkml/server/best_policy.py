"""The choice of a run's best policy version."""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Sequence

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveRefused
from arkml.hive.protocol.runs import Best
from arkml.server.document import Document
from arkml.server.policy_versions import PolicyVersion, PolicyVersions

_log = SafeLogger(__name__)

EVALUATION, TRAINING = "evaluation", "training"

_EVALUATED = 4
"""Versions of a run that are kept while they play an evaluation; more are the oldest's end."""

_KEEP_EVERY = 10.0
"""Seconds between two best policies that are rated by training alone."""


def mean(values: Sequence[float]) -> float:
    """Return the mean of finite values, which is finite even if their sum overflows."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        half = math.fsum(value / len(values) / 2 for value in values)
        return min(max(2 * half, min(values)), max(values))


def standard_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of finite values, which is always finite."""
    scale = max(map(abs, values))
    if not scale:
        return 0.0
    shares = [value / scale for value in values]
    center = mean(shares)
    return min(scale * math.sqrt(mean([(one - center) ** 2 for one in shares])), sys.float_info.max)


class BestPolicy:
    """
    The rating of policy versions: by evaluations or, before the first one, by training.

    The best version is kept as a file. While training alone rates versions, the file is written
    every `_KEEP_EVERY` seconds at most: a better version waits for that time, or until
    `keep_waiting` is called. The methods may block, and are called from one thread at a time.
    """

    def __init__(self, document: Document, policies: PolicyVersions) -> None:
        self._document = document
        self._policies = policies
        self._candidate: PolicyVersion | None = None
        self._evaluated: dict[int, int] = {}  # the number of updates, by version
        self._kept_at = float("-inf")
        self._waiting: tuple[float, PolicyVersion] | None = None

    def keep_evaluated(self, version: int) -> None:
        """
        Keep the file of a version until its evaluation is rated.

        An evaluation can take longer than the files of old versions are kept. Raises OSError.
        """
        newest = self._policies.newest
        if newest is not None and version not in self._evaluated and self._policies.hold(version):
            self._evaluated[version] = newest.n_opts
        while len(self._evaluated) > _EVALUATED:
            self._release(next(iter(self._evaluated)))

    def rate_evaluation(
        self, version: int, returns: Sequence[float], best_return: float | None = None
    ) -> Best | None:
        """
        Rate a version by the returns of its evaluation; return None if it is not the best.

        Of two versions with the same score the later one is the best, because it has learned for
        longer: with few episodes it happens that both win all of them. `best_return` is what the
        best version so far has played among the same agents, where these learn, too, so that its
        score says nothing. Raises HiveRefused without episodes, and OSError.
        """
        if not returns:
            raise HiveRefused("an evaluation has at least one episode", 422)
        score = mean(returns)
        self._policies.rate(version, score)
        best, found = self._document.best, self._read(version)
        n_opts = self._release(version)
        if best is not None and best.by == EVALUATION:
            best_return = best.score if best_return is None else best_return
            if best_return > score:
                return None
        if found is None:
            text = "version %s of run %s has the best mean return, %s, and its file is gone"
            _log.warning(text, version, self._document.id, score)
            return None
        return self._keep(Best(EVALUATION, score, version, n_opts or found.n_opts), found.data)

    def keep_candidate(self, version: int) -> None:
        """
        Keep the file of a version until training rates it.

        The episodes that rate it can take longer than the files of old versions are kept.
        """
        self._candidate = self._read(version)

    def rate_training(self, version: int, score: float) -> Best | None:
        """
        Rate the candidate by `score`, the mean return of training episodes that began under it.

        Returns the new best policy if its file was written now, else None.
        """
        candidate, self._candidate = self._candidate, None
        best = self._document.best
        if candidate is None or candidate.version != version or not math.isfinite(score):
            return None
        if best is not None and (best.by == EVALUATION or best.score >= score):
            return None
        if self._waiting is None or self._waiting[0] < score:
            self._waiting = score, candidate
        return None if time.monotonic() - self._kept_at < _KEEP_EVERY else self.keep_waiting()

    def keep_waiting(self) -> Best | None:
        """
        Write the file of the better version that waits, and return its rating.

        Returns None if no version waits, or the file cannot be written.
        """
        if self._waiting is None:
            return None
        score, version = self._waiting
        try:
            return self._keep(Best(TRAINING, score, version.version, version.n_opts), version.data)
        except OSError as error:
            run = self._document.id
            _log.warning("the best policy of run %s cannot be written: %s", run, error)
            return None

    def _release(self, version: int) -> int | None:
        """Let a version go; return its number of updates, None if it was not kept."""
        n_opts = self._evaluated.pop(version, None)
        if n_opts is not None:
            self._policies.release(version)
        return n_opts

    def _read(self, version: int) -> PolicyVersion | None:
        """Return a version with the number of updates so far; None if its file cannot be read."""
        try:
            data, newest = self._policies.read(version), self._policies.newest
        except OSError as error:
            _log.warning("version %s of run %s is not rated: %s", version, self._document.id, error)
            return None
        if data is None or newest is None:
            return None
        return PolicyVersion(version, newest.n_opts, hashlib.sha256(data).hexdigest(), data)

    def _keep(self, best: Best, data: bytes) -> Best:
        self._policies.keep_best(data)
        self._kept_at, self._waiting = time.monotonic(), None
        return best
