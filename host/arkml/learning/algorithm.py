"""What the trainer asks of a learning algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from arkml.batches import Floats
from arkml.errors import HiveError
from arkml.learning.normalizer import Scaling


class Diverged(HiveError):
    """Losses or weights are not finite any more."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Weight and bias of a linear layer. weight: float32, [outputs, inputs]. bias: float32."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True, slots=True)
class PolicyWeights:
    """
    A policy as numbers, normalization included; copies that nobody changes.

    `body` is the actor up to its last hidden layer, with a ReLU after each. `mean` and `log_std`
    stand on it. Every critic takes the normalized features beside the actions and ends in a
    layer without a ReLU. `n_opts` is how many updates made them.
    """

    scaling: Scaling
    body: tuple[Layer, ...]
    mean: Layer
    log_std: Layer
    critics: tuple[tuple[Layer, ...], ...]
    n_opts: int

    def is_finite(self) -> bool:
        """Whether all weights are numbers."""
        layers = (*self.body, self.mean, self.log_std, *(x for q in self.critics for x in q))
        return all(np.isfinite(x.weight).all() and np.isfinite(x.bias).all() for x in layers)


@dataclass(frozen=True, slots=True)
class State:
    """
    All that an algorithm needs to go on where it was.

    `tensors` can be read back by torch with `weights_only`; `plain` can be written as JSON.
    """

    tensors: Mapping[str, Any]
    plain: Mapping[str, Any]


class Answer(NamedTuple):
    """
    What a policy answers. actions: float32, [n, A]. values: float32, [n, 1], in the guest's units.

    `largest` is the largest number under a tanh: float32 tells apart what is that small in it.
    """

    actions: Floats
    values: Floats
    largest: float


class Trainable(Protocol):
    """What makes updates."""

    @property
    def n_opts(self) -> int:
        """Updates so far, those before a restart included."""

    def train(self, updates: int) -> dict[str, float]:
        """Make so many updates; the losses under the tags of stable-baselines3. Raises Diverged."""


class Exportable(Protocol):
    """What has a policy that can be written as a model."""

    @property
    def device(self) -> str:
        """Where it computes."""

    def weights(self) -> PolicyWeights:
        """The present policy."""

    def answer(self, observations: Floats, epsilon: Floats) -> Answer:
        """What it answers itself, to compare a model with. Both: float32, [n, F] and [n, A]."""


class Resumable(Protocol):
    """What can go on where it was."""

    def state(self) -> State:
        """A copy of all that `restore` needs."""

    def restore(self, state: State) -> None:
        """Go on from there. Raises CheckpointDamaged if it does not fit."""


class Algorithm(Trainable, Exportable, Resumable, Protocol):
    """Learns from the memory it was made with."""
