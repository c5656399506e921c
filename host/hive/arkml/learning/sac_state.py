"""
The state of soft actor-critic, and the numbers that an update needs, as arrays of any library.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from arkml.hive.protocol.settings import Settings
from arkml.learning.encoders import encoded_width, make_encoders
from arkml.learning.networks import AdamMoments, make_network, mapped, no_moments, stacked
from arkml.learning.normalizer import Scaling

LOG_STD = (-20.0, 2.0)
"""Bounds of the logarithm of the standard deviation, as in stable-baselines3."""

CRITICS = 2


class SacState(NamedTuple):
    """
    Networks, temperature and optimizers after `n_opts` updates; `n_opts` is int32, others float32.

    The actor ends in 2 * A outputs: means, then logarithms of deviations. The layers of `critics`
    and `targets` have the critics along their first axis. `log_alpha` is a scalar. `encoders` are
    the encoders of a row's parts, whose outputs actor and critics take, and `target_encoders` the
    encoders of the targets; both are empty for rows of plain numbers.
    """

    actor: Any
    critics: Any
    targets: Any
    log_alpha: Any
    actor_moments: AdamMoments
    critic_moments: AdamMoments
    alpha_moments: AdamMoments
    n_opts: Any
    encoders: Any
    target_encoders: Any
    encoder_moments: AdamMoments


class SacRates(NamedTuple):
    """
    The numbers that compiled updates take as arguments; float32 scalars except for the scaling.

    Attributes:
        mean: The mean of each feature, see `normalizer.Scaling`: [F].
        inverse: The inverse deviation of each feature: [F].
        reward: The number that rewards are divided by.
        reward_bound: The bound of scaled rewards.
        first_rate: The learning rate of the first update.
        last_rate: The learning rate after `steps` updates.
        steps: The number of updates over which the learning rate changes; 0 for a constant one.
        tau: The fraction by which targets move to the critics in an update.
        alpha: The temperature, NaN for a learned one.
        target_entropy: The entropy that a learned temperature aims at.

    """

    mean: Any
    inverse: Any
    reward: Any
    reward_bound: Any
    first_rate: Any
    last_rate: Any
    steps: Any
    tau: Any
    alpha: Any
    target_entropy: Any


def first_state(settings: Settings) -> SacState:
    """Return the state before the first update, in numpy; the seed determines it."""
    random = np.random.default_rng(settings.seed)
    hidden = [settings.hidden] * settings.layers
    features, actions = encoded_width(settings), settings.actions
    actor = make_network(random, [features, *hidden, 2 * actions])
    critics = stacked(
        [make_network(random, [features + actions, *hidden, 1]) for _ in range(CRITICS)]
    )
    encoders = make_encoders(random, settings)
    learns_alpha = isinstance(settings.alpha, str)
    log_alpha = np.float32(0.0 if learns_alpha or not settings.alpha else np.log(settings.alpha))
    return SacState(
        actor,
        critics,
        mapped(np.copy, critics),
        log_alpha,
        no_moments(actor),
        no_moments(critics),
        AdamMoments(np.float32(0.0), np.float32(0.0)),
        np.int32(0),
        encoders,
        mapped(np.copy, encoders),
        no_moments(encoders),
    )


def rates_of(settings: Settings, scaling: Scaling) -> SacRates:
    """Return the arguments for the compiled updates of a run, in numpy."""
    fixed = np.nan if isinstance(settings.alpha, str) else settings.alpha
    numbers = (
        scaling.reward,
        scaling.reward_bound,
        settings.learning_rate_init,
        settings.learning_rate_end,
        settings.learning_rate_steps,
        settings.tau,
        fixed,
        settings.target_entropy * settings.actions,
    )
    return SacRates(scaling.mean, scaling.inverse, *map(np.float32, numbers))
