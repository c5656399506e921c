"""The policy of PPO as an ONNX model: Gaussian actions, branches of choices, and their masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.learning.algorithm import Layer
from arkml.learning.networks import answer, magnitude
from arkml.learning.normalizer import Scaling
from arkml.learning.policy_graph import (
    TOLERANCE,
    ExportWrong,
    PolicyGraph,
    Tensors,
    require_close,
    run,
    samples,
    tensors_of,
)

_CONSTANTS = {
    "zero": 0.0,
    "half": 0.5,
    "one": 1.0,
    "root_half": math.sqrt(0.5),
    "below_one": 1.0 - 2.0**-24,  # the largest quantile, so that some sum is over its level
    "smallest_logit": -1e8,
    "largest_logit": 1e8,
    "impossible": -1e30,  # the logit of a choice that is not allowed
}

_BLOCK = 64  # choices that are summed by one matrix

Doubles = npt.NDArray[np.float64]


class Heads(NamedTuple):
    """
    The outputs of the networks for a batch.

    mean: float32, [n, C]. logits: float32, [n, choices of all branches], without masks. values:
    float32, [n, 1], in the guest's units of reward.
    """

    mean: Floats
    logits: Floats
    values: Floats


ReferenceHeads = Callable[[Floats], Heads]
"""Computes the outputs of the networks for observations, float32, [n, F]."""


@dataclass(frozen=True, slots=True)
class PpoWeights:
    """
    The weights of a policy of PPO and its normalization, copies that never change.

    Both networks take the normalized features, with a ReLU between layers and none after the last.

    Attributes:
        scaling: The scaling of features and rewards.
        actor: The layers whose outputs are the means of the continuous actions, and then the logits
            of all branches, one after another.
        critic: The layers whose one output is the value, in scaled rewards.
        log_std: The logarithms of the deviations of the continuous actions: float32, [C].
        branches: The number of choices of each branch.
        n_opts: The number of updates so far.

    """

    scaling: Scaling
    actor: tuple[Layer, ...]
    critic: tuple[Layer, ...]
    log_std: Floats
    branches: tuple[int, ...]
    n_opts: int

    @property
    def actions(self) -> int:
        """Number of actions: all continuous ones, and one for each branch."""
        return len(self.log_std) + len(self.branches)

    def heads(self, observations: Floats) -> Heads:
        """Return the outputs of the networks in numpy. observations: float32, [n, F]."""
        inputs = self.scaling.features(observations)
        mean, logits = np.split(answer(self.actor, inputs), [len(self.log_std)], axis=1)
        values = answer(self.critic, inputs) * np.float32(self.scaling.reward)
        return Heads(mean, logits, values)

    def tensors(self) -> Tensors:
        """Return the weights that the graph reads."""
        tensors = tensors_of(self.scaling, {"actor": self.actor, "critic": self.critic})
        return tensors | {"deviation": np.exp(self.log_std)}

    def build(self, graph: PolicyGraph) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """
        Add the nodes of the policy, with its normalization.

        Inputs, float32: `observations`, [N, F]; `epsilon`, [N, A], standard normal numbers or
        zeros; and with branches `action_masks`, [N, choices of all branches], 1 for a choice that
        is allowed and 0 for any other. Outputs, float32: `raw_actions`, [N, A], continuous actions
        mean + deviation * epsilon and then the number of the choice in each branch; `actions`,
        [N, A], with the continuous ones clipped to [-1, 1]; and `values`, [N, 1], in the guest's
        units of reward.

        The choice of a branch is the first whose cumulative probability is above the normal
        distribution function of epsilon, or the likeliest for an epsilon of exactly 0. Only allowed
        choices have a probability; a branch without an allowed choice allows all of them.
        """
        continuous, branches = len(self.log_std), self.branches
        inputs = graph.normalized("observations")
        mean, logits = graph.columns(graph.layers(inputs, "actor"), (continuous, sum(branches)))
        noise, ranks = graph.columns("epsilon", (continuous, len(branches)))
        raw, clipped = [], []
        if continuous:
            spread = graph.node("Mul", [noise, graph.weight("deviation")])
            drawn = graph.node("Add", [mean, spread])
            bounds = [graph.constant("action_low", -1.0), graph.constant("action_high", 1.0)]
            raw, clipped = [drawn], [graph.node("Clip", [drawn, *bounds])]
        if branches:
            choices = _Branches(graph, branches).choices(logits, ranks)
            raw, clipped = [*raw, choices], [*clipped, choices]
        graph.node("Concat", raw, "raw_actions", axis=1)
        graph.node("Concat", clipped, "actions", axis=1)
        graph.returns(graph.layers(inputs, "critic"))
        widths = {"observations": len(self.scaling.mean), "epsilon": self.actions}
        if branches:
            widths["action_masks"] = sum(branches)
        return widths, {"actions": self.actions, "raw_actions": self.actions, "values": 1}

    def check(self, model: bytes, reference: ReferenceHeads | None = None) -> None:
        """
        Compare a model with the learner's networks, at average, typical and extreme observations.

        Raises ExportWrong if answers differ, if the model makes a masked choice, or if its choice
        is not the one at the quantile of epsilon. `reference` is `heads` by default.
        """
        continuous = len(self.log_std)
        observations, epsilon = samples(self.scaling, self.actions)
        heads = (reference or self.heads)(observations)
        inputs = {"observations": observations, "epsilon": epsilon}
        masks = np.ones((len(observations), sum(self.branches)), np.float32)
        if self.branches:
            masks[2:] = np.random.default_rng(1).random(masks[2:].shape) < 0.5
            inputs["action_masks"] = masks
        actions, raw, values = run(model, inputs, ["actions", "raw_actions", "values"])
        deviation = np.exp(self.log_std)
        drawn = np.asarray(heads.mean + deviation * epsilon[:, :continuous], np.float32)
        scaled = self.scaling.features(observations)
        largest = max(float(np.abs(drawn).max(initial=0.0)), magnitude(self.actor, scaled))
        value_scale = magnitude(self.critic, scaled) * float(self.scaling.reward)
        require_close("raw actions", raw[:, :continuous], drawn, largest)
        require_close("actions", actions[:, :continuous], drawn.clip(-1.0, 1.0), largest)
        require_close("choices", actions[:, continuous:], raw[:, continuous:], 0.0)
        require_close("values", values, heads.values, value_scale)
        start = 0
        for branch, size in enumerate(self.branches):
            columns = slice(start, start + size)
            start += size
            _require_choices(
                branch,
                raw[:, continuous + branch],
                heads.logits[:, columns].astype(np.float64),
                masks[:, columns] > 0.5,
                epsilon[:, continuous + branch],
            )


class _Branches:
    """
    The part of a graph that chooses, for all branches at once.

    Its tensors are [N, branches, choices of the largest branch]; places beyond the choices of a
    smaller branch are not allowed.
    """

    def __init__(self, graph: PolicyGraph, branches: Sequence[int]) -> None:
        self._graph = graph
        most = max(branches)
        if most > _BLOCK:
            most = -(-most // _BLOCK) * _BLOCK
        self._shape = len(branches), most
        starts = list(accumulate(branches, initial=0))[:-1]
        places = np.arange(most)
        sizes = np.array(branches)[:, None]
        index = np.array(starts)[:, None] + np.minimum(places, sizes - 1)
        self._index = graph.integers("choice_index", index)
        self._exists = graph.constant("choice_exists", places < sizes)
        self._axis = graph.integers("choice_axis", [2])
        for name, value in _CONSTANTS.items():
            graph.constant(name, value)

    def choices(self, logits: str, ranks: str) -> str:
        """Add the choice of each branch, float32, [N, branches], by logits and epsilon `ranks`."""
        graph = self._graph
        allowed = self._allowed()
        scores = self._scores(logits, allowed)
        likeliest = graph.node("ArgMax", [scores], axis=2, keepdims=0)
        drawn = self._drawn(scores, allowed, ranks)
        is_zero = graph.node("Equal", [ranks, "zero"])
        chosen = graph.node("Where", [is_zero, likeliest, drawn])
        return graph.node("Cast", [chosen], to=1)

    def _allowed(self) -> str:
        """Add 1 for each allowed choice, or for every one if a branch allows none; else 0."""
        graph = self._graph
        masks = graph.node("Gather", ["action_masks", self._index], axis=1)
        open_ = graph.node("Greater", [masks, "half"])
        given = graph.node("Mul", [graph.node("Cast", [open_], to=1), self._exists])
        any_ = graph.node("ReduceMax", [given], axes=[2], keepdims=1)
        none = graph.node("Sub", ["one", any_])
        return graph.node("Max", [given, graph.node("Mul", [none, self._exists])])

    def _scores(self, logits: str, allowed: str) -> str:
        """Add finite logits, which no choice that is not allowed reaches; NaN counts as 0."""
        graph = self._graph
        wide = graph.node("Gather", [logits, self._index], axis=1)
        is_number = graph.node("Equal", [wide, wide])
        numbers = graph.node("Where", [is_number, wide, "zero"])
        bounded = graph.node("Clip", [numbers, "smallest_logit", "largest_logit"])
        is_allowed = graph.node("Greater", [allowed, "half"])
        return graph.node("Where", [is_allowed, bounded, "impossible"])

    def _drawn(self, scores: str, allowed: str, ranks: str) -> str:
        """Add the choice at the quantile of epsilon, int64, [N, branches]."""
        graph = self._graph
        # A softmax may leave a little probability to impossible choices.
        shares = graph.node("Mul", [graph.node("Softmax", [scores], axis=2), allowed])
        sums = self._sums(shares)
        total = graph.node("ReduceMax", [graph.node("Mul", [sums, allowed])], axes=[2])
        normal = graph.node("Mul", [ranks, "root_half"])
        double = graph.node("Add", [graph.node("Erf", [normal]), "one"])
        quantile = graph.node("Mul", [double, "half"])
        below = graph.node("Min", [quantile, "below_one"])
        level = graph.node("Mul", [graph.node("Unsqueeze", [below, self._axis]), total])
        is_over = graph.node("Cast", [graph.node("Greater", [sums, level])], to=1)
        # 2 for an allowed choice over the level, 1 for any other allowed one, 0 for the rest.
        rated = graph.node("Mul", [allowed, graph.node("Add", [is_over, "one"])])
        return graph.node("ArgMax", [rated], axis=2, keepdims=0)

    def _sums(self, shares: str) -> str:
        """Add cumulative sums along the last axis, in blocks if there are many choices."""
        graph, (count, most) = self._graph, self._shape
        size = min(most, _BLOCK)
        within = graph.constant("sum_within", np.triu(np.ones((size, size))))
        if most <= _BLOCK:
            return graph.node("MatMul", [shares, within])
        number = most // _BLOCK
        blocks = graph.integers("block_shape", [0, count, number, _BLOCK])
        inner = graph.node("MatMul", [graph.node("Reshape", [shares, blocks]), within])
        totals = graph.node("Gather", [inner, graph.integers("block_end", _BLOCK - 1)], axis=3)
        before = graph.constant("sum_before", np.triu(np.ones((number, number)), 1))
        starts = graph.node("MatMul", [totals, before])
        starts = graph.node("Unsqueeze", [starts, graph.integers("block_axis", [3])])
        whole = graph.integers("choice_shape", [0, count, most])
        return graph.node("Reshape", [graph.node("Add", [inner, starts]), whole])


def _require_choices(
    branch: int, chosen: Floats, logits: Doubles, masks: npt.NDArray[np.bool_], epsilon: Floats
) -> None:
    """Raise ExportWrong for choices, float32, [n], that do not follow from logits, [n, choices]."""
    allowed = masks | ~masks.any(axis=1, keepdims=True)
    shown = np.where(allowed, logits, -np.inf)
    shares = np.exp(shown - shown.max(axis=1, keepdims=True))
    sums = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    scale = TOLERANCE * max(1.0, float(np.abs(logits).max()))
    for row, choice in enumerate(chosen.tolist()):
        place = int(choice) if choice in range(logits.shape[1]) else -1
        fits = place >= 0 and bool(allowed[row, place])
        if fits and epsilon[row] == 0:
            fits = shown[row, place] >= shown[row].max() - scale
        elif fits:
            level = 0.5 * (1.0 + math.erf(float(epsilon[row]) * math.sqrt(0.5)))
            before = sums[row, place - 1] if place else 0.0
            fits = before - scale <= level <= sums[row, place] + scale
        if not fits:
            raise ExportWrong(
                f"the exported model chooses {choice:g} in branch {branch}, with logits"
                f" {_listed(logits[row])}, masks {_listed(masks[row])} and epsilon {epsilon[row]:g}"
            )


def _listed(values: npt.NDArray[Any]) -> list[Any]:
    listed: list[Any] = values[:8].tolist()
    return listed
