"""Running statistics of features and rewards, and the scaling that policies use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats

FROZEN_AFTER = 1_000_000
"""Rows after which the statistics stay fixed, so that the policy can settle."""

CLIP = 10.0
"""Bound of normalized features, also for outliers after the statistics were fixed."""

SPREAD = 10.0
"""
Standard deviation of discounted returns after scaling. With 1 the steps of Adam are coarse beside
the differences between actions: a pendulum takes half as many rows again.
"""

_SMALLEST = 1e-8  # added to variances, as in stable-baselines3
_RESOLUTION = 1e-6  # relative to the mean: float32 resolves no smaller steps

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scaling:
    """
    The scaling of features and rewards that a policy version uses.

    Features become clip((features - mean) * inverse), both float32, [F]. Rewards are divided by
    `reward`; they are not shifted.
    """

    mean: Floats
    inverse: Floats
    reward: float = 1.0

    @classmethod
    def identity(cls, features: int) -> Scaling:
        """Return a scaling that changes nothing within the bounds of the clip."""
        return cls(np.zeros(features, np.float32), np.ones(features, np.float32))

    def features(self, raw: Floats) -> Floats:
        """Return normalized features. raw and result: float32, [n, F]."""
        scaled: Floats = (raw - self.mean) * self.inverse
        return np.clip(scaled, -CLIP, CLIP, out=scaled)


class Moments:
    """
    Count, mean and variance of columns, merged batch by batch (Chan, Golub and LeVeque).

    mean, variance: float64, [width].
    """

    def __init__(self, width: int) -> None:
        self.count = 0.0
        self.mean: Doubles = np.zeros(width)
        self._squares: Doubles = np.zeros(width)

    @property
    def variance(self) -> Doubles:
        """Population variance of each column."""
        return self._squares / max(self.count, 1.0)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add a batch of values: float32 or float64, [n, width]."""
        count = len(values)
        if not count:
            return
        mean = values.mean(axis=0, dtype=np.float64)
        squares = np.square(values - mean).sum(axis=0)
        shift = mean - self.mean
        total = self.count + count
        self.mean = self.mean + shift * (count / total)
        self._squares = self._squares + squares + np.square(shift) * (self.count * count / total)
        self.count = total

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "count": self.count,
            "mean": self.mean.tolist(),
            "squares": self._squares.tolist(),
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Continue from the result of `as_json`. Raises ValueError if it has another width."""
        mean = np.array(values["mean"], np.float64)
        squares = np.array(values["squares"], np.float64)
        if not mean.shape == squares.shape == self.mean.shape:
            raise ValueError(
                f"statistics of shapes {mean.shape} and {squares.shape}: expected {self.mean.shape}"
            )
        self.count, self.mean, self._squares = float(values["count"]), mean, squares


class Normalizer:
    """
    Collects statistics of all rows, which come into use in steps.

    `current` is the scaling that the policy and the updates use; only `adopt` changes it. Without
    `active` it stays the identity.
    """

    def __init__(self, features: int, *, active: bool) -> None:
        self.current = Scaling.identity(features)
        self._active = active
        self._features = Moments(features)
        self._returns = Moments(1)

    def observe(self, features: Floats, returns: Doubles) -> None:
        """
        Add rows to the statistics.

        features: float32, [n, F]. returns: float64, [m], discounted rewards so far.
        """
        if self._active and self._features.count < FROZEN_AFTER:
            self._features.add(features)
            self._returns.add(returns[:, None])

    def adopt(self) -> None:
        """Take the statistics so far into use. Call it when a policy is published."""
        if not self._active or self._features.count < 2:
            return
        moments = self._features
        least = np.square(_RESOLUTION * moments.mean)
        deviation = np.sqrt(moments.variance + _SMALLEST + least)
        spread = float(np.sqrt(self._returns.variance[0]))
        self.current = Scaling(
            moments.mean.astype(np.float32),
            (1.0 / deviation).astype(np.float32),
            spread / SPREAD if spread > _SMALLEST else 1.0,  # no reward yet, or always the same
        )

    def as_json(self) -> dict[str, Any]:
        """Return the whole state as JSON values."""
        return {
            "features": self._features.as_json(),
            "returns": self._returns.as_json(),
            "mean": self.current.mean.tolist(),
            "inverse": self.current.inverse.tolist(),
            "reward": self.current.reward,
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """
        Continue from the result of `as_json`.

        Raises ValueError if it has another width or a scaling that is not finite.
        """
        self._features.restore(values["features"])
        self._returns.restore(values["returns"])
        mean = np.array(values["mean"], np.float32)
        inverse = np.array(values["inverse"], np.float32)
        reward = float(values["reward"])
        if not mean.shape == inverse.shape == self.current.mean.shape:
            raise ValueError(
                f"a scaling of {mean.shape} and {inverse.shape} features:"
                f" expected {self.current.mean.shape}"
            )
        if not (np.isfinite(mean).all() and np.isfinite(inverse).all() and math.isfinite(reward)):
            raise ValueError("the scaling is not finite")
        if reward <= 0.0:
            raise ValueError(f"rewards are divided by {reward}: expected a positive number")
        self.current = Scaling(mean, inverse, reward)
