"""Prioritized sampling: the probability of each sample, and importance weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from arkml.async_trainer.core.config_files import (
    YamlConfig,
    check_choice,
    check_number,
    check_whole,
)
from arkml.async_trainer.core.transition_batches import Indices
from arkml.base.sealed import Sealed
from arkml.errors import UsageError

WeightNormalizer = Literal["All", "Batch"]
"""Divisor of weights: the largest weight of "All" samples in the buffer, or of the "Batch"."""

EPSILON = 1e-8
"""Added to each priority, so that a sample with a TD error of 0 can be drawn, too."""

_REBUILD = 8  # the tree is rebuilt if more than one in 8 slots changes

_FIRST = 1.0  # priority of samples until a TD error is known

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PerConfig(YamlConfig):
    """
    Configuration of prioritized sampling (Schaul et al., "Prioritized Experience Replay", 2016).

    Args:
        alpha: Exponent of priorities; at 0 all samples are equally likely.
        beta_0: Exponent of importance weights at the beginning.
        beta_final: Exponent of importance weights from step `n_opts_final` on.
        n_opts_final: Number of optimization steps over which the exponent changes linearly.
        normalize: Divisor of weights: the largest weight in the buffer ("All") or in the "Batch".

    Raises:
        UsageError: A value is invalid.

    """

    alpha: float = 0.6
    beta_0: float = 0.4
    beta_final: float = 1.0
    n_opts_final: int = 500_000
    normalize: WeightNormalizer = "All"

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, 0.0)
        check_number("beta_0", self.beta_0, 0.0)
        check_number("beta_final", self.beta_final, 0.0)
        check_whole("n_opts_final", self.n_opts_final)
        check_choice("normalize", self.normalize, get_args(WeightNormalizer))


class IwScheduler(Sealed):
    """The schedule of the exponent of importance weights, which changes with optimization steps."""

    def __init__(self, config: PerConfig) -> None:
        self._config = config
        self._n_opts = 0

    @property
    def beta(self) -> float:
        """The present exponent of importance weights."""
        config = self._config
        if self._n_opts >= config.n_opts_final:
            return config.beta_final
        share = self._n_opts / config.n_opts_final
        return config.beta_0 + (config.beta_final - config.beta_0) * share

    def add_n_opts(self) -> None:
        """Count an optimization step."""
        self._n_opts += 1


class SumTree:
    """
    A binary tree for priority sampling, with sum, minimum and maximum of the values in slots.

    A priority p has the value (p + EPSILON) ** alpha.
    """

    def __init__(self, capacity: int, alpha: float) -> None:
        self._alpha = alpha
        self._leaves = 1 << max(0, capacity - 1).bit_length()
        self._sums = np.zeros(2 * self._leaves)
        # The minimum of (value, -value): one operation yields the smallest and the largest.
        self._bounds = np.full((2 * self._leaves, 2), np.inf)

    @property
    def total(self) -> float:
        """Sum of all values."""
        return float(self._sums[1])

    @property
    def smallest(self) -> float:
        """Smallest value, if there is any."""
        return float(self._bounds[1, 0])

    @property
    def largest(self) -> float:
        """Largest value, if there is any."""
        return -float(self._bounds[1, 1])

    def update(self, ixs: Indices, priorities: Floats) -> None:
        """Set the priorities of slots. ixs: [n]; priorities: [n], at least 0."""
        self.fill(ixs, (priorities + EPSILON) ** self._alpha)

    def fill(self, ixs: Indices, values: Floats | float) -> None:
        """Set the values of slots. ixs: [n]; values: [n] or one number, above 0."""
        nodes = ixs + self._leaves
        self._sums[nodes] = values
        self._bounds[nodes, 0] = values
        self._bounds[nodes, 1] = -np.asarray(values)
        is_whole = len(nodes) * _REBUILD >= self._leaves
        pairs, bounds = self._sums.reshape(-1, 2), self._bounds.reshape(-1, 2, 2)
        first = self._leaves
        while first > 1:
            first //= 2
            parents = slice(first, 2 * first) if is_whole else nodes // 2
            below = pairs[parents]
            self._sums[parents] = below[:, 0] + below[:, 1]
            extremes = bounds[parents]
            self._bounds[parents] = np.minimum(extremes[:, 0], extremes[:, 1])
            if not is_whole:
                nodes = parents  # type: ignore[assignment]

    def values(self, ixs: Indices) -> Floats:
        """Return the values of the slots `ixs`, [n]."""
        return self._sums[ixs + self._leaves]

    def get(self, sums: npt.ArrayLike) -> Indices:
        """
        Return the slots at which the running sum of values reaches `sums`, each from 0 to `total`.

        All sums are searched together, level by level.
        """
        rest = np.array(sums, np.float64)
        nodes = np.ones(rest.shape, np.int64)
        pairs = self._sums.reshape(-1, 2)
        for _ in range(self._leaves.bit_length() - 1):
            below = pairs[nodes]
            is_right = (rest > below[..., 0]) & (below[..., 1] > 0)
            rest -= below[..., 0] * is_right
            nodes = 2 * nodes + is_right
        return nodes - self._leaves


class Priorities:
    """
    The priorities of the samples in a buffer's slots, which are filled from the first slot on.

    New samples enter the tree in groups, when it is next read.
    """

    def __init__(self, capacity: int, config: PerConfig) -> None:
        self._tree = SumTree(capacity, config.alpha)
        self._scheduler = IwScheduler(config)
        self._normalize = config.normalize
        self._capacity = capacity
        self._used = 0
        self._largest = (_FIRST + EPSILON) ** config.alpha
        self._added: list[int] = []

    def add(self, i: int, count: int) -> None:
        """Give `count` new samples, in the slots from `i` on, the largest priority so far."""
        self._added.extend(range(i, i + count))
        if len(self._added) > self._capacity:
            self._settle()

    def update(self, ixs: npt.NDArray[np.int64], td_errs: npt.NDArray[np.float32]) -> None:
        """Set priorities to the absolute TD errors, and count an optimization step."""
        self._settle()
        sizes = np.abs(np.asarray(td_errs, np.float64))
        ixs = np.asarray(ixs, np.int64)
        if sizes.shape != ixs.shape or not np.isfinite(sizes).all():
            raise UsageError(
                f"TD errors must be finite, one for each of {ixs.shape} samples; they are {td_errs}"
            )
        if len(ixs) and not 0 <= ixs.min() <= ixs.max() < self._used:
            raise UsageError(f"ixs has {ixs.min()} to {ixs.max()}, of {self._used} samples")
        self._tree.update(ixs, sizes)
        self._largest = self._tree.largest
        self._scheduler.add_n_opts()

    def draw(
        self, random: np.random.Generator, size: int
    ) -> tuple[Indices, npt.NDArray[np.float32]]:
        """Return slots drawn by priority, and their weights; the largest weight is 1."""
        self._settle()
        tree, beta = self._tree, self._scheduler.beta
        total = tree.total
        ixs = tree.get(total * random.random(size))
        scale = self._used / total
        weights = (scale * tree.values(ixs)) ** -beta
        if self._normalize == "All":
            weights *= (scale * tree.smallest) ** beta
        else:
            weights /= weights.max()
        return ixs, weights.astype(np.float32)

    def _settle(self) -> None:
        if not self._added:
            return
        self._used = min(max(self._used, max(self._added) + 1), self._capacity)
        self._tree.fill(np.array(self._added) % self._capacity, self._largest)
        self._added.clear()
