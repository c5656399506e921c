"""From a rollout to minibatches: advantages, the scale of rewards, the order of rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import SPREAD
from arkml.learning.ppo_state import Intake

Doubles = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

_KEPT = 0.9  # share of the variances before that a rollout leaves
_SMALLEST = 1e-8  # added to the deviation of advantages, as in stable-baselines3


class Chains(NamedTuple):
    """
    The chains of n rows, each row with the one that follows.

    order: int64, [n], the rows chain after chain, in the order of their steps. begins: bool, [n],
    the rows that follow on none. places: int64, [n], the number of rows before each in its chain.
    """

    order: Places
    begins: npt.NDArray[np.bool_]
    places: Places

    @classmethod
    def of(cls, following: Places, count: int) -> Chains:
        """
        Return the chains of `count` rows.

        following: int64, [n], the row after each of the first n rows, which comes later than all of
        its chain before.
        """
        before = np.full(count, -1)
        before[following] = np.arange(len(following))
        begins = before < 0
        roots = np.where(begins, np.arange(count), before)
        places = np.where(begins, 0, 1)
        while not begins[roots].all():  # each pass doubles the rows that are passed over
            places = places + places[roots]
            roots = roots[roots]
        return cls(np.argsort(roots, kind="stable"), begins, places)

    def recalled(self, intake: Intake, first: Floats, still: int) -> Floats:
        """
        Return what is remembered before each row: float32, [n, width].

        Args:
            intake: What each row does to it.
            first: What is remembered where a chain begins: float32, [n, width].
            still: How many of the numbers stand still.

        """
        memories = first.copy()
        before = np.zeros(len(first), np.int64)
        before[self.order[1:]] = self.order[:-1]
        by_place = np.argsort(self.places, kind="stable")
        ends = np.cumsum(np.bincount(self.places))
        for rows in np.split(by_place, ends[:-1])[1:]:
            left = before[rows]
            part = Intake(*(column[left] for column in intake))
            halves = part.following(np.split(memories[left], 2, axis=1), still)
            memories[rows] = np.concatenate(halves, axis=1)
        return memories


def sequence_steps(settings: Settings) -> int:
    """Return the rows of a sequence in a minibatch: 1 without memory."""
    return min(settings.sequence_length, settings.batch_size) if settings.memory else 1


def spread_of_returns(settings: Settings) -> float:
    """
    Return the number that scaled rewards are divided by.

    Normalized returns then have a spread of 1, and not `SPREAD`: the losses of actor and critic are
    added, and their gradients bounded together.
    """
    return SPREAD if settings.normalize else 1.0


def least_advantage(settings: Settings, gamma: float) -> float:
    """
    Return the smallest number that advantages are divided by.

    It is the share of a step in the deviation of discounted returns, as sums of 1 / (1 - gamma)
    independent rewards, which is a tenth for a gamma of 0.99.

    Where all are smaller, as in a game whose reward is the same until a goal that no agent has
    reached, what is left is how wrong the critic is, and a policy that followed it would give up to
    explore: the bonus for entropy, if there is one, has to outweigh it.
    """
    is_needed = settings.normalize and settings.entropy_coefficient
    return math.sqrt(1.0 - gamma) if is_needed else 0.0


class AdvantageScale(NamedTuple):
    """
    The number that advantages are divided by: the larger of their deviation now and of late.

    A rollout in which nothing is better than expected has small advantages, which are noise.
    Divided by their own deviation they would be as large as those of any other, and a policy that
    has learned would unlearn by them.

    Attributes:
        variance: The mean variance of the rollouts so far, of which each counts 0.9 times as much
            as the next.
        weight: The sum of their weights, 0 before the first, 1 after many.

    """

    variance: float = 0.0
    weight: float = 0.0

    def after(self, advantages: Doubles) -> AdvantageScale:
        """Return the scale for a rollout with these advantages, [n], and the next ones."""
        if not len(advantages):
            return self
        new = 1.0 - _KEPT
        variance = self.variance + new * (float(advantages.var()) - self.variance)
        return AdvantageScale(variance, self.weight + new * (1.0 - self.weight))

    def scaled(self, advantages: Doubles, least: float = 0.0) -> Doubles:
        """
        Return the advantages of the newest rollout, centered and divided: float64, [n].

        `least` is the smallest number that they are divided by.
        """
        if not len(advantages):
            return advantages
        largest = max(float(advantages.var()), self.variance / self.weight, least**2)
        scaled: Doubles = (advantages - advantages.mean()) / (np.sqrt(largest) + _SMALLEST)
        return scaled


def has_choice(settings: Settings, allowed: Marks) -> Marks:
    """Return whether an agent could act in several ways at each row: bool, [n]."""
    found = np.full(len(allowed), settings.continuous > 0)
    first = 0
    for choices in settings.branches:
        count = allowed[:, first : first + choices].sum(axis=1)
        found |= (count != 1) & (choices > 1)  # where none is allowed, all are
        first += choices
    return found


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


def count_minibatches(rows: int, size: int, *, steps: int = 1) -> int:
    """Return the number of minibatches in an epoch. Arguments as of `draw_minibatches`."""
    if steps > 1:
        return -(-rows // (steps * max(1, size // steps)))
    return min(-(-rows // size), rows // 2)


def draw_minibatches(
    random: np.random.Generator, rows: int, epochs: int, size: int, *, steps: int = 1
) -> npt.NDArray[np.int32]:
    """
    Return indices of rows in random order: int32, [epochs * minibatches, sequences, steps].

    Padding is -1. The minibatches of an epoch differ by one row at most; an epoch has each row
    once, or all rows but one if `size` is 2 and `rows` odd. With `steps` above 1, minibatches are
    made of whole sequences.

    Args:
        random: The generator of the order.
        rows: The number of rows.
        epochs: The number of passes over all rows.
        size: The largest number of rows of a minibatch.
        steps: The rows of a sequence, which stay together in their order; the last may be shorter.

    """
    sequences, each = -(-rows // steps), max(1, size // steps)
    count = count_minibatches(rows, size, steps=steps)
    layout = np.full((count, each), -1)
    parts = np.array_split(np.arange(min(sequences, count * each)), count)
    for number, part in enumerate(parts):
        layout[number, : len(part)] = part
    order = random.permuted(np.tile(np.arange(sequences, dtype=np.int32), (epochs, 1)), axis=1)
    drawn = np.where(layout >= 0, order[:, np.maximum(layout, 0)], -1)[..., None]
    places = drawn * steps + np.arange(steps)
    places = np.where((drawn >= 0) & (places < rows), places, -1)
    return places.reshape(epochs * count, each, steps).astype(np.int32)
