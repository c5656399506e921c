"""Networks of linear layers with a ReLU between them, in numpy, and the rate of their updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Layer

Network = list[Layer]
"""Layers in order; there is a ReLU between two of them, and none after the last."""

MEMORY_STEPS = 4.0, 1_000.0
"""Steps for which the fastest and the slowest number of a memory are kept at first, which turn."""

HELD_STEPS = 100.0, 10_000.0
"""The same of those that stand still."""

LEAST_OPEN = 1e-5
"""
The least that a gate is open.

Engines round sigmoids near 0 to 1e-7, and the root of what a number takes in makes 4e-4 of that.
"""

_GATE_GAIN = 0.1  # at first, rows hardly change how long a number is kept
_STILL = 4  # one in so many numbers of a memory does not turn

HIDDEN_GAIN = float(np.sqrt(2.0))


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree like the given one with the results of a function at its leaves."""
    if hasattr(tree, "_fields"):
        return type(tree)(*[mapped(function, child) for child in tree])
    if isinstance(tree, list):
        return [mapped(function, child) for child in tree]
    return function(tree)


def doubled(tree: Any) -> Any:
    """Return a tree in float64, for answers without the rounding errors of float32."""
    return mapped(lambda leaf: np.asarray(leaf, np.float64), tree)


class AdamMoments(NamedTuple):
    """First and second moments of Adam, each shaped as the parameters."""

    first: Any
    second: Any


def no_moments(parameters: Any) -> AdamMoments:
    """Return the moments before the first update."""
    return AdamMoments(mapped(np.zeros_like, parameters), mapped(np.zeros_like, parameters))


def random_key(settings: Settings) -> npt.NDArray[np.uint32]:
    """Return the random key of the updates of a run: uint32, [2]."""
    return np.random.SeedSequence(settings.seed).generate_state(2).astype(np.uint32)


def learning_rate(settings: Settings, n_opts: int) -> float:
    """Return the learning rate of the update that follows on `n_opts` updates."""
    first, last = settings.learning_rate_init, settings.learning_rate_end
    if not settings.learning_rate_steps:
        return first
    return last + (first - last) * max(0.0, 1.0 - n_opts / settings.learning_rate_steps)


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


def orthogonal_network(random: np.random.Generator, widths: Sequence[int], gain: float) -> Network:
    """
    Return a network with orthogonal weights, as in stable-baselines3, and biases of zero.

    Args:
        random: The generator of the weights.
        widths: The widths of its inputs, hidden layers and outputs.
        gain: The scale of the weights of the last layer.

    """
    gains = [HIDDEN_GAIN] * (len(widths) - 2) + [gain]
    return [
        Layer(_orthogonal(random, inputs, outputs, each), np.zeros(outputs, np.float32))
        for (inputs, outputs), each in zip(pairwise(widths), gains, strict=True)
    ]


class RecurrentUnit(NamedTuple):
    """
    A gated linear recurrent unit: `memory` / 2 complex numbers, of which each step keeps a share.

    A step keeps the share a = 1 - g of each number. g, from LEAST_OPEN to 1, is the gate of this
    step, as in a minimal GRU (arXiv:2410.01201) and a real-gated linear unit (arXiv:2402.19427).

    The first numbers stand still, and hold: they are means over time, since a step adds g times
    what it takes in. The others turn, and tell by their angles how long ago something was, as in a
    linear recurrent unit (arXiv:2303.06349): a step turns each by its angle, and adds what it takes
    in times the root of 1 - a², which keeps its variance.

    A memory of zeros is new: the means over its first row are what they take in of it.

    Attributes:
        encoder: The layer, with a ReLU, by which the unit sees its inputs: [inputs, hidden].
        gates: The layer whose sigmoids are the gates: [hidden, memory / 2].
        taken: The layer whose hyperbolic tangents are taken in: [hidden, memory].
        angles: Of the numbers that turn, in radians: float32, [turning].

    """

    encoder: Layer
    gates: Layer
    taken: Layer
    angles: Any

    @property
    def still(self) -> int:
        """The number of numbers that stand still."""
        return len(self.gates.bias) - len(self.angles)

    @property
    def turns(self) -> tuple[Floats, Floats]:
        """The cosine and the sine of the angle of each number: float32, [memory / 2]."""
        angles = np.pad(np.asarray(self.angles), (self.still, 0))
        return np.cos(angles), np.sin(angles)


