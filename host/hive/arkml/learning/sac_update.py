"""
The updates of soft actor-critic, compiled by JAX: many in one call, on batches of raw rows.

The number of updates is an argument of the loop, so one program serves any number (decision 16).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from arkml.learning.encoders import PLAIN, Views, encoded
from arkml.learning.image_shifts import shifted
from arkml.learning.jax_maps import JAX
from arkml.learning.networks import AdamMoments
from arkml.learning.normalizer import CLIP
from arkml.learning.replay_buffer import BatchBlock
from arkml.learning.sac_state import CRITICS, LOG_STD, SacRates, SacState
from arkml.learning.updates import Updated, forward, repeat, step

LOG_ALPHA = -10.0, 3.0
"""
Bounds of the logarithm of a learned temperature, which stable-baselines3 leaves open.

A policy at the bounds of its actions has an entropy that no temperature changes: without bounds it
grows by the learning rate with every update, until returns are not finite.
"""

_DECAY = 0.999
"""The decay of Adam's second moments, optax's default."""

_ADAM = optax.scale_by_adam(b2=_DECAY)
_LOG_OF_ROOT_OF_2_PI = 0.9189385332046727
_EPSILON = 1e-6
"""Added to 1 - tanh(x)^2 before its logarithm, as in stable-baselines3."""


class SacLosses(NamedTuple):
    """Values of one update, or their sums over several: float32 scalars."""

    actor: Any
    critics: Any
    temperature: Any
    alpha: Any
    entropy: Any


class SacFigures(NamedTuple):
    """
    Metrics of some updates besides their losses: float32 scalars.

    Mean, lowest and highest of the returns that the critics expected of the last batch, in units of
    scaled rewards; the mean distance to their targets; and the root mean squared norms of all
    gradients.
    """

    q_mean: Any
    q_min: Any
    q_max: Any
    td_error: Any
    actor_norm: Any
    critic_norm: Any


class SacReturns(NamedTuple):
    """The returns of a batch that critics expect, [critics, B], and their targets, [B]: float32."""

    expected: Any
    wanted: Any


class Noise(NamedTuple):
    """Standard normal numbers for the actions at rows and at next rows: float32, [B, A]."""

    here: Any
    following: Any


def make_updates(
    state: SacState,
    block: BatchBlock,
    count: Any,
    key: Any,
    rates: SacRates,
    *,
    views: Views = PLAIN,
    shifts: int = 0,
) -> Updated:
    """
    Make an update on each of the first `count` batches of a block.

    Args:
        state: The networks, optimizers and the number of updates so far.
        block: The batches: [k, B, ...].
        count: The number of batches: int32.
        key: The run's random key: uint32, [2]. With the number of updates so far it determines the
            noise of each update, so a restarted learner draws equal noise.
        rates: The rates of this call, such as learning rates and the scaling.
        views: The parts of a row.
        shifts: The most pixels by which images are moved, 0 for none.

    """

    def make_update(number: Any, state: SacState) -> tuple[SacState, SacLosses, SacReturns]:
        batch = BatchBlock(*(column[number] for column in block))
        own = jax.random.fold_in(key, state.n_opts)
        here, following = jax.random.normal(own, (2, *batch.actions.shape), jnp.float32)
        if shifts:
            moved = (
                shifted(views, shifts, images, jax.random.fold_in(own, turn))
                for turn, images in enumerate((batch.images, batch.following_images))
            )
            batch = batch._replace(**dict(zip(("images", "following_images"), moved, strict=True)))
        return update(state, batch, Noise(here, following), rates, views)

    wanted = jnp.zeros_like(block.rewards[0])
    nothing = SacReturns(jnp.zeros((CRITICS, *wanted.shape), jnp.float32), wanted)
    outcome, seen = repeat(make_update, state, count, SacLosses, nothing)
    return outcome._replace(figures=figures_of(state, outcome.state, seen))


def update(
    state: SacState, batch: BatchBlock, noise: Noise, rates: SacRates, views: Views = PLAIN
) -> tuple[SacState, SacLosses, SacReturns]:
    """
    Make one update, in the order of stable-baselines3: temperature, critics, actor, targets.

    All steps use the temperature from before the update. The critics' loss trains the encoders of
    rows' parts, and the actor's loss does not, as in SAC+AE (arXiv:1910.01741) and DrQ; the actor
    takes the encoders' outputs from before the update.

    Args:
        state: The state before.
        batch: One batch, with columns of [B, ...].
        noise: The noise of the actions.
        rates: The rates.
        views: The parts of a row.

    Returns:
        The state after the update, its losses, and the returns of the batch.

    """
    rate = _learning_rate(state.n_opts, rates)

    def move(parameters: Any, gradients: Any, moments: AdamMoments) -> tuple[Any, AdamMoments]:
        return step(_ADAM, state.n_opts, parameters, gradients, moments, rate)

    features = _scaled(batch.features, rates)
    following = _scaled(batch.following, rates)
    bound = rates.reward_bound
    rewards = jnp.clip(batch.rewards / rates.reward, -bound, bound)
    alpha = jnp.where(jnp.isnan(rates.alpha), jnp.exp(state.log_alpha), rates.alpha)

    next_seen, next_target = (
        encoded(JAX, views, each, following, batch.following_images)
        for each in (state.encoders, state.target_encoders)
    )
    next_actions, next_log_prob = sample(state.actor, next_seen, noise.following)
    future = returns(state.targets, next_target, next_actions).min(0) - alpha * next_log_prob
    wanted = jax.lax.stop_gradient(rewards + batch.discounts * future)

    def loss_of_both(critics: Any, encoders: Any) -> tuple[Any, tuple[Any, Any]]:
        seen = encoded(JAX, views, encoders, features, batch.images)
        loss, expected = critic_loss_of(critics, seen, batch.actions, wanted)
        return loss, (expected, seen)

    (critic_loss, (expected, seen)), (critic_gradients, encoder_gradients) = jax.value_and_grad(
        loss_of_both, (0, 1), has_aux=True
    )(state.critics, state.encoders)
    critics, critic_moments = move(state.critics, critic_gradients, state.critic_moments)
    encoders, encoder_moments = move(state.encoders, encoder_gradients, state.encoder_moments)

    (actor_loss, log_prob), actor_gradients = jax.value_and_grad(actor_loss_of, has_aux=True)(
        state.actor, critics, seen, noise.here, alpha
    )
    actor, actor_moments = move(state.actor, actor_gradients, state.actor_moments)

    log_likelihood = log_prob.mean()
    surplus = log_likelihood + rates.target_entropy
    temperature_loss = -state.log_alpha * surplus
    log_alpha, alpha_moments = move(state.log_alpha, -surplus, state.alpha_moments)
    log_alpha = jnp.clip(log_alpha, *LOG_ALPHA)

    targets, target_encoders = jax.tree.map(
        lambda old, new: old + rates.tau * (new - old),
        (state.targets, state.target_encoders),
        (critics, encoders),
    )
    after = SacState(
        actor,
        critics,
        targets,
        log_alpha,
        actor_moments,
        critic_moments,
        alpha_moments,
        state.n_opts + 1,
        encoders,
        target_encoders,
        encoder_moments,
    )
    losses = SacLosses(actor_loss, critic_loss, temperature_loss, alpha, -log_likelihood)
    return after, losses, SacReturns(expected, wanted)


def figures_of(before: SacState, after: SacState, seen: SacReturns) -> SacFigures:
    """
    Return metrics of the updates between two states; `seen` has the returns of the last update.
    """
    return SacFigures(
        seen.expected.mean(),
        seen.expected.min(),
        seen.expected.max(),
        jnp.abs(seen.expected - seen.wanted).mean(),
        *(
            _gradient_norm(old.second, new.second, after.n_opts - before.n_opts)
            for old, new in (
                (before.actor_moments, after.actor_moments),
                (before.critic_moments, after.critic_moments),
            )
        ),
    )


def _gradient_norm(before: Any, after: Any, updates: Any) -> Any:
    """
    Return the root of the mean squared norm of the gradients of some updates.

    It is computed from Adam's second moments, which average the squared gradients with nearly equal
    weights within a turn, so the updates themselves return nothing extra.
    """
    kept = jnp.float32(_DECAY) ** updates
    parts = jax.tree.map(lambda old, new: (new - kept * old).sum(), before, after)
    return jnp.sqrt(jnp.maximum(sum(jax.tree.leaves(parts)), 0.0) / (1.0 - kept))


def critic_loss_of(critics: Any, features: Any, actions: Any, wanted: Any) -> tuple[Any, Any]:
    """
    Return half the mean squared error of each critic, summed, and the returns that they expect.

    Args:
        critics: The critics.
        features: Normalized features: float32, [B, F].
        actions: float32, [B, A].
        wanted: The targets of the returns: float32, [B].

    Returns:
        The loss, and the expected returns: float32, [critics, B].

    """
    expected = returns(critics, features, actions)
    return 0.5 * jnp.square(expected - wanted).mean(1).sum(), expected


def actor_loss_of(
    actor: Any, critics: Any, features: Any, noise: Any, alpha: Any
) -> tuple[Any, Any]:
    """Return the actor's loss (entropy cost less return, a mean), and log-probabilities, [B]."""
    actions, log_prob = sample(actor, features, noise)
    lowest = returns(critics, features, actions).min(0)
    return (alpha * log_prob - lowest).mean(), log_prob


