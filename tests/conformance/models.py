"""Small ONNX models whose answers can be told by hand."""

import numpy as np
from tests.unit.policy_models import adding, linear, model, node, noisy, port, weight

__all__ = [
    "adding",
    "constant",
    "linear",
    "model",
    "node",
    "noisy",
    "port",
    "same",
    "valued",
    "wandering",
]


def same(width):
    """actions = obs"""
    return model(
        [node("Identity", "obs", "actions")],
        [port("obs", "N", width)],
        [port("actions", "N", width)],
    )


def valued(width):
    """actions = obs, value = twice the first of them."""
    two = np.zeros((width, 1))
    two[0] = 2
    return model(
        [node("Identity", "obs", "actions"), node("MatMul", "obs two", "value")],
        [port("obs", "N", width)],
        [port("actions", "N", width), port("value", "N", 1)],
        [weight("two", two)],
    )


def constant(actions):
    """The same actions whatever happens, from an observation of width 0."""
    return model(
        [node("MatMul", "obs none", "zero"), node("Add", "zero bias", "actions")],
        [port("obs", "N", 0)],
        [port("actions", "N", len(actions))],
        [weight("none", np.zeros((0, len(actions)))), weight("bias", actions)],
    )


def dense(features, actions, seed=0):
    """tanh of a dense layer with weights drawn from `seed`."""
    random = np.random.default_rng(seed)
    return model(
        [node("MatMul", "obs w", "sum"), node("Tanh", "sum", "actions")],
        [port("obs", "N", features)],
        [port("actions", "N", actions)],
        [weight("w", random.normal(size=(features, actions)))],
    )


def wandering(width):
    """memory = memory + obs, actions = memory + epsilon"""
    return model(
        [
            node("Add", "memory_in obs", "memory_out"),
            node("Add", "memory_out epsilon", "actions"),
        ],
        [port(name, "N", width) for name in ("obs", "memory_in", "epsilon")],
        [port("actions", "N", width), port("memory_out", "N", width)],
    )
