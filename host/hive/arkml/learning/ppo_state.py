"""The state of PPO and the numbers that its updates take, as arrays of any library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from arkml.hive.protocol.settings import Settings
from arkml.learning.encoders import PLAIN, Views, encoded_width, make_encoders
from arkml.learning.networks import (
    HIDDEN_GAIN,
    Network,
    learning_rate,
    make_memory,
    no_moments,
    orthogonal_network,
    random_key,
)
from arkml.learning.place_choices import make_choosers

_ACTOR_GAIN = 0.01  # the first policy is the same everywhere, as in stable-baselines3
_CRITIC_GAIN = 1.0


class Weights(NamedTuple):
    """
    Actor and critic.

    The outputs of `actor` are the means of the continuous actions, then the logits of the branches
    side by side. log_std: [continuous], the same at every row. `critic` has one output, in units of
    scaled rewards. The second layers of both take what `memory` remembers beside the outputs of the
    first; it is an empty list without memory. `encoders` are those of the parts of a row, whose
    results the others take; none for a row of plain numbers. `choosers` add to the logits of
    choices that are places of a grid; none without such choices.
    """

    actor: Any
    log_std: Any
    critic: Any
    memory: Any
    encoders: Any
    choosers: Any


class RowForm(NamedTuple):
    """
    The form of rows, an argument of compiled functions that decides what they compute.

    branches: the number of choices of each branch. views: the parts of a row. shifts: the most
    pixels by which images are moved, 0 for none.
    """

    branches: tuple[int, ...] = ()
    views: Views = PLAIN
    shifts: int = 0

    @classmethod
    def of(cls, settings: Settings) -> RowForm:
        """Return the form of the rows of a run."""
        return cls(settings.branches, Views.of(settings), settings.shifts)


class PpoState(NamedTuple):
    """Weights and the moments of Adam after `n_opts` updates; float32 but for that, int32."""

    weights: Weights
    first: Weights
    second: Weights
    n_opts: Any


class SavedPpo(NamedTuple):
    """The tensors of a checkpoint: the state, and the weights of the policy before the newest."""

    newest: PpoState
    before: Weights


class RolloutRows(NamedTuple):
    """
    Rows of a rollout, padded to a fixed number.

    In a minibatch `images` are those that each row sees: uint8, [rows, frames * B].

    Attributes:
        features: float32, [rows, F], normalized, without those of images.
        images: Those of the rows, and of others that they see: uint8, [images, B].
        actions: float32, [rows, A], continuous ones unclipped, then the indices of choices.
        allowed: bool, [rows, choices].
        chooses: bool, [rows], True where the agent could act in several ways.
        log_probs: float32, [rows], under the policy that acted.
        advantages: float32, [rows], centered and scaled.
        returns: float32, [rows], in units of scaled rewards.
        memories: float32, [rows, memory], what the agents remembered before each row.
        begins: bool, [rows], True where `memories` is not what the row before has left.
        frames: int32, [rows, frames], the places in `images` of what each row sees, the oldest
            first, -1 for a black one.

    """

    features: Any
    images: Any
    actions: Any
    allowed: Any
    chooses: Any
    log_probs: Any
    advantages: Any
    returns: Any
    memories: Any
    begins: Any
    frames: Any


class Intake(NamedTuple):
    """
    What rows do to memories.

    Attributes:
        along: The share that is kept, times the cosine of the angle: float32, [n, memory / 2].
        across: The same with the sine: float32, [n, memory / 2].
        real: What is taken in by the real parts: float32, [n, memory / 2].
        imaginary: What is taken in by the imaginary parts: float32, [n, memory / 2].
        share: How much of that is added: float32, [n, memory / 2].

    """

    along: Any
    across: Any
    real: Any
    imaginary: Any
    share: Any

    def following(self, before: Sequence[Any], still: int) -> tuple[Any, Any]:
        """
        Return the parts of what is remembered after the rows.

        Args:
            before: The real and the imaginary parts before them: float32, [n, memory / 2].
            still: How many of the numbers stand still: all of what a new memory takes in is added
                to these.

        """
        real, imaginary = before
        is_new = ~(real.any(-1, keepdims=True) | imaginary.any(-1, keepdims=True))
        begins = is_new & (np.arange(real.shape[-1]) < still)
        share = self.share + begins * (1.0 - self.share)
        return (
            self.along * real - self.across * imaginary + share * self.real,
            self.across * real + self.along * imaginary + share * self.imaginary,
        )


class PpoRates(NamedTuple):
    """
    The numbers of the updates, arguments of their compiled code: float32 scalars, and a key.

    key: the random key of a run or, of one update, its own: uint32, [2].
    """

    learning_rate: Any
    clip_range: Any
    entropy_coefficient: Any
    value_coefficient: Any
    max_gradient_norm: Any
    key: Any


def first_state(settings: Settings) -> PpoState:
    """Return the state before the first update, in numpy; the seed determines it."""
    random = np.random.default_rng(settings.seed)
    outputs = settings.continuous + sum(settings.branches)
    weights = Weights(
        _network(random, settings, outputs, _ACTOR_GAIN),
        np.zeros(settings.continuous, np.float32),
        _network(random, settings, 1, _CRITIC_GAIN),
        make_memory(random, settings, encoded_width(settings)),
        make_encoders(random, settings),
        make_choosers(random, settings),
    )
    return PpoState(weights, *no_moments(weights), np.int32(0))


def _network(random: np.random.Generator, settings: Settings, outputs: int, gain: float) -> Network:
    """Return a network whose second layer has the memory among its inputs."""
    hidden, inputs = [settings.hidden] * settings.layers, encoded_width(settings)
    if not settings.memory:
        return orthogonal_network(random, [inputs, *hidden, outputs], gain)
    (first,) = orthogonal_network(random, [inputs, settings.hidden], HIDDEN_GAIN)
    rest = [settings.hidden + settings.memory, *hidden[1:], outputs]
    return [first, *orthogonal_network(random, rest, gain)]


def rates_of(settings: Settings, n_opts: int, share: float = 1.0) -> PpoRates:
    """
    Return the numbers of the updates that follow on `n_opts` updates, in numpy.

    `share` is that of the learning rate which is taken.
    """
    return PpoRates(
        np.float32(share * learning_rate(settings, n_opts)),
        np.float32(settings.clip_range),
        np.float32(settings.entropy_coefficient),
        np.float32(settings.value_coefficient),
        np.float32(settings.max_gradient_norm),
        random_key(settings),
    )
