"""The parts of compiled updates that all algorithms share: networks, Adam, and the loop, in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from arkml.learning.networks import AdamMoments


class Updated(NamedTuple):
    """
    The state after updates, their mean losses, and whether all numbers of both are finite.

    `figures` are further metrics of some algorithms.
    """

    state: Any
    losses: Any
    is_finite: Any
    figures: Any = ()


def repeat(
    update: Callable[[Any, Any], tuple[Any, Any, Any]],
    state: Any,
    count: Any,
    losses: Any,
    seen: Any,
) -> tuple[Updated, Any]:
    """
    Make `count` updates one after another, in a compiled loop that serves any number.

    Args:
        update: Makes one update, given the state and its number from 0 on. Returns the next state,
            the losses, and further values.
        state: The state before.
        count: The number of updates: int32.
        losses: A named tuple type of the losses of an update, float32 scalars.
        seen: Zeros in the shapes of these further values.

    Returns:
        The outcome without figures, and the further values of the last update.

    """

    def body(number: Any, carry: Any) -> Any:
        state, sums, _ = carry
        state, lost, seen = update(number, state)
        return state, losses(*(a + b for a, b in zip(sums, lost, strict=True))), seen

    zeros = losses(*(jnp.zeros((), jnp.float32) for _ in losses._fields))
    state, sums, seen = jax.lax.fori_loop(0, count, body, (state, zeros, seen))
    means = losses(*(value / count for value in sums))
    finite = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((state, means))]
    return Updated(state, means, jnp.stack(finite).all()), seen


def forward(network: Any, inputs: Any) -> Any:
    """Return the outputs of a network with ReLUs between its layers, as `networks.answer` does."""
    for layer in network[:-1]:
        inputs = jax.nn.relu(inputs @ layer.weight + layer.bias)
    return inputs @ network[-1].weight + network[-1].bias


def step(
    adam: optax.GradientTransformation,
    n_opts: Any,
    parameters: Any,
    gradients: Any,
    moments: AdamMoments,
    rate: Any,
) -> tuple[Any, AdamMoments]:
    """
    Make a step of Adam, and return the new parameters and moments.

    Args:
        adam: Made by `optax.scale_by_adam`.
        n_opts: The number of steps before: int32.
        parameters: The parameters before.
        gradients: The gradients of the parameters.
        moments: The moments before.
        rate: The learning rate.

    """
    before = optax.ScaleByAdamState(n_opts, moments.first, moments.second)
    steps, after = adam.update(gradients, before)
    moved = jax.tree.map(lambda value, step: value - rate * step, parameters, steps)
    return moved, AdamMoments(after.mu, after.nu)
