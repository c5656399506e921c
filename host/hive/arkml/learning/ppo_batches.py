"""From a rollout to minibatches: advantages, the scale of rewards, the order of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import SPREAD

Doubles = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


def spread_of_returns(settings: Settings) -> float:
    """
    Return the number that scaled rewards are divided by.

    Normalized returns then have a spread of 1, and not `SPREAD`: the losses of actor and critic are
    added, and their gradients bounded together.
    """
    return SPREAD if settings.normalize else 1.0


def generalized_advantages(
    rewards: npt.NDArray[Any],
    values: Doubles,
    following: Places,
    dones: Marks,
    gamma: float,
    lambda_: float,
) -> Doubles:
    """
    Return the advantages of rows on chains of any lengths: float64, [n].

    A chain that ends without being done has the value of its end as its future. Each pass doubles
    the steps that every sum covers, so n rows take log2 of the longest chain passes.

    Args:
        rewards: The rewards of the rows: [n].
        values: The values of the rows and of the ends of chains: [n + m].
        following: The index in `values` that follows each row: [n].
        dones: True where an episode ended with the row: [n].
        gamma: The discount of a step.
        lambda_: The smoothing of generalized advantage estimation.

    """
    count = len(rewards)
    future = np.where(dones, 0.0, values[following])
    sums: Doubles = rewards + gamma * future - values[:count]
    continues = following < count
    after = np.where(continues, following, 0)
    factors = np.where(continues, gamma * lambda_, 0.0)
    while factors.any():
        sums = sums + factors * sums[after]
        factors = factors * factors[after]
        after = after[after]
    return sums


def count_minibatches(rows: int, size: int) -> int:
    """Return the number of minibatches of 2 to `size` rows in an epoch."""
    return min(-(-rows // size), rows // 2)


def draw_minibatches(
    random: np.random.Generator, rows: int, epochs: int, size: int
) -> npt.NDArray[np.int32]:
    """
    Return indices of rows in random order: int32, [epochs * minibatches, size], -1 for padding.

    The minibatches of an epoch differ by one row at most; an epoch has each row once, or all rows
    but one if `size` is 2 and `rows` odd.

    Args:
        random: The generator of the order.
        rows: The number of rows.
        epochs: The number of passes over all rows.
        size: The largest number of rows of a minibatch.

    """
    count = count_minibatches(rows, size)
    layout = np.full((count, size), -1)
    parts = np.array_split(np.arange(min(rows, count * size)), count)
    for number, part in enumerate(parts):
        layout[number, : len(part)] = part
    order = random.permuted(np.tile(np.arange(rows, dtype=np.int32), (epochs, 1)), axis=1)
    drawn = np.where(layout >= 0, order[:, np.maximum(layout, 0)], np.int32(-1))
    return drawn.reshape(epochs * count, size)
