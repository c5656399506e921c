"""Running statistics of features and rewards, and the scaling that policies use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats, chunks
from arkml.hive.protocol.parts import Part, numbers_of
from arkml.hive.protocol.row_split import RowSplit
from arkml.learning.feature_moments import FeatureMoments
from arkml.learning.robust_moments import RESOLUTION, REWARD_REACH, RobustMoments, columns_of

CLIP = 10.0
"""Bound of normalized features, also for outliers."""

LEAST_OF_WHOLE = 0.5
"""
The smallest number that a feature of whole numbers is divided by.

Flags and codes, as of a brick that stands or not, may be the same in all rows but a few. Divided by
their deviations they would be as large as 10 in these few, and a network that has hardly seen them
knows nothing of a state that has several: breakout, which has 108 of them, is not learned.
"""

REMEMBERED = 5.0
"""
The bound of features where a policy remembers, other than of outliers.

What is shown in one row of an episode, and matters in all others, is many deviations away from what
those show: it would be cut at CLIP, and the units that remember it would be at their bounds.
Numbers that are normally distributed are hardly further than 5 deviations away in a million rows.
"""

SPREAD = 10.0
"""
Standard deviation of discounted returns after scaling (decision 8). With 1 the steps of Adam are
coarse beside the differences between actions: a pendulum takes half as many rows again.
"""

REWARD_CLIP = 1_000.0
"""Bound of scaled rewards of one or more steps: a hundred deviations of discounted returns."""

_CHUNK = 1_024  # rows, which stay in the processor's caches

_INVERSES = (2e-38, 1e37)  # float32 without subnormal numbers, which some devices take for 0

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scaling:
    """
    The scaling of features and rewards that a policy version uses.

    Attributes:
        mean: Subtracted from features: float32, [F].
        inverse: The factor by which centered features are multiplied, before they are clipped:
            float32, [F].
        reward: The number by which rewards are divided; they are not shifted.
        reward_bound: The bound of divided rewards.

    """

    mean: Floats
    inverse: Floats
    reward: float = 1.0
    reward_bound: float = math.inf

    @classmethod
    def from_json(cls, values: Mapping[str, Any], features: int, reward_bound: float) -> Scaling:
        """Return a scaling from the result of `as_json`. Raises ValueError for unusable values."""
        mean, inverse = columns_of(values, ("mean", "inverse"), features)
        reward = float(values["reward"])
        if not (math.isfinite(reward) and reward > 0.0):
            raise ValueError(f"rewards are divided by {reward}: expected a positive number")
        return cls(mean.astype(np.float32), inverse.astype(np.float32), reward, reward_bound)

    def as_json(self) -> dict[str, Any]:
        """Return the scaling as JSON values, without the bound of rewards."""
        mean, inverse = self.mean.tolist(), self.inverse.tolist()
        return {"mean": mean, "inverse": inverse, "reward": self.reward}

    @classmethod
    def identity(cls, features: int) -> Scaling:
        """Return a scaling that only clips features."""
        return cls(np.zeros(features, np.float32), np.ones(features, np.float32))

    def features(self, raw: Floats, out: Floats | None = None) -> Floats:
        """
        Return normalized features.

        raw and result: float32, [n, F]. The result is in `out` where that is given, which may be
        `raw`: new memory for many rows takes longer than what is computed.
        """
        scaled: Floats = np.empty_like(raw) if out is None else out
        with np.errstate(over="ignore"):  # the clip takes infinity, too
            for rows in chunks(len(raw), _CHUNK):
                part = np.subtract(raw[rows], self.mean, out=scaled[rows])
                np.multiply(part, self.inverse, out=part)
                np.clip(part, -CLIP, CLIP, out=part)
        return scaled

    def rewards(self, raw: Floats) -> Floats:
        """Return scaled rewards. raw and result: float32, of any shape."""
        scaled = np.clip(raw / np.float64(self.reward), -self.reward_bound, self.reward_bound)
        return scaled.astype(np.float32)


class Normalizer:
    """
    Collects statistics of all rows, from which it makes the scaling in steps.

    The more rows there have been, the less new ones change the statistics, so that a policy can
    settle; but the statistics follow a policy that reaches new states or higher returns.

    `current` is the scaling that the policy and the updates use; only `adopt` changes it. It begins
    as the identity, with bounded rewards; without `active` it stays the identity, with unbounded
    rewards. Features whose kind has known bounds, such as categories, are divided by these from the
    beginning. Values of images are left out, since their encoder knows their bounds.

    With `remembers`, for a policy with a memory, features are within REMEMBERED.
    """

    def __init__(
        self, features: int, parts: Sequence[Part] = (), *, active: bool, remembers: bool = False
    ) -> None:
        features = RowSplit(features, parts).numbers
        self._features = FeatureMoments(features, numbers_of(parts))
        inverse = np.where(self._features.is_known, 1.0 / self._features.largest, 1.0)
        self.current = Scaling(np.zeros(features, np.float32), inverse.astype(np.float32))
        if active:
            self.current = replace(self.current, reward_bound=REWARD_CLIP)
        self._active = active
        self._remembers = remembers
        self._returns = RobustMoments(1, REWARD_REACH)

    def observe(self, features: Floats, returns: Doubles) -> None:
        """
        Add rows to the statistics.

        features: float32, [n, F], without images. returns: float64, [m], discounted sums of rewards
        so far.
        """
        if not self._active:
            return
        self._features.add(features)
        self._returns.add(returns[:, None])

    def adopt(self) -> None:
        """Compute `current` from the statistics so far. Call it when a policy is published."""
        if not self._active or self._features.count < 2:
            return
        seen = self._features
        mean = seen.mean
        deviation = np.hypot(seen.deviation, RESOLUTION * mean)
        least = np.where(seen.is_whole, LEAST_OF_WHOLE, 0.0)
        if self._remembers:
            least = np.maximum(least, seen.reach / REMEMBERED)
        divisor = np.where(deviation > 0.0, np.maximum(deviation, least), 1.0)
        inverse = 1.0 / np.where(seen.is_known, seen.largest, divisor)
        spread = float(self._returns.deviation[0])
        self.current = Scaling(
            mean.astype(np.float32),
            np.clip(inverse, *_INVERSES).astype(np.float32),
            max(spread / SPREAD, _INVERSES[0]) if spread else 1.0,  # no reward yet, or constant
            REWARD_CLIP,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the whole state as JSON values."""
        returns = {"returns": self._returns.as_json()}
        return self._features.as_json() | returns | self.current.as_json()

    def restore(self, values: Mapping[str, Any]) -> None:
        """
        Continue from the result of `as_json`.

        Raises ValueError if it has another width or a scaling that is not finite.
        """
        bound = REWARD_CLIP if self._active else math.inf
        width = len(self.current.mean)
        scaling = Scaling.from_json(values, width, bound)
        self._features.restore(values)
        self._returns.restore(values["returns"])
        self.current = scaling
