"""Metrics of features and actions, from samples of the rows that a learner reads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.batches import Floats
from arkml.hive.protocol.histograms import MOST_HISTOGRAMS, Histogram, bins_of
from arkml.hive.protocol.parts import bound_of, fields_of, numbers_of
from arkml.hive.protocol.row_split import RowSplit
from arkml.hive.protocol.rows import NO_ROW, RowColumns
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import CLIP, Scaling
from arkml.learning.trajectories import ends_of

Point = tuple[str, float]

FIGURES_EVERY, HISTOGRAMS_EVERY = 10.0, 60.0
"""Seconds between two samples, and between two reports of histograms and shares of choices."""

MOST_SHARES = 12
"""Choices whose shares are metrics, which a disk keeps for long; histograms have them all."""

SATURATED = 0.99
"""The distance from 0 from which on a continuous action is at its bounds."""

_NEVER = float("-inf")
_SAMPLE_ROWS, _SAMPLE_NUMBERS = 1_024, 1 << 20
_LEAST_ROWS = 16
_BODY_ROWS = 256
"""Rows of a sample: in all, as far as their numbers allow; at least; and of one body."""

_CLIPPED = 0.01
"""The share of clipped values from which on a feature counts as clipped."""

_BELOW_ONE = 1.0 - 2.0**-24  # in the last bin below 1


class RowFigures:
    """
    Samples the first training rows after each report, and computes metrics from them.

    The size of a sample is bounded. Choices count only where an agent acted, and a feature is
    constant if it was constant in all samples. Rewards of all rows count, except the first row of
    each episode, to which no action led. Categories and numbers of entities outside of their bounds
    are counted, and so are values of images that were clipped. Images are ignored otherwise.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        features = settings.numbers
        width = features + settings.actions
        self._most = min(_SAMPLE_ROWS, max(_LEAST_ROWS, _SAMPLE_NUMBERS // width))
        self._choices = sum(settings.branches)
        self._low = np.full(features, np.inf, np.float32)
        self._high = np.full(features, -np.inf, np.float32)
        self._rewards: tuple[float, float] | None = None  # the least and the greatest
        self._figures_at = self._histograms_at = _NEVER
        fields = fields_of(numbers_of(settings.parts))
        self._bounded = [(field.columns, bound) for field in fields if (bound := bound_of(field))]
        # A value that is the same in all rows says nothing of others that mean the same.
        self._means_own = np.ones(features, bool)
        for field in fields:
            self._means_own[field.columns] = field.part.kind == "vector"
        self._outside = 0
        split = RowSplit(settings.features, settings.parts)
        self._numbers = split.numbers_of(np.arange(settings.features)[None])[0].tolist()
        self._clear()

    @property
    def sampled(self) -> int:
        """Number of rows in the sample."""
        return self._rows

    def add(self, columns: RowColumns, outside: int = 0) -> None:
        """
        Add rows to the sample, unless it is complete. Copies the columns that it keeps.

        `outside` is the number of values of images that were clipped.
        """
        self._outside += outside
        self._add_rewards(columns.reward[columns.state != EpisodeState.INITIAL])
        wanted = min(self._most - self._rows, _BODY_ROWS, len(columns))
        if wanted <= 0:
            return
        chosen = slice(None, wanted * (len(columns) // wanted), len(columns) // wanted)
        acted = ~ends_of(columns.state[chosen])
        self._rows += wanted
        self._features.append(columns.features[chosen].copy())
        self._actions.append(columns.action[chosen][acted])
        if self._choices:
            meta = columns.meta
            masks = (meta["row"] != NO_ROW) & (meta["name"] < self._choices) & (meta["value"] != 0)
            self._masked += int(masks.sum())
            self._maskable += len(columns) * self._choices

    def rewards(self) -> Iterator[Point]:
        """
        Yield a metric that is 1 if all rewards so far were equal, else 0; nothing without rewards.
        """
        if self._rewards is not None:
            yield "rollout/equal_rewards", float(self._rewards[0] == self._rewards[1])

    def take(self, scaling: Scaling, now: float) -> tuple[list[Point], list[Histogram]]:
        """
        Return the metrics that are due, by tag, and histograms, and begin another sample.

        `scaling` is the policy's scaling, `now` is in seconds of a monotonic clock.
        """
        if not self._rows or now - self._figures_at < FIGURES_EVERY:
            return [], []
        self._figures_at = now
        features, actions = np.concatenate(self._features), np.concatenate(self._actions)
        np.minimum(self._low, features.min(0), out=self._low)
        np.maximum(self._high, features.max(0), out=self._high)
        for columns, bound in self._bounded:
            values = features[:, columns]
            self._outside += int(((values < 0.0) | (values > bound)).sum())
        clipped = (np.abs(scaling.features(features)) >= CLIP).mean(0)
        points = [*self._of_features(clipped), *self._of_actions(actions)]
        histograms: list[Histogram] = []
        if now - self._histograms_at >= HISTOGRAMS_EVERY:
            self._histograms_at = now
            points += islice(self._shares(actions), MOST_SHARES)
            histograms = [
                *self._histograms_of_actions(actions),
                *self._histograms_of_features(features, clipped),
            ]
        self._clear()
        return points, histograms

    def _add_rewards(self, rewards: Floats) -> None:
        if len(rewards):
            low, high = self._rewards or (float(rewards[0]), float(rewards[0]))
            self._rewards = min(low, float(rewards.min())), max(high, float(rewards.max()))

    def _clear(self) -> None:
        self._rows = self._masked = self._maskable = 0
        self._features: list[Floats] = []
        self._actions: list[Floats] = []

    def _of_features(self, clipped: npt.NDArray[np.float64]) -> Iterator[Point]:
        yield "features/constant", float(((self._low == self._high) & self._means_own).sum())
        yield "features/clipped", float((clipped > _CLIPPED).sum())
        if self._bounded or self._settings.images:
            yield "features/outside", float(self._outside)

    def _of_actions(self, actions: Floats) -> Iterator[Point]:
        if not len(actions):
            return
        continuous = actions[:, : self._settings.continuous]
        if continuous.size:
            yield "actions/saturated", float((np.abs(continuous) >= SATURATED).mean())
        if self._maskable:
            yield "actions/masked_share", self._masked / self._maskable

    def _shares(self, actions: Floats) -> Iterator[Point]:
        """Yield the share of each choice among all choices of its branch."""
        if not len(actions):
            return
        columns = actions[:, self._settings.continuous :].T.astype(np.int64)
        for branch, choices in enumerate(self._settings.branches):
            chosen = np.bincount(np.clip(columns[branch], 0, choices - 1), minlength=choices)
            for choice, share in enumerate((chosen / len(actions)).tolist()):
                yield f"actions/branch_{branch}_share_{choice}", share

    def _histograms_of_actions(self, actions: Floats) -> Iterator[Histogram]:
        if not len(actions):
            return
        for number in range(min(self._settings.actions, MOST_HISTOGRAMS)):
            values = actions[:, number]
            low, high = float(values.min()), float(values.max())
            if number >= self._settings.continuous:
                bins, at_bounds = bins_of(values, least=0), 0.0
            else:
                bins = bins_of(np.clip(values, -1.0, _BELOW_ONE))
                at_bounds = float((np.abs(values) >= SATURATED).mean())
            yield Histogram(f"actions/{number}", bins, low, high, at_bounds)

    def _histograms_of_features(
        self, features: Floats, clipped: npt.NDArray[np.float64]
    ) -> Iterator[Histogram]:
        """Yield histograms of all features, or of the worst: clipped first, then constant ones."""
        worst = np.lexsort((self._low != self._high, clipped <= _CLIPPED))[:MOST_HISTOGRAMS]
        for number in np.sort(worst).tolist():
            values = features[:, number]
            low, high = float(values.min()), float(values.max())
            share = float(clipped[number])
            name = f"features/{self._numbers[number]}"
            yield Histogram(name, bins_of(values), low, high, share)