def sample(actor: Any, features: Any, noise: Any) -> tuple[Any, Any]:
    """Sample actions, [B, A], within (-1, 1), and return them with their log-probabilities, [B]."""
    mean, log_std = jnp.split(forward(actor, features), 2, -1)
    log_std = jnp.clip(log_std, *LOG_STD)
    actions = jnp.tanh(mean + jnp.exp(log_std) * noise)
    of_raw = -0.5 * jnp.square(noise) - log_std - _LOG_OF_ROOT_OF_2_PI
    log_prob = (of_raw - jnp.log(1.0 - jnp.square(actions) + _EPSILON)).sum(-1)
    return actions, log_prob


def returns(critics: Any, features: Any, actions: Any) -> Any:
    """Return the returns that each critic expects: float32, [critics, B]."""
    pairs = jnp.concatenate([features, actions], -1)
    return jax.vmap(forward, (0, None))(critics, pairs)[..., 0]


def _scaled(features: Any, rates: SacRates) -> Any:
    return jnp.clip((features - rates.mean) * rates.inverse, -CLIP, CLIP)


def _learning_rate(n_opts: Any, rates: SacRates) -> Any:
    """Return the learning rate after `n_opts` updates, between the first rate and the last."""
    share = jnp.where(rates.steps > 0, 1.0 - n_opts / jnp.maximum(rates.steps, 1.0), 1.0)
    return rates.last_rate + (rates.first_rate - rates.last_rate) * jnp.maximum(share, 0.0)
