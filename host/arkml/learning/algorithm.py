"""The protocol of a learning algorithm, and the values it exchanges with its learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.errors import HiveError
from arkml.learning.normalizer import Scaling


class Diverged(HiveError):
    """Losses or weights are no longer finite."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A linear layer. weight: float32, [outputs, inputs]. bias: float32, [outputs]."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True, slots=True)
class PolicyWeights:
    """
    The weights of a policy and its normalization, copies that never change.

    `body` is the actor up to its last hidden layer, with a ReLU after each layer. `mean` and
    `log_std` follow on it. Every critic takes the normalized features concatenated with the actions
    and ends in a layer without a ReLU. `n_opts` is the number of updates before.
    """

    scaling: Scaling
    body: tuple[Layer, ...]
    mean: Layer
    log_std: Layer
    critics: tuple[tuple[Layer, ...], ...]
    n_opts: int

    def is_finite(self) -> bool:
        """Return True if all weights are finite."""
        layers = (*self.body, self.mean, self.log_std, *(x for q in self.critics for x in q))
        return all(np.isfinite(x.weight).all() and np.isfinite(x.bias).all() for x in layers)


@dataclass(frozen=True, slots=True)
class State:
    """
    The state of an algorithm, complete enough to continue from.

    `tensors` are of the types in `checkpoints.DTYPES` and finite, with names such as
    "actor/0/weight". `plain` has JSON values only.
    """

    tensors: Mapping[str, npt.NDArray[Any]]
    plain: Mapping[str, Any]


class Answer(NamedTuple):
    """
    The answer of a policy to a batch.

    actions: float32, [n, A]. values: float32, [n, 1], in the guest's units of reward. `largest` is
    the largest absolute number that enters a tanh, the scale of rounding errors.
    """

    actions: Floats
    values: Floats
    largest: float


class Trainable(Protocol):
    """Makes updates."""

    @property
    def n_opts(self) -> int:
        """Updates so far, including those before a restart."""

    def train(self, updates: int) -> dict[str, float]:
        """
        Make `updates` updates; return the losses by the tags of stable-baselines3.

        Raises Diverged.
        """


class Exportable(Protocol):
    """Has a policy that can be exported as a model."""

    @property
    def device(self) -> str:
        """The device that it computes on, as torch names it."""

    def weights(self) -> PolicyWeights:
        """Return a copy of the present policy's weights."""

    def answer(self, observations: Floats, epsilon: Floats) -> Answer:
        """
        Answer a batch, to compare an exported model with.

        observations: float32, [n, F]. epsilon: float32, [n, A].
        """


class Resumable(Protocol):
    """Can be saved and restored."""

    def state(self) -> State:
        """Return a copy of the state that `restore` needs."""

    def restore(self, state: State) -> None:
        """Continue from a state. Raises CheckpointDamaged if it does not fit the run."""


class Algorithm(Trainable, Exportable, Resumable, Protocol):
    """Learns from the replay buffer that it was made with."""
