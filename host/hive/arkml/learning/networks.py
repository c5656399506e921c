"""Networks of linear layers with a ReLU between them, made and answered in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from arkml.batches import Floats
from arkml.learning.algorithm import Layer

Network = list[Layer]
"""Layers in order; there is a ReLU between two of them, and none after the last."""


def make_network(random: np.random.Generator, widths: Sequence[int]) -> Network:
    """
    Return a network with the widths of its inputs, hidden layers and outputs.

    Weights are uniform within 1 / sqrt(inputs) of zero, as in `torch.nn.Linear`; biases are zero.
    """
    return [
        Layer(
            (random.uniform(-1.0, 1.0, (inputs, outputs)) / np.sqrt(inputs)).astype(np.float32),
            np.zeros(outputs, np.float32),
        )
        for inputs, outputs in pairwise(widths)
    ]


def answer(network: Sequence[Layer], inputs: Floats) -> Floats:
    """Return the outputs of a network: float32, [n, outputs]. inputs: float32, [n, inputs]."""
    for layer in network[:-1]:
        inputs = np.maximum(inputs @ layer.weight + layer.bias, 0.0)
    return inputs @ network[-1].weight + network[-1].bias


def magnitude(network: Sequence[Layer], inputs: Floats) -> float:
    """
    Return the largest sum of absolute terms in any layer, the scale of its rounding errors.

    Terms may cancel each other out, and their rounding errors do not. inputs: float32, [n, inputs].
    """
    largest = 0.0
    for layer in network:
        terms = np.abs(inputs) @ np.abs(layer.weight) + np.abs(layer.bias)
        largest = max(largest, float(terms.max(initial=0.0)))
        inputs = np.maximum(inputs @ layer.weight + layer.bias, 0.0)
    return largest
