"""The state of PPO and the numbers that its updates take, as arrays of any library."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from arkml.hive.protocol.settings import Settings
from arkml.learning.networks import learning_rate, no_moments, orthogonal_network

_ACTOR_GAIN = 0.01  # the first policy is the same everywhere, as in stable-baselines3
_CRITIC_GAIN = 1.0


class Weights(NamedTuple):
    """
    Actor and critic.

    The outputs of `actor` are the means of the continuous actions, then the logits of the branches
    side by side. log_std: [continuous], the same at every row. `critic` has one output, in units of
    scaled rewards.
    """

    actor: Any
    log_std: Any
    critic: Any


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

    Attributes:
        features: float32, [rows, F], normalized.
        actions: float32, [rows, A], continuous ones unclipped, then the indices of choices.
        allowed: bool, [rows, choices].
        log_probs: float32, [rows], under the policy that acted.
        advantages: float32, [rows], in units of scaled rewards.
        returns: float32, [rows], in units of scaled rewards.

    """

    features: Any
    actions: Any
    allowed: Any
    log_probs: Any
    advantages: Any
    returns: Any


class PpoRates(NamedTuple):
    """The numbers of the updates, arguments of their compiled code: float32 scalars."""

    learning_rate: Any
    clip_range: Any
    entropy_coefficient: Any
    value_coefficient: Any
    max_gradient_norm: Any


def first_state(settings: Settings) -> PpoState:
    """Return the state before the first update, in numpy; the seed determines it."""
    random = np.random.default_rng(settings.seed)
    hidden = [settings.hidden] * settings.layers
    outputs = settings.continuous + sum(settings.branches)
    weights = Weights(
        orthogonal_network(random, [settings.features, *hidden, outputs], _ACTOR_GAIN),
        np.zeros(settings.continuous, np.float32),
        orthogonal_network(random, [settings.features, *hidden, 1], _CRITIC_GAIN),
    )
    return PpoState(weights, *no_moments(weights), np.int32(0))


def rates_of(settings: Settings, n_opts: int) -> PpoRates:
    """Return the numbers of the updates that follow on `n_opts` updates, in numpy."""
    numbers = (
        learning_rate(settings, n_opts),
        settings.clip_range,
        settings.entropy_coefficient,
        settings.value_coefficient,
        settings.max_gradient_norm,
    )
    return PpoRates(*map(np.float32, numbers))
