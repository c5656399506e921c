"""The parts that updates of all algorithms share, in JAX: networks, Adam, and the compiled loop."""

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

    `figures` are further figures of some algorithms, for people.
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
    Make `count` updates, one after the other, in a loop that one program has for any number.

    Args:
        update: Makes the update of a number from 0 on. Returns the state after it, its losses, and
            what it has seen.
        state: The state before.
        count: The number of updates: int32.
        losses: A named tuple type of the losses of an update, float32 scalars.
        seen: Zeros of the shapes of what an update has seen.

    Returns:
        The outcome without figures, and what the last update has seen.

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
    """Return the outputs of a network, as `networks.answer` does."""
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
    Return parameters after a step of Adam, and its moments.

    Args:
        adam: Made by `optax.scale_by_adam`.
        n_opts: The number of steps before: int32.
        parameters: The parameters before.
        gradients: Their gradients.
        moments: The moments before.
        rate: The learning rate.

    """
    before = optax.ScaleByAdamState(n_opts, moments.first, moments.second)
    steps, after = adam.update(gradients, before)
    moved = jax.tree.map(lambda value, step: value - rate * step, parameters, steps)
    return moved, AdamMoments(after.mu, after.nu)
