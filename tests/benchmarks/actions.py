"""Random actions for what is stepped, drawn beforehand, so that drawing them is not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]

STEPS = 256  # of them, then they come again
MOST = 4096  # agents


@dataclass(frozen=True, slots=True)
class Stepped:
    """
    A game of fixtures/guests and its peer in Gymnasium and EnvPool.

    `ours` and `theirs` make the same actions of numbers in [-1, 1), [STEPS, n]: float32,
    [STEPS, n, 1], for a guest, and what `peer` takes.
    """

    guest: str
    peer: str
    ours: Callable[[Numbers], Numbers]
    theirs: Callable[[Numbers], Numbers]


def _full_force(numbers: Numbers) -> Numbers:
    """The whole force to one side or the other, as CartPole-v1 has no other."""
    return np.where(numbers > 0, np.float32(1), np.float32(-1))[..., None]


STEPPED: Mapping[str, Stepped] = {
    "pendulum": Stepped(
        "c_pendulum.wasm",
        "Pendulum-v1",
        lambda numbers: numbers[..., None],  # in parts of the greatest torque, which is 2
        lambda numbers: 2 * numbers[..., None],
    ),
    "cart-pole": Stepped(
        "c_cartpole.wasm",
        "CartPole-v1",
        _full_force,
        lambda numbers: (numbers > 0).astype(np.int32),
    ),
}


def drawn(agents: int) -> Numbers:
    """Return numbers in [-1, 1), float32, [STEPS, agents], an agent's whatever their count."""
    numbers = np.random.default_rng(5).uniform(-1, 1, (MOST, STEPS)).astype(np.float32)
    return np.ascontiguousarray(numbers[:agents].T)


def ours(game: str, agents: int) -> Iterator[Numbers]:
    """Return actions for agents of a guest, or guests of one agent, step by step, without end."""
    return cycle(list(STEPPED[game].ours(drawn(agents))))


def theirs(game: str, count: int) -> Iterator[Numbers]:
    """Return these actions as environments of Gymnasium or EnvPool take them."""
    return cycle(list(STEPPED[game].theirs(drawn(count))))
