"""
The updates of PPO, compiled by JAX: all epochs and minibatches of a rollout in one call.

The number of minibatches is an argument of the loop, so one program serves any number (decision
16).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from arkml.learning.algorithm import Layer
from arkml.learning.encoders import encoded, stacked
from arkml.learning.image_shifts import shifted
from arkml.learning.jax_maps import JAX
from arkml.learning.networks import LEAST_OPEN, AdamMoments, RecurrentUnit
from arkml.learning.place_choices import with_places
from arkml.learning.ppo_state import Intake, PpoRates, PpoState, RolloutRows, RowForm, Weights
from arkml.learning.updates import Updated, forward, repeat, step

MASKED = -1e9
"""Logit of a choice that an agent cannot take: its probability is exactly 0 in float32."""

_HOLDING = 0.05
"""
The share of an update by which the gates of numbers that stand still are moved.

What they hold is what is left after as many steps as the rest of an episode has: gates that move as
other weights do lose it before the policy has learned to go by it.
"""

_ADAM = optax.scale_by_adam(eps=1e-5)  # as in stable-baselines3's PPO
_NORM_EPSILON = 1e-6  # added to the norm of gradients, as in torch
_LOG_OF_2_PI = 1.8378770664093453

_SHIFTED_SHARE = 0.1
"""The coefficient of what shifted images change, as in DrAC (arXiv:2006.12862)."""


class PpoLosses(NamedTuple):
    """
    Losses and measures of one minibatch, or means over several: float32 scalars.

    All but that of values are means over the rows with a choice: the others, whose masks leave one
    choice for each branch, cannot move, and would hide how far these did. `last_kl` is `approx_kl`
    over the last epoch.
    """

    policy: Any
    value: Any
    entropy: Any
    total: Any
    approx_kl: Any
    clip_fraction: Any
    gradient_norm: Any
    last_kl: Any


def evaluate(
    form: RowForm,
    weights: Weights,
    features: Any,
    images: Any,
    actions: Any,
    allowed: Any,
    memories: Any,
) -> tuple[Any, Any]:
    """
    Return log-probabilities of actions, [n], and values, [n].

    Arguments as in RolloutRows, of a minibatch.
    """
    outputs, values = heads(
        form,
        weights,
        features,
        images,
        lambda intake, still: intake.following(jnp.split(memories, 2, -1), still),
    )
    log_probs, _ = score(form.branches, weights.log_std, outputs, actions, allowed)
    return log_probs, values


def take_in(form: RowForm, weights: Weights, features: Any, images: Any) -> Intake:
    """
    Return what each row does to memories, whatever is remembered.

    Rows of any version are computed beside others thus.
    """
    return _intake(weights.memory, encoded(JAX, form.views, weights.encoders, features, images))


def make_updates(
    form: RowForm,
    state: PpoState,
    rows: RolloutRows,
    minibatches: Any,
    count: Any,
    epochs: Any,
    rates: PpoRates,
) -> Updated:
    """
    Make an update from each of the first `count` minibatches.

    Args:
        form: The form of the rows.
        state: The state before.
        rows: The rows of the rollout.
        minibatches: Indices of rows, -1 for padding: int32, [at least count, sequences, steps].
        count: The number of minibatches: int32.
        epochs: The number of epochs that they make: int32.
        rates: The rates of this call, such as the learning rate.

    """

    def make_update(number: Any, state: PpoState) -> tuple[PpoState, PpoLosses, tuple[()]]:
        sequences = minibatches[number].T  # so that the rows of a step lie side by side
        places = sequences.reshape(-1)
        by_row = rows._replace(images=rows.features[:, :0])
        chosen = RolloutRows(*(column[jnp.maximum(places, 0)] for column in by_row))
        in_sequences = jnp.maximum(sequences, 0)
        chosen = chosen._replace(
            images=stacked(jnp, rows.images, chosen.frames),
            memories=rows.memories[in_sequences],
            begins=rows.begins[in_sequences],
        )
        state, losses = update(form, state, chosen, places >= 0, rates)
        is_last = number >= count - count // epochs
        losses = losses._replace(last_kl=jnp.where(is_last, epochs * losses.last_kl, 0.0))
        return state, losses, ()

    return repeat(make_update, state, count, PpoLosses, ())[0]


def update(
    form: RowForm, state: PpoState, rows: RolloutRows, counts: Any, rates: PpoRates
) -> tuple[PpoState, PpoLosses]:
    """Make one update from a minibatch. Arguments as in `losses_of`, with the key of the run."""
    rates = rates._replace(key=jax.random.fold_in(rates.key, state.n_opts))
    gradients, losses = jax.grad(losses_of, has_aux=True)(state.weights, form, rows, counts, rates)
    norm = jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(gradients)))
    shrink = jnp.minimum(1.0, rates.max_gradient_norm / (norm + _NORM_EPSILON))
    gradients = jax.tree.map(lambda leaf: leaf * shrink, gradients)
    moments = AdamMoments(state.first, state.second)
    rate = rates.learning_rate
    weights, after = step(_ADAM, state.n_opts, state.weights, gradients, moments, rate)
    if weights.memory:
        weights = weights._replace(memory=_holding(state.weights.memory, weights.memory))
    losses = losses._replace(gradient_norm=norm)
    return PpoState(weights, *after, state.n_opts + 1), losses


def losses_of(
    weights: Weights, form: RowForm, rows: RolloutRows, counts: Any, rates: PpoRates
) -> tuple[Any, PpoLosses]:
    """
    Return the loss of a minibatch, and its parts; the norm of gradients among them is 0 here.

    Policy and value are learned at the images that the agents saw. Shifted ones are to have the
    same, as in DrAC: the ratio of probabilities would not be that of the action's if it was taken
    at one image and rated at another.

    Args:
        weights: The networks.
        form: The form of the rows.
        rows: The rows of the minibatch, by the steps of sequences: of memories and beginnings the
            first two axes are steps and sequences.
        counts: False for padding: bool, [B].
        rates: The coefficients of the parts, with the key of the update.

    """
    choosing = counts & rows.chooses

    def mean(values: Any, of: Any = choosing) -> Any:
        return jnp.where(of, values, 0.0).sum() / jnp.maximum(of.sum(), 1)

    answer = partial(heads, form, weights, rows.features, remember=partial(_in_sequences, rows))
    outputs, values = answer(rows.images)
    log_probs, entropies = score(
        form.branches, weights.log_std, outputs, rows.actions, rows.allowed
    )
    change = log_probs - rows.log_probs
    ratio = jnp.exp(change)
    clipped = jnp.clip(ratio, 1.0 - rates.clip_range, 1.0 + rates.clip_range)
    policy = -mean(jnp.minimum(rows.advantages * ratio, rows.advantages * clipped))
    value = mean(jnp.square(rows.returns - values), counts)
    entropy = -mean(entropies)
    total = policy + rates.entropy_coefficient * entropy + rates.value_coefficient * value
    if form.shifts:
        moved = shifted(form.views, form.shifts, rows.images, rates.key)
        others, other_values = answer(moved)
        wanted, wanted_values = jax.lax.stop_gradient((outputs, values))
        apart = divergences(form.branches, weights.log_std, wanted, others, rows.allowed)
        of_values = mean(jnp.square(wanted_values - other_values), counts)
        total += _SHIFTED_SHARE * (mean(apart) + rates.value_coefficient * of_values)
    approx_kl = mean(ratio - 1.0 - change)
    clip_fraction = mean(jnp.abs(ratio - 1.0) > rates.clip_range)
    no_norm = jnp.zeros((), jnp.float32)
    return total, PpoLosses(
        policy, value, entropy, total, approx_kl, clip_fraction, no_norm, approx_kl
    )


def heads(
    form: RowForm,
    weights: Weights,
    features: Any,
    images: Any,
    remember: Callable[[Intake, int], Any],
) -> tuple[Any, Any]:
    """
    Return the outputs of the actor, [n, outputs], and values, [n].

    Args:
        form: The form of the rows.
        weights: The networks.
        features: Those of the rows, as in RolloutRows.
        images: Those that the rows see: of any type, [n, frames * B].
        remember: Where there is memory, returns the real and the imaginary parts of what is
            remembered after each row, [n, memory / 2], by what rows do to memories, and how many
            numbers stand still.

    """
    seen = encoded(JAX, form.views, weights.encoders, features, images)
    networks = (weights.actor, weights.critic)
    if not weights.memory:
        outputs, values = (forward(network, seen) for network in networks)
    else:
        after = remember(_intake(weights.memory, seen), weights.memory.still)
        outputs, values = (
            forward(rest, jnp.concatenate([jax.nn.relu(linear(first, seen)), *after], -1))
            for first, *rest in networks
        )
    choosers = weights.choosers
    outputs = with_places(JAX, form.views, form.branches, choosers, features, outputs)
    return outputs, values[:, 0]


def linear(layer: Layer, inputs: Any) -> Any:
    """Return the outputs of a layer."""
    return inputs @ layer.weight + layer.bias


def _holding(before: RecurrentUnit, after: RecurrentUnit) -> RecurrentUnit:
    """Return a unit after an update, the gates of whose still numbers are moved by little."""
    still = jnp.arange(len(after.gates.bias)) < after.still
    share = jnp.where(still, _HOLDING, 1.0)
    gates = jax.tree.map(lambda old, new: old + share * (new - old), before.gates, after.gates)
    return after._replace(gates=gates)


def _intake(memory: RecurrentUnit, features: Any) -> Intake:
    seen = jax.nn.relu(linear(memory.encoder, features))
    opened = jnp.maximum(jax.nn.sigmoid(linear(memory.gates, seen)), LEAST_OPEN)
    real, imaginary = jnp.split(jnp.tanh(linear(memory.taken, seen)), 2, -1)
    keep = 1.0 - opened
    angles = jnp.pad(memory.angles, (memory.still, 0))
    along, across = keep * jnp.cos(angles), keep * jnp.sin(angles)
    holding, turning = jnp.split(opened, [memory.still], -1)
    share = jnp.concatenate([holding, jnp.sqrt(turning * (2.0 - turning))], -1)
    return Intake(along, across, real, imaginary, share)


def _in_sequences(rows: RolloutRows, intake: Intake, still: int) -> tuple[Any, Any]:
    """Return the parts of what is remembered after each row of sequences: float32, [n, memory]."""

    def follow(left: tuple[Any, Any], row: Any) -> tuple[Any, Any]:
        begins, before, taken = row
        after = taken.following(
            [jnp.where(begins, *two) for two in zip(before, left, strict=True)], still
        )
        return after, after

    steps, sequences = rows.begins.shape
    by_step = Intake(*(part.reshape(steps, sequences, -1) for part in intake))
    before = tuple(jnp.split(rows.memories, 2, -1))
    nothing = (jnp.zeros_like(before[0][0]),) * 2
    _, after = jax.lax.scan(follow, nothing, (rows.begins[..., None], before, by_step))
    real, imaginary = (part.reshape(steps * sequences, -1) for part in after)
    return real, imaginary


def score(
    branches: tuple[int, ...], log_std: Any, outputs: Any, actions: Any, allowed: Any
) -> tuple[Any, Any]:
    """
    Return log-probabilities of actions, [n], and entropies of their distributions, [n].

    The distribution is a Gaussian for each continuous action and a categorical one for each branch,
    all independent of each other.
    """
    continuous = len(log_std)
    deviations = (actions[:, :continuous] - outputs[:, :continuous]) * jnp.exp(-log_std)
    each = -0.5 * (jnp.square(deviations) + _LOG_OF_2_PI) - log_std
    log_probs = each.sum(-1)
    entropies = jnp.full_like(log_probs, (0.5 * (1.0 + _LOG_OF_2_PI) + log_std).sum())
    first = 0
    for branch, choices in enumerate(branches):
        span = slice(first, first + choices)
        logs = branch_log_probs(outputs[:, continuous:][:, span], allowed[:, span])
        choice = actions[:, continuous + branch, None].astype(jnp.int32)
        log_probs += jnp.take_along_axis(logs, choice, 1, mode="clip")[:, 0]
        entropies -= (jnp.exp(logs) * logs).sum(-1)
        first += choices
    return log_probs, entropies


def divergences(
    branches: tuple[int, ...], log_std: Any, outputs: Any, others: Any, allowed: Any
) -> Any:
    """
    Return the divergence of the distributions by `others` from those by `outputs`: float32, [n].

    Both have the deviations of `log_std`, which gets no gradient of it. Arguments as of `score`.
    """
    continuous = len(log_std)
    inverse = jnp.exp(-jax.lax.stop_gradient(log_std))
    apart = (outputs[:, :continuous] - others[:, :continuous]) * inverse
    result = 0.5 * jnp.square(apart).sum(-1)
    first = 0
    for choices in branches:
        span = slice(first, first + choices)
        logs, other_logs = (
            branch_log_probs(each[:, continuous:][:, span], allowed[:, span])
            for each in (outputs, others)
        )
        result += (jnp.exp(logs) * (logs - other_logs)).sum(-1)
        first += choices
    return result


def branch_log_probs(logits: Any, allowed: Any) -> Any:
    """
    Return the log-probabilities of the choices of a branch: float32, [n, choices].

    logits: float32, [n, choices]. allowed: bool, [n, choices]; a row that allows none allows all.
    """
    allowed |= ~allowed.any(-1, keepdims=True)
    return jax.nn.log_softmax(jnp.where(allowed, logits, MASKED), -1)