def make_memory(
    random: np.random.Generator, settings: Settings, inputs: int
) -> RecurrentUnit | list[Any]:
    """
    Return the memory of a run with so many inputs, an empty list for none.

    One in four numbers stands still. They are forgotten after as many steps as HELD_STEPS says,
    and the others as MEMORY_STEPS says, evenly by the logarithm (chrono initialization,
    arXiv:1804.11188). The angles of those that turn lie evenly between 0 and pi: what was shown any
    number of steps ago is a sum of them, as a signal is one of waves.
    """
    hidden, memory = settings.hidden, settings.memory
    if not memory:
        return []
    still = -(-memory // (2 * _STILL))
    turning = memory // 2 - still
    spans = []
    for steps, count in ((HELD_STEPS, still), (MEMORY_STEPS, turning)):
        fastest, slowest = np.log(steps)
        spans.append(random.uniform(fastest, slowest, count))
    angles = np.pi * (np.arange(turning) + random.random(turning)) / max(1, turning)
    (encoder,) = orthogonal_network(random, [inputs, hidden], HIDDEN_GAIN)
    return RecurrentUnit(
        encoder,
        Layer(
            _orthogonal(random, hidden, memory // 2, _GATE_GAIN),
            -np.concatenate(spans).astype(np.float32),
        ),
        Layer(_orthogonal(random, hidden, memory, 1.0), np.zeros(memory, np.float32)),
        angles.astype(np.float32),
    )


def remembered(memory: RecurrentUnit, inputs: Floats, before: Floats) -> Floats:
    """
    Return what is remembered after rows: float32, [n, memory].

    inputs: float32, [n, F]. before: float32, [n, memory], what was remembered before: real parts,
    and then imaginary ones.
    """
    seen = np.maximum(inputs @ memory.encoder.weight + memory.encoder.bias, 0.0)
    gates, taken = (seen @ layer.weight + layer.bias for layer in (memory.gates, memory.taken))
    opened = np.maximum(1.0 / (1.0 + np.exp(-gates)), LEAST_OPEN).astype(np.float32)
    real, imaginary = np.split(before, 2, axis=1)
    cosine, sine = memory.turns
    turned = [cosine * real - sine * imaginary, sine * real + cosine * imaginary]
    kept = np.tile(1.0 - opened, 2) * np.concatenate(turned, axis=1)
    share = np.sqrt(opened * (2.0 - opened))
    share[:, : memory.still] = opened[:, : memory.still]
    share[~before.any(axis=1), : memory.still] = 1.0
    after: Floats = kept + np.tile(share, 2) * np.tanh(taken)
    return after


def stacked(networks: Sequence[Network]) -> Network:
    """Return networks of equal widths as one, whose arrays have them along the first axis."""
    layers = zip(*networks, strict=True)
    return [Layer(*(np.stack(arrays) for arrays in zip(*each, strict=True))) for each in layers]


def answer(network: Sequence[Layer], inputs: Floats, memories: Floats | None = None) -> Floats:
    """
    Return the outputs of a network: float32, [n, outputs].

    inputs: float32, [n, inputs]. memories: float32, [n, memory], what the second layer takes beside
    the outputs of the first.
    """
    for number, layer in enumerate(network):
        if number:
            inputs = _beside(np.maximum(inputs, 0.0), memories if number == 1 else None)
        inputs = inputs @ layer.weight + layer.bias
    return inputs


def magnitude(network: Sequence[Layer], inputs: Floats, memories: Floats | None = None) -> float:
    """
    Return the largest sum of absolute terms in any layer, the scale of its rounding errors.

    Terms may cancel each other out, and their rounding errors do not. Arguments as of `answer`.
    """
    largest = 0.0
    for number, layer in enumerate(network):
        if number:
            inputs = _beside(np.maximum(inputs, 0.0), memories if number == 1 else None)
        terms = np.abs(inputs) @ np.abs(layer.weight) + np.abs(layer.bias)
        largest = max(largest, float(terms.max(initial=0.0)))
        inputs = inputs @ layer.weight + layer.bias
    return largest


def _beside(inputs: Floats, memories: Floats | None) -> Floats:
    return inputs if memories is None else np.concatenate([inputs, memories], axis=1)


def _orthogonal(random: np.random.Generator, inputs: int, outputs: int, gain: float) -> Floats:
    """Return orthogonal rows or columns, whichever are fewer: float32, [inputs, outputs]."""
    normal = random.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    directions, triangle = np.linalg.qr(normal)
    directions *= np.sign(np.diag(triangle))  # else they would not be evenly distributed
    oriented = directions if inputs >= outputs else directions.T
    return np.ascontiguousarray(gain * oriented, np.float32)
