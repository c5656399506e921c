"""Priorities of samples: how likely each is drawn, and the weights that correct for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from arkml.async_trainer.core.batches import Indices
from arkml.async_trainer.core.config_files import (
    YamlConfig,
    check_choice,
    check_number,
    check_whole,
)
from arkml.errors import UsageError

WeightNormalizer = Literal["All", "Batch"]
"""Weights are divided by the largest of all samples in the buffer, or of those in the batch."""

EPSILON = 1e-8
"""Added to each priority, so that a sample without a TD error can be drawn, too."""

_FIRST = 1.0  # the priority of samples before there is any TD error

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PerConfig(YamlConfig):
    """
    Configuration of prioritized sampling (Schaul et al., "Prioritized Experience Replay", 2016).

    The exponent of weights grows from `beta_0` to `beta_final` in `n_opts_final` optimization
    steps, and stays there.
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


class IwScheduler:
    """The exponent of importance weights, over the optimization steps."""

    def __init__(self, config: PerConfig) -> None:
        self._config = config
        self._n_opts = 0

    @property
    def beta(self) -> float:
        """The present exponent."""
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
    A binary tree of sums over the priorities of slots, with their smallest and largest.

    A priority p counts as (p + EPSILON) ** alpha. Sums are brought up to date when they are read,
    for all slots that have changed at once.
    """

    def __init__(self, capacity: int, alpha: float) -> None:
        self._capacity = capacity
        self._alpha = alpha
        self._leaves = 1 << max(0, capacity - 1).bit_length()
        self._sums = np.zeros(2 * self._leaves)
        self._smallest = np.full(2 * self._leaves, np.inf)
        self._largest = np.zeros(2 * self._leaves)
        self._changed: list[Indices] = []

    @property
    def total(self) -> float:
        """The sum of all."""
        self._settle()
        return float(self._sums[1])

    @property
    def smallest(self) -> float:
        """The smallest of all."""
        self._settle()
        return float(self._smallest[1])

    @property
    def largest(self) -> float:
        """The largest of all, 0 without any."""
        self._settle()
        return float(self._largest[1])

    def update(self, ixs: Indices, priorities: Floats) -> None:
        """Set the priorities, 0 or more, of slots: both [n]."""
        self.fill(ixs, (priorities + EPSILON) ** self._alpha)

    def fill(self, ixs: Indices, values: Floats | float) -> None:
        """Set the values of slots as they are, without EPSILON and alpha."""
        leaves = ixs + self._leaves
        for tree in (self._sums, self._smallest, self._largest):
            tree[leaves] = values
        self._changed.append(leaves)

    def values(self, ixs: Indices) -> Floats:
        """Return the values of slots."""
        return self._sums[ixs + self._leaves]

    def get(self, sums: npt.ArrayLike) -> Indices:
        """
        Return the slots at which the running sum of values reaches `sums`, each from 0 to `total`.

        All are searched at once, level by level.
        """
        self._settle()
        rest = np.array(sums, np.float64)
        nodes = np.ones(rest.shape, np.int64)
        for _ in range(self._leaves.bit_length() - 1):
            left = 2 * nodes
            in_left = self._sums[left]
            is_right = (rest > in_left) & (self._sums[left + 1] > 0)
            rest -= np.where(is_right, in_left, 0.0)
            nodes = left + is_right
        return nodes - self._leaves

    def _settle(self) -> None:
        if not self._changed:
            return
        nodes = np.unique(np.concatenate(self._changed) // 2)
        self._changed.clear()
        while nodes[0] > 0:
            left = 2 * nodes
            self._sums[nodes] = self._sums[left] + self._sums[left + 1]
            self._smallest[nodes] = np.minimum(self._smallest[left], self._smallest[left + 1])
            self._largest[nodes] = np.maximum(self._largest[left], self._largest[left + 1])
            nodes = np.unique(nodes // 2)


class Priorities:
    """The priorities of a buffer's slots, of which those in use are the first ones."""

    def __init__(self, capacity: int, config: PerConfig) -> None:
        self._tree = SumTree(capacity, config.alpha)
        self._scheduler = IwScheduler(config)
        self._normalize = config.normalize
        self._slots = np.arange(capacity)
        self._used = 0
        self._largest = (_FIRST + EPSILON) ** config.alpha

    def add(self, slots: slice | Indices) -> None:
        """Give new samples in `slots` the largest priority of all."""
        ixs = self._slots[slots]
        self._tree.fill(ixs, self._largest)
        self._used = max(self._used, int(ixs.max()) + 1)

    def update(self, ixs: npt.NDArray[np.int64], td_errs: npt.NDArray[np.float32]) -> None:
        """Set priorities to the sizes of TD errors and count an optimization step."""
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
        """Return slots drawn by priority, and their weights, of which the largest is 1."""
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
